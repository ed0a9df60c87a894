package operate

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/jsonvalue"
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
	for key := range e.Meta {
		if e.Args == nil && (key == codec.MetaEncodings || key == codec.MetaKeyID) {
			return draft.Invalid("meta", "%q says how the args are encoded, and changes with them alone", key)
		}
	}
	o := j.op
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

// edit makes an edit of a record.
func (o *Operator) edit(ctx context.Context, r *storage.Record, e Edit) error {
	return draft.Edit(ctx, o.eng.Codec, r, e.Args, o.eng.ArgsType(r.Type, r.TypeVersion), e.Meta)
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
		from = r.Queue
		if err := draft.Requeue(ctx, o.eng.Codec, r, queue); err != nil {
			return "", err
		}
		note(ctx, r, now, ojs.NoteMoved, "from "+from+" to "+queue)
		return event.Edited, nil
	})
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
		*to = draft.OptionsOf(&rec, meta)
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
		if err := draft.Override(ctx, o.eng.Codec, r, now, nil); err != nil {
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
