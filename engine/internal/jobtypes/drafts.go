package jobtypes

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// Prepare makes the record of a draft, or says what is wrong with it. It returns the
// draft's plan, for which own has room.
func (c *Types) Prepare(ctx context.Context, in *storage.Insert, jobType string, args any, defaults,
	opts []ojs.Option, now time.Time, own *Plan) (*Plan, error) {
	t, p, err := c.Plan(jobType, defaults, opts, own)
	if err != nil {
		return nil, err
	}
	return p, c.prepare(ctx, in, t, p, jobType, args, now)
}

func (c *Types) prepare(
	ctx context.Context, in *storage.Insert, t *JobType, p *Plan, jobType string, args any, now time.Time,
) (err error) {
	r, o, retry := &in.Record, &p.Options, &p.retry
	if !t.Handled && !o.Join {
		c.WarnUnhandled(t, jobType)
	}
	if o.TypeVersion != "" || !t.Handled {
		t = c.Registry.Lookup(jobType, o.TypeVersion) // whose args may be of another type
	}
	id, place := o.ID, insideOptions.Place(o)
	if id == "" {
		id = c.IDs.In(now, place.Partition)
	}
	if len(c.Hooks) > 0 {
		changed := o.Clone()
		o = &changed
		if args, err = c.hook(ctx, o, retry.Runs(), id, jobType, args, now); err != nil {
			return err
		}
	}
	encoded, err := draft.Args(args, jobType, t.ArgsType(), c.Codec)
	if err != nil {
		return err
	}
	meta, err := draft.Meta(o.Meta)
	if err != nil {
		return err
	}
	// A hook has seen the id, and may have passed it on: the id is not new.
	// the fields are set one by one: a record is large to copy
	*in = storage.Insert{IDIsNew: (o.ID == "" || place.New) && !c.Seeded && len(c.Hooks) == 0}
	r.ID, r.Type, r.Queue, r.Priority, r.MaxAttempts, r.Meta = id, jobType, o.Queue, o.Priority,
		retry.Runs(), meta
	r.TypeVersion = o.TypeVersion
	r.CreatedAt, r.ScheduledAt, r.ExpiresAt = now, draft.Time(o.ScheduledAt), draft.Time(o.ExpiresAt)
	r.Args, r.State, r.Retry, r.RateLimit, r.Extra = encoded, ojs.StateAvailable, *retry, o.RateLimit, o.Extra
	r.Timeout, r.TotalTimeout, r.EnqueueTTL, r.Lease, r.ResultTTL = o.Timeout, o.TotalTimeout, o.EnqueueTTL,
		o.Lease, o.ResultTTL
	fromElsewhere := draft.FromElsewhere(args)
	if o.RateLimitBy != "" {
		if err := c.limitBy(r, o, fromElsewhere); err != nil {
			return err
		}
	}
	if r.Fairness = o.Fairness; o.FairnessBy != "" {
		if err := c.shareBy(r, o, fromElsewhere); err != nil {
			return err
		}
	}
	if o.Unique != nil {
		if fromElsewhere {
			if err := draft.CheckIdentity(o.Unique, r.Args, r.Meta); err != nil {
				return err
			}
		}
		if err := c.identify(in, o); err != nil {
			return err
		}
	}
	if queues := c.Queues.Load(); len(queues.Names) > 0 {
		qc, served := queues.Config[o.Queue]
		if !served && !o.Join {
			c.warnUnserved(o.Queue)
		}
		in.MaxDepth, in.DropOldest = qc.MaxDepth, qc.DropOldest
	}
	if b := draft.BoundOf(ctx, o.Queue); b.MaxDepth > 0 && (in.MaxDepth == 0 || b.MaxDepth < in.MaxDepth) {
		in.MaxDepth, in.DropOldest = b.MaxDepth, b.DropOldest
	}
	if o.Delay > 0 {
		r.ScheduledAt = now.Add(o.Delay)
	}
	if o.TTL > 0 {
		r.ExpiresAt = now.Add(o.TTL)
	}
	if o.TotalTimeout > 0 {
		r.Timeout = min(r.Timeout, o.TotalTimeout) // the default one; Validate refuses another
	}
	if o.EnqueueTTL > 0 && !r.ScheduledAt.Before(now.Add(o.EnqueueTTL)) {
		return draft.Invalid("enqueue_ttl",
			"%v is over before scheduled_at %s", o.EnqueueTTL, r.ScheduledAt.Format(time.RFC3339Nano))
	}
	switch {
	case len(o.DependsOn) > 0 || o.OrderingKey != "":
		if err := c.depend(in, o); err != nil {
			return err
		}
	case o.Pending:
		r.State = ojs.StatePending
	case !r.ScheduledAt.After(now):
		r.EnqueuedAt = now
	default:
		r.State = ojs.StateScheduled
	}
	if r.Dependencies == nil && r.ScheduledAt.After(now) && !r.ExpiresAt.IsZero() &&
		!r.ExpiresAt.After(r.ScheduledAt) {
		return draft.Invalid("expires_at",
			"%s is not after scheduled_at %s", r.ExpiresAt.Format(time.RFC3339Nano),
			r.ScheduledAt.Format(time.RFC3339Nano))
	}
	if err := draft.Encode(ctx, c.Codec, r, fromElsewhere); err != nil {
		return err
	}
	return draft.CheckSize(&r.JobInfo)
}

