package lifecycle

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// apply drives m through events and fails the test if one is refused.
func apply(t *testing.T, m *Machine, events ...Event) {
	t.Helper()
	for _, e := range events {
		if _, err := m.Apply(e, ""); err != nil {
			t.Fatalf("Apply(%s) = %v", e, err)
		}
	}
}

func TestMachineReportsTransitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var seen []Transition
		m := NewMachine(func(tr Transition) { seen = append(seen, tr) })

		time.Sleep(3 * time.Second)
		if _, err := m.Apply(Warm, "token and containers are reachable"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, err := m.Apply(Terminate, "SIGTERM"); err != nil {
			t.Fatal(err)
		}

		want := []Transition{
			{Start, Recover, Warm, "token and containers are reachable", began.Add(3 * time.Second)},
			{Recover, Shutdown, Terminate, "SIGTERM", began.Add(4 * time.Second)},
		}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("observed (-want +got):\n%s", diff)
		}
		if got, want := m.Position(), down(WasWarm|EndRequested); got != want {
			t.Errorf("Position() = %s, want %s", got, want)
		}
	})
}

func TestMachineRefusesWithoutTrace(t *testing.T) {
	m := NewMachine(func(tr Transition) { t.Errorf("observed %+v", tr) })
	if _, err := m.Apply(Ready, ""); !errors.Is(err, ErrRefused) {
		t.Errorf("Apply(ready) in start = %v, want %v", err, ErrRefused)
	}
	if got := m.Position(); got != (Position{}) {
		t.Errorf("Position() after a refusal = %s, want start", got)
	}
}

func TestMachineObserverMayRead(t *testing.T) {
	var m *Machine
	var during []State
	m = NewMachine(func(Transition) { during = append(during, m.State()) })
	apply(t, m, Warm, Known)
	if diff := cmp.Diff([]State{Recover, Resume}, during); diff != "" {
		t.Errorf("State() in the observer (-want +got):\n%s", diff)
	}
}

// TestMachineIsOrdered applies events from many goroutines: the observer sees
// one unbroken chain of steps, up to the machine's state.
func TestMachineIsOrdered(t *testing.T) {
	const each = 16
	var seen []Transition
	m := NewMachine(func(tr Transition) { seen = append(seen, tr) })
	var all sync.WaitGroup
	for _, e := range []Event{Warm, Known, Ready, Notice, Withdrawn, Drained} {
		all.Go(func() {
			for range each {
				_, _ = m.Apply(e, "") // most are refused, which is the point
			}
		})
	}
	all.Wait()
	at := Start
	for i, tr := range seen {
		if tr.From != at {
			t.Fatalf("step %d begins in %s, want %s", i, tr.From, at)
		}
		at = tr.To
	}
	if at != m.State() {
		t.Errorf("last step ends in %s, want %s", at, m.State())
	}
	if len(seen) == 0 {
		t.Error("no step was observed")
	}
}

// waited holds the return values of a call of Wait.
type waited struct {
	state State
	err   error
}

// wait calls Wait in the background.
func wait(ctx context.Context, m *Machine, states ...State) <-chan waited {
	done := make(chan waited, 1)
	go func() {
		s, err := m.Wait(ctx, states...)
		done <- waited{s, err}
	}()
	return done
}

func TestWait(t *testing.T) {
	cases := []struct {
		name   string
		states []State
		before []Event
		after  []Event
		want   waited
	}{
		{"is there already", []State{Start}, nil, nil, waited{Start, nil}},
		{"first of several", []State{Process, Recover}, nil, []Event{Warm}, waited{Recover, nil}},
		{"entered and left at once", []State{Resume}, nil, []Event{Warm, Known, Ready, Notice}, waited{Resume, nil}},
		{"stopped on request", []State{Stopped}, nil, []Event{Terminate, Drained}, waited{Stopped, nil}},
		{"can never come", []State{Process}, nil, []Event{Terminate, Drained}, waited{Stopped, ErrStopped}},
		{"could never come", []State{Process}, []Event{Terminate, Drained}, nil, waited{Stopped, ErrStopped}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := NewMachine(nil)
				apply(t, m, c.before...)
				done := wait(t.Context(), m, c.states...)
				synctest.Wait()
				apply(t, m, c.after...)
				if got := <-done; got != c.want {
					t.Errorf("Wait(%v) = %v, want %v", c.states, got, c.want)
				}
			})
		})
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("lost patience")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, lost)
		defer cancel()
		m := NewMachine(nil)
		began := time.Now()
		s, err := m.Wait(ctx, Process)
		if s != Start || !errors.Is(err, lost) {
			t.Errorf("Wait = %s, %v; want %s, %v", s, err, Start, lost)
		}
		if got := time.Since(began); got != time.Minute {
			t.Errorf("Wait took %s, want %s", got, time.Minute)
		}
		if len(m.waiters) != 0 {
			t.Errorf("%d waiters are left, want none", len(m.waiters))
		}
	})
}

// TestWaitPrefersTheState: a state that was reached counts even if the context
// ended at the same moment.
func TestWaitPrefersTheState(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := NewMachine(nil)
	for range 100 {
		if s, err := m.Wait(ctx, Start); s != Start || err != nil {
			t.Fatalf("Wait in its state = %s, %v; want %s, nil", s, err, Start)
		}
	}
}
