package producer

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

// Bounds of a survey.
const (
	// readsForPage is how many reads of single records pay for one page of a listing: a page
	// takes about as long as that many reads, one after another.
	readsForPage = 64

	// pageRecords is how many records one call lists.
	pageRecords = 5000

	// maxSurvey is how many records a survey keeps at most, some 200 bytes each.
	maxSurvey = 100 * pageRecords

	// surveyAge is how long a survey holds. A job whose record appeared since is put: its
	// first delivery finds the record.
	surveyAge = 5 * time.Minute
)

// survey holds the records that a run knows. A long run lists them, a page for
// each [readsForPage] reads, and then needs no more reads: a run of n jobs makes at most
// n/readsForPage calls more than without. The zero value, with records, knows nothing.
type survey struct {
	records *checkpoint.Store

	mu      sync.Mutex
	reads   int       // since the last page
	ready   time.Time // when the listing began that known is from; zero while none is complete
	listing bool      // a goroutine lists a page, and owns the fields of the listing
	over    bool      // the records cannot be listed, or are too many

	known map[string]surveyed
	begun time.Time
	next  func() (checkpoint.Record, error, bool)
	stop  func()
}

// surveyed is the part of a record that rules on a new message.
type surveyed struct {
	kind, payloadHash string
	status            checkpoint.Status
	version, again    int
}

// lookup is [checkpoint.Store.Lookup], without a call if the survey has the answer.
func (s *survey) lookup(ctx context.Context, d checkpoint.Delivery) (checkpoint.Record, checkpoint.Ruling, error) {
	if record, ruling, ok := s.answer(ctx, d); ok {
		return record, ruling, nil
	}
	return s.records.Lookup(ctx, d)
}

// answer rules on the delivery by the survey. It returns false if the survey does not have the
// answer: the caller then reads the record, which pays for a page of the listing.
func (s *survey) answer(ctx context.Context, d checkpoint.Delivery) (record checkpoint.Record, ruling checkpoint.Ruling, ok bool) {
	s.mu.Lock()
	if !s.ready.IsZero() && time.Since(s.ready) > surveyAge {
		s.ready, s.known = time.Time{}, nil
	}
	if !s.ready.IsZero() {
		defer s.mu.Unlock()
		record, ruling = s.found(d)
		return record, ruling, true
	}
	s.reads++
	lists := s.reads > readsForPage && !s.over && !s.listing
	if lists {
		s.reads, s.listing = 0, true
	}
	s.mu.Unlock()
	if lists {
		s.list(ctx)
	}
	return checkpoint.Record{}, 0, false
}

// found rules on the delivery by the survey. The caller holds mu.
func (s *survey) found(d checkpoint.Delivery) (checkpoint.Record, checkpoint.Ruling) {
	r, ok := s.known[d.ID]
	if !ok {
		return checkpoint.Record{}, checkpoint.Create
	}
	record := checkpoint.Record{ID: d.ID, Version: r.version, Status: r.status, Kind: r.kind, PayloadHash: r.payloadHash, Again: r.again}
	return record, checkpoint.OnDelivery(&record, d, time.Time{})
}

// list lists one page more.
func (s *survey) list(ctx context.Context) {
	complete, failed := s.page(ctx)
	if complete || failed {
		s.end()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listing, s.over = false, failed; complete {
		s.ready = s.begun
	}
}

// page adds one page to the known records.
func (s *survey) page(ctx context.Context) (complete, failed bool) {
	if s.next == nil {
		s.next, s.stop = iter.Pull2(s.records.List(ctx, ""))
		s.known, s.begun = map[string]surveyed{}, time.Now()
	}
	for range pageRecords {
		r, err, more := s.next()
		switch {
		case !more:
			return true, false
		case err != nil, len(s.known) >= maxSurvey:
			s.known = nil
			return false, true
		}
		s.known[r.ID] = surveyed{r.Kind, r.PayloadHash, r.Status, r.Version, r.Again}
	}
	return false, false
}

// end ends the listing.
func (s *survey) end() {
	if s.stop != nil {
		s.stop()
	}
	s.next, s.stop = nil, nil
}
