package vmpackage

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// buildWorker builds the worker and returns the binary. It is static,
// since a VM's image may have any C library or none, and has the version, but no
// path, time or state of the work tree in it.
func buildWorker(ctx context.Context, c Config, target target) ([]byte, error) {
	folder, err := os.MkdirTemp("", "spotworker-package-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	binary := filepath.Join(folder, "worker")
	// Both the worker and a main package with a version variable of its own get it.
	stamp := fmt.Sprintf("-s -w -X main.version=%[1]s -X github.com/spotworker/spotworker/internal/workercmd.version=%[1]s", c.Version)
	//nolint:gosec // a command of ours with the caller's folder
	cmd := exec.CommandContext(ctx, "go", "build", "-C", c.Worker, "-trimpath", "-buildvcs=false", "-ldflags", stamp, "-o", binary, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+target.system, "GOARCH="+target.architecture, "GOAMD64=v1", "GOARM64=v8.0",
		"GOEXPERIMENT=", "GOWORK=off")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go build in %s: %w\n%s", c.Worker, err, bytes.TrimSpace(said.Bytes()))
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(data, []byte(target.magic())) {
		return nil, fmt.Errorf("%s is no main package: name the folder of one", c.Worker)
	}
	return data, nil
}
