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

// hears wants a notice for which ok holds, now or soon. That of everything is for later looks and says nothing by itself.
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
			e.c.failf("nobody was told that %s; told was %+v", what, e.past)
		}
	}
}

func ended(id string) func(storage.Notice) bool {
	return func(n storage.Notice) bool { return slices.Contains(n.Ended, id) }
}

func takenFor(held storage.Held, cause error) func(storage.Notice) bool {
	return func(n storage.Notice) bool { return slices.Contains(n.Taken, storage.Taken{Held: held, Cause: cause}) }
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
		e.stop()
	}},
	{"notify-3", "Notify/NotSelf", "storage.Notifier", "Nobody is told of calls of their own.", needsNotices, func(c *C) {
		e := c.listen("self")
		mine, theirs := c.ctx, storage.WithSelf(c.ctx, "other")
		mine = storage.WithSelf(mine, "self")
		end := func(ctx context.Context) string {
			c.ctx = ctx
			id := c.insert(c.job())[0]
			c.settled(c.one(), c.to(ojs.StateCompleted))
			return id
		}
		own := end(mine)
		e.hears("another one's job has ended", ended(end(theirs)))
		for _, n := range e.past {
			if slices.Contains(n.Ended, own) {
				c.failf("told of its own job: %+v", n)
			}
		}
		e.stop()
	}},
	{"notify-4", "Notify/Stop", "storage.Notifier", "After stop nothing is told.", needsNotices, func(c *C) {
		gone, stays := c.listen("gone"), c.listen("stays")
		gone.stop()
		c.insert(c.job())
		stays.hears("a job is available", available)
		select {
		case n := <-gone.notices:
			c.failf("told %+v", n)
		default:
		}
		stays.stop()
	}},
}
