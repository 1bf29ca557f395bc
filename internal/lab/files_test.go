package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const mib = 1 << 20

// makeFiles makes sparse files of those sizes and returns their folder.
func makeFiles(t *testing.T, sizes map[string]int64) string {
	t.Helper()
	root := t.TempDir()
	for name, size := range sizes {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// choose returns the names that Choose chose, relative to their folders.
func choose(t *testing.T, n int, roots ...string) []string {
	t.Helper()
	files, err := Choose(roots, n)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		for _, root := range roots {
			if name, ok := strings.CutPrefix(f.Path, root+"/"); ok {
				names = append(names, name)
			}
		}
	}
	return names
}

func TestChooseTakesTheLargestThatFit(t *testing.T) {
	first := makeFiles(t, map[string]int64{
		"huge": largestFile + 1, "large": largestFile, "b/equal": 9 * mib, "a/equal": 9 * mib,
		"fit": smallestFile, "small": smallestFile - 1, "empty": 0,
	})
	second := makeFiles(t, map[string]int64{"other": 8 * mib, "another": 12 * mib, "tiny": 3})
	for _, test := range []struct {
		name string
		n    int
		want []string
	}{
		{"fewer than there are", 2, []string{"large", "a/equal"}},
		{"all of the first folder", 4, []string{"large", "a/equal", "b/equal", "fit"}},
		{"some of the second", 5, []string{"large", "another", "a/equal", "b/equal", "fit"}},
		{"small ones when nothing else is left", 7, []string{"large", "another", "a/equal", "b/equal", "other", "fit", "small"}},
		{"no more than there are", 99, []string{"large", "another", "a/equal", "b/equal", "other", "fit", "small", "tiny"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, choose(t, test.n, first, second)); diff != "" {
				t.Errorf("chosen (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChoosePassesOverWhatCannotBeInput(t *testing.T) {
	root := makeFiles(t, map[string]int64{
		"good": 5 * mib, "with space": 6 * mib, "per%cent": 6 * mib, "que?stion": 6 * mib, `back\slash`: 6 * mib, "é": 6 * mib,
	})
	if err := os.Symlink(filepath.Join(root, "good"), filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"good"}, choose(t, 9, root, "/does/not/exist")); diff != "" {
		t.Errorf("chosen (-want +got):\n%s", diff)
	}
}

func TestChooseWithoutFiles(t *testing.T) {
	root := t.TempDir()
	_, err := Choose([]string{root}, 3)
	if err == nil || !strings.Contains(err.Error(), root) {
		t.Errorf("Choose in an empty folder = %v, want an error that names it", err)
	}
}

func TestFoldersAreNamed(t *testing.T) {
	files := []File{{Path: "/go/bin/go"}, {Path: "/go/pkg/x"}, {Path: "/gopher/y"}, {Path: "/usr/lib/z"}}
	got := listFolders(files, []string{"/go", "/usr/lib", "/usr/bin"})
	if want := "2 from /go, 1 from /usr/lib"; got != want {
		t.Errorf("listFolders = %q, want %q", got, want)
	}
}

func TestUploadHashesWhatItSends(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "abc")
	if err := os.WriteFile(path, []byte("abc"), 0o644); err != nil {
		t.Fatal(err)
	}
	local, err := StartLocal()
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	account, err := local.Account()
	if err != nil {
		t.Fatal(err)
	}
	files := []File{{Path: path, Blob: "x/abc", Size: 99}} // it has changed since it was chosen
	if err := Upload(t.Context(), account.Container("input"), files); err != nil {
		t.Fatal(err)
	}
	// FIPS 180-2, appendix B.1.
	want := File{Path: path, Blob: "x/abc", Size: 3, SHA256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}
	if diff := cmp.Diff(want, files[0]); diff != "" {
		t.Errorf("file after the upload (-want +got):\n%s", diff)
	}
	if _, body, ok := local.Storage.ReadBlob("input", "x/abc"); !ok || string(body) != "abc" {
		t.Errorf("blob after the upload = %q, %t, want abc", body, ok)
	}
}
