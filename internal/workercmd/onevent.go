package workercmd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/telemetry/hook"
)

// webhookSecret is the variable with the secret that signs the requests of --on-event. There
// is no flag for it: other users of a machine see arguments.
const webhookSecret = "SPOTWORKER_ON_EVENT_SECRET" //nolint:gosec // its name

// identifiedLog returns a log whose lines name the worker, and which passes events to the
// receiver of --on-event. closeLog ends the receiver.
func (f *flags) identifiedLog(log *slog.Logger, id *identity) (identifiedLog *slog.Logger, closeLog func(), err error) {
	plain := slog.New(identified{log.Handler(), id})
	h, err := f.hook(plain)
	switch {
	case err != nil:
		return nil, nil, &cli.ConfigError{Err: err}
	case h == nil:
		return plain, func() {}, nil
	}
	return slog.New(identified{h.Handler(log.Handler()), id}), h.Close, nil
}

// hook returns what passes events on, nil without --on-event.
func (f *flags) hook(log *slog.Logger) (*hook.Hook, error) {
	switch {
	case hook.IsURL(f.OnEvent):
		return f.webhook(log)
	case f.OnEventTemplate != "" || f.OnEventSecretFile != "":
		return nil, errors.New("--on-event-template and --on-event-secret-file need a URL in --on-event")
	case f.OnEvent == "":
		return nil, nil //nolint:nilnil // see above
	}
	h, err := hook.Program(f.OnEvent, log)
	if err != nil {
		return nil, fmt.Errorf("--on-event cannot run its program: %w", err)
	}
	return h, nil
}

func (f *flags) webhook(log *slog.Logger) (*hook.Hook, error) {
	c := hook.WebhookConfig{URL: f.OnEvent, Secret: os.Getenv(webhookSecret)}
	if c.Secret != "" && f.OnEventSecretFile != "" {
		return nil, fmt.Errorf("--on-event-secret-file and %s both give a secret: set one of them", webhookSecret)
	}
	var err error
	if f.OnEventSecretFile != "" {
		if c.Secret, err = readSmall(f.OnEventSecretFile); err != nil {
			return nil, fmt.Errorf("--on-event-secret-file: %w", err)
		}
	}
	if f.OnEventTemplate != "" {
		if c.Template, err = readSmall(f.OnEventTemplate); err != nil {
			return nil, fmt.Errorf("--on-event-template: %w", err)
		}
	}
	h, err := hook.Webhook(c, log)
	if err != nil {
		return nil, fmt.Errorf("--on-event: %w", err)
	}
	return h, nil
}

// readSmall reads a file of settings, which must not be empty.
func readSmall(path string) (string, error) {
	const most = 64 << 10
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular() || info.Size() > most:
		return "", fmt.Errorf("%s is no file of %d KiB at most", path, most>>10)
	}
	text, err := os.ReadFile(path)
	if err == nil && strings.TrimSpace(string(text)) == "" {
		err = fmt.Errorf("%s is empty", path)
	}
	return string(text), err
}
