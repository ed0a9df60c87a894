package storagetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

var listCases = []Case{
	{"list-1", "List/Order", "Storage.List",
		"Jobs are listed in the order of their insertion, in every state.", needsNothing,
		func(c *C) {
			got := c.insert(c.job(), c.job(priority(9)), c.job(scheduled(time.Minute)), c.job(queue("other")))
			c.settled(c.one(), c.to(ojs.StateCompleted))
			c.pass(time.Minute)
			c.due()
			if l := c.list(storage.Query{}); !slices.Equal(l, got) {
				c.failf("listed %v, not %v", short(l), short(got))
			}
			active := c.insert(c.job(queue("runs")), c.job(queue("runs"), priority(9)))
			c.claims(storage.Claim{Queues: []string{"runs"}, Max: 2}, active[1], active[0])
			l := c.list(storage.Query{States: []ojs.State{ojs.StateActive}})
			if !slices.Equal(l, active) {
				c.failf("listed the active jobs as %v, not %v", short(l), short(active))
			}
		}},
	{"list-2", "List/Pages", "Storage.List",
		"Pages of any size list the same, and none has more than its limit.", needsNothing, func(c *C) {
			var want []string
			for range 25 {
				want = append(want, c.insert(c.job())...)
			}
			for _, limit := range []int{1, 2, 7, 24, 25, 26, 0, 5000} {
				var got []string
				q := storage.Query{Limit: limit}
				for {
					page, err := c.S.List(c.ctx, q)
					c.noErr("List", err)
					if limit > 0 && len(page.Records) > limit {
						c.failf("a page has %d jobs, its limit is %d", len(page.Records), limit)
					}
					got = append(got, ids(page.Records)...)
					if q.Cursor = page.Next; q.Cursor == "" {
						break
					}
				}
				if !slices.Equal(got, want) {
					c.failf("pages of %d list %v, not %v", limit, short(got), short(want))
				}
			}
		}},
	{"list-3", "List/Filters", "Query.Matches",
		"A listing has what its query selects, by state, queue, type, error type and times, and nothing else.", needsNothing, func(c *C) {
			for i, state := range ojs.AllStates() {
				c.pass(time.Minute)
				r := c.reach(state)
				if state.Terminal() || state == ojs.StateRetryable {
					continue
				}
				if state.Waiting() {
					c.settled(r, queue(fmt.Sprint("q", i%2)))
				}
			}
			c.insert(c.job(jobType("mail.send"), queue("m")), c.job(jobType("mail.bounce"), queue("m")),
				c.job(queue("m")), c.job(queue("m")))
			long := "smtp." + strings.Repeat("x", 400) // longer than the names of queues and types
			errorTypes := []string{"smtp.send", "smtp.bounce", long, long + "y"}
			for i, r := range c.claimOf(storage.Claim{Queues: []string{"m"}, Max: 4}) {
				c.settled(r, c.dead, func(r *storage.Record) {
					r.Error = &ojs.Failure{Type: errorTypes[i], At: c.now, Attempt: 1}
				})
			}
			var all []storage.Record
			for _, id := range c.list(storage.Query{}) {
				all = append(all, c.get(id))
			}
			for _, q := range []storage.Query{
				{States: []ojs.State{ojs.StateActive, ojs.StateCompleted}}, {Queues: []string{"q0", "m"}},
				{Types: []string{"mail.*"}}, {Types: []string{"mail.send", "x"}},
				{ErrorTypes: []string{"smtp.*"}}, {ErrorTypes: []string{"smtp.send"}},
				{ErrorTypes: []string{long}}, {ErrorTypes: []string{long + "*", "none"}},
				{CreatedFrom: epoch.Add(3 * time.Minute)}, {CreatedBefore: epoch.Add(3 * time.Minute)},
				{FinishedFrom: epoch.Add(time.Minute), FinishedBefore: epoch.Add(8 * time.Minute)},
				{FinishedFrom: epoch.Add(8 * time.Minute)},
				{States: []ojs.State{ojs.StateDiscarded}, Types: []string{"mail.*"}, Limit: 1},
				{DeadLetters: true, Types: []string{"mail.send"}},
				{Types: []string{"*"}, Limit: 3}, {Queues: []string{"none"}},
			} {
				var want []string
				for i := range all {
					if q.Matches(&all[i]) {
						want = append(want, all[i].ID)
					}
				}
				if got := c.list(q); !slices.Equal(got, want) {
					c.failf("%+v lists %v, not %v", q, short(got), short(want))
				}
				if len(q.ErrorTypes) == 0 {
					continue
				}
				// All of these are dead letters.
				q.States, q.Order = []ojs.State{ojs.StateDiscarded}, storage.OrderFinished
				slices.Reverse(want)
				if got := c.list(q); !slices.Equal(got, want) {
					c.failf("%+v lists %v, not %v", q, short(got), short(want))
				}
			}
		}},
	{"list-4", "List/UnderChange", "Page",
		"What is stored and selected throughout is listed exactly once, though jobs are added and deleted between the pages.", needsNothing, func(c *C) {
			var stay, go_ []string
			for range 20 {
				stay = append(stay, c.insert(c.job())...)
				r := c.job(queue("gone"))
				c.insert(r)
				c.settled(c.get(r.ID), c.to(ojs.StateCancelled))
				go_ = append(go_, r.ID)
			}
			var got []string
			q := storage.Query{Limit: 3}
			for i := 0; ; i++ {
				page, err := c.S.List(c.ctx, q)
				c.noErr("List", err)
				got = append(got, ids(page.Records)...)
				if q.Cursor = page.Next; q.Cursor == "" {
					break
				}
				if i < len(go_) {
					_, err := c.S.Delete(c.ctx, []string{go_[len(go_)-1-i]})
					c.noErr("Delete", err)
					_, err = c.S.Delete(c.ctx, []string{go_[i]})
					c.noErr("Delete", err)
				}
				if i < 5 {
					c.insert(c.job(queue("new")))
					c.settled(c.get(stay[i]), priority(i))
				}
			}
			for _, id := range stay {
				if n := count(got, id); n != 1 {
					c.failf("a job that was there throughout is listed %d times", n)
				}
			}
			for _, id := range got {
				if count(got, id) > 1 {
					c.failf("a job is listed twice")
				}
			}
		}},
	{"list-5", "List/DeadLetters", "OJS dead letter",
		"Dead letters are listed in the order of their death, and no other discarded job.", needsNothing,
		func(c *C) {
			c.insert(c.job(), c.job(), c.job(), c.job())
			a, b, d, other := c.one(), c.one(), c.one(), c.one()
			c.settled(d, c.dead)
			c.settled(other, c.to(ojs.StateDiscarded))
			c.settled(a, c.dead)
			c.settled(b, c.dead)
			want := []string{d.ID, a.ID, b.ID}
			for _, limit := range []int{0, 1, 2} {
				got := c.list(storage.Query{DeadLetters: true, Limit: limit})
				if !slices.Equal(got, want) {
					c.failf("listed %v, not %v", short(got), short(want))
				}
			}
		}},
	{"list-6", "List/Counts", "Storage.Counts",
		"Counts are those of the jobs of each queue, type and state, without zeros.", needsNothing,
		func(c *C) {
			for i, state := range ojs.AllStates() {
				for range i%3 + 1 {
					c.reach(state)
				}
				c.insert(c.job(queue(fmt.Sprint("q", i%2)), jobType(fmt.Sprint("t", i%3)), pending))
			}
			// An edit changes the type of a job, and versions of a type are one type.
			edited := c.insert(c.job(queue("edited"), version("2")), c.job(queue("edited")))
			c.settled(c.get(edited[0]), jobType("edited"))
			c.settled(c.get(edited[1]), version("3"))
			c.insert(c.job(queue("edited"), version("1")))
			want := make(map[storage.Count]bool)
			n := make(map[storage.Count]int)
			for _, id := range c.list(storage.Query{}) {
				r := c.get(id)
				n[storage.Count{Queue: r.Queue, Type: r.Type, State: r.State}]++
			}
			for k, v := range n {
				k.N = v
				want[k] = true
			}
			got, err := c.S.Counts(c.ctx)
			c.noErr("Counts", err)
			for _, k := range got {
				if !want[k] {
					c.failf("counted %+v, which is not so", k)
				}
				delete(want, k)
			}
			if len(want) > 0 {
				c.failf("not counted: %v", want)
			}
		}},
	{"list-8", "List/ManyPages", "Query.Limit", "No page has more than 1000 jobs, with any limit.",
		needsNothing, func(c *C) {
			const jobs = 1100
			var batch []storage.Record
			for range jobs {
				batch = append(batch, c.job())
			}
			_, err := c.insertBatch(batch...)
			c.noErr("Insert", err)
			for _, limit := range []int{0, 1001, 5000} {
				page, err := c.S.List(c.ctx, storage.Query{Limit: limit})
				c.noErr("List", err)
				if n := len(page.Records); n > 1000 || page.Next == "" {
					c.failf("a page with limit %d has %d jobs, and says that %q comes next", limit,
						n, page.Next)
				}
				if got := c.list(storage.Query{Limit: limit}); !slices.Equal(got, ids(batch)) {
					c.failf("listed %d jobs, not the %d in their order", len(got), jobs)
				}
			}
		}},
	{"list-7", "List/BadCursor", "Storage.List", "A cursor that is none of the storage's is refused.",
		needsNothing, func(c *C) {
			_, err := c.S.List(c.ctx, storage.Query{Cursor: "no cursor, surely"})
			c.wantErr("List", err, ojs.ErrInvalid)
		}},
}

