package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// patience is how long a notice is waited for.
var patience = 5 * time.Second

// ear hears notices.
type ear struct {
	c       *C
	notices chan storage.Notice
	stop    func()
	past    []storage.Notice
}

func (c *C) listen(self any) *ear {
	n, ok := notifier(c.S)
	if !ok {
		c.failf("the storage tells no notices")
	}
	e := &ear{c: c, notices: make(chan storage.Notice, 1000)}
	e.stop = n.Notify(self, func(n storage.Notice) { e.notices <- n })
	return e
}

// hears wants a notice for which ok holds, now or soon. That of everything is for later
// looks and says nothing by itself.
func (e *ear) hears(what string, ok func(n storage.Notice) bool) {
	e.c.tb.Helper()
	for _, n := range e.past {
		if ok(n) {
			return
		}
	}
	late := wall.After(patience)
	for {
		select {
		case n := <-e.notices:
			e.past = append(e.past, n)
			if ok(n) {
				return
			}
		case <-late:
			for len(e.notices) > 0 { // a busy machine may be later than the notice
				n := <-e.notices
				if e.past = append(e.past, n); ok(n) {
					return
				}
			}
			e.c.failf("no notice says that %s; the notices: %+v", what, e.past)
		}
	}
}

func ended(id string) func(storage.Notice) bool {
	return func(n storage.Notice) bool { return slices.Contains(n.Ended, id) }
}

func takenFor(held storage.Held, cause error) func(storage.Notice) bool {
	taken := storage.Taken{Held: held, Cause: cause}
	return func(n storage.Notice) bool { return slices.Contains(n.Taken, taken) }
}

func available(n storage.Notice) bool { return n.Available }

func heldOf(r storage.Record) storage.Held { return storage.Held{ID: r.ID, Version: r.Version} }

