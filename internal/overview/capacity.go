package overview

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/fleet/presence"
)

const (
	// returning is how old the latest heartbeat of silent workers may be while they may
	// only have been unable to write: after an outage of storage they write again within
	// seconds.
	returning = 5 * time.Minute

	// lostShare is the part of the workers whose loss an operator should know.
	lostShare = 0.25
)

// nobody says why no worker is alive: none is there, or none has written a heartbeat for a
// while. After an outage of storage the heartbeats are old, and the workers are well.
func (s *Snapshot) nobody() string {
	latest := time.Duration(-1)
	for _, w := range s.Workers {
		if w.Life() == client.Silent && (latest < 0 || w.Age < latest) {
			latest = w.Age
		}
	}
	if latest < 0 || latest > returning {
		return "no worker is alive"
	}
	return fmt.Sprintf("no worker has written a heartbeat for %s: all died, or could not reach storage or may not write to it", Span(latest))
}

// capacity says how many workers fewer there are than at most in the last hour, if they are a
// large part. A worker that an operator or a scale-in stopped is not lost, also if an eviction of
// its VM was withdrawn before; a worker that started replaces one that was lost before.
func (s *Snapshot) capacity() []string {
	alive, evicted, died := 0, 0, 0
	changes := map[time.Duration]int{} // by how long ago: workers that started less workers that were lost
	for _, w := range s.Workers {
		switch w.Life() {
		case client.Alive:
			alive++
		case client.Silent:
			died++
			changes[w.Age]--
		case client.Ended:
			if w.Age > Recently || w.State != "shutdown" || w.LastEvent == nil || w.LastEvent.Type != "Preempt" || presence.Holds(w.Asked) {
				continue
			}
			evicted++
			changes[w.Age]--
		}
		if began := w.Age + w.Ran; began <= Recently {
			changes[began]++
		}
	}
	now, most := alive, alive
	for _, ago := range slices.Sorted(maps.Keys(changes)) {
		now -= changes[ago] // as many there were before
		most = max(most, now)
	}
	missing := most - alive
	if alive == 0 || missing == 0 || float64(missing) < lostShare*float64(most) {
		return nil
	}
	return []string{fmt.Sprintf("%s than at most in the last hour, %d are alive: %d evicted, %d silent; jobs wait longer until VMs are "+
		"available again: spotctl prices shows other sizes and regions", count(missing, "worker fewer", "workers fewer"), alive, evicted, died)}
}
