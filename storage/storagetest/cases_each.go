package storagetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
)

// Cases for calls on several jobs: each of the jobs counts, wherever it stands in the
// call. A fault that treats the first or the last job otherwise shows here.

// ending is a call that ends three jobs.
type ending struct {
	name string
	make func() []string                              // the jobs
	end  func(list []string) (moved []storage.Record) // the call
}

// each makes three jobs.
func (c *C) each(change ...func(*storage.Record)) func() []string {
	return func() []string {
		return c.insert(c.job(change...), c.job(change...), c.job(change...))
	}
}

// actives makes three jobs and claims them.
func (c *C) actives() []string {
	c.tb.Helper()
	var list []string
	for range 3 {
		list = append(list, c.active().ID)
	}
	return list
}

// settlesTo makes a change of attempt fields of each job.
func (c *C) settlesTo(s ojs.State, list []string) (changes []storage.Change) {
	c.tb.Helper()
	for _, id := range list {
		r := c.get(id)
		c.to(s)(&r)
		changes = append(changes, storage.Change{Record: r, AttemptFieldsOnly: true})
	}
	return changes
}

// endings are all calls that end several jobs in one step.
func (c *C) endings() []ending {
	none := ojs.UniquePolicy{States: []ojs.State{ojs.StateDiscarded}}
	replaces := func(print string) func(*storage.Record) {
		return unique(print, ojs.UniquePolicy{OnConflict: ojs.ConflictReplace})
	}
	inserts := func(batch ...storage.Insert) []storage.Record {
		c.tb.Helper()
		out, err := c.S.Insert(c.ctx, c.now, batch, nil)
		c.noErr("Insert", err)
		return out[len(out)-1].Moved
	}
	list := []ending{
		{"Settle", c.actives, func(list []string) (moved []storage.Record) {
			for _, s := range c.change(c.settlesTo(isCompleted, list)...) {
				c.noErr("Settle", s.Err)
				moved = append(moved, s.Moved...)
			}
			return moved
		}},
		{"Settle of jobs that wait", c.each(queue("waits")), func(list []string) (moved []storage.Record) {
			for _, s := range c.change(c.settlesTo(isCancelled, list)...) {
				c.noErr("Settle", s.Err)
				moved = append(moved, s.Moved...)
			}
			return moved
		}},
		{"Insert that replaces", c.each(queue("f"), unique("f", none)), func([]string) []storage.Record {
			return inserts(storage.Insert{Record: c.job(queue("f"), replaces("f"))})
		}},
		{"a batch that replaces one for each", func() []string {
			return c.insert(c.job(queue("g"), unique("g0", none)), c.job(queue("g"), unique("g1", none)),
				c.job(queue("g"), unique("g2", none)))
		}, func([]string) []storage.Record {
			return inserts(storage.Insert{Record: c.job(queue("g"), replaces("g0"))},
				storage.Insert{Record: c.job(queue("g"), replaces("g1"))},
				storage.Insert{Record: c.job(queue("g"), replaces("g2"))})
		}},
		{"Insert that drops", c.each(queue("full")), func([]string) []storage.Record {
			return inserts(storage.Insert{Record: c.job(queue("full")), MaxDepth: 1, DropOldest: true})
		}},
		{"a batch that drops one for each", c.each(queue("full2")), func([]string) []storage.Record {
			in := func() storage.Insert {
				return storage.Insert{Record: c.job(queue("full2")), MaxDepth: 3, DropOldest: true}
			}
			return inserts(in(), in(), in())
		}},
		{"Due", c.each(queue("expires"), expires(time.Minute)), func([]string) []storage.Record {
			c.pass(time.Minute)
			return c.due().Moved
		}},
	}
	if c.cfg.SettleClaims {
		list = append(list, ending{"SettleAndClaim", c.actives, func(list []string) (moved []storage.Record) {
			var to []storage.Record
			for _, ch := range c.settlesTo(isCompleted, list) {
				to = append(to, ch.Record)
			}
			out, _ := c.step(storage.Claim{Queues: []string{"none"}}, 1, to...)
			for _, s := range out {
				c.noErr("SettleAndClaim", s.Err)
				moved = append(moved, s.Moved...)
			}
			return moved
		}})
	}
	list = append(list, ending{"CancelAll", c.each(queue("all")), func(list []string) []storage.Record {
		_, moved, err := c.S.CancelAll(c.ctx, c.now, list)
		c.noErr("CancelAll", err)
		return moved
	}})
	drop := limit(ojs.RateLimit{Key: "d", Concurrency: ojs.NoneAtOnce, OnLimit: ojs.OnLimitDrop})
	drops := func([]string) []storage.Record {
		done := new(storage.Limited)
		c.claims(storage.Claim{Queues: []string{"d"}, Max: 9, Limits: done})
		return done.Moved
	}
	list = append(list, ending{"a claim that drops", c.each(queue("d"), drop), drops})
	list = append(list, ending{"Settle whose Then replaces", c.each(queue("t"), unique("t", none)),
		func([]string) []storage.Record {
			r := c.active()
			c.to(isCompleted)(&r)
			s := c.change(storage.Change{Record: r, AttemptFieldsOnly: true,
				Then: []storage.Insert{{Record: c.job(queue("t"), replaces("t"))}}})[0]
			c.noErr("Settle", s.Err)
			return s.Moved
		}})
	return list
}

