package chaos

import "time"

// fault is what a door does to a call.
type fault int

const (
	resetRequest   fault = iota // the call has no effect, and its connection is reset
	resetReply                  // it has its effect, and its connection is reset
	swallowRequest              // it has no effect, and is never answered: the connection stays open
	swallowReply                // it has its effect, and is never answered
	delayRequest                // it has its effect late, perhaps when its caller has given up
	delayReply                  // it has its effect at once, and is answered late
	faults                      // how many there are
)

func (f fault) String() string {
	return [...]string{"reset request", "reset reply", "swallow request", "swallow reply", "delay request", "delay reply"}[f]
}

// effect reports whether the call reaches storage.
func (f fault) effect() bool { return f != resetRequest && f != swallowRequest }

// trap is for the next calls of some sort.
type trap struct {
	calls   int // that it is still for
	matches func(call) bool
	fault   fault
	delay   time.Duration // of the delaying faults
	sprung  func()        // runs after the effect, or in its place. Optional.
}

// set sets a trap. The returned function takes it away, and reports whether it was
// there still.
func (d *door) set(t *trap) (remove func() bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.traps = append(d.traps, t)
	return func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		for i, other := range d.traps {
			if other == t {
				d.traps = append(d.traps[:i:i], d.traps[i+1:]...)
				return true
			}
		}
		return false
	}
}

// step returns the trap that a call steps into, if any, or whether the door is
// shut.
func (d *door) step(c call) (*trap, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		return nil, true
	}
	for i, t := range d.traps {
		if !t.matches(c) {
			continue
		}
		if t.calls--; t.calls == 0 {
			d.traps = append(d.traps[:i:i], d.traps[i+1:]...)
		}
		return t, false
	}
	return nil, false
}

// spring does what comes with the trap, if there is one.
func (t *trap) spring() {
	if t != nil && t.sprung != nil {
		t.sprung()
	}
}

// loses reports whether the caller never gets a reply.
func (t *trap) loses() bool { return t != nil && t.fault < delayRequest }

// swallows reports whether the connection stays open without a reply.
func (t *trap) swallows() bool {
	return t != nil && (t.fault == swallowRequest || t.fault == swallowReply)
}
