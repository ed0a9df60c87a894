package remote

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// An operator's calls have the names, the args and the errors of those of package operate
// and package cron. They need a key with the role of an administrator, if the server asks
// for keys. A type here lacks the calls for which the binding has no path.

// Cancel ends a job that waits or runs, as engine.Engine.Cancel does.
func (c *Client) Cancel(ctx context.Context, id string) error {
	err := c.do(ctx, &request{method: http.MethodDelete, path: "/jobs/" + segment(id), idempotent: true})
	var wrong *ojs.TransitionError
	if errors.As(err, &wrong) && wrong.From == ojs.StateCancelled {
		return nil
	}
	return err
}

// Jobs gives access to what operators do with stored jobs.
func (c *Client) Jobs() *Jobs { return &Jobs{c} }

// Jobs is what operators do with stored jobs, as operate.Jobs.
type Jobs struct{ c *Client }

// Get looks a job up. It returns ojs.ErrNotFound if there is none with the id.
func (j *Jobs) Get(ctx context.Context, id string) (*ojs.JobInfo, error) { return j.c.Get(ctx, id) }

// Cancel is Client.Cancel.
func (j *Jobs) Cancel(ctx context.Context, id string) error { return j.c.Cancel(ctx, id) }

// Activate makes a pending job available. A job in another state gives an
// *ojs.TransitionError.
func (j *Jobs) Activate(ctx context.Context, id string) error {
	return j.c.post(ctx, "/jobs/"+segment(id)+"/activate", nil, nil)
}

// SetPriority changes the priority of a job that is available or scheduled. A job in
// another state gives an *ojs.TransitionError.
func (j *Jobs) SetPriority(ctx context.Context, id string, priority int) error {
	return j.c.do(ctx, &request{method: http.MethodPatch, path: "/jobs/" + segment(id),
		body: map[string]any{"priority": priority}})
}

// Retry makes a discarded job available again at attempt 0, and a retryable one at once.
// A job in another state gives an *ojs.TransitionError, an unknown id ojs.ErrNotFound.
func (j *Jobs) Retry(ctx context.Context, id string) error {
	return j.c.post(ctx, "/admin/jobs/"+segment(id)+"/retry", nil, nil)
}

// Delete deletes a job that has ended. A job that has not gives an *ojs.TransitionError,
// an unknown id ojs.ErrNotFound.
func (j *Jobs) Delete(ctx context.Context, id string) error {
	return j.one(ctx, id, "delete", "deleted", "only a job that has ended can be deleted")
}

// CancelWaiting is Cancel for a job that has not begun. A job in another state gives an
// *ojs.TransitionError: the server reads the state as it cancels.
func (j *Jobs) CancelWaiting(ctx context.Context, id string) error {
	return j.one(ctx, id, "cancel", "cancelled", "only a job that waits can be cancelled so")
}

// one does what the binding does to a list of jobs. done is the member of the answer that
// counts jobs.
func (j *Jobs) one(ctx context.Context, id, verb, done, allowed string) error {
	var answer map[string]any
	err := j.c.post(ctx, "/jobs/bulk/"+verb, map[string]any{"job_ids": []string{id}}, &answer)
	if err == nil && answer[done] == 1.0 {
		return nil
	}
	if refused := (*Error)(nil); err != nil && (!errors.As(err, &refused) ||
		refused.Status != http.StatusUnprocessableEntity) {
		return err
	}
	job, err := j.c.Get(ctx, id)
	if err != nil {
		return err
	}
	return &ojs.TransitionError{ID: id, From: job.State, To: ojs.State(done), Allowed: allowed}
}

// List lists jobs, as inspect.Jobs.List does, with one request for each page. The binding
// selects by one state, one queue, one type or prefix of types, and the time of creation,
// in the order of creation. A filter with more is refused with ojs.ErrUnsupported.
func (j *Jobs) List(ctx context.Context, f inspect.Filter) iter.Seq2[*ojs.JobInfo, error] {
	query, err := queryOf(&f)
	path := "/admin/jobs"
	if f.DeadLettered {
		path = "/dead-letter"
		query.Del("order") // that of their deaths
		if err == nil && (query.Has("state") || query.Has("since") || query.Has("until")) {
			err = fmt.Errorf("%w: a listing of dead letters by state or time", ojs.ErrUnsupported)
		}
	}
	return listing(ctx, j.c, path, query, err)
}

