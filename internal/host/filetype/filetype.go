// Package filetype names types of files for errors that people read, and opens files of
// unknown types.
package filetype

import "io/fs"

// Name returns what something in a folder is that is neither a file, a folder nor a link.
func Name(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "named pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	default:
		return "device"
	}
}
