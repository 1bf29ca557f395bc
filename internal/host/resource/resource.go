// Package resource reports which resource of a machine is exhausted: disk, memory,
// processes, file descriptors.
package resource

import (
	"errors"
	"io/fs"
	"slices"
)

// IsExhaustion reports resource exhaustion: the machine is out of disk, file
// descriptors, memory or processes, or its disk is broken.
func IsExhaustion(err error) bool { return isAny(resourceErrors, err) || IsDiskFull(err) }

// IsDiskFull reports whether a file system or a quota is full.
func IsDiskFull(err error) bool { return isAny(diskFull, err) }

// IsFileTooLarge reports whether a file is too large for its file system.
func IsFileTooLarge(err error) bool { return isAny(fileTooLarge, err) }

// IsMachines reports whether the machine is why something could not be read, written or
// started: resource exhaustion, or something that is missing, busy, broken or not permitted.
func IsMachines(err error) bool {
	return IsExhaustion(err) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || isAny(machineErrors, err)
}

func isAny(known []error, err error) bool {
	return slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) })
}
