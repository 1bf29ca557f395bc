package imds

import (
	"context"
	"net/http"
	"time"
)

// Fault is the fault of a request. The zero value is none. Fields can be combined; they
// take effect in the order given.
type Fault struct {
	// Hang leaves the request without an answer until the client gives up.
	Hang bool

	// Delay is the time before the service reads the request: a slow
	// service, whose answer is up to date when it comes.
	Delay time.Duration

	// Cut closes the connection without an answer.
	Cut bool

	// Status answers with that status in place of the real answer, which has no
	// effect: a StartRequest starts nothing.
	Status int

	// Body is the body to answer with, likewise in place of the real answer,
	// with Status or 200. Default: an error body if Status is given.
	Body []byte

	// Location is where a Status of 3xx redirects to.
	Location string

	// Hold is the time from the answer's creation to its arrival: a slow network,
	// whose answer, with its Date, is out of date when it comes.
	Hold time.Duration
}

// strike applies what happens before the service reads the request. It does not
// return if the request gets no answer.
func (f Fault) strike(ctx context.Context) {
	if f.Hang {
		<-ctx.Done()
		panic(http.ErrAbortHandler)
	}
	wait(ctx, f.Delay)
	if f.Cut {
		panic(http.ErrAbortHandler)
	}
}

// apply returns the fault's answer, or else the service's.
func (f Fault) apply(answer func() reply) reply {
	switch {
	case f.Body != nil:
		status := f.Status
		if status == 0 {
			status = http.StatusOK
		}
		return reply{status: status, contentType: contentJSON, body: f.Body, location: f.Location, faulty: true}
	case f.Status != 0:
		r := *refuse(f.Status, "injected fault")
		r.location, r.faulty = f.Location, true
		return r
	default:
		return answer()
	}
}
