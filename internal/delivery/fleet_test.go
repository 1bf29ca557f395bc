package delivery

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/presence"
)

func TestHasKind(t *testing.T) {
	worker := func(age time.Duration, state string, kinds, takes []string) presence.Listed {
		return presence.Listed{Presence: presence.Presence{State: state, Kinds: kinds, TakesFrom: takes}, Age: age}
	}
	now := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	render, digest, jobs := []string{"render"}, []string{"digest"}, []string{"jobs"}
	for _, row := range []struct {
		name string
		seen []presence.Listed
		want presence.Has
	}{
		{"no worker", nil, presence.HasNot},
		{"one that lacks it", []presence.Listed{worker(0, "process", digest, jobs)}, presence.HasNot},
		{"one that has it", []presence.Listed{worker(0, "process", digest, jobs), worker(hasKindFor, "process", render, jobs)}, presence.HasIt},
		{"one that has it and starts", []presence.Listed{worker(0, "start", render, jobs)}, presence.HasIt},
		{"silent for too long", []presence.Listed{worker(hasKindFor+1, "process", render, jobs)}, presence.HasNot},
		{"stopped", []presence.Listed{worker(0, "stopped", render, jobs)}, presence.HasNot},
		{"takes from another queue", []presence.Listed{worker(0, "process", render, []string{"jobs-ondemand"})}, presence.HasNot},
		{"takes from both queues", []presence.Listed{worker(0, "process", render, []string{"jobs-ondemand", "jobs"})}, presence.HasIt},
		{"an older version", []presence.Listed{worker(0, "process", digest, jobs), worker(0, "process", nil, jobs)}, presence.MayHave},
		{"an older version long gone", []presence.Listed{worker(hasKindFor+1, "process", nil, nil)}, presence.HasNot},
		{"too many kinds to list", []presence.Listed{worker(0, "process", []string{"a", presence.MoreKinds}, jobs)}, presence.MayHave},
		{"an older version beside one that has it", []presence.Listed{worker(0, "process", render, jobs), worker(0, "process", nil, jobs)},
			presence.HasIt},
	} {
		if got, _ := (Sample{at: now, Workers: row.seen}).hasKind("render", "jobs", now); got != row.want {
			t.Errorf("%s: hasKind = %d, want %d", row.name, got, row.want)
		}
	}
	late := Sample{at: now.Add(-hasKindFor), Workers: []presence.Listed{worker(time.Second, "process", render, jobs)}}
	if has, _ := late.hasKind("render", "jobs", now); has != presence.HasNot {
		t.Errorf("hasKind by an old sample = %d, want %d: the heartbeat is too old by now", has, presence.HasNot)
	}
	mixed := []presence.Listed{worker(0, "process", digest, jobs), worker(0, "process", digest, jobs), worker(0, "process", render, jobs),
		worker(time.Hour, "process", digest, jobs),
		worker(lacksKindFor, "process", digest, jobs), worker(lacksKindFor+1, "process", digest, jobs), worker(0, "shutdown", digest, jobs)}
	if has, lacking := (Sample{at: now, Workers: mixed}).hasKind("render", "jobs", now); has != presence.HasIt || lacking != 3 {
		t.Errorf("hasKind of a mixed fleet = %d, %d lack it, want %d and 3", has, lacking, presence.HasIt)
	}
	for within, want := range map[time.Duration]bool{hasKindFor: false, hasKindFor + time.Second: true} {
		if got := late.hadKind("render", "jobs", now, within); got != want {
			t.Errorf("hadKind within %s = %t, want %t", within, got, want)
		}
	}
}

// TestMeets: the own word of the asking worker proves nothing.
func TestMeets(t *testing.T) {
	now := time.Now()
	offering := func(name, state, offer string) presence.Listed {
		l := presence.Listed{Presence: presence.Presence{Kinds: []string{"render"}, TakesFrom: []string{"jobs"}, State: state, Worker: name}}
		l.Offers = []string{offer}
		return l
	}
	alike := []presence.Listed{offering("asking", "process", "linux-6.1"), offering("other", "process", "linux-6.12"),
		offering("leaving", "shutdown", "linux-6.12")}
	for needs, want := range map[string]presence.Has{"linux-6.1": presence.HasNot, "linux-6.12": presence.HasIt} {
		if got := (Sample{at: now, Workers: alike}).meets("render", "jobs", needs, "asking", now); got != want {
			t.Errorf("another worker meets %s: %d, want %d", needs, got, want)
		}
	}
	for needs, want := range map[string]bool{"linux-6.1": false, "linux-6.12": true} { // the first is met by the asking worker alone
		if got := (Sample{at: now, Workers: alike}).met("render", "jobs", needs, "asking", now, time.Hour); got != want {
			t.Errorf("another worker met %s lately: %t, want %t", needs, got, want)
		}
	}
}

// TestWaitFor: a message waits a quarter of the time since it was first put back, within bounds, also after a clock that went back.
func TestWaitFor(t *testing.T) {
	noon := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	for ago, want := range map[time.Duration]time.Duration{
		-time.Hour: minWait, 0: minWait, 20 * time.Second: minWait, 24 * time.Second: 6 * time.Second, 20 * time.Minute: maxWait,
		1000 * time.Hour: maxWait,
	} {
		if got := waitFor(noon.Add(-ago), noon); got != want {
			t.Errorf("waitFor after %s = %s, want %s", ago, got, want)
		}
	}
	if got := waitFor(time.Time{}, noon); got != minWait {
		t.Errorf("waitFor at first = %s, want %s", got, minWait)
	}
}

// TestSpacing: one message waits seconds; of thousands, each waits longer, so that
// they come back spaced out, and none longer than maxWait.
func TestSpacing(t *testing.T) {
	now := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	var s spacing
	if got := s.next(now, 1); got < minDefer*3/4 || got > minDefer*5/4 {
		t.Errorf("wait of the first = %s, want %s give or take a quarter", got, minDefer)
	}
	for range 999 {
		s.next(now, 1)
	}
	if got, want := s.free.Sub(now), minDefer+1000*deferEvery; got != want {
		t.Errorf("1,000 messages are spaced out over %s, want %s", got, want)
	}
	for range 100_000 {
		if got := s.next(now, 3); got > maxWait*5/4 {
			t.Fatalf("wait = %s, want at most %s and a quarter", got, maxWait)
		}
	}
	if got := s.next(now.Add(time.Hour), 1); got > minDefer*5/4 {
		t.Errorf("wait an hour later = %s, want %s again", got, minDefer)
	}
}

// TestMachineOf: all workers of a machine share the name of a worker without its last part.
func TestMachineOf(t *testing.T) {
	for worker, want := range map[string]string{
		"vm_0-boot-1": "vm_0-boot", "vm_0-boot-2": "vm_0-boot", "vm-1": "vm", "plain": "plain", "": "", "-1": "",
	} {
		if got := machineOf(worker); got != want {
			t.Errorf("machineOf(%q) = %q, want %q", worker, got, want)
		}
	}
}
