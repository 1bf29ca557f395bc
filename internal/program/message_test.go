//go:build unix

package program

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/program/archive"
	"github.com/spotworker/spotworker/internal/program/command"
	"github.com/spotworker/spotworker/job"
)

// payloadOf is the message of a command.
func payloadOf(t *testing.T, c command.Command) []byte {
	t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// runMessage runs the command of a message to its end.
func (b *rig) runMessage(k Kind, c command.Command, saved *job.Progress, s *stored, files ...job.InputFile) *work {
	b.t.Helper()
	w := b.beginMessage(k, c, saved, s, files...)
	w.wait(b.t)
	w.Close()
	return w
}

func (b *rig) beginMessage(k Kind, c command.Command, saved *job.Progress, s *stored, files ...job.InputFile) *work {
	b.t.Helper()
	j := job.New(job.Spec{ID: "job-1", Kind: k.Name, Payload: payloadOf(b.t, c), Attempt: 1}, saved)
	job.ControlOf(j).OnOutputs(s)
	if len(files) > 0 {
		job.ControlOf(j).SetInputs(filepath.Dir(files[0].File), files)
	}
	return b.beginJob(k, j)
}

func sh(text string) command.Command { return command.Command{Argv: []string{"sh", "-c", text}} }

// TestMessageCommand: the command of a message runs as it stands, and its standard output is the
// result, byte for byte.
func TestMessageCommand(t *testing.T) {
	b, k := setup(t), MessageKind("command")
	for name, row := range map[string]struct {
		c    command.Command
		want string
	}{
		"words":       {command.Command{Argv: []string{"printf", "%s|", "a b", "", `"q" 'r' $HOME`, "ünï\n"}}, `a b||"q" 'r' $HOME|` + "ünï\n|"},
		"no new line": {sh("printf end"), "end"},
		"bytes":       {sh(`printf 'a\r\nb\rc\000\377'`), "a\r\nb\rc\x00\xff"},
		"nothing":     {sh("echo no >&2"), ""},
		"its own":     {sh(`echo printed; echo own >"$SPOTWORKER_RESULT"`), "own\n"},
		"environment": {command.Command{Argv: []string{"sh", "-c", `echo "$A$SPOTWORKER_JOB_ID"; pwd -P >pwd; [ "$HOME" -ef . ] && echo home`},
			Environment: map[string]string{"A": "=x "}}, "=x job-1\nhome\n"},
	} {
		s := &stored{}
		w := b.runMessage(k, row.c, nil, s)
		if string(w.result) != row.want || w.err != nil {
			t.Errorf("%s: result = %q, %v, want %q", name, w.result, w.err, row.want)
		}
		if _, kept := s.all()[command.Stdout]; kept != (name == "its own") {
			t.Errorf("%s: standard output is an output: %t", name, kept)
		}
	}
}

// TestMessageFailure: a failure of a command is its job's own, has its exit code as a shell has
// it, and keeps what was printed.
func TestMessageFailure(t *testing.T) {
	b, k := setup(t), MessageKind("command")
	notProgram := command.Command{Argv: []string{"./data"}, Files: []command.File{{Input: "i", Path: "data"}}}
	input := filepath.Join(t.TempDir(), "i")
	if err := os.WriteFile(input, []byte("echo"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		c         command.Command
		code      int
		permanent bool
		text      string
	}{
		"exit":   {sh("echo out; echo err >&2; exit 3"), 3, false, "the end of its standard error: err"},
		"signal": {sh("echo out; kill -SEGV $$"), 139, false, "ended by signal SIGSEGV (exit code 139)"},
		"kill":   {sh("echo out; kill -9 $$"), 137, false, "(exit code 137)"},
		"not found": {command.Command{Argv: []string{"no-such-program"}}, 127, true,
			"there is no program no-such-program in the PATH of this VM"},
		"path not found": {command.Command{Argv: []string{"./none"}}, 127, true,
			"there is no program ./none on this VM or in the job's working folder"},
		"no program": {notProgram, 126, true, "./data is not executable"},
		"its own PATH": {command.Command{Argv: []string{"sh"}, Environment: map[string]string{"PATH": "/nowhere:."}}, 127, true,
			"there is no program sh"},
	} {
		s := &stored{}
		w := b.runMessage(k, row.c, nil, s, job.InputFile{Name: "i", File: input})
		if w.err == nil || job.IsPermanent(w.err) != row.permanent || !job.IsOwnFault(w.err) || !strings.Contains(w.err.Error(), row.text) {
			t.Errorf("%s: error = %v, want %q, permanent: %t", name, w.err, row.text, row.permanent)
			continue
		}
		if code, ok := command.ExitCode(w.err.Error()); code != row.code || !ok {
			t.Errorf("%s: exit code = %d, %t, want %d in %v", name, code, ok, row.code, w.err)
		}
		if got := s.all()[command.Stdout]; !row.permanent && got != "out\n" {
			t.Errorf("%s: standard output that is kept = %q, want what was printed", name, got)
		}
	}
}

// TestMessageRefused: a message that must not run is poison with its reason.
func TestMessageRefused(t *testing.T) {
	b, plain := setup(t), Kind{Name: "plain", FromMessage: true, Environment: map[string]string{"OMP_NUM_THREADS": "1"},
		Pass: []string{"HTTPS_PROXY"}}
	k := MessageKind("command")
	file := func(f command.File) command.Command {
		return command.Command{Argv: []string{"sh"}, Files: []command.File{f}}
	}
	for text, row := range map[string]struct {
		k Kind
		c command.Command
	}{
		"argv is empty":              {k, command.Command{}},
		"the job has no input \"x\"": {k, file(command.File{Input: "x", Path: "x"})},
		"no archive of a folder":     {k, file(command.File{Input: "i", Path: "x", Folder: true})},
		"variable OMP_NUM_THREADS is set by the kinds file": {plain, command.Command{Argv: []string{"sh"},
			Environment: map[string]string{"OMP_NUM_THREADS": "64"}}},
		"variable HTTPS_PROXY is set by the kinds file": {plain, command.Command{Argv: []string{"sh"},
			Environment: map[string]string{"HTTPS_PROXY": "x"}}},
		"kind plain has none on this worker": {plain, command.Command{Argv: []string{"sh"}, Outputs: []string{"*"}}},
		"leaves the job's working folder":    {k, command.Command{Argv: []string{"sh"}, Outputs: []string{"../*"}}},
	} {
		input := filepath.Join(t.TempDir(), "i")
		if err := os.WriteFile(input, []byte("no tar"), 0o600); err != nil {
			t.Fatal(err)
		}
		w := b.runMessage(row.k, row.c, nil, &stored{}, job.InputFile{Name: "i", File: input})
		if !job.IsPermanent(w.err) || !strings.Contains(w.err.Error(), text) {
			t.Errorf("error = %v, want permanent with %q", w.err, text)
		}
	}
}

// TestLongStdout: of a long standard output the result is the end, and an output is the whole.
func TestLongStdout(t *testing.T) {
	b, s := setup(t), &stored{}
	w := b.runMessage(MessageKind("command"), sh("seq 1 700000"), nil, s)
	whole := s.all()[command.Stdout]
	if w.err != nil || len(w.result) != job.MaxResult || !strings.HasSuffix(whole, string(w.result)) ||
		!strings.HasPrefix(whole, "1\n2\n") || !strings.HasSuffix(whole, "\n700000\n") {
		t.Errorf("result of %d bytes, output of %d, %v, want the last MiB and the whole", len(w.result), len(whole), w.err)
	}
}

// TestStdoutContinues: the standard output of a command that is interrupted continues behind what
// its checkpoint had. Without a checkpoint it begins again.
func TestStdoutContinues(t *testing.T) {
	steps := sh(`
n=1; [ -z "$SPOTWORKER_RESTORE" ] || n=$(cat "$SPOTWORKER_RESTORE")
echo "from $n"
if [ $n = 1 ]; then
  trap 'echo stopped; ` + `[ -z "$SAVES" ] || { echo 2 >new; mv new "$SPOTWORKER_CHECKPOINT"; }; exit 75' TERM
  : >"$READY"; while :; do sleep 0.01; done
fi
echo end`)
	for saves, want := range map[string]string{"1": "from 1\nstopped\nfrom 2\nend\n", "": "from 1\nend\n"} {
		b, s, ready, steps := setup(t), &stored{}, filepath.Join(writableForAll(t), "ready"), steps
		k := MessageKind("command")
		k.Environment = map[string]string{"SAVES": saves, "READY": ready}
		w := b.beginMessage(k, steps, nil, s)
		b.until("the command waits", func() bool { _, err := os.Stat(ready); return err == nil })
		w.stop(job.Evicted, 10*time.Second)
		w.wait(t)
		if err := w.PrepareSave(t.Context()); err != nil || !job.IsInterrupted(w.err) {
			t.Fatalf("first run = %v, save %v", w.err, err)
		}
		if saves == "" {
			steps = sh(`echo "from 1"; echo end`)
			if kept := s.all(); len(kept) != 0 {
				t.Errorf("outputs without a checkpoint = %q, want none", kept)
			}
			s.files = map[string]string{command.Stdout: "of a checkpoint that is gone"}
		}
		var saved *job.Progress
		if p := w.Latest(); p.HasState() {
			saved = &job.Progress{State: []byte(stateOf(t, p)), Version: p.Version}
		}
		w.Close()
		second := b.runMessage(k, steps, saved, s)
		if string(second.result) != want || second.err != nil || len(s.all()) != 0 {
			t.Errorf("saves %q: result = %q, %v, outputs %q, want %q", saves, second.result, second.err, maps.Clone(s.all()), want)
		}
	}
}

// TestStdoutName: an output of the program's own that has the name of the standard output is
// refused, and not lost.
func TestStdoutName(t *testing.T) {
	b, s := setup(t), &stored{}
	w := b.runMessage(MessageKind("command"), sh(`echo a >"$SPOTWORKER_OUTPUT/stdout"`), nil, s)
	if !job.IsPermanent(w.err) || !strings.Contains(w.err.Error(), "output stdout:") {
		t.Errorf("Run = %v, want that the name is refused", w.err)
	}
}

// TestPlacedFiles: files and folders are in the working folder with their modes, and what a
// checkpoint has there stays.
func TestPlacedFiles(t *testing.T) {
	b, from := setup(t), t.TempDir()
	folder := filepath.Join(from, "folder")
	if err := errors.Join(os.MkdirAll(filepath.Join(folder, "empty"), 0o755), os.Symlink("tool", filepath.Join(folder, "link")),
		withoutForks(func() error {
			return os.WriteFile(filepath.Join(folder, "tool"), []byte("#!/bin/sh\necho tool \"$@\"\n"), 0o755)
		}),
		os.WriteFile(filepath.Join(from, "i"), []byte("kept"), 0o644)); err != nil {
		t.Fatal(err)
	}
	index, err := archive.Scan(t.Context(), folder, roomy)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := index.Open()
	if err != nil {
		t.Fatal(err)
	}
	packed, err := os.Create(filepath.Join(from, "packed"))
	if err == nil {
		_, err = packed.ReadFrom(stream)
	}
	if err := errors.Join(err, stream.Close(), packed.Close()); err != nil {
		t.Fatal(err)
	}
	files := []job.InputFile{{Name: "i", File: filepath.Join(from, "i")}, {Name: "packed", File: packed.Name()}, {Name: "other",
		File: filepath.Join(from, "i")}}
	c := sh(`bin/link x; ls -A . bin; cat bin/tool/note sub/data inputs/other; [ -x sub/data ] || echo plain; [ -w sub/data ] && echo mine`)
	c.Files = []command.File{
		{Input: "packed", Path: "bin", Folder: true}, {Input: "packed", Path: ".", Folder: true}, {Input: "i", Path: "sub/data"},
		{Input: "i", Path: "bin/empty/note"},
	}
	c.Argv[2] = strings.ReplaceAll(c.Argv[2], "bin/tool/note", "bin/empty/note")
	w := b.runMessage(MessageKind("command"), c, nil, &stored{}, files...)
	want := "tool x\n.:\nbin\nempty\ninputs\nlink\noutput\nsub\ntool\n\nbin:\nempty\nlink\ntool\nkeptkeptkeptplain\nmine\n"
	if string(w.result) != want || w.err != nil {
		t.Errorf("result = %s, %v, want\n%s", w.result, w.err, want)
	}

	k := MessageKind("command")
	k.CheckpointFiles = []string{"sub/*"}
	c = sh("cat sub/data")
	c.Files = []command.File{{Input: "i", Path: "sub/data"}}
	state := writableForAll(t)
	if err := errors.Join(os.Mkdir(filepath.Join(state, "sub"), 0o755), os.WriteFile(filepath.Join(state, "sub", "data"), []byte("saved"),
		0o644)); err != nil {
		t.Fatal(err)
	}
	if index, err = archive.Scan(t.Context(), state, roomy); err != nil {
		t.Fatal(err)
	}
	w = b.runMessage(k, c, &job.Progress{Stream: index.Open, Version: stateFolder}, &stored{}, files...)
	if string(w.result) != "saved" || w.err != nil {
		t.Errorf("after a resume the file is %q, %v, want that of the checkpoint", w.result, w.err)
	}
}

// TestMessageInAKindsFile: a kind of the operator's whose messages name the command.
func TestMessageInAKindsFile(t *testing.T) {
	for text, want := range map[string]string{
		`{"command": "message", "resume_command": ["sh"]}`: "resumes too",
		`{"command": "message", "directory": "here"}`:      "the job's own folder",
		`{"command": "massage"}`:                           "list of texts",
		`{"command": ["sh"], "result": "stderr"}`:          `give "stdout"`,
	} {
		if _, err := ReadKinds(kindsFile(t, `{"kinds": {"a": `+text+`}}`)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	kinds, err := ReadKinds(kindsFile(t, `{"kinds": {"a": {"command": "message", "max_run": "1h"},
		"b": {"command": "message", "result": "file"}, "c": {"command": ["sh"], "result": "stdout"}, "d": {"command": ["sh"]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, k := range kinds {
		got += k.Name + strconv.FormatBool(k.FromMessage) + strconv.FormatBool(k.ResultStdout) + " "
	}
	if want := "atruetrue btruefalse cfalsetrue dfalsefalse "; got != want {
		t.Errorf("kinds = %s, want %s", got, want)
	}
	if kinds[0].missing() != nil || len(kinds[0].Absent()) != 0 {
		t.Errorf("a kind without a command lacks %v, %q", kinds[0].missing(), kinds[0].Absent())
	}
}
