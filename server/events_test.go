package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/server"
)

func TestEvents(t *testing.T) {
	r := newRig(t)
	empty := r.do("GET /events?types=job.*&after=")
	r.want("F120", empty, 200, "events", []any{}, "cursor", "", "has_more", false, "gap", "absent")
	r.keep("JOB", r.do("POST /jobs\n\n"+`{"type":"mail.send","args":[],"options":{"queue":"mail"}}`),
		"job.id")
	w := r.do("GET /events?types=job.*")
	r.want("F047 F122", w, 200, "events.0.type", "job.enqueued", "events.0.specversion", "1.0",
		"events.0.subject", r.vars["JOB"],
		"events.0.data.job_id", r.vars["JOB"], "events.0.data.state", "available", "events.0.data.queue",
		"mail",
		"events.0.data.job_type", "mail.send")
	if member(t, w, "events.0.time") == nil || member(t, w, "events.0.time") != member(t, w,
		"events.0.timestamp") {
		t.Errorf("F122: %s", w.Body)
	}
	r.keep("CURSOR", w, "cursor")
	if member(t, w, "events.0.id") != r.vars["CURSOR"] {
		t.Errorf("F120: the cursor is not the id of the last event: %s", w.Body)
	}
	r.want("F120: nothing new", r.do("GET /events?types=job.*&after=$CURSOR"), 200, "events", []any{},
		"cursor", r.vars["CURSOR"])
	r.do("POST /jobs\n\n" + `{"type":"report","args":[]}`)
	r.do("DELETE /jobs/$JOB")
	r.want("F120: after", r.do("GET /events?types=job.*&after=$CURSOR"), 200, "events.0.data.job_type",
		"report", "events.1.type", "job.cancelled")
	r.want("F120: limit", r.do("GET /events?types=job.*&limit=2"), 200, "has_more", true, "events.2",
		"absent")
	r.want("F120: types", r.do("GET /events?types=job.cancelled,queue.*"), 200, "events.0.type",
		"job.cancelled", "events.1", "absent")
	r.want("F120: prefixes", r.do("GET /events?types=job.*&job_types=mail.*&queues=mail"), 200,
		"events.0.type", "job.enqueued",
		"events.1.type", "job.cancelled", "events.2", "absent")
	r.want("F120: AND", r.do("GET /events?queues=mail&job_types=report"), 200, "events", []any{})
	for _, query := range []string{"limit=0", "limit=1001", "limit=x"} {
		r.want("F022 "+query, r.do("GET /events?"+query), 400, "error.code", "invalid_request",
			"error.details.field", "limit")
	}
	for _, after := range []string{"evt_0197f000-0000-7000-8000-000000000001", "x"} {
		r.want("F121", r.do("GET /events?types=job.*&after="+after), 200, "gap", true, "events.0.type",
			"job.enqueued")
	}
}

// The feed keeps as many events as it may. A caller who comes back too late sees a gap.
func TestEventsKept(t *testing.T) {
	r := newRig(t, server.WithEventRetention(server.EventRetention{Count: 3}))
	r.advance(0) // the engine has begun, as an event says
	r.do("POST /jobs\n\n" + `{"type":"a","args":[]}`)
	r.keep("FIRST", r.do("GET /events"), "cursor")
	for range 3 {
		r.do("POST /jobs\n\n" + `{"type":"b","args":[]}`)
	}
	r.want("F121: all that follow are kept", r.do("GET /events?after=$FIRST"), 200, "gap", "absent",
		"events.2.data.job_type", "b")
	r.do("POST /jobs\n\n" + `{"type":"c","args":[]}`)
	r.want("F121", r.do("GET /events?after=$FIRST"), 200, "gap", true, "events.2.data.job_type", "c",
		"events.3", "absent")
	ids := []string{}
	for i := range 3 {
		ids = append(ids, fmt.Sprint(member(t, r.do("GET /events"), fmt.Sprintf("events.%d.id", i))))
	}
	if !slices.IsSorted(ids) || ids[0] == ids[1] || ids[1] == ids[2] {
		t.Errorf("F127: ids do not rise: %v", ids)
	}
}

