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
		{"too many files", files{"a": "", "b": "", "c/": ""}, nil, Limits{Bytes: 1000, Entries: 2, Index: maxIndex}, ErrTooLarge,
			"more than 2 files"},
		{"too many bytes", files{"a": "12345"}, nil, Limits{Bytes: 4, Entries: 9, Index: maxIndex}, ErrTooLarge, "more than 4 bytes"},
		{"too many with the index", files{"a": "12345"}, nil, Limits{Bytes: 60, Entries: 9, Index: maxIndex}, ErrTooLarge, "of 60 allowed"},
		{"no folder", nil, os.RemoveAll, roomy, os.ErrNotExist, ""},
	} {
		dir := folderOf(t, row.content)
		if row.spoil != nil {
			if err := row.spoil(dir); err != nil {
				t.Logf("%s: skipped: %v", row.name, err)
				continue
			}
		}
		if _, err := Scan(t.Context(), dir, os.TempDir(), row.limits); !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.says) {
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
	_, err = Scan(t.Context(), dir, os.TempDir(), Limits{Bytes: 1 << 40, Entries: 100 * enough, Index: index})
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
		index, err := Scan(t.Context(), dir, os.TempDir(), roomy)
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
		index, err := Scan(t.Context(), dir, os.TempDir(), roomy)
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
		if err := errors.Join(opened.Close(), index.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestScanStops: a scan of many files ends when its context does.
func TestScanStops(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the VM is evicted")
	cancel(stop)
	if _, err := Scan(ctx, folderOf(t, files{"a": ""}), os.TempDir(), roomy); !errors.Is(err, stop) {
		t.Errorf("Scan = %v, want %v", err, stop)
	}
}

// stream builds one by hand, with an index that may lie.
func stream(body string, lines ...string) []byte {
	index := strings.Join(lines, "\n")
	if index != "" {
		index += "\n"
	}
	return fmt.Appendf(nil, "%s%0*x\n%s%s", magic1, digits, len(index), index, body)
}

// line is one of an index, for a file that lies right behind it.
func line(kind byte, size, body, rest int, quoted string) string {
	return fmt.Sprintf("%c %012x %012x %012x %s", kind, size, body, rest, quoted)
}

// TestExtractRefuses hands Extract archives that an attacker, or a damaged disk, could
// have changed. Nothing may appear beside the folder.
func TestExtractRefuses(t *testing.T) {
	one := func(quoted string) []byte {
		at := headerLen + len(line(plain, 1, 0, 0, quoted)) + 1
		return stream("x", line(plain, 1, 0, at, quoted))
	}
	at := headerLen + len(line(plain, 1, 0, 0, `"a"`)) + 1
	for name, row := range map[string]struct {
		stream []byte
		want   error
	}{
		"nothing":                 {nil, ErrDamaged},
		"something else":          {[]byte(strings.Repeat("PK", 100)), ErrDamaged},
		"another version":         {[]byte("spotworker-archive 5 000000000000\n"), ErrDamaged},
		"an index that is huge":   {[]byte(magic1 + "0fffffffffff\n"), ErrTooLarge},
		"a path to the top":       {one(`"/etc/x"`), ErrDamaged},
		"a path upwards":          {one(`"../x"`), ErrDamaged},
		"a path that hides it":    {one(`"a/../../x"`), ErrDamaged},
		"a path that is not kept": {one(`"a//b"`), ErrDamaged},
		"the folder itself":       {one(`"."`), ErrDamaged},
		"no path":                 {one(`""`), ErrDamaged},
		"a path in back-quotes":   {one("`a`"), ErrDamaged},
		"a path that is too long": {one(`"` + strings.Repeat("a", maxPath+1) + `"`), ErrDamaged},
		"a line without an end":   {one(`"` + strings.Repeat("a", 2*maxLine) + `"`), ErrDamaged},
		"a missing folder":        {one(`"no/x"`), ErrDamaged},
		"an unknown type":         {stream("x", line('l', 1, 0, at, `"a"`)), ErrDamaged},
		"capital digits":          {stream("x", strings.ToUpper(line(plain, 171, 0, at, `"`))+`a"`), ErrDamaged},
		"a folder with a size":    {stream("x", line(folder, 1, 0, at, `"a"`)), ErrDamaged},
		"a file over the index":   {stream("x", line(plain, 1, 0, 5, `"a"`)), ErrDamaged},
		"a long gap":              {stream(strings.Repeat("\x00", 2*chunk), line(plain, 1, 0, at+chunk, `"a"`)), ErrDamaged},
		"more behind":             {stream("xy", line(plain, 1, 0, at, `"a"`)), ErrDamaged},
		"less than it says":       {stream("", line(plain, 1, 0, at, `"a"`)), ErrDamaged},
		"twice the same": {stream("xy", line(plain, 1, 0, 2*at-headerLen, `"a"`),
			line(plain, 1, 0, 2*at-headerLen+1, `"a"`)), ErrDamaged},
		"below a file": {stream("xy", line(plain, 1, 0, 2*at-headerLen+2, `"a"`),
			line(plain, 1, 0, 2*at-headerLen+3, `"a/b"`)), ErrDamaged},
		"one over another": {stream("xy", line(plain, 2, 0, 2*at-headerLen, `"a"`),
			line(plain, 1, 0, 2*at-headerLen+1, `"b"`)), ErrDamaged},
		"a file that is too large": {stream("", line(plain, 1<<40, chunk, 0, `"a"`)), ErrTooLarge},
		"a size that overflows":    {stream("", line(plain, 1<<47, chunk, 0, `"a"`), line(plain, 1<<47, chunk, 0, `"b"`)), ErrTooLarge},
	} {
		outside := t.TempDir()
		dir := filepath.Join(outside, "in", "folder")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := Extract(bytes.NewReader(row.stream), dir, os.TempDir(), roomy); !errors.Is(err, row.want) {
			t.Errorf("%s: Extract = %v, want %v", name, err, row.want)
		}
		if got := contentOf(t, outside); len(got)-len(contentOf(t, dir)) != 2 {
			t.Errorf("%s: beside the folder there is %v", name, got)
		}
	}
	var many []string
	for i := range 5 {
		many = append(many, line(folder, 0, 0, 0, fmt.Sprintf("%q", fmt.Sprint(i))))
	}
	if err := Extract(bytes.NewReader(stream("", many...)), t.TempDir(), os.TempDir(),
		Limits{Bytes: 9, Entries: 4, Index: maxIndex}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Extract of more entries than allowed = %v, want ErrTooLarge", err)
	}
}

// A folder that leads elsewhere by a link is not followed out.
func TestExtractThroughALink(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "a")); err != nil {
		need.Missing(t, "symbolic links: "+err.Error())
	}
	whole := streamOf(t, folderOf(t, files{"a/b": "x"}))
	if err := Extract(bytes.NewReader(whole), dir, os.TempDir(), roomy); err == nil {
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
		if err := Extract(bytes.NewReader(whole[:n]), t.TempDir(), os.TempDir(), roomy); !errors.Is(err, ErrDamaged) {
			t.Errorf("Extract of %d of %d bytes = %v, want ErrDamaged", n, len(whole), err)
		}
	}
	lost := errors.New("the job went to another worker")
	for _, n := range []int{3, headerLen + 5, len(whole) - 1, len(whole)} {
		broken := io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(lost))
		if err := Extract(broken, t.TempDir(), os.TempDir(), roomy); !errors.Is(err, lost) || errors.Is(err, ErrDamaged) {
			t.Errorf("Extract of a stream that fails at %d = %v, want its error", n, err)
		}
	}
}

