package preempt

import (
	"errors"
	"testing"
	"time"
)

func TestRetryDelay(t *testing.T) {
	const ms = time.Millisecond
	for failures, want := range []time.Duration{0, 250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 2000 * ms} {
		if got := retryDelay(failures, false); got != want {
			t.Errorf("delay after %d failures = %s, want %s", failures, got, want)
		}
	}
	if got := retryDelay(1<<30, false); got != 2*time.Second {
		t.Errorf("delay after very many failures = %s, want 2s", got)
	}
	if got := retryDelay(1, true); got != 2*time.Second {
		t.Errorf("delay after being throttled = %s, want 2s", got)
	}
}

func TestSchedule(t *testing.T) {
	at := func(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }
	oops := errors.New("oops")
	type step struct {
		at    int // ms
		send  bool
		ended int // number of the poll that ended, if not sent
		err   error
		next  int // ms: when the next poll is due after this step
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"once a second", []step{
			{at: 0, send: true, next: 1000}, {at: 10, ended: 1, next: 1000},
			{at: 1000, send: true, next: 2000}, {at: 1010, ended: 2, next: 2000},
		}},
		{"a slow answer changes nothing", []step{
			{at: 0, send: true, next: 1000}, {at: 1000, send: true, next: 2000},
			{at: 1700, ended: 1, next: 2000}, {at: 1800, ended: 2, next: 2000},
		}},
		{"failures are repeated soon, then less often", []step{
			{at: 0, send: true, next: 1000}, {at: 10, ended: 1, err: oops, next: 260},
			{at: 260, send: true, next: 1260}, {at: 270, ended: 2, err: oops, next: 770},
			{at: 770, send: true, next: 1770}, {at: 780, ended: 3, err: oops, next: 1780},
			{at: 1780, send: true, next: 2780}, {at: 1790, ended: 4, err: oops, next: 3790},
			{at: 3790, send: true, next: 4790}, {at: 3800, ended: 5, err: oops, next: 5800},
			{at: 5800, send: true, next: 6800}, {at: 5810, ended: 6, next: 6800},
			{at: 6800, send: true, next: 7800}, {at: 6810, ended: 7, err: oops, next: 7060},
		}},
		{"throttled", []step{
			{at: 0, send: true, next: 1000}, {at: 10, ended: 1, err: &StatusError{Status: 429}, next: 2010},
		}},
		{"the failure of an older poll changes nothing", []step{
			{at: 0, send: true, next: 1000}, {at: 1000, send: true, next: 2000},
			{at: 1100, ended: 1, err: oops, next: 2000},
			{at: 1200, ended: 2, err: oops, next: 1450},
		}},
	} {
		p := schedule{next: noon}
		for i, s := range tt.steps {
			now := at(s.at)
			if s.send {
				if !p.due(now) {
					t.Fatalf("%s: step %d: no poll is due at %d ms", tt.name, i, s.at)
				}
				p.send(now)
			} else {
				p.answered(polled{number: s.ended, err: s.err, at: now}, s.err == nil)
			}
			if got := p.next.Sub(noon).Milliseconds(); got != int64(s.next) {
				t.Errorf("%s: step %d: next poll at %d ms, want %d", tt.name, i, got, s.next)
			}
			if got := p.untilDue(now); got != at(s.next).Sub(now) {
				t.Errorf("%s: step %d: wait = %s, want %s", tt.name, i, got, at(s.next).Sub(now))
			}
		}
	}
}
