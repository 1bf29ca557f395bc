package storage

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/queues"
)

// burst calls n times and returns how many calls the service accepted. A
// failure that is not ServerBusy ends the test.
func burst(t *testing.T, n int, call func() error) (accepted int) {
	t.Helper()
	for range n {
		err := call()
		if re, ok := errors.AsType[*azcore.ResponseError](err); ok && re.StatusCode == http.StatusServiceUnavailable &&
			re.ErrorCode == "ServerBusy" {
			continue
		}
		if err != nil {
			t.Fatalf("call: %v", err)
		}
		accepted++
	}
	return accepted
}

func (a *fixture) put(t *testing.T) func() error {
	return func() error {
		_, err := a.queue.EnqueueMessage(t.Context(), "text", nil)
		return err
	}
}

func TestQueueLimitOfAzure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{Limits: &Limits{}})
		time.Sleep(time.Second)
		if got := burst(t, 2100, a.put(t)); got != 2000 {
			t.Errorf("%d of 2100 puts at one instant were accepted, want 2000", got)
		}
		if got := a.Throttled(); got != 100 {
			t.Errorf("Throttled = %d, want 100", got)
		}
		if got := a.Counts()[queues.OpPutMessage]; got != 2100 {
			t.Errorf("PutMessage was counted %d times, want 2100: refused calls too", got)
		}
		if got := len(a.Messages("jobs")); got != 2000 {
			t.Errorf("the queue has %d messages, want 2000: a refused call has no effect", got)
		}
		time.Sleep(time.Second)
		if got := burst(t, 10, a.put(t)); got != 10 {
			t.Errorf("a second later %d of 10 puts were accepted, want all", got)
		}
		a.ResetCounts()
		if got := a.Throttled(); got != 0 {
			t.Errorf("Throttled after ResetCounts = %d, want 0", got)
		}
	})
}

func TestEveryMessageHandedOutCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{})
		burst(t, 30, a.put(t))
		a.SetLimits(&Limits{QueueMessages: 10})
		get := func() error {
			_, err := a.queue.DequeueMessages(t.Context(), &azqueue.DequeueMessagesOptions{NumberOfMessages: new(int32(25))})
			return err
		}
		if got := burst(t, 2, get); got != 1 {
			t.Errorf("%d of 2 gets of 25 were accepted, want 1", got)
		}
		time.Sleep(1900 * time.Millisecond)
		if got := burst(t, 1, get); got != 0 {
			t.Errorf("a get was accepted in the second second, want none: 25 messages fill 2.5 seconds")
		}
		time.Sleep(200 * time.Millisecond)
		if got := burst(t, 20, get); got != 1 {
			t.Errorf("%d of 20 gets were accepted in the third second, want 1: it finds the last 5, and 10 are full", got)
		}
		a.SetLimits(nil)
		if got := burst(t, 50, get); got != 50 {
			t.Errorf("%d of 50 gets were accepted without limits, want all", got)
		}
	})
}

func TestAccountLimitCountsBothServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{})
		a.SetLimits(&Limits{QueueMessages: -1, AccountRequests: 10})
		if got := burst(t, 6, a.put(t)); got != 6 {
			t.Errorf("%d of 6 puts were accepted, want all", got)
		}
		if got := burst(t, 6, func() error { return a.upload(t.Context(), "b", 1) }); got != 4 {
			t.Errorf("%d of 6 uploads were accepted, want the 4 that the account has left", got)
		}
		a.SetLimits(&Limits{QueueMessages: -1, AccountRequests: -1})
		if got := burst(t, 30, a.put(t)); got != 30 {
			t.Errorf("%d of 30 puts were accepted with negative limits, want all", got)
		}
	})
}
