package spotworker

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// untilAsked returns a context that ends with the first SIGTERM or interrupt. An
// interrupt after that ends the process at once, as if nobody listened: the person
// at the terminal does not want to wait for the drain. A further SIGTERM changes
// nothing, since service managers and scripts repeat it while jobs are handed over.
// Stop makes signals mean what they did.
//
// To stop listening after the first signal would lose an interrupt that arrives
// just before that.
func untilAsked() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	asked := make(chan os.Signal, 2)
	signal.Notify(asked, syscall.SIGTERM, os.Interrupt)
	over := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-asked:
				if ctx.Err() != nil && s == os.Interrupt {
					endBy(s)
				}
				cancel()
			case <-over:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(asked)
		close(over)
		cancel()
	}
}

// endBy ends the process by a signal, so that its parent sees what ended it.
func endBy(s os.Signal) {
	signal.Reset(syscall.SIGTERM, os.Interrupt)
	self, err := os.FindProcess(os.Getpid())
	if err == nil && self.Signal(s) == nil {
		time.Sleep(time.Second) // it is on its way
	}
	os.Exit(1) // where a process cannot send itself one
}

// outliveReaders keeps the process when it writes a log that nobody reads any more:
// without it Go ends a program that writes to a closed pipe on standard error, as
// it fits cat and grep. A worker has jobs in hand. Ignoring the signal would do the
// same, but the programs of jobs would inherit that.
func outliveReaders() (stop func()) {
	unread := make(chan os.Signal, 1) // never read: what does not fit is dropped
	signal.Notify(unread, syscall.SIGPIPE)
	return func() { signal.Stop(unread) }
}
