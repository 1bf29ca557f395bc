package mutation

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// binary is a test binary in which all chosen mutants can be switched on.
type binary struct {
	pattern string // of the package with the tests
	folder  string // where the tests run
	path    string
}

// overlay writes the packages with their chosen mutants into a folder, and the file for the go
// command's flag -overlay, which it returns. The source stays as it is.
func overlay(packages []*Package, chosen map[*Mutant]bool, folder string) (string, error) {
	count := 1
	for m := range chosen {
		count = max(count, m.ID+1)
	}
	replace := make(map[string]string)
	for i, p := range packages {
		for j, text := range p.render(func(m *Mutant) bool { return chosen[m] }, count) {
			name := filepath.Join(folder, strconv.Itoa(i)+"-"+strconv.Itoa(j)+".go")
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				return "", err
			}
			replaced := filepath.Join(p.dir, "zz_mutants.go")
			if j < len(p.files) {
				replaced = p.files[j].path
			}
			replace[replaced] = name
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(folder, "overlay.json")
	return name, os.WriteFile(name, text, 0o600)
}

// build compiles the tests of packages with an overlay. A package without tests has no binary.
func build(ctx context.Context, root, overlay, folder string, patterns []string) ([]binary, error) {
	var binaries []binary
	for i, pattern := range patterns {
		b := binary{pattern: pattern, folder: filepath.Join(root, filepath.FromSlash(pattern))}
		b.path = filepath.Join(folder, strconv.Itoa(i)+".test")
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", b.path, pattern) //nolint:gosec // packages
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the tests of %s with mutants: %w\n%s", pattern, err, out)
		}
		if _, err := os.Stat(b.path); err == nil {
			binaries = append(binaries, b)
		}
	}
	return binaries, nil
}

// list returns the names of a binary's tests, examples and fuzz targets.
func (b binary) list(ctx context.Context) ([]string, error) {
	cmd := exec.CommandContext(ctx, b.path, "-test.list", ".") //nolint:gosec // the binary of build
	cmd.Dir = b.folder
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", b.pattern, err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool { return strings.HasPrefix(name, "Benchmark") }), nil
}
