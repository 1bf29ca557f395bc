package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"
)

func streamOf(text string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader([]byte(text))), nil }
}

// A report without a state means "as reported before", even if nothing was reported;
// its text for humans is its own.
func TestReport(t *testing.T) {
	j := New(Spec{ID: "a"}, nil)
	if got := ControlOf(j).Latest(); got != nil {
		t.Errorf("Latest before any report = %+v, want nil", got)
	}
	j.Report(Progress{Fraction: 0.1, Text: "warming up"})
	if got := ControlOf(j).Latest(); got.HasState() || got.Fraction != 0.1 {
		t.Errorf("Latest = %+v, want no state, at 0.1", got)
	}
	j.Report(Progress{State: []byte("one"), Version: 2})
	j.Report(Progress{Fraction: 0.5, Text: "half"})
	if got := ControlOf(j).Latest(); string(got.State) != "one" || got.Version != 2 || got.Fraction != 0.5 || got.Text != "half" {
		t.Errorf("Latest = %+v, want the state before under the new fraction and text", got)
	}
	j.Report(Progress{Stream: streamOf("two"), Version: 3})
	j.Report(Progress{Fraction: 0.9})
	if got := ControlOf(j).Latest(); got.State != nil || got.Stream == nil || got.Version != 3 || got.Fraction != 0.9 {
		t.Errorf("Latest = %+v, want the stream before", got)
	}
	j.Report(Progress{State: []byte{}})
	if got := ControlOf(j).Latest(); got.State == nil || got.Stream != nil || !got.HasState() {
		t.Errorf("Latest = %+v, want the empty state: it is one", got)
	}
}

// OnReport sees each report as Latest shows it, including the fields that it takes over
// from the report before.
func TestOnReport(t *testing.T) {
	j := New(Spec{ID: "a"}, nil)
	j.Report(Progress{State: []byte("before")})
	var seen []string
	ControlOf(j).OnReport(func(p *Progress) {
		if p != ControlOf(j).Latest() {
			t.Errorf("OnReport got %+v, want what Latest returns: %+v", p, ControlOf(j).Latest())
		}
		seen = append(seen, fmt.Sprint(string(p.State), " at ", p.Fraction))
	})
	j.Report(Progress{State: []byte("one"), Fraction: 0.25})
	j.Report(Progress{Fraction: 0.5})
	if want := []string{"one at 0.25", "one at 0.5"}; !slices.Equal(seen, want) {
		t.Errorf("reports seen = %q, want %q", seen, want)
	}
}

// Report is cheap enough to be called as often as there is something to tell,
// while the worker reads.
func TestReportWhileTheWorkerReads(t *testing.T) {
	j := New(Spec{}, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 1000 {
			j.Report(Progress{State: fmt.Append(nil, i), Fraction: float64(i)})
		}
	}()
	for last := -1.0; last < 999; {
		p := ControlOf(j).Latest()
		if p == nil {
			continue
		}
		if p.Fraction < last || string(p.State) != fmt.Sprint(p.Fraction) {
			t.Fatalf("Latest = %q at %v after %v, want state and fraction of one report, in order", p.State, p.Fraction, last)
		}
		last = p.Fraction
	}
	<-done
}

