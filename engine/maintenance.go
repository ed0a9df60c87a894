package engine

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine/internal/chores"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/storage"
)

// dueBatch bounds what one call for what is due returns.
const dueBatch = 256

// maintenance does what the clock asks of the storage: it promotes what has come due,
// renews leases, and settles what its handler has overrun. Each chore is one of these.
type maintenance struct {
	chores.Set
	r *run

	leases  chores.Chore // those of attempts that are on a list below
	holds   chores.Chore // the pauses
	claims  chores.Chore // claims whose answer was lost
	workers chores.Chore // those that fetch jobs
	due     chores.Chore // the deadlines
	cron    chores.Chore // the recurring jobs
	number  chores.Chore // the number of the finished jobs
	prune   chores.Chore // their age, too
	replay  chores.Chore // the dead letters

	warnedYoung bool             // of jobs that are pruned by number too soon
	promoted    []storage.Record // memory for the next call for what is due
	crons       *cron.Ticker     // fires recurring jobs
	listed      atomic.Int64     // when the dead letters were, in ns, for replay rules
	finished    atomic.Int64     // jobs since the finished ones were pruned

	// Guarded by core.mu.
	renewals []*attempt
	overrun  []*attempt
	stuck    []*attempt // to be reported
}

func (k *maintenance) start(r *run) {
	k.r = r
	c := r.c
	k.crons = c.crons.Ticker(k.cron.Fail, c.answered, k.Quitting)
	plain := func(name string, do func() time.Time) chores.Chore {
		return chores.Chore{Name: name,
			Run: func(context.Context, time.Time) (time.Time, error) { return do(), nil }}
	}
	k.leases = plain("leases", k.attend)
	k.holds = chores.Chore{Name: "pauses", Run: k.loadHolds}
	k.claims = chores.Chore{Name: "claims of this engine", Run: k.findClaims}
	k.workers = chores.Chore{Name: "look at workers", Run: r.lookAtWorkers}
	k.due = chores.Chore{Name: "due", Run: k.promoteDue}
	k.cron = plain("recurring jobs", func() time.Time { return k.crons.Tick(r.base) })
	k.cron.Exact = true
	k.number = plain("prune", func() time.Time {
		k.prune.By(k.pruneFinished(&k.number, false))
		return time.Time{}
	})
	k.prune = plain("prune", func() time.Time { return k.pruneFinished(&k.prune, true) })
	k.replay = plain("replay", k.replayDead)
	list := []*chores.Chore{&k.leases, &k.holds, &k.claims, &k.workers, &k.due, &k.cron} // leases before due
	if c.retention.bounded() {
		list = append(list, &k.number, &k.prune)
	}
	if len(c.replayRules) > 0 {
		list = append(list, &k.replay)
	}
	k.Start(r.base, chores.Config{Sched: r.sched, Busy: &r.busy, Now: c.now, Failed: c.failed,
		Wait: func(n int) time.Duration { return min(storageBackoff(n), probeEvery) }}, list...)
}

// stop waits until maintenance has ended, or fails with ErrUnanswered if a call of the
// storage takes too long. Maintenance then ends with that call.
func (k *maintenance) stop() error {
	if k.r.wait(k.Stop(), lastCall) {
		return nil
	}
	return fmt.Errorf("%w: a look at what is due, or the renewal of leases", ErrUnanswered)
}

// attend renews the leases of the attempts that need it, settles those that their
// handlers have overrun, and reports stuck ones.
func (k *maintenance) attend() (never time.Time) {
	mu := &k.r.c.mu
	mu.Lock()
	renewals, overrun, stuck := k.renewals, k.overrun, k.stuck
	k.renewals, k.overrun, k.stuck = nil, nil, nil
	mu.Unlock()
	k.extend(renewals)
	for _, a := range overrun {
		k.r.settleOverrun(a)
	}
	for _, a := range stuck {
		k.r.reportStuck(a)
	}
	return never
}

// ended counts jobs that have finished, for which a time or a number will come to prune
// them.
func (k *maintenance) ended(n int) {
	total := k.finished.Add(int64(n))
	if total == int64(n) {
		k.prune.By(k.r.c.now().Add(pruneEvery))
	}
	if total >= int64(k.r.c.retention.slack()) {
		k.finished.Store(0)
		k.number.Poke()
	}
}

// loadHolds reads the pauses.
func (k *maintenance) loadHolds(ctx context.Context, _ time.Time) (never time.Time, err error) {
	if err = k.r.c.loadHolds(ctx); err == nil {
		k.r.c.answered()
	}
	return never, err
}

