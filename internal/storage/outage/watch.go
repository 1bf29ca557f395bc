package outage

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// every is the time between two lines about a fault that lasts, and the least time
	// between two lines about faults of one kind that come and go.
	every = time.Minute

	// deniedFor is how long a fault of one queue or container lasts that no further
	// call has met, and throttledFor how long the service throttles after a throttled
	// call.
	deniedFor    = 5 * time.Minute
	throttledFor = time.Minute

	// namesShown is how many operations a line names at most.
	namesShown = 8
)

// Watch logs the faults of the storage account that calls of a worker meet. Its methods
// may be called from any goroutine.
type Watch struct {
	log  *slog.Logger
	jobs func() int // active jobs

	mu       sync.Mutex
	quiet    bool
	faults   map[Kind]*callFault
	answered map[string]time.Time // when the last answer came, by host
	failed   failures             // of calls, while the account has no fault
}

// callFault is one kind of fault. Its zero value is none.
type callFault struct {
	since time.Time
	met   map[string]met // by target; empty while there is none
	calls int            // that failed
	err   error          // of the last of them

	told   bool      // that it began
	toldAt time.Time // when the last line about this kind was logged
}

// met is a fault as some calls met it.
type met struct {
	at   time.Time
	what string // for people
	role string // that may be missing; empty if no role helps
}

// failures are calls that failed while others were answered.
type failures struct {
	calls int
	err   error
	since time.Time
}

// New returns a Watch. jobs returns how many jobs the worker has.
func New(log *slog.Logger, jobs func() int) *Watch {
	return &Watch{log: log, jobs: jobs, faults: map[Kind]*callFault{}, answered: map[string]time.Time{}}
}

// Quiet switches lines off while quiet is true: at its start a worker says itself what
// keeps it from starting. A fault that lasts is then logged with the next call.
func (w *Watch) Quiet(quiet bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quiet = quiet
}

// Ended learns from a call that has ended.
func (w *Watch) Ended(c Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.Fault != Unreachable {
		w.answered[c.host()] = c.Ended
		w.clear(Unreachable, c)
	}
	switch {
	case c.may && (c.Fault == Denied || c.Fault == Missing): // the caller can do without
	case c.Fault == Missing && c.reads: // a read may be optional; a write follows if it is not
	case c.Fault == None:
		w.clear(Denied, c)
		w.clear(Missing, c)
	case c.Fault == Unreachable && c.Begun.Before(w.answered[c.host()]) && w.faults[Unreachable].isOver():
		w.failed.add(c) // others were answered while it ran
	default:
		w.add(c)
	}
	for _, k := range []Kind{Unreachable, Denied, Missing, Throttled} {
		w.report(k, c.Ended)
	}
	w.reportFailed(c.Ended)
}

// add adds a call that met a fault.
func (w *Watch) add(c Call) {
	f := w.faults[c.Fault]
	if f == nil {
		f = &callFault{}
		w.faults[c.Fault] = f
	}
	if f.isOver() {
		*f = callFault{since: c.Begun, met: map[string]met{}, toldAt: f.toldAt}
	}
	f.calls++
	f.err = c.Err
	m := met{at: c.Ended, what: c.host()}
	switch c.Fault {
	case Denied:
		m.what, m.role = c.Operation+" on "+c.target(), roleFor(c)
	case Missing:
		m.what = c.target()
	default: // of the whole host
	}
	f.met[c.key(c.Fault)] = m
}

// clear removes faults that a call without them shows to be over.
func (w *Watch) clear(k Kind, c Call) {
	if f := w.faults[k]; !f.isOver() {
		delete(f.met, c.key(k))
	}
}

// key is the place of a fault of that kind: a host, a queue or container, or one
// operation on it.
func (c Call) key(k Kind) string {
	switch k {
	case Denied:
		what := c.Operation
		if c.Service == "blob" { // where roles differ in reads and writes alone
			what = fmt.Sprint(c.reads)
		}
		return c.host() + " " + what + " " + c.target()
	case Missing:
		return c.host() + " " + c.target()
	default:
		return c.host()
	}
}

