package program

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/job"
)

// stored keeps outputs in memory.
type stored struct {
	mu    sync.Mutex
	files map[string]string
	sends map[string]int
}

func (s *stored) Send(_ context.Context, path string, _ int64, content io.Reader) (job.Output, error) {
	data, err := io.ReadAll(content)
	if err != nil {
		return job.Output{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files == nil {
		s.files, s.sends = map[string]string{}, map[string]int{}
	}
	s.files[path] = string(data)
	s.sends[path]++
	return outputOf(path, string(data)), nil
}

func outputOf(path, content string) job.Output {
	sum := sha256.Sum256([]byte(content))
	return job.Output{Path: path, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
}

func (s *stored) Open(_ context.Context, path string) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, ok := s.files[path]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(strings.NewReader(content)), nil
}

func (s *stored) Remove(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.files, path)
}

func (s *stored) List() (all []job.Output) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(s.files)) {
		all = append(all, outputOf(path, s.files[path]))
	}
	return all
}

// all returns the outputs by path.
func (s *stored) all() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.files)
}

// writesOutputs is a program that writes the files in OUTPUTS, as PATH=CONTENT in lines,
// makes the file that WAITS names, if it is set, and then waits until it has to stop.
func writesOutputs() int {
	for line := range strings.Lines(os.Getenv("OUTPUTS")) {
		path, content, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		name := filepath.Join(os.Getenv(envOutput), filepath.FromSlash(path))
		err := os.MkdirAll(filepath.Dir(name), 0o700)
		if target, isLink := strings.CutPrefix(content, "->"); isLink {
			err = errors.Join(err, os.Symlink(target, name))
		} else {
			err = errors.Join(err, os.WriteFile(name, []byte(content), 0o600))
		}
		if err != nil {
			return failWith(err)
		}
	}
	if waits := os.Getenv("WAITS"); waits != "" {
		if err := os.WriteFile(waits, nil, 0o600); err != nil {
			return failWith(err)
		}
		for {
			if _, err := os.Stat(os.Getenv(envStop)); err == nil {
				return exitTempFail
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return 0
}

func failWith(err error) int {
	_, _ = os.Stderr.WriteString(err.Error())
	return 1
}

// outputsKind runs that program.
func (b *rig) outputsKind(o Outputs, files ...string) Kind {
	k := b.kind("outputs", "OUTPUTS="+strings.Join(files, "\n"))
	k.Outputs = &o
	return k
}

// beginWith calls the handler of a kind for a job with outputs.
func (b *rig) beginWith(k Kind, s *stored, saved *job.Progress) *work {
	b.t.Helper()
	j := job.New(job.Spec{ID: "job-1", Kind: "test", Attempt: 1}, saved)
	job.ControlOf(j).OnOutputs(s)
	return b.beginJob(k, j)
}

// TestOutputsOfAProgram: the files in the folder at the end are sent, also the targets of
// links in it.
func TestOutputsOfAProgram(t *testing.T) {
	b := setup(t)
	s := &stored{}
	files := []string{"a.txt=one", "d/e/b.txt=two", "empty="}
	want := map[string]string{"a.txt": "one", "d/e/b.txt": "two", "empty": ""}
	if !onWindows {
		files, want["link"] = append(files, "link=->a.txt", "latest=->d"), "one"
	}
	w := b.beginWith(b.outputsKind(Outputs{}, files...), s, nil)
	w.wait(t)
	if w.err != nil {
		t.Fatalf("Run = %v; log:\n%s", w.err, b.log)
	}
	if diff := cmp.Diff(want, s.all()); diff != "" {
		t.Errorf("outputs (-want +got)\n%s", diff)
	}
}

// TestOutputsThatCannotBeStored end the job permanently, with the path and the reason.
func TestOutputsThatCannotBeStored(t *testing.T) {
	need.NotOn(t, "windows", "its file systems refuse most of these")
	for name, row := range map[string]struct {
		files []string
		limit job.OutputLimits
		want  string
	}{
		"a link out":       {[]string{"x=->/etc/passwd"}, job.OutputLimits{}, `output "x": refused: it is a symbolic link`},
		"a link up":        {[]string{"x=->../payload"}, job.OutputLimits{}, `"x"`},
		"a dangling link":  {[]string{"x=->y"}, job.OutputLimits{}, "symbolic link"},
		"a backslash":      {[]string{`a\b=1`}, job.OutputLimits{}, "backslash"},
		"a trailing dot":   {[]string{"a.=1"}, job.OutputLimits{}, "ends with a dot"},
		"a trailing space": {[]string{"d /x=1"}, job.OutputLimits{}, "ends with a space"},
		"a control":        {[]string{"a\tb=1"}, job.OutputLimits{}, "control character"},
		"not UTF-8":        {[]string{"a\xff=1"}, job.OutputLimits{}, "not UTF-8"},
		"too many files":   {[]string{"a=1", "b=2", "c=3"}, job.OutputLimits{Files: 2}, "more than 2 files"},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			w := b.beginWith(b.outputsKind(Outputs{Limits: row.limit}, row.files...), &stored{}, nil)
			w.wait(t)
			if !job.IsPermanent(w.err) || !strings.Contains(w.err.Error(), row.want) {
				t.Errorf("Run = %v, want a permanent error with %q", w.err, row.want)
			}
		})
	}
}

// TestOutputsBeforeASave: a save sends the files in the folder, each once, and a removed
// file is no longer an output.
func TestOutputsBeforeASave(t *testing.T) {
	b := setup(t)
	s := &stored{}
	k := b.outputsKind(Outputs{}, "a.txt=one", "b.txt=two")
	waits := filepath.Join(t.TempDir(), "waits")
	k.Environment["WAITS"] = waits
	w := b.beginWith(k, s, nil)
	b.until("both outputs are written", func() bool {
		_, err := os.Stat(waits)
		return err == nil
	})
	save := func() int {
		if err := w.PrepareSave(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(s.all())
	}
	b.until("a save sends both", func() bool { return save() == 2 }) // the handler prepares saves once the program runs
	if n := save(); n != 2 {
		t.Errorf("after another save there are %d outputs, want 2", n)
	}
	w.stop(job.Evicted, 5*time.Second)
	w.wait(t)
	if !job.IsInterrupted(w.err) {
		t.Errorf("Run = %v, want an interruption", w.err)
	}
	if err := w.PrepareSave(t.Context()); err != nil { // as the release does
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff(map[string]int{"a.txt": 1, "b.txt": 1}, s.sends); diff != "" {
		t.Errorf("sends (-want +got)\n%s", diff)
	}
}

// TestOutputsAreRestored: the next run finds the folder as it was, or a list, and sends
// only its changes.
func TestOutputsAreRestored(t *testing.T) {
	for _, list := range []bool{false, true} {
		b := setup(t)
		s := &stored{files: map[string]string{"old.txt": "before", "d/kept.txt": "kept"}, sends: map[string]int{}}
		w := b.beginWith(b.outputsKind(Outputs{List: list}, "old.txt=after", "new.txt=new"), s, nil)
		w.wait(t)
		if w.err != nil {
			t.Fatalf("Run = %v", w.err)
		}
		if diff := cmp.Diff(map[string]string{"old.txt": "after", "d/kept.txt": "kept", "new.txt": "new"}, s.all()); diff != "" {
			t.Errorf("outputs, list %v (-want +got)\n%s", list, diff)
		}
		if diff := cmp.Diff(map[string]int{"old.txt": 1, "new.txt": 1}, s.sends); diff != "" {
			t.Errorf("sends, list %v (-want +got)\n%s", list, diff)
		}
	}
}

// TestOutputsAreStreamed: a finished file is sent while the program runs.
func TestOutputsAreStreamed(t *testing.T) {
	b := setup(t)
	s := &stored{}
	k := b.outputsKind(Outputs{Stream: true}, "a.txt=one")
	k.Environment["WAITS"] = filepath.Join(t.TempDir(), "waits")
	w := b.beginWith(k, s, nil)
	b.until("the output is sent", func() bool { return len(s.all()) == 1 })
	w.stop(job.Shutdown, time.Second)
	w.wait(t)
}

// lost are outputs with an unreadable file.
type lost struct {
	*stored
	err error
}

func (l *lost) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	if path == "gone" {
		return nil, l.err
	}
	return l.stored.Open(ctx, path)
}

// TestOutputIsGone: an output that cannot be restored is a failure of the job, which counts,
// and not one of the machine; without an answer of storage it is neither.
func TestOutputIsGone(t *testing.T) {
	for name, row := range map[string]struct {
		err         error
		unavailable bool
	}{
		"removed":   {errors.New("the blob is gone"), false},
		"no answer": {job.Unavailable(errors.New("connection reset")), true},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			k := b.outputsKind(Outputs{}, "new=1")
			j := job.New(job.Spec{ID: "job-1", Kind: "test", Attempt: 1}, nil)
			job.ControlOf(j).OnOutputs(&lost{&stored{files: map[string]string{"gone": "1", "there": "2"}}, row.err})
			w := b.beginJob(k, j)
			w.wait(t)
			if !errors.Is(w.err, row.err) || job.IsUnavailable(w.err) != row.unavailable || job.IsPermanent(w.err) ||
				!strings.Contains(w.err.Error(), `"gone"`) {
				t.Errorf("Run = %v, unavailable %t, want the error of output gone, unavailable %t", w.err, job.IsUnavailable(w.err), row.unavailable)
			}
		})
	}
}

// TestKindWithoutOutputs: a worker whose kinds file gives the kind no outputs does not end a
// job that has some.
func TestKindWithoutOutputs(t *testing.T) {
	b := setup(t)
	k := b.outputsKind(Outputs{}, "new=1")
	k.Outputs = nil
	w := b.beginWith(k, &stored{files: map[string]string{"old": "1"}}, nil)
	w.wait(t)
	if w.err == nil || job.IsUnavailable(w.err) || job.IsPermanent(w.err) || !strings.Contains(w.err.Error(), "has stored 1 outputs") {
		t.Errorf("Run = %v, want a failure that says why", w.err)
	}
}
