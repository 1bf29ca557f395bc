package vmpackage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// licensesName is the file with the licence texts of a package.
const licensesName = "licenses.txt"

// licenseFile matches names of files with licences, copyrights and notices.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice|patents)([-._].*)?$`)

// licensed is a module as go list prints it.
type licensed struct {
	Path, Version, Dir string
}

// Licenses returns the licence texts of modules, and of Go itself. folder is in the main module,
// whose go.mod chooses the versions. Its modules are in the module cache or in its vendor folder.
func Licenses(ctx context.Context, folder string, modules []string) ([]byte, error) {
	slices.Sort(modules)
	modules = slices.Compact(modules)
	root, err := goCommand(ctx, folder, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	all := []licensed{{Path: "Go's standard library and runtime", Dir: strings.TrimSpace(string(root))}}
	found, err := locate(ctx, folder, modules)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for i, m := range append(all, found...) {
		texts, err := licenseTexts(m.Dir, i > 0) // Go's own folder has the licences of tools too
		if err != nil {
			return nil, fmt.Errorf("licence of %s: %w", m.Path, err)
		}
		fmt.Fprintf(&out, "%s\n%s\n\n", strings.Repeat("=", ruleWidth), strings.TrimSpace(m.Path+" "+m.Version))
		if len(texts) == 0 {
			out.WriteString("This module has no file with a licence.\n\n")
		}
		for _, text := range texts {
			fmt.Fprintf(&out, "--- %s\n\n%s\n\n", text.name, bytes.TrimSpace(text.data))
		}
	}
	return bytes.ReplaceAll(out.Bytes(), []byte("\r\n"), []byte("\n")), nil
}

// ruleWidth is the width of the line between two modules.
const ruleWidth = 80

// modulesIn returns the modules that a binary was built from, its own first.
func modulesIn(info *debug.BuildInfo) []string {
	modules := []string{info.Main.Path}
	for _, dependency := range info.Deps {
		modules = append(modules, dependency.Path)
	}
	return modules
}

// locate returns the folders of modules.
func locate(ctx context.Context, folder string, modules []string) ([]licensed, error) {
	out, err := goCommand(ctx, folder, append([]string{"list", "-m", "-json"}, modules...)...)
	if err != nil {
		return nil, err
	}
	var found []licensed
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var m licensed
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if m.Dir == "" { // vendored
			module, err := goCommand(ctx, folder, "env", "GOMOD")
			if err != nil {
				return nil, err
			}
			m.Dir = filepath.Join(filepath.Dir(strings.TrimSpace(string(module))), "vendor", filepath.FromSlash(m.Path))
		}
		found = append(found, m)
	}
}

// licenseTexts returns the licence texts in a folder: below it too if a module carries the
// code of others.
func licenseTexts(dir string, below bool) ([]file, error) {
	var texts []file
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if name != "." && (!below || slices.Contains([]string{"testdata", "vendor", "node_modules"}, entry.Name()) || isModule(dir, name)) {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular() || !licenseFile.MatchString(entry.Name()) ||
			slices.Contains([]string{".go", ".json", ".html", ".tmpl", ".sh"}, path.Ext(name)):
			return nil
		}
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(texts, func(f file) bool { return bytes.Equal(f.data, data) }) {
			texts = append(texts, file{name: name, data: data})
		}
		return nil
	})
	return texts, err
}

// isModule reports whether a folder of a module is a module of its own, which is not part of it.
func isModule(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name), "go.mod"))
	return err == nil
}

// goCommand returns the output of the go command in a folder.
func goCommand(ctx context.Context, folder string, arguments ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", arguments...) //nolint:gosec // a command of ours
	cmd.Dir, cmd.Env = folder, append(os.Environ(), "GOWORK=off")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s in %s: %w\n%s", arguments[0], folder, err, bytes.TrimSpace(said.Bytes()))
	}
	return out, nil
}
