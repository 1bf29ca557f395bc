// Package notice tells a program on an Azure VM that the VM will be evicted, restarted or
// paused, while there is time to act. It needs no worker and no storage account.
//
// An eviction of a Spot VM is announced at most 30 seconds before it, best effort, in a
// document that the VM must poll for, in which all VMs of its scale set stand. A program that
// ends in good order when it is told:
//
//	ctx, stop, err := notice.NotifyContext(context.Background(), notice.Options{})
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer stop()
//	serve(ctx) // until ctx ends; context.Cause(ctx) says why
//
// A program that also uses the time before a restart, saves before a pause, or returns to work
// when an event is withdrawn, waits for one notice after another with a [Watcher].
//
// The package asks the metadata service of the VM once a second, never through a proxy, within
// the service's limit of five requests a second for a VM. The first answer can take two minutes
// on a VM that never asked. While the service is slow or refuses, each request is repeated, and
// an older version of the interface is tried.
package notice

import (
	"context"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
)

// DefaultEndpoint is where every Azure VM in a virtual network reaches its own metadata service.
const DefaultEndpoint = preempt.DefaultEndpoint

// Action is the reaction that a notice asks for. A greater action is more urgent.
type Action int

const (
	// Continue asks for nothing: the announced event was withdrawn, or is over, or it is a pause of
	// seconds.
	Continue Action = iota

	// Save asks to save progress and to continue: the VM will be paused for nine seconds or
	// more, an eviction has become likelier, or an event has a type that this version does not
	// know.
	Save

	// LeaveLater asks to end before the Deadline, which is minutes or days away. A Leave
	// follows 30 seconds before it.
	LeaveLater

	// Leave asks to end at once, within ten seconds at most: the VM can stop after that.
	Leave
)

// String returns the action as a word for logs.
func (a Action) String() string {
	switch a {
	case Continue:
		return "continue"
	case Save:
		return "save"
	case LeaveLater:
		return "leave later"
	case Leave:
		return "leave"
	default:
		return fmt.Sprintf("Action(%d)", int(a))
	}
}

// Notice is the most urgent event of this VM, and the reaction to it.
type Notice struct {
	Action Action

	// EventID, Type and Status are the service's: Type is Preempt for an eviction, or
	// Terminate, Reboot, Redeploy, Freeze, SpotRebalanceRecommendation or a type that this
	// version does not know; Status is Scheduled, Started or Advisory. All are empty where no
	// event names this VM.
	EventID, Type, Status string

	// Deadline is when a Leave has to be done, and when the VM may stop after a LeaveLater, by
	// the local clock. Zero for other actions.
	Deadline time.Time

	// MayStartEarly reports whether the event waits for [Watcher.Acknowledge] to start before
	// its time.
	MayStartEarly bool

	// Reason is a sentence for the log.
	Reason string
}

// Error is the cause of a context that [NotifyContext] ended because of a notice.
type Error struct {
	Notice Notice
}

// Error names the event and its reason.
func (e *Error) Error() string {
	return fmt.Sprintf("this VM is being taken away (%s %s): %s", e.Notice.Type, e.Notice.EventID, e.Notice.Reason)
}

// NotifyContext returns a context that ends when a notice asks to leave, or when parent ends. Its
// cause is then an [*Error]. Stop ends the polls and the context, and has to be called. The error
// is about the options.
func NotifyContext(parent context.Context, o Options) (ctx context.Context, stop func(), err error) {
	watcher, err := New(o)
	if err != nil {
		return nil, nil, err
	}
	ctx, stop = watcher.notify(parent)
	return ctx, stop, nil
}

// notify returns a context that ends when a notice asks to leave. Stop closes the watcher.
func (w *Watcher) notify(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer w.Close()
		for {
			n, err := w.Wait(ctx)
			if err != nil {
				return
			}
			if n.Action == Leave {
				cancel(&Error{Notice: n})
				return
			}
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-done
	}
}
