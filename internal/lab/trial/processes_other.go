//go:build !linux

package trial

// observesProcesses reports whether this system tells which processes a program has.
const observesProcesses = false

// processesOf finds none on this system.
func processesOf(string) map[int]child { return nil }

// end ends none on this system.
func (child) end() {}
