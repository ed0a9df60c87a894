package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/storage"
)

// dueBatch bounds what one look at the storage's deadlines brings.
const dueBatch = 256

// maintenance does what the clock asks of the storage, on one goroutine of its own, so
// that a slow storage delays no timer: promotes what has come due, renews leases, settles
// what its handler has overrun.
type maintenance struct {
	r          *run
	signal     chan struct{}
	quit, done chan struct{}

	warnedYoung bool             // of jobs that are pruned by number too soon
	promoted    []storage.Record // memory for the next look at the deadlines
	crons       *cron.Ticker     // fires recurring jobs

	// Guarded by core.mu.
	wanted   looks
	renewals []*attempt
	overrun  []*attempt
	unlooked looks // that have failed since the storage answered last

	// recurring jobs that could not run, with the versions of which the log has told

	stuck    []*attempt // to be reported
	poked    bool       // signal has the news
	failures int        // looks at the deadlines that failed in a row
	failure  error      // of the last of them
	finished int        // jobs since the last look at the finished ones
	listed   time.Time  // when the dead letters were, for replay rules

	claimsFailed int // looks at claims whose answer was lost, in a row

	dueAlarm, workersAlarm, holdsAlarm, cronAlarm, pruneAlarm, replayAlarm, claimsAlarm alarm
}

// looks are what maintenance looks at.
type looks struct {
	due     bool // the deadlines
	workers bool // that fetch jobs
	holds   bool // the pauses
	claims  bool // claims whose answer was lost
	cron    bool // the recurring jobs
	prune   bool // the finished jobs
	number  bool // the number of the finished jobs
	replay  bool // the dead letters
}

func (k *maintenance) start(r *run) {
	k.r = r
	k.signal = make(chan struct{}, 1)
	k.quit, k.done = make(chan struct{}), make(chan struct{})
	failed := func(call string, err error, attrs ...any) { k.failed(call, err, looks{cron: true}, attrs...) }
	k.crons = r.c.crons.Ticker(failed, r.c.answered, k.quitting)
	k.dueAlarm.start(r, func(time.Time) { k.want(looks{due: true}) })
	k.workersAlarm.start(r, func(time.Time) { k.want(looks{workers: true}) })
	k.holdsAlarm.start(r, func(time.Time) { k.want(looks{holds: true}) })
	k.cronAlarm.start(r, func(time.Time) { k.want(looks{cron: true}) })
	k.pruneAlarm.start(r, func(time.Time) { k.want(looks{prune: true}) })
	k.replayAlarm.start(r, func(time.Time) { k.want(looks{replay: true}) })
	k.claimsAlarm.start(r, func(time.Time) { k.want(looks{claims: true}) })
	go k.loop()
}

// stop waits until maintenance has ended, or fails with ErrUnanswered if a call of the
// storage goes on for too long. Maintenance then ends with that call.
func (k *maintenance) stop() error {
	close(k.quit)
	if k.r.wait(k.done, lastCall) {
		return nil
	}
	return fmt.Errorf("%w: a look at what is due, or the renewal of leases", ErrUnanswered)
}

// core.mu is held in all from here to wakeAt but quitting.

// want asks for looks, as far as the engine's options give them something to do.
func (k *maintenance) want(l looks) {
	l.prune = l.prune && k.r.c.retention.bounded()
	l.replay = l.replay && len(k.r.c.replayRules) > 0
	before := k.wanted
	if k.wanted = before.with(l); k.wanted != before {
		k.poke()
	}
}

// with adds looks.
func (l looks) with(m looks) looks {
	return looks{l.due || m.due, l.workers || m.workers, l.holds || m.holds, l.claims || m.claims,
		l.cron || m.cron, l.prune || m.prune, l.number || m.number, l.replay || m.replay}
}

func (k *maintenance) renew(a *attempt) {
	k.renewals = append(k.renewals, a)
	k.poke()
}