// SameState tells the worker whether there is anything to save.
func TestSameState(t *testing.T) {
	reported := func(all ...Progress) *Progress {
		j := New(Spec{}, nil)
		for _, p := range all {
			j.Report(p)
		}
		return ControlOf(j).Latest()
	}
	small, stream := Progress{State: []byte("s")}, Progress{Stream: streamOf("s")}
	restored := &Progress{Stream: streamOf("s")}
	again := New(Spec{}, nil)
	again.Report(stream)
	first := ControlOf(again).Latest()
	again.Report(Progress{Fraction: 0.5})
	touched := ControlOf(again).Latest()
	again.Report(stream)
	for _, row := range []struct {
		name string
		p, q *Progress
		want bool
	}{
		{"neither", nil, nil, true},
		{"nothing reported and a report without a state", nil, reported(Progress{Fraction: 1}), true},
		{"a state and none", reported(small), nil, false},
		{"a stream and none", nil, reported(stream), false},
		{"the same bytes", reported(small), reported(Progress{}, Progress{State: []byte("s")}), true},
		{"other bytes", reported(small), reported(Progress{State: []byte("t")}), false},
		{"another version", reported(small), reported(Progress{State: []byte("s"), Version: 1}), false},
		{"the same stream under another fraction", first, touched, true},
		{"a stream reported again", first, ControlOf(again).Latest(), false},
		{"a stream and what was restored", reported(stream), restored, false},
		{"what was restored, twice", restored, restored, true},
		{"a stream and then a state", first, reported(stream, small), false},
		{"a restored stream and a state", restored, reported(small), false},
	} {
		if got := row.p.SameState(row.q); got != row.want {
			t.Errorf("%s: SameState = %t, want %t", row.name, got, row.want)
		}
		if got := row.q.SameState(row.p); got != row.want {
			t.Errorf("%s, the other way round: SameState = %t, want %t", row.name, got, row.want)
		}
	}
}

func TestSaved(t *testing.T) {
	for name, saved := range map[string]*Progress{"fresh": nil, "no state": {Fraction: 0.5}} {
		j := New(Spec{}, saved)
		if state, version, ok := j.Saved(); ok || state != nil || version != 0 {
			t.Errorf("%s: Saved = %q, %d, %t, want none", name, state, version, ok)
		}
		if state, version, err := j.OpenSaved(); state != nil || version != 0 || err != nil {
			t.Errorf("%s: OpenSaved = %v, %d, %v, want none", name, state, version, err)
		}
	}
	j := New(Spec{}, &Progress{State: []byte{}, Version: 4})
	if state, version, ok := j.Saved(); !ok || len(state) != 0 || version != 4 {
		t.Errorf("Saved = %q, %d, %t, want the empty state: it is one", state, version, ok)
	}
	j.Report(Progress{State: []byte("later")})
	if state, _, _ := j.Saved(); string(state) != "" {
		t.Errorf("Saved after a report = %q, want what this run began with", state)
	}
}

// OpenSaved serves both forms of a state, as often as asked. Saved does not
// guess how much memory a stream may take.
func TestOpenSaved(t *testing.T) {
	for name, saved := range map[string]*Progress{
		"in one piece": {State: []byte("state"), Version: 4}, "stream": {Stream: streamOf("state"), Version: 4},
	} {
		j := New(Spec{}, saved)
		for range 2 {
			r, version, err := j.OpenSaved()
			if err != nil {
				t.Fatal(err)
			}
			if state, err := io.ReadAll(r); string(state) != "state" || version != 4 || err != nil {
				t.Errorf("%s: OpenSaved gives %q, %d, %v, want state, 4", name, state, version, err)
			}
			if err := r.Close(); err != nil {
				t.Errorf("%s: Close = %v, want no error", name, err)
			}
		}
	}
	broken := errors.New("gone")
	j := New(Spec{}, &Progress{Stream: func() (io.ReadCloser, error) { return nil, broken }})
	if r, _, err := j.OpenSaved(); r != nil || !errors.Is(err, broken) {
		t.Errorf("OpenSaved of what cannot be opened = %v, %v, want its error", r, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("Saved of a stream returned, want a panic that names OpenSaved")
		}
	}()
	_, _, _ = j.Saved()
}

// A key is the same on every attempt, and different for every job and effect.
func TestKey(t *testing.T) {
	first, later := New(Spec{ID: "a", Attempt: 1}, nil), New(Spec{ID: "a", Attempt: 5}, &Progress{State: []byte("s")})
	if first.Key("mail") != later.Key("mail") {
		t.Errorf("keys of two attempts = %s, %s, want the same", first.Key("mail"), later.Key("mail"))
	}
	seen := map[string]string{}
	for _, id := range []string{"a", "b", "am"} {
		for _, effect := range []string{"", "mail", "ail", "invoice"} {
			key := New(Spec{ID: id}, nil).Key(effect)
			if other, ok := seen[key]; ok || len(key) != 32 {
				t.Errorf("key of %s for %q = %q, want 32 digits unlike those of %s", id, effect, key, other)
			}
			seen[key] = id + "/" + effect
		}
	}
}

