//go:build !unix

package filetype

import "os"

// NoWait opens a named pipe without blocking: there are none here.
const NoWait = 0

// OpenFolder opens a folder for reading.
func OpenFolder(name string) (*os.File, error) { return os.Open(name) }

// OpenRoot is [os.OpenRoot].
func OpenRoot(dir string) (*os.Root, error) { return os.OpenRoot(dir) }
