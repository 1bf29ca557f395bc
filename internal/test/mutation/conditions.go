package mutation

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strconv"
	"strings"
)

// boundary has the comparisons that differ in the case of equality.
var boundary = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}

// binary makes the mutants of a comparison, or of a chain of && or ||.
func (g *generator) binary(n *ast.BinaryExpr, stack []ast.Node) {
	if g.info.Types[n].Value != nil || !isBool(g.info.TypeOf(n)) {
		return
	}
	switch n.Op {
	case token.LAND, token.LOR:
		g.logical(n)
	case token.EQL, token.NEQ:
		g.equality(n, stack)
	default:
		g.inequality(n)
	}
}

// inequality makes the mutants of a comparison. The boundary moves one way by the other
// operator, and the other way by the number.
func (g *generator) inequality(n *ast.BinaryExpr) {
	x, y := g.text(n.X), g.text(n.Y)
	g.condition(Condition, n, x+" "+boundary[n.Op].String()+" "+y)
	if types.TypeString(g.info.TypeOf(n.X), nil) == "time.Duration" {
		return // off by a nanosecond
	}
	by := int64(1)
	if n.Op == token.LSS || n.Op == token.GEQ {
		by = -1
	}
	if number, ok := g.number(n.Y); ok {
		g.condition(Limit, n, fmt.Sprintf("%s %s %d", x, n.Op, number+by))
	} else if number, ok := g.number(n.X); ok {
		g.condition(Limit, n, fmt.Sprintf("%d %s %s", number-by, n.Op, y))
	}
}

// logical makes the mutants of a chain of && or ||: one operand is missing, or the operator is
// the other one.
func (g *generator) logical(n *ast.BinaryExpr) {
	if g.operands[n] && g.chained[n] {
		return
	}
	var parts []ast.Expr
	var collect func(e ast.Expr)
	collect = func(e ast.Expr) {
		if b, ok := e.(*ast.BinaryExpr); ok && b.Op == n.Op {
			g.chained[b] = true
			g.operands[b] = true
			collect(b.X)
			collect(b.Y)
			return
		}
		g.operands[ast.Unparen(e)] = true
		parts = append(parts, e)
	}
	collect(n)
	texts := make([]string, len(parts))
	for i, part := range parts {
		texts[i] = g.text(part)
	}
	operator := " " + n.Op.String() + " "
	for i := range parts {
		others := append(append([]string{}, texts[:i]...), texts[i+1:]...)
		g.condition(Condition, n, strings.Join(others, operator))
	}
	other := " || "
	if n.Op == token.LOR {
		other = " && "
		for i, part := range parts {
			if b, ok := part.(*ast.BinaryExpr); ok && b.Op == token.LAND {
				texts[i] = "(" + texts[i] + ")"
			}
		}
	}
	g.condition(Condition, n, strings.Join(texts, other))
}

// equality makes the mutants of == and !=. Parts of a larger condition have none: that one has
// mutants without each part.
func (g *generator) equality(n *ast.BinaryExpr, stack []ast.Node) {
	if number, ok := g.number(n.Y); ok {
		g.condition(Limit, n, fmt.Sprintf("%s %s %d", g.text(n.X), n.Op, number+1))
	}
	if g.operands[n] || inFor(n, stack) {
		return
	}
	isError := types.Implements(g.info.TypeOf(n.X), errorType) && g.info.Types[n.Y].IsNil()
	switch {
	case isError && n.Op == token.NEQ:
		g.condition(ErrorLost, n, "false")
	case isError:
		g.condition(ErrorLost, n, "true")
	case n.Op == token.EQL:
		g.condition(Condition, n, g.text(n.X)+" != "+g.text(n.Y))
	default:
		g.condition(Condition, n, g.text(n.X)+" == "+g.text(n.Y))
	}
}

// choice makes the mutant of an if: its condition is negated. Comparisons and chains have their
// own mutants.
func (g *generator) choice(n *ast.IfStmt) {
	switch e := n.Cond.(type) {
	case *ast.BinaryExpr, *ast.ParenExpr:
	case *ast.UnaryExpr:
		if _, compound := ast.Unparen(e.X).(*ast.BinaryExpr); !compound {
			g.condition(Condition, e, g.text(e.X))
		}
	default:
		g.condition(Condition, e, "!"+g.text(e))
	}
}

// inFor reports whether an expression is the condition of a loop, which would not end.
func inFor(n ast.Expr, stack []ast.Node) bool {
	loop, ok := stack[len(stack)-1].(*ast.ForStmt)
	return ok && loop.Cond == n
}

// number returns the value of a whole number in the source.
func (g *generator) number(e ast.Expr) (int64, bool) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.INT {
		return 0, false
	}
	value := constant.ToInt(g.info.Types[e].Value) // a literal may stand for a float
	if value.Kind() != constant.Int {
		return 0, false
	}
	return constant.Int64Val(value)
}

// bounds makes the mutants of slices and loops: off by one.
func (g *generator) bounds(n ast.Node) {
	switch n := n.(type) {
	case *ast.SliceExpr:
		if n.Low != nil {
			g.shift(n.Low, 1)
		}
		if n.High != nil {
			g.shift(n.High, -1)
		}
	case *ast.RangeStmt:
		if basic, ok := g.info.TypeOf(n.X).Underlying().(*types.Basic); ok && basic.Info()&types.IsInteger != 0 {
			g.shift(n.X, -1)
		}
	case *ast.ForStmt:
		if assign, ok := n.Init.(*ast.AssignStmt); ok && len(assign.Rhs) == 1 {
			if _, ok := g.number(assign.Rhs[0]); ok {
				g.shift(assign.Rhs[0], 1)
			}
		}
	}
}

func (g *generator) shift(e ast.Expr, by int) {
	if _, literal := g.number(e); literal && by < 0 && g.text(e) == "0" {
		return
	}
	g.wrapped(Limit, e, "mutShift", strconv.Itoa(by), fmt.Sprintf("%s%+d", g.text(e), by))
}

var errorType = types.Universe.Lookup("error").Type().Underlying().(*types.Interface)

func isBool(t types.Type) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsBoolean != 0
}
