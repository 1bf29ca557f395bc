package mutation

import (
	"fmt"
	"io"
)

// Count adds up the verdicts about a package's mutants.
type Count struct {
	Generated, Noticed, Survived, Unreached, Undecided int
	// TimedOut are those noticed mutants whose tests did not end in time.
	TimedOut int
}

// Share is the percentage of noticed mutants among all judged ones, with one digit after the
// point, rounded down.
func (c Count) Share() float64 {
	judged := c.Generated - c.Undecided
	if judged == 0 {
		return 100
	}
	return float64(c.Noticed*1000/judged) / 10
}

func (c Count) String() string {
	text := fmt.Sprintf("%d mutants, %d noticed (%.1f %%), %d survived, %d not reached",
		c.Generated, c.Noticed, c.Share(), c.Survived, c.Unreached)
	if c.TimedOut > 0 {
		text += fmt.Sprintf(", %d of the noticed ones timed out", c.TimedOut)
	}
	if c.Undecided > 0 {
		text += fmt.Sprintf(", %d undecided: time was up", c.Undecided)
	}
	return text
}

// Counts adds up results by package.
func Counts(results []Result) map[string]Count {
	counts := make(map[string]Count)
	for _, r := range results {
		c := counts[r.Package]
		c.add(r)
		counts[r.Package] = c
	}
	return counts
}

func (c *Count) add(r Result) {
	c.Generated++
	switch r.Verdict {
	case Noticed:
		c.Noticed++
		if r.By == timedOut {
			c.TimedOut++
		}
	case Survived:
		c.Survived++
	case Unreached:
		c.Unreached++
	case Undecided:
		c.Undecided++
	}
}

// Total adds up all results.
func Total(results []Result) Count {
	var c Count
	for _, r := range results {
		c.add(r)
	}
	return c
}

// print prints a mutant that no test noticed.
func (r Result) print(out io.Writer) {
	switch r.Verdict {
	case Survived:
		fmt.Fprintf(out, "survived %d of %d tests: %s\n", r.Tried, r.Tests, r.Mutant)
	case Unreached:
		fmt.Fprintf(out, "not reached: %s\n", r.Mutant)
	case Noticed, Undecided:
	}
}
