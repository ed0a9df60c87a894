package storagetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// bothWays wants a query to list these jobs, by pages of several sizes, and to list the
// same from the last page back to the first.
func (c *C) bothWays(q storage.Query, want []string) {
	c.tb.Helper()
	for _, q.Limit = range []int{0, 1, 2, 5} {
		c.wantList(q, want)
		var pages [][]string
		var last storage.Page
		for q.Cursor = ""; ; q.Cursor = last.Next {
			var err error
			last, err = c.S.List(c.ctx, q)
			c.noErr("List", err)
			if pages = append(pages, ids(last.Records)); last.Next == "" {
				break
			}
		}
		var back []string
		for n := 1; ; n++ {
			back = slices.Concat(ids(last.Records), back)
			if last.Prev == "" {
				break
			}
			q.Cursor = last.Prev
			var err error
			last, err = c.S.List(c.ctx, q)
			c.noErr("List back", err)
			if len(last.Records) > 0 && last.Next == "" {
				c.failf("a page before another has no Next")
			}
			if q.Limit > 0 && len(last.Records) > q.Limit || n > len(pages)+1 {
				c.failf("page %d from the end has %d jobs, of %d", n, len(last.Records), q.Limit)
			}
		}
		if !slices.Equal(back, want) {
			c.failf("%+v lists %v from the last page back, not %v", q, short(back), short(want))
		}
		q.Cursor = ""
	}
}

// endsAt ends jobs of a new queue at twice these times after the epoch, in this order,
// and deletes them. It wants them to be listed by their ends before.
func (c *C) endsAt(s ojs.State, after ...time.Duration) {
	c.tb.Helper()
	recs := make([]storage.Record, len(after))
	for i := range recs {
		recs[i] = c.job(queue("ends"))
	}
	c.insertAll(recs)
	recs = c.claimOf(storage.Claim{Queues: []string{"ends"}, Max: len(recs)})
	c.settleAll(recs, func(i int, r *storage.Record) {
		c.to(s)(r)
		r.FinishedAt = epoch.Add(after[i]).Add(after[i])
		recs[i].FinishedAt = r.FinishedAt
	})
	slices.Reverse(recs)
	slices.SortStableFunc(recs, func(a, b storage.Record) int { return b.FinishedAt.Compare(a.FinishedAt) })
	c.bothWays(storage.Query{Order: storage.OrderFinished}, ids(recs))
	n, err := c.S.Delete(c.ctx, ids(recs))
	c.noErr("Delete", err)
	if n != len(recs) {
		c.failf("Delete of %d jobs returned %d", len(recs), n)
	}
}