// isOver reports whether no call is known that would meet the fault now.
func (f *callFault) isOver() bool { return f == nil || len(f.met) == 0 }

// expire removes faults that no call has met for long.
func (f *callFault) expire(k Kind, now time.Time) {
	after, expires := map[Kind]time.Duration{Denied: deniedFor, Missing: deniedFor, Throttled: throttledFor}[k]
	if !expires {
		return
	}
	maps.DeleteFunc(f.met, func(_ string, m met) bool { return now.Sub(m.at) >= after })
}

// report logs the line about a kind of fault that is due, if there is one.
func (w *Watch) report(k Kind, now time.Time) {
	f := w.faults[k]
	if f == nil {
		return
	}
	f.expire(k, now)
	switch {
	case w.quiet:
	case f.isOver() && f.told:
		w.logOver(k, f, now)
		f.told, f.toldAt = false, now
	case f.isOver():
	case !f.toldAt.IsZero() && now.Sub(f.toldAt) < every:
	case f.told:
		w.logLasting(k, f)
		f.toldAt = now
	default:
		w.logBegun(k, f)
		f.told, f.toldAt = true, now
	}
}

// about are the attributes of a line about a fault.
func (f *callFault) about(jobs int) []any {
	var what, roles []string
	for _, m := range f.met {
		what = append(what, m.what)
		if m.role != "" && !slices.Contains(roles, m.role) {
			roles = append(roles, m.role)
		}
	}
	slices.Sort(what)
	slices.Sort(roles)
	if more := len(what) - namesShown; more > 0 {
		what = append(what[:namesShown], "and more")
	}
	return []any{
		"resource", strings.Join(what, ", "), "missing_role", strings.Join(roles, ", "), "since", f.since.UTC(), "jobs", jobs,
		"calls_failed", f.calls, "error", f.err,
	}
}

func (w *Watch) logBegun(k Kind, f *callFault) {
	ctx, about := context.Background(), f.about(w.jobs())
	switch k {
	case Denied:
		w.log.ErrorContext(ctx, "storage denies access; running jobs continue, what is denied waits", about...)
	case Missing:
		w.log.ErrorContext(ctx, "queue or container does not exist; running jobs continue, what needs it waits", about...)
	case Throttled:
		w.log.WarnContext(ctx, "storage throttles this worker; running jobs continue, calls are repeated later", about...)
	default:
		w.log.WarnContext(ctx, "storage unreachable; running jobs continue, what needs it waits", about...)
	}
}

func (w *Watch) logLasting(k Kind, f *callFault) {
	ctx, about := context.Background(), f.about(w.jobs())
	switch k {
	case Denied:
		w.log.ErrorContext(ctx, "storage still denies access", about...)
	case Missing:
		w.log.ErrorContext(ctx, "queue or container still does not exist", about...)
	case Throttled:
		w.log.WarnContext(ctx, "storage still throttles this worker", about...)
	default:
		w.log.WarnContext(ctx, "storage still unreachable", about...)
	}
}

func (w *Watch) logOver(k Kind, f *callFault, now time.Time) {
	ctx, about := context.Background(), []any{"after", now.Sub(f.since), "jobs", w.jobs(), "calls_failed", f.calls}
	switch k {
	case Denied:
		w.log.InfoContext(ctx, "storage grants access again", about...)
	case Missing:
		w.log.InfoContext(ctx, "queue or container exists again", about...)
	case Throttled:
		w.log.InfoContext(ctx, "storage no longer throttles this worker", about...)
	default:
		w.log.InfoContext(ctx, "storage reachable again", about...)
	}
}

// add counts a call that failed while others were answered.
func (f *failures) add(c Call) {
	if f.calls == 0 {
		f.since = c.Ended
	}
	f.calls++
	f.err = c.Err
}

// reportFailed logs once a minute how many calls failed while others were answered.
func (w *Watch) reportFailed(now time.Time) {
	if f := w.failed; f.calls > 0 && now.Sub(f.since) >= every && !w.quiet {
		w.log.WarnContext(context.Background(), "some calls to storage failed and were repeated", "since", f.since.UTC(), "calls_failed",
			f.calls, "error", f.err)
		w.failed = failures{}
	}
}
