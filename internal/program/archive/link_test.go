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
	if err := Extract(bytes.NewReader(streamOf(t, dir)), back, os.TempDir(), roomy); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(contentOf(t, dir), contentOf(t, back)); diff != "" {
		t.Errorf("folders differ (- before, + after):\n%s", diff)
	}
	if got, err := os.ReadFile(filepath.Join(back, "again")); len(got) != 2*chunk+5 || err != nil {
		t.Errorf("through two links there are %d bytes, %v, want the file", len(got), err)
	}
}

// TestLinkFormat holds archives with links to archives in people's accounts, and archives
// without to the format of earlier versions.
func TestLinkFormat(t *testing.T) {
	dir := withLinks(t, folderOf(t, files{"step-1/a": "one\n"}), map[string]string{"latest": "step-1"})
	want, err := os.ReadFile("testdata/links.archive")
	if err != nil {
		t.Fatal(err)
	}
	if got := streamOf(t, dir); !bytes.Equal(got, want) {
		t.Errorf("stream is\n%q, want\n%q", got, want)
	}
	if index, err := Scan(t.Context(), dir, os.TempDir(), roomy); err != nil || index.Version() != 2 {
		t.Errorf("Scan = %+v, %v, want links", index, err)
	}
	if err := os.Remove(filepath.Join(dir, "latest")); err != nil {
		t.Fatal(err)
	}
	if index, err := Scan(t.Context(), dir, os.TempDir(), roomy); err != nil || index.Version() != 1 ||
		!bytes.HasPrefix(streamOf(t, dir), []byte(magic1)) {
		t.Errorf("Scan without links = %+v, %v, want an archive of version 1", index, err)
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
		if _, err := Scan(t.Context(), dir, os.TempDir(), roomy); !errors.Is(err, ErrUnfit) || !strings.Contains(err.Error(), says) ||
			!strings.Contains(err.Error(), `"a/b" is a symbolic link to "`+target+`"`) {
			t.Errorf("Scan of a link to %s = %v, want ErrUnfit that names it and says %q", target, err, says)
		}
	}
}

// linkLine is a line of an index for a link.
func linkLine(quoted, target string) string { return line(link, 0, 0, 0, quoted) + " " + target }

// TestExtractRefusesLinks hands Extract the links of an attacker.
func TestExtractRefusesLinks(t *testing.T) {
	fileBehind := func(lines ...string) []byte { // a file of one byte as the last entry, at the right place
		at := headerLen
		for _, l := range lines {
			at += len(l) + 1
		}
		name := `"a/x"`
		at += len(line(plain, 1, 0, 0, name)) + 1
		return version2(stream("x", append(lines, line(plain, 1, 0, at, name))...))
	}
	rows := map[string][]byte{
		"in an archive without links": stream("", linkLine(`"a"`, `"b"`)),
		"without a target":            version2(stream("", line(link, 0, 0, 0, `"a"`))),
		"an empty target":             version2(stream("", linkLine(`"a"`, `""`))),
		"a zero in the target":        version2(stream("", linkLine(`"a"`, `"b\x00c"`))),
		"a target that is too long":   version2(stream("", linkLine(`"a"`, `"`+strings.Repeat("b", maxTarget+1)+`"`))),
		"a target in back-quotes":     version2(stream("", linkLine(`"a"`, "`b`"))),
		"two targets":                 version2(stream("", linkLine(`"a"`, `"b" "c"`))),
		"a target of a file":          version2(stream("", line(folder, 0, 0, 0, `"a"`)+` "b"`)),
		"a size":                      version2(stream("x", line(link, 1, 0, 0, `"a"`)+` "b"`)),
		"a path out":                  version2(stream("", linkLine(`"../a"`, `"b"`))),
		"twice":                       version2(stream("", linkLine(`"a"`, `"b"`), linkLine(`"a"`, `"c"`))),
		"a file through it":           fileBehind(linkLine(`"a"`, `"."`)),
		"a folder through it":         version2(stream("", linkLine(`"a"`, `"."`), line(folder, 0, 0, 0, `"a/x"`))),
		"a link through it":           version2(stream("", linkLine(`"a"`, `"."`), linkLine(`"a/x"`, `"b"`))),
		"a chain that leads out": version2(stream("", line(folder, 0, 0, 0, `"a"`), line(folder, 0, 0, 0, `"a/b"`),
			linkLine(`"a/b/up"`, `"../.."`), linkLine(`"out"`, `"a/b/up/.."`))),
	}
	for target := range badTargets {
		rows["to "+target] = version2(stream("", line(folder, 0, 0, 0, `"a"`), linkLine(`"a/b"`, `"`+target+`"`)))
	}
	for name, data := range rows {
		outside := t.TempDir()
		dir := filepath.Join(outside, "in", "folder")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := Extract(bytes.NewReader(data), dir, os.TempDir(), roomy); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: Extract = %v, want ErrDamaged", name, err)
		}
		if got := contentOf(t, outside); len(got) != len(contentOf(t, dir))+2 {
			t.Errorf("%s: beside the folder there is %v", name, got)
		}
	}
}

// version2 sets an archive's version to 2, which may have links.
func version2(data []byte) []byte { return bytes.Replace(data, []byte(magic1), []byte(magic2), 1) }

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
			data := version2(stream("", line(folder, 0, 0, 0, `"a"`), line(folder, 0, 0, 0, `"a/b"`),
				linkLine(`"a/b/n"`, `"`+n+`"`), linkLine(`"l"`, `"`+l+`"`)))
			if err := Extract(bytes.NewReader(data), dir, os.TempDir(), roomy); err != nil {
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
