package storagetest

import (
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// claiming inserts jobs that the caller would claim next, and reports whether the storage
// has claimed them.
func (c *C) claiming(q storage.Claim, recs ...storage.Record) (claimed bool, out []storage.Inserted) {
	c.tb.Helper()
	batch := make([]storage.Insert, len(recs))
	for i := range recs {
		batch[i] = storage.Insert{Record: recs[i], IDIsNew: true}
	}
	batch[0].Claim = &q
	out, err := c.S.Insert(c.ctx, c.now, batch, nil)
	c.noErr("Insert", err)
	if len(out) != len(recs) {
		c.failf("Insert of %d jobs returned %d results", len(recs), len(out))
	}
	for i := range out {
		if out[i].Claimed != out[0].Claimed {
			c.failf("Insert has claimed job %d and not job %d of a batch, or the other way round", 1, i+1)
		}
	}
	return out[0].Claimed, out
}

// unclaimed wants an insert to leave its jobs as they are given.
func (c *C) unclaimed(why string, q storage.Claim, recs ...storage.Record) {
	c.tb.Helper()
	if claimed, _ := c.claiming(q, recs...); claimed {
		c.failf("an insert has claimed jobs, though %s", why)
	}
	for _, r := range recs {
		c.wantState(r.ID, r.State)
	}
}

// insertClaimCases are about Insert.Claim. A storage that never claims passes them,
// unless it declares that it does.
var insertClaimCases = []Case{
	{"insertclaim-1", "Insert/Claimed", "Insert.Claim",
		"New jobs that an insert has claimed are as Record.Claim leaves them, held by the claim's worker.",
		needsNothing, func(c *C) {
			ask := storage.Claim{Queues: []string{"p", "q"}, Types: []string{"y", "x"}, Worker: "w"}
			recs := []storage.Record{c.job(), c.job(queue("p"), priority(3)), c.job(jobType("y"))}
			claimed, out := c.claiming(ask, recs...)
			for i := range recs {
				if recs[i].Version = out[i].Version; claimed {
					recs[i].Claim(c.now, "w", 0)
				}
				c.same("the new job", c.get(recs[i].ID), recs[i])
			}
			if !claimed {
				if c.cfg.InsertClaims {
					c.failf("an insert into an empty storage has claimed nothing")
				}
				return
			}
			c.order(storage.Claim{})
			c.unclaimed("its queue is not the claim's", ask, c.job(queue("r")))
			c.settled(recs[0], c.to(ojs.StateCompleted))
			c.pass(time.Minute)
			if d := c.due(); len(d.Stalled) != 2 || d.Stalled[0].ID != recs[1].ID {
				c.failf("Due has handed over %d jobs, want 2", len(d.Stalled))
			}
			c.settled(c.get(recs[1].ID), c.to(ojs.StateCompleted))
		}},
	{"insertclaim-2", "Insert/ClaimBehindOthers", "Insert.Claim",
		"An insert claims nothing while another job is available that the claim would take.",
		needsNothing, func(c *C) {
			c.insert(c.job(queue("p"), priority(-1)))
			c.unclaimed("another job is first", storage.Claim{}, c.job(priority(-2)))
			c.unclaimed("another job came first", storage.Claim{Queues: []string{"q"}}, c.job(priority(-2)))
			c.unclaimed("a job of another queue is first", storage.Claim{Queues: []string{"p", "r"}},
				c.job(queue("r")))
		}},
	{"insertclaim-3", "Insert/ClaimAllOrNone", "Insert.Claim",
		"An insert claims all jobs of its batch or none: each is available, and one that the claim takes.",
		needsNothing, func(c *C) {
			ask := storage.Claim{Queues: []string{"q"}, Types: []string{"x"}, Worker: "w"}
			c.unclaimed("one is of another type", ask, c.job(), c.job(jobType("y")))
			c.drain()
			c.unclaimed("one is of another queue", ask, c.job(), c.job(queue("p")))
			c.drain()
			c.unclaimed("one is scheduled", ask, c.job(), c.job(scheduled(time.Hour)))
			c.drain()
			c.unclaimed("one is pending", ask, c.job(pending), c.job())
			c.drain()
			c.unclaimed("one has expired", ask, c.job(), c.job(expires(0)))
		}},
	{"insertclaim-4", "Insert/ClaimPaused", "Insert.Claim",
		"An insert claims nothing of a paused queue.",
		needsNothing, func(c *C) {
			_, err := c.S.SetQueueState(c.ctx, "q", ojs.QueuePaused)
			c.noErr("SetQueueState", err)
			c.unclaimed("a queue is paused", storage.Claim{}, c.job(queue("p")), c.job())
		}},
}

// drain claims what is available, or has expired and is in the way.
func (c *C) drain() {
	c.tb.Helper()
	c.due()
	for len(c.claim(10)) > 0 {
	}
}
