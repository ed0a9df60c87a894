package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The packages that each measure of lines adds up. A name that ends in /... has all
// packages below it, too. Packages that do not exist count as empty.
var (
	storages = []string{"storage", "storage/codec", "storage/insert", "storage/depend", "storage/rule",
		"storage/keyed/...", "storage/memory", "storage/sqlite", "storage/postgres", "internal/rows",
		"internal/document", "examples/bbolt"}
	noStorage = []string{"storage/keyed/drivertest"} // a suite, not a part of a storage
	engines   = []string{"engine/...", "cron", "inspect", "operate", "telemetry",
		"internal/draft", "internal/stored"}
)

// source is a Go file that is not a test.
type source struct {
	dir            string // of the file, from the top of the repository, with slashes
	code, comments int    // lines
	file           *ast.File
}

// measure returns all measures of the repository at top.
func measure(top string) ([]value, error) {
	sources, tests, err := load(top)
	if err != nil {
		return nil, err
	}
	code := func(packages ...string) int {
		n := 0
		for _, s := range sources {
			if in(s.dir, packages) && !in(s.dir, noStorage) {
				n += s.code
			}
		}
		return n
	}
	var all, comments int
	for _, s := range sources {
		all += s.code
		comments += s.comments
	}
	spread, _ := mostSpread(sources, []string{"engine/...", "cron", "inspect", "operate", "telemetry"})
	return []value{
		{name: "storages, rules, encodings, contract: code lines", n: code(storages...)},
		{name: "storage/sqlite: code lines", n: code("storage/sqlite")},
		{name: "storage/postgres: code lines", n: code("storage/postgres")},
		{name: "storage/memory: code lines", n: code("storage/memory")},
		{name: "examples/bbolt: code lines", n: code("examples/bbolt")},
		{name: "storage/storagetest: code lines", n: code("storage/storagetest")},
		{name: "engine with its packages: code lines", n: code(engines...)},
		{name: "engine: code lines of the largest package", n: largest(sources, engines)},
		{name: "engine: files in the folder itself", n: files(sources, "engine")},
		{name: "engine: files with methods of one struct", n: spread},
		{name: "engine: comments that say a lock is held", n: locksHeld(sources, engines)},
		{name: "server: code lines", n: code("server")},
		{name: "root: exported names", n: exported(sources, ".")},
		{name: "engine: exported names", n: exported(sources, "engine")},
		{name: "sleeps in tests", n: sleeps(tests)},
		{name: "comment lines per 100 code lines", n: 100 * comments / all, atLeast: true},
	}, nil
}

// load reads every Go file of the repository. tests are the texts of test files.
func load(top string) (sources []source, tests []string, err error) {
	err = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && name != top {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, "_test.go") {
			tests = append(tests, string(text))
			return nil
		}
		mode := parser.ParseComments | parser.SkipObjectResolution
		file, err := parser.ParseFile(token.NewFileSet(), name, text, mode)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(top, filepath.Dir(name))
		if err != nil {
			return err
		}
		s := source{dir: filepath.ToSlash(dir), file: file}
		s.code, s.comments = lines(text)
		sources = append(sources, s)
		return nil
	})
	return sources, tests, err
}

// lines counts the code lines and the comment lines of a file.
func lines(text []byte) (code, comments int) {
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	isCode, isComment := map[int]bool{}, map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue // inserted by the scanner
		}
		first := file.Line(pos)
		for i := range strings.Count(literal, "\n") + 1 {
			if tok == token.COMMENT {
				isComment[first+i] = true
			} else {
				isCode[first+i] = true
			}
		}
	}
	for line := range isComment {
		if !isCode[line] {
			comments++
		}
	}
	return len(isCode), comments
}

// in reports whether dir is one of packages.
func in(dir string, packages []string) bool {
	return slices.ContainsFunc(packages, func(p string) bool {
		below, all := strings.CutSuffix(p, "/...")
		return dir == below || all && strings.HasPrefix(dir, below+"/")
	})
}

func largest(sources []source, packages []string) int {
	sizes := map[string]int{}
	most := 0
	for _, s := range sources {
		if in(s.dir, packages) {
			sizes[s.dir] += s.code
			most = max(most, sizes[s.dir])
		}
	}
	return most
}

func files(sources []source, dir string) int {
	n := 0
	for _, s := range sources {
		if s.dir == dir {
			n++
		}
	}
	return n
}

// mostSpread returns the type of packages whose methods stand in the most files, and the
// number of these files.
func mostSpread(sources []source, packages []string) (files int, name string) {
	count := map[string]int{}
	for _, s := range sources {
		if !in(s.dir, packages) {
			continue
		}
		here := map[string]bool{}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				here[path.Join(s.dir, receiver(f.Recv.List[0].Type))] = true
			}
		}
		for name := range here {
			count[name]++
		}
	}
	for n, c := range count {
		if cmp.Or(cmp.Compare(c, files), strings.Compare(n, name)) > 0 {
			files, name = c, n
		}
	}
	return files, name
}

func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// lockHeld matches a comment that asks its reader to know of a lock that is held.
var lockHeld = regexp.MustCompile(`\b(mu|lock|turn|holding)\b (is|must be) held`)

func locksHeld(sources []source, packages []string) int {
	n := 0
	for _, s := range sources {
		if !in(s.dir, packages) {
			continue
		}
		for _, group := range s.file.Comments {
			if lockHeld.MatchString(strings.Join(strings.Fields(group.Text()), " ")) {
				n++
			}
		}
	}
	return n
}

// exported counts the exported names at the top level of a package.
func exported(sources []source, dir string) int {
	n := 0
	add := func(id *ast.Ident) {
		if id.IsExported() {
			n++
		}
	}
	for _, s := range sources {
		if s.dir != dir || strings.HasSuffix(s.file.Name.Name, "_test") {
			continue
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						add(spec.Name)
					case *ast.ValueSpec:
						for _, id := range spec.Names {
							add(id)
						}
					}
				}
			}
		}
	}
	return n
}

func sleeps(tests []string) int {
	n := 0
	for _, text := range tests {
		n += strings.Count(text, "time.Sleep(")
	}
	return n
}
