package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/program/archive/spill"
)

// little makes nearly everything go to temporary files.
func little(l Limits) Limits {
	l.Memory = 200
	return l
}

// roundTrip is the stream of a folder, and the folder made of it, with limits.
func roundTrip(t testing.TB, dir string, l Limits) (stream []byte, back, temp string) {
	t.Helper()
	temp, back = t.TempDir(), t.TempDir()
	index, err := Scan(t.Context(), dir, temp, l)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := index.Open()
	if err != nil {
		t.Fatal(err)
	}
	stream, err = io.ReadAll(opened)
	if err := errors.Join(err, opened.Close(), index.Close()); err != nil {
		t.Fatal(err)
	}
	if err := Extract(bytes.NewReader(stream), back, temp, l); err != nil {
		t.Fatal(err)
	}
	return stream, back, temp
}

// TestOnDisk: a list of entries that is on disk gives the stream and the folder that one in
// memory gives, and leaves no temporary file.
func TestOnDisk(t *testing.T) {
	content := files{"a/": "", "a/b/": "", "a.txt": "beside", "a-b/": "", "big": text(1, 2*chunk+9), "a/big": text(2, chunk), "z": ""}
	for i := range 60 {
		content[fmt.Sprintf("a/b/%03d", i*7919%60)] = text(i, i*13)
		content[fmt.Sprintf("d/%03d/f", i)] = text(i, 40)
	}
	content["deep/"+strings.Repeat("x/", 2*maxOpen)+"f"] = "deeper than folders are held open"
	dir := withLinks(t, folderOf(t, content), map[string]string{"latest": "a/b", "a/up": "../big"})
	for name, target := range map[string]string{"first": "a/b/000", "zz": "a/b/000", "a/again": "big", "other": "a/big"} {
		if err := os.Link(filepath.Join(dir, target), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(dir, "a.txt"), filepath.Join(t.TempDir(), "elsewhere")); err != nil {
		t.Fatal(err)
	}
	want, _, _ := roundTrip(t, dir, roomy)
	got, back, temp := roundTrip(t, dir, little(roomy))
	if !bytes.Equal(got, want) {
		t.Errorf("stream of %d bytes made with temporary files differs from that of %d made in memory", len(got), len(want))
	}
	if again, _, _ := roundTrip(t, back, roomy); !bytes.Equal(again, want) {
		t.Error("the restored folder has another stream")
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("temporary files %v are left, %v", left, err)
	}
}

// TestNoTemporaryFile: a folder whose list does not fit into memory cannot be scanned or
// restored without a place for it, and the error is the disk's.
func TestNoTemporaryFile(t *testing.T) {
	dir := folderOf(t, files{"a/b": "one", "a/c": "two", "d": "three", "e": "four", "f": "five", "g": "six"})
	gone := filepath.Join(t.TempDir(), "gone")
	if _, err := Scan(t.Context(), dir, gone, little(roomy)); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrChanged) {
		t.Errorf("Scan = %v, want that the temporary file cannot be made", err)
	}
	if err := Extract(bytes.NewReader(streamOf(t, dir)), t.TempDir(), gone, little(roomy)); !errors.Is(err, fs.ErrNotExist) ||
		errors.Is(err, ErrDamaged) {
		t.Errorf("Extract = %v, want that the temporary file cannot be made", err)
	}
}

// TestListCut: a list that ends early is an error, and never a shorter folder.
func TestListCut(t *testing.T) {
	var whole []byte
	ends := map[int]bool{0: true}
	for _, path := range []string{"a", "b/c"} {
		e := entry{kind: link, path: path, target: "x"}
		whole = spill.AppendRecord(whole, []byte(e.path), e.details())
		ends[len(whole)] = true
	}
	for n := range len(whole) + 1 {
		cut := list{Buffer: spill.NewBuffer("", 1<<20)}
		if _, err := cut.Write(whole[:n]); err != nil {
			t.Fatal(err)
		}
		if err := cut.each(func(*entry) error { return nil }); (err == nil) != ends[n] {
			t.Errorf("a list cut to %d bytes of %d is read with %v", n, len(whole), err)
		}
	}
	for _, details := range []string{"", "f", "f\xff", "f\x01\x01\x01\x09x", "s\x01\x01\x01\x00zz"} {
		if e, err := decodeDetails([]byte("a"), []byte(details)); err == nil {
			t.Errorf("details %q = %+v, want an error", details, e)
		}
	}
}

// TestManyEntriesHaveAVersion: more entries than older versions of this package allow, or
// longer names, make an archive that they leave alone.
func TestManyEntriesHaveAVersion(t *testing.T) {
	for _, row := range []struct {
		entries int
		length  int64
		want    int
	}{
		{smallEntries, smallIndex, 1}, {smallEntries + 1, 100, 4}, {1, smallIndex + 1, 4},
	} {
		if got := versionFor(row.entries, row.length); got != row.want {
			t.Errorf("version of %d entries in %d bytes = %d, want %d", row.entries, row.length, got, row.want)
		}
	}
	header := appendHeader(nil, 4, smallIndex+1)
	if length, version, err := decodeHeader(header, 1<<30); length != smallIndex+1 || version != 4 || err != nil {
		t.Errorf("header %q = %d, %d, %v", header, length, version, err)
	}
	if _, _, err := decodeHeader(header, smallIndex); !errors.Is(err, ErrTooLarge) {
		t.Errorf("header over the limit = %v, want %v", err, ErrTooLarge)
	}
	if _, _, err := decodeHeader(appendHeader(nil, 3, smallIndex+1), 1<<30); !errors.Is(err, ErrTooLarge) {
		t.Errorf("header of version 3 with an index of version 4 = %v, want %v", err, ErrTooLarge)
	}
}

