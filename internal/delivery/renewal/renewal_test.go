package renewal

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/queue"
)

// phase is a time in which renewals are refused at an even share.
type phase struct {
	lasts   time.Duration
	refused float64 // of the renewals
	calls   int     // a second; 0 for none
}

// TestVisibilityUnderThrottling: bursts, outages and single refusals leave the visibility
// timeout as it is. Throttling that lasts doubles it, at most once in a round of renewals.
// It is short again soon after that, also without renewals.
func TestVisibilityUnderThrottling(t *testing.T) {
	storms := []phase{}
	for range 20 {
		storms = append(storms, phase{20 * time.Second, 0.12, 2}, phase{5 * time.Second, 1, 10})
	}
	for _, tt := range []struct {
		name       string
		phases     []phase
		most, last time.Duration
	}{
		{"quiet", []phase{{10 * time.Minute, 0, 2}}, DefaultVisibility, DefaultVisibility},
		{"a burst", []phase{{time.Minute, 0, 2}, {3 * time.Second, 1, 500}, {time.Minute, 0, 2}}, DefaultVisibility, DefaultVisibility},
		{"a burst of a few calls", []phase{{3 * time.Second, 1, 1}, {3 * time.Second, 0, 1}}, DefaultVisibility, DefaultVisibility},
		{"storms", storms, DefaultVisibility, DefaultVisibility},
		{"an outage", []phase{{time.Minute, 0, 2}, {5 * time.Minute, 1, 20}, {time.Minute, 0, 2}}, DefaultVisibility, DefaultVisibility},
		{"throttled a little", []phase{{10 * time.Minute, 0.4, 20}}, DefaultVisibility, DefaultVisibility},
		{"throttled for 20 s", []phase{{20 * time.Second, 0.8, 20}, {time.Minute, 0, 2}}, DefaultVisibility, DefaultVisibility},
		{"throttled", []phase{{41 * time.Second, 0.8, 20}}, 2 * DefaultVisibility, 2 * DefaultVisibility},
		{"throttled for long", []phase{{5 * time.Minute, 0.8, 20}}, MaxVisibility, MaxVisibility},
		{"throttled for long, then not", []phase{{5 * time.Minute, 0.8, 20}, {70 * time.Second, 0, 2}}, MaxVisibility, DefaultVisibility},
		{"throttled for long, then idle", []phase{{5 * time.Minute, 0.8, 20}, {70 * time.Second, 0, 0}}, MaxVisibility, DefaultVisibility},
	} {
		p, now := newPace(DefaultVisibility), time.Now()
		most, before, grew := DefaultVisibility, DefaultVisibility, time.Time{}
		look := func() {
			v, after := p.current(now)
			if v > before {
				if v > 2*before || now.Sub(grew) < before/renewShare {
					t.Errorf("%s: %s after the last time the timeout grew from %s to %s, want one doubling in a round", tt.name, now.Sub(grew), before, v)
				}
				grew = now
			}
			if after != v/renewShare {
				t.Errorf("%s: a renewal comes after %s of %s, want a third", tt.name, after, v)
			}
			most, before = max(most, v), v
		}
		for _, ph := range tt.phases {
			end, due := now.Add(ph.lasts), 0.0
			for ; now.Before(end); now = now.Add(time.Second) {
				for range ph.calls {
					due += ph.refused
					refuse := due >= 1
					if refuse {
						due--
					}
					p.observe(now, refuse)
					look()
				}
			}
		}
		look()
		if most != tt.most || before != tt.last {
			t.Errorf("%s: the timeout was %s at most and is %s, want %s and %s", tt.name, most, before, tt.most, tt.last)
		}
	}
}

// TestRefusedRenewal: a refusal stops the job at once where every renewal before
// it was answered.
func TestRefusedRenewal(t *testing.T) {
	for _, row := range []struct {
		doubtful, visibility, want time.Duration // the times from now; 0 for none
	}{
		{0, 30 * time.Second, 0},
		{20 * time.Second, 30 * time.Second, 15 * time.Second},
		{2 * time.Second, 3 * time.Second, 1500 * time.Millisecond},
		{5 * time.Minute, 5 * time.Minute, 5*time.Minute - drain.OneJobGrace},
	} {
		now, doubtful, want := time.Now(), time.Time{}, time.Time{}
		if row.doubtful > 0 {
			doubtful, want = now.Add(row.doubtful), now.Add(row.want)
		}
		if got := keepUntil(doubtful, row.visibility); !got.Equal(want) {
			t.Errorf("keepUntil(now+%s, %s) = %s, want %s", row.doubtful, row.visibility, got, want)
		}
	}
}

// TestRenewalsAfterAStall: renewals of many messages that are due at once, as after an
// outage, begin one after the other, and none late enough to lose its message. Renewals
// of few messages do not wait.
func TestRenewalsAfterAStall(t *testing.T) {
	for _, row := range []struct {
		name                 string
		active, due          int
		most                 int           // that may begin in one second
		first, within, later time.Duration // the limits of the last one to begin: at least, at most; and how late all are at first
	}{
		{"few", spreadFrom - 1, spreadFrom - 1, spreadFrom - 1, 0, 0, 0},
		{"half of many", 1000, 500, 200, 2500 * time.Millisecond, 4 * time.Second, 0},
		{"of very many", 10_000, 5000, 2000, 2500 * time.Millisecond, 4 * time.Second, 0},
		{"too late to wait", 1000, 500, 500, 0, 0, 5 * time.Second},
	} {
		s, now := NewSet(DefaultVisibility), time.Now()
		s.active = row.active
		begun, inSecond, last := 0, map[int]int{}, time.Duration(0)
		for at := time.Duration(0); begun < row.due && at < time.Minute; at += leastPause {
			for begun < row.due && s.mayBegin(&Renewal{due: now.Add(-row.later)}, now.Add(at)) {
				begun++
				inSecond[int(at/time.Second)]++
				last = at
			}
		}
		if begun < row.due || last < row.first || last > row.within {
			t.Errorf("%s: the last of %d renewals began after %s, want all within %s to %s", row.name, begun, last, row.first, row.within)
		}
		for second, n := range inSecond {
			if n > row.most {
				t.Errorf("%s: renewals in second %d = %d, want at most %d", row.name, second, n, row.most)
			}
		}
		if !s.mayBegin(&Renewal{due: now, punctual: true}, now) {
			t.Errorf("%s: a renewal that must not be late had to wait", row.name)
		}
	}
}

// TestRenewalsWaitForTheGate: renewals that are due while as many calls as may be are in
// flight wait without a goroutine of their own, and end with their cleanup.
func TestRenewalsWaitForTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 50
		s := NewSet(DefaultVisibility)
		const large = 1 << 20 // so that a place is kept
		for _, ok := s.gate.TryEnter(large); ok; {
			_, ok = s.gate.TryEnter(large)
		}
		cleanup, end := context.WithCancel(t.Context())
		var all []*Renewal
		for range messages {
			lease := &queue.Lease{AskedAt: time.Now().Add(-DefaultVisibility)}
			all = append(all, s.Start(t.Context(), cleanup, lease, slog.New(slog.DiscardHandler), func(error) {}))
		}
		waiting := func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.due.Len()
		}
		time.Sleep(time.Second)
		if got := waiting(); got != messages {
			t.Errorf("renewals that wait while no call may begin = %d, want %d", got, messages)
		}
		end()
		time.Sleep(time.Second)
		if got := waiting(); got != 0 {
			t.Errorf("renewals that wait once their cleanup has ended = %d, want 0", got)
		}
		for _, r := range all {
			r.Stop()
		}
	})
}