// listing yields the jobs of all pages.
func listing(ctx context.Context, c *Client, path string, query url.Values, err error) iter.Seq2[*ojs.JobInfo,
	error] {
	return func(yield func(*ojs.JobInfo, error) bool) {
		if err != nil {
			yield(nil, err)
			return
		}
		query := maps.Clone(query)
		query.Set("limit", strconv.Itoa(pageSize))
		for {
			var page struct {
				Jobs       []*job `json:"jobs"`
				Items      []*job `json:"items"`
				Pagination struct {
					Next string `json:"next_cursor"`
				} `json:"pagination"`
			}
			if err := c.do(ctx, &request{method: http.MethodGet, path: path, query: query,
				out: &page}); err != nil {
				yield(nil, err)
				return
			}
			list := page.Jobs
			if list == nil {
				list = page.Items
			}
			for _, j := range list {
				if j != nil && !yield(&j.JobInfo, nil) {
					return
				}
			}
			if page.Pagination.Next == "" {
				return
			}
			query.Set("cursor", page.Pagination.Next)
		}
	}
}

// pageSize is how many jobs a request of a listing asks for.
const pageSize = 100

// queryOf is a filter in the form of the binding.
func queryOf(f *inspect.Filter) (url.Values, error) {
	query := make(url.Values)
	rest := *f
	single := func(name string, values []string) error {
		switch len(values) {
		case 0:
			return nil
		case 1:
			query.Set(name, values[0])
			return nil
		}
		return fmt.Errorf("%w: a listing by several values of %s", ojs.ErrUnsupported, name)
	}
	states := make([]string, len(f.States))
	for i, s := range f.States {
		states[i] = string(s)
	}
	err := errors.Join(single("state", states), single("queue", f.Queues), single("type", f.Types))
	if err != nil {
		return nil, err
	}
	if !f.CreatedFrom.IsZero() {
		query.Set("since", formatTime(f.CreatedFrom))
	}
	if !f.CreatedBefore.IsZero() {
		query.Set("until", formatTime(f.CreatedBefore))
	}
	switch f.Order {
	case storage.OrderOldest:
		query.Set("order", "asc")
	case storage.OrderNewest:
		query.Set("order", "desc")
	default:
		return nil, fmt.Errorf("%w: a listing in another order than that of creation", ojs.ErrUnsupported)
	}
	rest.States, rest.Queues, rest.Types, rest.DeadLettered, rest.Order = nil, nil, nil, false, f.Order
	rest.CreatedFrom, rest.CreatedBefore = time.Time{}, time.Time{}
	if left := strings.TrimSpace(orderKey.Replace(rest.String())); left != "" {
		return nil, fmt.Errorf("%w: a listing by %s", ojs.ErrUnsupported, left)
	}
	return query, nil
}

var orderKey = strings.NewReplacer("order:newest", "", "order:oldest", "")

// DeadLetters gives access to the jobs that were kept for a person.
func (c *Client) DeadLetters() *DeadLetters { return &DeadLetters{c} }

// DeadLetters are the jobs that were kept for a person, as operate.DeadLetters.
type DeadLetters struct{ c *Client }

// List lists the dead letters that f selects, as Jobs.List does.
func (d *DeadLetters) List(ctx context.Context, f inspect.Filter) iter.Seq2[*ojs.JobInfo, error] {
	f.DeadLettered = true
	return d.c.Jobs().List(ctx, f)
}

