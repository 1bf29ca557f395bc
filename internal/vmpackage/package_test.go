package vmpackage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/test/need"
)

// commitTime stands for a commit's.
var commitTime = time.Date(2026, 3, 9, 12, 0, 0, 500, time.UTC)

// workerMain is a worker in a module of its own, as a stranger's is.
var workerMain = map[string]string{
	"go.mod":  "module example.com/tiny\n\ngo 1.26\n",
	"main.go": "package main\n\nvar version = \"devel\"\n\nfunc main() { println(version) }\n",
}

// folder makes a folder with these files; files that end in .sh are executable.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o600)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o700
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func tiny(t *testing.T) Config {
	t.Helper()
	return Config{
		Worker: folder(t, workerMain), Version: "1.2.3", Time: commitTime,
		Architectures: []string{"amd64"}, Out: t.TempDir(),
		Handlers: folder(t, map[string]string{
			"kinds.json":   `{"kinds": {"echo": {"command": ["./echo.sh"]}}}`,
			"echo.sh":      "#!/bin/sh\n",
			"data/numbers": "1 2 3\n",
			".git/config":  "no business of a VM's", "__pycache__/a.pyc": "nor this",
		}),
	}
}

// unpacked is a file of an archive.
type unpacked struct {
	header tar.Header
	data   []byte
}

func unpack(t *testing.T, path string) map[string]unpacked {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	zipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]unpacked{}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = unpacked{*header, content}
	}
}

func TestContents(t *testing.T) {
	made, err := Make(t.Context(), tiny(t))
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, made[0].Path)
	modes := map[string]int64{}
	for name, f := range files {
		modes[name] = f.header.Mode
		if at := commitTime.Truncate(time.Second); !f.header.ModTime.Equal(at) || f.header.Uid != 0 || f.header.Gid != 0 || f.header.Uname != "" {
			t.Errorf("%s is of %s and user %d, want %s and 0", name, f.header.ModTime, f.header.Uid, at)
		}
	}
	want := map[string]int64{
		"payload/": 0o755, "payload/bin/": 0o755, "payload/handlers/": 0o755, "payload/handlers/data/": 0o755, "units/": 0o755, "etc/": 0o755,
		"payload/bin/worker": 0o755, "payload/handlers/echo.sh": 0o755,
		"payload/handlers/kinds.json": 0o644, "payload/handlers/data/numbers": 0o644, "payload/sbom.cdx.json": 0o644,
		"payload/licenses.txt": 0o644,
		"install.sh":           0o644, "update.sh": 0o644, "remove.sh": 0o644, "lib.sh": 0o644, "check.sh": 0o644,
		"deploy.sh": 0o644, "firewall.sh": 0o644,
		"units/spotworker.service": 0o644, "units/spotworker@.service": 0o644, "units/spotworker-logs.service": 0o644,
		"units/spotworker-logrotate.service": 0o644, "units/spotworker-logrotate.timer": 0o644,
		"etc/spotworker.sysusers": 0o644, "etc/spotworker.logrotate": 0o644,
		"etc/spotworker-snapshots.conf": 0o644, "SHA256SUMS": 0o644, "release": 0o644,
	}
	if diff := cmp.Diff(want, modes); diff != "" {
		t.Errorf("files of the package (-want +got):\n%s", diff)
	}
	if got, want := string(files["release"].data), "RELEASE="+made[0].Release+"\nARCHITECTURE=amd64\n"; got != want ||
		!strings.HasPrefix(made[0].Release, "1.2.3-") {
		t.Errorf("release = %q, want %q for version 1.2.3", got, want)
	}
	for line := range strings.Lines(string(files["SHA256SUMS"].data)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if got := fmt.Sprintf("%x", sha256.Sum256(files[name].data)); got != sum {
			t.Errorf("SHA256SUMS says %s of %s, want %s", sum, name, got)
		}
	}
}

