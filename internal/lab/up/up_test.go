package up

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/labtest"
	"github.com/spotworker/spotworker/internal/lab/labworker"
	"github.com/spotworker/spotworker/internal/test/need"
)

// TestMain lets the test binary be the workers of lab up.
func TestMain(m *testing.M) {
	labworker.WorkerMain()
	labtest.Main(m)
}

// upOnAnyPorts is a local Azure without anything to wait for.
func upOnAnyPorts() Config {
	c := DefaultConfig()
	c.Local.BlobPort, c.Local.QueuePort, c.Local.MetadataPort, c.Local.ManagerPort = 0, 0, 0, 0
	c.Files, c.JobTime = 0, 0
	return c
}

// running is a `lab up` in this process, and its output.
type running struct {
	out  *labtest.Output
	port int // of the metadata service
}

// startUp starts a `lab up`, waits until it is up, and ends it with the test.
func startUp(t *testing.T, c Config) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{out: &labtest.Output{}}
	done := make(chan error, 1)
	go func() { done <- Run(ctx, c, r.out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil after its context's end", err)
		}
	})
	var err error
	if r.port, err = strconv.Atoi(r.out.Until(t, `evict --metadata-port (\d+) \S*spot_\w+\n`)); err != nil {
		t.Fatal(err)
	}
	return r
}

// paste returns the shell commands that people paste into every terminal and into a
// program's terminal on a VM, with a program of ours. It refuses commands that could lead
// beyond this machine.
func (r *running) paste(t *testing.T, section, vm, program string) string {
	t.Helper()
	text := r.out.String()
	from := strings.Index(text, "First, in every terminal:")
	to := strings.Index(text, "In one for the producer:")
	common := text[from+len("First, in every terminal:") : to]
	for block := range strings.SplitSeq(text[to:], "\n\n") {
		if strings.Contains(block, "bin/"+section+" ") && (vm == "" || strings.Contains(block, "/vms/"+vm+"\n")) {
			run := program // each of its lines
			if section == "worker" {
				run = "exec " + program // so that it gets the signals
			}
			script := common + strings.ReplaceAll(block, "bin/"+section, run)
			for _, address := range regexp.MustCompile(`https?://[^/;'\s]+`).FindAllString(script, -1) {
				if !regexp.MustCompile(`^https?://127\.0\.0\.1:\d+$`).MatchString(address) {
					t.Fatalf("%s is not on loopback, in:\n%s", address, script)
				}
			}
			return script
		}
	}
	t.Fatalf("no commands for %s %s in:\n%s", section, vm, text)
	return ""
}

// shell runs commands as a terminal with a bare environment would.
func shell(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-eu", "-c", script)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	lab.Isolate(cmd)
	return cmd
}

// worker starts a real worker on a VM, with the flags of the guide or others, and returns its log. It
// ends with the test, in good order.
func (r *running) worker(t *testing.T, vm string, flags ...string) *labtest.Output {
	t.Helper()
	log := &labtest.Output{}
	programs, _ := labtest.Programs(t)
	script := r.paste(t, "worker", vm, programs.Worker)
	if len(flags) > 0 {
		script = strings.Replace(script, "--kinds-file "+exampleKinds, strings.Join(flags, " "), 1)
	}
	cmd := shell(t, script)
	cmd.Stderr = log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 15 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after t.Context has ended, which interrupts it
		if err := cmd.Wait(); err != nil && !strings.Contains(log.String(), `"to":"stopped"`) {
			t.Errorf("worker on %s ended with %v:\n%s", vm, err, log.String())
		}
	})
	return log
}

// produce runs the real producer and returns the ids that it confirmed.
func (r *running) produce(t *testing.T) []string {
	t.Helper()
	var said bytes.Buffer
	programs, _ := labtest.Programs(t)
	cmd := shell(t, r.paste(t, "producer", "", programs.Producer))
	cmd.Stderr = &said
	ids, err := cmd.Output()
	if err != nil {
		t.Fatalf("producer: %v: %s", err, said.String())
	}
	return strings.Fields(string(ids))
}

