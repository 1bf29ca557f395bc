package vmshare

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/text/lazyregexp"
)

// MaxWorkers is the largest number of workers on one VM. Each polls once a second, and the
// metadata service answers five requests, so that one is left for other uses.
const MaxWorkers = 4

// instanceForm is the form of an instance's name. The name becomes part of a blob's name,
// separated by a dash.
var instanceForm = lazyregexp.New(`^[A-Za-z0-9_]{1,32}$`)

// ValidateInstance returns an error for an invalid name of an instance.
func ValidateInstance(name string) error {
	if !instanceForm().MatchString(name) {
		return fmt.Errorf("instance %q: give 1 to 32 letters, digits or underscores, such as 0", name)
	}
	return nil
}

// ErrUnsupported is the error of [Open] on a system without the locks it needs.
var ErrUnsupported = errors.New("several workers on one VM are not supported on this system; run one, without a runtime folder")

// InUseError is the error of a second worker with the same instance name on this VM.
type InUseError struct{ Path, Instance string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("another worker on this VM runs as instance %s (it holds %s): give each worker a name of its own with --instance",
		e.Instance, filepath.Join(e.Path, instancePrefix+e.Instance))
}

// FullError is the error of a worker on a VM that already has [MaxWorkers].
type FullError struct{ Running []string }

func (e *FullError) Error() string {
	return fmt.Sprintf("%d workers run on this VM already (instances %s), and there may be no more: each polls for evictions once a second, "+
		"and the metadata service answers 5 requests a second. Give those that run more jobs with --concurrency",
		len(e.Running), strings.Join(e.Running, ", "))
}

// UnsafeError is the error of a folder in which another user can replace files: with a
// link, that user could make this worker overwrite any file.
type UnsafeError struct{ Path, Problem string }

func (e *UnsafeError) Error() string {
	return fmt.Sprintf("runtime folder %s %s, so another user could make this worker overwrite files: "+
		"give --runtime-dir a folder that this worker's user alone may write", e.Path, e.Problem)
}

// Config describes the folder and the worker.
type Config struct {
	// Path is the folder. It is made if necessary.
	Path string

	// Instance is this worker's name, which is unique on this VM.
	Instance string

	// Boot identifies the boot of the machine; empty if unknown.
	Boot string

	// Clock returns the time since some moment that is the same for all processes of the
	// machine. Default: the kernel's monotonic clock.
	Clock func() time.Duration

	// Log gets a warning when the folder cannot be used. Default: none.
	Log *slog.Logger
}

// Dir is the folder with one worker's locks in it.
type Dir struct {
	Config
	budget   *budget
	instance *lock
	place    *lock
	number   int // of the place
	opened   time.Time
}

const (
	workersFile    = "workers"
	instancePrefix = "instance-"
	placePrefix    = "place-"
	workPrefix     = "work-"
)

// Open registers the worker in the folder. The error says what to change; it may be an
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
	d := &Dir{Config: c, opened: time.Now()}
	d.budget = &budget{dir: d, own: preempt.NewBudget(ownMost, ownWindow)}
	if err := d.exclusively(ctx, d.enter); err != nil {
		return nil, err
	}
	return d, nil
}

// Place returns a number from 0 to [MaxWorkers] - 1 that no other worker of this VM has
// while this one runs. A restarted worker may get another one.
func (d *Dir) Place() int { return d.number }

// Lock takes a lock that one worker of this VM can have at a time, until release is called. It
// does not wait.
func (d *Dir) Lock(name string) (release func(), ok bool) {
	l, err := take(d.file(name))
	if err != nil {
		if !errors.Is(err, errHeld) {
			d.Log.Warn("a lock of the VM's workers cannot be taken: this worker does without what it guards", "file", d.file(name), "error", err)
		}
		return nil, false
	}
	return l.release, true
}

// Close releases the worker's locks. A nil *Dir has none.
func (d *Dir) Close() {
	if d == nil {
		return
	}
	d.place.release()
	d.instance.release()
}

// enter takes the locks of the instance and of a place. The caller holds workersFile.
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

// takePlace takes the first free place.
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

// held returns the names of the instances whose file with that prefix is locked. It removes
// the other files, since each pod has its own name and leaves its files behind. The caller
// holds workersFile, without which no worker takes a lock of that prefix.
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
		default:
			forget(d.file(entry.Name()))
		}
	}
	return names, nil
}

// forget removes the file of a lock that is free. A larger file than a process id is not
// from this package. After an error the next call tries again.
func forget(path string) {
	const most = 32
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() <= most {
		_ = os.Remove(path)
	}
}

// exclusively calls f under the lock that guards the list of workers and the events.
func (d *Dir) exclusively(ctx context.Context, f func() error) error {
	l, err := takeWithin(ctx, d.file(workersFile), lockTimeout)
	if err != nil {
		return fmt.Errorf("runtime folder: %w", err)
	}
	defer l.release()
	return f()
}

func (d *Dir) file(name string) string { return filepath.Join(d.Path, name) }
