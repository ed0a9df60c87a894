package storagetest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// ordered is a job with an ordering key that waits for others, too.
func (c *C) ordered(key string, on []string, change ...func(*storage.Record)) storage.Insert {
	in := c.waiting(ojs.AllSucceeded, on, change...)
	in.OrderingKey = key
	return in
}

// line stores jobs of one key, in one call, and returns their ids.
func (c *C) line(key string, n int, change ...func(*storage.Record)) (list []string) {
	c.tb.Helper()
	var batch []storage.Insert
	for range n {
		batch = append(batch, c.ordered(key, nil, change...))
		list = append(list, batch[len(batch)-1].Record.ID)
	}
	_, err := c.S.Insert(c.ctx, c.now, batch, nil)
	c.noErr("Insert", err)
	return list
}

// hasTurn wants the first of jobs to be available, and the others to be in line.
func (c *C) hasTurn(list ...string) {
	c.tb.Helper()
	c.wantState(list[0], isAvailable)
	for _, id := range list[1:] {
		r := c.waits(id, 1, 0)
		if !r.Dependencies.InLine {
			c.failf("%s is not in line: %+v", short([]string{id}), r.Dependencies)
		}
	}
}

// endsBy ends a job that is available by an attempt.
func (c *C) endsBy(id string, s ojs.State) []storage.Record {
	c.tb.Helper()
	for _, r := range c.claim(1000) {
		if r.ID == id {
			return c.ends(r, s).Moved
		}
	}
	c.failf("%s is not to be claimed", short([]string{id}))
	return nil
}

