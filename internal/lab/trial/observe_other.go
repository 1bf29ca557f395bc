//go:build !linux

package trial

import "context"

// Other systems tell nothing of the files and processes of a program.

// observesFiles reports whether this system tells what happens to files.
const observesFiles = false

// watchFiles tells nothing on this system.
func watchFiles(string, func(change)) (stop func(), err error) { return func() {}, nil }

// observesProcesses reports whether this system tells which processes a program has.
const observesProcesses = false

// processesOf finds none on this system.
func processesOf(string) map[int]child { return nil }

// end ends none on this system.
func (child) end() {}

// outside is for systems with mount namespaces.
type outside struct{}

func newOutside(context.Context, string) (*outside, string) {
	return nil, "only Linux has mount namespaces"
}

func (*outside) command(worker string) []string { return []string{worker} }

func (*outside) files(int) map[string]int64 { return nil }
