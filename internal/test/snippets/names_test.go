package snippets

import (
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// chain is a name of a package or of a usual variable, and what follows it.
var chain = regexp.MustCompile(`(?:^|[^\w.])([a-z]\w*|Ticket|Delivery)((?:\.[A-Z]\w*(?:\(\))?)+)`)

// The names of this module that the text of a page uses exist: ojs.WithTTL,
// engine.QueueConfig.Overflow, eng.Jobs().Facets, Ticket.Wait.
func TestNames(t *testing.T) {
	c := newChecker(t)
	pages, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, root+"/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range inline.FindAllString(fence.ReplaceAllString(string(text), ""), -1) {
			for _, m := range chain.FindAllStringSubmatch(code, -1) {
				known, ok := c.resolve(t, m[1], strings.Split(m[2][1:], "."))
				if known {
					found++
				}
				if known && !ok {
					t.Errorf("%s: %s does not exist: %s%s", filepath.Base(page), code, m[1], m[2])
				}
			}
		}
	}
	if found < 500 {
		t.Errorf("found %d names", found)
	}
}

func TestResolve(t *testing.T) {
	c := newChecker(t)
	for text, want := range map[string]bool{
		"ojs.WithTTL": true, "engine.QueueConfig.Overflow": true, "eng.Jobs().Facets": true,
		"Ticket.Wait": true, "memory.New()": true,
		"ojs.Nothing": false, "eng.Jobs().Nothing": false, "engine.QueueConfig.Nothing": false,
	} {
		first, rest, _ := strings.Cut(text, ".")
		if known, ok := c.resolve(t, first, strings.Split(rest, ".")); !known || ok != want {
			t.Errorf("%s: %v, %v", text, known, ok)
		}
	}
}

// resolve follows names from a package of this module, a variable or a type. It reports
// whether it knows the first, and whether all exist.
func (c *checker) resolve(t *testing.T, first string, names []string) (known, exists bool) {
	t.Helper()
	in := func(pkg, name string) types.Type {
		p, err := c.known.Import("github.com/ojsengine/ojs" + pkg)
		if err != nil {
			t.Fatal(err)
		}
		if object := p.Scope().Lookup(name); object != nil {
			return object.Type()
		}
		return nil
	}
	var at types.Type
	switch path := c.imports[first]; {
	case strings.HasPrefix(path, "github.com/ojsengine/ojs"):
		at = in(strings.TrimPrefix(path, "github.com/ojsengine/ojs"), strings.TrimSuffix(names[0], "()"))
		if at == nil {
			return true, false
		}
		names = names[1:]
	case first == "eng":
		at = in("/engine", "Engine")
	case first == "Ticket":
		at = in("", "Ticket")
	case first == "Delivery":
		at = in("/engine/fetch", "Delivery")
	default:
		return false, false
	}
	for _, name := range names {
		object, _, _ := types.LookupFieldOrMethod(at, true, nil, strings.TrimSuffix(name, "()"))
		if object == nil {
			return true, false
		}
		at = object.Type()
		if f, ok := at.(*types.Signature); ok && f.Results().Len() > 0 {
			at = f.Results().At(0).Type()
		}
	}
	return true, true
}
