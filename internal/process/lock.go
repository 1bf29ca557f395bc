package process

import (
	"errors"
	"os"
	"time"
)

// errLocked says that another worker holds a lock.
var errLocked = errors.New("locked by another worker")

const (
	// lockPatience is how long a lock is waited for that is held for a moment
	// only, unless its holder is frozen.
	lockPatience = 5 * time.Second

	lockRetry = 2 * time.Millisecond
)

// waitForLock takes a lock as soon as it is free, within lockPatience.
func waitForLock(take func() (*os.File, error)) (*os.File, error) {
	for late := time.Now().Add(lockPatience); ; time.Sleep(lockRetry) {
		file, err := take()
		if !errors.Is(err, errLocked) || time.Now().After(late) {
			return file, err
		}
	}
}
