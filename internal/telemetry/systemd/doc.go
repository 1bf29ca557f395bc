// Package systemd reports the worker's state to the service manager, as
// sd_notify(3) describes: a unit with Type=notify knows when the worker is up,
// shows its state, gives it time to drain, and restarts it when it hangs.
//
//	READY=1                      the process is up: it is configured, listens and polls
//	STATUS=process, 3 jobs       the lifecycle state and the active jobs
//	STOPPING=1                   asked to end
//	EXTEND_TIMEOUT_USEC=…        with it: how long the drain may take
//	WATCHDOG=1                   twice per WatchdogSec=, while the loops turn
//
// READY does not wait for warm-up. Role assignments of the worker's identity can
// take minutes to apply. If READY waited for them, the unit would exceed
// TimeoutStartSec= and be killed, and the install of a VM application, which starts
// it, would hang. STATUS and the log name the reason of the wait.
//
// Without NOTIFY_SOCKET in the environment nothing is sent.
package systemd