// identify gives a unique job its fingerprint.
func (c *Types) identify(in *storage.Insert, o *ojs.Options) (err error) {
	s := c.Store.Capabilities()
	if s.Unique == "" {
		return c.Unsupported("does not know unique jobs")
	}
	in.KeepActive = s.Unique != storage.Strong
	r := &in.Record
	r.Unique = draft.Dimensioned(o.Unique, r.TypeVersion)
	job := &r.JobInfo
	if len(o.Unique.MetaKeys) > 0 { // meta counts as it was given
		job = &ojs.JobInfo{JobHeader: ojs.JobHeader{
			Type: r.Type, TypeVersion: r.TypeVersion, Queue: r.Queue, Meta: o.Meta}, Args: r.Args}
	}
	r.Fingerprint, err = policy.Fingerprint(o.Unique, job)
	return err
}

// hook lets the enqueue hooks have their say. It returns the args to store.
func (c *Types) hook(
	ctx context.Context, o *ojs.Options, runs int, id, jobType string, args any, now time.Time,
) (any, error) {
	if o.Meta == nil {
		o.Meta = make(map[string]any)
	}
	at := o.ScheduledAt
	if o.Delay > 0 {
		at = now.Add(o.Delay)
	}
	job := &ojs.Job[any]{Args: args, JobHeader: ojs.JobHeader{
		ID: id, Type: jobType, TypeVersion: o.TypeVersion, Queue: o.Queue, Priority: o.Priority,
		MaxAttempts: runs, Meta: o.Meta,
		CreatedAt: now, ScheduledAt: at,
	}}
	for _, h := range c.Hooks {
		if err := runHook(draft.WithoutCaller(ctx), h, job); err != nil {
			return nil, err
		}
	}
	o.Queue, o.Priority, o.Meta = job.Queue, job.Priority, job.Meta
	return job.Args, o.Validate()
}

// shareBy gives a job the fairness key of its value of a member (ojs.WithFairnessBy).
func (c *Types) shareBy(r *storage.Record, o *ojs.Options, fromElsewhere bool) error {
	if err := checkPlain(r, o.FairnessBy, fromElsewhere, "fairness_by", "ojs.WithFairnessKey"); err != nil {
		return err
	}
	key, err := policy.FairnessKey(o.FairnessBy, &r.JobInfo)
	if err != nil {
		return err
	}
	if r.Fairness.Key = key; key == "" {
		r.Fairness.Weight = 0
	}
	return nil
}

// Plan is what the options of a job add up to. It is not changed once it is made, since
// many jobs may share it.
type Plan struct {
	Options  ojs.Options
	retry    ojs.RetryPolicy
	queues   *QueueSet   // whose defaults are in it
	defaults *ojs.Option // the first default of the job type, which identifies the list; nil if none
}

// Plan resolves a draft's job type and options.
func (c *Types) Plan(jobType string, defaults, opts []ojs.Option, own *Plan) (*JobType, *Plan, error) {
	t, err := c.JobType(jobType)
	if err != nil {
		return nil, nil, err
	}
	p, err := c.planFor(t, defaults, opts, own)
	return t, p, err
}

