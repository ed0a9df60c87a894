package server_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/server"
)

func TestAccess(t *testing.T) {
	c := clock.NewMock()
	keys, err := server.NewKeys(c)
	if err != nil {
		t.Fatal(err)
	}
	secret := make(map[string]string)
	var all []server.Key
	for name, g := range map[string]server.Grant{"producer": {Role: server.RoleProducer},
		"worker":   {Role: server.RoleWorker},
		"operator": {Role: server.RoleOperator}, "admin": {Role: server.RoleAdmin},
		"mail": {Role: server.RoleAdmin,
			Queues: []string{"mail"}},
		"reader": {Role: server.ScopeAdminRead}, "writer": {Role: server.ScopeDataWrite}} {
		key, hash := server.NewKey()
		secret[name] = key
		all = append(all, server.Key{Name: name, Hash: hash, Grants: []server.Grant{g}})
	}
	if err := keys.Set(all...); err != nil {
		t.Fatal(err)
	}
	var audit []server.AuditEntry
	r := newRig(t, server.WithAuthenticator(keys),
		server.WithAudit(func(e server.AuditEntry) { audit = append(audit, e) }))
	as := func(rule, who, request string, status int, values ...any) {
		t.Helper()
		head, body, there := strings.Cut(request, "\n\n")
		text := head + "\nAuthorization: Bearer " + secret[who]
		if there {
			text += "\n\n" + body
		}
		r.want(rule+" "+who+" "+head, r.do(text), status, values...)
	}
	w := r.do("GET /jobs/x")
	r.want("F025", w, 401, "error.code", "unauthenticated")
	if w.Header().Get("WWW-Authenticate") == "" {
		t.Error("F025: no WWW-Authenticate")
	}
	r.want("F025", r.do("GET /nothing"), 401)
	r.want("F101", r.do("GET /health"), 200)
	secret["nobody"] = "ojs_" + strings.Repeat("x", 43)
	as("F191", "nobody", "GET /ojs/manifest", 401)
	as("F193", "producer", "POST /jobs\n\n"+job, 201)
	as("F193", "worker", "POST /jobs\n\n"+job, 403, "error.code", "permission_denied")
	as("F193", "worker", "POST /workers/fetch\n\n"+`{"queues":["default"]}`, 200)
	as("F193", "producer", "POST /workers/fetch\n\n"+`{"queues":["default"]}`, 403)
	as("F193", "operator", "GET /queues", 200)
	as("F193", "operator", "GET /admin/queues", 403)
	as("F193", "operator", "GET /workers", 403)
	as("F193", "reader", "GET /admin/queues", 200)
	as("F193", "reader", "POST /admin/queues/q/pause", 403)
	as("F193", "mail", "POST /jobs\n\n"+job, 403)
	as("F193", "mail", "POST /jobs\n\n"+`{"type":"a","args":[],"queue":"mail"}`, 201)
	as("F193", "mail", "GET /queues", 200, "queues.0.name", "mail", "pagination.total", 1)
	as("F193", "mail", "GET /admin/jobs", 200, "pagination.total", 1)
	as("F193", "mail", "GET /admin/jobs?queue=default", 403)
	as("F193", "mail", "POST /queues/default/pause", 403)
	as("F193", "admin", "POST /queues/default/pause", 200)

	r.keep("ID", r.do("POST /jobs\nAuthorization: Bearer "+secret["admin"]+"\n\n"+job), "job.id")
	as("F193", "admin", "POST /queues/default/resume", 200)
	as("F193", "admin", "POST /workers/fetch\n\n"+`{"queues":["default"],"worker_id":"w","count":9}`, 200)
	as("F193", "admin", "POST /workers/register\n\n"+`{"worker_id":"w"}`, 200)
	as("F193", "admin", "POST /cron\n\n"+`{"name":"c","expression":"@daily","type":"a"}`, 201)
	as("F193: jobs of other queues", "mail",
		"POST /workers/heartbeat\n\n"+`{"worker_id":"m","active_jobs":["$ID"]}`, 200,
		"jobs_extended", []any{})
	for _, request := range []string{"GET /admin/workers/w", "POST /admin/workers/w/quiet",
		"DELETE /admin/workers/w",
		"POST /workers/heartbeat\n\n" + `{"worker_id":"w","state":"quiet"}`,
		"POST /workers/register\n\n" + `{"worker_id":"w"}`,
		"POST /workers/deregister\n\n" + `{"worker_id":"w"}`,
		"POST /cron\n\n" + `{"name":"c","expression":"@daily","type":"a","queue":"mail"}`,
		"POST /admin/system/maintenance\n\n" + `{"enabled":true}`,
		"GET /admin/stats/history", "GET /admin/stats/history?queue=default",
		"POST /schemas\n\n" + `{"uri":"urn:x:a","type":"a","version":1,"schema":{}}`,
		"DELETE /schemas/urn:x:a",
		"PUT /admin/schemas/a/1\n\n" + `{"schema":{}}`} {
		as("F193: of all queues", "mail", request, 403)
	}
	as("F193", "mail", "GET /admin/stats/history?queue=mail", 200)
	as("F193: a purge", "writer", "DELETE /queues/default\n\n{}", 403)
	as("F193: an enqueue", "worker", "POST /workers/ack\n\n"+`{"job_id":"$ID","then":[`+job+`]}`, 403)
	as("F193", "worker", "POST /workers/ack\n\n"+`{"job_id":"$ID"}`, 200)

	next, hash := server.NewKey()
	for _, k := range all {
		if k.Name == "admin" {
			renewed := server.Key{Name: "admin", Hash: hash, Grants: k.Grants}
			if ok, err := keys.Rotate(strings.ToUpper(k.Hash), renewed); !ok || err != nil {
				t.Errorf("Rotate: %v, %v", ok, err)
			}
		}
	}
	secret["new"] = next
	c.Add(server.RotationGrace - time.Second)
	as("F191: both are valid", "admin", "GET /queues", 200)
	as("F191: both are valid", "new", "GET /queues", 200)
	c.Add(time.Second)
	as("F191: the old one has ended", "admin", "GET /queues", 401)
	if !keys.Revoke(strings.ToUpper(hash)) {
		t.Error("F191: a hash in capitals is not revoked")
	}
	as("F191: revoked", "new", "GET /queues", 401)

	count := make(map[string]int)
	for _, e := range audit {
		count[e.EventType+" "+e.Outcome]++
		ofRequest := !strings.HasPrefix(e.EventType, "key.")
		if ofRequest && (e.SourceIP == "" || e.CorrelationID == "") || e.Timestamp.IsZero() {
			t.Errorf("F198: %+v", e)
		}
		for _, s := range secret {
			if strings.Contains(e.Detail, s) {
				t.Errorf("F198: a secret in %+v", e)
			}
		}
	}
	if count["auth.failure failure"] < 4 || count["auth.denied denied"] < 6 ||
		count["queue.paused success"] != 1 || count["key.rotated success"] != 1 ||
		count["key.revoked success"] != 1 {
		t.Errorf("F198: %v", count)
	}
	audit = nil
	all[0].Grants, all[1] = nil, server.Key{Name: "other", Hash: hash}
	if err := keys.Set(all...); err != nil {
		t.Fatal(err)
	}
	clear(count)
	for _, e := range audit {
		count[e.EventType]++
	}
	if count["key.added"] != 1 || count["key.changed"] < 1 || count["key.revoked"] < 1 {
		t.Errorf("F198: %v", audit)
	}
	if err := keys.Set(server.Key{Name: "x", Hash: "plain secret"}); err == nil {
		t.Error("F191: a key that is not hashed was taken")
	}
}

