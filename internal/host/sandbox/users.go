package sandbox

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
)

// ErrUnsupported is the error of [Open] on a system where programs cannot run as
// separate users.
var ErrUnsupported = errors.New("programs as separate users are supported on Linux only")

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

// Users assigns user ids to jobs. A nil *Users assigns nil users.
type Users struct {
	all Range // of all workers of the VM
	ids Range // of this one

	mu    sync.Mutex
	busy  map[uint32]bool
	ended map[uint32]bool // nothing of an earlier program with this id is left
	next  uint32          // an id is used again as late as possible
	bars  error           // why none is given out; nil for no reason
}

// Open checks that this process may run programs as other users, and ends what runs as one
// of this worker's. Its error says what to change.
func Open(c Config) (*Users, error) {
	ids := c.Range.part(c.Place, max(c.Places, 1))
	if ids.size() < c.Slots || ids.size() <= 0 {
		return nil, fmt.Errorf("%d jobs at once need a user id each, and range %s has %d for each of the %d workers that share it: "+
			"lower --concurrency (by default a job for each processor) to %d, or widen --program-users",
			c.Slots, c.Range, max(ids.size(), 0), max(c.Places, 1), max(ids.size(), 0))
	}
	if err := checkRights(); err != nil {
		return nil, err
	}
	u := &Users{all: c.Range, ids: ids, busy: map[uint32]bool{}, ended: map[uint32]bool{}, next: ids.First}
	return u, u.endLeft()
}

// endLeft ends what programs of a worker that was killed have left running: it would
// continue beside the next delivery of the same job.
func (u *Users) endLeft() error {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	left := map[uint32]bool{}
	for _, process := range processes {
		if id, ok := ownerOf(process); ok && id >= u.ids.First && id <= u.ids.Last {
			left[id] = true
		}
	}
	var errs []error
	for id := range left {
		errs = append(errs, (&User{id: id}).KillAll())
	}
	return errors.Join(errs...)
}

// Take returns a user that no other job has, with no process and no file outside
// its folder. Programs of a worker that was killed may have left some.
func (u *Users) Take() (*User, error) {
	if u == nil {
		return nil, nil
	}
	user, ended, err := u.take()
	if err != nil || ended {
		return user, err
	}
	if err := u.End(user); err != nil {
		u.Put(user)
		return nil, err
	}
	return user, nil
}

// End kills the user's processes, and removes its files in folders that all users
// may write and its shared memory, semaphores, message queues and keys. Do not return a
// user for whom that fails.
func (u *Users) End(user *User) error {
	if u == nil || user == nil {
		return nil
	}
	if err := user.KillAll(); err != nil {
		return err
	}
	if err := user.Clean(); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended[user.id] = true
	return nil
}

// Put returns the id.
func (u *Users) Put(user *User) {
	if u == nil || user == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.busy, user.id)
}

// OwnerOf returns the user that owns a folder that another job left, nil for an
// owner outside the range.
func (u *Users) OwnerOf(dir string) *User {
	if u == nil {
		return nil
	}
	if id, ok := ownerOf(dir); ok && id >= u.all.First && id <= u.all.Last {
		return &User{id: id}
	}
	return nil
}

// Bar has Take fail with this reason, until it is called with nil. Users that jobs have stay.
func (u *Users) Bar(reason error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.bars = reason
}

// CanReach reports whether programs can open a TCP connection to that address.
func (u *Users) CanReach(at netip.AddrPort) (bool, error) {
	return (&User{id: u.ids.First}).CanReach(at)
}

// CanEnter returns an error that says what to change if users cannot enter a
// folder.
func (u *Users) CanEnter(dir string) error {
	user := &User{id: u.ids.First}
	enter := func(dir string) error {
		return user.Do(func() error { _, err := os.Lstat(dir + "/."); return err })
	}
	if enter(dir) == nil {
		return nil
	}
	at := dir
	for parent := filepath.Dir(at); parent != at && enter(parent) != nil; parent = filepath.Dir(at) {
		at = parent
	}
	return fmt.Errorf("programs' users cannot enter %s: chmod o+x it, or choose another --scratch", at)
}

// take also reports whether everything of an earlier program with the id is removed.
func (u *Users) take() (user *User, ended bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.bars != nil {
		return nil, false, u.bars
	}
	for range u.ids.size() {
		id := u.next
		if u.next++; u.next > u.ids.Last {
			u.next = u.ids.First
		}
		if !u.busy[id] {
			ended = u.ended[id]
			u.busy[id], u.ended[id] = true, false
			return &User{id: id}, ended, nil
		}
	}
	return nil, false, fmt.Errorf("all %d user ids for programs are in use (%s)", u.ids.size(), u.ids)
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
