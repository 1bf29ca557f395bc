package notice

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/preempt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// vm is a watcher of the VM set_a, whose scale set has another one, in virtual time.
type vm struct {
	*Watcher
	service *imds.Server
	log     bytes.Buffer
}

func inBubble(t *testing.T, o Options, test func(t *testing.T, v *vm)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		v := &vm{service: imds.New(imds.Options{})}
		guest := v.service.AddVM(imds.VM{Name: "set_a", ScaleSet: "set"})
		v.service.AddVM(imds.VM{Name: "set_b", ScaleSet: "set"})
		client, err := preempt.NewClient("http://127.0.0.1:1", preempt.WithTransport(guest.RoundTripper()))
		if err != nil {
			t.Fatal(err)
		}
		o.Logger = slog.New(slog.NewTextHandler(&v.log, nil))
		v.Watcher = newWatcher(client, o)
		defer v.Close()
		time.Sleep(10 * time.Second)
		test(t, v)
	})
}

// expect waits for a notice, at most within, and returns it.
func (v *vm) expect(t *testing.T, want Action, within time.Duration) Notice {
	t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	n, err := v.Wait(ctx)
	if err != nil || n.Action != want {
		t.Fatalf("Wait after %s = %+v, %v, want %s", time.Since(begun), n, err, want)
	}
	return n
}

// silent checks that there is no further notice for a time.
func (v *vm) silent(t *testing.T, during time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	if n, err := v.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Wait = %+v, %v, want none for %s", n, err, during)
	}
}

// TestEviction: an eviction is told within a second and a half, with at most ten seconds to leave;
// again when it starts; and once more when it is withdrawn.
func TestEviction(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, v *vm) {
		v.silent(t, time.Minute)
		id, err := v.service.SimulateEviction("set_a")
		if err != nil {
			t.Fatal(err)
		}
		n := v.expect(t, Leave, 1500*time.Millisecond)
		left := time.Until(n.Deadline)
		if n.EventID != id || n.Type != "Preempt" || n.MayStartEarly || left > 10*time.Second || left < 8*time.Second {
			t.Errorf("notice %+v with %s left", n, left)
		}
		v.service.Schedule(imds.Event{Type: "Freeze", Resources: []string{"set_b"}, NotBefore: time.Now().Add(time.Hour)})
		v.silent(t, 5*time.Second) // the document changed, and not for this VM
		v.service.Start(id)
		if n := v.expect(t, Leave, 1500*time.Millisecond); n.Status != "Started" || time.Until(n.Deadline) > time.Second {
			t.Errorf("notice of a start %+v with %s left", n, time.Until(n.Deadline))
		}
		v.service.Withdraw(id)
		v.service.Complete(id)
		if n := v.expect(t, Continue, 1500*time.Millisecond); n.EventID != "" || !n.Deadline.IsZero() {
			t.Errorf("notice of a withdrawal %+v", n)
		}
	})
}

// TestLongNotice: a restart in five minutes is told at once, and asks to leave 30 s before. A new
// time of the event is told too.
func TestLongNotice(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, v *vm) {
		at := time.Now().Add(5 * time.Minute)
		id := v.service.Schedule(imds.Event{Type: "Reboot", Source: "Platform", Resources: []string{"set_a"}, NotBefore: at})
		n := v.expect(t, LeaveLater, 1500*time.Millisecond)
		if off := n.Deadline.Sub(at).Abs(); off > 2*time.Second || !n.MayStartEarly {
			t.Errorf("notice %+v, %s from the event", n, off)
		}
		v.service.Move(id, at.Add(time.Minute))
		if n := v.expect(t, LeaveLater, 1500*time.Millisecond); n.Deadline.Sub(at.Add(time.Minute)).Abs() > 2*time.Second {
			t.Errorf("notice after a move %+v", n)
		}
		n = v.expect(t, Leave, 6*time.Minute)
		if before := time.Until(at.Add(time.Minute)); before < 28*time.Second || before > 32*time.Second {
			t.Errorf("asked to leave %s before the event, want 30s", before)
		}
		if err := v.Acknowledge(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if e, _ := v.service.Event(id); e.Status != "Started" {
			t.Errorf("event after its acknowledgement is %+v", e)
		}
		v.service.Complete(id)
		if err := v.Acknowledge(t.Context(), n); err != nil {
			t.Errorf("Acknowledge of an event that is over = %v", err)
		}
		if err := v.Acknowledge(t.Context(), Notice{}); err == nil || !strings.Contains(err.Error(), "a notice without an event") {
			t.Errorf("Acknowledge of nothing = %v", err)
		}
	})
}

// TestSave: a pause of ten seconds asks to save. A shorter one, and an event of another VM, ask for
// nothing.
func TestSave(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, v *vm) {
		soon := time.Now().Add(15 * time.Minute)
		if _, err := v.service.SimulateEviction("set_b"); err != nil {
			t.Fatal(err)
		}
		v.service.Schedule(imds.Event{Type: "Freeze", Resources: []string{"set_a"}, NotBefore: soon, Duration: 5 * time.Second})
		n := v.expect(t, Continue, 5*time.Second) // an event that asks for nothing is named
		if n.Type != "Freeze" || !n.MayStartEarly {
			t.Errorf("notice of a short pause %+v", n)
		}
		v.service.Schedule(imds.Event{Type: "Freeze", Resources: []string{"set_a"}, NotBefore: soon, Duration: 10 * time.Second})
		if n := v.expect(t, Save, 5*time.Second); n.Type != "Freeze" || !n.Deadline.IsZero() {
			t.Errorf("notice of a pause %+v", n)
		}
	})
}

