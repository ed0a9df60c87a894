package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/iso8601"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/policy"
)

// Enqueue stores a job, as an Engine[any] does. Its errors are those of an engine, and
// *Error for what the server says beyond them.
func (c *Client) Enqueue(ctx context.Context, jobType string, args any, opts ...ojs.Option) (ojs.Ticket,
	error) {
	tickets, err := c.EnqueueMany(ctx, ojs.NewDraft(jobType, args, opts...))
	if err != nil {
		return ojs.Ticket{}, err
	}
	return tickets[0], nil
}

// EnqueueMany stores jobs of any types, all or none, in one request. It returns a ticket
// for each, in order. The client gives each job its id, so that it may repeat a request
// whose answer was lost.
//
// Options that the binding has no form for need a server with the Extension, and are
// refused with ojs.ErrUnsupported elsewhere. The time of WithTTL counts on the clock of
// the client, that of WithDelay on the server's. workflow.Start takes a Client.
func (c *Client) EnqueueMany(ctx context.Context, drafts ...ojs.Draft) ([]ojs.Ticket, error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	bodies := make([]map[string]any, len(drafts))
	made := make([]string, len(drafts)) // the ids that the client has made; "": the draft has its own
	var beyond []string
	if internal.AwaitedOf(ctx) != nil {
		return nil, fmt.Errorf("%w: workflow.Add by a remote worker", ojs.ErrUnsupported)
	}
	for i, d := range drafts {
		body, members, err := c.wire(d)
		if err != nil {
			return nil, err
		}
		beyond = append(beyond, members...)
		_, given := body["id"]
		if !given {
			id, err := uuid.NewV7()
			if err != nil {
				return nil, fmt.Errorf("ojs: making an id: %w", err)
			}
			made[i] = id.String()
			body["id"] = made[i]
		}
		bodies[i] = body
	}
	if err := c.extend(ctx, beyond); err != nil {
		return nil, err
	}
	var answer struct {
		Job  *job   `json:"job"`
		Jobs []*job `json:"jobs"`
	}
	r := &request{method: "POST", path: "/jobs", body: bodies[0], out: &answer, idempotent: true}
	if len(drafts) > 1 {
		r.path, r.body = "/jobs/batch", map[string]any{"jobs": bodies}
	}
	err := c.do(ctx, r)
	if err != nil && r.tries > 1 && c.storedBefore(err, made) {
		return c.ticketsOf(ctx, bodies)
	}
	if err != nil {
		return nil, err
	}
	if answer.Job != nil {
		answer.Jobs = []*job{answer.Job}
	}
	if len(answer.Jobs) != len(drafts) {
		return nil, fmt.Errorf("ojs: POST %s: the server answers with %d jobs for %d drafts", r.path,
			len(answer.Jobs), len(drafts))
	}
	tickets := make([]ojs.Ticket, len(drafts))
	for i, j := range answer.Jobs {
		if j == nil {
			return nil, fmt.Errorf("ojs: POST %s: the server's answer has a job that is null", r.path)
		}
		tickets[i] = c.ticket(&j.JobInfo, bodies[i]["id"] != j.ID)
	}
	return tickets, nil
}

// storedBefore reports whether a repeated request was refused because an earlier try has
// stored its jobs, although the answer was lost.
func (c *Client) storedBefore(err error, made []string) bool {
	var dup *ojs.DuplicateError
	if !errors.As(err, &dup) {
		return false
	}
	for _, id := range made {
		if id != "" && id == dup.ID {
			return true
		}
	}
	return false
}

// ticketsOf returns the tickets of jobs that an earlier try has stored. It reads only
// jobs whose state the server decides: unique jobs, and those with an ordering key.
func (c *Client) ticketsOf(ctx context.Context, bodies []map[string]any) ([]ojs.Ticket, error) {
	tickets := make([]ojs.Ticket, len(bodies))
	for i, body := range bodies {
		job := &ojs.JobInfo{JobHeader: ojs.JobHeader{ID: body["id"].(string)}, State: ojs.StateAvailable}
		opts := body["options"].(map[string]any)
		batch, _ := opts["ojs:batch"].(batchOptions)
		switch {
		case opts["unique"] != nil, batch.OrderingKey != "":
			var err error
			if job, err = c.Get(ctx, job.ID); err != nil {
				return nil, err
			}
		case opts["pending"] != nil, len(batch.DependsOn) > 0:
			job.State = ojs.StatePending
		case opts["scheduled_at"] != nil:
			job.State = ojs.StateScheduled
		}
		tickets[i] = c.ticket(job, false)
	}
	return tickets, nil
}

var tickets = bridge.Take[bridge.Tickets[ojs.Ticket, ojs.JobInfo]]()

func (c *Client) ticket(job *ojs.JobInfo, deduplicated bool) ojs.Ticket {
	return tickets.WithWaiter(ojs.Ticket{ID: job.ID, State: job.State, Deduplicated: deduplicated},
		storedWaiter{c})
}

