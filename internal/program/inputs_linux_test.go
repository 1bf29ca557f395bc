package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/job"
)

// cached makes files like the files of the cache of inputs, which is beside the scratch folder.
func cached(t *testing.T, b *rig, content map[string]string) (folder string, files []job.InputFile) {
	t.Helper()
	folder = filepath.Join(b.scratch.Parent(), "cache")
	for name, text := range content {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o444); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o444); err != nil {
			t.Fatal(err)
		}
		files = append(files, job.InputFile{Name: name, File: file, Size: int64(len(text))})
	}
	return folder, files
}

// TestAttackOnInputs: a program finds its inputs, and cannot change the cache by any act.
// A program with a user of its own cannot change its inputs at all, and nothing of them
// is left behind.
func TestAttackOnInputs(t *testing.T) {
	b := setup(t)
	folder, files := cached(t, b, map[string]string{"a.txt": "one", "deep/er/b.txt": "two", "empty": ""})
	for range 2 { // the second would find the changes of the first
		k := script(`cd "$SPOTWORKER_INPUTS" && find . -type f | sort | tr '\n' ' ' && cat a.txt deep/er/b.txt && echo
			(chmod -R u+w . && echo x >a.txt && echo x >new && rm -r deep) >/dev/null 2>&1 && echo changed
			ln a.txt "$TMPDIR/mine" 2>/dev/null && echo x >"$TMPDIR/mine" 2>/dev/null && echo linked
			ls "` + folder + `" >/dev/null 2>&1 && echo "sees the cache"
			true`)
		w := b.prepared(withResult(k), func(j job.Control) { j.SetInputs(folder, files) })
		first, rest, _ := strings.Cut(string(w.result), "\n")
		if w.err != nil || first != "./a.txt ./deep/er/b.txt ./empty onetwo" {
			t.Errorf("program saw %q, %v", w.result, w.err)
		}
		if testUsers(t) != nil && rest != "" {
			t.Errorf("a program with a user of its own: %q", rest)
		}
		for _, file := range files {
			if data, err := os.ReadFile(file.File); err != nil || int64(len(data)) != file.Size {
				t.Errorf("%s in the cache = %q, %v", file.Name, data, err)
			}
		}
		w.Close()
	}
	if left, err := filepath.Glob(filepath.Join(b.home(), "inputs-*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
