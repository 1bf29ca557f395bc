package winservice

import (
	"context"
	"runtime"
	"syscall"

	"golang.org/x/sys/windows"
)

// Lock waits until no other process of the machine holds the lock of this name. A
// process that ends without unlocking leaves it free.
func Lock(ctx context.Context, name string) (unlock func(), err error) {
	text, err := syscall.UTF16PtrFromString(`Global\` + name)
	if err != nil {
		return nil, err
	}
	const poll = 100 // milliseconds
	locked, done := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // a thread owns the mutex; it ends with this goroutine
		mutex, err := windows.CreateMutex(nil, false, text)
		if mutex == 0 {
			locked <- explain("lock "+name, err)
			return
		}
		defer windows.CloseHandle(mutex)
		for {
			event, err := windows.WaitForSingleObject(mutex, poll)
			switch {
			case err != nil:
				locked <- explain("lock "+name, err)
				return
			case event == windows.WAIT_OBJECT_0 || event == windows.WAIT_ABANDONED:
				locked <- nil
				<-done
				_ = windows.ReleaseMutex(mutex)
				return
			case ctx.Err() != nil:
				locked <- context.Cause(ctx)
				return
			}
		}
	}()
	if err := <-locked; err != nil {
		return nil, err
	}
	return func() { close(done) }, nil
}
