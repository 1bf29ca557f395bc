package winsetup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/spotworker/spotworker/internal/windows/winservice"
)

// Names of a package's files.
const (
	SumsFile          = "SHA256SUMS"
	ReleaseFile       = "release"
	ConfigurationFile = "worker.env"
	Executable        = "worker.exe"
	kindsFile         = "handlers/kinds.json"
)

// LastLine ends every worker.env. A truncated file does not have it.
const LastLine = "# end of worker.env"

// unpacked is a package that was checked.
type unpacked struct {
	release string
	files   []string // with slashes
	kinds   bool     // it has a kinds file
}

// checkPackage fails if the package is damaged or for another machine.
func (s *Setup) checkPackage() (p unpacked, err error) {
	settings, err := winservice.ReadEnvironment(filepath.Join(s.Package, ReleaseFile))
	if err != nil {
		return p, fmt.Errorf("the package is damaged: publish it again, as a new version: %w", err)
	}
	architecture := ""
	for _, v := range settings {
		switch v.Name {
		case "RELEASE":
			p.release = v.Value
		case "ARCHITECTURE":
			architecture = v.Value
		}
	}
	if architecture != runtime.GOARCH {
		return p, fmt.Errorf("this package is for %s and its worker for %s: publish it again, as a new version", architecture, runtime.GOARCH)
	}
	if p.release == "" || p.release != filepath.Base(p.release) || strings.HasPrefix(p.release, ".") {
		return p, fmt.Errorf("the package is damaged: %s has no name of a release: publish it again, as a new version", ReleaseFile)
	}
	sums, err := os.ReadFile(filepath.Join(s.Package, SumsFile))
	if err != nil {
		return p, fmt.Errorf("the package is damaged: publish it again, as a new version: %w", err)
	}
	for line := range strings.Lines(string(sums)) {
		digest, name, found := strings.Cut(strings.TrimRight(line, "\r\n"), "  ")
		if !found || !filepath.IsLocal(filepath.FromSlash(name)) {
			return p, fmt.Errorf("the package is damaged: %s has a line that is none: publish it again, as a new version", SumsFile)
		}
		if err := checkFile(filepath.Join(s.Package, filepath.FromSlash(name)), digest); err != nil {
			return p, fmt.Errorf("the package is damaged: publish it again, as a new version: %w", err)
		}
		p.files = append(p.files, name)
		p.kinds = p.kinds || name == kindsFile
	}
	p.files = append(p.files, SumsFile, ReleaseFile)
	return p, nil
}

func checkFile(path, want string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, file); err != nil {
		return err
	}
	if got := hex.EncodeToString(digest.Sum(nil)); got != want {
		return fmt.Errorf("%s has the digest %s, want %s", path, got, want)
	}
	return nil
}

// configuration is a worker.env that was checked.
type configuration struct {
	text     []byte
	services []string // that its workers are to be
	settings []winservice.Variable
}

// checkConfiguration reads the worker.env that came with the version, or else the
// installed one. The worker itself checks the values.
func (s *Setup) checkConfiguration() (c configuration, err error) {
	c.text, err = os.ReadFile(filepath.Join(s.Package, ConfigurationFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if c.text, err = os.ReadFile(s.data(ConfigurationFile)); errors.Is(err, fs.ErrNotExist) {
			return c, configurationError("no worker.env came with this version: publish one, with configFileName worker.env")
		} else if err != nil {
			return c, err
		}
		s.say("no worker.env came with this version: %s stays as it is", s.data(ConfigurationFile))
	case err != nil:
		return c, err
	// The platform runs the command even if it could not fetch the file.
	case len(bytes.TrimSpace(c.text)) == 0:
		return c, configurationError("worker.env arrived empty: publish it again, as a new version")
	case !endsWith(c.text, LastLine):
		return c, configurationError("worker.env is cut off: its last line must be '%s'. Publish it again, as a new version", LastLine)
	}
	return c.read()
}

func (c configuration) read() (configuration, error) {
	settings, invalid := winservice.ParseEnvironment(c.text)
	if invalid > 0 {
		return c, configurationError("line %d of worker.env is not NAME=VALUE: correct it, and publish it as a new version", invalid)
	}
	c.settings = settings
	workers := "1"
	for _, v := range settings {
		if v.Name == "SPOTWORKER_INSTANCES" && v.Value != "" {
			workers = v.Value
		}
	}
	n, err := strconv.Atoi(workers)
	if err != nil || n < 1 || n > maxInstances {
		return c, configurationError("SPOTWORKER_INSTANCES in worker.env is %.40q: give 1 to %d; the metadata service answers no more "+
			"workers on one VM", workers, maxInstances)
	}
	c.services = servicesFor(n)
	return c, nil
}

// endsWith reports whether a text's last line is as given.
func endsWith(text []byte, last string) bool {
	lines := strings.Split(strings.TrimRight(string(text), "\r\n"), "\n")
	return strings.TrimRight(lines[len(lines)-1], "\r") == last
}
