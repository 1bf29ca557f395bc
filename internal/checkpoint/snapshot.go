package checkpoint

import (
	"io"
	"math"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
)

// Snapshot is a handler's report, to be recorded.
type Snapshot struct {
	// State is the state in one piece; nil keeps the recorded one.
	State []byte

	// Stream opens a state that is too large for State, from its start, as often as
	// a save needs it. It replaces State.
	Stream func() (io.ReadCloser, error)

	// At is how long the handler had run when it made the report.
	At time.Duration

	Version  int    // the handler's number for the state's format
	Needs    string // requirements of the state on a worker
	Fraction float64
	Text     string
}

// HasState reports whether the snapshot holds a state.
func (s Snapshot) HasState() bool { return s.State != nil || s.Stream != nil }

// WithoutState returns the snapshot without its state: the recorded one is kept.
func (s Snapshot) WithoutState() Snapshot {
	s.State, s.Stream = nil, nil
	return s
}

// maxNeeds bounds the needs in a record, in bytes: MaxNeeds of package job.
const maxNeeds = 1 << 10

// needsOf returns the needs of a state as a record can have them. Longer ones are left out, and
// a worker must fetch such a state to learn them.
func needsOf(s Snapshot) string {
	if len(s.Needs) > maxNeeds {
		return ""
	}
	return s.Needs
}

// Held returns the snapshot with its stream opened, which its first reader gets: a report
// that comes before the save may take away the files of a later opening. The caller
// calls release after the save. Where the stream cannot be opened, the save returns why.
func (s Snapshot) Held() (held Snapshot, release func()) {
	if s.Stream == nil {
		return s, func() {}
	}
	opened, err := open(s.Stream, math.MaxInt64)
	if err != nil {
		return s, func() {}
	}
	var unread atomic.Pointer[stream]
	unread.Store(opened)
	reopen := s.Stream
	s.Stream = func() (io.ReadCloser, error) {
		if first := unread.Swap(nil); first != nil {
			return first.from, nil
		}
		return reopen()
	}
	return s, func() {
		if first := unread.Swap(nil); first != nil {
			first.close()
		}
	}
}

// prepared is a state that needs only one conditional write to be recorded.
type prepared struct {
	hash    string // empty for no state
	key     blocks.Key
	size    int64
	blocks  int // as the record has them
	layout  blocks.Place
	content content
}
