package ownfiles

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/program/archive"
)

func TestCheckPattern(t *testing.T) {
	for pattern, want := range map[string]string{
		"md.*": "", "run-?/state.[0-9]": "", "a": "", "payload.txt": "",
		"": "must not be empty", "/tmp/a": "absolute path", "../a": "leaves the job's working folder", "a/../../b": "leaves the job's",
		"a/./b": "matches nothing", "a//b": "matches nothing", "a/": "matches nothing", "[": "is not a pattern",
		"payload": "the worker makes", "inputs/x": "the worker makes",
	} {
		err := CheckPattern(pattern)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("CheckPattern(%q) = %v, want %q", pattern, err, want)
		}
	}
}

// bench is a working folder and its taker.
type bench struct {
	*testing.T
	dir   string
	taker *Taker
	now   time.Time
	made  int
}

func setup(t *testing.T, patterns ...string) *bench {
	b := &bench{T: t, dir: t.TempDir(), now: time.Now()}
	b.restart(patterns...)
	return b
}

func (b *bench) restart(patterns ...string) {
	b.Helper()
	var err error
	if b.taker, err = New(b.dir, patterns, 1<<20); err != nil {
		b.Fatal(err)
	}
}

// write writes a file that was last changed before.
func (b *bench) write(name, text string, age time.Duration) {
	b.Helper()
	file := filepath.Join(b.dir, name)
	at := time.Now().Add(-age)
	err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600), os.Chtimes(file, at, at))
	if err != nil {
		b.Fatal(err)
	}
}

// looks looks so many times, a quarter of a second apart.
func (b *bench) looks(times int) (due bool) {
	b.Helper()
	for range times {
		b.now = b.now.Add(250 * time.Millisecond)
		b.taker.nextLook = time.Time{} // looks of a slow machine are further apart
		var err error
		if due, err = b.taker.Look(b.now); err != nil {
			b.Fatal(err)
		}
	}
	return due
}

func (b *bench) next() string {
	b.made++
	return filepath.Join(b.TempDir(), "copy")
}

// copy copies, and returns the folder; empty if there was no checkpoint.
func (b *bench) copy(before string) string {
	b.Helper()
	to := b.next()
	ok, err := b.taker.Copy(b.Context(), to, before)
	b.taker.nextCopy = time.Time{} // as above
	if err != nil {
		b.Fatal(err)
	}
	if !ok {
		return ""
	}
	return to
}

// last looks after the end of the program.
func (b *bench) last(unsure bool) string {
	b.Helper()
	to := b.next()
	if ok, err := b.taker.Last(b.now, to, unsure); err != nil {
		b.Fatal(err)
	} else if !ok {
		return ""
	}
	return to
}

func (b *bench) wantFiles(dir string, want ...string) {
	b.Helper()
	if dir == "" {
		b.Fatal("there is no checkpoint")
	}
	var got []string
	_ = filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			text, _ := os.ReadFile(name)
			rel, _ := filepath.Rel(dir, name)
			got = append(got, filepath.ToSlash(rel)+"="+string(text))
		}
		return nil
	})
	if slices.Sort(want); !slices.Equal(got, want) {
		b.Errorf("files = %q, want %q", got, want)
	}
}

// TestStill: a new file makes a checkpoint once it has not changed for a second in four looks.
func TestStill(t *testing.T) {
	b := setup(t, "s.*")
	if b.looks(9) {
		t.Error("Look without a file = true")
	}
	b.write("s.1", "a", time.Hour)
	b.write("other", "x", time.Hour)
	b.write("payload", "x", time.Hour)
	if b.looks(4) {
		t.Error("Look 0.75 s after the file appeared = true, want it to be still for 1 s")
	}
	b.write("s.1", "ab", time.Hour)
	if b.looks(4) {
		t.Error("Look 0.75 s after a change = true, want it to be still for 1 s")
	}
	if !b.looks(1) {
		t.Fatal("Look at a file that is still = false")
	}
	b.wantFiles(b.copy(""), "s.1=ab")
	if b.looks(9) {
		t.Error("Look after the copy = true, want nothing new")
	}
	b.write("s.2", "c", time.Hour)
	if b.looks(1); b.looks(3) {
		t.Error("Look at a new file = true, want it to be still first")
	}
	b.now = b.now.Add(time.Hour) // a freeze: the program did not run meanwhile
	b.write("s.2", "cd", time.Hour)
	if b.looks(1) {
		t.Error("Look after a freeze = true, want as many looks as otherwise")
	}
}

// TestRestored: files that were there at the start make no checkpoint, which would count as
// progress of the job.
func TestRestored(t *testing.T) {
	b := setup(t, "s.*")
	b.write("s.1", "a", time.Hour)
	b.restart("s.*")
	if b.looks(9) || b.last(false) != "" {
		t.Error("the files of the start made a checkpoint")
	}
	b.write("s.1", "b", time.Minute)
	b.wantFiles(b.last(false), "s.1=b")
}

