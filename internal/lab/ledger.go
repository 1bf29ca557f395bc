package lab

import (
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/emulator/storage"
)

// Ledger writes down what happens to jobs, from witnesses and not from what the
// product claims: the storage emulator about records and messages, the lab's own
// hashing about digests. Only when a worker began a job, hashed a range, let a
// delivery go and stopped is the worker's word. It is safe for concurrent use.
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

// ExpectPoison says which messages are to end in the poison queue. It must be
// told before they are put.
func (l *Ledger) ExpectPoison(odd []Odd) {
	l.add(func(f *facts) { f.odd = slices.Clone(odd) })
}

// Killed notes that a VM was killed at that time.
func (l *Ledger) Killed(vm string, at time.Time) {
	l.fate(vm, func(f *fate) { *f = fate{kind: killed, at: at, gone: true} })
}

// Evicted notes that the eviction of a VM was announced at that time.
func (l *Ledger) Evicted(vm string, announced time.Time) {
	l.fate(vm, func(f *fate) { *f = fate{kind: evicted, at: announced} })
}

// TakenAway notes that an evicted VM is gone, and when its notice was first
// handed to it; zero if it never was.
func (l *Ledger) TakenAway(vm string, served time.Time) {
	l.fate(vm, func(f *fate) { f.served, f.gone = served, true })
}

// Frozen notes that a VM's worker was stopped at that time.
func (l *Ledger) Frozen(vm string, at time.Time) {
	l.fate(vm, func(f *fate) { *f = fate{kind: frozen, at: at} })
}

// Thawed notes that a frozen worker went on at that time.
func (l *Ledger) Thawed(vm string, at time.Time) {
	l.fate(vm, func(f *fate) { f.thawed = at })
}

func (l *Ledger) fate(vm string, note func(*fate)) {
	l.add(func(f *facts) {
		fate := f.fates[vm]
		note(&fate)
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