func count(list []string, s string) (n int) {
	for _, other := range list {
		if other == s {
			n++
		}
	}
	return n
}

var deleteCases = []Case{
	{"delete-1", "Delete/Terminal", "Storage.Delete",
		"Jobs that have ended are deleted and counted; unknown ids count for nothing.", needsNothing,
		func(c *C) {
			var gone []string
			for _, s := range []ojs.State{ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded} {
				gone = append(gone, c.reach(s).ID)
			}
			stays := c.reach(ojs.StateCompleted)
			n, err := c.S.Delete(c.ctx, append(gone, "nobody"))
			c.noErr("Delete", err)
			if n != 3 {
				c.failf("deleted %d, not 3", n)
			}
			for _, id := range gone {
				_, err := c.S.Get(c.ctx, id)
				c.wantErr("Get of a deleted job", err, ojs.ErrNotFound)
			}
			if got := c.list(storage.Query{}); !slices.Equal(got, []string{stays.ID}) {
				c.failf("left %v", short(got))
			}

			// Jobs come to a queue that has lost all that it had, and others stay.
			forget := func(r storage.Record) {
				c.insert(r)
				active := c.claimOf(storage.Claim{Queues: []string{r.Queue}, Max: 1})[0]
				c.settled(active, c.to(ojs.StateCompleted))
				_, err := c.S.Delete(c.ctx, []string{r.ID})
				c.noErr("Delete", err)
			}
			move := func(id string) {
				r := c.get(id)
				r.Queue, r.Priority = "other", -1
				if s := c.settle(r); s.Err != nil {
					c.failf("Settle to another queue: %v", s.Err)
				}
			}
			has := func(name string, n int) {
				c.tb.Helper()
				counts, err := c.S.Counts(c.ctx)
				c.noErr("Counts", err)
				want := storage.Count{Queue: name, Type: "x", State: ojs.StateAvailable, N: n}
				if !slices.Contains(counts, want) {
					c.failf("%+v are there, not %+v", counts, want)
				}
			}
			first, second, third := c.job(queue("empty")), c.job(queue("empty")), c.job(queue("empty"))
			forget(c.job(queue("empty")))
			c.insert(first)
			has("empty", 1)
			move(first.ID)
			forget(c.job(queue("other")))
			has("other", 1)
			c.insert(second, third)
			has("empty", 2)
			c.order(storage.Claim{Queues: []string{"empty", "other"}}, second.ID, third.ID, first.ID)
		}},
	{"delete-2", "Delete/AllOrNothing", "Storage.Delete",
		"A job that has not ended fails the call, and nothing is deleted.", needsNothing, func(c *C) {
			ended := c.reach(ojs.StateCompleted)
			for _, s := range ojs.AllStates() {
				if s.Terminal() {
					continue
				}
				r := c.reach(s)
				n, err := c.S.Delete(c.ctx, []string{ended.ID, r.ID})
				c.wantErr("Delete of a job that is "+string(s), err, ojs.ErrTransition)
				var bad *ojs.TransitionError
				if !errors.As(err, &bad) || bad.ID != r.ID || bad.From != s || bad.To != "deleted" {
					c.failf("the error names another transition: %v", err)
				}
				if n != 0 {
					c.failf("deleted %d", n)
				}
				c.get(ended.ID)
				c.get(r.ID)
				c.settled(c.get(r.ID), c.to(ojs.StateCancelled))
			}
		}},
	{"delete-3", "Delete/FreesTheID", "Storage.Delete", "The id of a deleted job may be used again.",
		needsNothing, func(c *C) {
			r := c.reach(ojs.StateCompleted)
			_, err := c.S.Delete(c.ctx, []string{r.ID})
			c.noErr("Delete", err)
			again := c.job(func(n *storage.Record) { n.ID = r.ID })
			c.insert(again)
			c.order(storage.Claim{}, r.ID)
		}},
	{"prune-1", "Prune/Age", "Storage.Prune",
		"Jobs that finished before a time are pruned, those that finished first at first, up to Max.",
		needsNothing, func(c *C) {
			var want []string
			for range 5 {
				want = append(want, c.reach(ojs.StateCompleted).ID)
				c.pass(time.Minute)
			}
			c.reach(ojs.StateActive)
			p, err := c.S.Prune(c.ctx, storage.Prune{Before: epoch.Add(3 * time.Minute), Max: 2})
			c.noErr("Prune", err)
			if !slices.Equal(p.IDs, want[:2]) || p.Left != 3 || !p.Oldest.Equal(epoch.Add(2*time.Minute)) {
				c.failf("pruned %v, %d are left, the oldest is from %v", short(p.IDs), p.Left, p.Oldest)
			}
			p, err = c.S.Prune(c.ctx, storage.Prune{Before: epoch.Add(3 * time.Minute), Max: 10})
			c.noErr("Prune", err)
			if !slices.Equal(p.IDs, want[2:3]) || p.Left != 2 || !p.Oldest.Equal(epoch.Add(3*time.Minute)) {
				c.failf("then pruned %v, %d are left, the oldest is from %v", short(p.IDs), p.Left, p.Oldest)
			}
			if got := c.list(storage.Query{States: []ojs.State{ojs.StateCompleted}}); !slices.Equal(got,
				want[3:]) {
				c.failf("left %v, not %v", short(got), short(want[3:]))
			}
		}},
	{"prune-2", "Prune/Number", "Storage.Prune",
		"Beyond a number of them the jobs that finished first are pruned.", needsNothing, func(c *C) {
			var want []string
			for i := range 6 {
				want = append(want, c.reach([]ojs.State{ojs.StateCompleted, ojs.StateCancelled,
					ojs.StateDiscarded}[i%3]).ID)
				c.pass(time.Second)
			}
			p, err := c.S.Prune(c.ctx, storage.Prune{Before: epoch.Add(-time.Hour), Beyond: 2, Max: 10})
			c.noErr("Prune", err)
			if got := c.list(storage.Query{}); len(p.IDs) != 4 || !slices.Equal(got, want[4:]) {
				c.failf("pruned %d, left %v, not %v", len(p.IDs), short(got), short(want[4:]))
			}
		}},
	{"prune-3", "Prune/Selects", "Storage.Prune",
		"Dead letters are pruned by themselves, the others by their states, and what has not ended never.",
		needsNothing, func(c *C) {
			for _, s := range ojs.AllStates() {
				c.reach(s)
			}
			c.insert(c.job())
			dead := c.settled(c.one(), c.dead)
			left := func(p storage.Prune, n int) {
				c.tb.Helper()
				p.Max = 100
				got, err := c.S.Prune(c.ctx, p)
				c.noErr("Prune", err)
				if len(got.IDs) != n {
					c.failf("%+v pruned %d, not %d", p, len(got.IDs), n)
				}
			}
			later := c.now.Add(time.Hour)
			left(storage.Prune{States: []ojs.State{ojs.StateCancelled}, Before: later}, 1)
			left(storage.Prune{Before: later}, 2)
			c.get(dead.ID)
			left(storage.Prune{DeadLetters: true, Before: later}, 1)
			left(storage.Prune{Before: later}, 0)
			if n := len(c.list(storage.Query{})); n != 5 {
				c.failf("%d jobs are left, not the 5 that have not ended", n)
			}
		}},
	{"prune-5", "Prune/Period", "Storage.Prune",
		"A job that its unique policy counts after its end is not pruned, nor counted, before the policy's period is over.", needsNothing, func(c *C) {
			ended := func(f string, to func(*storage.Record), p *ojs.UniquePolicy) string {
				r := c.job()
				if p != nil {
					unique(f, *p)(&r)
				}
				c.insert(r)
				c.settled(c.one(), to)
				c.pass(time.Second)
				return r.ID
			}
			completed, all := []ojs.State{ojs.StateActive, ojs.StateCompleted}, ojs.AllStates()
			long := ended("a", c.to(ojs.StateCompleted),
				&ojs.UniquePolicy{States: completed, Period: time.Hour})
			ended("", c.to(ojs.StateCompleted), nil)
			brief := ended("b", c.to(ojs.StateDiscarded), &ojs.UniquePolicy{States: all, Period: time.Minute})
			ended("c", c.to(ojs.StateCompleted), &ojs.UniquePolicy{States: all}) // no period
			open := ended("d", c.to(ojs.StateCompleted),
				&ojs.UniquePolicy{Period: time.Hour}) // counts until its end
			month := ended("e", c.to(ojs.StateCancelled), &ojs.UniquePolicy{States: all, PeriodMonths: 1})
			keyed := ended("f", c.to(ojs.StateCompleted),
				&ojs.UniquePolicy{Key: "k", States: all, Period: time.Hour})
			last := ended("", c.to(ojs.StateCompleted), nil)
			dead := ended("g", c.dead, &ojs.UniquePolicy{States: all, Period: time.Hour})
			prune := func(p storage.Prune, n int, oldest time.Time, left ...string) {
				c.tb.Helper()
				p.Max = 100
				got, err := c.S.Prune(c.ctx, p)
				c.noErr("Prune", err)
				if len(got.IDs) != n || !got.Oldest.Equal(oldest) {
					c.failf("%+v pruned %d and left one of %v, not %d and %v", p, len(got.IDs),
						got.Oldest, n, oldest)
				}
				if list := c.list(storage.Query{}); !slices.Equal(list, left) {
					c.failf("%+v left %v, not %v", p, short(list), short(left))
				}
			}
			finished := c.get(last).FinishedAt
			prune(storage.Prune{Now: c.now, Beyond: 2}, 2, c.get(open).FinishedAt, long, brief, open, month,
				keyed, last, dead)
			prune(storage.Prune{Now: c.now, Beyond: 1}, 1, finished, long, brief, month, keyed, last, dead)
			created := c.get(brief).CreatedAt
			prune(storage.Prune{Now: created.Add(time.Minute - c.tick()), Beyond: 1}, 0, finished, long,
				brief, month, keyed, last, dead)
			prune(storage.Prune{Now: created.Add(time.Minute), Beyond: 1}, 1, finished, long, month,
				keyed, last, dead)
			later := c.now.Add(2 * time.Hour)
			prune(storage.Prune{DeadLetters: true, Now: c.now, Before: later}, 0, time.Time{}, long, month,
				keyed, last, dead)
			prune(storage.Prune{Now: later, Before: c.get(last).FinishedAt}, 2, finished, month, last, dead)
			prune(storage.Prune{Now: later, Before: later}, 1, time.Time{}, month, dead)
			prune(storage.Prune{DeadLetters: true, Now: later, Before: later}, 1, time.Time{}, month)
			prune(storage.Prune{Now: later.AddDate(0, 1, 0), Before: later}, 1, time.Time{})
		}},
	{"prune-6", "Prune/ResultTTL", "Storage.Prune",
		"A finished job is not pruned, nor counted, before its ResultTTL is over, which begins with its end.",
		needsNothing, func(c *C) {
			ended := func(ttl time.Duration, to func(*storage.Record),
				change ...func(*storage.Record)) storage.Record {
				r := c.job(change...)
				r.ResultTTL = ttl
				c.insert(r)
				c.pass(time.Minute) // before its end
				return c.settled(c.one(), to)
			}
			completed, all := c.to(ojs.StateCompleted), ojs.AllStates()
			long := ended(time.Hour, completed)
			brief := ended(time.Minute, c.to(ojs.StateDiscarded))
			forever := ended(ojs.KeepForever, completed)
			ended(ojs.NoResult, completed)
			ended(0, completed)
			withResult := ended(10*time.Minute, func(r *storage.Record) {
				completed(r)
				r.Result = json.RawMessage("7")
			})
			sooner := ended(30*time.Minute, completed,
				unique("a", ojs.UniquePolicy{States: all, Period: 10 * time.Minute}))
			later := ended(10*time.Minute, completed,
				unique("b", ojs.UniquePolicy{States: all, Period: 40 * time.Minute}))
			dead := ended(10*time.Minute, c.dead)
			waiting := c.job(expires(2 * time.Minute))
			waiting.ResultTTL = 10 * time.Minute
			c.insert(waiting)
			c.pass(2 * time.Minute)
			c.due()
			expired := c.wantState(waiting.ID, ojs.StateDiscarded)
			prune := func(now time.Time, want ...storage.Record) {
				c.tb.Helper()
				for _, dead := range []bool{false, true} {
					p, err := c.S.Prune(c.ctx, storage.Prune{DeadLetters: dead, Now: now,
						Before: now.Add(time.Second), Max: 100})
					c.noErr("Prune", err)
					var wanted []string
					for _, r := range want {
						if r.DeadLettered() == dead {
							wanted = append(wanted, r.ID)
						}
					}
					if !slices.Equal(p.IDs, wanted) || p.Left != 0 {
						c.failf("at %v pruned %v and left %d, not %v and 0", now, short(p.IDs), p.Left,
							short(wanted))
					}
				}
			}
			p, err := c.S.Prune(c.ctx, storage.Prune{Now: brief.FinishedAt, Beyond: 1, Max: 100})
			c.noErr("Prune", err)
			if len(p.IDs) != 1 || p.Left != 1 {
				c.failf("pruned %v and left %d of the two that are not kept", short(p.IDs), p.Left)
			}
			p, err = c.S.Prune(c.ctx, storage.Prune{Now: brief.FinishedAt.Add(time.Minute - c.tick()),
				Before: c.now.Add(time.Hour), Max: 100})
			c.noErr("Prune", err)
			if len(p.IDs) != 1 || p.Left != 0 {
				c.failf("pruned %v and left %d, not the one that is not kept", short(p.IDs), p.Left)
			}
			prune(brief.FinishedAt.Add(time.Minute), brief)
			prune(dead.FinishedAt.Add(10*time.Minute), withResult, dead)
			prune(expired.FinishedAt.Add(10*time.Minute), expired)
			prune(sooner.FinishedAt.Add(30*time.Minute), sooner)
			prune(later.CreatedAt.Add(40*time.Minute), later)
			prune(long.FinishedAt.Add(time.Hour - c.tick()))
			prune(long.FinishedAt.Add(time.Hour), long)
			prune(long.FinishedAt.AddDate(100, 0, 0))
			if left := c.list(storage.Query{}); !slices.Equal(left, []string{forever.ID}) {
				c.failf("left %v, not the one that is kept forever", short(left))
			}
			least := ended(c.tick(), completed)
			prune(least.FinishedAt)
			prune(least.FinishedAt.Add(c.tick()), least)
		}},
	{"prune-7", "Prune/Clocks", "Storage.Prune",
		"Jobs are pruned in the order of FinishedAt, though they ended in another: clocks differ, and go back.", needsNothing, func(c *C) {
			at := make(map[string]time.Time)
			var order []string // of their times
			for _, minute := range []int{5, 1, 7, 3, 3, 6, 2, 8, 4} {
				id := c.settled(c.reach(ojs.StateActive), c.to(ojs.StateCompleted), func(r *storage.Record) {
					r.FinishedAt = epoch.Add(time.Duration(minute) * time.Minute)
				}).ID
				at[id] = epoch.Add(time.Duration(minute) * time.Minute)
				order = append(order, id)
			}
			slices.SortStableFunc(order, func(a, b string) int { return at[a].Compare(at[b]) })
			prune := func(p storage.Prune, n int) {
				c.tb.Helper()
				out, err := c.S.Prune(c.ctx, p)
				c.noErr("Prune", err)
				if !slices.Equal(out.IDs, order[:n]) || out.Left != len(order)-n ||
					!out.Oldest.Equal(at[order[n]]) {
					c.failf("%+v pruned %v, left %d, the oldest of %v, not %v, %d, %v", p, short(out.IDs),
						out.Left, out.Oldest, short(order[:n]), len(order)-n, at[order[n]])
				}
				order = order[n:]
			}
			prune(storage.Prune{Before: epoch.Add(time.Hour), Max: 0}, 0)
			prune(storage.Prune{Before: epoch.Add(4 * time.Minute), Max: 3}, 3)
			prune(storage.Prune{Before: epoch.Add(4 * time.Minute), Max: 10}, 1)
			prune(storage.Prune{Beyond: 3, Max: 10}, 2)
		}},
	{"prune-8", "Prune/Spare", "Storage.Prune",
		"Number is no reason to prune a job that finished at Spare or later; age still is.", needsNothing,
		func(c *C) {
			var order []string
			for range 8 {
				order = append(order, c.reach(ojs.StateCompleted).ID)
				c.pass(time.Minute)
			}
			prune := func(p storage.Prune, n int) {
				c.tb.Helper()
				p.Max = 100
				out, err := c.S.Prune(c.ctx, p)
				c.noErr("Prune", err)
				if !slices.Equal(out.IDs, order[:n]) || out.Left != len(order)-n {
					c.failf("%+v pruned %v and left %d, not %v and %d", p, short(out.IDs), out.Left,
						short(order[:n]), len(order)-n)
				}
				order = order[n:]
			}
			prune(storage.Prune{Beyond: 2, Spare: epoch}, 0)
			prune(storage.Prune{Beyond: 2, Spare: epoch.Add(3 * time.Minute)}, 3)
			prune(storage.Prune{Beyond: 2, Spare: epoch.Add(3 * time.Minute),
				Before: epoch.Add(4 * time.Minute)}, 1)
			prune(storage.Prune{Beyond: 2, Spare: epoch.Add(time.Hour)}, 2)
		}},
	{"prune-9", "Prune/ClockGoesBack", "Storage.Prune",
		"A job is kept again if Prune.Now goes back before the end of its time, however often.", needsNothing,
		func(c *C) {
			var order []string
			end := c.now
			for minute := range 5 {
				r := c.job()
				r.ResultTTL = time.Duration(minute+1) * time.Minute
				c.insert(r)
				order = append(order, c.settled(c.one(), c.to(ojs.StateCompleted)).ID)
			}
			deadOne := c.job()
			deadOne.ResultTTL = 3 * time.Minute
			c.insert(deadOne)
			c.settled(c.one(), c.dead)
			prune := func(minutes int, p storage.Prune, n, left int) {
				c.tb.Helper()
				p.Now = end.Add(time.Duration(minutes) * time.Minute)
				p.Before = p.Now.Add(time.Second)
				out, err := c.S.Prune(c.ctx, p)
				c.noErr("Prune", err)
				if len(out.IDs) != n || out.Left != left {
					c.failf("%d minutes after the end pruned %v and left %d, not %d and %d", minutes,
						short(out.IDs), out.Left, n, left)
				}
			}
			dead := storage.Prune{DeadLetters: true}
			for range 2 {
				prune(10, storage.Prune{}, 0, 5)
				prune(10, dead, 0, 1)
				prune(4, storage.Prune{}, 0, 4)
				prune(3, storage.Prune{}, 0, 3)
				prune(2, dead, 0, 0)
				prune(1, storage.Prune{}, 0, 1)
				prune(0, storage.Prune{}, 0, 0)
			}
			prune(10, storage.Prune{Max: 1}, 1, 4)
			prune(2, storage.Prune{Max: 9}, 1, 0)
			prune(2, storage.Prune{DeadLetters: true, Max: 9}, 0, 0)
			if list := c.list(storage.Query{}); !slices.Equal(list, append(order[2:], deadOne.ID)) {
				c.failf("left %v", short(list))
			}
			prune(10, storage.Prune{Max: 9}, 3, 0)
			prune(3, storage.Prune{DeadLetters: true, Max: 9}, 1, 0)
			// A released dead letter that is retried is kept anew when it ends.
			for i, sameJob := range []bool{false, true} {
				r := c.job()
				r.ResultTTL = time.Hour
				c.insert(r)
				r = c.settled(c.one(), c.dead)
				prune(100, dead, 0, 1)
				r.DeadLetteredAt = time.Time{}
				c.to(ojs.StateAvailable)(&r)
				changes := []storage.Change{{Record: r, AttemptFieldsOnly: sameJob}}
				_, err := c.S.Settle(c.ctx, c.now, changes, nil)
				c.noErr("Settle", err)
				c.settled(c.one(), c.to(ojs.StateCompleted))
				prune(0, storage.Prune{}, 0, 0)
				prune(60, storage.Prune{}, 0, i+1)
			}
		}},
	{"prune-10", "Prune/Workflow", "Storage.Prune",
		"A job is not pruned, nor counted, while its workflow is stored and has not ended, or is kept itself.",
		needsNothing, func(c *C) {
			record := c.job()
			record.Priority, record.ResultTTL = -1, 3*time.Hour // it is claimed last
			record.Meta = map[string]any{"workflow_id": record.ID}
			c.insert(record)
			ended := func(workflow any, ttl time.Duration) storage.Record {
				c.tb.Helper()
				r := c.job()
				r.ResultTTL = ttl
				r.Meta = map[string]any{"a": "b", "workflow_id": workflow}
				c.insert(r)
				return c.settled(c.one(), c.to(ojs.StateCompleted))
			}
			step := ended(record.ID, time.Minute)
			short1 := ended(record.ID, 0)
			none := ended(record.ID, ojs.NoResult)
			another := ended(step.ID, time.Minute) // which has ended, and keeps it as long as itself
			gone := ended("01890a5d-ac96-774b-bcce-b302099a8057", time.Minute)
			odd := ended(7.0, 0)
			prune := func(after time.Duration, left int, want ...storage.Record) {
				c.tb.Helper()
				now := c.now.Add(after)
				p, err := c.S.Prune(c.ctx, storage.Prune{Now: now, Before: now.Add(time.Second), Max: 100})
				c.noErr("Prune", err)
				var ids []string
				for _, r := range want {
					ids = append(ids, r.ID)
				}
				if !slices.Equal(p.IDs, ids) || p.Left != left {
					c.failf("%v after the ends pruned %v and left %d, not %v and %d", after, short(p.IDs),
						p.Left, short(ids), left)
				}
			}
			prune(0, 0, odd)
			prune(time.Minute, 0, another, gone)
			prune(100*time.Hour, 0) // the workflow has not ended
			c.pass(100 * time.Hour)
			c.settled(c.one(), c.to(ojs.StateCompleted))
			prune(2*time.Hour, 0) // it is kept
			p := 4 * time.Hour    // the hour from the prune before is over, too
			prune(p, 0, step, short1, none, record)

			// Each time that its own time is over, a job is kept as long again as it was
			// since its end. A job that comes back is kept only for its next end.
			begin := c.now
			workflow := c.job(priority(-1), func(r *storage.Record) { r.ResultTTL = ojs.NoResult })
			c.insert(workflow)
			of := func(r *storage.Record) {
				r.ResultTTL, r.Meta = ojs.NoResult, map[string]any{"workflow_id": workflow.ID}
			}
			waits := c.insert(c.job(of, scheduled(time.Hour)))[0]
			four, three := ended(workflow.ID, time.Minute), ended(workflow.ID, 3*time.Minute)
			c.insert(c.job(of))
			back := c.settled(c.one(), c.to(ojs.StateDiscarded))
			for _, s := range []time.Duration{50, 60, 90, 120, 150} {
				prune(s*time.Second, 0)
			}
			c.pass(160 * time.Second)
			back = c.settled(c.settled(back, c.to(ojs.StateAvailable)), c.to(ojs.StateCancelled))
			later := c.settled(c.get(waits), c.to(ojs.StateCancelled))
			workflow = c.settled(c.one(), c.to(ojs.StateCompleted))
			at := func(s time.Duration) time.Duration { return begin.Add(s * time.Second).Sub(c.now) }
			prune(at(179), 0, back, later, workflow)
			prune(at(180), 0, three)
			prune(at(239), 0)
			prune(at(240), 0, four)
		}},
	{"prune-4", "Prune/OneMoment", "Storage.Prune",
		"Of jobs that finished at the same moment, those are pruned first that ended first.", needsNothing,
		func(c *C) {
			var want []string
			replace := func(f string) func(*storage.Record) {
				return unique(f, ojs.UniquePolicy{OnConflict: ojs.ConflictReplace})
			}
			// In every part the jobs are inserted in another order than that in which
			// they end.
			late, early := c.job(queue("d"), scheduled(time.Minute)), c.job(queue("d"))
			second, first := c.job(queue("e"), expires(3*time.Minute)),
				c.job(queue("e"), expires(2*time.Minute))
			full, equal := c.job(queue("f")), c.job(queue("g"), replace("stored"))
			c.insert(late, early, second, first, full, equal)
			c.pass(time.Minute)
			c.due()
			c.pass(2 * time.Minute)

			var changes []storage.Change
			for _, r := range []storage.Record{c.reach(ojs.StateActive), c.reach(ojs.StateActive),
				c.reach(ojs.StateActive)} {
				c.to(ojs.StateCompleted)(&r)
				changes = append(changes, storage.Change{Record: r, AttemptFieldsOnly: true})
			}
			slices.Reverse(changes)
			_, err := c.S.Settle(c.ctx, c.now, changes, nil)
			c.noErr("Settle", err)
			for _, ch := range changes {
				want = append(want, ch.Record.ID)
			}

			c.due()
			want = append(want, first.ID, second.ID)

			batch := []storage.Insert{
				{Record: c.job(queue("d")), MaxDepth: 2, DropOldest: true},
				{Record: c.job(queue("f")), MaxDepth: 1, DropOldest: true},
				{Record: c.job(queue("d")), MaxDepth: 2, DropOldest: true},
				{Record: c.job(queue("g"), replace("batch"))},
				{Record: c.job(queue("g"), replace("batch"))},
				{Record: c.job(queue("g"), replace("stored"))},
			}
			out, err := c.S.Insert(c.ctx, c.now, batch, nil)
			c.noErr("Insert", err)
			var replaced, dropped []string
			for _, in := range out {
				replaced, dropped = append(replaced, ids(in.Replaced)...), append(dropped, ids(in.Dropped)...)
			}
			if !slices.Equal(replaced, []string{batch[3].Record.ID, equal.ID}) ||
				!slices.Equal(dropped, []string{full.ID, early.ID, late.ID}) {
				c.failf("Insert replaced %v and dropped %v", short(replaced), short(dropped))
			}
			want = slices.Concat(want, replaced, dropped)

			for i, id := range want {
				p, err := c.S.Prune(c.ctx, storage.Prune{Before: c.now.Add(time.Second), Max: 1})
				c.noErr("Prune", err)
				if _, err := c.S.Get(c.ctx, id); len(p.IDs) != 1 || !errors.Is(err, ojs.ErrNotFound) {
					c.failf("job %d of %v to end is none of the %d that were pruned", i,
						short(want), len(p.IDs))
				}
			}
		}},
}

