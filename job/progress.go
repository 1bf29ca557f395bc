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

// within returns the handler that one of this package's wrappers has in it, or nil.
func within(h Handler) Handler {
	switch wrapper := h.(type) {
	case limited:
		return wrapper.Handler
	case withOutputs:
		return wrapper.Handler
	}
	return nil
}