// planFor resolves the options of a draft. Without options of the draft's own, the plan
// is resolved once for the job type and the engine's queues, since the defaults of these
// do not change.
// Where possible, the draft's own options are applied on top of that plan, in own, which
// only this enqueue uses.
func (c *Types) planFor(t *JobType, defaults, opts []ojs.Option, own *Plan) (*Plan, error) {
	if defaults == nil {
		defaults = t.Handler.Defaults()
	}
	var first *ojs.Option
	if len(defaults) > 0 {
		first = &defaults[0]
	}
	base := t.plan.Load()
	queues := c.Queues.Load()
	if base == nil || base.defaults != first || base.queues != queues {
		o, err := c.Resolve(queues, defaults, nil)
		base = &Plan{queues: queues}
		if err = base.finish(o, err); err == nil {
			base.defaults = first
			t.plan.Store(base)
		} else if base = nil; len(opts) == 0 {
			return nil, err
		}
	}
	if len(opts) == 0 {
		return base, nil
	}
	if base != nil {
		o := &own.Options
		*o = base.Options.Clone()
		o.Apply(opts...)
		// Another queue may have other defaults, which come in before the type's.
		if o.Queue == base.Options.Queue || queues.hasNoDefaults(o.Queue, base.Options.Queue) {
			err := o.Validate()
			if err != nil {
				return nil, err
			}
			if o.Retry.Equal(base.Options.Retry) {
				own.retry = base.retry
				return own, nil
			}
			own.retry, err = policy.Resolve(o.Retry)
			return own, err
		}
	}
	return own, own.finish(c.Resolve(queues, defaults, opts))
}

// finish completes the plan of resolved options.
func (p *Plan) finish(o ojs.Options, err error) error {
	if err != nil {
		return err
	}
	retry, err := policy.Resolve(o.Retry)
	if err != nil {
		return err
	}
	p.Options, p.retry = o, retry
	return nil
}

// Resolve adds up the options of a draft: standard, engine, queue, job type, call; the
// later overrides the earlier.
func (c *Types) Resolve(queues *QueueSet, defaults, own []ojs.Option) (ojs.Options, error) {
	sum := func(ofQueue []ojs.Option) ojs.Options {
		o := ojs.DefaultOptions()
		for _, opts := range [][]ojs.Option{c.Defaults, ofQueue, defaults, own} {
			o.Apply(opts...)
		}
		return o
	}
	o := sum(nil)
	// Only now is the queue known, whose defaults come in before the type's.
	if ofQueue := queues.Config[o.Queue].Defaults; len(ofQueue) > 0 {
		queue := o.Queue
		o = sum(ofQueue)
		o.Queue = queue
	}
	return o, o.Validate()
}

// Jobs that wait for others (ojs.WithDependsOn):
//
//  1. An enqueue gives the storage the ids of the jobs that each job waits for. Names of
//     drafts become the ids of their jobs.
//  2. The storage counts each end in its own step, and returns the jobs that this has
//     moved, with the result of the call that ended the job.
//  3. That call publishes their events, after those of the job that ended, and wakes
//     workers and callers that wait.
//
// No operation can name the jobs that it will move. Once this engine has seen a job that
// waits for others, the operations that end jobs have the effect eventlog.Ends, and every
// event of such a job waits for them. Until then, operations that end jobs of workflows
// or of ordering keys have it.

// depend makes a job one that waits for others or for its turn (ojs.WithOrderingKey).
func (c *Types) depend(in *storage.Insert, o *ojs.Options) error {
	in.DependsOn, in.OrderingKey = slices.Clone(o.DependsOn), o.OrderingKey
	in.Record.State = ojs.StatePending
	in.Record.Dependencies = &ojs.Dependencies{Condition: o.Condition, Join: o.Join}
	if o.Condition == "" {
		in.Record.Dependencies.Condition = ojs.AllSucceeded
	}
	if len(o.DependsOn) > 0 { // until then ScheduledAt is the earliest that it can come to
		if o.TTL > 0 && o.TTL <= o.Delay {
			return draft.Invalid("ttl", "%v is not longer than the delay of %v", o.TTL, o.Delay)
		}
		in.Record.Dependencies.Delay, in.Record.Dependencies.TTL = o.Delay, o.TTL
		if o.TTL > 0 {
			in.Record.ExpiresAt = time.Time{}
		}
	}
	return nil
}

