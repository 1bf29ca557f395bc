package lab

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const localStorage = "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=aw==;" +
	"BlobEndpoint=http://127.0.0.1:1/a;QueueEndpoint=http://127.0.0.1:2/a;"

// testFleet is a fleet whose workers are this test binary in a role.
type testFleet struct {
	*Fleet
	logs string

	mu    sync.Mutex
	lines map[string][]fakeLine // by VM
	more  chan struct{}         // gets one for every line, if there is room
}

type fakeLine struct {
	Msg    string
	Values []string
}

func newTestFleet(t *testing.T, role string) *testFleet {
	t.Helper()
	f := &testFleet{logs: t.TempDir(), lines: map[string][]fakeLine{}, more: make(chan struct{}, 1)}
	f.Fleet = NewFleet(FleetConfig{
		Worker: os.Args[0], Args: []string{role}, ConnectionString: localStorage, Logs: f.logs,
		Endpoint: func(vm string) string { return "http://127.0.0.1:3/vms/" + vm },
		OnLine:   f.line,
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = f.Close(ctx)
	})
	return f
}

func (f *testFleet) line(vm string, raw []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var l fakeLine
	_ = json.Unmarshal(raw, &l)
	f.lines[vm] = append(f.lines[vm], l)
	f.wake()
}

func (f *testFleet) wake() {
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// until waits for a condition, which is called with f.mu held.
func (f *testFleet) until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	patience := time.After(2 * time.Minute)
	for {
		f.mu.Lock()
		holds := condition()
		f.mu.Unlock()
		if holds {
			return
		}
		select {
		case <-f.more:
		case <-patience:
			t.Fatalf("%s did not happen within 2m", what)
		}
	}
}

func (f *testFleet) start(t *testing.T, name string) *VM {
	t.Helper()
	vm, err := f.Start(name)
	if err != nil {
		t.Fatal(err)
	}
	f.until(t, name+" being ready", func() bool {
		return slices.ContainsFunc(f.lines[name], func(l fakeLine) bool { return l.Msg == "ready" })
	})
	return vm
}

func (f *testFleet) values(vm, msg string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.lines[vm] {
		if l.Msg == msg {
			return l.Values
		}
	}
	return nil
}

func TestWorkerDoesNotInheritTheEnvironment(t *testing.T) {
	t.Setenv("AZURE_CLIENT_ID", "the user's own")
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "the user's own")
	t.Setenv("SPOTWORKER_METADATA_ENDPOINT", "http://192.0.2.1")
	t.Setenv("HTTP_PROXY", "http://192.0.2.1")
	f := newTestFleet(t, "polite")
	f.start(t, "spot_1")
	got := f.values("spot_1", "environment")
	want := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "AZURE_STORAGE_CONNECTION_STRING=" + localStorage}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("environment of the worker = %q, want %q", got, want)
	}
}

func TestFleetFlagsComeLast(t *testing.T) {
	f := newTestFleet(t, "polite")
	f.start(t, "spot_7")
	args := f.values("spot_7", "arguments")
	got := args[len(args)-4:]
	want := []string{"--metadata-endpoint=http://127.0.0.1:3/vms/spot_7", "--log-format=json", "--log-level=debug", "--listen=none"}
	if !slices.Equal(got, want) {
		t.Errorf("last flags = %q, want %q", got, want)
	}
}

func TestCloseKillsWorkersThatDoNotStop(t *testing.T) {
	f := newTestFleet(t, "stubborn")
	f.start(t, "spot_1")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := f.Close(ctx)
	if err == nil || !strings.Contains(err.Error(), "spot_1 did not hand over in time") {
		t.Errorf("Close = %v, want an error that names spot_1", err)
	}
	if n := len(f.Running()); n != 0 {
		t.Errorf("%d workers run after Close, want none", n)
	}
}

func TestNoWorkerBeyondLoopback(t *testing.T) {
	for _, test := range []struct{ name, endpoint, storage string }{
		{"the real metadata service", "http://169.254.169.254", localStorage},
		{"another machine", "http://192.0.2.1:80/vms/spot_1", localStorage},
		{"a name, which would be resolved", "http://localhost:80/vms/spot_1", localStorage},
		{"a loopback address as a user name", "http://127.0.0.1@192.0.2.1/", localStorage},
		{"no metadata service", "none", localStorage},
		{"the default", "", localStorage},
		{"storage in the cloud", "http://127.0.0.1:3/vms/spot_1", "AccountName=a;AccountKey=aw=="},
		{"blobs elsewhere", "http://127.0.0.1:3/vms/spot_1", strings.Replace(localStorage, "127.0.0.1:1", "192.0.2.1", 1)},
		{"queues elsewhere", "http://127.0.0.1:3/vms/spot_1", strings.Replace(localStorage, "127.0.0.1:2", "192.0.2.1", 1)},
	} {
		t.Run(test.name, func(t *testing.T) {
			logs := t.TempDir()
			f := NewFleet(FleetConfig{
				Worker: os.Args[0], Args: []string{"polite"}, ConnectionString: test.storage, Logs: logs,
				Endpoint: func(string) string { return test.endpoint },
			})
			vm, err := f.Start("spot_1")
			if err == nil {
				vm.Kill()
			}
			if !errors.Is(err, ErrNotLocal) {
				t.Errorf("Start = %v, want ErrNotLocal", err)
			}
			if err != nil && strings.Contains(err.Error(), "aw==") {
				t.Errorf("error repeats the account's key: %v", err)
			}
			if left, _ := os.ReadDir(logs); len(left) != 0 || len(f.Running()) != 0 {
				t.Errorf("something was started all the same: log files %v, running %v", left, f.Running())
			}
		})
	}
}