// TestGrowingLog: files of the other patterns need not be still, and are as new as the first.
func TestGrowingLog(t *testing.T) {
	b := setup(t, "md.cpt", "md.*", "frames")
	b.write("md.cpt", "1", time.Hour)
	due := false
	for i := range 21 {
		b.write("md.log", strings.Repeat("l", i+1), 0)
		due = b.looks(1)
	}
	if !due {
		t.Fatal("Look = false while only the log grows")
	}
	b.write("frames/a/1", "f", time.Hour)
	first := b.copy("")
	b.wantFiles(first, "md.cpt=1", "md.log="+strings.Repeat("l", 21), "frames/a/1=f")
	b.write("md.cpt", "2", time.Hour)
	if !b.looks(5) {
		t.Fatal("Look = false after the second state")
	}
	second := b.copy(first)
	b.wantFiles(second, "md.cpt=2", "md.log="+strings.Repeat("l", 21), "frames/a/1=f")
	one, err := os.Stat(filepath.Join(first, "frames", "a", "1"))
	two, err2 := os.Stat(filepath.Join(second, "frames", "a", "1"))
	if err != nil || err2 != nil || !os.SameFile(one, two) {
		t.Errorf("an old file that did not change was copied again: %v, %v", err, err2)
	}
	one, err = os.Stat(filepath.Join(first, "md.log"))
	two, err2 = os.Stat(filepath.Join(second, "md.log"))
	if err != nil || err2 != nil || os.SameFile(one, two) {
		t.Errorf("a file that changed just before the copy was not copied again: %v, %v", err, err2)
	}
}

// TestLastUnsure: a program that a signal ended may have been writing, unless the files were
// still before.
func TestLastUnsure(t *testing.T) {
	b := setup(t, "s.*")
	b.write("s.1", "half", 0)
	b.looks(2)
	if b.last(true) != "" {
		t.Error("Last of a program that may have been writing made a checkpoint")
	}
	b.looks(5)
	b.write("s.1", "half again", 0)
	if b.last(true) != "" {
		t.Error("Last of a file that changed since the last look made a checkpoint")
	}
	b.looks(5)
	b.wantFiles(b.last(true), "s.1=half again")
}

// TestChangedMeanwhile: a copy is none if the first pattern has other files after it than
// before.
func TestChangedMeanwhile(t *testing.T) {
	b := setup(t, "s.*")
	b.write("s.1", "a", time.Hour)
	ok, err := b.taker.make(t.Context(), b.next(), func(c *copying, name string, info os.FileInfo) error {
		b.write("s.2", "b", time.Hour)
		return c.copy(t.Context(), name, info)
	})
	if ok || err != nil {
		t.Errorf("copy with a file that came meanwhile = %t, %v, want none", ok, err)
	}
	ok, err = b.taker.make(t.Context(), b.next(), func(c *copying, name string, info os.FileInfo) error {
		if err := os.Truncate(filepath.Join(b.dir, name), 0); err != nil {
			return err
		}
		return c.copy(t.Context(), name, info)
	})
	if ok || err != nil {
		t.Errorf("copy of a file that was truncated = %t, %v, want none", ok, err)
	}
}

// TestDiscard: the end of the program finds the files again whose copy was not used.
func TestDiscard(t *testing.T) {
	b := setup(t, "s.*")
	b.write("s.1", "a", time.Hour)
	b.copy("")
	b.taker.Discard()
	b.wantFiles(b.last(false), "s.1=a")
}

// TestTimes: a copy has the time of its file.
func TestTimes(t *testing.T) {
	b := setup(t, "s.*")
	b.write("s.1", "a", time.Hour)
	was, err1 := os.Stat(filepath.Join(b.dir, "s.1"))
	is, err2 := os.Stat(filepath.Join(b.copy(""), "s.1"))
	if err := errors.Join(err1, err2); err != nil || !is.ModTime().Equal(was.ModTime()) {
		t.Errorf("time of the copy = %v, %v, want %v", is.ModTime(), err, was.ModTime())
	}
}

