package lab

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/text"
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

// choose returns the inputs that Choose chose, as the names of their parts
// relative to their folders.
func choose(t *testing.T, n int, size int64, roots ...string) []string {
	t.Helper()
	files, err := Choose(roots, n, size)
	if err != nil {
		t.Fatal(err)
	}
	var inputs []string
	for _, f := range files {
		var names []string
		for _, path := range f.Parts {
			for _, root := range roots {
				if name, ok := strings.CutPrefix(path, root+"/"); ok {
					names = append(names, name)
				}
			}
		}
		inputs = append(inputs, strings.Join(names, " "))
	}
	return inputs
}

func TestChoose(t *testing.T) {
	first := makeFiles(t, map[string]int64{
		"huge": 41 * mib, "large": 40 * mib, "fit": 28 * mib, "b/half": 20 * mib, "a/half": 20 * mib, "empty": 0, "rest": 5 * mib,
	})
	second := makeFiles(t, map[string]int64{"other": 30 * mib, "bit": 9 * mib, "tiny": 3})
	for _, test := range []struct {
		name string
		n    int
		want []string
	}{
		{"one file each, where they are large enough", 2, []string{"large", "fit"}},
		{"several files in one", 3, []string{"large", "fit", "a/half b/half"}},
		{"from the second folder", 4, []string{"large", "other", "fit", "a/half b/half"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, choose(t, test.n, 32*mib, first, second)); diff != "" {
				t.Errorf("chosen (-want +got):\n%s", diff)
			}
		})
	}
	if got := choose(t, 5, 32*mib, first, second); len(got) != 5 {
		t.Errorf("%d inputs where there is too little for five large ones, want five smaller ones: %q", len(got), got)
	}
	if got := choose(t, 99, 32*mib, first, second); len(got) < 5 || len(got) > 20 {
		t.Errorf("%d inputs where there is too little for 99, want as many as there are of the least size: %q", len(got), got)
	}
}

func TestChosenSizesAreInBounds(t *testing.T) {
	sizes := map[string]int64{}
	for i := range 60 {
		sizes[strings.Repeat("x", i+1)] = int64(i+1) * mib / 2
	}
	root := makeFiles(t, sizes)
	files, err := Choose([]string{root}, 25, 32*mib)
	if err != nil || len(files) != 25 {
		t.Fatalf("Choose = %d inputs, %v, want 25", len(files), err)
	}
	var used, blobs []string
	for _, f := range files {
		if f.Size < 28*mib || f.Size > 40*mib {
			t.Errorf("%s has %s, want 28 to 40 MiB", f.Blob, text.Size(f.Size))
		}
		used, blobs = append(used, f.Parts...), append(blobs, f.Blob)
	}
	for _, names := range [][]string{used, blobs} {
		slices.Sort(names)
		if n := len(names); len(slices.Compact(names)) != n {
			t.Errorf("used twice: %q", names)
		}
	}
}

func TestChoosePassesOverWhatCannotBeInput(t *testing.T) {
	root := makeFiles(t, map[string]int64{
		"good": 30 * mib, "with space": 31 * mib, "per%cent": 31 * mib, "que?stion": 31 * mib, `back\slash`: 31 * mib, "é": 31 * mib,
	})
	if err := os.Symlink(filepath.Join(root, "good"), filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"good"}, choose(t, 1, 32*mib, root, "/does/not/exist")); diff != "" {
		t.Errorf("chosen (-want +got):\n%s", diff)
	}
}

func TestChooseWithoutFiles(t *testing.T) {
	root := makeFiles(t, map[string]int64{"small": smallestInput / 2})
	_, err := Choose([]string{root}, 3, 32*mib)
	if err == nil || !strings.Contains(err.Error(), root) {
		t.Errorf("Choose in a folder without enough = %v, want an error that names it", err)
	}
}

func TestPace(t *testing.T) {
	files := []File{{Blob: "a", Size: 10 * mib}, {Blob: "b", Size: 5 * mib}, {Blob: "c", Size: 3 * mib}}
	for _, test := range []struct {
		name    string
		files   []File
		jobTime time.Duration
		call    storage.Call
		want    int64 // bytes per second; 0: no limit
	}{
		{"the mean takes the job's time", files, 12 * time.Second, storage.Call{Operation: storage.OpGetBlob, Container: InputContainer},
			mib / 2},
		{"no pace", files, 0, storage.Call{Operation: storage.OpGetBlob, Container: InputContainer}, 0},
		{"no files", nil, time.Second, storage.Call{Operation: storage.OpGetBlob, Container: InputContainer}, 0},
		{"never no bytes at all", []File{{Size: 1}}, time.Hour, storage.Call{Operation: storage.OpGetBlob, Container: InputContainer}, 1},
		{"another container", files, 12 * time.Second, storage.Call{Operation: storage.OpGetBlob, Container: "out"}, 0},
		{"another operation", files, 12 * time.Second, storage.Call{Operation: storage.OpPutBlob, Container: InputContainer}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := PaceFor(test.files, test.jobTime).Fault(test.call)
			if want := (storage.Fault{Bandwidth: storage.Bandwidth{Down: test.want}}); !reflect.DeepEqual(got, want) {
				t.Errorf("Fault = %+v, want %+v", got, want)
			}
		})
	}
}
