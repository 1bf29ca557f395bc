package workercmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/cli"
)

// The secrets of a worker's environment in these tests.
const (
	secretKey       = "c2VjcmV0LWtleS1vZi10aGUtYWNjb3VudA=="
	secretSignature = "sig%3Dc2VjcmV0LXNpZ25hdHVyZQ"
	secretHeader    = "secret-identity-header"
	secretToken     = "secret-access-token"
)

// TestLogHoldsNoSecrets: a worker that fails in every way with a key, a signature or
// a token in its hands logs at its most talkative, and never one of those.
func TestLogHoldsNoSecrets(t *testing.T) {
	refusing := listen(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	tokens := listen(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-IDENTITY-HEADER") != secretHeader {
			t.Error("the identity endpoint was asked without its header")
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": secretToken, "token_type": "Bearer", "resource": "https://storage.azure.com",
			"expires_on": fmt.Sprint(time.Now().Add(time.Hour).Unix())})
	})
	noTokens := listen(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":"invalid","error_description":"header %s is wrong"}`, "X-IDENTITY-HEADER")
	})
	dead := deadAddress(t)
	account := func(blob, queue string) string {
		return "AccountName=a;AccountKey=" + secretKey + ";BlobEndpoint=http://" + blob + "/a;QueueEndpoint=http://" + queue + "/a"
	}
	identity := func(endpoint string) []string {
		return []string{"AZURE_CLIENT_ID=00000000-0000-0000-0000-000000000001", "IDENTITY_ENDPOINT=http://" + endpoint + "/token",
			"IDENTITY_HEADER=" + secretHeader}
	}
	toItself := []string{"--account=account", "--blob-endpoint=https://" + refusing, "--queue-endpoint=https://" + refusing}
	for name, row := range map[string]struct {
		variables, args []string
		fails           bool // at once, with exit code 78
	}{
		"key, refused":       {[]string{"AZURE_STORAGE_CONNECTION_STRING=" + account(refusing, refusing)}, nil, false},
		"key, no connection": {[]string{"AZURE_STORAGE_CONNECTION_STRING=" + account(dead, dead)}, nil, false},
		"key, broken":        {[]string{"AZURE_STORAGE_CONNECTION_STRING=AccountName=a;AccountKey=!" + secretKey}, nil, true},
		"signature, refused": {[]string{"AZURE_STORAGE_CONNECTION_STRING=BlobEndpoint=http://" + refusing + "/a;QueueEndpoint=http://" +
			refusing + "/a;SharedAccessSignature=sv=2026&" + secretSignature}, nil, false},
		"signature, no connection": {[]string{"AZURE_STORAGE_CONNECTION_STRING=BlobEndpoint=http://" + dead + "/a;QueueEndpoint=http://" +
			dead + "/a;SharedAccessSignature=sv=2026&" + secretSignature}, nil, false},
		"signature in an address": {identity(tokens), []string{"--account=account", "--blob-endpoint=https://" + refusing + "/?" +
			secretSignature}, true},
		"token, for the wrong TLS": {identity(tokens), toItself, false},
		"no token":                 {identity(noTokens), toItself, false},
		"a flag that does not exist": {[]string{"AZURE_STORAGE_CONNECTION_STRING=" + account(dead, dead)}, []string{"--connection-string=x"},
			true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := runWorker(t, row.variables, row.args, row.fails)
			for _, secret := range []string{secretKey, secretSignature, "c2VjcmV0LXNpZ25hdHVyZQ", secretHeader, secretToken} {
				if strings.Contains(said, secret) {
					t.Errorf("the log holds %q:\n%s", secret, said)
				}
			}
			if said == "" {
				t.Error("nothing was said")
			}
		})
	}
}

// runWorker runs a worker until it has complained about storage, or until it ends over
// its configuration, and returns its output.
func runWorker(t *testing.T, variables, args []string, fails bool) string {
	t.Helper()
	var said output
	cmd := exec.Command("testworker", append(args, "--metadata-endpoint=none", "--listen=none", "--log-level=debug")...)
	cmd.Env = append(variables, "PATH="+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = &said, &said
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	if !fails {
		for !said.has("storage is not ready; no job is lost, trying again") && time.Since(began) < patience {
			time.Sleep(10 * time.Millisecond)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	}
	err := cmd.Wait()
	want := cli.ExitOK
	if fails {
		want = cli.ExitConfig
	}
	if code := cmd.ProcessState.ExitCode(); code != want {
		t.Errorf("worker ended with %d, %v, want %d; it said:\n%s", code, err, want, &said)
	}
	return said.String()
}

// listen serves on loopback and returns the address.
func listen(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handle, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return listener.Addr().String()
}

// deadAddress returns a loopback address on which no server listens.
func deadAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// output collects the output of a process.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) has(text string) bool { return strings.Contains(o.String(), text) }
