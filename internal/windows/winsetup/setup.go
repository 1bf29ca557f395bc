package winsetup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/windows/winservice"
)

const (
	// Service is the name of the service of a VM's only worker. Several are
	// Service-0 and up.
	Service = "spotworker"

	// ResumeService repeats an installation that a reboot interrupted.
	ResumeService = Service + "-install"

	// maxInstances is how many workers the metadata service answers on one VM.
	maxInstances = 4

	startedName = "started"
	backupName  = "worker.env.before"
)

// Services is the service manager. [winservice.Manager] is one.
type Services interface {
	Install(c winservice.Config) error
	Uninstall(name string) error
	Start(ctx context.Context, name string) error
	Stop(ctx context.Context, name string) error
	Status(name string) (winservice.Status, error)
}

// Setup is one run of a command of the VM application.
type Setup struct {
	Package  string // folder that the package was unpacked into, with worker.env
	Programs string // folder of the releases
	Data     string // folder of settings, logs and scratch files

	Services Services

	// Protect sets the access list of a file or folder.
	Protect func(path string, a winservice.Access) error

	// DrainBudget returns the drain budget among settings.
	DrainBudget func(settings []winservice.Variable) (time.Duration, error)

	// Out receives a line on each outcome.
	Out io.Writer

	// Patience is how long a worker may take to start, for instance while its port
	// is taken; and how long a file that is held open is waited for.
	Patience time.Duration
}

// ConfigurationError is an error that only a change of worker.env can fix.
type ConfigurationError struct{ Err error }

func (e *ConfigurationError) Error() string { return e.Err.Error() }
func (e *ConfigurationError) Unwrap() error { return e.Err }

func configurationError(format string, args ...any) error {
	return &ConfigurationError{fmt.Errorf(format, args...)}
}

func (s *Setup) say(format string, args ...any) {
	fmt.Fprintf(s.Out, "spotworker: "+format+"\n", args...)
}

// installed describes the earlier installation on the VM.
type installed struct {
	release  string   // empty for none
	services []string // of its workers
	ran      bool     // all of these were up
}

// before returns the present installation.
func (s *Setup) before() (b installed, err error) {
	b.ran = true
	for _, name := range allServices() {
		status, err := s.Services.Status(name)
		if errors.Is(err, winservice.ErrNotInstalled) {
			continue
		}
		if err != nil {
			return b, err
		}
		b.services = append(b.services, name)
		b.ran = b.ran && status.Running()
		if release := s.releaseOf(status.CommandLine); release != "" {
			b.release = release
		}
	}
	b.ran = b.ran && len(b.services) > 0
	return b, nil
}

// releaseOf returns the release that a service's command line names, empty if it
// is none of ours.
func (s *Setup) releaseOf(commandLine string) string {
	rest, found := strings.CutPrefix(strings.TrimPrefix(commandLine, `"`), s.Programs+string(filepath.Separator))
	if !found {
		return ""
	}
	release, _, found := strings.Cut(rest, string(filepath.Separator))
	if !found {
		return ""
	}
	return release
}

// servicesFor returns the names of the services for that many workers.
func servicesFor(workers int) []string {
	if workers == 1 {
		return []string{Service}
	}
	var names []string
	for i := range workers {
		names = append(names, fmt.Sprintf("%s-%d", Service, i))
	}
	return names
}

// allServices returns all names that services of workers can have.
func allServices() []string { return append([]string{Service}, servicesFor(maxInstances)...) }

func (s *Setup) release(name string) string { return filepath.Join(s.Programs, name) }
func (s *Setup) data(names ...string) string {
	return filepath.Join(append([]string{s.Data}, names...)...)
}

// logOf returns the log of a service.
func (s *Setup) logOf(service string) string {
	return s.data("logs", "worker"+strings.TrimPrefix(service, Service)+".log")
}

// insist repeats what fails while a file is held open by another program, until
// Patience has passed.
func (s *Setup) insist(ctx context.Context, do func() error) error {
	delays := retry.Backoff{First: 50 * time.Millisecond, Max: time.Second}
	waited := time.Duration(0)
	for failures := 1; ; failures++ {
		err := do()
		if err == nil || waited >= s.Patience || errors.Is(err, os.ErrNotExist) || errors.Is(err, errLasting) {
			return err
		}
		delay := delays.Delay(failures)
		if err := retry.Sleep(ctx, delay); err != nil {
			return err
		}
		waited += delay
	}
}