// spoiling is a call on three jobs, of which one is refused.
type spoiling struct {
	name  string
	want  error
	spoil func(batch []storage.Insert, at int)
}

// refusesBatches wants Insert to refuse a batch for one of its jobs, whichever it is, and
// to store none of the others.
func (c *C) refusesBatches(list []spoiling) {
	c.tb.Helper()
	for _, sp := range list {
		for at := range 3 {
			batch := []storage.Insert{{Record: c.job(queue("new"))}, {Record: c.job(queue("new"))},
				{Record: c.job(queue("new"))}}
			sp.spoil(batch, at)
			_, err := c.S.Insert(c.ctx, c.now, batch, nil)
			if !errors.Is(err, sp.want) {
				c.failf("Insert with %s as job %d of 3: %v, not an error that is %v",
					sp.name, at+1, err, sp.want)
			}
			if got := c.list(storage.Query{Queues: []string{"new"}}); len(got) > 0 {
				c.failf("Insert with %s as job %d of 3 was refused, and has stored %v",
					sp.name, at+1, short(got))
			}
		}
	}
}

var eachCases = []Case{
	{"each-1", "Each/Moves", "Insert.DependsOn",
		"When one call ends several jobs, those that wait for any of them move.",
		needsNothing, func(c *C) {
			for _, e := range c.endings() {
				list := e.make()
				var want []string
				for _, id := range list {
					for range 2 {
						after := c.wait(ojs.AllEnded, []string{id}, queue("after "+e.name))
						want = append(want, is(after, isAvailable))
					}
				}
				// It waits for all of them, and so moves with the last.
				all := is(c.wait(ojs.AllEnded, list, queue("after "+e.name)), isAvailable)
				c.wantMoved(e.name, e.end(list), append(want, all)...)
			}
		}},
	{"each-2", "Each/Refused", "package storage, Errors",
		"A batch is refused for any one of its jobs. A call that treats each by itself refuses that one.",
		needsNothing, func(c *C) {
			stored := c.insert(c.job(unique("f", ojs.UniquePolicy{})), c.job(queue("one")))[0]
			list := []spoiling{
				{"an id that is taken", ojs.ErrDuplicate, func(batch []storage.Insert, at int) {
					batch[at].Record.ID = stored
				}},
				{"an id that is twice", ojs.ErrDuplicate, func(batch []storage.Insert, at int) {
					batch[at].Record.ID = batch[(at+1)%3].Record.ID
				}},
				{"a state that none begins in", ojs.ErrInvalid, func(batch []storage.Insert, at int) {
					batch[at].Record.State = ojs.StateActive
				}},
				{"an equal job", ojs.ErrDuplicate, func(batch []storage.Insert, at int) {
					unique("f", ojs.UniquePolicy{})(&batch[at].Record)
				}},
				{"a full queue", ojs.ErrQueueFull, func(batch []storage.Insert, at int) {
					batch[at].Record.Queue, batch[at].MaxDepth = "one", 1
				}},
			}
			list = append(list, spoiling{"a dependency that is not there", ojs.ErrDependency,
				func(batch []storage.Insert, at int) {
					batch[at] = c.waiting(ojs.AllEnded, []string{stored, "unknown"}, queue("new"))
				}})
			list = append(list, spoiling{"a job that none awaits", ojs.ErrDependency,
				func(batch []storage.Insert, at int) { batch[at].AwaitedBy = []string{stored} }})
			_, err := c.S.SetQueueState(c.ctx, "drains", ojs.QueueDraining)
			c.noErr("SetQueueState", err)
			list = append(list, spoiling{"a queue that drains", ojs.ErrQueueDraining,
				func(batch []storage.Insert, at int) { batch[at].Record.Queue = "drains" }})
			c.refusesBatches(list)

			for at := range 3 {
				jobs := c.actives()
				_, err := c.S.Delete(c.ctx, []string{stored})
				c.wantErr("Delete of an available job", err, ojs.ErrTransition)

				x := make([]storage.Extension, 3)
				for i, id := range jobs {
					if x[i].Held = heldOf(c.get(id)); i == at {
						x[i].Version--
					}
				}
				c.pass(time.Second)
				lost, err := c.S.Extend(c.ctx, c.now, x)
				if c.noErr("Extend", err); !slices.Equal(lost, jobs[at:at+1]) {
					c.failf("Extend has lost %v, not %v", short(lost), short(jobs[at:at+1]))
				}
				for i, id := range jobs {
					r := c.get(id)
					if renewed := r.LeaseUntil.Equal(c.now.Add(r.Lease)); renewed == (i == at) {
						c.failf("job %d of 3 of Extend is held until %v", i+1, r.LeaseUntil)
					}
				}

				changes := c.settlesTo(isCompleted, jobs)
				changes[at].Record.Version--
				for i, s := range c.change(changes...) {
					refused := errors.Is(s.Err, storage.ErrFenced)
					if refused != (i == at) || s.Err != nil && !refused {
						c.failf("the change of job %d of 3: %v", i+1, s.Err)
					}
				}
				_, err = c.S.Delete(c.ctx, jobs)
				c.wantErr("Delete of an active job among others", err, ojs.ErrTransition)
				for i, id := range jobs {
					if r := c.get(id); r.State.Terminal() == (i == at) {
						c.failf("job %d of 3 is %s", i+1, r.State)
					}
				}

				if c.cfg.SettleClaims {
					held := make([]storage.Held, 3)
					more := c.actives()
					for i, id := range more {
						if held[i] = heldOf(c.get(id)); i == at {
							held[i].Version--
						}
					}
					c.unclaim(2, held...)
					c.wantState(more[at], ojs.StateActive)
				}
				var entries []storage.Cron
				for i := range 3 {
					entries = append(entries, storage.Cron{Name: fmt.Sprint("e", at, i)})
				}
				entries[at].Version = 7
				for i, v := range c.setCrons(entries...) {
					if (v == 0) != (i == at) {
						c.failf("entry %d of 3 has the version %d", i+1, v)
					}
				}
			}
		}},
	{"each-3", "Each/Told", "storage.Notifier",
		"Others are told of each job that a call ends, and of each claim that it takes.",
		needsNotices, func(c *C) {
			e := c.listen("other")
			for _, way := range c.endings() {
				list := way.make()
				for _, cond := range []ojs.Condition{ojs.AllSucceeded, ojs.AnyFailed} {
					c.wait(cond, list[:1], queue("after")) // one of the two ends with it
				}
				e.past = nil
				moved := way.end(list)
				for i, id := range list {
					e.hears(fmt.Sprintf("job %d of 3 has ended by %s", i+1, way.name), ended(id))
				}
				for _, r := range moved {
					hears := available
					if r.State.Terminal() {
						hears = ended(r.ID)
					}
					e.hears(fmt.Sprintf("a job that waits is %s by %s", r.State, way.name), hears)
				}
			}
			takes := map[error]func(list []storage.Record){
				ojs.ErrCancelled: func(list []storage.Record) {
					c.settleAll(list, func(_ int, r *storage.Record) { c.to(isCancelled)(r) })
				},
				ojs.ErrReplaced: func([]storage.Record) {
					replace := ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}
					c.insert(c.job(queue("taken"), unique("taken", replace)))
				},
				ojs.ErrLeaseLost: func([]storage.Record) {
					c.pass(time.Minute)
					c.due()
				},
			}
			for cause, take := range takes {
				none := ojs.UniquePolicy{States: []ojs.State{ojs.StateDiscarded}}
				c.each(queue("taken"), unique("taken", none))()
				list := c.claimOf(storage.Claim{Queues: []string{"taken"}, Max: 3})
				take(list)
				for i, r := range list {
					e.hears(fmt.Sprintf("claim %d of 3 was taken", i+1), takenFor(heldOf(r), cause))
				}
				for _, r := range c.claimOf(storage.Claim{Queues: []string{"taken"}, Max: 9}) {
					c.settled(r, c.to(isCompleted)) // or it would be in the way of the next
				}
				for _, r := range list {
					if r = c.get(r.ID); !r.State.Terminal() {
						c.settled(r, c.to(isCompleted))
					}
				}
			}
			e.stop()
		}},
	{"each-4", "Each/Revived", "GroupStore.Revive",
		"A batch of jobs to revive is refused for any one of its jobs, and each of them begins anew.",
		needsNothing, func(c *C) {
			spoils := map[error]func(in *storage.Insert){
				storage.ErrFenced: func(in *storage.Insert) { in.Record.Version-- },
				ojs.ErrNotFound:   func(in *storage.Insert) { in.Record = c.job() },
				ojs.ErrTransition: func(in *storage.Insert) { *in = again(c.active(), isAvailable) },
				ojs.ErrDependency: func(in *storage.Insert) {
					*in = again(in.Record, ojs.StatePending, "unknown")
				},
				ojs.ErrInvalid: func(in *storage.Insert) { in.Record.State = isCompleted },
			}
			for want, spoil := range spoils {
				for at := range 4 {
					var batch []storage.Insert
					var was []storage.Record
					for range 4 {
						r := c.reach(ojs.StateDiscarded)
						was = append(was, r)
						batch = append(batch, again(r, isAvailable))
					}
					spoil(&batch[at])
					_, err := c.S.Revive(c.ctx, c.now, batch)
					if !errors.Is(err, want) {
						c.failf("Revive with job %d of 4 refused: %v, not an error that is %v",
							at+1, err, want)
					}
					for i := range was {
						c.same(fmt.Sprintf("job %d of 4", i+1), c.get(was[i].ID), was[i])
					}
				}
			}
			var batch []storage.Insert
			var parents, waits []string
			for range 3 {
				parent := c.active()
				in := again(c.reach(ojs.StateDiscarded), ojs.StatePending, parent.ID)
				parents, waits = append(parents, parent.ID), append(waits, in.Record.ID)
				batch = append(batch, in)
			}
			c.revive(batch...)
			for i := range parents {
				c.waits(waits[i], 1, 0)
				moved := c.ends(c.get(parents[i]), isCompleted).Moved
				c.wantMoved("the end", moved, is(waits[i], isAvailable))
			}
		}},
	{"queue-4", "Queue/PausedKinds", "storage.QueueStore",
		"A paused queue hands out jobs of no kind, to no kind of claim, and all of them once it is active.",
		needsNothing, func(c *C) {
			kinds := [][]func(*storage.Record){
				{}, {fairKey("f")}, {fairKey("g")}, {limited("k")}, {limited("l"), fairKey("f")},
				{version("1.0")}, {version("1.0"), fairKey("f")}, {expires(time.Hour)}, {priority(3)},
				{priority(3), fairKey("f")}, {jobType("y")}, {jobType("y"), fairKey("f")},
				{func(r *storage.Record) { r.EnqueueTTL = time.Hour }}, {unique("u", ojs.UniquePolicy{})},
			}
			set := func(to ojs.QueueState) {
				_, err := c.S.SetQueueState(c.ctx, "p", to)
				c.noErr("SetQueueState", err)
			}
			var before, after []string
			for _, kind := range kinds {
				before = append(before, c.insert(c.job(append(kind, queue("p"))...))...)
			}
			set(ojs.QueuePaused)
			for _, kind := range kinds[:len(kinds)-1] {
				after = append(after, c.insert(c.job(append(kind, queue("p"))...))...)
			}
			for _, q := range []storage.Claim{{}, {Queues: []string{"p"}}, {Types: []string{"x", "y"}},
				{Types: []string{"y"}}, {Queues: []string{"q", "p"}, Types: []string{"x"}}} {
				q.Max = 99
				c.claims(q)
				q.Limits = new(storage.Limited)
				c.claims(q)
				if c.cfg.SettleClaims {
					c.stepped(q, 9)
				}
			}
			other := c.insert(c.job(fairKey("f")), c.job())
			c.claims(storage.Claim{Max: 99}, other...)
			set(ojs.QueueActive)
			all := append(before, after...)
			got := 0
			for range all {
				got += len(c.claim(99)) // one of each key at a time
			}
			if got != len(all) {
				c.failf("%d of %d jobs of a queue that was resumed are claimed", got, len(all))
			}
		}},
	{"claim-19", "Claim/BehindMany", "Storage.Claim",
		"However many jobs a claim may not take, it takes the first behind them.",
		needsNothing, func(c *C) {
			const many = 300
			closed := limit(ojs.RateLimit{Key: "closed", Concurrency: ojs.NoneAtOnce})
			kinds := map[string][]func(*storage.Record){
				"of another type": {jobType("other")},
				"expired":         {expires(-time.Second)},
			}
			kinds["of another version"] = []func(*storage.Record){version("9.0")}
			keyed := []func(*storage.Record){fairKey("f"), expires(-time.Second)}
			kinds["expired, with a fairness key"] = keyed
			kinds["of a closed limit"] = []func(*storage.Record){closed}
			name := storage.LimitName{Kind: storage.LimitType, Name: "closed"}
			c.setLimit(name, ojs.RateLimit{Concurrency: ojs.NoneAtOnce})
			kinds["of a closed type"] = []func(*storage.Record){jobType("closed")}
			for name, kind := range kinds {
				recs := make([]storage.Record, many)
				for i := range recs {
					recs[i] = c.job(append([]func(*storage.Record){priority(5)}, kind...)...)
					if i%2 == 0 { // of many kinds of jobs
						recs[i].Queue, recs[i].Priority = fmt.Sprint("q", i%40), 5+i%3
					}
				}
				c.insertAll(recs)
				for _, q := range []storage.Claim{{}, {Queues: []string{"q", "q0"}}} {
					id := c.insert(c.job(version("1.0")))
					q.Max = 9
					q.Types = []string{"x", "closed"}
					q.Types[0] = "x@<2.0"
					q.Limits = new(storage.Limited)
					if got := ids(c.claimOf(q)); !slices.Equal(got, id) {
						c.failf("behind %d jobs that are %s a claim takes %v, not %v",
							many, name, short(got), short(id))
					}
				}
				c.settleAll(recs, func(_ int, r *storage.Record) { c.to(isCancelled)(r) })
			}
		}},
	{"scale-5", "Scale/FarApart", "Storage.List",
		"A listing has the job at each place of the order, also where a storage ends a long page.",
		needsNothing, func(c *C) {
			recs := make([]storage.Record, 4300)
			for i := range recs {
				recs[i] = c.job(expires(time.Hour + time.Duration(i)*time.Second))
			}
			// A page may end after any power of two, or thousand, of jobs looked at.
			rare := make(map[int]bool)
			for _, n := range []int{64, 100, 128, 256, 500, 512, 1000, 1024, 2000, 2048, 4000, 4096} {
				for _, at := range []int{n - 2, n - 1, n, n + 1} {
					rare[at] = true
					rare[len(recs)-1-at] = true // from the other end
				}
			}
			for i := range recs {
				if rare[i] {
					recs[i].Type = "rare"
				}
			}
			c.insertAll(recs)
			var want []string
			for i := range recs {
				if rare[i] {
					want = append(want, recs[i].ID)
				}
			}
			backward := slices.Clone(want)
			slices.Reverse(backward)
			by := map[storage.Order][]string{storage.OrderOldest: want}
			by[storage.OrderNewest], by[storage.OrderDue], by[storage.OrderClaim] = backward, want, want
			look := func(by map[storage.Order][]string, dead bool) {
				c.tb.Helper()
				for _, o := range allOrders {
					want, asked := by[o]
					q := storage.Query{Order: o, Types: []string{"rare"}, DeadLetters: dead}
					if !asked {
						continue
					}
					c.wantList(q, want)
					q.Types, q.Where = nil, func(r *storage.Record) bool { return r.Type == "rare" }
					c.wantList(q, want)
					c.wantBack(q, want)
				}
			}
			look(by, false)
			c.settleAll(recs, func(i int, r *storage.Record) {
				c.dead(r)
				r.FinishedAt = c.now.Add(time.Duration(i) * time.Second)
			})
			by = map[storage.Order][]string{storage.OrderOldest: want}
			by[storage.OrderNewest], by[storage.OrderFinished] = backward, backward
			look(by, true)
		}},
	{"values-8", "Values/Atomic", "DocumentStore.PutDocuments",
		"A look at values has all those of a call or none.", needsNothing, func(c *C) {
			vs := c.S
			put := func(ctx context.Context, n int) error {
				var list []document.Value
				for _, key := range []string{"a", "m", "z"} {
					list = append(list, document.Value{Key: key, Data: fmt.Append(nil, n)})
				}
				return document.Of(vs).PutValues(ctx, c.now, list)
			}
			c.noErr("PutValues", put(c.ctx, 0))
			var over atomic.Bool
			race(2, func(i int) {
				defer over.Store(true)
				if i == 0 {
					for n := 1; !over.Load(); n++ {
						if err := put(c.ctx, n); err != nil {
							c.errorf("PutValues failed: %v", err)
							return
						}
						runtime.Gosched()
					}
					return
				}
				last, changed := "", 0 // a busy machine may run neither for long
				for n := 0; changed < 2*rounds && n < 200*rounds && !over.Load(); n++ {
					list, err := document.Of(vs).Values(c.ctx, c.now, "", "", 0)
					if err != nil || len(list) != 3 || string(list[0].Data) != string(list[1].Data) ||
						string(list[1].Data) != string(list[2].Data) {
						c.errorf("Values returned %v, %v while three values are put in each call", list, err)
						return
					}
					if data := string(list[0].Data); data != last {
						last = data
						changed++
					} else {
						runtime.Gosched()
					}
				}
			})
		}},
	{"durable-4", "Durable/Effects", "Capabilities.Durable",
		"After the storage was opened again, what was stored has its effect: dependencies, turns, starts, " +
			"places and states.",
		needsReopen, func(c *C) {
			var checks []func()
			later := func(f func()) { checks = append(checks, f) }
			var parents []string
			for range 6 {
				parents = append(parents, c.active().ID)
			}
			waits := c.wait(ojs.AllSucceeded, parents)
			fails := c.wait(ojs.AnyFailed, parents)
			later(func() {
				for _, id := range parents[:5] {
					c.wantMoved("the end of one of six", c.ends(c.get(id), isCompleted).Moved)
				}
				c.wantMoved("the last end", c.ends(c.get(parents[5]), isCompleted).Moved,
					is(waits, isAvailable), is(fails, isCancelled))
			})
			states := []ojs.State{ojs.StateScheduled, ojs.StateRetryable, isAvailable, ojs.StateActive}
			for _, s := range states {
				key := "k-" + string(s)
				head := c.line(key, 1, queue(key))[0]
				switch s {
				case ojs.StateScheduled:
					c.settled(c.get(head), c.to(s))
				case ojs.StateRetryable, ojs.StateActive:
					r := c.claimOf(storage.Claim{Queues: []string{key}, Max: 1, Remote: true})[0]
					if s == ojs.StateRetryable {
						c.settled(r, c.to(s))
					}
				}
				second := c.line(key, 1, queue(key))[0]
				later(func() {
					third := c.line(key, 1, queue(key))[0]
					for _, id := range []string{second, third} {
						if r := c.waits(id, 1, 0); !r.Dependencies.InLine {
							c.failf("the head of the key is %s, and %v is not in line",
								s, short([]string{id}))
						}
					}
					c.settled(c.get(head), c.to(isCancelled))
					c.wantState(second, isAvailable)
					c.waits(third, 1, 0)
				})
			}
			c.startsReopened(later)
			queues := map[string]ojs.QueueState{"paused": ojs.QueuePaused, "drains": ojs.QueueDraining}
			for name, s := range queues {
				c.insert(c.job(queue(name)))
				_, err := c.S.SetQueueState(c.ctx, name, s)
				c.noErr("SetQueueState", err)
			}
			later(func() {
				c.claims(storage.Claim{Queues: []string{"paused"}, Max: 9})
				_, err := c.insertBatch(c.job(queue("drains")))
				c.wantErr("Insert into a draining queue", err, ojs.ErrQueueDraining)
			})
			c.storeSomeOfAll()
			// Places: of jobs due at one time, finished at one time, available longest.
			soon := scheduled(time.Minute)
			due := c.insert(c.job(queue("due"), soon), c.job(queue("due"), soon), c.job(queue("due"), soon))
			c.settled(c.get(due[0]), priority(1)) // it begins anew to wait
			ends := c.insert(c.job(queue("ends")), c.job(queue("ends")), c.job(queue("ends")))
			for _, i := range []int{1, 2, 0} {
				c.settled(c.get(ends[i]), c.to(isCancelled))
			}
			long := c.insert(c.job(queue("long")), c.job(queue("long")), c.job(queue("long")))
			c.settled(c.get(long[0]), priority(1)) // last
			later(func() {
				in := storage.Insert{Record: c.job(queue("long")), MaxDepth: 2, DropOldest: true}
				out := c.insertOne(in)
				if got := ids(out.Dropped); !slices.Equal(got, long[1:]) {
					c.failf("dropped %v, not %v", short(got), short(long[1:]))
				}
				p := storage.Prune{Now: c.now, States: []ojs.State{isCancelled}, Before: c.now.Add(1), Max: 1}
				for _, i := range []int{1, 2, 0} {
					pruned, err := c.S.Prune(c.ctx, p)
					c.noErr("Prune", err)
					if want := ends[i : i+1]; !slices.Equal(pruned.IDs, want) {
						c.failf("pruned %v, not %v", short(pruned.IDs), short(want))
					}
				}
				c.pass(time.Minute)
				if got := ids(c.due().Promoted); !slices.Equal(got, []string{due[1], due[2], due[0]}) {
					c.failf("promoted %v, not %v", short(got), short([]string{due[1], due[2], due[0]}))
				}
			})
			c.reopen()
			for _, check := range slices.Backward(checks) { // Prune before others end
				check()
			}
		}},
}

