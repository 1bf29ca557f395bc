package mutation

import "fmt"

// Mutant is one small mistake in the code.
type Mutant struct {
	ID       int
	Package  string // as a pattern: "./internal/queue"
	File     string // the file's path from the module's root
	Line     int
	Operator string
	Old, New string // the changed text, on one line

	invalid bool // it does not compile
}

// Operators. Each makes one kind of mistake.
const (
	Condition = "condition"
	ErrorLost = "error"
	Limit     = "limit"
	Unit      = "unit"
	Order     = "order"
	Dropped   = "dropped"
	Header    = "header"
)

func (m *Mutant) String() string {
	return fmt.Sprintf("%s:%d: %s: %s → %s", m.File, m.Line, m.Operator, m.Old, m.New)
}

// edit is one place of a file that a mutant changes. A mutant of a constant has an edit for
// each use of the constant.
type edit struct {
	mutant     *Mutant
	kind       editKind
	start, end int // offsets in the file
	// text replaces the source. For a wrap it is the name of a helper, and args follow the
	// source as its further arguments.
	text, args string
}

type editKind int

const (
	condition editKind = iota // an expression of type bool
	statement                 // statements that declare nothing
	before                    // a statement that is run instead of the following one, and returns
	wrap                      // an expression becomes the argument of a helper
)

// sourceFile is a file of the package with its edits.
type sourceFile struct {
	path  string
	text  string
	edits []edit
}
