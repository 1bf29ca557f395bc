//go:build !unix

package filetype

// NoWait opens a named pipe without blocking: there are none here.
const NoWait = 0