// Cleanups run once, the last one first, and all of them.
func TestCleanup(t *testing.T) {
	j := New(Spec{}, nil)
	var ran []string
	j.Cleanup(func() { ran = append(ran, "first") })
	j.Cleanup(func() { panic("in a cleanup") })
	j.Cleanup(func() { ran = append(ran, "last") })
	func() {
		defer func() {
			if p := recover(); p != "in a cleanup" {
				t.Errorf("Close panicked with %v, want what the cleanup panicked with", p)
			}
		}()
		ControlOf(j).Close()
	}()
	ControlOf(j).Close()
	if want := []string{"last", "first"}; !slices.Equal(ran, want) {
		t.Errorf("cleanups that ran = %q, want %q", ran, want)
	}
}

func TestPermanent(t *testing.T) {
	cause := errors.New("no such file")
	err := fmt.Errorf("digest: %w", Permanent(cause))
	if !IsPermanent(err) || !errors.Is(err, cause) || err.Error() != "digest: no such file" {
		t.Errorf("Permanent = %v, want it marked, wrapping its cause, and reading as before", err)
	}
	if IsPermanent(cause) || IsPermanent(nil) || Permanent(nil) != nil {
		t.Error("an unmarked error counts as permanent, or none as one")
	}
}

func TestInterrupted(t *testing.T) {
	cause := errors.New("window is over")
	err := fmt.Errorf("backup: %w", Interrupted(cause))
	if !IsInterrupted(err) || !errors.Is(err, cause) || err.Error() != "backup: window is over" {
		t.Errorf("Interrupted = %v, want it marked, wrapping its cause, and reading as before", err)
	}
	if IsInterrupted(cause) || IsInterrupted(nil) || IsInterrupted(Permanent(cause)) || Interrupted(nil) != nil {
		t.Error("an unmarked error counts as an interruption, or none as one")
	}
}

func TestStopOf(t *testing.T) {
	notice := errors.New("Preempt")
	stop := &Stop{Reason: Evicted, Deadline: time.Now().Add(time.Second), Err: notice}
	if got := stop.Error(); got != "stopped: evicted: Preempt" || !errors.Is(stop, notice) {
		t.Errorf("Error = %q, want reason and notice", got)
	}
	if got := (&Stop{Reason: Lost}).Error(); got != "stopped: lease lost" {
		t.Errorf("Error = %q, want the reason", got)
	}
	for name, row := range map[string]struct {
		cause error
		want  *Stop
	}{
		"a stop": {stop, stop}, "one that is wrapped": {fmt.Errorf("drain: %w", stop), stop}, "something else": {errors.New("other"), nil},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if got := StopOf(ctx); got != nil {
			t.Errorf("StopOf a context that is not cancelled = %v, want nil", got)
		}
		cancel(row.cause)
		if got := StopOf(ctx); got != row.want {
			t.Errorf("StopOf a context that ended with %s = %v, want %v", name, got, row.want)
		}
	}
}

func TestUnavailable(t *testing.T) {
	cause := errors.New("disk full")
	err := fmt.Errorf("not started: %w", Unavailable(cause))
	if !IsUnavailable(err) || !IsInterrupted(err) || IsPermanent(err) || !errors.Is(err, cause) {
		t.Errorf("%v: unavailable %t, interrupted %t, want both, and its cause kept", err, IsUnavailable(err), IsInterrupted(err))
	}
	if IsUnavailable(Interrupted(cause)) || Unavailable(nil) != nil {
		t.Error("a break counts as unavailable, or nil became an error")
	}
}
