package snippets

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// usual are the names, with their types, that statements may use without a declaration.
// A page can declare them otherwise.
var usual = []string{
	"ctx context.Context", "eng *engine.Engine[any]", "store storage.Storage", "job *ojs.Job[any]",
	"pool *pgxpool.Pool", "t *testing.T", "mux *http.ServeMux", "id string", "args any", "err error",
}

// packages are the imports of the blocks. A module's own packages come from the tree.
var packages = strings.Fields(`
	bytes context crypto/sha256 encoding/base64 encoding/json errors fmt io log log/slog math net/http os
	os/signal path/filepath strings sync sync/atomic syscall testing time
	github.com/benbjohnson/clock
	github.com/jackc/pgx/v5 github.com/jackc/pgx/v5/pgxpool
	github.com/prometheus/client_golang/prometheus github.com/prometheus/client_golang/prometheus/promhttp
	go.etcd.io/etcd/client/v3
	zombiezen.com/go/sqlite zombiezen.com/go/sqlite/sqlitex
	ojs ojs/codec ojs/codec/compress ojs/cron ojs/dashboard ojs/engine ojs/enginetest ojs/event ojs/fleet ojs/handler
	ojs/inspect ojs/operate ojs/otel ojs/policy ojs/policy/preset ojs/prometheus ojs/remote ojs/server
	ojs/server/jsonschema ojs/server/websocket ojs/storage ojs/storage/etcd
	ojs/storage/keyed ojs/storage/keyed/driver ojs/storage/keyed/drivertest
	ojs/storage/keyed/keyedtest ojs/storage/memory ojs/storage/postgres ojs/storage/sqlite
	ojs/storage/storagetest ojs/telemetry ojs/workflow`)

// Blocks of other languages are left out, and those with a mark have its reason.
func TestBlocks(t *testing.T) {
	text := "```go\nf()\n```\n\n<!-- not compiled: of asynq -->\n```go\ng()\n```\n\n```sh\nls\n```\n" +
		"1. x\n\n   ```go\n   if a {\n   \tb()\n   }\n   ```\n"
	want := []block{{"f()\n", "", 1}, {"g()\n", "of asynq", 6}, {"if a {\n\tb()\n}\n", "", 15}}
	if got := blocks(text); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Each Go block of the README and of docs/ type-checks, unless it is marked as the code
// of another library.
func TestSnippets(t *testing.T) {
	pages, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	check := newChecker(t)
	compiled, marked := 0, 0
	for _, page := range append(pages, root+"/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		prelude, err := os.ReadFile("testdata/" + name + ".txt")
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, b := range blocks(string(text)) {
			if b.reason != "" {
				marked++
				t.Logf("%s.md:%d is not compiled: %s", name, b.line, b.reason)
				continue
			}
			compiled++
			for _, err := range check.block(name, string(prelude), b.code) {
				t.Errorf("%s.md:%d: %v\n%s", name, b.line, err, b.code)
			}
		}
	}
	t.Logf("%d blocks compile, %d are not compiled", compiled, marked)
	if compiled < 50 {
		t.Errorf("found %d blocks", compiled)
	}
}

// The code of the tutorial is that of the program which it is about.
func TestTutorial(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/service.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(root + "/examples/service/main.go")
	if err != nil {
		t.Fatal(err)
	}
	oneLine := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	for _, b := range blocks(string(page)) {
		if !strings.Contains(oneLine(string(program)), oneLine(b.code)) {
			t.Errorf("examples/service has no\n%s", b.code)
		}
	}
}

// The checker notices what does not compile.
func TestChecker(t *testing.T) {
	check := newChecker(t)
	for code, bad := range map[string]bool{
		"ticket, err := eng.Enqueue(ctx, \"a.b\", 1)\n":                   false,
		"ticket, err := eng.Enqueue(ctx, 1, 1)\n":                         true,
		"eng.DeadLetters().RetryAll(ctx)\n":                               true,
		"func f() error { ... }\n":                                        false,
		"func f() error { return nil }\nf(1)\n":                           true,
		"if err != nil {\n\treturn err\n}\n...\n":                         false,
		"x := 1\nfunc f() error {\n\treturn x\n}\n":                       true,
		"package main\n\nfunc main() { undeclared() }\n":                  true,
		"for p, err := range eng.Jobs().List(ctx, inspect.Filter{}) {\n}": false,
	} {
		if errs := check.block("", "", code); (len(errs) > 0) != bad {
			t.Errorf("%q: %v", code, errs)
		}
	}
}

type block struct {
	code, reason string
	line         int
}

var (
	fence = regexp.MustCompile("(?m)^( *)(```+)(\\w*) *\n((?s:.*?))^ *```+ *$")
	mark  = regexp.MustCompile(`<!-- not compiled: (.+) -->\s*$`)
)

// blocks returns the Go blocks of a page.
func blocks(text string) (found []block) {
	for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
		if text[at[6]:at[7]] != "go" {
			continue
		}
		indent, code := text[at[2]:at[3]], text[at[8]:at[9]]
		b := block{line: 1 + strings.Count(text[:at[0]], "\n")}
		b.code = regexp.MustCompile("(?m)^"+indent).ReplaceAllString(code, "")
		if m := mark.FindStringSubmatch(text[:at[0]]); m != nil {
			b.reason = m[1]
		}
		found = append(found, b)
	}
	return found
}

type checker struct {
	imports map[string]string // path by name
	known   types.Importer
}

