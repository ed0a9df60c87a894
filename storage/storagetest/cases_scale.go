package storagetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Cases with more jobs than fit into a page, a chunk or a node of a storage. Their random
// numbers are the same in each run.

// insertAll stores jobs in batches, and gives them their versions.
func (c *C) insertAll(recs []storage.Record) []string {
	c.tb.Helper()
	for part := range slices.Chunk(recs, 500) {
		out, err := c.insertBatch(part...)
		c.noErr("Insert", err)
		for i := range out {
			part[i].Version = out[i].Version
		}
	}
	return ids(recs)
}

// settleAll changes jobs in batches, and wants every change to be applied.
func (c *C) settleAll(recs []storage.Record, change func(i int, r *storage.Record)) {
	c.tb.Helper()
	changes := make([]storage.Change, len(recs))
	for i, r := range recs {
		change(i, &r)
		changes[i].Record = r
	}
	for part := range slices.Chunk(changes, 500) {
		out, err := c.S.Settle(c.ctx, c.now, part, nil)
		c.noErr("Settle", err)
		for i, s := range out {
			if s.Err != nil {
				c.failf("Settle of %s refused: %v", part[i].Record.ID, s.Err)
			}
		}
	}
}

// wantList wants a query to list these jobs, by pages of a size.
func (c *C) wantList(q storage.Query, want []string) {
	c.tb.Helper()
	got := c.list(q)
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			c.failf("by pages of %d, %d jobs are listed and %d are there; from the %d. on:\n%v, not\n%v",
				q.Limit, len(got), len(want),
				i+1, short(got[i:min(i+3, len(got))]), short(want[i:min(i+3, len(want))]))
		}
	}
}

