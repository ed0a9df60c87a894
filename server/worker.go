package server

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

var workerRoutes = []route{
	{method: http.MethodPost, path: "/workers/fetch", need: permWork, body: requiredBody, waits: true,
		serve: (*Server).fetch},
	{method: http.MethodPost, path: "/workers/ack", need: permWork, body: requiredBody, serve: (*Server).ack},
	{method: http.MethodPost, path: "/workers/nack", need: permWork, body: requiredBody,
		serve: (*Server).nack},
	{method: http.MethodPost, path: "/workers/heartbeat", need: permWork, body: requiredBody,
		serve: (*Server).heartbeat},
	{method: http.MethodPost, path: "/workers/beat", need: permWork, body: requiredBody,
		serve: (*Server).beat},
	{method: http.MethodPost, path: "/workers/register", need: permWork, body: requiredBody,
		serve: (*Server).register},
	{method: http.MethodPost, path: "/workers/deregister", need: permWork, body: requiredBody,
		serve: (*Server).deregister},
	{method: http.MethodPost, path: "/workers/progress", need: permWork, body: requiredBody,
		serve: (*Server).workerProgress},
	{method: http.MethodGet, path: "/workers/{id}/health", need: permWork, serve: (*Server).workerHealth},
	{method: http.MethodPost, path: "/jobs/{id}/ack", need: permWork, body: optionalBody,
		serve: (*Server).ack},
	{method: http.MethodPost, path: "/jobs/{id}/nack", need: permWork, body: optionalBody,
		serve: (*Server).nack},
	{method: http.MethodPost, path: "/jobs/{id}/heartbeat", need: permWork, body: optionalBody,
		serve: (*Server).jobHeartbeat},
}

// longestWait is what a longer wait_ms is lowered to (F064).
const longestWait = 30 * time.Second

// fetch answers POST /workers/fetch (F060).
func (s *Server) fetch(c *call) error {
	in := c.in()
	in.require("queues")
	queues := in.texts("queues")
	many := "count"
	if in.get("batch_size") != nil { // F186
		if many = "batch_size"; in.get("count") != nil {
			return givenTwice(many)
		}
	}
	count := in.integer(many, 1, 1, math.MaxInt)
	id := in.workerID()
	lease, only := in.duration("visibility_timeout_ms"), in.texts("types")
	ms := min(in.integer("wait_ms", 0, 0, math.MaxInt), int(longestWait/time.Millisecond))
	wait := time.Duration(ms) * time.Millisecond
	if in.err == nil && len(queues) == 0 {
		in.fail("queues", "is empty", "at least one queue")
	}
	if in.err == nil && lease != 0 && lease < minLease {
		in.fail("visibility_timeout_ms", "is too short", "at least 100")
	}
	if in.err != nil {
		return in.err
	}
	for _, queue := range queues {
		if err := ojs.ValidateQueue(queue); err != nil {
			return badQueue("queues", queue)
		}
		if err := c.may(queue); err != nil {
			return err
		}
	}
	types, err := handlersOf(in)
	if err != nil {
		return err
	}
	b := append(c.buf[:0], `{"jobs":[`...)
	ctx, done := s.untilStopped(c.ctx, wait > 0)
	defer done()
	take, n := s.takeFor, min(count, s.conf.maxFetch)
	if s.isFront() {
		take = s.fleet.fetch
	}
	ds, err := take(ctx, c, &wanted{id, queues, only, types, lease}, n, wait)
	if err != nil && (ctx.Err() == nil || c.ctx.Err() != nil) { // else the server stops
		return err
	}
	first := len(b)
	for _, d := range ds {
		further, err := d.from.fetched(c, d.Delivery)
		if err != nil { // a job without what it needs is not handed out
			d.giveBack(c, err)
			continue
		}
		if len(b) > first {
			b = append(b, ',')
		}
		rec := storage.Record{JobInfo: *d.Job, Worker: id}
		b = appendJob(b, &rec, further...)
	}
	end := len(b)
	b = append(b, ']')
	if end > first && len(ds) == 1 && in.get(many) == nil { // F157
		b = append(append(b, `,"job":`...), b[first:end]...)
	}
	c.buf = append(b, '}')
	gone := c.ctx.Err()
	if gone == nil {
		gone = c.write(http.StatusOK, c.buf)
	}
	if gone != nil {
		for _, d := range ds {
			d.giveBack(c, gone)
		}
	}
	return nil
}

