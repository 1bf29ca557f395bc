package mutation

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// generator makes the mutants of a package.
type generator struct {
	pkg    *Package
	fset   *token.FileSet
	info   *types.Info
	units  map[types.Object]*measure
	source *sourceFile
	// operands are conditions that are part of a larger one, which has mutants for them.
	operands map[ast.Expr]bool
	// chained are the inner ones of a chain of conditions with one operator.
	chained map[ast.Expr]bool
}

// file makes the mutants of one file.
func (g *generator) file(file *ast.File) {
	g.operands, g.chained = make(map[ast.Expr]bool), make(map[ast.Expr]bool)
	ast.PreorderStack(file, nil, func(n ast.Node, stack []ast.Node) bool {
		switch n := n.(type) {
		case *ast.ArrayType, *ast.StructType, *ast.InterfaceType, *ast.MapType, *ast.FuncType, *ast.ChanType:
			return false
		case *ast.GenDecl:
			return n.Tok == token.VAR
		case *ast.CommClause:
			g.statements(n.Body)
		case *ast.CaseClause:
			g.statements(n.Body)
		case *ast.BlockStmt:
			g.statements(n.List)
		case *ast.IfStmt:
			g.choice(n)
		case *ast.ReturnStmt:
			g.returned(n, results(stack, g.info))
		case *ast.KeyValueExpr:
			g.header(n)
		case *ast.ForStmt, *ast.RangeStmt, *ast.SliceExpr:
			g.bounds(n)
		case ast.Expr:
			return !received(n, stack) && g.expression(n, stack)
		case ast.Stmt:
			return !received(n, stack)
		}
		return true
	})
}

// expression makes the mutants of an expression, and reports whether its parts have some.
func (g *generator) expression(n ast.Expr, stack []ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if g.shiftedUnit(n) {
			return false
		}
		g.binary(n, stack)
	case *ast.SelectorExpr:
		g.selected(n)
	case *ast.CallExpr:
		g.called(n)
	case *ast.Ident:
		g.use(n)
	}
	return true
}

// received reports whether a node is what a case of a select waits for, where nothing can be
// wrapped.
func received(n ast.Node, stack []ast.Node) bool {
	if len(stack) == 0 {
		return false
	}
	parent, of := stack[len(stack)-1].(*ast.CommClause)
	return of && parent.Comm == n
}

// results returns the results of the innermost function.
func results(stack []ast.Node, info *types.Info) *types.Tuple {
	for _, n := range slices.Backward(stack) {
		switch n := n.(type) {
		case *ast.FuncLit:
			return info.TypeOf(n).(*types.Signature).Results()
		case *ast.FuncDecl:
			return info.Defs[n.Name].Type().(*types.Signature).Results()
		}
	}
	return types.NewTuple()
}

// text returns the source of a node.
func (g *generator) text(n ast.Node) string {
	return g.source.text[g.offset(n.Pos()):g.offset(n.End())]
}

func (g *generator) offset(pos token.Pos) int { return g.fset.PositionFor(pos, false).Offset }

// mutant adds a mutant without edits.
func (g *generator) mutant(at token.Pos, operator, before, after string) *Mutant {
	path := strings.TrimPrefix(strings.TrimPrefix(g.source.path, g.pkg.module), "/")
	m := &Mutant{Package: g.pkg.Pattern, File: path, Line: g.fset.Position(at).Line, Operator: operator}
	m.Old, m.New = difference(before, after)
	g.pkg.Mutants = append(g.pkg.Mutants, m)
	return m
}

// condition adds a mutant that replaces a condition.
func (g *generator) condition(operator string, n ast.Expr, text string) {
	g.replace(g.mutant(n.Pos(), operator, g.text(n), text), condition, n, n, text)
}

// replace makes a mutant replace all from first to last.
func (g *generator) replace(m *Mutant, kind editKind, first, last ast.Node, text string) {
	start, end := g.offset(first.Pos()), g.offset(last.End())
	g.source.edits = append(g.source.edits, edit{mutant: m, kind: kind, start: start, end: end, text: text})
}

// wrapped adds a mutant that hands an expression to a helper, and shows the result as shown.
func (g *generator) wrapped(operator string, n ast.Expr, helper, args, shown string) {
	g.wrap(g.mutant(n.Pos(), operator, g.text(n), shown), n, helper, args)
}

func (g *generator) wrap(m *Mutant, n ast.Expr, helper, args string) {
	start, end := g.offset(n.Pos()), g.offset(n.End())
	g.source.edits = append(g.source.edits, edit{mutant: m, kind: wrap, start: start, end: end, text: helper, args: args})
}

// difference returns two texts on one line each. If they are long, it leaves out most of their
// common start and end.
func difference(before, after string) (was, is string) {
	was, is = strings.Join(strings.Fields(before), " "), strings.Join(strings.Fields(after), " ")
	if len(was) < 80 && len(is) < 80 {
		return was, is
	}
	start, end, most := 0, 0, min(len(was), len(is))
	for start < most && was[start] == is[start] {
		start++
	}
	for end < most-start && was[len(was)-1-end] == is[len(is)-1-end] {
		end++
	}
	const context = 30
	if start > context {
		was, is = "…"+was[start-context:], "…"+is[start-context:]
	}
	if end > context {
		was, is = was[:len(was)-end+context]+"…", is[:len(is)-end+context]+"…"
	}
	return strings.ToValidUTF8(was, ""), strings.ToValidUTF8(is, "")
}
