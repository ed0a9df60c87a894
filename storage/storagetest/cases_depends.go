package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// waiting is a job that waits for others.
func (c *C) waiting(cond ojs.Condition, on []string, change ...func(*storage.Record)) storage.Insert {
	r := c.job(append([]func(*storage.Record){pending}, change...)...)
	d := ojs.Dependencies{Condition: cond, Unfinished: 7, Failed: 3} // not looked at
	if r.Dependencies != nil {
		d.Join, d.Delay, d.TTL = r.Dependencies.Join, r.Dependencies.Delay, r.Dependencies.TTL
	}
	r.Dependencies = &d
	return storage.Insert{Record: r, DependsOn: on}
}

func join(r *storage.Record) { r.Dependencies = &ojs.Dependencies{Join: true} }

// wait stores a job that waits for others and returns its id.
func (c *C) wait(cond ojs.Condition, on []string, change ...func(*storage.Record)) string {
	c.tb.Helper()
	in := c.waiting(cond, on, change...)
	if out := c.insertOne(in); len(out.Moved) > 0 {
		c.failf("a job that waits has moved at once: %v", short(ids(out.Moved)))
	}
	c.waits(in.Record.ID, len(on), 0)
	return in.Record.ID
}

// waits wants a job to wait for so many others.
func (c *C) waits(id string, unfinished, failed int) storage.Record {
	c.tb.Helper()
	r := c.wantState(id, ojs.StatePending)
	if d := r.Dependencies; d == nil || d.Unfinished != unfinished || d.Failed != failed {
		c.failf("%v waits for %+v, not for %d jobs after %d failures",
			short([]string{id}), d, unfinished, failed)
	}
	return r
}

// wantMoved wants a call to have moved jobs into states, in order, each by one
// transition.
func (c *C) wantMoved(what string, moved []storage.Record, want ...string) {
	c.tb.Helper()
	var got []string
	for _, r := range moved {
		got = append(got, short([]string{r.ID})[0]+" "+string(r.State))
	}
	if !slices.Equal(got, want) {
		c.failf("%s has moved %v, not %v", what, got, want)
	}
	for _, r := range moved {
		c.same(what+": a job that has moved", c.get(r.ID), r)
	}
}

// is is a job in a state, as wantMoved has it.
func is(id string, s ojs.State) string { return short([]string{id})[0] + " " + string(s) }

// ends settles a claimed job by a change of attempt fields.
func (c *C) ends(r storage.Record, s ojs.State) storage.Settled {
	c.tb.Helper()
	c.to(s)(&r)
	out := c.change(storage.Change{Record: r, AttemptFieldsOnly: true})[0]
	if out.Err != nil {
		c.failf("Settle to %s: %v", s, out.Err)
	}
	return out
}

// active stores a job in a queue of its own and claims it.
func (c *C) active() storage.Record { c.tb.Helper(); return c.reach(ojs.StateActive) }

const (
	isAvailable = ojs.StateAvailable
	isCancelled = ojs.StateCancelled
	isCompleted = ojs.StateCompleted
)

