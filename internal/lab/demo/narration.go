package demo

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/lab/text"
)

// narrate returns what happened since the last time: who resumed the jobs of lost
// VMs, which deliveries ended without a commit, and how many jobs are done.
func (d *demo) narrate(h *history) []string {
	var lines []string
	for _, id := range slices.Sorted(maps.Keys(d.script.lost)) {
		lost := d.script.lost[id]
		s, resumed := h.resumed(id, lost.vm, lost.since)
		if resumed {
			lines = append(lines, lost.describe(s))
		}
		if resumed || h.committedBy(id, lost.vm) {
			delete(d.script.lost, id)
		}
	}
	for _, e := range h.ends[d.script.reported:] {
		lines = append(lines, h.describeEnd(e))
	}
	d.script.reported = len(h.ends)
	return append(lines, d.narrateProgress(h, time.Now())...)
}

// describe says how another worker resumed the job.
func (l lostJob) describe(s start) string {
	after := fmt.Sprintf("%s after its %s", s.at.Sub(l.since).Round(100*time.Millisecond), l.cause)
	if s.fraction == 0 {
		return fmt.Sprintf("%s starts %s of %s from the beginning, %s: nothing was saved.", s.vm, shortName(l.blob), l.vm, after)
	}
	from := int64(s.fraction*float64(l.size) + 0.5)
	return fmt.Sprintf("%s resumes %s of %s at %s, %s.", s.vm, shortName(l.blob), l.vm, text.Size(from), after)
}

// describeEnd says how a delivery ended without a commit.
func (h *history) describeEnd(e deliveryEnd) string {
	name := cmp.Or(e.job, "a message that is no job")
	if blob, ok := h.blobs[e.job]; ok {
		name = shortName(blob)
	}
	switch {
	case e.kind == poisoned:
		return fmt.Sprintf("%s moved %s to the poison queue: %s.", e.vm, name, e.reason)
	case e.kind == dropped:
		return fmt.Sprintf("%s found that another worker owns %s: its writes were refused, and it stopped.", e.vm, name)
	case e.kind == deferred && h.isDuplicated(e.job):
		return fmt.Sprintf("%s found that another worker owns %s, under the same id: a duplicate. It deferred the message.", e.vm, name)
	case e.kind == deferred:
		return fmt.Sprintf("%s deferred %s: %s.", e.vm, name, e.reason)
	default:
		return fmt.Sprintf("%s found that %s is done and deleted the message.", e.vm, name)
	}
}

// progressEvery is the time between two reports of how many jobs are done.
const progressEvery = 8 * time.Second

// narrateProgress says how many jobs are done.
func (d *demo) narrateProgress(h *history, now time.Time) []string {
	s := &d.script
	if s.progressAt.IsZero() {
		s.progressAt = now
	}
	if now.Sub(s.progressAt) < progressEvery {
		return nil
	}
	s.progressAt = now
	before := s.progressDone
	if s.progressDone = h.committed(); s.progressDone == before {
		return nil
	}
	return []string{fmt.Sprintf("%d of %s committed.", s.progressDone, text.Plural(len(h.good()), "job"))}
}

// longestName is the length of a short name, in bytes.
const longestName = 24

// shortName returns a short name of an input.
func shortName(blob string) string {
	name := path.Base(blob)
	if len(name) > longestName {
		name = name[:longestName-2] + ".."
	}
	return name
}