func (k *maintenance) force(a *attempt) {
	k.overrun = append(k.overrun, a)
	k.poke()
}

func (k *maintenance) report(a *attempt) {
	a.kept = true // reportStuck reads its record
	k.stuck = append(k.stuck, a)
	k.poke()
}

// ended counts jobs that have finished, for which a time or a number will come to prune
// them.
func (k *maintenance) ended(n int) {
	if k.finished == 0 {
		k.pruneBy(k.r.c.now().Add(pruneEvery))
	}
	k.finished += n
	if k.finished >= k.r.c.retention.slack() {
		k.finished = 0
		k.want(looks{number: true})
	}
}

// pruneBy has maintenance look at the finished jobs at t, unless it will earlier.
func (k *maintenance) pruneBy(t time.Time) {
	if k.r.c.retention.bounded() {
		k.pruneAlarm.by(t)
	}
}

func (k *maintenance) quitting() bool {
	select {
	case <-k.quit:
		return true
	default:
		return false
	}
}

func (k *maintenance) poke() {
	if !k.poked {
		k.poked = true
		k.r.busy.Add(1)
		k.signal <- struct{}{}
	}
}

// wakeAt has maintenance look at the deadlines at t, unless it will earlier.
func (k *maintenance) wakeAt(t time.Time) { k.dueAlarm.by(t) }

func (k *maintenance) loop() {
	defer close(k.done)
	mu := &k.r.c.mu
	for {
		select {
		case <-k.signal:
		case <-k.quit:
		}
		if k.quitting() {
			return
		}
		mu.Lock()
		wanted, renewals, overrun, stuck := k.wanted, k.renewals, k.overrun, k.stuck
		k.wanted, k.renewals, k.overrun, k.stuck = looks{}, nil, nil, nil
		if wanted.prune || wanted.number {
			k.finished = 0
		}
		k.poked = false
		mu.Unlock()

		k.extend(renewals) // before due, which takes away what is not renewed
		if wanted.holds {
			k.loadHolds()
		}
		for _, a := range overrun {
			k.r.settleOverrun(a)
		}
		var lost time.Time
		if wanted.claims {
			lost = k.findClaims()
		}
		var watch time.Time
		if wanted.workers {
			watch = k.r.lookAtWorkers()
		}
		if wanted.due {
			k.look()
		}
		for _, a := range stuck {
			k.r.reportStuck(a)
		}
		var fires, prunes, replays time.Time
		if wanted.cron {
			fires = k.crons.Tick(k.r.base)
		}
		if wanted.prune || wanted.number {
			prunes = k.prune(wanted.prune)
		}
		if wanted.replay {
			replays = k.replay()
		}

		mu.Lock()
		if wanted.cron {
			k.cronAlarm.exactly(fires)
		}
		if !prunes.IsZero() {
			k.pruneBy(prunes)
		}
		if !replays.IsZero() {
			k.replayBy(replays)
		}
		k.workersAlarm.by(watch)
		k.claimsAlarm.by(lost)
		mu.Unlock()
		k.r.busy.Add(-1)
	}
}

// failed follows a look whose call of the storage has failed. core.mu is not held.
func (k *maintenance) failed(call string, err error, l looks, attrs ...any) {
	c := k.r.c
	c.mu.Lock()
	k.unlooked = k.unlooked.with(l)
	c.mu.Unlock()
	c.failed(call, err, attrs...)
}

// retry repeats the looks that have failed. core.mu is held.
func (k *maintenance) retry() {
	l := k.unlooked
	k.unlooked = looks{}
	k.want(l)
}