// committed returns the ids of the jobs that a worker committed, by its log.
func committed(log string) map[string]bool {
	ids := map[string]bool{}
	lines := bufio.NewScanner(strings.NewReader(log))
	for lines.Scan() {
		var line struct {
			Msg   string
			JobID string `json:"job_id"`
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "job committed" {
			ids[line.JobID] = true
		}
	}
	return ids
}

// TestRun pastes what lab up prints into shells, and evicts a worker.
func TestRun(t *testing.T) {
	need.NotOn(t, "windows", "needs a POSIX shell")
	t.Parallel()
	c := upOnAnyPorts()
	const mib = 1 << 20
	root := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(root, name), make([]byte, 13*mib), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.Files, c.FileSize, c.Roots = 2, 13*mib, []string{root}
	r := startUp(t, c)
	ids := r.produce(t)
	if len(ids) != 2 {
		t.Fatalf("producer confirmed %q, want a digest job for each of two files", ids)
	}
	log := r.worker(t, "spot_2")
	log.Until(t, `("msg":"job committed"(?s:.*)){2}`)
	for _, id := range ids {
		if !committed(log.String())[id] {
			t.Errorf("job %s is not committed", id)
		}
	}

	if _, err := Evict(t.Context(), r.port, "spot_2"); err != nil {
		t.Fatalf("Evict = %v", err)
	}
	log.Until(t, `"msg":"drained"`)
	r.out.Until(t, `spot_2 got the notice from its metadata service`)
	if _, err := Withdraw(t.Context(), r.port, "spot_2"); err != nil {
		t.Fatalf("Withdraw = %v", err)
	}
	log.Until(t, `"msg":"drained"(?s:.*)"to":"process"`)
}

func TestRunLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c := upOnAnyPorts()
	ctx, cancel := context.WithCancel(t.Context())
	out := &labtest.Output{}
	done := make(chan error, 1)
	go func() { done <- Run(ctx, c, out) }()
	out.Until(t, "spot_2")
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil after its context's end", err)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("lab up left %v behind, %v", left, err)
	}
}

func TestOrders(t *testing.T) {
	r := startUp(t, upOnAnyPorts())
	for _, test := range []struct {
		name string
		send func(context.Context, int, string) (string, error)
		vm   string
		want string // in the answer, or with a "!" in the error
	}{
		{"of a VM that is not there", Evict, "spot_9", "!there are spot_1, spot_2"},
		{"of the producer's VM", Evict, "producer", "!there is no VM"},
		{"with a name that must be escaped", Evict, "a&vm=spot_1", `!there is no VM "a&vm=spot_1"`},
		{"withdrawn before it was announced", Withdraw, "spot_1", "!not being evicted"},
		{"announced", Evict, "spot_1", "spot_1 will be evicted at"},
		{"announced twice", Evict, "spot_1", "!being evicted already"},
		{"of another VM", Evict, "spot_2", "spot_2 will be evicted at"},
		{"withdrawn", Withdraw, "spot_1", "withdrawn"},
		{"withdrawn twice", Withdraw, "spot_1", "!not being evicted"},
		{"announced again", Evict, "spot_1", "spot_1 will be evicted at"},
	} {
		got, err := test.send(t.Context(), r.port, test.vm)
		want, fails := strings.CutPrefix(test.want, "!")
		switch {
		case fails && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("eviction %s = %q, %v, want an error with %q", test.name, got, err, want)
		case !fails && (err != nil || !strings.Contains(got, want)):
			t.Errorf("eviction %s = %q, %v, want %q", test.name, got, err, want)
		}
	}
}

// TestOrdersAreNotForBrowsers sends a request that a web page of another origin could send.
func TestOrdersAreNotForBrowsers(t *testing.T) {
	r := startUp(t, upOnAnyPorts())
	for _, test := range []struct {
		method, path, header string
		want                 int
	}{
		{http.MethodPost, "/lab/evict?vm=spot_1", "", http.StatusBadRequest},
		{http.MethodGet, "/lab/evict?vm=spot_1", controlHeader, http.StatusBadRequest},
		{http.MethodPost, "/lab/burn?vm=spot_1", controlHeader, http.StatusNotFound},
	} {
		request, err := http.NewRequestWithContext(t.Context(), test.method, fmt.Sprintf("http://127.0.0.1:%d%s", r.port, test.path), nil)
		if err != nil {
			t.Fatal(err)
		}
		if test.header != "" {
			request.Header.Set(test.header, "1")
		}
		reply, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, reply.Body)
		_ = reply.Body.Close()
		if reply.StatusCode != test.want {
			t.Errorf("%s %s with header %q = %d, want %d", test.method, test.path, test.header, reply.StatusCode, test.want)
		}
	}
	if strings.Contains(r.out.String(), "Eviction notice") {
		t.Error("a VM is evicted all the same")
	}
}

