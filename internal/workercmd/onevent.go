package workercmd

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/telemetry/hook"
)

// identifiedLog returns a log whose lines name the worker, and which passes events to the
// program of --on-event. closeLog waits for the programs that run.
func (f *flags) identifiedLog(log *slog.Logger, id *identity) (identifiedLog *slog.Logger, closeLog func(), err error) {
	plain := slog.New(identified{log.Handler(), id})
	h, err := f.hook(plain)
	switch {
	case err != nil:
		return nil, nil, refused(err)
	case h == nil:
		return plain, func() {}, nil
	}
	return slog.New(identified{h.Handler(log.Handler()), id}), h.Close, nil
}

// hook returns what passes events on, nil without --on-event.
func (f *flags) hook(log *slog.Logger) (*hook.Hook, error) {
	switch {
	case f.OnEvent == "":
		return nil, nil //nolint:nilnil // see above
	case strings.Contains(f.OnEvent, "://"):
		return nil, errors.New("--on-event is an address, which may be a secret; it must be a program: " +
			"to post events, name a program that calls curl")
	}
	h, err := hook.Program(f.OnEvent, cli.FormatValue, log)
	if err != nil {
		return nil, fmt.Errorf("--on-event cannot run its program: %w", err)
	}
	return h, nil
}
