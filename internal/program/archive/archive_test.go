package archive

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// maxIndex is a limit on the index that no test reaches by chance.
const maxIndex = 64 << 20

// The headers of the versions.
const (
	magic1 = magic + "1 "
	magic2 = magic + "2 "
	magic3 = magic + "3 "
)

var roomy = Limits{Bytes: 1 << 30, Entries: 10_000, Index: maxIndex}

// files are contents by path; a path that ends with a slash is a folder.
type files map[string]string

// noise is the content of files.
var noise = func() string {
	data := make([]byte, 8*chunk)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data) // it never fails
	return string(data)
}()

// text returns so many bytes that are the same for the same seed, and that
// begin as the longer ones do.
func text(seed, size int) string {
	at := seed * 997 % (len(noise) - 6*chunk)
	return noise[at : at+size]
}

// folderOf makes a folder of files.
func folderOf(t testing.TB, content files) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		write(t, dir, name, text)
	}
	return dir
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	full := filepath.Join(dir, filepath.FromSlash(name))
	parent := filepath.Dir(full)
	if name[len(name)-1] == '/' {
		parent = full
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	if parent == full {
		return
	}
	if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// contentOf reads a folder back.
func contentOf(t testing.TB, dir string) files {
	t.Helper()
	got := files{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		relative, _ := filepath.Rel(dir, name)
		if d.IsDir() {
			got[filepath.ToSlash(relative)+"/"] = ""
			return nil
		}
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(name)
			got[filepath.ToSlash(relative)] = "a link to " + target
			return err
		}
		data, err := os.ReadFile(name)
		got[filepath.ToSlash(relative)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// streamOf is a folder as a stream.
func streamOf(t testing.TB, dir string) []byte {
	t.Helper()
	index, err := Scan(t.Context(), dir, os.TempDir(), roomy)
	if err != nil {
		t.Fatalf("Scan = %v", err)
	}
	stream, err := index.Open()
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	data := make([]byte, index.Size()+1)
	n, err := io.ReadFull(stream, data)
	if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) || int64(n) != index.Size() {
		t.Fatalf("reading the stream = %d bytes, %v, want the %d bytes that Size says", n, err, index.Size())
	}
	if err := stream.Close(); err != nil {
		t.Fatalf("Close = %v", err)
	}
	return data[:n]
}

func TestRoundTrip(t *testing.T) {
	for name, content := range map[string]files{
		"empty":         {},
		"a file":        {"a": "one"},
		"empty file":    {"a": ""},
		"nested":        {"a/": "", "a/b/": "", "a/b/c": "deep", "a.txt": "beside", "a/b-c": "order"},
		"a whole chunk": {"big": text(1, chunk)},
		"one more byte": {"big": text(1, chunk+1)},
		"one less":      {"big": text(1, chunk-1)},
		"many sizes":    {"a": text(1, 3*chunk+7), "b": text(2, chunk/2), "c": text(3, chunk/2+1), "d": text(4, chunk), "e": "x"},
		"odd names":     {"with space": "1", "quote\"d": "2", "new\nline": "3", "ünï": "4"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "odd names" {
				need.NotOn(t, "windows", "it has no such names")
			}
			back := t.TempDir()
			if err := Extract(bytes.NewReader(streamOf(t, folderOf(t, content))), back, os.TempDir(), roomy); err != nil {
				t.Fatalf("Extract = %v", err)
			}
			if diff := cmp.Diff(content, contentOf(t, back)); diff != "" {
				t.Errorf("what came back differs (- want, + got):\n%.2000s", diff)
			}
		})
	}
}

// For all sizes, the stream gives the folder back, and the same folder gives the same
// stream.
func TestRoundTripOfAnything(t *testing.T) {
	proof.Check(t, func(r *rapid.T) {
		content := files{}
		for i := range rapid.IntRange(0, 4).Draw(r, "files") {
			size := rapid.OneOf(rapid.IntRange(0, 64), rapid.IntRange(chunk-3, chunk+3), rapid.IntRange(0, 2*chunk)).Draw(r, "size")
			content[fmt.Sprintf("f%d", i)] = text(i, size)
		}
		stream, back := streamOf(t, folderOf(t, content)), t.TempDir()
		if err := Extract(bytes.NewReader(stream), back, os.TempDir(), roomy); err != nil {
			r.Fatalf("Extract = %v", err)
		}
		if !cmp.Equal(content, contentOf(t, back)) {
			r.Fatal("what came back differs")
		}
		if !bytes.Equal(stream, streamOf(t, back)) {
			r.Fatal("the same folder gives another stream")
		}
	})
}

// Bytes that are no text in any encoding are names on Linux.
func TestNameThatIsNoText(t *testing.T) {
	need.On(t, "others have no such names", "linux")
	content := files{"a\xffb": "1"}
	back := t.TempDir()
	if err := Extract(bytes.NewReader(streamOf(t, folderOf(t, content))), back, os.TempDir(), roomy); err != nil {
		t.Fatalf("Extract = %v", err)
	}
	if diff := cmp.Diff(content, contentOf(t, back)); diff != "" {
		t.Errorf("what came back differs (- want, + got):\n%s", diff)
	}
}

// Whether a file may be executed is kept, everything else about modes is not.
func TestModes(t *testing.T) {
	need.NotOn(t, "windows", "it has no such modes")
	dir := folderOf(t, files{"tool": "#!", "data": "x", "sub/": ""})
	for name, mode := range map[string]os.FileMode{"tool": 0o4755, "data": 0o666, "sub": 0o777} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	back := t.TempDir()
	if err := Extract(bytes.NewReader(streamOf(t, dir)), back, os.TempDir(), roomy); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"tool": 0o700, "data": 0o600, "sub": os.ModeDir | 0o700} {
		info, err := os.Stat(filepath.Join(back, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode(); got != want {
			t.Errorf("mode of %s = %s, want %s", name, got, want)
		}
	}
}

// chunksOf returns the chunks that a stream is kept in.
func chunksOf(stream []byte) map[[32]byte]bool {
	all := map[[32]byte]bool{}
	for len(stream) > 0 {
		n := min(len(stream), chunk)
		all[sha256.Sum256(stream[:n])] = true
		stream = stream[n:]
	}
	return all
}

// fresh counts the chunks of a stream that an earlier one does not have.
func fresh(known map[[32]byte]bool, after []byte) int {
	n := 0
	for sum := range chunksOf(after) {
		if !known[sum] {
			n++
		}
	}
	return n
}

// TestSmallChangesStaySmall counts the chunks that must be sent again after a
// change somewhere in the middle, or at the very front.
func TestSmallChangesStaySmall(t *testing.T) {
	content := files{}
	for i := range 8 {
		content[fmt.Sprintf("large/%d", i)] = text(i, 4*chunk+100_000+i)
	}
	for i := range 1500 {
		content[fmt.Sprintf("small/%04d", i)] = text(100+i, 4000+37*(i%400))
	}
	dir := folderOf(t, content)
	before := chunksOf(streamOf(t, dir))
	for _, row := range []struct {
		name   string
		file   string
		change func(file string)
		most   int // chunks
	}{
		{"nothing", "large/3", func(string) {}, 0},
		{"a byte within a large file", "large/3", func(file string) { poke(t, dir, file, 2*chunk+5) }, 1},
		{"a byte at a large file's end", "large/3", func(file string) { poke(t, dir, file, 4*chunk+5) }, 1},
		{"a byte of a small file", "small/0700", func(file string) { poke(t, dir, file, 9) }, 1},
		{"a new large file in front", "large/!", func(file string) { write(t, dir, file, text(50, 3*chunk)) }, 3 + 1 + 3},
		{"a large file that grows by a chunk", "large/0", func(file string) { write(t, dir, file, text(0, 5*chunk+100_000)) }, 1 + 2},
		{"a small file that grows", "small/0700", func(file string) { write(t, dir, file, text(5, 30_000)) }, 1 + 3},
		{"the first small file grows", "small/0000", func(file string) { write(t, dir, file, text(6, 30_000)) }, 1 + 3},
		{"the last small file grows", "small/1499", func(file string) { write(t, dir, file, text(6, 30_000)) }, 1 + 1},
		{"a small file is gone", "small/0300", func(file string) { remove(t, dir, file) }, 1 + 3},
	} {
		row.change(row.file)
		if got := fresh(before, streamOf(t, dir)); got > row.most {
			t.Errorf("%s: %d chunks are new, want at most %d", row.name, got, row.most)
		}
		remove(t, dir, row.file)
		if was, ok := content[row.file]; ok {
			write(t, dir, row.file, was)
		}
	}
}

// TestLittleIsAdded: bins are not full, but the stream is not much larger than its
// content.
func TestLittleIsAdded(t *testing.T) {
	content, total := files{}, 0
	for i := range 1000 {
		size := 1000 + 7919*i%40_000
		content[fmt.Sprintf("%04d", i)] = text(i, size)
		total += size
	}
	if got := len(streamOf(t, folderOf(t, content))); got > total*14/10 {
		t.Errorf("stream of %d bytes of small files has %d, want at most 40 %% more", total, got)
	}
	if got := len(streamOf(t, folderOf(t, files{"a": "one", "b/c": "two"}))); got > 300 {
		t.Errorf("stream of a tiny folder has %d bytes, want no padding", got)
	}
}

// poke changes one byte of a file.
func poke(t testing.TB, dir, name string, at int64) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(dir, filepath.FromSlash(name)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	_, err = file.ReadAt(one, at)
	one[0]++
	_, writeErr := file.WriteAt(one, at)
	if err := errors.Join(err, writeErr, file.Close()); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, dir, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
		t.Fatal(err)
	}
}
