//go:build !windows

package winservice

import "context"

// Manager is a connection to the service manager. Elsewhere there is none.
type Manager struct{}

// Open returns [ErrNotWindows].
func Open() (*Manager, error) { return nil, ErrNotWindows }

// OpenToInstall returns [ErrNotWindows].
func OpenToInstall() (*Manager, error) { return nil, ErrNotWindows }

// Close does nothing.
func (*Manager) Close() error { return nil }

// Install returns [ErrNotWindows].
func (*Manager) Install(Config) error { return ErrNotWindows }

// Uninstall returns [ErrNotWindows].
func (*Manager) Uninstall(string) error { return ErrNotWindows }

// Start returns [ErrNotWindows].
func (*Manager) Start(context.Context, string) error { return ErrNotWindows }

// Stop returns [ErrNotWindows].
func (*Manager) Stop(context.Context, string) error { return ErrNotWindows }

// Status returns [ErrNotWindows].
func (*Manager) Status(string) (Status, error) { return Status{}, ErrNotWindows }

// Lock returns [ErrNotWindows].
func Lock(context.Context, string) (unlock func(), err error) { return nil, ErrNotWindows }

// Run returns [ErrNotWindows].
func Run(RunConfig) error { return ErrNotWindows }

// Protect returns [ErrNotWindows].
func Protect(string, Access) error { return ErrNotWindows }