// extend renews the leases of running attempts. Attempts that have lost their jobs end. A
// storage that fails is asked again at the next renewal, for which the interval leaves
// time.
func (k *maintenance) extend(renewals []*attempt) {
	if len(renewals) == 0 {
		return
	}
	c := k.r.c
	now := c.now()
	c.mu.Lock()
	renewals = k.newest(renewals)
	held := make([]storage.Extension, len(renewals))
	for i, a := range renewals {
		held[i] = storage.Extension{Held: a.held(), Progress: a.progress, Lease: c.lease}
	}
	c.mu.Unlock()
	var op *eventlog.Op
	if c.events.Wants(event.Progress, "", "") {
		ids := make([]string, len(held))
		for i := range held {
			ids[i] = held[i].ID
		}
		op = c.events.Begin(eventlog.None, ids...)
	}
	var told []storage.Record
	err := c.holding.Do(op, func() (none []storage.Record, err error) {
		lost, err := c.store.Extend(k.r.base, now, held)
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, a := range renewals {
			switch {
			case err != nil:
				a.unrenewed = true
			case a.inTx: // it may have been committed meanwhile
			case slices.Contains(lost, a.rec.ID):
				k.r.lose(a.held(), ojs.ErrLeaseLost)
			case a.stored < held[i].Progress:
				a.stored = held[i].Progress
				if op != nil && a.phase == running { // otherwise its record is being decided on
					rec := *a.rec
					rec.Progress = a.stored
					told = append(told, rec)
				}
			}
		}
		return nil, err
	}, func(op *eventlog.Op) {
		for i := range told {
			c.transition(op, &told[i], told[i].Version, eventlog.None, now,
				event.Event{Type: event.Progress, WorkerID: c.worker})
		}
	}, nil)
	if err != nil {
		c.failed("extend", err, "jobs", len(held))
	}
}

// newest leaves one attempt of each job, the latest. Earlier attempts have lost the job,
// since this engine has claimed it again. Attempts that have completed their job in a
// transaction are left out. core.mu is held.
func (k *maintenance) newest(renewals []*attempt) []*attempt {
	latest := make(map[string]uint64, len(renewals))
	for _, a := range renewals {
		latest[a.rec.ID] = max(latest[a.rec.ID], a.rec.Version)
	}
	return slices.DeleteFunc(renewals, func(a *attempt) bool {
		older := a.rec.Version < latest[a.rec.ID]
		if older {
			k.r.lose(a.held(), ojs.ErrLeaseLost)
		}
		return older || a.inTx
	})
}

// promoteDue does what has come due, batch by batch.
func (k *maintenance) promoteDue(ctx context.Context, _ time.Time) (next time.Time, err error) {
	c := k.r.c
	used := 0
	defer func() { clear(k.promoted[:min(used, cap(k.promoted))]) }() // what is in it would stay alive
	was, _ := k.due.Failing()
	defer func() { k.r.failing(was > 0, err != nil) }()
	for {
		now := c.now()
		ctx, end := c.trace(ctx, OpPoll, nil)
		err = c.spareLeases(ctx)
		if k.Quitting() {
			end(err)
			return next, nil
		}
		var d storage.Due
		var op *eventlog.Op
		if c.events.Wants("", "", "") {
			op = c.events.Begin(eventlog.Ends)
		}
		err = c.journal.Do(op, func() ([]storage.Record, error) {
			if err == nil {
				d, err = c.store.Due(ctx, now, dueBatch, k.promoted)
				k.promoted = d.Promoted
			}
			if end(err); err != nil {
				k.promoted = nil // a storage that has given up may still write to it
			}
			used = max(used, len(k.promoted))
			return d.Moved, err
		}, func(op *eventlog.Op) {
			for i := range d.Expired {
				c.transition(op, &d.Expired[i], d.Expired[i].Version, eventlog.None, now,
					expiredEvents(&d.Expired[i])...)
			}
		}, func() {
			for i := range d.Stalled { // ours, if the renewals failed for too long, or a worker's
				c.takenAway(storage.Held{ID: d.Stalled[i].ID, Version: d.Stalled[i].Version - 1},
					ojs.ErrLeaseLost)
			}
			c.available(len(d.Promoted))
			c.endedOtherwise(d.Expired)
		})
		if err != nil {
			return next, err
		}
		for _, rec := range d.Stalled {
			k.r.settleStalled(rec, slices.Contains(d.Ended, rec.ID))
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
