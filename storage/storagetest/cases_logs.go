package storagetest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// logged wants the logs of a job to be these: "version=data".
func (c *C) logged(why, id string, want ...string) {
	c.tb.Helper()
	list, err := c.S.Logs(c.ctx, id)
	c.noErr("Logs", err)
	var got []string
	for _, l := range list {
		got = append(got, fmt.Sprintf("%d=%s", l.Version, l.Data))
	}
	if !slices.Equal(got, want) {
		c.failf("%s, and Logs returned %.300q, not %.300q", why, got, want)
	}
}

// retried settles an active job to be tried again, with a log, and claims it again. It
// returns the job as claimed, and its version after the change.
func (c *C) retried(r storage.Record, log string) (storage.Record, uint64) {
	c.tb.Helper()
	r = with(r, c.to(ojs.StateRetryable))
	out := c.change(storage.Change{Record: r, AttemptFieldsOnly: true, Log: []byte(log)})[0]
	if out.Err != nil {
		c.failf("Settle from %s refused: %v", ojs.StateActive, out.Err)
	}
	c.pass(time.Hour)
	c.due()
	return c.one(), out.Version
}

// with returns a record after changes.
func with(r storage.Record, change ...func(*storage.Record)) storage.Record {
	for _, f := range change {
		f(&r)
	}
	return r
}

var logCases = []Case{
	{"logs-1", "Logs/Stored", "Change.Log",
		"The log of a change is kept with its version, the oldest first.", needsNothing, func(c *C) {
			c.insert(c.job())
			r := c.one()
			c.logged("nothing has been logged", r.ID)
			large := string(bytes.Repeat([]byte{0, 255, '\n', 'x'}, 1<<15))
			r, first := c.retried(r, large)
			c.settled(r, c.to(ojs.StateRetryable)) // without a log
			c.pass(time.Hour)
			c.due()
			r = c.one()
			c.insert(c.job())
			other := c.one()
			r, other = with(r, c.to(ojs.StateCompleted)), with(other, c.to(ojs.StateCompleted))
			outs := c.change(
				storage.Change{Record: other, Log: []byte("other")},
				storage.Change{Record: r, AttemptFieldsOnly: true, Log: []byte("last")})
			c.logged("two of three attempts have logged", r.ID,
				fmt.Sprintf("%d=%s", first, large), fmt.Sprintf("%d=last", outs[1].Version))
			c.logged("one attempt has logged", other.ID, fmt.Sprintf("%d=other", outs[0].Version))
			c.logged("no such job is stored", "00000000-0000-7000-8000-00000000beef")
		}},
	{"logs-2", "Logs/Refused", "Change.Log",
		"A change that is refused keeps no log.", needsNothing, func(c *C) {
			c.insert(c.job(), c.job())
			claimed := c.claim(2)
			r, other := claimed[0], claimed[1]
			stale := with(r, c.to(ojs.StateCompleted))
			stale.Version--
			bad := with(other, c.to(ojs.StatePending))
			gone := with(c.job(), c.to(ojs.StateCompleted))
			for i, out := range c.change(
				storage.Change{Record: stale, Log: []byte("stale")},
				storage.Change{Record: bad, Log: []byte("bad")},
				storage.Change{Record: gone, Log: []byte("gone")}) {
				if out.Err == nil {
					c.failf("change %d was not refused", i)
				}
			}
			c.logged("the change came too late", r.ID)
			c.logged("there is no such transition", other.ID)
			c.logged("the job is not stored", gone.ID)
			follow := c.job()
			ch := c.completing(r, inserts(follow)...)
			ch.Log = []byte("then")
			ch.Then[0].Record.ID = other.ID // which is stored
			if out := c.change(ch)[0]; out.Err == nil {
				c.failf("a change whose Then is refused was applied")
			}
			c.logged("a job of Then was refused", r.ID)
			ch.Then[0].Record = follow
			s := c.change(ch)[0]
			c.noErr("Settle", s.Err)
			c.logged("the change was applied", r.ID, fmt.Sprintf("%d=then", s.Version))
		}},
	{"logs-3", "Logs/Newest", "storage.MaxLogs",
		"The last ten logs of a job are kept.", needsNothing, func(c *C) {
			c.insert(c.job())
			r := c.one()
			var want []string
			for i := range storage.MaxLogs + 2 {
				var version uint64
				r, version = c.retried(r, fmt.Sprint(i))
				want = append(want, fmt.Sprintf("%d=%d", version, i))
				last := want[max(0, len(want)-storage.MaxLogs):]
				c.logged(fmt.Sprintf("%d attempts have logged", len(want)), r.ID, last...)
			}
		}},
	{"logs-4", "Logs/Deleted", "storage.LogStore",
		"The logs of a job are deleted with it.", needsNothing, func(c *C) {
			ends := func(r storage.Record) {
				c.insert(r)
				r = with(c.one(), c.to(ojs.StateCompleted))
				c.change(storage.Change{Record: r, AttemptFieldsOnly: true, Log: []byte("x")})
			}
			deleted, pruned := c.job(), c.job()
			ends(deleted)
			_, err := c.S.Delete(c.ctx, []string{deleted.ID})
			c.noErr("Delete", err)
			ends(pruned)
			_, err = c.S.Prune(c.ctx, storage.Prune{Now: c.now, Before: c.now.Add(c.tick()), Max: 10})
			c.noErr("Prune", err)
			c.absent("the jobs are deleted", inserts(deleted, pruned)...)
			c.logged("the job is deleted", deleted.ID)
			c.logged("the job is pruned", pruned.ID)
			c.insert(deleted, pruned)
			c.logged("the job is a new one", deleted.ID)
			c.logged("the job is a new one", pruned.ID)
		}},
	{"logs-5", "Logs/Reopened", "storage.LogStore",
		"Logs outlive a durable storage.", needsReopen, func(c *C) {
			c.insert(c.job())
			r, first := c.retried(c.one(), "first")
			c.reopen()
			c.logged("the storage was opened again", r.ID, fmt.Sprintf("%d=first", first))
		}},
}
