package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/server"
)

// sockets are WebSocket connections in memory.
type sockets struct{ conns chan *socket }

func newSockets() sockets { return sockets{make(chan *socket, 1)} }

func (s sockets) Accept(http.ResponseWriter, *http.Request, string) (server.WebSocket, error) {
	conn := &socket{in: make(chan string), out: make(chan string), pongs: make(chan struct{}),
		pings: make(chan struct{}, 10), closed: make(chan int, 1)}
	s.conns <- conn
	return conn, nil
}

// socket is one of them. A message that the test does not read blocks the server.
type socket struct {
	t            *testing.T
	r            *rig
	in, out      chan string
	pings, pongs chan struct{}
	closed       chan int
	end          func()
}

func (s *socket) Read(ctx context.Context) ([]byte, error) {
	select {
	case m, ok := <-s.in:
		if !ok {
			return nil, errors.New("gone")
		}
		return []byte(m), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *socket) Write(ctx context.Context, text []byte) error {
	select {
	case s.out <- string(text):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *socket) Ping(ctx context.Context) error {
	s.pings <- struct{}{}
	select {
	case <-s.pongs:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *socket) Close(code int, _ string) error {
	s.closed <- code
	return nil
}

const upgrade = "Connection: keep-alive, Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\n" +
	"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\n"

// connect opens a connection.
func (r *rig) connect(from sockets, header string) *socket {
	r.t.Helper()
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w := httptest.NewRecorder()
		r.srv.ServeHTTP(w, bindingtest.Request("GET /ws\n"+upgrade+header))
		done <- w
	}()
	select {
	case conn := <-from.conns:
		conn.t, conn.r = r.t, r
		conn.end = func() { close(conn.in); <-done }
		return conn
	case w := <-done:
		r.t.Fatalf("F131: %d %s", w.Code, w.Body)
		return nil
	}
}

// tell sends a message.
func (s *socket) tell(text string) {
	s.in <- os.Expand(text, func(name string) string { return s.r.vars[name] })
}

// want reads messages. Each has the members given, which are JSON.
func (s *socket) want(rule string, messages ...string) (list []map[string]any) {
	s.t.Helper()
	for _, want := range messages {
		want = os.Expand(want, func(name string) string { return s.r.vars[name] })
		var wanted, got map[string]any
		if err := json.Unmarshal([]byte(want), &wanted); err != nil {
			s.t.Fatalf("%s: %v", want, err)
		}
		text := <-s.out
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			s.t.Fatalf("%s: %v: %s", rule, err, text)
		}
		for name, v := range wanted {
			if v == "*" && got[name] != nil {
				continue
			}
			if fmt.Sprint(got[name]) != fmt.Sprint(v) {
				s.t.Fatalf("%s: %s is %v, not %v: %s", rule, name, got[name], v, text)
			}
		}
		list = append(list, got)
	}
	return list
}

func TestSockets(t *testing.T) {
	from := newSockets()
	r := newRig(t, server.WithWebSockets(from))
	r.enqueue("A", `{"type":"a","args":[],"options":{"queue":"q"}}`)
	s := r.connect(from, "")
	for _, bad := range [][2]string{{"x", "invalid_payload"}, {"[]", "invalid_payload"},
		{`{}`, "invalid_request"}, {`{"action":"fly"}`, "invalid_request"},
		{`{"action":"subscribe"}`, "invalid_request"},
		{`{"action":"subscribe","channel":"x"}`, "invalid_request"},
		{`{"action":"subscribe","channel":"job:17"}`, "not_found"},
		{`{"action":"subscribe","channel":"queue:none"}`, "not_found"},
		{`{"action":"subscribe","channel":"all","event_types":"a"}`, "invalid_request"},
		{`{"action":"unsubscribe","channel":"all"}`, "not_found"},
		{`{"action":"resume"}`, "invalid_request"},
		{`{"action":"resume","last_event_id":"evt_1"}`, "unknown_event_id"}} {
		s.tell(bad[0])
		s.want("F131, F132: "+bad[0], `{"type":"error","code":"`+bad[1]+`","message":"*"}`)
	}
	s.tell(`{"action":"subscribe","channel":"job:$A"}`)
	s.want("F131", `{"type":"subscribed","action":"subscribed","channel":"job:$A"}`)
	s.tell(`{"action":"subscribe","channel":"queue:q","event_types":["job.started","job.completed"]}`)
	s.want("F131", `{"type":"subscribed","channel":"queue:q","event_types":["job.started","job.completed"]}`)
	r.do("POST /workers/fetch\n\n" + `{"queues":["q"],"worker_id":"w"}`)
	got := s.want("F131",
		`{"type":"event","channel":"job:$A","event":"job.state_changed","id":"*","timestamp":"*"}`,
		`{"type":"event","channel":"job:$A","event":"job.started"}`,
		`{"type":"event","channel":"queue:q","event":"job.started"}`)
	if data := got[0]["data"].(map[string]any); data["from"] != "available" || data["to"] != "active" ||
		got[1]["data"].(map[string]any)["job_id"] != r.vars["A"] || got[1]["id"] != got[2]["id"] {
		t.Errorf("F131: %v", got)
	}
	r.vars["UPPER"] = strings.ToUpper(r.vars["A"])
	s.tell(`{"action":"unsubscribe","channel":"job:$UPPER"}`)
	s.want("F131", `{"type":"unsubscribed","channel":"job:$A"}`)
	s.tell(`{"action":"subscribe","channel":"queue:q","event_types":["job.state_changed"]}`)
	s.want("F131: it replaces the filter", `{"type":"subscribed","channel":"queue:q"}`)
	r.do("POST /workers/ack\n\n" + `{"job_id":"` + r.vars["A"] + `"}`)
	s.want("F131: it replaces the filter", `{"type":"event","channel":"queue:q","event":"job.state_changed"}`)
	s.tell(`{"action":"unsubscribe","channel":"queue:q"}`)
	s.want("F131", `{"type":"unsubscribed"}`)
	s.tell(`{"action":"subscribe","channel":"events",
		"filter":{"event_types":["job.*"],"queues":["q"],"job_types":["a"]}}`)
	id := s.want("F180",
		`{"type":"subscribed","action":"subscribed","channel":"events","subscription_id":"*"}`)[0]
	r.enqueue("B", `{"type":"b","args":[],"options":{"queue":"q"}}`)
	r.enqueue("C", `{"type":"a","args":[],"options":{"queue":"q"}}`)
	s.want("F180: whole envelopes",
		`{"specversion":"1.0","type":"job.enqueued","id":"*","source":"*","subject":"$C"}`)
	s.tell(`{"action":"unsubscribe","subscription_id":"` + id["subscription_id"].(string) + `"}`)
	s.want("F180", `{"type":"unsubscribed","subscription_id":"*"}`)
	for range 100 {
		s.tell(`{"action":"subscribe","channel":"events"}`)
		s.want("F130", `{"type":"subscribed"}`)
	}
	s.tell(`{"action":"subscribe","channel":"events"}`)
	s.want("F130: a connection is bounded", `{"type":"error","code":"rate_limited"}`)
	s.end()
}

// A connection that comes back has each event once that it has missed, and then those
// that follow (F132).
func TestSocketResumes(t *testing.T) {
	from := newSockets()
	r := newRig(t, server.WithWebSockets(from), server.WithEventRetention(server.EventRetention{Count: 6}))
	s := r.connect(from, "")
	s.tell(`{"action":"subscribe","channel":"all","event_types":["job.enqueued"]}`)
	s.want("F131", `{"type":"subscribed"}`)
	r.enqueue("A", job)
	last := s.want("F131", `{"type":"event","event":"job.enqueued"}`)[0]["id"].(string)
	s.end()
	if code := <-s.closed; code != 1000 {
		t.Errorf("F131: closed with %d", code)
	}
	r.enqueue("B", job)
	r.enqueue("C", job)
	s = r.connect(from, "")
	s.tell(`{"action":"subscribe","channel":"all","event_types":["job.enqueued"]}`)
	s.want("F131", `{"type":"subscribed"}`)
	r.enqueue("D", job)
	r.do("GET /events?limit=1")
	s.want("F132", `{"type":"event"}`) // D waits already
	s.tell(`{"action":"resume","last_event_id":"` + last + `"}`)
	for _, name := range []string{"B", "C"} {
		got := s.want("F132", `{"type":"event","event":"job.enqueued"}`)
		if got[0]["data"].(map[string]any)["job_id"] != r.vars[name] {
			t.Errorf("F132: %v and not %s", got, name)
		}
	}
	r.enqueue("E", job)
	got := s.want("F132: and none twice", `{"type":"event","event":"job.enqueued"}`)
	if got[0]["data"].(map[string]any)["job_id"] != r.vars["E"] {
		t.Errorf("F132: %v", got)
	}
	for i := range 9 {
		r.enqueue(fmt.Sprint("F", i), job)
		s.want("F131", `{"type":"event"}`)
	}
	s.tell(`{"action":"resume","last_event_id":"` + last + `"}`)
	s.want("F132: dropped", `{"type":"error","code":"unknown_event_id"}`)
	s.end()
}

// A connection has one replay at a time, and is told what the feed drops meanwhile
// (F132).
func TestOneReplay(t *testing.T) {
	from, mock := newSockets(), clock.NewMock()
	r := newRig(t, server.WithWebSockets(from), server.WithClock(mock),
		server.WithEventRetention(server.EventRetention{Count: 60}))
	enqueue := func(n int) {
		drafts := make([]ojs.Draft, n)
		for i := range drafts {
			drafts[i] = ojs.NewDraft("a", i)
		}
		if _, err := r.eng.EnqueueMany(t.Context(), drafts...); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(61)
	last := member(t, r.do("GET /events?limit=1"), "events.0.id").(string)
	s := r.connect(from, "")
	s.tell(`{"action":"subscribe","channel":"all","event_types":["job.enqueued"]}`)
	s.want("F131", `{"type":"subscribed"}`)
	resume := `{"action":"resume","last_event_id":"` + last + `"}`
	s.tell(resume)
	text := <-s.out
	s.tell(resume)
	seen := 0
	for ; strings.Contains(text, `"type":"event"`); text = <-s.out {
		seen++
		runtime.Gosched() // for the goroutine that has the second resume
	}
	if !strings.Contains(text, `"code":"conflict"`) {
		t.Fatalf("F132: a resume during a replay, after %d events: %s", seen, text)
	}
	text = <-s.out // the next is read from the feed before the events below drop it
	enqueue(200)
	r.do("GET /events?limit=1")
	dropped := 0.0
	for ; !strings.Contains(text, `"code":"events_dropped"`); text = <-s.out {
		seen++
	}
	var m struct{ Count float64 }
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	dropped += m.Count
	if n := seen + int(dropped); n != 59 && n != 60 { // with the engine's own worker.started
		t.Errorf("F132: %d events and %v dropped, not 59", seen, dropped)
	}
	s.end()
}

// A connection ends once its key is revoked, and follows the grants of its key (F130,
// F191).
func TestRevokedKeyEndsConnections(t *testing.T) {
	for _, ping := range []bool{false, true} {
		from, mock := newSockets(), clock.NewMock()
		secret, hash := server.NewKey()
		key := server.Key{Name: "n", Hash: hash, Grants: []server.Grant{{Role: server.RoleAdmin}}}
		keys, err := server.NewKeys(nil, key)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, server.WithWebSockets(from), server.WithAuthenticator(keys), server.WithClock(mock))
		bearer := "Authorization: Bearer " + secret + "\n"
		grant := func(queue string) {
			key.Grants = []server.Grant{{Role: server.RoleAdmin, Queues: []string{queue}}}
			if err := keys.Set(key); err != nil {
				t.Fatal(err)
			}
		}
		r.want("F041", r.do("POST /jobs\n"+bearer+"\n"+job), 201)
		s := r.connect(from, bearer)
		s.tell(`{"action":"subscribe","channel":"queue:default"}`)
		s.want("F131", `{"type":"subscribed"}`)
		grant("default")
		s.tell(`{"action":"subscribe","channel":"all"}`)
		s.want("F130: by the new grants", `{"type":"error","code":"permission_denied"}`)
		if grant("other"); ping {
			keys.Revoke(hash)
			mock.Add(30 * time.Second)
		} else {
			s.tell(`{"action":"unsubscribe","channel":"queue:default"}`)
		}
		if code := <-s.closed; code != 1008 {
			t.Errorf("F130, F191: closed with %d", code)
		}
		s.end()
	}
}

// A client that does not read gets the latest events, and is told how many it has missed
// (F128, F132).
func TestSlowSocket(t *testing.T) {
	from, mock := newSockets(), clock.NewMock()
	r := newRig(t, server.WithWebSockets(from), server.WithClock(mock))
	s := r.connect(from, "")
	s.tell(`{"action":"subscribe","channel":"all","event_types":["job.enqueued"]}`)
	s.want("F131", `{"type":"subscribed"}`)
	drafts := make([]ojs.Draft, 1200)
	for i := range drafts {
		drafts[i] = ojs.NewDraft("a", i)
	}
	if _, err := r.eng.EnqueueMany(t.Context(), drafts...); err != nil {
		t.Fatal(err)
	}
	r.do("GET /events?limit=1") // the feed has taken them all
	events, lost := 0, 0.0
	for float64(events)+lost < 1200 {
		select {
		case text := <-s.out:
			var m struct {
				Type, Code string
				Count      float64
			}
			if err := json.Unmarshal([]byte(text), &m); err != nil {
				t.Fatal(err)
			}
			if m.Type == "warning" && m.Code == "events_dropped" {
				lost += m.Count
			} else {
				events++
			}
		default:
			mock.Add(10 * time.Millisecond)
			runtime.Gosched()
		}
	}
	if lost < 199 || events > 1001 {
		t.Errorf("F128, F132: %d events, %v dropped", events, lost)
	}
	s.end()
}

// A connection without an answer to a ping ends (F132), and so does one of a server that
// stops (F129).
func TestSocketEnds(t *testing.T) {
	from, mock := newSockets(), clock.NewMock()
	r := newRig(t, server.WithWebSockets(from), server.WithClock(mock))
	s := r.connect(from, "")
	s.tell(`{"action":"fly"}`) // so that it is served
	<-s.out
	mock.Add(30 * time.Second)
	<-s.pings
	s.pongs <- struct{}{}
	mock.Add(30 * time.Second)
	<-s.pings
	for len(s.closed) == 0 {
		mock.Add(time.Second)
		runtime.Gosched()
	}
	s.end()

	s = r.connect(from, "")
	s.tell(`{"action":"subscribe","channel":"all"}`)
	s.want("F131", `{"type":"subscribed"}`)
	go closed(t, r.srv)
	got := s.want("F129", `{"type":"event","event":"server.shutdown","id":"*"}`)
	if got[0]["data"].(map[string]any)["grace_period_ms"] != 5000.0 {
		t.Errorf("F129: %v", got)
	}
	if code := <-s.closed; code != 1001 {
		t.Errorf("F129: closed with %d", code)
	}
	s.end()
}

// A connection needs what a stream needs, and the pages of other origins open none (F130,
// F132).
func TestSocketAccess(t *testing.T) {
	from := newSockets()
	key, hash := server.NewKey()
	keys, err := server.NewKeys(nil, server.Key{Name: "n", Hash: hash,
		Grants: []server.Grant{{Role: server.ScopeDataRead, Queues: []string{"q"}}}})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, server.WithWebSockets(from), server.WithAuthenticator(keys),
		server.WithOrigins("https://ok.example.org"))
	bearer := "Authorization: Bearer " + key + "\n"
	r.want("F025", r.do("GET /ws\n"+upgrade), 401)
	for _, origin := range []string{"https://evil.example.org", "null"} {
		r.want("F132: Origin", r.do("GET /ws\n"+upgrade+bearer+"Origin: "+origin), 403)
	}
	r.want("F131: no upgrade", r.do("GET /ws\n"+bearer), 426, "error.code", "invalid_request")
	w := r.do("GET /ws\n" + strings.Replace(upgrade, "13", "8", 1) + bearer)
	r.want("F131: another version", w, 426)
	if w.Header().Get("Sec-WebSocket-Version") != "13" {
		t.Errorf("F131: %v", w.Header())
	}
	s := r.connect(from, bearer+"Origin: https://ok.example.org")
	for _, refused := range []string{"all", "queue:other"} {
		s.tell(`{"action":"subscribe","channel":"` + refused + `"}`)
		s.want("F130", `{"type":"error","code":"permission_denied"}`)
	}
	s.tell(`{"action":"subscribe","channel":"events","filter":{"queues":["other"]}}`)
	s.want("F130", `{"type":"error","code":"permission_denied"}`)
	s.tell(`{"action":"subscribe","channel":"events"}`) // of the queues that it may see
	s.want("F180", `{"type":"subscribed"}`)
	for _, queue := range []string{"other", "q"} {
		if _, err := r.eng.Enqueue(t.Context(), "a", nil, ojs.WithQueue(queue)); err != nil {
			t.Fatal(err)
		}
	}
	got := s.want("F130", `{"type":"job.enqueued"}`)
	if got[0]["data"].(map[string]any)["queue"] != "q" {
		t.Errorf("F130: %v", got)
	}
	var more []*socket
	for range 99 {
		more = append(more, r.connect(from, bearer))
	}
	r.want("F130, F196: 100 of a client", r.do("GET /ws\n"+upgrade+bearer), 429, "error.retryable", true)
	for _, m := range append(more, s) {
		m.end()
	}
	none := newRig(t)
	none.want("F029", none.do("GET /ws\n"+upgrade), 422, "error.code", "unsupported")
}
