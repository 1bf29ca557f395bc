package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// opened is a folder that was scanned and opened.
type opened struct {
	index  *Index
	reader *reader
}

func open(t *testing.T, dir string) *opened {
	t.Helper()
	index, err := Scan(t.Context(), dir, roomy)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := index.Open()
	if err != nil {
		t.Fatal(err)
	}
	o := &opened{index, stream.(*reader)}
	t.Cleanup(func() { _ = o.reader.Close() })
	return o
}

// same is a range of a stream that an earlier stream has too.
type same struct{ at, was, length int64 }

// unchanged returns the ranges that the stream has in common with an earlier one.
func (o *opened) unchanged(origin any) (all []same) {
	o.reader.Unchanged(origin, func(at, was, length int64) { all = append(all, same{at, was, length}) })
	return all
}

// linked returns a folder with hard links to the files of another one.
func linked(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	for name := range contentOf(t, dir) {
		target := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			continue
		}
		if err := os.Link(filepath.Join(dir, name), target); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// replace puts a new file in the place of a link.
func replace(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	write(t, dir, name, content)
}

// needBirthTimes skips a test where files have no time of birth.
func needBirthTimes(t *testing.T) {
	t.Helper()
	dir := folderOf(t, files{"a": text(1, leastCompared)})
	info, err := os.Lstat(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if bornAt(filepath.Join(dir, "a"), stampOf(info)) == 0 {
		need.Missing(t, "a file system with times of birth")
	}
}

// Whatever happens to hard links of files, the ranges have the same bytes in both streams. And
// a stream whose ranges are skipped gives all other bytes.
func TestUnchanged(t *testing.T) {
	needBirthTimes(t)
	sizes := []int{0, 100, leastCompared, chunk / 2, chunk - 1, chunk, chunk + 1, 2*chunk + 100, 3 * chunk}
	for seed := range uint64(proof.Times(6, 100)) {
		random := rand.New(rand.NewPCG(seed, 7))
		content := files{}
		for i := range 3 + random.IntN(8) {
			content[fmt.Sprintf("d%d/f%02d", random.IntN(3), i)] = text(i, sizes[random.IntN(len(sizes))])
		}
		before := folderOf(t, content)
		earlier := open(t, before)
		origin := earlier.reader.Origin()
		old := streamOf(t, before)
		after := linked(t, before)
		names := slices.Sorted(maps.Keys(content))
		for range random.IntN(5) {
			name := names[random.IntN(len(names))]
			switch random.IntN(4) {
			case 0:
				replace(t, after, name, text(100+random.IntN(50), sizes[random.IntN(len(sizes))]))
			case 1:
				replace(t, after, name, content[name]) // another file with the same bytes
			case 2:
				_ = os.Remove(filepath.Join(after, name))
			case 3:
				_ = os.Rename(filepath.Join(after, name), filepath.Join(after, name+"-renamed"))
			}
		}
		stream, now := streamOf(t, after), open(t, after)
		ranges, end := now.unchanged(origin), int64(0)
		for _, r := range ranges {
			if r.at < end || !bytes.Equal(stream[r.at:r.at+r.length], old[r.was:r.was+r.length]) {
				t.Fatalf("seed %d: %d bytes at %d, before at %d, differ, or overlap with those before %d", seed, r.length, r.at, r.was, end)
			}
			end = r.at + r.length
		}
		checkSkips(t, seed, now, stream, ranges, random)
	}
}

// checkSkips reads a stream, and skips a part of each range.
func checkSkips(t *testing.T, seed uint64, from *opened, stream []byte, ranges []same, random *rand.Rand) {
	t.Helper()
	at := int64(0)
	read := func(to int64) {
		part := make([]byte, to-at)
		if _, err := io.ReadFull(from.reader, part); err != nil || !bytes.Equal(part, stream[at:to]) {
			t.Fatalf("seed %d: the bytes from %d to %d differ, or %v", seed, at, to, err)
		}
		at = to
	}
	for _, r := range ranges {
		begin := r.at + random.Int64N(r.length+1)
		n := random.Int64N(r.at + r.length - begin + 1)
		read(begin)
		if err := from.reader.Skip(n); err != nil {
			t.Fatalf("seed %d: Skip = %v", seed, err)
		}
		at += n
	}
	read(int64(len(stream)))
	if n, err := from.reader.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("seed %d: the stream ends with %d bytes and %v", seed, n, err)
	}
}

// TestFilesThatLie: a program that writes into a linked file, makes another file with the same
// inode, size and time, or sets times of whole seconds, gets the file read. Only a write in place
// whose time is set back is not noticed here: package checkpoint compares the bytes.
func TestFilesThatLie(t *testing.T) {
	needBirthTimes(t)
	const size = 2 * chunk
	for name, change := range map[string]func(t *testing.T, before, after string, info os.FileInfo){
		"written in place": func(t *testing.T, _, after string, _ os.FileInfo) {
			file, err := os.OpenFile(after, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = file.WriteAt([]byte("x"), 10)
			if err = errors.Join(err, file.Close()); err != nil {
				t.Fatal(err)
			}
		},
		"another file with the same time": func(t *testing.T, before, after string, info os.FileInfo) {
			// Without the first file its inode may be used again.
			if err := errors.Join(os.Remove(before), os.Remove(after)); err != nil {
				t.Fatal(err)
			}
			for range 100 {
				if err := os.WriteFile(after, []byte(text(9, size)), 0o600); err != nil {
					t.Fatal(err)
				}
				if again, err := os.Lstat(after); err == nil && stampOf(again).inode == stampOf(info).inode {
					break
				}
				if err := os.Rename(after, after+"-other"); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.RemoveAll(after+"-other"), os.WriteFile(after, []byte(text(9, size)), 0o600)); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(after, info.ModTime(), info.ModTime()); err != nil {
				t.Fatal(err)
			}
		},
		"shorter and longer again": func(t *testing.T, _, after string, _ os.FileInfo) {
			if err := errors.Join(os.Truncate(after, chunk), os.Truncate(after, size)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := folderOf(t, files{"a": text(1, size), "b": text(2, size)})
			time.Sleep(settle) // so that the time of a write differs
			info, err := os.Lstat(filepath.Join(before, "a"))
			if err != nil {
				t.Fatal(err)
			}
			origin := open(t, before).reader.Origin()
			after := linked(t, before)
			change(t, filepath.Join(before, "a"), filepath.Join(after, "a"), info)
			ranges := open(t, after).unchanged(origin)
			ranges = slices.DeleteFunc(ranges, func(s same) bool { return s.length < size }) // a header
			if len(ranges) != 1 || ranges[0].length > size+2*page {
				t.Errorf("unchanged = %v, want b alone", ranges)
			}
		})
	}
}

// Times of whole seconds are no evidence: a program has set them, or the file system has no
// others.
func TestWholeSecondsAreRead(t *testing.T) {
	needBirthTimes(t)
	dir := folderOf(t, files{"a": text(1, 2*chunk)})
	second := time.Now().Truncate(time.Second).Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "a"), second, second); err != nil {
		t.Fatal(err)
	}
	if origin := open(t, dir).reader.Origin(); origin != nil {
		t.Errorf("Origin = %v, want nothing to compare", origin)
	}
}

