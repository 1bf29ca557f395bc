package architecture

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`^#{1,6} +(.*?) *$`)
	noSlug   = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	document = regexp.MustCompile(`\bdocs/[\w-]+\.md\b`)
	pathname = regexp.MustCompile("`((?:cmd|examples|infra|internal|job|tools|vmapp)/[\\w./-]+)`")
)

// TestLinksResolve: every relative link of a document leads to a file, and to a
// heading of it if it names one; and what documents and code name is there: files
// and folders of the module, and documents.
func TestLinksResolve(t *testing.T) {
	root := os.DirFS("../../..")
	anchors := map[string]map[string]bool{} // by document
	var texts []string
	err := walkFiles(root, func(name string) error {
		switch path.Ext(name) {
		case ".md":
			text, err := fs.ReadFile(root, name)
			anchors[name] = anchorsOf(string(text))
			texts = append(texts, name)
			return err
		case ".go", ".sh", ".bicep", ".bicepparam", ".yaml", ".service":
			texts = append(texts, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, name := range texts {
		text, err := fs.ReadFile(root, name)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(text), "\n") {
			for _, named := range document.FindAllString(line, -1) {
				if _, err := fs.Stat(root, named); err != nil {
					t.Errorf("%s:%d names %s, and there is no such document", name, n+1, named)
				}
			}
			if path.Ext(name) != ".md" {
				continue
			}
			for _, match := range pathname.FindAllStringSubmatch(line, -1) {
				if _, err := fs.Stat(root, strings.TrimSuffix(match[1], "/")); err != nil {
					t.Errorf("%s:%d names %s, which is not there", name, n+1, match[1])
				}
			}
			for _, match := range link.FindAllStringSubmatch(line, -1) {
				target, anchor, hasAnchor := strings.Cut(match[1], "#")
				if strings.Contains(target, ":") {
					continue // another site
				}
				links++
				file := name
				if target != "" {
					file = path.Join(path.Dir(name), target)
				}
				if _, err := fs.Stat(root, file); err != nil {
					t.Errorf("%s:%d links to %s, which is not there", name, n+1, match[1])
				} else if hasAnchor && !anchors[file][anchor] {
					t.Errorf("%s:%d links to %s, and there is no such heading", name, n+1, match[1])
				}
			}
		}
	}
	if links == 0 {
		t.Error("no document has a link")
	}
}

// anchorsOf returns the anchors that GitHub gives the headings of a document.
func anchorsOf(text string) map[string]bool {
	anchors := map[string]bool{}
	code := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		match := heading.FindStringSubmatch(line)
		if code || match == nil {
			continue
		}
		anchor := strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-")
		unique := anchor
		for n := 1; anchors[unique]; n++ {
			unique = anchor + "-" + strconv.Itoa(n)
		}
		anchors[unique] = true
	}
	return anchors
}

// TestProgramOfTheReadme: the complete program that the README shows compiles.
func TestProgramOfTheReadme(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, found := strings.Cut(string(text), "```go\npackage main\n")
	if !found {
		t.Fatal("the README has no Go program")
	}
	code, _, _ = strings.Cut(code, "```\n")
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte("package main\n"+code), 0o600); err != nil {
		t.Fatal(err)
	}
	vet := exec.CommandContext(t.Context(), "go", "vet", file)
	vet.Dir = "../../.."
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}