// wire is a draft in the form of the binding. beyond names the members that only a server
// with the Extension knows.
func (c *Client) wire(d ojs.Draft) (body map[string]any, beyond []string, err error) {
	if err := ojs.ValidateType(d.Type()); err != nil {
		return nil, nil, err
	}
	o := ojs.DefaultOptions()
	o.Apply(c.defaults...)
	o.Apply(d.Defaults()...)
	o.Apply(d.Options()...)
	if err := o.Validate(); err != nil {
		return nil, nil, err
	}
	args, err := draft.Args(d.Args(), d.Type(), nil, nil)
	if err != nil {
		return nil, nil, err
	}
	meta, err := draft.Meta(o.Meta)
	if err != nil {
		return nil, nil, err
	}
	job := &ojs.JobInfo{JobHeader: ojs.JobHeader{Type: d.Type(), Queue: o.Queue, Meta: meta}, Args: args}
	body = map[string]any{"type": d.Type(), "args": args}
	for name, value := range o.Extra {
		body[name] = value
	}
	if len(meta) > 0 {
		body["meta"] = meta
	}
	if o.ID != "" {
		body["id"] = o.ID
	}
	if o.TypeVersion != "" {
		body["version"] = o.TypeVersion
	}
	opts := map[string]any{"queue": o.Queue}
	body["options"] = opts
	set := func(name string, isSet bool, value any) {
		if isSet {
			opts[name] = value
		}
	}
	set("priority", o.Priority != 0, o.Priority)
	set("pending", o.Pending, true)
	set("timeout_ms", o.Timeout != ojs.DefaultTimeout, milliseconds(o.Timeout))
	set("visibility_timeout_ms", o.Lease != ojs.DefaultLease, milliseconds(o.Lease))
	switch {
	case o.Delay > 0:
		opts["scheduled_at"] = "+" + iso8601.Format(o.Delay)
	case !o.ScheduledAt.IsZero():
		opts["scheduled_at"] = formatTime(o.ScheduledAt)
	}
	switch {
	case o.TTL > 0:
		opts["expires_at"] = formatTime(c.clock.Now().Add(o.TTL))
	case !o.ExpiresAt.IsZero():
		opts["expires_at"] = formatTime(o.ExpiresAt)
	}
	set("retry", !o.Retry.Equal(ojs.RetryPolicy{}), o.Retry)
	if o.RateLimit != nil {
		limit := *o.RateLimit
		if o.RateLimitBy != "" {
			if limit.Key, err = policy.RateLimitKey(limit.Key, o.RateLimitBy, job); err != nil {
				return nil, nil, err
			}
		}
		opts["rate_limit"] = limit
	}
	if o.Unique != nil {
		opts["unique"] = draft.Dimensioned(o.Unique, o.TypeVersion)
		given := *job // in JSON a text that is not UTF-8 looks like another one
		given.Meta = o.Meta
		if _, err := policy.Fingerprint(o.Unique, &given); err != nil {
			return nil, nil, err
		}
	}
	standard := len(opts)
	if o.Unique != nil {
		set("idempotency_key", o.Unique.Key != "", o.Unique.Key)
	}
	batch := batchOptions{o.DependsOn, o.Condition, o.Join, o.Name, o.OrderingKey}
	set("ojs:batch", len(o.DependsOn) > 0 || o.Join || o.Name != "" || o.OrderingKey != "", batch)
	seconds := func(name string, d time.Duration) { set(name, d > 0, d.Seconds()) }
	seconds("total_timeout", o.TotalTimeout)
	seconds("enqueue_ttl", o.EnqueueTTL)
	seconds("result_ttl", o.ResultTTL)
	set("result_ttl", o.ResultTTL == ojs.KeepForever, -1)
	set("result_ttl", o.ResultTTL == ojs.NoResult, 0)
	fairness := o.Fairness
	if o.FairnessBy != "" {
		if fairness.Key, err = policy.FairnessKey(o.FairnessBy, job); err != nil {
			return nil, nil, err
		}
	}
	set("fairness", fairness.Key != "", fairness)
	if len(opts) > standard {
		for _, name := range extensionMembers {
			if _, has := opts[name]; has {
				beyond = append(beyond, name)
			}
		}
	}
	return body, beyond, nil
}

// extensionMembers are the options that the binding leaves out.
var extensionMembers = []string{"idempotency_key", "ojs:batch", "total_timeout", "enqueue_ttl", "result_ttl",
	"fairness"}

// batchOptions are the options about other jobs.
type batchOptions struct {
	DependsOn   []string      `json:"depends_on,omitempty"`
	Condition   ojs.Condition `json:"condition,omitempty"`
	Join        bool          `json:"join,omitempty"`
	Name        string        `json:"name,omitempty"`
	OrderingKey string        `json:"ordering_key,omitempty"`
}

// milliseconds is a period as the binding has it, above zero.
func milliseconds(d time.Duration) int64 { return max(draft.Milliseconds(d), 1) }

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// job is a job as the server sends it.
type job struct{ ojs.JobInfo }

// UnmarshalJSON reads the binding's form of a job, whose periods are milliseconds.
func (j *job) UnmarshalJSON(b []byte) error {
	var own ojs.JobInfo
	if err := own.UnmarshalJSON(b); err != nil {
		return err
	}
	var w struct {
		Timeout     int64    `json:"timeout_ms"`
		Lease       int64    `json:"visibility_timeout_ms"`
		Tags        []string `json:"tags"`
		MaxAttempts int      `json:"max_attempts"`
	}
	if err := jsonvalue.Unmarshal(b, &w); err != nil {
		return err
	}
	if w.Timeout > 0 {
		own.Timeout = time.Duration(w.Timeout) * time.Millisecond
	}
	if w.Lease > 0 {
		own.Lease = time.Duration(w.Lease) * time.Millisecond
	}
	if w.MaxAttempts > 0 {
		own.MaxAttempts = w.MaxAttempts
	}
	if len(w.Tags) > 0 && own.Meta["tags"] == nil {
		if own.Meta == nil {
			own.Meta = make(map[string]any, 1)
		}
		list := make([]any, len(w.Tags))
		for i, tag := range w.Tags {
			list[i] = tag
		}
		own.Meta["tags"] = list
	}
	for _, name := range []string{"timeout_ms", "visibility_timeout_ms", "tags", "max_attempts", "worker_id",
		"retry_delay_ms"} {
		delete(own.Extra, name)
	}
	if len(own.Extra) == 0 {
		own.Extra = nil
	}
	j.JobInfo = own
	return nil
}
