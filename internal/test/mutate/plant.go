package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mutant is a small fault in the code.
type mutant struct {
	id      int
	at      token.Position
	key     string // file, function and what is changed: the same as long as the function's code is
	verdict verdict
}

// planted names the environment variable with the number of the mutant that is on. 0
// notes those that are reached in the file that the variable with the suffix _REACHED
// names.
const planted = "OJS_MUTANT"

// plant writes the target's files with their mutants to dir. It returns the mutants and
// the overlay for go build.
func plant(ctx context.Context, t target, dir string) ([]*mutant, string, error) {
	p := &planter{target: t, fset: token.NewFileSet(), keys: make(map[string]int)}
	pkg, err := load(ctx, t.dir)
	if err != nil {
		return nil, "", err
	}
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		path := filepath.Join(pkg.Dir, name)
		f, err := parser.ParseFile(p.fset, path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return nil, "", err
		}
		files = append(files, f)
	}
	p.info = &types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue),
		Uses:  make(map[*ast.Ident]types.Object),
		Defs:  make(map[*ast.Ident]types.Object),
	}
	conf := types.Config{Importer: importer.ForCompiler(p.fset, "gc", pkg.open)}
	if p.pkg, err = conf.Check(pkg.ImportPath, p.fset, files, p.info); err != nil {
		return nil, "", err
	}
	replace := make(map[string]string)
	put := func(name string, src []byte) error {
		to := filepath.Join(dir, name)
		replace[filepath.Join(pkg.Dir, name)] = to
		return os.WriteFile(to, src, 0o600)
	}
	for i, f := range files {
		name := pkg.GoFiles[i]
		if len(t.files) > 0 && !slices.Contains(t.files, name) {
			continue
		}
		src, err := os.ReadFile(filepath.Join(pkg.Dir, name))
		if err != nil {
			return nil, "", err
		}
		if err := put(name, p.file(f, name, src)); err != nil {
			return nil, "", err
		}
	}
	if err := put("mutants.go", fmt.Appendf(nil, helpers, pkg.Name, planted)); err != nil {
		return nil, "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, "", err
	}
	return p.mutants, overlay, os.WriteFile(overlay, b, 0o600)
}

// listing is what go list says of a package.
type listing struct {
	Dir, ImportPath, Name, Export string
	GoFiles                       []string

	exports map[string]string // by import path
}

// load lists a package and compiles what it imports.
func load(ctx context.Context, dir string) (*listing, error) {
	members := "-json=Dir,ImportPath,Name,Export,GoFiles"
	cmd := exec.CommandContext(ctx, "go", "list", "-export", "-deps", members, "./"+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	l, exports := &listing{}, make(map[string]string)
	// the package itself comes last
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); exports[l.ImportPath] = l.Export {
		l = &listing{}
		if err := d.Decode(l); err != nil {
			return nil, err
		}
	}
	l.exports = exports
	return l, nil
}

func (l *listing) open(path string) (io.ReadCloser, error) { return os.Open(l.exports[path]) }

// planter makes the mutants of a package.
type planter struct {
	target
	fset    *token.FileSet
	pkg     *types.Package
	info    *types.Info
	mutants []*mutant
	keys    map[string]int // how often each occurs

	// Of the file and function at hand:
	name, fn string
	src      []byte
	imports  map[string]string // names, by import path
	edits    []edit
}

// edit replaces src[from:to] by a text.
type edit struct {
	from, to int
	text     string

	// closes: the text ends something that another edit has opened. It comes before all
	// edits that open here, the inner ones first.
	closes bool
}

func (p *planter) offset(pos token.Pos) int { return p.fset.Position(pos).Offset }
func (p *planter) text(from, to token.Pos) string {
	return strings.Join(strings.Fields(string(p.src[p.offset(from):p.offset(to)])), " ")
}
func (p *planter) of(n ast.Node) string { return p.text(n.Pos(), n.End()) }

func (p *planter) open(at token.Pos, format string, args ...any) {
	p.edits = append(p.edits, edit{p.offset(at), p.offset(at), fmt.Sprintf(format, args...), false})
}

func (p *planter) close(from, to token.Pos, text string) {
	p.edits = append(p.edits, edit{p.offset(from), p.offset(to), text, true})
}

// wrap puts two texts around a node.
func (p *planter) wrap(n ast.Node, before, after string) {
	p.open(n.Pos(), "%s", before)
	p.close(n.End(), n.End(), after)
}

