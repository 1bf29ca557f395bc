package winservice

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/eventlog"
	"golang.org/x/sys/windows/svc/mgr"
)

const (
	// pollEvery is how often a state that has to change is read.
	pollEvery = 100 * time.Millisecond

	// recoveryReset is the time without a failure after which the delays of
	// recovery begin at the shortest again.
	recoveryReset = 10 * time.Minute
)

// Manager is a connection to the service manager.
type Manager struct{ handle windows.Handle }

// Open connects to the service manager, to look at services and to start and stop
// them.
func Open() (*Manager, error) { return open(windows.SC_MANAGER_CONNECT, "ask the service manager") }

// OpenToInstall connects to the service manager with the right to install services,
// which administrators have.
func OpenToInstall() (*Manager, error) {
	return open(windows.SC_MANAGER_CONNECT|windows.SC_MANAGER_CREATE_SERVICE, "install or remove a service")
}

func open(access uint32, what string) (*Manager, error) {
	handle, err := windows.OpenSCManager(nil, nil, access)
	if err != nil {
		return nil, explain(what, err)
	}
	return &Manager{handle: handle}, nil
}

// Close ends the connection.
func (m *Manager) Close() error { return windows.CloseServiceHandle(m.handle) }

func (m *Manager) service(name string, access uint32) (*mgr.Service, error) {
	text, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return nil, err
	}
	handle, err := windows.OpenService(m.handle, text, access)
	if err != nil {
		return nil, explain("open service "+name, err)
	}
	return &mgr.Service{Name: name, Handle: handle}, nil
}

// Install creates the service and its source in the event log, or changes them if
// they exist. A running service continues as it is until it is started again.
func (m *Manager) Install(c Config) error {
	settings := mgr.Config{
		ServiceType: windows.SERVICE_WIN32_OWN_PROCESS, StartType: mgr.StartAutomatic, ErrorControl: mgr.ErrorNormal,
		BinaryPathName: windows.ComposeCommandLine(append([]string{c.Executable}, c.Arguments...)),
		DisplayName:    "spotworker (" + c.Name + ")", ServiceStartName: c.account(),
		Description: "Does jobs from an Azure Storage queue, and hands them over when it stops or the VM is evicted.",
	}
	s, err := m.service(c.Name, windows.SERVICE_ALL_ACCESS)
	switch {
	case err == nil:
		err = change(s, settings)
	case errors.Is(err, ErrNotInstalled):
		s, err = (&mgr.Mgr{Handle: m.handle}).CreateService(c.Name, c.Executable, settings, c.Arguments...)
	}
	if err != nil {
		return explain("install service "+c.Name, err)
	}
	defer s.Close()
	if err := configure(s, c); err != nil {
		return explain("set up service "+c.Name, err)
	}
	return installEvents(c.Name)
}

// change changes an existing service. UpdateConfig of package mgr also changes
// settings that the worker does not use and not every Windows knows.
func change(s *mgr.Service, c mgr.Config) error {
	var texts [3]*uint16
	for i, text := range []string{c.BinaryPathName, c.ServiceStartName, c.DisplayName} {
		var err error
		if texts[i], err = syscall.UTF16PtrFromString(text); err != nil {
			return err
		}
	}
	return windows.ChangeServiceConfig(s.Handle, c.ServiceType, c.StartType, c.ErrorControl, texts[0], nil, nil, nil, texts[1], nil, texts[2])
}

// configure sets the settings that a service's creation does not set.
func configure(s *mgr.Service, c Config) error {
	var actions []mgr.RecoveryAction
	for _, delay := range recoveryDelays() {
		actions = append(actions, mgr.RecoveryAction{Type: mgr.ServiceRestart, Delay: delay})
	}
	if err := s.SetRecoveryActions(actions, uint32(recoveryReset.Seconds())); err != nil {
		return fmt.Errorf("recovery actions: %w", err)
	}
	timeout := milliseconds(c.preShutdown()) // SERVICE_PRESHUTDOWN_INFO
	err := windows.ChangeServiceConfig2(s.Handle, windows.SERVICE_CONFIG_PRESHUTDOWN_INFO, (*byte)(unsafe.Pointer(&timeout)))
	if err != nil {
		return fmt.Errorf("pre-shutdown time-out: %w", err)
	}
	return nil
}

// installEvents adds the source to the event log, with the message file that every
// Windows has: its messages are the whole text.
func installEvents(name string) error {
	_ = eventlog.Remove(name) // one of another version
	err := eventlog.InstallAsEventCreate(name, eventlog.Error|eventlog.Warning|eventlog.Info)
	if err != nil {
		return explain("add the source "+name+" to the event log", err)
	}
	return nil
}

