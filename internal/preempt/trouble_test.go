package preempt

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
)

// fallbackWithin is the time after which the other version answers if the one in use
// does not: doubtAfter, and the wait before the next poll.
const fallbackWithin = doubtAfter + longestRetry

// TestOneVersionInTrouble: for any answers of one version, the watcher reads the other
// one. An eviction that comes with the trouble is seen within fallbackWithin, a later one
// within a second.
func TestOneVersionInTrouble(t *testing.T) {
	for name, fault := range troubles {
		for _, row := range []struct {
			version         string
			from, announced time.Duration
		}{
			{newestEvents, 0, 0},
			{newestEvents, 0, 90 * time.Second},
			{newestEvents, 20 * time.Second, 20 * time.Second},
			{newestEvents, 20 * time.Second, 1000500 * time.Millisecond},
			{generalEvents, 0, 90 * time.Second},
		} {
			t.Run(fmt.Sprintf("%s of %s from %s, after %s", name, row.version, row.from, row.announced), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, vm, c := auto(t, imds.Options{PreviewEvents: true})
					troubleFrom(s, row.version, fault, row.from)
					want := pollInterval
					if row.announced == row.from {
						want = fallbackWithin
					}
					if fault.Hold > 0 { // an answer within pollTimeout causes no change of the version
						want += fault.Hold
					}
					if took := preemptAfter(t, s, c, row.announced); took < 0 || took > want {
						t.Errorf("eviction was seen after %s, want at most %s", took, want)
					}
					if busiest := vm.Stats().BusiestSecond; busiest > budgetRequests {
						t.Errorf("%d requests in one second, want at most %d", busiest, budgetRequests)
					}
				})
			})
		}
	}
}

// troubleFrom makes requests in a version fail that much later.
func troubleFrom(s *imds.Server, version string, fault imds.Fault, after time.Duration) {
	begin := time.Now()
	s.OnRequest(func(r imds.Request) imds.Fault {
		if r.Version == version && time.Since(begin) >= after {
			return fault
		}
		return imds.Fault{}
	})
}

// TestNewestVersionComesBack: after trouble of the newest version it is used again, since
// it alone shows rebalance recommendations.
func TestNewestVersionComesBack(t *testing.T) {
	for name, fault := range map[string]imds.Fault{
		"500": {Status: 500}, "404": {Status: 404}, "hang": {Hang: true}, "slow": {Hold: 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, vm, c := auto(t, imds.Options{PreviewEvents: true})
				troubleFrom(s, newestEvents, fault, 0)
				stop := watch(t, c)
				time.Sleep(time.Minute)
				if got := c.version.get(); got != generalEvents {
					t.Errorf("version in use during the trouble = %s, want %s", got, generalEvents)
				}
				s.OnRequest(nil)
				time.Sleep(newestAgainEvery + 10*time.Second)
				if got := c.version.get(); got != newestEvents {
					t.Errorf("version in use after the trouble = %s, want %s", got, newestEvents)
				}
				stop()
				if busiest := vm.Stats().BusiestSecond; busiest > budgetRequests {
					t.Errorf("%d requests in one second, want at most %d", busiest, budgetRequests)
				}
			})
		})
	}
}

// TestNewestVersionIsTriedBeside: a poll in the newest version, which does not answer,
// takes no other poll's place.
func TestNewestVersionIsTriedBeside(t *testing.T) {
	for delay := time.Duration(0); delay < 10*time.Second; delay += 370 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			s, _, c := auto(t, imds.Options{PreviewEvents: true})
			troubleFrom(s, newestEvents, imds.Fault{Hang: true}, 0)
			took := preemptAfter(t, s, c, newestAgainEvery+delay)
			if took < 0 || took > pollInterval {
				t.Errorf("eviction announced %s after the try was due was seen after %s, want at most %s", delay, took, pollInterval)
			}
		})
	}
}

// TestAnswersSlowerThanAPoll: a service whose every answer takes longer than an ordinary
// poll is heard, whether the answer is of the beginning or of the end of that time. The
// watcher stays blind, once, since it sees late.
func TestAnswersSlowerThanAPoll(t *testing.T) {
	for _, slow := range []time.Duration{pollTimeout, 6 * time.Second, 10 * time.Second} {
		for name, fault := range map[string]imds.Fault{"fresh": {Delay: slow}, "stale": {Hold: slow}} {
			for _, from := range []time.Duration{0, 20 * time.Second} {
				for delay := time.Duration(0); delay < 2*slow; delay += 730 * time.Millisecond {
					synctest.Test(t, func(t *testing.T) {
						s, vm, c := emulate(t, imds.Options{})
						troubleFrom(s, generalEvents, fault, from)
						stop := watch(t, c)
						time.Sleep(40*time.Second + delay)
						announced := time.Now()
						id, err := s.SimulateEviction("a")
						if err != nil {
							t.Fatal(err)
						}
						time.Sleep(3 * slow)
						seen := stop()
						if took := seenAfter(seen, id, announced); took < 0 || took > 2*slow+longestRetry {
							t.Errorf("%s after %s: eviction was seen after %s, want at most %s", name, slow, took, 2*slow+longestRetry)
						}
						begins, blind := 0, false
						for _, o := range seen {
							if o.Blind() && !blind {
								begins++
							}
							blind = o.Blind()
						}
						if begins != 1 || !blind {
							t.Errorf("%s after %s: became blind %d times, and is at the end: %t, want once and true", name, slow, begins, blind)
						}
						checkPolls(t, vm)
					})
				}
			}
		}
	}
}

// TestAcknowledgeInTheOtherVersion: an acknowledgement that one version does not accept is
// repeated in the other one.
func TestAcknowledgeInTheOtherVersion(t *testing.T) {
	for name, fault := range map[string]imds.Fault{"500": {Status: 500}, "hang": {Hang: true}, "cut": {Cut: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, vm, c := auto(t, imds.Options{PreviewEvents: true})
				id := s.Schedule(imds.Event{Type: "Reboot", Resources: []string{"a"}, NotBefore: time.Now().Add(time.Hour)})
				troubleFrom(s, newestEvents, fault, 0)
				if err := c.Acknowledge(t.Context(), id); err != nil {
					t.Errorf("Acknowledge = %v, want nil", err)
				}
				if diff := cmp.Diff([]string{newestEvents, generalEvents}, versions(vm)); diff != "" {
					t.Errorf("versions asked for (-want +got):\n%s", diff)
				}
			})
		})
	}
}
