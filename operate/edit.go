package operate

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// Edit is a change of a job that waits.
type Edit struct {
	// Args are the new args, as for Enqueue; JSON is a json.RawMessage, also for null.
	// nil: the job keeps its args.
	Args any

	// Meta has entries to set. An entry that is nil is deleted. Entries that are not
	// named stay.
	Meta map[string]any
}

// Edit changes the args and the meta of a job that waits: scheduled, available, pending
// or retryable. A job in another state gives an *ojs.TransitionError. The args are
// checked as those of a new job, and encoded by the engine's codecs. A unique job has the
// fingerprint of its new args and meta from then on; whether there is an equal job is not
// checked.
func (j *Jobs) Edit(ctx context.Context, id string, e Edit) error {
	o := j.op
	if err := e.check(); err != nil {
		return err
	}
	then := o.byHand(ctx, "job edited by hand")
	return o.change(ctx, id, then, func(r *storage.Record, now time.Time) (event.Type, error) {
		if !r.State.Waiting() {
			return "", cannotBe("edited", r,
				"only a waiting job can be edited; Jobs.Copy runs one again with other args")
		}
		if err := o.edit(ctx, r, e); err != nil {
			return "", err
		}
		note(ctx, r, now, ojs.NoteEdited, e.text())
		return event.Edited, nil
	})
}

func (e *Edit) check() error {
	for key := range e.Meta {
		if e.Args == nil && (key == codec.MetaEncodings || key == codec.MetaKeyID) {
			return draft.Invalid("meta", "%q says how the args are encoded, and changes with them alone", key)
		}
	}
	return nil
}

// edit makes an edit of a record.
func (o *Operator) edit(ctx context.Context, r *storage.Record, e Edit) (err error) {
	args, asGiven := r.Args, editedMeta(r.Meta, e.Meta)
	if e.Args != nil {
		args, err = draft.Args(e.Args, r.Type, o.eng.ArgsType(r.Type, r.TypeVersion), o.eng.Codec)
		if err != nil {
			return err
		}
		isPlain := !codec.IsEncoded(args, e.Meta)
		if isPlain && o.eng.Codec == nil && codec.IsEncoded(r.Args, r.Meta) {
			const reason = "the args of the job are encoded, and there is no codec for new ones: " +
				"give encoded args, or edit by an engine that has the codec"
			return fmt.Errorf("%w: %s", ojs.ErrUnsupported, reason)
		}
		if isPlain {
			asGiven = codec.PlainMeta(maps.Clone(asGiven))
		}
	}
	meta, err := draft.Meta(asGiven)
	if err != nil {
		return err
	}
	err = o.reidentify(ctx, r, identity{r.Queue, asGiven, meta, args, e.Args != nil})
	if err != nil {
		return err
	}
	r.Meta = meta
	if e.Args != nil {
		if r.Args = args; r.Unique != nil && draft.FromElsewhere(e.Args) {
			if err := draft.CheckIdentity(r.Unique, args, meta); err != nil {
				return err
			}
		}
		if err := draft.Encode(ctx, o.eng.Codec, r, draft.FromElsewhere(e.Args)); err != nil {
			return err
		}
	}
	return draft.CheckSize(&r.JobInfo)
}

// text says which parts of a job an edit changes.
func (e *Edit) text() string {
	var parts []string
	if e.Args != nil {
		parts = append(parts, "args")
	}
	for _, key := range slices.Sorted(maps.Keys(e.Meta)) {
		parts = append(parts, "meta."+key)
	}
	return foreign.Clip(strings.Join(parts, ", "), 200)
}