var lineCases = []Case{
	{"order-1", "Ordering/Turns", "Insert.OrderingKey",
		"Jobs of one key leave pending one after the other, in the step that ends the one before.",
		needsNothing, func(c *C) {
			a, b := c.ordered("k", nil), c.ordered("k", nil, queue("other"), priority(9))
			later := c.ordered("k", nil, func(r *storage.Record) {
				r.Type, r.ScheduledAt = "another", c.now.Add(time.Hour)
			})
			other := c.ordered("l", nil)
			out, err := c.S.Insert(c.ctx, c.now, []storage.Insert{a, b, later, other}, nil)
			c.noErr("Insert", err)
			c.wantMoved("Insert", out[3].Moved,
				is(a.Record.ID, isAvailable), is(other.Record.ID, isAvailable))
			first := c.get(a.Record.ID)
			want := ojs.Dependencies{Condition: ojs.AllSucceeded, OrderingKey: "k"}
			if d := first.Dependencies; d == nil || *d != want || !first.EnqueuedAt.Equal(c.now) {
				c.failf("the first of the key: %+v", first.JobInfo)
			}
			want.Unfinished, want.InLine = 1, true
			for i, in := range []storage.Insert{b, later} {
				waits := in.Record
				waits.Version, waits.Dependencies = out[i+1].Version, &want
				c.same("a job in line", c.get(in.Record.ID), waits)
			}
			late := c.ordered("k", nil)
			c.wantMoved("Insert behind others", c.insertOne(late).Moved)
			c.pass(time.Second)
			c.wantMoved("the end", c.endsBy(a.Record.ID, isCompleted), is(b.Record.ID, isAvailable))
			c.wantMoved("the end", c.endsBy(b.Record.ID, isCompleted),
				is(later.Record.ID, ojs.StateScheduled))
			c.waits(late.Record.ID, 1, 0)
			c.pass(time.Hour)
			c.due()
			c.wantMoved("the end", c.endsBy(later.Record.ID, isCompleted), is(late.Record.ID, isAvailable))
			c.wantMoved("the last end", c.endsBy(late.Record.ID, isCompleted))
			next := c.ordered("k", nil)
			c.wantMoved("Insert after the last end", c.insertOne(next).Moved, is(next.Record.ID, isAvailable))

			// A job without a key gives its turn to none, also if others say they wait.
			for _, r := range c.claim(1000) {
				c.ends(r, isCompleted)
			}
			given := c.job(pending)
			given.Dependencies = &ojs.Dependencies{Condition: ojs.AllSucceeded, Unfinished: 1, InLine: true}
			c.insert(given, c.job())
			c.wantMoved("an end without a key", c.ends(c.one(), isCompleted).Moved)
			c.waits(given.ID, 1, 0)
		}},
	{"order-2", "Ordering/Left", "Insert.OrderingKey",
		"A job that ends in line lets none pass, and is skipped.", needsNothing, func(c *C) {
			l := c.line("k", 4)
			expires := c.line("k", 1, expires(time.Minute))[0]
			last := c.line("k", 1)[0]
			c.settled(c.get(l[1]), c.to(isCancelled))
			c.settled(c.get(l[3]), c.to(isCancelled))
			c.hasTurn(l[0], l[2], expires, last)
			c.pass(time.Hour)
			if d := c.due(); len(d.Moved) > 0 || !slices.Equal(ids(d.Expired), []string{expires}) {
				c.failf("expired %v, moved %v", short(ids(d.Expired)), short(ids(d.Moved)))
			}
			c.wantMoved("the end", c.endsBy(l[0], isCompleted), is(l[2], isAvailable))
			c.hasTurn(l[2], last)
			c.wantMoved("the end", c.endsBy(l[2], isCancelled), is(last, isAvailable))

			// A job that changes in line stays there.
			l = c.line("changed", 3)
			r := c.get(l[1])
			r.Priority = 5
			if s := c.settle(r); s.Err != nil {
				c.failf("Settle of a job in line: %v", s.Err)
			}
			c.hasTurn(l...)
			c.wantMoved("the end", c.ends(c.get(l[0]), isCancelled).Moved, is(l[1], isAvailable))
			c.hasTurn(l[1:]...)
			c.claim(1000)

			// Jobs deleted in line leave nothing that a job of another line meets.
			l = c.line("deleted", 4)
			for _, id := range l[1:3] {
				c.settled(c.get(id), c.to(isCancelled))
			}
			_, err := c.S.Delete(c.ctx, l[1:3])
			c.noErr("Delete", err)
			c.claim(1000)
			other := c.line("other", 3)
			c.wantMoved("the end", c.ends(c.get(l[0]), isCompleted).Moved, is(l[3], isAvailable))
			c.hasTurn(other...)
		}},
	{"order-3", "Ordering/Holds", "Insert.OrderingKey",
		"A job keeps its turn while it waits for other jobs, for a time or for a retry.",
		needsNothing, func(c *C) {
			open, failing := c.active(), c.active()
			a, b := c.ordered("k", []string{open.ID}), c.ordered("k", []string{failing.ID})
			d := c.ordered("k", nil)
			out, err := c.S.Insert(c.ctx, c.now, []storage.Insert{a, b, d}, nil)
			c.noErr("Insert", err)
			c.wantMoved("Insert", out[2].Moved)
			if r := c.waits(a.Record.ID, 1, 0); r.Dependencies.InLine {
				c.failf("a job that has the turn is in line: %+v", r.Dependencies)
			}
			c.waits(b.Record.ID, 2, 0)
			c.wantMoved("a failure", c.ends(failing, ojs.StateDiscarded).Moved, is(b.Record.ID, isCancelled))
			c.waits(d.Record.ID, 1, 0)
			c.wantMoved("a success", c.ends(open, isCompleted).Moved, is(a.Record.ID, isAvailable))
			run := c.one()
			c.wantMoved("a retry", c.ends(run, ojs.StateRetryable).Moved)
			c.pass(1000 * time.Hour)
			c.wantMoved("Due", c.due().Moved)
			c.hasTurn(a.Record.ID, d.Record.ID)

			// Both counts are needed, whichever comes last.
			ended := c.active()
			e := c.ordered("k", []string{ended.ID})
			c.insertOne(e)
			c.wantMoved("the end", c.endsBy(a.Record.ID, isCompleted), is(d.Record.ID, isAvailable))
			c.wantMoved("the end", c.endsBy(d.Record.ID, isCompleted))
			c.waits(e.Record.ID, 1, 0)
			c.wantMoved("the end", c.ends(ended, isCompleted).Moved, is(e.Record.ID, isAvailable))

			// No turn makes up for a failure that has not occurred.
			ended = c.active()
			cleans := c.waiting(ojs.AnyFailed, []string{ended.ID})
			cleans.OrderingKey = "k"
			c.insertOne(cleans)
			c.waits(cleans.Record.ID, 2, 0)
			c.wantMoved("the end", c.ends(ended, isCompleted).Moved, is(cleans.Record.ID, isCancelled))
		}},
	{"order-4", "Ordering/EveryEnd", "Insert.OrderingKey",
		"Every way in which a job ends gives the turn to the next, and a job that runs before " +
			"its turn has it, too.",
		needsNothing, func(c *C) {
			for i, s := range []ojs.State{isCompleted, isCancelled, ojs.StateDiscarded} {
				l := c.line(fmt.Sprint("k", i), 2)
				c.wantMoved("the end as "+string(s), c.endsBy(l[0], s), is(l[1], isAvailable))
				c.endsBy(l[1], s)
			}
			l := c.line("deadline", 2, expires(time.Second))
			last := c.line("deadline", 1)[0]
			c.pass(time.Minute)
			c.wantMoved("Due", c.due().Moved, is(last, isAvailable))
			if r := c.get(l[1]); r.State != ojs.StateDiscarded {
				c.failf("a job in line whose deadline has come is %s", r.State)
			}
			c.endsBy(last, isCompleted)

			p := ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}
			l = append(c.line("replace", 1, unique("f", p)), c.line("replace", 1)...)
			in := c.ordered("replace", nil, unique("f", p))
			out := c.insertOne(in)
			c.wantMoved("a replacement", out.Moved, is(l[1], isAvailable))
			c.hasTurn(l[1], in.Record.ID)
			c.claim(1000)

			p.OnConflict = ojs.ConflictIgnore
			ignored := c.ordered("replace", nil, unique("f", p))
			if out := c.insertOne(ignored); out.Existing == nil {
				c.failf("an equal job was stored")
			}
			c.wantMoved("the end", c.ends(c.get(l[1]), isCompleted).Moved, is(in.Record.ID, isAvailable))
			c.wantMoved("the end", c.endsBy(in.Record.ID, isCompleted))

			// A job that another one of its batch replaces gives the turn at its place.
			p.OnConflict = ojs.ConflictReplace
			batch := []storage.Insert{
				c.ordered("before", nil), c.ordered("batch", nil, unique("g", p)), c.ordered("between", nil),
				c.ordered("batch", nil), c.ordered("last", nil, unique("g", p)),
			}
			results, err := c.S.Insert(c.ctx, c.now, batch, nil)
			c.noErr("Insert", err)
			c.wantMoved("a batch", results[4].Moved, is(batch[0].Record.ID, isAvailable),
				is(batch[3].Record.ID, isAvailable), is(batch[2].Record.ID, isAvailable),
				is(batch[4].Record.ID, isAvailable))
			c.claim(1000)

			l = c.line("drop", 2, queue("drop"))
			next := c.job(queue("drop"))
			out = c.insertOne(storage.Insert{Record: next, MaxDepth: 2, DropOldest: true})
			c.wantMoved("a drop", out.Moved, is(l[1], isAvailable))
			c.claim(1000)

			l = c.line("hand", 4)
			c.settled(c.get(l[2]), c.to(isAvailable))
			c.wantMoved("the first end", c.endsBy(l[0], isCompleted))
			c.waits(l[1], 1, 0)
			byHand := c.get(l[2])
			if byHand.State != ojs.StateActive {
				c.failf("a job that was activated is %s", byHand.State)
			}
			c.wantMoved("the second end", c.ends(byHand, isCompleted).Moved, is(l[1], isAvailable))
			c.wantMoved("the third end", c.endsBy(l[1], isCompleted), is(l[3], isAvailable))

			// A job that has the turn and waits for another job has it once.
			waits := c.ordered("waits", []string{c.active().ID})
			c.insertOne(waits)
			behind := c.line("waits", 1)[0]
			c.settled(c.get(waits.Record.ID), c.to(isAvailable))
			c.wantMoved("the end of a job that was activated", c.endsBy(waits.Record.ID, isCompleted),
				is(behind, isAvailable))
			c.endsBy(behind, isCompleted)

			// A job without a key that others wait for may be activated, too.
			plain := c.insert(c.job(pending))[0]
			after := c.wait(ojs.AllSucceeded, []string{plain})
			c.settled(c.get(plain), c.to(isAvailable))
			c.wantMoved("the end without a key", c.endsBy(plain, isCompleted), is(after, isAvailable))
			c.endsBy(after, isCompleted)
			l = c.line("all", 4)
			_, moved, err := c.S.CancelAll(c.ctx, c.now, []string{l[2], l[0]})
			c.noErr("CancelAll", err)
			c.wantMoved("CancelAll", moved, is(l[1], isAvailable))
			c.hasTurn(l[1], l[3])
		}},
	{"order-5", "Ordering/Dependents", "Insert.OrderingKey",
		"A job that ends is counted for its dependents, and then gives its turn.",
		needsNothing, func(c *C) {
			l := c.line("k", 2, join)
			if got := c.wantState(l[1], isCompleted); got.Attempt != 0 {
				c.failf("a join has run: %+v", got.JobInfo)
			}
			l = c.line("k", 2)
			waits := c.wait(ojs.AllSucceeded, []string{l[0]})
			both := c.ordered("k", []string{l[0]})
			c.insertOne(both)
			c.wantMoved("the end", c.endsBy(l[0], isCompleted), is(waits, isAvailable), is(l[1], isAvailable))
			if d := c.waits(both.Record.ID, 1, 0).Dependencies; !d.InLine {
				c.failf("a job whose dependency has ended: %+v", d)
			}
			c.wantMoved("the end", c.endsBy(l[1], isCompleted), is(both.Record.ID, isAvailable))
			l = c.line("m", 1)
			waits = c.wait(ojs.AllSucceeded, l)
			c.insertOne(c.ordered("m", []string{c.active().ID})) // it has the turn, and does not move
			c.wantMoved("the end", c.endsBy(l[0], isCompleted), is(waits, isAvailable))
			fails := c.ordered("o", []string{c.reach(ojs.StateDiscarded).ID})
			c.wantMoved("an insert", c.insertOne(fails).Moved, is(fails.Record.ID, isCancelled))
			if d := c.get(fails.Record.ID).Dependencies; !d.InLine || d.Unfinished != 1 {
				c.failf("a job that has ended before its turn: %+v", d)
			}

			// So is one that ends as it is stored.
			fails = c.ordered("p", fails.DependsOn)
			on, behind := c.waiting(ojs.AllSucceeded, []string{fails.Record.ID}), c.ordered("p", nil)
			stored, err := c.S.Insert(c.ctx, c.now, []storage.Insert{on, fails, behind}, nil)
			c.noErr("Insert", err)
			c.wantMoved("an insert of three", stored[2].Moved, is(fails.Record.ID, isCancelled),
				is(on.Record.ID, isCancelled), is(behind.Record.ID, isAvailable))

			// The end ends a join, which gives the turn to the job of the next change.
			first := c.active()
			joins := c.ordered("n", []string{first.ID}, join)
			c.insertOne(joins)
			next := c.get(c.line("n", 1)[0])
			moved := next.ID
			c.to(isCompleted)(&first)
			c.to(isCancelled)(&next)
			out := c.change(storage.Change{Record: first}, storage.Change{Record: next})
			c.noErr("the end", out[0].Err)
			c.wantMoved("the end", out[0].Moved, is(joins.Record.ID, isCompleted), is(moved, isAvailable))
			c.wantErr("a change of a job that has moved meanwhile", out[1].Err, storage.ErrFenced)
			c.wantState(moved, isAvailable)
		}},
	{"order-6", "Ordering/Then", "Change.Then",
		"A job that follows another of its key has its turn after those that were in line.",
		needsNothing, func(c *C) {
			r := c.claim(len(c.line("k", 1)))[0]
			in := c.ordered("k", nil)
			s := c.change(c.completing(r, in))[0]
			c.wantMoved("the change", s.Moved, is(in.Record.ID, isAvailable))
			behind := c.line("k", 1)[0]
			r = c.one()
			next := c.ordered("k", []string{r.ID})
			s = c.change(c.completing(r, next))[0]
			c.wantMoved("the change", s.Moved, is(behind, isAvailable))
			c.wantMoved("the end", c.endsBy(behind, isCompleted), is(next.Record.ID, isAvailable))

			// A new job is in line when the end of the one that it replaces is counted.
			replaces := unique("f", ojs.UniquePolicy{OnConflict: ojs.ConflictReplace})
			c.insertOne(c.ordered("u", nil, replaces))
			ended := c.reach(isCompleted).ID
			depends, in := c.waiting(ojs.AllSucceeded, []string{ended}), c.ordered("u", nil, replaces)
			out, err := c.S.Insert(c.ctx, c.now, []storage.Insert{depends, in}, nil)
			c.noErr("Insert", err)
			c.wantMoved("an insert that replaces", out[1].Moved,
				is(in.Record.ID, isAvailable), is(depends.Record.ID, isAvailable))
		}},
	{"order-7", "Ordering/Refused", "Insert.OrderingKey",
		"Circles by the order of a batch are refused, and keys of jobs that do not fit.",
		needsNothing, func(c *C) {
			second := c.ordered("k", nil)
			first := c.ordered("k", []string{second.Record.ID})
			for name, batch := range map[string][]storage.Insert{
				"a circle":                  {first, second},
				"a job that is not pending": {{Record: c.job(), OrderingKey: "k"}},
			} {
				_, err := c.S.Insert(c.ctx, c.now, batch, nil)
				c.wantErr(name, err, ojs.ErrInvalid)
			}
			waits := c.wait(ojs.AllEnded, []string{c.active().ID})
			in := c.ordered("k", nil)
			in.AwaitedBy = []string{waits}
			_, err := c.S.Insert(c.ctx, c.now, []storage.Insert{in}, nil)
			c.wantErr("a key with AwaitedBy", err, ojs.ErrInvalid)
			_, err = c.S.Insert(c.ctx, c.now, []storage.Insert{second, first}, nil)
			c.noErr("Insert in the order of the dependencies", err)
		}},
	{"order-8", "Ordering/ComesBack", "Insert.OrderingKey",
		"A job that Settle brings back is in no line. Revive has it wait at its place.",
		needsNothing, func(c *C) {
			l := c.line("k", 3)
			c.wantMoved("the end", c.endsBy(l[0], ojs.StateDiscarded), is(l[1], isAvailable))
			c.settled(c.get(l[0]), c.to(isAvailable))
			c.wantState(l[1], isAvailable)
			c.wantMoved("the end of the job that came back", c.endsBy(l[0], ojs.StateDiscarded))
			c.waits(l[2], 1, 0)
			in := again(c.get(l[0]), ojs.StatePending)
			in.OrderingKey = "k"
			in.Record.Dependencies = &ojs.Dependencies{Condition: ojs.AllSucceeded}
			c.wantMoved("Revive", c.revive(in))
			c.waits(l[0], 1, 0)
			c.wantMoved("the end", c.ends(c.get(l[1]), isCompleted).Moved, is(l[0], isAvailable))
			c.wantMoved("the end", c.endsBy(l[0], isCompleted), is(l[2], isAvailable))
			c.endsBy(l[2], isCompleted)
			in = again(c.get(l[2]), ojs.StatePending)
			in.OrderingKey = "k"
			in.Record.Dependencies = &ojs.Dependencies{Condition: ojs.AllSucceeded}
			c.wantMoved("Revive", c.revive(in), is(l[2], isAvailable))

			// A job that is revived without its key has left its line.
			l = c.line("left", 3)
			c.wantMoved("the end", c.endsBy(l[0], isCompleted), is(l[1], isAvailable))
			c.revive(again(c.get(l[0]), isAvailable))
			waits := c.wait(ojs.AllEnded, l[:1])
			c.wantMoved("the end out of line", c.endsBy(l[0], isCompleted), is(waits, isAvailable))
			c.wantMoved("the end", c.ends(c.get(l[1]), isCompleted).Moved, is(l[2], isAvailable))

			// A job that Settle brings back holds no turn while it goes on.
			l = c.line("back", 3)
			c.wantMoved("the end", c.endsBy(l[0], ojs.StateDiscarded), is(l[1], isAvailable))
			c.settled(c.get(l[0]), c.to(isAvailable))
			c.wantMoved("the end", c.ends(c.get(l[1]), isCancelled).Moved, is(l[2], isAvailable))
			c.settled(c.get(l[2]), c.to(isCancelled))
			c.settled(c.get(l[0]), c.to(isCancelled))

			// The turn is given after what the job depends on is counted.
			l = c.line("m", 2)
			c.endsBy(l[0], isCompleted)
			c.endsBy(l[1], isCompleted)
			failed := c.reach(ojs.StateDiscarded)
			in = again(c.get(l[1]), ojs.StatePending, failed.ID)
			behind := again(c.get(l[0]), ojs.StatePending)
			in.OrderingKey, behind.OrderingKey = "m", "m"
			behind.Record.Dependencies = &ojs.Dependencies{Condition: ojs.AllSucceeded}
			c.wantMoved("Revive of two", c.revive(in, behind), is(l[1], isCancelled), is(l[0], isAvailable))
		}},
	{"order-9", "Ordering/Race", "Insert.OrderingKey",
		"Of concurrent calls one gives the turn: never two jobs of a key have it.",
		needsNothing, func(c *C) {
			for range rounds {
				l := c.line("k", 3)
				first := c.claim(1)[0]
				inLine := c.get(l[1])
				c.to(isCancelled)(&inLine)
				var batches [2][]storage.Insert
				for i := range batches {
					batches[i] = []storage.Insert{c.ordered("k", nil), c.ordered("k", nil)}
				}
				c.to(isCompleted)(&first)
				var took sync.Map // ids of jobs whose turn a call has told
				var twice atomic.Bool
				tell := func(moved []storage.Record) {
					for _, r := range moved {
						if _, told := took.LoadOrStore(r.ID, true); told {
							twice.Store(true)
						}
					}
				}
				race(4, func(i int) {
					if i < 2 {
						out, err := c.S.Insert(c.ctx, c.now, batches[i], nil)
						if err == nil {
							tell(out[1].Moved)
						}
						return
					}
					r := first
					if i == 3 {
						r = inLine
					}
					changes := []storage.Change{{Record: r, AttemptFieldsOnly: true}}
					out, err := c.S.Settle(c.ctx, c.now, changes, nil)
					if err == nil && len(out) == 1 {
						tell(out[0].Moved)
					}
				})
				var left []string
				for _, s := range []ojs.State{isAvailable, ojs.StatePending} {
					left = append(left, c.list(storage.Query{States: []ojs.State{s}})...)
				}
				got := c.list(storage.Query{States: []ojs.State{isAvailable}})
				if len(got) != 1 || twice.Load() {
					c.failf("%d jobs have the turn; one was told twice: %v", len(got), twice.Load())
				}
				if _, told := took.Load(got[0]); !told {
					c.failf("no call has told the turn of %v", short(got))
				}
				for range left {
					if got := c.claim(9); len(got) != 1 {
						c.failf("%d jobs of a key are available", len(got))
					} else {
						c.ends(got[0], isCompleted)
					}
				}
				if got := c.list(storage.Query{States: []ojs.State{ojs.StatePending}}); len(got) > 0 {
					c.failf("%d jobs wait for a turn that does not come", len(got))
				}
			}
		}},
	{"order-10", "Ordering/Reopened", "Capabilities.Durable",
		"Turns outlive the storage.", needsReopen, func(c *C) {
			l := c.line("k", 3)
			c.reopen()
			c.hasTurn(l...)
			c.wantMoved("the end", c.endsBy(l[0], isCompleted), is(l[1], isAvailable))
			c.reopen()
			c.hasTurn(l[1:]...)
			c.wantMoved("the end", c.endsBy(l[1], isCompleted), is(l[2], isAvailable))
		}},
	{"order-11", "Ordering/Scale", "Insert.OrderingKey",
		"A long line gives its turns one by one, and a job that leaves it changes nothing.",
		needsNothing, func(c *C) {
			l := c.line("k", 500)
			for i, id := range l[:50] {
				c.wantMoved("the end", c.endsBy(id, isCompleted), is(l[i+1], isAvailable))
			}
			for _, id := range l[60:70] {
				c.settled(c.get(id), c.to(isCancelled))
			}
			c.hasTurn(l[50:60]...)
		}},
	{"order-12", "Ordering/EndsItself", "Insert.OrderingKey",
		"A job whose end has another end, for which it waits, ends but once.",
		needsNothing, func(c *C) {
			first, second := c.reach(isCancelled), c.reach(isCancelled)
			a := again(first, ojs.StatePending, second.ID)
			b := again(second, ojs.StatePending)
			b.Record.Dependencies = &ojs.Dependencies{Condition: ojs.AllEnded, Join: true}
			a.OrderingKey, b.OrderingKey = "k", "k"
			c.wantMoved("Revive", c.revive(a, b))
			r := c.get(first.ID)
			ended := r
			c.to(isCancelled)(&ended)
			out := c.change(storage.Change{Record: ended})
			if out[0].Err != nil || out[0].Version != r.Version+1 {
				c.failf("Settle returned %+v", out[0])
			}
			c.wantMoved("the end", out[0].Moved, is(second.ID, isCompleted))
			c.wantState(first.ID, isCancelled)
		}},
}