func TestOrigins(t *testing.T) {
	r := newRig(t, server.WithOrigins("https://app.example"), server.WithHosts("example.com", "127.0.0.1"))
	w := r.do("OPTIONS /jobs\nOrigin: https://app.example")
	r.want("F103", w, 204)
	h := w.Header()
	if h.Get("Access-Control-Allow-Origin") != "https://app.example" || h.Get("Vary") != "Origin" ||
		h.Get("Access-Control-Allow-Methods") != "GET, POST, PUT, PATCH, DELETE, OPTIONS" ||
		h.Get("Access-Control-Max-Age") != "86400" || !strings.Contains(h.Get("Access-Control-Allow-Headers"),
		"Idempotency-Key") {
		t.Errorf("F103: %v", h)
	}
	w = r.do("GET /queues\nOrigin: https://evil.example")
	if w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Error("F103: another origin is allowed")
	}
	r.want("cross-origin",
		r.do("POST /jobs\nOrigin: https://evil.example\nSec-Fetch-Site: cross-site\n\n"+job), 403)
	r.want("cross-origin",
		r.do("POST /jobs\nOrigin: https://app.example\nSec-Fetch-Site: cross-site\n\n"+job), 201)
	req := httptest.NewRequest("GET", "http://evil.example/ojs/v1/queues", nil)
	rec := httptest.NewRecorder()
	r.srv.ServeHTTP(rec, req)
	r.want("Host", rec, 403, "error.code", "permission_denied")
	r = newRig(t)
	for host, status := range map[string]int{"evil.example": 403, "10.0.0.1:80": 403, "": 403,
		"localhost":    200,
		"127.0.0.1:80": 200, "[::1]:80": 200} {
		req := bindingtest.Request("GET /queues")
		req.Host = host
		rec := httptest.NewRecorder()
		r.srv.ServeHTTP(rec, req)
		r.want("Host, without an authenticator: "+host, rec, status)
	}
}

