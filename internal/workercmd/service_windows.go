package workercmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/telemetry/systemd"
	"github.com/spotworker/spotworker/internal/windows/winservice"
)

const serviceDescription = `Installs the worker as a service of Windows, and controls it.

A service has no flags: its settings are in a file of NAME=VALUE lines, where
every flag of the worker is SPOTWORKER_ and its name. Stop, and the shutdown of
the machine, hand all jobs over, as Ctrl-C does in a console.

Installing takes an administrator. Exit codes: 0 done, 78 wrong flags or
configuration, 1 anything else; status has 0 for a service that runs.`

// serviceFlags are the command line of worker service.
type serviceFlags struct {
	Install   serviceInstall   `cmd:"" help:"Create the service, or change the existing one. Start it afterwards."`
	Uninstall serviceUninstall `cmd:"" help:"Stop the service and remove it."`
	Start     serviceStart     `cmd:"" help:"Start the service and wait until it runs."`
	Stop      serviceStop      `cmd:"" help:"Stop the service, which hands its jobs over."`
	Status    serviceStatus    `cmd:"" help:"Print the state of the service."`
	Run       serviceRun       `cmd:"" hidden:"" help:"Run as the service; the service manager does that."`

	chosen
}

// systemTask is a command that only Windows has.
type systemTask interface {
	run(ctx context.Context, o Options, stdout io.Writer) error
}

// chosen has the command of a command line.
type chosen struct{ command systemTask }

// HelpTexts implements [cli.WithTexts].
func (*chosen) HelpTexts() cli.Texts { return texts }

// AfterApply records the chosen command. It is called by kong when all flags are set.
func (c *chosen) AfterApply(ctx *kong.Context) (err error) {
	c.command, err = cli.Chosen[systemTask](ctx)
	return err
}

func (c *chosen) task() systemTask { return c.command }

// systemCommands returns the commands that only Windows has.
func systemCommands() map[string]func(Options) error {
	return map[string]func(Options) error{
		"service": func(o Options) error {
			return runSystem(o, "worker service", serviceDescription, &serviceFlags{}, os.Stdout)
		},
		"package": func(o Options) error {
			return runSystem(o, "worker package", packageDescription, &packageFlags{}, os.Stdout)
		},
	}
}

// runSystem runs the command that the command line in flags chooses.
func runSystem(o Options, name, description string, flags interface{ task() systemTask }, stdout io.Writer) error {
	program := cli.Program{Name: name, Description: description, Version: cli.Version(o.Version, version)}
	if done, err := program.Parse(flags, o.Arguments[1:], stdout); done || err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return flags.task().run(ctx, o, stdout)
}

// serviceName is the flag that all commands have.
type serviceName struct {
	Name string `help:"Name of the service." default:"spotworker" env:"-"`
}

// serviceFiles are the files of a service.
type serviceFiles struct {
	EnvironmentFile []string `help:"${about_environment_file}" placeholder:"FILE" env:"-"`
	LogFile         string   `help:"${about_log_file}" placeholder:"FILE" env:"-"`
}

// read returns the settings of all files.
func (f *serviceFiles) read() ([]winservice.Variable, error) {
	var all []winservice.Variable
	for _, name := range f.EnvironmentFile {
		variables, err := winservice.ReadEnvironment(name)
		if err != nil {
			return nil, &cli.ConfigError{Err: err}
		}
		all = append(all, variables...)
	}
	return all, nil
}

// drainBudget returns the time for a drain among settings.
func drainBudget(settings []winservice.Variable) (time.Duration, error) {
	text := ""
	for _, v := range settings {
		if v.Name == "SPOTWORKER_DRAIN_BUDGET" {
			text = v.Value
		}
	}
	if text == "" {
		return preempt.DrainBudget, nil
	}
	budget, err := time.ParseDuration(text)
	if err != nil || budget <= 0 {
		return 0, &cli.ConfigError{Err: fmt.Errorf("SPOTWORKER_DRAIN_BUDGET is %.40q; it must be a time such as 10s", text)}
	}
	return budget, nil
}

