package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/benbjohnson/clock"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pgtest"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/postgres"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// dsn is the PostgreSQL server of all tests; "": there is none.
var dsn string

type withServer struct{ *testing.M }

// Run implements goleak.TestingM.
func (m withServer) Run() int {
	code := pgtest.Main(m.M, &dsn)
	if os.Getenv("OJS_TEST_POSTGRES") != "" && !dropDatabases() {
		return 1
	}
	return code
}

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(beCommand())
	}
	goleak.VerifyTestMain(withServer{m})
}

// serving is a run of the command.
type serving struct {
	t    *testing.T
	url  string
	stop context.CancelFunc
	code chan int
	errs *output
}

// output is what a command has written. Its goroutines may write at once.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// runWith runs the command without a standard input.
func runWith(args []string, env func(string) string, out, errs io.Writer) int {
	p := program{env: env, in: strings.NewReader(""), out: out, errs: errs, clock: clock.New()}
	return p.run(context.Background(), args)
}

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

var address = regexp.MustCompile(`http://[^/\s]+/`)

// start starts the command on a free port, and waits until it answers.
func start(t *testing.T, env func(string) string, args ...string) *serving {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	s := &serving{t: t, stop: stop, code: make(chan int, 1), errs: new(output)}
	out, in := io.Pipe()
	go func() {
		p := program{env: env, in: strings.NewReader(""), out: in, errs: s.errs, clock: clock.New()}
		s.code <- p.run(ctx, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...))
		_ = in.Close()
	}()
	line := make([]byte, 200)
	n, err := out.Read(line)
	if err != nil {
		stop()
		t.Fatalf("exit code %d: %s", <-s.code, s.errs)
	}
	if s.url = address.FindString(string(line[:n])); s.url == "" {
		t.Fatalf("no address in %q", line[:n])
	}
	t.Cleanup(s.end)
	return s
}

// end stops the command as a signal would, and expects it to succeed.
func (s *serving) end() {
	s.t.Helper()
	if s.code == nil {
		return
	}
	s.stop()
	if code := <-s.code; code != 0 {
		s.t.Errorf("exit code %d: %s", code, s.errs)
	}
	s.code = nil
	http.DefaultClient.CloseIdleConnections()
}

// ask makes a request.
func (s *serving) ask(method, path, form string, with ...func(*http.Request)) (status int, body string) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(form))
	if err != nil {
		s.t.Fatal(err)
	}
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, f := range with {
		f(r)
	}
	resp, err := http.DefaultTransport.RoundTrip(r) // follows no redirect
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// fill stores a job, and returns its id.
func fill(t *testing.T, st storage.Storage) string {
	t.Helper()
	eng, err := engine.New[any](st)
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := eng.Enqueue(context.Background(), "email.send", map[string]any{"to": "ada"})
	if err != nil {
		t.Fatal(err)
	}
	return ticket.ID
}

// file is a SQLite file with a job.
func file(t *testing.T) (path, job string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "jobs.db")
	st, err := sqlite.Open(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	job = fill(t, st)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return path, job
}

// The pages of a storage only read, and show its jobs.
func TestServeReads(t *testing.T) {
	path, job := file(t)
	for _, given := range []string{path, "sqlite:" + path} {
		s := start(t, environment("OJS_STORAGE", given))
		pages := map[string]string{"": "read only", "jobs/": "email.send", "jobs/" + job + "/": "ada"}
		for at, want := range pages {
			status, body := s.ask("GET", at, "")
			if status != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("/%s: %d, no %q", at, status, want)
			}
		}
		if status, _ := s.ask("POST", "jobs/"+job+"/", "do=cancel"); status != http.StatusForbidden {
			t.Errorf("a post is answered with %d", status)
		}
		if _, body := s.ask("GET", "", ""); strings.Contains(body, "engine does not run") {
			t.Error("the engine of the command is a problem")
		}
		s.end()
	}
}

