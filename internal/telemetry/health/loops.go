package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Loops are the loops of a process. The zero value has none. Its methods may be
// called by several goroutines at once.
type Loops struct {
	mu    sync.Mutex
	all   []*Loop
	notes map[string]string // by their subject
}

// Loop is one of them. It belongs to the goroutine that turns it.
type Loop struct {
	name  string
	begun time.Time    // what due counts from, so that the clock of the wall may be set
	due   atomic.Int64 // a time.Duration since begun; resting if there is no time
}

// resting is the due of a loop that need not turn.
const resting = -1

// Add adds a loop, at rest. The name is for people, as in "claim".
func (l *Loops) Add(name string, now time.Time) *Loop {
	loop := &Loop{name: name, begun: now}
	loop.Rest()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, loop)
	return loop
}

// Turn reports that the loop turned at now, and will turn again within that time.
func (l *Loop) Turn(now time.Time, within time.Duration) {
	l.due.Store(int64(max(now.Sub(l.begun), 0) + within))
}

// Rest reports that the loop need not turn before its next call of Turn.
func (l *Loop) Rest() { l.due.Store(resting) }

// Note sets information for operators that does not affect the health. It replaces
// the earlier text on the same subject; an empty text removes it.
func (l *Loops) Note(about, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.notes == nil {
		l.notes = map[string]string{}
	}
	l.notes[about] = text
	if text == "" {
		delete(l.notes, about)
	}
}

// Check returns the loops that should have turned before now and did not, in the
// order in which they were added.
func (l *Loops) Check(now time.Time) Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	var r Report
	for _, loop := range l.all {
		due := loop.due.Load()
		if late := now.Sub(loop.begun) - time.Duration(due); due != resting && late > 0 {
			r.Stuck = append(r.Stuck, Stuck{Loop: loop.name, Overdue: late})
		}
	}
	for _, about := range slices.Sorted(maps.Keys(l.notes)) {
		r.Notes = append(r.Notes, l.notes[about])
	}
	return r
}

// Report is the health of a process at one moment.
type Report struct {
	// Stuck are the loops that hang.
	Stuck []Stuck

	// Notes are for operators. They do not affect the health.
	Notes []string
}

// Stuck is a loop that hangs.
type Stuck struct {
	// Loop is its name.
	Loop string

	// Overdue is how long ago it should have turned.
	Overdue time.Duration
}

// Healthy reports whether no loop hangs.
func (r Report) Healthy() bool { return len(r.Stuck) == 0 }

// String is a sentence for people.
func (r Report) String() string {
	if r.Healthy() {
		return "all loops turn"
	}
	var late []string
	for _, s := range r.Stuck {
		late = append(late, fmt.Sprintf("%s (should have turned %s ago)", s.Loop, s.Overdue.Round(time.Millisecond)))
	}
	return "stuck: " + strings.Join(late, ", ")
}