// add makes a mutant.
func (p *planter) add(at token.Pos, format string, args ...any) int {
	key := fmt.Sprintf("%s: %s: %s", p.name, p.fn, fmt.Sprintf(format, args...))
	if p.keys[key]++; p.keys[key] > 1 {
		key = fmt.Sprintf("%s (%d)", key, p.keys[key])
	}
	p.mutants = append(p.mutants, &mutant{id: len(p.mutants) + 1, at: p.fset.Position(at), key: key})
	return len(p.mutants)
}

// file returns the source of a file with its mutants.
func (p *planter) file(f *ast.File, name string, src []byte) []byte {
	p.name, p.src, p.edits, p.imports = name, src, nil, make(map[string]string)
	for _, imp := range f.Imports {
		path, _ := strconv.Unquote(imp.Path.Value)
		p.imports[path] = path[strings.LastIndex(path, "/")+1:]
		if imp.Name != nil {
			p.imports[path] = imp.Name.Name
		}
	}
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
			p.fn = d.Name.Name
			if d.Recv != nil {
				p.fn = strings.Trim(p.of(d.Recv.List[0].Type), "*") + "." + p.fn
			}
			p.function(d)
		}
	}
	order := make([]int, len(p.edits))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		e, f := p.edits[a], p.edits[b]
		switch {
		case e.from != f.from:
			return e.from - f.from
		case e.closes != f.closes:
			return cmp.Compare(b2i(f.closes), b2i(e.closes))
		case e.closes:
			return b - a
		}
		return a - b
	})
	var out []byte
	at := 0
	for _, i := range order {
		e := p.edits[i]
		out = append(append(out, src[at:e.from]...), e.text...)
		at = e.to
	}
	return append(out, src[at:]...)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (p *planter) function(d *ast.FuncDecl) {
	p.locks(d)
	p.returns(d.Body, p.info.Defs[d.Name].Type().(*types.Signature))
	ast.Inspect(d.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			p.statements(n.List)
		case *ast.CommClause:
			p.statements(n.Body)
		case *ast.CaseClause:
			p.statements(n.Body)
		case *ast.IfStmt:
			p.condition(n.Cond, true, true)
		case *ast.ForStmt:
			if n.Cond != nil {
				p.condition(n.Cond, false, true) // a loop without end says nothing
			}
		case *ast.RangeStmt:
			id := p.add(n.Pos(), "range %s -> no round", p.of(n.X))
			p.open(n.Body.Lbrace+1, " if mutantOn(%d) { break };", id)
		case *ast.SwitchStmt:
			p.cases(n)
		case *ast.AssignStmt:
			p.parts(n)
		case *ast.CompositeLit:
			p.fields(n)
		case *ast.BinaryExpr:
			p.binary(n)
		case *ast.CallExpr:
			p.call(n)
		case *ast.BasicLit:
			t, ok := p.typed(p.info.TypeOf(n))
			if ok && n.Kind == token.INT && is(p.info.TypeOf(n), types.IsNumeric) {
				id := p.add(n.Pos(), "%s -> %s+1 in %s", n.Value, n.Value, p.line(n))
				p.wrap(n, fmt.Sprintf("mutantMore[%s](%d, ", t, id), ")")
			}
		case *ast.GenDecl:
			return false // of a constant or a type
		case *ast.ArrayType:
			return false
		}
		return true
	})
}

// line is the source line of a node.
func (p *planter) line(n ast.Node) string {
	at := p.offset(n.Pos())
	from := bytes.LastIndexByte(p.src[:at], '\n') + 1
	to := len(p.src)
	if i := bytes.IndexByte(p.src[at:], '\n'); i >= 0 {
		to = at + i
	}
	code, _, _ := strings.Cut(string(p.src[from:to]), " // ")
	return strings.TrimSpace(code)
}

// typed returns the source of a type. It reports false if the file cannot name it.
func (p *planter) typed(t types.Type) (string, bool) {
	ok := t != nil
	if ok && is(t, types.IsUntyped) {
		return "", false
	}
	s := types.TypeString(t, func(pkg *types.Package) string {
		if pkg == p.pkg {
			return ""
		}
		name, imported := p.imports[pkg.Path()]
		ok = ok && imported
		return name
	})
	return s, ok
}

