package process

import "errors"

// errLocked says that a living worker holds a lock.
var errLocked = errors.New("locked by a living worker")
