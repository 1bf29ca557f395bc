package runtimedir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// MaxWorkers is the most workers on one VM. Each polls once a second, and of the
// five requests that the metadata service answers one is left for the rest.
const MaxWorkers = 4

// instanceForm is what a name of an instance may be. It is a part of a blob's
// name, from which a dash sets it off.
var instanceForm = regexp.MustCompile(`^[A-Za-z0-9_]{1,32}$`)

// ValidateInstance says what is wrong with the name of an instance, or returns
// nil.
func ValidateInstance(name string) error {
	if !instanceForm.MatchString(name) {
		return fmt.Errorf("instance %q: give 1 to 32 letters, digits or underscores, such as 0", name)
	}
	return nil
}

// ErrUnsupported is the error of [Open] on a system without the locks it needs.
var ErrUnsupported = errors.New("several workers on one VM are not supported on this system; run one, without a runtime folder")

// InUseError says that a worker with this instance name runs on this VM already.
type InUseError struct{ Path, Instance string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("another worker on this VM runs as instance %s (it holds %s): give each worker a name of its own with --instance",
		e.Instance, filepath.Join(e.Path, instancePrefix+e.Instance))
}

// FullError says that there are [MaxWorkers] on this VM already.
type FullError struct{ Running []string }

func (e *FullError) Error() string {
	return fmt.Sprintf("%d workers run on this VM already (instances %s), and there may be no more: each polls for evictions once a second, "+
		"and the metadata service answers 5 requests a second. Give those that run more jobs with --concurrency",
		len(e.Running), strings.Join(e.Running, ", "))
}

// UnsafeError says that another user can replace files in the folder: a link
// there would make this worker write wherever the link leads.
type UnsafeError struct{ Path, Problem string }

func (e *UnsafeError) Error() string {
	return fmt.Sprintf("runtime folder %s %s, so another user could make this worker overwrite files: "+
		"give --runtime-dir a folder that this worker's user alone may write", e.Path, e.Problem)
}

// Config says whose folder it is.
type Config struct {
	// Path is the folder. It is made if it is not there.
	Path string

	// Instance is this worker's name, the only one of that name on this VM.
	Instance string

	// Boot tells one start of the machine from the next; empty if not known.
	Boot string

	// Clock is the time since some moment that is the same for all processes of
	// the machine, and that nobody sets. Default: the kernel's.
	Clock func() time.Duration

	// Log gets a line when the folder cannot be used. Default: none.
	Log *slog.Logger
}

// Dir is one worker's place in the folder.
type Dir struct {
	Config
	budget   *budget
	instance *lock
	place    *lock
	number   int // of the place
}

const (
	workersFile    = "workers"
	instancePrefix = "instance-"
	placePrefix    = "place-"
	workPrefix     = "work-"
)

// Open takes the instance's place. Its error says what to change; it may be an
// [InUseError], a [FullError] or [ErrUnsupported].
func Open(ctx context.Context, c Config) (*Dir, error) {
	if err := ValidateInstance(c.Instance); err != nil {
		return nil, err
	}
	if c.Clock == nil {
		c.Clock = sinceBoot
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(c.Path, 0o700); err != nil {
		return nil, fmt.Errorf("runtime folder: %w", err)
	}
	if err := checkOwner(c.Path); err != nil {
		return nil, err
	}
	d := &Dir{Config: c}
	d.budget = newBudget(d)
	if err := d.exclusively(ctx, d.enter); err != nil {
		return nil, err
	}
	return d, nil
}

// Place is a number from 0 to [MaxWorkers] - 1 that no other worker of this VM has
// while this one runs. A worker that is started again may get another.
func (d *Dir) Place() int { return d.number }

// Close gives the place back.
func (d *Dir) Close() {
	d.place.release()
	d.instance.release()
}

// enter takes the place, if there is one. The caller holds workersFile.
func (d *Dir) enter() error {
	running, err := d.held(instancePrefix)
	if err != nil {
		return err
	}
	own, err := take(d.file(instancePrefix + d.Instance))
	switch {
	case errors.Is(err, errHeld):
		return &InUseError{Path: d.Path, Instance: d.Instance}
	case err != nil:
		return fmt.Errorf("runtime folder: %w", err)
	case len(running) >= MaxWorkers:
		own.release()
		return &FullError{Running: running}
	}
	if err := d.takePlace(); err != nil {
		own.release()
		return err
	}
	d.instance = own
	own.write([]byte(strconv.Itoa(os.Getpid()) + "\n")) // for people
	return nil
}

// takePlace takes the first number that is free.
func (d *Dir) takePlace() error {
	for n := range MaxWorkers {
		place, err := take(d.file(placePrefix + strconv.Itoa(n)))
		switch {
		case err == nil:
			d.place, d.number = place, n
			return nil
		case !errors.Is(err, errHeld):
			return fmt.Errorf("runtime folder: %w", err)
		}
	}
	return errors.New("runtime folder: every place is taken") // not while fewer instances run
}

// held returns the names of the instances that hold a file with that prefix.
func (d *Dir) held(prefix string) ([]string, error) {
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return nil, fmt.Errorf("runtime folder: %w", err)
	}
	var names []string
	for _, entry := range entries {
		name, ok := strings.CutPrefix(entry.Name(), prefix)
		if !ok {
			continue
		}
		switch free, err := isFree(d.file(entry.Name())); {
		case err != nil:
			return nil, fmt.Errorf("runtime folder: %w", err)
		case !free:
			names = append(names, name)
		}
	}
	return names, nil
}

// exclusively calls f while no other worker looks at the others or at the events.
func (d *Dir) exclusively(ctx context.Context, f func() error) error {
	l, err := takeWithin(ctx, d.file(workersFile), lockPatience)
	if err != nil {
		return fmt.Errorf("runtime folder: %w", err)
	}
	defer l.release()
	return f()
}

func (d *Dir) file(name string) string { return filepath.Join(d.Path, name) }
