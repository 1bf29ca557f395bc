package fleets

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

// pickUps measures how long messages wait from their put to their claim, by a fleet of
// workers without work.
type pickUps struct {
	b      *rig.Bed
	fleet  []*rig.Process
	random *rand.Rand

	mu      sync.Mutex
	claimed chan time.Time
}

// idleFleet starts so many workers at the same moment. Their delays repeat from run to
// run.
func idleFleet(b *rig.Bed, workers int) *pickUps {
	p := &pickUps{b: b, random: rand.New(rand.NewPCG(1, uint64(workers))), claimed: make(chan time.Time, 1)}
	b.Server.OnResult(func(r storage.Result) {
		if r.Operation == storage.OpGetMessages && len(r.MessageIDs) > 0 {
			p.claimed <- time.Now()
		}
	})
	for i := range workers {
		random := rand.New(rand.NewPCG(2, uint64(i)))
		p.fleet = append(p.fleet, b.Start(fmt.Sprintf("vm_%d", i), job.Kinds{"echo": rig.Echo}, rig.DiscardLog, func(c *worker.Config) {
			c.Metadata = nil // nothing evicts them
			c.Jitter.Random = func(n time.Duration) time.Duration {
				p.mu.Lock()
				defer p.mu.Unlock()
				return time.Duration(random.Int64N(int64(n)))
			}
		}))
	}
	return p
}

// measure puts a job after a random time of up to that long, and returns how long it
// waits.
func (p *pickUps) measure(after time.Duration) time.Duration {
	time.Sleep(time.Duration(p.random.Int64N(int64(after))))
	begun := time.Now()
	p.b.Put(fmt.Sprintf("job-%d", begun.UnixNano()), "echo", "1")
	return (<-p.claimed).Sub(begun)
}

// mean returns the mean of some durations.
func mean(all []time.Duration) time.Duration {
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	return sum / time.Duration(len(all))
}

// TestIdlePickUp: a fleet without work claims a job within a second of its put, however
// many workers it has, and its polls cost no more than with eight workers: half as many again are
// for the queue First.
func TestIdlePickUp(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	for _, workers := range []int{1, 4, 64} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				p := idleFleet(b, workers)
				time.Sleep(2 * time.Minute) // the workers have counted each other
				var waits []time.Duration
				for range repeats(max(150, 300/workers), 3000) {
					waits = append(waits, p.measure(8*time.Second))
				}
				b.Server.ResetCounts()
				time.Sleep(5 * time.Minute)
				polls := float64(b.Server.Counts()[storage.OpGetMessages]) / 300
				got := percentilesOf(waits)
				t.Logf("%d jobs, put to claim: mean %s, %s; %.1f polls a second", len(waits), mean(waits).Round(time.Millisecond), got, polls)
				if m := mean(waits); m > 600*time.Millisecond {
					t.Errorf("mean = %s, want at most 600ms", m)
				}
				if got.p99 > 1200*time.Millisecond {
					t.Errorf("p99 = %s, want at most 1.2s", got.p99)
				}
				if most := min(float64(workers), 8) * 1.5 * 1.1; polls > most {
					t.Errorf("polls a second = %.1f, want at most %.1f", polls, most)
				}
			})
		})
	}
}

// TestIdlePickUpInTrouble: a fleet picks jobs up soon also right after it started, when
// its workers cannot list the heartbeats, and, from the second job on, when most of its
// workers are gone.
func TestIdlePickUpInTrouble(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	const workers = 64
	for name, prepare := range map[string]func(b *rig.Bed, p *pickUps){
		"just started": func(*rig.Bed, *pickUps) { time.Sleep(time.Second) },
		"a backlog has just ended": func(b *rig.Bed, p *pickUps) {
			time.Sleep(2 * time.Minute)
			for i := range 2 * workers { // they all find the queue empty within a moment
				p.measure(time.Duration(i%2+1) * time.Millisecond)
			}
		},
		"heartbeats cannot be listed": func(b *rig.Bed, _ *pickUps) {
			b.Server.OnCall(func(c storage.Call) storage.Fault {
				if c.Operation == storage.OpListBlobs {
					return storage.Fault{Refuse: storage.ServerBusy(0)}
				}
				return storage.Fault{}
			})
			time.Sleep(2 * time.Minute)
		},
		"all but four are gone": func(_ *rig.Bed, p *pickUps) {
			time.Sleep(2 * time.Minute)
			for _, w := range p.fleet[4:] {
				w.KillNoWait()
			}
			for range 6 { // they learn it from jobs that waited
				p.measure(20 * time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				p := idleFleet(b, workers)
				prepare(b, p)
				var waits []time.Duration
				for range 20 {
					waits = append(waits, p.measure(2*time.Second))
				}
				got := percentilesOf(waits)
				t.Logf("%d jobs, put to claim: mean %s, %s", len(waits), mean(waits).Round(time.Millisecond), got)
				if m := mean(waits); m > time.Second {
					t.Errorf("mean = %s, want at most 1s", m)
				}
			})
		})
	}
}
