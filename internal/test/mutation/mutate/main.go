// Command mutate runs mutation tests of packages: make mutants. See package mutation.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/test/mutation"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1) //nolint:gocritic // stop has run
	}
}

// command is a command line.
type command struct {
	baseline string
	judges   string
	only     string
	sample   int
	seed     uint64
	floor    float64
	update   bool
	list     bool
	options  mutation.Options
}

func run(ctx context.Context, args []string) error {
	c := command{options: mutation.Options{Note: note, Survivors: os.Stdout}}
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	flags.StringVar(&c.baseline, "baseline", "internal/test/mutation/baseline.json", "file with the share of noticed mutants by package")
	flags.StringVar(&c.judges, "judges", "", "packages whose tests run too, beside the package's own and the baseline's")
	flags.StringVar(&c.only, "only", "", "pattern of the mutants to run, as they are printed")
	flags.IntVar(&c.sample, "random", 0, "run so many random mutants; without packages those of all packages in the baseline")
	flags.Uint64Var(&c.seed, "seed", 0, "seed of the random mutants, 0 for a fresh one")
	flags.Float64Var(&c.floor, "floor", 0, "with -random: fail if a smaller percentage is noticed")
	flags.BoolVar(&c.update, "update", false, "write the shares into the baseline")
	flags.BoolVar(&c.list, "list", false, "print the mutants, and run none")
	flags.DurationVar(&c.options.Each, "each", 20*time.Second, "time for the tests of one mutant, by their time without a mutant")
	flags.DurationVar(&c.options.Total, "limit", 12*time.Hour, "time in all; mutants that are left are undecided")
	flags.DurationVar(&c.options.Grace, "grace", 8*time.Second, "time for a mutant beyond ten times of its tests; longer is a loop")
	flags.IntVar(&c.options.Parallel, "parallel", runtime.NumCPU(), "mutants that run at the same time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return c.run(ctx, flags.Args())
}

func (c *command) run(ctx context.Context, patterns []string) error {
	baseline, err := mutation.ReadBaseline(c.baseline)
	if err != nil {
		return err
	}
	if len(patterns) == 0 && c.sample > 0 {
		for _, s := range baseline {
			patterns = append(patterns, s.Package)
		}
	}
	if len(patterns) == 0 {
		return errors.New("no package: name one, for example ./internal/queue")
	}
	packages, err := mutation.Load(ctx, ".", patterns...)
	if err != nil {
		return err
	}
	if err := c.choose(packages); err != nil {
		return err
	}
	if c.list {
		for _, p := range packages {
			for _, m := range p.Mutants {
				if c.options.Chosen[m] {
					fmt.Println(m)
				}
			}
		}
		return nil
	}
	var names []string
	for _, p := range packages {
		names = append(names, p.Pattern)
	}
	c.options.Judges = append(baseline.Judges(names...), strings.Fields(c.judges)...)
	results, err := mutation.Judge(ctx, packages, c.options)
	if err != nil {
		return err
	}
	return c.report(baseline, results)
}

// choose chooses the mutants to run.
func (c *command) choose(packages []*mutation.Package) error {
	only, err := regexp.Compile(c.only)
	if err != nil {
		return err
	}
	var matching []*mutation.Mutant
	for _, p := range packages {
		for _, m := range p.Mutants {
			if only.MatchString(m.String()) {
				matching = append(matching, m)
			}
		}
	}
	if c.sample > 0 {
		if c.seed == 0 {
			c.seed = uint64(rand.Uint32())
		}
		note("%d of %d mutants, with -seed %d", min(c.sample, len(matching)), len(matching), c.seed)
		random := rand.New(rand.NewPCG(c.seed, 0))
		random.Shuffle(len(matching), func(i, j int) { matching[i], matching[j] = matching[j], matching[i] })
		matching = matching[:min(c.sample, len(matching))]
	}
	c.options.Chosen = make(map[*mutation.Mutant]bool)
	for _, m := range matching {
		c.options.Chosen[m] = true
	}
	return nil
}

// report prints the counts, and compares them with the baseline.
func (c *command) report(baseline mutation.Baseline, results []mutation.Result) error {
	counts := mutation.Counts(results)
	for _, s := range baseline.Raise(counts) {
		if count, judged := counts[s.Package]; judged {
			fmt.Printf("%s: %s\n", s.Package, count)
		}
	}
	total := mutation.Total(results)
	switch {
	case c.sample > 0:
		fmt.Printf("in all: %s; seed %d\n", total, c.seed)
		if total.Share() < c.floor {
			return fmt.Errorf("%.1f %% of the mutants are noticed, want %.0f %%", total.Share(), c.floor)
		}
		return nil
	case c.only != "" || total.Undecided > 0:
		return nil // the baseline is about all mutants
	case c.update:
		return baseline.Raise(counts).Write(c.baseline)
	}
	return baseline.Compare(counts)
}

func note(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
