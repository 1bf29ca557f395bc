// Package doctor examines a deployment: whether its queues and containers are there,
// whether the caller may read and change them, whether clocks agree, and whether its
// workers can do their work. Each finding that is not in order says what to do.
//
// It changes nothing. Whether the caller may change a queue or container is found out by
// deleting a message and a blob that do not exist: the service checks the role first.
package doctor

import (
	"context"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/storage/deployment"
)

// Level is how serious a finding is.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning" // the deployment works, but not in every way
	Failure Level = "failure" // jobs cannot be done, or not be seen
)

// Finding is the result of one check.
type Finding struct {
	Level Level
	Check string // the subject that was examined
	Text  string // the result
	Fix   string // what to do; empty for OK
}

// Examination is one run of all checks.
type Examination struct {
	stores *deployment.Deployment

	mu      sync.Mutex
	offsets []time.Duration // of the service's clock, from each answer that shows it

	waiting []waiting // on the queues of jobs; guarded by mu until all are examined
}

// waiting is how many messages a queue of jobs has.
type waiting struct {
	queue    string
	messages int
}

// allWaiting returns the number of messages on all queues of jobs.
func (e *Examination) allWaiting() (n int) {
	for _, w := range e.waiting {
		n += w.messages
	}
	return n
}

// Examine runs all checks and returns their findings, in an order that does not change.
func Examine(ctx context.Context, stores *deployment.Deployment) []Finding {
	e := &Examination{stores: stores}
	accounts := stores.Accounts
	parts := make([][]Finding, 2*len(accounts)+1)
	var group sync.WaitGroup
	for i, s := range accounts {
		group.Go(func() { parts[2*i] = e.queues(ctx, s) })
		group.Go(func() { parts[2*i+1] = e.containers(ctx, s) })
	}
	group.Go(func() { parts[2*len(accounts)] = e.control(ctx) })
	group.Wait()
	var all []Finding
	for _, part := range parts {
		all = append(all, part...)
	}
	all = append(all, e.accounts()...)
	all = append(all, e.clock())
	return append(all, e.fleet(ctx)...)
}

// Worst returns the most serious level among findings.
func Worst(findings []Finding) Level {
	worst := OK
	for _, f := range findings {
		if f.Level == Failure || f.Level == Warning && worst == OK {
			worst = f.Level
		}
	}
	return worst
}
