package lab

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// progressEvery is how often it is told how many jobs are done.
const progressEvery = 8 * time.Second

// finish waits until every job is committed and no message is left, and tells
// who goes on with the jobs of the lost VMs.
func (d *demo) finish(ctx context.Context) error {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	told := 0
	for {
		committed, jobs := 0, 0
		var taken []start
		changed := d.ledger.look(func(f *facts) {
			jobs, committed = len(f.jobs), f.committed()
			taken = d.takenOver(f)
		})
		for _, s := range taken {
			d.say("%s", d.settle(s))
		}
		if committed == jobs && len(d.local.Storage.Messages(d.ledger.names.Queue)) == 0 {
			d.say("All %s are committed and the queue is empty.", plural(jobs, "job"))
			return nil
		}
		select {
		case <-changed:
		case <-ticker.C:
			if committed != told {
				d.say("%d of %s committed.", committed, plural(jobs, "job"))
			}
			told = committed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f *facts) committed() (n int) {
	for id := range f.jobs {
		if f.commits(id) > 0 {
			n++
		}
	}
	return n
}

// takenOver returns the starts with which other workers went on with what lost
// VMs had in hand.
func (d *demo) takenOver(f *facts) []start {
	var taken []start
	for _, id := range slices.Sorted(maps.Keys(d.owed)) {
		if s, ok := f.lastStart(id); ok && s.vm != d.owed[id].vm && s.at.After(d.owed[id].since) {
			taken = append(taken, s)
		}
	}
	return taken
}

// settle strikes a debt and says so.
func (d *demo) settle(s start) string {
	debt := d.owed[s.job]
	delete(d.owed, s.job)
	after := fmt.Sprintf("%s after its %s", s.at.Sub(debt.since).Round(100*time.Millisecond), debt.what)
	if s.fraction == 0 {
		return fmt.Sprintf("%s begins %s of %s again, %s: nothing was saved.", s.vm, baseName(debt.Blob), debt.vm, after)
	}
	from := int64(s.fraction*float64(debt.Size) + 0.5)
	return fmt.Sprintf("%s goes on with %s of %s at %s, %s.", s.vm, baseName(debt.Blob), debt.vm, size(from), after)
}

// longestName is how much of a file's name is told, in bytes.
const longestName = 24

// baseName is what a file is called when it is talked about.
func baseName(blob string) string {
	name := path.Base(blob)
	if len(name) > longestName {
		name = name[:longestName-2] + ".."
	}
	return name
}

// listFolders says how many files are from where.
func listFolders(files []File, roots []string) string {
	count := folders(files, roots)
	var parts []string
	for _, root := range roots {
		if n := count[root]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d from %s", n, root))
		}
	}
	return strings.Join(parts, ", ")
}

// told says what the pace means for whoever watches.
func (p pace) told() string {
	if p.rate == 0 {
		return ""
	}
	return fmt.Sprintf(" Each download is held to %s/s, so that jobs take long enough to be interrupted.", size(int64(p.rate)))
}
