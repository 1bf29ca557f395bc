package vmshare

import "golang.org/x/sys/unix"

// bootClock also counts while the machine sleeps, as the service's limit does.
const bootClock = unix.CLOCK_BOOTTIME