func TestCopyStops(t *testing.T) {
	b := setup(t, "s.*")
	b.write("s.1", "a", time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if ok, err := b.taker.Copy(ctx, b.next(), ""); ok || err != nil {
		t.Errorf("Copy after a stop = %t, %v, want none", ok, err)
	}
	b.wantFiles(b.copy(""), "s.1=a")
}

func TestTooLarge(t *testing.T) {
	b := setup(t, "s.*")
	b.write("s.1", strings.Repeat("x", 1<<20+1), time.Hour)
	if _, err := b.taker.Copy(t.Context(), b.next(), ""); !errors.Is(err, archive.ErrTooLarge) {
		t.Errorf("Copy of too much = %v, want ErrTooLarge", err)
	}
}

func TestNeverStill(t *testing.T) {
	b := setup(t, "s.*")
	for i := range 250 {
		b.write("s.1", strings.Repeat("x", i+1), 0)
		b.looks(1)
		if got, want := b.taker.NeverStill(b.now), i > 241; got != want && (i < 239 || i > 243) {
			t.Fatalf("NeverStill after %d looks = %t, want %t", i+1, got, want)
		}
	}
	b.looks(5)
	if b.taker.NeverStill(b.now) {
		t.Error("NeverStill of files that are still = true")
	}
}

// replace gives a file another version by a new name.
func (b *bench) replace(name, text string) {
	b.Helper()
	b.write("new", text, 0)
	if err := os.Rename(filepath.Join(b.dir, "new"), filepath.Join(b.dir, name)); err != nil {
		b.Fatal(err)
	}
}

// TestReplacedAllTheTime: a file that takes the place of another is complete at once, also if
// the next one comes while it is copied, and after a signal.
func TestReplacedAllTheTime(t *testing.T) {
	b := setup(t, "s.*")
	b.replace("s.1", "0")
	for i := range 3 {
		if b.looks(1) != (i > 0) {
			t.Fatalf("Look at version %d = %t", i, i == 0)
		}
		b.replace("s.1", strings.Repeat("x", i))
	}
	b.looks(1)
	to := b.next()
	ok, err := b.taker.make(t.Context(), to, func(c *copying, name string, info os.FileInfo) error {
		defer b.replace("s.1", "later")
		return c.copy(t.Context(), name, info)
	})
	if !ok || err != nil {
		t.Fatalf("copy of a file that is replaced = %t, %v, want the version that was found", ok, err)
	}
	b.wantFiles(to, "s.1=xx")
	b.wantFiles(b.last(true), "s.1=later")

	// The next version is still being written.
	b.replace("s.1", "a")
	b.looks(1)
	if err := os.Remove(filepath.Join(b.dir, "s.1")); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(b.dir, "s.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if b.copy("") != "" {
		t.Error("Copy of another version than Look found = true")
	}
	if b.looks(1) && runtime.GOOS == "linux" {
		t.Error("Look at a file that is open for writing = true")
	}
}

// TestTogether: files that change together make a checkpoint when all have changed, also after a
// restart. A file that is no longer written, and names that are new each time, hold up none for long.
func TestTogether(t *testing.T) {
	b := setup(t, "*.chk")
	step := func(name, text string, due bool) {
		t.Helper()
		b.replace(name, text)
		if got := b.looks(12); got != due {
			t.Errorf("Look 3 s after %s of step %s = %t, want %t", name, text, got, due)
		}
	}
	step("a.chk", "1", true)
	if b.copy("") != "" || b.taker.Released {
		t.Error("Copy of a file that others may follow = true")
	}
	step("b.chk", "1", true)
	first := b.next()
	if ok, err := b.taker.Copy(t.Context(), first, ""); ok || err != nil {
		t.Errorf("Copy = %t, %v, want it held", ok, err)
	}
	b.replace("a.chk", "2")
	if b.looks(1) || !b.taker.Released {
		t.Error("the copy of the first round is not released when the second begins")
	}
	b.wantFiles(first, "a.chk=1", "b.chk=1")
	b.looks(8)
	step("b.chk", "2", true)
	b.wantFiles(b.copy(""), "a.chk=2", "b.chk=2")
	step("a.chk", "3", false)
	b.restart("*.chk")
	step("b.chk", "3", false)
	step("a.chk", "4", true)
	step("a.chk", "5", false)
	step("a.chk", "6", true) // the round before was without b.chk
	step("b.chk", "4", true)
	step("a.chk", "7", false)
	if !b.looks(120) {
		t.Error("Look after half a minute = false")
	}
	b.restart("*.chk")
	step("c.chk", "1", true)
	if b.copy(""); b.looks(9) || !b.taker.Released {
		t.Error("the copy of a file of a new name is not released after 5 s")
	}
}

// TestRewrittenTooOften: files that are rewritten in place all the time are reported at once.
func TestRewrittenTooOften(t *testing.T) {
	b := setup(t, "s.*")
	for i := range 20 {
		b.write("s.1", strings.Repeat("x", i%2+1), time.Duration(i)*time.Minute)
		if b.looks(1) {
			t.Fatal("Look at a file that is rewritten all the time = true")
		}
	}
	if !b.taker.NeverStill(b.now) {
		t.Error("NeverStill after 5 s = false")
	}
}

// TestUnnamed: the log of a database that no pattern names is reported.
func TestUnnamed(t *testing.T) {
	for pattern, want := range map[string]string{"s.db": "s.db-wal", "s.db*": "", "other": ""} {
		b := setup(t, pattern)
		b.write("s.db", "x", time.Hour)
		b.write("s.db-wal", "x", time.Hour)
		b.looks(1)
		if got := b.taker.Unnamed(); got != want {
			t.Errorf("Unnamed with %s = %q, want %q", pattern, got, want)
		}
	}
}
