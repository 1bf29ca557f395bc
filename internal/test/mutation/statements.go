package mutation

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// statements makes the mutants of a list of statements: one is missing, or two neighbours
// change places.
func (g *generator) statements(list []ast.Stmt) {
	for _, s := range list {
		if g.droppable(s) {
			g.replace(g.mutant(s.Pos(), Dropped, g.text(s), "(nothing)"), statement, s, s, "")
		}
	}
	for first := 0; first < len(list); {
		end := first
		for end < len(list) && g.movable(list[end]) {
			end++
		}
		g.swaps(list[first:end])
		first = end + 1
	}
}

// swaps makes a mutant for each pair of neighbours in a run of statements.
func (g *generator) swaps(run []ast.Stmt) {
	if len(run) < 2 {
		return
	}
	texts := make([]string, len(run))
	for i, s := range run {
		texts[i] = g.text(s)
	}
	for i := range run[1:] {
		if g.named(run[i]) && g.named(run[i+1]) {
			continue
		}
		swapped := append([]string{}, texts...)
		swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
		m := g.mutant(run[i].Pos(), Order, texts[i]+"; "+texts[i+1], texts[i+1]+"; "+texts[i])
		g.replace(m, statement, run[0], run[len(run)-1], strings.Join(swapped, "; "))
	}
}

// named reports whether a statement is a call for something that a text names, such as a field of
// an object: calls for other names commute.
func (g *generator) named(s ast.Stmt) bool {
	expression, ok := s.(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := expression.X.(*ast.CallExpr)
	return ok && len(call.Args) > 1 && g.info.Types[call.Args[0]].Value != nil
}

// droppable reports whether a statement can be left out: a call, a defer, or a change of a
// field or an element.
func (g *generator) droppable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		return ok && !g.ignored(call)
	case *ast.DeferStmt:
		return !g.ignored(s.Call) && !strings.Contains(g.text(s), ".Close()") // of what was read
	case *ast.IncDecStmt:
		return isPart(s.X)
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE {
			return false
		}
		for _, left := range s.Lhs {
			if !isPart(left) {
				return false
			}
		}
		return true
	}
	return false
}

// movable reports whether a statement is a call whose order may matter: a call of its own, an
// assignment of a result, or an if that ends the function after a failed call.
func (g *generator) movable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		return ok && !g.ignored(call)
	case *ast.AssignStmt:
		call, ok := s.Rhs[0].(*ast.CallExpr)
		return ok && s.Tok == token.ASSIGN && len(s.Rhs) == 1 && !g.info.Types[call.Fun].IsType() && !g.info.Types[call.Fun].IsBuiltin()
	case *ast.IfStmt:
		assign, ok := s.Init.(*ast.AssignStmt)
		if !ok || s.Else != nil {
			return false
		}
		call, ok := assign.Rhs[0].(*ast.CallExpr)
		return ok && g.hasContext(call) // checks in any order are as good
	}
	return false
}

// hasContext reports whether a call takes a context, as requests do.
func (g *generator) hasContext(call *ast.CallExpr) bool {
	return len(call.Args) > 0 && types.TypeString(g.info.TypeOf(call.Args[0]), nil) == "context.Context"
}

func isPart(e ast.Expr) bool {
	switch e.(type) {
	case *ast.SelectorExpr, *ast.IndexExpr, *ast.StarExpr:
		return true
	}
	return false
}

// ignored reports whether a call is missed by nobody (a line of the log, the release of a
// context), or ends the function.
func (g *generator) ignored(call *ast.CallExpr) bool {
	named, ok := types.Unalias(g.info.TypeOf(call.Fun)).(*types.Named)
	if ok && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == "context" {
		return true // CancelFunc
	}
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		return fun.Name == "panic" && g.info.Types[fun].IsBuiltin()
	case *ast.SelectorExpr:
		object := g.info.Uses[fun.Sel]
		return object != nil && object.Pkg() != nil && object.Pkg().Path() == "log/slog"
	}
	return false
}

// returned makes the mutant of a return: its error is nil.
func (g *generator) returned(n *ast.ReturnStmt, results *types.Tuple) {
	if len(n.Results) == 0 || len(n.Results) != results.Len() || !types.Identical(results.At(results.Len()-1).Type().Underlying(), errorType) {
		return
	}
	last := n.Results[len(n.Results)-1]
	if g.info.Types[last].IsNil() {
		return
	}
	start := g.offset(n.Pos())
	text := g.source.text[start:g.offset(last.Pos())] + "nil"
	shown := text
	if call, ok := last.(*ast.CallExpr); ok && !g.constructor(call) {
		text = "_ = " + g.text(last) + "; " + text
	}
	g.replace(g.mutant(n.Pos(), ErrorLost, g.text(n), shown), before, n, n, text)
}

// constructor reports whether a call only makes an error.
func (g *generator) constructor(call *ast.CallExpr) bool {
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	object := g.info.Uses[fun.Sel]
	return object != nil && object.Pkg() != nil && (object.Pkg().Path() == "errors" || object.Pkg().Path() == "fmt")
}

// conditions of requests, by their names in options.
var headers = map[string]bool{"IfMatch": true, "IfNoneMatch": true, "AccessConditions": true, "ModifiedAccessConditions": true,
	"LeaseAccessConditions": true, "BlobAccessConditions": true}

// header makes the mutant of a request's condition: the request has none.
func (g *generator) header(n *ast.KeyValueExpr) {
	key, ok := n.Key.(*ast.Ident)
	if !ok || !headers[key.Name] || g.info.Types[n.Value].IsNil() {
		return
	}
	g.wrapped(Header, n.Value, "mutPick", "nil", "nil")
}
