package cli

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Unread is an environment variable that looks like a setting and is none.
type Unread struct {
	Name    string
	Nearest string // a flag's variable with a similar name, or empty
}

// nearby is the largest edit distance of a misspelt name.
const nearby = 3

// Unread returns the variables in an environment, as from [os.Environ], that have
// the prefix of flags and that no flag reads, without those in others. It does not
// look at values: one may be a secret.
func (p Program) Unread(flags any, environ, others []string) ([]Unread, error) {
	parser, err := p.parser(flags)
	if err != nil {
		return nil, err
	}
	var known []string
	err = kong.Visit(parser.Model, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok {
			known = append(known, flag.Envs...)
		}
		return next(nil)
	})
	return unread(known, environ, others), err
}

func unread(known, environ, others []string) []Unread {
	var all []Unread
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, envPrefix+"_") && !slices.Contains(known, name) && !slices.Contains(others, name) {
			all = append(all, Unread{Name: name, Nearest: nearest(name, known)})
		}
	}
	return all
}

// nearest returns the most similar name, empty if none is within nearby.
func nearest(name string, known []string) string {
	found, least := "", nearby+1
	for _, other := range known {
		if d := distance(name, other); d < least {
			found, least = other, d
		}
	}
	return found
}

// distance returns the Levenshtein distance of two texts, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // distances of a[:i] to each b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
