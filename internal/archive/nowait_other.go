//go:build !unix

package archive

const noWait = 0
