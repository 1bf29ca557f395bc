package imds

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds/scenario"
	"github.com/spotworker/spotworker/internal/lab/labtest"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/test/guard"
)

// TestRun plays a scenario for a real client over a socket, until the scenario ends, and
// for a client without a path.
func TestRun(t *testing.T) {
	s, err := scenario.Parse("f", []byte(`{"about":"Two VMs.","clock":"start","then":"end","vms":[{"name":"a"},{"name":"b"}],
		"steps":[{"at":"0s","simulate_eviction":{"event":"gone","vm":"b"}},{"at":"1s","note":"that was it"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	out := &labtest.Output{}
	done := make(chan error, 1)
	go func() { done <- Run(t.Context(), s, 0, out) }()
	base := out.Until(t, `    b +(http://127\.0\.0\.1:\d+)/vms/b\n`)
	out.Until(t, `gone is announced`)

	c, err := preempt.NewClient(guard.Loopback(t, base+"/vms/b"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	self, err := c.Instance(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	doc, err := c.Events(t.Context())
	if d := preempt.Decide(doc, self.Identity, doc.Date); err != nil || d.Action != preempt.Drain {
		t.Errorf("Events = %+v, %v, want an eviction of b", doc, err)
	}
	if got := pasted(t, out.String()); got != `{"DocumentIncarnation":1,"Events":[]}` {
		t.Errorf("what the printed curl asks for = %s, want a's document, which has no event", got)
	}
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil at the end of the scenario", err)
	}
	for _, want := range []string{"b asks what VM it is", "b is shown gone, Scheduled", "that was it", "the scenario ends",
		"a sent 1 requests"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not told in:\n%s", want, out)
		}
	}
}

// pasted sends the request of the printed curl command.
func pasted(t *testing.T, out string) string {
	t.Helper()
	_, rest, _ := strings.Cut(out, "curl -H Metadata:true '")
	address, _, _ := strings.Cut(rest, "'")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, guard.Loopback(t, address), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Metadata", "true")
	transport := guard.Transport()
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestRunEndsWithItsContext(t *testing.T) {
	s, err := scenario.Load("eviction")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out := &labtest.Output{}
	done := make(chan error, 1)
	go func() { done <- Run(ctx, s, 0, out) }()
	out.Until(t, `Times count from the first request`)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil at the end of its context", err)
	}
}

func TestRunOnATakenPort(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s, err := scenario.Load("eviction")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	err = Run(t.Context(), s, port, io.Discard)
	if taken, ok := errors.AsType[*lab.PortTakenError](err); !ok || taken.Port != port {
		t.Errorf("Run on a port that is taken = %v, want a PortTakenError", err)
	}
}

func TestLoadScenario(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.json")
	if err := os.WriteFile(file, []byte(`{"about":"Mine.","vms":[{"name":"a"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := LoadScenario(file); err != nil || s.About != "Mine." {
		t.Errorf("LoadScenario of a file = %+v, %v", s, err)
	}
	if s, err := LoadScenario("freeze"); err != nil || len(s.VMs) != 2 {
		t.Errorf("LoadScenario of one that comes with the program = %+v, %v", s, err)
	}
	if _, err := LoadScenario("frieze"); err == nil || !strings.Contains(err.Error(), "eviction, first-call, freeze") {
		t.Errorf("LoadScenario of neither = %v, want an error that lists the scenarios", err)
	}
	if err := os.WriteFile(file, []byte("{\n\"abuot\":1}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadScenario(file); err == nil || !strings.HasPrefix(err.Error(), file+":") {
		t.Errorf("LoadScenario of a wrong file = %v, want the place in the file", err)
	}
}

func TestWriteScenarios(t *testing.T) {
	var out bytes.Buffer
	if err := WriteScenarios(&out); err != nil {
		t.Fatal(err)
	}
	for _, name := range scenario.Ready() {
		if !strings.Contains("\n"+out.String(), "\n"+name+" ") {
			t.Errorf("%s is not listed in:\n%s", name, &out)
		}
	}
}