// storeSomeOfAll stores something of each kind that is only read: reopen compares it.
func (c *C) storeSomeOfAll() {
	c.tb.Helper()
	for i := range 20 {
		c.put(fmt.Sprint("key/", i), fmt.Sprint(i))
	}
	for _, s := range []ojs.State{isCompleted, ojs.StateDiscarded, ojs.StateRetryable} {
		r := c.active()
		c.to(s)(&r)
		c.change(storage.Change{Record: r, AttemptFieldsOnly: true, Log: []byte(s)})
	}
	for i := range 3 {
		at := c.now.Add(time.Duration(i) * time.Hour)
		c.setCrons(storage.Cron{Name: fmt.Sprint("entry ", i), NextRun: at})
	}
	for _, kind := range limitKinds {
		for _, until := range []time.Time{{}, c.now.Add(time.Hour)} {
			name := storage.LimitName{Kind: kind, Name: fmt.Sprint("set until ", until.Unix())}
			bounds := ojs.RateLimit{Concurrency: 3}
			c.noErr("SetLimit", c.S.SetLimit(c.ctx, c.now, name, bounds, until))
			name.Name = fmt.Sprint("blocked until ", until.Unix())
			c.noErr("BlockLimit", c.S.BlockLimit(c.ctx, c.now, name, until))
		}
	}
}

