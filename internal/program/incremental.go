package program

import (
	"log/slog"
	"sync"
)

// incremental is a stream that knows which bytes an earlier stream has too. The package of
// records has the same interface, and says what the methods do.
type incremental interface {
	Origin() any
	Unchanged(origin any, yield func(at, was, length int64))
	Skip(bytes int64) error
}

// honesty is whether the times and numbers of a program's files tell which files are
// unchanged. Once they did not, checkpoints of this run are always read in full.
type honesty struct {
	mu   sync.Mutex
	lost bool
}

func (h *honesty) lose(log *slog.Logger, at int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.lost {
		h.lost = true
		log.Warn("a file of the checkpoint has changed, but not its size, time and inode: checkpoints are read in full from now on",
			"offset", at)
	}
}

func (h *honesty) has() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.lost
}

// from is the stream, if it is incremental and the program is honest.
func (r *collectedReader) from() incremental {
	if from, ok := r.stream.(incremental); ok && r.of.honesty.has() {
		return from
	}
	return nil
}

// Origin identifies the files of a checkpoint.
func (r *collectedReader) Origin() any {
	if from := r.from(); from != nil {
		return from.Origin()
	}
	return nil
}

// Unchanged yields the ranges that the checkpoint with that origin has too.
func (r *collectedReader) Unchanged(origin any, yield func(at, was, length int64)) {
	if from := r.from(); from != nil {
		from.Unchanged(origin, yield)
	}
}

// Skip passes over bytes without reading them.
func (r *collectedReader) Skip(bytes int64) error {
	return r.watch(func() error { return r.stream.(incremental).Skip(bytes) })
}

// Wrong says that a range of Unchanged has changed.
func (r *collectedReader) Wrong(at int64) { r.of.honesty.lose(r.of.log, at) }