func TestLimits(t *testing.T) {
	c := clock.NewMock()
	r := newRig(t, server.WithClock(c), server.WithRequestRate(server.RequestRate{PerSecond: 0.5, Burst: 2}))
	for left := 1; left >= 0; left-- {
		w := r.do("GET /queues")
		r.want("F102", w, 200)
		if got := w.Header().Get("X-RateLimit-Remaining"); got != string(rune('0'+left)) {
			t.Errorf("F102: %q left, not %d", got, left)
		}
	}
	w := r.do("GET /queues")
	r.want("F102", w, 429, "error.code", "rate_limited", "error.retryable", true, "error.details.limit", 2,
		"error.details.window_seconds", 4, "error.details.retry_after_seconds", 2)
	if h := w.Header(); h.Get("Retry-After") != "2" || h.Get("X-RateLimit-Limit") != "2" ||
		h.Get("X-RateLimit-Reset") != "2" {
		t.Errorf("F032, F102: %v", h)
	}
	w = r.do("GET /health")
	if r.want("F102", w, 200); w.Header().Get("X-RateLimit-Limit") != "" {
		t.Error("F102: the health is limited")
	}
	c.Add(2 * time.Second)
	r.want("F102", r.do("GET /queues"), 200)
}

// Refusals count as requests, too, and have the headers (F102).
func TestRequestRateOfRefusals(t *testing.T) {
	keys, err := server.NewKeys(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, server.WithRequestRate(server.RequestRate{PerSecond: 0.5, Burst: 5}))
	closedTo := newRig(t, server.WithAuthenticator(keys),
		server.WithRequestRate(server.RequestRate{PerSecond: 0.5, Burst: 1}))
	for _, c := range []struct {
		request string
		status  int
		r       *rig
	}{{"GET /nothing", 404, r}, {"PUT /jobs", 405, r}, {"GET /queues\nOJS-Version: 2", 422, r},
		{"POST /jobs\n\n{}", 400, r}, {"GET /jobs/x", 404, r}, {"GET /queues", 429, r},
		{"GET /queues", 401, closedTo}, {"GET /queues", 429, closedTo}} {
		w := c.r.do(c.request)
		r.want("F102 "+c.request, w, c.status)
		for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			if w.Header().Get(name) == "" {
				t.Errorf("F102: %s: no %s", c.request, name)
			}
		}
	}
}

func TestListen(t *testing.T) {
	r := newRig(t)
	for address, ok := range map[string]bool{"127.0.0.1:80": true, "localhost:80": true, "[::1]:80": true,
		":80":        false,
		"0.0.0.0:80": false, "10.0.0.1:80": false, "example.com:80": false, "x": false} {
		if err := r.srv.CheckListen(address); (err == nil) != ok {
			t.Errorf("F192: %s: %v", address, err)
		}
	}
	keys, _ := server.NewKeys(nil)
	if err := newRig(t, server.WithAuthenticator(keys)).srv.CheckListen(":80"); err != nil {
		t.Errorf("F192: with an authenticator: %v", err)
	}
	hs := server.HTTPServer(r.srv)
	if hs.ReadHeaderTimeout != 30*time.Second || hs.IdleTimeout != 120*time.Second ||
		hs.MaxHeaderBytes != 64<<10 {
		t.Errorf("F194, F195: %+v", hs)
	}
}

