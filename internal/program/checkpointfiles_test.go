//go:build unix

package program

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spotworker/spotworker/job"
)

// ownFilesKind is a kind of a program in sh that knows nothing of the contract, but for its
// result.
func ownFilesKind(command, resume string) Kind {
	k := Kind{Name: "test", Command: []string{"/bin/sh", "-c", command}, CheckpointFiles: []string{"s.state", "s.*"}}
	if resume != "" {
		k.ResumeCommand = []string{"/bin/sh", "-c", resume}
	}
	return k
}

const (
	savesState  = `echo log >>s.log; echo "$1" >new; mv new s.state`
	tellsResult = `cp s.state "$TMPDIR/r"; mv "$TMPDIR/r" "$SPOTWORKER_RESULT"`
)

// savedBy is the last checkpoint of a run, as the next run gets it.
func savedBy(t *testing.T, w *work) *job.Progress {
	t.Helper()
	if w.Latest() == nil || !w.Latest().HasState() {
		t.Fatal("there is no checkpoint")
	}
	return &job.Progress{State: []byte(stateOf(t, w.Latest())), Version: w.Latest().Version}
}

// TestOwnFilesAtTheStop: the files of a program are its checkpoint. One that exits with 0
// after its signal is interrupted, not done. The next run continues with resume_command in
// the same files, at the same relative paths.
func TestOwnFilesAtTheStop(t *testing.T) {
	b := setup(t)
	k := ownFilesKind(`trap 'set -- $(cat payload)-at-the-stop; `+savesState+`; exit 0' INT; trap '' TERM; : >ready
while :; do sleep 0.05; done`, `test "$SPOTWORKER_RESTORE" = "$PWD" -a -z "$SPOTWORKER_CHECKPOINT" && cat s.log >>s.state && `+tellsResult)
	k.StopSignal = syscall.SIGINT
	first := b.begin(k, "one", nil)
	b.until("its start", func() bool {
		found, _ := filepath.Glob(filepath.Join(b.home(), "job-*", "work", "ready"))
		return len(found) > 0
	})
	first.stop(job.Evicted, 20*time.Second)
	first.wait(t)
	if !job.IsInterrupted(first.err) {
		t.Fatalf("Run of a program that exits with 0 when it is stopped = %q, %v, want an interruption", first.result, first.err)
	}
	second := b.run(k, "one", savedBy(t, first))
	if got, want := string(second.result), "one-at-the-stop\nlog\n"; got != want || second.err != nil {
		t.Errorf("second run = %q, %v, want %q", got, second.err, want)
	}
}

// TestOwnFilesWhileItRuns: a checkpoint is copied while the program runs, before any stop.
func TestOwnFilesWhileItRuns(t *testing.T) {
	b := setup(t)
	k := ownFilesKind(`set -- one; `+savesState+`; while :; do echo log >>s.log; sleep 0.05; done`, "")
	w := b.begin(k, "", nil)
	b.until("a checkpoint", func() bool { return w.Latest() != nil && w.Latest().HasState() })
	if state := stateOf(t, w.Latest()); !strings.Contains(state, "one\n") || !strings.Contains(state, "log\n") {
		t.Errorf("checkpoint = %q, want both files", state)
	}
}

// TestOwnFilesOfAKilledProgram: a program that a signal ends may have been writing.
func TestOwnFilesOfAKilledProgram(t *testing.T) {
	b := setup(t)
	k := ownFilesKind(`: >ready; while :; do echo more >>s.state; done`, "")
	w := b.begin(k, "", nil)
	b.until("its start", func() bool {
		found, _ := filepath.Glob(filepath.Join(b.home(), "job-*", "work", "ready"))
		return len(found) > 0
	})
	w.stop(job.Evicted, 20*time.Second)
	w.wait(t)
	if !job.IsInterrupted(w.err) || w.Latest() != nil && w.Latest().HasState() {
		t.Errorf("Run = %v with the checkpoint %v, want an interruption without one", w.err, w.Latest())
	}
}

// TestOwnFilesAreNoProgress: a program that fails with the files that it was given has made no
// checkpoint.
func TestOwnFilesAreNoProgress(t *testing.T) {
	b := setup(t)
	made := b.run(ownFilesKind(`set -- one; `+savesState+`; exit 75`, ""), "", nil)
	failed := b.run(ownFilesKind(`exit 9`, `exit 8`), "", savedBy(t, made))
	if job.IsInterrupted(failed.err) || failed.err == nil || !strings.Contains(failed.err.Error(), "8") {
		t.Errorf("Run = %v, want the failure of resume_command", failed.err)
	}
	if failed.Latest() != nil && failed.Latest().HasState() {
		t.Error("a run that wrote nothing made a checkpoint")
	}
	wrote := b.run(ownFilesKind(``, `set -- half; `+savesState+`; exit 8`), "", savedBy(t, made))
	if wrote.Latest() != nil && wrote.Latest().HasState() {
		t.Error("the files that a failing program has just written made a checkpoint")
	}
}

