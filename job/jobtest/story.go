package jobtest

import (
	"errors"
	"fmt"
	"strings"
)

// defect is a fault of a handler.
type defect struct {
	what   string // the rule that it breaks
	detail string
	hint   string // the usual fix
}

// story is the runs of one job.
type story struct{ runs []*handlerCall }

func (s *story) last() *handlerCall { return s.runs[len(s.runs)-1] }

// shownRuns is how many runs a story shows at its beginning and at its end.
const shownRuns = 3

// fail returns an error with the fault and the runs of the job.
func (s *story) fail(f *defect) error { return s.failWanting(f, nil) }

// failWanting is fail for a job whose uninterrupted result is known.
func (s *story) failWanting(f *defect, want []byte) error {
	var b strings.Builder
	fmt.Fprintf(&b, "jobtest: %s\n  %s\n", f.what, strings.ReplaceAll(strings.TrimSpace(f.detail), "\n", "\n  "))
	for i, r := range s.runs {
		if i == shownRuns && len(s.runs) > 2*shownRuns {
			fmt.Fprintf(&b, "  ... %d more runs ...\n", len(s.runs)-2*shownRuns)
		}
		if i < shownRuns || i >= len(s.runs)-shownRuns {
			fmt.Fprintf(&b, "  run %d: %s\n", i+1, r.describe())
		}
	}
	if want != nil {
		fmt.Fprintf(&b, "  an uninterrupted run returns %s\n", show(want))
	}
	if f.hint != "" {
		fmt.Fprintf(&b, "  %s\n", f.hint)
	}
	return errors.New(strings.TrimSuffix(b.String(), "\n"))
}

// describe returns one line on the run: its start, its end and the saved state.
func (r *handlerCall) describe() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	parts := []string{"fresh start"}
	if r.from != nil {
		parts[0] = "resumed from " + r.from.String()
	}
	parts = append(parts, count(r.reports, "report"))
	if r.stopped {
		parts = append(parts, "was "+r.moment.String())
	}
	select {
	case <-r.done:
	default:
		return strings.Join(append(parts, "did not return"), "; ")
	}
	if r.returned && !r.killed {
		parts = append(parts, r.end())
	}
	if r.stopped && (r.killed || r.err != nil) {
		parts = append(parts, "recorded: "+r.recorded().String())
	}
	return strings.Join(parts, "; ")
}

// count returns a number with its noun.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// end describes the handler's result or error.
func (r *handlerCall) end() string {
	if r.err != nil {
		return fmt.Sprintf("returned the error %q", r.err)
	}
	return "returned " + show(r.result)
}
