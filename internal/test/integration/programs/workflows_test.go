//go:build integration && linux

package programs

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/labtest"
	"github.com/spotworker/spotworker/internal/lab/up"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/repository"
)

// cloud is a running lab up with workers that take commands.
type cloud struct {
	out         *labtest.Output
	port        int      // of lab evict
	evicted     int      // VMs
	environment []string // of producers
}

// startCloud starts workers, and the programs of examples/workflows.
func startCloud(t *testing.T) *cloud {
	t.Helper()
	_, folder := labtest.Programs(t)
	output(t, repository.Root(t), "go", "build", "-o", filepath.Join(folder, "spotctl"), "./cmd/spotctl")
	config := up.DefaultConfig()
	config.Local = lab.LocalConfig{} // free ports
	config.Workers, config.Commands = 3, true
	c := &cloud{out: &labtest.Output{}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- up.Run(ctx, config, c.out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	connection := c.out.Until(t, `export `+lab.ConnectionStringVariable+`='?([^'\s]+)`)
	c.port, _ = strconv.Atoi(c.out.Until(t, `--metadata-port (\d+)`))
	c.environment = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), lab.ConnectionStringVariable+"="+connection)
	return c
}

// evictions are how many VMs are evicted while a tool runs.
const evictions = 3

// releases are the hand-overs of workers with jobs.
var releases = regexp.MustCompile(`released\s+[1-9]`)

// run runs a shell command, and evicts workers that have jobs meanwhile.
func (c *cloud) run(t *testing.T, folder, command string) {
	t.Helper()
	before := len(releases.FindAllString(c.out.String(), -1))
	handedOver := func() int { return len(releases.FindAllString(c.out.String(), -1)) - before }
	said := &labtest.Output{}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = folder, c.environment, said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for n := 0; ; {
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%v of\n%s\n%s", err, command, said)
			}
			if handedOver() == 0 {
				t.Errorf("no job was interrupted: %s\n%s", said, c.out)
			}
			return
		case <-time.After(4 * time.Second):
			if n < evictions || handedOver() == 0 {
				c.evicted++
				if _, err := up.Evict(t.Context(), c.port, fmt.Sprintf("spot_%d", c.evicted)); err == nil {
					n++
				}
			}
		}
	}
}

// files returns the contents of all files in a folder, by their names.
func files(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == ".snakemake" {
			return filepath.SkipDir
		}
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(folder, path)
		all[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestWorkflows: Snakemake, make, xargs and GNU parallel have the same results with workers that are
// evicted as on this machine.
func TestWorkflows(t *testing.T) {
	examples := filepath.Join(repository.Root(t), "examples", "workflows")
	cloud := startCloud(t)
	shell := filepath.Join(examples, "onworker")
	for _, tool := range []struct{ name, here, there string }{
		{"snakemake", "snakemake --quiet -j 16 -s " + examples + "/Snakefile",
			"snakemake --profile " + examples + "/profile -s " + examples + "/Snakefile"},
		{"make", "make -j 16 -f " + examples + "/Makefile", "make -j 16 -f " + examples + "/Makefile SHELL=" + shell},
		{"xargs", "seq 16 | xargs -P 16 -I{} sh -c 'sleep 3; seq {} >{}'", "seq 16 | xargs -P 16 -I{} " + shell + " -c 'sleep 3; seq {} >{}'"},
		{"parallel", "parallel -j 16 'sleep 3; seq {} >{}' ::: $(seq 16)",
			"PARALLEL_SHELL=" + shell + " parallel -j 16 'sleep 3; seq {} >{}' ::: $(seq 16)"},
	} {
		t.Run(tool.name, func(t *testing.T) {
			need.Command(t, tool.name)
			want, got := t.TempDir(), t.TempDir()
			output(t, want, "sh", "-c", tool.here)
			cloud.run(t, got, tool.there)
			if diff := cmp.Diff(files(t, want), files(t, got)); diff != "" || len(files(t, want)) == 0 {
				t.Errorf("results differ (-here +there):\n%s", diff)
			}
		})
	}
}
