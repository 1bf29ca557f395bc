package overview

import (
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/activity"
)

const (
	// growthSpan is the time over which the growth of a queue is measured at least, and
	// growthKept for how long counts are kept.
	growthSpan = time.Minute
	growthKept = 5 * time.Minute

	// growthShare is the part of the messages that are more from which on a queue grows, and
	// growthLeast the number of them. Counts of queues are approximate.
	growthShare = 0.05
	growthLeast = 5
)

// Growth is how many more messages a queue has, and since when.
type Growth struct {
	More int
	Over time.Duration
}

// String returns the growth for people.
func (g Growth) String() string { return fmt.Sprintf("+%s in %s", Number(g.More), Span(g.Over)) }

// grew reports whether a queue has clearly more messages than before.
func grew(before, now int) bool {
	more := now - before
	return more >= growthLeast && float64(more) > growthShare*float64(before)
}

// Sustained returns the growth of the queues of jobs that grew since two readings before, as the
// heartbeats show them: for most of a minute. A queue that got many jobs at once is not among them.
func (s *Snapshot) Sustained() map[string]Growth {
	if !s.Has(PartQueues) {
		return nil
	}
	found := map[string]Growth{}
	for _, q := range s.jobQueues() {
		earlier, _, ok := s.reading(q.Name, activity.Earlier)
		much, age, also := s.reading(q.Name, activity.MuchEarlier)
		if ok && also && grew(much, earlier) && grew(earlier, q.Messages) {
			found[q.Name] = Growth{More: q.Messages - much, Over: age}
		}
	}
	return found
}

// reading returns the reading of a queue whose age is nearest to the wanted one, by the
// heartbeats of all workers.
func (s *Snapshot) reading(queue string, wanted time.Duration) (messages int, age time.Duration, ok bool) {
	for _, w := range s.Workers {
		if w.Findings == nil {
			continue
		}
		for _, r := range w.Findings.Earlier {
			old := r.Age + w.Age
			if r.Queue != queue || !activity.IsEarlier(old, wanted) || ok && (old-wanted).Abs() >= (age-wanted).Abs() {
				continue
			}
			messages, age, ok = r.Messages, old, true
		}
	}
	return messages, age, ok
}

// growing says which queues of jobs grow.
func (s *Snapshot) growing() (all []string) {
	grown := s.Sustained()
	for _, q := range s.jobQueues() {
		if g, ok := grown[q.Name]; ok {
			all = append(all, fmt.Sprintf("queue %s grows, %s, and still does: more jobs are put than the workers end; start more VMs, or look "+
				"at why jobs take longer", q.Name, g))
		}
	}
	return all
}

// queueCounts are the messages of the queues at one moment.
type queueCounts struct {
	at       time.Time
	messages map[string]int
}

// growths remembers the counts of earlier snapshots. The zero value remembers none.
type growths struct{ counts []queueCounts }

// add remembers a snapshot, and returns the growth of the queues that grow. Each is compared
// with the oldest count that is kept.
func (g *growths) add(s *Snapshot) map[string]Growth {
	if !s.Has(PartQueues) {
		return nil
	}
	now := queueCounts{at: s.At, messages: map[string]int{}}
	for _, q := range s.AllQueues() {
		now.messages[q.Name] = q.Messages
	}
	for len(g.counts) > 0 && s.At.Sub(g.counts[0].at) > growthKept {
		g.counts = g.counts[1:]
	}
	g.counts = append(g.counts, now)
	before := g.counts[0]
	over := s.At.Sub(before.at)
	if over < growthSpan {
		return nil
	}
	found := map[string]Growth{}
	for name, messages := range now.messages {
		had, known := before.messages[name]
		if known && grew(had, messages) {
			found[name] = Growth{More: messages - had, Over: over}
		}
	}
	return found
}