func TestServerThatIsNotLabUp(t *testing.T) {
	local, err := lab.StartLocal(lab.LocalConfig{}) // without control
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	port, err := strconv.Atoi(local.MetadataPort())
	if err != nil {
		t.Fatal(err)
	}
	if said, err := Evict(t.Context(), port, "spot_1"); err == nil || !strings.Contains(err.Error(), "not lab up") {
		t.Errorf("Evict on another server = %q, %v, want an error about that", said, err)
	}
}

// TestRemovedAfterTheNotice lets the notice of an eviction pass.
func TestRemovedAfterTheNotice(t *testing.T) {
	var out bytes.Buffer
	u := newUp(upOnAnyPorts(), &out)
	if err := u.open(); err != nil {
		t.Fatal(err)
	}
	defer u.close()
	if err := u.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := u.carryOut(order{action: actionEvict, vm: "spot_2"}); a.err != nil {
		t.Fatal(a.err)
	}
	u.observe(time.Now().Add(29 * time.Second))
	if got := strings.Join(u.present(), " "); got != "spot_1 spot_2" {
		t.Errorf("VMs before the notice is over: %s, want spot_1 spot_2", got)
	}
	u.observe(time.Now().Add(30 * time.Second))
	if got := strings.Join(u.present(), " "); got != "spot_1 spot_3" {
		t.Errorf("VMs after it: %s, want spot_1 spot_3", got)
	}
	if !strings.Contains(out.String(), "spot_3 replaces it:\n\n    export SPOTWORKER_METADATA_ENDPOINT="+u.local.Endpoint("spot_3")+"\n") {
		t.Errorf("the new VM's environment is not printed:\n%s", out.String())
	}
	if a := u.carryOut(order{action: actionWithdraw, vm: "spot_2"}); a.err == nil {
		t.Error("the eviction of a VM that is gone was withdrawn")
	}
	if _, err := u.local.Metadata.SimulateEviction("spot_2"); err == nil {
		t.Error("the metadata service still has the VM")
	}
}

func TestRunChecksItsConfiguration(t *testing.T) {
	for want, spoil := range map[string]func(*Config){
		"--vms":            func(c *Config) { c.VMs = 0 },
		"--workers":        func(c *Config) { c.Workers = 33 },
		"--kinds-file":     func(c *Config) { c.KindsFile = "kinds.json" },
		"--files":          func(c *Config) { c.Files = -1 },
		"--job-time":       func(c *Config) { c.JobTime = -1 },
		"--blob-port":      func(c *Config) { c.Local.BlobPort = 65536 },
		"--queue-port":     func(c *Config) { c.Local.QueuePort = -1 },
		"--metadata-port":  func(c *Config) { c.Local.MetadataPort = -1 },
		"--arm-port":       func(c *Config) { c.Local.ManagerPort = 65536 },
		"--eviction-delay": func(c *Config) { c.EvictionDelay = -1 },
	} {
		c := DefaultConfig()
		if err := c.Validate(); err != nil {
			t.Fatalf("the default configuration is refused: %v", err)
		}
		spoil(&c)
		if err := Run(t.Context(), c, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run = %v, want an error about %s", err, want)
		}
	}
}

func TestQuotedForAShell(t *testing.T) {
	need.NotOn(t, "windows", "needs a POSIX shell")
	for _, value := range []string{"plain", "a=b;c", "it's", "$HOME `id` \"x\"", "", "*", "~/x"} {
		got, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "printf %s "+quote(value)).Output()
		if err != nil || string(got) != value {
			t.Errorf("a shell reads %s as %q, %v, want %q", quote(value), got, err, value)
		}
	}
}
