package server_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/server"
)

const bulkOf = `{"type":"a","args":[1],"options":{"unique":{"keys":["type","args"],"on_conflict":"%s"}}}`

func TestBulkEnqueue(t *testing.T) {
	r := newRig(t, server.WithLimits(server.Limits{Jobs: 3}))
	w := r.do("POST /jobs/bulk\n\n" + `{"jobs":[` + fmt.Sprintf(bulkOf, "ignore") +
		`,{"type":"b","args":[]}]}`)
	r.want("F110 F111", w, 201, "total", 2, "succeeded", 2, "failed", 0, "items.0.index", 0, "items.0.status",
		"created",
		"items.0.job.type", "a", "items.1.job.state", "available")
	if w.Header().Get("X-OJS-Batch-Size") != "2" {
		t.Errorf("F113: %v", w.Header())
	}
	r.keep("ID", w, "items.0.job.id")
	r.want("F111: only duplicates", r.do("POST /jobs/bulk\n\n"+`{"jobs":[`+fmt.Sprintf(bulkOf,
		"ignore")+`]}`), 200,
		"items.0.status", "duplicate", "items.0.job.id", r.vars["ID"], "succeeded", 1)
	r.want("F111 F112: mixed", r.do("POST /jobs/bulk\n\n"+`{"jobs":[`+fmt.Sprintf(bulkOf, "reject")+
		`,{"type":"c","args":[]},{"type":"C","args":[]}]}`), 207, "succeeded", 1, "failed", 2,
		"items.0.error.code", "DUPLICATE_JOB", "items.1.status", "created", "items.2.error.code",
		"VALIDATION_ERROR",
		"items.2.error.details.field", "jobs[2].type", "items.2.job", "absent")
	r.want("F111: all failed", r.do("POST /jobs/bulk\n\n"+`{"jobs":[`+fmt.Sprintf(bulkOf, "reject")+`]}`),
		422, "failed", 1)
	before := fmt.Sprint(member(t, r.do("GET /queues/default/stats"), "available"))
	for _, bad := range []string{`{"type":"C","args":[]}`, fmt.Sprintf(bulkOf, "reject")} {
		r.want("F111: atomic",
			r.do("POST /jobs/bulk\n\n"+`{"atomicity":"atomic","jobs":[{"type":"d","args":[]},`+bad+`]}`), 422,
			"succeeded", 0, "failed", 2, "items.0.status", "failed")
	}
	if after := fmt.Sprint(member(t, r.do("GET /queues/default/stats"), "available")); after != before {
		t.Errorf("F111: %s jobs are available, not %s", after, before)
	}
	big := r.do("POST /jobs/bulk\n\n" + `{"jobs":[` + strings.Repeat(`{"type":"a","args":[]},`, 3) +
		`{"type":"a","args":[]}]}`)
	r.want("F113", big, 413, "error.code", "BATCH_SIZE_EXCEEDED", "error.max_batch_size", 3)
	if h := big.Header(); h.Get("X-OJS-Max-Batch-Size") != "3" || h.Get("X-OJS-Batch-Size") != "4" {
		t.Errorf("F113: %v", h)
	}
	r.want("F022", r.do("POST /jobs/bulk\n\n"+`{"jobs":[]}`), 400, "error.details.field", "jobs")
	r.want("F022", r.do("POST /jobs/bulk\n\n"+`{"jobs":[{"type":"a","args":[]}],"atomicity":"some"}`), 400,
		"error.details.field", "atomicity")
	r.golden("bulk_enqueue")
}

