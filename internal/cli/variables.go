package cli

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/spotworker/spotworker/internal/text/spelling"
)

// Unread is an environment variable that looks like a setting and is none.
type Unread struct {
	Name    string
	Nearest string // a flag's variable with a similar name, or empty
}

// Unread returns the variables in an environment, as from [os.Environ], that have
// the prefix of flags and that no flag reads, without the variables in others. It does
// not look at values: one may be a secret.
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
			all = append(all, Unread{Name: name, Nearest: spelling.Nearest(name, known)})
		}
	}
	return all
}
