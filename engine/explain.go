package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/storage"
)

// Explanation says why a job does not run now.
type Explanation struct {
	State ojs.State

	// Reasons are everything that is in the way, the most lasting first. An available job
	// without reasons is claimed as soon as a slot asks for a job.
	Reasons []Reason
}

// Reason is one thing that is in the way of a job.
type Reason struct {
	Code  ReasonCode
	Text  string    // for a person
	Until time.Time // when it ends with time alone; zero: not by time, or that is not known
	N     int       // of ReasonBehind, jobs before it; of ReasonDependencies, jobs that it waits for
}

// ReasonCode names a reason.
type ReasonCode string

// The reasons. A reason of this engine holds for it alone: another engine on the storage
// may run the job.
const (
	ReasonRunning      ReasonCode = "running"      // the job is active; Until is the end of its lease
	ReasonSilent       ReasonCode = "silent"       // it is active, and its process does not report
	ReasonEnded        ReasonCode = "ended"        // it has ended
	ReasonExpired      ReasonCode = "expired"      // its deadline has come, and it ends in a moment
	ReasonDependencies ReasonCode = "dependencies" // it waits for other jobs
	ReasonOrdering     ReasonCode = "ordering"     // other jobs of its ordering key come before it
	ReasonPending      ReasonCode = "pending"      // it waits for Jobs.Activate
	ReasonNotDue       ReasonCode = "not_due"      // it is scheduled, or waits for a retry
	ReasonPaused       ReasonCode = "paused"       // its queue, its type or everything is paused
	ReasonLimit        ReasonCode = "limit"        // this engine: a limit of queue, type or key is reached
	ReasonNotRunning   ReasonCode = "not_running"  // this engine does not run, or is stopping
	ReasonNoHandler    ReasonCode = "no_handler"   // this engine: its type has no handler
	ReasonOtherQueues  ReasonCode = "other_queues" // this engine: it takes jobs of other queues only
	ReasonNoSlot       ReasonCode = "no_slot"      // this engine: every slot is busy
	ReasonBehind       ReasonCode = "behind"       // other available jobs of its queue come before it
)

// explainLook bounds the jobs that Explain looks at to count those before a job.
const explainLook = 1000

// Explain says why a job does not run now: what its state, its queue and this engine have
// against it, and how many jobs of its queue come before it. Of these it counts 1,000 at
// most, if the storage knows inspect.OrderClaim. An unknown id gives ojs.ErrNotFound.
func (j *Jobs) Explain(ctx context.Context, id string) (Explanation, error) {
	c := j.core
	rec, err := c.store.Get(ctx, id)
	if err != nil {
		return Explanation{}, c.missing(id, err)
	}
	now := c.now()
	e := Explanation{State: rec.State}
	if rec.State == ojs.StateActive {
		silence, err := c.silenceOf(ctx, rec.Worker)
		if err != nil {
			return Explanation{}, err
		}
		if silence > 0 {
			e.add(ReasonSilent, "attempt %d: the process that held it has been silent for %s: %s",
				rec.Attempt, seconds(silence), rec.Worker).Until = rec.LeaseUntil
			return e, nil
		}
	}
	if !e.byState(&rec, now) {
		return e, nil
	}
	switch states, err := c.store.QueueStates(ctx); {
	case err != nil:
		return Explanation{}, err
	case states[rec.Queue] == ojs.QueuePaused:
		e.add(ReasonPaused, "queue %s is paused; Queues.Resume ends that", rec.Queue)
	}
	if rec.Dependencies == nil || !rec.Dependencies.Join { // which runs nowhere
		e.byEngine(c, &rec, now)
	}
	c.explainLimits(ctx, &e, &rec, now)
	if rec.State == ojs.StateAvailable {
		n, found, err := c.before(ctx, &rec)
		if err != nil {
			return Explanation{}, err
		}
		if n > 0 && found {
			e.add(ReasonBehind, "jobs of queue %s before it: %d", rec.Queue, n).N = n
		} else if n > 0 {
			e.add(ReasonBehind, "jobs of queue %s before it: at least %d", rec.Queue, n).N = n
		}
	}
	return e, nil
}

func (e *Explanation) add(code ReasonCode, format string, args ...any) *Reason {
	e.Reasons = append(e.Reasons, Reason{Code: code, Text: fmt.Sprintf(format, args...)})
	return &e.Reasons[len(e.Reasons)-1]
}

