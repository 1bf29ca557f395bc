package lab

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/emulator/storage"
)

// Ledger writes down what happens to jobs, from witnesses and not from what the
// product claims: the storage emulator about records and messages, the lab's own
// hashing about digests. Only when a worker began a job, hashed a range and
// stopped is the worker's word. It is safe for concurrent use.
type Ledger struct {
	storage *storage.Server
	names   azure.Names

	mu      sync.Mutex
	facts   facts
	arrived map[int64]time.Time // record writes under way, by call number
	changed chan struct{}       // closed, and replaced, whenever a fact is added
}

// NewLedger returns a ledger over the queues and containers of those names. It
// sees nothing until its methods are installed as the emulator's hooks.
func NewLedger(s *storage.Server, names azure.Names) *Ledger {
	return &Ledger{
		storage: s, names: names, facts: newFacts(),
		arrived: map[int64]time.Time{}, changed: make(chan struct{}),
	}
}

// Expect says which results are right: those of the files.
func (l *Ledger) Expect(files []File) {
	l.add(func(f *facts) {
		for _, file := range files {
			f.files[file.Blob] = file
		}
	})
}

// Killed notes that a VM was killed at that time.
func (l *Ledger) Killed(vm string, at time.Time) {
	l.add(func(f *facts) { f.fates[vm] = fate{kind: killed, at: at} })
}

// Evicted notes that the eviction of a VM was announced at that time.
func (l *Ledger) Evicted(vm string, announced time.Time) {
	l.add(func(f *facts) { f.fates[vm] = fate{kind: evicted, at: announced} })
}

// Served notes when the notice of a VM's eviction was first handed to it.
func (l *Ledger) Served(vm string, at time.Time) {
	l.add(func(f *facts) {
		fate := f.fates[vm]
		fate.served = at
		f.fates[vm] = fate
	})
}

func (l *Ledger) add(fact func(*facts)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fact(&l.facts)
	close(l.changed)
	l.changed = make(chan struct{})
}

// look calls see with the facts as they stand, which it must not keep.
func (l *Ledger) look(see func(*facts)) (changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	see(&l.facts)
	return l.changed
}

// snapshot returns a copy of the facts.
func (l *Ledger) snapshot() (f facts) {
	l.look(func(now *facts) { f = now.clone() })
	return f
}

// never is for await: facts alone can fulfil the condition.
const never time.Duration = 0

// await returns when condition holds for the facts, or the cause of ctx's end.
// It asks whenever there is a new fact, and again and again after that time,
// for a condition that time alone can fulfil.
func (l *Ledger) await(ctx context.Context, again time.Duration, condition func(*facts) bool) error {
	var tick <-chan time.Time
	if again > 0 {
		ticker := time.NewTicker(again)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		holds := false
		changed := l.look(func(f *facts) { holds = condition(f) })
		if holds {
			return nil
		}
		select {
		case <-changed:
		case <-tick:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// InHand is a job that a VM's worker is working on, in bytes of its blob.
type InHand struct {
	Job, Blob string
	Size      int64
	Hashed    int64 // up to where this worker hashed it
	Saved     int64 // up to where this worker's last effective save says; 0 without one

	// UnsavedSince is when the oldest of the bytes between Saved and Hashed were
	// hashed; zero if there are none.
	UnsavedSince time.Time
}

// middle reports whether a job is begun and not nearly over, with work that was
// not saved for that long.
func (h InHand) middle(unsavedFor time.Duration, now time.Time) bool {
	return h.Hashed < h.Size && !h.UnsavedSince.IsZero() && now.Sub(h.UnsavedSince) >= unsavedFor
}

// inHand returns the jobs that a VM's worker has begun and not ended, by id.
func (f *facts) inHand(vm string) []InHand {
	var jobs []InHand
	for id, j := range f.jobs {
		s, ok := f.lastStart(id)
		if !ok || s.vm != vm || f.commits(id) > 0 {
			continue
		}
		if _, over := f.end(s); over {
			continue
		}
		jobs = append(jobs, f.progress(j, vm))
	}
	slices.SortFunc(jobs, func(a, b InHand) int { return strings.Compare(a.Job, b.Job) })
	return jobs
}

// progress returns how far a VM's worker is with a job.
func (f *facts) progress(j jobFact, vm string) InHand {
	h := InHand{Job: j.id, Blob: j.blob, Size: f.files[j.blob].Size}
	if w, ok := f.savedBy(j.id, vm); ok {
		h.Saved = w.offset
	}
	for _, s := range f.spans {
		if s.job != j.id || s.vm != vm {
			continue
		}
		h.Hashed = max(h.Hashed, s.end())
		if s.end() > h.Saved && (h.UnsavedSince.IsZero() || s.at.Before(h.UnsavedSince)) {
			h.UnsavedSince = s.at
		}
	}
	return h
}
