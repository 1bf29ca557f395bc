package resource

import "sync/atomic"

// MemoryKills counts the processes of one worker that the kernel killed because memory ran
// out. Several workers of a machine may share the machine's count, which tells no worker from
// another. The zero value is ready to use.
type MemoryKills struct{ programs atomic.Int64 }

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