// withManager runs what needs the service manager.
func withManager(open func() (*winservice.Manager, error), do func(*winservice.Manager) error) error {
	m, err := open()
	if err != nil {
		return err
	}
	return errors.Join(do(m), m.Close())
}

type serviceInstall struct {
	serviceName
	serviceFiles

	Account string `help:"${about_service_install_account}" placeholder:"NAME" env:"-"`
}

func (c *serviceInstall) run(_ context.Context, _ Options, stdout io.Writer) error {
	if err := winservice.ValidateName(c.Name); err != nil {
		return &cli.ConfigError{Err: fmt.Errorf("--name: %w", err)}
	}
	config, err := c.config()
	if err != nil {
		return err
	}
	err = withManager(winservice.OpenToInstall, func(m *winservice.Manager) error {
		if err := prepareLog(c.LogFile, c.Name); err != nil {
			return err
		}
		return m.Install(config)
	})
	if err == nil {
		fmt.Fprintf(stdout, "service %s is installed; it starts with the machine, or now with: worker service start --name %s\n", c.Name, c.Name)
	}
	return err
}

// config returns the service that the flags describe. Relative paths become
// absolute: a service runs in another folder.
func (c *serviceInstall) config() (winservice.Config, error) {
	config := winservice.Config{Name: c.Name, Account: c.Account, Arguments: []string{"service", "run", "--name", c.Name}}
	settings, err := c.read()
	if err != nil {
		return config, err
	}
	if config.DrainBudget, err = drainBudget(settings); err != nil {
		return config, err
	}
	if config.Executable, err = os.Executable(); err != nil {
		return config, err
	}
	for _, name := range c.EnvironmentFile {
		if name, err = filepath.Abs(name); err != nil {
			return config, err
		}
		config.Arguments = append(config.Arguments, "--environment-file", name)
	}
	if c.LogFile, err = filepath.Abs(cmp.Or(c.LogFile, defaultServiceLog(c.Name))); err != nil {
		return config, err
	}
	config.Arguments = append(config.Arguments, "--log-file", c.LogFile)
	return config, nil
}

func defaultServiceLog(name string) string {
	return filepath.Join(cmp.Or(os.Getenv("ProgramData"), `C:\ProgramData`), "spotworker", "logs", name+".log")
}

// prepareLog makes the folder of a log where there is none, for the service to
// write to.
func prepareLog(name, service string) error {
	folder := filepath.Dir(name)
	if _, err := os.Stat(folder); err == nil {
		return nil // its rights are its owner's business
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // Protect follows
		return fmt.Errorf("make the folder of the log: %w", err)
	}
	return winservice.Protect(folder, winservice.Access{Services: []string{service}, Change: true})
}

type serviceUninstall struct{ serviceName }

func (c *serviceUninstall) run(ctx context.Context, _ Options, stdout io.Writer) error {
	err := withManager(winservice.OpenToInstall, func(m *winservice.Manager) error {
		if err := m.Stop(ctx, c.Name); err != nil {
			return err
		}
		return m.Uninstall(c.Name)
	})
	if err == nil {
		fmt.Fprintf(stdout, "service %s is removed; its log and its settings are left\n", c.Name)
	}
	return err
}

type serviceStart struct{ serviceName }

func (c *serviceStart) run(ctx context.Context, _ Options, stdout io.Writer) error {
	err := withManager(winservice.Open, func(m *winservice.Manager) error { return m.Start(ctx, c.Name) })
	if ended, ok := errors.AsType[*winservice.StartError](err); ok && ended.Code() == cli.ExitConfig {
		return &cli.ConfigError{Err: err}
	}
	if err == nil {
		fmt.Fprintf(stdout, "service %s runs\n", c.Name)
	}
	return err
}

type serviceStop struct{ serviceName }

func (c *serviceStop) run(ctx context.Context, _ Options, stdout io.Writer) error {
	err := withManager(winservice.Open, func(m *winservice.Manager) error { return m.Stop(ctx, c.Name) })
	if err == nil {
		fmt.Fprintf(stdout, "service %s is stopped; its jobs are handed over\n", c.Name)
	}
	return err
}

