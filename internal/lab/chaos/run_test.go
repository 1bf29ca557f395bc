package chaos

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/internal/lab/text"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// TestRun is a short run with everything in it, on real processes.
func TestRun(t *testing.T) {
	c := DefaultConfig()
	c.Kills, c.Workers, c.PerSecond, c.Seed = 6, 3, 20, 1
	c.FreezeEvery, c.EvictEvery, c.CutEvery = 4, 4, 3
	c.ProgramEvery, c.LackEvery, c.DuplicateEvery, c.LargeEvery, c.StreamEvery = 3, 3, 0, 2, 2
	c.Visibility, c.JobTime = 3*time.Second, 500*time.Millisecond
	var out strings.Builder
	_, err := Run(t.Context(), c, &out)
	t.Log("\n" + out.String())
	if err != nil {
		t.Fatalf("Run = %v, want nil", err)
	}
	for _, want := range []string{"seed                                        1\n", "every promise was kept (seed 1)"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report has no %q:\n%s", want, out.String())
		}
	}
}

// An interrupted run ends every process, reports that it checked nothing, and
// leaves no folder, also if its workers were still being started.
func TestInterruptedRun(t *testing.T) {
	for name, during := range map[string]func(cancel func()) io.Writer{
		"begun": func(cancel func()) io.Writer { // its story begins when all workers are started
			return onWrite(func() { time.AfterFunc(time.Second, cancel) })
		},
		"starting": func(cancel func()) io.Writer {
			cancel()
			return io.Discard
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := DefaultConfig()
			c.Kills, c.Workers = 1000, 2
			if _, err := Run(ctx, c, during(cancel)); !errors.Is(err, errInterrupted) {
				t.Errorf("Run = %v, want that it was interrupted", err)
			}
			if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
				t.Errorf("left in the temporary folder: %v, %v", left, err)
			}
		})
	}
}

// onWrite is a writer that is called for its first write alone.
func onWrite(first func()) io.Writer { return &firstWrite{do: sync.OnceFunc(first)} }

type firstWrite struct{ do func() }

func (f *firstWrite) Write(p []byte) (int, error) {
	f.do()
	return len(p), nil
}

// An account whose queues have messages is refused before anything is started.
func TestUsedAccount(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		t.Fatal(err)
	}
	server := storage.New(storage.Options{})
	connectionString, err := server.Listen(storage.Addresses{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: server.ConnectionString(), Transport: server.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	left := queue.New(account.Queue(names.Poison), names.Poison)
	if err := errors.Join(left.Create(t.Context()), left.PutUnchanged(t.Context(), "x")); err != nil {
		t.Fatal(err)
	}
	c := DefaultConfig()
	c.Kills, c.ConnectionString, c.Worker = 1, connectionString, "/nowhere"
	if _, err := Run(t.Context(), c, new(strings.Builder)); err == nil ||
		!strings.Contains(err.Error(), "queue spotworker-jobs-poison has 1 messages") {
		t.Errorf("Run on a used account = %v, want that it is refused", err)
	}
}

var noon = time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)

// TestTable: broken promises are found.
func TestTable(t *testing.T) {
	f := findings{verdict: oracle.Verdict{Jobs: 3, Committed: 2}, faults: []string{"x"}}
	f.verdict.Broken[oracle.Lost] = 1
	f.idle.Span = oracle.Span{From: noon, To: noon.Add(idleBound(DefaultConfig()) + 1)}
	var broken []string
	for _, p := range f.promises(DefaultConfig()) {
		if p.Verdict == text.Broken {
			broken = append(broken, p.String())
		}
	}
	if want := []string{
		"jobs committed: 2, promised 3",
		"jobs lost: 1, promised 0",
		"faults of a worker or of the run: 1, promised 0",
		"longest idle beside a free slot: 53.0 s, promised <= 53.0 s",
	}; !slices.Equal(broken, want) {
		t.Errorf("%q are broken, want %q", broken, want)
	}
}

func TestValidate(t *testing.T) {
	good := DefaultConfig()
	good.Kills = 1
	if err := good.Validate(); err != nil {
		t.Errorf("Validate = %v, want nil", err)
	}
	for want, change := range map[string]func(*Config){
		"--kills or --for": func(c *Config) { c.Kills = 0 },
		"must not be":      func(c *Config) { c.For = -1 },
		"--workers":        func(c *Config) { c.Workers = 65 },
		"--per-second":     func(c *Config) { c.PerSecond = 0 },
		"on this machine":  func(c *Config) { c.ConnectionString = "AccountName=a;AccountKey=hunter2" },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Validate = %v, want an error with %q and without a key", err, want)
		}
	}
}