// newChecker compiles the packages, and reads what they export.
func newChecker(t *testing.T) *checker {
	t.Helper()
	if work, err := exec.Command("go", "env", "GOWORK").Output(); err != nil || len(work) < 5 { // "off"
		t.Skip("the blocks are of several modules, which go.work joins")
	}
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Name}} {{.Export}}"}
	wanted := make(map[string]bool)
	for _, p := range packages {
		if p == "ojs" || strings.HasPrefix(p, "ojs/") {
			p = "github.com/ojsengine/" + p
		}
		wanted[p] = true
		args = append(args, p)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	c := &checker{imports: make(map[string]string)}
	exports := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) == 3 {
			exports[f[0]] = f[2]
		}
		if wanted[f[0]] {
			c.imports[f[1]] = f[0]
		}
	}
	c.imports["sqlite"] = "github.com/ojsengine/ojs/storage/sqlite"
	c.imports["zombiezen"] = "zombiezen.com/go/sqlite"
	c.known = importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	return c
}

var (
	// declaration begins what cannot stand among statements, up to a closing line.
	declaration = regexp.MustCompile(`^(func [\w(]|type \w|import )`)
	fields      = regexp.MustCompile(`\bstruct\{ \.\.\. \}`)
	dots        = regexp.MustCompile(`(?m)(^|\{)[ \t]*\.\.\.[ \t]*($|\}|//)`)
)

// file makes a file of a block. Code that does not matter panics.
func file(code, prelude string) string {
	code = fields.ReplaceAllString(code, "struct{}")
	code = dots.ReplaceAllString(code, "${1} panic(0) $2")
	if strings.HasPrefix(code, "package ") {
		return code
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+code, 0); err == nil {
		return "package p\n" + code
	}
	var declared, statements strings.Builder
	part := &statements
	for line := range strings.Lines(code) {
		if declaration.MatchString(line) {
			part = &declared
		}
		part.WriteString(line)
		oneLine := declaration.MatchString(line) && strings.HasSuffix(line, "}\n")
		if oneLine || line[0] == '}' || line[0] == ')' {
			part = &statements
		}
	}
	params := slices.DeleteFunc(slices.Clone(usual), func(param string) bool {
		name, _, _ := strings.Cut(param, " ")
		return regexp.MustCompile(`(?m)^(var|func) ` + name + `\b`).MatchString(prelude)
	})
	// A panic at the end needs no return before it.
	return fmt.Sprintf("package p\n%s\nfunc _(%s) %s {{\n%s\n}\npanic(0)\n}\n", &declared,
		strings.Join(params, ", "), results(statements.String()), &statements)
}

// results are what the return statements of a block return, those of its functions left
// aside.
func results(statements string) string {
	f, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc _() {\n"+statements+"\n}", 0)
	if err != nil {
		return ""
	}
	n := 0
	ast.Inspect(f, func(node ast.Node) bool {
		if r, ok := node.(*ast.ReturnStmt); ok {
			n = max(n, len(r.Results))
		}
		_, inner := node.(*ast.FuncLit)
		return !inner
	})
	return []string{"", "error", "(any, error)"}[n]
}

// block type-checks one block with the declarations of its page.
func (c *checker) block(page, prelude, code string) []error {
	fset := token.NewFileSet()
	own, err := parser.ParseFile(fset, "block.go", file(code, prelude), parser.SkipObjectResolution)
	if err != nil {
		return []error{err}
	}
	files := []*ast.File{c.complete(own)}
	if prelude != "" {
		declared := make(map[string]bool) // what the block declares itself
		for _, d := range files[0].Decls {
			for _, name := range names(d) {
				declared[name] = true
			}
		}
		other, err := parser.ParseFile(fset, page+".txt", "package p\n"+prelude, parser.SkipObjectResolution)
		if err != nil {
			return []error{err}
		}
		other.Name.Name = own.Name.Name
		other.Decls = slices.DeleteFunc(other.Decls, func(d ast.Decl) bool {
			return slices.ContainsFunc(names(d), func(n string) bool { return declared[n] })
		})
		files = append(files, c.complete(other))
	}
	var errs []error
	config := types.Config{Importer: c.known, Error: func(err error) {
		if e := err.(types.Error); !e.Soft { // soft: what is not used
			errs = append(errs, err)
		}
	}}
	_, _ = config.Check("p", fset, files, nil)
	return errs
}

// complete adds the imports of the packages that a file names and does not declare.
func (c *checker) complete(file *ast.File) *ast.File {
	has := make(map[string]bool)
	for _, i := range file.Imports {
		name := path.Base(strings.Trim(i.Path.Value, `"`))
		if i.Name != nil {
			name = i.Name.Name
		}
		has[name] = true
	}
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		id, ok := sel.X.(*ast.Ident)
		if !ok || has[id.Name] || c.imports[id.Name] == "" || !ast.IsExported(sel.Sel.Name) {
			return true
		}
		has[id.Name] = true
		spec := &ast.ImportSpec{
			Name: ast.NewIdent(id.Name),
			Path: &ast.BasicLit{Kind: token.STRING, Value: fmt.Sprintf("%q", c.imports[id.Name])},
		}
		decl := &ast.GenDecl{Tok: token.IMPORT, Specs: []ast.Spec{spec}}
		file.Decls = append([]ast.Decl{decl}, file.Decls...)
		return true
	})
	return file
}

// names are what a declaration declares.
func names(d ast.Decl) (list []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			list = append(list, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				list = append(list, s.Name.Name)
			case *ast.ValueSpec:
				for _, n := range s.Names {
					list = append(list, n.Name)
				}
			}
		}
	}
	return list
}
