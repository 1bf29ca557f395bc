package azure

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// seen is one call, without its time.
type seen struct{ Service, Operation, Status string }

// recorder records the calls of [AccountConfig].OnCall.
type recorder struct {
	mu    sync.Mutex
	calls []seen
}

func (r *recorder) called(c Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, seen{c.Service, c.Operation, c.Status})
}

// TestCallsAreNamed makes every kind of call that the programs make and some
// more, and demands the service's own names for them.
func TestCallsAreNamed(t *testing.T) {
	server := storage.New(storage.Options{})
	var want []seen
	server.OnResult(func(r storage.Result) {
		want = append(want, seen{string(r.Service), r.Operation, statusOf(&http.Response{StatusCode: r.Status})})
	})
	told := &recorder{}
	account, err := Connect(AccountConfig{ConnectionString: server.ConnectionString(), Transport: server.Transport(), OnCall: told.called})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	body := func() *bytes.Reader { return bytes.NewReader([]byte("body")) }
	container, queue := account.Container("things"), account.Queue("messages") // a queue may be called that
	one := container.NewBlockBlobClient("block/list?comp=list")
	for _, call := range []func() error{
		func() error { _, err := container.Create(ctx, nil); return err },
		func() error { _, err := container.GetProperties(ctx, nil); return err },
		func() error { _, err := one.Upload(ctx, streaming.NopCloser(body()), nil); return err },
		func() error { _, err := one.DownloadStream(ctx, nil); return err },
		func() error { _, err := one.GetProperties(ctx, nil); return err },
		func() error { _, err := one.SetMetadata(ctx, map[string]*string{"a": new("b")}, nil); return err },
		func() error { _, err := one.StageBlock(ctx, "AAAA", streaming.NopCloser(body()), nil); return err },
		func() error { _, err := one.CommitBlockList(ctx, []string{"AAAA"}, nil); return err },
		func() error { _, err := one.GetBlockList(ctx, "committed", nil); return err },
		func() error { _, err := container.NewListBlobsFlatPager(nil).NextPage(ctx); return err },
		func() error { _, err := one.Delete(ctx, nil); return err },
		func() error { _, err := queue.Create(ctx, nil); return err },
		func() error { _, err := queue.GetProperties(ctx, nil); return err },
		func() error { _, err := queue.EnqueueMessage(ctx, "text", nil); return err },
		func() error { _, err := queue.PeekMessages(ctx, nil); return err },
		func() error {
			reply, err := queue.DequeueMessages(ctx, nil)
			if err != nil || len(reply.Messages) == 0 {
				return errors.Join(err, errors.New("no message"))
			}
			m := reply.Messages[0]
			updated, err := queue.UpdateMessage(ctx, *m.MessageID, *m.PopReceipt, "text", nil)
			if err != nil {
				return err
			}
			_, err = queue.DeleteMessage(ctx, *m.MessageID, *updated.PopReceipt, nil)
			return err
		},
		func() error { _, err := queue.ClearMessages(ctx, nil); return err },
		func() error { _, err := account.Queue("other").Create(ctx, nil); return err },
		func() error { _, err := account.Queue("other").Delete(ctx, nil); return err },
		func() error { _, err := container.Delete(ctx, nil); return err },
	} {
		if err := call(); err != nil {
			t.Fatal(err)
		}
	}
	// Refusals have their class, and are not repeated.
	_, err = one.DownloadStream(ctx, &blob.DownloadStreamOptions{})
	if err == nil {
		t.Fatal("read of a blob that is gone succeeds")
	}
	want[len(want)-1].Status = StatusMissing // and so is its container
	if diff := cmp.Diff(want, told.calls); diff != "" {
		t.Errorf("calls (-service +told):\n%s", diff)
	}
	if slices.ContainsFunc(told.calls, func(s seen) bool { return s.Operation == Other }) {
		t.Errorf("calls without a name: %v", told.calls)
	}
}

// TestRetriesCount: each retry of a call is reported, with its class.
func TestRetriesCount(t *testing.T) {
	server := storage.New(storage.Options{})
	faults := []storage.Fault{{Refuse: &storage.Error{Status: 503, Code: "ServerBusy", Message: "slower"}}, {DropRequest: true},
		{Refuse: &storage.Error{Status: 500, Code: "InternalError", Message: "no"}}, {}}
	n := 0
	server.OnCall(func(storage.Call) storage.Fault { n++; return faults[n-1] })
	told := &recorder{}
	account, err := Connect(AccountConfig{ConnectionString: server.ConnectionString(), Transport: server.Transport(), OnCall: told.called})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := account.Container("things").Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range told.calls {
		got = append(got, c.Status)
	}
	if want := []string{"throttled", "unanswered", "5xx", "2xx"}; !slices.Equal(got, want) {
		t.Errorf("classes = %q, want %q", got, want)
	}
}

