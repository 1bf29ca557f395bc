package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/lab/labworker"
	"github.com/spotworker/spotworker/internal/replay/lanes"
)

const mib = 1 << 20

// TestMain lets the test binary be the workers of a run.
func TestMain(m *testing.M) {
	labworker.WorkerMain()
	goleak.VerifyTestMain(m)
}

// smallDemo is a demo of three files without a kill, a freeze or a duplicate:
// their messages take half a minute to return.
func smallDemo(t *testing.T) Config {
	t.Helper()
	root := t.TempDir()
	for name, size := range map[string]int{"a": 15 * mib, "b": 13*mib + 1, "c": 12*mib - 1} {
		if err := os.WriteFile(filepath.Join(root, name), content(name, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", t.TempDir()) // where the demo keeps its logs
	c := DefaultConfig()
	c.Roots, c.Files, c.FileSize, c.Workers = []string{root}, 3, 13*mib, 2
	c.JobTime, c.TimeLimit, c.CheckpointInterval = 4*time.Second, 30*time.Second, 300*time.Millisecond
	c.Duplicate, c.Incidents = false, []Incident{Evict}
	return c
}

// content is content that differs from block to block, so that a range out of
// place gives another digest.
func content(seed string, size int) []byte {
	var out bytes.Buffer
	block := sha256.Sum256([]byte(seed))
	for out.Len() < size {
		out.Write(bytes.Repeat(block[:], 16))
		block = sha256.Sum256(block[:])
	}
	return out.Bytes()[:size]
}

// TestRun is a good run. A page that cannot be written is an error of it.
func TestRun(t *testing.T) {
	c, full := smallDemo(t), errors.New("disk full")
	var out, page bytes.Buffer
	var story lanes.Story
	c.Told = func(s lanes.Story) error {
		story = s
		return errors.Join(s.Page(&page), full)
	}
	if err := Run(t.Context(), c, &out); !errors.Is(err, full) || errors.Is(err, ErrBroken) {
		t.Fatalf("Run = %v, want the error of the page alone\n%s", err, out.String())
	}
	for _, want := range []string{
		`3 jobs, 40\.0 MiB of 3 real files, on 3 VMs; 1 eviction with notice, 0 kills,`,
		`Eviction notice: spot_\d will be evicted`,
		`spot_\d resumes \w of spot_\d at `,
		`spot_\d moved archive.tar to the poison queue`,
		`jobs committed +3  3 +ok`,
		`job whose blob is missing +kept  kept +ok`,
		`envelope of an unknown version +kept  kept +ok`,
		`plain text, no envelope +kept  kept +ok`,
		`stale writes that took effect +0  0 +ok`,
		`hashed twice after a notice +0 B  0 B +ok`,
		`every promise was kept`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("demo does not say %q:\n%s", want, out.String())
		}
	}
	released := 0
	for _, job := range story.Jobs {
		for n, run := range job.Runs {
			if run.End == lanes.Released && n+1 < len(job.Runs) && story.VMs[run.VM].Fate == lanes.Evicted {
				released++
			}
		}
		if job.Done == 0 {
			t.Errorf("%s has no result in the story", job.Name)
		}
	}
	if len(story.VMs) != 3 || len(story.Jobs) != 3 || released == 0 {
		t.Errorf("story of %d VMs and %d jobs with %d releases, want 3, 3 and at least one", len(story.VMs), len(story.Jobs), released)
	}
	if !strings.Contains(page.String(), "3 jobs on 3 Spot VMs: 1 evicted") || !strings.Contains(page.String(), "0 redone after a notice") {
		t.Errorf("page:\n%s", page.String())
	}
}

func TestRunOverItsTimeLimit(t *testing.T) {
	c := smallDemo(t)
	c.JobTime, c.TimeLimit = time.Hour, time.Millisecond
	var out bytes.Buffer
	err := Run(t.Context(), c, &out)
	if !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "time limit was exceeded before all jobs were on the queue") {
		t.Errorf("Run within a millisecond = %v, want ErrBroken for the time limit", err)
	}
	for c.TimeLimit = 3 * time.Second; ; c.TimeLimit *= 4 { // for a slow machine
		out.Reset()
		if err = Run(t.Context(), c, &out); c.TimeLimit > time.Minute || err == nil || !strings.Contains(err.Error(), "before all jobs") {
			break
		}
	}
	if !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "time limit") {
		t.Errorf("Run = %v, want ErrBroken for the time limit", err)
	}
	for _, want := range []string{`jobs committed +\d  3 +BROKEN`, `not committed: .*/a: `} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("table does not say %q:\n%s", want, out.String())
		}
	}
	logs, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "spotworker-lab-*", "spot_1.log"))
	if len(logs) != 1 || !strings.Contains(out.String(), filepath.Dir(logs[0])) {
		t.Errorf("logs kept: %q, want spot_1.log in a folder that is named:\n%s", logs, out.String())
	}
}

func TestRunInterrupted(t *testing.T) {
	c := smallDemo(t)
	ctx, cancel := context.WithCancel(t.Context())
	out := &onText{text: "started", then: cancel}
	if err := Run(ctx, c, out); !errors.Is(err, errInterrupted) {
		t.Errorf("Run = %v, want errInterrupted\n%s", err, out.String())
	}
	if strings.Contains(out.String(), "promise") {
		t.Errorf("an interrupted demo prints a table:\n%s", out.String())
	}
	if left := leftBehind(t); len(left) != 0 {
		t.Errorf("interrupted demo left %q behind", left)
	}
}

func leftBehind(t *testing.T) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// onText is an output that acts when a text has been written to it.
type onText struct {
	bytes.Buffer
	text string
	then func()
}

func (o *onText) Write(p []byte) (int, error) {
	n, err := o.Buffer.Write(p)
	if strings.Contains(o.String(), o.text) {
		o.then()
	}
	return n, err
}