// A storage alone is read and operated. Enqueues and fetches are refused.
func TestStorageAlone(t *testing.T) {
	st := bindingtest.Fresh(t)
	t.Cleanup(func() { st.Close() })
	srv, err := server.NewWithoutEngine(st, clock.New())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, srv: srv, vars: map[string]string{}}
	r.want("F029", r.do("POST /jobs\n\n"+job), 422, "error.code", "unsupported")
	r.want("F029", r.do("POST /workers/fetch\n\n"+`{"queues":["a"]}`), 422, "error.code", "unsupported")
	r.want("F090", r.do("POST /queues/a/pause"), 200, "paused", true)
	r.want("F100", r.do("GET /ojs/manifest"), 200, "capabilities.batch_enqueue", false,
		"capabilities.pause_resume", true)
	r.want("F101", r.do("GET /health"), 200, "queues.paused", 1)
	st.Close()
	r.want("F101", r.do("GET /health"), 503, "status", "degraded", "backend.status", "disconnected")
	r.want("F031", r.do("GET /queues"), 503, "error.code", "backend_error", "error.retryable", true)
}

// Neither answers nor lines of the log repeat args, meta, results or credentials.
func TestNothingLeaks(t *testing.T) {
	var log bytes.Buffer
	const secret = "s3cr3t-value"
	r := newRig(t, server.WithLogger(slog.New(slog.NewTextHandler(&log,
		&slog.HandlerOptions{Level: slog.LevelDebug}))),
		server.WithLimits(server.Limits{Args: 200, Meta: 100}))
	deep := strings.Repeat("[", 40) + `"` + secret + `"` + strings.Repeat("]", 40)
	for _, body := range []string{`{"type":"a","args":{"k":"` + secret + `"}}`, `{"type":"a","args":` + deep +
		`}`,
		`{"type":"a","args":[],"meta":"` + secret + `"}`, `{"type":"a","args":["` + secret +
			strings.Repeat("x", 300) + `"]}`,
		`{"type":"a","args":[],"meta":{"k":` + deep + `}}`,
		`{"type":"a","args":["` + secret + `"],"options":{"unique":{"key":["none"]}}}`,
		`{"type":"a","args":["` + secret + `"`} {
		w := r.do("POST /jobs\nAuthorization: Bearer " + secret + "\n\n" + body)
		if w.Code < 400 || strings.Contains(w.Body.String(), secret) {
			t.Errorf("F021: %d %s", w.Code, w.Body)
		}
	}
	if strings.Contains(log.String(), secret) {
		t.Errorf("F197: %s", &log)
	}
}

// deadlines notes the deadlines of a connection.
type deadlines struct {
	*httptest.ResponseRecorder
	log []string
}

func (d *deadlines) note(what string, t time.Time) error {
	if t.IsZero() {
		what = "no " + what
	}
	d.log = append(d.log, what)
	return nil
}

func (d *deadlines) SetReadDeadline(t time.Time) error  { return d.note("read", t) }
func (d *deadlines) SetWriteDeadline(t time.Time) error { return d.note("write", t) }

// A connection has a deadline for the body before anything is known of its caller, and
// one for each write, on routes that wait too (F195).
func TestDeadlines(t *testing.T) {
	keys, _ := server.NewKeys(nil)
	for name, tt := range map[string]struct {
		opts    []server.Option
		request string
		want    string
	}{
		"an unknown caller": {[]server.Option{server.WithAuthenticator(keys)}, "POST /jobs\n\n" + job,
			"[read write no write]"},
		"a route that waits": {nil, "POST /jobs\n\n" + job, "[read no read write no write]"},
		"no body":            {nil, "GET /queues", "[write no write]"},
	} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		newRig(t, tt.opts...).srv.ServeHTTP(w, bindingtest.Request(tt.request))
		if got := fmt.Sprint(w.log); got != tt.want {
			t.Errorf("F195: %s: deadlines %s, not %s", name, got, tt.want)
		}
	}
}