// With -actions the pages change jobs, with the name of the person in their history.
func TestServeActs(t *testing.T) {
	path, job := file(t)
	s := start(t, environment("OJS_USER", "ada", "OJS_PASSWORD", "secret", "OJS_ACTIONS", "true"),
		"--storage", path)
	ada := func(r *http.Request) { r.SetBasicAuth("ada", "secret") }
	if status, _ := s.ask("POST", "jobs/"+job+"/", "do=cancel"); status != http.StatusUnauthorized {
		t.Errorf("without a log-in: %d", status)
	}
	forged := func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }
	if status, _ := s.ask("POST", "jobs/"+job+"/", "do=cancel", ada, forged); status != http.StatusForbidden {
		t.Errorf("of another origin: %d", status)
	}
	if status, body := s.ask("POST", "jobs/"+job+"/", "do=cancel", ada); status != http.StatusSeeOther {
		t.Errorf("%d\n%s", status, body)
	}
	s.end()
	st, err := sqlite.Open(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	rec, err := st.Get(context.Background(), job)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(rec.History); rec.State != ojs.StateCancelled || n == 0 || rec.History[n-1].By != "ada" {
		t.Errorf("%s, %+v", rec.State, rec.History)
	}
}

// A log-in by name and password, by token, and by neither from this machine alone.
func TestServeAuthenticates(t *testing.T) {
	path, _ := file(t)
	as := func(user, password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth(user, password) }
	}
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	nothing := func(*http.Request) {}
	for _, tc := range []struct {
		env    []string
		with   func(*http.Request)
		status int
	}{
		{nil, nothing, 200},
		{nil, host("localhost:99"), 200},
		{nil, host("evil.example"), 403},
		{[]string{"OJS_TOKEN", "t0ken"}, nothing, 401},
		{[]string{"OJS_TOKEN", "t0ken"}, header("Authorization", "Bearer t0ken"), 200},
		{[]string{"OJS_TOKEN", "t0ken"}, header("Authorization", "bearer t0ken"), 200},
		{[]string{"OJS_TOKEN", "t0ken"}, header("Authorization", "Bearer "), 401},
		{[]string{"OJS_TOKEN", "t0ken"}, as("ada", "t0ken"), 200},
		{[]string{"OJS_TOKEN", "t0ken"}, as("ada", ""), 401},
		{[]string{"OJS_USER", "ada", "OJS_PASSWORD", "pw"}, as("ada", "pw"), 200},
		{[]string{"OJS_USER", "ada", "OJS_PASSWORD", "pw"}, as("bob", "pw"), 401},
		{[]string{"OJS_USER", "ada", "OJS_PASSWORD", "pw"}, as("ada", "PW"), 401},
		{[]string{"OJS_USER", "ada", "OJS_PASSWORD", "pw"}, header("Authorization", "Bearer "), 401},
	} {
		s := start(t, environment(tc.env...), "--storage", path)
		if status, body := s.ask("GET", "", "", tc.with); status != tc.status {
			t.Errorf("%v: %d, want %d\n%s", tc.env, status, tc.status, body)
		}
		s.end()
	}
}

// A stop ends open streams, and the storage is closed.
func TestServeStops(t *testing.T) {
	path, _ := file(t)
	s := start(t, environment(), "--storage", path)
	resp, err := http.Get(s.url + "live/")
	if err != nil {
		t.Fatal(err)
	}
	s.stop()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	_ = resp.Body.Close()
	s.end()
}

