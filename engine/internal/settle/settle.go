// Package settle stores the outcomes of attempts and the changes of operators, and tells
// of them.
//
// # Invariants
//
//  1. An outcome is stored once, fenced by the version of its claim, or its lease ends.
//  2. An outcome whose call has failed may be stored. The next call for it recognises
//     that.
//  3. Events come before log lines, and these before waiters are woken.
package settle

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ojsengine/ojs/internal/bridge"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/enqueue"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/engine/internal/ids"
	"github.com/ojsengine/ojs/engine/internal/joblog"
	"github.com/ojsengine/ojs/engine/internal/jobtypes"
	"github.com/ojsengine/ojs/engine/internal/publish"
	"github.com/ojsengine/ojs/engine/internal/tracing"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/encoded"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/iso8601"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/insert"
	"github.com/ojsengine/ojs/telemetry"
)

// Settler stores outcomes and changes for one engine. It is safe for concurrent use, and
// has no lock.
type Settler struct {
	*env.Env
	Types   *jobtypes.Types
	Enqueue *enqueue.Enqueuer
	Jitter  uint64 // the seed of delays

	// Concluded follows outcomes that were stored, for the attempts that they end.
	Concluded func(list []*Settlement, settled []storage.Settled)
}

// The Settler stores the outcomes of attempts. Every outcome takes the same steps,
// whether a handler, a stop, a timeout, an ended lease or a remote worker brings it:
//
//  1. settle stores a list of outcomes in one call. A step of the pipeline that claims,
//     too, calls StoreEnds itself (exchange of package attempts).
//  2. StoreEnds follows the outcomes that the storage has taken: events first, then logs,
//     waiters, and the attempts.
//  3. If the storage has refused an outcome, its caller gives it up. Follow-ups that were
//     refused make it a failure of the attempt instead, which is stored in its place.
//
// If the call itself fails, it may have stored everything. The outcomes are marked as
// tried, and the next settle of such an outcome recognises what is there. The callers
// differ in who calls next: a goroutine of its own for an outcome of a handler that has
// returned, the attempt's timer after a timeout, the worker for its delivery. After an
// ended lease and at the end of a stop there is no next call: the lease runs out.

// Settle stores outcomes in one call, and follows each that is stored. The results are in
// the scratch, which the storage may keep if it fails. With a tracer it stores one
// outcome only.
func (c *Settler) Settle(ctx context.Context, list []*Settlement, s *Scratch) ([]storage.Settled, error) {
	end := tracing.Nothing
	if f := list[0]; c.Tracing() {
		if f.Traced != nil {
			ctx = f.Traced
		}
		kind := telemetry.OpNack
		if f.Rec.State == ojs.StateCompleted {
			kind = telemetry.OpAck
		}
		ctx, end = c.Trace(ctx, kind, f.Rec)
	}
	s.changes = s.changes[:0]
	for _, f := range list {
		s.changes = append(s.changes, f.change())
	}
	return c.StoreEnds(ctx, list, s, func() ([]storage.Settled, error) {
		settled, err := c.Store.Settle(ctx, c.Now(), s.changes, s.Settled[:0])
		if err != nil {
			end(err)
			*s = Scratch{}
			for _, f := range list {
				f.Tried = true
			}
			c.Failed("settle", err, "jobs", len(list), "job_id", list[0].Rec.ID)
			return nil, err
		}
		s.Settled = settled
		end(settled[0].Err)
		for i, f := range list {
			if f.Tried && c.storedBefore(ctx, f.Rec, settled[i]) {
				settled[i].Err = nil
			}
		}
		return settled, nil
	})
}

