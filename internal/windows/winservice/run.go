package winservice

import (
	"context"
	"time"
)

// RunConfig describes a process that runs as a service.
type RunConfig struct {
	// Name of the service and of its source in the event log.
	Name string

	// Describe is the program's name in the event log, with its version, and Log is
	// where its log is.
	Describe, Log string

	// Work runs the worker until ctx is cancelled. It calls Attach of the service.
	Work func(ctx context.Context, s *Service) error

	// ExitCode returns the exit code for Work's error, and Explain its text.
	ExitCode func(error) int
	Explain  func(error) string

	// Task says that Work ends without being asked to: it is a task of the next
	// boot, and no worker.
	Task bool

	// StayStopped is the exit code after which a restart would not help.
	StayStopped int
}

// Service is a running service.
type Service struct{ ready chan *Notifier }

func newService() *Service { return &Service{ready: make(chan *Notifier)} }

// Attach returns the notifier of a worker that may take drainBudget to end, and
// whose loops healthy judges.
func (s *Service) Attach(drainBudget time.Duration, healthy func() bool) *Notifier {
	return &Notifier{drainBudget: drainBudget, healthy: healthy, ready: s.ready, stopping: make(chan struct{})}
}
