package archive

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/need"
)

// TestSparse: of a file with holes the data is stored, and it has its holes again when it
// is restored.
func TestSparse(t *testing.T) {
	const size = 64 << 30 // more than a record holds
	dir := folderOf(t, files{"plain": "1\n"})
	places := []int64{0, 5 << 20, 5<<20 + 8192, size - 1}
	withHoles(t, filepath.Join(dir, "weights.bin"), size, places...)
	withHoles(t, filepath.Join(dir, "empty.bin"), size)
	if info, err := os.Stat(filepath.Join(dir, "weights.bin")); err != nil || Allocated(info) > 1<<20 {
		need.Missing(t, "a file system with holes")
	}
	stream := streamOf(t, dir)
	if len(stream) > 1<<20 {
		t.Errorf("stream has %d bytes, want little", len(stream))
	}
	back := t.TempDir()
	if err := Extract(bytes.NewReader(stream), back, roomy); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"weights.bin", "empty.bin"} {
		info, err := os.Stat(filepath.Join(back, name))
		if err != nil || info.Size() != size || Allocated(info) > 1<<20 {
			t.Fatalf("restored %s = %v, %v, want %d bytes, of which few are on the disk", name, info, err, int64(size))
		}
	}
	file, err := os.Open(filepath.Join(back, "weights.bin"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, at := range append(places, 1<<20, 5<<20+1) {
		one := make([]byte, 1)
		if _, err := file.ReadAt(one, at); err != nil || (one[0] == 'x') != slices.Contains(places, at) {
			t.Errorf("byte %d = %q, %v", at, one, err)
		}
	}
	if again := streamOf(t, back); !bytes.Equal(again, stream) {
		t.Error("the restored folder has another stream")
	}
}

// TestManyHoles: a file with more holes than an archive holds keeps its content.
func TestManyHoles(t *testing.T) {
	dir := t.TempDir()
	var places []int64
	for i := range int64(maxRanges + 200) {
		places = append(places, i*(72<<10))
	}
	withHoles(t, filepath.Join(dir, "f"), 100<<20, places...)
	back := t.TempDir()
	if err := Extract(bytes.NewReader(streamOf(t, dir)), back, roomy); err != nil {
		t.Fatal(err)
	}
	want, err1 := os.ReadFile(filepath.Join(dir, "f"))
	got, err2 := os.ReadFile(filepath.Join(back, "f"))
	if err := errors.Join(err1, err2); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file came back different: %v", err)
	}
}

// TestHardLinks: a file with several names is stored once, and has them again.
func TestHardLinks(t *testing.T) {
	big := text(3, 2*chunk+100)
	dir := folderOf(t, files{"b/first": big, "z": "1\n"})
	for name, target := range map[string]string{"b/second": "b/first", "a": "b/first", "linked": "z"} {
		if err := os.Link(filepath.Join(dir, target), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	stream := streamOf(t, dir)
	if len(stream) > 2*len(big) {
		t.Errorf("stream has %d bytes, want one copy of %d", len(stream), len(big))
	}
	back := t.TempDir()
	if err := Extract(bytes.NewReader(stream), back, roomy); err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]string{{"a", "b/first"}, {"a", "b/second"}, {"linked", "z"}} {
		first, err1 := os.Stat(filepath.Join(back, pair[0]))
		second, err2 := os.Stat(filepath.Join(back, pair[1]))
		if err := errors.Join(err1, err2); err != nil || !os.SameFile(first, second) {
			t.Errorf("%s and %s are not one file: %v", pair[0], pair[1], err)
		}
	}
	if got := contentOf(t, back)["b/second"]; got != big {
		t.Errorf("content of %d bytes came back with %d", len(big), len(got))
	}
	if again := streamOf(t, back); !bytes.Equal(again, stream) {
		t.Error("the restored folder has another stream")
	}
}

// TestFormatOfHoles holds the format of files with holes to archives in people's accounts.
func TestFormatOfHoles(t *testing.T) {
	want, err := os.ReadFile("testdata/holes.tar")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Extract(bytes.NewReader(want), dir, roomy); err != nil {
		t.Fatal(err)
	}
	if got := streamOf(t, dir); !bytes.Equal(got, want) {
		t.Errorf("the stream of the restored folder differs:\n%q, want\n%q", got, want)
	}
}

// TestWrittenToWhileRead: any change of a folder after its scan makes the end of its
// stream an error, also where no size changes.
func TestWrittenToWhileRead(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"a byte of a file that was read": func(dir string) error { return overwrite(filepath.Join(dir, "a")) },
		"a byte of one to come":          func(dir string) error { return overwrite(filepath.Join(dir, "z")) },
		"a new file":                     func(dir string) error { return os.WriteFile(filepath.Join(dir, "d", "new"), nil, 0o600) },
		"a removed empty file":           func(dir string) error { return os.Remove(filepath.Join(dir, "empty")) },
		"a file in the place of another": func(dir string) error {
			return errors.Join(os.WriteFile(dir+".new", []byte("1\n"), 0o600), os.Rename(dir+".new", filepath.Join(dir, "z")))
		},
		"a renamed file": func(dir string) error {
			return os.Rename(filepath.Join(dir, "empty"), filepath.Join(dir, "d", "empty"))
		},
	} {
		dir := folderOf(t, files{"a": text(1, 100<<10), "d/x": "1\n", "empty": "", "z": "1\n"})
		index, err := Scan(t.Context(), dir, roomy)
		if err != nil {
			t.Fatal(err)
		}
		opened, err := index.Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(opened, make([]byte, 90<<10)); err != nil {
			t.Fatal(err)
		}
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, opened); !errors.Is(err, ErrChanged) {
			t.Errorf("%s: reading to the end = %v, want %v", name, err, ErrChanged)
		}
		_ = opened.Close()
	}
}

func overwrite(name string) error {
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt([]byte{'!'}, 0)
	return errors.Join(err, file.Close())
}

// TestLinkedWhileRead: a hard link that a program makes to a file of its checkpoint, for the
// next one, is no change.
func TestLinkedWhileRead(t *testing.T) {
	dir := folderOf(t, files{"a": "1\n"})
	index, err := Scan(t.Context(), dir, roomy)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "a"), filepath.Join(t.TempDir(), "next")); err != nil {
		t.Fatal(err)
	}
	opened, err := index.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = opened.Close() }()
	if _, err := io.Copy(io.Discard, opened); err != nil {
		t.Errorf("reading a folder whose file got another name = %v, want nil", err)
	}
}

// TestUnsettled: a change within one tick of a file system's clock could not be told from
// the one before.
func TestUnsettled(t *testing.T) {
	now := time.Now()
	for age, want := range map[time.Duration]bool{0: true, settle - 1: true, settle: false, time.Hour: false, -time.Hour: false} {
		if got := unsettled(now.Add(-age), now); got != want {
			t.Errorf("unsettled %s ago = %t, want %t", age, got, want)
		}
	}
}