// Retry makes a dead letter available again at attempt 0. Of the options those of the
// queue, the meta and the retry policy count. Another option is refused with
// ojs.ErrUnsupported.
func (d *DeadLetters) Retry(ctx context.Context, id string, opts ...ojs.Option) error {
	var o ojs.Options
	o.Apply(opts...)
	override := make(map[string]any)
	if o.Queue != "" {
		override["queue"] = o.Queue
	}
	if len(o.Meta) > 0 {
		override["meta"] = o.Meta
	}
	if !o.Retry.Equal(ojs.RetryPolicy{}) {
		override["retry"] = o.Retry
	}
	if len(override) < len(opts) {
		return fmt.Errorf("%w: an option of a retry other than the queue, the meta and the retry policy",
			ojs.ErrUnsupported)
	}
	body := make(map[string]any)
	if len(override) > 0 {
		body["override"] = override
	}
	return d.c.post(ctx, "/dead-letter/"+segment(id)+"/retry", body, nil)
}

// Delete deletes a dead letter. An unknown one gives ojs.ErrNotFound.
func (d *DeadLetters) Delete(ctx context.Context, id string) error {
	return d.c.remove(ctx, "/dead-letter/"+segment(id), nil, nil)
}

// Queues gives access to the states of queues.
func (c *Client) Queues() *Queues { return &Queues{c} }

// Queues is what operators do with queues, as operate.Queues.
type Queues struct{ c *Client }

// Pause stops deliveries from a queue. It still accepts jobs, and running ones go on.
func (q *Queues) Pause(ctx context.Context, name string) error {
	return q.c.post(ctx, "/queues/"+segment(name)+"/pause", nil, nil)
}

// Resume ends a pause or a drain.
func (q *Queues) Resume(ctx context.Context, name string) error {
	return q.c.post(ctx, "/queues/"+segment(name)+"/resume", nil, nil)
}

