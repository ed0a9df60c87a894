package comingfrom_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/memory"
)

const document = "../../docs/coming-from.md"

type Email struct {
	To   string `json:"to"`
	User int    `json:"user"`
}

type Charge struct {
	Order  string `json:"order"`
	Amount int    `json:"amount"`
}

// begin makes an engine that has not been started.
func begin(opts ...engine.Option) (context.Context, *engine.Engine[any]) {
	silent := engine.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	return context.Background(),
		must(engine.New[any](memory.New(), append([]engine.Option{silent}, opts...)...))
}

// work runs an engine until it has nothing to do now.
func work(ctx context.Context, eng *engine.Engine[any]) {
	run, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- eng.Run(run) }()
	check(eng.WaitIdle(ctx))
	stop()
	check(<-ended)
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Every snippet of the document stands in an Example, word for word but for the
// indentation, and every Example has one there.
func TestSnippets(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	sources := make(map[string]string)
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(source), "\nfunc Example") {
			sources[name] = "\n" + string(source)
		}
	}
	snippets := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(snippets) < len(sources) || len(sources) < 10 {
		t.Fatalf("%d snippets, %d files", len(snippets), len(sources))
	}
	for _, s := range snippets {
		inFunction := "\n" + regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(s[1], "\t$1")
		found := false
		for name, source := range sources {
			if strings.Contains(source, "\n"+s[1]) || strings.Contains(source, inFunction) {
				found, used[name] = true, true
			}
		}
		if !found {
			t.Errorf("in no Example:\n%s", s[1])
		}
	}
	for name := range sources {
		if !used[name] {
			t.Errorf("the document has nothing of %s", name)
		}
	}
}

// The names of this module in the document exist.
func TestNames(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool) // "pkg.Name", "pkg.Type.Method"
	for pkg, dir := range map[string]string{
		"ojs": "../..", "policy": "../../policy", "engine": "../../engine", "handler": "../../handler",
		"enginetest": "../../enginetest", "cron": "../../cron", "inspect": "../../inspect",
		"operate": "../../operate", "postgres": "../../storage/postgres",
	} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			declared(file, func(name string) { names[pkg+"."+name] = true })
		}
	}
	for typ, alias := range map[string]string{"engine.Engine.": "eng.", "operate.Jobs.": "eng.Jobs().",
		"inspect.Jobs.": "eng.Jobs().", "operate.Queues.": "eng.Queues().",
		"operate.DeadLetters.": "eng.DeadLetters().", "cron.Entries.": "eng.Cron().",
		"ojs.Ticket.": "Ticket.", "engine.Delivery.": "Delivery."} {
		for name := range names {
			if rest, ok := strings.CutPrefix(name, typ); ok {
				names[alias+rest] = true
			}
		}
	}
	found := regexp.MustCompile(`\b((?:ojs|policy|engine|cron|inspect|operate|handler|enginetest|postgres|eng\.(?:Jobs|Queues|DeadLetters|Cron)\(\)|eng|Ticket|Delivery)\.[A-Z]\w*)`).
		FindAllString(string(text), -1)
	if len(found) < 200 {
		t.Fatalf("%d names", len(found))
	}
	for _, name := range found {
		if !names[name] {
			t.Errorf("%s does not exist", name)
		}
	}
}

func declared(file *ast.File, note func(name string)) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				note(d.Name.Name)
				continue
			}
			typ := d.Recv.List[0].Type
			if star, ok := typ.(*ast.StarExpr); ok {
				typ = star.X
			}
			if generic, ok := typ.(*ast.IndexExpr); ok {
				typ = generic.X
			}
			if id, ok := typ.(*ast.Ident); ok {
				note(id.Name + "." + d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, id := range spec.Names {
						note(id.Name)
					}
				case *ast.TypeSpec:
					note(spec.Name.Name)
					if s, ok := spec.Type.(*ast.StructType); ok {
						for _, field := range s.Fields.List {
							for _, id := range field.Names {
								note(spec.Name.Name + "." + id.Name)
							}
						}
					}
				}
			}
		}
	}
}
