package lab

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spotworker/spotworker/internal/program"
	"github.com/spotworker/spotworker/internal/program/scratch"
)

// CheckSnapshots returns an error if this machine cannot freeze programs. The error says in one
// line why, and what to do. Files are below folder while it checks.
func CheckSnapshots(ctx context.Context, folder string) error {
	folders, err := scratch.Open(folder, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	err = program.CheckSnapshots(ctx, []program.Kind{{Snapshot: true}}, folders)
	if reason := errors.Unwrap(err); reason != nil { // without the kind
		err = reason
	}
	return errors.Join(err, folders.Close())
}