// TestFailedCalls: a call fails if the service does not do its work. A refused condition and a
// call that its caller cancels are no failures.
func TestFailedCalls(t *testing.T) {
	refuse := func(status int, code string) storage.Fault {
		return storage.Fault{Refuse: &storage.Error{Status: status, Code: code, Message: "no"}}
	}
	for name, c := range map[string]struct {
		first  storage.Fault // of the first try
		cancel bool
		want   []bool // failed, by try
	}{
		"throttled":  {refuse(503, "ServerBusy"), false, []bool{true, false}},
		"error":      {refuse(500, "InternalError"), false, []bool{true, false}},
		"too slow":   {refuse(500, "OperationTimedOut"), false, []bool{true, false}},
		"unanswered": {storage.Fault{DropRequest: true}, false, []bool{true, false}},
		"denied":     {refuse(403, "AuthorizationFailure"), false, []bool{true}},
		"condition":  {refuse(409, "ContainerAlreadyExists"), false, []bool{false}},
		"good":       {storage.Fault{}, false, []bool{false}},
		"cancelled":  {storage.Fault{Before: time.Minute}, true, []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				server, tries := storage.New(storage.Options{}), 0
				server.OnCall(func(storage.Call) storage.Fault {
					if tries++; tries > 1 {
						return storage.Fault{}
					}
					if c.cancel {
						time.AfterFunc(time.Second, cancel)
					}
					return c.first
				})
				var got []bool
				account, err := Connect(AccountConfig{ConnectionString: server.ConnectionString(), Transport: server.Transport(),
					OnCall: func(call Call) { got = append(got, call.Failed) }})
				if err != nil {
					t.Fatal(err)
				}
				_, _ = account.Container("things").Create(ctx, nil) // how it ends does not matter
				if !slices.Equal(got, c.want) {
					t.Errorf("failed = %v, want %v", got, c.want)
				}
			})
		})
	}
}

// TestThrottledCalls: a call that came too fast is reported as such, each retry too, with
// the queue that it was about.
func TestThrottledCalls(t *testing.T) {
	for _, row := range []struct {
		refusal storage.Error
		want    bool
	}{
		{storage.Error{Status: 503, Code: "ServerBusy"}, true},
		{storage.Error{Status: 429, Code: "TooManyRequests"}, true},
		{storage.Error{Status: 500, Code: "OperationTimedOut"}, true},
		{storage.Error{Status: 500, Code: "InternalError"}, false},
		{storage.Error{Status: 404, Code: "MessageNotFound"}, false},
	} {
		server := storage.New(storage.Options{})
		server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Refuse: &row.refusal} })
		var calls []Call
		account, err := Connect(AccountConfig{
			ConnectionString: server.ConnectionString(), Transport: server.Transport(), OnCall: func(c Call) { calls = append(calls, c) },
			Retry: &policy.RetryOptions{MaxRetries: 1, RetryDelay: 1, MaxRetryDelay: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range []func() error{
			func() error { _, err := account.Queue("jobs").PeekMessages(t.Context(), nil); return err },
			func() error {
				_, err := account.Queue("jobs").DeleteMessage(t.Context(), "id", "receipt", nil)
				return err
			},
			func() error { _, err := account.Queue("jobs").GetProperties(t.Context(), nil); return err },
		} {
			calls = nil
			if call() == nil {
				t.Fatal("a refused call succeeded")
			}
			for _, c := range calls {
				if want := map[bool]string{true: "jobs"}[row.want]; c.Throttled != row.want || c.Queue != want {
					t.Errorf("%s after %s: Throttled = %t for queue %q, want %t for %q", c.Operation, row.refusal.Code, c.Throttled, c.Queue, row.want,
						want)
				}
			}
			if tries := len(calls); row.want && tries != 2 {
				t.Errorf("calls reported after %s = %d, want 2: one retry", row.refusal.Code, tries)
			}
		}
		_, err = account.Container("things").GetProperties(t.Context(), nil)
		if last := calls[len(calls)-1]; err == nil || last.Throttled != row.want || last.Queue != "" {
			t.Errorf("blob call after %s = %+v, want Throttled %t without a queue", row.refusal.Code, last, row.want)
		}
	}
}
