package storage

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/queues"
)

// setupHTTP is setup over loopback sockets.
func setupHTTP(t *testing.T) *fixture {
	t.Helper()
	s := New(Options{})
	connectionString, err := s.Listen(Addresses{})
	if err != nil {
		t.Fatalf("Listen: %v", err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return connect(t, s, connectionString, policy.ClientOptions{Transport: client, Retry: policy.RetryOptions{MaxRetries: -1}})
}

func TestDroppedRequestOverHTTP(t *testing.T) {
	a := setupHTTP(t)
	a.OnCall(on(queues.OpPutMessage, Fault{DropRequest: true}))
	if _, err := a.queue.EnqueueMessage(t.Context(), "text", nil); !errors.Is(err, io.EOF) {
		t.Errorf("EnqueueMessage = %v, want %v", err, io.EOF)
	}
	if got := a.texts(); len(got) != 0 {
		t.Errorf("messages = %q, want none", got)
	}
}

func TestCancelledRequestOverHTTPHasNoEffect(t *testing.T) {
	a := setupHTTP(t)
	arrived, ended := make(chan struct{}), make(chan Result, 1)
	a.OnCall(func(c Call) Fault {
		close(arrived)
		return Fault{Before: time.Hour}
	})
	a.OnResult(func(r Result) { ended <- r })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	if _, err := a.queue.EnqueueMessage(ctx, "text", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("EnqueueMessage = %v, want %v", err, context.Canceled)
	}
	if got := <-ended; got.Status != 0 {
		t.Errorf("result = %+v, want status 0: the client went before the effect", got)
	}
	if got := a.texts(); len(got) != 0 {
		t.Errorf("messages = %q, want none", got)
	}
}

func TestCloseEndsCallsThatWait(t *testing.T) {
	a := setupHTTP(t)
	arrived, done := make(chan struct{}), make(chan error, 1)
	a.OnCall(func(Call) Fault {
		close(arrived)
		return Fault{Before: time.Hour}
	})
	go func() {
		_, err := a.queue.EnqueueMessage(context.WithoutCancel(t.Context()), "text", nil)
		done <- err
	}()
	<-arrived
	if err := a.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-done; err == nil {
		t.Errorf("EnqueueMessage succeeded, want its connection cut")
	}
	a.OnCall(nil)
	connectionString, err := a.Listen(Addresses{})
	if err != nil {
		t.Fatalf("Listen after Close: %v", err)
	}
	if connectionString == "" || len(a.Queues()) != 1 {
		t.Errorf("after Close and Listen the account has queues %q, want what it had", a.Queues())
	}
}

func TestListenRefusesOtherMachines(t *testing.T) {
	s := New(Options{})
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0"} {
		if _, err := s.Listen(Addresses{Blob: addr}); err == nil {
			t.Errorf("Listen on %s succeeded, want a refusal", addr)
		}
		if _, err := s.Listen(Addresses{Queue: addr}); err == nil {
			t.Errorf("Listen on %s succeeded, want a refusal", addr)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestListenOnAGivenAddress(t *testing.T) {
	var config net.ListenConfig
	free, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("find a free port: %v", err)
	}
	addr := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	s := New(Options{Account: "acc", Key: "a2V5"})
	defer func() { _ = s.Close() }()
	got, err := s.Listen(Addresses{Queue: addr})
	if err != nil {
		t.Fatalf("Listen: %v", err)
	}
	if want := "QueueEndpoint=http://" + addr + "/acc;"; !strings.HasSuffix(got, want) {
		t.Errorf("connection string = %q, want it to end with %q", got, want)
	}
}
