//go:build linux

// Command bench measures the costs of the worker beside programs that do the same with less.
// docs/proof.md explains the method and shows the figures.
//
//	bench (this process) ── starts, reads /proc ──▶ side: worker, loop or program, on one core
//	  │                                              │ HTTP on loopback
//	  └── starts, fills, counts ──▶ storage: the emulator, a process on another core
//
// In hand-overs all processes use all cores.
//
// Each measurement has a storage of its own, filled before the side starts. Sides are
// interleaved, round after round, so that other load of the machine meets all of them alike:
// ratios are to be trusted, and rates only together with the load. It runs on Linux.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// flags are the program's commands. All but run are processes that run starts.
type flags struct {
	Run     runCommand     `cmd:"" default:"withargs" help:"Measure, and print tables in Markdown."`
	Storage storageCommand `cmd:"" hidden:""`
	Pin     pinCommand     `cmd:"" hidden:""`
	Loop    loopCommand    `cmd:"" hidden:""`
	Exec    execCommand    `cmd:"" hidden:""`
	State   stateCommand   `cmd:"" hidden:""`
	Puts    putsCommand    `cmd:"" hidden:""`
	Program programCommand `cmd:"" hidden:""`
	Memory  memoryCommand  `cmd:"" hidden:""`
}

const description = `Measures the worker beside a loop that does the same, and prints tables.

Every process is on this machine: the storage is the emulator, on one core, and
what is measured has another; in hand-overs they share all cores. Sides are
interleaved, so compare ratios; absolute rates depend on the machine and on what
else it does.`

func main() {
	var f flags
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command := kong.Parse(&f, kong.Name("bench"), kong.Description(description),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Vars{
			"tables": "jobs,commands,many,states,handover,frozen,puts",
			"about_window": "Time of one measurement of rate and CPU, at least: it is up to 3 s where fewer than 2,000 jobs fit " +
				"into it.",
		})
	command.FatalIfErrorf(command.Run())
}

// runCommand are the settings of a run.
type runCommand struct {
	Only          []string        `help:"Tables to measure: ${enum}." enum:"${tables}" default:"${tables}"`
	Rounds        int             `help:"Times that each side is measured." default:"3"`
	Window        time.Duration   `help:"${about_window}" default:"800ms"`
	Slots         []int           `help:"Jobs at once." default:"1,16,64,256"`
	Latency       []time.Duration `help:"Latencies of the storage." default:"0s,10ms"`
	Baseline      string          `help:"A revision of this repository whose worker is measured as one more side." placeholder:"REV"`
	StateMiB      int             `name:"state-mib" help:"Size of the states that are saved and restored." default:"128"`
	CheckpointMiB int             `name:"checkpoint-mib" help:"Size of the checkpoint that a program hands over." default:"1024"`
	InFlight      []int           `help:"Jobs in flight at once, of one worker." default:"1000,10000"`
	Messages      int             `help:"Messages that the producer puts." default:"5000"`
}

// Run measures the chosen tables.
func (c *runCommand) Run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	b, err := newBench(ctx, c)
	if err != nil {
		return err
	}
	defer b.close()
	b.introduce()
	for _, t := range []struct {
		name    string
		measure func(context.Context) error
	}{{"jobs", b.measureJobs}, {"commands", b.measureCommands}, {"many", b.measureMany}, {"states", b.measureStates},
		{"handover", b.measureHandovers}, {"frozen", b.measureFrozen}, {"puts", b.measurePuts}} {
		if !slices.Contains(c.Only, t.name) {
			continue
		}
		if err := t.measure(ctx); err != nil {
			return fmt.Errorf("measure %s: %w", t.name, err)
		}
	}
	b.say("Load of the machine at the end: %s.", load())
	return nil
}

// check returns an error that says what to change, or nil.
func (c *runCommand) check() error {
	switch {
	case c.Rounds < 1:
		return errors.New("--rounds must be at least 1")
	case c.Window < 100*time.Millisecond:
		return errors.New("--window must be at least 100ms: less is noise")
	case slices.ContainsFunc(c.Slots, func(n int) bool { return n < 1 || n > 1024 }):
		return errors.New("--slots must be 1 to 1024 each")
	case slices.ContainsFunc(c.Latency, func(d time.Duration) bool { return d < 0 || d > time.Second }):
		return errors.New("--latency must be 0s to 1s each")
	case c.StateMiB < 1 || c.StateMiB > 4096:
		return errors.New("--state-mib must be 1 to 4096")
	case c.CheckpointMiB < checkpointFileMiB || c.CheckpointMiB > 16<<10 || c.CheckpointMiB%checkpointFileMiB != 0:
		return fmt.Errorf("--checkpoint-mib must be a multiple of %d, up to %d", checkpointFileMiB, 16<<10)
	case slices.ContainsFunc(c.InFlight, func(n int) bool { return n < 100 || n > 10_000 }):
		return errors.New("--in-flight must be 100 to 10000 each")
	case c.Messages < 100:
		return errors.New("--messages must be at least 100")
	}
	return nil
}

// load returns the machine's load of the last minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}
