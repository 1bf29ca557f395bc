package mutation

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
)

// scale is what a wrong unit does to a number.
type scale struct {
	helper, by string // the helper of the mutant, and its argument
	shown      string
}

// wrongUnits has the mistaken unit for each unit of package time.
var wrongUnits = map[string]scale{
	"Microsecond": {"mutTimes", "1000", "time.Millisecond"}, "Millisecond": {"mutTimes", "1000", "time.Second"},
	"Second": {"mutPart", "1000", "time.Millisecond"}, "Minute": {"mutPart", "60", "time.Second"}, "Hour": {"mutPart", "60", "time.Minute"},
}

// wrongMethods has the mistaken method for each method of package time that returns a number.
var wrongMethods = map[string]scale{
	"Seconds": {"mutTimes", "1000", "Milliseconds"}, "Milliseconds": {"mutPart", "1000", "Seconds"}, "Minutes": {"mutTimes", "60", "Seconds"},
	"Unix": {"mutTimes", "1000", "UnixMilli"}, "UnixMilli": {"mutPart", "1000", "Unix"}, "UnixNano": {"mutPart", "1000", "UnixMicro"},
}

// measure is a constant of the package that has a unit. All uses of it are one mutant.
type measure struct {
	scale  scale
	mutant *Mutant
}

// constants finds the constants with a unit. They cannot be switched themselves.
func (g *generator) constants(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		declaration, ok := n.(*ast.GenDecl)
		if !ok || declaration.Tok != token.CONST {
			return true
		}
		for _, spec := range declaration.Specs {
			values, ok := spec.(*ast.ValueSpec)
			if !ok {
				continue
			}
			for i, value := range values.Values {
				if wrong, found := g.unitIn(value); found {
					g.units[g.info.Defs[values.Names[i]]] = &measure{scale: wrong}
				}
			}
		}
		return false
	})
}

// unitIn returns the wrong unit for the first unit in an expression.
func (g *generator) unitIn(e ast.Expr) (wrong scale, found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if found {
			return false
		}
		switch n := n.(type) {
		case *ast.SelectorExpr:
			wrong, found = g.timeUnit(n)
		case *ast.BinaryExpr:
			wrong, found = g.bytes(n)
		}
		return !found
	})
	return wrong, found
}

func (g *generator) timeUnit(n *ast.SelectorExpr) (scale, bool) {
	object, ok := g.info.Uses[n.Sel].(*types.Const)
	if !ok || object.Pkg() == nil || object.Pkg().Path() != "time" {
		return scale{}, false
	}
	wrong, found := wrongUnits[n.Sel.Name]
	return wrong, found
}

// bytes returns the wrong unit for 1<<10 (KiB), 1<<20 (MiB) and 1<<30 (GiB).
func (g *generator) bytes(n *ast.BinaryExpr) (scale, bool) {
	if n.Op != token.SHL {
		return scale{}, false
	}
	_, literal := g.number(n.X)
	bits, counted := g.number(n.Y)
	switch {
	case !literal || !counted:
	case bits == 10:
		return scale{"mutTimes", "1024", g.literalText(n.X) + " << 20"}, true
	case bits == 20, bits == 30:
		return scale{"mutPart", "1024", fmt.Sprintf("%s << %d", g.literalText(n.X), bits-10)}, true
	}
	return scale{}, false
}

// literalText returns the text of a literal, in any file.
func (g *generator) literalText(e ast.Expr) string {
	if literal, ok := e.(*ast.BasicLit); ok {
		return literal.Value
	}
	return "…"
}

// selected makes the mutant of a unit of package time.
func (g *generator) selected(n *ast.SelectorExpr) {
	if wrong, found := g.timeUnit(n); found {
		g.wrapped(Unit, n, wrong.helper, wrong.by, wrong.shown)
	}
}

// shiftedUnit makes the mutant of a number of bytes, and reports whether it is one.
func (g *generator) shiftedUnit(n *ast.BinaryExpr) bool {
	wrong, found := g.bytes(n)
	if !found {
		return false
	}
	if basic, ok := g.info.TypeOf(n).Underlying().(*types.Basic); ok && basic.Info()&types.IsInteger != 0 {
		g.wrapped(Unit, n, g.typed(wrong.helper, n), wrong.by, wrong.shown)
	}
	return true
}

// typed returns the helper for the type of a number, which may be a constant without type.
func (g *generator) typed(helper string, e ast.Expr) string {
	t := g.info.TypeOf(e)
	if basic, ok := t.(*types.Basic); ok && basic.Info()&types.IsUntyped != 0 {
		return helper
	}
	return helper + "[" + types.TypeString(t, func(p *types.Package) string {
		if p.Path() == g.pkg.path {
			return ""
		}
		return p.Name()
	}) + "]"
}

// called makes the mutants of a call: of a method with a unit, and of the numbers in min and
// max.
func (g *generator) called(n *ast.CallExpr) {
	switch fun := n.Fun.(type) {
	case *ast.SelectorExpr:
		object, ok := g.info.Uses[fun.Sel].(*types.Func)
		if !ok || object.Pkg() == nil || object.Pkg().Path() != "time" || object.Signature().Recv() == nil {
			return
		}
		if wrong, found := wrongMethods[fun.Sel.Name]; found {
			g.wrapped(Unit, n, wrong.helper, wrong.by, g.text(fun.X)+"."+wrong.shown+"()")
		}
	case *ast.Ident:
		if (fun.Name != "min" && fun.Name != "max") || !g.info.Types[fun].IsBuiltin() || g.info.Types[n].Value != nil {
			return
		}
		for _, arg := range n.Args {
			if number, ok := g.number(arg); ok {
				g.wrapped(Limit, arg, g.typed("mutShift", arg), "1", fmt.Sprint(number+1))
			}
		}
	}
}

// use makes the mutant of a constant with a unit, or adds a use to it.
func (g *generator) use(n *ast.Ident) {
	c := g.units[g.info.Uses[n]]
	if c == nil {
		return
	}
	if c.mutant == nil {
		c.mutant = g.mutant(n.Pos(), Unit, "const "+n.Name, "const "+n.Name+" in "+c.scale.shown)
	}
	g.wrap(c.mutant, n, g.typed(c.scale.helper, n), c.scale.by)
}