// manyFolders is a stream with so many empty folders, made without holding it.
func manyFolders(version, number int) io.Reader {
	line := func(i int) string { return line(folder, 0, 0, 0, fmt.Sprintf(`"%08d"`, i)) + "\n" }
	header := appendHeader(nil, version, int64(number*len(line(0))))
	at, part := 0, bytes.NewBuffer(header)
	return readerFunc(func(p []byte) (int, error) {
		for part.Len() < len(p) && at < number {
			part.WriteString(line(at))
			at++
		}
		return part.Read(p)
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestMoreEntriesThanTheirVersionHas: an archive may not have more entries than workers
// that read its version allow.
func TestMoreEntriesThanTheirVersionHas(t *testing.T) {
	for version, want := range map[int]error{3: ErrTooLarge, 4: nil} {
		known := tree{version: version, limits: Limits{Bytes: 1, Entries: 2 * smallEntries}, entries: smallEntries}
		if err := known.add(&entry{kind: folder, path: "a"}); !errors.Is(err, want) {
			t.Errorf("entry %d of an archive of version %d = %v, want %v", smallEntries+1, version, err, want)
		}
	}
}

// TestVersion4: an archive with many entries otherwise equals an archive with few.
func TestVersion4(t *testing.T) {
	dir := t.TempDir()
	if err := Extract(manyFolders(4, 3), dir, t.TempDir(), roomy); err != nil {
		t.Fatal(err)
	}
	if got := contentOf(t, dir); len(got) != 3 {
		t.Errorf("restored %v, want 3 folders", got)
	}
}

// TestMemoryIsFlat: neither the scan of a list nor the reading of an index holds more memory
// for many entries than for a few.
func TestMemoryIsFlat(t *testing.T) {
	const number, most = 40_000, 2 << 20
	limits := Limits{Bytes: 1 << 40, Entries: number, Index: 256 << 20, Memory: 64 << 10}
	live := newLive()
	x := &extraction{stream: newStream(live.during(manyFolders(4, number))), limits: limits,
		lines: spill.NewBuffer(t.TempDir(), limits.memory())}
	if err := errors.Join(x.index(), x.lines.Close()); err != nil || x.has[folder] != number {
		t.Fatalf("index of %d folders = %v, %v", number, x.has, err)
	}
	if live.most > most {
		t.Errorf("an index of %d entries takes %d bytes of heap to read, want at most %d", number, live.most, most)
	}

	live = newLive()
	temp := t.TempDir()
	s := &scanner{limits: limits, entries: spill.NewSorter(temp, limits.memory()), named: spill.NewSorter(temp, limits.memory()),
		names: spill.NewSorter(temp, limits.memory())}
	e := entry{kind: plain, size: 10}
	for i := range number {
		e.path = fmt.Sprintf("folder/%08d", (i*7919)%number)
		if err := errors.Join(s.checkLimits(&e), s.entries.Add([]byte(e.path), e.details())); err != nil {
			t.Fatal(err)
		}
		if i%4 == 0 { // files with two names
			if err := s.named.Add(fmt.Appendf(nil, "%08d%s", i/8, e.path), nil); err != nil {
				t.Fatal(err)
			}
		}
		live.look(i)
	}
	index := &Index{list: list{Buffer: spill.NewBuffer(temp, limits.memory())}}
	if err := s.linkNames(); err != nil {
		t.Fatal(err)
	}
	live.look(0)
	if err := s.fill(index); err != nil {
		t.Fatal(err)
	}
	live.look(0)
	seen := 0
	if err := index.list.each(func(e *entry) error {
		live.look(seen)
		seen++
		return nil
	}); err != nil || seen != number {
		t.Fatalf("list has %d of %d entries, %v", seen, number, err)
	}
	if live.most > most {
		t.Errorf("a scan of %d entries takes %d bytes of heap, want at most %d", number, live.most, most)
	}
	t.Logf("live heap of a scan of %d entries: + %d KiB", number, live.most>>10)
	if err := errors.Join(s.entries.Close(), s.named.Close(), s.names.Close(), index.Close()); err != nil {
		t.Error(err)
	}
}

// live watches the growth of the used heap since its start.
type live struct{ before, most uint64 }

func newLive() *live {
	l := &live{before: heapInUse()}
	return l
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// look measures now and then.
func (l *live) look(n int) {
	const interval = 10_000
	if n%interval == 0 {
		if now := heapInUse(); now > l.before {
			l.most = max(l.most, now-l.before)
		}
	}
}

// during looks while a stream is read.
func (l *live) during(stream io.Reader) io.Reader {
	n := 0
	return readerFunc(func(p []byte) (int, error) {
		l.look(n * 100)
		n++
		return stream.Read(p)
	})
}
