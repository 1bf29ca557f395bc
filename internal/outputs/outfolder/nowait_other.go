//go:build !unix

package outfolder

const noWait = 0
