package outfolder

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/jobfiles/outputs/paths"
	"github.com/spotworker/spotworker/internal/test/need"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a sink that keeps all files that it gets.
type memory struct {
	mu     sync.Mutex
	files  map[string]string
	sends  map[string]int
	during func(path string) // called when half of a file is read
}

func (m *memory) Send(_ context.Context, path string, size int64, content io.Reader) error {
	half := make([]byte, size/2)
	if _, err := io.ReadFull(content, half); err != nil {
		return err
	}
	if m.during != nil {
		m.during(path)
	}
	rest, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files == nil {
		m.files, m.sends = map[string]string{}, map[string]int{}
	}
	m.files[path] = string(half) + string(rest)
	m.sends[path]++
	return nil
}

func (m *memory) Remove(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, path)
}

// rig is a folder and where it is sent to.
type rig struct {
	t   *testing.T
	dir string
	to  *memory
	*Folder
}

func setup(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), to: &memory{}}
	r.Folder = New(r.dir, func(f func() error) error { return f() }, r.to, 100)
	return r
}

func (r *rig) write(path, content string, age time.Duration) {
	r.t.Helper()
	name := filepath.Join(r.dir, filepath.FromSlash(path))
	at := time.Now().Add(-age)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(content), 0o600),
		os.Chtimes(name, at, at)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) pass(pass Pass) {
	r.t.Helper()
	if err := r.Send(r.t.Context(), pass); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) want(files map[string]string, sends map[string]int) {
	r.t.Helper()
	r.to.mu.Lock()
	defer r.to.mu.Unlock()
	if diff := cmp.Diff(files, maps.Clone(r.to.files)); diff != "" {
		r.t.Errorf("files (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(sends, r.to.sends); diff != "" {
		r.t.Errorf("sends (-want +got)\n%s", diff)
	}
}

// TestSentOnce: a file is sent again only if it changed, also if neither its size nor its
// time shows that, as just after it was written.
func TestSentOnce(t *testing.T) {
	r := setup(t)
	r.write("old", "12345", time.Hour)
	r.write("new", "12345", 0)
	r.write("same", "12345", 0)
	r.pass(Everything)
	r.pass(Everything)
	r.want(map[string]string{"old": "12345", "new": "12345", "same": "12345"}, map[string]int{"old": 1, "new": 1, "same": 1})
	info, err := os.Stat(filepath.Join(r.dir, "new"))
	if err != nil {
		t.Fatal(err)
	}
	r.Folder.sent["new"] = func(s sentFile) sentFile { s.fresh = true; return s }(r.Folder.sent["new"])
	if err := errors.Join(os.WriteFile(filepath.Join(r.dir, "new"), []byte("54321"), 0o600),
		os.Chtimes(filepath.Join(r.dir, "new"), info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
	r.write("old", "changed", time.Minute)
	r.pass(Final)
	r.want(map[string]string{"old": "changed", "new": "54321", "same": "12345"}, map[string]int{"old": 2, "new": 2, "same": 1})
	if err := os.Remove(filepath.Join(r.dir, "same")); err != nil {
		t.Fatal(err)
	}
	r.pass(Final)
	r.want(map[string]string{"old": "changed", "new": "54321"}, map[string]int{"old": 2, "new": 2, "same": 1})
}

// TestFinishedFilesOnly: a streaming pass sends files without changes since the last pass.
func TestFinishedFilesOnly(t *testing.T) {
	r := setup(t)
	r.write("a", "one", time.Hour)
	r.write("b", "one", time.Hour)
	r.pass(Finished)
	r.want(nil, nil)
	r.write("b", "two", time.Minute)
	r.pass(Finished)
	r.want(map[string]string{"a": "one"}, map[string]int{"a": 1})
	r.pass(Finished)
	r.want(map[string]string{"a": "one", "b": "two"}, map[string]int{"a": 1, "b": 1})
}

// TestChangesWhileRead: a file that grows is sent up to its first size, and again when it
// has grown; a file that changes in another way is read again, and never stored torn.
func TestChangesWhileRead(t *testing.T) {
	r := setup(t)
	r.write("log", "0123456789", time.Hour)
	once := sync.OnceFunc(func() {
		file, err := os.OpenFile(filepath.Join(r.dir, "log"), os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = file.WriteString("more")
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			t.Error(err)
		}
	})
	r.to.during = func(string) { once() }
	r.pass(Everything)
	r.want(map[string]string{"log": "0123456789"}, map[string]int{"log": 1})
	r.pass(Everything)
	r.want(map[string]string{"log": "0123456789more"}, map[string]int{"log": 2})

	r = setup(t)
	r.write("data", "0123456789", time.Hour)
	once = sync.OnceFunc(func() { r.write("data", "9876543210", 0) })
	r.to.during = func(string) { once() }
	r.pass(Everything)
	r.want(map[string]string{"data": "9876543210"}, map[string]int{"data": 1})

	r = setup(t)
	r.write("data", "0123456789", time.Hour)
	n := 0
	r.to.during = func(string) { n++; r.write("data", strings.Repeat(string(rune('a'+n)), 10), 0) }
	if err := r.Send(t.Context(), Everything); !errors.Is(err, errChanged) {
		t.Errorf("Send of a file that changes each time = %v, want errChanged", err)
	}
	r.want(nil, nil)
}

// TestHostileFolder: a program replaces files while they are opened. Nothing outside of
// its folder is sent, and nothing blocks.
func TestHostileFolder(t *testing.T) {
	need.NotOn(t, "windows", "links need rights there")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := setup(t)
	r.write("x", "public", time.Hour)
	r.write("d/y", "public", time.Hour)
	stop, swapped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(swapped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, swap := range []struct{ name, target string }{{"x", secret}, {"d", filepath.Dir(secret)}} {
				link, name, aside := filepath.Join(r.dir, "link"), filepath.Join(r.dir, swap.name), filepath.Join(r.dir, "aside-"+swap.name)
				_ = os.Symlink(swap.target, link)
				_ = os.Rename(name, aside)
				_ = os.Rename(link, name)
				_ = os.Rename(name, link)
				_ = os.Remove(link)
				_ = os.Rename(aside, name)
			}
		}
	}()
	for range 300 {
		if err := r.Send(t.Context(), Everything); errors.Is(err, paths.ErrRefused) {
			t.Errorf("Send = %v", err)
		}
		clear(r.Folder.sent)
	}
	close(stop)
	<-swapped
	r.to.mu.Lock()
	defer r.to.mu.Unlock()
	for name, content := range r.to.files {
		if content != "public" {
			t.Errorf("output %s = %q: it is from outside of the folder", name, content)
		}
	}
}

// TestRestore: a restored file is not sent again, unless it is changed afterwards.
func TestRestore(t *testing.T) {
	r := setup(t)
	saved := map[string]string{"a": "one", "d/e/b": "two"}
	err := r.Restore(t.Context(), []Sent{{"a", true}, {"d/e/b", false}}, func(_ context.Context, path string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(saved[path])), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.pass(Final)
	r.want(nil, nil)
	r.write("d/e/b", "TWO", 0)
	r.pass(Final)
	r.want(map[string]string{"d/e/b": "TWO"}, map[string]int{"d/e/b": 1})
	if info, err := os.Stat(filepath.Join(r.dir, "a")); err != nil || info.Mode()&executable == 0 && runtime.GOOS != "windows" {
		t.Errorf("a restored program is %v, %v, want an executable file", info, err)
	}
}

// TestSkipPresent: files that a job brings are no outputs until they change.
func TestSkipPresent(t *testing.T) {
	r := setup(t)
	r.write("brought", "one", time.Hour)
	r.write("changed", "one", time.Hour)
	r.write("removed", "one", time.Hour)
	if err := r.SkipPresent(); err != nil {
		t.Fatal(err)
	}
	r.write("changed", "two", 0)
	r.write("new", "three", 0)
	if err := os.Remove(filepath.Join(r.dir, "removed")); err != nil {
		t.Fatal(err)
	}
	r.pass(Final)
	r.want(map[string]string{"changed": "two", "new": "three"}, map[string]int{"changed": 1, "new": 1})
	if err := os.RemoveAll(filepath.Dir(r.dir)); err != nil {
		t.Fatal(err)
	}
	if err := r.Send(t.Context(), Everything); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Send after the removal of the job's folder = %v, want that it is missing", err)
	}
	r.want(map[string]string{"changed": "two", "new": "three"}, map[string]int{"changed": 1, "new": 1})
}

// TestMadeAgain: a program may remove the folder and make it again, and make a file executable
// after it was sent. Something else in the place of the folder is refused at the end.
func TestMadeAgain(t *testing.T) {
	r := setup(t)
	r.write("a", "one", time.Hour)
	r.pass(Everything)
	if err := os.RemoveAll(r.dir); err != nil {
		t.Fatal(err)
	}
	r.pass(Everything)
	r.want(map[string]string{}, map[string]int{"a": 1})
	r.write("b", "two", time.Hour)
	r.pass(Everything)
	if runtime.GOOS != "windows" {
		if err := os.Chmod(filepath.Join(r.dir, "b"), 0o700); err != nil {
			t.Fatal(err)
		}
		r.pass(Final)
		r.want(map[string]string{"b": "two"}, map[string]int{"a": 1, "b": 2})
	}
	if err := errors.Join(os.RemoveAll(r.dir), os.WriteFile(r.dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	r.pass(Everything)
	if err := r.Send(t.Context(), Final); !errors.Is(err, paths.ErrRefused) || !strings.Contains(err.Error(), "no folder any more") {
		t.Errorf("Send of a file in the place of the folder = %v", err)
	}
}
