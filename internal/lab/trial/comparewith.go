package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
)

// compareLimit bounds the command that compares two runs.
const compareLimit = time.Minute

// Names in the folder of a run that is to be compared.
const (
	comparedResult  = "result"  // a file; none for a job without a result
	comparedOutputs = "outputs" // a folder
)

// comparison returns the program and the arguments of --compare-with.
func (c Config) comparison() ([]string, error) {
	words := strings.Fields(c.CompareWith)
	if len(words) == 0 {
		return nil, errors.New("--compare-with is empty: give a command that compares two folders")
	}
	path, err := exec.LookPath(words[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return nil, fmt.Errorf("--compare-with: there is no program %s: %w", words[0], err)
	}
	words[0] = path
	return words, nil
}

// compareWith stores the result and outputs of a job, and lets the command compare them with
// those of the first job.
func (t *trial) compareWith(ctx context.Context, c *course) error {
	if t.config.CompareWith == "" || !c.Done {
		return nil
	}
	dir := filepath.Join(t.folder, "compare", t.jobID())
	if err := t.store(ctx, c, dir); err != nil {
		return fmt.Errorf("store the results to compare: %w", err)
	}
	if t.firstCompared == "" {
		t.firstCompared = dir
		return nil
	}
	words, err := t.config.comparison()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, compareLimit)
	defer cancel()
	words = append(words, t.firstCompared, dir)
	said, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput() //nolint:gosec // the person's own command
	if err == nil {
		return nil
	}
	if _, ended := errors.AsType[*exec.ExitError](err); !ended {
		return fmt.Errorf("--compare-with: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	c.Differs = fmt.Sprintf("--compare-with ended with %v: %s", err, show([]byte(lines[len(lines)-1])))
	return nil
}

// store writes the result and the outputs of the last job to a new folder.
func (t *trial) store(ctx context.Context, c *course, dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, comparedOutputs), 0o700); err != nil {
		return err
	}
	if len(c.Result) > 0 {
		if err := os.WriteFile(filepath.Join(dir, comparedResult), c.Result, 0o600); err != nil {
			return err
		}
	}
	files, err := t.rig.client.Outputs(ctx, t.jobID())
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := t.storeOutput(ctx, f, filepath.Join(dir, comparedOutputs, filepath.FromSlash(f.Path))); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) storeOutput(ctx context.Context, f client.Output, to string) error {
	content, err := t.rig.client.OpenOutput(ctx, f)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