var orderCases = []Case{
	{"list-9", "List/Newest", "Query.Order",
		"The newest order is the reverse of the insertion, of dead letters that of their death.",
		needsNothing, func(c *C) {
			var all []string
			for range 70 {
				all = append(all, c.insert(c.job())...)
			}
			var dead []string
			for i, id := range slices.Backward(all) {
				switch r := c.get(id); i % 3 {
				case 0:
					c.settled(r, c.dead)
					dead = append(dead, id)
				case 1:
					c.settled(r, c.to(ojs.StateCancelled))
				}
			}
			for i := 5; i < 40; i += 7 { // holes
				r := c.get(all[i])
				if !r.State.Terminal() {
					c.settled(r, c.to(ojs.StateCancelled))
				}
				_, err := c.S.Delete(c.ctx, []string{r.ID})
				c.noErr("Delete", err)
				dead = slices.DeleteFunc(dead, func(id string) bool { return id == r.ID })
				all[i] = ""
			}
			all = slices.DeleteFunc(all, func(id string) bool { return id == "" })
			slices.Reverse(all)
			slices.Reverse(dead)
			c.bothWays(storage.Query{Order: storage.OrderNewest}, all)
			c.bothWays(storage.Query{Order: storage.OrderNewest, DeadLetters: true}, dead)
		}},
	{"list-10", "List/Finished", "Query.Order",
		"The finished order has the jobs that have ended, the latest end first, kept ones included.",
		needsNothing, func(c *C) {
			var half, late []time.Duration
			for i := range 64 {
				half = append(half, time.Duration(i)*time.Minute)
			}
			late = append(slices.Clone(half), 64*time.Minute, 10*time.Minute+time.Second)
			c.endsAt(ojs.StateCompleted, append(half, 32*time.Minute+time.Second)...)
			c.endsAt(ojs.StateCancelled, late...)
			const far = 280 * 365 * 24 * time.Hour
			c.endsAt(ojs.StateDiscarded, time.Hour, far, -far, 0, far, -far)

			var recs []storage.Record
			for i := range 24 {
				r := c.job()
				switch i % 4 {
				case 1:
					r.ResultTTL = time.Hour
				case 2:
					r.Unique = &ojs.UniquePolicy{States: ojs.AllStates(),
						Period: time.Duration(i) * time.Minute}
					r.Fingerprint = r.ID
				}
				recs = append(recs, r)
			}
			c.insert(recs...)
			c.insert(c.job(queue("open")))
			to := []func(*storage.Record){c.to(ojs.StateCompleted), c.to(ojs.StateCancelled),
				c.to(ojs.StateDiscarded), c.dead}
			type end struct {
				id   string
				kind int
				at   time.Time
			}
			var ends []end
			for i := range recs {
				kind := i % 5 % 4
				at := epoch.Add(time.Duration(i*7%10) * time.Minute) // several at a time, and not in order
				r := c.claimOf(storage.Claim{Queues: []string{"q"}, Max: 1})[0]
				c.settled(r, to[kind], func(r *storage.Record) {
					if r.FinishedAt = at; kind == 3 {
						r.DeadLetteredAt = at
					}
				})
				ends = append(ends, end{r.ID, kind, at})
				if i == 12 {
					_, err := c.S.Prune(c.ctx, storage.Prune{Now: epoch.Add(14 * time.Minute), Max: 1,
						Before: epoch.Add(-time.Hour)})
					c.noErr("Prune", err)
				}
			}
			slices.Reverse(ends)
			slices.SortStableFunc(ends, func(a, b end) int { return b.at.Compare(a.at) })
			of := func(kinds ...int) (ids []string) {
				for _, e := range ends {
					if slices.Contains(kinds, e.kind) {
						ids = append(ids, e.id)
					}
				}
				return ids
			}
			q := storage.Query{Order: storage.OrderFinished}
			c.bothWays(q, of(0, 1, 2, 3))
			q.States = []ojs.State{ojs.StateCancelled}
			c.bothWays(q, of(1))
			q.States = []ojs.State{ojs.StateDiscarded, ojs.StateCompleted, ojs.StateActive}
			c.bothWays(q, of(0, 2, 3))
			q.States, q.DeadLetters = nil, true
			c.bothWays(q, of(3))
			_, err := c.S.Prune(c.ctx, storage.Prune{Now: epoch.Add(14 * time.Minute), Max: 5,
				Before: epoch.Add(time.Hour)})
			c.noErr("Prune", err)
			ends = slices.DeleteFunc(ends, func(e end) bool {
				_, err := c.S.Get(c.ctx, e.id)
				return err != nil
			})
			q.DeadLetters = false
			c.bothWays(q, of(0, 1, 2, 3))
		}},
	{"list-11", "List/Due", "Query.Order",
		"The due order has the jobs that wait for a time, in the order in which Due brings them.",
		needsNothing, func(c *C) {
			var recs []storage.Record
			for i := range 40 {
				recs = append(recs, c.job(scheduled(time.Duration(10+i*7%10)*time.Minute)))
			}
			recs = append(recs, c.job(scheduled(time.Hour), expires(11*time.Minute)),
				c.job(pending, expires(13*time.Minute)),
				c.job(expires(15*time.Minute), queue("late")), c.job(pending), c.job(queue("other")),
				c.job(pending, func(r *storage.Record) {
					r.ExpiresAt = time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)
				}))
			// of which some join earlier rounds
			for _, key := range []string{"a", "a", "a", "b", "b", "c"} {
				recs = append(recs, c.job(fair(key), expires(17*time.Minute), queue("fair")))
			}
			c.insert(recs...)
			c.insert(c.job(queue("run")), c.job(queue("fail")))
			c.claimOf(storage.Claim{Queues: []string{"run"}, Max: 1})
			c.settled(c.claimOf(storage.Claim{Queues: []string{"fail"}, Max: 1})[0], c.to(ojs.StateRetryable))
			c.settled(c.get(recs[3].ID), func(r *storage.Record) {
				r.ScheduledAt = epoch.Add(12 * time.Minute)
			})
			got := c.list(storage.Query{Order: storage.OrderDue})
			c.bothWays(storage.Query{Order: storage.OrderDue}, got)
			c.bothWays(storage.Query{Order: storage.OrderDue, States: []ojs.State{ojs.StateRetryable}},
				got[len(got)-1:])
			var want []string
			c.pass(2 * time.Hour)
			for {
				d, err := c.S.Due(c.ctx, c.now, 1, nil)
				c.noErr("Due", err)
				if all := slices.Concat(d.Promoted, d.Expired, d.Stalled); len(all) > 0 {
					want = append(want, all[0].ID)
					continue
				}
				break
			}
			if !slices.Equal(got, want) {
				c.failf("listed %v, not %v", short(got), short(want))
			}
		}},
	{"list-12", "List/Claim", "Query.Order",
		"The claim order has the available jobs, in the order in which claims take them.", needsNothing,
		func(c *C) {
			var recs []storage.Record
			for i := range 40 {
				r := c.job(queue(fmt.Sprint("q", i%3)), jobType(fmt.Sprint("t", i%2)), priority(i*7%5-2))
				if i%6 == 0 {
					limited(fmt.Sprint("key", i%4))(&r)
				}
				recs = append(recs, r)
			}
			// rounds of more jobs than a page has
			for i := range 9 {
				recs = append(recs, c.job(fair(fmt.Sprint("tenant", i%3)), queue("fair")))
			}
			late := c.job(jobType("late"), priority(1), expires(time.Hour))
			recs = append(recs, c.job(pending), c.job(scheduled(time.Minute)), late)
			c.insert(recs...)
			moved := c.get(recs[0].ID)
			c.settled(moved, priority(moved.Priority+1))
			c.reach(ojs.StateActive)
			began := c.now
			c.now = late.ExpiresAt
			if met := c.claimOf(storage.Claim{Types: []string{"late"}, Max: 1}); len(met) > 0 {
				c.failf("a claim has taken a job whose deadline has come")
			}
			c.now = began
			got := c.list(storage.Query{Order: storage.OrderClaim})
			if count(got, late.ID) != 1 {
				c.failf("a job that a claim has met at its deadline is listed %d times", count(got, late.ID))
			}
			c.bothWays(storage.Query{Order: storage.OrderClaim}, got)
			var want []string
			for _, id := range got {
				if c.get(id).Queue == "q1" {
					want = append(want, id)
				}
			}
			c.bothWays(storage.Query{Order: storage.OrderClaim, Queues: []string{"q1"}}, want)
			c.order(storage.Claim{}, got...)
		}},
	{"list-13", "List/Where", "Query.Where",
		"Where selects among what the rest of the query selects, and a page says how far it looked.",
		needsNothing, func(c *C) {
			var want, all []string
			for i := range 30 {
				r := c.job(queue(fmt.Sprint("q", i%2)), priority(i))
				c.insert(r)
				if all = append(all, r.ID); i%2 == 0 && i%3 == 0 {
					want = append(want, r.ID)
				}
			}
			q := storage.Query{Queues: []string{"q0"}, Where: func(r *storage.Record) bool {
				if r.Queue != "q0" {
					c.failf("Where was asked of a job of queue %s", r.Queue)
				}
				return r.Priority%3 == 0
			}}
			for _, q.Limit = range []int{0, 1, 2, 7} {
				c.wantList(q, want)
			}
			for _, q := range []storage.Query{q, {}, {Limit: 3}, {Queues: []string{"none"}}} {
				looked := 0
				for more := true; more; more = q.Cursor != "" {
					page, err := c.S.List(c.ctx, q)
					c.noErr("List", err)
					if page.Looked < len(page.Records) {
						c.failf("a page has %d jobs and has looked at %d", len(page.Records), page.Looked)
					}
					looked += page.Looked
					q.Cursor = page.Next
				}
				if most := len(all); looked > 2*most || looked < len(want) && q.Queues == nil {
					c.failf("a listing of %d jobs has looked at %d", most, looked)
				}
			}
		}},
	{"list-14", "List/BackUnderChange", "Page.Prev",
		"In each order and direction, a job that keeps its place is listed once though others come and go.",
		needsNothing, func(c *C) {
			for _, o := range allOrders {
				for _, back := range []bool{false, true} {
					c.pagesUnderChange(o, back)
				}
			}
		}},
	{"list-15", "List/UnknownOrder", "Query.Order",
		"An order that is none is ErrUnsupported.",
		needsNothing, func(c *C) {
			c.insert(c.job())
			_, err := c.S.List(c.ctx, storage.Query{Order: "sideways"})
			c.wantErr("List", err, ojs.ErrUnsupported)
		}},
	{"list-16", "List/Workflow", "Query.Workflow",
		"The jobs of a workflow, and the records of workflows, are listed in each order and state.",
		needsNothing, func(c *C) {
			member := func(id string) func(*storage.Record) {
				return func(r *storage.Record) { r.Meta = map[string]any{"workflow_id": id} }
			}
			number := func(r *storage.Record) { r.Meta = map[string]any{"workflow_id": 1} }
			long := "no-job-" + strings.Repeat("long", 100)
			for range 3 {
				r := c.job(jobType("flow"), queue("flow"))
				member(r.ID)(&r)
				of := member(r.ID)
				deep := func(d *storage.Record) {
					in := map[string]any{"workflow_id": "no-job"}
					d.Meta = map[string]any{"a": in, "b": "\x00", "workflow_id": r.ID}
				}
				c.insert(r, c.job(), c.job(deep), c.job(of, queue("flow")), c.job(of, scheduled(time.Minute)),
					c.job(of, queue("flow")), c.job(member("no-job"), queue("flow")),
					c.job(member(long)), c.job(member(long+"er")), c.job(number))
			}
			claimed := c.claimOf(storage.Claim{Queues: []string{"flow"}, Max: 7})
			c.settled(claimed[0], c.to(ojs.StateCompleted))
			failed := func(r *storage.Record) { r.Error = &ojs.Failure{Type: "e", At: c.now, Attempt: 1} }
			c.settled(claimed[1], c.dead, failed)
			c.settled(claimed[2], c.dead)
			c.settled(claimed[3], c.to(ojs.StateRetryable))
			c.settled(claimed[4], c.dead, failed)
			all := c.list(storage.Query{})
			moved := c.settled(c.get(all[1]), member("no-job")) // an edit makes it a member, and another
			c.settled(moved, member(all[0]))
			_, err := c.S.Delete(c.ctx, []string{claimed[2].ID})
			c.noErr("Delete", err)
			anew := c.job(jobType("flow"), queue("anew")) // dead letters that begin anew stay in their workflow
			member(anew.ID)(&anew)
			c.insert(anew, c.job(member(anew.ID), queue("anew")))
			for _, r := range c.claimOf(storage.Claim{Queues: []string{"anew"}, Max: 2}) {
				c.revive(again(c.settled(r, c.dead), ojs.StateAvailable))
			}
			for _, o := range allOrders {
				for _, dead := range []bool{false, true} {
					c.asMatched(storage.Query{Order: o, DeadLetters: dead},
						storage.Query{Workflow: all[0]}, storage.Query{Workflow: all[9]},
						storage.Query{Workflow: anew.ID},
						storage.Query{Workflow: "no-job"}, storage.Query{Workflow: "none"},
						storage.Query{Workflow: long}, storage.Query{Keepers: true},
						storage.Query{Workflow: all[0], States: []ojs.State{ojs.StateScheduled}},
						storage.Query{Workflow: all[0], Queues: []string{"flow"}},
						storage.Query{Keepers: true, Types: []string{"flow"}},
						storage.Query{Keepers: true, Workflow: all[0]},
						storage.Query{Workflow: all[0], States: []ojs.State{ojs.StateDiscarded},
							ErrorTypes: []string{"*"}})
				}
			}
		}},
	{"list-17", "List/Indexed", "Query.Indexed",
		"Jobs of rare states, dead letters and failures are listed by queue and type without a look at others.",
		needsNothing, func(c *C) {
			for i := range 48 {
				c.pass(time.Second)
				queue, jobType, last := queue(fmt.Sprint("q", i%2)), jobType(fmt.Sprint("t.", i/2%3)), i/6
				switch last {
				case 0:
					c.insert(c.job(queue, jobType, scheduled(time.Duration(20-i%3)*time.Hour)))
				case 1:
					c.insert(c.job(queue, jobType, pending, expires(time.Duration(90-i%2)*time.Hour)))
				case 2:
					c.insert(c.job(queue, jobType, pending))
				default:
					c.insert(c.job(queue, jobType, version("1")))
					r := c.one()
					switch last {
					case 3:
						c.settled(r, c.to(ojs.StateRetryable))
					case 4:
						c.settled(r, c.to(ojs.StateCancelled))
					case 5, 6:
						c.settled(r, c.to(ojs.StateDiscarded), func(r *storage.Record) {
							if last == 6 {
								r.DeadLetteredAt = c.now
							}
							r.Error = &ojs.Failure{Type: fmt.Sprint("smtp.", i%4), At: c.now, Attempt: 1}
						})
					case 7:
						if i%2 == 0 {
							c.settled(r, c.to(ojs.StateCompleted))
						}
					}
				}
			}
			long := "long." + strings.Repeat("x", 250)
			for _, name := range []string{long, long + ".a", long + ".b"} {
				c.insert(c.job())
				c.settled(c.one(), c.to(ojs.StateDiscarded), func(r *storage.Record) {
					r.Error = &ojs.Failure{Type: name, At: c.now, Attempt: 1}
				})
			}
			far := time.Date(2290, 1, 1, 0, 0, 0, 0, time.UTC)
			c.insert(c.job())
			c.settled(c.one(), c.to(ojs.StateCancelled), func(r *storage.Record) { r.FinishedAt = far })
			c.insert(c.job(), c.job(queue("q0"), jobType("t.1")))
			for _, id := range c.list(storage.Query{States: []ojs.State{ojs.StateScheduled}})[:2] {
				r := c.get(id)
				c.settled(r, queue("q1"), jobType("t.2"))
			}
			rare := []ojs.State{ojs.StatePending, ojs.StateScheduled, ojs.StateActive, ojs.StateRetryable,
				ojs.StateCancelled, ojs.StateDiscarded}
			of := []storage.Query{{States: rare}, {States: []ojs.State{ojs.StateDiscarded}},
				{States: []ojs.State{ojs.StateActive, ojs.StateRetryable}}, {Queues: []string{"q1"}},
				{Keepers: true, States: []ojs.State{ojs.StatePending}},
				{States: rare, CreatedBefore: epoch.Add(20 * time.Second)},
				{States: rare, FinishedBefore: epoch.Add(39 * time.Second)}}
			for _, s := range [][]ojs.State{rare, rare[:2], rare[4:], {ojs.StateRetryable}} {
				of = append(of, storage.Query{States: s, Types: []string{"t.1", "t.2"}},
					storage.Query{States: s, Queues: []string{"q1"}},
					storage.Query{States: s, Queues: []string{"q0", "q1"}, Types: []string{"t*"}})
			}
			for _, o := range allOrders {
				c.asMatched(storage.Query{Order: o}, of...)
				c.asMatched(storage.Query{Order: o, DeadLetters: true}, storage.Query{},
					storage.Query{Queues: []string{"q1"}, Types: []string{"t.*"}},
					storage.Query{Types: []string{"t.2"}}, storage.Query{Types: []string{"none"}},
					storage.Query{States: []ojs.State{ojs.StateDiscarded}},
					storage.Query{States: []ojs.State{ojs.StateDiscarded}, ErrorTypes: []string{"smtp.*"}},
					storage.Query{States: rare[:2]}, storage.Query{States: rare, Queues: []string{"q1"}},
					storage.Query{States: rare, ErrorTypes: []string{"smtp.1"}})
			}
			from, before := epoch.Add(30*time.Second), epoch.Add(39*time.Second)
			c.asMatched(storage.Query{Order: storage.OrderFinished},
				storage.Query{FinishedBefore: far.AddDate(10, 0, 0)}, storage.Query{FinishedFrom: far},
				storage.Query{FinishedFrom: far.AddDate(-9, 0, 0), FinishedBefore: far.AddDate(0, 0, 1)})
			for _, types := range [][]string{{"smtp.*"}, {"smtp.1", "smtp.2"}, {"none"}, nil, {long},
				{long + ".a"}, {long + ".*"}, {long + "*", "smtp.3"}} {
				of := storage.Query{ErrorTypes: types, States: []ojs.State{ojs.StateDiscarded}}
				all := []storage.Query{of}
				of.FinishedFrom, of.FinishedBefore = from, before
				all = append(all, of)
				of.Types = []string{"t.1"}
				c.asMatched(storage.Query{Order: storage.OrderFinished}, append(all, of)...)
			}
		}},
}

