package snapshot

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// startClocks gives all processes that this thread starts from now on a time namespace, whose
// clocks continue at from; nil leaves them as they are here. It returns how far they are ahead
// of this process's clocks. Call it in the main thread: the kernel has one file of offsets for
// a process, for that thread.
func startClocks(from *Clocks) (ahead Clocks, err error) {
	if err := unix.Unshare(unix.CLONE_NEWTIME); err != nil {
		return ahead, fmt.Errorf("make a time namespace for the program (this takes CONFIG_TIME_NS and Linux 6.2 or newer): %w", err)
	}
	if from == nil {
		return ahead, nil
	}
	now, err := readClocks()
	if err != nil {
		return ahead, err
	}
	ahead = Clocks{Monotonic: from.Monotonic - now.Monotonic, Boottime: from.Boottime - now.Boottime}
	const file = "/proc/self/timens_offsets"
	text, err := os.ReadFile(file)
	if err != nil {
		return ahead, err
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		var name string
		var seconds, nanoseconds int64
		if _, err := fmt.Sscan(line, &name, &seconds, &nanoseconds); err != nil {
			return ahead, fmt.Errorf("%s: %q: %w", file, line, err)
		}
		offset := time.Duration(seconds)*time.Second + time.Duration(nanoseconds) // of this process's own namespace
		switch name {
		case "monotonic":
			offset += ahead.Monotonic
		case "boottime":
			offset += ahead.Boottime
		}
		whole := offset.Truncate(time.Second)
		if whole > offset {
			whole -= time.Second
		}
		fmt.Fprintln(&out, name, int64(whole/time.Second), int64(offset-whole))
	}
	if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
		return ahead, fmt.Errorf("set the clocks of the program: %w", err)
	}
	return ahead, nil
}

// readClocks returns the clocks of this process.
func readClocks() (Clocks, error) {
	var monotonic, boottime unix.Timespec
	err := errors.Join(unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic), unix.ClockGettime(unix.CLOCK_BOOTTIME, &boottime))
	return Clocks{Monotonic: time.Duration(monotonic.Nano()), Boottime: time.Duration(boottime.Nano())}, err
}
