package histories

import (
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
)

// storageFaults are the faults of storage and of the network during a history.
type storageFaults struct {
	seed    uint64
	share   float64 // of the requests that have a fault outside all periods
	periods []faultPeriod
	endAt   time.Duration // since the start of the history; no faults from then on
}

// faultPeriod is a time in which many requests have the same fault.
type faultPeriod struct {
	from, to time.Duration
	vm       string // empty for all of them
	what     faultKind
	share    float64 // of the requests
}

// faultKind is a kind of fault that a request may have.
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

// storageFaults draws the faults of a history.
func (r *random) storageFaults(seed uint64, p *plan) storageFaults {
	faults := storageFaults{seed: seed, share: []float64{0, 0.01, 0.05, 0.2}[r.IntN(4)], endAt: p.ends}
	for range r.IntN(4) {
		f := faultPeriod{from: r.between(0, p.ends), what: faultKind(r.IntN(int(faultKinds))), share: []float64{0.5, 0.9, 1}[r.IntN(3)]}
		f.to = f.from + r.between(5*time.Second, 4*time.Minute) // at times longer than the visibility timeout
		if r.oneIn(2) {
			f.vm = p.runs[r.IntN(len(p.runs))].vm
		}
		faults.periods = append(faults.periods, f)
	}
	return faults
}

// faultFreeFrom returns when there are no more faults, and no requests that they
// delayed.
func (p *plan) faultFreeFrom() time.Duration {
	if p.faults.share == 0 && len(p.faults.periods) == 0 {
		return 0
	}
	return p.faults.endAt + recorder.QuietAfterFaults
}

// faultFor returns the fault of a worker's request. It depends on the request and its
// time alone, not on the order in which goroutines are scheduled.
func (faults storageFaults) faultFor(vm, what string, now time.Duration) rig.RequestFault {
	r := faults.randomFor(vm, what, now)
	f := rig.RequestFault{Before: r.between(time.Millisecond, 20*time.Millisecond), After: r.between(time.Millisecond, 20*time.Millisecond),
		ArrivesAnyway: true}
	if now >= faults.endAt {
		return f
	}
	for _, period := range faults.periods {
		if now >= period.from && now < period.to && (period.vm == "" || period.vm == vm) && r.Float64() < period.share {
			return r.addFault(period.what, f)
		}
	}
	if r.Float64() < faults.share {
		return r.addFault(faultKind(r.IntN(int(faultKinds))), f)
	}
	return f
}

// addFault adds a fault of that kind to a request's.
func (r *random) addFault(what faultKind, f rig.RequestFault) rig.RequestFault {
	switch what {
	case lostRequest:
		f.Lost = true
	case lostReply:
		f.ReplyLost = true
	case lateRequest:
		f.ArrivesAfter = r.between(time.Second, time.Minute)
	case slowRequest:
		f.Before = r.between(time.Second, 40*time.Second)
	case slowReply:
		f.After = r.between(time.Second, 40*time.Second)
	case throttled:
		f.Refused = storage.ServerBusy(time.Duration(r.IntN(4)) * time.Second)
	case serverError, faultKinds:
		f.Refused = &storage.Error{Status: http.StatusInternalServerError, Code: "InternalError", Message: "an injected fault"}
	}
	return f
}

// randomFor returns the random source of one request.
func (faults storageFaults) randomFor(vm, what string, now time.Duration) *random {
	h := fnv.New64a()
	for _, s := range []string{vm, what, now.String()} {
		_, _ = h.Write([]byte(s)) // which never fails
	}
	return &random{rand.New(rand.NewPCG(faults.seed, h.Sum64()))}
}
