// Package labtest helps to test the commands of the lab.
package labtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// folder holds the programs of this test process.
var folder = filepath.Join(os.TempDir(), fmt.Sprintf("spotworker-lab-test-%d", os.Getpid()))

// build builds the programs once.
var build = sync.OnceValues(func() (Binaries, error) { return Build(context.Background(), folder) })

// Binaries are the paths of the programs.
type Binaries struct{ Worker, Producer string }

// Build builds the programs from this module's source into a folder.
func Build(ctx context.Context, folder string) (Binaries, error) {
	const module = "github.com/spotworker/spotworker"
	into := folder + string(filepath.Separator)
	//nolint:gosec // constants, and a folder of ours
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", into, module+"/cmd/worker", module+"/cmd/producer")
	if out, err := cmd.CombinedOutput(); err != nil {
		return Binaries{}, fmt.Errorf("build worker and producer: %w: %s", err, bytes.TrimSpace(out))
	}
	return Binaries{Worker: filepath.Join(folder, "worker"), Producer: filepath.Join(folder, "producer")}, nil
}

// Main runs the tests of a package, removes the programs and checks that no
// goroutine is left.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(folder)
		os.Exit(code)
	}))
}

// Programs returns worker and producer, built from this source, and their folder.
func Programs(t *testing.T) (Binaries, string) {
	t.Helper()
	b, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return b, folder
}

// Output keeps all that is written to it. It is safe for concurrent use.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String returns the text written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Until waits until the output matches a pattern, and returns its first group.
func (o *Output) Until(t *testing.T, pattern string) string {
	t.Helper()
	wanted := regexp.MustCompile(pattern + `()`)
	const patience = 2 * time.Minute // a busy machine is slow, not stuck
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if found := wanted.FindStringSubmatch(o.String()); found != nil {
			return found[1]
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %q within %s in:\n%s", pattern, patience, o.String())
		}
	}
}
