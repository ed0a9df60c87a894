// Package eventtypes lists the types of events for tests, so that none forgets one.
package eventtypes

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/ojsengine/ojs/event"
)

// Read returns the constants of type Type in a file of package event, in their order.
func Read(t *testing.T, file string) []event.Type {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var types []event.Type
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if of, ok := spec.Type.(*ast.Ident); !ok || of.Name != "Type" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, event.Type(text))
		return true
	})
	if len(types) == 0 {
		t.Fatalf("%s has no types of events", file)
	}
	return types
}
