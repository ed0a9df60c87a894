package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// fleetRig is a server of a fleet over storages that can fail.
type fleetRig struct {
	*rig
	fleet  *fleet.Fleet[any]
	cells  map[string]*engine.Engine[any]
	stores map[string]*storagetest.Faulty
}

func newFleet(t *testing.T, opts ...server.Option) *fleetRig {
	t.Helper()
	r := &fleetRig{cells: make(map[string]*engine.Engine[any]), stores: make(map[string]*storagetest.Faulty)}
	var cfg fleet.Config
	for _, name := range []string{"a", "b", "c"} {
		st := &storagetest.Faulty{Storage: bindingtest.Fresh(t)}
		t.Cleanup(func() { st.Close() })
		r.stores[name] = st
		cfg.Cells = append(cfg.Cells, fleet.Cell{Name: name, Store: st})
	}
	f, err := fleet.New[any](cfg, engineOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	for name, eng := range f.Engines() {
		r.cells[name] = eng
	}
	srv, err := server.NewFleet(f, append([]server.Option{
		server.WithCellKeys(server.CellKeys{Meta: "tenant"})}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, srv) })
	r.fleet, r.rig = f, &rig{t: t, srv: srv, vars: make(map[string]string)}
	return r
}

var errDown = errors.New("the cell is down")

func (r *fleetRig) kill(cell string) {
	r.stores[cell].OnCall(func(c *storagetest.Call) { c.Err = errDown })
}