// TestFormat holds the format to archives in people's accounts.
func TestFormat(t *testing.T) {
	want, err := os.ReadFile("testdata/small.archive")
	if err != nil {
		t.Fatal(err)
	}
	content := files{"b/c": "two\n", "b/": "", "a": "one\n", "ü": ""}
	if got := streamOf(t, folderOf(t, content)); !bytes.Equal(got, want) {
		t.Errorf("stream is\n%q, want\n%q", got, want)
	}
	back := t.TempDir()
	if err := Extract(bytes.NewReader(want), back, os.TempDir(), roomy); err != nil {
		t.Fatal(err)
	}
	if got := contentOf(t, back); got["b/c"] != "two\n" || len(got) != len(content) {
		t.Errorf("what came back is %v, want %v", got, content)
	}
}

// FuzzExtract: for all bytes, Extract stays within its folder and its limits, and Scan
// and Extract agree about every accepted folder.
func FuzzExtract(f *testing.F) {
	f.Add(streamOf(f, folderOf(f, files{"a": "one", "b/c": "two", "d/": ""})))
	f.Add(stream("x", line(plain, 1, 0, headerLen+45, `"../x"`)))
	f.Add([]byte(magic1))
	f.Add(version2(stream("x", line(folder, 0, 0, 0, `"a"`), line(link, 0, 0, 0, `"a/l"`)+` "../b"`, line(plain, 1, 0, headerLen+153, `"b"`))))
	for _, target := range []string{".", "a/..", "..", "/", "b/c", "l"} {
		f.Add(version2(stream("", line(link, 0, 0, 0, `"l"`)+` "`+target+`"`, line(folder, 0, 0, 0, `"l/x"`))))
		f.Add(version2(stream("", line(link, 0, 0, 0, `"l"`)+` "`+target+`"`, line(link, 0, 0, 0, `"m"`)+` "l/`+target+`"`)))
	}
	small := Limits{Bytes: 4 << 20, Entries: 50, Index: maxIndex}
	f.Fuzz(func(t *testing.T, data []byte) {
		outside := t.TempDir()
		dir := filepath.Join(outside, "folder")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		err := Extract(bytes.NewReader(data), dir, os.TempDir(), small)
		got := contentOf(t, outside)
		total := 0
		for name, text := range got {
			if !strings.HasPrefix(name, "folder/") {
				t.Fatalf("%q is beside the folder", name)
			}
			total += len(text)
		}
		if len(got)-1 > small.Entries || int64(total) > small.Bytes {
			t.Fatalf("%d entries and %d bytes, more than allowed", len(got)-1, total)
		}
		if out := leadsOut(dir); out != "" {
			t.Fatal(out)
		}
		if err != nil {
			return
		}
		back := t.TempDir()
		if err := Extract(bytes.NewReader(streamOf(t, dir)), back, os.TempDir(), roomy); err != nil {
			t.Fatalf("Extract of what was extracted = %v", err)
		}
	})
}
