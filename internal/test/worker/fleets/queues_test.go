package fleets

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/internal/worker/intake"
	"github.com/spotworker/spotworker/job"
)

// claimsOf counts the claims from each queue.
func claimsOf(b *rig.Bed) func(name string) int {
	var mu sync.Mutex
	claims := map[string]int{}
	b.Server.OnResult(func(r storage.Result) {
		if r.Operation == storage.OpGetMessages {
			mu.Lock()
			defer mu.Unlock()
			claims[r.Queue]++
		}
	})
	return func(name string) int {
		mu.Lock()
		defer mu.Unlock()
		return claims[name]
	}
}

// TestIdlePolls: a worker without work asks each of two queues as often as a single one, and the queue
// First half as often.
func TestIdlePolls(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	const idle = time.Hour
	polls := map[string]int{}
	for name, change := range map[string]func(*worker.Config){"one": func(*worker.Config) {}, "two": rig.TakeFromBoth} {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			claims := claimsOf(b)
			b.Start("vm_0", job.Kinds{"echo": rig.Echo}, change)
			time.Sleep(idle)
			polls[name] = claims(b.Names.Queue) + claims(b.Names.OnDemand)
			if one, other := claims(b.Names.Queue), claims(b.Names.OnDemand); name == "two" && (one < other-other/5 || one > other+other/5) {
				t.Errorf("polls of the two queues = %d and %d, want as many of each", one, other)
			}
			half := int(idle/intake.PollEvery) / 2
			if n := claims(b.Names.First); n < half*95/100 || n > half*105/100 {
				t.Errorf("polls of the queue First = %d, want about %d", n, half)
			}
		})
	}
	t.Logf("polls of an idle worker in %s: %d of one queue, %d of two", idle, polls["one"], polls["two"])
	// Each idle time begins with a few short waits, and the waits vary by chance.
	for name, want := range map[string]int{"one": int(idle / intake.PollEvery), "two": 2 * int(idle/intake.PollEvery)} {
		if got := polls[name]; got < want*95/100 || got > want*105/100 {
			t.Errorf("polls with queues: %s = %d, want about %d", name, got, want)
		}
	}
}

// TestShortJobCostOfTwoQueues: beside a queue with jobs, an empty one adds a few polls
// to the storage calls and nothing else.
func TestShortJobCostOfTwoQueues(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const jobs = 32 * 20
		for i := range jobs {
			b.Put(fmt.Sprintf("job-%d", i), "echo", "1")
		}
		claims := claimsOf(b)
		began := time.Now()
		b.Start("vm_0", job.Kinds{"echo": rig.Echo}, rig.TakeFromBoth, func(c *worker.Config) { c.Concurrency = 32 })
		b.WaitFor("all jobs gone", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		if n := claims(b.Names.Queue); n < jobs/32 || n > jobs/32+1 {
			t.Errorf("claims from the queue of %d jobs = %d, want %d, or one more that found it empty", jobs, n, jobs/32)
		}
		most := 3 + int(time.Since(began)/(intake.PollEvery*7/8)) // the second wait is random
		if n := claims(b.Names.OnDemand); n < 1 || n > most {
			t.Errorf("claims from the empty queue in %s = %d, want 1 to %d", time.Since(began), n, most)
		}
	})
}

// TestNoQueueStarves: a worker does the jobs of two queues with a backlog at the same
// rate, for any lengths.
func TestNoQueueStarves(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		for i := range 200 {
			b.Put(fmt.Sprintf("many-%d", i), "steps", "")
		}
		for i := range 20 {
			b.PutOn(b.OnDemand, fmt.Sprintf("few-%d", i), "steps", "")
		}
		b.Start("vm_0", job.Kinds{"steps": &rig.Steps{N: 1, Each: time.Second}}, rig.TakeFromBoth, func(c *worker.Config) { c.Concurrency = 1 })
		b.WaitFor("the short queue is empty", time.Minute, func() bool { return len(b.Server.Messages(b.Names.OnDemand)) == 0 })
		if done := 200 - len(b.Server.Messages(b.Names.Queue)); done < 15 || done > 25 {
			t.Errorf("jobs of the long queue done by then = %d, want about as many as the 20 of the short one", done)
		}
	})
}