// asMatched wants queries, in the order of one, to list the jobs of it that they match.
// The pages are few, and look at no other job where the query says so.
func (c *C) asMatched(in storage.Query, queries ...storage.Query) {
	c.tb.Helper()
	var all []storage.Record
	active := 0
	for _, id := range c.list(in) {
		all = append(all, c.get(id))
		if all[len(all)-1].State == ojs.StateActive {
			active++
		}
	}
	for _, q := range queries {
		q.Order, q.DeadLetters, q.Limit = in.Order, in.DeadLetters, 3
		var want, got, back []string
		for i := range all {
			if q.Matches(&all[i]) {
				want = append(want, all[i].ID)
			}
		}
		looked, pages, last := 0, 0, storage.Page{}
		for more := true; more; more = q.Cursor != "" {
			var err error
			last, err = c.S.List(c.ctx, q)
			c.noErr("List", err)
			got, looked, pages = append(got, ids(last.Records)...), looked+last.Looked, pages+1
			q.Cursor = last.Next
		}
		for back = ids(last.Records); last.Prev != ""; back = append(ids(last.Records), back...) {
			var err error
			q.Cursor = last.Prev
			last, err = c.S.List(c.ctx, q)
			c.noErr("List back", err)
		}
		if !slices.Equal(got, want) || !slices.Equal(back, want) {
			c.failf("%+v lists %v, and back %v, not %v", q, short(got), short(back), short(want))
		}
		others := 0 // that a listing may look at
		if slices.Contains(q.States, ojs.StateActive) {
			others = active
		}
		if q.Indexed() && looked > len(want)+others || pages > len(want)/3+1+others {
			c.failf("%+v has %d jobs, and a listing looked at %d, in %d pages", q, len(want), looked, pages)
		}
	}
}

