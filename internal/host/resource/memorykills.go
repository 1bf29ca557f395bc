package resource

import (
	"sync"
	"sync/atomic"
	"time"
)

// MemoryKills counts the processes of one worker that the kernel killed because memory ran
// out. Several workers of a machine may share the machine's count, which tells no worker from
// another. The zero value is ready to use.
type MemoryKills struct {
	programs atomic.Int64

	mu     sync.Mutex
	read   time.Time
	recent int64
}

// recentFor is how old [MemoryKills.Recent] may be. The kernel adds up all its counts for one, which
// takes as long as a fiftieth of a short command.
const recentFor = time.Second

// Recent returns the count of [OOMKills] as of the last second; 0 if it is unknown.
func (m *MemoryKills) Recent() int64 {
	if m == nil {
		kills, _ := OOMKills()
		return kills
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.Sub(m.read) > recentFor {
		m.recent, _ = OOMKills()
		m.read = now
	}
	return m.recent
}

// Add counts a program that was killed while the count of [OOMKills] grew.
func (m *MemoryKills) Add() {
	if m != nil {
		m.programs.Add(1)
	}
}

// Total returns the count of the worker's control group, or the programs that were added if
// groups are not counted. ok is false on systems that count nothing.
func (m *MemoryKills) Total() (kills int64, ok bool) { return m.total(groupKills, OOMKills) }

func (m *MemoryKills) total(group, machine func() (int64, bool)) (kills int64, ok bool) {
	if kills, ok = group(); ok {
		return kills, true
	}
	_, ok = machine()
	return m.programs.Load(), ok
}
