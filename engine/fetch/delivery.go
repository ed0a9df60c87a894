package fetch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/enqueue"
	"github.com/ojsengine/ojs/engine/internal/settle"
	"github.com/ojsengine/ojs/event"
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/internal/locks"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// Delivery is one attempt in a worker's hands. Ack, Fail and Release end it; the first
// that succeeds counts. If the worker has lost the job, because its lease ran out or the
// job was cancelled, a call returns ojs.ErrLeaseLost. After any other error a call may be
// repeated. An Ack after the timeout completes the job, unless the engine has already
// failed the attempt for it. Any other answer after the timeout is a failure for
// exceeding it. The methods are safe for concurrent use. A Delivery encodes to JSON.
//
// Job and Checkpoint are as they are stored: encoded, if the engine or the client has a
// codec, since keys need not be where the engine is. The worker decodes them, or calls
// Decode. The engine's codec encodes the plain results, checkpoints and details of errors
// that the worker hands in. It keeps encoded ones as they are.
type Delivery struct {
	Job        *ojs.JobInfo    `json:"job"`
	Token      string          `json:"token"`                // names the delivery; see Worker.Delivery
	LeaseUntil time.Time       `json:"lease_until"`          // when it was fetched
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"` // of earlier attempts; nil: none

	core *Workers
	from *Worker // nil: the engine ends it by itself
	rec  storage.Record

	began     time.Time // when the worker could begin; see holding
	cancelled bool      // along with its workflow, before it was delivered

	mu       locks.Mutex // guards the fields below, and is held while the delivery is settled
	progress float64
	saved    json.RawMessage
	tried    *settle.Settlement // an outcome that may have been stored
	ended    *ojs.JobInfo       // as the delivery has left it
}

// delivery makes a delivery of a record, whose memory is then its Job's.
func (c *Workers) delivery(rec *storage.Record, from *Worker) *Delivery {
	job := rec.JobInfo // without the memory of the other records of a claim
	d := &Delivery{Job: &job, LeaseUntil: rec.LeaseUntil, Checkpoint: rec.Checkpoint, core: c, from: from,
		rec: rec.Copy(), began: rec.StartedAt, progress: rec.Progress, saved: rec.Checkpoint}
	d.Token = token(d.held())
	if h, here := c.workers.holding(d.held()); here {
		d.began = h.began
	}
	return d
}

func token(held storage.Held) string { return held.ID + "." + strconv.FormatUint(held.Version, 36) }

func parseToken(s string) (held storage.Held, err error) {
	id, version, _ := strings.Cut(s, ".")
	held.ID = id
	if held.Version, err = strconv.ParseUint(version, 36, 64); err != nil || id == "" {
		return held, draft.Invalid("token", "is none of an engine's")
	}
	return held, nil
}

func (d *Delivery) held() storage.Held { return storage.Held{ID: d.rec.ID, Version: d.rec.Version} }

// Ack completes the job. The result is a value that encodes to JSON; nil is none. If the
// result does not encode, or is too large, Ack refuses it, and the delivery goes on.
//
// The drafts are jobs that are stored in the same step as the completion, as by
// handler.Then. If one of them is refused, Ack returns the error, and the delivery goes
// on.
func (d *Delivery) Ack(ctx context.Context, result any, then ...ojs.Draft) error {
	var raw json.RawMessage
	if result != nil {
		var err error
		if raw, err = internal.EncodeResult(result); err != nil {
			return err
		}
		if raw, err = d.core.EncodeGiven(ctx, "result", raw, jsonvalue.MaxResult); err != nil {
			return err
		}
	}
	list, err := d.core.enqueue.FollowUps(ctx, then)
	if err != nil {
		return err
	}
	return d.answer(ctx, policy.Outcome{Kind: policy.Returned}, raw, list)
}

// Settled returns the job as the call that ended the delivery has left it; nil: none has.
func (d *Delivery) Settled() *ojs.JobInfo {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended
}

// Fail ends the attempt with an error, which decides on the job as a handler's does: by
// its response code, its type and the job's retry policy. A nil err is a failure like any
// other.
func (d *Delivery) Fail(ctx context.Context, err error) error {
	if err == nil {
		err = errors.New("ojs: failed without an error")
	}
	return d.answer(ctx, policy.Outcome{Kind: policy.Returned, Err: err}, nil, nil)
}

// Release gives the job back without spending the attempt.
func (d *Delivery) Release(ctx context.Context) error {
	return d.answer(ctx, policy.Outcome{Kind: policy.Interrupted}, nil, nil)
}

// Abandon fails the attempt of a worker that an operator knows to have died, as its
// silence would (Config.DeadAfter). It is no call of the worker.
func (d *Delivery) Abandon(ctx context.Context) error {
	silence := max(d.core.Now().Sub(d.rec.StartedAt), 0)
	return d.end(ctx, policy.Outcome{Kind: policy.WorkerDied, Limit: d.from.deadAfter(), Elapsed: silence},
		nil, nil)
}

// answer settles the delivery as the worker says.
func (d *Delivery) answer(
	ctx context.Context, o policy.Outcome, result json.RawMessage, then *enqueue.FollowUps,
) error {
	d.from.touch()
	return d.end(ctx, o, result, then)
}

