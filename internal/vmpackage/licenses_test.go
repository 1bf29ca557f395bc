package vmpackage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// modules with licences in a vendor folder, and one in a folder of its own.
func licensedModules(t *testing.T) string {
	t.Helper()
	return folder(t, map[string]string{
		"go.mod": "module example.com/tiny\n\ngo 1.26\n\nrequire (\n\texample.com/local v1.0.0\n\texample.com/bare v1.0.0\n)\n\n" +
			"replace example.com/local => ./local\n\nreplace example.com/bare => ./bare\n",
		"LICENSE":                 "the licence of tiny",
		"local/go.mod":            "module example.com/local\n\ngo 1.26\n",
		"local/LICENSE-MIT.txt":   "the licence of local\r\n",
		"local/NOTICE":            "a notice of local",
		"local/third/COPYING":     "the licence of code in local",
		"local/other/LICENSE":     "the licence of code in local", // the same text
		"local/license.go":        "package local",
		"local/testdata/LICENSE":  "no part of it",
		"local/submodule/go.mod":  "module example.com/local/submodule\n",
		"local/submodule/LICENSE": "the licence of another module",
		"bare/go.mod":             "module example.com/bare\n\ngo 1.26\n",
	})
}

func TestLicenses(t *testing.T) {
	main := licensedModules(t)
	data, err := Licenses(t.Context(), main, []string{"example.com/tiny", "example.com/local", "example.com/bare", "example.com/local"})
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, want := range []string{
		"\nexample.com/bare v1.0.0\n\nThis module has no file with a licence.\n",
		"\nexample.com/local v1.0.0\n\n--- LICENSE-MIT.txt\n\nthe licence of local\n\n--- NOTICE\n\na notice of local\n\n" +
			"--- other/LICENSE\n\nthe licence of code",
		"\nexample.com/tiny\n\n--- LICENSE\n\nthe licence of tiny\n", "The Go Authors",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the licences lack %q", want)
		}
	}
	for _, unwanted := range []string{"package local", "no part of it", "another module", "third/COPYING", "\r"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("the licences have %q, which is no licence of a part", unwanted)
		}
	}
	if strings.Count(text, "\nexample.com/local v1.0.0\n") != 1 {
		t.Error("a module is not there once")
	}
	if _, err := Licenses(t.Context(), main, []string{"example.com/unknown"}); err == nil {
		t.Error("Licenses of an unknown module = nil, want an error")
	}
}

// Texts of vendored modules are in the vendor folder.
func TestVendoredLicenses(t *testing.T) {
	main := folder(t, map[string]string{
		"go.mod":                            "module example.com/tiny\n\ngo 1.26\n\nrequire example.com/far v1.0.0\n",
		"vendor/modules.txt":                "# example.com/far v1.0.0\n## explicit; go 1.26\nexample.com/far\n",
		"vendor/example.com/far/LICENSE.md": "the licence of far",
		"vendor/example.com/far/far.go":     "package far\n",
	})
	data, err := Licenses(t.Context(), main, []string{"example.com/far"})
	if err != nil || !strings.Contains(string(data), "\nexample.com/far v1.0.0\n\n--- LICENSE.md\n\nthe licence of far\n") {
		t.Errorf("licences with a vendor folder = %v\n%s", err, data)
	}
}

// TestArchiveBill lists the parts of an archive, and refuses an archive without programs.
func TestArchiveBill(t *testing.T) {
	made, err := Make(t.Context(), tiny(t))
	if err != nil {
		t.Fatal(err)
	}
	bill, err := ArchiveBill(made[0].Path, "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"pkg:golang/std@`, `"payload/bin/worker"`, `"install.sh"`, `"value": "linux"`,
		`"value": "example.com/tiny"`, commitTime.Format(`"2006-01-02T15:04:05Z"`)} {
		if !strings.Contains(string(bill), want) {
			t.Errorf("the bill lacks %s:\n%s", want, bill)
		}
	}
	// A Debian package has the archive as a member.
	content, err := os.ReadFile(made[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	deb, text := filepath.Join(t.TempDir(), "tiny.deb"), arMagic
	for _, member := range [][2]string{{"debian-binary", "2.0\n"}, {"control.tar.gz", "odd"}, {"data.tar.gz", string(content)}} {
		text += fmt.Sprintf("%-16s%-12d%-6d%-6d%-8s%-10d`\n", member[0], 0, 0, 0, "100644", len(member[1])) + member[1]
		if len(member[1])%2 == 1 {
			text += "\n"
		}
	}
	if err := os.WriteFile(deb, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := ArchiveBill(deb, "v1.2.3"); err != nil || string(again) != string(bill) {
		t.Errorf("the bill of a Debian package of the same files = %v, %s, want %s", err, again, bill)
	}
	none := filepath.Join(t.TempDir(), "none.tar.gz")
	out, err := os.Create(none)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := writeArchive(out, []file{{name: "a", data: []byte("no program")}}, commitTime); err != nil {
		t.Fatal(err)
	}
	if _, err := ArchiveBill(none, "v1.2.3"); err == nil || !strings.Contains(err.Error(), "no program") {
		t.Errorf("ArchiveBill without programs = %v", err)
	}
}
