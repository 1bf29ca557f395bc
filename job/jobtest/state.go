package jobtest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/spotworker/spotworker/job"
)

// savedState is a copy of a reported state, as a worker would have saved it.
type savedState struct {
	bytes    []byte
	streamed bool
	version  int
	fraction float64
	source   string // the report that it comes from, in words
	rank     int    // its place among the states of an uninterrupted run; 0 if it has none
}

// is reports whether two states are the same to a handler; nil is none.
func (s *savedState) is(other *savedState) bool {
	if s == nil || other == nil {
		return s == other
	}
	return s.sum() == other.sum()
}

// rankIn returns the rank of a state among others, 0 if it is not one of them.
func (s *savedState) rankIn(places ranks) int {
	if s == nil {
		return 0
	}
	return places[s.sum()]
}

// capture copies a reported state. It reads a stream to its end.
func capture(p *job.Progress) (*savedState, error) {
	s := &savedState{streamed: p.Stream != nil, version: p.Version, fraction: p.Fraction}
	if !s.streamed {
		s.bytes = bytes.Clone(p.State)
		return s, nil
	}
	r, err := p.Stream()
	if err != nil {
		return nil, fmt.Errorf("its stream cannot be opened: %w", err)
	}
	defer func() { _ = r.Close() }()
	if s.bytes, err = io.ReadAll(r); err != nil {
		return nil, fmt.Errorf("its stream cannot be read: %w", err)
	}
	return s, nil
}

// sum returns a hash of the state and its version.
func (s *savedState) sum() [sha256.Size]byte {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%d %t ", s.version, s.streamed) // a hash never returns an error
	_, _ = h.Write(s.bytes)
	return [sha256.Size]byte(h.Sum(nil))
}

// saved returns the checkpoint for the next run, a copy as from storage. open counts the
// streams that the run has opened and not closed.
func (s *savedState) saved(open *atomic.Int64) *job.Progress {
	if s == nil {
		return nil
	}
	p := &job.Progress{Version: s.version, Fraction: s.fraction}
	if !s.streamed {
		p.State = bytes.Clone(s.bytes)
		return p
	}
	p.Stream = func() (io.ReadCloser, error) {
		open.Add(1)
		return &restored{Reader: bytes.NewReader(s.bytes), open: open}, nil
	}
	return p
}

// restored is a stream that was opened by a handler.
type restored struct {
	io.Reader
	open   *atomic.Int64
	closed bool
}

func (r *restored) Close() error {
	if !r.closed {
		r.closed = true
		r.open.Add(-1)
	}
	return nil
}

// shownBytes is how many bytes of a state or a result a failure shows.
const shownBytes = 120

// show formats a state or a result for people.
func show(b []byte) string {
	if len(b) > shownBytes {
		return fmt.Sprintf("%q... (%d bytes)", b[:shownBytes], len(b))
	}
	return fmt.Sprintf("%q", b)
}

func (s *savedState) String() string {
	if s == nil {
		return "nothing"
	}
	form := show(s.bytes)
	if s.streamed {
		form = "stream " + form
	}
	return fmt.Sprintf("%s of %s, version %d, at %.0f %%", form, s.source, s.version, s.fraction*100)
}

// ranks are the places of the states of an uninterrupted run, from 1. There are
// none where a state comes again after another: it has no single place then.
type ranks map[[sha256.Size]byte]int

// add gives s its place.
func (r ranks) add(s *savedState) (again bool) {
	sum := s.sum()
	if place, known := r[sum]; known {
		return place != len(r)
	}
	r[sum] = len(r) + 1
	return false
}
