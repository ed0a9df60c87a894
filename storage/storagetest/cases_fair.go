package storagetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

func fair(key string) func(*storage.Record) { return share(key, 1) }

func share(key string, weight int) func(*storage.Record) {
	return func(r *storage.Record) { r.Fairness = ojs.Fairness{Key: key, Weight: weight} }
}

// tenant stores jobs of a key, each in a call of its own, and returns their ids.
func (c *C) tenant(n int, change ...func(*storage.Record)) (list []string) {
	c.tb.Helper()
	for range n {
		list = append(list, c.insert(c.job(change...))...)
	}
	return list
}

// nextInTurn wants a claim of that many jobs to return these.
func (c *C) nextInTurn(want ...string) {
	c.tb.Helper()
	if got := ids(c.claim(len(want))); !slices.Equal(got, want) {
		c.failf("claimed %v, not %v", short(got), short(want))
	}
}

// inTurn wants the order of claims to be this, and a listing to have it. It claims the
// jobs.
func (c *C) inTurn(q storage.Claim, want ...string) {
	c.tb.Helper()
	if len(q.Queues) == 0 {
		c.wantList(storage.Query{Order: storage.OrderClaim}, want)
	}
	c.order(q, want...)
}

var fairCases = []Case{
	{"fair-1", "Fairness/Tags", "Fairness",
		"Jobs of different keys take turns, of each key those first that became available first. " +
			"Each queue and each priority has turns of its own.",
		needsNothing, func(c *C) {
			a := c.tenant(4, fair("a"))
			b := c.tenant(2, fair("b"))
			d := c.tenant(1, fair("d"))
			other := c.insert(c.job(fair("e"), queue("other")), c.job(fair("a"), queue("another")))
			high := c.insert(c.job(fair("a"), priority(1)), c.job(fair("g"), priority(1)))
			c.order(storage.Claim{Queues: []string{"other"}}, other[0])
			c.inTurn(storage.Claim{}, high[0], high[1], a[0], b[0], d[0], other[1], a[1], b[1], a[2], a[3])
			two := c.insert(c.job(fair("f")), c.job(fair("f")), c.job(fair("g")))
			late := c.insert(c.job(fair("g"), func(r *storage.Record) { r.Type = "another" }))[0]
			c.inTurn(storage.Claim{}, two[0], two[2], two[1], late)
			low := c.tenant(2, fair("h"))
			above := c.insert(c.job(fair("h"), priority(1)), c.job(fair("h"), priority(1)))
			c.nextInTurn(above...) // which takes no turn of those below
			e := c.tenant(1, fair("i"))[0]
			c.inTurn(storage.Claim{}, low[0], e, low[1])
			for n, q := range []storage.Claim{{}, {Queues: []string{"long1"}}} {
				var long []string // of which claims of the type skip many jobs
				for i := range 48 {
					r := c.job(fair(fmt.Sprint("tenant", i%24)), queue(fmt.Sprint("long", n)))
					if c.insert(r); i%24 < 15 {
						continue
					}
					last := c.tenant(1, fair(r.Fairness.Key), queue(r.Queue), jobType("last"))
					long = append(long, last...)
				}
				q.Types = []string{"last"}
				c.order(q, long...)
			}
		}},
	{"fair-2", "Fairness/WithoutKeys", "Fairness",
		"Jobs without a key come before those with one, in their order, and take no turns.",
		needsNothing, func(c *C) {
			a := c.tenant(2, fair("a"))
			plain := c.tenant(1)
			b := c.tenant(2, fair("b"))
			plain = append(plain, c.tenant(2)...)
			c.nextInTurn(plain[0])
			plain = append(plain, c.tenant(1)...)
			d := c.tenant(1, fair("d"))
			c.inTurn(storage.Claim{}, plain[1], plain[2], plain[3], a[0], b[0], d[0], a[1], b[1])
		}},
	{"fair-3", "Fairness/Weights", "Fairness",
		"A start costs a key the less the higher the weight of the job is. A weight of less than one is one.",
		needsNothing, func(c *C) {
			a := c.tenant(3, share("a", -1)) // the example of docs/limits.md
			b := c.tenant(3, share("b", 0))
			d := c.tenant(5, share("d", 2))
			c.inTurn(storage.Claim{}, a[0], b[0], d[0], d[1], a[1], b[1], d[2], d[3], a[2], b[2], d[4])
			a = c.tenant(3, share("a", 3), queue("own"))
			b = append(c.tenant(2, share("b", 1), queue("own")), c.tenant(2, share("b", 3), queue("own"))...)
			c.inTurn(storage.Claim{}, a[0], b[0], a[1], a[2], b[1], b[2], b[3])
			a = c.tenant(2, share("a", 1), queue("edit")) // a new weight counts for what comes later
			c.settled(c.get(a[1]), share("a", 4))
			a = append(a, c.tenant(1, fair("a"), queue("edit"))...)
			b = c.tenant(3, fair("b"), queue("edit"))
			c.inTurn(storage.Claim{}, a[0], b[0], a[1], b[1], a[2], b[2])
		}},
	{"fair-4", "Fairness/VirtualTime", "Fairness",
		"A job of a key that has none waiting starts at the virtual time, or after the last start of its key.",
		needsNothing, func(c *C) {
			a := c.tenant(3, fair("a"))
			b := c.tenant(1, fair("b"))
			c.nextInTurn(a[0], b[0])
			for _, id := range []string{a[0], b[0]} { // an end changes nothing
				c.settled(c.get(id), c.to(ojs.StateCompleted))
			}
			_, err := c.S.Delete(c.ctx, []string{b[0]})
			c.noErr("Delete", err)
			b = c.tenant(1, fair("b"))
			d := c.tenant(2, fair("d"))
			c.inTurn(storage.Claim{}, d[0], a[1], b[0], d[1], a[2])

			// The virtual time is the greatest start tag that was claimed.
			var v []string
			for _, key := range []string{"a", "b"} {
				v = append(v, c.tenant(2, fair(key), queue("types"))...)
				v = append(v, c.tenant(1, fair(key), queue("types"), jobType("last"))...)
			}
			c.order(storage.Claim{Types: []string{"last"}}, v[2], v[5])
			c.nextInTurn(v[0]) // it does not fall
			e := c.tenant(2, fair("e"), queue("types"))
			f := c.tenant(1, fair("f"), queue("types"))
			c.inTurn(storage.Claim{}, v[3], v[1], v[4], e[0], f[0], e[1])

			// Nor does it while nothing waits. Charges that it has reached do not count.
			c.inTurn(storage.Claim{}, c.tenant(3, fair("g"), queue("types"))...)
			e = c.tenant(2, fair("e"), queue("types"))
			f = c.tenant(1, fair("f"), queue("types"))
			c.inTurn(storage.Claim{}, e[0], f[0], e[1])
		}},
	{"fair-5", "Fairness/EveryWay", "Fairness",
		"In whichever way a job becomes available, it takes a turn, and an edit that leaves it " +
			"with its key keeps it.", needsNothing, func(c *C) {
			a, b := c.tenant(3, fair("a")), c.tenant(1, fair("b"))[0]
			later := c.insert(c.job(fair("b"), func(r *storage.Record) {
				r.State, r.ScheduledAt = ojs.StateScheduled, c.now.Add(time.Minute)
			}))[0]
			activated := c.insert(c.job(fair("d"), pending))[0]
			c.pass(time.Hour)
			c.due()
			c.settled(c.get(activated), c.to(isAvailable))
			c.settled(c.get(a[1]), fair("d"))
			c.settled(c.get(a[2]), priority(5))
			c.settled(c.get(b), share("b", 7), func(r *storage.Record) { r.Type = "another" })
			c.nextInTurn(a[2], a[0])
			c.settled(c.get(a[0]), c.to(ojs.StateRetryable),
				func(r *storage.Record) { r.NextRetryAt = c.now })
			c.due()
			c.inTurn(storage.Claim{}, b, activated, later, a[1], a[0])

			// A retry charges its key for the start before.
			a = c.tenant(2, fair("a"), queue("retry"))
			c.nextInTurn(a[0])
			c.settled(c.get(a[0]), c.to(ojs.StateRetryable),
				func(r *storage.Record) { r.NextRetryAt = c.now })
			c.due()
			a = append(a, c.tenant(1, fair("a"), queue("retry"))...)
			other := c.tenant(4, fair("b"), queue("retry"))
			c.inTurn(storage.Claim{}, other[0], a[1], other[1], a[0], other[2], a[2], other[3])
		}},
	{"fair-6", "Fairness/GivenBack", "SettleClaimer.Unclaim",
		"A job that is given back has the tag that it had, and stays charged.", needsSettleClaims,
		func(c *C) {
			back := func(r storage.Record) {
				c.tb.Helper()
				c.unclaim(1, heldOf(r))
			}
			a := c.tenant(2, fair("a"))
			b := c.tenant(2, fair("b"))
			first, second := c.one(), c.one()
			back(second)
			back(first)
			d := c.tenant(1, fair("d"))[0]
			c.inTurn(storage.Claim{}, a[0], b[0], d, a[1], b[1])

			// A job whose claim was undone has charged its key, though it ends unclaimed.
			a = c.tenant(1, fair("a"), queue("charged"))
			r := c.one()
			back(r)
			c.settled(c.get(a[0]), c.to(ojs.StateCancelled))
			a = c.tenant(1, fair("a"), queue("charged"))
			b = c.tenant(2, fair("b"), queue("charged"))
			c.inTurn(storage.Claim{}, b[0], a[0], b[1])

			// A Settle that makes a job active charges nothing.
			activated := func(id string, change ...func(*storage.Record)) storage.Record {
				c.tb.Helper()
				claim := func(r *storage.Record) {
					r.Claim(c.now, "w", 0)
					r.Version--
				}
				return c.settled(c.get(id), append(change, claim)...)
			}
			a = c.tenant(6, fair("a"), queue("between"))
			c.nextInTurn(a[0])
			var left []storage.Record
			for _, id := range a[2:5] {
				left = append(left, activated(id))
			}
			back(left[1])
			back(left[0])
			back(left[2])
			b = c.tenant(6, fair("b"), queue("between"))
			c.inTurn(storage.Claim{}, b[0], a[1], b[1], a[2], b[2], a[3], b[3], a[4], b[4], a[5], b[5])
			a = c.tenant(1, fair("a"), queue("active"))
			b = c.tenant(2, fair("b"), queue("active"))
			r = activated(b[1])
			b = append(b, c.tenant(1, fair("b"), queue("active"))...)
			back(r)
			c.inTurn(storage.Claim{}, a[0], b[0], b[1], b[2])

			// A job whose key, queue or priority has changed takes a tag when it is back.
			a = c.tenant(3, fair("a"), queue("changed"))
			b = c.tenant(4, fair("b"), queue("changed"))
			bare := c.tenant(1, queue("changed"))[0]
			list := []storage.Record{activated(b[0], fair("a")), activated(b[1], fair("")),
				activated(bare, fair("e")), activated(b[2], priority(1)), activated(b[3], queue("moved"))}
			for _, r := range list {
				back(r)
			}
			g := c.tenant(4, fair("g"), queue("changed"))
			c.order(storage.Claim{Queues: []string{"moved"}}, b[3])
			c.inTurn(storage.Claim{}, b[2], b[1], a[0], bare, g[0], a[1], g[1], a[2], g[2], b[0], g[3])
		}},
	{"fair-7", "Fairness/Dropped", "Insert.DropOldest",
		"A full queue drops what has been available longest, of any tag.", needsNothing, func(c *C) {
			a := c.tenant(3, fair("a"))
			b := c.tenant(1, fair("b"))[0]
			var more []string
			for i, key := range []string{"d", "e"} {
				r := c.job(fair(key))
				out := c.insertOne(storage.Insert{Record: r, MaxDepth: 4, DropOldest: true})
				if len(out.Dropped) != 1 || out.Dropped[0].ID != a[i] {
					c.failf("dropped %v, not %v", short(ids(out.Dropped)), short(a[i:i+1]))
				}
				more = append(more, r.ID)
			}
			c.inTurn(storage.Claim{}, b, more[0], more[1], a[2])

			// Of one key, of several priorities and without a key, too.
			own := queue("own")
			old := c.insert(c.job(fair("f"), own), c.job(fair("f"), own), c.job(own),
				c.job(fair("g"), own, priority(1)),
				c.job(own, priority(-1)), c.job(fair("h"), own), c.job(own))
			out := c.insertOne(storage.Insert{Record: c.job(fair("h"), own), MaxDepth: 2, DropOldest: true})
			if got := ids(out.Dropped); !slices.Equal(got, old[:6]) {
				c.failf("dropped %v, not %v", short(got), short(old[:6]))
			}
			if !c.cfg.SettleClaims {
				return
			}

			// A job may be older than one of its key with an earlier tag.
			own = queue("older")
			first, older := c.tenant(2, fair("f"), own), c.tenant(1, fair("g"), own)[0]
			r := c.settled(c.get(older), fair("h"), func(r *storage.Record) {
				r.Claim(c.now, "w", 0)
				r.Version--
			})
			c.tenant(1, fair("h"), own)
			c.unclaim(1, heldOf(r))
			for _, id := range first {
				c.settled(c.get(id), c.to(ojs.StateCancelled))
			}
			out = c.insertOne(storage.Insert{Record: c.job(fair("h"), own), MaxDepth: 2, DropOldest: true})
			if got := ids(out.Dropped); !slices.Equal(got, []string{older}) {
				c.failf("dropped %v, not %v", short(got), short([]string{older}))
			}
		}},
	{"fair-8", "Fairness/Skipped", "Storage.Claim",
		"A job is claimed by its tag, though claims have skipped jobs at a limit before it.",
		needsNothing, func(c *C) {
			c.shut("closed")
			claim := storage.Claim{Max: 1}
			skips := func() {
				c.tb.Helper()
				if got := c.claimOf(claim); len(got) > 0 {
					c.failf("claimed %v, whose limit lets none start", short(ids(got)))
				}
			}
			a := c.tenant(2, fair("a"), limited("closed"))
			skips()
			plain := c.tenant(1)[0]
			b := c.tenant(1, fair("b"))
			c.order(claim, plain, b[0])
			d := c.tenant(2, fair("d"))
			c.nextInTurn(d[0])
			e := c.tenant(1, fair("e"))[0]
			c.unshut("closed")
			c.inTurn(storage.Claim{}, a[0], e, a[1], d[1])
		}},
	{"fair-10", "Fairness/Ended", "Fairness",
		"Jobs that end without a claim charge their key nothing: cancelled, expired, dropped and deleted ones.",
		needsNothing, func(c *C) {
			a := c.tenant(2, fair("a"))
			c.tenant(1, fair("a"), expires(time.Minute))
			cancelled := c.tenant(3, fair("a"))
			c.settled(c.get(cancelled[0]), c.to(ojs.StateCancelled))
			_, _, err := c.S.CancelAll(c.ctx, c.now, cancelled[1:])
			c.noErr("CancelAll", err)
			_, err = c.S.Delete(c.ctx, cancelled)
			c.noErr("Delete", err)
			c.pass(time.Hour)
			c.due()
			a = append(a, c.tenant(1, fair("a"))...)
			b := c.tenant(4, fair("b"))
			c.inTurn(storage.Claim{}, a[0], b[0], a[1], b[1], a[2], b[2], b[3])

			// An end between others moves none of them.
			a = c.tenant(4, fair("a"), queue("between"))
			c.settled(c.get(a[1]), c.to(ojs.StateCancelled))
			b = c.tenant(4, fair("b"), queue("between"))
			c.inTurn(storage.Claim{}, a[0], b[0], b[1], a[2], b[2], a[3], b[3])

			var dropped []string
			for range 3 {
				r := c.job(fair("a"), queue("full"))
				c.insertOne(storage.Insert{Record: r, MaxDepth: 2, DropOldest: true})
				dropped = append(dropped, r.ID)
			}
			b = c.tenant(3, fair("b"), queue("full"))
			c.inTurn(storage.Claim{}, b[0], dropped[1], b[1], dropped[2], b[2])
		}},
	{"fair-11", "Fairness/Replaced", "Storage.Insert",
		"A replaced job leaves its key before the record that replaces it comes, and after the records before that one.",
		needsNothing, func(c *C) {
			replaces := func(fingerprint, key string) storage.Record {
				return c.job(fair(key), queue(fingerprint),
					unique(fingerprint, ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}))
			}
			batch := func(recs ...storage.Record) {
				c.tb.Helper()
				list := make([]storage.Insert, len(recs))
				for i, r := range recs {
					list[i].Record = r
				}
				_, err := c.S.Insert(c.ctx, c.now, list, nil)
				c.noErr("Insert", err)
			}
			c.insert(replaces("f", "a"))
			a, b := replaces("f", "a"), c.job(fair("b"), queue("f"))
			batch(a, b)
			c.inTurn(storage.Claim{}, a.ID, b.ID)
			c.insert(replaces("g", "a"))
			first, a := c.job(fair("a"), queue("g")), replaces("g", "a")
			var bs []storage.Record
			for range 3 {
				bs = append(bs, c.job(fair("b"), queue("g")))
			}
			batch(first, a, bs[0], bs[1], bs[2])
			c.inTurn(storage.Claim{}, bs[0].ID, first.ID, bs[1].ID, a.ID, bs[2].ID)
		}},
	{"fair-9", "Fairness/Reopened", "Capabilities.Durable",
		"Tags outlive the storage, and so do the virtual time and what keys were charged.",
		needsReopen, func(c *C) {
			a := c.tenant(4, fair("a"))
			b := c.tenant(1, fair("b"))
			d := c.tenant(1, fair("d"))
			c.nextInTurn(a[0], b[0], d[0], a[1])
			c.reopen()
			again := c.tenant(1, fair("a"))
			b = c.tenant(1, fair("b"))
			e := c.tenant(1, fair("e"))
			c.inTurn(storage.Claim{}, b[0], e[0], a[2], a[3], again[0])
		}},
	{"fair-14", "Fairness/SetAside", "Fairness",
		"A job that was set aside at a limit takes a tag anew when it may start: it is not before the virtual time, " +
			"nor after a later job of its key.",
		needsNothing, func(c *C) {
			c.shut("closed")
			a := c.tenant(4, fair("a"), limited("closed"))
			b := c.tenant(9, fair("b"))
			c.nextInTurn(b[:5]...)
			d := c.tenant(2, fair("d"))
			c.unshut("closed")
			c.order(storage.Claim{}, a[0], d[0], a[1], b[5], d[1], a[2], b[6], a[3], b[7], b[8])

			// Starts of its key meanwhile count.
			c.shut("closed")
			own := queue("own")
			a = c.tenant(2, fair("a"), limited("closed"), own)
			more := c.tenant(2, fair("a"), own)
			c.nextInTurn(more...)
			c.unshut("closed")
			b = c.tenant(3, fair("b"), own)
			c.order(storage.Claim{}, b[0], a[0], b[1], a[1], b[2])
		}},
	{"fair-12", "Fairness/Bound", "Fairness",
		"Before a job of a key that has none waiting, at most twice the weight of another key start of its jobs.",
		needsNothing, func(c *C) {
			for round := range 6 {
				rnd := rand.New(rand.NewPCG(uint64(round), 1))
				own := queue(fmt.Sprint("q", round))
				weights := make(map[string]int)
				var backlog []storage.Record
				for i := range 5 {
					key := fmt.Sprint("key", i)
					weights[key] = 1 + rnd.IntN(4)
					for range 4*weights[key] + rnd.IntN(20) {
						backlog = append(backlog, c.job(share(key, weights[key]), own))
					}
				}
				rnd.Shuffle(len(backlog), func(i, j int) { backlog[i], backlog[j] = backlog[j], backlog[i] })
				c.insert(c.job(fair("late"), own))
				c.insert(backlog...)
				claim := storage.Claim{Queues: []string{backlog[0].Queue}, Max: 2 + rnd.IntN(len(backlog)/2)}
				started := c.claimOf(claim)
				late := func(r storage.Record) bool { return r.Fairness.Key == "late" }
				if !slices.ContainsFunc(started, late) {
					c.failf("%d starts have none of a key with one job", len(started))
				}
				c.insert(c.job(fair("late"), own))
				claim.Max = 1
				for before := make(map[string]int); ; {
					key := c.claimOf(claim)[0].Fairness.Key
					if key == "late" {
						break
					}
					if before[key]++; before[key] > 2*weights[key] {
						c.failf("%d jobs of a key of weight %d start before that of another",
							before[key], weights[key])
					}
				}
			}
		}},
	{"fair-13", "Fairness/Shares", "Fairness",
		"Of any 1,000 starts of a level in which all keys have jobs waiting, each has the share of its weight within 5 %.",
		needsNothing, func(c *C) {
			weights := []int{1, 2, 5}
			var backlog []storage.Record
			for i := range 8 * 170 {
				key := slices.IndexFunc([]int{1, 3, 8}, func(until int) bool { return i%8 < until })
				backlog = append(backlog, c.job(share(fmt.Sprint(key), weights[key])))
			}
			rand.New(rand.NewPCG(1, 2)).Shuffle(len(backlog), func(i, j int) {
				backlog[i], backlog[j] = backlog[j], backlog[i]
			})
			for part := range slices.Chunk(backlog, 100) {
				c.insert(part...)
			}
			var started []string
			for len(started) < 1300 {
				for _, r := range c.claimOf(storage.Claim{Max: 50}) {
					started = append(started, r.Fairness.Key)
				}
			}
			for from := range len(started) - 1000 {
				n := make(map[string]int)
				for _, key := range started[from : from+1000] {
					n[key]++
				}
				for i, w := range weights {
					want := 1000 * w / 8
					if got := n[fmt.Sprint(i)]; got < want*95/100 || got > want*105/100 {
						c.failf("%d of 1000 starts are of the key of weight %d, not %d", got, w, want)
					}
				}
			}
		}},
}
