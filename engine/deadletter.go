package engine

import (
	"context"
	"iter"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// DeadLetters are the jobs that ended without success and were kept for a person: because
// their policy says so on exhaustion, because their handler did, or because their error
// forbids a retry (OJS dead letter). Their state is discarded.
type DeadLetters struct{ core *core }

// List lists the dead letters that f selects, the longest dead first, as Jobs.List does.
func (d *DeadLetters) List(ctx context.Context, f inspect.Filter) iter.Seq2[*ojs.JobInfo, error] {
	f.DeadLettered = true
	return d.core.jobs().List(ctx, f)
}

// DeadLetterStats counts dead letters.
type DeadLetterStats struct {
	Total          int
	ByQueue        map[string]int
	ByType         map[string]int
	ByErrorType    map[string]int
	Oldest, Newest time.Time // times of death; zero if there is none
}

// Stats counts the dead letters. It looks at each of them.
func (d *DeadLetters) Stats(ctx context.Context) (DeadLetterStats, error) {
	s := DeadLetterStats{ByQueue: make(map[string]int), ByType: make(map[string]int),
		ByErrorType: make(map[string]int)}
	for job, err := range d.List(ctx, inspect.Filter{}) {
		if err != nil {
			return DeadLetterStats{}, err
		}
		s.Total++
		s.ByQueue[job.Queue]++
		s.ByType[job.Type]++
		if job.Error != nil {
			s.ByErrorType[job.Error.Type]++
		}
		s.Oldest = earliest(s.Oldest, job.DeadLetteredAt)
		if job.DeadLetteredAt.After(s.Newest) {
			s.Newest = job.DeadLetteredAt
		}
	}
	return s, nil
}

// Retry makes a dead letter available again: the same id, attempt 0, its error history
// kept. Options change what they name of the job; its args, id and time cannot be
// changed. A deadline that has passed is dropped. A job that is no dead letter gives an
// *ojs.TransitionError, an unknown id ojs.ErrNotFound. So does a step of a workflow, as
// in Jobs.Retry. The job's meta counts how often it has been replayed
// (ojs.MetaReplayCount). Jobs.Apply retries many, of a filter with DeadLettered. To
// replay dead letters without a person, see WithReplayRules.
func (d *DeadLetters) Retry(ctx context.Context, id string, opts ...ojs.Option) error {
	return d.core.retry(ctx, id, "", func(r *storage.Record) bool { return r.DeadLettered() },
		"only a dead letter can be replayed", opts)
}

// Delete deletes a dead letter. A job that is none gives an *ojs.TransitionError, an
// unknown id ojs.ErrNotFound.
func (d *DeadLetters) Delete(ctx context.Context, id string) error {
	rec, err := d.core.store.Get(ctx, id)
	if err != nil {
		return d.core.missing(id, err)
	}
	if !rec.DeadLettered() {
		return cannotBe("deleted", &rec, "only a dead letter can be deleted here")
	}
	return d.core.delete(ctx, &rec)
}

// override lays options over a stored job.
func (c *core) override(ctx context.Context, r *storage.Record, now time.Time, opts []ojs.Option) error {
	o := ojs.Options{
		TypeVersion: r.TypeVersion,
		Queue:       r.Queue, Priority: r.Priority, Timeout: r.Timeout, TotalTimeout: r.TotalTimeout,
		EnqueueTTL: r.EnqueueTTL,
		Lease:      r.Lease, ResultTTL: r.ResultTTL, Retry: r.Retry, Meta: jsonvalue.Clone(r.Meta),
		RateLimit: r.RateLimit, Extra: r.Extra, ExpiresAt: r.ExpiresAt,
		Fairness: r.Fairness,
	}
	if r.Timeout == r.TotalTimeout {
		// as a rule this is the default, and the total timeout cuts it anew
		o.Timeout = max(o.Timeout, ojs.DefaultTimeout)
	}
	o.Apply(opts...)
	if err := o.Validate(); err != nil {
		return err
	}
	switch {
	case o.ID != "":
		return invalid("id", "cannot be changed")
	case o.Unique != nil:
		return invalid("unique", "cannot be changed")
	case o.TypeVersion != r.TypeVersion:
		return invalid("version", "cannot be changed")
	case o.RateLimitBy != "":
		return invalid("rate_limit_by", "makes a key at the enqueue only; give the key by ojs.WithRateLimit")
	case o.FairnessBy != "":
		return invalid("fairness_by", "makes a key at the enqueue only; give the key by ojs.WithFairnessKey")
	case o.Pending:
		return invalid("pending", "a dead letter is retried at once")
	case o.EnqueueTTL != r.EnqueueTTL:
		return invalid("enqueue_ttl",
			"counts from the enqueue and cannot be changed: use WithTTL, which counts from now")
	case o.Delay > 0 || o.ScheduledAt.After(now):
		return invalid("scheduled_at", "a dead letter is retried at once")
	}
	retry := o.Retry.Inherit(policy.Default())
	err := retry.Validate()
	// this program need not know a strategy that is stored
	if retry.BackoffStrategy != r.Retry.BackoffStrategy {
		_, err = policy.Resolve(retry)
	}
	if err != nil {
		return err
	}
	meta, err := normalMeta(o.Meta)
	if err != nil {
		return err
	}
	if err := c.reidentify(ctx, r, identity{o.Queue, o.Meta, meta, r.Args, false}); err != nil {
		return err
	}
	r.Queue, r.Priority, r.Timeout, r.TotalTimeout, r.Lease, r.ResultTTL = o.Queue, o.Priority, o.Timeout,
		o.TotalTimeout, o.Lease, o.ResultTTL
	r.Retry, r.MaxAttempts, r.Meta, r.RateLimit, r.Extra = retry, retry.Runs(), meta, o.RateLimit, o.Extra
	r.Fairness = o.Fairness
	if o.TotalTimeout > 0 {
		r.Timeout = min(r.Timeout, o.TotalTimeout) // as in prepare
	}
	if !now.Before(r.CreatedAt.Add(r.EnqueueTTL)) {
		r.EnqueueTTL = 0
	}
	r.ExpiresAt = normalTime(o.ExpiresAt)
	if o.TTL > 0 {
		r.ExpiresAt = now.Add(o.TTL)
	}
	if !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt) {
		r.ExpiresAt = time.Time{}
	}
	if r.TotalTimeout > 0 && !now.Before(r.CreatedAt.Add(r.TotalTimeout)) {
		r.TotalTimeout = 0
	}
	return checkSize(&r.JobInfo)
}
