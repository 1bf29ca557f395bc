package job

import (
	"bytes"
	"io"
)

// Progress is one report of how far a job is.
//
// A state is bytes, not a value that the worker would encode when it saves: the
// handler has gone on by then, and would change the value under the worker's
// hands. Where encoding is dear, report less often.
type Progress struct {
	// State is what the handler needs in order to go on from here, at most
	// [MaxState] bytes. Nil means "as reported before". Report keeps the
	// slice: hand over a fresh one each time, or one that never changes.
	State []byte

	// Stream opens a state that is too large to hold in memory, in place of
	// State. It may be called several times or never, from another goroutine,
	// also after Run has returned, and must give the same bytes each time until
	// a later state was reported and what it opened is closed: report a file
	// that is not written any more, and remove it in [Job.Cleanup]. Only the
	// parts that changed since the last save are sent; a part
	// is a MiB, counted from the state's start.
	Stream func() (io.ReadCloser, error)

	// Version is the handler's own number for the format of State, handed back
	// with it, so that a newer program can refuse or convert an old state.
	Version int

	// Fraction is the part done, 0 to 1, for humans and estimates. Optional.
	Fraction float64

	// Text is a short status for humans, cut to 200 bytes when recorded. Optional.
	Text string

	number int // of the state among those reported in this run; 0 for a saved one
}

// HasState reports whether p holds a state, in one piece or as a stream.
func (p *Progress) HasState() bool { return p != nil && (p.State != nil || p.Stream != nil) }

// SameState reports whether p holds the very state that other holds, rather than
// one that was reported later.
func (p *Progress) SameState(other *Progress) bool {
	switch {
	case !p.HasState() || !other.HasState():
		return p.HasState() == other.HasState()
	case p.Stream == nil && other.Stream == nil:
		return p.Version == other.Version && bytes.Equal(p.State, other.State)
	}
	return p.number == other.number
}
