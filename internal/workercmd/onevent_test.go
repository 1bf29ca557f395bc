package workercmd

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// onEvent writes a program for --on-event, and returns its path and the file with what
// the program got.
func onEvent(t *testing.T) (program, got string) {
	t.Helper()
	program, got = filepath.Join(t.TempDir(), "on-event"), filepath.Join(t.TempDir(), "got")
	// One write for each event, since the program may run more than once at a time.
	text := fmt.Sprintf("#!/bin/sh\nline=$(cat)\nprintf '%%s %%s\\n' \"$SPOTWORKER_EVENT\" \"$line\" >>'%s'\n", got)
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return program, got
}

// TestOnEvent: the program hears of a job in the poison queue, of the notice and of the
// drain, also when the worker ends right after it. It gets no credentials.
func TestOnEvent(t *testing.T) {
	c := newCloud(t, true)
	program, got := onEvent(t)
	c.put(t, "bad", "refused")
	w := c.start(t, "--on-event="+program, "--concurrency=1")
	heard := func(event, text string) {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			data, _ := os.ReadFile(got) // not there before the first event
			for line := range strings.Lines(string(data)) {
				if strings.HasPrefix(line, event+" {") && strings.Contains(line, text) && strings.Contains(line, `"worker":"`) {
					return
				}
			}
			if time.Now().After(end) {
				t.Fatalf("the program did not hear of %s with %s; it got\n%s", event, text, data)
			}
		}
	}
	heard("poison", `"job_id":"bad"`)
	c.put(t, "a", "polite")
	w.untilOf(t, "job started", "a") // the first job started too
	if _, err := c.metadata.SimulateEviction(testVM); err != nil {
		t.Fatal(err)
	}
	heard("notice", `"event_type":"Preempt"`)
	heard("drained", `"released":1`)
	w.terminate(t)
	if end := w.end(t); end.ExitCode() != 0 {
		t.Errorf("worker ended with %s, want exit code 0", end)
	}
	if data, _ := os.ReadFile(got); strings.Contains(string(data), "AccountKey") {
		t.Errorf("the program got a key:\n%s", data)
	}
	if failed := w.find("receiver of events failed"); len(failed) > 0 {
		t.Errorf("the program failed: %v", failed)
	}

	fresh := newCloud(t, true).working(t, "polite", "--on-event="+program)
	if err := os.Remove(got); err != nil {
		t.Fatal(err)
	}
	fresh.terminate(t)
	if end := fresh.end(t); end.ExitCode() != 0 {
		t.Errorf("worker ended with %s, want exit code 0", end)
	}
	heard("drained", `"released":1`)
}

// TestOnEventDoesNotDelay: a program that hangs delays no hand-over, and the end of the worker
// by a few seconds at most.
func TestOnEventDoesNotDelay(t *testing.T) {
	c := newCloud(t, true)
	program := filepath.Join(t.TempDir(), "on-event")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 300\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	w := c.working(t, "polite", "--on-event="+program)
	if _, err := c.metadata.SimulateEviction(testVM); err != nil {
		t.Fatal(err)
	}
	w.until(t, "drained")
	c.demandReleased(t)
	w.terminate(t)
	if end := w.end(t); end.ExitCode() != 0 {
		t.Errorf("worker ended with %s, want exit code 0", end)
	}
	if failed := w.find("receiver of events failed"); len(failed) == 0 {
		t.Error("the log does not say that the program was killed")
	}
}