var dependsCases = []Case{
	{"depend-1", "Depend/Waits", "Insert.DependsOn",
		"A job that waits for others is pending until they have ended, and then available or " +
			"scheduled.",
		needsNothing, func(c *C) {
			a, b := c.active(), c.active()
			in := c.waiting(ojs.AllSucceeded, []string{a.ID, b.ID}, priority(1))
			later := c.waiting(ojs.AllSucceeded, []string{b.ID, a.ID}, func(r *storage.Record) {
				r.ScheduledAt = r.CreatedAt.Add(time.Hour)
			})
			other := c.insert(c.job(priority(1)))[0]
			for _, in := range []storage.Insert{in, later} {
				out := c.insertOne(in)
				want := in.Record
				want.Version = out.Version
				want.Dependencies = &ojs.Dependencies{Condition: ojs.AllSucceeded, Unfinished: 2}
				c.same("the waiting job", c.get(in.Record.ID), want)
			}
			id := in.Record.ID
			c.pass(time.Second)
			if s := c.ends(a, isCompleted); len(s.Moved) > 0 {
				c.failf("the first of two has moved %v", short(ids(s.Moved)))
			}
			before := c.waits(id, 1, 0)
			c.waits(later.Record.ID, 1, 0)
			if got := c.list(storage.Query{States: []ojs.State{ojs.StatePending}}); len(got) != 2 {
				c.failf("%d jobs are pending, not 2", len(got))
			}
			c.order(storage.Claim{}, other)
			last := c.insert(c.job(priority(1)))[0]
			c.pass(time.Second)
			s := c.ends(b, isCompleted)
			c.wantMoved("the last", s.Moved, is(id, isAvailable), is(later.Record.ID, ojs.StateScheduled))
			want := before
			want.State, want.EnqueuedAt, want.Version = isAvailable, c.now, before.Version+1
			want.Dependencies = &ojs.Dependencies{Condition: ojs.AllSucceeded}
			c.same("the job that waited", c.get(id), want)
			c.order(storage.Claim{}, last, id)
			c.pass(time.Hour)
			if d := c.due(); !slices.Contains(ids(d.Promoted), later.Record.ID) {
				c.failf("due are %v", short(ids(d.Promoted)))
			}
		}},
	{"depend-2", "Depend/Conditions", "Insert.DependsOn",
		"The condition says how the jobs must end, and a job whose condition cannot hold is " +
			"cancelled with a failure.",
		needsNothing, func(c *C) {
			ok, failed := isCompleted, ojs.StateDiscarded
			for _, x := range []struct {
				cond ojs.Condition
				ends []ojs.State
				want ojs.State
				by   int // the end that decides, counted from 1
			}{
				{ojs.AllSucceeded, []ojs.State{ok, ok}, isAvailable, 2},
				{ojs.AllSucceeded, []ojs.State{ok, failed}, isCancelled, 2},
				{ojs.AllSucceeded, []ojs.State{isCancelled, ok}, isCancelled, 1},
				{ojs.AnyFailed, []ojs.State{ok, ok}, isCancelled, 2},
				{ojs.AnyFailed, []ojs.State{failed, ok}, isAvailable, 2},
				{ojs.AnyFailed, []ojs.State{ok, isCancelled}, isAvailable, 2},
				{ojs.AllEnded, []ojs.State{ok, ok}, isAvailable, 2},
				{ojs.AllEnded, []ojs.State{failed, isCancelled}, isAvailable, 2},
			} {
				what := fmt.Sprintf("%s, jobs that end as %v", x.cond, x.ends)
				a, b := c.active(), c.active()
				id := c.wait(x.cond, []string{b.ID, a.ID})
				before := c.get(id)
				for i, r := range []storage.Record{a, b} {
					c.pass(time.Second)
					moved := c.ends(r, x.ends[i]).Moved
					if i+1 != x.by {
						c.wantMoved(what, moved)
						continue
					}
					c.wantMoved(what, moved, is(id, x.want))
					got := c.get(id)
					if got.Version != before.Version+1 {
						c.failf("%s: version %d after %d", what, got.Version, before.Version)
					}
					if x.want != isCancelled {
						if got.Error != nil || !got.FinishedAt.IsZero() {
							c.failf("%s: %+v", what, got.JobInfo)
						}
						continue
					}
					f := got.Error
					if f == nil || f.Type != policy.ErrorTypeDependency || f.Reason != ojs.ReasonDependency ||
						f.Details["dependency"] != r.ID || f.Details["state"] != string(x.ends[i]) ||
						!f.At.Equal(c.cfg.rounded(c.now)) || !got.FinishedAt.Equal(c.cfg.rounded(c.now)) {
						c.failf("%s: the failure is %+v", what, f)
					}
				}
			}
		}},
	{"depend-3", "Depend/Ended", "Insert.DependsOn",
		"Jobs that have ended before are counted at once, and jobs of a batch wait for each " +
			"other, at any place of it.",
		needsNothing, func(c *C) {
			done, failed := c.reach(isCompleted).ID, c.reach(ojs.StateDiscarded).ID
			open := c.active()
			inBatch := func(want string, batch ...storage.Insert) []storage.Inserted {
				c.tb.Helper()
				out, err := c.S.Insert(c.ctx, c.now, batch, nil)
				c.noErr("Insert", err)
				for i := range out {
					if i+1 < len(out) && len(out[i].Moved) > 0 {
						c.failf("%s: the result of job %d has what has moved", want, i+1)
					}
				}
				return out
			}
			runs := c.waiting(ojs.AllSucceeded, []string{done})
			out := inBatch("ended", runs)
			c.wantMoved("Insert", out[0].Moved, is(runs.Record.ID, isAvailable))
			if r := out[0].Moved[0]; r.Version != out[0].Version+1 {
				c.failf("stored at version %d, moved to %d", out[0].Version, r.Version)
			}
			fails := c.waiting(ojs.AllSucceeded, []string{done, failed, open.ID})
			out = inBatch("failed", fails)
			c.wantMoved("Insert", out[0].Moved, is(fails.Record.ID, isCancelled))
			got := c.get(fails.Record.ID)
			if d := got.Dependencies; d.Unfinished != 1 || d.Failed != 1 || got.Error == nil ||
				got.Error.Details["dependency"] != failed {
				c.failf("a job that waits for a failed one: %+v, %+v", d, got.Error)
			}
			fails = c.waiting(ojs.AllSucceeded, []string{failed, c.reach(isCancelled).ID})
			out = inBatch("failed twice", fails)
			c.wantMoved("Insert", out[0].Moved, is(fails.Record.ID, isCancelled))
			if d := c.get(fails.Record.ID).Dependencies; d.Unfinished != 1 || d.Failed != 1 {
				c.failf("a job whose first dependency has decided: %+v", d)
			}
			half := c.waiting(ojs.AllEnded, []string{failed, open.ID, done})
			inBatch("half", half)
			c.waits(half.Record.ID, 1, 1)

			// last waits for mid, and mid for first, which comes at the end of the batch.
			first := storage.Insert{Record: c.job(queue("batch"))}
			mid := c.waiting(ojs.AllSucceeded, []string{first.Record.ID, done})
			last := c.waiting(ojs.AllSucceeded, []string{mid.Record.ID})
			out = inBatch("a batch", last, mid, first)
			c.wantMoved("Insert", out[2].Moved)
			c.waits(mid.Record.ID, 1, 0)
			c.waits(last.Record.ID, 1, 0)
			r := c.claimOf(storage.Claim{Queues: []string{"batch"}, Max: 1})[0]
			c.wantMoved("the first", c.ends(r, ojs.StateDiscarded).Moved,
				is(mid.Record.ID, isCancelled), is(last.Record.ID, isCancelled))

			// A cascade within the batch: what cannot run at once ends what waits for it.
			mid = c.waiting(ojs.AllSucceeded, []string{failed})
			last = c.waiting(ojs.AnyFailed, []string{mid.Record.ID})
			out = inBatch("a cascade", last, mid)
			c.wantMoved("Insert", out[1].Moved,
				is(mid.Record.ID, isCancelled), is(last.Record.ID, isAvailable))
		}},
	{"depend-4", "Depend/Refused", "Insert.DependsOn",
		"A dependency that is not stored is refused with its id, and so are circles, a job named " +
			"twice and records that do not fit; nothing is stored.",
		needsNothing, func(c *C) {
			gone, pruned := c.reach(isCompleted).ID, c.reach(isCancelled).ID
			_, err := c.S.Delete(c.ctx, []string{gone})
			c.noErr("Delete", err)
			p := storage.Prune{Now: c.now, Before: c.now.Add(time.Hour), Max: 9}
			_, err = c.S.Prune(c.ctx, p)
			c.noErr("Prune", err)
			there := c.active().ID
			equal := func(o ojs.Conflict) storage.Record {
				return c.job(unique("f", ojs.UniquePolicy{OnConflict: o}))
			}
			c.insert(equal(""))
			ignored := storage.Insert{Record: equal(ojs.ConflictIgnore)}
			refused := func(what, dependency string, batch ...storage.Insert) {
				c.tb.Helper()
				before := len(c.list(storage.Query{}))
				_, err := c.S.Insert(c.ctx, c.now, batch, nil)
				var unknown *ojs.DependencyError
				switch {
				case dependency == "":
					c.wantErr("Insert of "+what, err, ojs.ErrInvalid)
				case !errors.As(err, &unknown) || unknown.Dependency != dependency ||
					unknown.ID != batch[len(batch)-1].Record.ID || !errors.Is(err, ojs.ErrDependency):
					c.failf("Insert of %s returned %v, and should name %v", what, err,
						short([]string{dependency}))
				}
				if n := len(c.list(storage.Query{})); n != before {
					c.failf("%s was refused, and %d jobs are stored", what, n-before)
				}
			}
			wait := func(on ...string) storage.Insert { return c.waiting(ojs.AllEnded, on) }
			for what, id := range map[string]string{
				"one never stored": c.job().ID, "one deleted": gone, "one pruned": pruned,
			} {
				refused(what, id, storage.Insert{Record: c.job()}, wait(there, id))
			}
			id := ignored.Record.ID
			refused("one ignored for an equal job", id, ignored, wait(there, id))
			if out := c.insertOne(wait(there)); out.Version == 0 {
				c.failf("a job that waits for one that is there was not stored")
			}
			ignored = c.waiting(ojs.AllEnded, []string{there},
				unique("f", ojs.UniquePolicy{OnConflict: ojs.ConflictIgnore}))
			if out := c.insertOne(ignored); out.Existing == nil || len(out.Moved) > 0 {
				c.failf("a job that waits, and that is ignored for an equal one: %+v", out)
			}
			self := wait(there)
			self.DependsOn = []string{self.Record.ID}
			refused("itself", "", self)
			a, b := wait(there), wait(there)
			a.DependsOn, b.DependsOn = []string{there, b.Record.ID}, []string{a.Record.ID}
			refused("a circle", "", a, storage.Insert{Record: c.job()}, b)
			refused("one named twice", "", wait(there, there))
			running, bare := wait(there), wait(there)
			running.Record.State, bare.Record.Dependencies = isAvailable, nil
			refused("a record that is available", "", running)
			refused("a record without Dependencies", "", bare)
			// The checks of Insert come in their order.
			full := storage.Insert{Record: c.job(queue("full")), MaxDepth: 1}
			c.insert(c.job(queue("full")))
			for want, batch := range map[error][]storage.Insert{
				ojs.ErrInvalid:   {self, {Record: equal("")}},
				ojs.ErrDuplicate: {wait(gone), {Record: equal("")}},
				ojs.ErrQueueFull: {wait(gone), full},
			} {
				_, err := c.S.Insert(c.ctx, c.now, batch, nil)
				c.wantErr("Insert", err, want)
			}
		}},
	{"depend-5", "Depend/EveryEnd", "Insert.DependsOn",
		"Every way in which a job ends counts it: a settle, a step, its deadline, a replacement, " +
			"a drop.",
		needsNothing, func(c *C) {
			for _, s := range []ojs.State{isCompleted, ojs.StateDiscarded, isCancelled} {
				r := c.active()
				id := c.wait(ojs.AllEnded, []string{r.ID})
				c.wantMoved("Settle", c.ends(r, s).Moved, is(id, isAvailable))
				r = c.reach(ojs.StateAvailable)
				id = c.wait(ojs.AnyFailed, []string{r.ID})
				if s != isCompleted {
					c.to(s)(&r)
					out := c.change(storage.Change{Record: r})
					c.wantMoved("Settle of every field", out[0].Moved, is(id, isAvailable))
				}
			}
			retried := c.active()
			id := c.wait(ojs.AllEnded, []string{retried.ID})
			c.wantMoved("a retry", c.ends(retried, ojs.StateRetryable).Moved)
			c.waits(id, 1, 0)

			early, late := c.job(expires(time.Minute)), c.job(expires(time.Second), pending)
			c.insert(early, late)
			one := c.wait(ojs.AnyFailed, []string{early.ID})
			two := c.wait(ojs.AllEnded, []string{late.ID, early.ID})
			c.pass(time.Hour)
			d := c.due()
			if got := ids(d.Expired); !slices.Equal(got, []string{late.ID, early.ID}) {
				c.failf("%v have expired", short(got))
			}
			c.wantMoved("Due", d.Moved, is(one, isAvailable), is(two, isAvailable))

			replaces := func() storage.Insert {
				p := ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}
				r := c.job(queue("drop"), unique("f", p))
				return storage.Insert{Record: r, MaxDepth: 1, DropOldest: true}
			}
			c.claim(1000)
			dropped := c.insert(c.job(queue("drop")))[0]
			old := c.insert(c.job(pending, unique("f", ojs.UniquePolicy{})))[0]
			one, two = c.wait(ojs.AllEnded, []string{dropped}), c.wait(ojs.AllSucceeded, []string{old})
			in := replaces()
			follows := c.waiting(ojs.AllEnded, []string{old, in.Record.ID, dropped})
			out, err := c.S.Insert(c.ctx, c.now, []storage.Insert{follows, in}, nil)
			c.noErr("Insert", err)
			if !slices.Equal(ids(out[1].Replaced), []string{old}) ||
				!slices.Equal(ids(out[1].Dropped), []string{dropped}) {
				c.failf("replaced %v, dropped %v", short(ids(out[1].Replaced)), short(ids(out[1].Dropped)))
			}
			c.wantMoved("Insert", out[1].Moved, is(two, isCancelled), is(one, isAvailable))
			c.waits(follows.Record.ID, 1, 2)
			again := replaces()
			out, err = c.S.Insert(c.ctx, c.now, []storage.Insert{again}, nil)
			c.noErr("Insert", err)
			c.wantMoved("Insert", out[0].Moved, is(follows.Record.ID, isAvailable))
			if !c.cfg.SettleClaims {
				return
			}
			c.claim(1000)
			r := c.active()
			id = c.wait(ojs.AllSucceeded, []string{r.ID}, queue("step"))
			first := c.insert(c.job(queue("step")))[0]
			second := storage.Insert{Record: c.job(queue("step")), IDIsNew: true}
			c.insertOne(second)
			c.to(isCompleted)(&r)
			settled, claimed := c.step(storage.Claim{Queues: []string{"step"}}, 3, r)
			if m := settled[0].Moved; len(m) != 1 || m[0].ID != id || m[0].State != isAvailable {
				c.failf("a step has moved %v", short(ids(m)))
			}
			if !slices.Equal(ids(claimed), []string{first, second.Record.ID, id}) {
				c.failf("the step has claimed %v, and the job that has moved comes last", short(ids(claimed)))
			}
		}},
	{"depend-6", "Depend/Cascade", "Insert.DependsOn",
		"A job that ends because of its dependencies is counted for those that wait for it, and " +
			"so on, each once and in order.",
		needsNothing, func(c *C) {
			root := c.active()
			a, b := c.wait(ojs.AllSucceeded, []string{root.ID}), c.wait(ojs.AllSucceeded, []string{root.ID})
			both := c.wait(ojs.AllSucceeded, []string{a, b})
			cleans := c.wait(ojs.AnyFailed, []string{both, b})
			always := c.wait(ojs.AllEnded, []string{root.ID, both})
			before := c.get(both).Version
			moved := c.ends(root, ojs.StateDiscarded).Moved
			c.wantMoved("the root", moved, is(a, isCancelled), is(b, isCancelled), is(both, isCancelled),
				is(cleans, isAvailable), is(always, isAvailable))
			if r := c.get(both); r.Version != before+1 || r.Error.Details["dependency"] != a {
				c.failf("the job that waited for two: version %d after %d, %+v", r.Version, before, r.Error)
			}
			// They ended in this order.
			p := storage.Prune{Now: c.now, Before: c.now.Add(time.Hour), Max: 9}
			p.States = []ojs.State{isCancelled}
			pruned, err := c.S.Prune(c.ctx, p)
			c.noErr("Prune", err)
			if !slices.Equal(pruned.IDs, []string{a, b, both}) {
				c.failf("pruned %v", short(pruned.IDs))
			}
			chain := c.active()
			last, want := chain.ID, []string(nil)
			for range 200 {
				last = c.wait(ojs.AllSucceeded, []string{last})
				want = append(want, is(last, isCancelled))
			}
			c.wantMoved("a chain", c.ends(chain, isCancelled).Moved, want...)
		}},
	{"depend-16", "Depend/Depth", "Inserted.Depth",
		"The depth of a queue is counted after the call, without the jobs that its counts have ended.",
		needsNothing, func(c *C) {
			failed := c.reach(ojs.StateDiscarded)
			depth := func(want []int, batch ...storage.Insert) []storage.Inserted {
				c.tb.Helper()
				for i := range batch {
					batch[i].MaxDepth = 9
				}
				out, err := c.S.Insert(c.ctx, c.now, batch, nil)
				c.noErr("Insert", err)
				for i := range out {
					if out[i].Depth != want[i] {
						c.failf("the depth of job %d is %d, not %d", i+1, out[i].Depth, want[i])
					}
				}
				return out
			}
			plain := func() storage.Insert { return storage.Insert{Record: c.job()} }
			depth([]int{1}, plain())
			// A new job that its own call cancels.
			depth([]int{1}, c.waiting(ojs.AllSucceeded, []string{failed.ID}))
			// Among others, and of another queue.
			depth([]int{2, 2, 0}, plain(), c.waiting(ojs.AllSucceeded, []string{failed.ID}),
				c.waiting(ojs.AllSucceeded, []string{failed.ID}, queue("r")))
			// A stored job that the end of a job by the call ends.
			old := c.insert(c.job(queue("s"), unique("f", ojs.UniquePolicy{})))[0]
			c.wait(ojs.AllSucceeded, []string{old}, queue("s"))
			replaces := unique("f", ojs.UniquePolicy{OnConflict: ojs.ConflictReplace})
			depth([]int{1}, storage.Insert{Record: c.job(queue("s"), replaces)})
			// Jobs that the call drops, and one that waits for the last of these.
			first := c.insert(c.job(queue("d")), c.job(queue("d")))
			c.wait(ojs.AllSucceeded, first[1:], queue("d"))
			drops := storage.Insert{Record: c.job(queue("d")), MaxDepth: 2, DropOldest: true}
			if out := c.insertOne(drops); len(out.Dropped) != 2 || out.Depth != 1 {
				c.failf("%d jobs were dropped, not 2; the depth is %d, not 1", len(out.Dropped), out.Depth)
			}
		}},
	{"depend-7", "Depend/Once", "Insert.DependsOn",
		"Each end is counted once, and only for jobs that are pending.", needsNothing, func(c *C) {
			r, open := c.active(), c.active()
			id := c.wait(ojs.AllEnded, []string{r.ID, open.ID})
			failed := c.settledTo(r, ojs.StateDiscarded)
			c.waits(id, 1, 1)
			c.to(isCompleted)(&r)
			s := c.change(storage.Change{Record: r, AttemptFieldsOnly: true})[0]
			if s.Err == nil || len(s.Moved) > 0 {
				c.failf("a stale end: %+v", s)
			}
			c.waits(id, 1, 1)
			failed = c.settled(failed, c.to(ojs.StateAvailable)) // replayed
			again := c.claimOf(storage.Claim{Queues: []string{failed.Queue}, Max: 1})[0]
			anew := c.wait(ojs.AllEnded, []string{failed.ID}, queue("anew"))
			c.wantMoved("the end of a replayed job", c.ends(again, isCompleted).Moved, is(anew, isAvailable))
			c.waits(id, 1, 1)

			waits := []string{open.ID}
			active := c.wait(ojs.AllEnded, waits, queue("by hand"))
			byHand := c.settled(c.get(active), c.to(isAvailable))
			run := c.claimOf(storage.Claim{Queues: []string{"by hand"}, Max: 1})
			if len(run) != 1 || run[0].ID != active || byHand.Dependencies.Unfinished != 1 {
				c.failf("a job that was activated: %+v", byHand.JobInfo)
			}
			cancelled := c.wait(ojs.AllEnded, waits)
			c.settled(c.get(cancelled), c.to(isCancelled))
			another := c.active()
			gone := c.wait(ojs.AllEnded, waits)
			c.settled(c.get(gone), c.to(isCancelled))
			_, err := c.S.Delete(c.ctx, []string{gone})
			c.noErr("Delete", err)
			reused := c.waiting(ojs.AllEnded, []string{another.ID})
			reused.Record.ID = gone
			c.insertOne(reused)
			expired := c.wait(ojs.AllEnded, waits, expires(time.Second))
			c.pass(time.Second)
			c.due()
			same := []storage.Record{c.get(active), c.get(cancelled), c.get(gone), c.get(expired)}
			c.wantMoved("the end", c.ends(open, isCompleted).Moved, is(id, isAvailable))
			for _, want := range same {
				c.same("a job that did not wait", c.get(want.ID), want)
			}
		}},
	{"depend-8", "Depend/Join", "Insert.DependsOn",
		"A join completes when it could run, and is counted for those that wait for it.",
		needsNothing, func(c *C) {
			const n = 40
			var parents []string
			var actives []storage.Record
			for range n {
				r := c.active()
				actives, parents = append(actives, r), append(parents, r.ID)
			}
			j := c.wait(ojs.AllSucceeded, parents, join)
			before := c.get(j)
			want := []string{is(j, isCompleted)}
			for range n {
				want = append(want, is(c.wait(ojs.AllSucceeded, []string{j}), isAvailable))
			}
			for i, r := range actives {
				c.pass(time.Second)
				moved := c.ends(r, isCompleted).Moved
				if i < n-1 {
					c.wantMoved("a parent", moved)
					continue
				}
				c.wantMoved("the last parent", moved, want...)
			}
			before.State, before.FinishedAt, before.Progress = isCompleted, c.now, 1
			before.Version++
			before.Dependencies = &ojs.Dependencies{Condition: ojs.AllSucceeded, Join: true}
			c.same("the join", c.get(j), before)
			c.claim(1000)

			r := c.active()
			j = c.wait(ojs.AllSucceeded, []string{r.ID}, join)
			id := c.wait(ojs.AnyFailed, []string{j})
			c.wantMoved("a failed parent", c.ends(r, ojs.StateDiscarded).Moved,
				is(j, isCancelled), is(id, isAvailable))
			done := c.reach(isCompleted).ID
			in := c.waiting(ojs.AllEnded, []string{done}, join)
			c.wantMoved("Insert", c.insertOne(in).Moved, is(in.Record.ID, isCompleted))
		}},
	{"depend-9", "Depend/Kept", "Insert.DependsOn",
		"Counting leaves the version as it is, and no change alters what was counted.",
		needsNothing, func(c *C) {
			a, b, d := c.active(), c.active(), c.active()
			id := c.wait(ojs.AllEnded, []string{a.ID, b.ID, d.ID})
			stale := c.get(id)
			c.ends(a, ojs.StateDiscarded)
			if r := c.waits(id, 2, 1); r.Version != stale.Version {
				c.failf("counting has raised version %d to %d", stale.Version, r.Version)
			}
			stale.Priority, stale.Dependencies = 3, nil
			stale.Meta = map[string]any{"a": "b"}
			got := c.settled(stale, func(*storage.Record) {})
			if got.Version != stale.Version+1 || got.Priority != 3 || got.Meta["a"] != "b" {
				c.failf("a changed job that waits: %+v", got.JobInfo)
			}
			c.waits(id, 2, 1)
			c.ends(b, isCompleted)
			got.Dependencies.Unfinished = 9
			out := c.change(storage.Change{Record: got, AttemptFieldsOnly: true})
			if out[0].Err != nil {
				c.failf("Settle: %v", out[0].Err)
			}
			c.waits(id, 1, 1)
			c.wantMoved("the last", c.ends(d, isCompleted).Moved, is(id, isAvailable))
			r := c.one()
			r.Dependencies = nil
			c.ends(r, isCompleted)
			want := ojs.Dependencies{Condition: ojs.AllEnded, Failed: 1}
			if d := c.get(id).Dependencies; d == nil || *d != want {
				c.failf("the counts of a job that has ended: %+v", d)
			}
		}},
	{"depend-10", "Depend/Then", "Change.Then",
		"Jobs that follow a change may wait for others, also for the one that ends, and what they " +
			"end is counted.",
		needsNothing, func(c *C) {
			r, open := c.active(), c.active()
			old := c.insert(c.job(pending, unique("f", ojs.UniquePolicy{})))[0]
			one, two := c.wait(ojs.AllSucceeded, []string{r.ID}), c.wait(ojs.AllEnded, []string{old})
			now := c.waiting(ojs.AllSucceeded, []string{r.ID})
			later := c.waiting(ojs.AllEnded, []string{open.ID, r.ID})
			chained := c.waiting(ojs.AllSucceeded, []string{later.Record.ID, two})
			p := ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}
			then := []storage.Insert{chained, now, later, {Record: c.job(unique("f", p))}}
			s := c.change(c.completing(r, then...))[0]
			if s.Err != nil || len(s.Then) != 4 || !slices.Equal(ids(s.Then[3].Replaced), []string{old}) {
				c.failf("Settle returned %+v", s)
			}
			for _, in := range s.Then {
				if len(in.Moved) > 0 {
					c.failf("a result of the Then has what has moved")
				}
			}
			c.wantMoved("Settle", s.Moved,
				is(one, isAvailable), is(two, isAvailable), is(now.Record.ID, isAvailable))
			c.waits(later.Record.ID, 1, 0)
			c.waits(chained.Record.ID, 2, 0)

			// A job that waits for the one that ends moves after the Then is stored.
			r = c.active()
			equal := c.wait(ojs.AllSucceeded, []string{r.ID}, unique("g", ojs.UniquePolicy{}))
			in := storage.Insert{Record: c.job(unique("g", ojs.UniquePolicy{OnConflict: ojs.ConflictIgnore}))}
			s = c.change(c.completing(r, in))[0]
			if s.Err != nil || s.Then[0].Existing == nil || s.Then[0].Existing.State != ojs.StatePending {
				c.failf("Settle returned %+v", s)
			}
			c.wantMoved("Settle", s.Moved, is(equal, isAvailable))

			r = c.active()
			id := c.wait(ojs.AllSucceeded, []string{r.ID})
			s = c.change(c.completing(r, c.waiting(ojs.AllEnded, []string{c.job().ID})))[0]
			if !errors.Is(s.Err, ojs.ErrDependency) || len(s.Moved) > 0 {
				c.failf("a Then that waits for an unknown job: %+v", s)
			}
			c.nothingMoved("a Then that waits for an unknown job", r, s)
			c.waits(id, 1, 0)
		}},
	{"depend-11", "Depend/Race", "Insert.DependsOn",
		"Of concurrent ends one is the last, and moves the job that waits, once.",
		needsNothing, func(c *C) {
			for range rounds {
				actives := make([]storage.Record, 4)
				var parents []string
				for i := range actives {
					actives[i] = c.active()
					parents = append(parents, actives[i].ID)
				}
				id := c.wait(ojs.AllEnded, parents)
				version := c.get(id).Version
				late := []storage.Insert{c.waiting(ojs.AllEnded, parents[2:])}
				var moved atomic.Int32
				race(len(actives)+1, func(i int) {
					if i == len(actives) { // one that comes late waits for those that are left
						_, _ = c.S.Insert(c.ctx, c.now, late, nil)
						return
					}
					r := actives[i]
					c.to([]ojs.State{isCompleted, ojs.StateDiscarded}[i%2])(&r)
					changes := []storage.Change{{Record: r, AttemptFieldsOnly: true}}
					out, err := c.S.Settle(c.ctx, c.now, changes, nil)
					if err == nil && len(out) == 1 && out[0].Err == nil {
						for _, m := range out[0].Moved {
							if m.ID == id {
								moved.Add(1)
							}
						}
					}
				})
				r := c.wantState(id, isAvailable)
				if n := moved.Load(); n != 1 || r.Version != version+1 || r.Dependencies.Failed != 2 {
					c.failf("%d ends have moved the job, which has version %d after %d, and %+v",
						n, r.Version, version, r.Dependencies)
				}
				if left := c.list(storage.Query{States: []ojs.State{ojs.StatePending}}); len(left) > 0 {
					c.failf("%d jobs wait for jobs that have ended", len(left))
				}
			}
		}},
	{"depend-12", "Depend/Reopened", "Capabilities.Durable",
		"What a job waits for outlives the storage.", needsReopen, func(c *C) {
			a, b := c.active(), c.active()
			id := c.wait(ojs.AllEnded, []string{a.ID, b.ID})
			next := c.wait(ojs.AllSucceeded, []string{id})
			c.ends(a, ojs.StateDiscarded)
			want := c.get(id)
			c.reopen()
			c.same("the waiting job", c.get(id), want)
			c.wantMoved("the last", c.ends(b, isCompleted).Moved, is(id, isAvailable))
			c.reopen()
			r := c.one()
			c.wantMoved("the job that waited", c.ends(r, isCompleted).Moved, is(next, isAvailable))
		}},
	{"depend-13", "Depend/Notices", "storage.Notifier",
		"Others are told of what jobs that waited have become.", needsNotices, func(c *C) {
			a, b, d := c.active(), c.active(), c.active()
			c.wait(ojs.AllSucceeded, []string{a.ID})
			cancelled := c.wait(ojs.AllSucceeded, []string{b.ID})
			later := c.wait(ojs.AllSucceeded, []string{d.ID}, func(r *storage.Record) {
				r.ScheduledAt = r.CreatedAt.Add(time.Hour)
			})
			e := c.listen("other")
			c.ends(a, isCompleted)
			e.hears("a job is available", available)
			c.ends(b, ojs.StateDiscarded)
			e.hears("a job that waited was cancelled", ended(cancelled))
			c.ends(d, isCompleted)
			at := c.get(later).ScheduledAt
			e.hears("a job comes due", func(n storage.Notice) bool { return n.Due.Equal(at) })
			e.stop()
		}},
	{"depend-14", "Depend/Deadline", "Insert.DependsOn",
		"The deadline of a job that waits ends it, and one that has come does not keep it from " +
			"moving.",
		needsNothing, func(c *C) {
			open := c.active()
			a := c.wait(ojs.AllEnded, []string{open.ID}, expires(30*time.Second))
			after := c.wait(ojs.AnyFailed, []string{a})
			c.pass(30 * time.Second)
			d := c.due()
			if !slices.Contains(ids(d.Expired), a) {
				c.failf("expired are %v", short(ids(d.Expired)))
			}
			c.wantMoved("Due", d.Moved, is(after, isAvailable))
			c.claim(9)

			late := c.wait(ojs.AllEnded, []string{open.ID}, expires(time.Second))
			c.pass(2 * time.Second)
			c.wantMoved("the end", c.ends(open, isCompleted).Moved, is(late, isAvailable))
			if got := c.claim(9); len(got) > 0 {
				c.failf("claimed %v, whose deadline has come", short(ids(got)))
			}
			c.due()
			c.wantState(late, ojs.StateDiscarded)

			// In one call, one expires, and what waits for it after that.
			first := c.job(expires(time.Second))
			c.insert(first)
			second := c.wait(ojs.AllEnded, []string{first.ID}, expires(2*time.Second))
			c.pass(time.Hour)
			d = c.due()
			if !slices.Equal(ids(d.Moved), []string{second}) || d.Moved[0].State != isAvailable ||
				!slices.Equal(ids(d.Expired), []string{first.ID, second}) ||
				d.Expired[1].Version != d.Moved[0].Version+1 {
				c.failf("moved %v, expired %v", short(ids(d.Moved)), short(ids(d.Expired)))
			}
		}},
	{"depend-15", "Depend/Delay", "Record.Resolve",
		"A delay and a time to live of a job that waits count from when it may run (W011).",
		needsNothing, func(c *C) {
			timed := func(delay, ttl time.Duration) func(*storage.Record) {
				return func(r *storage.Record) {
					r.Dependencies = &ojs.Dependencies{Delay: delay, TTL: ttl}
				}
			}
			open, other := c.active(), c.active()
			both := c.wait(ojs.AllSucceeded, []string{open.ID, other.ID},
				timed(3*time.Second, 20*time.Second))
			lives := c.wait(ojs.AllEnded, []string{open.ID}, timed(0, time.Second))
			c.pass(5 * time.Second)
			c.wantMoved("the first", c.ends(open, isCompleted).Moved, is(lives, isAvailable))
			c.waits(both, 1, 0)
			before := c.now
			c.pass(5 * time.Second)
			if d := c.due(); !slices.Equal(ids(d.Expired), []string{lives}) {
				c.failf("expired are %v", short(ids(d.Expired)))
			}
			if r := c.get(lives); !r.ExpiresAt.Equal(before.Add(time.Second)) || !r.ScheduledAt.IsZero() {
				c.failf("a job without a delay has the times %v, %v", r.ScheduledAt, r.ExpiresAt)
			}
			scheduled := func(id string) {
				c.tb.Helper()
				r := c.wantState(id, ojs.StateScheduled)
				at, end := c.now.Add(3*time.Second), c.now.Add(20*time.Second)
				if !r.ScheduledAt.Equal(at) || !r.ExpiresAt.Equal(end) {
					c.failf("at %v a job has the times %v, %v", c.now, r.ScheduledAt, r.ExpiresAt)
				}
			}
			c.wantMoved("the last", c.ends(other, isCompleted).Moved, is(both, ojs.StateScheduled))
			scheduled(both)
			late := c.waiting(ojs.AllEnded, []string{open.ID}, timed(3*time.Second, 20*time.Second))
			c.wantMoved("an insert", c.insertOne(late).Moved, is(late.Record.ID, ojs.StateScheduled))
			scheduled(late.Record.ID)
			c.pass(3 * time.Second)
			want := []string{both, late.Record.ID}
			if d := c.due(); !slices.Equal(ids(d.Promoted), want) {
				c.failf("promoted are %v, not %v", short(ids(d.Promoted)), short(want))
			}
			r := c.one()
			c.ends(r, isCompleted)
			if at := c.get(r.ID).ScheduledAt; !at.Equal(c.now) {
				c.failf("after the end the job has the time %v, not %v", at, c.now)
			}
		}},
}

// settledTo ends a claimed job and returns it.
func (c *C) settledTo(r storage.Record, s ojs.State) storage.Record {
	c.tb.Helper()
	c.ends(r, s)
	return c.get(r.ID)
}
