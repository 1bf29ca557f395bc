// Package check examines the storage of a deployment: whether its queues and containers are
// there, whether the caller may read and change them, and whether clocks agree. Each finding
// that is not in order says what to do. Package overview examines the workers.
//
// It changes nothing. Whether the caller may change a queue or container is found out by
// deleting a message and a blob that do not exist: the service checks the role first.
package check

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/fleet/activity"
	"github.com/spotworker/spotworker/internal/overview"
)

// Finding is a result of a check.
type Finding = overview.Finding

// The levels of findings.
const (
	OK      = overview.OK
	Warning = overview.Warning
	Failure = overview.Failure
)

// Examination is one run of all checks.
type Examination struct {
	stores *deployment.Stores

	mu      sync.Mutex
	offsets []time.Duration // of the service's clock, from each answer that shows it

	took []time.Duration // of calls that are small; guarded by mu until all are examined
}

// Examine runs all checks and returns their findings, in an order that does not change.
func Examine(ctx context.Context, stores *deployment.Stores) []Finding {
	e := &Examination{stores: stores}
	var queues, containers, control []Finding
	var group sync.WaitGroup
	group.Go(func() { queues = e.queues(ctx) })
	group.Go(func() { containers = e.containers(ctx) })
	group.Go(func() { control = e.control(ctx) })
	group.Wait()
	all := slices.Concat(queues, containers, control)
	return signInOnce(append(all, e.clock(), e.speed()))
}

// measured makes a small call and keeps how long it takes.
func (e *Examination) measured(call func() error) error {
	began := time.Now()
	err := call()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.took = append(e.took, time.Since(began))
	return err
}

// speed says how long calls take from here.
func (e *Examination) speed() Finding {
	slices.Sort(e.took)
	typical, slowest := e.took[len(e.took)/2], e.took[len(e.took)-1]
	f := Finding{Level: OK, Check: "speed of storage", Text: fmt.Sprintf("small calls from this machine take %s (median), %s at most",
		brief(typical), brief(slowest))}
	if typical >= activity.SlowCall {
		f.Level, f.Fix = Warning, "if workers have that too, jobs start and end later: spotctl status shows it; compare "+
			"SuccessServerLatency and SuccessE2ELatency of the account: the first is the service, the difference the network"
	}
	return f
}

func brief(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// signIn is the check whose failure is behind many others: the service does not accept the
// key or the token.
const signIn = "sign-in"

// signInOnce replaces all findings about the sign-in with the first, and counts them.
func signInOnce(findings []Finding) []Finding {
	first, others := -1, 0
	kept := findings[:0]
	for _, f := range findings {
		switch {
		case f.Check == signIn && first >= 0:
			others++
			continue
		case f.Check == signIn:
			first = len(kept)
		}
		kept = append(kept, f)
	}
	if others > 0 {
		kept[first].Text += fmt.Sprintf(" (and %d more checks failed so)", others)
	}
	return kept
}

// Worst returns the most serious level among findings.
func Worst(findings []Finding) overview.Level {
	worst := OK
	for _, f := range findings {
		if f.Level == Failure || f.Level == Warning && worst == OK {
			worst = f.Level
		}
	}
	return worst
}
