// Package runs is the timeline of a job in its record: the last deliveries, each with its worker, its
// times, its outcome and its saves. It is for people and decides nothing.
//
// The record has it as text, an entry for each delivery:
//
//	1,1773062700000,540000,12,538000,0,evicted,vmss_000001-0123abcd-0;2,…
//
// A delivery that failed has its error behind the worker.
//
// A job that ends in its first delivery without a save has no entry: its record tells the same.
package runs

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// Limits of a [List].
const (
	Most     = 8    // entries; the oldest is removed first
	MaxBytes = 1600 // of all entries
	maxName  = 48   // of a worker, percent-encoded
	maxError = 160  // of an error, percent-encoded
)

// Outcome is how a delivery ended.
type Outcome string

// The outcomes of a delivery.
const (
	Active      Outcome = ""            // it runs
	Done        Outcome = "done"        // committed
	Evicted     Outcome = "evicted"     // handed over: the platform announced the end of the VM
	Interrupted Outcome = "interrupted" // handed over for another reason: a drain, a stop, a break
	Failed      Outcome = "failed"      // the job failed, and is tried again
	Poison      Outcome = "poison"      // the job was given up
	Cancelled   Outcome = "cancelled"   // the job was cancelled
	Lost        Outcome = "lost"        // the worker died, or another one took over
	Ended       Outcome = "ended"       // otherwise
	Again       Outcome = "again"       // no delivery: the job's owner put it again, to run from scratch
)

var outcomes = []Outcome{Active, Done, Evicted, Interrupted, Failed, Poison, Cancelled, Lost, Ended, Again}

// Run is one delivery of a job.
type Run struct {
	Delivery int    // the generation of the record
	Worker   string // maybe cut

	// Start is the claim, and Took the time from there to the end; 0 while the delivery is active.
	Start time.Time
	Took  time.Duration

	Outcome Outcome

	// Saves counts the states that were recorded, the last one SavedAfter the start.
	Saves      int
	SavedAfter time.Duration

	// Redone is the time of the handler with lost progress, which the next delivery did again. It is
	// an estimate if the outcome is [Lost].
	Redone time.Duration

	// Error is why the delivery failed, in short; empty if it did not.
	Error string
}

// List has the last deliveries of a job, in their order. The zero value has none.
type List string

// Runs returns the entries. An entry that cannot be read is left out.
func (l List) Runs() (all []Run) {
	for entry := range strings.SplitSeq(string(l), ";") {
		if r, ok := parse(entry); ok {
			all = append(all, r)
		}
	}
	return all
}

// Last returns the entry of a delivery if it is the last one.
func (l List) Last(delivery int) (r Run, ok bool) {
	r, ok = parse(string(l[strings.LastIndexByte(string(l), ';')+1:]))
	if !ok || r.Delivery != delivery {
		return Run{}, false
	}
	return r, true
}

// With returns the list with an entry, which replaces the last one if that is the same delivery's.
func (l List) With(r Run) List {
	rest := string(l)
	if _, same := l.Last(r.Delivery); same {
		rest = rest[:max(strings.LastIndexByte(rest, ';'), 0)]
	}
	if rest != "" {
		rest += ";"
	}
	return List(rest + r.text()).Cut(MaxBytes)
}

// Cut returns the list without its oldest entries, so that it has at most so many bytes.
func (l List) Cut(size int) List {
	rest := string(l)
	for rest != "" && (strings.Count(rest, ";") >= Most || len(rest) > size) {
		_, rest, _ = strings.Cut(rest, ";")
	}
	return List(rest)
}

// text returns the entry. Numbers are milliseconds, the start since 1970.
func (r Run) text() string {
	var name strings.Builder
	for _, c := range r.Worker {
		escaped := url.QueryEscape(string(c))
		if name.Len()+len(escaped) > maxName {
			break
		}
		name.WriteString(escaped)
	}
	b := make([]byte, 0, 128)
	for i, n := range []int64{
		int64(r.Delivery), r.Start.UnixMilli(), r.Took.Milliseconds(), int64(r.Saves), r.SavedAfter.Milliseconds(), r.Redone.Milliseconds(),
	} {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, min(max(n, 0), maxNumber), 10)
	}
	b = append(append(append(b, ','), r.Outcome...), ',')
	b = append(b, name.String()...)
	if r.Error != "" {
		b = append(append(b, ','), short(r.Error)...)
	}
	return string(b)
}

// short returns an error percent-encoded, without the middle of a long one.
func short(text string) string {
	encoded := url.QueryEscape(text)
	for most := maxError; len(encoded) > maxError; most = most * 3 / 4 {
		encoded = url.QueryEscape(plaintext.Middle(text, most))
	}
	return encoded
}

// parse reads an entry.
func parse(entry string) (r Run, ok bool) {
	parts := strings.Split(entry, ",")
	if len(parts) < 8 { // a newer version may add more
		return Run{}, false
	}
	var n [6]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(parts[i], 10, 64); err != nil || n[i] < 0 || n[i] > maxNumber {
			return Run{}, false
		}
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	r = Run{Delivery: int(n[0]), Start: time.UnixMilli(n[1]).UTC(), Took: ms(n[2]), Saves: int(n[3]), SavedAfter: ms(n[4]), Redone: ms(n[5]),
		Outcome: Ended}
	for _, known := range outcomes {
		if parts[6] == string(known) {
			r.Outcome = known
		}
	}
	name, err := url.QueryUnescape(parts[7])
	r.Worker = name
	if len(parts) > 8 {
		r.Error, _ = url.QueryUnescape(parts[8]) // empty if it is none
	}
	return r, err == nil && r.Delivery > 0
}

// maxNumber bounds numbers that are read: milliseconds of some 146 years, so that no duration and no
// sum of a start and a duration overflows.
const maxNumber = int64(1<<63-1) / 2 / int64(time.Millisecond)
