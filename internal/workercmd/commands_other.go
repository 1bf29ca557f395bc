//go:build !windows

package workercmd

import (
	"fmt"

	"github.com/spotworker/spotworker/internal/cli"
)

// systemCommands returns the commands that only Windows has, with the way to do it here.
func systemCommands() map[string]func(Options) error {
	elsewhere := func(o Options) error {
		return &cli.ConfigError{Err: fmt.Errorf("worker %s is for Windows; here systemd runs the worker: docs/deploy.md says how",
			o.Arguments[0])}
	}
	return map[string]func(Options) error{"service": elsewhere, "package": elsewhere}
}
