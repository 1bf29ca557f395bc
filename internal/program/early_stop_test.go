//go:build unix

package program

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/job"
)

// stops is how often each documented program is stopped in TestEarlyStops.
var stops = flag.Int("stops", proof.Times(2, 6), "how often TestEarlyStops stops each documented program")

// documented is a program of docs/jobs.md or of the folder examples.
type documented struct {
	name     string
	needs    string   // a program without which it is skipped
	commands []string // that a shell program starts
	payload  string
	saved    string            // a checkpoint from the middle of the job, or
	slowly   map[string]string // environment that leaves time for a stop to make one
	prepare  func(t *testing.T, folder string)
}

var allDocumented = []documented{
	{name: "python", needs: "python3", payload: "[1,2,4,8,16,32,64,128]", saved: `{"next": 3, "sum": 7}`},
	{
		name: "sh", needs: "sh", payload: "a\nb\nc\nd\ne\nf\n", saved: "A\nB\nC\n",
		commands: []string{"cp", "wc", "tail", "tr", "mv"},
	},
	{
		name: "logstats", needs: "python3", payload: `{"file":"access.log"}`, slowly: map[string]string{"PAUSE": "0.5"},
		prepare: func(t *testing.T, folder string) {
			var log strings.Builder
			for i := range 20_000 {
				fmt.Fprintf(&log, "10.0.0.1 - - [01/Jan/2026:00:00:00 +0000] \"GET /%d HTTP/1.1\" %d %d\n", i, 200+i%2*204, i%1000)
			}
			putData(t, folder, map[string]string{"access.log": log.String()})
		},
	},
	{
		name: "checksums", needs: "cksum", payload: "a\nb\nc\nd\ne\nf\ng\nh\n", slowly: map[string]string{"PAUSE": "1"},
		commands: []string{"cp", "wc", "tail", "cksum", "mv", "awk", "sleep"},
		prepare: func(t *testing.T, folder string) {
			files := map[string]string{}
			for name := range strings.FieldsSeq("a b c d e f g h") {
				files[name] = strings.Repeat(name, 1000)
			}
			putData(t, folder, files)
		},
	},
	{
		name: "matmul", needs: "cc", payload: "384 7", slowly: map[string]string{"PAUSE_MS": "1000"},
		prepare: func(t *testing.T, folder string) {
			out, err := exec.CommandContext(t.Context(), "cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2",
				"-o", filepath.Join(folder, "matmul"), filepath.Join(folder, "matmul.c")).CombinedOutput()
			if err != nil {
				t.Fatalf("cc = %v: %s", err, out)
			}
		},
	},
}