// StoreEnds makes a call that stores outcomes. It then publishes, counts and logs each
// outcome that the storage has taken, and wakes its waiters.
func (c *Settler) StoreEnds(ctx context.Context, list []*Settlement, s *Scratch,
	call func() ([]storage.Settled, error)) (settled []storage.Settled, err error) {
	c.blockKeys(ctx, list)
	err = c.Journal.Do(c.beganEnds(list, s), func() (moved []storage.Record, err error) {
		if settled, err = call(); err != nil {
			return nil, err
		}
		c.followed(ctx, list, settled)
		c.Meter.Ended(len(list), func(i int) (telemetry.Attempt, bool) {
			f := list[i]
			return telemetry.Attempt{Job: f.Rec, Took: f.took, Returned: f.Decision.Refunded,
				Completed: f.Decision.State == ojs.StateCompleted}, settled[i].Err == nil
		})
		for i := range settled {
			moved = append(moved, settled[i].Moved...)
		}
		return moved, nil
	}, func(op *eventlog.Op) { c.publishEnds(op, list, settled) }, func() { c.stored(ctx, list, settled) })
	return settled, err
}

var scratches = sync.Pool{New: func() any { return new(Scratch) }}

// SettleOne is Settle of one outcome. refused is why the storage has not taken it.
func (c *Settler) SettleOne(ctx context.Context, f *Settlement) (refused, err error) {
	s := scratches.Get().(*Scratch)
	settled, err := c.Settle(ctx, []*Settlement{f}, s)
	if err == nil {
		refused = settled[0].Err
	}
	s.Empty()
	scratches.Put(s)
	return refused, err
}

// storedBefore reports whether a Settle that failed had stored rec all the same: the next
// try then finds the job one version on, and as rec would have it.
func (c *Settler) storedBefore(ctx context.Context, rec *storage.Record, s storage.Settled) bool {
	if !foreign.Is(s.Err, storage.ErrFenced) || s.Version != rec.Version+1 {
		return false
	}
	there, err := c.Store.Get(ctx, rec.ID)
	return err == nil && there.Version == s.Version && there.State == rec.State &&
		there.FinishedAt.Equal(rec.FinishedAt) && there.NextRetryAt.Equal(rec.NextRetryAt)
}

// stored follows the outcomes of a list that were stored, after their events. The others
// stay as they are.
func (c *Settler) stored(ctx context.Context, list []*Settlement, settled []storage.Settled) {
	c.enqueuedThen(list, settled)
	for i, f := range list {
		if settled[i].Err == nil {
			c.logOutcome(f, f.Worker)
			if !f.Rec.State.Terminal() {
				c.CancelWithWorkflow(ctx, f.Rec)
			}
		}
	}
	for i, f := range list {
		switch {
		case settled[i].Err != nil:
			continue
		case f.Rec.State.Terminal():
			c.Ended(f.Rec)
		default:
			c.WakeAt(f.Rec.WakeAt())
		}
		if f.Owner == nil {
			c.WorkerLost(storage.Held{ID: f.Rec.ID, Version: f.Rec.Version}, nil)
		}
	}
	c.Concluded(list, settled)
}

// NotStored logs that an outcome is given up.
func (c *Settler) NotStored(f *Settlement, err error) {
	switch {
	case !foreign.Is(err, storage.ErrFenced):
		c.JobLog(&f.Rec.JobHeader).Error("outcome not stored; the job runs again when its lease has run out",
			"error", err)
	case c.Logs(slog.LevelDebug):
		c.JobLog(&f.Rec.JobHeader).Debug("late result refused")
	}
}

// SettleLost decides and stores the outcome of a job whose lease is over, or whose holder
// is dead. If it cannot be stored now, the lease runs out in turn.
func (c *Settler) SettleLost(ctx context.Context, rec storage.Record, o policy.Outcome) {
	now := c.Now()
	o.Elapsed = now.Sub(rec.StartedAt)
	ctx, end := c.Trace(ctx, telemetry.OpVisibility, &rec)
	f := NewSettlement(&rec, rec.Worker)
	f.Traced = ctx
	c.Decide(f, o, rec.StartedAt, now, nil)
	refused, err := c.SettleOne(ctx, f)
	if err == nil {
		err = refused
	}
	if end(err); err != nil {
		c.NotStored(f, err)
	}
}