type serviceStatus struct {
	serviceName
	cli.Format
}

func (c *serviceStatus) run(_ context.Context, _ Options, stdout io.Writer) error {
	return withManager(winservice.Open, func(m *winservice.Manager) error {
		status, err := m.Status(c.Name)
		if err != nil {
			return err
		}
		if c.WantsJSON() {
			return printStatus(stdout, c.Name, status)
		}
		fmt.Fprintf(stdout, "state:     %s\n", status.State)
		if status.ProcessID != 0 {
			fmt.Fprintf(stdout, "process:   %d\n", status.ProcessID)
		}
		if status.Stopped() {
			fmt.Fprintf(stdout, "exit code: %d (of the worker: %d)\n", status.ExitCode, status.ServiceExit)
		}
		fmt.Fprintf(stdout, "account:   %s\ncommand:   %s\n", status.Account, status.CommandLine)
		return notRunning(c.Name, status)
	})
}

func notRunning(name string, status winservice.Status) error {
	if !status.Running() {
		return fmt.Errorf("service %s is not running", name)
	}
	return nil
}

// statusLine is the state of a service, in the JSON output.
type statusLine struct {
	Name           string `json:"name"`
	State          string `json:"state"`
	Process        uint32 `json:"process,omitempty"`
	ExitCode       uint32 `json:"exit_code"`
	WorkerExitCode uint32 `json:"worker_exit_code"`
	Account        string `json:"account"`
	Command        string `json:"command"`
}

// printStatus prints the state of a service as a line of JSON.
func printStatus(stdout io.Writer, name string, s winservice.Status) error {
	line, err := cli.JSONLine(statusLine{Name: name, State: s.State, Process: s.ProcessID, ExitCode: s.ExitCode, WorkerExitCode: s.ServiceExit,
		Account: s.Account, Command: s.CommandLine})
	if err == nil {
		_, err = stdout.Write(line)
	}
	return cmp.Or(err, notRunning(name, s))
}

type serviceRun struct {
	serviceName
	serviceFiles
}

// run runs the worker under the service manager. What goes wrong before there is a
// log is in the event log.
func (c *serviceRun) run(_ context.Context, o Options, _ io.Writer) error {
	c.LogFile = cmp.Or(c.LogFile, defaultServiceLog(c.Name))
	return winservice.Run(winservice.RunConfig{
		Name: c.Name, Describe: "spotworker " + cli.Version(o.Version, version), Log: c.LogFile,
		ExitCode: cli.Code, Explain: azure.Explain, StayStopped: cli.ExitConfig,
		Work: func(ctx context.Context, s *winservice.Service) error { return c.work(ctx, o, s) },
	})
}

// work runs the worker with the settings and the log of the files.
func (c *serviceRun) work(ctx context.Context, o Options, s *winservice.Service) (err error) {
	log, err := winservice.OpenLogFile(c.LogFile)
	if err != nil {
		return fmt.Errorf("%w; the service's account must be able to write there", err)
	}
	defer func() {
		if err != nil {
			fmt.Fprintf(log, "worker: %s\n", azure.Explain(err)) // as the command does on standard error
		}
		_ = log.Close() // its lines are written
	}()
	if crash, err := os.OpenFile(c.LogFile+".crash", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err == nil { //nolint:gosec // as the log
		_ = debug.SetCrashOutput(crash, debug.CrashOptions{}) // a service has no standard error
		_ = crash.Close()
	}
	settings, err := c.read()
	if err != nil {
		return err
	}
	for _, v := range settings {
		if err := os.Setenv(v.Name, v.Value); err != nil {
			return &cli.ConfigError{Err: fmt.Errorf("setting %s: %w", v.Name, err)}
		}
	}
	o.Arguments = nil
	addBallast()
	o.service = true
	return runUnder(ctx, o, log, log, func(config systemd.Config) manager {
		return s.Attach(config.DrainBudget, config.Healthy)
	})
}
