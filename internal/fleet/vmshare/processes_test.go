//go:build unix

package vmshare

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/test/guard"
)

const (
	pathVariable     = "RUNTIMEDIR_TEST_PATH"
	endpointVariable = "RUNTIMEDIR_TEST_ENDPOINT"
)

// child is one worker's part in the test below: it polls, and finds out its name
// again and again, until SIGTERM.
func child() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	d, err := Open(ctx, Config{Path: os.Getenv(pathVariable), Instance: os.Getenv(childVariable)})
	if err == nil {
		defer d.Close()
		err = watch(ctx, d, os.Getenv(endpointVariable))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func watch(ctx context.Context, d *Dir, endpoint string) error {
	client, err := preempt.NewClient(endpoint, preempt.WithBudget(d.Budget()))
	if err != nil {
		return err
	}
	defer client.Close()
	go func() {
		for ctx.Err() == nil {
			_, _ = client.Instance(ctx)
		}
	}()
	preempt.NewWatcher(client).Run(ctx, func(preempt.Observation) {})
	return nil
}

// TestFourProcesses: four workers, real processes on real file locks, start at
// once; one is killed without a word and comes back; one is frozen for a while.
// The service, which counts, never gets more than five requests in a second, and
// each worker that runs polls once a second.
func TestFourProcesses(t *testing.T) {
	server := imds.New(imds.Options{RequestsPerSecond: -1})
	begun := time.Now()
	guest := server.AddVM(imds.VM{Name: "vm"})
	endpoint := serve(t, guest.Handler())
	path := filepath.Join(t.TempDir(), "run")
	var children []*exec.Cmd
	for _, name := range []string{"0", "1", "2", "3"} {
		children = append(children, start(t, path, endpoint, name))
	}
	time.Sleep(2 * time.Second)
	signalTo(t, children[1], syscall.SIGKILL)
	_ = children[1].Wait()
	signalTo(t, children[2], syscall.SIGSTOP)
	children[1] = start(t, path, endpoint, "1")
	time.Sleep(2 * time.Second)
	signalTo(t, children[2], syscall.SIGCONT)
	time.Sleep(time.Second)
	steady := time.Now()
	time.Sleep(4 * time.Second)
	for _, c := range children {
		signalTo(t, c, syscall.SIGTERM)
	}
	for i, c := range children {
		if err := c.Wait(); err != nil {
			t.Errorf("worker %d = %v, want it to end in good order", i, err)
		}
	}

	stats := guest.Stats()
	polls := 0 // while all four run undisturbed
	for _, r := range stats.Recent {
		if r.Path == "/metadata/scheduledevents" && r.At.After(steady) && r.At.Before(steady.Add(4*time.Second)) {
			polls++
		}
	}
	t.Logf("%d requests in %s, at most %d in any second; %d polls in the last 4s",
		stats.Requests, time.Since(begun).Round(time.Millisecond), stats.BusiestSecond, polls)
	if stats.BusiestSecond > 5 {
		t.Errorf("requests in the busiest second = %d, want at most 5", stats.BusiestSecond)
	}
	if polls < 12 || polls > 20 {
		t.Errorf("polls of four workers in 4s = %d, want about 16", polls)
	}
}

// serve serves on loopback until the test ends.
func serve(t *testing.T, handler http.Handler) (endpoint string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return guard.Loopback(t, "http://"+listener.Addr().String())
}

func start(t *testing.T, path, endpoint, name string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), childVariable+"="+name, pathVariable+"="+path, endpointVariable+"="+endpoint)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() }) // fails when it has ended
	return c
}

func signalTo(t *testing.T, c *exec.Cmd, s os.Signal) {
	t.Helper()
	if err := c.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
