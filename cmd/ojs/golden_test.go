package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs/engine"
	binding "github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/postgres"
	"github.com/ojsengine/ojs/storage/sqlite"
)

var update = flag.Bool("update", false, "write the outputs of verbs into the pages")

// console are the blocks of a page with calls and what they print.
var console = regexp.MustCompile("(?s)```console\n(.*?)```")

// Each call of docs/command.md and of the pages of testdata prints what stands below it,
// on each storage. A page NAME.STORAGE.md is of one storage. The calls of a page are made
// one after the other on the shop. The page empty.md begins without jobs.
//
//	go test ./cmd/ojs -run TestPages -update
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("testdata/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, page := range append(pages, "../../docs/command.md") {
		of := strings.Split(strings.TrimSuffix(filepath.Base(page), ".md"), ".")
		for _, on := range []kind{onMemory, onSQLite, onPostgres, onServer} {
			if len(of) == 1 && on != onServer || len(of) == 2 && of[1] == string(on) {
				t.Run(filepath.Base(page)+"/"+string(on), func(t *testing.T) { testPage(t, page, on) })
			}
		}
	}
}

func testPage(t *testing.T, page string, on kind) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	sh := newShell(t, on, filepath.Base(page) != "empty.md")
	got := console.ReplaceAllFunc(text, func(block []byte) []byte {
		var out strings.Builder
		out.WriteString("```console\n")
		body := console.FindSubmatch(block)[1]
		for line := range strings.SplitSeq(string(body), "\n") {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				out.WriteString(line + "\n" + sh.run(command))
			}
		}
		return []byte(out.String() + "```")
	})
	if *update {
		if err := os.WriteFile(page, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if bytes.Equal(got, text) {
		return
	}
	a, b := strings.Split(string(text), "\n"), strings.Split(string(got), "\n")
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			t.Fatalf("%s:%d, on %s, is not what the command prints:\n%s", page, i+1, on,
				strings.Join(b[max(0, i-3):min(len(b), i+12)], "\n"))
		}
	}
}

// shell runs the command on a storage of its own, at noon.
type shell struct {
	t       testing.TB
	shop    *shop
	rand    *rand.Rand
	address string
	dir     string
}

func newShell(t testing.TB, on kind, full bool) *shell {
	t.Helper()
	st, address := newStorage(t, on)
	sh := &shell{t: t, shop: newShop(t, st), rand: rand.New(rand.NewPCG(2, 2)), address: address,
		dir: t.TempDir()}
	if full {
		sh.shop.fill()
	}
	if on == onServer {
		sh.address = serverOf(t, sh.shop.eng)
	}
	return sh
}

// serverOf starts a server of an engine, whose key is "k3y".
func serverOf(t testing.TB, eng *engine.Engine[any]) (address string) {
	t.Helper()
	srv, err := binding.New(eng, binding.WithAuthenticator(access{token: "k3y"}))
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(srv)
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		web.Close()
		_ = srv.Close(context.Background())
	})
	return web.URL
}

// newStorage makes an empty storage, and returns its address for --storage.
func newStorage(t testing.TB, on kind) (storage.Storage, string) {
	t.Helper()
	ctx := context.Background()
	switch on {
	case onSQLite:
		path := filepath.Join(t.TempDir(), "jobs.db")
		st, err := sqlite.Open(ctx, path, sqlite.WithSynchronous(sqlite.Normal))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		return st, path
	case onPostgres:
		address := newDatabase(t, migrated(t))
		pool, err := pgxpool.New(ctx, address)
		if err != nil {
			t.Fatal(err)
		}
		st, err := postgres.Open(ctx, pool)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = st.Close()
			pool.Close()
		})
		return st, address
	}
	st := memory.New()
	t.Cleanup(func() { _ = st.Close() })
	return st, "memory"
}

// databases are the databases that the tests have made.
var databases []string

// dropDatabases drops them from a server that stays.
func dropDatabases() bool {
	ctx := context.Background()
	admin, err := pgx.Connect(ctx, dsn)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return false
	}
	defer func() { _ = admin.Close(ctx) }()
	for _, name := range databases {
		if _, err := admin.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return false
		}
	}
	return true
}

// template is a database with the schema, which others are copies of.
var template string

func migrated(t testing.TB) string {
	if template == "" {
		address := newDatabase(t, "template1")
		if err := migratePostgres(context.Background(), address, ""); err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		template = u.Path[1:]
	}
	return template
}

// newDatabase makes a database that is like another, and returns its address. Without a
// server it skips the test.
func newDatabase(t testing.TB, like string) string {
	t.Helper()
	if dsn == "" {
		t.Skip("no PostgreSQL")
	}
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := pgx.ConnectConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(context.Background()) }()
	name := fmt.Sprintf("command%d_%d", os.Getpid(), len(databases))
	databases = append(databases, name)
	if _, err := admin.Exec(context.Background(), "CREATE DATABASE "+name+" TEMPLATE "+like); err != nil {
		t.Fatal(err)
	}
	q := url.Values{"host": {cfg.Host}, "port": {fmt.Sprint(cfg.Port)}}
	return (&url.URL{Scheme: "postgres", User: url.UserPassword(cfg.User, cfg.Password), Path: "/" + name,
		RawQuery: q.Encode()}).String()
}

var (
	cursor  = regexp.MustCompile(`--cursor \S+`)
	backend = regexp.MustCompile(`(?m)^(storage +|  "storage": "|)(memory|sqlite|postgres)(["\s,])`)
)

