package winsetup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/text/plaintext"
	"github.com/spotworker/spotworker/internal/windows/winservice"
)

// Install installs this version and starts it. Again for the same version it does
// no harm.
func (s *Setup) Install(ctx context.Context) error { return s.deploy(ctx, "installed") }

// Update replaces the installed version, which may be a newer one, by this one. The
// workers hand their active jobs over.
func (s *Setup) Update(ctx context.Context) error { return s.deploy(ctx, "updated to") }

// deployment is one run of Install or Update.
type deployment struct {
	*Setup
	pack   unpacked
	config configuration
	before installed
	same   bool // this release runs with this configuration already
}

// deploy checks, copies the release beside the present one, switches the services
// and starts them. It restores the previous release if that fails.
func (s *Setup) deploy(ctx context.Context, done string) (err error) {
	d := &deployment{Setup: s}
	if d.pack, err = s.checkPackage(); err != nil {
		return err
	}
	if d.config, err = s.checkConfiguration(); err != nil {
		return err
	}
	if d.before, err = s.before(); err != nil {
		return err
	}
	d.same = d.isSame()
	if err := s.repeatAfterReboot(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.dropResume()) }()
	if err := d.place(ctx); err != nil {
		return fmt.Errorf("cannot put the release into %s; nothing was changed: %w", s.Programs, err)
	}
	if err := s.insist(ctx, func() error { return removeFile(s.started()) }); err != nil {
		return fmt.Errorf("cannot prepare the switch; no worker was stopped: %w", err)
	}
	if err := d.configure(ctx); err != nil {
		return fmt.Errorf("cannot write %s or what goes with it; no worker was stopped: %w", s.data(ConfigurationFile), err)
	}
	if err := d.run(ctx, d.pack.release, d.config); err != nil {
		return d.giveUp(ctx, err)
	}
	if err := os.WriteFile(s.started(), []byte(d.pack.release), 0o644); err != nil { //nolint:gosec // no secret
		return err
	}
	if err := d.leaveRemover(); err != nil {
		return err
	}
	d.tidy(ctx)
	replaced := ""
	if d.before.release != "" && d.before.release != d.pack.release {
		replaced = " in the place of " + d.before.release
	}
	s.say("%s %s%s; running: %s", done, d.pack.release, replaced, strings.Join(d.config.services, " "))
	return nil
}

// repeatAfterReboot makes a boot run the installation again until it has ended. The
// platform reports success for an installation that a reboot or a power cut ended,
// and does not always repeat it.
func (s *Setup) repeatAfterReboot() error {
	return s.Services.Install(winservice.Config{
		Name: ResumeService, Account: "LocalSystem", Executable: filepath.Join(s.Package, Executable),
		Arguments: []string{"package", "resume", "--folder", s.Package},
	})
}

// dropResume removes the service of repeatAfterReboot. This process may be that
// service: it is then gone when it ends.
func (s *Setup) dropResume() error {
	if err := s.Services.Uninstall(ResumeService); err != nil && !errors.Is(err, winservice.ErrNotInstalled) {
		return err
	}
	return nil
}

func (s *Setup) started() string { return s.release(startedName) }

// leaveRemover writes the script that removes the worker where the package of a
// later version could not be unpacked. It is copied elsewhere to be run, and copies
// the worker there, since neither can remove the folder that it runs from.
func (d *deployment) leaveRemover() error {
	text := `@copy /y "` + d.executable(d.pack.release) + `" worker.exe >nul && .\worker.exe package remove` + "\r\n"
	return os.WriteFile(d.data("remove.cmd"), []byte(text), 0o600)
}

// isSame reports whether the workers were started with this release and this
// configuration.
func (d *deployment) isSame() bool {
	started, err := os.ReadFile(d.started())
	if err != nil || string(started) != d.pack.release {
		return false
	}
	there, err := os.ReadFile(d.data(ConfigurationFile))
	return err == nil && bytes.Equal(there, d.config.text)
}

