package archive

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/test/need"
)

// withLinks adds links, by path, to a folder.
func withLinks(t testing.TB, dir string, links map[string]string) string {
	t.Helper()
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			need.Missing(t, "symbolic links: "+err.Error())
		}
	}
	return dir
}

// steps is a folder of checkpoints with links to some.
func steps(t testing.TB) string {
	t.Helper()
	dir := folderOf(t, files{"step-100/weights": text(1, 2*chunk+5), "step-90/weights": "old\n", "notes/": ""})
	return withLinks(t, dir, map[string]string{
		"latest": "step-100", "best": "./step-90/", "notes/previous": "../step-90/weights", "notes/next": "../step-110", "all": ".",
		"again": "latest/weights",
	})
}

// TestLinks: links that stay in the folder come back as they were, also links that lead
// nowhere yet.
func TestLinks(t *testing.T) {
	dir, back := steps(t), t.TempDir()
	if err := Extract(bytes.NewReader(streamOf(t, dir)), back, roomy); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(contentOf(t, dir), contentOf(t, back)); diff != "" {
		t.Errorf("folders differ (- before, + after):\n%s", diff)
	}
	if got, err := os.ReadFile(filepath.Join(back, "again")); len(got) != 2*chunk+5 || err != nil {
		t.Errorf("through two links there are %d bytes, %v, want the file", len(got), err)
	}
}

// badTargets are targets of a link in a/b that lead out of the folder, or could with the
// help of another link.
var badTargets = map[string]string{
	"/etc/hostname": "its target is absolute", "/": "absolute", "../../x": "its target is outside", "../..": "outside",
	"./../../x": "outside", "x/../y": "its target goes up behind a name", "../x/../../y": "behind a name", "x/./..": "behind a name",
}

func TestLinksOut(t *testing.T) {
	for target, says := range badTargets {
		dir := withLinks(t, folderOf(t, files{"a/": ""}), map[string]string{"a/b": target})
		if _, err := Scan(t.Context(), dir, roomy); !errors.Is(err, ErrUnfit) || !strings.Contains(err.Error(), says) ||
			!strings.Contains(err.Error(), `"a/b" is a symbolic link to "`+target+`"`) {
			t.Errorf("Scan of a link to %s = %v, want ErrUnfit that names it and says %q", target, err, says)
		}
	}
}

// TestNoLinkLeadsOut tries every two links of two steps each, where the first may lead
// over the second: accepted links stay in the folder.
func TestNoLinkLeadsOut(t *testing.T) {
	steps := []string{"..", "a", "b", "a/b/n"}
	targets := slices.Clone(steps)
	for _, first := range steps {
		for _, second := range steps {
			targets = append(targets, first+"/"+second)
		}
	}
	parent, accepted := t.TempDir(), 0
	for _, n := range targets {
		for _, l := range targets {
			if checkTarget("a/b/n", n) != nil || checkTarget("l", l) != nil {
				continue
			}
			accepted++
			dir := filepath.Join(parent, strconv.Itoa(accepted), "a", "b") // with places that a link out would find
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			data := archiveOf(t, folder("a"), folder("a/b"), symlink("a/b/n", n), symlink("l", l))
			if err := Extract(bytes.NewReader(data), dir, roomy); err != nil {
				t.Fatalf("Extract of a/b/n to %s and l to %s = %v", n, l, err)
			}
			if out := leadsOut(dir); out != "" {
				t.Errorf("a/b/n to %s and l to %s: %s", n, l, out)
			}
		}
	}
	if accepted < 50 {
		t.Errorf("%d pairs were tried, want most", accepted)
	}
}

// leadsOut finds a link below a folder that leads elsewhere.
func leadsOut(dir string) string {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err.Error()
	}
	out := ""
	_ = filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.Type()&os.ModeSymlink == 0 {
			return err
		}
		to, err := filepath.EvalSymlinks(name)
		if err == nil && to != root && !strings.HasPrefix(to, root+string(filepath.Separator)) {
			out = name + " leads to " + to
		}
		return nil // a link that leads nowhere, or in circles, leads to nothing else
	})
	return out
}
