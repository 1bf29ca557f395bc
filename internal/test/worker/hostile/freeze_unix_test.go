//go:build unix

package hostile

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// The frozen process runs jobs that work for frozenWork, and is frozen for longer than any
// limit allows.
const (
	frozenVariable = "HOSTILE_TEST_FROZEN"
	frozenWork     = 1500 * time.Millisecond
	frozenFor      = 8 * time.Second
	frozenMark     = "all jobs run"
)

var frozenLimits = map[string]job.Limits{
	"run":     {MaxRun: 7 * time.Second},
	"silence": {MaxSilence: 6 * time.Second},
}

// TestFrozenProcess: the time for which the process of a worker is frozen, as with its VM
// in maintenance, is neither run time nor silence of its jobs. Both a clock that stands and
// ticks that do not come have to be real, so a process of its own gets SIGSTOP.
func TestFrozenProcess(t *testing.T) {
	if os.Getenv(frozenVariable) != "" {
		rig.RunInRealTime(t, runWhileFrozen)
		return
	}
	t.Parallel()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFrozenProcess$", "-test.v")
	c.Env = append(os.Environ(), frozenVariable+"=1")
	c.Stderr = os.Stderr
	output, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for scanner := bufio.NewScanner(output); scanner.Scan(); {
		lines = append(lines, scanner.Text())
		if !strings.Contains(scanner.Text(), frozenMark) {
			continue
		}
		if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(frozenFor)
		if err := c.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Wait(); err != nil {
		t.Errorf("the frozen process: %v\n%s", err, strings.Join(lines, "\n"))
	}
}

// runWhileFrozen is the frozen process.
func runWhileFrozen(t *testing.T, b *rig.Bed) {
	var started atomic.Int64
	work := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
		const steps = 15
		started.Add(1)
		for n := range steps {
			if !rig.SleepFor(ctx, frozenWork/steps) {
				return nil, context.Cause(ctx)
			}
			j.Report(job.Progress{State: []byte{byte(n)}, Fraction: float64(n) / steps})
		}
		return []byte("done"), nil
	})
	kinds := job.Kinds{}
	for kind, limits := range frozenLimits {
		kinds[kind] = job.WithLimits(work, limits)
		b.Put(kind, kind, "")
	}
	begun := time.Now()
	b.Start("vm_0", kinds)
	b.WaitFor("the start of all jobs", 20*time.Second, func() bool { return int(started.Load()) == len(kinds) })
	fmt.Println(frozenMark)
	b.WaitFor("the end of the jobs", time.Minute, func() bool {
		return b.Record("run").Status.Final() && b.Record("silence").Status.Final()
	})
	if took := time.Since(begun); took < frozenFor {
		t.Fatalf("the jobs ended after %s, before the end of the freeze", took)
	}
	for kind := range frozenLimits {
		r := b.Record(kind)
		if r.Status != checkpoint.Done || r.Generation != 1 || r.Failures != 0 {
			t.Errorf("%s: %s, generation %d, %d failures (%s), want done at once", kind, r.Status, r.Generation, r.Failures, r.Reason)
		}
		if r.RunTime > frozenWork+3*time.Second {
			t.Errorf("%s: run time %s, want that of its work, %s", kind, r.RunTime, frozenWork)
		}
	}
}
