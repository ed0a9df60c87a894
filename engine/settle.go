package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/joblog"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// endedBy is the outcome of an attempt whose context ended with a cause before the
// handler returned.
func endedBy(cause error, o policy.Outcome) policy.Outcome {
	if o.Kind == policy.Returned && o.Err == nil ||
		o.Kind != policy.Returned && o.Kind != policy.Interrupted {
		return o
	}
	switch cause {
	case ojs.ErrTimeout:
		o.Kind = policy.TimedOut
	case ojs.ErrShutdown:
		o.Kind = policy.Interrupted
	}
	return o
}

// settlement is the end of an attempt: the job as it is to be stored, and how that came
// about.
type settlement struct {
	a        *attempt        // nil: none of this engine's
	rec      *storage.Record // the attempt's own, or a copy; see decide
	decision policy.Decision
	kind     policy.OutcomeKind
	at       time.Time
	took     time.Duration
	worker   string
	traced   context.Context // of the attempt, without its end; nil: there is no tracer
	then     *followUps      // that are stored with it
	log      []byte          // that is stored with it; nil: none
	blocks   time.Time       // until when the job's key is blocked; zero: it is not
	tried    bool            // a call that has failed may have stored it
}

// change is the settlement as the storage takes it.
func (f *settlement) change() storage.Change {
	return storage.Change{Record: *f.rec, AttemptFieldsOnly: true, Then: f.then.inserts(), Log: f.log}
}

// newSettlement makes the settlement of a job that is not decided on yet.
func newSettlement(rec *storage.Record, worker string) *settlement {
	own := *rec
	return &settlement{rec: &own, worker: worker}
}

// said is what a handler has said of its attempt.
type said struct {
	progress   float64
	checkpoint json.RawMessage
	result     json.RawMessage
	then       *followUps
	lines      *joblog.Lines
	traced     context.Context
	alone      bool // the handler has returned, and no other goroutine reads the record
}

// said: core.mu is held.
func (a *attempt) said() said {
	return said{a.progress, a.checkpoint, a.result, a.then, a.lines, a.traced, a.returned && !a.kept}
}

// decide decides on the job of an attempt. If the handler has returned, and neither a
// caller nor maintenance has the attempt, its own record takes the decision; otherwise a
// copy does.
func (r *run) decide(a *attempt, o policy.Outcome, said said, now time.Time) *settlement {
	f := &a.settlement
	if said.alone && a.context.TakeBack() {
		f.rec, f.worker = a.rec, r.c.worker
	} else {
		f = newSettlement(a.rec, r.c.worker)
	}
	f.a = a
	f.rec.Progress, f.rec.Checkpoint = said.progress, said.checkpoint
	if said.traced != nil {
		f.traced = context.WithoutCancel(said.traced)
	}
	n, began := f.rec.Attempt, a.began()
	r.c.decide(f, o, began, now, said.result)
	f.follow(said.then)
	f.log = r.c.encodeLog(f, n, began, said.lines)
	return f
}

// decide decides on the job of an attempt that began at a time and has ended now.
func (c *core) decide(f *settlement, o policy.Outcome, began, now time.Time, result json.RawMessage) {
	rec := f.rec
	o = policy.Timed(&rec.JobInfo, o, began, now)
	f.kind, f.at, f.took = o.Kind, now, now.Sub(began)
	if o.Kind == policy.Returned && o.Err == nil {
		f.decision = policy.Decide(&rec.JobInfo, o, now, 0, nil)
	} else {
		c.decideFailure(f, o, now)
	}
	f.blocks = c.blocksUntil(rec, f.decision.Failure, now) // before details are encoded
	c.encodeDetails(&f.decision)
	if d := &f.decision; d.Failure != nil {
		d.Failure.StartedAt, d.Failure.Worker = began, rec.Worker
	} else if d.Refunded {
		what := ojs.NoteSnoozed
		if d.Rule == policy.RuleInterrupted {
			what = ojs.NoteReturned
		}
		rec.Note(ojs.Note{At: now, What: what, Attempt: rec.Attempt, StartedAt: began, Worker: rec.Worker,
			Until: d.RunAt})
	}
	f.decision.Apply(&rec.JobInfo, now)
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

func (c *core) decideFailure(f *settlement, o policy.Outcome, now time.Time) {
	if f.traced != nil {
		_, end := c.trace(f.traced, OpRetryEvaluate, f.rec)
		defer end(nil)
	}
	drawn := jitter(c.jitter, f.rec.ID, f.rec.Attempt)
	f.decision = policy.Decide(&f.rec.JobInfo, o, now, drawn, c.retryHook(&f.rec.JobHeader))
}

// traced is ctx if there is a tracer, and nil if there is none.
func (c *core) traced(ctx context.Context) context.Context {
	if !c.tracing() {
		return nil
	}
	return ctx
}

// pause waits before a call of the storage is repeated that has failed n times. It ends
// early when the storage answers again. It reports false if the engine's stop ends the
// wait.
func (r *run) pause(n int) bool { return r.sleeps.Pause(storageBackoff(n), r.closing) }
