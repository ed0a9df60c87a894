package server

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
)

var adminRoutes = slices.Concat([]route{
	{method: http.MethodGet, path: "/admin/queues", need: permAdminRead, serve: (*Server).adminQueues},
	{method: http.MethodGet, path: "/admin/queues/{name}", need: permAdminRead, serve: (*Server).adminQueue},
	{method: http.MethodPost, path: "/admin/queues/{name}/pause", need: permAdminWrite, body: optionalBody,
		serve: (*Server).pauseQueue},
	{method: http.MethodPost, path: "/admin/queues/{name}/resume", need: permAdminWrite, body: optionalBody,
		serve: (*Server).resumeQueue},
	{method: http.MethodPut, path: "/admin/queues/{name}/config", need: permAdminWrite, body: requiredBody,
		serve: (*Server).putQueueConfig},
	{method: http.MethodDelete, path: "/admin/queues/{name}/jobs", need: permPurge, body: optionalBody,
		serve: (*Server).purgeQueue},

	{method: http.MethodGet, path: "/admin/jobs", need: permAdminRead, serve: (*Server).adminJobs},
	{method: http.MethodGet, path: "/admin/jobs/{id}", need: permAdminRead, serve: (*Server).adminJob},
	{method: http.MethodPost, path: "/admin/jobs/{id}/cancel", need: permAdminWrite, body: optionalBody,
		serve: (*Server).cancelJob},
	{method: http.MethodPost, path: "/admin/jobs/{id}/retry", need: permAdminWrite, body: optionalBody,
		serve: (*Server).retryJob},
	{method: http.MethodPatch, path: "/admin/jobs/{id}", need: permAdminWrite, body: requiredBody,
		serve: (*Server).patchJob},
	{method: http.MethodPost, path: "/admin/jobs/bulk/retry", need: permAdminWrite, body: requiredBody,
		serve: (*Server).adminBulk},
	{method: http.MethodPost, path: "/admin/jobs/bulk/cancel", need: permAdminWrite, body: requiredBody,
		serve: (*Server).adminBulk},
	{method: http.MethodPost, path: "/admin/jobs/bulk/delete", need: permPurge, body: requiredBody,
		serve: (*Server).adminBulk},

	{method: http.MethodGet, path: "/admin/dead-letter", need: permAdminRead,
		serve: (*Server).adminJobs},
	{method: http.MethodGet, path: "/admin/dead-letter/stats", need: permAdminRead, whole: true,
		serve: (*Server).deadLetterStats},
	{method: http.MethodPost, path: "/admin/dead-letter/{id}/retry", need: permAdminWrite, body: optionalBody,
		serve: (*Server).retryDeadLetter},
	{method: http.MethodPost, path: "/admin/dead-letter/retry", need: permAdminWrite, body: optionalBody,
		serve: (*Server).retryDeadLetters},
	{method: http.MethodDelete, path: "/admin/dead-letter/{id}", need: permPurge,
		serve: (*Server).deleteDeadLetter},
	{method: http.MethodDelete, path: "/admin/dead-letter", need: permPurge, body: optionalBody,
		serve: (*Server).purgeDeadLetters},
}, adminWorkerRoutes, adminSystemRoutes)

// adminQueues answers GET /admin/queues (F140).
func (s *Server) adminQueues(c *call) error {
	p, err := c.paging()
	if err != nil {
		return err
	}
	list, err := s.queues(c)
	if err != nil {
		return err
	}
	page, next := pageOf(&p, list, func(q *queue) string { return q.Name })
	out := []obj{}
	for i := range page {
		o, err := s.queueObject(c, &page[i])
		if err != nil {
			return err
		}
		out = append(out, o)
	}
	return c.reply(http.StatusOK, p.answer("items", out, len(out), len(list), next))
}

// queueObject is a queue as administrators see it.
func (s *Server) queueObject(c *call, q *queue) (obj, error) {
	n, err := s.lastHour(c.ctx, q.Name)
	if err != nil {
		return nil, err
	}
	at, err := s.queueMadeAt(c, q)
	if err != nil {
		return nil, err
	}
	return obj{"name", q.Name, "state", string(q.State), "paused", q.State == ojs.QueuePaused,
		"counts", countsOf(q.Counts), "throughput", perMinute(&n), "latency_ms", latency(&n), "created_at",
		at}, nil
}

// countsOf has the jobs of each state, zeros too.
func countsOf(n map[ojs.State]int) (o obj) {
	for _, state := range counted {
		o = append(o, string(state), n[state])
	}
	return o
}

func perMinute(n *counts) obj {
	const minutes = 60
	return obj{"processed_per_minute", float64(n.completed) / minutes, "failed_per_minute",
		float64(n.failed) / minutes}
}

