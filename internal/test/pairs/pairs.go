// Package pairs holds the table of pairs of features, with the tests that have both of a
// pair. pairs.txt is its source. Package architecture checks that each pair has a row, that
// the named tests exist and that docs/proof.md has the table; package histories checks that
// random histories draw the pairs that the table says.
package pairs

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// The features.
const (
	Inputs      = "inputs"
	Outputs     = "outputs"
	Queues      = "queues"
	FollowUps   = "follow-ups"
	Cancel      = "cancel"
	Pause       = "pause"
	Drain       = "drain"
	Deadlines   = "deadlines"
	Moves       = "moves"
	ChosenIDs   = "chosen ids"
	Limits      = "limits"
	LargeStates = "large states"
	Logs        = "logs"
	Replay      = "replay"
	FromScratch = "from-scratch"
	Clean       = "clean"
	Snapshots   = "snapshots"
	OlderWorker = "older worker"
	Windows     = "Windows"
)

// Features returns all features, in the order of the table.
func Features() []string {
	return []string{Inputs, Outputs, Queues, FollowUps, Cancel, Pause, Drain, Deadlines, Moves, ChosenIDs,
		Limits, LargeStates, Logs, Replay, FromScratch, Clean, Snapshots, OlderWorker, Windows}
}

// Pair is a pair of features, and what tests them together.
type Pair struct {
	A, B      string   // A comes first in the table
	Histories bool     // random histories draw both
	Tests     []string // as "package: TestName"
	Reason    string   // why no test is needed; "" if there is one
}

// letter returns the cell of the pair in the table of docs/proof.md.
func (p Pair) letter() string {
	switch {
	case p.Reason != "":
		return "-"
	case p.Histories && len(p.Tests) > 0:
		return "B"
	case p.Histories:
		return "H"
	}
	return "T"
}

//go:embed pairs.txt
var source string

// All returns all pairs. It fails for a row that it cannot read, a pair that is missing and
// a pair with two rows.
func All() ([]Pair, error) {
	rows := map[[2]string]Pair{}
	for line := range strings.Lines(source) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		p, err := parse(line)
		if err != nil {
			return nil, err
		}
		if _, ok := rows[[2]string{p.A, p.B}]; ok {
			return nil, fmt.Errorf("pairs.txt has two rows for %s and %s", p.A, p.B)
		}
		rows[[2]string{p.A, p.B}] = p
	}
	var all []Pair
	for i, a := range Features() {
		for _, b := range Features()[i+1:] {
			p, ok := rows[[2]string{a, b}]
			if !ok {
				return nil, fmt.Errorf("pairs.txt has no row for %s and %s: add a test, a draw of the histories, or a reason", a, b)
			}
			all = append(all, p)
		}
	}
	return all, nil
}

func parse(line string) (Pair, error) {
	cells := strings.Split(line, " | ")
	if len(cells) != 3 {
		return Pair{}, fmt.Errorf("pairs.txt: %q has %d cells, want 3: two features, and what tests both", line, len(cells))
	}
	p := Pair{A: cells[0], B: cells[1]}
	first, second := slices.Index(Features(), p.A), slices.Index(Features(), p.B)
	if first < 0 || second <= first {
		return p, fmt.Errorf("pairs.txt: %q does not begin with two features in the order of the table", line)
	}
	if reason, ok := strings.CutPrefix(cells[2], "- "); ok {
		p.Reason = reason
		return p, nil
	}
	for name := range strings.SplitSeq(cells[2], ", ") {
		if name == "histories" {
			p.Histories = true
		} else {
			p.Tests = append(p.Tests, name)
		}
	}
	return p, nil
}

// Table returns the table as docs/proof.md has it: a row for each feature, with a letter for
// each feature after it.
func Table(all []Pair) string {
	width := 0
	for _, f := range Features() {
		width = max(width, len(f))
	}
	cells := map[[2]string]string{}
	for _, p := range all {
		cells[[2]string{p.A, p.B}] = p.letter()
	}
	var b strings.Builder
	for i, a := range Features() {
		fmt.Fprintf(&b, "%c %-*s %s", 'a'+i, width, a, strings.Repeat(" ", i))
		b.WriteByte(byte('a' + i))
		for _, c := range Features()[i+1:] {
			b.WriteString(cells[[2]string{a, c}])
		}
		b.WriteByte('\n')
	}
	return b.String()
}