// wanted is what a worker asks for in a fetch.
type wanted struct {
	id       string
	queues   []string
	only     []string // the extension: the only types
	handlers []string // that the fetch names
	lease    time.Duration
}

// delivered is a job that was fetched, and the server of its storage.
type delivered struct {
	*fetch.Delivery
	from *Server
}

// takeFor takes up to n jobs for a worker. A worker that is to stop gets none.
func (s *Server) takeFor(
	ctx context.Context, c *call, want *wanted, n int, wait time.Duration,
) (list []delivered, err error) {
	if s.eng == nil {
		_, err := c.engine()
		return nil, err
	}
	w, err := s.fetching(ctx, c, want)
	if err != nil {
		return nil, err
	}
	cfg := fetch.Config{Queues: want.queues, Types: w.Types, Lease: want.lease}
	var ds []*fetch.Delivery
	if len(want.only) > 0 {
		cfg.Types = want.only
		ds, err = workerOf(s.eng, want.id, cfg).FetchWithin(ctx, n, wait)
	} else {
		ds, err = s.take(ctx, want.id, cfg, n, wait)
	}
	list = make([]delivered, len(ds))
	for i, d := range ds {
		list[i] = delivered{d, s}
	}
	if errors.Is(err, fetch.ErrQuiet) || errors.Is(err, fetch.ErrTerminated) {
		err = nil
	}
	return list, err
}

// giveBack releases a claimed job that no worker runs. If that fails, its reservation
// ends.
func (d delivered) giveBack(c *call, cause error) {
	c.s.conf.log.Warn("a job is given back", "request_id", c.id, "job_id", d.Job.ID, "error", cause)
	_ = d.Release(context.WithoutCancel(c.ctx))
}

// unlistedEvery is how often a fetch that waits looks for types that are new.
const unlistedEvery = time.Second

// take waits for jobs. A worker that has declared handlers also takes the types that it
// has not listed (V004): those that have jobs when it looks.
func (s *Server) take(
	ctx context.Context, id string, cfg fetch.Config, n int, wait time.Duration,
) ([]*fetch.Delivery, error) {
	if cfg.Types == nil {
		return workerOf(s.eng, id, cfg).FetchWithin(ctx, n, wait)
	}
	listed, end := cfg.Types, s.now().Add(wait)
	f := inspect.Filter{States: []ojs.State{ojs.StateAvailable}, Queues: cfg.Queues}
	for {
		there, err := s.op.Jobs().Facets(ctx, f, inspect.FacetType, 0)
		if err != nil {
			return nil, err
		}
		cfg.Types = slices.Clone(listed)
		for _, v := range there.Values {
			if !slices.ContainsFunc(listed, func(t string) bool {
				name, _, _ := strings.Cut(t, "@")
				return name == v.Value
			}) {
				cfg.Types = append(cfg.Types, v.Value)
			}
		}
		left := end.Sub(s.now())
		if len(cfg.Types) == 0 { // it has declared none, and there are none
			cfg.Types = nil
		}
		ds, err := workerOf(s.eng, id, cfg).FetchWithin(ctx, n, min(left, unlistedEvery))
		if len(ds) > 0 || err != nil || left <= unlistedEvery {
			return ds, err
		}
	}
}

// minLease is the shortest reservation that the engine takes.
const minLease = 100 * time.Millisecond

// fetched are the members that a delivered job has beyond those of a stored one.
func (s *Server) fetched(c *call, d *fetch.Delivery) ([]any, error) {
	further, err := s.parentResults(c.ctx, d.Job)
	if err == nil && d.Checkpoint != nil {
		further = append(further, "checkpoint", raw(d.Checkpoint), "last_checkpoint", raw(d.Checkpoint))
	}
	return further, err
}

// workerID reads worker_id. A worker without one shares an id with all that have none.
func (in *input) workerID() string {
	id := in.text("worker_id")
	if len(id) > 255 {
		in.fail("worker_id", "has "+strconv.Itoa(len(id))+" bytes", "1 to 255 bytes")
	}
	if strings.Contains(id, "\x00") {
		in.fail("worker_id", "has a NUL", "a string without NUL")
	}
	if id == "" {
		return anonymous
	}
	return id
}

