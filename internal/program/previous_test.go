//go:build unix

package program

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/job"
)

// TestStepBack: a program that cannot use its checkpoint is started again with the one
// before it, once, in a folder that is empty as at first.
func TestStepBack(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("good folder"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := func(text string) *job.Progress { return &job.Progress{State: []byte(text), Version: stateFile} }
	damaged := folderState(t, dir)
	damaged.State = damaged.State[:len(damaged.State)-1]
	unreadable := errors.New("storage has other bytes")
	for _, row := range []struct {
		name           string
		last, previous *job.Progress
		one            bool   // the kind keeps one state
		want           string // or with a "!" part of the error
		steps          int
	}{
		{"a good one", file("good"), file("older"), false, "good newest", 0},
		{"a bad one", file("bad"), file("older"), false, "older previous", 1},
		{"a bad file, a folder before", file("bad"), folderState(t, dir), false, "good folder previous", 1},
		{"a bad folder, a file before", damaged, file("older"), false, "older previous", 1},
		{"both bad", file("bad"), file("bad too"), false, "!exited with code 76: it can use neither its last checkpoint nor the one before; " +
			"the end of its standard error: the weights are NaN", 1},
		{"none before", file("bad"), nil, false, "!exited with code 76: it cannot use its last checkpoint, and there is none before it; the end",
			1},
		{"one that saved since", file("bad, but it saves"), file("older"), false, "!exited with code 76; the end", 0},
		{"a kind of one state", file("bad"), file("older"), true, "!exited with code 76; the end", 0},
		{"one of an unknown version", file("bad"), &job.Progress{State: []byte("?"), Version: 9}, false, "!version 9", 1},
		{"damaged, none before", damaged, nil, false, "!the recorded checkpoint cannot be restored: archive is damaged", 1},
		{"both damaged", damaged, damaged, false, "!the recorded checkpoint cannot be restored: archive is damaged", 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b, steps := setup(t), 0
			k := b.kind("picky")
			k.KeepPrevious = !row.one
			j := job.New(job.Spec{ID: "job-1", Kind: "test", Attempt: 1}, row.last)
			job.ControlOf(j).OnStepBack(func() (*job.Progress, error) {
				steps++
				return row.previous, nil
			})
			w := b.beginJob(k, j)
			w.wait(t)
			want, fails := strings.CutPrefix(row.want, "!")
			switch {
			case fails && (w.err == nil || !strings.Contains(w.err.Error(), want) || job.IsInterrupted(w.err)):
				t.Errorf("Run = %q, %v, want a failure with %q", w.result, w.err, want)
			case !fails && (w.err != nil || string(w.result) != want):
				t.Errorf("Run = %q, %v, want %q", w.result, w.err, want)
			}
			if steps != row.steps {
				t.Errorf("stepped back %d times, want %d", steps, row.steps)
			}
		})
	}
	t.Run("the one before cannot be read", func(t *testing.T) {
		b := setup(t)
		k := b.kind("picky")
		k.KeepPrevious = true
		j := job.New(job.Spec{ID: "job-1", Kind: "test"}, file("bad"))
		job.ControlOf(j).OnStepBack(func() (*job.Progress, error) { return nil, unreadable })
		w := b.beginJob(k, j)
		if w.wait(t); !errors.Is(w.err, unreadable) || job.IsInterrupted(w.err) {
			t.Errorf("Run = %v, want a failure with %v", w.err, unreadable)
		}
	})
}

// TestKeepsPrevious: a kind's handler tells the worker whether to keep two states.
func TestKeepsPrevious(t *testing.T) {
	b := setup(t)
	for _, keep := range []bool{false, true} {
		k := b.kind("picky")
		k.KeepPrevious, k.Idempotent, k.Outputs = keep, true, &Outputs{}
		if got := job.KeepsPreviousState(NewHandler(k, b.scratch, nil, nil, nil, b.logger())); got != keep {
			t.Errorf("KeepsPreviousState = %t, want %t", got, keep)
		}
	}
}

// TestStepBackReplacesOutputs: the program that continues from the checkpoint before the last
// one finds the output folder of that checkpoint, without the files of the last one or of the
// run that could not use it.
func TestStepBackReplacesOutputs(t *testing.T) {
	for _, list := range []bool{false, true} {
		b := setup(t)
		s := &stored{files: map[string]string{"made-before": "1", "made-of-the-bad-one": "2"}, sends: map[string]int{}}
		k := b.kind("picky")
		k.Command = []string{"sh", "-c", `if grep -q bad "$SPOTWORKER_RESTORE"; then echo 3 > "$SPOTWORKER_OUTPUT/just-made"; exit 76; fi
{ ls "$SPOTWORKER_OUTPUT"; cat "$SPOTWORKER_OUTPUT_SENT" /dev/null; } 2> /dev/null > "$SPOTWORKER_RESULT.new"
echo 4 > "$SPOTWORKER_OUTPUT/made-again"
mv "$SPOTWORKER_RESULT.new" "$SPOTWORKER_RESULT"`}
		k.KeepPrevious, k.Outputs = true, &Outputs{List: list, Stream: true}
		j := job.New(job.Spec{ID: "job-1", Kind: "test", Attempt: 1}, &job.Progress{State: []byte("bad"), Version: stateFile})
		job.ControlOf(j).OnOutputs(s)
		job.ControlOf(j).OnStepBack(func() (*job.Progress, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.files, "made-of-the-bad-one")
			delete(s.files, "just-made")
			return &job.Progress{State: []byte("good"), Version: stateFile}, nil
		})
		w := b.beginJob(k, j)
		w.wait(t)
		if w.err != nil || string(w.result) != "made-before\n" {
			t.Errorf("list %t: the program found %q, %v; want the output of the older checkpoint alone", list, w.result, w.err)
		}
		want := map[string]string{"made-before": "1", "made-again": "4\n"}
		if got := s.all(); !maps.Equal(got, want) || s.sends["made-before"] != 0 {
			t.Errorf("list %t: outputs = %q, %v sent, want %q", list, got, s.sends, want)
		}
	}
}
