package workercmd

import (
	"strconv"
	"unsafe"

	"golang.org/x/sys/windows"
)

// bootID returns the time when this machine started, as a number that stays the same
// when its clock is set. It is empty where Windows does not tell.
func bootID() string {
	var times struct { // SYSTEM_TIMEOFDAY_INFORMATION
		boot, now, zone  int64
		zoneID, reserved uint32
		bootBias, asleep int64 // how far the clock was set since the start
	}
	size := uint32(unsafe.Sizeof(times))
	into := unsafe.Pointer(&times) //nolint:gosec // as the system call wants it
	if windows.NtQuerySystemInformation(windows.SystemTimeOfDayInformation, into, size, nil) != nil || times.boot == 0 {
		return ""
	}
	return strconv.FormatInt(times.boot-times.bootBias, 10)
}
