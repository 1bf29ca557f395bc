package vmpackage

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/proof"
)

func windowsPackage(t *testing.T) Package {
	t.Helper()
	c := tiny(t)
	c.Architectures = []string{"windows-amd64"}
	made, err := Make(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := filepath.Base(made[0].Path), "spotworker-windows-amd64.zip"; got != want {
		t.Errorf("package %s, want %s", got, want)
	}
	return made[0]
}

// unzip returns the files of an archive.
func unzip(t *testing.T, path string) map[string]string {
	t.Helper()
	archive, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	files := map[string]string{}
	for _, entry := range archive.File {
		in, err := entry.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		files[entry.Name] = string(data)
	}
	return files
}

func TestWindowsContents(t *testing.T) {
	proof.Only(t, "it compiles for Windows")
	made := windowsPackage(t)
	files := unzip(t, made.Path)
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{"SHA256SUMS", "handlers/data/numbers", "handlers/echo.sh", "handlers/kinds.json", "licenses.txt", "release",
		"sbom.cdx.json",
		"worker.exe"}
	if !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
	if !strings.HasPrefix(files["worker.exe"], "MZ") || !strings.Contains(files["sbom.cdx.json"], `"windows"`) {
		t.Error("it is not for Windows")
	}
	if want := "RELEASE=" + made.Release + "\nARCHITECTURE=amd64\n"; files["release"] != want {
		t.Errorf("release = %q, want %q", files["release"], want)
	}
	if got := strings.Count(files["SHA256SUMS"], "\n"); got != len(want)-2 {
		t.Errorf("%d sums, want one for each file but two", got)
	}
}

// The same source gives the same bytes, also with a configuration added.
func TestWindowsReproducible(t *testing.T) {
	proof.Only(t, "it compiles for Windows")
	settings := filepath.Join(t.TempDir(), "settings")
	if err := os.WriteFile(settings, []byte("A=1\n# end of worker.env\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var packages, configured [][]byte
	for range 2 {
		made := windowsPackage(t)
		out := filepath.Join(t.TempDir(), "configured.zip")
		if err := Configure(made.Path, settings, out); err != nil {
			t.Fatal(err)
		}
		if got := unzip(t, out)["worker.env"]; got != "A=1\n# end of worker.env\n" {
			t.Errorf("worker.env = %q", got)
		}
		for path, all := range map[string]*[][]byte{made.Path: &packages, out: &configured} {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			*all = append(*all, data)
		}
	}
	if !bytes.Equal(packages[0], packages[1]) || !bytes.Equal(configured[0], configured[1]) {
		t.Error("two builds differ")
	}
}
