package up

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/labtest"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/repository"
)

// firstSteps are the pages with commands to type in a fresh clone after make build, with
// lab up running, and the programs that they need.
var firstSteps = []struct{ page, section, needs string }{
	{"README.md", "Run a command", "xargs"},
	{"examples/training/README.md", "", "python3"}, // takes longest
	{"examples/checksums/README.md", "", "cksum"},
	{"examples/chunks/README.md", "", "gzip"},
	{"examples/logstats/README.md", "", "python3"},
	{"examples/matmul/README.md", "", "cc"},
	{"examples/worker/README.md", "", "go"},
	{"examples/ci/README.md", "", "git"},
	{"examples/workflows/README.md", "", "snakemake parallel make"},
}

// shellBlock is a block of shell commands of a page.
var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// TestFirstStepsAsTyped runs the commands of those pages as they are written, in a copy of the
// repository: a worker in one terminal, and the other commands in another one. A quick run
// tries the README and one example.
func TestFirstStepsAsTyped(t *testing.T) {
	proof.Only(t, "it builds the programs and follows the guide in real time")
	t.Parallel()
	if pages, _ := filepath.Glob(filepath.Join(repository.Root(t), "examples", "*", "README.md")); len(pages) != len(firstSteps)-1 {
		t.Errorf("the examples have %d pages, and %d are tried", len(pages), len(firstSteps)-1)
	}
	folder := freshClone(t)
	for _, steps := range append(firstSteps[:1:1], proof.Some(t, 1, firstSteps[1:])...) {
		t.Run(filepath.Dir(steps.page), func(t *testing.T) {
			for name := range strings.FieldsSeq(steps.needs) {
				need.Command(t, name)
			}
			t.Parallel()
			page, err := os.ReadFile(filepath.Join(folder, steps.page))
			if err != nil {
				t.Fatal(err)
			}
			text := string(page)
			if steps.section != "" {
				_, text, _ = strings.Cut(text, "\n## "+steps.section+"\n")
				text, _, _ = strings.Cut(text, "\n## ")
			} else if !strings.Contains(text, "n the top folder of the repository, after `make build`") {
				t.Error("the page does not say where its commands run")
			}
			blocks := shellBlock.FindAllStringSubmatch(text, -1)
			if len(blocks) == 0 {
				t.Fatal("the page has no commands")
			}
			r := startUp(t, upOnAnyPorts())
			terminal := terminal{t: t, folder: folder, exports: r.exports(t)}
			if steps.page == "README.md" { // as lab up would start it
				terminal.typed("bin/worker --commands --metadata-endpoint none\n")
			}
			for _, block := range blocks {
				terminal.typed(block[1])
			}
		})
	}
}

// freshClone returns a copy of the repository in which make build was run.
func freshClone(t *testing.T) string {
	t.Helper()
	root, folder := repository.Root(t), t.TempDir()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil || name == "." {
			return err
		}
		hidden := strings.HasPrefix(entry.Name(), ".")
		if entry.IsDir() {
			if hidden || slices.Contains([]string{"bin", "dist", "out"}, name) || filepath.Base(name) == "data" {
				return filepath.SkipDir
			}
			return os.Mkdir(filepath.Join(folder, name), 0o700)
		}
		if info, err := entry.Info(); err != nil || !info.Mode().IsRegular() || hidden {
			return err
		}
		return copyFile(path, filepath.Join(folder, name))
	})
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(folder, "bin")+"/", "./cmd/worker", "./cmd/producer",
		"./cmd/spotctl", "./cmd/lab")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build = %v: %s", err, out)
	}
	return folder
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, info.Mode().Perm())
}

// exports returns the commands for every terminal and for the producer's terminal.
func (r *running) exports(t *testing.T) string {
	t.Helper()
	script := r.paste(t, "producer", "", "producer")
	return regexp.MustCompile(`(?m)^    producer .*$`).ReplaceAllString(script, "")
}

// terminal runs commands in a folder.
type terminal struct {
	t       *testing.T
	folder  string
	exports string
}

// typed runs a block of commands: until the test ends if the last one is a worker.
func (o terminal) typed(block string) {
	o.t.Helper()
	if !proof.Full() { // trials take half a minute each; make test runs the tests of the examples too
		block = regexp.MustCompile(`(?m)^(bin/lab try|go -C \S+ test) .*$`).ReplaceAllString(block, "")
	}
	// top needs a terminal and ends with a key, and web serves until Ctrl-C.
	block = regexp.MustCompile(`(?m)^bin/spotctl (top|web)( .*)?$`).ReplaceAllString(block, "bin/spotctl $1 --help >/dev/null")
	cmd := shell(o.t, o.exports+"\n"+block)
	cmd.Dir = o.folder
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
		value, err := exec.CommandContext(o.t.Context(), "go", "env", name).Output()
		if err != nil {
			o.t.Fatal(err)
		}
		cmd.Env = append(cmd.Env, name+"="+strings.TrimSpace(string(value)))
	}
	cmd.Env = append(cmd.Env, "GOPROXY=off", "GOTOOLCHAIN=local", "GOFLAGS=-trimpath", // packages from the cache, wherever the copy is
		"SPOTWORKER_LISTEN="+anyPort, "SPOTWORKER_SCRATCH="+o.t.TempDir()) // other tests of this machine run workers too
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 15 * time.Second
	said := &labtest.Output{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(block), "\n")
	if last := lines[len(lines)-1]; strings.HasPrefix(last, "bin/worker ") || strings.Contains(last, "go -C ") {
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		o.t.Cleanup(func() { // after o.t.Context has ended, which interrupts it
			<-ended
			if !strings.Contains(said.String(), `"to":"stopped"`) {
				o.t.Errorf("the worker did not stop in good order:\n%s", said)
			}
		})
		for !strings.Contains(said.String(), `"to":"process"`) {
			select {
			case <-ended:
				o.t.Fatalf("the worker of\n%s\nended at once:\n%s", block, said)
			case <-time.After(20 * time.Millisecond):
			}
		}
		return
	}
	limit := time.AfterFunc(8*time.Minute, func() { _ = cmd.Cancel() })
	defer limit.Stop()
	if err := cmd.Wait(); err != nil {
		o.t.Errorf("%v of\n%s\n%s", err, block, said)
	}
}
