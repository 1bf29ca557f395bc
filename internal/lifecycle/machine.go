package lifecycle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrStopped is returned by [Machine.Wait] when the worker has stopped and
// none of the awaited states can come.
var ErrStopped = errors.New("worker stopped")

// Transition is one step that was taken. From and To are the same where an
// event only changed the possible next steps, such as SIGTERM during a drain.
type Transition struct {
	From, To State
	Event    Event
	// Why says for people what caused the event. It may be empty.
	Why string
	// At is when the step was taken, by this machine's clock.
	At time.Time
}

// Machine holds the position of one worker. Its methods may be called by
// several goroutines at once. Create a Machine with [NewMachine].
type Machine struct {
	observe func(Transition)

	// applying is held for a whole Apply, so that the observer sees every
	// transition in order and can still read the machine.
	applying sync.Mutex

	mu       sync.Mutex // guards what follows
	position Position
	waiters  map[*waiter]struct{}
}

// waiter is one call of Wait: it gets the first of its states that is entered.
type waiter struct {
	states  []State
	entered chan State // holds one, so that a step never waits for its waiter
}

// NewMachine returns a machine in Start. If observe is not nil it is called
// after each transition, one at a time and in order, before the Apply that
// caused it returns. It must be quick and must not call Apply.
func NewMachine(observe func(Transition)) *Machine {
	if observe == nil {
		observe = func(Transition) {}
	}
	return &Machine{observe: observe, waiters: make(map[*waiter]struct{})}
}

// Apply takes the step that e causes, and why says for people what caused it.
// It returns an error that wraps [ErrRefused], and changes nothing, where the
// table has no such step.
func (m *Machine) Apply(e Event, why string) (Transition, error) {
	m.applying.Lock()
	defer m.applying.Unlock()
	step, err := m.take(e, why)
	if err != nil {
		return Transition{}, err
	}
	m.observe(step)
	return step, nil
}

// take makes the step and wakes the goroutines that wait for it.
func (m *Machine) take(e Event, why string) (Transition, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next, err := Next(m.position, e)
	if err != nil {
		return Transition{}, err
	}
	step := Transition{From: m.position.State, To: next.State, Event: e, Why: why, At: time.Now()}
	m.position = next
	m.wake()
	return step, nil
}

// wake sends the present state to the waiters for it. The caller holds mu.
func (m *Machine) wake() {
	for w := range m.waiters {
		if m.position.State == Stopped || slices.Contains(w.states, m.position.State) {
			w.entered <- m.position.State
			delete(m.waiters, w)
		}
	}
}

// Position returns the present state and the facts that go with it.
func (m *Machine) Position() Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.position
}

// State returns the present state.
func (m *Machine) State() State {
	return m.Position().State
}

// Wait returns as soon as the machine is in one of states, and which one. A
// state that is entered and left again while Wait runs counts. It returns
// [ErrStopped] once none of them can come any more, and the cause of ctx when
// that is done first.
func (m *Machine) Wait(ctx context.Context, states ...State) (State, error) {
	w := &waiter{states: states, entered: make(chan State, 1)}
	m.mu.Lock()
	m.waiters[w] = struct{}{}
	m.wake()
	m.mu.Unlock()

	select {
	case s := <-w.entered:
		return w.result(s)
	case <-ctx.Done():
		m.forget(w)
	}
	select {
	case s := <-w.entered: // both at once: the state was reached
		return w.result(s)
	default:
		return m.State(), context.Cause(ctx)
	}
}

// result turns the state that ended a wait into what Wait returns.
func (w *waiter) result(s State) (State, error) {
	if slices.Contains(w.states, s) {
		return s, nil
	}
	return s, ErrStopped
}

// forget removes a waiter whose Wait has returned.
func (m *Machine) forget(w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiters, w)
}
