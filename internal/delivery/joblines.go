package delivery

import (
	"sync"
	"time"
)

const (
	// limitPeriod is for how long one line stands for all of its kind of job.
	limitPeriod = time.Minute

	// limitKinds bounds the kinds that have a line of their own: a message may name
	// any kind. Further ones share a line.
	limitKinds = 64
)

// lineLimit lets one line for each kind of job and minute through. 20,000 messages
// of a kind that no worker has would otherwise log a line each whenever they come
// round.
type lineLimit struct {
	mu    sync.Mutex
	lines map[string]*limitedLine
}

// limitedLine is a line that was let through, and how many were not since.
type limitedLine struct {
	at   time.Time
	more int
}

// Allow reports whether a line about a kind is due at now, and how many were left
// out since the one before.
func (l *lineLimit) Allow(kind string, now time.Time) (due bool, leftOut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil {
		l.lines = map[string]*limitedLine{}
	}
	line := l.lines[kind]
	if line == nil && len(l.lines) >= limitKinds {
		l.forget(now)
	}
	if line == nil && len(l.lines) >= limitKinds {
		kind = ""
		line = l.lines[kind]
	}
	switch {
	case line == nil:
		l.lines[kind] = &limitedLine{at: now}
		return true, 0
	case now.Sub(line.at) < limitPeriod:
		line.more++
		return false, 0
	}
	leftOut = line.more
	*line = limitedLine{at: now}
	return true, leftOut
}

// forget drops the lines whose time is over and that nothing was left out of.
func (l *lineLimit) forget(now time.Time) {
	for kind, line := range l.lines {
		if now.Sub(line.at) >= limitPeriod && line.more == 0 {
			delete(l.lines, kind)
		}
	}
}
