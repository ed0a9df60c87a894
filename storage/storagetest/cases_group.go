package storagetest

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// revive revives jobs and returns those that have moved.
func (c *C) revive(batch ...storage.Insert) []storage.Record {
	c.tb.Helper()
	moved, err := c.S.Revive(c.ctx, c.now, batch)
	c.noErr("Revive", err)
	return moved
}

// again is a job that has ended, as it begins anew.
func again(r storage.Record, s ojs.State, on ...string) storage.Insert {
	r.State, r.Attempt, r.Progress, r.Error = s, 0, 0, nil
	r.FinishedAt, r.DeadLetteredAt, r.Result = time.Time{}, time.Time{}, nil
	if len(on) > 0 {
		r.Dependencies = &ojs.Dependencies{Condition: ojs.AllSucceeded, Unfinished: 7}
	}
	return storage.Insert{Record: r, DependsOn: on}
}

var groupCases = []Case{
	{"group-1", "Group/Cancel", "GroupStore.CancelAll",
		"Jobs that wait are cancelled in one step, in order, and then counted; others stay.",
		needsNothing, func(c *C) {
			active, done := c.active(), c.reach(ojs.StateCompleted)
			first := c.wait(ojs.AllSucceeded, []string{active.ID})
			second := c.wait(ojs.AnyFailed, []string{first})
			outside := c.wait(ojs.AnyFailed, []string{first, second})
			ready := c.insert(c.job(), c.job(scheduled(time.Hour)))
			list := slices.Concat([]string{first}, ready, []string{active.ID, done.ID, second, "unknown"})
			before := make(map[string]storage.Record)
			for _, id := range slices.Concat(ready, []string{first, second}) {
				before[id] = c.get(id)
			}
			cancelled, moved, err := c.S.CancelAll(c.ctx, c.now, list)
			c.noErr("CancelAll", err)
			want := slices.Concat([]string{first}, ready, []string{second})
			if got := ids(cancelled); !slices.Equal(got, want) {
				c.failf("cancelled %v, not %v", short(got), short(want))
			}
			for _, r := range cancelled {
				was := before[r.ID]
				was.Cancel(c.now)
				c.same("a cancelled job", r, was)
				c.same("a cancelled job, as it is stored", c.get(r.ID), was)
			}
			c.wantMoved("CancelAll", moved, is(outside, isAvailable))
			c.same("an active job", c.get(active.ID), active)
			c.same("a completed job", c.get(done.ID), done)
			c.order(storage.Claim{}, outside)
			c.wantMoved("the end of a job that nothing waits for", c.ends(active, isCompleted).Moved)
		}},
	{"group-2", "Group/CancelRefused", "GroupStore.CancelAll",
		"If the first job does not wait, nothing is cancelled, and of it and its end one wins.",
		needsNothing, func(c *C) {
			active := c.active()
			other := c.insert(c.job())[0]
			was := c.get(other)
			for _, first := range []storage.Record{active, c.reach(isCompleted), c.reach(isCancelled)} {
				_, _, err := c.S.CancelAll(c.ctx, c.now, []string{first.ID, other})
				var bad *ojs.TransitionError
				if !errors.As(err, &bad) || bad.ID != first.ID || bad.From != first.State ||
					bad.To != isCancelled {
					c.failf("CancelAll of a job that is %s: %v", first.State, err)
				}
			}
			_, _, err := c.S.CancelAll(c.ctx, c.now, []string{"unknown", other})
			c.wantErr("CancelAll of an unknown job", err, ojs.ErrNotFound)
			c.same("the second job", c.get(other), was)
			for range rounds {
				last := c.active()
				record := c.wait(ojs.AllEnded, []string{last.ID}, join)
				other := c.wait(ojs.AllSucceeded, []string{last.ID})
				var won atomic.Int32
				race(2, func(i int) {
					if i == 1 {
						r := last
						c.to(isCompleted)(&r)
						changes := []storage.Change{{Record: r, AttemptFieldsOnly: true}}
						_, _ = c.S.Settle(c.ctx, c.now, changes, nil)
						return
					}
					_, _, err := c.S.CancelAll(c.ctx, c.now, []string{record, other})
					if err == nil {
						won.Add(1)
					}
				})
				want, wantRecord := isAvailable, isCompleted
				if won.Load() > 0 {
					want, wantRecord = isCancelled, isCancelled
				}
				c.wantState(record, wantRecord)
				c.wantState(other, want)
			}
		}},
	{"group-3", "Group/Revive", "GroupStore.Revive",
		"A job that has ended begins anew as the batch has it, in its place, under the next version.",
		needsNothing, func(c *C) {
			a, b, d := c.reach(ojs.StateDiscarded), c.reach(isCancelled), c.reach(ojs.StateCompleted)
			open := c.active()
			order := c.list(storage.Query{})
			c.pass(time.Second)
			in := []storage.Insert{again(b, ojs.StateAvailable), again(a, ojs.StateAvailable),
				again(d, ojs.StatePending, open.ID)}
			in[0].Record.Queue, in[1].Record.Queue = "q2", "q2"
			if moved := c.revive(in...); len(moved) > 0 {
				c.failf("Revive has moved %v", short(ids(moved)))
			}
			for i := range in {
				want := in[i].Record
				want.Version++
				if i == 2 {
					want.Dependencies = &ojs.Dependencies{Condition: ojs.AllSucceeded, Unfinished: 1}
				}
				c.same("the job that was revived", c.get(want.ID), want)
			}
			if got := c.list(storage.Query{}); !slices.Equal(got, order) {
				c.failf("jobs are listed as %v, not %v", short(got), short(order))
			}
			c.order(storage.Claim{Queues: []string{"q2"}}, b.ID, a.ID)
			c.wantMoved("the end", c.ends(open, isCompleted).Moved, is(d.ID, isAvailable))
			edited := c.settled(c.get(d.ID), func(r *storage.Record) { r.Dependencies = nil })
			if edited.Dependencies == nil {
				c.failf("a job that was revived to wait has lost its Dependencies by an edit")
			}

			// A job that is to wait for nothing keeps its Dependencies if it has waited.
			waited := c.get(c.wait(ojs.AllEnded, []string{c.active().ID}))
			kept := again(c.settledTo(waited, isCancelled), isAvailable)
			given := again(c.reach(isCancelled), isAvailable)
			want := []*ojs.Dependencies{kept.Record.Dependencies, {Condition: ojs.AllEnded, Unfinished: 3}}
			kept.Record.Dependencies, given.Record.Dependencies = nil, want[1]
			c.revive(kept, given)
			for i, in := range []storage.Insert{kept, given} {
				in.Record.Version++
				in.Record.Dependencies = want[i]
				c.same("the job that was revived to wait for nothing", c.get(in.Record.ID), in.Record)
			}

			later := again(c.reach(ojs.StateDiscarded), ojs.StateScheduled)
			later.Record.ScheduledAt = c.now.Add(time.Minute)
			c.revive(later)
			c.pass(time.Minute)
			if got := ids(c.due().Promoted); !slices.Contains(got, later.Record.ID) {
				c.failf("due are %v", short(got))
			}
		}},
	{"group-4", "Group/ReviveRefused", "GroupStore.Revive",
		"If one job of a batch cannot be revived, none is.",
		needsNothing, func(c *C) {
			good := c.reach(ojs.StateDiscarded)
			waits := c.get(c.insert(c.job(pending))[0])
			done := func() storage.Record { return c.reach(isCancelled) }
			for name, x := range map[string]struct {
				in   storage.Insert
				want error
			}{
				"an unknown job": {storage.Insert{Record: c.job()}, ojs.ErrNotFound},
				"another version": {func() storage.Insert {
					in := again(c.reach(ojs.StateDiscarded), ojs.StateAvailable)
					in.Record.Version--
					return in
				}(), storage.ErrFenced},
				"a job that waits":  {again(waits, isAvailable), ojs.ErrTransition},
				"an active job":     {again(c.active(), ojs.StateAvailable), ojs.ErrTransition},
				"a state to end in": {again(done(), ojs.StateCompleted), ojs.ErrInvalid},
				"an unknown parent": {again(done(), ojs.StatePending, "unknown"), ojs.ErrDependency},
				"a parent, twice":   {again(done(), ojs.StatePending, good.ID, good.ID), ojs.ErrInvalid},
				"not to be pending": {again(done(), ojs.StateAvailable, good.ID), ojs.ErrInvalid},
			} {
				batch := []storage.Insert{again(good, isAvailable), x.in}
				_, err := c.S.Revive(c.ctx, c.now, batch)
				if !errors.Is(err, x.want) {
					c.failf("Revive of %s: %v, not an error that is %v", name, err, x.want)
				}
				var lacks *ojs.DependencyError
				if errors.As(err, &lacks) && (lacks.ID != x.in.Record.ID || lacks.Dependency != "unknown") {
					c.failf("Revive of %s: %v names other jobs", name, err)
				}
				c.same("the other job", c.get(good.ID), good)
			}
		}},
	{"group-5", "Group/ReviveWaits", "GroupStore.Revive",
		"A job that was revived waits for jobs as a new one does, and for nothing from before.",
		needsNothing, func(c *C) {
			open, failed := c.active(), c.active()
			a := c.wait(ojs.AllSucceeded, []string{open.ID, failed.ID})
			b := c.wait(ojs.AllSucceeded, []string{a})
			d := c.wait(ojs.AllEnded, []string{b}, join)
			c.wantMoved("a failure", c.ends(failed, ojs.StateDiscarded).Moved,
				is(a, isCancelled), is(b, isCancelled), is(d, isCompleted))
			completed := c.reach(ojs.StateCompleted)
			joined := again(c.get(d), ojs.StatePending, b)
			joined.Record.Dependencies = &ojs.Dependencies{Condition: ojs.AllEnded, Join: true}
			moved := c.revive(again(c.get(b), ojs.StatePending, a, completed.ID), joined,
				again(c.get(a), ojs.StatePending, failed.ID),
				again(c.get(failed.ID), ojs.StateAvailable))
			if len(moved) > 0 {
				c.failf("Revive has moved %v", short(ids(moved)))
			}
			c.waits(a, 1, 0)
			c.waits(b, 1, 0)
			c.wantMoved("the end of what it waited for before", c.ends(open, ojs.StateDiscarded).Moved)
			c.waits(a, 1, 0)
			r := c.one()
			c.wantMoved("the end", c.ends(r, isCompleted).Moved, is(a, isAvailable))
			c.wantMoved("the next", c.ends(c.one(), isCompleted).Moved, is(b, isAvailable))
			c.wantMoved("the last", c.ends(c.one(), isCompleted).Moved, is(d, isCompleted))

			e := c.settledTo(c.active(), isCancelled)
			c.wantMoved("Revive of a job whose parents have ended",
				c.revive(again(e, ojs.StatePending, completed.ID)), is(e.ID, isAvailable))
			c.revive(again(c.settledTo(c.one(), isCancelled), ojs.StatePending)) // waits for nothing
			c.waits(e.ID, 0, 0)

			last := c.active()
			f := c.wait(ojs.AllSucceeded, []string{last.ID})
			c.cancelled(f)
			plain := again(c.get(f), ojs.StatePending)
			plain.Record.Dependencies = nil
			c.revive(plain)
			c.wantMoved("the end of what it waited for before", c.ends(last, isCompleted).Moved)
			c.wantState(f, ojs.StatePending)
		}},
	{"group-8", "Group/Race", "GroupStore",
		"Of concurrent calls that revive a job, or cancel and claim it, one wins.",
		needsNothing, func(c *C) {
			for range rounds / 5 {
				ended := c.reach(isCancelled)
				var revived, cancelled, claimed atomic.Int32
				race(2, func(int) {
					if _, err := c.S.Revive(c.ctx, c.now,
						[]storage.Insert{again(ended, isAvailable)}); err == nil {
						revived.Add(1)
					}
				})
				got := c.wantState(ended.ID, isAvailable)
				if n := revived.Load(); n != 1 || got.Version != ended.Version+1 {
					c.failf("%d calls have revived a job of version %d, which has version %d now", n,
						ended.Version, got.Version)
				}
				race(2, func(i int) {
					if i == 0 {
						_, _, err := c.S.CancelAll(c.ctx, c.now, []string{ended.ID})
						if err == nil {
							cancelled.Add(1)
						}
						return
					}
					recs, _ := c.S.Claim(c.ctx, c.now, storage.Claim{Max: 1, Worker: "w"}, nil)
					claimed.Add(int32(len(recs)))
				})
				if n, m := cancelled.Load(), claimed.Load(); n+m != 1 {
					c.failf("a job was cancelled %d times and claimed %d times", n, m)
				}
			}
		}},
	{"group-6", "Group/AwaitedBy", "Insert.AwaitedBy",
		"A stored job that waits waits for a new one, too, before any end is counted.",
		needsNothing, func(c *C) {
			a := c.active()
			next := c.wait(ojs.AllSucceeded, []string{a.ID})
			record := c.wait(ojs.AllEnded, []string{a.ID, next}, join)
			done := c.reach(ojs.StateCompleted)
			given := c.job(pending) // with Dependencies, and without DependsOn
			given.Dependencies = &ojs.Dependencies{Condition: ojs.AllSucceeded, Unfinished: 2}
			c.insert(given)
			version := c.get(next).Version
			fresh := storage.Insert{Record: c.job(), AwaitedBy: []string{next, done.ID, given.ID, record}}
			c.insertOne(fresh)
			c.waits(given.ID, 2, 0)
			c.waits(next, 2, 0)
			c.waits(record, 3, 0)
			if v := c.get(next).Version; v != version {
				c.failf("the version of a job that waits for one more is %d, not %d", v, version)
			}
			c.wantMoved("the first end", c.ends(a, isCompleted).Moved)
			r := c.one()
			if r.ID != fresh.Record.ID {
				c.failf("claimed %v", short([]string{r.ID}))
			}
			// The job that follows its end is awaited before the end is counted.
			after := storage.Insert{Record: c.job(), AwaitedBy: []string{next, record}}
			to := r
			c.to(isCompleted)(&to)
			followed := c.change(storage.Change{Record: to, AttemptFieldsOnly: true,
				Then: []storage.Insert{after}})[0]
			c.noErr("Settle", followed.Err)
			c.wantMoved("an end that another job follows", followed.Moved)
			c.waits(next, 1, 0)
			r = c.one()
			c.wantMoved("the last end", c.ends(r, isCompleted).Moved, is(next, isAvailable))
			c.wantMoved("the end of the job that waited", c.ends(c.one(), isCompleted).Moved,
				is(record, isCompleted))

			b := c.active()
			last := c.wait(ojs.AllSucceeded, []string{b.ID})
			waits := c.waiting(ojs.AllSucceeded, []string{done.ID, b.ID})
			waits.AwaitedBy = []string{last}
			c.insertOne(waits)
			c.waits(last, 2, 0)
			c.wantMoved("a failure", c.ends(b, ojs.StateDiscarded).Moved,
				is(last, isCancelled), is(waits.Record.ID, isCancelled))

			d := c.active()
			one, two := c.wait(ojs.AllEnded, []string{d.ID}), c.wait(ojs.AllEnded, []string{d.ID})
			fresh = storage.Insert{Record: c.job(queue("fresh")), AwaitedBy: []string{two, one}}
			c.insertOne(fresh)
			c.wantMoved("the end of one of two", c.ends(d, isCompleted).Moved)
			r = c.claimOf(storage.Claim{Queues: []string{"fresh"}, Max: 1})[0]
			c.wantMoved("the end of the other", c.ends(r, isCompleted).Moved,
				is(one, isAvailable), is(two, isAvailable))

			// A new job that what has ended decides is counted at once, too.
			g, failed := c.active(), c.reach(ojs.StateDiscarded)
			last = c.wait(ojs.AllSucceeded, []string{g.ID})
			waits = c.waiting(ojs.AllSucceeded, []string{failed.ID})
			waits.AwaitedBy = []string{last}
			c.wantMoved("Insert", c.insertOne(waits).Moved,
				is(waits.Record.ID, isCancelled), is(last, isCancelled))

			// So is what follows from that, also for a job of the batch before it.
			h := c.active()
			last = c.wait(ojs.AllSucceeded, []string{h.ID})
			next = c.wait(ojs.AllSucceeded, []string{last})
			before := c.waiting(ojs.AllSucceeded, []string{next})
			waits = c.waiting(ojs.AllSucceeded, []string{failed.ID})
			waits.AwaitedBy = []string{last}
			out, err := c.S.Insert(c.ctx, c.now, []storage.Insert{before, waits}, nil)
			c.noErr("Insert", err)
			c.wantMoved("Insert", out[1].Moved, is(waits.Record.ID, isCancelled), is(last, isCancelled),
				is(next, isCancelled), is(before.Record.ID, isCancelled))

			// A new job that another of its batch replaces is counted at once. No job
			// waits for a new job that is not stored.
			e := c.active()
			one, two = c.wait(ojs.AllSucceeded, []string{e.ID}), c.wait(ojs.AllEnded, []string{e.ID})
			equal := func(o ojs.Conflict, by ...string) storage.Insert {
				r := c.job(unique("f", ojs.UniquePolicy{OnConflict: o}))
				return storage.Insert{Record: r, AwaitedBy: by}
			}
			out, err = c.S.Insert(c.ctx, c.now,
				[]storage.Insert{equal("", one, two), equal(ojs.ConflictReplace)}, nil)
			c.noErr("Insert", err)
			c.wantMoved("Insert", out[1].Moved, is(one, isCancelled))
			c.waits(two, 1, 1)
			three := c.wait(ojs.AllSucceeded, []string{e.ID})
			out, err = c.S.Insert(c.ctx, c.now,
				[]storage.Insert{equal(ojs.ConflictReplace, three), equal(ojs.ConflictReplace, three)}, nil)
			c.noErr("Insert", err)
			c.wantMoved("Insert", out[1].Moved, is(three, isCancelled))
			if d := c.get(three).Dependencies; d.Unfinished != 2 || d.Failed != 1 {
				c.failf("a job that waited for one, and for two of the batch, is cancelled by the end of one of these with %+v", *d)
			}
			for _, id := range []string{two, "unknown"} {
				out := c.insertOne(equal(ojs.ConflictIgnore, id))
				if out.Existing == nil || len(out.Moved) > 0 {
					c.failf("Insert of a job like another returned %+v", out)
				}
			}
			c.waits(two, 1, 1)
			awaitedByOrder(c)
		}},
	{"group-7", "Group/AwaitedByNone", "Insert.AwaitedBy",
		"A new job whose AwaitedBy names no job that waits is refused.",
		needsNothing, func(c *C) {
			a := c.active()
			waits := c.wait(ojs.AllSucceeded, []string{a.ID})
			plain := c.insert(c.job(pending))[0]
			c.cancelled(waits)
			parent := c.active()
			moved := c.wait(ojs.AllSucceeded, []string{parent.ID})
			c.ends(parent, isCompleted)
			c.one()
			// Jobs that have waited, and are in another state since.
			delayed := c.active()
			moves := c.wait(ojs.AllSucceeded, []string{delayed.ID}, func(r *storage.Record) {
				r.ScheduledAt = c.now.Add(time.Hour)
			})
			c.ends(delayed, isCompleted)
			c.wantState(moves, ojs.StateScheduled)
			again := c.active()
			retries := c.wait(ojs.AllSucceeded, []string{again.ID}, queue("retries"))
			c.ends(again, isCompleted)
			c.ends(c.claimOf(storage.Claim{Queues: []string{"retries"}, Max: 1})[0], ojs.StateRetryable)
			for _, list := range [][]string{
				{waits}, {"unknown", waits}, {plain}, {a.ID}, {moved}, {moves}, {retries},
				{waits, plain, moves},
			} {
				in := storage.Insert{Record: c.job(), AwaitedBy: list}
				_, err := c.S.Insert(c.ctx, c.now, []storage.Insert{{Record: c.job()}, in}, nil)
				var unknown *ojs.DependencyError
				if !errors.As(err, &unknown) || unknown.ID != in.Record.ID || unknown.Dependency != list[0] {
					c.failf("Insert: %v", err)
				}
				if got := c.list(storage.Query{States: []ojs.State{ojs.StateAvailable}}); len(got) > 0 {
					c.failf("stored: %v", short(got))
				}
			}
			// A list that names a job twice, or one of the batch, is refused.
			twice := c.wait(ojs.AllSucceeded, []string{a.ID})
			new := c.waiting(ojs.AllSucceeded, []string{a.ID})
			for _, list := range [][]string{{twice, twice}, {twice, new.Record.ID}} {
				in := storage.Insert{Record: c.job(), AwaitedBy: list}
				_, err := c.S.Insert(c.ctx, c.now, []storage.Insert{in, new}, nil)
				c.wantErr("Insert of a job that is awaited twice, or by a new one", err, ojs.ErrInvalid)
				if got := c.list(storage.Query{States: []ojs.State{ojs.StateAvailable}}); len(got) > 0 {
					c.failf("stored: %v", short(got))
				}
				c.waits(twice, 1, 0)
			}
			to := a
			c.to(isCompleted)(&to)
			out := c.change(storage.Change{Record: to, AttemptFieldsOnly: true,
				Then: []storage.Insert{{Record: c.job(), AwaitedBy: []string{waits}}}})[0]
			c.wantErr("Settle", out.Err, ojs.ErrDependency)
			c.same("the job", c.get(a.ID), a)
			last := c.get(c.wait(ojs.AllEnded, []string{a.ID}))
			to = last
			c.to(isCancelled)(&to)
			out = c.change(storage.Change{Record: to, AttemptFieldsOnly: true,
				Then: []storage.Insert{{Record: c.job(), AwaitedBy: []string{last.ID}}}})[0]
			c.wantErr("Settle of the job that waits", out.Err, ojs.ErrDependency)
			c.same("the job that waits", c.get(last.ID), last)
		}},
}

