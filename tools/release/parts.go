package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/vmpackage"
)

// readable is the mode of files for everybody.
const readable fs.FileMode = 0o644

// programs are the programs of a release.
var programs = []string{"worker", "producer", "spotctl", "lab"}

// systems are the operating systems of a release. Which modules a program has does not depend
// on the processor.
var systems = []string{"linux", "darwin", "windows"}

// parts are the parts of a release besides its programs.
type parts struct {
	out, version  string
	snapshot      bool
	time          time.Time
	architectures []string // of packages for VMs; empty for all
}

// make makes all parts.
func (p *parts) make(ctx context.Context) error {
	for _, folder := range []string{"completions", "man", "vm"} {
		if err := os.RemoveAll(filepath.Join(p.out, folder)); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(p.out, folder), 0o755); err != nil { //nolint:gosec // for everybody
			return err
		}
	}
	for _, step := range []func(context.Context) error{p.notes, p.texts, p.licenses, p.packages, p.image} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// texts writes manual pages, which the programs print, and completions made from them.
func (p *parts) texts(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "spotworker-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	stamp := fmt.Sprintf("-X main.version=%[1]s -X github.com/spotworker/spotworker/internal/workercmd.version=%[1]s", p.version)
	build := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", stamp, "-o", folder + string(filepath.Separator)}
	for _, name := range programs {
		build = append(build, "./cmd/"+name)
	}
	if _, err := output(ctx, []string{"CGO_ENABLED=0"}, "go", build...); err != nil {
		return err
	}
	for _, name := range programs {
		program := filepath.Join(folder, name)
		page, err := output(ctx, nil, program, "man")
		if err != nil {
			return err
		}
		if err := p.write(filepath.Join("man", name+".1"), page); err != nil {
			return err
		}
		line := readPage(page)
		for shell, code := range map[string][]byte{"bash": line.bash(name), "zsh": line.zsh(name), "fish": line.fish(name)} {
			if err := p.write(filepath.Join("completions", name+"."+shell), code); err != nil {
				return err
			}
		}
	}
	return nil
}

// licenses writes the licence texts of all modules in any of the programs.
func (p *parts) licenses(ctx context.Context) error {
	var modules []string
	for _, system := range systems {
		list := []string{"list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}"}
		for _, name := range programs {
			list = append(list, "./cmd/"+name)
		}
		out, err := output(ctx, []string{"CGO_ENABLED=0", "GOOS=" + system}, "go", list...)
		if err != nil {
			return err
		}
		modules = append(modules, strings.Fields(string(out))...)
	}
	texts, err := vmpackage.Licenses(ctx, ".", modules)
	if err != nil {
		return err
	}
	return p.write("licenses.txt", texts)
}

// packages makes the packages for VMs, named like the archives.
func (p *parts) packages(ctx context.Context) error {
	made, err := vmpackage.Make(ctx, vmpackage.Config{
		Worker: "./cmd/worker", Version: p.version, Time: p.time, Architectures: p.architectures, Out: filepath.Join(p.out, "vm"),
	})
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(p.out, "vm", "SHA256SUMS")); err != nil { // the release has its own
		return err
	}
	for _, m := range made {
		for _, name := range []string{filepath.Base(m.Path), vmpackage.BillName(m.Path)} {
			system := strings.ReplaceAll(strings.TrimPrefix(name, "spotworker-"), "-", "_")
			target := "spotworker-vm_" + strings.TrimPrefix(p.version, "v") + "_" + system
			if err := os.Rename(filepath.Join(p.out, "vm", name), filepath.Join(p.out, "vm", target)); err != nil {
				return err
			}
		}
	}
	return nil
}

// image makes the container image, named like the archives.
func (p *parts) image(ctx context.Context) error {
	architectures := []string{"amd64", "arm64"}
	if len(p.architectures) > 0 {
		architectures = slices.DeleteFunc(slices.Clone(p.architectures), func(a string) bool { return strings.HasPrefix(a, "windows-") })
	}
	if len(architectures) == 0 {
		return nil
	}
	folder := filepath.Join(p.out, "vm")
	path, err := vmpackage.MakeImage(ctx, vmpackage.Config{
		Worker: "./cmd/worker", Version: p.version, Time: p.time, Architectures: architectures, Out: folder,
	})
	if err != nil {
		return err
	}
	name := "spotworker-image_" + strings.TrimPrefix(p.version, "v")
	if err := os.Rename(path, filepath.Join(folder, name+".tar")); err != nil {
		return err
	}
	for _, a := range architectures {
		bill := filepath.Join(folder, vmpackage.ImageBillName(a))
		if err := os.Rename(bill, filepath.Join(folder, name+"_linux_"+a+".cdx.json")); err != nil {
			return err
		}
	}
	return nil
}

// notes writes the changelog's section of the version.
func (p *parts) notes(context.Context) error {
	if p.snapshot {
		return nil
	}
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	text, err := notesOf(string(changelog), p.version)
	if err != nil {
		return err
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		return err
	}
	if strings.Contains(string(readme), "No version is published yet") {
		return fmt.Errorf("README.md says that no version is published: say how to install %s", p.version)
	}
	if err := namesVersion(".", p.version); err != nil {
		return err
	}
	return p.write("notes.md", []byte(text))
}

// naming are the files that name the version which a user installs, and in what form.
var naming = map[string]string{
	"README.md":                                      "cmd/...@%s`",
	"infra/kubernetes/Chart.yaml":                    "\nappVersion: %s\n",
	"infra/kubernetes/values.yaml":                   "\nimage: registry.example/spotworker:%s\n",
	"infra/kubernetes/deployment/kustomization.yaml": "\n    newTag: %s\n",
	"infra/kubernetes/scaledjob/kustomization.yaml":  "\n    newTag: %s\n",
}

// namesVersion returns an error for the first file of the source that names another version.
func namesVersion(root, version string) error {
	for _, name := range slices.Sorted(maps.Keys(naming)) {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		if want := fmt.Sprintf(naming[name], version); !strings.Contains(string(content), want) {
			return fmt.Errorf("%s does not name %s: write %s", name, version, strings.TrimSpace(want))
		}
	}
	return nil
}

// dated is the end of the heading of a published version.
var dated = regexp.MustCompile(`\(\d{4}-\d\d-\d\d\)\s*$`)

// notesOf returns a version's section of a changelog, whose heading has the date of the release.
func notesOf(changelog, version string) (string, error) {
	lines := strings.SplitAfter(changelog, "\n")
	isHeading := func(line string) bool { return strings.HasPrefix(line, "## ") }
	begin := slices.IndexFunc(lines, func(line string) bool {
		words := strings.Fields(line)
		return isHeading(line) && len(words) > 1 && words[1] == version
	})
	if begin < 0 {
		return "", fmt.Errorf("CHANGELOG.md has no section %s", version)
	}
	if !dated.MatchString(lines[begin]) {
		return "", fmt.Errorf("CHANGELOG.md: the heading of %s has no date: write ## %s (2026-12-31)", version, version)
	}
	lines = lines[begin+1:]
	if end := slices.IndexFunc(lines, isHeading); end >= 0 {
		lines = lines[:end]
	}
	return strings.TrimSpace(strings.Join(lines, "")) + "\n", nil
}

func (p *parts) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(p.out, name), data, readable)
}

// output returns the output of a command.
func output(ctx context.Context, environment []string, name string, arguments ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, arguments...) //nolint:gosec // commands of this program
	cmd.Env = append(os.Environ(), environment...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), arguments[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return out, nil
}