func putData(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(folder, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, "data", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// kind is the program as a reader of its documentation runs it.
func (d *documented) kind(t *testing.T) Kind {
	t.Helper()
	need.Command(t, d.needs)
	folder := t.TempDir()
	if d.prepare == nil {
		code := documentedCode(t, d.name)
		if err := os.WriteFile(filepath.Join(folder, "program"), []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		return Kind{Name: "test", Command: []string{interpreterNamed(t, d.needs), filepath.Join(folder, "program")}}
	}
	copied := withoutForks(func() error {
		return errors.Join(os.CopyFS(filepath.Join(folder, "spotworker"), os.DirFS(filepath.Join("..", "..", "python", "spotworker"))),
			os.CopyFS(folder, os.DirFS(filepath.Join("..", "..", "examples", d.name))))
	})
	if copied != nil {
		t.Fatal(copied)
	}
	d.prepare(t, folder)
	if d.needs == "cksum" {
		if err := os.Chmod(filepath.Join(folder, "checksums.sh"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	kinds, err := ReadKinds(filepath.Join(folder, "kinds.json"))
	if err != nil {
		t.Fatal(err)
	}
	if d.needs == "python3" {
		kinds[0].Command[0] = interpreterNamed(t, d.needs)
	}
	return kinds[0]
}

// documentedCode returns the program in a language that docs/jobs.md shows.
func documentedCode(t *testing.T, language string) string {
	t.Helper()
	_, code, ok := strings.Cut(section(t, manual(t), "What a program does"), "\n```"+language+"\n")
	if !ok {
		t.Fatalf("docs/jobs.md has no program in %s", language)
	}
	code, _, _ = strings.Cut(code, "```\n")
	return code
}

// interpreterNamed is the interpreter itself, where its name stands for a script
// that looks for it.
func interpreterNamed(t *testing.T, name string) string {
	t.Helper()
	if name == "python3" {
		if path, err := exec.CommandContext(t.Context(), name, "-c", "import sys; print(sys.executable, end='')").Output(); err == nil {
			return string(path)
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// with returns the kind with more in its environment.
func (k Kind) with(variables map[string]string) Kind {
	all := maps.Clone(k.Environment)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, variables)
	k.Environment = all
	return k
}

// recorded is a state as the next run gets it, or the one before without a new
// one.
func recorded(t *testing.T, w *work, before *job.Progress) *job.Progress {
	t.Helper()
	last := w.Latest()
	if last == nil || !last.HasState() {
		return before
	}
	return &job.Progress{State: []byte(stateOf(t, last)), Version: last.Version}
}

// halfDone returns the state of a job in its middle: the state that the program saves
// when it is stopped then.
func (d *documented) halfDone(b *rig, k Kind) *job.Progress {
	b.t.Helper()
	if d.saved != "" {
		return &job.Progress{State: []byte(d.saved), Version: stateFile}
	}
	w := b.begin(k.with(d.slowly), d.payload, nil)
	b.until("a checkpoint", func() bool { return w.Latest() != nil && w.Latest().HasState() })
	w.stop(job.Evicted, 10*time.Second)
	w.wait(b.t)
	if !job.IsInterrupted(w.err) {
		b.t.Fatalf("first run = %.80q, %v, want an interruption", w.result, w.err)
	}
	return recorded(b.t, w, nil)
}

// demandFinished wants the job's result from a run that was stopped, or else from the
// next run, which continues from the saved state.
func (d *documented) demandFinished(b *rig, k Kind, w *work, saved *job.Progress, want string) {
	b.t.Helper()
	w.wait(b.t)
	result, err := w.result, w.err
	if job.IsInterrupted(err) {
		next := b.run(k, d.payload, recorded(b.t, w, saved))
		result, err = next.result, next.err
	}
	if err != nil || string(result) != want {
		b.t.Errorf("result = %.200q, %v, want %.200q", result, err, want)
	}
}

// TestEarlyStops sends each documented program SIGTERM in the first milliseconds of a
// start that resumes, and wants the result of an undisturbed run.
func TestEarlyStops(t *testing.T) {
	for i := range allDocumented {
		d := &allDocumented[i]
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			b, k := setup(t), d.kind(t)
			saved := d.halfDone(b, k)
			undisturbed := b.run(k, d.payload, saved)
			if undisturbed.err != nil {
				t.Fatal(undisturbed.err)
			}
			const window = 50 * time.Millisecond
			unfinished := 0
			for n := range *stops {
				w := b.begin(k, d.payload, saved)
				time.Sleep(window * time.Duration(n) / time.Duration(*stops))
				w.stop(job.Evicted, 10*time.Second)
				d.demandFinished(b, k, w, saved, string(undisturbed.result))
				if w.err != nil {
					unfinished++
				}
			}
			t.Logf("%d stops in the first %s, %d of them before the end", *stops, window, unfinished)
		})
	}
}

// waitsForStop stands in for a command: it waits until the job is stopped, with
// SIGTERM on its way to the whole group, before it becomes the command.
const waitsForStop = `#!/bin/sh
if [ ! -e "$STOPPED" ]; then
	: >"$STOPPED"
	while [ ! -e "$SPOTWORKER_STOP" ]; do sleep 0.01; done
	sleep 0.1
fi
PATH=$REAL_PATH exec %s "$@"
`

// TestStopMeetsEachCommand stops the documented shell programs while each of the
// commands that they start is running: SIGTERM goes to the commands, too.
func TestStopMeetsEachCommand(t *testing.T) {
	type meeting struct {
		d       *documented
		command string
	}
	var all []meeting
	for i := range allDocumented {
		for _, command := range allDocumented[i].commands {
			all = append(all, meeting{&allDocumented[i], command})
		}
	}
	for _, m := range proof.Some(t, 4, all) {
		d, command := m.d, m.command
		t.Run(d.name+" "+command, func(t *testing.T) {
			t.Parallel()
			b, k := setup(t), d.kind(t)
			saved := d.halfDone(b, k)
			undisturbed := b.run(k, d.payload, saved)
			shims, stopped := t.TempDir(), filepath.Join(t.TempDir(), "stopped")
			shim := fmt.Sprintf(waitsForStop, command)
			if err := withoutForks(func() error { return os.WriteFile(filepath.Join(shims, command), []byte(shim), 0o700) }); err != nil {
				t.Fatal(err)
			}
			w := b.begin(k.with(map[string]string{
				"PATH": shims + ":" + os.Getenv("PATH"), "REAL_PATH": os.Getenv("PATH"), "STOPPED": stopped,
			}), d.payload, saved)
			b.until("the command", func() bool { _, err := os.Stat(stopped); return err == nil })
			w.stop(job.Evicted, 10*time.Second)
			d.demandFinished(b, k, w, saved, string(undisturbed.result))
		})
	}
}