// TestResumeCommandNeedsFiles: without a file that the kinds file names the program starts
// over, and a checkpoint of another form is a failure that names the cause.
func TestResumeCommandNeedsFiles(t *testing.T) {
	b := setup(t)
	made := b.run(ownFilesKind(`set -- one; `+savesState+`; exit 75`, ""), "", nil)
	k := ownFilesKind(`echo from the start >s.state; `+tellsResult, `exit 8`)
	k.CheckpointFiles = []string{"other.*"}
	if w := b.run(k, "", savedBy(t, made)); string(w.result) != "from the start\n" || w.err != nil {
		t.Errorf("Run with a checkpoint of other files = %q, %v, want the result of command", w.result, w.err)
	}
	if len(b.log.find("the recorded checkpoint has no file of this worker's checkpoint_files: the program starts over")) != 1 {
		t.Errorf("the log does not say why it starts over:\n%s", b.log)
	}
	w := b.run(k, "", &job.Progress{State: []byte("a file"), Version: stateFile})
	if w.err == nil || job.IsInterrupted(w.err) || !strings.Contains(w.err.Error(), "same kinds file") {
		t.Errorf("Run with a checkpoint that is a file = %v, want a failure with its cause", w.err)
	}
}

// TestOutputsFrom: the files that outputs.from names become outputs when the program is done.
func TestOutputsFrom(t *testing.T) {
	b := setup(t)
	k := ownFilesKind(`mkdir frames; echo 1 >frames/1.png; echo x >frames/notes; echo 2 >output/direct`, "")
	k.Outputs = &Outputs{From: []string{"frames/*.png"}}
	sent := &stored{}
	w := b.beginWith(k, sent, nil)
	w.wait(t)
	want := map[string]string{"direct": "2\n", "frames/1.png": "1\n"}
	if got := sent.all(); !maps.Equal(got, want) || w.err != nil {
		t.Errorf("outputs = %q, %v, want %q", got, w.err, want)
	}
}

func TestReadOwnFiles(t *testing.T) {
	file := kindsFile(t, `{"kinds": {"k": {"command": ["./program"], "resume_command": ["./program", "-r", "data"],
 "checkpoint_files": ["md.cpt", "md.*"], "stop_signal": "SIGINT", "outputs": {"from": ["*.png"]}}}}`)
	kinds, err := ReadKinds(file)
	if err != nil {
		t.Fatal(err)
	}
	k, program := kinds[0], filepath.Join(filepath.Dir(file), "program")
	if k.StopSignal != syscall.SIGINT || strings.Join(k.CheckpointFiles, " ") != "md.cpt md.*" || k.Outputs.From[0] != "*.png" ||
		strings.Join(k.ResumeCommand, " ") != program+" -r data" {
		t.Errorf("kind = %+v", k)
	}
	if err := os.Remove(program); err != nil || k.missing() == nil {
		t.Errorf("missing without the program = %v, %v", k.missing(), err)
	}
	for setting, want := range map[string]string{
		`"checkpoint_files": []`:                          "1:64: kinds.k.checkpoint_files: give at least one pattern",
		`"checkpoint_files": [""]`:                        "must not be empty",
		`"checkpoint_files": "md.*"`:                      "give a list of texts",
		`"checkpoint_files": ["/tmp/md.*"]`:               "is an absolute path",
		`"checkpoint_files": ["../md.*"]`:                 "leaves the job's working folder",
		`"checkpoint_files": ["[md"]`:                     "is not a pattern",
		`"checkpoint_files": ["inputs/*"]`:                "the worker makes",
		`"checkpoint_files": ["a"], "directory": "here"`:  "kinds.k.directory: jobs share this folder",
		`"outputs": {"from": ["a"]}, "directory": "here"`: "kinds.k.directory: jobs share this folder",
		`"outputs": {"from": ["/a"]}`:                     "kinds.k.outputs.from: \"/a\" is an absolute path",
		`"resume_command": []`:                            "kinds.k.resume_command: the program is missing",
		`"resume_command": ["./none"]`:                    "kinds.k.resume_command: there is no program ",
		`"stop_signal": "SIGKILL"`:                        "no program can handle SIGKILL",
		`"stop_signal": "INT"`:                            `"INT" is no signal that a program can be stopped with: give one of SIGHUP, SIGINT, `,
		`"stop_signal": 2`:                                "give a text in quotes",
	} {
		_, err := ReadKinds(kindsFile(t, `{"kinds": {"k": {"command": ["./program"], `+setting+`}}}`))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ReadKinds with %s = %v, want %q", setting, err, want)
		}
	}
}
