package ojs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// wallClock has the functions that read or wait for the wall clock.
var wallClock = map[string][]string{
	"time":    {"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Sleep", "Tick"},
	"context": {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause"},
}

// The engine's clock is the only source of time outside of tests.
func TestNoWallClock(t *testing.T) {
	files := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		if path == filepath.Join("internal", "test", "pace", "pace.go") { // the pauses of tests
			return nil
		}
		for _, use := range wallClockUses(t, path, nil) {
			t.Errorf("%s", use)
		}
		return nil
	})
	if err != nil || files < 20 {
		t.Errorf("read %d files: %v", files, err)
	}
}

func wallClockUses(t *testing.T, path string, src any) (uses []string) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	banned := make(map[string][]string) // by the name the file knows the package by
	for _, imp := range file.Imports {
		pkg, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		name := pkg
		if imp.Name != nil {
			name = imp.Name.Name
		}
		if names, ok := wallClock[pkg]; ok {
			banned[name] = names
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Obj == nil && slices.Contains(banned[pkg.Name],
				sel.Sel.Name) {
				uses = append(uses, fset.Position(sel.Pos()).String()+": "+pkg.Name+"."+sel.Sel.Name+
					" is not the engine's clock")
			}
		}
		return true
	})
	return uses
}

func TestWallClockUsesAreFound(t *testing.T) {
	const src = `package p
import ("context"; clk "time")
var now = clk.Now
func f(ctx context.Context) { clk.Sleep(clk.Second); context.WithTimeout(ctx, 1); var clk struct{ Now int }; _ = clk.Now }`
	if uses := wallClockUses(t, "p.go", src); len(uses) != 3 {
		t.Errorf("found %q", uses)
	}
}
