package draft

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// Edit gives a record other args, as those of a draft for a handler that takes a type,
// and lays entries over its meta. An entry that is nil is deleted. With nil args the
// record keeps its own.
func Edit(ctx context.Context, by *codec.Chain, r *storage.Record, newArgs any, of reflect.Type,
	set map[string]any) (err error) {
	args, asGiven := r.Args, editedMeta(r.Meta, set)
	if newArgs != nil {
		args, err = Args(newArgs, r.Type, of, by)
		if err != nil {
			return err
		}
		isPlain := !codec.IsEncoded(args, set)
		if isPlain && by == nil && codec.IsEncoded(r.Args, r.Meta) {
			const reason = "the args of the job are encoded, and there is no codec for new ones: " +
				"give encoded args, or edit by an engine that has the codec"
			return fmt.Errorf("%w: %s", ojs.ErrUnsupported, reason)
		}
		if isPlain {
			asGiven = codec.PlainMeta(maps.Clone(asGiven))
		}
	}
	meta, err := Meta(asGiven)
	if err != nil {
		return err
	}
	err = reidentify(ctx, by, r, identity{r.Queue, asGiven, meta, args, newArgs != nil})
	if err != nil {
		return err
	}
	r.Meta = meta
	if newArgs != nil {
		if r.Args = args; r.Unique != nil && FromElsewhere(newArgs) {
			if err := CheckIdentity(r.Unique, args, meta); err != nil {
				return err
			}
		}
		if err := Encode(ctx, by, r, FromElsewhere(newArgs)); err != nil {
			return err
		}
	}
	return CheckSize(&r.JobInfo)
}

// editedMeta lays entries over the meta of a job.
func editedMeta(have, set map[string]any) map[string]any {
	if len(set) == 0 {
		return have
	}
	meta := jsonvalue.Clone(have)
	if meta == nil {
		meta = make(map[string]any)
	}
	for key, value := range set {
		if meta[key] = value; value == nil {
			delete(meta, key)
		}
	}
	if len(meta) == 0 {
		return nil
	}
	return meta
}

// Requeue moves a job to another queue.
func Requeue(ctx context.Context, by *codec.Chain, r *storage.Record, queue string) error {
	err := reidentify(ctx, by, r, identity{queue, r.Meta, r.Meta, r.Args, false})
	if err == nil {
		r.Queue = queue
	}
	return err
}

// OptionsOf are the options of a stored job, but for its id and uniqueness.
func OptionsOf(r *storage.Record, meta map[string]any) ojs.Options {
	return ojs.Options{
		TypeVersion: r.TypeVersion, Queue: r.Queue, Priority: r.Priority, Timeout: r.Timeout,
		TotalTimeout: r.TotalTimeout, EnqueueTTL: r.EnqueueTTL, Lease: r.Lease, ResultTTL: r.ResultTTL,
		Retry: r.Retry, Meta: meta, RateLimit: r.RateLimit, Fairness: r.Fairness, Extra: r.Extra,
		ExpiresAt: r.ExpiresAt,
	}
}