func TestBulkOperations(t *testing.T) {
	r := newRig(t)
	ids := make([]string, 5)
	for i := range ids {
		w := r.do("POST /jobs\n\n" +
			fmt.Sprintf(`{"type":"mail.m%d","args":[],"meta":{"team":"%d"},"options":{"priority":%d}}`, i,
				i%2, i))
		r.keep(fmt.Sprintf("ID%d", i), w, "job.id")
	}
	r.do("POST /workers/fetch\n\n" +
		`{"queues":["default"],"worker_id":"w1"}`) // $ID4, which has the highest priority
	w := r.do("POST /jobs/bulk/cancel\n\n" +
		`{"job_ids":["$ID0","$ID4","0197f000-0000-7000-8000-000000000001"]}`)
	r.want("F114 F116", w, 207, "total_matched", 3, "cancelled", 1, "skipped", 2, "items.0.status",
		"cancelled",
		"items.1.status", "skipped", "items.1.reason", "the job is active", "items.2.status", "failed",
		"items.2.reason", "not_found")
	r.want("F114: atomic",
		r.do("POST /jobs/bulk/cancel\n\n"+`{"job_ids":["$ID1","$ID4"],"atomicity":"atomic"}`), 422,
		"cancelled", 0)
	r.want("F114: nothing is changed", r.do("GET /jobs/$ID1"), 200, "job.state", "available")
	r.want("F115",
		r.do("POST /jobs/bulk/cancel\n\n"+`{"filter":{"type":"mail.*","meta":{"team":"1"},"priority":1}}`),
		200,
		"total_matched", 1, "cancelled", 1, "items.0.job_id", r.vars["ID1"])
	r.want("F115: the default states", r.do("POST /jobs/bulk/cancel\n\n"+`{"filter":{"queue":"default"}}`),
		200, "cancelled", 2)
	r.want("F052: active jobs are left", r.do("GET /jobs/$ID4"), 200, "job.state", "active")
	r.want("F114: none matches", r.do("POST /jobs/bulk/cancel\n\n"+`{"filter":{"queue":"default"}}`), 200,
		"total_matched", 0, "items", []any{})
	r.do("POST /workers/nack\n\n" + `{"job_id":"$ID4","error":{"message":"no","retryable":false}}`)
	r.want("F116", r.do("POST /jobs/bulk/retry\n\n"+`{"job_ids":["$ID4","$ID0"]}`), 207, "retried", 1,
		"items.1.status", "skipped")
	r.want("F116", r.do("GET /jobs/$ID4"), 200, "job.state", "available", "job.attempt", 0)
	r.want("F116",
		r.do("POST /jobs/bulk/delete\n\n"+
			`{"filter":{"state":["cancelled"],"enqueued_before":"2001-01-01T00:00:00Z"}}`), 200,
		"deleted", 4)
	r.want("F116", r.do("GET /jobs/$ID0"), 404)
	r.want("F116", r.do("POST /jobs/bulk/delete\n\n"+`{"job_ids":["$ID4"]}`), 422, "skipped", 1)
	for _, body := range []string{`{}`, `{"job_ids":["$ID0"],"filter":{}}`, `{"job_ids":[]}`,
		`{"filter":{"color":1}}`,
		`{"filter":{"state":"odd"}}`, `{"filter":{"state":[]}}`, `{"filter":7}`, `{"job_ids":7}`,
		`{"filter":{},"atomicity":"atomic"}`} {
		r.want("F114 "+body, r.do("POST /jobs/bulk/cancel\n\n"+body), 400, "error.code", "invalid_request")
	}
	r.golden("bulk_operations")
}

