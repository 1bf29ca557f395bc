package winsetup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/windows/winservice"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// services is a service manager whose services start unless their configuration
// says otherwise: a line FAIL=exit code in worker.env.
type services struct {
	t         *testing.T
	installed map[string]winservice.Config
	running   map[string]string // the executable of the process
	calls     []string
	starts    int
	cut       string // a call that panics, as a power cut ends the process
}

func newServices(t *testing.T) *services {
	t.Helper()
	return &services{t: t, installed: map[string]winservice.Config{}, running: map[string]string{}}
}

func (s *services) called(what, name string) {
	s.calls = append(s.calls, what+" "+name)
	if s.cut == what+" "+name {
		panic("power cut")
	}
}

func (s *services) Install(c winservice.Config) error {
	s.called("install", c.Name)
	s.installed[c.Name] = c
	return nil
}

func (s *services) Uninstall(name string) error {
	s.called("uninstall", name)
	if _, ok := s.installed[name]; !ok {
		return winservice.ErrNotInstalled
	}
	if s.running[name] != "" {
		s.t.Errorf("service %s is removed while it runs", name)
	}
	delete(s.installed, name)
	return nil
}

func (s *services) Start(_ context.Context, name string) error {
	s.called("start", name)
	c, ok := s.installed[name]
	if !ok {
		return winservice.ErrNotInstalled
	}
	if s.running[name] != "" {
		return nil
	}
	s.starts++
	for i, arg := range c.Arguments {
		if arg != "--environment-file" {
			continue
		}
		variables, err := winservice.ReadEnvironment(c.Arguments[i+1])
		if err != nil {
			return err
		}
		for _, v := range variables {
			if v.Name != "FAIL" {
				continue
			}
			log := c.Arguments[slices.Index(c.Arguments, "--log-file")+1]
			text := "worker: it is broken\x1b[2J\n{\"msg\":\"program output\",\"text\":\"secret\"}\n"
			if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
				return err
			}
			exit := uint32(1)
			if v.Value == "78" {
				exit = 78
			}
			return &winservice.StartError{Name: name, Status: winservice.Status{State: "STOPPED", ExitCode: 1066, ServiceExit: exit}}
		}
	}
	if _, err := os.Stat(c.Executable); err != nil {
		return err
	}
	s.running[name] = c.Executable
	return nil
}

func (s *services) Stop(_ context.Context, name string) error {
	s.called("stop", name)
	if _, ok := s.installed[name]; !ok {
		return winservice.ErrNotInstalled
	}
	delete(s.running, name)
	return nil
}

func (s *services) Status(name string) (winservice.Status, error) {
	c, ok := s.installed[name]
	if !ok {
		return winservice.Status{}, winservice.ErrNotInstalled
	}
	status := winservice.Status{State: "STOPPED", CommandLine: `"` + c.Executable + `" ` + strings.Join(c.Arguments, " ")}
	if s.running[name] != "" {
		status.State = "RUNNING"
	}
	return status, nil
}

// machine is a VM.
type machine struct {
	t        *testing.T
	root     string
	services *services
	out      bytes.Buffer
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	return &machine{t: t, root: filepath.Join(t.TempDir(), "a VM ä"), services: newServices(t)}
}

// setup returns the setup of a version whose package has been unpacked.
func (m *machine) setup(version string) *Setup {
	return &Setup{
		Package:  filepath.Join(m.root, "Microsoft.CPlat.Core.VMApplicationManagerWindows", "spotworker", version),
		Programs: filepath.Join(m.root, "Program Files", "spotworker"), Data: filepath.Join(m.root, "ProgramData", "spotworker"),
		Services: m.services, Protect: func(path string, _ winservice.Access) error { _, err := os.Stat(path); return err },
		DrainBudget: func([]winservice.Variable) (time.Duration, error) { return time.Second, nil },
		Out:         &m.out, Patience: 100 * time.Millisecond,
	}
}

// unpack puts a version's package and configuration into its folder.
func (m *machine) unpack(version, settings string) *Setup {
	m.t.Helper()
	s := m.setup(version)
	files := map[string]string{Executable: "worker " + version, kindsFile: "{}", "handlers/data/numbers": "1 2 3"}
	var sums strings.Builder
	for name, text := range files {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256([]byte(text)), name)
	}
	files[SumsFile], files[ReleaseFile] = sums.String(), fmt.Sprintf("RELEASE=%s-abc\nARCHITECTURE=%s\n", version, runtime.GOARCH)
	files["stdout"] = "what the command printed"
	if settings != "" {
		files[ConfigurationFile] = settings
	}
	for name, text := range files {
		m.write(filepath.Join(s.Package, filepath.FromSlash(name)), text)
	}
	return s
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// settings is a worker.env with more lines.
func settings(lines ...string) string {
	return strings.Join(append(append([]string{"SPOTWORKER_ACCOUNT=acct"}, lines...), LastLine, ""), "\r\n")
}

