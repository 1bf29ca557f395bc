package mutation

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Verdict is the tests' result for a mutant.
type Verdict int

// Verdicts.
const (
	Unreached Verdict = iota // no test runs the code
	Survived
	Noticed
	Undecided // time was up
)

// Result is the verdict about a mutant.
type Result struct {
	*Mutant
	Verdict Verdict
	// By is the test that failed. Tests is how many reach the mutant, Tried how many ran.
	By           string
	Tests, Tried int
}

// test is a test function, example or fuzz target.
type test struct {
	binary
	name    string
	took    time.Duration
	reaches map[int]bool
	broken  string // why it fails without a mutant
}

// Options of a run.
type Options struct {
	// Judges are the packages with tests, as patterns from the module's root.
	Judges []string
	// Chosen are the mutants to judge, all if nil.
	Chosen map[*Mutant]bool
	// Each is the time for the tests of one mutant, as they took without it. Total ends the run.
	Each, Total time.Duration
	// Grace is the time that a process gets beyond ten times the time of its tests without a
	// mutant. A mutant that takes longer loops, and is noticed.
	Grace    time.Duration
	Parallel int
	// Note prints progress.
	Note func(format string, args ...any)
	// Survivors gets a line for each mutant that no test notices, as soon as it is judged.
	Survivors io.Writer
}

// Judge compiles the packages with all chosen mutants, finds the tests that reach each, and
// runs them until one fails, in the order of reaching.
func Judge(ctx context.Context, packages []*Package, o Options) ([]Result, error) {
	folder, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	began := time.Now()
	if o.Chosen == nil {
		o.Chosen = make(map[*Mutant]bool)
		for _, p := range packages {
			for _, m := range p.Mutants {
				o.Chosen[m] = true
			}
		}
	}
	overlaid, err := overlay(packages, o.Chosen, folder)
	if err != nil {
		return nil, err
	}
	binaries, err := build(ctx, packages[0].module, overlaid, folder, o.Judges)
	if err != nil {
		return nil, err
	}
	o.Note("%d mutants in %d test binaries after %.0f s", len(o.Chosen), len(binaries), time.Since(began).Seconds())
	tests, err := survey(ctx, binaries, folder, o)
	if err != nil {
		return nil, err
	}
	o.Note("%d tests ran without mutants after %.0f s", len(tests), time.Since(began).Seconds())
	j := judging{Options: o, tests: tests, end: began.Add(o.Total)}
	return j.all(ctx, packages)
}

