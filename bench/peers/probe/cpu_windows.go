package probe

import (
	"syscall"
	"time"
)

// cpuTime returns the processor time of this process.
func cpuTime() time.Duration {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0
	}
	var created, ended, kernel, user syscall.Filetime
	if syscall.GetProcessTimes(self, &created, &ended, &kernel, &user) != nil {
		return 0
	}
	return duration(kernel) + duration(user)
}

// duration converts a count of 100 ns, which a Filetime is here.
func duration(t syscall.Filetime) time.Duration {
	return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100
}