// The bytes of events include the meta of their jobs.
func TestEventsKeptByBytes(t *testing.T) {
	r := newRig(t, server.WithEventRetention(server.EventRetention{Bytes: 64 << 10}))
	for range 10 {
		r.do("POST /jobs\n\n" + `{"type":"a","args":[],"meta":{"k":["` + strings.Repeat("x", 20<<10) + `"]}}`)
	}
	w := r.do("GET /events?types=job.enqueued")
	r.want("F121", w, 200, "events.3", "absent")
}

// streams opens them. A stream takes a connection.
var streams = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func TestWithoutEvents(t *testing.T) {
	r := newRig(t, server.WithoutEvents())
	for _, path := range []string{"/events", "/events/stream?channel=all"} {
		r.want("F029", r.do("GET "+path), 422, "error.code", "unsupported")
	}
}

// sse is an event of a stream.
type sse struct {
	id, event string
	data      map[string]any
	comment   string
}

// stream opens a stream and reads it.
type stream struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Reader
	stop func()
}

func (r *rig) stream(url, path, last string) *stream {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	for name, value := range r.vars {
		path = strings.ReplaceAll(path, "$"+name, value)
	}
	req, err := http.NewRequestWithContext(ctx, "GET", url+"/ojs/v1"+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := streams.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	s := &stream{r.t, resp, bufio.NewReader(resp.Body), func() { cancel(); resp.Body.Close() }}
	r.t.Cleanup(s.stop)
	return s
}

// next reads an event or a comment; ok is false at the end.
func (s *stream) next() (e sse, ok bool) {
	s.t.Helper()
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return e, false
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if e.event != "" || e.comment != "" {
				return e, true
			}
		case name == "":
			e.comment = value
		case name == "id":
			e.id = value
		case name == "event":
			e.event = value
		case name == "data":
			if err := json.Unmarshal([]byte(value), &e.data); err != nil {
				s.t.Fatalf("F123: data is no line of JSON: %q", value)
			}
		case name == "retry":
			if value != "3000" {
				s.t.Errorf("F123: retry %q", value)
			}
		}
	}
}

// want reads events, in the order of their names. A change of state is from>to.
func (s *stream) want(rule string, names ...string) (list []sse) {
	s.t.Helper()
	last := ""
	for _, name := range names {
		e, ok := s.next()
		got := e.event
		if got == "job.state_changed" {
			got = fmt.Sprintf("%v>%v", e.data["from"], e.data["to"])
		}
		if !ok || got != name {
			s.t.Fatalf("%s: %q %v, not %q", rule, got, e.data, name)
		}
		if e.id <= last {
			s.t.Errorf("F127: id %q does not rise above %q", e.id, last)
		}
		last = e.id
		list = append(list, e)
	}
	return list
}

// end wants the stream to end.
func (s *stream) end(rule string) {
	s.t.Helper()
	if e, ok := s.next(); ok {
		s.t.Errorf("%s: the stream goes on with %q %v", rule, e.event, e.data)
	}
}

// once proves the first request only.
type once struct{ asked atomic.Bool }

func (o *once) Authenticate(*http.Request) (*server.Principal, error) {
	if o.asked.Swap(true) {
		return nil, nil
	}
	return &server.Principal{Name: "n", Grants: []server.Grant{{Role: server.RoleAdmin}}}, nil
}

