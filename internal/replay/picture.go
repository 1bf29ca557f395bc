package replay

import "time"

// Bounds of a page.
const (
	drawnJobs  = 1000
	drawnLanes = 100
	mostDrawn  = 60_000 // attempts
)

// picture holds the part of a replay for the page: the first jobs and the first VMs.
type picture struct {
	attempts []drawn
	cut      bool // there were more attempts
	until    time.Duration
	lanes    [][]life
	spot     int
	tasks    []task
}

// drawn is an attempt with its place.
type drawn struct {
	job, lane int
	attempt
}

// add keeps an attempt that the page shows.
func (p *picture) add(job, lane int, a attempt) {
	if job >= drawnJobs && lane >= drawnLanes {
		return
	}
	if len(p.attempts) == mostDrawn {
		p.cut = true
		return
	}
	p.attempts = append(p.attempts, drawn{job: job, lane: lane, attempt: a})
}