// TestBinary: static, for the architecture asked for, stripped, and stamped.
func TestBinary(t *testing.T) {
	c := tiny(t)
	c.Architectures, c.Handlers = []string{"arm64"}, ""
	made, err := Make(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	data := unpack(t, made[0].Path)["payload/bin/worker"].data
	binary, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	libraries, _ := binary.ImportedLibraries()
	if binary.Machine != elf.EM_AARCH64 || len(libraries) > 0 || binary.Section(".symtab") != nil || binary.Section(".debug_info") != nil {
		t.Errorf("binary is for %s, needs %q, want AArch64, no libraries, no symbols", binary.Machine, libraries)
	}
	if !bytes.Contains(data, []byte("1.2.3")) || bytes.Contains(data, []byte(c.Worker)) {
		t.Error("binary lacks its version, or has the folder that it was built in")
	}
}

// TestSameBytes builds twice: from two folders, and with files that are newer.
func TestSameBytes(t *testing.T) {
	first, second := tiny(t), tiny(t)
	for _, c := range []Config{first, second} {
		if _, err := Make(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"spotworker-linux-amd64.tar.gz", "spotworker-linux-amd64.cdx.json", "SHA256SUMS"} {
		a, err := os.ReadFile(filepath.Join(first.Out, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(second.Out, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s has other bytes in a second build of the same source", name)
		}
	}
}

// TestReleaseNamesContent: another content is another release, of one version too.
func TestReleaseNamesContent(t *testing.T) {
	c := tiny(t)
	first, err := Make(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.Handlers, "data", "numbers"), []byte("1 2 4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	second, err := Make(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if first[0].Release == second[0].Release {
		t.Errorf("release = %s for two contents", first[0].Release)
	}
}

func TestBillOfMaterials(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8", Path: "example.com/tiny",
		Deps: []*debug.Module{
			{Path: "example.com/plain", Version: "v1.0.0", Sum: "h1:abc="},
			{Path: "example.com/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/new", Version: "v2.0.0"}},
			{Path: "example.com/local", Version: "v1.0.0", Replace: &debug.Module{Path: "../local"}},
		},
	}
	handlers := []file{{name: "echo.sh", data: []byte("#!/bin/sh\n")}}
	worker := goProgram{file{name: "bin/worker", data: []byte("a worker")}, info}
	again := goProgram{file{name: "bin/other", data: []byte("another")}, info}
	data, err := billOfMaterials("1.2.3", commitTime, target{linux, "amd64"}, []goProgram{worker, again}, inHandlers(handlers))
	if err != nil {
		t.Fatal(err)
	}
	var got cyclonedx.BOM
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.BOMFormat != "CycloneDX" || got.SpecVersion != cyclonedx.SpecVersion1_6 || got.Metadata.Timestamp != "2026-03-09T12:00:00Z" ||
		got.Metadata.Component.Version != "1.2.3" {
		t.Errorf("bill = %s %s of %s for version %s, want CycloneDX 1.6 of the commit's time for 1.2.3",
			got.BOMFormat, got.SpecVersion, got.Metadata.Timestamp, got.Metadata.Component.Version)
	}
	var parts []string
	for _, part := range *got.Components {
		parts = append(parts, string(part.Type)+" "+part.Name+" "+part.PackageURL)
		if part.Type == "file" && (len(*part.Hashes) != 1 || len((*part.Hashes)[0].Value) != 64) {
			t.Errorf("%s has hashes %v, want one SHA-256", part.Name, part.Hashes)
		}
	}
	want := []string{
		"library std pkg:golang/std@1.26.8", "file bin/worker ", "file bin/other ",
		"library example.com/plain pkg:golang/example.com/plain@v1.0.0",
		"library example.com/new pkg:golang/example.com/new@v2.0.0",
		"library example.com/local pkg:golang/example.com/local@v1.0.0",
		"file handlers/echo.sh ",
	}
	if diff := cmp.Diff(want, parts); diff != "" {
		t.Errorf("parts of the package (-want +got):\n%s", diff)
	}
}

func TestRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		change func(t *testing.T, c *Config)
		want   string
	}{
		"no version":          {func(_ *testing.T, c *Config) { c.Version = "" }, "version"},
		"version with blanks": {func(_ *testing.T, c *Config) { c.Version = "1 2" }, `version "1 2"`},
		"version as path":     {func(_ *testing.T, c *Config) { c.Version = "../1" }, "version"},
		"no folder":           {func(_ *testing.T, c *Config) { c.Out = "" }, "folder"},
		"no worker":           {func(_ *testing.T, c *Config) { c.Worker = "" }, "worker"},
		"architecture":        {func(_ *testing.T, c *Config) { c.Architectures = []string{"386"} }, "amd64, arm64, windows-amd64"},
		"no kinds file":       {func(t *testing.T, c *Config) { c.Handlers = folder(t, map[string]string{"a.sh": ""}) }, "has no kinds.json"},
		"wrong kinds file": {func(t *testing.T, c *Config) {
			c.Handlers = folder(t, map[string]string{"kinds.json": `{"kinds": {"a": {"comand": ["a"]}}}`})
		}, "kinds.json:1:"},
		"link": {func(t *testing.T, c *Config) {
			if err := os.Symlink("/etc/passwd", filepath.Join(c.Handlers, "link")); err != nil {
				need.Missing(t, "symbolic links: "+err.Error())
			}
		}, "link is no regular file"},
		"does not build": {func(t *testing.T, c *Config) {
			c.Worker = folder(t, map[string]string{"go.mod": workerMain["go.mod"], "main.go": "package main\n\nfunc main() { nothing() }\n"})
		}, "undefined: nothing"},
		"no main package": {func(t *testing.T, c *Config) {
			c.Worker = folder(t, map[string]string{"go.mod": workerMain["go.mod"], "a.go": "package a\n"})
		}, "no main package"},
	} {
		t.Run(name, func(t *testing.T) {
			c := tiny(t)
			row.change(t, &c)
			made, err := Make(t.Context(), c)
			if err == nil || !strings.Contains(err.Error(), row.want) || len(made) > 0 {
				t.Errorf("Make = %v, %v, want an error with %q", made, err, row.want)
			}
		})
	}
}

