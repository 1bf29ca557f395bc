package sandbox

import (
	"errors"
	"fmt"
	"sync"
)

// ErrUnsupported is the error of [Open] on a system where programs cannot run as
// users of their own.
var ErrUnsupported = errors.New("programs as users of their own are supported on Linux only")

// Config says which user ids a worker uses.
type Config struct {
	// Range holds the ids of all workers of the VM.
	Range Range

	// Place and Places divide the range among them: this worker uses part Place of
	// Places, counted from 0. The zero value is the whole range.
	Place, Places int

	// Slots is how many programs run at once. Each needs an id.
	Slots int
}

// Users gives out user ids. A nil *Users gives out nil users.
type Users struct {
	ids Range

	mu   sync.Mutex
	busy map[uint32]bool
	next uint32 // an id is used again as late as possible
}

// Open checks that this process may run programs as other users. Its error says
// what to change.
func Open(c Config) (*Users, error) {
	ids := c.Range.part(c.Place, max(c.Places, 1))
	if ids.size() < c.Slots || ids.size() <= 0 {
		return nil, fmt.Errorf("range %s has %d user ids for each of %d workers, and %d jobs at once need one each: widen --program-users or lower --concurrency",
			c.Range, max(ids.size(), 0), max(c.Places, 1), c.Slots)
	}
	if err := checkRights(); err != nil {
		return nil, err
	}
	return &Users{ids: ids, busy: map[uint32]bool{}, next: ids.First}, nil
}

// Take returns a user that no other job has, free of processes.
func (u *Users) Take() (*User, error) {
	if u == nil {
		return nil, nil
	}
	user, err := u.take()
	if err != nil {
		return nil, err
	}
	// Processes of a worker that was killed may still run as this user.
	if err := user.KillAll(); err != nil {
		u.put(user)
		return nil, err
	}
	return user, nil
}

// Of returns the user with that id, to remove what a dead worker left; nil for an
// id outside the range.
func (u *Users) Of(id uint32) *User {
	if u == nil || id < u.ids.First || id > u.ids.Last {
		return nil
	}
	return &User{id: id}
}

// Put ends the user's processes and gives the id back. An id whose processes
// cannot be ended is not used again.
func (u *Users) Put(user *User) error {
	if u == nil || user == nil {
		return nil
	}
	if err := user.KillAll(); err != nil {
		return err
	}
	u.put(user)
	return nil
}

func (u *Users) take() (*User, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for range u.ids.size() {
		id := u.next
		if u.next++; u.next > u.ids.Last {
			u.next = u.ids.First
		}
		if !u.busy[id] {
			u.busy[id] = true
			return &User{id: id}, nil
		}
	}
	return nil, fmt.Errorf("all %d user ids for programs are in use (%s)", u.ids.size(), u.ids)
}

func (u *Users) put(user *User) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.busy, user.id)
}

// User is a system user that one job's program runs as. A nil *User is the
// worker's own.
type User struct{ id uint32 }

// ID returns the user id, 0 for the worker's own user.
func (u *User) ID() uint32 {
	if u == nil {
		return 0
	}
	return u.id
}