func latency(n *counts) obj {
	return obj{"p50", n.runs.Quantile(0.5).Milliseconds(), "p95", n.runs.Quantile(0.95).Milliseconds(),
		"p99", n.runs.Quantile(0.99).Milliseconds()}
}

// adminQueue answers GET /admin/queues/{name} (F140).
func (s *Server) adminQueue(c *call) error {
	q, err := s.findQueue(c)
	if err != nil {
		return err
	}
	o, err := s.queueObject(c, &q)
	if err != nil {
		return err
	}
	config, err := s.shownConfig(c, &q)
	if err != nil {
		return err
	}
	var oldest time.Time
	f := inspect.Filter{Queues: []string{q.Name}, States: []ojs.State{ojs.StateAvailable}}
	looked := 0
	for rec, err := range s.op.Jobs().Records(c.ctx, f) {
		if err != nil {
			return err
		}
		// No job became available before it was made.
		if looked++; !oldest.IsZero() && !rec.CreatedAt.Before(oldest) || looked > mostSorted {
			break
		}
		if oldest.IsZero() || rec.EnqueuedAt.Before(oldest) {
			oldest = rec.EnqueuedAt
		}
	}
	return c.reply(http.StatusOK, append(o, "configuration", config, "oldest_available_at", oldest))
}

// purgeQueue answers DELETE /admin/queues/{name}/jobs (F142).
func (s *Server) purgeQueue(c *call) error {
	if err := c.confirmed(); err != nil {
		return err
	}
	q, err := s.findQueue(c)
	if err != nil {
		return err
	}
	if err := c.only("states", "older_than", "confirm"); err != nil {
		return err
	}
	in := c.in()
	names := in.texts("states")
	given := c.age(in)
	if in.err != nil {
		return in.err
	}
	if names == nil {
		names = c.names("states")
	}
	if len(names) == 0 {
		return invalid("states", "is missing").expected("a list of states")
	}
	before, err := c.olderThan(given)
	if err != nil {
		return err
	}
	var ended, waiting []ojs.State
	for _, name := range names {
		switch state := ojs.State(name); {
		case !state.Valid(), state == ojs.StateActive:
			return invalid("states", "has a state whose jobs cannot be purged").
				expected("any state but active").received(clip(name))
		case state.Terminal():
			ended = append(ended, state)
		default:
			waiting = append(waiting, state)
		}
	}
	purged := 0
	if waiting != nil { // a job has to have ended before it can be deleted
		f := inspect.Filter{Queues: []string{q.Name}, States: waiting, CreatedBefore: before}
		for at, err := range s.op.Jobs().Apply(c.ctx, operate.Bulk{Do: operate.CancelJobs(), On: f}) {
			if err != nil {
				return err
			}
			if at.ID == "" || at.Err != nil {
				continue
			}
			switch err := s.op.Jobs().Delete(c.ctx, at.ID); {
			case err == nil, stored.Missing(err):
				purged++
			case !errors.Is(err, ojs.ErrTransition): // else it was retried meanwhile
				return err
			}
		}
	}
	if ended != nil {
		f := inspect.Filter{Queues: []string{q.Name}, States: ended, FinishedBefore: before}
		a, err := s.apply(c.ctx, operate.DeleteJobs(), f)
		if err != nil {
			return err
		}
		purged += a.done
	}
	c.audit("queue.purged", q.Name)
	return c.reply(http.StatusOK, obj{"purged_count", purged, "states", names})
}

// adminJobs answers GET /admin/jobs (F143).
func (s *Server) adminJobs(c *call) error {
	p, err := c.paging()
	if err != nil {
		return err
	}
	f, err := c.jobFilter()
	if err != nil {
		return err
	}
	if strings.HasPrefix(c.r.URL.Path, base+"/admin/dead-letter") { // F149
		f.DeadLettered = true
	}
	by, order := c.param("sort"), c.param("order")
	switch order {
	case "", "desc":
	case "asc":
		f.Order = inspect.OrderOldest
	default:
		return invalid("order", "is neither asc nor desc").received(clip(order))
	}
	var recs []storage.Record
	var total int
	var next string
	switch by {
	case "", "created_at":
		recs, total, next, err = s.jobPage(c, &p, f)
	case "scheduled_at", "priority":
		recs, total, next, err = s.sorted(c, &p, f, by, order == "asc")
	default:
		return invalid("sort",
			"is unknown").expected("created_at, scheduled_at or priority").received(clip(by))
	}
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, p.answer("items", jobList(recs), len(recs), total, next))
}

// mostSorted is how many jobs are sorted by what a storage has no order for.
const mostSorted = 10_000