// survey runs each test alone, without a mutant. The result is sorted by time.
func survey(ctx context.Context, binaries []binary, folder string, o Options) ([]*test, error) {
	var tests []*test
	for _, b := range binaries {
		names, err := b.list(ctx)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			tests = append(tests, &test{binary: b, name: name})
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.Parallel)
	for i, t := range tests {
		group.Go(func() error { return t.survey(ctx, filepath.Join(folder, "reached-"+strconv.Itoa(i))) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, t := range tests {
		if t.broken != "" {
			o.Note("left out, since it fails without a mutant: %s %s (%s)", t.pattern, t.name, t.broken)
		}
	}
	tests = slices.DeleteFunc(tests, func(t *test) bool { return t.broken != "" || len(t.reaches) == 0 })
	slices.SortFunc(tests, func(a, b *test) int { return int(a.took - b.took) })
	return tests, nil
}

// surveyLimit is the time of one test without a mutant.
const surveyLimit = 3 * time.Minute

func (t *test) survey(ctx context.Context, log string) error {
	began := time.Now()
	ended, err := t.execute(ctx, []string{t.name}, surveyLimit, Reached+"="+log)
	if err != nil {
		return err
	}
	t.took = cmp.Or(ended.took, time.Since(began))
	if ended.failed {
		t.broken = ended.said
	}
	text, err := os.ReadFile(log)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	t.reaches = make(map[int]bool)
	for number := range strings.FieldsSeq(string(text)) {
		n, err := strconv.Atoi(number)
		if err != nil {
			return fmt.Errorf("log of the reached mutants: %w", err)
		}
		t.reaches[n] = true
	}
	return nil
}

type judging struct {
	Options
	tests []*test // by time
	end   time.Time

	mu sync.Mutex
	// noticing has, for each file, the tests that noticed a mutant there, the last one first.
	noticing map[string][]*test
}

// all judges the mutants, several at once.
func (j *judging) all(ctx context.Context, packages []*Package) ([]Result, error) {
	var mu sync.Mutex
	var results []Result
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(j.Parallel)
	began := time.Now()
	for _, p := range packages {
		for _, m := range p.Mutants {
			if !j.Chosen[m] {
				continue
			}
			group.Go(func() error {
				r, err := j.one(ctx, m)
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				results = append(results, r)
				r.print(j.Survivors)
				if len(results)%100 == 0 {
					j.Note("%d of %d mutants judged in %.0f s", len(results), len(j.Chosen), time.Since(began).Seconds())
				}
				return nil
			})
		}
	}
	err := group.Wait()
	slices.SortFunc(results, func(a, b Result) int { return a.ID - b.ID })
	return results, err
}

// batch is the time of short tests that run in one process.
const batch = 300 * time.Millisecond

// one judges a mutant.
func (j *judging) one(ctx context.Context, m *Mutant) (Result, error) {
	r := Result{Mutant: m}
	reaching := j.reaching(m)
	r.Tests = len(reaching)
	if r.Tests == 0 {
		return r, nil
	}
	r.Verdict = Survived
	var spent time.Duration
	for len(reaching) > 0 && (spent == 0 || spent+reaching[0].took <= j.Each) {
		if time.Now().After(j.end) {
			r.Verdict = Undecided
			return r, nil
		}
		var some []*test
		var took time.Duration
		for len(reaching) > 0 && (len(some) == 0 || took+reaching[0].took <= batch) {
			took += reaching[0].took
			some, reaching = append(some, reaching[0]), reaching[1:]
		}
		spent += took
		said, err := j.run(ctx, m, some, took)
		if err != nil {
			return r, err
		}
		r.Tried += len(some)
		if said != "" {
			j.learn(m, some, said)
			r.Verdict, r.By = Noticed, said
			return r, nil
		}
	}
	return r, nil
}

// favourites is how many tests run first because they noticed a mutant of the same file, if they
// take no longer than favoured.
const (
	favourites = 4
	favoured   = time.Second
)

// reaching returns the tests that reach a mutant: first tests that noticed a mutant of the same
// file, then tests of its own package, the shortest first, then the others.
func (j *judging) reaching(m *Mutant) []*test {
	j.mu.Lock()
	first := slices.Clone(j.noticing[m.File])
	j.mu.Unlock()
	first = slices.DeleteFunc(first, func(t *test) bool { return !t.reaches[m.ID] })
	first = first[:min(len(first), favourites)]
	for _, own := range []bool{true, false} {
		for _, t := range j.tests {
			if t.reaches[m.ID] && (t.pattern == m.Package) == own && !slices.Contains(first, t) {
				first = append(first, t)
			}
		}
	}
	return first
}

// learn records which of some tests noticed a mutant.
func (j *judging) learn(m *Mutant, some []*test, said string) {
	i := slices.IndexFunc(some, func(t *test) bool { return t.name == said })
	if len(some) > 1 && i < 0 { // a panic or a loop
		return
	}
	t := some[max(i, 0)]
	if t.took > favoured {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	others := slices.DeleteFunc(slices.Clone(j.noticing[m.File]), func(other *test) bool { return other == t })
	if j.noticing == nil {
		j.noticing = make(map[string][]*test)
	}
	j.noticing[m.File] = append([]*test{t}, others...)
}

// run runs some tests with a mutant, and returns the failure.
func (j *judging) run(ctx context.Context, m *Mutant, some []*test, took time.Duration) (string, error) {
	names := make(map[binary][]string)
	for _, t := range some {
		names[t.binary] = append(names[t.binary], t.name)
	}
	for b, names := range names {
		ended, err := inTime(10*took+j.Grace, func(limit time.Duration, env ...string) (outcome, error) {
			return b.execute(ctx, names, limit, env...)
		}, Active+"="+strconv.Itoa(m.ID))
		if err != nil {
			return "", err
		}
		if ended.failed {
			return ended.said, nil
		}
	}
	return "", nil
}
