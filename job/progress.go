package job

import (
	"bytes"
	"io"
)

// Progress is one report of a job's progress.
//
// A state is bytes, not a value that the worker encodes when it saves: by then the
// handler has continued and may have changed the value. If encoding is expensive,
// report less often.
type Progress struct {
	// State is the data that the handler needs to continue from here, at most
	// [MaxState] bytes. Nil means the same state as in the previous report. Report
	// keeps the slice: pass a new slice each time, or a slice that never changes.
	State []byte

	// Stream opens a state that is too large for memory, in place of State. It may be
	// called several times or never, from another goroutine, and after Run has
	// returned. It must return the same bytes each time, until a later state was
	// reported and the opened streams are closed: report a file that is not written
	// any more, and remove it in [Job.Cleanup]. A save sends only the parts that have
	// changed since the previous one; a part is a MiB, counted from the state's start.
	Stream func() (io.ReadCloser, error)

	// Version is the handler's own number for the format of State. It is returned with
	// the state, so that a newer program can reject or convert it.
	Version int

	// Needs are requirements on the worker that continues from State, if not every machine
	// can do that: at most [MaxNeeds] bytes. Its first word is for
	// [Offer], and what follows " | " is not shown to people. Empty for any worker. See
	// [CheckNeeds].
	Needs string

	// Fraction is the part that is done, 0 to 1, for people and estimates. Optional.
	Fraction float64

	// Text is a short status for people, truncated to 200 bytes in the record.
	// Optional.
	Text string

	number int // of the state in this run, from 1; 0 for a saved one
}

// HasState reports whether p has a state, as bytes or as a stream.
func (p *Progress) HasState() bool { return p != nil && (p.State != nil || p.Stream != nil) }

// SameState reports whether p and other have the same state. Two streams are the same
// only if they come from the same report.
func (p *Progress) SameState(other *Progress) bool {
	switch {
	case !p.HasState() || !other.HasState():
		return p.HasState() == other.HasState()
	case p.Stream == nil && other.Stream == nil:
		return p.Version == other.Version && bytes.Equal(p.State, other.State)
	}
	return p.number == other.number
}

// KeepPreviousState returns h marked as a handler whose jobs keep the state before the last
// one too, so that a bad state does not end a job: see [Job.StepBack]. A save takes no
// further call for it. A state that is reported in one piece, or is shorter than a MiB, is
// sent again with the next state.
//
// Workers of earlier versions get such a short state as a stream, which [Job.Saved] does not
// take: update the workers before a handler that uses it is marked.
func KeepPreviousState(h Handler) Handler { return keepsPrevious{h} }

type keepsPrevious struct{ Handler }

func (keepsPrevious) KeepsPreviousState() bool { return true }

// Limits returns the limits of the handler within.
func (h keepsPrevious) Limits() Limits { return LimitsOf(h.Handler) }

// Idempotent reports whether the handler within is idempotent.
func (h keepsPrevious) Idempotent() bool { return IsIdempotent(h.Handler) }

// KeepsPreviousState reports whether a handler is marked by [KeepPreviousState], or by its
// own method KeepsPreviousState.
func KeepsPreviousState(h Handler) bool {
	for h != nil {
		if marked, ok := h.(interface{ KeepsPreviousState() bool }); ok {
			return marked.KeepsPreviousState()
		}
		h = within(h)
	}
	return false
}

// within returns the handler that one of this package's wrappers has in it, or nil.
func within(h Handler) Handler {
	switch wrapper := h.(type) {
	case limited:
		return wrapper.Handler
	case idempotent:
		return wrapper.Handler
	case withOutputs:
		return wrapper.Handler
	case keepsPrevious:
		return wrapper.Handler
	}
	return nil
}

// StepBack makes the job continue from the state before the last one: from then on [Job.Saved]
// and [Job.OpenSaved] return that state, [Job.Outputs] has the outputs that were stored with it,
// and the next state that is saved replaces the last one. It is for a handler that finds the last
// state unusable, before it reports one. ok is false if there is no other state: the handler is
// not marked by [KeepPreviousState], only one state was saved, or the job stepped back already.
//
// The needs of that state ([Progress]) are not recorded: the worker meets those of the last one,
// which was made by a worker that met both.
//
// The worker steps back on its own before the last attempt of a job whose failed attempts
// made no progress, and where the last state is damaged in storage.
//
// Like Report, it is for the goroutine that runs the handler.
func (j *Job) StepBack() (ok bool, err error) {
	if j.onStepBack == nil || j.steppedBack {
		return false, nil
	}
	saved, err := j.onStepBack()
	if err != nil || saved == nil {
		return false, err
	}
	ControlOf(j).SetSteppedBack(saved)
	return true, nil
}

// SteppedBack reports whether the job continues from the state before the last one.
func (j *Job) SteppedBack() bool { return j.steppedBack }
