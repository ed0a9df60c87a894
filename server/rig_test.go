package server_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/storage"
)

var update = flag.Bool("update", false, "write the golden files")

// rig is a server over an engine with virtual time and fixed ids. Each request and its
// answer is a part of a golden file.
type rig struct {
	t   *testing.T
	eng *enginetest.Engine[any]
	srv *server.Server

	store storage.Storage // of a rig of twoServers

	log  bytes.Buffer      // of the requests and answers
	vars map[string]string // $NAME in requests
	n    int
}

func newRig(t *testing.T, opts ...server.Option) *rig {
	t.Helper()
	return rigOf(t, enginetest.NewOn[any](t, bindingtest.Fresh(t), engineOptions()...),
		append([]server.Option{server.WithClock(clock.NewMock())}, opts...)...)
}

// engineOptions are those of an engine without a handler, whose warning of that is no
// news.
func engineOptions() []engine.Option {
	return append(server.EngineOptions(), engine.WithLogger(slog.New(slog.DiscardHandler)))
}

// rigOf is newRig for an engine of the caller's.
func rigOf(t *testing.T, eng *enginetest.Engine[any], opts ...server.Option) *rig {
	t.Helper()
	srv, err := server.New(eng, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, srv) })
	return &rig{t: t, eng: eng, srv: srv, vars: make(map[string]string)}
}

// do makes a request, as bindingtest.Request has it. $NAME stands for a variable.
func (r *rig) do(text string) *httptest.ResponseRecorder {
	r.t.Helper()
	text = os.Expand(text, func(name string) string { return r.vars[name] })
	req := bindingtest.Request(text)
	r.n++
	req.Header.Set("X-Request-Id", fmt.Sprintf("r%d", r.n))
	w := httptest.NewRecorder()
	r.srv.ServeHTTP(w, req)
	r.note(strings.TrimSpace(text), w)
	r.check(req.Method, req.URL.EscapedPath(), w)
	return w
}

// note adds a request and its answer to the golden file.
func (r *rig) note(request string, w *httptest.ResponseRecorder) {
	fmt.Fprintf(&r.log, "> %s\n", strings.ReplaceAll(request, "\n", "\n> "))
	fmt.Fprintf(&r.log, "< %d", w.Code)
	for _, name := range []string{"Allow", "Content-Type", "Location", "Retry-After", "WWW-Authenticate",
		"Access-Control-Allow-Origin", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
		"X-OJS-Queue-Depth", "X-OJS-Queue-Bound", "X-OJS-Batch-Size", "X-OJS-Max-Batch-Size"} {
		if v := w.Header().Get(name); v != "" && v != "application/openjobspec+json" {
			fmt.Fprintf(&r.log, " %s=%q", name, v)
		}
	}
	fmt.Fprintln(&r.log)
	if w.Body.Len() > 0 {
		var out bytes.Buffer
		if json.Indent(&out, w.Body.Bytes(), "", "  ") != nil {
			out = *bytes.NewBuffer(w.Body.Bytes())
		}
		fmt.Fprintln(&r.log, strings.TrimSpace(out.String()))
	}
	fmt.Fprintln(&r.log)
}

// check holds each answer to what all have in common (F002, F003, F007, F011).
func (r *rig) check(method, path string, w *httptest.ResponseRecorder) {
	r.t.Helper()
	h := w.Header()
	if h.Get("OJS-Version") != "1.0" || h.Get("X-Request-Id") == "" {
		r.t.Errorf("%s %s: F002: headers %v", method, path, h)
	}
	body := w.Body.Bytes()
	if w.Code == http.StatusNoContent {
		if len(body) > 0 {
			r.t.Errorf("%s %s: F007: 204 has a body", method, path)
		}
		return
	}
	if kind := h.Get("Content-Type"); kind != "application/openjobspec+json" {
		if strings.HasPrefix(kind, "text/event-stream") || strings.HasPrefix(kind, "text/plain") {
			return
		}
		r.t.Errorf("%s %s: F003: Content-Type %q", method, path, kind)
	}
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		r.t.Errorf("%s %s: F007: no object: %v: %s", method, path, err, body)
	}
	if name := repeated(json.NewDecoder(bytes.NewReader(body))); name != "" {
		r.t.Errorf("%s %s: F007: %s occurs twice: %s", method, path, name, body)
	}
	if err := checkAnswer(method, path, w.Code, object); err != nil {
		r.t.Errorf("%s %s: OpenAPI: %v: %s", method, path, err, body)
	}
	if e, ok := object["error"].(map[string]any); ok && w.Code >= 400 {
		r.checkError(method+" "+path, e, h.Get("X-Request-Id"))
	}
}