// Move moves a job that waits to another queue. An available job goes behind those of its
// priority there. A job in another state gives an *ojs.TransitionError, a queue that is
// draining an *ojs.QueueError. A bounded queue takes it even if it is full. If its
// uniqueness depends on the queue, the job has another fingerprint from then on, and
// whether there is an equal job is not checked.
func (j *Jobs) Move(ctx context.Context, id, queue string) error {
	if err := ojs.ValidateQueue(queue); err != nil {
		return err
	}
	o := j.op
	switch states, err := o.eng.Store.QueueStates(ctx); {
	case err != nil:
		return err
	case states[queue] == ojs.QueueDraining:
		return &ojs.QueueError{Queue: queue, Err: ojs.ErrQueueDraining}
	}
	from := ""
	then := func(rec *storage.Record) {
		o.eng.Moved(from)
		o.byHand(ctx, "job moved by hand")(rec)
	}
	return o.change(ctx, id, then, func(r *storage.Record, now time.Time) (event.Type, error) {
		switch {
		case !r.State.Waiting():
			return "", cannotBe("moved", r, "only a waiting job can be moved to another queue")
		case r.Queue == queue:
			return "", nil
		}
		if err := o.reidentify(ctx, r, identity{queue, r.Meta, r.Meta, r.Args, false}); err != nil {
			return "", err
		}
		note(ctx, r, now, ojs.NoteMoved, "from "+r.Queue+" to "+queue)
		from, r.Queue = r.Queue, queue
		return event.Edited, nil
	})
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

// metaOfRun are the entries of a job's meta that are about one run of it, and that a copy
// does not have.
var metaOfRun = []string{
	draft.MetaReplayCount, draft.MetaLastReplayedAt, draft.MetaReplayRule,
	"cron_name", "cron_triggered_at", workflow.MetaWorkflow,
}

// Copy enqueues a job that is like a stored one: with its type, options and meta, and
// with its args unless others are given, as for Enqueue. Options change what they name.
// The stored one may be in any state and stays as it is, so that Copy runs again what has
// completed or was cancelled. The copy has an id of its own, names the stored job in its
// meta ("ojs.copy_of"), starts at once, and belongs to no workflow and to no recurring
// entry. Rules for unique jobs and bounded queues hold for it. An unknown id gives
// ojs.ErrNotFound.
func (j *Jobs) Copy(ctx context.Context, id string, args any, opts ...ojs.Option) (ojs.Ticket, error) {
	o := j.op
	rec, err := o.eng.Inspect.Record(ctx, id)
	if err != nil {
		return ojs.Ticket{}, err
	}
	if rec.Type == workflow.Type {
		return ojs.Ticket{}, draft.Invalid("id",
			"%q is the record of a workflow: start the workflow again", id)
	}
	meta := jsonvalue.Clone(rec.Meta)
	if meta == nil {
		meta = make(map[string]any)
	}
	for _, key := range metaOfRun {
		delete(meta, key)
	}
	meta[draft.MetaCopyOf] = id
	if args == nil {
		args = rec.Args
		if plain, err := o.eng.Codec.DecodeArgs(ctx, rec.Args, rec.Meta); err == nil {
			args, meta = plain, codec.PlainMeta(meta)
		}
	} else {
		meta = codec.PlainMeta(meta)
	}
	now := o.eng.Now()
	like := func(to *ojs.Options) {
		*to = optionsOf(&rec, meta)
		if to.Unique = rec.Unique; !to.ExpiresAt.After(now) {
			to.ExpiresAt = time.Time{}
		}
	}
	tickets, err := o.eng.Enqueuer.EnqueueMany(ctx,
		ojs.NewDraft(rec.Type, args, append([]ojs.Option{like}, opts...)...))
	if err != nil {
		return ojs.Ticket{}, err
	}
	if tickets[0].Dropped {
		return ojs.Ticket{}, ojs.ErrDropped
	}
	return tickets[0], nil
}

// optionsOf are the options of a stored job, but for its id and uniqueness.
func optionsOf(r *storage.Record, meta map[string]any) ojs.Options {
	return ojs.Options{
		TypeVersion: r.TypeVersion, Queue: r.Queue, Priority: r.Priority, Timeout: r.Timeout,
		TotalTimeout: r.TotalTimeout, EnqueueTTL: r.EnqueueTTL, Lease: r.Lease, ResultTTL: r.ResultTTL,
		Retry: r.Retry, Meta: meta, RateLimit: r.RateLimit, Fairness: r.Fairness, Extra: r.Extra,
		ExpiresAt: r.ExpiresAt,
	}
}

// override lays options over a stored job.
func (o *Operator) override(ctx context.Context, r *storage.Record, now time.Time, opts []ojs.Option) error {
	to := optionsOf(r, jsonvalue.Clone(r.Meta))
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
		return draft.Invalid("id", "cannot be changed")
	case to.Unique != nil:
		return draft.Invalid("unique", "cannot be changed")
	case to.TypeVersion != r.TypeVersion:
		return draft.Invalid("version", "cannot be changed")
	case to.RateLimitBy != "":
		return draft.Invalid("rate_limit_by",
			"makes a key at the enqueue only; give the key by ojs.WithRateLimit")
	case to.FairnessBy != "":
		return draft.Invalid("fairness_by",
			"makes a key at the enqueue only; give the key by ojs.WithFairnessKey")
	case to.Pending:
		return draft.Invalid("pending", "a dead letter is retried at once")
	case to.EnqueueTTL != r.EnqueueTTL:
		return draft.Invalid("enqueue_ttl",
			"counts from the enqueue and cannot be changed: use WithTTL, which counts from now")
	case to.Delay > 0 || to.ScheduledAt.After(now):
		return draft.Invalid("scheduled_at", "a dead letter is retried at once")
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
	meta, err := draft.Meta(to.Meta)
	if err != nil {
		return err
	}
	if err := o.reidentify(ctx, r, identity{to.Queue, to.Meta, meta, r.Args, false}); err != nil {
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
	r.ExpiresAt = draft.Time(to.ExpiresAt)
	if to.TTL > 0 {
		r.ExpiresAt = now.Add(to.TTL)
	}
	if !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt) {
		r.ExpiresAt = time.Time{}
	}
	if r.TotalTimeout > 0 && !now.Before(r.CreatedAt.Add(r.TotalTimeout)) {
		r.TotalTimeout = 0
	}
	return draft.CheckSize(&r.JobInfo)
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
func (o *Operator) reidentify(ctx context.Context, r *storage.Record, to identity) (err error) {
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
		if args, err = o.eng.Codec.DecodeArgs(ctx, args, r.Meta); err != nil {
			return err
		}
	}
	header := ojs.JobHeader{Type: r.Type, TypeVersion: r.TypeVersion, Queue: to.queue, Meta: to.asGiven}
	r.Fingerprint, err = policy.Fingerprint(r.Unique, &ojs.JobInfo{JobHeader: header, Args: args})
	return err
}

// beginAnew makes a job that has ended one that is available, at attempt 0.
func beginAnew(r *storage.Record, now time.Time) {
	r.State, r.EnqueuedAt = ojs.StateAvailable, now
	r.Attempt, r.Progress, r.Error = 0, 0, nil
	r.FinishedAt, r.DeadLetteredAt = time.Time{}, time.Time{}
}

// revived makes the record of a job that has ended one that begins anew, at once or
// after others.
func (o *Operator) revived(ctx context.Context, r *storage.Record, now time.Time, waits bool) error {
	if d := r.Dependencies; d == nil || !d.Join {
		if err := o.override(ctx, r, now, nil); err != nil {
			return err
		}
	}
	beginAnew(r, now)
	if waits {
		r.State, r.EnqueuedAt = ojs.StatePending, time.Time{}
	}
	expireAnew(r, now)
	return nil
}

// expireAnew has the WithTTL of a job that depends on others count from now on, or from
// when it need not wait any longer.
func expireAnew(r *storage.Record, now time.Time) {
	switch d := r.Dependencies; {
	case d == nil || d.TTL == 0:
	case r.State == ojs.StatePending:
		r.ExpiresAt = time.Time{}
	default:
		r.ExpiresAt = now.Add(d.TTL)
	}
}

// note adds an entry to the history of a job, in the name of the caller.
func note(ctx context.Context, r *storage.Record, now time.Time, what ojs.NoteKind, text string) {
	r.Note(ojs.Note{At: now, What: what, By: ojs.Actor(ctx), Text: text})
}

// countReplay notes in a job's meta that it is replayed now, by a rule or, if that is "",
// a person.
func countReplay(r *storage.Record, now time.Time, rule string) {
	meta := maps.Clone(r.Meta)
	if meta == nil {
		meta = make(map[string]any)
	}
	meta[draft.MetaReplayCount] = float64(draft.ReplayCount(meta) + 1) // as JSON gives it back
	meta[draft.MetaLastReplayedAt] = now.UTC().Format(time.RFC3339Nano)
	if delete(meta, draft.MetaReplayRule); rule != "" {
		meta[draft.MetaReplayRule] = rule
	}
	r.Meta = meta
}
