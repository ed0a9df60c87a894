package engine

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
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
	c := j.core
	for key := range e.Meta {
		if e.Args == nil && (key == codec.MetaEncodings || key == codec.MetaKeyID) {
			return invalid("meta", "%q says how the args are encoded, and changes with them alone", key)
		}
	}
	then := c.byHand(ctx, "job edited by hand")
	return c.update(ctx, id, then, func(r *storage.Record, now time.Time) (ojs.EventType, error) {
		if !r.State.Waiting() {
			return "", cannotBe("edited", r,
				"only a waiting job can be edited; Jobs.Copy runs one again with other args")
		}
		var err error
		args, asGiven := r.Args, editedMeta(r.Meta, e.Meta)
		if e.Args != nil {
			args, err = c.encodeArgs(e.Args, r.Type, c.registry.lookup(r.Type, r.TypeVersion))
			if err != nil {
				return "", err
			}
			if !codec.IsEncoded(args, e.Meta) {
				asGiven = codec.PlainMeta(maps.Clone(asGiven))
			}
		}
		meta, err := normalMeta(asGiven)
		if err != nil {
			return "", err
		}
		err = c.reidentify(ctx, r, identity{r.Queue, asGiven, meta, args, e.Args != nil})
		if err != nil {
			return "", err
		}
		r.Meta = meta
		if e.Args != nil {
			if r.Args = args; r.Unique != nil && given(e.Args) {
				if err := checkIdentity(r.Unique, args, meta); err != nil {
					return "", err
				}
			}
			if err := c.encodeJob(ctx, r, given(e.Args)); err != nil {
				return "", err
			}
		}
		note(ctx, r, now, ojs.NoteEdited, e.text())
		return ojs.EventEdited, checkSize(&r.JobInfo)
	})
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
	c := j.core
	switch states, err := c.store.QueueStates(ctx); {
	case err != nil:
		return err
	case states[queue] == ojs.QueueDraining:
		return &ojs.QueueError{Queue: queue, Err: ojs.ErrQueueDraining}
	}
	from := ""
	then := func(rec *storage.Record) {
		c.room.made(from)
		c.byHand(ctx, "job moved by hand")(rec)
	}
	return c.update(ctx, id, then, func(r *storage.Record, now time.Time) (ojs.EventType, error) {
		switch {
		case !r.State.Waiting():
			return "", cannotBe("moved", r, "only a waiting job can be moved to another queue")
		case r.Queue == queue:
			return "", errUnchanged
		}
		if err := c.reidentify(ctx, r, identity{queue, r.Meta, r.Meta, r.Args, false}); err != nil {
			return "", err
		}
		note(ctx, r, now, ojs.NoteMoved, "from "+r.Queue+" to "+queue)
		from, r.Queue = r.Queue, queue
		return ojs.EventEdited, nil
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
func (c *core) reidentify(ctx context.Context, r *storage.Record, to identity) (err error) {
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
		if args, err = c.codec.DecodeArgs(ctx, args, r.Meta); err != nil {
			return err
		}
	}
	header := ojs.JobHeader{Type: r.Type, TypeVersion: r.TypeVersion, Queue: to.queue, Meta: to.asGiven}
	r.Fingerprint, err = policy.Fingerprint(r.Unique, &ojs.JobInfo{JobHeader: header, Args: args})
	return err
}

// metaOfRun are the entries of a job's meta that are about one run of it, and that a copy
// does not have.
var metaOfRun = []string{
	ojs.MetaReplayCount, ojs.MetaLastReplayedAt, ojs.MetaReplayRule,
	"cron_name", "cron_triggered_at", workflow.MetaWorkflow,
}

// Copy enqueues a job that is like a stored one: with its type, options and meta, and
// with its args unless others are given, as for Enqueue. Options change what they name.
// The stored one may be in any state and stays as it is, so that Copy runs again what has
// completed or was cancelled. The copy has an id of its own, names the stored job in its
// meta (ojs.MetaCopyOf), starts at once, and belongs to no workflow and to no recurring
// entry. Rules for unique jobs and bounded queues hold for it. An unknown id gives
// ojs.ErrNotFound.
func (j *Jobs) Copy(ctx context.Context, id string, args any, opts ...ojs.Option) (ojs.Ticket, error) {
	c := j.core
	rec, err := c.store.Get(ctx, id)
	if err != nil {
		return ojs.Ticket{}, c.missing(id, err)
	}
	if rec.Type == workflow.Type {
		return ojs.Ticket{}, invalid("id", "%q is the record of a workflow: start the workflow again", id)
	}
	meta := jsonvalue.Clone(rec.Meta)
	if meta == nil {
		meta = make(map[string]any)
	}
	for _, key := range metaOfRun {
		delete(meta, key)
	}
	meta[ojs.MetaCopyOf] = id
	if args == nil {
		args = rec.Args
		if plain, err := c.codec.DecodeArgs(ctx, rec.Args, rec.Meta); err == nil {
			args, meta = plain, codec.PlainMeta(meta)
		}
	} else {
		meta = codec.PlainMeta(meta)
	}
	now := c.now()
	like := func(o *ojs.Options) {
		*o = ojs.Options{
			TypeVersion: rec.TypeVersion, Queue: rec.Queue, Priority: rec.Priority,
			Timeout: rec.Timeout, TotalTimeout: rec.TotalTimeout, EnqueueTTL: rec.EnqueueTTL,
			Lease: rec.Lease, ResultTTL: rec.ResultTTL, Retry: rec.Retry, Meta: meta,
			RateLimit: rec.RateLimit, Fairness: rec.Fairness, Unique: rec.Unique, Extra: rec.Extra,
		}
		if rec.ExpiresAt.After(now) {
			o.ExpiresAt = rec.ExpiresAt
		}
	}
	return c.enqueue(ctx, rec.Type, args, nil, append([]ojs.Option{like}, opts...))
}