// A stream ends once its caller is proved no more (F130, F191).
func TestRevokedKeyEndsStreams(t *testing.T) {
	mock := clock.NewMock()
	r := newRig(t, server.WithClock(mock), server.WithAuthenticator(new(once)))
	ended := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w := httptest.NewRecorder()
		r.srv.ServeHTTP(w, bindingtest.Request("GET /events/stream?channel=all"))
		ended <- w
	}()
	for len(ended) == 0 {
		mock.Add(time.Second)
		runtime.Gosched()
	}
	if w := <-ended; w.Code != 200 {
		t.Errorf("F130: %d %s", w.Code, w.Body)
	}
}

// The stream of statistics has them at once and every 3 s, and the events of jobs (F184).
func TestStreamOfStatistics(t *testing.T) {
	mock := clock.NewMock()
	r := newRig(t, server.WithClock(mock))
	ts := httptest.NewServer(r.srv)
	t.Cleanup(ts.Close)
	r.enqueue("A", job)
	r.fetch("w")
	s := r.stream(ts.URL, "/admin/stats/stream", "")
	metrics := func(available, active float64) {
		t.Helper()
		e, ok := s.next()
		queues, _ := e.data["queues"].([]any)
		if !ok || e.event != "metrics" || len(queues) != 1 {
			t.Fatalf("F184: %+v", e)
		}
		queue := queues[0].(map[string]any)
		if queue["queue"] != "default" || queue["available"] != available || queue["active"] != active {
			t.Errorf("F184: %v", queue)
		}
		workers := e.data["workers"].(map[string]any)
		if workers["total"] != 1.0 || workers["active"].([]any)[0].(map[string]any)["id"] != "w" {
			t.Errorf("F184: %v", workers)
		}
	}
	metrics(0, 1)
	r.enqueue("B", job)
	s.want("F184", "job.enqueued")
	other := r.stream(ts.URL, "/admin/stats/stream", "")
	if e, ok := other.next(); !ok || !strings.Contains(fmt.Sprint(e.data["queues"]), "available:0") {
		t.Errorf("F184: two streams measure at the same time: %+v", e)
	}
	other.stop()
	r.want("", r.do("POST /workers/ack\n\n"+`{"job_id":"$A"}`), 200)
	s.want("F184", "job.completed")
	ticks := make(chan struct{})
	go func() {
		defer close(ticks)
		for range 3 {
			mock.Add(time.Second)
		}
	}()
	metrics(1, 0)
	<-ticks

	// Also while one event comes after another.
	const many = 450
	for range many {
		r.enqueue("C", job)
	}
	found, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-found:
				return
			default:
				mock.Add(100 * time.Millisecond)
			}
		}
	}()
	n := 0
	for e, ok := s.next(); ok && e.event != "metrics"; e, ok = s.next() {
		n++
	}
	close(found)
	<-ended
	if n >= many {
		t.Errorf("F184: %d events came before the statistics", n)
	}
}