// LostClaim reports whether a change was refused since its claim is not the job's latest.
func LostClaim(err error) bool {
	return foreign.Is(err, storage.ErrFenced) || foreign.Is(err, ojs.ErrNotFound) ||
		foreign.Is(err, ojs.ErrTransition)
}

// Scratch is memory for one call of settle after another.
type Scratch struct {
	changes []storage.Change
	Settled []storage.Settled
	ids     []string
}

// MaxScratch is how large a slice is kept for another call.
const MaxScratch = 64

// Empty empties the scratch, which would keep alive what is in it.
func (s *Scratch) Empty() {
	if cap(s.changes) > MaxScratch {
		*s = Scratch{}
		return
	}
	clear(s.changes)
	clear(s.Settled)
	clear(s.ids)
	s.changes, s.Settled, s.ids = s.changes[:0], s.Settled[:0], s.ids[:0]
}

// Settlement is the end of an attempt: the job as it is to be stored, and how that came
// about.
type Settlement struct {
	Owner    any             // the attempt of this engine; nil: there is none
	Rec      *storage.Record // the attempt's own, or a copy; see decide of package attempts
	Decision policy.Decision
	kind     policy.OutcomeKind
	at       time.Time
	took     time.Duration
	Worker   string
	Traced   context.Context    // of the attempt, without its end; nil: there is no tracer
	Then     *enqueue.FollowUps // that are stored with it
	Log      []byte             // that is stored with it; nil: none
	blocks   time.Time          // until when the job's key is blocked; zero: it is not
	Tried    bool               // a call that has failed may have stored it
}

// change is the settlement as the storage takes it.
func (f *Settlement) change() storage.Change {
	return storage.Change{Record: *f.Rec, AttemptFieldsOnly: true, Then: f.Then.Inserts(), Log: f.Log}
}

// NewSettlement makes the settlement of a job that is not decided on yet.
func NewSettlement(rec *storage.Record, worker string) *Settlement {
	own := *rec
	return &Settlement{Rec: &own, Worker: worker}
}

// Decide decides on the job of an attempt that began at a time and has ended now.
func (c *Settler) Decide(f *Settlement, o policy.Outcome, began, now time.Time, result json.RawMessage) {
	rec := f.Rec
	o = policy.Timed(&rec.JobInfo, o, began, now)
	f.kind, f.at, f.took = o.Kind, now, now.Sub(began)
	if o.Kind == policy.Returned && o.Err == nil {
		f.Decision = policy.Decide(&rec.JobInfo, o, now, 0, nil)
	} else {
		c.decideFailure(f, o, now)
	}
	f.blocks = c.blocksUntil(rec, f.Decision.Failure, now) // before details are encoded
	c.encodeDetails(&f.Decision)
	if d := &f.Decision; d.Failure != nil {
		d.Failure.StartedAt, d.Failure.Worker = began, rec.Worker
	} else if d.Refunded {
		what := ojs.NoteSnoozed
		if d.Rule == policy.RuleInterrupted {
			what = ojs.NoteReturned
		}
		rec.Note(ojs.Note{At: now, What: what, Attempt: rec.Attempt, StartedAt: began, Worker: rec.Worker,
			Until: d.RunAt})
	}
	f.Decision.Apply(&rec.JobInfo, now)
	rec.LeaseUntil = time.Time{}
	if rec.State == ojs.StateCompleted {
		if rec.ResultTTL != ojs.NoResult {
			rec.Result = result
		}
		rec.Progress = 1
	}
	if rec.State.Terminal() {
		rec.Checkpoint = nil
	}
}

func (c *Settler) decideFailure(f *Settlement, o policy.Outcome, now time.Time) {
	if f.Traced != nil {
		_, end := c.Trace(f.Traced, telemetry.OpRetryEvaluate, f.Rec)
		defer end(nil)
	}
	drawn := ids.Jitter(c.Jitter, f.Rec.ID, f.Rec.Attempt)
	f.Decision = policy.Decide(&f.Rec.JobInfo, o, now, drawn, c.Types.RetryHook(&f.Rec.JobHeader))
}

