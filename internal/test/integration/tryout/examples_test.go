//go:build integration && unix

package tryout

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/labtest"
	"github.com/spotworker/spotworker/internal/lab/trial"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/repository"
)

// example is a kind of the folder examples, and a job for it.
type example struct {
	folder, kind string
	needs        string // a program without which it is skipped
	payload      string
	outputs      bool // its outputs are compared, too
	slowly       map[string]string
	prepare      func(t *testing.T, folder string)
}

var examples = []example{
	{folder: "training", kind: "train", needs: "python3", payload: `{"epochs": 900, "points": 800, "seed": 7}`},
	{folder: "training", kind: "sweep", needs: "python3",
		payload: `{"rate": [0.5, 0.8, 1.0, 1.2, 1.5], "damping": [0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6]}`},
	{folder: "chunks", kind: "chunks", needs: "gzip", payload: "numbers", outputs: true, slowly: map[string]string{"CHUNK": "100000",
		"PAUSE": "0.1"}, prepare: numbers},
	{folder: "logstats", kind: "logstats", needs: "python3", payload: `{"file": "access.log"}`, slowly: map[string]string{"PAUSE": "0.03"},
		prepare: accessLog},
	{folder: "checksums", kind: "checksums", needs: "cksum", payload: list(), slowly: map[string]string{"PAUSE": "0.1"}, prepare: listed},
	{folder: "ci", kind: "build", needs: "git", payload: "data/project HEAD", outputs: true, prepare: project},
	{folder: "matmul", kind: "matmul", needs: "cc", payload: "640 7", slowly: map[string]string{"PAUSE_MS": "250"}, prepare: compile},
}

// TestExamples tries each example with two evictions, with notice and without.
func TestExamples(t *testing.T) {
	for _, ex := range examples {
		t.Run(ex.kind, func(t *testing.T) {
			need.Command(t, ex.needs)
			t.Parallel()
			folder := t.TempDir()
			copyExample(t, ex.folder, folder)
			if ex.prepare != nil {
				ex.prepare(t, folder)
			}
			c := trial.DefaultConfig()
			c.KindsFile, c.Kind, c.Environment, c.Payload = filepath.Join(folder, "kinds.json"), ex.kind, ex.slowly, ex.payload
			c.Evictions = 2
			c.Timeout = 15 * time.Minute // a trial takes some five runs, and a busy machine a minute for each
			if ex.outputs {
				c.Compare = trial.CompareOutputs
			}
			var out labtest.Output
			report, err := trial.Run(t.Context(), c, &out)
			if err != nil || !report.Interruptible || len(report.Evictions) == 0 {
				t.Errorf("Run = %v, with %d evictions, want it to be interruptible\n%s", err, len(report.Evictions), out.String())
			}
		})
	}
}

// copyExample copies an example, with the helper for Python beside it as on a VM.
func copyExample(t *testing.T, name, to string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository.Root(t), "examples", name, "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	helper := os.DirFS(filepath.Join(repository.Root(t), "python", "spotworker"))
	if err := os.CopyFS(filepath.Join(to, "spotworker"), helper); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(file)), text, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func data(t *testing.T, folder, name string, content []byte) {
	t.Helper()
	file := filepath.Join(folder, "data", name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func numbers(t *testing.T, folder string) {
	var b bytes.Buffer
	for i := range 350_000 {
		fmt.Fprintln(&b, i)
	}
	data(t, folder, "numbers", b.Bytes())
}

func accessLog(t *testing.T, folder string) {
	var b bytes.Buffer
	for i := range 100_000 {
		fmt.Fprintf(&b, "10.0.0.%d - - [01/Jan/2026:00:00:00 +0000] \"GET /%d HTTP/1.1\" %d %d\n", i%256, i, 200+i%2*204, i%1000)
	}
	data(t, folder, "access.log", b.Bytes())
}

// listedFiles is how many files the list of the checksums has.
const listedFiles = 25

func list() string {
	var b strings.Builder
	for i := range listedFiles {
		fmt.Fprintf(&b, "file %d\n", i)
	}
	return b.String()
}

func listed(t *testing.T, folder string) {
	for i := range listedFiles {
		name := fmt.Sprintf("file %d", i)
		data(t, folder, name, []byte(strings.Repeat(name, 1000+i)))
	}
}

// project is a repository with four steps of a second and more.
func project(t *testing.T, folder string) {
	const steps = "seq 20000 >numbers; sleep 1.5\nsleep 1.5; sort -r numbers >sorted\nsleep 1.5; mkdir artifacts; cp sorted artifacts\n" +
		"sleep 1.5; cksum sorted >artifacts/sum\n"
	data(t, folder, "project/ci.steps", []byte(steps))
	for _, words := range [][]string{{"init", "-q"}, {"add", "ci.steps"},
		{"-c", "user.name=me", "-c", "user.email=me@example.com", "commit", "-q", "-m", "steps"}} {
		command := exec.CommandContext(t.Context(), "git", words...)
		command.Dir = filepath.Join(folder, "data", "project")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %q = %v: %s", words, err, out)
		}
	}
}

func compile(t *testing.T, folder string) {
	out, err := exec.CommandContext(t.Context(), "cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", "-o",
		filepath.Join(folder, "matmul"), filepath.Join(folder, "matmul.c")).CombinedOutput()
	if err != nil {
		t.Fatalf("cc = %v: %s", err, out)
	}
}
