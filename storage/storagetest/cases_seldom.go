package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Cases for what few calls reach: they killed mutants that the others had passed
// (internal/test/mutate).

var seldomCases = []Case{
	{"insert-16", "Insert/DepthAndReplaced", "OJS backpressure", "A job that the batch replaces counts neither in the depth of its queue nor among the longest available ones.", needsNothing, func(c *C) {
		none := ojs.UniquePolicy{States: []ojs.State{ojs.StateDiscarded}}
		replace := ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}
		got := c.insert(c.job(unique("f", none)), c.job(), c.job())
		in := func(max int, drop bool, recs ...storage.Record) ([]storage.Inserted, error) {
			batch := make([]storage.Insert, len(recs))
			for i := range recs {
				batch[i] = storage.Insert{Record: recs[i], MaxDepth: max, DropOldest: drop}
			}
			return c.S.Insert(c.ctx, c.now, batch, nil)
		}
		_, err := in(3, false, c.job(unique("f", replace)), c.job())
		c.wantErr("Insert of two where one is replaced", err, ojs.ErrQueueFull)
		out, err := in(3, false, c.job(unique("f", replace)))
		c.noErr("Insert that replaces a job", err)
		if out[0].Depth != 3 || len(out[0].Replaced) != 1 {
			c.failf("Insert returned %+v", out[0])
		}
		// The longest available of the three is replaced, and the two others make room.
		first := c.job(unique("g", none))
		c.settled(c.get(got[1]), func(r *storage.Record) { r.Fingerprint = "g" })
		out, err = in(2, true, first, c.job(unique("g", replace)))
		c.noErr("Insert into a full queue", err)
		if r := out[1].Replaced; len(r) != 2 || r[0].ID != got[1] || r[1].ID != first.ID {
			c.failf("replaced %v", short(ids(r)))
		}
		if d := slices.Concat(ids(out[0].Dropped), ids(out[1].Dropped)); len(d) != 1 ||
			d[0] != got[2] || out[1].Depth != 2 {
			c.failf("dropped %v, the depth is %d", short(d), out[1].Depth)
		}
	}},
	{"insert-17", "Insert/SeenByEachCall", "Storage.Insert", "Every call sees a job that has just been inserted, with or without IDIsNew.", needsNothing, func(c *C) {
		round := 0
		// Each round has a type and a queue of its own, and two jobs that no call has
		// seen when see is called.
		begin := func(fresh bool, see func(q storage.Claim, there storage.Record, two []storage.Record)) {
			round++
			name := fmt.Sprint("round-", round)
			own := func(r *storage.Record) {
				r.Queue, r.Type, r.TotalTimeout = name, name, time.Hour
			}
			there := c.get(c.insert(c.job(own))[0])
			two := []storage.Record{c.job(own), c.job(own)}
			if round%2 == 0 { // the one that is there comes last
				there = c.settled(there, priority(-1))
			}
			batch := []storage.Insert{{Record: two[0], IDIsNew: fresh}, {Record: two[1], IDIsNew: fresh}}
			out, err := c.S.Insert(c.ctx, c.now, batch, nil)
			c.noErr("Insert", err)
			two[0].Version, two[1].Version = out[0].Version, out[1].Version
			see(storage.Claim{Types: []string{name}, Max: 3, Worker: "w"}, there, two)
		}
		inOrder := func(there storage.Record, two []storage.Record) []string {
			if there.Priority < 0 {
				return append(ids(two), there.ID)
			}
			return append([]string{there.ID}, ids(two)...)
		}
		calls := []func(q storage.Claim, there storage.Record, two []storage.Record){
			func(q storage.Claim, there storage.Record, two []storage.Record) {
				if got := ids(c.claimOf(q)); !slices.Equal(got, inOrder(there, two)) {
					c.failf("claimed %v, not %v", short(got), short(inOrder(there, two)))
				}
			},
			func(q storage.Claim, there storage.Record, two []storage.Record) {
				q.Max = 1
				c.order(q, inOrder(there, two)...)
			},
			func(q storage.Claim, there storage.Record, two []storage.Record) {
				q.Queues = []string{"none", there.Queue}
				if got := ids(c.claimOf(q)); !slices.Equal(got, inOrder(there, two)) {
					c.failf("claimed %v of the queue, not %v", short(got), short(inOrder(there, two)))
				}
			},
			func(_ storage.Claim, _ storage.Record, two []storage.Record) {
				c.same("the job", c.get(two[1].ID), two[1])
			},
			func(_ storage.Claim, there storage.Record, two []storage.Record) {
				want := append([]string{there.ID}, ids(two)...)
				if got := c.list(storage.Query{Queues: []string{there.Queue}}); !slices.Equal(got, want) {
					c.failf("listed %v, not %v", short(got), short(want))
				}
			},
			func(_ storage.Claim, there storage.Record, _ []storage.Record) {
				counts, err := c.S.Counts(c.ctx)
				c.noErr("Counts", err)
				if !slices.Contains(counts,
					storage.Count{Queue: there.Queue, Type: there.Type, State: ojs.StateAvailable, N: 3}) {
					c.failf("counted %v", counts)
				}
			},
			func(_ storage.Claim, _ storage.Record, two []storage.Record) {
				c.settled(two[0], c.to(ojs.StateCancelled))
			},
			func(_ storage.Claim, _ storage.Record, two []storage.Record) {
				_, err := c.S.Delete(c.ctx, ids(two))
				var bad *ojs.TransitionError
				if !errors.As(err, &bad) || bad.ID != two[0].ID {
					c.failf("Delete returned %v", err)
				}
			},
			func(_ storage.Claim, _ storage.Record, two []storage.Record) {
				_, err := c.insertBatch(two[1])
				c.wantErr("Insert of the same id", err, ojs.ErrDuplicate)
			},
			func(_ storage.Claim, there storage.Record, two []storage.Record) {
				out, err := c.S.Insert(c.ctx, c.now,
					[]storage.Insert{{Record: c.job(queue(there.Queue)), MaxDepth: 1, DropOldest: true}}, nil)
				c.noErr("Insert", err)
				if got := out[0].Dropped; len(got) != 3 || out[0].Depth != 1 {
					c.failf("dropped %v, the depth is %d", short(ids(got)), out[0].Depth)
				}
			},
			func(_ storage.Claim, _ storage.Record, two []storage.Record) {
				c.pass(time.Hour)
				if d := c.due(); !slices.Contains(ids(d.Expired), two[0].ID) ||
					!slices.Contains(ids(d.Expired), two[1].ID) {
					c.failf("%v expired, without %v", short(ids(d.Expired)), short(ids(two)))
				}
			},
		}
		calls = append(calls, func(q storage.Claim, there storage.Record, _ []storage.Record) {
			_, err := c.S.SetQueueState(c.ctx, there.Queue, ojs.QueuePaused)
			c.noErr("SetQueueState", err)
			c.order(q)
		})
		if _, ok := settleClaimer(c.S); ok {
			calls = append(calls, func(q storage.Claim, there storage.Record, two []storage.Record) {
				c.stepped(q, 5, inOrder(there, two)...)
			})
		}
		for _, see := range calls {
			for range 2 {
				begin(true, see)
				begin(false, see)
			}
			begin(true, see)
		}
	}},
	{"unique-15", "Unique/CancelledByTheBatch", "Storage.Insert", "A job that a batch replaces counts as cancelled for the records after: it is in their way if their policy counts cancelled jobs, and by its own time.", needsNothing, func(c *C) {
		none := ojs.UniquePolicy{States: []ojs.State{ojs.StateDiscarded}}
		replace := ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}
		cancelled := func(conflict ojs.Conflict, period time.Duration) ojs.UniquePolicy {
			return ojs.UniquePolicy{OnConflict: conflict, States: []ojs.State{ojs.StateCancelled},
				Period: period}
		}
		created := func(d time.Duration) func(*storage.Record) {
			return func(r *storage.Record) { r.CreatedAt = c.now.Add(d) }
		}
		// Of five stored jobs the batch replaces all but the one that has been cancelled
		// before. Then it asks for the newest cancelled one, and finds it among these, or
		// among those that it has brought itself.
		for i, own := range []time.Duration{-time.Hour, -3 * time.Minute, 0} {
			for _, conflict := range []ojs.Conflict{ojs.ConflictReject, ojs.ConflictIgnore} {
				f, other := fmt.Sprint("f", i, conflict), fmt.Sprint("g", i, conflict)
				before := c.job(unique(f, none), created(-4*time.Minute))
				c.admit(before)
				c.settled(c.get(before.ID), c.to(ojs.StateCancelled))
				newest := c.job(unique(f, none), created(-2*time.Minute))
				c.admit(c.job(unique(f, none), created(-5*time.Minute)))
				c.admit(newest)
				c.admit(c.job(unique(f, none), created(-6*time.Minute)))
				c.admit(c.job(unique(other, none), created(-time.Minute)))
				brought := c.job(unique(f, replace), created(own))
				batch := []storage.Record{c.job(unique(other, replace)), brought,
					c.job(unique(f, replace), created(-10*time.Minute)),
					c.job(unique(f, cancelled(conflict, 0)))}
				want := newest.ID
				if own == 0 {
					want = brought.ID
				}
				out, err := c.insertBatch(batch...)
				if conflict == ojs.ConflictReject {
					var dup *ojs.DuplicateError
					if !errors.As(err, &dup) || dup.ID != want || dup.State != ojs.StateCancelled {
						c.failf("Insert returned %v, not the duplicate of the cancelled %v",
							err, short([]string{want}))
					}
					c.wantState(newest.ID, ojs.StateAvailable)
					continue
				}
				c.noErr("Insert", err)
				if ex := out[3].Existing; ex == nil || ex.ID != want ||
					ex.State != ojs.StateCancelled || out[3].Version != 0 {
					c.failf("Insert returned %+v, not the cancelled %v", out[3], short([]string{want}))
				}
				c.same("Existing", *out[3].Existing, c.get(want))
			}
		}
		// Too old to count.
		c.admit(c.job(unique("h", none), created(-time.Hour)))
		out, err := c.insertBatch(c.job(unique("h", replace), created(-time.Hour)),
			c.job(unique("h", cancelled(ojs.ConflictReject, time.Minute))))
		c.noErr("Insert", err)
		if out[1].Version == 0 {
			c.failf("Insert returned %+v", out[1])
		}
	}},
	{"unique-16", "Unique/NewestOfABatch", "Storage.Insert", "Of equal jobs of one batch, and of those stored before it, the newest is named by CreatedAt and then by insertion.", needsNothing, func(c *C) {
		none := ojs.UniquePolicy{States: []ojs.State{ojs.StateDiscarded}}
		for i, want := range []struct {
			stored, first, second int // when they were created, in seconds from now
			newest                int // of these three
		}{{0, 0, 0, 2}, {0, 2, 1, 1}, {0, 1, 2, 2}, {3, 1, 2, 0}, {2, 2, 1, 1}, {1, 0, 1, 2},
			{0, -2, -1, 0}} {
			f := fmt.Sprint("f", i)
			equal := func(created int) storage.Record {
				return c.job(unique(f, none),
					func(r *storage.Record) { r.CreatedAt = c.now.Add(time.Duration(created) * time.Second) })
			}
			recs := []storage.Record{equal(want.stored), equal(want.first), equal(want.second)}
			c.admit(recs[0])
			_, err := c.insertBatch(recs[1], recs[2], c.job(unique(f, ojs.UniquePolicy{})))
			var dup *ojs.DuplicateError
			if !errors.As(err, &dup) || dup.ID != recs[want.newest].ID || dup.State != ojs.StateAvailable {
				c.failf("created at %+v: Insert returned %v, not the duplicate of %v",
					want, err, short([]string{recs[want.newest].ID}))
			}
		}
	}},
	{"claim-15", "Claim/Worker", "Record.Claim", "The record names the worker of the latest claim, and what Settle says of it.", needsNothing, func(c *C) {
		plain := func(*storage.Record) {}
		for _, change := range []func(*storage.Record){plain, expires(time.Hour)} {
			c.insert(c.job(change))
			for _, worker := range []string{"a", "b", "", "a"} {
				recs := c.claimOf(storage.Claim{Max: 1, Worker: worker})
				if len(recs) != 1 || recs[0].Worker != worker || c.get(recs[0].ID).Worker != worker {
					c.failf("claimed by %q: %+v", worker, recs)
				}
				renamed := func(r *storage.Record) { r.Worker += "!" }
				if r := c.settled(recs[0], c.to(ojs.StateRetryable), renamed); r.Worker != worker+"!" {
					c.failf("the worker is %q, not %q", r.Worker, worker+"!")
				}
				c.settled(c.get(recs[0].ID), c.to(ojs.StateAvailable))
			}
			c.settled(c.one(), c.to(ojs.StateCompleted))
		}
	}},
	{"claim-16", "Claim/ClosedKeyWhileJobsGo", "OJS rate limiting", "Jobs of a closed key are cancelled, moved and inserted like others, and those that are there when the key opens are claimed in order.", needsNothing, func(c *C) {
		c.shut("k")
		var got []string
		for range 6 {
			got = append(got, c.insert(c.job(limited("k")))...)
		}
		c.order(storage.Claim{})
		c.settled(c.get(got[0]), c.to(ojs.StateCancelled))         // the first of the key
		c.settled(c.get(got[3]), c.to(ojs.StateCancelled))         // one in the middle
		c.settled(c.get(got[1]), limited("l"))                     // to a key that is open
		c.settled(c.get(got[4]), priority(3))                      // to the front
		last := c.insert(c.job(limited("k")), c.job(limited("m"))) // behind
		c.settled(c.get(last[1]), limited("k"), jobType("y"))      // from an open key
		c.order(storage.Claim{}, got[1])
		c.unshut("k")
		c.order(storage.Claim{}, got[4], got[2], got[5], last[0], last[1])
	}},
	{"settle-20", "Settle/NoDeadline", "Storage.Settle",
		"An available job that is given no deadline any more is left alone by Due when the one before comes.", needsNothing, func(c *C) {
			id := c.insert(c.job(expires(time.Minute)))[0]
			r := c.settled(c.get(id), func(r *storage.Record) { r.ExpiresAt = time.Time{} })
			for range 2 { // before it comes, and when it has
				if d := c.due(); len(d.Promoted)+len(d.Expired)+len(d.Stalled) > 0 || !d.Next.IsZero() {
					c.failf("Due returned %v, %v, %v, next %v",
						short(ids(d.Promoted)), short(ids(d.Expired)), short(ids(d.Stalled)), d.Next)
				}
				c.same("the job", c.get(id), r)
				c.pass(time.Minute)
			}
			c.order(storage.Claim{}, id)
		}},
	{"notify-8", "Notify/Deadlines", "storage.Notifier",
		"Others are told of the deadline that an available job is given, and of jobs that expire or are dropped.", needsNotices, func(c *C) {
			e := c.listen("other")
			id := c.insert(c.job())[0]
			// first a deadline, then an earlier one
			for _, d := range []time.Duration{time.Hour, time.Minute} {
				e.past = nil
				c.settled(c.get(id), expires(d))
				at := c.get(id).ExpiresAt
				e.hears("an available job has a deadline",
					func(n storage.Notice) bool { return n.Due.Equal(at) })
			}
			c.pass(time.Minute)
			c.due()
			e.hears("an available job has expired", ended(id))
			full := c.insert(c.job(queue("full")))[0]
			_, err := c.S.Insert(c.ctx, c.now,
				[]storage.Insert{{Record: c.job(queue("full")), MaxDepth: 1, DropOldest: true}}, nil)
			c.noErr("Insert", err)
			e.hears("a job was dropped", ended(full))
			e.stop()
		}},
}
