package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/storage/outage"
)

// steering follows the control document: what operators ask of all workers. It is
// read before the first claim and with each heartbeat, by one goroutine at a time.
//
// A worker that cannot read the document keeps to the version that it read last. A
// worker that starts and cannot read it takes work: an account whose containers are
// not in order yet must not stop a fleet that no one asked to stop.
type steering struct {
	worker  *Worker
	store   *control.Store // nil for a worker without a control document
	runner  *delivery.Runner
	etag    azcore.ETag // of the document that is followed; empty if there is none
	failing bool        // the last read failed
	damaged bool        // it failed because the document is damaged
	level   slog.Level  // of the line about that
	held    bool        // the worker is drained

	pauseAll, drain *control.Mark // the requests of operators that are in force; nil without one

	pausedKinds []string // by the document that was read last

	pause    pause
	followed atomic.Pointer[followed] // for heartbeats
}

// followed holds the facts of the control document that a heartbeat shows.
type followed struct {
	revision int
	asked    string
}

// reading is the result of one read of the document.
type reading struct {
	found   control.Snapshot
	changed bool
	err     error
}

// fetch reads the document, and changes nothing.
func (s *steering) fetch(ctx context.Context) (r reading) {
	if s.store != nil {
		r.found, r.changed, r.err = s.store.Read(ctx, s.etag)
	}
	return r
}

// take follows the document that was read.
func (s *steering) take(ctx context.Context, r reading) {
	if s.store == nil || ctx.Err() != nil {
		return
	}
	s.learn(ctx, r)
	s.obey(ctx)
}

// learn keeps what a document asks, if it could be read.
func (s *steering) learn(ctx context.Context, r reading) {
	switch err := r.err; {
	case err != nil:
		damaged := errors.As(err, new(*control.DamagedError))
		if !s.failing || damaged && !s.damaged {
			s.level = outage.Level(err, slog.LevelWarn)
			s.worker.Log.Log(ctx, s.level, "control document not read; the worker keeps to what it read last, and does not learn of cancels, "+
				"drains and pauses", "error", err)
		}
		s.failing, s.damaged = true, s.damaged || damaged
		return
	case s.failing:
		s.worker.Log.Log(ctx, min(s.level, slog.LevelInfo), "control document is read again")
	}
	s.failing, s.damaged = false, false
	if s.followed.Load() == nil {
		s.followed.Store(&followed{})
	}
	if r.changed {
		s.etag = r.found.ETag
		s.follow(ctx, &r.found.Document)
	}
}

// follow carries out the requests of the document.
func (s *steering) follow(ctx context.Context, d *control.Document) {
	s.worker.Log.DebugContext(ctx, "control document changed", "revision", d.Revision, "cancels", len(d.Cancels))
	now := &followed{revision: d.Revision}
	switch {
	case d.Pause != nil:
		now.asked = presence.AskedPause
	case len(d.PausedKinds) > 0:
		now.asked = presence.AskedKinds
	}
	s.pauseAll, s.drain = d.Pause, nil
	if mark, ok := d.Drained(s.worker.name); ok {
		s.drain, now.asked = &mark, presence.AskedDrain
	}
	if mark, ok := d.Quarantined(s.worker.name); ok {
		s.drain, now.asked = &mark, presence.AskedQuarantine
	}
	s.followed.Store(now)
	s.runner.Follow(d)
	s.logKinds(ctx, d.PausedKinds)
}

// mayFinish reports whether the worker is to drain, and may finish its jobs first.
func (s *steering) mayFinish() bool {
	return s.drain != nil && !s.held && time.Now().Before(s.drain.FinishBy) && len(s.runner.Jobs()) > 0
}

// obey pauses or drains the worker as the document asks. A worker that may finish its jobs first
// claims nothing meanwhile.
func (s *steering) obey(ctx context.Context) {
	finishes := s.mayFinish()
	switch changed := s.pause.set(s.pauseAll != nil || finishes); {
	case changed && finishes:
		s.worker.Log.InfoContext(ctx, "claiming is paused; the worker drains when its jobs have ended", "reason",
			fmt.Sprintf("%s; at the latest at %s", asked(*s.drain), s.drain.FinishBy.UTC().Format(time.RFC3339)))
	case changed && s.pauseAll != nil:
		s.worker.Log.InfoContext(ctx, "claiming is paused; running jobs continue", "reason", asked(*s.pauseAll))
	case changed && s.drain == nil:
		s.worker.Log.InfoContext(ctx, "claiming is unpaused")
	}
	held := s.drain != nil && !finishes
	switch {
	case held && !s.held:
		s.worker.hold(asked(*s.drain))
	case !held && s.held:
		_ = s.worker.apply(lifecycle.Unhold, "an operator resumed the worker") // refused only when the worker has stopped already
	}
	s.held = held
}

// logKinds logs which kinds of this worker are paused now, and which are not.
func (s *steering) logKinds(ctx context.Context, paused map[string]control.Mark) {
	for kind := range s.worker.Kinds {
		mark, now := paused[kind]
		before := slices.Contains(s.pausedKinds, kind)
		switch {
		case now && !before:
			s.worker.Log.InfoContext(ctx, "kind is paused; its running jobs continue", "kind", kind, "reason", asked(mark))
		case before && !now:
			s.worker.Log.InfoContext(ctx, "kind is unpaused", "kind", kind)
		}
	}
	s.pausedKinds = slices.Collect(maps.Keys(paused))
}

// asked says who asked for something, and why.
func asked(m control.Mark) string {
	text := "asked for by " + cmp.Or(m.By, "an operator")
	if m.Reason != "" {
		text += ": " + m.Reason
	}
	return text
}

// pause says whether claiming is paused. The zero value is not.
type pause struct {
	mu      sync.Mutex
	paused  bool
	changed chan struct{} // closed when that changes; nil before it was asked for
}

// set reports whether that is a change.
func (p *pause) set(paused bool) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused == paused {
		return false
	}
	p.paused = paused
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	return true
}

// current returns whether claiming is paused, and a channel that is closed when that
// changes.
func (p *pause) current() (paused bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.paused, p.changed
}
