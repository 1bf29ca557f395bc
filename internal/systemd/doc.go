// Package systemd tells the service manager how the worker is, as sd_notify(3)
// describes: a unit with Type=notify knows when the worker is up, shows what it
// does, gives it time to hand over, and restarts it when it hangs.
//
//	READY=1                      the process is up: it is configured, listens and polls
//	STATUS=process, 3 jobs       the lifecycle state and the jobs in hand
//	STOPPING=1                   asked to end
//	EXTEND_TIMEOUT_USEC=…        with it: how long the drain may take
//	WATCHDOG=1                   twice per WatchdogSec=, while the loops turn
//
// READY does not wait for warm-up. A worker may have to wait for minutes until
// its identity's role assignments count; were it not ready meanwhile, the unit
// would run into TimeoutStartSec= and be ended for nothing, and whoever starts
// it (the install of a VM application) would hang. What is missing is in STATUS
// and in the log.
//
// Without NOTIFY_SOCKET in the environment nothing is sent.
package systemd
