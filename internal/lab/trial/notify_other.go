//go:build !linux

package trial

// observesFiles reports whether this system tells what happens to files.
const observesFiles = false

// watchFiles tells nothing on this system.
func watchFiles(string, func(change)) (stop func(), err error) { return func() {}, nil }