// A file that is written to after the scan is noticed although it was skipped.
func TestChangeBehindASkip(t *testing.T) {
	needBirthTimes(t)
	before := folderOf(t, files{"a": text(1, 2*chunk), "b": text(2, 2*chunk)})
	origin := open(t, before).reader.Origin()
	after := linked(t, before)
	now := open(t, after)
	ranges := now.unchanged(origin)
	if len(ranges) != 1 {
		t.Fatalf("unchanged = %v, want one range", ranges)
	}
	if _, err := io.CopyN(io.Discard, now.reader, ranges[0].at); err != nil {
		t.Fatal(err)
	}
	time.Sleep(settle)
	write(t, after, "a", text(3, 2*chunk))
	err := now.reader.Skip(ranges[0].length)
	if err == nil {
		_, err = io.Copy(io.Discard, now.reader)
	}
	if !errors.Is(err, ErrChanged) {
		t.Errorf("reading the rest = %v, want ErrChanged", err)
	}
}

// Files with holes in other places are read.
func TestHolesAreCompared(t *testing.T) {
	needBirthTimes(t)
	before := t.TempDir()
	withHoles(t, filepath.Join(before, "a"), 64<<20, 0, 5<<20)
	withHoles(t, filepath.Join(before, "b"), 64<<20, 0, 5<<20)
	for _, name := range []string{"a", "b"} {
		file, err := os.OpenFile(filepath.Join(before, name), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = file.WriteAt([]byte(text(1, 2*chunk)), 10<<20)
		if err = errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
	}
	origin := open(t, before).reader.Origin()
	if ranges := open(t, linked(t, before)).unchanged(origin); len(ranges) == 0 {
		t.Errorf("links to files with holes have no unchanged ranges")
	}
}

// Folders with many entries are not compared, which bounds the memory.
func TestManyFilesAreRead(t *testing.T) {
	x := &Index{}
	e := &entry{kind: tar.TypeDir, path: "a"}
	for range mostCompared {
		x.add(e, make([]byte, block))
	}
	if len(x.pieces) != mostCompared {
		t.Errorf("%d pieces of %d entries are compared", len(x.pieces), mostCompared)
	}
	for range 2 {
		if x.add(e, make([]byte, block)); x.pieces != nil {
			t.Errorf("%d entries are compared, want at most %d", x.entries, mostCompared)
		}
	}
}

// Between two files that follow each other now, but did not before, are other bytes than before.
func TestEmptiedBetween(t *testing.T) {
	needBirthTimes(t)
	before := folderOf(t, files{"a": text(1, 600_000), "b": text(2, 200_000), "c": text(3, 500_000)})
	origin, old := open(t, before).reader.Origin(), streamOf(t, before)
	after := linked(t, before)
	replace(t, after, "b", "")
	stream := streamOf(t, after)
	ranges := open(t, after).unchanged(origin)
	for _, r := range ranges {
		if !bytes.Equal(stream[r.at:r.at+r.length], old[r.was:r.was+r.length]) {
			t.Errorf("%d bytes at %d, before at %d, differ", r.length, r.at, r.was)
		}
	}
	if len(ranges) != 2 {
		t.Errorf("unchanged = %v, want a and c", ranges)
	}
}

// A file whose time of birth or inode is not known is no other file's twin.
func TestUnknownIdentity(t *testing.T) {
	known := entry{kind: tar.TypeReg, stamp: stamp{inode: 1, modified: 1}}
	for name, row := range map[string]struct {
		entry entry
		born  int64
	}{
		"no birth": {known, 0},
		"no inode": {entry{kind: tar.TypeReg, stamp: stamp{modified: 1}}, 1},
		"a folder": {entry{kind: tar.TypeDir, stamp: known.stamp}, 1},
	} {
		if id, ok := row.entry.identity(row.born); ok {
			t.Errorf("%s: identity = %+v, want none", name, id)
		}
	}
	if _, ok := known.identity(1); !ok {
		t.Error("a file with inode, times and size has no identity")
	}
}