// Uninstall removes the service and its source in the event log. It must have been
// stopped.
func (m *Manager) Uninstall(name string) error {
	s, err := m.service(name, windows.DELETE)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Delete(); err != nil {
		return explain("remove service "+name, err)
	}
	if err := eventlog.Remove(name); err != nil && !errors.Is(err, windows.ERROR_FILE_NOT_FOUND) {
		return explain("remove the source "+name+" from the event log", err)
	}
	return nil
}

// Start starts the service and waits until its worker has read its configuration
// and listens. The error is a [StartError] if the service ended.
func (m *Manager) Start(ctx context.Context, name string) error {
	s, err := m.service(name, windows.SERVICE_START|windows.SERVICE_QUERY_STATUS|windows.SERVICE_QUERY_CONFIG)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Start(); err != nil && !errors.Is(err, windows.ERROR_SERVICE_ALREADY_RUNNING) {
		return explain("start service "+name, err)
	}
	status, err := await(ctx, s, func(state Status) bool { return state.Running() || state.Stopped() })
	switch {
	case err != nil:
		return fmt.Errorf("start service %s: it is %s: %w", name, status.State, err)
	case status.Stopped():
		return &StartError{Name: name, Status: status}
	}
	return nil
}

// Stop stops the service, whose worker hands its jobs over, and waits for its end.
func (m *Manager) Stop(ctx context.Context, name string) error {
	s, err := m.service(name, windows.SERVICE_STOP|windows.SERVICE_QUERY_STATUS|windows.SERVICE_QUERY_CONFIG)
	if err != nil {
		return err
	}
	defer s.Close()
	for {
		_, err = s.Control(svc.Stop)
		switch {
		case err == nil, errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE):
		case errors.Is(err, windows.ERROR_SERVICE_CANNOT_ACCEPT_CTRL):
			// It starts or stops just now.
			status, err := await(ctx, s, func(state Status) bool { return state.Running() || state.Stopped() })
			if err != nil {
				return fmt.Errorf("stop service %s: it is %s: %w", name, status.State, err)
			}
			if status.Running() {
				continue
			}
		default:
			return explain("stop service "+name, err)
		}
		break
	}
	if status, err := await(ctx, s, Status.Stopped); err != nil {
		return fmt.Errorf("stop service %s: it is %s: %w", name, status.State, err)
	}
	return nil
}

// await waits until the service's state is as wanted.
func await(ctx context.Context, s *mgr.Service, wanted func(Status) bool) (Status, error) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		status, err := query(s)
		if err != nil || wanted(status) {
			return status, err
		}
		select {
		case <-ctx.Done():
			return status, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// Status returns the service manager's information about the service.
func (m *Manager) Status(name string) (Status, error) {
	s, err := m.service(name, windows.SERVICE_QUERY_STATUS|windows.SERVICE_QUERY_CONFIG)
	if err != nil {
		return Status{}, err
	}
	defer s.Close()
	status, err := query(s)
	if err != nil {
		return status, explain("ask for the state of service "+name, err)
	}
	if status.CommandLine, status.Account, err = commandLine(s); err != nil {
		return status, explain("ask for the configuration of service "+name, err)
	}
	return status, nil
}

// commandLine returns the command line and the account of a service. The Config of
// package mgr asks for more, which not every Windows knows.
func commandLine(s *mgr.Service) (command, account string, err error) {
	for size := uint32(1 << 10); ; {
		data := make([]byte, size)
		config := (*windows.QUERY_SERVICE_CONFIG)(unsafe.Pointer(&data[0]))
		given := size
		err := windows.QueryServiceConfig(s.Handle, config, size, &size)
		switch {
		case err == nil:
			return windows.UTF16PtrToString(config.BinaryPathName), windows.UTF16PtrToString(config.ServiceStartName), nil
		case !errors.Is(err, windows.ERROR_INSUFFICIENT_BUFFER) || size <= given:
			return "", "", err
		}
	}
}

func query(s *mgr.Service) (Status, error) {
	status, err := s.Query()
	if err != nil {
		return Status{}, explain("ask for the state of service "+s.Name, err)
	}
	names := map[svc.State]string{
		svc.Stopped: stateStopped, svc.StartPending: "START_PENDING", svc.StopPending: "STOP_PENDING", svc.Running: stateRunning,
		svc.ContinuePending: "CONTINUE_PENDING", svc.PausePending: "PAUSE_PENDING", svc.Paused: "PAUSED",
	}
	return Status{
		State: names[status.State], ProcessID: status.ProcessId,
		ExitCode: status.Win32ExitCode, ServiceExit: status.ServiceSpecificExitCode,
	}, nil
}