// List returns the queues with their counts, sorted by name.
func (q *Queues) List(ctx context.Context) ([]operate.QueueStats, error) {
	type item struct {
		Name   string            `json:"name"`
		State  ojs.QueueState    `json:"state"`
		Counts map[ojs.State]int `json:"counts"`
	}
	items, err := pages[item](ctx, q.c, "/admin/queues")
	if err != nil {
		return nil, err
	}
	var list []operate.QueueStats
	for _, i := range items {
		maps.DeleteFunc(i.Counts, func(_ ojs.State, n int) bool { return n == 0 })
		list = append(list, operate.QueueStats{Name: i.Name, State: i.State, Counts: i.Counts})
	}
	slices.SortFunc(list, func(a, b operate.QueueStats) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// pages reads all pages of a list.
func pages[T any](ctx context.Context, c *Client, path string) (list []T, err error) {
	for query := (url.Values{"limit": {strconv.Itoa(pageSize)}}); ; {
		var answer struct {
			Items      []T `json:"items"`
			Crons      []T `json:"crons"`
			Pagination struct {
				Next string `json:"next_cursor"`
			} `json:"pagination"`
		}
		err := c.do(ctx, &request{method: http.MethodGet, path: path, query: query, out: &answer})
		if err != nil {
			return nil, err
		}
		list = append(append(list, answer.Items...), answer.Crons...)
		if answer.Pagination.Next == "" {
			return list, nil
		}
		query.Set("cursor", answer.Pagination.Next)
	}
}

// Cron gives access to the recurring jobs.
func (c *Client) Cron() *Cron { return &Cron{c} }

// Cron are the recurring jobs, as cron.Entries.
type Cron struct{ c *Client }

// cronEntry is an entry in the form of the binding.
type cronEntry struct {
	Name       string       `json:"name"`
	Expression string       `json:"expression"`
	TimeZone   string       `json:"timezone,omitempty"`
	Overlap    cron.Overlap `json:"overlap_policy,omitempty"`
	Enabled    bool         `json:"enabled"`
	Template   any          `json:"job_template,omitempty"`
	CreatedAt  time.Time    `json:"created_at,omitzero"`
	LastRun    time.Time    `json:"last_run_at,omitzero"`
	NextRun    time.Time    `json:"next_run_at,omitzero"`
	Runs       int          `json:"run_count,omitempty"`
}

// Set adds entries, or replaces those of the same name, one after the other. The members
// of an Entry that the binding has no form for are refused with ojs.ErrUnsupported:
// Description, Missed, Gap, RunOnStart and Template.
func (e *Cron) Set(ctx context.Context, entries ...cron.Entry) error {
	bodies := make([]cronEntry, len(entries))
	for i, entry := range entries {
		if entry.Description != "" || entry.Missed != "" || entry.Gap != "" || entry.RunOnStart ||
			entry.Template {
			return fmt.Errorf("%w: the binding has the schedule, the time zone, the overlap and the job of "+
				"entry %q only", ojs.ErrUnsupported, entry.Name)
		}
		template, beyond, err := e.c.wire(entry.Job)
		if err == nil {
			err = e.c.extend(ctx, beyond)
		}
		if err != nil {
			return err
		}
		bodies[i] = cronEntry{Name: entry.Name, Expression: entry.Schedule, TimeZone: entry.TimeZone,
			Overlap: entry.Overlap, Enabled: !entry.Paused, Template: template}
	}
	for _, body := range bodies {
		if err := e.c.post(ctx, "/cron", body, nil); err != nil {
			return err
		}
	}
	return nil
}

// Get returns an entry without its job. An unknown name gives ojs.ErrNotFound.
func (e *Cron) Get(ctx context.Context, name string) (cron.Entry, error) {
	var answer struct {
		Cron cronEntry `json:"cron"`
	}
	err := e.c.get(ctx, "/cron/"+segment(name), &answer)
	return answer.Cron.entry(), err
}

func (w *cronEntry) entry() cron.Entry {
	return cron.Entry{Name: w.Name, Schedule: w.Expression, TimeZone: w.TimeZone, Overlap: w.Overlap,
		Paused: !w.Enabled, CreatedAt: w.CreatedAt, LastRun: w.LastRun, NextRun: w.NextRun, Runs: w.Runs}
}

// List returns the entries without their jobs, sorted by name.
func (e *Cron) List(ctx context.Context) (list []cron.Entry, err error) {
	entries, err := pages[cronEntry](ctx, e.c, "/cron")
	for i := range entries {
		list = append(list, entries[i].entry())
	}
	return list, err
}

// Remove removes an entry. Jobs that it has made stay.
func (e *Cron) Remove(ctx context.Context, name string) error {
	return e.c.remove(ctx, "/cron/"+segment(name), nil, nil)
}

// Pause keeps an entry from firing.
func (e *Cron) Pause(ctx context.Context, name string) error { return e.enable(ctx, name, false) }

// Resume ends a pause. Runs missed meanwhile are not made up for.
func (e *Cron) Resume(ctx context.Context, name string) error { return e.enable(ctx, name, true) }

func (e *Cron) enable(ctx context.Context, name string, enabled bool) error {
	return e.c.do(ctx, &request{method: http.MethodPatch, path: "/cron/" + segment(name),
		body: map[string]any{"enabled": enabled}})
}

// Workflows starts workflows and looks after them.
func (c *Client) Workflows() *Workflows { return &Workflows{c} }

// Workflows are those of the server, as operate.Workflows.
type Workflows struct{ c *Client }

// Start starts a workflow, as workflow.Start does. The server needs the Extension.
func (w *Workflows) Start(ctx context.Context, wf *workflow.Workflow) (ojs.Ticket, error) {
	return workflow.Start(ctx, w.c, wf, "")
}

// Get returns a workflow and its steps, with one request for each.
func (w *Workflows) Get(ctx context.Context, id string) (*workflow.Status, error) {
	return workflow.Read(ctx, w.c.Get, id)
}

// Cancel ends a workflow, as operate.Workflows.Cancel does.
func (w *Workflows) Cancel(ctx context.Context, id string) error {
	return w.c.remove(ctx, "/workflows/"+segment(id), nil, nil)
}

// Wait waits until all steps of a workflow have ended or ctx has.
func (w *Workflows) Wait(ctx context.Context, id string) (*workflow.Status, error) {
	_, err := w.c.Wait(ctx, id)
	var ended *workflow.EndedError
	if err != nil && !errors.As(err, &ended) {
		return nil, err
	}
	status, failed := w.Get(ctx, id)
	return status, errors.Join(err, failed)
}
