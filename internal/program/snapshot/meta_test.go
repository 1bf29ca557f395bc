package snapshot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/need"
)

func TestParseMeta(t *testing.T) {
	const good = `{"format": 1, "root": 1000, "last_pid": 1004, "unknown": true}`
	if m, err := ParseMeta([]byte(good)); err != nil || m.Root != 1000 || m.LastPID != 1004 {
		t.Errorf("parseMeta = %+v, %v", m, err)
	}
	for _, bad := range []string{
		"", "[]", "{", `{"format": 2, "root": 1000, "last_pid": 1000}`, `{"format": 1}`, `{"format": 1, "root": 1, "last_pid": 2000}`,
		`{"format": 1, "root": 1000, "last_pid": 999}`, `{"format": 1, "root": 1000, "last_pid": 99999999}`,
	} {
		if m, err := ParseMeta([]byte(bad)); !errors.Is(err, ErrDamaged) {
			t.Errorf("ParseMeta(%q) = %+v, %v, want ErrDamaged", bad, m, err)
		}
	}
	if _, err := ReadMeta(t.TempDir()); !errors.Is(err, ErrDamaged) {
		t.Errorf("ReadMeta without a file = %v, want ErrDamaged", err)
	}
}

// fill writes files of the given names and contents below a folder.
func fill(t *testing.T, dir string, namesAndTexts ...string) {
	t.Helper()
	for i := 0; i < len(namesAndTexts); i += 2 {
		name := filepath.Join(dir, filepath.FromSlash(namesAndTexts[i]))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(namesAndTexts[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnpack restores files with their times, and removes files of the new folder that the
// snapshot does not have.
func TestUnpack(t *testing.T) {
	dir, job := t.TempDir(), t.TempDir()
	fill(t, dir, "folder/work/a", "old", "folder/work/sub/b", "b", "folder/payload", "p", "images/pages-1.img", "memory")
	at := time.Unix(1_600_000_000, 123_000)
	if err := os.Chtimes(filepath.Join(dir, "folder/work/a"), at, at); err != nil {
		t.Fatal(err)
	}
	if err := writeAttributes(dir); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := os.Chtimes(filepath.Join(dir, "folder/work/a"), now, now); err != nil { // as the archive leaves it
		t.Fatal(err)
	}
	fill(t, job, "work/later", "written after the snapshot", "tmp/x", "x", "payload", "new")
	if err := Unpack(dir, job); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(job, "work/a"))
	if err != nil || info.ModTime().Unix() != at.Unix() {
		t.Errorf("work/a = %v, %v, want the time %v", info, err, at)
	}
	for name, want := range map[string]string{"work/a": "old", "work/sub/b": "b", "payload": "p"} {
		if got, err := os.ReadFile(filepath.Join(job, name)); string(got) != want {
			t.Errorf("%s = %q, %v, want %q", name, got, err, want)
		}
	}
	for _, gone := range []string{"work/later", "tmp"} {
		if _, err := os.Lstat(filepath.Join(job, gone)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s = %v, want it to be gone: the snapshot does not have it", gone, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "images/pages-1.img")); err != nil {
		t.Errorf("the images: %v", err)
	}
}

// TestHostileParts moves nothing of a snapshot whose parts are links, or have links out of the
// job's folder.
func TestHostileParts(t *testing.T) {
	for name, target := range map[string]string{"work": "..", "tmp": "work", "result": "../../x", "work/a": "../../x"} {
		dir, job := t.TempDir(), t.TempDir()
		fill(t, dir, "folder/payload", "p", "attributes", "")
		link := filepath.Join(dir, "folder", filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o700), os.Symlink(target, link)); err != nil {
			need.Missing(t, "the right to make links: "+err.Error())
		}
		err := Unpack(dir, job)
		if left, _ := os.ReadDir(job); !errors.Is(err, ErrDamaged) || len(left) > 0 {
			t.Errorf("%s -> %s: Unpack = %v with %v in the job's folder, want ErrDamaged and nothing", name, target, err, left)
		}
	}
}

// TestDamagedImages finds images that are not those that were written.
func TestDamagedImages(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"core.img is missing":   func(dir string) error { return os.Remove(filepath.Join(dir, "core.img")) },
		"core.img has other":    func(dir string) error { return os.WriteFile(filepath.Join(dir, "core.img"), []byte("c0re"), 0o600) },
		"pages-1.img has other": func(dir string) error { return os.Truncate(filepath.Join(dir, "pages-1.img"), maxImage+1) },
		"3 images":              func(dir string) error { return os.WriteFile(filepath.Join(dir, "new.img"), nil, 0o600) },
	} {
		dir := t.TempDir()
		fill(t, dir, "images/core.img", "core", "images/pages-1.img", "")
		if err := os.Truncate(filepath.Join(dir, "images/pages-1.img"), maxImage+2); err != nil {
			t.Fatal(err)
		}
		images, err := imagesIn(dir)
		if err != nil {
			t.Fatal(err)
		}
		m := Meta{Images: images}
		if err := m.CheckImages(dir); err != nil {
			t.Errorf("CheckImages of sound images = %v", err)
		}
		if err := damage(filepath.Join(dir, "images")); err != nil {
			t.Fatal(err)
		}
		if err := m.CheckImages(dir); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: CheckImages = %v", name, err)
		}
	}
}

// TestHostileAttributes changes nothing outside of the folder.
func TestHostileAttributes(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	fill(t, filepath.Dir(outside), "outside", "x")
	before, err := os.Stat(outside)
	if err != nil {
		t.Fatal(err)
	}
	for name, lines := range map[string]string{
		"above":    `{"p":"../../outside","m":511,"t":1}`,
		"absolute": `{"p":"` + filepath.ToSlash(outside) + `","m":511,"t":1}`,
		"missing":  `{"p":"work/b","m":511,"t":1}`,
		"pipe":     `{"p":"../../pipe","m":511,"t":1,"s":33554432}`,
		"part":     `{"p":"result","m":511,"t":1,"s":33554432}`,
		"no JSON":  `{"p":`,
	} {
		dir := filepath.Join(filepath.Dir(outside), strings.ReplaceAll(name, " ", "-"))
		fill(t, dir, "folder/work/a", "a", "attributes", lines)
		if err := Unpack(dir, t.TempDir()); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: Unpack = %v, want ErrDamaged", name, err)
		}
	}
	after, err := os.Stat(outside)
	if err != nil || after.Mode() != before.Mode() || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the file outside has changed: %v to %v, %v", before, after, err)
	}
}
