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

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/repository"
)

// Account is Azurite's default account; its key is public knowledge.
const (
	Account = "devstoreaccount1"
	key     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

const (
	script = ".tools/azurite/node_modules/azurite/dist/src/azurite.js"
	// startTimeout is for a machine that reads the packages from a cold disk;
	// a second is usual.
	startTimeout = 3 * time.Minute
	// stopTimeout is how long it may take to end on its own when asked to.
	stopTimeout = 5 * time.Second
)

// Start runs Azurite during the test, in memory and on free loopback ports, and
// returns its connection string. Where node or
// Azurite is missing it skips the test, or fails it where CI=true.
func Start(t testing.TB) (connectionString string) {
	t.Helper()
	blob, queue := run(t,
		"--blobHost", "127.0.0.1", "--blobPort", "0",
		"--queueHost", "127.0.0.1", "--queuePort", "0",
		"--tableHost", "127.0.0.1", "--tablePort", "0")
	return fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%[1]s;AccountKey=%[2]s;BlobEndpoint=%[3]s/%[1]s;QueueEndpoint=%[4]s/%[1]s;",
		Account, key, blob, queue)
}

// Cloud configures Azurite as Azure's storage: over TLS, with tokens, each service on
// an address of its own and port 443.
type Cloud struct {
	Certificate, Key    string // files
	BlobHost, QueueHost string // loopback addresses
}

// StartCloud is [Start] for a test in a network of its own, in which the names
// of the account's services lead to these addresses.
func StartCloud(t testing.TB, c Cloud) {
	t.Helper()
	run(t, "--oauth", "basic", "--cert", c.Certificate, "--key", c.Key,
		"--blobHost", c.BlobHost, "--blobPort", "443",
		"--queueHost", c.QueueHost, "--queuePort", "443",
		"--tableHost", c.QueueHost, "--tablePort", "0")
}

// run starts Azurite and returns the addresses that it says it listens at.
func run(t testing.TB, arguments ...string) (blob, queue string) {
	t.Helper()
	node := need.Command(t, "node")
	azurite := filepath.Join(repository.Root(t), script)
	if _, err := os.Stat(azurite); err != nil {
		need.Missing(t, "Azurite in .tools/azurite")
	}
	ctx, stop := context.WithCancel(context.Background())
	arguments = append([]string{azurite, "--silent", "--inMemoryPersistence", "--disableTelemetry"}, arguments...)
	cmd := exec.CommandContext(ctx, node, arguments...) //nolint:gosec // node and the script are found above
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	cmd.Dir = t.TempDir() // any name that it may write
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
	return output.addresses(t)
}

// listener takes Azurite's output and waits in it for the addresses.
type listener struct {
	*io.PipeWriter
	found chan [2]string // blob, queue
	said  chan string    // all that was printed, when the process has ended early
}

var listening = regexp.MustCompile(`Azurite (Blob|Queue) service is successfully listening at (https?://127\.0\.0\.\d+:\d+)`)

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
