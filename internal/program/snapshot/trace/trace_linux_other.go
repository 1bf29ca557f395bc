//go:build linux && !amd64

// Package trace does nothing here.
package trace

import (
	"errors"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/internal/program/snapshot/images"
)

// Waiter waits for threads.
type Waiter interface {
	Expect(id int)
	Await(id int, limit time.Duration) (syscall.WaitStatus, error)
	Forget(id int)
}

// Thread is not available here.
type Thread struct{ ID int }

// Seize fails here.
func Seize(int, Waiter) (*Thread, error) { return nil, errors.ErrUnsupported }

// Await fails here.
func (*Thread) Await(time.Duration) error { return errors.ErrUnsupported }

// Registers returns none.
func (*Thread) Registers() images.Registers { return nil }

// MakeCall does nothing.
func (*Thread) MakeCall(images.Registers) {}

// Call fails here.
func (*Thread) Call(uint64, uint64, ...uint64) (uint64, error) { return 0, errors.ErrUnsupported }

// Continue fails here.
func (*Thread) Continue() error { return errors.ErrUnsupported }

// Instruction fails here.
func Instruction(int) (uint64, error) { return 0, errors.ErrUnsupported }