func TestWrongArguments(t *testing.T) {
	path, _ := file(t)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, bytes.Repeat([]byte("no database\n"), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "none.db")
	for _, tc := range []struct {
		args []string
		env  []string
		code int
		says string
	}{
		{nil, nil, 2, "serve "},
		{[]string{"help"}, nil, 0, ""},
		{[]string{"version"}, nil, 0, ""},
		{[]string{"nonsense"}, nil, 2, "unexpected argument nonsense"},
		{[]string{"serve", "-h"}, nil, 0, ""},
		{[]string{"serve", "-storage", path}, nil, 2, "write --storage"},
		{[]string{"serve", "--nonsense"}, nil, 2, "nonsense"},
		{[]string{"serve", path}, nil, 2, "unexpected argument"},
		{[]string{"serve"}, nil, 2, "no storage is given"},
		{[]string{"serve", "--storage", "redis://user:secret@host"}, nil, 2, "use postgres://"},
		{[]string{"serve", "--storage", none}, nil, 1, "no such file"},
		{[]string{"serve", "--storage", text}, nil, 1, ""},
		{[]string{"serve", "--storage", path, "--schema", "x"}, nil, 2, "PostgreSQL"},
		{[]string{"serve", "--storage", path, "--listen", ":0"}, nil, 2, "other machines"},
		{[]string{"serve", "--storage", path, "--listen", "0.0.0.0:0"}, nil, 2, "other machines"},
		{[]string{"serve", "--storage", path, "--listen", "nonsense"}, nil, 2, "address"},
		{[]string{"serve", "--storage", path, "--trusted-origins", "example.com"}, nil, 2, "scheme://host"},
		{[]string{"serve", "--storage", path}, []string{"OJS_USER", "ada"}, 2, "both or neither"},
	} {
		var out, errs bytes.Buffer
		code := runWith(tc.args, environment(tc.env...), &out, &errs)
		if text := errs.String(); code != tc.code || !strings.Contains(text, tc.says) ||
			strings.Contains(text, "secret@") {
			t.Errorf("%v: exit code %d, want %d: %s", tc.args, code, tc.code, &errs)
		}
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("the command has made a storage")
	}
}

// The command opens a schema of PostgreSQL that a program has made, and makes none.
func TestServePostgres(t *testing.T) {
	dsn := newDatabase(t, "template1")
	var out, errs bytes.Buffer
	args := []string{"serve", "--storage", dsn}
	if code := runWith(args, environment(), &out, &errs); code != 1 {
		t.Errorf("without a schema: exit code %d: %s", code, &errs)
	}
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	st, err := postgres.Open(ctx, pool, postgres.WithSchema("work"))
	if err != nil {
		t.Fatal(err)
	}
	job := fill(t, st)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	s := start(t, environment("OJS_STORAGE", dsn), "--schema", "work")
	status, body := s.ask("GET", "jobs/"+job+"/", "")
	if status != http.StatusOK || !strings.Contains(body, "ada") {
		t.Errorf("%d\n%s", status, body)
	}
	s.end()
}

// unanswered is a storage whose counts fail.
type unanswered struct{ storage.Storage }

func (unanswered) QueueStates(context.Context) (map[string]ojs.QueueState, error) {
	return nil, errors.New("no answer")
}

func (unanswered) Counts(context.Context) ([]storage.Count, error) {
	return nil, errors.New("no answer")
}

// The log-in guards metrics, and not health.
func TestServeMetrics(t *testing.T) {
	path, _ := file(t)
	s := start(t, environment("OJS_TOKEN", "t0ken"), "--storage", path)
	bearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer t0ken") }
	if status, _ := s.ask("GET", "metrics", ""); status != http.StatusUnauthorized {
		t.Errorf("metrics without the log-in: %d", status)
	}
	status, body := s.ask("GET", "metrics", "", bearer)
	const depth = `ojs_queue_depth{queue="default",state="available"} 1`
	if status != http.StatusOK || !strings.Contains(body, depth) ||
		!strings.Contains(body, "ojs_storage_up 1") {
		t.Errorf("%d\n%s", status, body)
	}
	if status, body := s.ask("GET", "health", ""); status != http.StatusOK || body != `{"status":"ok"}`+"\n" {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := s.ask("POST", "health", ""); status != http.StatusMethodNotAllowed {
		t.Error(status)
	}
	s.end()
	eng, err := engine.New[any](unanswered{memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h := withHealth(eng, clock.New(), http.NotFoundHandler())
	h.ServeHTTP(w, httptest.NewRequest("GET", "/health", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