// NameDependencies replaces the names of drafts in the DependsOn of a batch by the ids of
// their jobs. The names are those of the batch's jobs; "": the job has none.
func NameDependencies(batch []storage.Insert, names []string) error {
	if !storage.DependsOn(batch) {
		return nil
	}
	ids := make(map[string]string)
	for n, name := range names {
		if ids[name] != "" {
			return draft.Invalid("name", "two drafts have the name %q", name)
		}
		if name != "" {
			ids[name] = batch[n].Record.ID
		}
	}
	for n := range batch {
		in := &batch[n]
		for k, job := range in.DependsOn {
			in.DependsOn[k] = cmp.Or(ids[job], job)
		}
	}
	return nil
}

// limitBy gives a job the limit of its value of a member (ojs.WithRateLimitBy).
func (c *Types) limitBy(r *storage.Record, o *ojs.Options, fromElsewhere bool) error {
	if err := checkPlain(r, o.RateLimitBy, fromElsewhere, "rate_limit_by", "ojs.WithRateLimit"); err != nil {
		return err
	}
	key, err := policy.RateLimitKey(o.RateLimit.Key, o.RateLimitBy, &r.JobInfo)
	if err != nil {
		return err
	}
	l := *o.RateLimit // jobs share that of their type
	l.Key = key
	r.RateLimit = &l
	return nil
}

// checkPlain refuses an option whose key is a member of args that come encoded.
func checkPlain(r *storage.Record, member string, fromElsewhere bool, option, remedy string) error {
	if !fromElsewhere || !strings.HasPrefix(member, "args.") || !codec.IsEncoded(r.Args, r.Meta) {
		return nil
	}
	return draft.Invalid(option,
		"names a member of args, which come encoded; give the key of the plain args by %s", remedy)
}

var insideOptions = bridge.Take[bridge.Options[ojs.Options]]()

func runHook(
	ctx context.Context, h func(context.Context, *ojs.Job[any]) error, job *ojs.Job[any],
) (err error) {
	stop := foreign.Call(func() {
		switch err = h(ctx, job); {
		case err == nil:
		case foreign.Is(err, ojs.ErrDropped):
			err = ojs.ErrDropped
		default:
			err = &HookError{foreign.Ending(err)}
		}
	})
	if stop != nil {
		return &HookError{stop}
	}
	return err
}

// HookError is the refusal of a hook.
type HookError struct{ Err error }

func (e *HookError) Error() string { return "ojs: enqueue hook: " + foreign.ErrorText(e.Err) }

func (e *HookError) Unwrap() error { return e.Err }

// RetryHook is what has a say in the retries of a job; nil if nothing has.
func (c *Types) RetryHook(j *ojs.JobHeader) policy.Hook {
	var hooks retryHooks
	handlers := c.Registry.Lookup(j.Type, j.TypeVersion).Handler.RetryHook()
	for _, hook := range []policy.Hook{handlers, c.Retry} {
		if hook != nil {
			hooks.hooks = append(hooks.hooks, hook)
		}
	}
	if hooks.hooks == nil {
		return nil
	}
	hooks.c = c
	return hooks
}

// retryHooks asks several hooks in turn. A job goes to them as a copy; a panic is no
// opinion, nor is runtime.Goexit.
type retryHooks struct {
	c     *Types
	hooks []policy.Hook
}

func (r retryHooks) ShouldRetry(job *ojs.JobInfo, err error) bool {
	for _, h := range r.hooks {
		retry := true
		r.apart(job, "ShouldRetry", func() { retry = h.ShouldRetry(job.Clone(), err) })
		if !retry {
			return false
		}
	}
	return true
}

func (r retryHooks) Delay(job *ojs.JobInfo, err error) time.Duration {
	for _, h := range r.hooks {
		var d time.Duration
		if r.apart(job, "Delay", func() { d = h.Delay(job.Clone(), err) }); d > 0 {
			return d
		}
	}
	return 0
}

// apart calls a hook, for an attempt that failed.
func (r retryHooks) apart(job *ojs.JobInfo, method string, call func()) {
	if stop := foreign.Call(call); stop != nil {
		r.c.JobLog(&job.JobHeader).Error("retry hook "+stop.How(), "method", method, stop.Attr())
	}
}