// untilStopped returns a context for a call that waits: it ends with Close, too.
func (s *Server) untilStopped(ctx context.Context, waits bool) (context.Context, func()) {
	if !waits {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// held finds the job that a worker settles, and its delivery (F069, F070).
func (s *Server) held(c *call, in *input) (*fetch.Delivery, *storage.Record, error) {
	eng, err := c.engine()
	if err != nil {
		return nil, nil, err
	}
	id := c.value("id")
	if id == "" {
		if id = in.text("job_id"); id == "" {
			id = in.text("id")
		}
	}
	worker, attempt := in.text("worker_id"), in.integer("attempt", 0, 0, math.MaxInt)
	if in.err == nil && id == "" {
		in.fail("job_id", "is missing", "string")
	}
	if in.err != nil {
		return nil, nil, in.err
	}
	rec, err := s.jobOf(c, "job", id)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case rec.State != ojs.StateActive:
		return nil, nil, conflict(rec.ID, rec.State, string(ojs.StateActive), "job %s is %s and not active",
			rec.ID, rec.State)
	case worker != "" && worker != rec.Worker && rec.Worker != anonymous:
		return nil, nil, conflict(rec.ID, rec.State, "", "job %s is held by another worker", rec.ID)
	case in.get("attempt") != nil && attempt != rec.Attempt:
		return nil, nil, conflict(rec.ID, rec.State, "", "job %s is in attempt %d", rec.ID, rec.Attempt)
	}
	d, err := workerOf(eng, rec.Worker, fetch.Config{}).DeliveryOfRecord(rec)
	return d, &rec, err
}

// lost answers a worker that has lost its job while it settled it.
func (s *Server) lost(c *call, id string, err error) error {
	if !errors.Is(err, ojs.ErrLeaseLost) && !errors.Is(err, ojs.ErrTimeout) {
		return err
	}
	rec, err := s.record(c.ctx, id)
	if err != nil {
		return err
	}
	return conflict(rec.ID, rec.State, string(ojs.StateActive), "job %s is lost: it is %s",
		rec.ID, rec.State)
}

// ack answers POST /workers/ack (F066).
func (s *Server) ack(c *call) error {
	in := c.in()
	d, rec, err := s.held(c, in)
	if err != nil {
		return err
	}
	var result any
	for i := range in.object {
		if in.object[i].name == "result" {
			result = jsonRaw(in.object[i].value)
		}
	}
	then, err := s.thenOf(c, in)
	if err != nil {
		return err
	}
	if err := d.Ack(c.ctx, result, then...); err != nil {
		return s.lost(c, rec.ID, err)
	}
	done := d.Settled()
	b := append(c.buf[:0], `{"acknowledged":true,"id":`...)
	b = appendString(b, done.ID)
	b = appendString(append(b, `,"job_id":`...), done.ID)
	b = appendString(append(b, `,"state":`...), string(done.State))
	b = appendWhen(b, `,"completed_at":`, done.FinishedAt, "")
	b = appendShort(append(b, `,"job":`...), done)
	return c.replyJSON(http.StatusOK, append(b, '}'))
}

// appendShort writes a job in its short form (F157).
func appendShort(b []byte, j *ojs.JobInfo) []byte {
	b = appendString(append(b, `{"id":`...), j.ID)
	b = appendString(append(b, `,"type":`...), j.Type)
	b = appendString(append(b, `,"queue":`...), j.Queue)
	b = appendString(append(b, `,"state":`...), string(j.State))
	b = appendNumber(b, `,"attempt":`, int64(j.Attempt))
	b = appendNumber(b, `,"max_attempts":`, int64(j.Retry.Runs()))
	b = appendWhen(b, `,"created_at":`, j.CreatedAt, "")
	b = appendWhen(b, `,"enqueued_at":`, j.EnqueuedAt, "")
	b = appendWhen(b, `,"scheduled_at":`, j.ScheduledAt, sentOf(j).ScheduledAt)
	b = appendWhen(b, `,"started_at":`, j.StartedAt, "")
	b = appendEnd(b, j)
	b = appendWhen(b, `,"next_retry_at":`, j.NextRetryAt, "")
	return append(b, '}')
}

// nack answers POST /workers/nack (F067, F071).
func (s *Server) nack(c *call) error {
	in := c.in()
	d, rec, err := s.held(c, in)
	if err != nil {
		return err
	}
	if in.flag("requeue") {
		err = requeued(c, in, d)
	} else if in.err == nil {
		report := in.within("error")
		if in.err != nil {
			return in.err
		}
		if in.get("error") != nil {
			report.require("message")
		}
		if report.err != nil {
			return report.err
		}
		failure, bad := errorOf(report, rec.Retry)
		if bad != nil {
			return bad
		}
		if delayed := retryAfterOf(in, failure); in.err == nil {
			err = d.Fail(c.ctx, delayed)
		}
	}
	if in.err != nil {
		return in.err
	}
	if err != nil {
		return s.lost(c, rec.ID, err)
	}
	done := d.Settled()
	if _, step := done.Meta[workflow.MetaWorkflow]; step && !done.State.Terminal() {
		if now, err := s.record(c.ctx, done.ID); err != nil {
			return err
		} else if now.State == ojs.StateCancelled { // along with its workflow (W051)
			done = &now.JobInfo
		}
	}
	if done.State == ojs.StateRetryable && !done.NextRetryAt.After(s.now()) { // now, and not a moment later
		if err := s.op.Jobs().Retry(c.ctx, done.ID); err != nil && !errors.Is(err, ojs.ErrTransition) {
			return err
		}
		done.State, done.NextRetryAt = ojs.StateAvailable, time.Time{}
	}
	b := appendString(append(c.buf[:0], `{"id":`...), done.ID)
	b = appendString(append(b, `,"job_id":`...), done.ID)
	b = appendString(append(b, `,"state":`...), string(done.State))
	b = appendNumber(b, `,"attempt":`, int64(done.Attempt))
	b = appendNumber(b, `,"max_attempts":`, int64(done.Retry.Runs()))
	if done.State == ojs.StateRetryable {
		b = appendWhen(b, `,"next_attempt_at":`, done.NextRetryAt, "")
		b = appendWhen(b, `,"next_retry_at":`, done.NextRetryAt, "")
		if delay, ok := retryDelay(done); ok {
			b = appendNumber(b, `,"retry_delay_ms":`, draft.Milliseconds(delay))
		}
	}
	b = appendEnd(b, done)
	b = appendShort(append(b, `,"job":`...), done)
	return c.replyJSON(http.StatusOK, append(b, '}'))
}

// workerOf is a worker of the engine. Callers without an id share one. Its silence does
// not tell that all of them are dead, so that only their reservations end.
func workerOf(eng Engine, id string, cfg fetch.Config) *fetch.Worker {
	if id == anonymous {
		cfg.DeadAfter = -1
	}
	return eng.Worker(id, cfg)
}

// fetch takes jobs of all cells. First it asks each in turn. If there is no job, it waits
// for one of any cell. If several cells have one at the same time, it gives back those
// that are too many.
func (f *front) fetch(
	ctx context.Context, c *call, want *wanted, n int, wait time.Duration,
) (ds []delivered, err error) {
	up, down := f.order(f.next.Add(1))
	if len(up) == 0 {
		up = down
	}
	var failed error
	answers := 0
	for _, cell := range up {
		err := cell.within(ctx, func(ctx context.Context) error {
			list, err := cell.takeFor(ctx, c, want, n-len(ds), 0)
			if ds = append(ds, list...); err != nil {
				return c.refusalOf(err)
			}
			return nil
		})
		var r *refusal
		switch {
		case failing(err), errors.As(err, &r) && r.status == http.StatusForbidden: // another's worker there
			failed = err
		case err != nil:
			for _, d := range ds {
				d.giveBack(c, err)
			}
			return nil, err
		default:
			answers++
		}
		if len(ds) == n {
			break
		}
	}
	switch {
	case answers == 0:
		return nil, failed
	case len(ds) > 0 || wait <= 0:
		return ds, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	clock := f.whole.clock
	end := clock.Now().Add(wait)
	defer clock.AfterFunc(wait+cellPatience, cancel).Stop() // a cell may hang
	lists := make([][]delivered, len(f.cells))
	gathered := false
	defer func() {
		for _, d := range slices.Concat(lists...) {
			if !gathered { // a cell has panicked
				d.giveBack(c, errTooMany)
			}
		}
	}()
	f.together(func(i int, cell *Server) {
		for ctx.Err() == nil {
			var err error
			lists[i], err = cell.takeFor(ctx, c, want, n, max(0, clock.Until(end)))
			if len(lists[i]) > 0 {
				cancel()
			}
			if err == nil || !clock.Now().Add(cellPatience).Before(end) {
				return
			}
			again := clock.Timer(cellPatience) // a cell that fails may be back
			select {
			case <-again.C:
			case <-ctx.Done():
			}
			again.Stop()
		}
	})
	ds, gathered = slices.Concat(lists...), true
	for _, d := range ds[min(n, len(ds)):] {
		d.giveBack(c, errTooMany)
	}
	return ds[:min(n, len(ds))], nil
}

var errTooMany = errors.New("ojs: server: several cells have had jobs for one fetch")