func TestStreams(t *testing.T) {
	mock := clock.NewMock()
	r := newRig(t, server.WithClock(mock))
	ts := httptest.NewServer(r.srv)
	t.Cleanup(ts.Close)
	r.keep("ID",
		r.do("POST /jobs\n\n"+`{"type":"a","args":[],"options":{"queue":"q","retry":{"max_attempts":2}}}`),
		"job.id")

	job, queue := r.stream(ts.URL, "/jobs/$ID/events", ""), r.stream(ts.URL,
		"/queues/q/events?event_types=queue.*", "")
	all := r.stream(ts.URL, "/events/stream?channel=all&event_types=job.completed", "")
	for _, s := range []*stream{job, queue, all} {
		if h := s.resp.Header; s.resp.StatusCode != 200 || h.Get("Content-Type") != "text/event-stream" ||
			h.Get("OJS-Version") != "1.0" {
			t.Fatalf("F123: %d %v", s.resp.StatusCode, h)
		}
	}
	r.do("POST /workers/fetch\n\n" + `{"queues":["q"],"worker_id":"w1"}`)
	r.do("POST /workers/nack\n\n" + `{"job_id":"$ID","error":{"message":"no"}}`)
	r.advance(10 * time.Second)
	r.do("POST /workers/fetch\n\n" + `{"queues":["q"],"worker_id":"w1"}`)
	r.do("POST /workers/ack\n\n" + `{"job_id":"$ID","result":1}`)
	list := job.want("F125", "available>active", "job.started", "active>retryable", "job.failed",
		"job.retrying",
		"retryable>available", "available>active", "job.started", "active>completed", "job.completed")
	job.end("F124")
	if d := list[0].data; d["job_id"] != r.vars["ID"] || d["queue"] != "q" || d["type"] != "a" ||
		d["timestamp"] == nil {
		t.Errorf("F125: %v", d)
	}
	if d := list[9].data; d["job_id"] != r.vars["ID"] || d["timestamp"] == nil || d["result"] != 1.0 {
		t.Errorf("F125: flat: %v", d)
	}
	all.want("F126 F180", "job.completed")
	r.do("POST /queues/q/pause\n\n{}")
	queue.want("F125 F126", "queue.paused")

	t.Run("progress", func(t *testing.T) {
		r.keep("P", r.do("POST /jobs\n\n"+`{"type":"a","args":[],"options":{"queue":"p"}}`), "job.id")
		s := r.stream(ts.URL, "/jobs/$P/progress/stream", "")
		r.do("POST /workers/fetch\n\n" + `{"queues":["p"],"worker_id":"w1"}`)
		r.do("PUT /jobs/$P/progress\n\n" + `{"progress":0.5}`)
		r.do("POST /workers/ack\n\n" + `{"job_id":"$P"}`)
		s.want("F153", "progress", "completed")
		s.end("F124")
	})
	t.Run("a job that has ended", func(t *testing.T) {
		s := r.stream(ts.URL, "/jobs/$ID/events", "")
		s.want("F124", "active>completed")
		s.end("F124")
	})
	t.Run("replay", func(t *testing.T) {
		s := r.stream(ts.URL, "/jobs/$ID/events", list[5].id)
		s.want("F127", "available>active", "job.started", "active>completed", "job.completed")
		s.end("F124")
		s = r.stream(ts.URL, "/events/stream?channel=job:$ID", "evt_0197f000-0000-7000-8000-000000000001")
		gap := s.want("F127", "system.gap", "<nil>>available")[0]
		if gap.data["channel"] != "job:"+r.vars["ID"] || gap.data["gap_end"] == "" {
			t.Errorf("F127: %v", gap.data)
		}
	})
	t.Run("silence", func(t *testing.T) {
		done := make(chan sse, 1)
		go func() {
			e, _ := queue.next()
			done <- e
		}()
		for len(done) == 0 {
			mock.Add(time.Second)
		}
		if e := <-done; e.comment != "heartbeat" {
			t.Errorf("F126: %+v", e)
		}
	})
	t.Run("refused", func(t *testing.T) {
		r.want("F123", r.do("GET /jobs/0197f000-0000-7000-8000-000000000001/events"), 404, "error.code",
			"not_found")
		r.want("F123", r.do("GET /queues/none/events"), 404, "error.details.resource_type", "queue")
		r.want("F180", r.do("GET /events/stream?channel=x:y"), 400, "error.details.field", "channel")
	})
	t.Run("shutdown", func(t *testing.T) {
		closed(t, r.srv)
		e := queue.want("F129", "server.shutdown")[0]
		if e.data["reason"] == nil || e.data["grace_period_ms"] != 5000.0 {
			t.Errorf("F129: %v", e.data)
		}
		queue.end("F129")
		r.want("F129", r.do("GET /queues/q/events"), 503, "error.code", "backend_error")
	})
}