// checkRunning checks that exactly these services run this version, with its
// settings, and that no other release and no leftover is there.
func (m *machine) checkRunning(version string, names ...string) {
	m.t.Helper()
	s := m.setup(version)
	if len(m.services.running) != len(names) || len(m.services.installed) != len(names) {
		m.t.Errorf("services %v are there and %v run, want %v", m.services.installed, m.services.running, names)
	}
	for _, name := range names {
		if got, want := m.services.running[name], s.executable(version+"-abc"); got != want {
			m.t.Errorf("service %s runs %q, want %q", name, got, want)
		}
	}
	var there []string
	entries, err := os.ReadDir(s.Programs)
	m.must(err)
	for _, entry := range entries {
		there = append(there, entry.Name())
	}
	if want := []string{version + "-abc", startedName}; !slices.Equal(there, want) {
		m.t.Errorf("%s has %q, want %q", s.Programs, there, want)
	}
	if text, err := os.ReadFile(s.started()); string(text) != version+"-abc" {
		m.t.Errorf("%s has %q, %v", s.started(), text, err)
	}
	if _, err := os.Stat(s.data(backupName)); err == nil {
		m.t.Error("the backup of the configuration was left")
	}
}

func (m *machine) checkSettings(want string) {
	m.t.Helper()
	if got, err := os.ReadFile(m.setup("x").data(ConfigurationFile)); string(got) != want {
		m.t.Errorf("worker.env = %q, %v, want %q", got, err, want)
	}
}

func TestLife(t *testing.T) {
	m, ctx := newMachine(t), t.Context()
	first := m.unpack("1.0.0", settings())
	m.must(first.Install(ctx))
	m.checkRunning("1.0.0", Service)
	release := first.release("1.0.0-abc")
	variables, err := winservice.ReadEnvironment(filepath.Join(release, "package.env"))
	m.must(err)
	want := []winservice.Variable{
		{Name: "SPOTWORKER_SCRATCH", Value: first.data("scratch")},
		{Name: "SPOTWORKER_KINDS_FILE", Value: filepath.Join(release, "handlers", "kinds.json")},
	}
	if !slices.Equal(variables, want) {
		t.Errorf("package.env = %q, want %q", variables, want)
	}

	// The same again neither stops nor restarts anything.
	starts, calls := m.services.starts, len(m.services.calls)
	m.must(first.Install(ctx))
	if m.services.starts != starts || slices.Contains(m.services.calls[calls:], "stop "+Service) {
		t.Errorf("the same installation again made the calls %v", m.services.calls[calls:])
	}

	second := m.unpack("1.0.1", settings("SPOTWORKER_CONCURRENCY=2"))
	m.must(second.Update(ctx))
	m.checkRunning("1.0.1", Service)
	m.checkSettings(settings("SPOTWORKER_CONCURRENCY=2"))
	if _, err := os.Stat(filepath.Join(first.Package, Executable)); err == nil {
		t.Error("the package of the version before was left")
	}
	if _, err := os.Stat(filepath.Join(first.Package, "stdout")); err != nil {
		t.Errorf("what the command of the version before printed: %v", err)
	}
	m.must(m.unpack("1.0.0", settings()).Update(ctx)) // back to the older one
	m.checkRunning("1.0.0", Service)

	// A version without a configuration keeps the one there is.
	m.must(m.unpack("1.0.2", "").Update(ctx))
	m.checkRunning("1.0.2", Service)
	m.checkSettings(settings())

	// Several workers, then fewer, then one.
	for _, row := range []struct {
		instances string
		names     []string
	}{
		{"3", []string{Service + "-0", Service + "-1", Service + "-2"}},
		{"2", []string{Service + "-0", Service + "-1"}},
		{"1", []string{Service}},
	} {
		s := m.unpack("2.0."+row.instances, settings("SPOTWORKER_INSTANCES="+row.instances))
		m.must(s.Update(ctx))
		m.checkRunning("2.0."+row.instances, row.names...)
	}

	m.must(m.setup("2.0.1").Remove(ctx))
	for _, folder := range []string{"Program Files", "ProgramData"} {
		if entries, err := os.ReadDir(filepath.Join(m.root, folder)); err != nil || len(entries) > 0 {
			t.Errorf("%s has %v after the removal, %v", folder, entries, err)
		}
	}
	if len(m.services.installed) > 0 {
		t.Errorf("services %v are left", m.services.installed)
	}
	m.must(m.setup("2.0.1").Remove(ctx)) // of nothing
}

// An update that does not start leaves the version before as it was.
func TestUpdateIsUndone(t *testing.T) {
	for exit, config := range map[string]bool{"78": true, "1": false} {
		t.Run(exit, func(t *testing.T) {
			m := newMachine(t)
			m.must(m.unpack("1.0.0", settings()).Install(t.Context()))
			err := m.unpack("1.0.1", settings("FAIL="+exit)).Update(t.Context())
			if _, ok := errors.AsType[*ConfigurationError](err); err == nil || ok != config {
				t.Fatalf("Update = %v, want a configuration error: %t", err, config)
			}
			for _, want := range []string{"exit code " + exit, "it is broken", "1.0.0-abc was restored, and runs"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Update = %v, want %q in it", err, want)
				}
			}
			if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("Update = %q, want neither a program's text nor control characters", err)
			}
			m.checkRunning("1.0.0", Service)
			m.checkSettings(settings())
			m.must(m.unpack("1.0.2", settings()).Update(t.Context()))
			m.checkRunning("1.0.2", Service)
		})
	}
}