// cancelled cancels a job that waits.
func (c *C) cancelled(id string) {
	c.tb.Helper()
	r := c.get(id)
	c.to(isCancelled)(&r)
	out := c.change(storage.Change{Record: r, AttemptFieldsOnly: true})[0]
	c.noErr("Settle", out.Err)
}

// A new job that its batch replaces is counted in its place among the ends of the call.
func awaitedByOrder(c *C) {
	equal := func(print string, by ...string) storage.Insert {
		policy := ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}
		return storage.Insert{Record: c.job(unique(print, policy)), AwaitedBy: by}
	}
	because := func(id, of string) {
		if r := c.get(id); r.Error == nil || r.Error.Details["dependency"] != of {
			c.failf("a job that ended by the end of job %v has %+v", short([]string{of}), r.Error)
		}
	}
	open, old := c.active(), equal("a")
	c.insertOne(old)
	first := c.wait(ojs.AllSucceeded, []string{old.Record.ID})
	last := c.wait(ojs.AllSucceeded, []string{open.ID})
	both := c.wait(ojs.AllSucceeded, []string{old.Record.ID})
	replaced := equal("b", last, both)
	out, err := c.S.Insert(c.ctx, c.now, []storage.Insert{equal("a"), replaced, equal("b")}, nil)
	c.noErr("Insert", err)
	c.wantMoved("Insert", out[2].Moved, is(first, isCancelled), is(both, isCancelled),
		is(last, isCancelled))
	because(both, old.Record.ID)
	because(last, replaced.Record.ID)

	other := c.active()
	both = c.wait(ojs.AllSucceeded, []string{open.ID})
	last = c.wait(ojs.AllSucceeded, []string{other.ID})
	replaced = equal("c", last, both)
	to := open
	c.to(ojs.StateDiscarded)(&to)
	followed := c.change(storage.Change{Record: to, AttemptFieldsOnly: true,
		Then: []storage.Insert{replaced, equal("c")}})[0]
	c.noErr("Settle", followed.Err)
	c.wantMoved("Settle", followed.Moved, is(both, isCancelled), is(last, isCancelled))
	because(both, open.ID)
	because(last, replaced.Record.ID)
}
