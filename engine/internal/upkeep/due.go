// Package upkeep does what the clock asks of the storage: it promotes what has come due,
// prunes finished jobs, and replays dead letters. Each is a chore.
//
// # Invariants
//
//  1. Its chores run on one goroutine, one after another.
//  2. A job is pruned only if the rule of retention selects it at the time of the call.
//  3. A rule replays a job once for each death.
package upkeep

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/chores"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/engine/internal/idle"
	"github.com/ojsengine/ojs/engine/internal/publish"
	"github.com/ojsengine/ojs/engine/internal/settle"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/telemetry"
)

// Engine is what the package needs of an engine.
type Engine struct {
	*env.Env
	Settle *settle.Settler
	Keep   Retention
	Rules  []ReplayRule                    // the enabled ones, in their order
	Spare  func(ctx context.Context) error // renews the leases of all processes after a failure
}

// dueBatch bounds what one call for what is due returns.
const dueBatch = 256

// Upkeep is what the clock asks of the storage during one run.
type Upkeep struct {
	c    *Engine
	base context.Context // of its calls
	set  *chores.Set     // in which the chores are
	busy *idle.Counter

	Due    chores.Chore // the deadlines
	number chores.Chore // the number of the finished jobs
	Prune  chores.Chore // their age, too
	Replay chores.Chore // the dead letters

	warnedYoung bool             // of jobs that are pruned by number too soon
	promoted    []storage.Record // memory for the next call for what is due
	listed      atomic.Int64     // when the dead letters were, in ns, for replay rules
	finished    atomic.Int64     // jobs since the finished ones were pruned
}

// NewUpkeep makes the upkeep of a run, whose calls have the context base.
func (c *Engine) NewUpkeep(base context.Context, set *chores.Set, busy *idle.Counter) *Upkeep {
	k := &Upkeep{c: c, base: base, set: set, busy: busy}
	k.Due = chores.Chore{Name: "due", Run: k.promoteDue}
	k.number.Name = "prune"
	k.number.Run = func(context.Context, time.Time) (never time.Time, err error) {
		k.Prune.By(k.pruneFinished(&k.number, false))
		return never, nil
	}
	k.Prune = chores.Chore{Name: "prune", Run: func(context.Context, time.Time) (time.Time, error) {
		return k.pruneFinished(&k.Prune, true), nil
	}}
	k.Replay = chores.Chore{Name: "replay", Run: func(context.Context, time.Time) (time.Time, error) {
		return k.replayDead(), nil
	}}
	return k
}

// Chores returns the chores behind Due, in their order.
func (k *Upkeep) Chores() (list []*chores.Chore) {
	if k.c.Keep.bounded() {
		list = append(list, &k.number, &k.Prune)
	}
	if len(k.c.Rules) > 0 {
		list = append(list, &k.Replay)
	}
	return list
}

// Ended counts jobs that have finished, for which a time or a number will come to prune
// them.
func (k *Upkeep) Ended(n int) {
	total := k.finished.Add(int64(n))
	if total == int64(n) {
		k.Prune.By(k.c.Now().Add(pruneEvery))
	}
	if total >= int64(k.c.Keep.slack()) {
		k.finished.Store(0)
		k.number.Poke()
	}
}

// promoteDue does what has come due, batch by batch.
func (k *Upkeep) promoteDue(ctx context.Context, _ time.Time) (next time.Time, err error) {
	c := k.c
	used := 0
	defer func() { clear(k.promoted[:min(used, cap(k.promoted))]) }() // what is in it would stay alive
	was, _ := k.Due.Failing()
	defer func() { c.Failing(k.busy, was > 0, err != nil) }()
	for {
		now := c.Now()
		ctx, end := c.Trace(ctx, telemetry.OpPoll, nil)
		err = c.Spare(ctx)
		if k.set.Quitting() {
			end(err)
			return next, nil
		}
		var d storage.Due
		var op *eventlog.Op
		if c.Events.Wants("", "", "") {
			op = c.Events.Begin(eventlog.Ends)
		}
		err = c.Journal.Do(op, func() ([]storage.Record, error) {
			if err == nil {
				d, err = c.Store.Due(ctx, now, dueBatch, k.promoted)
				k.promoted = d.Promoted
			}
			if end(err); err != nil {
				k.promoted = nil // a storage that has given up may still write to it
			}
			used = max(used, len(k.promoted))
			return d.Moved, err
		}, func(op *eventlog.Op) {
			for i := range d.Expired {
				c.Transition(op, &d.Expired[i], d.Expired[i].Version, eventlog.None, now,
					publish.ExpiredEvents(&d.Expired[i])...)
			}
		}, func() {
			for i := range d.Stalled { // ours, if the renewals failed for too long, or a worker's
				c.TakenAway(storage.Held{ID: d.Stalled[i].ID, Version: d.Stalled[i].Version - 1},
					ojs.ErrLeaseLost)
			}
			c.Available(len(d.Promoted))
			c.EndedOtherwise(d.Expired)
		})
		if err != nil {
			return next, err
		}
		for _, rec := range d.Stalled {
			c.Settle.SettleLost(k.base, rec, policy.Outcome{Kind: policy.LeaseExpired,
				Limit: rec.LeaseFor(c.Lease), Ended: slices.Contains(d.Ended, rec.ID)})
		}
		brought := len(d.Promoted) + len(d.Expired) + len(d.Stalled)
		switch {
		case d.Next.IsZero() || d.Next.After(now):
			return d.Next, nil
		case brought == 0: // it has what is due, yet brought nothing: do not spin
			return now.Add(time.Millisecond), nil
		}
	}
}