// StoreIn stores a completion in the transaction of a context.
func (c *Settler) StoreIn(ctx context.Context, f *Settlement) (stored storage.Settled, err error) {
	ctx, end := c.Trace(ctx, telemetry.OpAck, f.Rec)
	settled, err := c.Store.Settle(ctx, c.Now(), []storage.Change{f.change()}, nil)
	if err == nil {
		stored, err = settled[0], settled[0].Err
	}
	if f.Then != nil && insert.Refused(err) {
		err = fmt.Errorf("ojs: a job of handler.Then was refused: %w", c.Enqueue.Explained(err, f.Then.Batch))
	}
	end(err)
	return stored, err
}

// Extend renews the lease of a job for an attempt, here or of a worker, with an event of
// that. It reports whether the attempt has lost the job.
func (c *Settler) Extend(
	ctx context.Context, now time.Time, rec *storage.Record, x storage.Extension, typ event.Type,
) (lost bool, err error) {
	extended := *rec
	extended.Progress = x.Progress
	err = c.Holding.Do(c.Began(rec, typ), func() (none []storage.Record, err error) {
		list, err := c.Store.Extend(ctx, now, []storage.Extension{x})
		lost = len(list) > 0
		return nil, err
	}, func(op *eventlog.Op) {
		if !lost {
			c.Transition(op, &extended, rec.Version, eventlog.None, now,
				event.Event{Type: typ, WorkerID: rec.Worker, Until: now.Add(rec.LeaseFor(x.Lease))})
		}
	}, nil)
	return lost, err
}

// encodeDetails encodes the details of the failure that a decision stores. An outcome is
// stored even if that is not possible, without the details.
func (c *Settler) encodeDetails(d *policy.Decision) {
	f := d.Failure
	if c.Codec == nil || f == nil || len(f.Details) == 0 || f.Details[encoded.Member] == true {
		return
	}
	// The engine's own entries are not the job's.
	details, err := c.Codec.EncodeDetails(context.Background(), f.Details,
		"timeout_kind", "limit_seconds", "elapsed_seconds")
	refused := ""
	if err != nil {
		refused = foreign.ErrorText(err)
	} else if raw, err := json.Marshal(details); err != nil || len(raw) > jsonvalue.MaxDetails {
		refused = fmt.Sprintf("encoded, %d bytes of JSON, more than %d", len(raw), jsonvalue.MaxDetails)
	}
	if f.Details = details; refused != "" {
		f.Details = map[string]any{"details_error": refused}
	}
}

// Logs of jobs:
//
//  1. The logger of an attempt (handler.Logger) writes to the engine's log and, from the
//     level of WithJobLogs on, to a buffer of the attempt.
//  2. When the attempt is decided on, the buffer is copied and encoded by the engine's
//     codecs. Lines that come later are in the engine's log only.
//  3. The copy is part of the change that stores the outcome (storage.Change.Log).
//
// An outcome with a log is stored by Settle, since SettleAndClaim takes none.

// EncodeLog returns the lines of an attempt as they are stored, nil if there are none. An
// outcome is stored even if they cannot be encoded, without them.
func (c *Settler) EncodeLog(job *ojs.JobHeader, of stored.Log, l *joblog.Lines) []byte {
	if l == nil {
		return nil
	}
	array, n, cut := l.List()
	if n == 0 && cut == 0 {
		return nil
	}
	of.N = uint64(n + cut)
	var err error
	if c.Codec != nil && n > 0 {
		array, err = c.Codec.EncodeValue(context.Background(), array)
	}
	if err != nil || n == 0 {
		array, cut = json.RawMessage("[]"), cut+n
	}
	of.Cut, of.Lines = cut, array
	data, err := json.Marshal(of)
	if err != nil { // a line that is no JSON
		c.JobLog(job).Error("log of an attempt not stored", "error", err)
		return nil
	}
	return data
}

