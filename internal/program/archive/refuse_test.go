package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
)

func TestScanRefuses(t *testing.T) {
	link := func(dir string) error { return os.Symlink("/etc/hostname", filepath.Join(dir, "link")) }
	for _, row := range []struct {
		name    string
		content files
		spoil   func(dir string) error
		limits  Limits
		want    error
		says    string
	}{
		{"a link", nil, link, roomy, ErrUnfit, `"link" is a symbolic link`},
		{"a pipe", nil, makePipe, roomy, ErrUnfit, `"pipe" is a named pipe`},
		{"too many files", files{"a": "", "b": "", "c/": ""}, nil, Limits{Bytes: 1000, Entries: 2, Names: maxNames}, ErrTooLarge,
			"more than 2 files"},
		{"too many bytes", files{"a": "12345"}, nil, Limits{Bytes: 4, Entries: 9, Names: maxNames}, ErrTooLarge, "more than 4 bytes"},
		{"too many with headers", files{"a": "12345"}, nil, Limits{Bytes: 60, Entries: 9, Names: maxNames}, ErrTooLarge, "of 60 allowed"},
		{"no folder", nil, os.RemoveAll, roomy, os.ErrNotExist, ""},
	} {
		dir := folderOf(t, row.content)
		if row.spoil != nil {
			if err := row.spoil(dir); err != nil {
				t.Logf("%s: skipped: %v", row.name, err)
				continue
			}
		}
		if _, err := Scan(t.Context(), dir, row.limits); !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: Scan = %v, want %v that says %q", row.name, err, row.want, row.says)
		}
	}
}

// TestScanBoundsNames: a folder is refused as soon as the names in it are too long
// for an index. All of them together may take fifty times the memory.
func TestScanBoundsNames(t *testing.T) {
	dir := t.TempDir()
	name := strings.Repeat("d", 200)
	inner := dir
	for len(inner)-len(dir) < 3700 {
		inner = filepath.Join(inner, name)
	}
	if err := os.MkdirAll(inner, 0o700); err != nil {
		need.Missing(t, "long paths: "+err.Error())
	}
	root, err := os.OpenRoot(inner) // short paths: the long one costs time for each file
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	index := int64(proof.Times(32, 64)) << 20
	enough := int(index / 3700)
	file, err := root.Create("0")
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	for i := range 2 * enough { // links, which are made faster than files
		if err := root.Link("0", fmt.Sprint(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	const each = 16 << 10 // of a path of 4 KiB: found, kept, and as the system takes it
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = Scan(t.Context(), dir, Limits{Bytes: 1 << 40, Entries: 100 * enough, Names: index})
	runtime.ReadMemStats(&after)
	t.Logf("%d names of %d bytes: %d MiB allocated", 2*enough, len(inner)-len(dir), (after.TotalAlloc-before.TotalAlloc)>>20)
	if got := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrTooLarge) || got > uint64(enough)*each*4/3 {
		t.Errorf("Scan of %d long names = %v, and allocates %d bytes, want ErrTooLarge after half of them (%d bytes)", 2*enough, err, got,
			enough*each)
	}
}

// A folder that is still written is found out while it is read: no program meant the
// state that would be saved.
func TestChangedWhileRead(t *testing.T) {
	for name, change := range map[string]func(file string) error{
		"shorter":   func(file string) error { return os.Truncate(file, 5) },
		"longer":    func(file string) error { return os.WriteFile(file, make([]byte, 100), 0o600) },
		"gone":      os.Remove,
		"a link":    func(file string) error { return errors.Join(os.Remove(file), os.Symlink("/etc/hostname", file)) },
		"a folder":  func(file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) },
		"a pipe":    func(file string) error { return errors.Join(os.Remove(file), makePipeAt(file)) },
		"a way out": func(file string) error { return errors.Join(os.Remove(file), os.Symlink("../../x", file)) },
	} {
		dir := folderOf(t, files{"a": "0123456789", "b": "x"})
		index, err := Scan(t.Context(), dir, roomy)
		if err != nil {
			t.Fatal(err)
		}
		if err := change(filepath.Join(dir, "a")); err != nil {
			t.Logf("%s: skipped: %v", name, err)
			continue
		}
		stream, err := index.Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(stream); !errors.Is(err, ErrChanged) {
			t.Errorf("%s: reading = %v, want %v", name, err, ErrChanged)
		}
		_ = stream.Close()
	}
}

// TestFolderReplacedWhileRead: a program that replaces a folder, between its scan and its
// reading, neither blocks the reader nor leads it elsewhere.
func TestFolderReplacedWhileRead(t *testing.T) {
	outside := folderOf(t, files{"x": "secret 89"})
	for name, replace := range map[string]func(dir string) error{
		"a pipe":            makePipeAt,
		"a file":            func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"a link out":        func(dir string) error { return os.Symlink(outside, dir) },
		"a link to another": func(dir string) error { return os.Symlink("other", dir) },
		"a folder of that name": func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "x"), []byte("012345678"), 0o600))
		},
		"nothing": func(string) error { return nil },
	} {
		dir := folderOf(t, files{"d/x": "012345678", "other/x": "012345678"})
		index, err := Scan(t.Context(), dir, roomy)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "d"), filepath.Join(t.TempDir(), "d")); err != nil {
			t.Fatal(err)
		}
		if err := replace(filepath.Join(dir, "d")); err != nil {
			t.Logf("%s: skipped: %v", name, err)
			continue
		}
		opened, err := index.Open()
		if err != nil {
			t.Fatal(err)
		}
		if data, err := io.ReadAll(opened); !errors.Is(err, ErrChanged) || bytes.Contains(data, []byte("secret")) {
			t.Errorf("%s in the place of a folder: reading = %q, %v, want %v", name, data, err, ErrChanged)
		}
		if err := errors.Join(opened.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestScanStops: a scan of many files ends when its context does.
func TestScanStops(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the VM is evicted")
	cancel(stop)
	if _, err := Scan(ctx, folderOf(t, files{"a": ""}), roomy); !errors.Is(err, stop) {
		t.Errorf("Scan = %v, want %v", err, stop)
	}
}

// A folder that leads elsewhere by a link is not followed out.
func TestExtractThroughALink(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "a")); err != nil {
		need.Missing(t, "symbolic links: "+err.Error())
	}
	whole := streamOf(t, folderOf(t, files{"a/b": "x"}))
	if err := Extract(bytes.NewReader(whole), dir, roomy); err == nil {
		t.Error("Extract over a link = nil, want an error")
	}
	if got := contentOf(t, outside); len(got) != 0 {
		t.Errorf("behind the link there is %v, want nothing", got)
	}
}

// A stream that is cut off anywhere is damaged; a stream that fails says why.
func TestCutOff(t *testing.T) {
	whole := streamOf(t, folderOf(t, files{"a": "one", "b/c": "two"}))
	for n := range whole {
		if err := Extract(bytes.NewReader(whole[:n]), t.TempDir(), roomy); !errors.Is(err, ErrDamaged) {
			t.Errorf("Extract of %d of %d bytes = %v, want ErrDamaged", n, len(whole), err)
		}
	}
	lost := errors.New("the job went to another worker")
	for _, n := range []int{3, block + 5, len(whole) - 1, len(whole)} {
		broken := io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(lost))
		if err := Extract(broken, t.TempDir(), roomy); !errors.Is(err, lost) || errors.Is(err, ErrDamaged) {
			t.Errorf("Extract of a stream that fails at %d = %v, want its error", n, err)
		}
	}
}
