package lab

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"time"
)

// news returns what is to be told of what happened since the last time: who went
// on with the jobs of lost VMs, and which deliveries ended without a commit.
func (d *demo) news(f *facts) []string {
	var news []string
	for _, id := range slices.Sorted(maps.Keys(d.owed)) {
		debt := d.owed[id]
		s, taken := f.resumed(id, debt.vm, debt.since)
		if taken {
			news = append(news, resumedAs(s, debt))
		}
		if taken || f.committedBy(id, debt.vm) {
			delete(d.owed, id)
		}
	}
	for _, c := range f.closings[d.told:] {
		news = append(news, f.tellClosing(c))
	}
	d.told = len(f.closings)
	return news
}

// resumedAs says that a debt is settled.
func resumedAs(s start, d debt) string {
	after := fmt.Sprintf("%s after its %s", s.at.Sub(d.since).Round(100*time.Millisecond), d.what)
	if s.fraction == 0 {
		return fmt.Sprintf("%s begins %s of %s again, %s: nothing was saved.", s.vm, baseName(d.Blob), d.vm, after)
	}
	from := int64(s.fraction*float64(d.Size) + 0.5)
	return fmt.Sprintf("%s goes on with %s of %s at %s, %s.", s.vm, baseName(d.Blob), d.vm, size(from), after)
}

// tellClosing says how a delivery ended that its worker did not complete.
func (f *facts) tellClosing(c closing) string {
	name := "a message that is no job"
	if j, ok := f.jobs[c.job]; ok {
		name = baseName(j.blob)
	} else if c.job != "" {
		name = c.job
	}
	switch {
	case c.kind == poisoned:
		return fmt.Sprintf("%s put %s into the poison queue: %s.", c.vm, name, c.reason)
	case c.kind == dropped:
		return fmt.Sprintf("%s found another worker in its place: it lets %s go, and its writes were refused.", c.vm, name)
	case c.kind == putBack && f.duplicated(c.job):
		return fmt.Sprintf("%s found %s in other hands, under the same id: a duplicate. It put the message back.", c.vm, name)
	case c.kind == putBack:
		return fmt.Sprintf("%s put %s back: %s.", c.vm, name, c.reason)
	default:
		return fmt.Sprintf("%s found %s done already and deleted the message.", c.vm, name)
	}
}

// progressEvery is how often it is told how many jobs are done.
const progressEvery = 8 * time.Second

// progressTeller tells how many jobs are done, for those who do not see it.
type progressTeller struct {
	*demo
	last  time.Time
	count int
}

func (p *progressTeller) due(f *facts) []string {
	now := time.Now()
	if p.last.IsZero() {
		p.last = now
	}
	if p.Stage != nil || now.Sub(p.last) < progressEvery {
		return nil
	}
	p.last = now
	before := p.count
	if p.count = f.committed(); p.count == before {
		return nil
	}
	return []string{fmt.Sprintf("%d of %s committed.", p.count, plural(len(f.good()), "job"))}
}

// longestName is how much of a file's name is told, in bytes.
const longestName = 24

// baseName is what an input is called when it is talked about.
func baseName(blob string) string {
	name := path.Base(blob)
	if len(name) > longestName {
		name = name[:longestName-2] + ".."
	}
	return name
}
