package demo

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/internal/lab/text"
	"github.com/spotworker/spotworker/internal/replay/lanes"
)

// teller turns a history into a story for the picture.
type teller struct {
	h    *history
	from time.Time      // the start of the first VM
	vms  map[string]int // indexes of VMs in the story
	lanes.Story
}

// tell returns the story of a run. It is a pure function. The figures and the promises are the
// report's.
func tell(h *history, r report) lanes.Story {
	t := &teller{h: h, vms: map[string]int{}}
	t.tellVMs()
	ids := h.good()
	slices.SortStableFunc(ids, func(a, b string) int { return h.firstStart(a).Compare(h.firstStart(b)) })
	for _, id := range ids {
		t.Jobs = append(t.Jobs, t.job(id))
	}
	for _, job := range t.Jobs { // what still runs, runs until the end
		for n := range job.Runs {
			if run := &job.Runs[n]; run.End == lanes.Running {
				run.To = max(run.From, t.Took)
			}
		}
	}
	t.About, t.Figures = r.summary, r.figures()
	for _, row := range r.rows {
		t.Promises = append(t.Promises, lanes.Promise(row))
	}
	return t.Story
}

// firstStart returns when a job was started first; far in the future if it was not.
func (h *history) firstStart(job string) time.Time {
	first := time.Unix(1<<40, 0)
	for _, s := range h.starts {
		if s.job == job && s.at.Before(first) {
			first = s.at
		}
	}
	return first
}

// since is a time since the start of the first VM. The story ends with the last of them.
func (t *teller) since(at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	since := max(0, at.Sub(t.from))
	t.Took = max(t.Took, since)
	return since
}

// tellVMs adds the VMs in the order of their start.
func (t *teller) tellVMs() {
	names := slices.SortedFunc(maps.Keys(t.h.born), func(a, b string) int {
		return cmp.Or(t.h.born[a].Compare(t.h.born[b]), strings.Compare(a, b))
	})
	if len(names) > 0 {
		t.from = t.h.born[names[0]]
	}
	fates := map[fateKind]lanes.Fate{evicted: lanes.Evicted, killed: lanes.Killed, frozen: lanes.Frozen}
	for _, name := range names {
		f := t.h.fates[name]
		t.vms[name] = len(t.VMs)
		t.VMs = append(t.VMs, lanes.VM{
			Name: name, From: t.since(t.h.born[name]), To: t.since(f.gone), Fate: fates[f.kind], Struck: t.since(f.at), Thawed: t.since(f.thawed),
		})
	}
}

func (t *teller) job(id string) lanes.Job {
	job := lanes.Job{Name: cmp.Or(shortName(t.h.blobs[id]), id)}
	for _, w := range t.h.writes(id) {
		if w.Status == oracle.Done && job.Done == 0 {
			job.Done = t.since(w.At)
		}
	}
	starts := slices.DeleteFunc(slices.Clone(t.h.starts), func(s start) bool {
		_, known := t.vms[s.vm]
		return s.job != id || !known
	})
	slices.SortStableFunc(starts, func(a, b start) int { return a.at.Compare(b.at) })
	for _, s := range starts {
		job.Runs = append(job.Runs, t.run(s))
	}
	return job
}

// run tells a delivery of a job.
func (t *teller) run(s start) lanes.Run {
	kind, end := t.h.ending(s)
	run := lanes.Run{VM: t.vms[s.vm], From: t.since(s.at), To: t.since(end), End: kind}
	saved := s.at
	for _, w := range t.h.writes(s.job) {
		if w.VM == s.vm && w.Progress >= 0 && w.At.After(s.at) && !w.At.After(end) {
			run.Saves = append(run.Saves, t.since(w.At))
			saved = w.At
		}
	}
	if (kind == lanes.Died || kind == lanes.Fell) && len(t.h.unsaved(s, end)) > 0 {
		run.Lost = end.Sub(saved)
	}
	thawed := t.h.fates[s.vm].thawed
	if left, leaves := t.h.endAfter(s, s.at); kind == lanes.Fell && leaves && !thawed.IsZero() {
		run.StaleFrom, run.StaleTo = t.since(thawed), t.since(left.at)
	}
	return run
}

// ending returns how and when a delivery ended. A delivery that did not end has its start.
func (h *history) ending(s start) (lanes.End, time.Time) {
	fate := h.fates[s.vm]
	end, ended := h.endOf(s)
	if hit := h.hit(s); hit != lanes.Running {
		if hit != lanes.Released {
			end = fate.at
		}
		return hit, end
	}
	if left, leaves := h.endAfter(s, s.at); leaves {
		return lanes.Left, left.at
	}
	if done, ok := h.doneBy(s); ok {
		return lanes.Committed, done
	}
	if ended {
		return lanes.Left, end
	}
	return lanes.Running, s.at
}

// hit returns how the fate of a VM ended a delivery; [lanes.Running] if it did not.
func (h *history) hit(s start) lanes.End {
	fate := h.fates[s.vm]
	end, ended := h.endOf(s)
	if fate.kind == spared || fate.at.Before(s.at) || ended && !end.After(fate.at) || h.statusAt(s.job, fate.at) == oracle.Done {
		return lanes.Running
	}
	_, taken := h.resumed(s.job, s.vm, fate.at)
	_, leaves := h.endAfter(s, s.at)
	_, done := h.doneBy(s)
	switch {
	case fate.kind == killed:
		return lanes.Died
	case fate.kind == frozen && taken:
		return lanes.Fell
	case fate.kind == evicted && ended && !leaves && !done:
		return lanes.Released
	default:
		return lanes.Running
	}
}

// doneBy returns when a delivery committed its job, and whether it did.
func (h *history) doneBy(s start) (at time.Time, done bool) {
	for _, w := range h.writes(s.job) {
		if w.VM == s.vm && w.Status == oracle.Done && w.At.After(s.at) {
			return w.At, true
		}
	}
	return at, false
}

// figures are the three numbers that matter most.
func (r report) figures() []lanes.Figure {
	f := r.findings
	redone := lanes.Figure{Value: "–", Name: "redone after a notice", Note: "no VM had a notice"}
	if f.Evictions > 0 {
		redone.Value, redone.Bad = "0", f.TwiceAfterNotice.Bytes > f.TwiceAfterNotice.Limit
		if f.TwiceAfterNotice.Bytes > 0 {
			redone.Value = text.Size(f.TwiceAfterNotice.Bytes)
		}
		redone.Note = text.Size(f.TwiceAfterKill.Bytes+f.TwiceAfterFreeze.Bytes) + " after kill and freeze"
	}
	return []lanes.Figure{
		{Value: fmt.Sprint(f.Lost), Name: "jobs lost", Note: fmt.Sprintf("%d of %d have their result", f.Committed, f.Jobs), Bad: f.Lost > 0},
		{Value: fmt.Sprint(f.CommittedTwice), Name: "done twice", Note: fmt.Sprintf("%d put twice on purpose", f.Duplicates),
			Bad: f.CommittedTwice > 0},
		redone,
	}
}