// end settles the delivery.
func (d *Delivery) end(
	ctx context.Context, o policy.Outcome, result json.RawMessage, then *enqueue.FollowUps,
) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.core
	f := settle.NewSettlement(&d.rec, d.rec.Worker)
	f.Rec.Progress, f.Rec.Checkpoint = d.progress, d.saved
	f.Traced = ctx
	c.settle.Decide(f, o, d.began, c.Now(), result)
	f.Follow(then)
	if d.tried != nil && d.tried.Rec.State == f.Rec.State {
		f = d.tried // as it may be stored
		f.Traced = ctx
	}
	refused, err := c.settle.SettleOne(ctx, f)
	switch {
	case err != nil:
		d.tried = f
		return err
	case refused == nil:
		d.ended = &f.Rec.JobInfo
		return nil
	case f.RefusedThen(refused):
		d.tried = nil
		c.enqueue.Rejected(refused)
		return c.enqueue.Explained(refused, f.Then.Batch)
	}
	c.Lose(d.held(), nil)
	if settle.LostClaim(refused) {
		return d.lost()
	}
	return refused
}

func (d *Delivery) lost() error { return notHeld(d.rec.ID, d.rec.Worker) }

// notHeld is the error of a call for a job that its worker does not hold.
func notHeld(id, worker string) error {
	return fmt.Errorf("%w: job %s is not held by worker %s", ojs.ErrLeaseLost, id, worker)
}

// Heartbeat renews the lease to the job's full period. If the attempt has exceeded its
// timeout, or the job its total timeout, it fails the attempt for that instead and
// returns ojs.ErrTimeout.
func (d *Delivery) Heartbeat(ctx context.Context) error {
	return d.extend(ctx, nil, event.Heartbeat)
}

// Progress reports how much of its work the attempt has done, from 0 to 1, and renews the
// lease. Less than before counts as no change.
func (d *Delivery) Progress(ctx context.Context, fraction float64) error {
	if !(fraction >= 0 && fraction <= 1) { // NaN neither
		return draft.Invalid("progress", "%v is not from 0 to 1", fraction)
	}
	d.mu.Lock()
	d.progress = max(d.progress, fraction)
	d.mu.Unlock()
	return d.extend(ctx, nil, event.Progress)
}

// SaveCheckpoint stores how far the attempt has come, for the attempts after it, and
// renews the lease; see handler.SaveCheckpoint.
func (d *Delivery) SaveCheckpoint(ctx context.Context, v any) error {
	raw, err := internal.EncodeCheckpoint(v)
	if err != nil {
		return err
	}
	if raw, err = d.core.EncodeGiven(ctx, "checkpoint", raw, jsonvalue.MaxCheckpoint); err != nil {
		return err
	}
	return d.extend(ctx, raw, event.Checkpointed)
}

func (d *Delivery) extend(ctx context.Context, checkpoint json.RawMessage, typ event.Type) error {
	c := d.core
	d.from.touch()
	now := c.Now()
	if o := policy.Timed(&d.rec.JobInfo, policy.Outcome{Kind: policy.Interrupted}, d.began,
		now); o.Kind != policy.Interrupted {
		if err := d.end(ctx, o, nil, nil); err != nil {
			return err
		}
		return ojs.ErrTimeout
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	lease := -max(d.from.cfg.Lease, 0)
	known, here := c.workers.holding(d.held())
	if lease == 0 {
		lease = known.lease
	}
	if lease == 0 {
		lease = -d.leaseElsewhere(now, here)
	}
	x := storage.Extension{Held: d.held(), Progress: d.progress, Checkpoint: checkpoint, Lease: lease}
	lost, err := c.settle.Extend(ctx, now, &d.rec, x, typ)
	switch {
	case err != nil:
		return err
	case lost:
		c.Lose(d.held(), nil)
		return d.lost()
	}
	if checkpoint != nil {
		d.saved = checkpoint
	}
	if typ == event.Heartbeat {
		c.watch(c.workers.beat(d.from.id)) // only now: a refused call has renewed nothing
	}
	until := now.Add(d.rec.LeaseFor(lease))
	c.admission.Gate.Renewed(d.held(), until)
	c.watch(c.workers.hold(d.rec.Worker, &d.rec, d.began, until, lease))
	c.WakeAt(until) // which may be earlier than before
	return nil
}

// leaseElsewhere is the lease that another engine may have given; 0: that of the job. If
// the delivery is here, this engine has given one. The result does not shorten a lease:
// LeaseElsewhere may be that of the worker's other jobs.
func (d *Delivery) leaseElsewhere(now time.Time, here bool) time.Duration {
	own, asked, left := d.rec.Lease, d.from.cfg.LeaseElsewhere, d.rec.LeaseUntil.Sub(now)
	notOwn := d.rec.LeaseUntil.Before(d.rec.StartedAt.Add(own)) // it was shorter from the first
	switch {
	case !here && asked >= left && asked > 0 && (asked > own || notOwn):
		return asked
	case left > own:
		return left
	}
	return 0
}

// Decode decodes Job and Checkpoint by the engine's codecs, for a worker in a program
// that has them. A worker elsewhere decodes for itself. The error is a *codec.Error, and
// the delivery then stays as it is.
func (d *Delivery) Decode(ctx context.Context) error {
	job, err := d.core.Codec.DecodeJob(ctx, d.Job)
	if err != nil {
		return err
	}
	checkpoint, err := d.core.DecodeValue(ctx, &d.rec, d.Checkpoint)
	if err != nil {
		return err
	}
	d.Job, d.Checkpoint = job, checkpoint
	return nil
}
