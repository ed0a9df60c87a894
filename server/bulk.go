package server

import (
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
)

// Bulk operations (F110-F117). A partial enqueue is one step of the storage if no member
// is refused, and one step for each member otherwise.

var bulkRoutes = []route{
	{method: http.MethodPost, path: "/jobs/bulk", need: permEnqueue, body: requiredBody, large: true,
		waits: true,
		serve: (*Server).bulkEnqueue},
	{method: http.MethodPost, path: "/jobs/bulk/cancel", need: permCancel, body: requiredBody, large: true,
		waits: true,
		serve: (*Server).bulkCancel},
	{method: http.MethodPost, path: "/jobs/bulk/retry", need: permOperate, body: requiredBody, large: true,
		waits: true,
		serve: (*Server).bulkRetry},
	{method: http.MethodPost, path: "/jobs/bulk/delete", need: permPurge, body: requiredBody, large: true,
		waits: true,
		serve: (*Server).bulkDelete},
}

// atomicity reads the member of that name.
func (in *input) atomicity() (atomic bool) {
	switch v := in.text("atomicity"); v {
	case "", "partial":
	case "atomic":
		return true
	default:
		in.fail("atomicity", "is no atomicity", "partial or atomic")
	}
	return false
}

// Results of a member.
const (
	itemCreated   = "created"
	itemDuplicate = "duplicate"
	itemFailed    = "failed"
	itemSkipped   = "skipped"
)

// item is the result for a member of a bulk.
type item struct {
	status string
	job    []byte // as JSON
	err    *refusal
}

// bulkEnqueue answers POST /jobs/bulk (F110, F111).
func (s *Server) bulkEnqueue(c *call) error {
	in := c.in()
	in.require("jobs")
	list, atomic := in.list("jobs"), in.atomicity()
	c.w.Header().Set("X-OJS-Batch-Size", strconv.Itoa(len(list)))
	if in.err != nil {
		return in.err
	}
	if len(list) == 0 {
		return invalid("jobs", "is empty").expected("1 to " + strconv.Itoa(s.conf.maxBatch) + " jobs")
	}
	if err := s.checkBatch(len(list)); err != nil {
		return err
	}
	return s.idempotently(c, "bulk_enqueue", func(k *idempotent) error {
		return s.enqueueItems(c, list, atomic, k)
	})
}

// checkBatch refuses more members than the server takes (F113).
func (s *Server) checkBatch(n int) error {
	if n <= s.conf.maxBatch {
		return nil
	}
	r := refuse(http.StatusRequestEntityTooLarge, "BATCH_SIZE_EXCEEDED",
		"%d members are more than the %d of a batch", n, s.conf.maxBatch)
	r.members = obj{"max_batch_size", s.conf.maxBatch}
	r.header = [][2]string{{"X-OJS-Max-Batch-Size", strconv.Itoa(s.conf.maxBatch)}}
	return r
}

func (s *Server) enqueueItems(c *call, list [][]byte, atomic bool, k *idempotent) error {
	items := make([]item, len(list))
	drafts := make([]ojs.Draft, 0, len(list))
	places := make([]int, 0, len(list)) // of the drafts
	own := make([]string, 0, len(list)) // their ids, if the key gives them
	queues := make(map[string]string)   // a stored job of each
	in := &input{path: anyJob + ".", call: c}
	for i, v := range list {
		one, err := s.member(in, v)
		if err != nil {
			r := c.refusalOf(err)
			_ = ofMember(i, r) // which it is
			items[i] = item{status: itemFailed, err: r}
			continue
		}
		d, id := k.identify(one, i)
		drafts, places, own = append(drafts, d), append(places, i), append(own, id)
	}
	drafts = s.near(drafts, k, !atomic)
	refused := len(drafts) < len(list)
	switch {
	case atomic && refused:
	case len(drafts) == 0:
	default:
		err := s.enqueueSome(c, items, drafts, places, own, queues)
		switch {
		case err == nil:
		case len(drafts) == 1 || atomic && !ownDuplicate(err, own):
			r := c.refusalOf(err)
			if r.status >= http.StatusInternalServerError {
				return err
			}
			refused = true
			at, known := r.member()
			for n, i := range places {
				if n == at || !known {
					items[i] = item{status: itemFailed, err: r}
				}
			}
		default: // one of them is refused, or was stored before: each by itself
			for n := range drafts {
				err := s.enqueueSome(c, items, drafts[n:n+1], places[n:n+1], own[n:n+1], queues)
				if err == nil {
					continue
				}
				r := c.refusalOf(err)
				if r.status >= http.StatusInternalServerError {
					return err
				}
				items[places[n]] = item{status: itemFailed, err: r}
			}
		}
	}
	if atomic && refused {
		for i := range items {
			if items[i].err == nil {
				r := invalid("jobs", "has a member that is refused: nothing is stored")
				items[i] = item{status: itemFailed, err: r}
			}
		}
	}
	s.pressure(c, queues)
	return c.replyItems(items)
}

