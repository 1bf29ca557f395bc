package chaos

// trap is for the next calls of some sort.
type trap struct {
	calls   int // that it is still for
	matches func(call) bool
	effect  bool   // the call has its effect; no reply is sent in any case
	sprung  func() // runs after the effect, or in its place. Optional.
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