// TestConfigure: a configuration is added and nothing else changes; twice the
// same files give the same bytes; a second configuration is refused.
func TestConfigure(t *testing.T) {
	made, err := Make(t.Context(), tiny(t))
	if err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(t.TempDir(), "some.env")
	const content = "A=1\n# end of worker.env\n"
	if err := os.WriteFile(settings, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	var bytesOf [2][]byte
	out := filepath.Join(t.TempDir(), "out.tar.gz")
	for i := range bytesOf {
		if err := Configure(made[0].Path, settings, out); err != nil {
			t.Fatal(err)
		}
		if bytesOf[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(bytesOf[0], bytesOf[1]) {
		t.Error("the same package and configuration gave other bytes the second time")
	}
	before, after := unpack(t, made[0].Path), unpack(t, out)
	if got := string(after["worker.env"].data); got != content {
		t.Errorf("worker.env in the package = %q, want %q", got, content)
	}
	delete(after, "worker.env")
	for name, f := range before {
		if g, ok := after[name]; !ok || !bytes.Equal(g.data, f.data) || g.header.Mode != f.header.Mode {
			t.Errorf("%s changed when a configuration was added", name)
		}
	}
	if len(after) != len(before) {
		t.Errorf("package has %d other files after a configuration was added, want %d", len(after), len(before))
	}
	if err := Configure(out, settings, out); err == nil {
		t.Error("a second configuration was added to a package")
	}
	if err := Configure(settings, settings, out); err == nil {
		t.Error("a configuration was added to something that is no package")
	}
}