func tooManyToSort() error {
	return invalid("sort", "would sort too many jobs: narrow the filter").
		expected("at most " + strconv.Itoa(mostSorted) + " jobs")
}

// sorted reads a page of the jobs of a filter by another order than a storage has. It
// keeps the keys of all jobs, and reads those of the page.
func (s *Server) sorted(
	c *call, p *paging, f inspect.Filter, by string, up bool,
) (recs []storage.Record, total int, next string, err error) {
	type keyed struct {
		id  string
		key int64
	}
	n, err := s.op.Jobs().Count(c.ctx, f, 0) // which reads few jobs, or none
	if err != nil {
		return nil, 0, "", err
	}
	if n.N > mostSorted {
		return nil, 0, "", tooManyToSort()
	}
	var all []keyed
	for rec, err := range s.op.Jobs().Records(c.ctx, f) {
		if err != nil {
			return nil, 0, "", err
		}
		if len(all) == mostSorted {
			return nil, 0, "", tooManyToSort()
		}
		k := keyed{rec.ID, int64(rec.Priority)}
		if by == "scheduled_at" {
			k.key = rec.ScheduledAt.UnixMicro()
		}
		all = append(all, k)
	}
	compare := func(a, b keyed) int {
		if !up {
			a, b = b, a
		}
		return cmp.Or(cmp.Compare(a.key, b.key), strings.Compare(a.id, b.id))
	}
	slices.SortFunc(all, compare)
	from := min(p.offset, len(all))
	if p.cursor != "" { // the key and the id of the last job before
		key, id, _ := strings.Cut(p.cursor, ":")
		n, err := strconv.ParseInt(key, 10, 64)
		if err != nil {
			return nil, 0, "", wrongCursor()
		}
		from, _ = slices.BinarySearchFunc(all, keyed{id, n}, func(k, last keyed) int {
			return cmp.Or(compare(k, last), -1)
		})
	}
	to := min(from+p.limit, len(all))
	if to < len(all) {
		next = fmt.Sprintf("%d:%s", all[to-1].key, all[to-1].id)
	}
	for _, k := range all[from:to] {
		rec, err := s.record(c.ctx, k.id)
		switch {
		case stored.Missing(err): // it has been deleted since
		case err != nil:
			return nil, 0, "", err
		default:
			recs = append(recs, rec)
		}
	}
	return recs, len(all), next, nil
}

// adminJob answers GET /admin/jobs/{id} (F143).
func (s *Server) adminJob(c *call) error {
	rec, err := s.job(c)
	if err != nil {
		return err
	}
	completed, cancelled, discarded := ends(&rec.JobInfo)
	times := obj{"created_at", rec.CreatedAt, "enqueued_at", rec.EnqueuedAt, "started_at", rec.StartedAt,
		"scheduled_at", rec.ScheduledAt, "finished_at", rec.FinishedAt, "completed_at", completed,
		"cancelled_at", cancelled, "discarded_at", discarded}
	b := appendJob(c.buf[:0], &rec, "metadata", times, "retry_policy", raw(appendRetry(nil, rec.Retry)))
	return c.replyJSON(http.StatusOK, b)
}

// retryJob answers POST /admin/jobs/{id}/retry (F144).
func (s *Server) retryJob(c *call) error {
	before, err := s.job(c)
	if err != nil {
		return err
	}
	if err := s.op.Jobs().Retry(c.ctx, before.ID); err != nil {
		return err
	}
	rec, err := s.record(c.ctx, before.ID)
	if err != nil {
		return err
	}
	c.audit("job.retried", rec.ID)
	return c.replyJob(http.StatusOK, &rec, "previous_state", string(before.State))
}

// adminBulk answers POST /admin/jobs/bulk/retry, cancel and delete (F145).
func (s *Server) adminBulk(c *call) error {
	name, do, word := path.Base(c.r.URL.Path), operate.RetryJobs(), "retried"
	switch name {
	case "cancel":
		do, word = operate.CancelJobs(), "cancelled"
	case "delete":
		do, word = operate.DeleteJobs(), "deleted"
	}
	if err := c.confirmed(); err != nil {
		return err
	}
	f, err := c.bodyFilter()
	if err != nil {
		return err
	}
	a, err := s.apply(c.ctx, do, f)
	if err != nil {
		return err
	}
	failed := []obj{}
	for _, r := range a.failed {
		failed = append(failed, obj{"job_id", r.ID, "error", c.reasonOf(r.ID, r.Err)})
	}
	c.audit("jobs.bulk_"+name, f.String())
	return c.reply(http.StatusOK, obj{"action", name, "matched", a.matched, "succeeded", a.done,
		"failed", a.matched - a.done, word, a.done, "errors", failed})
}