// Override lays options over a stored job that begins anew.
func Override(ctx context.Context, by *codec.Chain, r *storage.Record, now time.Time,
	opts []ojs.Option) error {
	to := OptionsOf(r, jsonvalue.Clone(r.Meta))
	if r.Timeout == r.TotalTimeout {
		// as a rule this is the default, and the total timeout cuts it anew
		to.Timeout = max(to.Timeout, ojs.DefaultTimeout)
	}
	to.Apply(opts...)
	if err := to.Validate(); err != nil {
		return err
	}
	switch {
	case to.ID != "":
		return Invalid("id", "cannot be changed")
	case to.Unique != nil:
		return Invalid("unique", "cannot be changed")
	case to.TypeVersion != r.TypeVersion:
		return Invalid("version", "cannot be changed")
	case to.RateLimitBy != "":
		return Invalid("rate_limit_by",
			"makes a key at the enqueue only; give the key by ojs.WithRateLimit")
	case to.FairnessBy != "":
		return Invalid("fairness_by",
			"makes a key at the enqueue only; give the key by ojs.WithFairnessKey")
	case to.Pending:
		return Invalid("pending", "a dead letter is retried at once")
	case to.EnqueueTTL != r.EnqueueTTL:
		return Invalid("enqueue_ttl",
			"counts from the enqueue and cannot be changed: use WithTTL, which counts from now")
	case to.Delay > 0 || to.ScheduledAt.After(now):
		return Invalid("scheduled_at", "a dead letter is retried at once")
	}
	retry := to.Retry.Inherit(policy.Default())
	err := retry.Validate()
	// this program need not know a strategy that is stored
	if retry.BackoffStrategy != r.Retry.BackoffStrategy {
		_, err = policy.Resolve(retry)
	}
	if err != nil {
		return err
	}
	meta, err := Meta(to.Meta)
	if err != nil {
		return err
	}
	if err := reidentify(ctx, by, r, identity{to.Queue, to.Meta, meta, r.Args, false}); err != nil {
		return err
	}
	r.Queue, r.Priority, r.Timeout, r.TotalTimeout, r.Lease, r.ResultTTL = to.Queue, to.Priority, to.Timeout,
		to.TotalTimeout, to.Lease, to.ResultTTL
	r.Retry, r.MaxAttempts, r.Meta, r.RateLimit, r.Extra = retry, retry.Runs(), meta, to.RateLimit, to.Extra
	r.Fairness = to.Fairness
	if to.TotalTimeout > 0 {
		r.Timeout = min(r.Timeout, to.TotalTimeout) // as for a new job
	}
	if !now.Before(r.CreatedAt.Add(r.EnqueueTTL)) {
		r.EnqueueTTL = 0
	}
	r.ExpiresAt = Time(to.ExpiresAt)
	if to.TTL > 0 {
		r.ExpiresAt = now.Add(to.TTL)
	}
	if !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt) {
		r.ExpiresAt = time.Time{}
	}
	if r.TotalTimeout > 0 && !now.Before(r.CreatedAt.Add(r.TotalTimeout)) {
		r.TotalTimeout = 0
	}
	return CheckSize(&r.JobInfo)
}

// identity is what may be part of a unique job's fingerprint.
type identity struct {
	queue         string
	asGiven, meta map[string]any // meta as a person gave it, and as it is stored
	args          ojs.Args
	newArgs       bool // args are new, and not encoded by the engine's codec
}

// reidentify gives a unique job the fingerprint of its new identity, if that is another.
// It keeps the one that it has otherwise: that was made of meta as given, of which a
// large number is stored with fewer digits.
func reidentify(ctx context.Context, by *codec.Chain, r *storage.Record, to identity) (err error) {
	if r.Unique == nil || r.Fingerprint == "" {
		return nil
	}
	dims := r.Unique.Dimensions()
	another := dims&ojs.ByArgs != 0 && to.newArgs || dims&ojs.ByQueue != 0 && to.queue != r.Queue ||
		dims&ojs.ByMeta != 0 && slices.ContainsFunc(r.Unique.MetaKeys,
			func(key string) bool { return !reflect.DeepEqual(to.meta[key], r.Meta[key]) })
	if !another {
		return nil
	}
	args := to.args
	if dims&ojs.ByArgs != 0 && !to.newArgs {
		if args, err = by.DecodeArgs(ctx, args, r.Meta); err != nil {
			return err
		}
	}
	header := ojs.JobHeader{Type: r.Type, TypeVersion: r.TypeVersion, Queue: to.queue, Meta: to.asGiven}
	r.Fingerprint, err = policy.Fingerprint(r.Unique, &ojs.JobInfo{JobHeader: header, Args: args})
	return err
}

// CountReplay notes in a job's meta that it is replayed now, by a rule or, if that is "",
// a person.
func CountReplay(r *storage.Record, now time.Time, rule string) {
	meta := maps.Clone(r.Meta)
	if meta == nil {
		meta = make(map[string]any)
	}
	meta[MetaReplayCount] = float64(ReplayCount(meta) + 1) // as JSON gives it back
	meta[MetaLastReplayedAt] = now.UTC().Format(MetaTimes)
	if delete(meta, MetaReplayRule); rule != "" {
		meta[MetaReplayRule] = rule
	}
	r.Meta = meta
}
