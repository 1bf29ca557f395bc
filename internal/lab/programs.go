package lab

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// module is the path of the module with the commands.
const module = "github.com/spotworker/spotworker"

// Binaries are the paths of the programs under test.
type Binaries struct {
	Worker, Producer string
}

// BinariesIn returns the programs in a folder, as `make build` leaves them.
func BinariesIn(folder string) (Binaries, error) {
	b := binariesIn(folder)
	for _, path := range []string{b.Worker, b.Producer} {
		if _, err := exec.LookPath(path); err != nil {
			return Binaries{}, fmt.Errorf("%w: make build makes it", err)
		}
	}
	return b, nil
}

// Build builds the programs from this module's source into a folder. The working
// directory must be within the module.
func Build(ctx context.Context, folder string) (Binaries, error) {
	folder += string(filepath.Separator)
	//nolint:gosec // constants, and a folder of ours
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", folder, module+"/cmd/worker", module+"/cmd/producer")
	if out, err := cmd.CombinedOutput(); err != nil {
		return Binaries{}, fmt.Errorf("build worker and producer: %w: %s", err, bytes.TrimSpace(out))
	}
	return binariesIn(folder), nil
}

func binariesIn(folder string) Binaries {
	suffix := ""
	if runtime.GOOS == "windows" {
		suffix = ".exe"
	}
	absolute, err := filepath.Abs(folder)
	if err != nil {
		absolute = folder
	}
	return Binaries{Worker: filepath.Join(absolute, "worker"+suffix), Producer: filepath.Join(absolute, "producer"+suffix)}
}

// Producer runs the producer binary against a local storage account.
type Producer struct {
	Path             string // of the binary
	ConnectionString string // must name loopback endpoints
}

// Run runs the producer with those arguments and returns the job ids that it
// confirmed. If it could reach anything beyond loopback, Run starts nothing and
// the error wraps [ErrNotLocal].
func (p *Producer) Run(ctx context.Context, args ...string) ([]string, error) {
	if err := CheckStorage(p.ConnectionString); err != nil {
		return nil, fmt.Errorf("start the producer: %w", err)
	}
	cmd := exec.CommandContext(ctx, p.Path, args...) //nolint:gosec // the binary was built by us
	cmd.Env = environment(p.ConnectionString)
	Isolate(cmd)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("enqueue with the producer: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.Fields(stdout.String()), nil
}