// byState adds what the job's state has against it. It reports whether anything else may.
func (e *Explanation) byState(rec *storage.Record, now time.Time) (waits bool) {
	switch {
	case rec.State == ojs.StateActive:
		e.add(ReasonRunning, "attempt %d runs in %s", rec.Attempt, rec.Worker).Until = rec.LeaseUntil
		return false
	case rec.State.Terminal():
		e.add(ReasonEnded, "the job is %s", rec.State)
		return false
	case rec.Expired(now):
		e.add(ReasonExpired, "the job's deadline has come")
		return false
	}
	others := 0
	if d := rec.Dependencies; d != nil {
		others = d.Unfinished
	}
	if rec.InLine() {
		e.add(ReasonOrdering, "jobs of ordering key %q come before it", rec.Dependencies.OrderingKey)
		if others--; others == 0 {
			return true
		}
	}
	switch {
	case others > 0:
		e.add(ReasonDependencies, "jobs that it waits for: %d", others).N = others
	case rec.State == ojs.StatePending:
		e.add(ReasonPending, "the job waits for Jobs.Activate")
	case rec.State == ojs.StateScheduled:
		e.add(ReasonNotDue, "the job is scheduled for %s",
			rec.ScheduledAt.Format(time.RFC3339)).Until = rec.ScheduledAt
	case rec.State == ojs.StateRetryable:
		e.add(ReasonNotDue, "attempt %d has failed; the next is at %s",
			rec.Attempt, rec.NextRetryAt.Format(time.RFC3339)).Until = rec.NextRetryAt
	}
	return true
}

// byEngine adds what the engine has against the job.
func (e *Explanation) byEngine(c *core, rec *storage.Record, now time.Time) {
	r := c.run.Load()
	runs := r != nil && !r.stopping.Load()
	full := runs && r.pipe.Busy() >= c.concurrency
	if !runs {
		e.add(ReasonNotRunning, "this engine does not run, or is stopping")
	}
	if c.registry.handlers.Load().find(rec.Type, rec.TypeVersion) == nil {
		e.add(ReasonNoHandler, "type %s has no handler in this engine",
			versions.Full(rec.Type, rec.TypeVersion))
	}
	if queues := c.queues.Load(); !queues.serves(rec.Queue) {
		e.add(ReasonOtherQueues, "this engine takes jobs of the queues %v only", queues.names)
	}
	c.gate.explain(e, rec, now)
	if full {
		e.add(ReasonNoSlot, "every slot of this engine is busy: %d", c.concurrency)
	}
}

// explain adds the limits that keep a job from being claimed now.
func (g *gate) explain(e *Explanation, rec *storage.Record, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lapse(now)
	switch h := &g.holds; {
	case h.all:
		e.add(ReasonPaused, "everything is paused; Queues.ResumeAll ends that")
	case h.types[rec.Type]:
		e.add(ReasonPaused, "type %s is paused; Queues.ResumeType ends that", rec.Type)
	case h.quiet:
		e.add(ReasonNotRunning, "this engine takes no more jobs, since it was told to (Nodes.Quiet)")
	}
	check := func(l *limiter, what string) {
		if l == nil {
			return
		}
		if at, open := l.open(now); !open {
			e.add(ReasonLimit, "the limit of %s is reached", what).Until = at
		}
	}
	for _, q := range g.queues {
		if q.name == rec.Queue {
			check(&q.limiter, "queue "+rec.Queue)
		}
	}
	check(g.types[g.limitName(rec)], "type "+rec.Type)
}

// before counts the available jobs of a job's queue that are claimed before it. It
// reports whether it has come to the job.
func (c *core) before(ctx context.Context, rec *storage.Record) (n int, found bool, err error) {
	q := storage.Query{Order: inspect.OrderClaim, Queues: []string{rec.Queue}}
	for looked := 0; looked < explainLook; {
		page, err := c.store.List(ctx, q)
		if err != nil {
			return 0, false, err
		}
		i := slices.IndexFunc(page.Records, func(r storage.Record) bool { return r.ID == rec.ID })
		if i >= 0 {
			return n + i, true, nil
		}
		n += len(page.Records)
		looked += page.Looked
		if q.Cursor = page.Next; q.Cursor == "" && looked < explainLook {
			return 0, false, nil // it has been claimed meanwhile
		} else if q.Cursor == "" {
			break
		}
	}
	return n, false, nil
}