// is reports whether values of a type are numbers, strings or what else info says.
func is(t types.Type, info types.BasicInfo) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&info != 0
}

func (p *planter) constant(e ast.Expr) bool { return p.info.Types[e].Value != nil }

// condition makes mutants of a condition that is always true, always false, or both.
func (p *planter) condition(e ast.Expr, isTrue, isFalse bool) {
	if p.constant(e) {
		return
	}
	const none = -2
	t, f := none, none
	if isTrue {
		t = p.add(e.Pos(), "%s -> true", p.of(e))
	}
	if isFalse {
		f = p.add(e.Pos(), "%s -> false", p.of(e))
	}
	p.wrap(e, fmt.Sprintf("mutantCond(%d, %d, ", t, f), ")")
}

// binary makes mutants of operators: of the operands of && and ||, of the bounds of
// comparisons, and of + and -.
func (p *planter) binary(n *ast.BinaryExpr) {
	helper := map[token.Token]string{
		token.LSS: "Lt", token.LEQ: "Le", token.GTR: "Gt", token.GEQ: "Ge",
		token.ADD: "Add", token.SUB: "Sub",
	}[n.Op]
	other := map[token.Token]string{
		token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.ADD: "-", token.SUB: "+",
	}[n.Op]
	switch {
	case n.Op == token.LAND || n.Op == token.LOR:
		for _, e := range []ast.Expr{n.X, n.Y} {
			if inner, ok := ast.Unparen(e).(*ast.BinaryExpr); !ok || inner.Op != n.Op {
				p.condition(e, n.Op == token.LAND, n.Op == token.LOR)
			}
		}
	case helper != "" && !p.constant(n):
		t, ok := p.typed(p.info.TypeOf(n.X))
		if !ok {
			t, ok = p.typed(p.info.TypeOf(n.Y))
		}
		if !ok || !is(p.info.TypeOf(n.X), types.IsNumeric) {
			return
		}
		id := p.add(n.OpPos, "%s -> %s %s %s", p.of(n), p.of(n.X), other, p.of(n.Y))
		p.open(n.Pos(), "mutant%s[%s](%d, ", helper, t, id)
		p.close(n.X.End(), n.Y.Pos(), ", ")
		p.close(n.End(), n.End(), ")")
	}
}

// call makes mutants of min and max, and of Before and After of times.
func (p *planter) call(n *ast.CallExpr) {
	switch f := n.Fun.(type) {
	case *ast.Ident:
		_, builtin := p.info.Uses[f].(*types.Builtin)
		if !builtin || f.Name != "min" && f.Name != "max" || p.constant(n) {
			return
		}
		other := map[string]string{"min": "max", "max": "min"}[f.Name]
		if t, ok := p.typed(p.info.TypeOf(n)); ok && len(n.Args) == 2 {
			id := p.add(n.Pos(), "%s -> %s", p.of(n), other)
			p.open(n.Pos(), "mutant%s[%s](%d, ", strings.ToUpper(f.Name[:1])+f.Name[1:], t, id)
			p.edits[len(p.edits)-1].to = p.offset(n.Lparen + 1)
		}
	case *ast.SelectorExpr:
		t := p.info.TypeOf(f.X)
		if t == nil || t.String() != "time.Time" || f.Sel.Name != "Before" && f.Sel.Name != "After" {
			return
		}
		id := p.add(f.Sel.Pos(), "%s -> or equal", p.of(n))
		p.open(n.Pos(), "mutant%s(%d, ", f.Sel.Name, id)
		p.close(f.X.End(), n.Lparen+1, ", ")
	}
}

// cases makes mutants of a switch: without a tag, of its conditions; with one, of strings
// that it compares with.
func (p *planter) cases(n *ast.SwitchStmt) {
	for _, c := range n.Body.List {
		for _, e := range c.(*ast.CaseClause).List {
			if n.Tag == nil {
				p.condition(e, true, true)
			} else if t, ok := p.typed(p.info.TypeOf(n.Tag)); ok && is(p.info.TypeOf(n.Tag), types.IsString) {
				id := p.add(e.Pos(), "case %s -> never", p.of(e))
				p.wrap(e, fmt.Sprintf("mutantOther[%s](%d, ", t, id), ")")
			}
		}
	}
}