// loadHolds reads the pauses. If that fails, maintenance tries again.
func (k *maintenance) loadHolds() {
	c := k.r.c
	err := c.loadHolds(k.r.base)
	if err == nil {
		c.answered()
		return
	}
	k.failed("pauses", err, looks{holds: true})
	c.mu.Lock()
	defer c.mu.Unlock()
	k.holdsAlarm.by(c.now().Add(probeEvery))
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
	if c.events.Wants(ojs.EventProgress, "", "") {
		ids := make([]string, len(held))
		for i := range held {
			ids[i] = held[i].ID
		}
		op = c.events.Begin(eventlog.None, ids...)
	}
	lost, err := c.store.Extend(k.r.base, now, held)
	if err != nil {
		op.End()
		c.failed("extend", err, "jobs", len(held))
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, a := range renewals {
			a.unrenewed = true
		}
		return
	}
	c.answered()
	c.mu.Lock()
	for i, a := range renewals {
		if a.inTx {
			continue // it may have been committed meanwhile
		}
		if slices.Contains(lost, a.rec.ID) {
			k.r.lose(a.held(), ojs.ErrLeaseLost)
		} else if a.stored < held[i].Progress {
			a.stored = held[i].Progress
			if op != nil && a.phase == running { // otherwise its record is being decided on
				rec := *a.rec
				rec.Progress = a.stored
				c.transition(op, &rec, rec.Version, eventlog.None, now,
					ojs.Event{Type: ojs.EventProgress, WorkerID: c.worker})
			}
		}
	}
	c.mu.Unlock()
	op.End()
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

// look does what has come due, batch by batch.
func (k *maintenance) look() {
	c := k.r.c
	used := 0
	defer func() { clear(k.promoted[:min(used, cap(k.promoted))]) }() // what is in it would stay alive
	for {
		now := c.now()
		ctx, end := c.trace(k.r.base, OpPoll, nil)
		var op *eventlog.Op
		if c.events.Wants("", "", "") {
			op = c.events.Begin(eventlog.Ends)
		}
		d := storage.Due{Promoted: k.promoted}
		err := c.spareLeases(ctx)
		if k.quitting() {
			end(err)
			op.End()
			return
		}
		if err == nil {
			d, err = c.store.Due(ctx, now, dueBatch, k.promoted)
		}
		if k.promoted = d.Promoted; err != nil {
			k.promoted = nil // a storage that has given up may still write to it
		}
		used = max(used, len(k.promoted))
		end(err)
		for i := range d.Expired {
			c.transition(op, &d.Expired[i], d.Expired[i].Version, eventlog.None, now,
				expiredEvents(&d.Expired[i])...)
		}
		c.dependentEvents(op, d.Moved, now)
		op.End()
		c.mu.Lock()
		k.r.failing(k.failures > 0, err != nil)
		if err != nil {
			k.failures++
			k.failure = err
			k.wakeAt(now.Add(min(storageBackoff(k.failures), probeEvery)))
			c.available(unknown) // what it has promoted all the same
			c.mu.Unlock()
			k.failed("due", err, looks{due: true})
			c.waiters.all()
			return
		}
		k.failures = 0
		for i := range d.Stalled { // ours, if the renewals failed for too long, or a worker's
			c.takenAway(storage.Held{ID: d.Stalled[i].ID, Version: d.Stalled[i].Version - 1},
				ojs.ErrLeaseLost)
		}
		c.available(len(d.Promoted))
		c.mu.Unlock()
		c.answered()
		c.endedOtherwise(d.Expired)
		c.dependentsMoved(d.Moved)
		for _, rec := range d.Stalled {
			k.r.settleStalled(rec, slices.Contains(d.Ended, rec.ID))
		}
		if d.Next.IsZero() {
			return
		}
		brought := len(d.Promoted) + len(d.Expired) + len(d.Stalled)
		if brought > 0 && !d.Next.After(now) {
			continue
		}
		c.mu.Lock()
		if !d.Next.After(now) { // it has what is due, yet brought nothing: do not spin
			d.Next = now.Add(time.Millisecond)
		}
		k.wakeAt(d.Next)
		c.mu.Unlock()
		return
	}
}
