package histories

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
)

// plannedDeadline is the deadline of a job, from the start of the history.
type plannedDeadline struct {
	at       time.Duration
	estimate time.Duration // 0 for none
}

// planDeadlines gives some jobs a deadline, some of them an estimate that may be wrong,
// and lets some workers move jobs that may miss it. It draws last, so that plans without
// deadlines stay the same.
func (p *plan) planDeadlines() {
	r := &random{rand.New(rand.NewPCG(p.seed, 0xdead))}
	for _, j := range p.jobs {
		if r.oneIn(3) {
			continue
		}
		work := time.Duration(j.steps) * j.each
		due := plannedDeadline{at: j.putAt[0] + r.between(0, 3*work+time.Minute)}
		if !r.oneIn(3) {
			due.estimate = r.between(work/4, 2*work+time.Second).Truncate(time.Second)
		}
		if p.deadlines == nil {
			p.deadlines = map[string]plannedDeadline{}
		}
		p.deadlines[j.id] = due
	}
	for i := range p.runs {
		if !r.oneIn(4) {
			p.runs[i].changeover = r.between(time.Second, 2*time.Minute)
		}
	}
	p.planRegular(r)
}

// planRegular adds workers of regular priority, which find jobs that wait. In some histories
// they are the only ones for a while.
func (p *plan) planRegular(r *random) {
	workers, from, to := r.IntN(2), r.between(0, p.ends/4), r.between(p.ends/2, p.ends)
	if r.oneIn(3) {
		workers, from = 1+r.IntN(2), r.between(10*time.Second, p.ends/4)
		to = from + r.between(time.Minute, 4*time.Minute)
		p.withoutSpot(from, to)
	}
	for i := range workers {
		p.runs = append(p.runs, workerRun{
			vm: fmt.Sprintf("regular-%d", i), regular: true, from: max(from-10*time.Second, 0), to: to, end: ending(r.IntN(int(endings))),
			concurrency: 1 + r.IntN(4), changeover: r.between(time.Second, 30*time.Second), skew: r.between(-10*time.Minute, 10*time.Minute),
		})
	}
}

// withoutSpot leaves out the workers of a time, and ends those before it that would run on.
func (p *plan) withoutSpot(from, to time.Duration) {
	p.runs = slices.DeleteFunc(p.runs, func(w workerRun) bool { return w.from >= from && w.from < to })
	for i := range p.runs {
		w := &p.runs[i]
		if w.from >= from || w.to <= from {
			continue
		}
		w.to = from
		w.incidents = slices.DeleteFunc(w.incidents, func(i incident) bool { return i.at >= from })
	}
}

// setDeadline sets the deadline of a job's message.
func (h *history) setDeadline(e *queue.Envelope) {
	if due, ok := h.deadlines[e.ID]; ok {
		e.Deadline, e.Estimate = h.startedAt().Add(due.at), due.estimate
	}
}

func (h *history) startedAt() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.began
}

// checkDeadline checks that the record of a job that a worker has ended still has its
// deadline, and counts the jobs that moved for it.
func (h *history) checkDeadline(r checkpoint.Record) {
	due, ok := h.deadlines[r.ID]
	if r.MoveReason != "" && r.MoveReason[0] != 'i' { // "it was interrupted 3 times"
		h.movedForDeadline++
	}
	if strings.HasPrefix(r.MoveReason, "no worker claims it") {
		h.movedWaiting++
	}
	if !ok || r.Status != checkpoint.Done {
		return
	}
	if want := h.startedAt().Add(due.at); r.Deadline.Sub(want).Abs() > time.Millisecond || r.Estimate != due.estimate {
		h.t.Errorf("job %s ended with deadline %s, estimate %s, want %s, %s", r.ID, r.Deadline, r.Estimate, want, due.estimate)
	}
}

// deadlinesText describes the deadlines of a history that fails.
func (p *plan) deadlinesText() (text string) {
	for _, j := range p.jobs {
		if due, ok := p.deadlines[j.id]; ok {
			text += fmt.Sprintf("%10.3fs: deadline of %s, estimate %s\n", due.at.Seconds(), j.id, due.estimate)
		}
	}
	return text
}
