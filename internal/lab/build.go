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

// module is where the commands are.
const module = "github.com/spotworker/spotworker"

// Binaries are the programs under test.
type Binaries struct {
	Worker, Producer string // paths
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

// Build builds the programs from the source of this module into a folder. It
// works from anywhere within the module.
func Build(ctx context.Context, folder string) (Binaries, error) {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", folder+string(filepath.Separator), module+"/cmd/worker", module+"/cmd/producer") //nolint:gosec // constants, and a folder of ours
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return Binaries{}, fmt.Errorf("build worker and producer: %w: %s", err, bytes.TrimSpace(out.Bytes()))
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

// GoRoot returns the folder of the Go installation, empty if there is none.
func GoRoot(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
