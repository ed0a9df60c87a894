package server_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// twoServers are two servers over one storage, whose engines have one clock.
func twoServers(t *testing.T, opts ...server.Option) (mock *clock.Mock, a, b *rig) {
	t.Helper()
	mock, st := clock.NewMock(), bindingtest.Fresh(t)
	t.Cleanup(func() { st.Close() })
	one := func() *rig {
		eng, err := engine.New[any](st, append(engineOptions(), engine.WithClock(mock))...) // and no Run
		if err != nil {
			t.Fatal(err)
		}
		srv, err := server.New(eng, append(opts, server.WithClock(mock))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closed(t, srv) })
		return &rig{t: t, srv: srv, vars: make(map[string]string), store: st}
	}
	return mock, one(), one()
}

// The reports of a worker to one server hold for all servers of the storage.
func TestWorkerOfTwoServers(t *testing.T) {
	mock, a, b := twoServers(t)
	a.want("F078", a.do("POST /workers/register\n\n"+
		`{"worker_id":"w","hostname":"h","handlers":[{"type":"a","versions":">=2.0"}]}`), 200)
	b.want("F147: a worker of another server", b.do("GET /admin/workers"), 200, "items.0.id", "w",
		"items.0.hostname", "h", "items.0.state", "running", "summary.total", 1)
	b.want("F181", b.do("GET /workers/w/health"), 200, "status", "ok")
	a.do("POST /jobs\n\n" + `{"type":"a@1.0","args":[]}`)
	b.want("V004: handlers of another server", b.fetch("w"), 200, "jobs", []any{})
	mock.Add(29 * time.Second)
	a.do("POST /workers/heartbeat\n\n" + `{"worker_id":"w"}`)
	mock.Add(29 * time.Second)
	b.want("F147: it lives", b.do("DELETE /admin/workers/w"), 409, "error.details.current_state", "running")
	a.want("F147", a.do("POST /admin/workers/w/quiet"), 200, "state", "quiet")
	b.want("F068: quiet by another server", b.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w"}`), 200,
		"directive", "quiet")
	a.do("POST /jobs\n\n" + `{"type":"a@2.0","args":[]}`)
	b.want("F063", b.fetch("w"), 200, "jobs", []any{})
	a.want("F147", a.do("GET /admin/workers/w"), 200, "state", "quiet", "hostname", "h")
	mock.Add(31 * time.Second)
	b.want("F147", b.do("DELETE /admin/workers/w"), 200, "deleted", true)
	a.want("F147: removed by another server", a.do("GET /admin/workers/w"), 404)
	a.want("F181", a.do("GET /workers/w/health"), 404)
}

// A reservation that a fetch has asked for is renewed for the same length by another
// server (F065), and its end tells when the worker was heard of (F147).
func TestReservationOfTwoServers(t *testing.T) {
	for _, lease := range []time.Duration{time.Minute, time.Hour} {
		mock, a, b := twoServers(t)
		a.enqueue("A", job)
		a.want("F060", a.do("POST /workers/fetch\n\n"+fmt.Sprintf(
			`{"queues":["default"],"worker_id":"w","visibility_timeout_ms":%d}`, lease.Milliseconds())), 200)
		b.vars = a.vars
		mock.Add(20 * time.Second)
		b.want("F077", b.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w","active_jobs":["$A"]}`), 200,
			"jobs_extended.0", a.vars["A"])
		until := b.leaseOf("A")
		if got := until.Sub(mock.Now()); got != lease {
			t.Errorf("F065: another server renews for %v, not %v", got, lease)
		}
		b.want("F147: it lives", b.do("DELETE /admin/workers/w"), 409)
		mock.Add(31 * time.Second)
		a.want("F147", a.do("DELETE /admin/workers/w"), 200, "jobs_recovered", 1)
	}
}

// A fetch that asks for a short reservation shortens no other of the same worker, at
// another server either (F065).
func TestReservationsOfOneWorker(t *testing.T) {
	mock, a, b := twoServers(t)
	a.enqueue("A", job)
	a.want("F060", a.fetch("w"), 200, "jobs.0.id", a.vars["A"])
	a.enqueue("B", job)
	a.want("F060", a.do("POST /workers/fetch\n\n"+
		`{"queues":["default"],"worker_id":"w","visibility_timeout_ms":5000}`), 200, "jobs.0.id", a.vars["B"])
	b.vars = a.vars
	mock.Add(2 * time.Second)
	b.want("F077", b.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w","active_jobs":["$A","$B"]}`), 200,
		"jobs_lost", []any{})
	for name, want := range map[string]time.Duration{"A": 30 * time.Minute, "B": 5 * time.Second} {
		if got := b.leaseOf(name).Sub(mock.Now()); got != want {
			t.Errorf("F065: %s is renewed for %v, not %v", name, got, want)
		}
	}
}

// leaseOf is when the reservation of a job ends.
func (r *rig) leaseOf(name string) time.Time {
	rec, err := r.store.Get(r.t.Context(), r.vars[name])
	if err != nil {
		r.t.Fatal(err)
	}
	return rec.LeaseUntil
}