// duplicateOf is the id of the job that a new one is equal to.
func duplicateOf(err error) (id string, ok bool) {
	var dup *ojs.DuplicateError
	if !errors.As(err, &dup) {
		return "", false
	}
	return dup.ID, true
}

// ownDuplicate reports whether an error names a job that an earlier try of the same
// request has stored. The ids are those of the request.
func ownDuplicate(err error, own []string) bool {
	id, dup := duplicateOf(err)
	return dup && slices.Contains(own, id)
}

// enqueueSome enqueues drafts in one step, and notes the results. A job that
// an earlier try of the same request has stored counts as created.
func (s *Server) enqueueSome(
	c *call, items []item, drafts []ojs.Draft, places []int, own []string, queues map[string]string,
) error {
	tickets, err := s.enqueueAll(c, drafts, func(n int, rec *storage.Record) {
		queues[rec.Queue] = rec.ID
		items[places[n]].job = appendJob(nil, rec)
	})
	if len(drafts) == 1 && ownDuplicate(err, own) {
		rec, err := s.record(c.ctx, own[0])
		if err != nil {
			return err
		}
		items[places[0]] = item{status: itemCreated, job: appendJob(nil, &rec)}
		return nil
	}
	if err != nil {
		return err
	}
	for n, t := range tickets {
		items[places[n]].status = itemCreated
		if t.Deduplicated {
			items[places[n]].status = itemDuplicate
		}
	}
	return nil
}

// itemCode is the code of a refused member (F112).
func itemCode(r *refusal) string {
	switch r.code {
	case codeDuplicate:
		return "DUPLICATE_JOB"
	case codeTooLarge, codeMetaTooBig:
		return "PAYLOAD_TOO_LARGE"
	case codeQueueFull, codeQueuePaused:
		return codeQueueFull
	case codeRateLimited:
		return "RATE_LIMIT_EXCEEDED"
	case codeNotFound:
		return "QUEUE_NOT_FOUND"
	}
	return "VALIDATION_ERROR"
}