// run makes the services match a release with a configuration, and starts them.
func (d *deployment) run(ctx context.Context, release string, c configuration) error {
	budget, err := d.DrainBudget(c.settings)
	if err != nil {
		return &ConfigurationError{err}
	}
	for _, name := range allServices() {
		if slices.Contains(c.services, name) {
			continue
		}
		if err := d.drop(ctx, name); err != nil {
			return err
		}
	}
	for i, name := range c.services {
		err := d.Services.Install(winservice.Config{
			Name: name, Executable: d.executable(release), Arguments: d.arguments(release, name, i), DrainBudget: budget,
		})
		if err != nil {
			return err
		}
	}
	for _, name := range c.services {
		if !d.same {
			if err := d.Services.Stop(ctx, name); err != nil {
				return err
			}
		}
		if err := d.start(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// start starts a service, again and again while something is in its way that may go
// away, such as another program on its port.
func (d *deployment) start(ctx context.Context, name string) error {
	return d.insist(ctx, func() error {
		ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("it does not get ready"))
		defer cancel()
		err := d.Services.Start(ctx, name)
		ended, ok := errors.AsType[*winservice.StartError](err)
		if ok && ended.Code() == exitConfiguration {
			return fmt.Errorf("%w: %w", errLasting, err)
		}
		return err
	})
}

// drop stops and removes a service, if it is there.
func (s *Setup) drop(ctx context.Context, name string) error {
	_, err := s.Services.Status(name)
	if errors.Is(err, winservice.ErrNotInstalled) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.Services.Stop(ctx, name); err != nil {
		return err
	}
	return s.Services.Uninstall(name)
}

// exitConfiguration is the worker's exit code for a wrong configuration.
const exitConfiguration = 78

// giveUp reports that this version does not start, and restores the previous one if
// it ran.
func (d *deployment) giveUp(ctx context.Context, err error) error {
	reason := d.why(err)
	ended, ok := errors.AsType[*winservice.StartError](err)
	_, wrong := errors.AsType[*ConfigurationError](err)
	wrong = wrong || ok && ended.Code() == exitConfiguration
	failed := func(text string) error {
		err := fmt.Errorf("%s. %s", reason, text)
		if wrong {
			return &ConfigurationError{err}
		}
		return err
	}
	before, problem := d.restorable()
	switch {
	case problem != nil:
		return failed("The previous version was not restored: " + problem.Error())
	case before == nil && wrong:
		return failed("Correct worker.env, and publish it as a new version")
	case before == nil && ok:
		return failed("Windows starts it again every few seconds")
	case before == nil:
		return errors.New(reason)
	}
	d.same = false
	if err := d.insist(ctx, func() error { return os.Rename(d.data(backupName), d.data(ConfigurationFile)) }); err != nil {
		return failed(fmt.Sprintf("The configuration of %s could not be restored: %v", d.before.release, err))
	}
	if err := d.run(ctx, d.before.release, *before); err != nil {
		return failed(fmt.Sprintf("%s was restored, and does not start either: %s", d.before.release, d.why(err)))
	}
	if d.before.release != d.pack.release {
		_ = d.insist(ctx, func() error { return removeTree(d.release(d.pack.release)) }) // the next version removes it
	}
	if err := os.WriteFile(d.started(), []byte(d.before.release), 0o644); err != nil { //nolint:gosec // no secret
		return failed(fmt.Sprintf("%s was restored, and runs; %v", d.before.release, err))
	}
	return failed(d.before.release + " was restored, and runs")
}

// restorable returns the configuration of the version before, nil if there is none
// that ran.
func (d *deployment) restorable() (*configuration, error) {
	if d.before.release == "" || d.same || !d.before.ran {
		return nil, nil //nolint:nilnil // see above
	}
	text, err := os.ReadFile(d.data(backupName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // see above
	}
	if err != nil {
		return nil, err
	}
	c, err := configuration{text: text}.read()
	return &c, err
}

// why adds the last log line of a worker that does not start. It skips output of
// jobs' programs, since the line goes into the extension's status.
func (d *deployment) why(err error) string {
	ended, ok := errors.AsType[*winservice.StartError](err)
	if !ok {
		return err.Error()
	}
	last := winservice.LastLine(d.logOf(ended.Name), func(line string) bool {
		return !strings.Contains(line, `"msg":"program output"`)
	})
	const most = 1000
	return fmt.Sprintf("%s does not start (exit code %d); its last log line is: %s", ended.Name, ended.Code(),
		plaintext.Block(last[:min(len(last), most)]))
}
