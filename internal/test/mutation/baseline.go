package mutation

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Standard is what is asked of a package's tests.
type Standard struct {
	Package string `json:"package"`
	// Judges are packages with tests beside the package's own.
	Judges []string `json:"judges,omitempty"`
	// Noticed is the percentage of mutants that the tests notice. It may only rise.
	Noticed float64 `json:"noticed"`
}

// Baseline has the standards of all packages that are tested by mutants.
type Baseline []Standard

// ReadBaseline reads the baseline.
func ReadBaseline(name string) (Baseline, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var b Baseline
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// Write writes the baseline.
func (b Baseline) Write(name string) error {
	text, err := json.MarshalIndent(b, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644) //nolint:gosec // a file of the repository
}

// Judges returns the packages whose tests judge packages: their own and the baseline's.
func (b Baseline) Judges(packages ...string) []string {
	judges := slices.Clone(packages)
	for _, s := range b {
		if slices.Contains(packages, s.Package) {
			judges = append(judges, s.Judges...)
		}
	}
	slices.Sort(judges)
	return slices.Compact(judges)
}

// Compare returns an error if a package's tests notice a smaller share than before.
func (b Baseline) Compare(counts map[string]Count) error {
	var lower []string
	for _, s := range b {
		if c, judged := counts[s.Package]; judged && c.Share() < s.Noticed {
			lower = append(lower, fmt.Sprintf("%s: %.1f %% of the mutants are noticed, and %.1f %% were", s.Package, c.Share(), s.Noticed))
		}
	}
	if lower != nil {
		return fmt.Errorf("%s. Read the survivors above, and write the missing tests", strings.Join(lower, "; "))
	}
	return nil
}

// Raise takes over the shares of a run. Packages that the baseline does not have are added.
func (b Baseline) Raise(counts map[string]Count) Baseline {
	raised := slices.Clone(b)
	for name, c := range counts {
		i := slices.IndexFunc(raised, func(s Standard) bool { return s.Package == name })
		if i < 0 {
			raised = append(raised, Standard{Package: name})
			i = len(raised) - 1
		}
		raised[i].Noticed = c.Share()
	}
	slices.SortFunc(raised, func(a, b Standard) int { return strings.Compare(a.Package, b.Package) })
	return raised
}