var queueCases = []Case{
	{"queue-1", "Queue/Pause", "storage.QueueStore",
		"A paused queue takes jobs and hands out none, by any claim; other queues are not held up.",
		needsNothing, func(c *C) {
			before := c.insert(c.job(queue("p"), priority(9)), c.job())
			was, err := c.S.SetQueueState(c.ctx, "p", ojs.QueuePaused)
			c.noErr("SetQueueState", err)
			if was != ojs.QueueActive {
				c.failf("the state before is %q", was)
			}
			after := c.insert(c.job(queue("p")), c.job(queue("p"), scheduled(time.Minute)))
			c.pass(time.Minute)
			if d := c.due(); len(d.Promoted) != 1 {
				c.failf("Due promoted %d jobs of a paused queue", len(d.Promoted))
			}
			c.order(storage.Claim{}, before[1])
			c.order(storage.Claim{Queues: []string{"p"}})
			if was, err = c.S.SetQueueState(c.ctx, "p", ojs.QueueActive); err != nil ||
				was != ojs.QueuePaused {
				c.failf("the state before is %q, %v", was, err)
			}
			c.order(storage.Claim{}, before[0], after[0], after[1])
		}},
	{"queue-2", "Queue/Drain", "storage.QueueStore",
		"A draining queue hands out its jobs and refuses new ones, with the whole batch.", needsNothing,
		func(c *C) {
			there := c.insert(c.job())
			_, err := c.S.SetQueueState(c.ctx, "active", ojs.QueueActive) // which it is
			c.noErr("SetQueueState", err)
			_, err = c.S.SetQueueState(c.ctx, "q", ojs.QueueDraining)
			c.noErr("SetQueueState", err)
			for _, s := range []ojs.QueueState{ojs.QueuePaused, ojs.QueueActive} { // it stays as it is
				_, err := c.S.SetQueueState(c.ctx, "beside", s)
				c.noErr("SetQueueState", err)
			}
			like := []storage.Insert{{Record: c.job(), IDIsNew: true}}
			_, err = c.S.Insert(c.ctx, c.now, like, nil)
			c.wantErr("Insert of another job like the one that is there", err, ojs.ErrQueueDraining)
			refused := func(batch ...storage.Record) {
				c.tb.Helper()
				_, err := c.insertBatch(batch...)
				var full *ojs.QueueError
				if !errors.As(err, &full) || full.Err != ojs.ErrQueueDraining || full.Queue != "q" {
					c.failf("Insert into a draining queue returned %v", err)
				}
			}
			refused(c.job(queue("other")), c.job())
			equal := func(r *storage.Record) {
				unique("f", ojs.UniquePolicy{OnConflict: ojs.ConflictIgnore})(r)
				r.Fingerprint = "f"
			}
			other := c.insert(c.job(queue("other"), equal))
			refused(c.job(equal)) // which would not be stored
			c.order(storage.Claim{}, append(there, other...)...)
		}},
	{"queue-3", "Queue/States", "storage.QueueStore",
		"States are kept for queues without jobs, listed unless active, and others refused.", needsNothing,
		func(c *C) {
			for name, s := range map[string]ojs.QueueState{"a": ojs.QueuePaused, "b": ojs.QueueDraining,
				"c": ojs.QueueActive} {
				_, err := c.S.SetQueueState(c.ctx, name, s)
				c.noErr("SetQueueState", err)
			}
			got, err := c.S.QueueStates(c.ctx)
			c.noErr("QueueStates", err)
			if len(got) != 2 || got["a"] != ojs.QueuePaused || got["b"] != ojs.QueueDraining {
				c.failf("the states are %v", got)
			}
			_, err = c.S.SetQueueState(c.ctx, "a", "asleep")
			c.wantErr("SetQueueState", err, ojs.ErrInvalid)
		}},
}