func TestIdempotencyKeys(t *testing.T) {
	r := newRig(t)
	const body = `{"jobs":[{"type":"a","args":[]},{"type":"b","args":[]}]}`
	first := r.do("POST /jobs/bulk\nIdempotency-Key: k1\n\n" + body)
	r.want("F117", first, 201, "succeeded", 2)
	again := r.do("POST /jobs/bulk\nIdempotency-Key: k1\n\n" + body)
	if again.Code != 201 || again.Body.String() != first.Body.String() ||
		again.Header().Get("X-OJS-Batch-Size") != "2" {
		t.Errorf("F117: %d %s\nnot %s", again.Code, again.Body, first.Body)
	}
	r.want("F117: nothing re-run", r.do("GET /queues/default/stats"), 200, "available", 2)
	r.want("F117: another body",
		r.do("POST /jobs/bulk\nIdempotency-Key: k1\n\n"+`{"jobs":[{"type":"a","args":[1]}]}`), 409,
		"error.code", "conflict", "error.retryable", false)
	r.want("F117: the operation is part of the scope",
		r.do("POST /jobs/bulk/cancel\nIdempotency-Key: k1\n\n"+`{"filter":{"type":"z"}}`), 200)
	r.want("F117: the field",
		r.do("POST /jobs/bulk\n\n"+`{"jobs":[{"type":"a","args":[]}],"idempotency_key":"k2"}`), 201)
	r.want("F117: the header wins",
		r.do("POST /jobs/bulk\nIdempotency-Key: k3\n\n"+
			`{"jobs":[{"type":"a","args":[]}],"idempotency_key":"k2"}`), 201)
	r.want("F117: 256 characters", r.do("POST /jobs/bulk\nIdempotency-Key: "+strings.Repeat("x",
		257)+"\n\n"+body), 400,
		"error.code", "invalid_request", "error.details.field", "idempotency_key")
	r.want("F117: a refusal is kept, too",
		r.do("POST /jobs/bulk\nIdempotency-Key: k4\n\n"+`{"jobs":[{"type":"A","args":[]}]}`), 422)
	r.want("F117", r.do("POST /jobs/bulk\nIdempotency-Key: k4\n\n"+`{"jobs":[{"type":"A","args":[]}]}`), 422,
		"failed", 1)

	other, err := server.New(r.eng, server.WithClock(clock.NewMock()))
	if err != nil {
		t.Fatal(err)
	}
	mine := r.srv
	r.srv = other
	if again := r.do("POST /jobs/bulk\nIdempotency-Key: k1\n\n" +
		body); again.Body.String() != first.Body.String() {
		t.Errorf("F117: from another server: %s", again.Body)
	}
	closed(t, other)
	r.srv = mine

	jobs := make([]string, 100) // an answer of several pieces
	random := rand.New(rand.NewPCG(1, 2))
	for i := range jobs {
		noise := make([]byte, 3000)
		for k := range noise {
			noise[k] = "0123456789abcdefghijklmnopqrstuvwxyz"[random.IntN(36)]
		}
		jobs[i] = fmt.Sprintf(`{"type":"a","args":["%s"]}`, noise)
	}
	large := `{"jobs":[` + strings.Join(jobs, ",") + `]}`
	one := r.do("POST /jobs/bulk\nIdempotency-Key: big\n\n" + large)
	two := r.do("POST /jobs/bulk\nIdempotency-Key: big\n\n" + large)
	if one.Code != 201 || one.Body.String() != two.Body.String() {
		t.Errorf("F117: a large answer: %d, %d bytes; again %d bytes", one.Code, one.Body.Len(),
			two.Body.Len())
	}
	r.advance(24*time.Hour + time.Second)
	r.want("F117: a day is over",
		r.do("POST /jobs/bulk\nIdempotency-Key: k1\n\n"+`{"jobs":[{"type":"a","args":[1]}]}`), 201)
}

// A request whose server was killed in the middle is done once, by the next request with
// its key.
func TestIdempotencyAfterAKill(t *testing.T) {
	for _, atomicity := range []string{"partial", "atomic"} {
		t.Run(atomicity, func(t *testing.T) { afterAKill(t, atomicity) })
	}
}

func afterAKill(t *testing.T, atomicity string) {
	r := newRig(t)
	body := `{"jobs":[{"type":"a","args":[]},{"type":"b","args":[]}],"atomicity":"` + atomicity + `"}`
	mine := r.srv
	killed := &killed{Engine: r.eng}
	var err error
	if r.srv, err = server.New(killed, server.WithClock(clock.NewMock())); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() != http.ErrAbortHandler {
				t.Error("the request has ended otherwise")
			}
		}()
		r.do("POST /jobs/bulk\nIdempotency-Key: k\n\n" + body)
	}()
	closed(t, r.srv)
	r.srv = mine
	r.want("F117: first still running", r.do("POST /jobs/bulk\nIdempotency-Key: k\n\n"+body), 409,
		"error.code", "conflict",
		"error.retryable", true)
	r.advance(2 * time.Minute)
	r.do("POST /queues/other/pause") // which deletes values that have expired
	w := r.do("POST /jobs/bulk\nIdempotency-Key: k\n\n" + body)
	r.want("F117", w, 201, "succeeded", 2, "items.0.status", "created", "items.0.job.id", killed.ids[0],
		"items.1.job.id", killed.ids[1])
	r.want("F117: done once", r.do("GET /queues/default/stats"), 200, "available", 2)
}

