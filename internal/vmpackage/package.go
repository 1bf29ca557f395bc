package vmpackage

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Architectures are the architectures with packages: as Go calls them for Linux,
// with the system before them for others.
var Architectures = []string{"amd64", "arm64", "windows-amd64"}

// Config says what goes into packages.
type Config struct {
	// Worker is the folder of the worker's main package, in this module or in
	// one of its own.
	Worker string

	// Handlers is a folder with programs for jobs and the kinds file, kinds.json,
	// that names them. Empty for none.
	Handlers string

	// Version is the version of worker and package.
	Version string

	// Time is the time of all files, such as the commit's time. Seconds count.
	Time time.Time

	// Architectures to make packages for; empty for all.
	Architectures []string

	// Out is the folder that the packages go into.
	Out string

	// SigningKey is the file of the private SSH key, or of the public one of a key
	// in an agent, that signs each package. Empty for no signatures.
	SigningKey string
}

// versionForm matches versions that can be a folder's name and stand in a shell script.
var versionForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+~-]{0,99}$`)

// Validate returns an error that says what to change, or nil.
func (c Config) Validate() error {
	switch {
	case c.Worker == "":
		return errors.New("there is no worker: name the folder of a main package")
	case !versionForm.MatchString(c.Version):
		return fmt.Errorf("version %q: give up to 100 letters, digits and .-_+~, beginning with a letter or digit", c.Version)
	case c.Out == "":
		return errors.New("name a folder that the packages go into")
	}
	for _, architecture := range c.Architectures {
		if !slices.Contains(Architectures, architecture) {
			return fmt.Errorf("architecture %q: give %s", architecture, strings.Join(Architectures, ", "))
		}
	}
	return nil
}

// Package is a package that was made.
type Package struct {
	Architecture string
	Path         string // of the archive
	Release      string // the release's name: version and digest
	Size         int64  // of the archive, in bytes
}

// Make makes the packages, and replaces existing ones. After an error the packages
// that are complete stay.
func Make(ctx context.Context, c Config) ([]Package, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	handlers, err := readHandlers(c.Handlers)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil { //nolint:gosec // packages are for everybody
		return nil, err
	}
	architectures := c.Architectures
	if len(architectures) == 0 {
		architectures = Architectures
	}
	var packages []Package
	var sums []file
	for _, architecture := range architectures {
		made, files, err := makeOne(ctx, c, architecture, handlers)
		if err != nil {
			return packages, fmt.Errorf("package for %s: %w", architecture, err)
		}
		packages, sums = append(packages, made), append(sums, files...)
	}
	return packages, writeWhole(filepath.Join(c.Out, sumsName), checksums(sums))
}

// makeOne makes the package for one architecture, and returns the files that it
// wrote.
func makeOne(ctx context.Context, c Config, architecture string, handlers []file) (p Package, files []file, err error) {
	target := targetFor(architecture)
	binary, err := buildWorker(ctx, c, target)
	if err != nil {
		return p, nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return p, nil, fmt.Errorf("modules in the worker: %w", err)
	}
	worker := goProgram{file{name: target.binary(), data: binary}, info}
	licenses, err := Licenses(ctx, c.Worker, modulesIn(info))
	if err != nil {
		return p, nil, err
	}
	bill, err := billOfMaterials(c.Version, c.Time, target, []goProgram{worker}, inHandlers(handlers))
	if err != nil {
		return p, nil, err
	}
	about := []file{{name: "sbom.cdx.json", data: bill}, {name: licensesName, data: licenses}}
	release, content, err := contents(c, target, binary, append(about, inHandlers(handlers)...))
	if err != nil {
		return p, nil, err
	}
	var archive bytes.Buffer
	if err := target.writeArchive(&archive, content, c.Time); err != nil {
		return p, nil, err
	}
	name := "spotworker-" + target.system + "-" + target.architecture
	files = []file{{name: name + target.suffix(), data: archive.Bytes()}, {name: BillName(name), data: bill}}
	for _, f := range files {
		if err := writeWhole(filepath.Join(c.Out, f.name), f.data); err != nil {
			return p, nil, err
		}
	}
	if err := sign(ctx, c.SigningKey, filepath.Join(c.Out, files[0].name)); err != nil {
		return p, nil, err
	}
	return Package{
		Architecture: architecture, Release: release,
		Path: filepath.Join(c.Out, files[0].name), Size: int64(archive.Len()),
	}, files, nil
}

// BillName returns the name of the bill of materials of a package.
func BillName(archive string) string {
	name := filepath.Base(archive)
	return strings.TrimSuffix(strings.TrimSuffix(name, ".tar.gz"), ".zip") + ".cdx.json"
}

// writeWhole writes a file whole or not at all.
func writeWhole(path string, data []byte) error {
	unfinished := path + ".unfinished"
	if err := os.WriteFile(unfinished, data, 0o644); err != nil { //nolint:gosec // packages are for everybody
		return err
	}
	return os.Rename(unfinished, path)
}
