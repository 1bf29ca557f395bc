package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
)

// nested makes a chain of folders of that depth below dir, from the inside out:
// no path in it fits into a call.
func nested(t *testing.T, dir string, depth int) {
	t.Helper()
	inner := filepath.Join(dir, "x")
	if err := os.Mkdir(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	for range depth - 1 {
		outer := filepath.Join(dir, "y")
		if err := os.Mkdir(outer, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(inner, filepath.Join(outer, "x")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(outer, inner); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRemoveTree(t *testing.T) {
	for name, fill := range map[string]func(t *testing.T, dir string){
		"empty": func(*testing.T, string) {},
		"deeper than any path and any limit of descriptors": func(t *testing.T, dir string) { nested(t, dir, 2500) },
		"many folders": func(t *testing.T, dir string) {
			for i := range 1500 {
				if err := os.MkdirAll(filepath.Join(dir, fmt.Sprintf("%d/%d", i%60, i)), 0o700); err != nil {
					t.Fatal(err)
				}
			}
		},
		"many files": func(t *testing.T, dir string) {
			for i := range 3 * removeBatch {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		},
		"names that the removal uses itself": func(t *testing.T, dir string) {
			for _, name := range []string{".remove-1/a", ".remove-2/b/.remove-3/c", "d/.remove-1/e"} {
				if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
					t.Fatal(err)
				}
			}
		},
		"rights taken away": func(t *testing.T, dir string) {
			if err := os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o700); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"a/b/c", "a/b", "a", "."} {
				if err := os.Chmod(filepath.Join(dir, name), 0); err != nil {
					t.Fatal(err)
				}
			}
		},
		"links": func(t *testing.T, dir string) {
			for name, to := range map[string]string{"self": ".", "root": "/", "nowhere": "nowhere"} {
				if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
					need.Missing(t, "symbolic links: "+err.Error())
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "tree")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			fill(t, dir)
			if err := RemoveTree(dir); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(dir); !os.IsNotExist(err) {
				t.Errorf("Lstat afterwards = %v, want that there is nothing", err)
				_ = os.RemoveAll(dir)
			}
		})
	}
}

func TestRemoveTreeThatIsGone(t *testing.T) {
	if err := RemoveTree(filepath.Join(t.TempDir(), "gone")); err != nil {
		t.Errorf("RemoveTree of nothing = %v, want nil", err)
	}
}
