package worker

import (
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/spotworker/spotworker/internal/emulator/storage"
)

// weather is what storage and the way to it are like during a history.
type weather struct {
	seed  uint64
	rough float64 // the share of requests that something happens to
	fronts
	clearsAt time.Duration // from the beginning; then nothing happens any more
}

// fronts are times of trouble.
type fronts []front

// front is a time in which many requests suffer the same.
type front struct {
	from, to time.Duration
	vm       string // empty: all of them
	what     trouble
	share    float64 // of the requests
}

// trouble is what may happen to a request.
type trouble int

const (
	lostRequest trouble = iota
	lostReply
	lateRequest // its sender sees it fail; it arrives up to a minute later
	slowRequest
	slowReply
	throttled
	serverError
	troubles
)

func (r *roll) weather(seed uint64, p *plan) weather {
	w := weather{seed: seed, rough: []float64{0, 0.01, 0.05, 0.2}[r.IntN(4)], clearsAt: p.ends}
	for range r.IntN(4) {
		f := front{from: r.between(0, p.ends), what: trouble(r.IntN(int(troubles))), share: []float64{0.5, 0.9, 1}[r.IntN(3)]}
		f.to = f.from + r.between(5*time.Second, 4*time.Minute) // longer than the visibility, at times
		if r.oneIn(2) {
			f.vm = p.lives[r.IntN(len(p.lives))].vm
		}
		w.fronts = append(w.fronts, f)
	}
	return w
}

// calmFrom is when the weather is calm for good, and with it all that it delayed.
func (p *plan) calmFrom() time.Duration {
	if p.weather.rough == 0 && len(p.weather.fronts) == 0 {
		return 0
	}
	return p.weather.clearsAt + quietDown
}

// nextFault says what becomes of a worker's request. It follows from what is asked
// for and when, not from the order in which goroutines come to ask.
func (w weather) fateOf(vm, what string, now time.Duration) requestFault {
	r := w.dice(vm, what, now)
	f := requestFault{before: r.between(time.Millisecond, 20*time.Millisecond), after: r.between(time.Millisecond, 20*time.Millisecond), arrivesAnyway: true}
	if now >= w.clearsAt {
		return f
	}
	for _, front := range w.fronts {
		if now >= front.from && now < front.to && (front.vm == "" || front.vm == vm) && r.Float64() < front.share {
			return r.struckBy(front.what, f)
		}
	}
	if r.Float64() < w.rough {
		return r.struckBy(trouble(r.IntN(int(troubles))), f)
	}
	return f
}

func (r *roll) struckBy(what trouble, f requestFault) requestFault {
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
	case serverError, troubles:
		f.refused = &storage.Error{Status: http.StatusInternalServerError, Code: "InternalError", Message: "the weather is bad"}
	}
	return f
}

// dice are those that a request throws.
func (w weather) dice(vm, what string, now time.Duration) *roll {
	h := fnv.New64a()
	for _, s := range []string{vm, what, now.String()} {
		_, _ = h.Write([]byte(s)) // which never fails
	}
	return &roll{rand.New(rand.NewPCG(w.seed, h.Sum64()))}
}

// skewTimes is the reply as a worker sees it whose clock and the service's differ.
func skewTimes(reply *http.Response, by time.Duration) {
	for _, name := range []string{"Date", "Last-Modified"} {
		if at, err := http.ParseTime(reply.Header.Get(name)); err == nil {
			reply.Header.Set(name, at.Add(by).UTC().Format(http.TimeFormat))
		}
	}
}