// run runs a line such as "COLUMNS=160 ojs jobs -o id | ojs retry -" or "ojs enqueue - <
// FILE" and returns what it prints, with the exit code if that is not 0.
func (sh *shell) run(line string) string {
	sh.t.Helper()
	in, out, code := []byte(nil), bytes.Buffer{}, 0
	for part := range strings.SplitSeq(line, " | ") {
		env := map[string]string{"OJS_STORAGE": sh.address, "COLUMNS": "80", "USER": "ada",
			"OJS_KEY": "k3y"}
		words := split(part)
		for len(words) > 0 && strings.Contains(words[0], "=") && !strings.HasPrefix(words[0], "-") {
			name, value, _ := strings.Cut(words[0], "=")
			env[name], words = value, words[1:]
		}
		if n := len(words); n > 2 && words[n-2] == "<" {
			var err error
			if in, err = os.ReadFile(filepath.Join("testdata", words[n-1])); err != nil {
				sh.t.Fatal(err)
			}
			words = words[:n-2]
		}
		if words[0] == "cat" {
			var err error
			if in, err = os.ReadFile(filepath.Join("testdata", words[1])); err != nil {
				sh.t.Fatal(err)
			}
			continue
		}
		if words[0] != "ojs" {
			sh.t.Fatalf("%q is no call of the command", part)
		}
		var errs bytes.Buffer
		out.Reset()
		p := program{env: func(name string) string { return env[name] }, in: bytes.NewReader(in), out: &out,
			errs:  &errs,
			clock: sh.shop.clock, storage: sh.shop.st, rand: sh.rand}
		code = p.run(context.Background(), words[1:])
		in = bytes.Clone(out.Bytes())
		out.Write(errs.Bytes())
	}
	if code != 0 {
		fmt.Fprintf(&out, "[exit code %d]\n", code)
	}
	text := cursor.ReplaceAllString(out.String(), "--cursor CURSOR")
	return backend.ReplaceAllString(text, "${1}postgres$3")
}

// split splits a line into words, as a shell does with quotes.
func split(line string) (words []string) {
	var word strings.Builder
	quote, some := rune(0), false
	for _, r := range line + " " {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, some = r, true
		case quote == 0 && r == ' ':
			if word.Len() > 0 || some {
				words = append(words, word.String())
			}
			word.Reset()
			some = false
		default:
			word.WriteRune(r)
		}
	}
	return words
}

// unshown says why the output of a verb is in no page of testdata.
var unshown = map[string]string{
	"ojs bench": "its figures differ", "ojs cells move": "TestMoveOfPartitions",
	"ojs completion": "TestShare", "ojs config": "TestSettings",
	"ojs import": "TestExportImport", "ojs man": "TestShare", "ojs migrate sql": "TestMigrate",
	"ojs quarantine delete": "TestQuarantine", "ojs quarantine release": "TestQuarantine",
	"ojs serve": "TestServeReads", "ojs version": "it differs",
}

// The pages for all storages have each verb at 80 and at 160 columns, and docs/command.md
// has each.
func TestEveryVerb(t *testing.T) {
	const docs = "../../docs/command.md"
	pages, err := filepath.Glob("testdata/*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := make(map[string]bool) // by width and verb, and before it the storage of the page
	for _, page := range append(pages, docs) {
		of := strings.Split(filepath.Base(page), ".")[1]
		for _, call := range calls(t, page) {
			shown[strings.TrimPrefix(of, "md")+call] = true
			if page == docs {
				shown["docs "+call] = true
			}
		}
	}
	docText, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	parser := kong.Must(new(verbs))
	verbNodes(parser.Model.Node, "", func(path string, node *kong.Node) {
		verb := "ojs" + path
		if path == "" || !node.Leaf() {
			return
		}
		name := strings.TrimSuffix(strings.TrimSuffix(verb, " list"), " status")
		byStorage := true // it differs between storages
		for _, width := range []string{"80 ", "160 "} {
			call := width + verb
			all := shown["memory"+call] && shown["sqlite"+call] && shown["postgres"+call]
			if byStorage = byStorage && all; unshown[verb] == "" && !shown[call] && !all {
				t.Errorf("no page has %s at %scolumns", verb, width)
			}
		}
		mentioned := (byStorage || unshown[verb] != "") && strings.Contains(string(docText), name)
		if !shown["docs 80 "+verb] && !mentioned {
			t.Errorf("docs/command.md has no %s", name)
		}
	})
}

// calls are the verbs of the calls of a page, each behind its width.
func calls(t *testing.T, page string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range console.FindAllSubmatch(text, -1) {
		for line := range strings.SplitSeq(string(block[1]), "\n") {
			line, ok := strings.CutPrefix(line, "$ ")
			width := "80 "
			if rest, wide := strings.CutPrefix(line, "COLUMNS=160 "); wide {
				width, line = "160 ", rest
			}
			line = strings.TrimPrefix(line, "LINES=8 ")
			for part := range strings.SplitSeq(line, " | ") {
				part, _, _ = strings.Cut(part, " < ")
				words := split(part)
				if !ok || len(words) < 2 || words[0] != "ojs" {
					continue
				}
				c := &call{program: &program{env: environment(), out: io.Discard, errs: io.Discard}}
				v := new(verbs)
				c.flags = &v.flags
				if err := c.parse(v, words[1:]); err == nil {
					list = append(list, width+c.kong.Selected().FullPath())
				}
			}
		}
	}
	return list
}
