package mutation

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// outcome is how some tests of a binary ended.
type outcome struct {
	failed   bool
	timedOut bool
	said     string // the first test that failed, or the first line of a panic
	// took is the time of the last test, without the start of the process. It is 0 if the output
	// does not have it.
	took time.Duration
}

// timedOut is what the outcome says about tests that did not end in time.
const timedOut = "timed out"

// execute runs tests of a binary in a process of its own, with a temporary folder of its own,
// and ends the process with all its children after the limit.
func (b binary) execute(ctx context.Context, names []string, limit time.Duration, env ...string) (outcome, error) {
	temporary, err := os.MkdirTemp("", "m")
	if err != nil {
		return outcome{}, err
	}
	defer os.RemoveAll(temporary)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := []string{"-test.run", "^(" + strings.Join(names, "|") + ")$", "-test.failfast", "-test.timeout", "0", "-test.v"}
	cmd := exec.CommandContext(limited, b.path, args...) //nolint:gosec // the binary of build
	cmd.Dir = b.folder
	cmd.Env = append(os.Environ(), append(env, "TMPDIR="+temporary)...)
	var out start
	cmd.Stdout, cmd.Stderr = &out, &out
	group(cmd)
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return outcome{}, ctx.Err()
	case limited.Err() != nil:
		return outcome{failed: true, timedOut: true, said: timedOut}, nil
	case errors.Is(err, exec.ErrWaitDelay): // it passed, and has left a child
		_ = cmd.Cancel()
		return outcome{took: out.took()}, nil
	case err == nil:
		return outcome{took: out.took()}, nil
	case errors.As(err, &exit):
		return outcome{failed: true, said: out.reason()}, nil
	default:
		return outcome{}, err
	}
}

// inTime executes tests with a mutant. If they do not end within the limit, they run without it: if that
// takes as long, the machine is busy, the mutant may be no loop, and both get twice the time.
func inTime(limit time.Duration, execute func(limit time.Duration, env ...string) (outcome, error), mutant string) (outcome, error) {
	for {
		ended, err := execute(limit, mutant)
		if err != nil || !ended.timedOut {
			return ended, err
		}
		without, err := execute(limit)
		if err != nil || !without.timedOut {
			return ended, err
		}
		limit *= 2
	}
}

// start keeps the start of an output: a mutant may print for ever.
type start struct{ bytes.Buffer }

func (s *start) Write(text []byte) (int, error) {
	if room := 64<<10 - s.Len(); room > 0 {
		s.Buffer.Write(text[:min(room, len(text))])
	}
	return len(text), nil
}

var reasons = regexp.MustCompile(`(?m)^(?:--- FAIL: (\S+)|(panic: .*|fatal error: .*))`)

var passed = regexp.MustCompile(`(?m)^--- (?:PASS|SKIP): \S+ \(([0-9.]+s)\)$`)

func (s *start) took() time.Duration {
	found := passed.FindAllStringSubmatch(s.String(), -1)
	if len(found) == 0 {
		return 0
	}
	took, err := time.ParseDuration(found[len(found)-1][1])
	if err != nil {
		return 0
	}
	return max(took, time.Millisecond)
}

func (s *start) reason() string {
	found := reasons.FindStringSubmatch(s.String())
	if found == nil {
		return "failed without a name"
	}
	return found[1] + found[2]
}
