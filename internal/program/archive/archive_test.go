package archive

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/checkpoint/chunks"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/property"
)

// maxNames is a limit on names that no test reaches by chance.
const maxNames = 64 << 20

var roomy = Limits{Bytes: 1 << 30, Entries: 10_000, Names: maxNames}

// chunk is a unit of the sizes of files, in bytes.
const chunk = 1 << 20

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
	index, err := Scan(t.Context(), dir, roomy)
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

// ranged is a stream in ranges, each of which takes the place of the one before.
type ranged struct {
	io.Reader
	buffer, rest []byte
}

func (r *ranged) Next(most int) ([]byte, error) {
	if len(r.rest) == 0 {
		n, err := io.ReadFull(r, r.buffer)
		if n == 0 {
			return nil, err
		}
		r.rest = r.buffer[:n]
	}
	part := r.rest[:min(most, len(r.rest))]
	r.rest = r.rest[len(part):]
	return part, nil
}

// For all sizes, the stream gives the folder back, and the same folder gives the same
// stream.
func TestRoundTripOfAnything(t *testing.T) {
	property.Check(t, func(r *rapid.T) {
		content := files{}
		for i := range rapid.IntRange(0, 4).Draw(r, "files") {
			size := rapid.OneOf(rapid.IntRange(0, 64), rapid.IntRange(chunk-3, chunk+3), rapid.IntRange(0, 2*chunk)).Draw(r, "size")
			content[fmt.Sprintf("f%d", i)] = text(i, size)
		}
		stream, back := streamOf(t, folderOf(t, content)), t.TempDir()
		ranges := &ranged{bytes.NewReader(stream), make([]byte, rapid.IntRange(300, 2*chunk).Draw(r, "range")), nil}
		if err := Extract(ranges, back, roomy); err != nil {
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
	if err := Extract(bytes.NewReader(streamOf(t, folderOf(t, content))), back, roomy); err != nil {
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
	if err := Extract(bytes.NewReader(streamOf(t, dir)), back, roomy); err != nil {
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

// chunksOf returns the hashes of the chunks that a stream is cut into.
func chunksOf(stream []byte) map[[32]byte]int {
	all := map[[32]byte]int{}
	cutter := chunks.New()
	for begin, at := 0, 0; at < len(stream); {
		n, end := cutter.Next(stream[at:])
		if at += n; end != 0 || at == len(stream) {
			all[sha256.Sum256(stream[begin:at])] = at - begin
			begin = at
		}
	}
	return all
}

// fresh counts the bytes of chunks of a stream that an earlier one does not have.
func fresh(known map[[32]byte]int, after []byte) (bytes int) {
	for sum, size := range chunksOf(after) {
		if known[sum] == 0 {
			bytes += size
		}
	}
	return bytes
}

// TestSmallChangesStaySmall counts the bytes that must be sent again after a change somewhere
// in the middle, or at the very front.
func TestSmallChangesStaySmall(t *testing.T) {
	content := files{}
	for i := range 8 {
		content[fmt.Sprintf("large/%d", i)] = text(i, 4*chunk+100_000+i)
	}
	for i := range 1500 {
		content[fmt.Sprintf("small/%04d", i)] = text(100+i, 4000+37*(i%400))
	}
	dir := folderOf(t, content)
	known := chunksOf(streamOf(t, dir))
	const place = 5 * chunk / 2 // bytes sent for a place that has changed: some chunks
	for _, row := range []struct {
		name   string
		file   string
		change func(file string)
		most   int // bytes
	}{
		{"nothing", "large/3", func(string) {}, 0},
		{"a byte within a large file", "large/3", func(file string) { poke(t, dir, file, 2*chunk+5) }, 2 * place},
		{"a byte at a large file's end", "large/3", func(file string) { poke(t, dir, file, 4*chunk+5) }, 2 * place},
		{"a byte of a small file", "small/0700", func(file string) { poke(t, dir, file, 9) }, place},
		{"a new large file in front", "large/!", func(file string) { write(t, dir, file, noise[5*chunk:8*chunk]) }, 3*chunk + place},
		{"a large file that grows", "large/0", func(file string) { write(t, dir, file, content[file]+text(50, 100_000)) }, 2 * place},
		{"a small file that grows", "small/0700", func(file string) { write(t, dir, file, text(5, 30_000)) }, place},
		{"the first small file grows", "small/0000", func(file string) { write(t, dir, file, text(6, 30_000)) }, place},
		{"the last small file grows", "small/1499", func(file string) { write(t, dir, file, text(6, 30_000)) }, place},
		{"a small file is gone", "small/0300", func(file string) { remove(t, dir, file) }, place},
	} {
		name := filepath.Join(dir, row.file)
		was, statErr := os.Stat(name)
		row.change(row.file)
		if got := fresh(known, streamOf(t, dir)); got > row.most {
			t.Errorf("%s: %d bytes are new, want at most %d", row.name, got, row.most)
		}
		remove(t, dir, row.file)
		if statErr != nil {
			continue
		}
		write(t, dir, row.file, content[row.file])
		if err := os.Chtimes(name, time.Time{}, was.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTimes: the times of files are kept to the nanosecond, also old and future ones.
func TestTimes(t *testing.T) {
	dir, back := t.TempDir(), t.TempDir()
	times := map[string]time.Time{
		"now": time.Now().Add(-time.Hour), "whole": time.Unix(1_700_000_000, 0), "fine": time.Unix(1_700_000_000, 123_456_700),
		"old": time.Unix(-10, 500), "later": time.Unix(8_000_000_000, 100),
	}
	for name, at := range times {
		write(t, dir, name, "1")
		if err := os.Chtimes(filepath.Join(dir, name), time.Time{}, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := Extract(bytes.NewReader(streamOf(t, dir)), back, roomy); err != nil {
		t.Fatal(err)
	}
	for name := range times {
		was, err1 := os.Stat(filepath.Join(dir, name))
		is, err2 := os.Stat(filepath.Join(back, name))
		if err := errors.Join(err1, err2); err != nil || !is.ModTime().Equal(was.ModTime()) {
			t.Errorf("%s: time = %v, %v, want %v", name, is.ModTime(), err, was.ModTime())
		}
	}
}

// TestWholePages: the data of large files begins at whole pages, whatever is before it.
func TestWholePages(t *testing.T) {
	for _, fraction := range []int64{0, 5} {
		for name := range 300 {
			e := &entry{kind: tar.TypeReg, path: strings.Repeat("n", 1+name), size: leastCompared, modified: time.Unix(1, fraction)}
			at := int64(name%8) * block
			if header, err := e.appendHeader(nil, at); err != nil || (at+int64(len(header)))%page != 0 || len(header) > 3*page {
				t.Fatalf("header at %d has %d bytes, %v, want that data begins at a multiple of %d", at, len(header), err, page)
			}
		}
	}
}

// TestTar: the tar of the system unpacks a stream, and finds in it what Extract makes.
func TestTar(t *testing.T) {
	need.NotOn(t, "windows", "it has no GNU tar")
	command := need.Command(t, "tar")
	dir := folderOf(t, files{
		"a/": "", "a/b": "one", "a.txt": "two", "empty/": "", "\"odd\" näme\nof two lines": "3", strings.Repeat("long/", 40) + "name": "4",
		strings.Repeat("n", 250): "5", "a-tool": "#!", "large": text(1, 2*chunk+5),
	})
	withLinks(t, dir, map[string]string{"latest": "a", "a/up": "../a.txt", "far": strings.Repeat("long/", 40) + "name"})
	err := errors.Join(os.Chmod(filepath.Join(dir, "a-tool"), 0o700), os.Link(filepath.Join(dir, "a/b"), filepath.Join(dir, "z")))
	if err != nil {
		t.Fatal(err)
	}
	withHoles(t, filepath.Join(dir, "holes"), 10<<30, 0, 5<<20, 900<<20)
	withHoles(t, filepath.Join(dir, "nothing"), 1<<30)
	withHoles(t, filepath.Join(dir, "last-byte"), 1<<30, 1<<30-1)
	stream := streamOf(t, dir)
	ours, tars := t.TempDir(), t.TempDir()
	if err := Extract(bytes.NewReader(stream), ours, roomy); err != nil {
		t.Fatal(err)
	}
	unpack := exec.CommandContext(t.Context(), command, "-xf", "-", "-C", tars)
	unpack.Stdin = bytes.NewReader(stream)
	if said, err := unpack.CombinedOutput(); err != nil || len(said) > 0 {
		t.Fatalf("tar = %v, says %s", err, said)
	}
	for _, back := range []string{ours, tars} {
		if diff := cmp.Diff(factsOf(t, dir), factsOf(t, back)); diff != "" {
			t.Errorf("%s differs (- before, + after):\n%.3000s", back, diff)
		}
	}
	if !bytes.Equal(streamOf(t, tars), stream) {
		t.Error("the folder that tar has made has another stream")
	}
}

// factsOf returns type, mode, time and content of everything in a folder.
func factsOf(t testing.TB, dir string) map[string]string {
	t.Helper()
	facts := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		relative, _ := filepath.Rel(dir, name)
		info, err := d.Info()
		if err != nil {
			return err
		}
		facts[relative] = info.Mode().String()
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			facts[relative] = "link to " + target
			return err
		case info.Mode().IsRegular():
			_, links := inodeOf(info)
			facts[relative] += fmt.Sprintf(" %v %d bytes, %d links, sparse %t, %x", info.ModTime().UnixNano(), info.Size(), links,
				info.Size()-Allocated(info) > leastHole, hashOf(t, name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

// hashOf returns a hash of the first bytes of a file.
func hashOf(t testing.TB, name string) [32]byte {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, 6<<20))
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(data)
}

// withHoles makes a sparse file with a byte at each of the places.
func withHoles(t testing.TB, name string, size int64, places ...int64) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range places {
		if _, err := file.WriteAt([]byte{'x'}, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(file.Truncate(size), file.Close()); err != nil {
		t.Fatal(err)
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
			if err := Extract(bytes.NewReader(streamOf(t, folderOf(t, content))), back, roomy); err != nil {
				t.Fatalf("Extract = %v", err)
			}
			if diff := cmp.Diff(content, contentOf(t, back)); diff != "" {
				t.Errorf("what came back differs (- want, + got):\n%.2000s", diff)
			}
		})
	}
}