// zero makes a mutant of an expression that becomes the zero value of its type.
func (p *planter) zero(e ast.Expr, t types.Type, what string) {
	name, ok := p.typed(t)
	switch lit := e.(type) {
	case *ast.Ident:
		ok = ok && lit.Name != "nil"
	case *ast.BasicLit:
		ok = ok && lit.Value != "0" && lit.Value != `""`
	case *ast.CompositeLit:
		ok = ok && len(lit.Elts) > 0
	}
	if ok {
		p.wrap(e, fmt.Sprintf("mutantZero[%s](%d, ", name, p.add(e.Pos(), "%s -> zero", what)), ")")
	}
}

// returns makes mutants of results: a condition, or the zero value. It leaves out results
// beside an error, since callers do not use them.
func (p *planter) returns(body ast.Node, sig *types.Signature) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			p.returns(n.Body, p.info.TypeOf(n).(*types.Signature))
			return false
		case *ast.ReturnStmt:
			if len(n.Results) != sig.Results().Len() {
				return true
			}
			from := 0
			if last := len(n.Results) - 1; last > 0 &&
				sig.Results().At(last).Type().String() == "error" && p.of(n.Results[last]) != "nil" {
				from = last
			}
			for i := from; i < len(n.Results); i++ {
				e, t := n.Results[i], sig.Results().At(i).Type()
				if is(t, types.IsBoolean) {
					p.condition(e, true, true)
				} else {
					p.zero(e, t, "return "+p.of(e))
				}
			}
		}
		return true
	})
}

// fields makes mutants of the fields that a struct is made with.
func (p *planter) fields(n *ast.CompositeLit) {
	s, ok := p.info.TypeOf(n).Underlying().(*types.Struct)
	if !ok {
		return
	}
	name := types.TypeString(p.info.TypeOf(n), types.RelativeTo(p.pkg))
	if n.Type != nil { // nil: that of the elements around it
		name = p.of(n.Type)
	}
	for i, e := range n.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			p.zero(kv.Value, p.info.TypeOf(kv.Value), p.of(kv)+" in "+name)
		} else {
			p.zero(e, s.Field(i).Type(), s.Field(i).Name()+" in "+p.of(n))
		}
	}
}

// parts makes mutants of an assignment to several variables: each keeps its value.
func (p *planter) parts(n *ast.AssignStmt) {
	if n.Tok != token.ASSIGN && n.Tok != token.DEFINE || len(n.Lhs) != len(n.Rhs) {
		return
	}
	for i, e := range n.Rhs {
		if is(p.info.TypeOf(e), types.IsBoolean) && !p.constant(e) {
			p.condition(e, true, true)
		} else if t, ok := p.typed(p.info.TypeOf(n.Lhs[i])); ok && len(n.Lhs) > 1 &&
			n.Tok == token.ASSIGN && p.of(n.Lhs[i]) != "_" {
			id := p.add(n.Lhs[i].Pos(), "%s = %s -> dropped", p.of(n.Lhs[i]), p.of(e))
			p.wrap(e, fmt.Sprintf("mutantPart[%s](%d, %s, ", t, id, p.of(n.Lhs[i])), ")")
		}
	}
}

// statements makes mutants that leave a statement out, or do two in the other order:
//
//	if mutantOn(swap) { second }; if !mutantOn(drop) { first }; if !mutantOn(swap) { second }
func (p *planter) statements(list []ast.Stmt) {
	swapped := 0 // the mutant that has done this statement before the last
	for i, s := range list {
		swap := 0
		if i+1 < len(list) && p.simple(s) && p.simple(list[i+1]) && p.depend(s, list[i+1]) {
			next := p.of(list[i+1])
			swap = p.add(s.Pos(), "%s; %s -> swapped", p.of(s), next)
			from, to := p.offset(list[i+1].Pos()), p.offset(list[i+1].End())
			p.open(s.Pos(), "if mutantOn(%d) { %s }; ", swap, p.src[from:to])
		}
		if p.droppable(s) {
			guard := fmt.Sprintf("if !mutantOn(%d)", p.add(s.Pos(), "%s -> dropped", p.of(s)))
			if swapped > 0 {
				guard += fmt.Sprintf(" && !mutantOn(%d)", swapped)
			}
			p.wrap(s, guard+" { ", " }")
		}
		swapped = swap
	}
}

// simple reports whether a statement does one thing.
func (p *planter) simple(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt:
		return p.droppable(s)
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	}
	return false
}

