// Package winservice runs the worker as a service of Windows, and installs it as
// one.
//
// What systemd's unit does on Linux is done here like this:
//
//	Type=notify, READY=1       the state Running, reported when the worker is configured and listens
//	SIGTERM                    the controls Stop and PreShutdown
//	TimeoutStopSec=            the pre-shutdown time-out, longer than the drain budget
//	Restart=always             recovery actions, with growing delays; they apply when the process
//	                           ends without having reported the state Stopped
//	RestartPreventExitStatus=  exit code 78 is reported with the state Stopped, so there is no restart
//	WatchdogSec=               the process ends itself when its loops have not turned for a minute
//	EnvironmentFile=           files with NAME=VALUE lines, read before the flags
//	StandardError=append:      a log file, which the process rotates itself
//	User=                      a virtual account of the service's own, NT SERVICE\NAME
//
// The event log gets the events that an operator looks for there: start, stop, and
// errors that end the process. All else is in the log file.
//
// Other systems have the parts of it that need no service manager.
package winservice
