package winservice

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/eventlog"
)

// Numbers of the events in the event log.
const (
	eventStarted   = 1
	eventStopped   = 2
	eventFailed    = 3
	eventUnhealthy = 4
)

// startPatience is how long a worker may take to read its configuration.
const startPatience = time.Minute

// Run runs the process as a service until the service manager stops it. It returns
// an error if the service manager did not start the process.
func Run(c RunConfig) error {
	events, err := eventlog.Open(c.Name)
	if err != nil {
		events = nil // the log file has everything
	} else {
		defer events.Close()
	}
	p := &program{RunConfig: c, service: newService(), events: events}
	err = svc.Run(c.Name, p)
	if errors.Is(err, windows.ERROR_FAILED_SERVICE_CONTROLLER_CONNECT) {
		return errors.New("the service manager alone runs this command: start the service with worker service start; " +
			"in a console run the worker without service run")
	}
	return err
}

// program is the process as the service manager sees it. It implements
// [svc.Handler].
type program struct {
	RunConfig
	service *Service
	events  *eventlog.Log // nil without one
}

// Execute implements [svc.Handler].
func (p *program) Execute(_ []string, requests <-chan svc.ChangeRequest, states chan<- svc.Status) (specific bool, code uint32) {
	state := svc.Status{State: svc.StartPending, WaitHint: milliseconds(startPatience)}
	if p.Task {
		state = svc.Status{State: svc.Running} // it can take minutes, and must not be interrupted
	}
	states <- state
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Work(ctx, p.service) }()

	var worker *Notifier
	var stopping <-chan struct{} // the worker's own word that it ends
	asked := false               // the service manager wants it to end
	health := &watch{}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case worker = <-p.service.ready:
			stopping = worker.stopping
			state = svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptPreShutdown}
			states <- state
			p.report(windows.EVENTLOG_INFORMATION_TYPE, eventStarted, p.Describe+" started; its log is "+p.Log)
		case request := <-requests:
			switch request.Cmd {
			case svc.Stop, svc.PreShutdown, svc.Shutdown:
				asked = true
				cancel()
				state = stopPending(worker)
			}
			states <- state // also the answer to an interrogation
		case <-stopping:
			stopping = nil
			state = stopPending(worker)
			states <- state
		case now := <-ticker.C:
			if state.State == svc.StopPending {
				state.CheckPoint++ // it makes progress: the service manager waits on
				states <- state
			}
			if worker != nil && health.overdue(worker.healthy(), now) {
				p.crash(eventUnhealthy, p.Describe+" has loops that have stood still for "+unhealthyLimit.String()+
					"; its process ends, and the service manager starts another one. Its jobs return to the queue when their visibility timeout expires")
			}
		case err := <-ended:
			return p.end(err, asked)
		}
	}
}

// stopPending is the state of a worker that drains.
func stopPending(worker *Notifier) svc.Status {
	budget := time.Duration(0)
	if worker != nil {
		budget = worker.drainBudget
	}
	return svc.Status{State: svc.StopPending, CheckPoint: 1, WaitHint: milliseconds(budget + stopMargin)}
}

// end returns the exit code of a worker that ended, for the state Stopped. A failure
// that a restart may fix ends the process without that state, since only then do
// the recovery actions apply.
func (p *program) end(err error, asked bool) (specific bool, code uint32) {
	exit := p.ExitCode(err)
	switch {
	case err == nil && p.Task:
		p.report(windows.EVENTLOG_INFORMATION_TYPE, eventStopped, p.Describe+" is done")
		return false, 0
	case err == nil && asked:
		p.report(windows.EVENTLOG_INFORMATION_TYPE, eventStopped, p.Describe+" stopped: its jobs are handed over")
		return false, 0
	case err == nil:
		p.crash(eventFailed, p.Describe+" ended without having been asked to; the service manager starts it again")
	case exit == p.StayStopped:
		p.report(windows.EVENTLOG_ERROR_TYPE, eventFailed, fmt.Sprintf("%s stopped with exit code %d: %s. "+
			"A restart would not help: correct the configuration, then start the service", p.Describe, exit, p.Explain(err)))
	case asked, p.Task:
		p.report(windows.EVENTLOG_ERROR_TYPE, eventFailed, fmt.Sprintf("%s stopped with exit code %d: %s", p.Describe, exit, p.Explain(err)))
	default:
		p.crash(eventFailed, fmt.Sprintf("%s ended with exit code %d: %s. The service manager starts it again", p.Describe, exit, p.Explain(err)))
	}
	return true, uint32(exit)
}

// crash ends the process without the state Stopped.
func (p *program) crash(event uint32, text string) {
	p.report(windows.EVENTLOG_ERROR_TYPE, event, text)
	os.Exit(1)
}

// report adds an event to the event log. Where that fails the log file has it.
func (p *program) report(kind uint16, event uint32, text string) {
	if p.events == nil {
		return
	}
	switch kind {
	case windows.EVENTLOG_ERROR_TYPE:
		_ = p.events.Error(event, text)
	default:
		_ = p.events.Info(event, text)
	}
}

func milliseconds(d time.Duration) uint32 { return uint32(min(d.Milliseconds(), 1<<31)) }