// Limits that hold over all engines. The storage counts keys, queues and types in the
// step of the claim:
//
//  1. Each claim returns what limits did: jobs that were dropped or rescheduled, when
//     time next opens one, whether they hold jobs back.
//  2. The run claims again at that time (Reopening of attempts.Run).
//  3. While limits hold jobs back, each end of an attempt is followed by a claim, in the
//     same step if the storage has one.
//  4. Other engines hear of freed slots and of opening times by storage.Notice.
//
// The gate counts the limits of one engine: those of QueueConfig and
// handler.WithSlots.

// blocksUntil returns until when the error of a failed attempt blocks the key of its job
// (ojs.RateLimitedUntil, RateLimitedFor): zero if it does
// not.
func (c *Settler) blocksUntil(rec *storage.Record, failure *ojs.Failure, now time.Time) time.Time {
	if failure == nil || rec.RateLimit == nil {
		return time.Time{}
	}
	text, _ := failure.Details[bridge.DetailRateLimitUntil].(string)
	until, err := time.Parse(time.RFC3339, text)
	if err != nil {
		text, _ = failure.Details[bridge.DetailRateLimitFor].(string)
		wait, _ := iso8601.Parse(text)
		until = now.Add(wait)
	}
	if !until.After(now) {
		return time.Time{}
	}
	return until
}

// blockKeys blocks the keys that outcomes ask to block. The outcomes are stored after
// that, so that no other job of a key starts in between.
func (c *Settler) blockKeys(ctx context.Context, list []*Settlement) {
	for _, f := range list {
		if f.blocks.IsZero() {
			continue
		}
		key := operate.LimitOfKey(f.Rec.RateLimit.Key)
		err := c.Store.BlockLimit(ctx, c.Now(), key, f.blocks)
		if c.LimitSet(key, f.blocks, "handler", err); err != nil {
			c.Log.Warn("blocking the key of a rate limit failed",
				"key", key.Name, "until", f.blocks, "job_id", f.Rec.ID, "error", err)
		}
	}
}

// logOutcome writes the line of an attempt whose end has been stored.
func (c *Settler) logOutcome(f *Settlement, worker string) {
	rec, d := f.Rec, f.Decision
	if d.Asked > 0 {
		c.logCut(f)
	}
	level, msg, category := slog.LevelError, "job discarded", "error"
	switch {
	case rec.State == ojs.StateCompleted:
		level, msg, category = slog.LevelInfo, "job completed", "lifecycle"
	case d.Refunded:
		level, msg, category = slog.LevelDebug, "job waits", "lifecycle"
	case d.DeadLetter:
		msg = "job dead-lettered"
	case d.State == ojs.StateRetryable:
		level, msg = slog.LevelWarn, "attempt failed"
	}
	if !c.Logs(level) {
		return
	}
	attrs := []any{slog.Int64("duration_ms", f.took.Milliseconds())}
	if d.State == ojs.StateRetryable {
		attrs = append(attrs, slog.Float64("retry_delay_seconds", d.RunAt.Sub(f.at).Seconds()),
			slog.Time("next_retry_at", d.RunAt))
	}
	if d.Failure != nil {
		attrs = append(append(attrs, slog.String("why", string(d.Rule))), publish.FailureAttrs(d.Failure)...)
	}
	c.LogJob(level, msg, category, rec, worker, attrs...)
}

// logCut says, once for each job type, that a retry comes earlier than the handler or the
// retry hook asked for.
func (c *Settler) logCut(f *Settlement) {
	if t, err := c.Types.JobType(f.Rec.Type); err == nil && !t.Cut.Swap(true) {
		c.LogJob(slog.LevelInfo,
			"retry delay cut to max_interval; raise it in the retry policy to keep longer delays",
			"lifecycle", f.Rec, "",
			slog.Float64("asked_seconds", f.Decision.Asked.Seconds()), slog.Float64("max_interval_seconds",
				f.Rec.Retry.MaxInterval.Seconds()))
	}
}