// TestNameIsNotKnown: while the service does not give the VM's name, an event of its scale set asks
// to save; the name decides. A name of the options is not asked for.
func TestNameIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := imds.New(imds.Options{})
		guest := service.AddVM(imds.VM{Name: "set_a", ScaleSet: "set"})
		var refuse atomic.Bool
		var asked atomic.Int64
		service.OnRequest(func(r imds.Request) imds.Fault {
			if !strings.Contains(r.Path, "/instance") {
				return imds.Fault{}
			}
			asked.Add(1)
			if refuse.Load() {
				return imds.Fault{Status: http.StatusInternalServerError}
			}
			return imds.Fault{}
		})
		for _, name := range []string{"", "SET_A"} {
			refuse.Store(true)
			asked.Store(0)
			client, err := preempt.NewClient("http://127.0.0.1:1", preempt.WithTransport(guest.RoundTripper()))
			if err != nil {
				t.Fatal(err)
			}
			v := &vm{service: service, Watcher: newWatcher(client, Options{VMName: name})}
			time.Sleep(10 * time.Second)
			id, err := service.SimulateEviction("set_a")
			if err != nil {
				t.Fatal(err)
			}
			if name == "" {
				if n := v.expect(t, Save, 2*time.Second); n.EventID != id {
					t.Errorf("notice without a name %+v", n)
				}
				refuse.Store(false)
			}
			if n := v.expect(t, Leave, 5*time.Second); n.EventID != id || (asked.Load() == 0) != (name != "") {
				t.Errorf("notice with a name %+v, which was asked for %d times", n, asked.Load())
			}
			service.Withdraw(id)
			v.Close()
		}
	})
}

// TestSilence: a service that does not answer is told in the log, and by SilentSince, until it does.
func TestSilence(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, v *vm) {
		v.service.OnRequest(func(imds.Request) imds.Fault { return imds.Fault{Status: http.StatusServiceUnavailable} })
		begun := time.Now()
		time.Sleep(10 * time.Second)
		if since := v.SilentSince(); since.Sub(begun).Abs() > 2*time.Second {
			t.Errorf("silent since %s, want %s", since, begun)
		}
		v.service.OnRequest(nil)
		time.Sleep(5 * time.Second)
		if since := v.SilentSince(); !since.IsZero() {
			t.Errorf("silent since %s, want no silence", since)
		}
		if log := v.log.String(); strings.Count(log, "is unavailable") != 1 || strings.Count(log, "answers again") != 1 {
			t.Errorf("log:\n%s", log)
		}
	})
}

// TestClose: Close ends a Wait, and a Wait after it.
func TestClose(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, v *vm) {
		ended := make(chan error, 1)
		go func() {
			_, err := v.Wait(t.Context())
			ended <- err
		}()
		time.Sleep(time.Second)
		v.Close()
		if err := <-ended; !errors.Is(err, errClosed) {
			t.Errorf("Wait during Close = %v", err)
		}
		if _, err := v.Wait(t.Context()); !errors.Is(err, errClosed) {
			t.Errorf("Wait after Close = %v", err)
		}
	})
}

// TestNotify: the context ends with a notice to leave, and not with others; with its parent; or by
// stop, which ends the polls.
func TestNotify(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, v *vm) {
		ctx, stop := v.notify(t.Context())
		defer stop()
		v.service.Schedule(imds.Event{Type: "Freeze", Resources: []string{"set_a"}, NotBefore: time.Now().Add(time.Minute)})
		time.Sleep(5 * time.Second)
		if ctx.Err() != nil {
			t.Fatalf("the context ended with a pause: %v", context.Cause(ctx))
		}
		id, err := v.service.SimulateEviction("set_a")
		if err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		if e, ok := errors.AsType[*Error](context.Cause(ctx)); !ok || e.Notice.EventID != id || !strings.Contains(e.Error(), "Preempt "+id) {
			t.Errorf("cause = %v", context.Cause(ctx))
		}
	})
	inBubble(t, Options{}, func(t *testing.T, v *vm) {
		reason := errors.New("parent")
		parent, cancel := context.WithCancelCause(t.Context())
		ctx, stop := v.notify(parent)
		defer stop()
		cancel(reason)
		if <-ctx.Done(); !errors.Is(context.Cause(ctx), reason) {
			t.Errorf("cause = %v", context.Cause(ctx))
		}
	})
	inBubble(t, Options{}, func(t *testing.T, v *vm) {
		ctx, stop := v.notify(t.Context())
		stop()
		if !errors.Is(context.Cause(ctx), context.Canceled) {
			t.Errorf("cause = %v", context.Cause(ctx))
		}
		if _, err := v.Wait(t.Context()); !errors.Is(err, errClosed) {
			t.Errorf("Wait after stop = %v, want a closed watcher", err)
		}
	})
}

// TestOptions: an endpoint that is no URL is an error that names it.
func TestOptions(t *testing.T) {
	for _, endpoint := range []string{"169.254", "ftp://127.0.0.1"} {
		if _, err := New(Options{Endpoint: endpoint}); err == nil || !strings.Contains(err.Error(), endpoint) {
			t.Errorf("New with %q = %v, want an error that names it", endpoint, err)
		}
		if _, _, err := NotifyContext(t.Context(), Options{Endpoint: endpoint}); err == nil {
			t.Errorf("NotifyContext with %q gave no error", endpoint)
		}
	}
}