var scaleCases = []Case{
	{"scale-1", "Scale/List", "Storage.List", "Many jobs are found, listed in order and by pages of any size, also after most of them were deleted, in any order.", needsNothing, func(c *C) {
		random := rand.New(rand.NewPCG(1, 1))
		recs := make([]storage.Record, 600)
		for i := range recs {
			recs[i] = c.job(queue(fmt.Sprint("q", i%3)))
		}
		left := c.insertAll(recs)
		died := make(map[string]bool)
		c.settleAll(recs, func(i int, r *storage.Record) {
			if c.to(ojs.StateCancelled)(r); i%2 == 0 {
				c.dead(r)
				died[r.ID] = true
			}
		})
		check := func() {
			c.tb.Helper()
			dead := slices.DeleteFunc(slices.Clone(left), func(id string) bool { return !died[id] })
			for _, limit := range []int{64, 0} {
				c.wantList(storage.Query{Limit: limit}, left)
				c.wantList(storage.Query{Limit: limit, DeadLetters: true}, dead)
			}
			for range 30 {
				id := left[random.IntN(len(left))]
				if c.get(id).ID != id {
					c.failf("Get of a job returned another")
				}
			}
		}
		remove := func(gone []string) {
			c.tb.Helper()
			n, err := c.S.Delete(c.ctx, gone)
			c.noErr("Delete", err)
			if n != len(gone) {
				c.failf("Delete of %d jobs returned %d", len(gone), n)
			}
			_, err = c.S.Get(c.ctx, gone[0])
			c.wantErr("Get of a deleted job", err, ojs.ErrNotFound)
			left = slices.DeleteFunc(left, func(id string) bool { return slices.Contains(gone, id) })
		}
		check()
		remove(slices.Clone(left[40:140])) // some in a row, nearer to the beginning
		check()
		remove(slices.Clone(left[350:450])) // and to the end
		check()
		for _, share := range []int{2, 3, 5} { // and then here and there
			order := random.Perm(len(left))
			var gone []string
			for _, i := range order[len(left)/share:] {
				gone = append(gone, left[i])
			}
			remove(gone)
			check()
		}
		more := make([]storage.Record, 100)
		for i := range more {
			more[i] = c.job()
		}
		left = append(left, c.insertAll(more)...)
		check()
	}},
	{"scale-2", "Scale/Prune", "Storage.Prune", "Many jobs are pruned in the order of FinishedAt, and of the same FinishedAt in that in which they ended, though jobs end and begin anew meanwhile.", needsNothing, func(c *C) {
		random := rand.New(rand.NewPCG(2, 2))
		type end struct {
			id string
			at time.Time
		}
		var order []end
		finish := func(n, from, spread int) { // jobs that have finished within spread seconds
			c.tb.Helper()
			recs := make([]storage.Record, n)
			for i := range recs {
				recs[i] = c.job(queue("finish"))
			}
			c.insertAll(recs)
			active := c.claimOf(storage.Claim{Queues: []string{"finish"}, Max: n})
			c.settleAll(active, func(_ int, r *storage.Record) {
				c.to(ojs.StateCompleted)(r)
				r.FinishedAt = epoch.Add(time.Duration(from+random.IntN(spread)) * time.Second)
				if i := random.IntN(3); i < 2 {
					r.State = []ojs.State{ojs.StateCancelled, ojs.StateDiscarded}[i]
				}
				order = append(order, end{r.ID, r.FinishedAt})
			})
			slices.SortStableFunc(order, func(a, b end) int { return a.at.Compare(b.at) })
		}
		prune := func(n int) {
			c.tb.Helper()
			out, err := c.S.Prune(c.ctx, storage.Prune{Now: c.now, Before: epoch.Add(24 * time.Hour), Max: n})
			c.noErr("Prune", err)
			n = min(n, len(order))
			for i, id := range out.IDs {
				if i >= n || id != order[i].id {
					c.failf("the %d. that was pruned is another than the one that finished first", i+1)
				}
			}
			if order = order[n:]; len(out.IDs) != n || out.Left != len(order) ||
				len(order) > 0 && !out.Oldest.Equal(order[0].at) {
				c.failf("Prune of %d jobs pruned %d, left %d, not %d, the oldest of %v",
					n, len(out.IDs), out.Left, len(order), out.Oldest)
			}
		}
		again := func(n int) { // some that were discarded begin anew
			c.tb.Helper()
			for _, i := range random.Perm(len(order)) {
				if r := c.get(order[i].id); r.State == ojs.StateDiscarded && n > 0 {
					c.settled(r, c.to(ojs.StateAvailable), queue("again"))
					order[i].id = ""
					n--
				}
			}
			order = slices.DeleteFunc(order, func(e end) bool { return e.id == "" })
		}
		finish(300, 0, 1000)
		prune(20)
		finish(300, 100, 50) // many in the middle
		again(60)
		prune(70)
		finish(100, 0, 5) // and before all others
		prune(1)
		again(100)
		finish(150, 2000, 1)
		for len(order) > 0 {
			prune(97)
		}
		finish(3, 0, 3)
		prune(10)
	}},
	{"scale-3", "Scale/Kinds", "Storage.Claim", "Many jobs of many types, queues, priorities, limits and options are claimed in order, each as it was inserted.", needsNothing, func(c *C) {
		random := rand.New(rand.NewPCG(3, 3))
		recs := make([]storage.Record, 400)
		for i := range recs {
			recs[i] = c.job(jobType(fmt.Sprint("t", random.IntN(12))),
				queue(fmt.Sprint("q", random.IntN(5))), priority(random.IntN(4)-1))
			recs[i].Timeout = time.Duration(random.IntN(40)+1) * time.Second
			recs[i].Retry.MaxAttempts = random.IntN(3)
			if random.IntN(3) == 0 {
				limited(fmt.Sprint("k", random.IntN(20)))(&recs[i])
			}
		}
		c.insertAll(recs)
		closed := make(map[string]bool)
		for claims := 0; len(recs) > 0; claims++ {
			if claims > 10_000 {
				c.failf("%d jobs are never claimed", len(recs))
			}
			q := storage.Claim{Max: random.IntN(30) + 1, Worker: "w"}
			if random.IntN(2) == 0 {
				for _, i := range random.Perm(5)[:random.IntN(3)] {
					q.Queues = append(q.Queues, fmt.Sprint("q", i))
				}
			}
			if random.IntN(2) == 0 {
				for _, i := range random.Perm(12)[:random.IntN(6)] {
					q.Types = append(q.Types, fmt.Sprint("t", i))
				}
			}
			if key := fmt.Sprint("k", random.IntN(20)); closed[key] {
				delete(closed, key)
				c.unshut(key)
			} else if random.IntN(2) == 0 {
				closed[key] = true
				c.shut(key)
			}
			want := firstOf(recs, q, closed)
			got := c.claimOf(q)
			if !slices.Equal(ids(got), ids(want)) {
				c.failf("claim %d, %+v, closed %v: claimed %v, not %v",
					claims, q, closed, short(ids(got)), short(ids(want)))
			}
			for i := range got {
				want[i].Claim(c.now, "w", 0)
				c.same("a claimed job", got[i], want[i])
			}
			recs = slices.DeleteFunc(recs,
				func(r storage.Record) bool { return slices.Contains(ids(got), r.ID) })
		}
	}},
	{"scale-4", "Scale/Few", "Storage.List", "A listing finds the few jobs that it selects among many, wherever they are.", needsNothing, func(c *C) {
		recs := make([]storage.Record, 5000)
		var want []string
		for i := range recs {
			if recs[i] = c.job(scheduled(time.Hour)); i == 3 || i > 4900 && i < 4906 || i == 4999 {
				jobType("rare")(&recs[i])
				want = append(want, recs[i].ID)
			}
		}
		c.insertAll(recs)
		for _, limit := range []int{0, 1, 3} {
			q := storage.Query{Types: []string{"rare"}, Limit: limit}
			c.wantList(q, want)
			q.Order = storage.OrderDue
			c.wantList(q, want)
		}
	}},
}

// firstOf returns the jobs that a claim takes of those that are available, in the order
// in which they came, without those of closed keys.
func firstOf(recs []storage.Record, q storage.Claim, closed map[string]bool) (taken []storage.Record) {
	queues := q.Queues
	if len(queues) == 0 {
		queues = []string{""}
	}
	left := slices.Clone(recs)
	slices.SortStableFunc(left, func(a, b storage.Record) int { return b.Priority - a.Priority })
	for _, name := range queues {
		for i := 0; i < len(left) && len(taken) < q.Max; i++ {
			r := left[i]
			if name != "" && r.Queue != name || len(q.Types) > 0 && !slices.Contains(q.Types, r.Type) ||
				r.RateLimit != nil && closed[r.RateLimit.Key] || slices.Contains(ids(taken), r.ID) {
				continue
			}
			taken = append(taken, r)
		}
	}
	return taken
}