func (p *planter) droppable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	case *ast.ReturnStmt:
		return len(s.Results) == 0
	case *ast.BranchStmt:
		return s.Tok == token.BREAK || s.Tok == token.CONTINUE
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		return !ok || p.of(call.Fun) != "panic" && !p.isLock(call)
	case *ast.DeferStmt:
		return !p.isLock(s.Call)
	case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt:
		return true
	}
	return false
}

// depend reports whether the order of two statements is likely to matter: one of them
// calls something and both name a variable, or one assigns what the other names.
func (p *planter) depend(a, b ast.Stmt) bool {
	calls, vars := false, make(map[types.Object]int)
	for i, s := range []ast.Stmt{a, b} {
		ast.Inspect(s, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				calls = true
			case *ast.Ident:
				if v, ok := p.info.Uses[n].(*types.Var); ok && !v.IsField() {
					vars[v] |= 1 << i
				}
			}
			return true
		})
	}
	for _, in := range vars {
		if calls && in == 3 {
			return true
		}
	}
	assigns := func(s, t ast.Stmt) bool {
		as, ok := s.(*ast.AssignStmt)
		return ok && slices.ContainsFunc(as.Lhs, func(e ast.Expr) bool {
			return strings.Contains(p.of(t), p.of(e))
		})
	}
	return assigns(a, b) || assigns(b, a)
}

// isLock reports whether a call locks or unlocks.
func (p *planter) isLock(call *ast.CallExpr) bool {
	mutex, _ := p.locked(call)
	return mutex != ""
}

// locked returns the mutex that a call locks or unlocks.
func (p *planter) locked(call *ast.CallExpr) (mutex string, enters bool) {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	x := p.of(sel.X)
	if sel.Sel.Name == "Lock" || sel.Sel.Name == "Unlock" {
		return x, sel.Sel.Name == "Lock"
	}
	for _, g := range p.guards {
		if sel.Sel.Name == g.enter || sel.Sel.Name == g.leave {
			return x + "." + g.mutex, sel.Sel.Name == g.enter
		}
	}
	return "", false
}

// locks makes mutants without mutual exclusion: each mutex that the function locks and
// unlocks is free in between.
func (p *planter) locks(d *ast.FuncDecl) {
	type section struct{ enters, leaves []ast.Stmt }
	sections := make(map[string]*section)
	var order []string
	note := func(call ast.Expr, s ast.Stmt) {
		c, ok := call.(*ast.CallExpr)
		if !ok {
			return
		}
		mutex, enters := p.locked(c)
		if mutex == "" {
			return
		}
		if sections[mutex] == nil {
			sections[mutex] = &section{}
			order = append(order, mutex)
		}
		if x := sections[mutex]; enters {
			x.enters = append(x.enters, s)
		} else {
			x.leaves = append(x.leaves, s)
		}
	}
	tried := make(map[string]bool) // by TryLock, which may leave it unlocked
	ast.Inspect(d.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ExprStmt:
			note(n.X, n)
		case *ast.DeferStmt:
			note(n.Call, n)
		case *ast.IfStmt:
			if as, ok := n.Init.(*ast.AssignStmt); ok && len(as.Rhs) == 1 {
				note(as.Rhs[0], n)
			}
		case *ast.SelectorExpr:
			tried[p.of(n.X)] = tried[p.of(n.X)] || n.Sel.Name == "TryLock"
		}
		return true
	})
	if len(order) > 0 { // or the test would wait for the mutex for ever
		p.open(d.Body.Lbrace+1, " defer mutantPanics();")
	}
	for _, mutex := range order {
		x := sections[mutex]
		if len(x.enters) == 0 || len(x.leaves) == 0 || tried[mutex] {
			continue
		}
		id := p.add(d.Pos(), "%s -> not locked", mutex)
		for _, s := range x.enters {
			p.close(s.End(), s.End(), fmt.Sprintf("; if mutantOn(%d) { %s.Unlock() }", id, mutex))
		}
		for _, s := range x.leaves {
			lock := fmt.Sprintf("if mutantOn(%d) { %s.Lock() }; ", id, mutex)
			if _, deferred := s.(*ast.DeferStmt); deferred {
				call := s.(*ast.DeferStmt).Call
				p.open(call.Pos(), "func() { %s", lock)
				p.close(call.End(), call.End(), " }()")
			} else {
				p.open(s.Pos(), "%s", lock)
			}
		}
	}
}