var notifyCases = []Case{
	{"notify-1", "Notify/Jobs", "storage.Notifier", "Others are told of jobs that become available, come due and end.", needsNotices, func(c *C) {
		e := c.listen("other")
		id := c.insert(c.job())[0]
		e.hears("a job is available", available)
		later := c.insert(c.job(scheduled(time.Minute)))[0]
		at := c.get(later).ScheduledAt
		e.hears("a job comes due", func(n storage.Notice) bool { return n.Due.Equal(at) })
		r := c.claimOf(storage.Claim{Max: 1})[0]
		c.settled(r, c.to(ojs.StateCompleted))
		e.hears("a job has ended", ended(id))
		e.past = nil
		c.pass(time.Minute)
		c.due()
		e.hears("a job was promoted", available)
		e.stop()
	}},
	{"notify-2", "Notify/Taken", "storage.Notifier", "Others are told of claims that are taken from their holders, and why.", needsNotices, func(c *C) {
		e := c.listen("other")
		c.insert(c.job(), c.job(), c.job(scheduled(time.Hour)))
		c.settled(c.one(), c.to(ojs.StateCompleted)) // by its holder
		c.settled(c.one(), c.to(ojs.StateRetryable))
		replaces := unique("f", ojs.UniquePolicy{OnConflict: ojs.ConflictReplace})
		c.insert(c.job(replaces))
		cancelled := c.one()
		c.settled(cancelled, c.to(ojs.StateCancelled))
		e.hears("a job was cancelled", takenFor(heldOf(cancelled), ojs.ErrCancelled))
		c.insert(c.job(replaces))
		replaced := c.one()
		c.insert(c.job(replaces, scheduled(time.Hour)))
		e.hears("a job was replaced", takenFor(heldOf(replaced), ojs.ErrReplaced))
		c.insert(c.job())
		stalled := c.one()
		c.pass(time.Minute)
		c.due()
		e.hears("a lease was lost", takenFor(heldOf(stalled), ojs.ErrLeaseLost))
		for _, n := range e.past {
			for _, taken := range n.Taken {
				if !slices.Contains([]string{cancelled.ID, replaced.ID, stalled.ID}, taken.ID) {
					c.failf("told that a claim was taken which was not: %+v", taken)
				}
			}
		}
		e.stop()
	}},
	{"notify-3", "Notify/NotSelf", "storage.Notifier", "A listener hears nothing of its own calls, though others do.", needsNotices, func(c *C) {
		e, third := c.listen("self"), c.listen("third")
		mine, theirs := storage.WithCaller(c.ctx, "self"), storage.WithCaller(c.ctx, "other")
		end := func(ctx context.Context) string {
			c.ctx = ctx
			id := c.insert(c.job())[0]
			c.settled(c.one(), c.to(ojs.StateCompleted))
			return id
		}
		own := end(mine)
		third.hears("a job has ended", ended(own))
		third.stop() // self is the only listener from here on
		alone := end(mine)
		e.hears("another one's job has ended", ended(end(theirs)))
		for _, n := range e.past {
			if slices.Contains(n.Ended, own) || slices.Contains(n.Ended, alone) {
				c.failf("told of its own job: %+v", n)
			}
		}
		e.stop()
	}},
	{"notify-4", "Notify/Stop", "storage.Notifier", "After stop nothing is told.", needsNotices, func(c *C) {
		gone, stays := c.listen("gone"), c.listen("stays")
		gone.stop()
		for len(gone.notices) > 0 { // which were told before, as to look at everything
			<-gone.notices
		}
		c.insert(c.job())
		stays.hears("a job is available", available)
		select {
		case n := <-gone.notices:
			c.failf("told %+v", n)
		default:
		}
		stays.stop()
	}},
	{"notify-5", "Notify/QueuesAndCrons", "storage.Notifier",
		"Others are told when a queue is resumed, and when a recurring entry is stored or deleted.",
		needsNotices, func(c *C) {
			set := func(to ojs.QueueState) {
				_, err := c.S.SetQueueState(c.ctx, "q", to)
				c.noErr("SetQueueState", err)
			}
			c.insert(c.job())
			set(ojs.QueuePaused)
			e := c.listen("other")
			set(ojs.QueueActive)
			e.hears("a queue was resumed", available)
			set(ojs.QueuePaused)
			e.past = nil
			set(ojs.QueueDraining)
			e.hears("a queue that was paused drains", available)
			crons := func(n storage.Notice) bool { return n.Crons }
			c.setCrons(storage.Cron{Name: "e"})
			e.hears("a recurring entry was stored", crons)
			e.past = nil
			c.deleteCron("e")
			e.hears("a recurring entry was deleted", crons)
			e.past = nil
			c.setCrons(storage.Cron{Name: "e"}, storage.Cron{Name: "other", Version: 7}) // which is refused
			e.hears("one of two recurring entries was stored", crons)
			e.stop()
		}},
	{"notify-6", "Notify/Changes", "storage.Notifier",
		"Others are told when a retry, a replay or a change makes a job available, and when a change has it come due earlier.",
		needsNotices, func(c *C) {
			retries := c.reach(ojs.StateRetryable)
			waits := c.insert(c.job(scheduled(time.Hour)), c.job(scheduled(time.Hour)))
			c.insert(c.job())
			dead := c.settled(c.one(), c.dead)
			e := c.listen("other")
			hears := func(what string, ok func(storage.Notice) bool) {
				c.tb.Helper()
				e.hears(what, ok)
				e.past = nil
			}
			c.settled(dead, func(r *storage.Record) {
				r.State, r.FinishedAt, r.DeadLetteredAt = ojs.StateAvailable, time.Time{}, time.Time{}
			})
			hears("a dead letter was replayed", available)
			c.settled(c.get(waits[0]), func(r *storage.Record) { r.State = ojs.StateAvailable })
			hears("a change has made a job available", available)
			sooner := c.now.Add(time.Minute)
			c.settled(c.get(waits[1]), func(r *storage.Record) { r.ScheduledAt = sooner })
			hears("a job is due earlier", func(n storage.Notice) bool { return n.Due.Equal(sooner) })
			c.now = retries.NextRetryAt
			c.due()
			hears("a retry has become available", available)
			e.stop()
		}},
	{"notify-7", "Notify/Binder", "storage.Binder",
		"Calls through Binder.Bind are its user's own, and a storage around the storage gets none.", needsNotices, func(c *C) {
			p, ok := unscribbled(c.S).(storage.Binder)
			if !ok {
				return
			}
			if got := p.Bind("self", &Faulty{Storage: unscribbled(c.S)}); got != nil {
				c.failf("Bind of a storage that wraps it returned %T", got)
			}
			mine := p.Bind("self", unscribbled(c.S))
			if mine == nil {
				c.failf("Bind of the storage itself returned nil")
			}
			e := c.listen("self")
			theirs := c.S
			c.S = scribble(mine)
			own := c.insert(c.job())[0]
			c.settled(c.one(), c.to(ojs.StateCompleted))
			c.S = theirs
			other := c.insert(c.job())[0]
			c.settled(c.one(), c.to(ojs.StateCompleted))
			e.hears("another one's job has ended", ended(other))
			for _, n := range e.past {
				if slices.Contains(n.Ended, own) {
					c.failf("told of its own job: %+v", n)
				}
			}
			e.stop()
		}},
}
