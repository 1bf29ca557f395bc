package worker

import (
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/spotworker/spotworker/internal/emulator/storage"
)

// storageFaults is what storage and the way to it are like during a history.
type storageFaults struct {
	seed  uint64
	share float64 // the share of requests that something happens to
	faultPeriods
	endAt time.Duration // from the beginning; then nothing happens any more
}

// faultPeriods are times of trouble.
type faultPeriods []faultPeriod

// faultPeriod is a time in which many requests suffer the same.
type faultPeriod struct {
	from, to time.Duration
	vm       string // empty: all of them
	what     faultKind
	share    float64 // of the requests
}

// faultKind is what may happen to a request.
type faultKind int

const (
	lostRequest faultKind = iota
	lostReply
	lateRequest // its sender sees it fail; it arrives up to a minute later
	slowRequest
	slowReply
	throttled
	serverError
	faultKinds
)

func (r *random) storageFaults(seed uint64, p *plan) storageFaults {
	w := storageFaults{seed: seed, share: []float64{0, 0.01, 0.05, 0.2}[r.IntN(4)], endAt: p.ends}
	for range r.IntN(4) {
		f := faultPeriod{from: r.between(0, p.ends), what: faultKind(r.IntN(int(faultKinds))), share: []float64{0.5, 0.9, 1}[r.IntN(3)]}
		f.to = f.from + r.between(5*time.Second, 4*time.Minute) // longer than the visibility, at times
		if r.oneIn(2) {
			f.vm = p.runs[r.IntN(len(p.runs))].vm
		}
		w.faultPeriods = append(w.faultPeriods, f)
	}
	return w
}

// faultFreeFrom is when the weather is calm for good, and with it all that it delayed.
func (p *plan) faultFreeFrom() time.Duration {
	if p.faults.share == 0 && len(p.faults.faultPeriods) == 0 {
		return 0
	}
	return p.faults.endAt + quietDown
}

// faultFor says what becomes of a worker's request. It follows from what is asked
// for and when, not from the order in which goroutines come to ask.
func (w storageFaults) faultFor(vm, what string, now time.Duration) requestFault {
	r := w.randomFor(vm, what, now)
	f := requestFault{before: r.between(time.Millisecond, 20*time.Millisecond), after: r.between(time.Millisecond, 20*time.Millisecond), arrivesAnyway: true}
	if now >= w.endAt {
		return f
	}
	for _, front := range w.faultPeriods {
		if now >= front.from && now < front.to && (front.vm == "" || front.vm == vm) && r.Float64() < front.share {
			return r.addFault(front.what, f)
		}
	}
	if r.Float64() < w.share {
		return r.addFault(faultKind(r.IntN(int(faultKinds))), f)
	}
	return f
}

func (r *random) addFault(what faultKind, f requestFault) requestFault {
	switch what {
	case lostRequest:
		f.lost = true
	case lostReply:
		f.replyLost = true
	case lateRequest:
		f.arrivesAfter = r.between(time.Second, time.Minute)
	case slowRequest:
		f.before = r.between(time.Second, 40*time.Second)
	case slowReply:
		f.after = r.between(time.Second, 40*time.Second)
	case throttled:
		f.refused = storage.ServerBusy(time.Duration(r.IntN(4)) * time.Second)
	case serverError, faultKinds:
		f.refused = &storage.Error{Status: http.StatusInternalServerError, Code: "InternalError", Message: "the weather is bad"}
	}
	return f
}

// randomFor are those that a request throws.
func (w storageFaults) randomFor(vm, what string, now time.Duration) *random {
	h := fnv.New64a()
	for _, s := range []string{vm, what, now.String()} {
		_, _ = h.Write([]byte(s)) // which never fails
	}
	return &random{rand.New(rand.NewPCG(w.seed, h.Sum64()))}
}

// skewTimes is the reply as a worker sees it whose clock and the service's differ.
func skewTimes(reply *http.Response, by time.Duration) {
	for _, name := range []string{"Date", "Last-Modified"} {
		if at, err := http.ParseTime(reply.Header.Get(name)); err == nil {
			reply.Header.Set(name, at.Add(by).UTC().Format(http.TimeFormat))
		}
	}
}