// repeated returns a name that an object of a JSON value has twice, "" if there is none.
func repeated(d *json.Decoder) (twice string) {
	begin, _ := d.Token()
	for seen := make(map[any]bool); (begin == json.Delim('{') || begin == json.Delim('[')) && d.More(); {
		if begin == json.Delim('{') {
			name, _ := d.Token()
			if seen[name] {
				twice = fmt.Sprint(name)
			}
			seen[name] = true
		}
		twice = cmp.Or(repeated(d), twice)
	}
	if _, open := begin.(json.Delim); open {
		_, _ = d.Token() // the end
	}
	return twice
}

// codes are those of the binding. A code of our own begins with x_ (F033).
var codes = strings.Fields(`invalid_payload invalid_request validation_error schema_validation unauthenticated
	permission_denied not_found conflict duplicate payload_too_large metadata_too_large unsupported
	rate_limited queue_paused backend_error timeout invalid_workflow QUEUE_FULL BATCH_SIZE_EXCEEDED
	RESULT_PRUNED`)

// checkError holds each error to what all have in common (F020, F021, F033, F160).
func (r *rig) checkError(of string, e map[string]any, requestID string) {
	r.t.Helper()
	code, _ := e["code"].(string)
	message, _ := e["message"].(string)
	if _, ok := e["retryable"].(bool); !ok || message == "" || code == "" {
		r.t.Errorf("%s: F020: %v", of, e)
	}
	if e["request_id"] != requestID {
		r.t.Errorf("%s: F020, F011: request_id %v", of, e["request_id"])
	}
	if !slices.Contains(codes, code) && !strings.HasPrefix(code, "x_") {
		r.t.Errorf("%s: F033: code %q", of, code)
	}
	if e["docs_url"] == nil || e["docs_url"] != e["doc_url"] {
		r.t.Errorf("%s: F160: %v and %v", of, e["docs_url"], e["doc_url"])
	}
}

// keep sets a variable to a value of an answer, by a path such as job.id.
func (r *rig) keep(name string, w *httptest.ResponseRecorder, path string) {
	r.t.Helper()
	v := member(r.t, w, path)
	r.vars[name] = fmt.Sprint(v)
}

// member is a value of an answer, by a path such as jobs.0.id; nil: it is absent.
func member(t *testing.T, w *httptest.ResponseRecorder, path string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	for _, name := range strings.Split(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[name]
		case []any:
			i := 0
			if _, err := fmt.Sscan(name, &i); err != nil || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// want checks the status of an answer, and values by their paths. "absent" wants none.
func (r *rig) want(rule string, w *httptest.ResponseRecorder, status int, values ...any) {
	r.t.Helper()
	if w.Code != status {
		r.t.Errorf("%s: status %d, not %d: %s", rule, w.Code, status, w.Body)
		return
	}
	for i := 0; i+1 < len(values); i += 2 {
		got, want := member(r.t, w, values[i].(string)), values[i+1]
		if n, ok := want.(int); ok {
			want = float64(n)
		}
		if want == "absent" {
			want = nil
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if !bytes.Equal(a, b) {
			r.t.Errorf("%s: %s is %s, not %s: %s", rule, values[i], a, b, w.Body)
		}
	}
}

// golden compares all requests and answers with a file of testdata.
func (r *rig) golden(name string) {
	r.t.Helper()
	if bindingtest.Storage != "memory" { // ids differ: Replay knows that
		return
	}
	path := filepath.Join("..", "internal", "test", "bindingtest", "golden", name+".golden")
	if *update {
		if err := os.WriteFile(path, r.log.Bytes(), 0o644); err != nil {
			r.t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	if bytes.Equal(want, r.log.Bytes()) {
		return
	}
	a, b := strings.Split(string(want), "\n"), strings.Split(r.log.String(), "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			r.t.Fatalf("%s:%d: want %s\ngot %s\n(go test ./server -update writes the file)", path, i+1, a[i],
				b[i])
		}
	}
	r.t.Fatalf("%s has %d lines, not %d", path, len(b), len(a))
}

// advance moves the clock.
func (r *rig) advance(d time.Duration) {
	fmt.Fprintf(&r.log, "@ %v\n\n", d)
	r.eng.Advance(d)
}

func closed(t *testing.T, s *server.Server) {
	t.Helper()
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