// A fault of a package or a configuration is found before anything changes.
func TestRefused(t *testing.T) {
	for name, row := range map[string]struct {
		settings string
		damage   func(m *machine, s *Setup)
		want     string
		config   bool
	}{
		"no configuration":  {"", nil, "no worker.env came with this version", true},
		"an empty one":      {"\r\n", nil, "worker.env arrived empty", true},
		"a truncated one":   {"SPOTWORKER_ACCOUNT=acct\r\nSPOTWOR", nil, "worker.env is cut off", true},
		"a line":            {settings("SPOTWORKER_ACCOUNT"), nil, "line 2 of worker.env is not NAME=VALUE", true},
		"too many workers":  {settings("SPOTWORKER_INSTANCES=5"), nil, "give 1 to 4", true},
		"no number of them": {settings("SPOTWORKER_INSTANCES=many"), nil, "give 1 to 4", true},
		"a worker that is cut": {settings(), func(m *machine, s *Setup) { m.write(filepath.Join(s.Package, Executable), "wor") },
			"the package is damaged", false},
		"a missing file": {settings(),
			func(m *machine, s *Setup) { m.must(os.Remove(filepath.Join(s.Package, "handlers", "kinds.json"))) }, "the package is damaged", false},
		"no sums": {settings(), func(m *machine, s *Setup) { m.must(os.Remove(filepath.Join(s.Package, SumsFile))) },
			"the package is damaged", false},
		"a sum of another file": {settings(), func(m *machine, s *Setup) { m.write(filepath.Join(s.Package, SumsFile), "00  ../../x\n") },
			"a line that is none", false},
		"another processor": {settings(), func(m *machine, s *Setup) {
			m.write(filepath.Join(s.Package, ReleaseFile), "RELEASE=x\nARCHITECTURE=riscv\n")
		}, "is for riscv", false},
		"a release elsewhere": {settings(), func(m *machine, s *Setup) {
			m.write(filepath.Join(s.Package, ReleaseFile), "RELEASE=..\nARCHITECTURE="+runtime.GOARCH+"\n")
		}, "damaged", false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			if row.settings != "" {
				m.must(m.unpack("0.9.0", settings("A=1")).Install(t.Context()))
			}
			calls := len(m.services.calls)
			s := m.unpack("1.0.0", row.settings)
			if row.damage != nil {
				row.damage(m, s)
			}
			err := s.Update(t.Context())
			if _, ok := errors.AsType[*ConfigurationError](err); err == nil || ok != row.config || !strings.Contains(err.Error(), row.want) {
				t.Errorf("Update = %v, want an error with %q, of the configuration: %t", err, row.want, row.config)
			}
			if len(m.services.calls) != calls {
				t.Errorf("calls %v before the refusal", m.services.calls[calls:])
			}
			if row.settings != "" {
				m.checkRunning("0.9.0", Service)
			}
		})
	}
}

// A power cut at any call of the service manager leaves something that the next
// boot, or the next version, makes whole.
func TestPowerCuts(t *testing.T) {
	whole := newMachine(t)
	whole.must(whole.unpack("1.0.0", settings()).Install(t.Context()))
	before := len(whole.services.calls)
	whole.must(whole.unpack("1.0.1", settings("A=1")).Update(t.Context()))
	for i, call := range whole.services.calls[before:] {
		t.Run(fmt.Sprint(i, " ", call), func(t *testing.T) {
			m := newMachine(t)
			m.must(m.unpack("1.0.0", settings()).Install(t.Context()))
			s := m.unpack("1.0.1", settings("A=1"))
			m.services.cut = call
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the call was not made")
					}
				}()
				_ = s.Update(t.Context())
			}()
			m.services.cut = ""
			clear(m.services.running) // and the boot starts the installed services
			for name := range m.services.installed {
				if name != ResumeService {
					m.must(m.services.Start(t.Context(), name))
				}
			}
			m.must(s.Install(t.Context()))
			m.checkRunning("1.0.1", Service)
			m.checkSettings(settings("A=1"))
		})
	}
}

// A step is tried again while another program holds a file open.
func TestInsist(t *testing.T) {
	s, tries := &Setup{Patience: time.Second}, 0
	err := s.insist(t.Context(), func() error {
		if tries++; tries < 3 {
			return errors.New("it is being used by another process")
		}
		return nil
	})
	if err != nil || tries != 3 {
		t.Errorf("insist = %v after %d tries, want success at the third", err, tries)
	}
	s.Patience, tries = 0, 0
	if err := s.insist(t.Context(), func() error { tries++; return errors.New("in use") }); err == nil || tries != 1 {
		t.Errorf("insist = %v after %d tries, want the error of one", err, tries)
	}
}