// A worker is its principal's at every server (F193).
func TestOwnerOfTwoServers(t *testing.T) {
	var list []server.Key
	var header []string
	for i, name := range []string{"one", "two", "producer"} {
		role := server.RoleWorker
		if i == 2 {
			role = server.RoleProducer
		}
		key, hash := server.NewKey()
		header = append(header, "Authorization: Bearer "+key+"\n\n")
		list = append(list, server.Key{Name: name, Hash: hash,
			Grants: []server.Grant{{Role: role, Queues: []string{"q"}}}})
	}
	keys, err := server.NewKeys(nil, list...)
	if err != nil {
		t.Fatal(err)
	}
	_, a, b := twoServers(t, server.WithAuthenticator(keys))
	a.want("F078", a.do("POST /workers/register\n"+header[0]+`{"worker_id":"w"}`), 200)
	b.want("F193", b.do("POST /workers/heartbeat\n"+header[1]+`{"worker_id":"w"}`), 403)
	b.want("F193", b.do("POST /workers/deregister\n"+header[1]+`{"worker_id":"w"}`), 403)
	for _, more := range []string{"", `,"handlers":[{"type":"x"}]`, `,"visibility_timeout_ms":5000`} {
		b.want("F193"+more, b.do("POST /workers/fetch\n"+header[1]+
			`{"worker_id":"w","queues":["q"]`+more+`}`), 403)
	}
	a.want("F041", a.do("POST /jobs\n"+header[2]+`{"type":"a","args":[],"queue":"q"}`), 201)
	b.want("F193: its handlers are as before", b.do("POST /workers/fetch\n"+header[0]+
		`{"worker_id":"w","queues":["q"]}`), 200, "jobs.0.type", "a")
	b.want("F193", b.do("POST /workers/heartbeat\n"+header[0]+`{"worker_id":"w"}`), 200)
}

// A storage keeps a bounded number of workers, and a bounded report of each (F078).
func TestManyWorkers(t *testing.T) {
	st := &storagetest.Faulty{Storage: bindingtest.Fresh(t)}
	r := rigOf(t, enginetest.NewOn[any](t, st, engineOptions()...))
	register := func(id, more string) *httptest.ResponseRecorder {
		return r.do("POST /workers/register\n\n" + `{"worker_id":"` + id + `"` + more + `}`)
	}
	r.want("F078", register("known", ""), 200)
	r.want("F101", r.do("GET /health"), 200, "workers.total", 1, "workers.active", 1)
	large := `,"handlers":[` + strings.Repeat(`{"type":"`+strings.Repeat("a", 200)+`"},`, 500) +
		`{"type":"b"}]`
	r.want("F028", register("known", large), 413, "error.code", "payload_too_large")
	for n := 1; n < 10_000; n += 999 {
		var list []storage.Document
		for i := n; i < n+999 && i < 10_000; i++ {
			list = append(list, storage.Document{Name: fmt.Sprint("server/worker/", i),
				Due: r.eng.Now().Add(time.Hour), Data: fmt.Appendf(nil, `{"id":"w%d"}`, i)})
		}
		if _, err := st.Storage.PutDocuments(t.Context(), storage.KindValue, list); err != nil {
			t.Fatal(err)
		}
	}
	r.advance(10 * time.Second)
	read := 0
	st.OnCall(func(c *storagetest.Call) {
		if c.Method == "Documents value" && c.In.(storage.DocumentQuery).Prefix == "server/worker/" {
			read++
		}
	})
	r.want("F101", r.do("GET /health"), 200, "workers.total", 10_000, "workers.active", 1)
	before := read
	r.want("F078", register("new", ""), 429, "error.code", "rate_limited", "error.retryable", true)
	r.want("F078", r.do("POST /workers/deregister\n\n"+`{"worker_id":"other"}`), 429)
	r.want("F078", r.do("POST /workers/fetch\n\n"+
		`{"worker_id":"newer","queues":["q"],"visibility_timeout_ms":5000}`), 429)
	r.want("F078: one that is known", register("known", `,"hostname":"h"`), 200)
	r.advance(9 * time.Second)
	r.want("F101", r.do("GET /health"), 200, "workers.total", 10_000)
	if read != before {
		t.Errorf("F101: the workers are read %d times in 9 s", read-before)
	}
	r.advance(time.Hour) // all have expired
	r.want("F078", register("new", ""), 200)
	st.OnCall(nil)
}

// A call whose worker is changed by other calls all the time is refused, and ends (F031).
func TestWorkerThatOthersChange(t *testing.T) {
	st := &storagetest.Faulty{Storage: bindingtest.Fresh(t)}
	r := rigOf(t, enginetest.NewOn[any](t, st, engineOptions()...))
	st.OnCall(func(c *storagetest.Call) {
		if c.Method == "PutDocuments value" {
			d := c.In.([]storage.Document)[0]
			d.Version, d.Data = storage.AnyVersion, []byte(`{"id":"w"}`)
			_, _ = st.Storage.PutDocuments(c.Context, storage.KindValue, []storage.Document{d})
		}
	})
	r.want("F031", r.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w","hostname":"h"}`), 503,
		"error.retryable", true)
	st.OnCall(nil)
}

// Of clients that set the same new recurring job at two servers, one has made it (F092).
func TestCronOfTwoServers(t *testing.T) {
	_, a, b := twoServers(t)
	for n := range 20 {
		codes := make(chan int)
		for i := range 6 {
			go func() {
				w := httptest.NewRecorder()
				[]*rig{a, b}[i%2].srv.ServeHTTP(w, bindingtest.Request(fmt.Sprintf("POST /cron\n\n"+
					`{"name":"c%d","cron":"* * * * *","type":"a","args":[]}`, n)))
				codes <- w.Code
			}()
		}
		made := 0
		for range 6 {
			if <-codes == 201 {
				made++
			}
		}
		if made != 1 {
			t.Fatalf("F092: made %d times", made)
		}
	}
}
