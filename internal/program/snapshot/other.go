//go:build !linux

package snapshot

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"time"

	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/program/snapshot/machine"
)

var errSystem = errors.New("process snapshots take Linux: CRIU exists for no other system; run the worker there")

// ErrLost does not occur here.
var ErrLost = errors.New("criu did not end in time")

// Find fails here.
func Find() (string, error) { return "", errSystem }

// Check fails here.
func Check(context.Context, string, string, *sandbox.User) (machine.Facts, error) {
	return machine.Facts{}, errSystem
}

// Config describes the program of a session.
type Config struct {
	CRIU, Job, Inputs string
	Restored          string
	Meta              *Meta
	Limit             time.Duration
}

// Session is not available here.
type Session struct{}

// NewSession fails here.
func NewSession(Config, *exec.Cmd) (*Session, error) { return nil, errSystem }

// Begin fails here.
func (*Session) Begin(context.Context) error { return errSystem }

// Take fails here.
func (*Session) Take(context.Context, string, bool) (time.Duration, error) { return 0, errSystem }

// Close does nothing.
func (*Session) Close() {}

func makeNode(*os.Root, string, fs.FileMode) error { return errSystem }
