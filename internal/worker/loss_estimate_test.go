package worker

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/testing/race"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/emulator/imds"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/presence"
	"github.com/spotworker/spotworker/job"
)

// TestLossesOf: how many workers were lost, with and without a notice, is read from
// their last heartbeats.
func TestLossesOf(t *testing.T) {
	now := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	listed := func(p presence.Presence) presence.Listed { return presence.Listed{Presence: p} }
	ran := func(state string, hours int, ago time.Duration) presence.Listed {
		return listed(presence.Presence{State: state, StartedAt: now.Add(-ago - time.Duration(hours)*time.Hour), At: now.Add(-ago)})
	}
	for _, row := range []struct {
		name string
		all  []presence.Listed
		want checkpoint.Losses
	}{
		{"no workers", nil, checkpoint.Losses{}},
		{"running", []presence.Listed{ran("process", 3, 14*time.Second)}, checkpoint.Losses{Watched: 3 * time.Hour}},
		{"draining", []presence.Listed{ran("shutdown", 3, time.Minute)}, checkpoint.Losses{Watched: 3 * time.Hour}},
		{"heartbeat outdated", []presence.Listed{ran("process", 3, 3*time.Minute)}, checkpoint.Losses{Watched: 3 * time.Hour, Sudden: 1}},
		{"drained, then lost", []presence.Listed{ran("shutdown", 3, time.Hour)}, checkpoint.Losses{Watched: 3 * time.Hour, Warned: 1}},
		{"stopped", []presence.Listed{ran("stopped", 3, time.Hour)}, checkpoint.Losses{Watched: 3 * time.Hour}},
		{"too long ago", []presence.Listed{ran("process", 3, 8*24*time.Hour)}, checkpoint.Losses{}},
		{"unreadable times", []presence.Listed{listed(presence.Presence{State: "process"})}, checkpoint.Losses{}},
		{"clock set back", []presence.Listed{listed(presence.Presence{State: "process", StartedAt: now.Add(time.Hour), At: now})}, checkpoint.Losses{}},
		{"a fleet", []presence.Listed{ran("process", 1, 0), ran("process", 2, time.Hour), ran("shutdown", 4, time.Hour), ran("stopped", 8, time.Hour)},
			checkpoint.Losses{Watched: 15 * time.Hour, Warned: 1, Sudden: 1}},
	} {
		if got := lossesOf(row.all, now); got != row.want {
			t.Errorf("%s: lossesOf = %+v, want %+v", row.name, got, row.want)
		}
	}
}

// TestLossEstimateLearns: a worker counts how its own last run ended, and soon after its
// start and then every lossesEvery how those of all other workers did, with one call.
func TestLossEstimateLearns(t *testing.T) {
	race.Skip(t)
	inBubble(t, func(t *testing.T, b *testbed) {
		first := b.start("vm_0", job.Kinds{"echo": echo})
		time.Sleep(time.Hour)
		first.kill()
		other := b.start("vm_1", job.Kinds{"echo": echo})
		time.Sleep(time.Minute)
		other.kill()

		again := b.start("vm_0", job.Kinds{"echo": echo})
		time.Sleep(lossesFirst / 2)
		if got := again.losses.Losses(); got.Sudden != 1 || got.Watched < 59*time.Minute || got.Watched > time.Hour {
			t.Errorf("losses half a minute after the start = %+v, want the last run of an hour, and its sudden end", got)
		}
		b.server.ResetCounts()
		const window = (lossesFirst + lossesEvery) * 5 / 4
		time.Sleep(window)
		if got := again.losses.Losses(); got.Sudden != 2 || got.Warned != 0 {
			t.Errorf("losses after a sample = %+v, want the other VM's as well", got)
		}
		if got := b.server.Counts()["ListBlobs"]; got != 2 {
			t.Errorf("listings in %s = %d, want 2", window, got)
		}
	})
}

// TestBlindWorkerSavesOften: while the metadata service does not answer, an eviction
// would come without a notice. So the worker saves each state at once, and then at
// the shortest interval until the service answers again.
func TestBlindWorkerSavesOften(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		work := &steps{n: 3000, each: time.Second}
		b.put("a", "steps", "")
		const save = 50 * time.Millisecond
		p := b.start("vm_0", job.Kinds{"steps": work}, func(c *Config) {
			c.Policy = checkpoint.DefaultPolicy()
			c.Policy.Shortest, c.Policy.Longest = 10*time.Second, 5*time.Minute
		})
		b.server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: save} })
		b.waitFor("two saves, which show their cost", time.Minute, func() bool { return len(p.log.find("checkpoint saved")) >= 2 })
		time.Sleep(10 * time.Minute)
		withNotices := len(p.log.find("checkpoint saved"))
		b.metadata.OnRequest(func(imds.Request) imds.Fault { return imds.Fault{Status: 500} })
		time.Sleep(blindFor + recheckEvery + 10*time.Second)
		if got := len(p.log.find("checkpoint saved")) - withNotices; got < 1 {
			t.Errorf("saves within %s of the outage = %d, want one at once", blindFor, got)
		}
		before := len(p.log.find("checkpoint saved"))
		time.Sleep(time.Minute)
		if got := len(p.log.find("checkpoint saved")) - before; got < 5 || got > 7 {
			t.Errorf("saves in a minute without notices = %d, want one every 10 s", got)
		}
		b.metadata.OnRequest(nil)
		time.Sleep(10 * time.Second)
		before = len(p.log.find("checkpoint saved"))
		time.Sleep(time.Minute)
		if got := len(p.log.find("checkpoint saved")) - before; got > 1 {
			t.Errorf("saves in a minute with notices again = %d, want one at most", got)
		}
		lines := p.log.find("checkpoint saved")
		if interval := time.Duration(lines[withNotices-1]["interval"].(float64)); interval < 30*time.Second || interval > 5*time.Minute {
			t.Errorf("interval with notices = %s, want about that of Young and Daly for saves that take %s", interval, save)
		}
	})
}
