//go:build integration

package azurite

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The account that Azurite has of its own; its key is public knowledge.
const (
	account = "devstoreaccount1"
	key     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

const (
	script = ".tools/azurite/node_modules/azurite/dist/src/azurite.js"
	// startTimeout is for a machine that reads the packages from a cold disk;
	// a second is usual.
	startTimeout = time.Minute
	// stopTimeout is how long it may take to end on its own when asked to.
	stopTimeout = 5 * time.Second
)

// Start runs Azurite for the length of the test, in memory and on loopback
// ports of its own choice, and returns its connection string. Where node or
// Azurite is missing it skips the test, or fails it where CI=true.
func Start(t testing.TB) (connectionString string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		missing(t, "node is not in PATH")
	}
	azurite := filepath.Join(repositoryRoot(t), script)
	if _, err := os.Stat(azurite); err != nil {
		missing(t, "Azurite is not installed in .tools/azurite")
	}
	ctx, stop := context.WithCancel(context.Background())
	//nolint:gosec // node and the script are found above
	cmd := exec.CommandContext(ctx, node, azurite,
		"--silent", "--inMemoryPersistence", "--disableTelemetry",
		"--blobHost", "127.0.0.1", "--blobPort", "0",
		"--queueHost", "127.0.0.1", "--queuePort", "0",
		"--tableHost", "127.0.0.1", "--tablePort", "0")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	cmd.Dir = t.TempDir() // whatever it may write
	output := newListener()
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		stop()
		t.Fatalf("start Azurite: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // ended by stop
		output.close()
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	blob, queue := output.addresses(t)
	return fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%[1]s;AccountKey=%[2]s;BlobEndpoint=%[3]s/%[1]s;QueueEndpoint=%[4]s/%[1]s;",
		account, key, blob, queue)
}

// missing skips the test where the machine lacks a part, and fails it where
// that must not be.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s: get it with \"make integration-tools\"; CI=true, so this is a failure", what)
	}
	t.Skipf("%s: get it with \"make integration-tools\"", what)
}

// repositoryRoot is the nearest folder upwards that has a go.mod.
func repositoryRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatalf("find the repository: %v", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatalf("find the repository: no go.mod above the test")
		}
	}
}

// listener takes Azurite's output and waits in it for the addresses.
type listener struct {
	*io.PipeWriter
	found chan [2]string // blob, queue
	said  chan string    // all that was printed, when the process has ended early
}

var listening = regexp.MustCompile(`Azurite (Blob|Queue) service is successfully listening at (http://127\.0\.0\.1:\d+)`)

func newListener() *listener {
	r, w := io.Pipe()
	l := &listener{PipeWriter: w, found: make(chan [2]string, 1), said: make(chan string, 1)}
	go l.read(r)
	return l
}

// read goes through the output until the process ends.
func (l *listener) read(r io.Reader) {
	var addresses [2]string
	var lines []string
	for s := bufio.NewScanner(r); s.Scan(); {
		lines = append(lines, s.Text())
		m := listening.FindStringSubmatch(s.Text())
		switch {
		case m == nil:
			continue
		case m[1] == "Blob":
			addresses[0] = m[2]
		case m[1] == "Queue":
			addresses[1] = m[2]
		}
		if addresses[0] != "" && addresses[1] != "" {
			l.found <- addresses
		}
	}
	_, _ = io.Copy(io.Discard, r) // a line too long for the scanner must not block Azurite
	l.said <- strings.Join(lines, "\n")
}

func (l *listener) close() { _ = l.PipeWriter.Close() }

// addresses waits until both services listen.
func (l *listener) addresses(t testing.TB) (blob, queue string) {
	t.Helper()
	select {
	case found := <-l.found:
		return found[0], found[1]
	case said := <-l.said:
		t.Fatalf("Azurite ended before it listened; it said:\n%s", said)
	case <-time.After(startTimeout):
		t.Fatalf("Azurite does not listen %s after its start", startTimeout)
	}
	return "", ""
}
