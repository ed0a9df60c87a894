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

// together stores jobs in one call, and returns their ids.
func (c *C) together(recs ...storage.Record) (list []string) {
	c.tb.Helper()
	_, err := c.insertBatch(recs...)
	c.noErr("Insert", err)
	for _, r := range recs {
		list = append(list, r.ID)
	}
	return list
}

// starts claims a job and returns its key.
func (c *C) starts() string {
	c.tb.Helper()
	return c.one().Fairness.Key
}

var fairCases = []Case{
	{"fair-1", "Fairness/Rounds", "Fairness",
		"Jobs of different keys take turns, of each key those first that became available first.",
		needsNothing, func(c *C) {
			a := c.tenant(4, fair("a"))
			b := c.tenant(2, fair("b"))
			d := c.tenant(1, fair("d"))
			other := c.insert(c.job(fair("e"), queue("other")), c.job(fair("f"), queue("another")))
			high := c.insert(c.job(fair("a"), priority(1)), c.job(fair("g"), priority(1)))
			c.order(storage.Claim{Queues: []string{"other"}}, other[0])
			c.inTurn(storage.Claim{}, high[0], high[1], a[0], b[0], d[0], a[1], b[1], a[2], a[3], other[1])
			c.inTurn(storage.Claim{}, c.tenant(1, fair("a"), priority(1))...)
			b = c.tenant(2, fair("b"), priority(1))
			a = c.tenant(1, fair("a"), priority(1))
			c.inTurn(storage.Claim{}, b[0], a[0], b[1])
			high = c.tenant(1, fair("a"), priority(1)) // before a lower one of the key
			plain := c.tenant(1)
			c.inTurn(storage.Claim{}, high[0], plain[0], c.tenant(1, fair("a"))[0])
			two := c.insert(c.job(fair("a")), c.job(fair("a")), c.job(fair("b")))
			late := c.insert(c.job(fair("b"), func(r *storage.Record) { r.Type = "another" }))[0]
			c.inTurn(storage.Claim{}, two[0], two[2], two[1], late)
			low := c.tenant(2, fair("a"))
			above := c.insert(c.job(fair("h"), priority(1)), c.job(fair("h"), priority(1)))
			c.nextInTurn(above...) // which takes no turn of those below
			e := c.tenant(1, fair("e"))[0]
			c.inTurn(storage.Claim{}, low[0], e, low[1])
			for n, q := range []storage.Claim{{}, {Queues: []string{"long1"}}} {
				var long []string // two rounds, of which claims of the type skip many jobs
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
		"A job without a key stands where it became available, between the rounds.",
		needsNothing, func(c *C) {
			plain := c.tenant(1)[0]
			a := c.tenant(2, fair("a"))
			between := c.tenant(1)[0]
			a = append(a, c.tenant(1, fair("a"))...)
			b := c.tenant(4, fair("b"))
			last := c.tenant(1)[0]
			c.inTurn(storage.Claim{}, plain, a[0], b[0], a[1], b[1], between, a[2], b[2], b[3], last)
		}},
	{"fair-3", "Fairness/Weights", "Fairness",
		"A key has as many jobs in a round as its weight says, and one if that is less than one.",
		needsNothing, func(c *C) {
			a := c.tenant(3, share("a", -1))
			b := c.tenant(5, share("b", 2))
			d := c.tenant(1, share("d", 0))
			c.inTurn(storage.Claim{}, a[0], b[0], b[1], d[0], a[1], b[2], b[3], a[2], b[4])
			a = c.tenant(3, share("a", 3))
			b = append(c.tenant(2, share("b", 1)), c.tenant(2, share("b", 3))...)
			c.inTurn(storage.Claim{}, a[0], a[1], a[2], b[0], b[1], b[2], b[3])
		}},
	{"fair-4", "Fairness/Served", "Fairness",
		"A key that is out of jobs has had its turn in the round that was claimed of last.",
		needsNothing, func(c *C) {
			a := c.tenant(3, fair("a"))
			b := c.tenant(1, fair("b"))
			d := c.tenant(1, fair("d"))
			c.nextInTurn(a[0], b[0])
			again := c.tenant(1, fair("b"))
			other := c.tenant(1, fair("e"))
			c.nextInTurn(d[0], a[1], again[0])
			again = c.tenant(1, fair("d"))
			c.inTurn(storage.Claim{}, other[0], a[2], again[0])

			// A job without a key is of no round.
			a, b = c.tenant(2, fair("a")), c.tenant(1, fair("b"))
			plain := c.tenant(1, jobType("plain"))[0]
			c.nextInTurn(a[0])
			c.order(storage.Claim{Types: []string{"plain"}}, plain)
			d = c.tenant(1, fair("d"))
			c.inTurn(storage.Claim{}, b[0], a[1], d[0])

			// The round stays claimed of while it has one job.
			a, b = c.tenant(1, fair("a")), c.tenant(1, fair("b"))
			c.nextInTurn(a[0])
			plain = c.tenant(1)[0]
			d = c.tenant(1, fair("d"))
			c.inTurn(storage.Claim{}, b[0], plain, d[0])
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

			// The latest round of a key is that of its job that became available last.
			a = c.tenant(2, fair("a"))
			c.nextInTurn(a[0])
			c.settled(c.get(a[0]), c.to(ojs.StateRetryable),
				func(r *storage.Record) { r.NextRetryAt = c.now })
			c.due()
			a = append(a, c.tenant(1, fair("a"))...)
			other := c.tenant(3, fair("b"))
			c.inTurn(storage.Claim{}, a[1], other[0], a[0], other[1], a[2], other[2])
		}},
	{"fair-6", "Fairness/GivenBack", "SettleClaimer.Unclaim",
		"A job that is given back has the round that it had.", needsSettleClaims, func(c *C) {
			back := func(r storage.Record) {
				c.tb.Helper()
				c.unclaim(1, heldOf(r))
			}
			a := c.tenant(2, fair("a"))
			b := c.tenant(2, fair("b"))
			first, second := c.one(), c.one()
			back(second)
			back(first)
			d := c.tenant(1, fair("d"))[0] // the first round has been claimed of
			c.inTurn(storage.Claim{}, a[0], b[0], a[1], b[1], d)

			// Once no job with a key was available, no round has been claimed of.
			e := c.tenant(2, fair("e"))
			r := c.one()
			c.settled(c.get(e[1]), c.to(ojs.StateCancelled))
			plain := c.tenant(1)[0]
			back(r)
			f := c.tenant(1, fair("f"))[0]
			c.inTurn(storage.Claim{}, e[0], f, plain)
			e = c.tenant(1, fair("e"))
			r = c.one()
			next := c.tenant(1, fair("f"))[0]
			back(r)
			f = c.tenant(1, fair("d"))[0]
			c.inTurn(storage.Claim{}, e[0], f, next)

			// A round between others whose jobs have all left takes them back.
			activated := func(id string, change ...func(*storage.Record)) storage.Record {
				c.tb.Helper()
				claim := func(r *storage.Record) {
					r.Claim(c.now, "w", 0)
					r.Version--
				}
				return c.settled(c.get(id), append(change, claim)...)
			}
			a = c.tenant(6, fair("a"))
			c.nextInTurn(a[0])
			var left []storage.Record
			for _, id := range a[2:5] {
				left = append(left, activated(id))
			}
			back(left[1])
			back(left[0])
			back(left[2])
			b = c.tenant(5, fair("b"))
			c.inTurn(storage.Claim{}, a[1], b[0], a[2], b[1], a[3], b[2], a[4], b[3], a[5], b[4])

			// A job whose round is that of one before is back in it.
			a = c.tenant(2, fair("a"))
			b = c.tenant(1, fair("b"))
			back(activated(b[0]))
			c.inTurn(storage.Claim{}, a[0], b[0], a[1])

			// A job whose key has changed is back where it became available, alone.
			a = c.tenant(3, fair("a"))
			b = c.tenant(2, fair("b"))
			bare := c.tenant(1)[0]
			plain = c.tenant(1)[0]
			back(activated(b[0], fair("d")))
			back(activated(b[1], fair("")))
			back(activated(bare, fair("e")))
			g := c.tenant(6, fair("f"))
			c.inTurn(storage.Claim{}, a[0], g[0], a[1], g[1], a[2], g[2], b[0], g[3], b[1], bare, g[4],
				plain, g[5])

			// A job that has lost its key is claimed of no round.
			a = c.tenant(1, fair("a"))
			b = c.tenant(1, fair("b"), func(r *storage.Record) { r.Type = "another" })
			back(activated(b[0], fair("")))
			c.order(storage.Claim{Types: []string{"another"}}, b[0])
			a = append(a, c.tenant(1, fair("a"))...)
			d = c.tenant(1, fair("d"))[0]
			c.inTurn(storage.Claim{}, a[0], d, a[1])
		}},
	{"fair-7", "Fairness/Dropped", "Insert.DropOldest",
		"A full queue drops what has been available longest, of any round.", needsNothing, func(c *C) {
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
			if !c.cfg.SettleClaims {
				return
			}

			// A job may be older than one of its key in an earlier round.
			own := queue("own")
			first, old := c.tenant(2, fair("f"), own), c.tenant(1, fair("g"), own)[0]
			r := c.settled(c.get(old), fair("h"), func(r *storage.Record) {
				r.Claim(c.now, "w", 0)
				r.Version--
			})
			c.tenant(1, fair("h"), own)
			c.unclaim(1, heldOf(r))
			for _, id := range first {
				c.settled(c.get(id), c.to(ojs.StateCancelled))
			}
			out := c.insertOne(storage.Insert{Record: c.job(fair("h"), own), MaxDepth: 2, DropOldest: true})
			if got := ids(out.Dropped); !slices.Equal(got, []string{old}) {
				c.failf("dropped %v, not %v", short(got), short([]string{old}))
			}
		}},
	{"fair-8", "Fairness/Skipped", "Storage.Claim",
		"A job that joins a round is claimed before those of later rounds, though claims have " +
			"skipped the round.", needsNothing, func(c *C) {
			c.shut("closed")
			claim := storage.Claim{Max: 1}
			skips := func() {
				c.tb.Helper()
				if got := c.claimOf(claim); len(got) > 0 {
					c.failf("claimed %v, whose limit lets none start", short(ids(got)))
				}
			}
			a := c.tenant(3, fair("a"), limited("closed"))
			skips()
			plain := c.tenant(1)[0]
			b := c.tenant(2, fair("b"))
			c.order(claim, b[0], b[1], plain)
			d := c.tenant(2, fair("d")) // the second round has been claimed of
			c.order(claim, d...)
			skips()
			e := c.tenant(1, fair("e"))[0]
			c.unshut("closed")
			c.inTurn(storage.Claim{}, a[0], a[1], a[2], e)
		}},
	{"fair-10", "Fairness/Emptied", "Fairness",
		"A round whose jobs have all left is none, and the rounds before and behind it stay.",
		needsNothing, func(c *C) {
			a := c.tenant(4, fair("a"))
			plain := c.tenant(1)[0]
			a = append(a, c.tenant(2, fair("a"))...)
			for _, i := range []int{2, 1, 3} {
				c.settled(c.get(a[i]), c.to(ojs.StateCancelled))
			}
			b := c.tenant(4, fair("b"))
			c.inTurn(storage.Claim{}, a[0], b[0], plain, a[4], b[1], a[5], b[2], b[3])
		}},
	{"fair-11", "Fairness/Replaced", "Storage.Insert",
		"A replaced job leaves its round before the record that replaces it comes, and after the records before that one.",
		needsNothing, func(c *C) {
			replaces := func(fingerprint string) func(*storage.Record) {
				return unique(fingerprint, ojs.UniquePolicy{OnConflict: ojs.ConflictReplace})
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
			c.insert(c.job(replaces("f"), fair("a")))
			plain := c.insert(c.job())[0]
			b, d := c.job(replaces("f"), fair("b")), c.job(fair("d"))
			batch(b, d)
			c.inTurn(storage.Claim{}, plain, b.ID, d.ID)
			c.insert(c.job(replaces("g"), fair("a")))
			plain = c.insert(c.job())[0]
			b, d = c.job(replaces("g"), fair("b")), c.job(fair("d"))
			batch(d, b)
			c.inTurn(storage.Claim{}, d.ID, b.ID, plain)
			between, last := c.job(), c.job(replaces("h"), fair("d"))
			batch(c.job(replaces("h"), fair("b")), between, last)
			c.inTurn(storage.Claim{}, between.ID, last.ID)
		}},
	{"fair-12", "Fairness/Bound", "Fairness",
		"Before a job of a key that has none waiting, at most twice the weight of another key start of its jobs.",
		needsNothing, func(c *C) {
			for round := range 8 {
				rnd := rand.New(rand.NewPCG(uint64(round), 1))
				weights := make(map[string]int)
				for i := range 5 {
					weights[fmt.Sprint("key", i)] = 1 + rnd.IntN(4)
				}
				own := queue(fmt.Sprint("q", round))
				job := func() storage.Record {
					key := fmt.Sprint("key", rnd.IntN(5))
					return c.job(share(key, weights[key]), own)
				}
				var backlog []storage.Record
				for range 60 {
					backlog = append(backlog, job())
				}
				c.together(backlog...)
				for i := range 10 {
					if rnd.IntN(2) == 0 {
						c.settled(c.get(backlog[59-i].ID), c.to(ojs.StateCancelled))
					}
				}
				claim := storage.Claim{Queues: []string{fmt.Sprint("q", round)}, Max: 1 + rnd.IntN(20)}
				c.claimOf(claim)
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
					c.insert(job())
				}
			}
		}},
	{"fair-13", "Fairness/Shares", "Fairness",
		"Of any 1,000 starts of a level in which keys of weights 1, 3 and 10 have jobs waiting, each has its share within 5 %.",
		needsNothing, func(c *C) {
			weights := []int{1, 3, 10}
			var backlog []storage.Record
			for i := range 14 * 90 {
				key := slices.IndexFunc([]int{1, 4, 14}, func(until int) bool { return i%14 < until })
				backlog = append(backlog, c.job(share(fmt.Sprint(key), weights[key])))
			}
			rand.New(rand.NewPCG(1, 2)).Shuffle(len(backlog), func(i, j int) {
				backlog[i], backlog[j] = backlog[j], backlog[i]
			})
			for part := range slices.Chunk(backlog, 100) {
				c.together(part...)
			}
			var started []string
			for len(started) < 1150 {
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
					want := 1000 * float64(w) / 14
					if got := float64(n[fmt.Sprint(i)]); got < want*0.95 || got > want*1.05 {
						c.failf("%v of 1000 starts are of the key of weight %d, not %v", got, w, want)
					}
				}
			}
		}},
	{"fair-14", "Fairness/Serial", "Fairness",
		"A key that stores its next job whenever one starts has no more starts than a key with a backlog.",
		needsNothing, func(c *C) {
			c.tenant(20, fair("a"))
			c.tenant(40, share("b", 2))
			c.tenant(1, fair("serial"))
			n := make(map[string]int)
			for range 40 {
				key := c.starts()
				if n[key]++; key == "serial" {
					c.tenant(1, fair("serial"))
				}
			}
			if n["a"] < 9 || n["b"] < 19 || n["serial"] < 9 || n["serial"] > 11 {
				c.failf("40 starts are %v, not 10 of each key of weight 1", n)
			}
		}},
	{"fair-15", "Fairness/Batches", "Fairness",
		"Jobs of one call take turns as those of many calls do, and a claim of many takes what many claims take.",
		needsNothing, func(c *C) {
			var recs []storage.Record
			for i := range 13 {
				recs = append(recs, c.job(fair([]string{"a", "b"}[i/10])))
			}
			list := c.together(recs...)
			c.nextInTurn(list[0], list[10], list[1], list[11], list[2], list[12])
			b := c.tenant(2, fair("b"))
			c.nextInTurn(list[3], b[0], list[4], b[1], list[5], list[6], list[7], list[8], list[9])
		}},
	{"fair-9", "Fairness/Reopened", "Capabilities.Durable",
		"Turns outlive the storage, and so does which round was claimed of last.",
		needsReopen, func(c *C) {
			a := c.tenant(3, fair("a"))
			b := c.tenant(1, fair("b"))
			d := c.tenant(1, fair("d"))
			c.nextInTurn(a[0], b[0])
			c.reopen()
			again := c.tenant(1, fair("b"))
			e := c.tenant(1, fair("e"))
			c.inTurn(storage.Claim{}, d[0], a[1], again[0], e[0], a[2])
		}},
}