// TestOnEventRefused: a receiver that cannot be used is a wrong configuration.
func TestOnEventRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := write("secret", onEventSecret+"\n")
	const url = "--on-event=http://127.0.0.1:1/T0SECRET"
	c := newCloud(t, true)
	for name, row := range map[string]struct {
		variables, args []string
		want            string
	}{
		"no program":        {nil, []string{"--on-event=" + filepath.Join(dir, "missing")}, "--on-event"},
		"no URL":            {nil, []string{"--on-event-secret-file=" + secret}, "need a URL"},
		"a program":         {nil, []string{"--on-event=sh", "--on-event-template=" + secret}, "need a URL"},
		"wrong template":    {nil, []string{url, "--on-event-template=" + write("wrong", `{"text": "{{.worker}}"}`)}, "json .NAME"},
		"no template":       {nil, []string{url, "--on-event-template=" + filepath.Join(dir, "missing")}, "--on-event-template"},
		"empty template":    {nil, []string{url, "--on-event-template=" + write("empty", "")}, "--on-event-template"},
		"a folder":          {nil, []string{url, "--on-event-template=" + dir}, "--on-event-template"},
		"wrong secret":      {[]string{webhookSecret + "=T0SECRET"}, []string{url}, "whsec_"},
		"wrong secret file": {nil, []string{url, "--on-event-secret-file=" + write("short", "whsec_T0SECRET")}, "whsec_"},
		"empty secret file": {nil, []string{url, "--on-event-secret-file=" + write("none", "")}, "--on-event-secret-file"},
		"two secrets":       {[]string{webhookSecret + "=" + onEventSecret}, []string{url, "--on-event-secret-file=" + secret}, "both"},
	} {
		cmd := exec.Command("testworker", append(row.args, "--metadata-endpoint=none", "--listen=none")...)
		cmd.Env = c.environment(row.variables)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 78 {
			t.Errorf("%s: worker ended with %v, want exit code 78", name, err)
		}
		text := string(out)
		if !strings.Contains(text, row.want) || strings.Contains(text, "T0SECRET") || strings.Contains(text, onEventSecret[6:]) {
			t.Errorf("%s: log = %s, want %q and no secret", name, text, row.want)
		}
	}
}

const onEventSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// TestWebhook: the events of an eviction are posted, signed, while the endpoint fails first; the
// worker's log has neither the address nor the secret.
func TestWebhook(t *testing.T) {
	var mu sync.Mutex
	bodies := map[string]string{} // by type
	requests := 0
	address := listen(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		key, err := base64.StdEncoding.DecodeString(onEventSecret[len("whsec_"):])
		if err != nil {
			t.Error(err)
		}
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
		if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("webhook-signature") != want {
			t.Errorf("signature = %s, want %s", r.Header.Get("webhook-signature"), want)
		}
		mu.Lock()
		defer mu.Unlock()
		if requests++; requests == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		var event struct{ Type string }
		if err := json.Unmarshal(body, &event); err != nil {
			t.Error(err)
		}
		bodies[event.Type] = string(body)
	})
	w := newCloud(t, true).evictedWorker(t, []string{webhookSecret + "=" + onEventSecret}, "--on-event=http://"+address+"/T0SECRET")
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		mu.Lock()
		n := len(bodies)
		mu.Unlock()
		if n == 2 || time.Now().After(end) {
			break
		}
	}
	w.terminate(t)
	if end := w.end(t); end.ExitCode() != 0 {
		t.Errorf("worker ended with %s, want exit code 0", end)
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(bodies["notice"], `"event_type":"Preempt"`) || !strings.Contains(bodies["drained"], `"released":1`) || requests < 3 {
		t.Errorf("%d requests: %v, want a notice and the end of a drain", requests, bodies)
	}
	if text := fmt.Sprint(w.lines); strings.Contains(text, "T0SECRET") || strings.Contains(text, onEventSecret[6:]) {
		t.Errorf("log has a secret: %s", text)
	}
}

// TestWebhookDoesNotDelay: an endpoint that accepts and does not answer delays no hand-over, and
// the end of the worker by a few seconds at most.
func TestWebhookDoesNotDelay(t *testing.T) {
	release := make(chan struct{})
	address := listen(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-release:
		}
	})
	defer close(release)
	c := newCloud(t, true)
	w := c.evictedWorker(t, nil, "--on-event=http://"+address)
	c.demandReleased(t)
	w.terminate(t)
	if end := w.end(t); end.ExitCode() != 0 {
		t.Errorf("worker ended with %s, want exit code 0", end)
	}
	if failed := w.find("receiver of events failed"); len(failed) == 0 {
		t.Error("the log does not say that the webhook failed")
	}
}

// evictedWorker starts a worker with a job, announces the eviction of its VM, and returns when
// the job is handed over.
func (c *cloud) evictedWorker(t *testing.T, variables []string, args ...string) *workerProcess {
	t.Helper()
	c.put(t, "a", "polite")
	w := c.startWith(t, variables, args...)
	w.until(t, "job started")
	if _, err := c.metadata.SimulateEviction(testVM); err != nil {
		t.Fatal(err)
	}
	w.until(t, "drained")
	return w
}