// killed is an engine whose process is killed when it has stored jobs.
type killed struct {
	server.Engine
	ids []string
}

func (k *killed) EnqueueMany(ctx context.Context, drafts ...ojs.Draft) ([]ojs.Ticket, error) {
	tickets, err := k.Engine.EnqueueMany(ctx, drafts...)
	for _, t := range tickets {
		k.ids = append(k.ids, t.ID)
	}
	if err == nil {
		panic(http.ErrAbortHandler)
	}
	return nil, err
}

// A request whose caller hangs up in the middle, or whose storage fails, is done once by
// the next request with its key.
func TestIdempotencyAfterAHangUp(t *testing.T) {
	r := newRig(t)
	ctx, hangUp := context.WithCancel(t.Context())
	broken := &broken{Engine: r.eng, hangUp: hangUp}
	srv, err := server.New(broken, server.WithClock(clock.NewMock()))
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, srv)
	r.srv = srv
	r.do("POST /jobs\n\n" + fmt.Sprintf(bulkOf, "reject"))
	request := "POST /jobs/bulk\nIdempotency-Key: k\n\n" + `{"jobs":[` + fmt.Sprintf(bulkOf, "reject") +
		strings.Repeat(`,{"type":"b","args":[]}`, 4) + `]}`
	r.srv.ServeHTTP(httptest.NewRecorder(), bindingtest.Request(request).WithContext(ctx))
	r.want("F117: done in part", r.do("GET /queues/default/stats"), 200, "available", 3)
	r.do("POST /queues/other/pause") // which deletes values that have expired
	w := r.do(request)
	r.want("F117", w, 207, "succeeded", 4, "failed", 1)
	if again := r.do(request); again.Body.String() != w.Body.String() {
		t.Errorf("F117: %s", again.Body)
	}
	r.want("F117: done once", r.do("GET /queues/default/stats"), 200, "available", 5)
}

// broken is an engine that hangs up the caller at its fourth call, and fails at its
// sixth.
type broken struct {
	server.Engine
	hangUp func()
	calls  int
}

func (b *broken) EnqueueMany(ctx context.Context, drafts ...ojs.Draft) ([]ojs.Ticket, error) {
	if b.calls++; b.calls == 4 {
		b.hangUp()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if b.calls == 6 {
		return nil, ojs.ErrClosed
	}
	return b.Engine.EnqueueMany(ctx, drafts...)
}

// A key is taken for as long as its request is under way (F117).
func TestIdempotencyOfASlowRequest(t *testing.T) {
	enginetest.Test(t, func(t *testing.T, eng *enginetest.Engine[any]) {
		r := rigOf(t, eng)
		slow, err := server.New(&slow{eng})
		if err != nil {
			t.Fatal(err)
		}
		defer closed(t, slow)
		const request = "POST /jobs/bulk\nIdempotency-Key: k\n\n" + `{"jobs":[{"type":"a","args":[]}]}`
		first := make(chan *httptest.ResponseRecorder, 1)
		go func() {
			w := httptest.NewRecorder()
			slow.ServeHTTP(w, bindingtest.Request(request))
			first <- w
		}()
		<-time.After(5 * time.Minute)
		r.want("F117: under way", r.do(request), 409, "error.retryable", true)
		w := <-first
		if again := r.do(request); again.Body.String() != w.Body.String() {
			t.Errorf("F117: %s\nnot %s", again.Body, w.Body)
		}
	}, engineOptions()...)
}

// slow is an engine that takes its time.
type slow struct{ server.Engine }

func (s *slow) EnqueueMany(ctx context.Context, drafts ...ojs.Draft) ([]ojs.Ticket, error) {
	<-time.After(6 * time.Minute)
	return s.Engine.EnqueueMany(ctx, drafts...)
}
