package workercmd

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// notifyStop returns a context that is cancelled by the first SIGTERM or interrupt.
// An interrupt after that ends the process at once, as without a handler: a person
// at a terminal does not want to wait for the drain. Further SIGTERMs change
// nothing: service managers and scripts repeat them while jobs are handed over.
// stop restores the signals' default action.
//
// The handler stays installed after the first signal: an interrupt that arrived
// just before it was removed would be lost.
func notifyStop() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	stopped := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				if ctx.Err() != nil && s == os.Interrupt {
					endBy(s)
				}
				cancel()
			case <-stopped:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(stopped)
		cancel()
	}
}

// untilClosed returns a context that is cancelled when input is closed, too.
func untilClosed(ctx context.Context, input io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, input) // an error is an end as well
		cancel()
	}()
	return ctx, cancel
}

// endBy ends the process by a signal, so that its parent sees what ended it.
func endBy(s os.Signal) {
	signal.Reset(syscall.SIGTERM, os.Interrupt)
	self, err := os.FindProcess(os.Getpid())
	if err == nil && self.Signal(s) == nil {
		time.Sleep(time.Second) // it is being delivered
	}
	os.Exit(1) // where a process cannot signal itself
}

// ignoreSIGPIPE keeps the process alive when the reader of its log has gone: by
// default Go ends a program that writes to a closed pipe on standard error, and a
// worker has jobs running. signal.Ignore would do the same, but the programs of
// jobs would inherit it.
func ignoreSIGPIPE() (stop func()) {
	unread := make(chan os.Signal, 1) // never read: further signals are dropped
	signal.Notify(unread, syscall.SIGPIPE)
	return func() { signal.Stop(unread) }
}