// A slow reader gets the latest events, and is told how many it has missed.
func TestSlowReader(t *testing.T) {
	mock := clock.NewMock()
	r := newRig(t, server.WithClock(mock))
	ts := httptest.NewServer(r.srv)
	t.Cleanup(ts.Close)
	s := r.stream(ts.URL, "/events/stream?event_types=job.enqueued", "")
	drafts := make([]ojs.Draft, 1200)
	for i := range drafts {
		drafts[i] = ojs.NewDraft("a", i)
	}
	if _, err := r.eng.EnqueueMany(t.Context(), drafts...); err != nil {
		t.Fatal(err)
	}
	r.do("GET /events?limit=1") // the feed has taken them all
	type outcome struct {
		events  int
		dropped float64
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		for float64(o.events)+o.dropped < 1200 {
			e, ok := s.next()
			switch {
			case !ok:
				o.dropped = -1e9
			case e.event == "system.events_dropped":
				o.dropped += e.data["dropped_count"].(float64)
				if e.data["channel"] != "all" || e.data["oldest_dropped_id"] == nil ||
					e.data["newest_dropped_id"] != e.id {
					o.dropped = -1e9
				}
			case e.event == "job.enqueued":
				o.events++
			}
			if o.dropped < 0 {
				break
			}
		}
		done <- o
	}()
	begun := mock.Now()
	for len(done) == 0 {
		mock.Add(time.Second)
	}
	if o := <-done; o.dropped < 1 || o.events > 1000+100 {
		t.Errorf("F128: %+v", o)
	} else if took := mock.Now().Sub(begun); took < time.Duration(o.events-200)*time.Second/100 {
		t.Errorf("F128: %d events within %v", o.events, took)
	}
}

// The stream of a job ends when the job has ended, though another server has ended it
// (F124).
func TestStreamOfAJobThatEndsElsewhere(t *testing.T) {
	mock, st := clock.NewMock(), bindingtest.Fresh(t)
	r := rigOf(t, enginetest.NewOn[any](t, st, engineOptions()...), server.WithClock(mock))
	ts := httptest.NewServer(r.srv)
	t.Cleanup(ts.Close)
	r.enqueue("ID", job)
	s := r.stream(ts.URL, "/jobs/$ID/events", "")
	if err := operate.Open(st, clock.NewMock(), nil).Jobs().Cancel(t.Context(), r.vars["ID"]); err != nil {
		t.Fatal(err)
	}
	ended := make(chan []sse, 1)
	go func() {
		var list []sse
		for e, ok := s.next(); ok; e, ok = s.next() {
			list = append(list, e)
		}
		ended <- list
	}()
	for range 1000 {
		mock.Add(time.Second)
		select {
		case list := <-ended:
			if last := list[len(list)-1]; last.data["to"] != "cancelled" {
				t.Errorf("F124: %+v", list)
			}
			return
		default:
			runtime.Gosched()
		}
	}
	t.Error("F124: the stream goes on")
}

// A stream ends with its job, though its client wants no event of that (F124, F126). A
// HEAD has no events.
func TestFilteredStreamEnds(t *testing.T) {
	r := newRig(t) // whose clock does not move
	ts := httptest.NewServer(r.srv)
	t.Cleanup(ts.Close)
	r.enqueue("A", job)
	s := r.stream(ts.URL, "/jobs/$A/events?event_types=job.progress", "")
	r.fetch("w")
	r.want("", r.do("PUT /jobs/$A/progress\n\n"+`{"progress":0.5}`), 200)
	s.want("F126", "job.progress")
	r.want("", r.do("POST /workers/ack\n\n"+`{"job_id":"$A"}`), 200)
	for e, ok := s.next(); ok; e, ok = s.next() {
		if e.event != "job.state_changed" || e.data["to"] != "completed" {
			t.Errorf("F124: %q %v", e.event, e.data)
		}
	}
	w := httptest.NewRecorder()
	r.srv.ServeHTTP(w, bindingtest.Request("HEAD /events/stream?channel=all"))
	if w.Code != 200 || w.Body.Len() > 0 {
		t.Errorf("F123: %d %q", w.Code, w.Body)
	}
}
