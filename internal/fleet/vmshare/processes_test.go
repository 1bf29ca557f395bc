//go:build unix

package vmshare

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
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
// again and again, until SIGTERM. It prints each request that its budget allows.
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
	client, err := preempt.NewClient(endpoint, preempt.WithBudget(printingBudget{d}))
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

// allowed is a request that a budget allowed.
type allowed struct {
	at     time.Duration // by the machine's clock
	poll   bool
	shared bool // by the file, not by the worker's own share
}

// printingBudget is the budget of a folder. It prints each allowed request, with the time
// by which the budget decided.
type printingBudget struct{ dir *Dir }

func (p printingBudget) Wait(ctx context.Context, u preempt.Urgency) error {
	r := allowed{poll: u == preempt.Poll, shared: true}
	dir := *p.dir
	dir.Clock = func() time.Duration { r.at = p.dir.Clock(); return r.at }
	b := &budget{dir: &dir, own: ownShare{p.dir.budget.own, &r.shared}}
	if err := b.Wait(ctx, u); err != nil {
		return err
	}
	fmt.Println(int64(r.at), r.poll, r.shared)
	return nil
}

// ownShare is a worker's own share, for the time in which the file cannot be used.
type ownShare struct {
	preempt.Budget
	shared *bool
}

func (o ownShare) Wait(ctx context.Context, u preempt.Urgency) error {
	*o.shared = false
	return o.Budget.Wait(ctx, u)
}

// TestFourProcesses: four workers, real processes on real file locks, start at
// once; one is killed without a word and comes back; one is frozen for a while.
// The file never allows more than five requests in a second, and each worker that runs
// polls. When requests arrive depends on the machine as well.
func TestFourProcesses(t *testing.T) {
	server := imds.New(imds.Options{RequestsPerSecond: -1})
	begun := time.Now()
	guest := server.AddVM(imds.VM{Name: "vm"})
	endpoint := serve(t, guest.Handler())
	path := filepath.Join(t.TempDir(), "run")
	var children []*process
	for _, name := range []string{"0", "1", "2", "3"} {
		children = append(children, start(t, path, endpoint, name))
	}
	awaitPolls(t, 2, children...)
	killed, frozen := children[1], children[2]
	signalTo(t, killed, syscall.SIGKILL)
	_ = killed.Wait()
	signalTo(t, frozen, syscall.SIGSTOP)
	children[1] = start(t, path, endpoint, "1")
	awaitPolls(t, 2, children[0], children[1], children[3])
	signalTo(t, frozen, syscall.SIGCONT)
	awaitPolls(t, 4, children...)
	for _, c := range children {
		signalTo(t, c, syscall.SIGTERM)
	}
	for i, c := range children {
		if err := c.Wait(); err != nil {
			t.Errorf("worker %d = %v, want it to end in good order", i, err)
		}
	}

	var shared []time.Duration
	for _, c := range append(children, killed) {
		shared = append(shared, c.shared()...)
	}
	slices.Sort(shared)
	for i := range max(len(shared)-requestsMost, 0) {
		if took := shared[i+requestsMost] - shared[i]; took < time.Second {
			t.Errorf("%d requests were allowed within %s, want at most %d in a second", requestsMost+1, took, requestsMost)
		}
	}
	stats := guest.Stats()
	t.Logf("%d requests in %s, %d allowed by the file; at most %d arrived in any second",
		stats.Requests, time.Since(begun).Round(time.Millisecond), len(shared), stats.BusiestSecond)
}

// process is one worker's process.
type process struct {
	*exec.Cmd
	printed chan struct{} // closed when no more output comes

	mu      sync.Mutex
	allowed []allowed
}

// read reads the process's output until it ends.
func (c *process) read(out io.Reader) {
	defer close(c.printed)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var r allowed
		if _, err := fmt.Sscan(lines.Text(), (*int64)(&r.at), &r.poll, &r.shared); err != nil {
			continue // the end of a process that was killed
		}
		c.mu.Lock()
		c.allowed = append(c.allowed, r)
		c.mu.Unlock()
	}
}

// polls returns how many polls were allowed.
func (c *process) polls() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.allowed {
		if r.poll {
			n++
		}
	}
	return n
}

// shared returns the times of the requests that the file allowed, after the end of the process.
func (c *process) shared() (times []time.Duration) {
	<-c.printed
	for _, r := range c.allowed {
		if r.shared {
			times = append(times, r.at)
		}
	}
	return times
}

// awaitPolls waits until each worker has polled n more times.
func awaitPolls(t *testing.T, n int, workers ...*process) {
	t.Helper()
	var before []int
	for _, w := range workers {
		before = append(before, w.polls())
	}
	late := time.Now().Add(2 * time.Minute) // a busy machine is slow, not stuck
	for i, w := range workers {
		for ; w.polls() < before[i]+n; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(late) {
				t.Fatalf("worker %d has polled %d times within 2m, want %d", i, w.polls()-before[i], n)
			}
		}
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

func start(t *testing.T, path, endpoint, name string) *process {
	t.Helper()
	c := &process{Cmd: exec.CommandContext(t.Context(), os.Args[0]), printed: make(chan struct{})}
	c.Env = append(os.Environ(), childVariable+"="+name, pathVariable+"="+path, endpointVariable+"="+endpoint)
	c.Stderr = os.Stderr
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout = in
	err = c.Start()
	_ = in.Close()
	if err != nil {
		t.Fatal(err)
	}
	go c.read(out)
	t.Cleanup(func() {
		_ = c.Process.Kill() // fails when it has ended
		<-c.printed
		_ = out.Close()
	})
	return c
}

func signalTo(t *testing.T, c *process, s os.Signal) {
	t.Helper()
	if err := c.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
