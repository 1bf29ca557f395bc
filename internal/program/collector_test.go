package program

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/spotworker/spotworker/internal/program/archive"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/job"
)

func newKeeper(t *testing.T) *collector {
	t.Helper()
	return &collector{from: filepath.Join(t.TempDir(), "checkpoint"), dir: t.TempDir(), limits: roomy, log: slog.New(slog.DiscardHandler)}
}

// save puts a file where a program would.
func (c *collector) save(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(c.from, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (c *collector) left(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestTake: small checkpoints come as bytes, so that a drain can send them
// first; large ones as files that are no longer written.
func TestTake(t *testing.T) {
	k := newKeeper(t)
	if p, err := k.collect(t.Context()); p != nil || err != nil {
		t.Errorf("take of nothing = %+v, %v, want nothing", p, err)
	}
	for _, size := range []int{0, 1, smallState, smallState + 1, 3 << 20} {
		text := strings.Repeat("x", size)
		k.save(t, text)
		p, err := k.collect(t.Context())
		if err != nil || p.Version != stateFile || (p.Stream == nil) != (size <= smallState) {
			t.Fatalf("take of %d bytes = %+v, %v", size, p, err)
		}
		if got := stateOf(t, p); got != text || !p.HasState() {
			t.Errorf("state of %d bytes has %d", size, len(got))
		}
		if p, err := k.collect(t.Context()); p != nil || err != nil {
			t.Errorf("the same taken twice = %+v, %v, want nothing", p, err)
		}
		if want := min(1, size/(smallState+1)); k.left(t) != want {
			t.Errorf("after %d bytes %d checkpoints are kept, want %d", size, k.left(t), want)
		}
	}
}

// TestKeptWhileRead: a checkpoint is removed when a later one has taken its
// place, but not under the hands of who reads it.
func TestKeptWhileRead(t *testing.T) {
	k := newKeeper(t)
	first, second := strings.Repeat("1", 100_000), strings.Repeat("2", 100_000)
	k.save(t, first)
	p, err := k.collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reader, err := p.Stream()
	if err != nil {
		t.Fatal(err)
	}
	k.save(t, second)
	if _, err := k.collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(reader); string(got) != first || err != nil {
		t.Errorf("what was being read has %d bytes, %v, want it whole", len(got), err)
	}
	if got := k.left(t); got != 2 {
		t.Errorf("%d checkpoints are kept while one is read, want 2", got)
	}
	if _, err := p.Stream(); !errors.Is(err, errSuperseded) {
		t.Errorf("opening it again = %v, want errSuperseded", err)
	}
	for range 2 { // closing twice changes nothing
		_ = reader.Close()
	}
	if got := k.left(t); got != 1 {
		t.Errorf("%d checkpoints are kept after it was read, want 1", got)
	}
}

// TestTakeFails: a checkpoint that cannot be taken is an error that says whether
// another run could do better, and leaves the one before as it was.
func TestTakeFails(t *testing.T) {
	for _, row := range []struct {
		name, says string
		spoil      func(t *testing.T, k *collector)
		permanent  bool
	}{
		{"in the way", "collect the checkpoint: rename", func(t *testing.T, k *collector) {
			k.save(t, "new")
			if err := os.MkdirAll(filepath.Join(k.dir, "2", "full"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"too large", "the checkpoint cannot be kept: too large: it has 200001 bytes, of 200000 allowed", func(t *testing.T, k *collector) {
			k.save(t, strings.Repeat("x", 200_001))
		}, true},
		{"a link", "the checkpoint cannot be kept: unsuitable: it is neither", func(t *testing.T, k *collector) {
			if err := os.Symlink("/etc/hostname", k.from); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"a folder that is too large", "the checkpoint cannot be kept: too large", func(t *testing.T, k *collector) {
			if err := errors.Join(os.Mkdir(k.from, 0o700), os.WriteFile(filepath.Join(k.from, "a"), make([]byte, 200_001), 0o600)); err != nil {
				t.Fatal(err)
			}
		}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.name == "a link" {
				need.NotOn(t, "windows", "making a link takes a right there")
			}
			k := newKeeper(t)
			k.limits.Bytes = 200_000
			first := strings.Repeat("1", 100_000)
			k.save(t, first)
			before, err := k.collect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			row.spoil(t, k)
			k.ended, k.stop = true, t.Context() // or it would be tried again on Windows
			p, err := k.collect(t.Context())
			if p != nil || err == nil || !strings.Contains(err.Error(), row.says) || job.IsPermanent(err) != row.permanent {
				t.Errorf("take = %+v, %v, want an error with %q, permanent: %t", p, err, row.says, row.permanent)
			}
			if got := stateOf(t, before); got != first {
				t.Errorf("the checkpoint before has %d bytes, want its %d", len(got), len(first))
			}
		})
	}
}

// TestTakenCannotBeRead: a disk that fails after a checkpoint was taken is an
// error, never a state that is empty or cut off.
func TestTakenCannotBeRead(t *testing.T) {
	k := newKeeper(t)
	if state, next, err := k.state(t.Context(), filepath.Join(k.dir, "gone")); state != nil || next != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("state of nothing = %+v, %+v, %v, want that there is none", state, next, err)
	}
	broken := errors.New("input/output error")
	if err := explainCheckpoint(broken); job.IsPermanent(err) || !errors.Is(err, broken) || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("explainCheckpoint = %v, want a failure that another run may not have", err)
	}
	cut := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken))
	for name, open := range map[string]func() (io.ReadCloser, error){
		"opened":              func() (io.ReadCloser, error) { return nil, broken },
		"read to its end":     func() (io.ReadCloser, error) { return io.NopCloser(cut), nil },
		"closed after a read": func() (io.ReadCloser, error) { return closeFails{strings.NewReader("all"), broken}, nil },
	} {
		if _, err := readAll(opener(open)); !errors.Is(err, broken) {
			t.Errorf("readAll of what cannot be %s = %v, want %v", name, err, broken)
		}
	}
}

// opener is a source that is only opened.
type opener func() (io.ReadCloser, error)

func (o opener) Size() int64                  { return 0 }
func (o opener) Open() (io.ReadCloser, error) { return o() }
func (o opener) Close() error                 { return nil }

// closeFails is a reader whose Close fails.
type closeFails struct {
	io.Reader
	err error
}

func (c closeFails) Close() error { return c.err }

// TestOpenFails: a reader that did not get the checkpoint open does not keep it
// from being removed.
func TestOpenFails(t *testing.T) {
	name := filepath.Join(t.TempDir(), "1")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("too many open files")
	k := &collected{name: name, source: opener(func() (io.ReadCloser, error) { return nil, broken })}
	if stream, err := k.Open(); stream != nil || !errors.Is(err, broken) {
		t.Errorf("Open = %v, %v, want %v", stream, err, broken)
	}
	k.supersede()
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the checkpoint is still there: %v", err)
	}
}

// TestTornInMemory: a small checkpoint, which is read at once, is read again as long as
// something writes to it.
func TestTornInMemory(t *testing.T) {
	need.NotOn(t, "windows", "a file that is open for writing cannot be collected there")
	for range 100 {
		if k := newKeeper(t); k.tornInMemory(t) {
			return
		}
	}
	t.Error("no checkpoint was found torn, want one: all looks fell between two writes")
}

// tornInMemory collects a checkpoint while something writes to it, and then the whole one.
// It returns false if the first look fell between two writes.
func (c *collector) tornInMemory(t *testing.T) bool {
	t.Helper()
	c.save(t, "first")
	file, err := os.OpenFile(c.from, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			_, err := file.WriteString("x")
			select {
			case <-end:
				_, last := file.WriteString("last")
				ended <- errors.Join(err, last, file.Close())
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	_, first := c.collect(t.Context())
	close(end)
	if err := errors.Join(first, <-ended); err != nil {
		t.Fatal(err)
	}
	if !c.warned {
		return false
	}
	p, err := c.collect(t.Context())
	if err != nil || p == nil || !strings.HasSuffix(string(p.State), "last") {
		t.Errorf("collect = %+v, %v, want the whole checkpoint", p, err)
	}
	if n := c.left(t); n != 0 {
		t.Errorf("%d checkpoints are left, want none", n)
	}
	return true
}

// TestTorn: a checkpoint that is written to while it is read is not stored. It is read again
// until it is whole, another takes its place, or its program was killed.
func TestTorn(t *testing.T) {
	change := func(name string) {
		t.Helper()
		time.Sleep(30 * time.Millisecond) // file systems have coarse clocks
		appendTo(t, name, "more")
	}
	begin := func(size int) (*collector, *job.Progress, io.ReadCloser) {
		k := newKeeper(t)
		if err := os.Mkdir(k.from, 0o700); err != nil {
			t.Fatal(err)
		}
		appendTo(t, filepath.Join(k.from, "f"), strings.Repeat("x", size))
		p, err := k.collect(t.Context())
		if err != nil || p == nil || p.Stream == nil {
			t.Fatalf("collect = %+v, %v, want a stream", p, err)
		}
		stream, err := p.Stream()
		if err != nil {
			t.Fatal(err)
		}
		change(filepath.Join(k.dir, "1", "f"))
		if _, err := io.Copy(io.Discard, stream); !errors.Is(err, archive.ErrChanged) {
			t.Fatalf("reading what is written to = %v, want %v", err, archive.ErrChanged)
		}
		return k, p, stream
	}
	again := func(k *collector) string {
		p, err := k.collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if p == nil {
			return ""
		}
		dir := t.TempDir()
		if err := archive.Extract(strings.NewReader(stateOf(t, p)), dir, roomy); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, "f"))
		if err != nil {
			t.Fatal(err)
		}
		return string(data[len(data)-4:])
	}
	k, _, stream := begin(100_000)
	_ = stream.Close()
	if got := again(k); got != "more" {
		t.Errorf("a torn checkpoint read again ends with %q, want %q", got, "more")
	}
	if got := again(k); got != "" {
		t.Errorf("the same read again ends with %q, want that it is reported once", got)
	}
	k.last.supersede()
	if n := k.left(t); n != 0 {
		t.Errorf("%d checkpoints are left, want none", n)
	}

	k, _, stream = begin(100_000)
	k.save(t, "a later one")
	if p, err := k.collect(t.Context()); err != nil || stateOf(t, p) != "a later one" {
		t.Errorf("collect = %+v, %v, want the later checkpoint", p, err)
	}
	_ = stream.Close()
	if n := k.left(t); n != 0 {
		t.Errorf("%d checkpoints are left, want that the torn one was removed", n)
	}

	k, _, stream = begin(100_000)
	_ = stream.Close()
	k.ended, k.killed = true, true
	if got := again(k); got != "" {
		t.Errorf("what a killed program was writing to ends with %q, want it left out", got)
	}
	if n := k.left(t); n != 0 {
		t.Errorf("%d checkpoints are left, want none", n)
	}
}

// TestStopInterruptsCollecting: a checkpoint whose files are being listed when a stop
// comes is left to the next look, and is not mistaken for an unfinished checkpoint.
func TestStopInterruptsCollecting(t *testing.T) {
	for _, killed := range []bool{false, true} {
		k := newKeeper(t)
		if err := os.Mkdir(k.from, 0o700); err != nil {
			t.Fatal(err)
		}
		appendTo(t, filepath.Join(k.from, "f"), "x")
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if p, err := k.collect(ctx); p != nil || err != nil {
			t.Fatalf("collect during a stop = %+v, %v, want nothing yet", p, err)
		}
		k.ended, k.killed = killed, killed
		p, err := k.collect(t.Context())
		if err != nil || p == nil || !p.HasState() {
			t.Errorf("the next look, killed: %t = %+v, %v, want the checkpoint", killed, p, err)
		}
	}
}

// TestManyFilesAreReportedEarly: before a checkpoint has so many files that it is refused, the
// log has a warning.
func TestManyFilesAreReportedEarly(t *testing.T) {
	var log logLines
	k := newKeeper(t)
	k.limits.Entries, k.log = 10, slog.New(slog.NewJSONHandler(&log, nil))
	for files, want := range map[int]int{7: 0, 9: 1} {
		if err := os.Mkdir(k.from, 0o700); err != nil {
			t.Fatal(err)
		}
		for i := range files {
			appendTo(t, filepath.Join(k.from, strings.Repeat("f", i+1)), "x")
		}
		log.lines = nil
		k.many = false
		if _, err := k.collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		const warning = "checkpoint has nearly as many files and folders as it may have: a job whose checkpoint has more fails " +
			"permanently"
		if got := len(log.find(warning)); got != want {
			t.Errorf("%d files of 10 allowed: %d warnings, want %d", files, got, want)
		}
	}
}

// TestTakeFolder: the old name of a renamed checkpoint does not reach it.
func TestTakeFolder(t *testing.T) {
	k := newKeeper(t)
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for name, data := range map[string][]byte{"large": large, "sub/small": []byte("s")} {
		full := filepath.Join(k.from, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o700), os.WriteFile(full, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	p, err := k.collect(t.Context())
	if err != nil || p.Version != stateFolder || p.Stream == nil {
		t.Fatalf("take = %+v, %v, want a folder as a stream", p, err)
	}
	stream, err := p.Stream()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	back := t.TempDir()
	if err := archive.Extract(stream, back, roomy); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(back, "large")); !bytes.Equal(got, large) {
		t.Errorf("a file came back with %d bytes, %v, want %d", len(got), err, len(large))
	}
}