// TestOneQueueGone: a queue that is deleted while workers take from it does not
// keep them from the other.
func TestOneQueueGone(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, rig.TakeFromBoth)
		time.Sleep(20 * time.Second)
		if _, err := b.Account(b.Server.Transport()).Queue(b.Names.OnDemand).Delete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		claims := claimsOf(b)
		time.Sleep(10 * time.Minute)
		if n := claims(b.Names.OnDemand); n < 30 || n > 60 {
			t.Errorf("claims from a queue that is gone in 10 min = %d, want one every 16s", n)
		}
		if n := len(p.Log.Find("no messages claimed; trying again")); n == 0 {
			t.Error("log has no line about the queue that is gone")
		}
		for i := range 100 {
			b.Put(fmt.Sprint(i), "echo", "1")
		}
		began := time.Now()
		b.WaitFor("the other queue is empty", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		synctest.Wait()
		if took := time.Since(began); took > 25*time.Second {
			t.Errorf("100 jobs of the other queue took %s, want one poll and a moment", took)
		}
	})
}

// TestUnreadableMessage: one message makes every reply that contains it unreadable.
// The other messages of the first claim wait for their visibility timeout once, not
// each time that this one is claimed.
func TestUnreadableMessage(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.PutText("no XML parser can read this")
		bad := b.Server.Messages(b.Names.Queue)[0].ID
		const jobs = 100
		for i := range jobs {
			b.Put(fmt.Sprintf("job-%d", i), "echo", "1")
		}
		b.Server.OnCall(func(storage.Call) storage.Fault {
			return storage.Fault{SpoilReply: func(r storage.Result) bool { return slices.Contains(r.MessageIDs, bad) }}
		})
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, func(c *worker.Config) { c.Concurrency = 32 })
		const most = 55 * time.Second // a visibility timeout, and two polls after failed claims
		b.WaitFor("all other jobs done", most, func() bool { return b.MessagesLeft() == 1 })
		time.Sleep(5 * time.Minute) // in which the message becomes visible several times
		begun := time.Now()
		for i := range jobs {
			b.Put(fmt.Sprintf("later-%d", i), "echo", "1")
		}
		b.WaitFor("later jobs done", 15*time.Second, func() bool { return b.MessagesLeft() == 1 })
		t.Logf("%d jobs beside the message took %s", jobs, time.Since(begun))
		lines := p.Log.Find("no messages claimed; trying again")
		if len(lines) == 0 {
			t.Fatal("the log has no line about a claim that failed")
		}
		if n := lines[0]["next_claims_ask_for"]; n != 1.0 {
			t.Errorf("next_claims_ask_for in the first line = %v, want 1: %v", n, lines[0])
		}
	})
}

// TestMessagesThatSpoilClaims: storage answers 500 to each claim that hands out one of some
// messages, as Azurite does for texts that XML cannot hold. The jobs beside them are done
// after one visibility timeout, and later ones within seconds, and the log names the queue.
func TestMessagesThatSpoilClaims(t *testing.T) {
	for _, spoilers := range []int{3, 20} {
		t.Run(strconv.Itoa(spoilers), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				const jobs = 30
				var bad []string
				for i := range jobs {
					b.Put(fmt.Sprintf("job-%d", i), "echo", "1")
					if i%(jobs/3) == jobs/3-1 {
						for range spoilers / 3 {
							b.PutText("a text that XML cannot hold")
						}
					}
				}
				for range spoilers % 3 {
					b.PutText("a text that XML cannot hold")
				}
				for _, m := range b.Server.Messages(b.Names.Queue) {
					if m.Text == "a text that XML cannot hold" {
						bad = append(bad, m.ID)
					}
				}
				b.Server.OnCall(func(c storage.Call) storage.Fault {
					return storage.Fault{RefuseReply: func(r storage.Result) *storage.Error {
						if !slices.ContainsFunc(r.MessageIDs, func(id string) bool { return slices.Contains(bad, id) }) {
							return nil
						}
						return &storage.Error{Status: 500, Code: "InternalError", Message: "invalid character"}
					}}
				})
				p := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, func(c *worker.Config) { c.Concurrency = 32 })
				most := rig.DefaultVisibility + time.Duration(spoilers+10)*time.Second
				b.WaitFor("all other jobs done", most, func() bool { return b.MessagesLeft() == spoilers })
				time.Sleep(5 * time.Minute) // in which the messages become visible several times
				for i := range jobs {
					b.Put(fmt.Sprintf("later-%d", i), "echo", "1")
				}
				begun := time.Now()
				b.WaitFor("later jobs done", most, func() bool { return b.MessagesLeft() == spoilers })
				t.Logf("%d jobs beside %d messages took %s", jobs, spoilers, time.Since(begun))
				warned := 0
				for _, line := range p.Log.Find("no messages claimed; trying again") {
					if line["level"] == "WARN" && line["queue"] == b.Names.Queue && line["next_claims_ask_for"] == 1.0 {
						warned++
					}
				}
				if warned == 0 || warned > 3 {
					t.Errorf("warnings that name the queue = %d, want 1 to 3", warned)
				}
			})
		})
	}
}