// pagesUnderChange lists jobs of a queue in an order, forth or back, while it adds, moves
// and deletes others.
func (c *C) pagesUnderChange(o storage.Order, back bool) {
	c.tb.Helper()
	name := fmt.Sprint("pages-", c.ids)
	make1 := func(i int) storage.Record {
		r := c.job(queue(name), priority(i%3))
		if o == storage.OrderDue {
			scheduled(time.Duration(1+i%3) * time.Hour)(&r)
		}
		c.insert(r)
		if o == storage.OrderFinished {
			return c.settled(c.get(r.ID), c.to(ojs.StateCancelled))
		}
		return c.get(r.ID)
	}
	var stay []string
	var others []storage.Record
	for i := range 24 {
		if r := make1(i); i%2 == 0 {
			stay = append(stay, r.ID)
		} else {
			others = append(others, r)
		}
	}
	q := storage.Query{Order: o, Limit: 3, Queues: []string{name}}
	page, err := c.S.List(c.ctx, q)
	for back && err == nil && page.Next != "" {
		q.Cursor = page.Next
		page, err = c.S.List(c.ctx, q)
	}
	c.noErr("List", err)
	var got []string
	for i := 0; ; i++ {
		got = append(got, ids(page.Records)...)
		if q.Cursor = page.Next; back {
			q.Cursor = page.Prev
		}
		if q.Cursor == "" {
			break
		}
		if i > 1000 {
			c.failf("order %q, back %v: the listing does not end", o, back)
		}
		if i < len(others) {
			gone := others[(i*5)%len(others)] // those at the cuts among them
			if !gone.State.Terminal() {
				gone = c.settled(gone, c.to(ojs.StateCancelled))
			}
			_, err := c.S.Delete(c.ctx, []string{gone.ID})
			c.noErr("Delete", err)
			make1(i)
		}
		page, err = c.S.List(c.ctx, q)
		c.noErr("List", err)
	}
	for _, id := range stay {
		if n := count(got, id); n != 1 {
			c.failf("order %q, back %v: a job that was there throughout is listed %d times", o, back, n)
		}
	}
	for _, id := range got {
		if n := count(got, id); n != 1 {
			c.failf("order %q, back %v: a job is listed %d times", o, back, n)
		}
	}
}