// replyItems answers a bulk enqueue.
func (c *call) replyItems(items []item) error {
	succeeded, duplicates := 0, 0
	b := append(c.buf[:0], `{"items":[`...)
	for i := range items {
		it := &items[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendNumber(b, `{"index":`, int64(i))
		b = appendString(append(b, `,"status":`...), it.status)
		if it.job != nil && it.err == nil {
			b = append(append(b, `,"job":`...), it.job...)
		}
		if r := it.err; r != nil {
			b = append(b, `,"error":`...)
			o := obj{"code", itemCode(r), "message", r.message, "retryable", r.retryable}
			b = appendValue(b, o.opt("details", r.details))
		}
		b = append(b, '}')
		switch it.status {
		case itemCreated:
			succeeded++
		case itemDuplicate:
			succeeded++
			duplicates++
		}
	}
	b = appendNumber(b, `],"total":`, int64(len(items)))
	b = appendNumber(b, `,"succeeded":`, int64(succeeded))
	b = appendNumber(b, `,"failed":`, int64(len(items)-succeeded))
	status := http.StatusMultiStatus
	switch {
	case succeeded == 0:
		status = http.StatusUnprocessableEntity
	case duplicates == len(items):
		status = http.StatusOK
	case succeeded == len(items):
		status = http.StatusCreated
	}
	return c.replyJSON(status, append(b, '}'))
}

// bulkVerb is an operation on many jobs.
type bulkVerb struct {
	name   string // of the operation, for idempotency keys
	done   string // the member of the answer, and the status of an item
	states []ojs.State
	usual  []ojs.State // of a filter without a state
	action func() operate.Action
}

var (
	bulkCancels = bulkVerb{"bulk_cancel", "cancelled",
		[]ojs.State{ojs.StateAvailable, ojs.StateScheduled, ojs.StateRetryable, ojs.StatePending},
		[]ojs.State{ojs.StateAvailable, ojs.StateScheduled}, operate.CancelJobs}
	bulkRetries = bulkVerb{"bulk_retry", "retried", []ojs.State{ojs.StateDiscarded, ojs.StateRetryable},
		[]ojs.State{ojs.StateDiscarded,
			ojs.StateRetryable}, func() operate.Action { return operate.RetryJobs() }}
	bulkDeletes = bulkVerb{"bulk_delete", "deleted",
		[]ojs.State{ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded},
		[]ojs.State{ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded}, operate.DeleteJobs}
)

func (s *Server) bulkCancel(c *call) error { return s.bulk(c, &bulkCancels) }
func (s *Server) bulkRetry(c *call) error  { return s.bulk(c, &bulkRetries) }
func (s *Server) bulkDelete(c *call) error { return s.bulk(c, &bulkDeletes) }

// bulk answers an operation on many jobs (F114-F116).
func (s *Server) bulk(c *call, v *bulkVerb) error {
	in := c.in()
	ids, atomic, filtered := in.texts("job_ids"), in.atomicity(), in.get("filter") != nil
	within := in.within("filter")
	c.w.Header().Set("X-OJS-Batch-Size", strconv.Itoa(len(ids)))
	if in.err != nil {
		return in.err
	}
	if (ids != nil) == filtered {
		return invalid("job_ids",
			"and filter are both given, or neither is").expected("one of job_ids and filter")
	}
	if ids != nil && len(ids) == 0 {
		return invalid("job_ids", "is empty").expected("1 to " + strconv.Itoa(s.conf.maxBatch) + " ids")
	}
	if err := s.checkBatch(len(ids)); err != nil {
		return err
	}
	if filtered {
		if atomic {
			return invalid("atomicity", "is atomic, which a filter cannot be").expected("partial, or job_ids")
		}
		if err := c.only("filter", "job_ids", "atomicity", "idempotency_key"); err != nil {
			return err
		}
		f, err := s.bulkFilter(c, within, v)
		if err != nil {
			return err
		}
		return s.idempotently(c, v.name, func(*idempotent) error { return s.bulkByFilter(c, v, f) })
	}
	return s.idempotently(c, v.name, func(*idempotent) error { return s.bulkByID(c, v, ids, atomic) })
}

// result is the result for a job of an operation on many.
type result struct {
	id, status, reason string
}

// bulkByID does it to the jobs of a list.
func (s *Server) bulkByID(c *call, v *bulkVerb, ids []string, atomic bool) error {
	list := make([]result, len(ids))
	ready := make([]string, 0, len(ids))
	for i, id := range ids {
		list[i] = result{id: id}
		u, err := uuid.Parse(id)
		if err != nil || len(id) != 36 {
			list[i].status, list[i].reason = itemFailed, codeNotFound
			continue
		}
		list[i].id = u.String()
		rec, err := s.record(c.ctx, list[i].id)
		switch {
		case stored.Missing(err):
			list[i].status, list[i].reason = itemFailed, codeNotFound
		case err != nil:
			return err
		case c.may(rec.Queue) != nil:
			list[i].status, list[i].reason = itemFailed, codeDenied
		case !slices.Contains(v.states, rec.State):
			list[i].status, list[i].reason = itemSkipped, "the job is "+string(rec.State)
		case slices.Contains(ready, rec.ID):
			list[i].status, list[i].reason = itemSkipped, "the job is named before"
		default:
			ready = append(ready, rec.ID)
		}
	}
	if atomic && len(ready) < len(ids) {
		for i := range list {
			if list[i].status == "" {
				list[i].status, list[i].reason = itemSkipped, "another job of the call is refused"
			}
		}
		return c.replyResults(v, list, true)
	}
	return s.settleAll(c, v, list, ready, inspect.Filter{States: v.states})
}

// settleAll does it to the jobs with some ids, as far as a filter still selects them, and
// answers. The results of others are in the list.
func (s *Server) settleAll(c *call, v *bulkVerb, list []result, ready []string, f inspect.Filter) error {
	done := make(map[string]error, len(ready))
	for ids := range slices.Chunk(ready, 1000) { // each is compared with all of a filter
		f.IDs = ids
		for p, err := range s.op.Jobs().Apply(c.ctx, operate.Bulk{Do: v.action(), On: f}) {
			if err != nil {
				return err
			}
			if p.ID != "" {
				done[p.ID] = p.Err
			}
		}
	}
	for i := range list {
		if list[i].status == "" {
			err, came := done[list[i].id]
			list[i].settle(v, came, err)
		}
	}
	c.audit("jobs."+v.name, strconv.Itoa(len(list)))
	return c.replyResults(v, list, false)
}

// settle notes what an operation has done to a job.
func (r *result) settle(v *bulkVerb, came bool, err error) {
	var wrong *ojs.TransitionError
	switch {
	case came && err == nil:
		r.status = v.done
	case errors.As(err, &wrong):
		r.status, r.reason = itemSkipped, "the job is "+string(wrong.From)
	case stored.Missing(err):
		r.status, r.reason = itemFailed, codeNotFound
	case !came:
		r.status, r.reason = itemSkipped, "the job has changed meanwhile"
	default:
		r.status, r.reason = itemFailed, "the job has changed meanwhile"
	}
}

// bulkByFilter does it to the jobs that a filter selects. The step of the storage that
// changes a job checks its state: one that has moved on is skipped. So is one whose state
// the filter names and the operation does not take (F116).
func (s *Server) bulkByFilter(c *call, v *bulkVerb, f bulkSelection) error {
	var list []result
	var ready []string
	all := f.Filter
	all.States = slices.Concat(f.States, f.others)
	for rec, err := range s.op.Jobs().Records(c.ctx, all) {
		switch {
		case err != nil:
			return err
		case !f.hasPairs(rec.Meta):
		case len(list) == s.conf.maxBatch:
			return s.checkBatch(len(list) + 1) // F113
		case slices.Contains(f.others, rec.State):
			list = append(list, result{rec.ID, itemSkipped, "the job is " + string(rec.State)})
		default:
			list, ready = append(list, result{id: rec.ID}), append(ready, rec.ID)
		}
	}
	return s.settleAll(c, v, list, ready, f.Filter)
}

// replyResults answers an operation on many jobs (F114).
func (c *call) replyResults(v *bulkVerb, list []result, refused bool) error {
	c.w.Header().Set("X-OJS-Batch-Size", strconv.Itoa(len(list)))
	items := make([]obj, len(list))
	done, skipped, failed := 0, 0, 0
	for i, r := range list {
		items[i] = obj{"index", i, "job_id", r.id, "status", r.status}.opt("reason", r.reason)
		if r.status == v.done {
			done++
		} else {
			skipped++
		}
		if r.status == itemFailed {
			failed++
		}
	}
	status := http.StatusOK
	switch {
	case refused, skipped > 0 && done == 0:
		status = http.StatusUnprocessableEntity
	case skipped > 0:
		status = http.StatusMultiStatus
	}
	return c.reply(status, obj{"total_matched", len(list), v.done, done, "skipped", skipped,
		"failed", failed, "items", items})
}

// bulkSelection is the filter of an operation on many jobs.
type bulkSelection struct {
	inspect.Filter
	others []ojs.State    // that the filter names and the operation does not take
	meta   map[string]any // the pairs that a job has
}

// hasPairs reports whether the meta of a job has all pairs.
func (f *bulkSelection) hasPairs(meta map[string]any) bool {
	for name, want := range f.meta {
		if v, has := meta[name]; !has || !reflect.DeepEqual(v, want) {
			return false
		}
	}
	return true
}

// bulkFilter reads a filter (F115).
func (s *Server) bulkFilter(c *call, in *input, v *bulkVerb) (f bulkSelection, err error) {
	for _, m := range in.object {
		switch m.name {
		case "type", "queue", "state", "enqueued_before", "enqueued_after", "priority", "meta":
		default:
			return f, invalid("filter."+clip(m.name), "is no member of a filter").
				expected("type, queue, state, enqueued_before, enqueued_after, priority, meta")
		}
	}
	if t := in.filled("type"); t != "" {
		f.Types = []string{t}
	}
	var queues []string
	if q := in.filled("queue"); q != "" {
		queues = []string{q}
	}
	f.States = v.usual
	if given := in.get("state"); given != nil {
		names := []string{in.textOf(given)}
		if given[0] == '[' {
			names = in.texts("state")
		}
		f.States = nil
		for _, name := range names {
			state := ojs.State(name)
			if !state.Valid() {
				in.fail("state", "has a name that is no state", "states of jobs")
				break
			}
			to := &f.others
			if slices.Contains(v.states, state) {
				to = &f.States
			}
			if !slices.Contains(*to, state) {
				*to = append(*to, state)
			}
		}
		if in.err == nil && len(names) == 0 {
			in.fail("state", "is empty", joinStates(v.states))
		}
	}
	f.CreatedFrom, f.CreatedBefore = in.time("enqueued_after"), in.time("enqueued_before")
	if !f.CreatedFrom.IsZero() {
		f.CreatedFrom = f.CreatedFrom.Add(time.Nanosecond) // it is not in the range
	}
	if in.get("priority") != nil {
		n := in.integer("priority", 0, -100, 100)
		f.Priority = &inspect.Range{Min: n, Max: n}
	}
	in.within("meta") // which has to be an object
	if v := in.get("meta"); v != nil && in.err == nil {
		decoded, err := jsonvalue.Decode(v)
		if err != nil {
			return f, invalid("filter.meta", "is not valid")
		}
		f.meta, _ = decoded.(map[string]any)
	}
	if in.err != nil {
		return f, in.err
	}
	f.Queues, err = c.narrow(queues)
	return f, err
}

// textOf decodes a string, "" if it is none.
func (in *input) textOf(v []byte) (s string) {
	if v[0] == '"' {
		decodeText(v, &s)
	}
	return s
}

func joinStates(states []ojs.State) string {
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}