// keyOf is a key of a cell.
func (r *fleetRig) keyOf(cell string) string {
	r.t.Helper()
	m, err := r.fleet.Map(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; ; i++ {
		if key := fmt.Sprint("t", i); m.Cell(fleet.Partition(key)) == cell {
			return key
		}
	}
}

// cellOf is where a job is.
func (r *fleetRig) cellOf(id any) (names string) {
	for name, eng := range r.cells {
		if _, err := eng.Get(r.t.Context(), fmt.Sprint(id)); err == nil {
			names += name
		}
	}
	return names
}

// jobs counts the jobs of all cells.
func (r *fleetRig) jobs() (n int) {
	for _, st := range r.stores {
		list, err := st.Storage.List(context.Background(), storage.Query{Limit: 1000})
		if err != nil {
			r.t.Fatal(err)
		}
		n += len(list.Records)
	}
	return n
}

// keyed is a job with the key of a cell in its meta.
func (r *fleetRig) keyed(cell string) string {
	return `{"type":"a","args":[],"meta":{"tenant":"` + r.keyOf(cell) + `"}}`
}

// A job is in the cell of its key, which is in meta or in the header, and its id says so.
func TestFleetPlacement(t *testing.T) {
	r := newFleet(t)
	in := func(what string, w *httptest.ResponseRecorder, path, key, cell string) {
		t.Helper()
		id := member(t, w, path)
		if got := r.cellOf(id); got != cell {
			t.Errorf("%s: job %v is in cell %q, not %s: %s", what, id, got, cell, w.Body)
		}
		p, _ := fleet.PartitionOf(fmt.Sprint(id))
		if what != "bulk" && p != fleet.Partition(key) { // that id follows from the idempotency key
			t.Errorf("%s: id %v has partition %d", what, id, p)
		}
	}
	for cell := range r.cells {
		key := r.keyOf(cell)
		header := "\nOJS-Cell-Key: " + key + "\n\n"
		in("meta", r.do("POST /jobs\n\n"+r.keyed(cell)), "job.id", key, cell)
		in("header", r.do("POST /jobs"+header+job), "job.id", key, cell)
		other := r.keyOf(map[string]string{"a": "b", "b": "c", "c": "a"}[cell])
		in("both", r.do("POST /jobs\nOJS-Cell-Key: "+other+"\n\n"+r.keyed(cell)), "job.id", key, cell)
		in("batch", r.do("POST /jobs/batch"+header+`{"jobs":[`+job+`,`+job+`]}`), "jobs.1.id", key, cell)
		in("bulk", r.do("POST /jobs/bulk\nIdempotency-Key: "+cell+header[:len(header)-1]+"\n"+
			`{"jobs":[`+job+`]}`), "items.0.job.id", key, cell)
		w := r.do("POST /workflows" + header + `{"type":"chain","steps":[` + job + `,` + job + `]}`)
		r.want("W021 "+cell, w, 201)
		if got := r.cellOf(member(t, w, "workflow.id")); got != cell {
			t.Errorf("a workflow of cell %s is in %q: %s", cell, got, w.Body)
		}
	}
	for range 20 {
		r.want("F041: no key", r.do("POST /jobs\n\n"+job), 201)
	}
	r.want("F022", r.do("POST /jobs\n\n"+`{"type":"a","args":[],"meta":{"tenant":7}}`), 400,
		"error.details.field", "meta.tenant")
	r.want("F022", r.do("POST /jobs?cell=d\n\n"+job), 400, "error.details.expected", "a, b, c")
	r.want("the cell is named", r.do("POST /jobs?cell=b\n\n"+job), 201)
	r.want("another cell is named", r.do("POST /jobs?cell=b\n\n"+r.keyed("a")), 422, "error.code",
		"unsupported")
	// Equal unique jobs meet in one cell.
	unique := `{"type":"u","args":[1],"options":{"unique":{"keys":["args"],"on_conflict":"reject"}}}`
	r.want("F041", r.do("POST /jobs\n\n"+unique), 201)
	r.want("F027", r.do("POST /jobs\n\n"+unique), 409)
}

// Jobs of several cells are refused together, and nothing is stored. A partial bulk
// stores each in its cell (F111).
func TestFleetBatches(t *testing.T) {
	r := newFleet(t)
	both := `{"jobs":[` + r.keyed("a") + `,` + r.keyed("b") + `]`
	r.want("F049", r.do("POST /jobs/batch\n\n"+both+`}`), 422, "error.code", "unsupported",
		"error.details.index", 1)
	w := r.do("POST /jobs/bulk\n\n" + both + `,"atomicity":"atomic"}`)
	r.want("F111", w, 422, "succeeded", 0, "items.0.status", "failed", "items.1.status", "failed")
	if n := r.jobs(); n != 0 {
		t.Fatalf("F111: %d jobs are stored", n)
	}
	for range 2 {
		w = r.do("POST /jobs/bulk\nIdempotency-Key: k\n\n" + both[:len(both)-1] + `,` + job + `]}`)
		r.want("F110", w, 201, "succeeded", 3)
	}
	for i, cell := range []string{"a", "b"} {
		if got := r.cellOf(member(t, w, fmt.Sprintf("items.%d.job.id", i))); got != cell {
			t.Errorf("F110: item %d is in cell %q, not %s", i, got, cell)
		}
	}
	if n := r.jobs(); n != 3 {
		t.Errorf("F117: %d jobs are stored", n)
	}
}

// Clients draw ids (F010). A job with a key is in the cell of the key all the same, and
// a repeated request finds its jobs.
func TestFleetIDs(t *testing.T) {
	r := newFleet(t)
	id := func() string { return uuid.Must(uuid.NewV7()).String() }
	for cell := range r.cells {
		one := id()
		with := strings.Replace(r.keyed(cell), `{`, `{"id":"`+one+`",`, 1)
		r.want("F041", r.do("POST /jobs\n\n"+with), 201, "job.id", one)
		if got := r.cellOf(one); got != cell {
			t.Errorf("F010: job %s is in cell %q, not %s", one, got, cell)
		}
		r.want("F027", r.do("POST /jobs\n\n"+with), 409, "error.details.existing_job_id", one)
		r.want("F050", r.do("GET /jobs/"+one), 200)
	}
	for range 10 {
		batch := `{"jobs":[{"type":"a","args":[],"id":"` + id() + `"},
			{"type":"a","args":[],"id":"` + id() + `"}]}`
		r.want("F048", r.do("POST /jobs/batch\n\n"+batch), 201)
		r.want("F027", r.do("POST /jobs/batch\n\n"+batch), 409)
	}
	stored := r.jobs()
	for _, more := range []string{"", `,"atomicity":"atomic"`} {
		bulk := `{"jobs":[{"type":"a","args":[],"id":"` + id() + `"},
			{"type":"a","args":[],"id":"` + id() + `"}]` + more + `}`
		r.want("F110", r.do("POST /jobs/bulk\n\n"+bulk), 201, "succeeded", 2)
		r.want("F110: repeated", r.do("POST /jobs/bulk\n\n"+bulk), 422, "succeeded", 0)
		stored += 2
	}
	if n := r.jobs(); n != stored {
		t.Errorf("F110: %d jobs are stored, not %d", n, stored)
	}
	flow := "POST /workflows\n\n" + `{"id":"` + id() + `","type":"chain","steps":[` + job + `]}`
	r.want("W021", r.do(flow), 201)
	for range 5 {
		r.want("W021: repeated", r.do(flow), 409, "error.code", "duplicate")
	}
}

// The cell of a job without a key does not depend on the keys beside it: a repeated
// request finds it (F110).
func TestFleetRepeatedBulk(t *testing.T) {
	r := newFleet(t)
	for i := range 12 {
		id := uuid.Must(uuid.NewV7()).String()
		down := []string{"a", "b", "c"}[i%3]
		bulk := `{"jobs":[{"type":"a","args":[],"id":"` + id + `"},` + r.keyed(down) + `]}`
		r.kill(down)
		w := r.do("POST /jobs/bulk\n\n" + bulk)
		r.want("F110", w, 503)
		r.stores[down].OnCall(nil)
		w = r.do("POST /jobs/bulk\n\n" + bulk)
		if cells := r.cellOf(id); len(cells) != 1 {
			t.Fatalf("F110: job %s of a repeated request is in the cells %q: %s", id, cells, w.Body)
		}
	}
}

// A request with an idempotency key that has failed finds what it has stored, in any cell
// (F117).
func TestFleetIdempotencyAfterFailure(t *testing.T) {
	r := newFleet(t)
	for i := range 12 {
		bulk := fmt.Sprintf("POST /jobs/bulk\nIdempotency-Key: k%d\n\n", i) +
			`{"jobs":[` + r.keyed("a") + `,` + r.keyed("b") + `,` + r.keyed("c") + `]}`
		down := []string{"a", "b", "c"}[i%3]
		r.kill(down)
		r.want("F117", r.do(bulk), 503)
		r.stores[down].OnCall(nil)
		r.want("F117: repeated", r.do(bulk), 201, "succeeded", 3)
	}
	if n := r.jobs(); n != 36 {
		t.Errorf("F117: %d jobs are stored", n)
	}
}

// A worker's default key is none of its acks' next jobs, and a recurring job's cell is
// its name's.
func TestFleetKeysOfOthers(t *testing.T) {
	r := newFleet(t)
	for cell := range r.cells {
		r.want("F041", r.do("POST /jobs\n\n"+r.keyed(cell)), 201)
	}
	for range r.cells {
		w := r.do("POST /workers/fetch\n\n" + `{"queues":["default"],"worker_id":"w","count":1}`)
		id := fmt.Sprint(member(t, w, "jobs.0.id"))
		w = r.do("POST /workers/ack\nOJS-Cell-Key: " + r.keyOf("a") + "\n\n" +
			`{"job_id":"` + id + `","worker_id":"w","then":[` + job + `]}`)
		r.want("F062", w, 200)
	}
	cron := `{"name":"x","cron":"0 0 * * *","type":"a","args":[]}`
	r.want("F092", r.do("POST /cron?cell=a\n\n"+cron), 400)
}

// A storage that panics ends its request alone (F031).
func TestFleetPanics(t *testing.T) {
	r := newFleet(t)
	r.stores["b"].OnCall(func(*storagetest.Call) { panic("a driver") })
	r.want("F031", r.do("GET /queues"), 500)
	r.want("F031", r.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w"}`), 200)
	r.stores["b"].OnCall(nil)
	r.want("F031", r.do("GET /queues"), 200)
}

// Requests about a job go to its cell, and workers get jobs of all cells.
func TestFleetWork(t *testing.T) {
	r := newFleet(t)
	ids := make(map[string]string)
	for cell := range r.cells {
		w := r.do("POST /jobs\n\n" + r.keyed(cell))
		ids[cell] = fmt.Sprint(member(t, w, "job.id"))
		r.want("F050", r.do("GET /jobs/"+ids[cell]), 200, "job.id", ids[cell])
		r.want("F153", r.do("PATCH /jobs/"+ids[cell]+"\n\n"+`{"priority":3}`), 200, "priority", 3)
	}
	r.want("F078", r.do("POST /workers/register\n\n"+`{"worker_id":"w","hostname":"h"}`), 200, "ok", true)
	w := r.do("POST /workers/fetch\n\n" + `{"queues":["default"],"worker_id":"w","count":3}`)
	for i := range 3 {
		if id := fmt.Sprint(member(t, w, fmt.Sprintf("jobs.%d.id", i))); ids[r.cellOf(id)] != id {
			t.Errorf("F060: job %d of the fetch is %s: %s", i, id, w.Body)
		}
	}
	beat := `{"worker_id":"w","active_jobs":["` + ids["a"] + `","` + ids["b"] + `","` + ids["c"] +
		`","0190a8d4-0000-7000-8000-000000000000"]}`
	w = r.do("POST /workers/heartbeat\n\n" + beat)
	r.want("F077", w, 200, "state", "running", "jobs_lost", []string{"0190a8d4-0000-7000-8000-000000000000"})
	if got := member(t, w, "jobs_extended").([]any); len(got) != 3 {
		t.Errorf("F077: extended are %v", got)
	}
	r.want("F066", r.do("POST /workers/ack\n\n"+`{"job_id":"`+ids["a"]+`","worker_id":"w"}`), 200, "state",
		"completed")
	r.want("F067", r.do("POST /workers/nack\n\n"+`{"job_id":"`+ids["b"]+`","error":{"message":"m"}}`), 200,
		"state", "retryable")
	r.want("F066", r.do("POST /jobs/"+ids["c"]+"/ack"), 200, "state", "completed")
	r.want("F051", r.do("DELETE /jobs/"+ids["b"]), 200, "job.state", "cancelled")
	r.want("F010", r.do("GET /jobs/0190a8d4-0000-7000-8000-000000000000"), 404, "error.details.resource_id",
		"0190a8d4-0000-7000-8000-000000000000")
	r.want("F010", r.do("GET /jobs/17"), 404)
	r.want("F147: quiet in all cells", r.do("POST /admin/workers/w/quiet"), 200, "state", "quiet")
	for cell := range r.cells {
		r.do("POST /jobs\n\n" + r.keyed(cell))
	}
	r.want("F068", r.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w"}`), 200, "directive", "quiet")
	r.want("F063", r.do("POST /workers/fetch\n\n"+`{"queues":["default"],"worker_id":"w"}`), 200, "jobs",
		[]any{})
}

// Fetches of one job each get those of all cells, however many one cell has.
func TestFleetFetchIsFair(t *testing.T) {
	r := newFleet(t)
	for _, cell := range []string{"a", "b", "c"} {
		for range map[string]int{"a": 60, "b": 10, "c": 10}[cell] {
			r.do("POST /jobs\n\n" + r.keyed(cell))
		}
	}
	got := make(map[string]int)
	for range 30 {
		w := r.do("POST /workers/fetch\n\n" + `{"queues":["default"],"worker_id":"w"}`)
		got[r.cellOf(member(t, w, "jobs.0.id"))]++
	}
	if got["a"] != 10 || got["b"] != 10 || got["c"] != 10 {
		t.Errorf("F060: 30 fetches get %v", got)
	}
}

// A fetch that waits gets the next job of any cell, and no more than it asks for.
func TestFleetLongPoll(t *testing.T) {
	r := newFleet(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.fleet.Run(ctx) }() // which looks for claims that were given up
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for n, cell := range []string{"a", "b", "c", "a"} {
		answers := make(chan *httptest.ResponseRecorder, 1)
		go func() {
			w := httptest.NewRecorder()
			r.srv.ServeHTTP(w, bindingtest.Request("POST /workers/fetch\n\n"+
				`{"queues":["default"],"worker_id":"w","wait_ms":30000}`))
			answers <- w
		}()
		if n == 3 { // in two cells at once
			r.do("POST /jobs\n\n" + r.keyed("b"))
		}
		r.do("POST /jobs\n\n" + r.keyed(cell))
		w := <-answers
		if list := member(t, w, "jobs").([]any); len(list) != 1 {
			t.Fatalf("F064: %d jobs: %s", len(list), w.Body)
		}
	}
	w := r.do("POST /workers/fetch\n\n" + `{"queues":["default"],"worker_id":"w","count":5,"wait_ms":30000}`)
	r.want("F071: the other is given back", w, 200, "jobs.0.attempt", 1, "jobs.1", nil)
}

// While a cell is down, jobs of its keys are refused and all else goes on. A change that
// a cell has not made is told.
func TestFleetDeadCell(t *testing.T) {
	r := newFleet(t)
	for cell := range r.cells {
		r.want("F041", r.do("POST /jobs\n\n"+r.keyed(cell)), 201)
	}
	w := r.do("POST /jobs\n\n" + r.keyed("b"))
	inB := fmt.Sprint(member(t, w, "job.id"))
	keyB := r.keyOf("b")
	r.want("F101", r.do("GET /health"), 200, "status", "ok", "cells.b", "ok")
	r.kill("b")
	for range 5 {
		r.want("F031", r.do("POST /jobs\nOJS-Cell-Key: "+keyB+"\n\n"+job), 503, "error.retryable", true)
		r.want("F041", r.do("POST /jobs\n\n"+job), 201)
		r.want("F048", r.do("POST /jobs/batch\n\n"+`{"jobs":[`+job+`]}`), 201)
	}
	r.want("F031", r.do("GET /jobs/"+inB), 503)
	seen := 0
	for range 6 {
		w := r.do("POST /workers/fetch\n\n" + `{"queues":["default"],"worker_id":"w","count":5}`)
		r.want("F060", w, 200)
		seen += len(member(t, w, "jobs").([]any))
	}
	if seen != 12 {
		t.Errorf("F060: %d of the 12 jobs of the other cells are fetched", seen)
	}
	r.want("F077: the job may live", r.do("POST /workers/heartbeat\n\n"+
		`{"worker_id":"w","active_jobs":["`+inB+`"]}`), 200, "jobs_lost", []any{}, "jobs_extended", []any{})
	r.want("F090", r.do("POST /queues/default/pause"), 503, "error.details.failed", []string{"b"},
		"error.details.changed", []string{"a", "c"})
	r.want("F101", r.do("GET /health"), 200, "status", "degraded", "cells.b", "degraded", "cells.a", "ok")
	r.stores["b"].OnCall(nil)
	r.want("F090", r.do("POST /queues/default/pause"), 200, "status", "paused")
	r.want("F031: it is back", r.do("GET /jobs/"+inB), 200)
	for cell := range r.cells {
		r.kill(cell)
	}
	r.want("F031", r.do("POST /jobs\n\n"+job), 503)
	r.want("F031", r.do("POST /workers/fetch\n\n"+`{"queues":["default"]}`), 503)
	r.want("F101", r.do("GET /health"), 503)
	for _, st := range r.stores {
		st.OnCall(nil)
	}
}

// Operators see and change all cells, or one that they name.
func TestFleetOperations(t *testing.T) {
	r := newFleet(t)
	made := []string{}
	for _, cell := range []string{"c", "a", "b", "a", "c"} {
		w := r.do("POST /jobs\n\n" + r.keyed(cell))
		made = append(made, fmt.Sprint(member(t, w, "job.id")))
	}
	listed := []string{}
	for cursor := ""; ; {
		w := r.do("GET /admin/jobs?limit=1" + cursor)
		r.want("F140", w, 200)
		for _, item := range member(t, w, "items").([]any) {
			listed = append(listed, fmt.Sprint(item.(map[string]any)["id"]))
		}
		next := member(t, w, "pagination.next_cursor")
		if next == nil {
			r.want("F105", w, 200, "pagination.has_more", false)
			break
		}
		cursor = "&cursor=" + fmt.Sprint(next)
	}
	slices.Sort(made)
	slices.Sort(listed)
	if !slices.Equal(made, listed) {
		t.Errorf("F105: the pages have %v, not %v", listed, made)
	}
	r.want("F105", r.do("GET /admin/jobs?page=2"), 422, "error.code", "unsupported")
	r.want("F105", r.do("GET /admin/jobs?cursor=x.y"), 400)
	r.want("one cell", r.do("GET /admin/jobs?cell=a"), 200, "pagination.total", 2)
	r.want("one key", r.do("GET /admin/jobs\nOJS-Cell-Key: "+r.keyOf("b")+"\n\n"), 200, "pagination.total", 1)
	r.want("F088", r.do("GET /queues"), 200, "queues.0.name", "default", "pagination.total", 1)
	r.want("F089", r.do("GET /queues/default/stats"), 200, "available", 5)
	r.want("F090", r.do("POST /queues/default/pause"), 200, "available", 5, "paused", true)
	r.want("F063", r.do("POST /workers/fetch\n\n"+`{"queues":["default"]}`), 200, "jobs", []any{})
	r.want("F090", r.do("POST /queues/default/resume"), 200, "paused", false)
	r.want("F091", r.do("PUT /queues/small/config\n\n"+`{"max_depth":1}`), 200)
	for range 2 {
		r.do("POST /jobs\n\n" + strings.Replace(r.keyed("a"), `}}`, `},"options":{"queue":"small"}}`, 1))
	}
	r.want("F030: the bound is each cell's", r.do("POST /jobs\n\n"+
		strings.Replace(r.keyed("a"), `}}`, `},"options":{"queue":"small"}}`, 1)), 429)
	r.want("F091: what deletes names its cell", r.do("DELETE /queues/small"), 422)
	r.want("F091", r.do("DELETE /queues/small?cell=b"), 200)
	w := r.do("POST /queues\n\n" + `{"name":"made","max_depth":5}`)
	r.want("F088", w, 201, "queue.name", "made")
	for cell := range r.cells {
		r.want("F091", r.do("GET /queues/made/config?cell="+cell), 200, "config.max_depth", 5)
	}
	r.want("F091", r.do("PUT /queues/own/config?cell=b\n\n"+`{"concurrency":3}`), 200)
	r.want("F091: of its cell", r.do("GET /queues/own"), 200, "config.concurrency", 3)
	r.want("F091", r.do("GET /queues/made"), 200, "config.max_depth", 5, "stats.available", 0)
	r.want("F186", r.do("PUT /rate-limits/k/override\n\n"+`{"concurrency":2}`), 200)
	for cell := range r.cells {
		r.want("F186", r.do("GET /rate-limits/k?cell="+cell), 200, "key", "k")
	}
	r.want("one cell", r.do("GET /events"), 422, "error.details.cells", []string{"a", "b", "c"})
	r.want("one cell", r.do("GET /events?cell=a"), 200)
	r.want("one cell", r.do("POST /jobs/bulk/cancel\n\n"+`{"job_ids":["`+made[0]+`"]}`), 422)

	entry := `{"name":"daily","cron":"0 6 * * *","type":"a","args":[]}`
	r.want("F092", r.do("POST /cron\n\n"+entry), 201)
	cron, err := r.fleet.Cron(t.Context(), "daily")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cron.Get(t.Context(), "daily"); err != nil {
		t.Errorf("F092: the entry is not in the cell of its name: %v", err)
	}
	r.want("F092", r.do("GET /cron/daily"), 200, "cron.name", "daily")
	again := r.do("POST /cron\nOJS-Cell-Key: " + r.keyOf("b") + "\n\n" + entry)
	r.want("F092: one name, one entry", again, 200)
	r.want("F092", r.do("GET /cron"), 200)
	r.want("F092", r.do("PATCH /cron/daily\n\n"+`{"enabled":false}`), 200)
	r.want("F092", r.do("DELETE /cron/daily"), 200)
	r.want("F092", r.do("GET /cron/daily"), 404)

	w = r.do("POST /workflows\n\n" + `{"type":"chain","steps":[` + job + `,` + job + `]}`)
	r.want("W021", w, 201)
	id := fmt.Sprint(member(t, w, "workflow.id"))
	r.want("W021", r.do("GET /workflows/"+id), 200, "workflow.id", id)
	r.want("W021", r.do("DELETE /workflows/"+id), 200)
	r.want("W021", r.do("GET /workflows/0190a8d4-0000-7000-8000-000000000000"), 404)
}

// A stream of a job's events comes from the job's cell, and Close ends it.
func TestFleetStreams(t *testing.T) {
	r := newFleet(t)
	w := r.do("POST /jobs\n\n" + r.keyed("c"))
	id := fmt.Sprint(member(t, w, "job.id"))
	s := httptest.NewServer(r.srv)
	defer s.Close()
	resp, err := s.Client().Get(s.URL + "/ojs/v1/jobs/" + id + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r.want("F051", r.do("DELETE /jobs/"+id), 200)
	var got []byte
	for b := make([]byte, 4096); !strings.Contains(string(got), "job.cancelled"); {
		n, err := resp.Body.Read(b)
		if got = append(got, b[:n]...); n == 0 && err != nil {
			t.Fatalf("F125: the stream ends with %v: %s", err, got)
		}
	}
	closed(t, r.srv)
}

// A fleet needs a fleet.
func TestFleetOptions(t *testing.T) {
	if _, err := server.NewFleet[any](nil); !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("a nil fleet: %v", err)
	}
	r := newFleet(t, server.WithCellKeys(server.CellKeys{Header: "X-Tenant"}),
		server.WithOrigins("https://x.org"))
	w := r.do("OPTIONS /jobs\nOrigin: https://x.org\nAccess-Control-Request-Method: POST\n\n")
	if got := w.Header().Get("Access-Control-Allow-Headers"); !strings.Contains(got, "X-Tenant") {
		t.Errorf("F103: %q", got)
	}
	w = r.do("POST /jobs\nX-Tenant: " + r.keyOf("b") + "\n\n" + job)
	if got := r.cellOf(member(t, w, "job.id")); got != "b" {
		t.Errorf("the job is in cell %q", got)
	}
}