// startsReopened has limits of each kind count starts that are from before the storage
// was opened again.
func (c *C) startsReopened(later func(func())) {
	c.tb.Helper()
	for _, kind := range limitKinds {
		for bound, b := range map[string]ojs.RateLimit{
			"rate":     {Rate: ojs.Rate{Limit: 1, Per: time.Hour}},
			"throttle": {Throttle: ojs.Rate{Limit: 1, Per: time.Hour}},
			"active":   {Concurrency: 1},
		} {
			name := storage.LimitName{Kind: kind, Name: string(kind) + "-" + bound}
			q := storage.Claim{Queues: []string{name.Name}, Types: []string{name.Name}, Max: 9, Remote: true}
			change := []func(*storage.Record){queue(name.Name), jobType(name.Name)}
			if own := b; kind == storage.LimitKey {
				own.Key = name.Name
				change = append(change, limit(own))
			} else {
				c.setLimit(name, b)
			}
			jobs := c.insert(c.job(change...), c.job(change...))
			q.Limits = new(storage.Limited)
			c.claims(q, jobs[0])
			if bound != "active" {
				c.settled(c.get(jobs[0]), c.to(isCompleted))
			}
			want := c.now.Add(time.Hour)
			if bound == "active" {
				want = time.Time{}
			}
			later(func() {
				c.claims(q)
				got, err := c.S.GetLimit(c.ctx, c.now, name)
				if c.noErr("GetLimit", err); !got.Opens.Equal(want) {
					c.failf("the %s of %s opens at %v, not %v", bound, kind, got.Opens, want)
				}
			})
		}
	}
}

// wantBack wants a query to list these jobs from its last page back.
func (c *C) wantBack(q storage.Query, want []string) {
	c.tb.Helper()
	page, err := c.S.List(c.ctx, q)
	for err == nil && page.Next != "" {
		q.Cursor = page.Next
		page, err = c.S.List(c.ctx, q)
	}
	c.noErr("List", err)
	got := ids(page.Records)
	for page.Prev != "" {
		q.Cursor = page.Prev
		page, err = c.S.List(c.ctx, q)
		c.noErr("List", err)
		got = append(ids(page.Records), got...)
	}
	if !slices.Equal(got, want) {
		c.failf("back, in the order %q, %d jobs are listed, not %d: %v, not %v",
			q.Order, len(got), len(want), short(got), short(want))
	}
}

func fairKey(key string) func(*storage.Record) {
	return func(r *storage.Record) { r.Fairness.Key = key }
}
