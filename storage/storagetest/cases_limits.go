package storagetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// limit gives a job a rate limit.
func limit(l ojs.RateLimit) func(*storage.Record) {
	return func(r *storage.Record) { r.RateLimit = &l }
}

// atOnce limits the concurrency of a key.
func atOnce(key string, n int) func(*storage.Record) {
	return limit(ojs.RateLimit{Key: key, Concurrency: n})
}

func ofKey(name string) storage.LimitName {
	return storage.LimitName{Kind: storage.LimitKey, Name: name}
}

// obeying claims up to n jobs within limits, wants these, and returns what limits did.
func (c *C) obeying(n int, want ...string) *storage.Limited {
	c.tb.Helper()
	// The claim replaces the result of another.
	done := &storage.Limited{Dropped: make([]storage.Record, 1), Opens: c.now}
	c.claims(storage.Claim{Limits: done, Max: n}, want...)
	return done
}

// claims makes one claim, and wants these jobs.
func (c *C) claims(q storage.Claim, want ...string) {
	c.tb.Helper()
	if got := ids(c.claimOf(q)); !slices.Equal(got, want) {
		c.failf("claimed %v, not %v", short(got), short(want))
	}
}

// wantOpens wants no job, and limits that open at a time.
func (c *C) wantOpens(want time.Time) {
	c.tb.Helper()
	if done := c.obeying(1); !done.Opens.Equal(want) {
		c.failf("limits open at %v, not %v", done.Opens, want)
	}
}

// setLimit sets the bounds of a limit, for ever.
func (c *C) setLimit(name storage.LimitName, bounds ojs.RateLimit) {
	c.tb.Helper()
	c.noErr("SetLimit", c.S.SetLimit(c.ctx, c.now, name, bounds, time.Time{}))
}

// shut has the limits of keys hold back all of their jobs, until unshut.
func (c *C) shut(keys ...string) {
	c.tb.Helper()
	for _, key := range keys {
		c.setLimit(ofKey(key), ojs.RateLimit{Concurrency: ojs.NoneAtOnce})
	}
}

func (c *C) unshut(keys ...string) {
	c.tb.Helper()
	for _, key := range keys {
		c.setLimit(ofKey(key), ojs.RateLimit{})
	}
}

// endsNow completes a job.
func (c *C) endsNow(id string) {
	c.tb.Helper()
	c.settleAll([]storage.Record{c.get(id)}, func(_ int, r *storage.Record) {
		r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, c.now, time.Time{}
	})
}

func (c *C) wantLimit(name storage.LimitName, want storage.Limit) {
	c.tb.Helper()
	got, err := c.S.GetLimit(c.ctx, c.now, name)
	c.noErr("GetLimit", err)
	want.LimitName = name
	if diff := fields.Diff(got, want); len(diff) > 0 {
		c.failf("the limit is not as it should be: %s", strings.Join(diff, "; "))
	}
}

// limitsInTime looks at limits whose starts, blocks, settings and jobs come and go.
func (c *C) limitsInTime() {
	c.tb.Helper()
	s, begin := c.S, c.now
	listed := func(kind storage.LimitKind, want ...string) {
		c.tb.Helper()
		list, err := s.ListLimits(c.ctx, c.now, kind, "", 9)
		c.noErr("ListLimits", err)
		var names []string
		for _, l := range list {
			names = append(names, l.Name)
		}
		if !slices.Equal(names, want) {
			c.failf("limits of kind %s are %q, not %q", kind, names, want)
		}
	}
	block := func(name storage.LimitName, until time.Time) {
		c.tb.Helper()
		c.noErr("BlockLimit", s.BlockLimit(c.ctx, c.now, name, until))
	}

	rate := ojs.RateLimit{Rate: ojs.Rate{Limit: 1, Per: time.Minute}}
	c.setLimit(ofKey("c"), rate)
	c.wantLimit(ofKey("c"), storage.Limit{Setting: &rate, Bounds: rate})
	c.setLimit(ofKey("c"), ojs.RateLimit{})
	_, err := s.GetLimit(c.ctx, c.now, ofKey("c"))
	c.wantErr("GetLimit of a limit whose setting was removed", err, ojs.ErrNotFound)
	listed(storage.LimitKey)

	own := rate
	own.Key = "rate"
	started := c.insert(c.job(limit(own)))
	listed(storage.LimitKey, "rate")
	c.obeying(1, started...)
	c.wantLimit(ofKey("rate"), storage.Limit{Active: 1, Bounds: rate, Starts: 1,
		Opens: begin.Add(time.Minute)})
	c.now = begin.Add(time.Minute)
	c.wantLimit(ofKey("rate"), storage.Limit{Active: 1, Bounds: rate})
	c.endsNow(started[0])

	idle := storage.LimitName{Kind: storage.LimitType, Name: "idle"}
	until := c.now.Add(time.Minute)
	block(idle, until)
	c.wantLimit(idle, storage.Limit{BlockedUntil: until, Opens: until})
	listed(storage.LimitType, "idle")
	c.now = until
	_, err = s.GetLimit(c.ctx, c.now, idle)
	c.wantErr("GetLimit of a limit whose block has ended", err, ojs.ErrNotFound)

	// If another job has to end first, time does not open the limit.
	c.obeying(1, c.insert(c.job(atOnce("full", 1)))...)
	block(ofKey("full"), c.now.Add(time.Minute))
	c.wantLimit(ofKey("full"), storage.Limit{Active: 1, Bounds: ojs.RateLimit{Concurrency: 1},
		BlockedUntil: c.now.Add(time.Minute)})
	c.now = c.now.Add(-time.Second) // by another clock
	c.wantLimit(ofKey("full"), storage.Limit{Active: 1, Bounds: ojs.RateLimit{Concurrency: 1},
		BlockedUntil: c.now.Add(61 * time.Second)})

	// A job that has ended or has expired does not wait.
	ended := c.insert(c.job(atOnce("waits", 3)))[0]
	c.settled(c.get(ended), c.to(ojs.StateCancelled))
	c.insert(c.job(atOnce("waits", 1), func(r *storage.Record) { r.ExpiresAt = c.now.Add(time.Second) }))
	c.now = c.now.Add(time.Second)
	c.insert(c.job(atOnce("waits", 2), priority(-1)))
	c.wantLimit(ofKey("waits"), storage.Limit{Waiting: 1, Bounds: ojs.RateLimit{Concurrency: 2}})
	last := ojs.RateLimit{Key: "waits", Concurrency: 4, OnLimit: ojs.OnLimitWait}
	c.obeying(1, c.insert(c.job(limit(last)))...)
	c.wantLimit(ofKey("waits"), storage.Limit{Active: 1, Waiting: 1,
		Bounds: ojs.RateLimit{Concurrency: 4}})
}

var limitKinds = []storage.LimitKind{storage.LimitKey, storage.LimitQueue, storage.LimitType}

// starting are the ways in which a job becomes active: each takes the one job of a queue.
func (c *C) starting() map[string]func(q storage.Claim, r storage.Record) {
	one := func(got []string, r storage.Record) {
		c.tb.Helper()
		if !slices.Equal(got, []string{r.ID}) {
			c.failf("claimed %v, not %v", short(got), short([]string{r.ID}))
		}
	}
	ways := map[string]func(q storage.Claim, r storage.Record){
		"Claim": func(q storage.Claim, r storage.Record) {
			c.insert(r)
			one(ids(c.claimOf(q)), r)
		},
		"Claim within limits": func(q storage.Claim, r storage.Record) {
			q.Limits = new(storage.Limited)
			c.insert(r)
			one(ids(c.claimOf(q)), r)
		},
		"Settle": func(_ storage.Claim, r storage.Record) {
			c.insert(r)
			c.settled(c.get(r.ID), c.to(ojs.StateActive))
		},
		"Claim after an edit": func(q storage.Claim, r storage.Record) {
			plain := r.Copy()
			plain.Queue, plain.Type, plain.TypeVersion, plain.RateLimit = "plain", "plain", "", nil
			c.insert(plain)
			c.settled(c.get(r.ID), func(to *storage.Record) {
				to.Queue, to.Type, to.TypeVersion, to.RateLimit = r.Queue, r.Type, r.TypeVersion, r.RateLimit
			})
			one(ids(c.claimOf(q)), r)
		},
		"Due": func(q storage.Claim, r storage.Record) { // a lease that was lost is handed over
			c.insert(r)
			one(ids(c.claimOf(q)), r)
			c.pass(r.Lease)
			if got := ids(c.due().Stalled); !slices.Contains(got, r.ID) {
				c.failf("handed over %v, not %v", short(got), short([]string{r.ID}))
			}
		},
		"Insert": func(q storage.Claim, r storage.Record) {
			q.Limits = new(storage.Limited)
			if claimed, _ := c.claiming(q, r); !claimed {
				one(ids(c.claimOf(q)), r)
			}
		},
	}
	if c.cfg.SettleClaims {
		ways["SettleAndClaim"] = func(q storage.Claim, r storage.Record) {
			q.Limits = new(storage.Limited)
			c.insert(r)
			_, recs := c.step(q, 1)
			one(ids(recs), r)
		}
	}
	return ways
}

// countsStart has a job of a limit become active, and wants it to count until it ends.
func (c *C) countsStart(way func(storage.Claim, storage.Record), name storage.LimitName,
	change func(*storage.Record), late bool) {
	c.tb.Helper()
	c.ids++
	name.Name = fmt.Sprint(name.Kind, c.ids)
	one := ojs.RateLimit{Concurrency: 1}
	set := func() {
		if name.Kind != storage.LimitKey {
			c.setLimit(name, one)
		}
	}
	job := func() storage.Record {
		r := c.job(queue(name.Name), jobType(name.Name), change)
		if name.Kind == storage.LimitKey {
			atOnce(name.Name, 1)(&r)
		}
		return r
	}
	q := storage.Claim{Queues: []string{name.Name}, Max: 9, Worker: "w"}
	if !late {
		set()
	}
	first, second := job(), job()
	way(q, first)
	if late {
		set()
	}
	c.insert(second)
	limits := q
	limits.Limits = new(storage.Limited)
	c.claims(limits)
	got, err := c.S.GetLimit(c.ctx, c.now, name)
	if c.noErr("GetLimit", err); got.Active != 1 || got.Waiting != 1 {
		c.failf("of the limit %d jobs are active and %d wait, not 1 and 1", got.Active, got.Waiting)
	}
	c.settled(c.get(first.ID), c.to(isCompleted))
	c.claims(limits, second.ID)
	c.settled(c.get(second.ID), c.to(isCompleted))
}

var limitCases = []Case{
	{
		"limit-1",
		"Limits/Concurrency",
		"Limited",
		"A claim that obeys limits takes as many jobs of a key as may be active, counts each, and takes the jobs behind those that wait.",
		needsNothing,
		func(c *C) {
			got := c.insert(
				c.job(atOnce("k", 2)),
				c.job(atOnce("k", 2)),
				c.job(atOnce("k", 2)),
				c.job(atOnce("other", 1)),
				c.job(),
			)
			c.obeying(9, got[0], got[1], got[3], got[4])
			c.wantState(got[2], ojs.StateAvailable)
			inQueue := new(storage.Limited)
			c.claims(storage.Claim{Queues: []string{"q"}, Max: 9, Limits: inQueue})
			if done := c.obeying(9); !done.Held || !inQueue.Held {
				c.failf("no limit holds a job back, and one does")
			}
			c.claims(storage.Claim{Max: 9}) // it asks for no results
			more := c.insert(c.job(atOnce("k", 2)), c.job(atOnce("k", 3)))
			c.obeying(9, more[1])

			// A closed limit holds back the first job of another queue, or type, too.
			c.insert(c.job(atOnce("k", 3), queue("another")))
			c.insert(c.job(atOnce("k", 3), jobType("another")))
			c.obeying(9)
			third := c.insert(c.job(atOnce("k", 4), queue("third"), priority(1)))
			c.claims(storage.Claim{Max: 9}, third...)
			c.insert(c.job(atOnce("k", 3), queue("fourth"), priority(1)))
			c.claims(storage.Claim{Max: 1})

			// So does a closed limit of a queue, however the claim asks.
			own := storage.LimitName{Kind: storage.LimitQueue, Name: "lane"}
			c.setLimit(own, ojs.RateLimit{Concurrency: 1})
			lane := func(types ...string) storage.Claim {
				return storage.Claim{Queues: []string{"lane"}, Types: types, Max: 1}
			}
			all := storage.Claim{Types: []string{"lane"}, Max: 1}
			another := func() []string { return c.insert(c.job(queue("lane"), jobType("lane"))) }
			c.obeying(9, another()...)
			another()
			for _, q := range []storage.Claim{lane(), lane("lane"), all} {
				q.Limits = new(storage.Limited)
				c.claims(q)
			}
		},
	},
	// Rule L003, with limit-10.
	{
		"limit-2",
		"Limits/Freed",
		"Limited",
		"A slot is free from the call on that ends the activity of a job, whichever it is, and a job counts while it is active, however it became so.",
		needsNothing,
		func(c *C) {
			ways := map[string]func(r storage.Record){
				"complete": func(r storage.Record) { c.endsNow(r.ID) },
				"cancel": func(r storage.Record) {
					c.settleAll(
						[]storage.Record{r},
						func(_ int, r *storage.Record) { r.Cancel(c.now); r.Version-- },
					)
				},
				"retry": func(r storage.Record) {
					c.settleAll([]storage.Record{r}, func(_ int, r *storage.Record) {
						r.State, r.NextRetryAt, r.LeaseUntil = ojs.StateRetryable, c.now.Add(
							time.Hour,
						), time.Time{}
					})
				},
				"reaped": func(r storage.Record) {
					c.now = c.now.Add(2 * time.Minute)
					d, err := c.S.Due(c.ctx, c.now, 9, nil)
					c.noErr("Due", err)
					if len(d.Stalled) != 1 {
						c.failf("%d jobs stalled, not 1", len(d.Stalled))
					}
					c.obeying(9) // it is active still
					c.settleAll(d.Stalled, func(_ int, r *storage.Record) {
						r.State, r.FinishedAt, r.LeaseUntil = ojs.StateDiscarded, c.now, time.Time{}
					})
				},
			}
			for _, way := range []string{"complete", "cancel", "retry", "reaped"} {
				key := atOnce("k-"+way, 1)
				got := c.insert(c.job(key), c.job(key))
				c.obeying(9, got[0])
				c.obeying(9)
				ways[way](c.get(got[0]))
				c.obeying(9, got[1])
				c.endsNow(got[1])
			}
			none := c.insert(c.job(atOnce("none", ojs.NoneAtOnce)))
			c.wantOpens(time.Time{})
			c.wantState(none[0], ojs.StateAvailable)
		},
	},
	{
		"limit-18",
		"Limits/EveryJob",
		"Limited",
		"A limit of each kind counts every active job of it: with a version or without, from before the " +
			"setting or after it, however it has become active.",
		needsNothing,
		func(c *C) {
			for _, way := range c.starting() {
				for _, kind := range limitKinds {
					for _, of := range []string{"", "2.0"} {
						for _, late := range []bool{false, true} {
							c.countsStart(way, storage.LimitName{Kind: kind}, version(of), late)
						}
					}
				}
			}
		},
	},
	{
		"limit-3",
		"Limits/Rate",
		"Limited",
		"No stretch of a rate's period has more starts than its limit, whichever claim makes them, and the claim says when the next may be.",
		needsNothing,
		func(c *C) {
			rate := limit(ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 2, Per: 10 * time.Second}})
			got := c.insert(c.job(rate), c.job(rate), c.job(rate), c.job(rate), c.job(rate))
			begin := c.now
			c.claims(storage.Claim{Max: 1}, got[0])
			c.endsNow(got[0])
			c.now = begin.Add(4 * time.Second)
			c.obeying(9, got[1])
			c.wantOpens(begin.Add(10 * time.Second))
			c.now = begin.Add(10*time.Second - max(c.cfg.TimePrecision, 1))
			c.wantOpens(begin.Add(10 * time.Second))
			c.now = begin.Add(10 * time.Second)
			if done := c.obeying(1, got[2]); !done.Opens.IsZero() {
				c.failf("the claim has all that it wants, others wait, and limits open at %v", done.Opens)
			}
			c.wantOpens(begin.Add(14 * time.Second))
			c.now = begin.Add(2 * time.Second) // another clock
			c.wantOpens(begin.Add(14 * time.Second))
			c.now = begin.Add(time.Hour)
			if done := c.obeying(1, got[3]); !done.Opens.IsZero() {
				c.failf("the claim has all that it wants, and limits open at %v", done.Opens)
			}
			c.obeying(9, got[4])
			if done := c.obeying(9); !done.Opens.IsZero() {
				c.failf("nothing waits, and limits open at %v", done.Opens)
			}

			// Starts count in the order of their times, not of the claims.
			rate = limit(ojs.RateLimit{Key: "two", Rate: ojs.Rate{Limit: 2, Per: 10 * time.Second}})
			begin = c.now
			got = c.insert(c.job(rate), c.job(rate), c.job(rate))
			c.now = begin.Add(8 * time.Second)
			c.obeying(1, got[0])
			c.now = begin
			c.obeying(1, got[1])
			c.wantOpens(begin.Add(10 * time.Second))
			c.now = begin.Add(10 * time.Second)
			c.obeying(1, got[2])
			rate = limit(ojs.RateLimit{Key: "three", Rate: ojs.Rate{Limit: 3, Per: 10 * time.Second}})
			begin = c.now
			got = c.insert(c.job(rate), c.job(rate), c.job(rate), c.job(rate))
			for i, after := range []time.Duration{9 * time.Second, 8 * time.Second, 0} {
				c.now = begin.Add(after)
				c.obeying(1, got[i])
			}
			c.wantOpens(begin.Add(10 * time.Second))
			c.now = begin.Add(10 * time.Second)
			c.obeying(1, got[3])

			// All starts that count are kept, however many these are.
			const many = 150
			rate = limit(ojs.RateLimit{Key: "many", Rate: ojs.Rate{Limit: many, Per: 10 * time.Second}})
			jobs := make([]storage.Record, many+1)
			for i := range jobs {
				jobs[i] = c.job(rate)
			}
			c.insertAll(jobs)
			started := c.claimOf(storage.Claim{Max: many + 1})
			if len(started) != many {
				c.failf("%d jobs have started, not %d", len(started), many)
			}
			c.endsNow(started[0].ID) // so that the storage looks at the key again
			begin = c.now
			c.now = begin.Add(time.Second)
			c.wantOpens(begin.Add(10 * time.Second))
			c.now = begin.Add(10 * time.Second)
			c.obeying(1, jobs[many].ID)

			// A clock that goes back closes what a claim has found open.
			rate = limit(ojs.RateLimit{Key: "back", Rate: ojs.Rate{Limit: 1, Per: 10 * time.Second}})
			ttl := func(r *storage.Record) { r.EnqueueTTL = time.Hour }
			begin = c.now
			got = c.insert(c.job(rate), c.job(rate, ttl), c.job(priority(-1)))
			c.obeying(1, got[0])
			c.now = begin.Add(10 * time.Second)
			c.claims(storage.Claim{Limits: new(storage.Limited), Types: []string{"none"}, Max: 1})
			c.now = begin.Add(2 * time.Second)
			q := storage.Claim{Limits: new(storage.Limited), Max: 2}
			if c.cfg.SettleClaims {
				c.stepped(q, 2, got[2])
			} else {
				c.claims(q, got[2])
			}
			c.wantOpens(begin.Add(10 * time.Second))

			// Limits hold before 1970, too.
			early := ojs.RateLimit{Rate: ojs.Rate{Limit: 1, Per: 10 * time.Second}}
			rate = limit(ojs.RateLimit{Key: "early", Rate: early.Rate})
			c.now = time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)
			got = c.insert(c.job(rate, queue("early")), c.job(rate))
			c.wantLimit(ofKey("early"), storage.Limit{Waiting: 2, Bounds: early})
			c.obeying(9, got[0])
			c.wantOpens(c.now.Add(10 * time.Second))
			c.wantLimit(ofKey("early"), storage.Limit{Active: 1, Waiting: 1, Bounds: early, Starts: 1,
				Opens: c.now.Add(10 * time.Second)})
			c.wantLimit(storage.LimitName{Kind: storage.LimitQueue, Name: "early"}, storage.Limit{Active: 1})
		},
	},
	{
		"limit-4",
		"Limits/Throttle",
		"Limited",
		"Starts of a throttle are evenly apart, and unused ones are not saved up.",
		needsNothing,
		func(c *C) {
			throttle := limit(ojs.RateLimit{Key: "k", Throttle: ojs.Rate{Limit: 4, Per: 10 * time.Second}})
			got := c.insert(c.job(throttle), c.job(throttle), c.job(throttle), c.job(throttle))
			begin := c.now
			c.obeying(9, got[0])
			c.wantOpens(begin.Add(2500 * time.Millisecond))
			c.now = begin.Add(2500 * time.Millisecond)
			c.obeying(9, got[1])
			c.now = begin.Add(time.Hour)
			c.obeying(9, got[2])
			c.wantOpens(begin.Add(time.Hour + 2500*time.Millisecond))
			c.now = begin.Add(time.Hour + 2500*time.Millisecond)
			c.claims(storage.Claim{Queues: []string{"q"}, Limits: new(storage.Limited), Max: 9}, got[3])
		},
	},
	{
		"limit-5",
		"Limits/OtherBounds",
		"Limited",
		"Jobs of a key share its counts, and each is held to bounds of its own, whichever came first.",
		needsNothing,
		func(c *C) {
			loose := limit(
				ojs.RateLimit{Key: "k", Concurrency: 3, Rate: ojs.Rate{Limit: 9, Per: time.Minute}},
			)
			got := c.insert(
				c.job(atOnce("k", 1)),
				c.job(loose),
				c.job(atOnce("k", 1)),
				c.job(loose),
				c.job(loose),
			)
			c.obeying(9, got[0], got[1], got[3])
			c.endsNow(got[0])
			c.obeying(9, got[4])
			c.endsNow(got[1])
			c.endsNow(got[3])
			c.obeying(9)
			c.endsNow(got[4])
			c.obeying(9, got[2])

			// A waiting job starts in its turn, even if others that waited are gone.
			two := atOnce("two", 1)
			got = c.insert(c.job(two), c.job(two, jobType("a")), c.job(two, jobType("b")))
			c.obeying(9, got[0])
			c.settled(c.get(got[1]), c.to(ojs.StateCancelled))
			c.endsNow(got[0])
			c.obeying(9, got[2])
			left := c.insert(c.job(two))
			c.obeying(9)
			c.settled(c.get(left[0]), c.to(ojs.StateCancelled))
			c.endsNow(got[2])
			c.obeying(9)
			c.obeying(9, c.insert(c.job(two))[0])

			// A claim ends if no bounds of the key let a job start.
			rate := func(per time.Duration) func(*storage.Record) {
				return limit(ojs.RateLimit{Key: "rate", Rate: ojs.Rate{Limit: 1, Per: per}})
			}
			got = c.insert(c.job(rate(time.Minute)), c.job(rate(time.Minute)), c.job(rate(time.Hour)))
			c.obeying(1, got[0])
			c.wantOpens(c.now.Add(time.Minute))
		},
	},
	{
		"limit-6",
		"Limits/QueuesAndTypes",
		"LimitStore.SetLimit",
		"A queue and a type have the bounds that are set, apart from keys of their names, for jobs of every version, with effect at once and for jobs that are active.",
		needsNothing,
		func(c *C) {
			got := c.insert(
				c.job(jobType("t"), queue("a")),
				c.job(jobType("t"), version("2.0"), queue("b")),
				c.job(
					jobType("u"),
					queue("a"),
					atOnce("a", 1),
				),
				c.job(jobType("u"), queue("a")),
				c.job(jobType("u"), queue("b")),
			)
			c.setLimit(ofKey("u"), ojs.RateLimit{Concurrency: ojs.NoneAtOnce}) // of no job
			c.claims(storage.Claim{Max: 1}, got[0])
			c.setLimit(storage.LimitName{Kind: storage.LimitType, Name: "t"}, ojs.RateLimit{Concurrency: 1})
			c.setLimit(
				storage.LimitName{Kind: storage.LimitQueue, Name: "a"},
				ojs.RateLimit{Concurrency: 2},
			)
			c.obeying(9, got[2], got[4])
			c.claims(storage.Claim{Limits: new(storage.Limited), Queues: []string{"a", "b"}, Max: 9})
			c.setLimit(
				storage.LimitName{Kind: storage.LimitQueue, Name: "a"},
				ojs.RateLimit{Concurrency: 1},
			)
			c.endsNow(got[0])
			c.obeying(9, got[1])
			c.endsNow(got[2])
			c.obeying(9, got[3])
			more := c.insert(c.job(jobType("u"), queue("a")))
			c.obeying(9)
			c.setLimit(storage.LimitName{Kind: storage.LimitQueue, Name: "a"}, ojs.RateLimit{})
			c.obeying(9, more[0])

			// A job counts in its queue and in its type.
			both := c.insert(c.job(jobType("both"), queue("wide")), c.job(jobType("both"), queue("wide")))
			for i, most := range []int{2, 1} {
				kind := []storage.LimitKind{storage.LimitQueue, storage.LimitType}[i]
				name := storage.LimitName{Kind: kind, Name: []string{"wide", "both"}[i]}
				c.setLimit(name, ojs.RateLimit{Concurrency: most})
			}
			c.obeying(9, both[0])
			c.endsNow(both[0])
			c.obeying(9, both[1])

			// The counts of a queue are apart from those of a key "queue:" and its name.
			// The bounds of a job do not loosen those of its queue.
			c.setLimit(storage.LimitName{Kind: storage.LimitQueue, Name: "z"}, ojs.RateLimit{Concurrency: 2})
			got = c.insert(
				c.job(queue("z"), atOnce("queue:z", 1)), c.job(queue("z"), atOnce("queue:z", 1)),
				c.job(queue("z")), c.job(queue("z"), atOnce("loose", 99)),
			)
			c.obeying(9, got[0], got[2])
			c.endsNow(got[2])
			c.obeying(9, got[3])
			c.endsNow(got[0])
			c.obeying(9, got[1])

			// Every bound of a key holds.
			three := limit(ojs.RateLimit{Key: "three", Concurrency: 1,
				Rate:     ojs.Rate{Limit: 2, Per: 10 * time.Second},
				Throttle: ojs.Rate{Limit: 1, Per: 3 * time.Second}})
			got = c.insert(c.job(three), c.job(three), c.job(three))
			begin := c.now
			c.obeying(9, got[0])
			c.wantOpens(time.Time{})
			c.endsNow(got[0])
			c.wantOpens(begin.Add(3 * time.Second))
			c.now = begin.Add(3 * time.Second)
			c.obeying(9, got[1])
			c.endsNow(got[1])
			c.wantOpens(begin.Add(10 * time.Second))
			c.now = begin.Add(10 * time.Second)
			c.obeying(9, got[2])

			// A limit goes on, and ends, while it has no jobs, and is that of new ones.
			leaves := func(id string) {
				c.settled(c.get(id), c.to(ojs.StateCancelled))
				_, err := c.S.Delete(c.ctx, []string{id})
				c.noErr("Delete", err)
			}
			for _, name := range []storage.LimitName{
				{Kind: storage.LimitType, Name: "v"}, {Kind: storage.LimitQueue, Name: "w"},
			} {
				closedUntil := func(until time.Time) {
					c.noErr("SetLimit", c.S.SetLimit(c.ctx, c.now, name,
						ojs.RateLimit{Concurrency: ojs.NoneAtOnce}, until))
				}
				job := func(other string) storage.Record { // in the limit
					if name.Kind == storage.LimitType {
						return c.job(jobType("v"), queue(other))
					}
					return c.job(jobType(other), queue("w"))
				}
				until := c.now.Add(time.Minute)
				for range 2 {
					closedUntil(until)
					held := c.insert(job("x"))
					c.wantOpens(until)
					leaves(held[0])
					until = until.Add(time.Minute)
					closedUntil(until)
					c.obeying(9)
					held = c.insert(job("x"))
					c.wantOpens(until)
					leaves(held[0])
					c.now = until
					c.obeying(9)
					c.obeying(9, c.insert(job("x"))[0])
					until = until.Add(time.Minute)
				}
				closedUntil(until)
				held := c.insert(job("stays"), job("leaves"))
				c.wantOpens(until)
				leaves(held[1])
				c.wantOpens(until)
				c.now = until
				c.obeying(9, held[0])
			}
		},
	},
	// Rule L043.
	{
		"limit-8",
		"Limits/Override",
		"LimitStore.SetLimit",
		"What a setting of a key names replaces the bounds of its jobs, up or down, until it ends or is removed.",
		needsNothing,
		func(c *C) {
			// A setting that a claim has found ended counts again for a claim whose clock
			// is before that end.
			ends := c.now.Add(time.Minute)
			set := func(key string, n int) {
				bounds := ojs.RateLimit{Concurrency: n}
				c.noErr("SetLimit", c.S.SetLimit(c.ctx, c.now, ofKey(key), bounds, ends))
			}
			set("raised", 3)
			set("shut", ojs.NoneAtOnce)
			back := storage.Claim{Queues: []string{"back"}, Max: 9}
			once := func(key string) storage.Record { return c.job(queue("back"), atOnce(key, 1)) }
			raised := c.insert(once("raised"), once("raised"), once("raised"))
			shut := c.insert(once("shut"), once("shut"))
			for _, claim := range []struct {
				at    time.Time
				want  []string
				opens time.Time
			}{
				{ends, []string{raised[0], shut[0]}, time.Time{}},
				{ends, nil, time.Time{}},
				{ends.Add(-time.Second), raised[1:], ends},
				{ends.Add(-time.Minute), nil, ends},
				{ends, nil, time.Time{}},
				{ends.AddDate(0, -1, 0), nil, ends},
			} {
				c.now, back.Limits = claim.at, new(storage.Limited)
				c.claims(back, claim.want...)
				if !back.Limits.Opens.Equal(claim.opens) {
					c.failf("at %v limits open at %v, not %v", claim.at, back.Limits.Opens, claim.opens)
				}
			}
			c.now = ends

			key := limit(
				ojs.RateLimit{Key: "k", Concurrency: 1, Throttle: ojs.Rate{Limit: 1, Per: time.Second}},
			)
			c.setLimit(ofKey("k"), ojs.RateLimit{Concurrency: 2}) // before there is a job
			got := c.insert(c.job(key), c.job(key), c.job(key), c.job(key), c.job(key))
			c.obeying(9, got[0])
			begin := c.now
			c.now = begin.Add(time.Second)
			c.obeying(9, got[1])
			c.now = begin.Add(2 * time.Second)
			c.wantOpens(time.Time{})
			until := begin.Add(5 * time.Second)
			c.noErr("SetLimit", c.S.SetLimit(c.ctx, c.now, ofKey("k"),
				ojs.RateLimit{Concurrency: 4, Throttle: ojs.Rate{Limit: 1, Per: time.Millisecond}}, until))
			c.obeying(1, got[2])
			c.wantOpens(c.now.Add(time.Millisecond))
			c.wantLimit(
				ofKey("k"),
				storage.Limit{Active: 3, Waiting: 2, Until: until, Opens: c.now.Add(time.Millisecond),
					Setting: &ojs.RateLimit{
						Concurrency: 4,
						Throttle:    ojs.Rate{Limit: 1, Per: time.Millisecond},
					},
					Bounds: ojs.RateLimit{
						Concurrency: 4,
						Throttle:    ojs.Rate{Limit: 1, Per: time.Millisecond},
					}},
			)
			c.now = until
			c.wantOpens(time.Time{}) // three are active
			c.endsNow(got[0])
			c.endsNow(got[1])
			c.obeying(1)
			c.noErr(
				"SetLimit",
				c.S.SetLimit(
					c.ctx,
					c.now,
					ofKey("k"),
					ojs.RateLimit{Concurrency: ojs.NoneAtOnce},
					until.Add(time.Hour),
				),
			)
			c.endsNow(got[2])
			c.wantOpens(until.Add(time.Hour))
			c.setLimit(ofKey("k"), ojs.RateLimit{})
			c.obeying(9, got[3])
			c.wantOpens(time.Time{})

			// A job starts when the setting ends that holds it back, or changes.
			rate := ojs.RateLimit{Rate: ojs.Rate{Limit: 1, Per: time.Hour}}
			until = c.now.Add(time.Minute)
			c.noErr("SetLimit", c.S.SetLimit(c.ctx, c.now, ofKey("s"), rate, until))
			got = c.insert(c.job(atOnce("s", 9)), c.job(atOnce("s", 9)))
			c.obeying(9, got[0])
			c.wantOpens(until)
			c.now = until
			c.obeying(9, got[1])
			own := limit(ojs.RateLimit{Key: "t", Rate: rate.Rate})
			got = c.insert(c.job(own), c.job(own))
			c.obeying(9, got[0])
			c.wantOpens(c.now.Add(time.Hour))
			c.setLimit(ofKey("t"), ojs.RateLimit{Concurrency: 1})
			c.wantOpens(time.Time{})
			c.setLimit(ofKey("t"), ojs.RateLimit{})
			c.wantOpens(c.now.Add(time.Hour))
			c.setLimit(ofKey("t"), ojs.RateLimit{Rate: ojs.Rate{Limit: 9, Per: time.Hour}})
			c.obeying(9, got[1])
			c.wantOpens(time.Time{})

			far := time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)
			rate = ojs.RateLimit{Rate: ojs.Rate{Limit: 150, Per: time.Hour}}
			c.noErr("SetLimit", c.S.SetLimit(c.ctx, c.now, ofKey("many"), rate, far))
			l, err := c.S.GetLimit(c.ctx, c.now, ofKey("many"))
			c.noErr("GetLimit", err)
			if l.Until.Year() < 2200 {
				c.failf("a setting until %v is one until %v", far, l.Until)
			}
			var many []storage.Record
			for range 160 {
				many = append(many, c.job(queue("many"), atOnce("many", 1000)))
			}
			c.insertAll(many)
			q := storage.Claim{Queues: []string{"many"}, Limits: new(storage.Limited), Max: 200}
			if n := len(c.claimOf(q)); n != 150 {
				c.failf("%d jobs have started within a rate of 150", n)
			}
			c.claims(q)

			// Starts under other bounds of the key count.
			rate.Key, rate.Rate.Limit = "more", 2
			c.claims(q, c.insert(c.job(queue("many"), limit(rate)))...)
			last := c.insert(c.job(queue("many"), limit(rate), priority(-1)))
			for i := range many {
				many[i] = c.job(queue("many"), atOnce("more", 1000))
			}
			c.insertAll(many)
			if n := len(c.claimOf(q)); n != len(many) {
				c.failf("%d of %d jobs without a rate have started", n, len(many))
			}
			c.claims(q)
			c.shut("many")
			c.now = c.now.Add(time.Hour)
			c.claims(q, last[0])
		},
	},
	{
		"limit-9",
		"Limits/Block",
		"LimitStore.BlockLimit",
		"No job of a blocked limit starts before the latest of the times given, unless the block is ended.",
		needsNothing,
		func(c *C) {
			got := c.insert(c.job(atOnce("k", 5)), c.job(atOnce("k", 5)), c.job(atOnce("k", 5)))
			until := c.now.Add(time.Minute)
			block := func(name storage.LimitName, t time.Time) {
				c.noErr("BlockLimit", c.S.BlockLimit(c.ctx, c.now, name, t))
			}
			block(ofKey("k"), until)
			block(ofKey("k"), until.Add(-time.Second))
			c.wantOpens(until)
			c.wantLimit(ofKey("k"), storage.Limit{Waiting: 3, BlockedUntil: until, Opens: until,
				Bounds: ojs.RateLimit{Concurrency: 5}})
			c.now = until
			c.obeying(1, got[0])
			block(ofKey("k"), until.Add(time.Hour))
			c.wantOpens(until.Add(time.Hour))
			c.noErr("SetLimit", c.S.SetLimit(c.ctx, c.now, ofKey("k"),
				ojs.RateLimit{Concurrency: 4}, until.Add(time.Minute))) // ends before the block
			c.wantOpens(until.Add(time.Hour))
			block(ofKey("k"), time.Time{})
			c.obeying(1, got[1])
			block(storage.LimitName{Kind: storage.LimitQueue, Name: "q"}, until.Add(time.Hour))
			c.wantOpens(until.Add(time.Hour))
			c.now = until.Add(time.Hour)
			c.obeying(1, got[2])

			far := c.insert(c.job(atOnce("far", 1)))
			for _, at := range []time.Time{
				time.Unix(0, math.MaxInt64).Add(c.tick()), // it does not fit into nanoseconds since 1970
				time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC),
			} {
				block(ofKey("far"), at)
				c.obeying(1)
				block(ofKey("far"), time.Time{})
			}
			c.obeying(1, far[0])

			// Limits open when the first of them does.
			later := c.now.Add(time.Hour)
			block(ofKey("k"), later)
			block(ofKey("first"), later.Add(-time.Second))
			c.insert(c.job(atOnce("k", 9)), c.job(atOnce("first", 9)), c.job(atOnce("k", 9)))
			c.wantOpens(later.Add(-time.Second))
		},
	},
	{
		"limit-10",
		"Limits/Unclaim",
		"SettleClaimer.Unclaim",
		"Undoing a claim takes its start back.",
		needsSettleClaims,
		func(c *C) {
			rate := limit(ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 1, Per: time.Hour}})
			got := c.insert(c.job(rate), c.job(rate))
			c.obeying(9, got[0])
			c.wantOpens(c.now.Add(time.Hour))
			undone := heldOf(c.get(got[0]))
			c.now = c.now.Add(time.Second)
			s, _ := settleClaimer(c.S)
			n, err := s.Unclaim(c.ctx, c.now, []storage.Held{undone})
			c.noErr("Unclaim", err)
			if n != 1 {
				c.failf("Unclaim returned %d, not 1", n)
			}
			c.obeying(9, got[0])
			c.wantOpens(c.now.Add(time.Hour))

			// A job counts from its claim on. An undone claim frees the slot.
			one := c.insert(c.job(atOnce("one", 1)), c.job(atOnce("one", 1)))
			c.obeying(1, one[0])
			c.obeying(1)
			c.unclaim(1, heldOf(c.get(one[0])))
			c.obeying(9, one[0])
			c.endsNow(one[0])
			c.obeying(9, one[1])

			// Its start may be from before the limit of its type.
			old := c.insert(c.job(jobType("t")))
			c.obeying(1, old[0])
			c.setLimit(storage.LimitName{Kind: storage.LimitType, Name: "t"},
				ojs.RateLimit{Rate: ojs.Rate{Limit: 1, Per: time.Minute}})
			c.unclaim(1, heldOf(c.get(old[0])))
			c.obeying(1, old[0])
			c.insert(c.job(jobType("t")))
			c.wantOpens(c.now.Add(time.Minute))

			// The start of each job is its own, in each kind of limit.
			two := ojs.Rate{Limit: 2, Per: time.Hour}
			for _, name := range []storage.LimitName{
				{Kind: storage.LimitKey, Name: "own"}, {Kind: storage.LimitQueue, Name: "own"},
				{Kind: storage.LimitType, Name: "own"},
			} {
				for _, undone := range []int{0, 1} {
					c.now = c.now.Add(24 * time.Hour)
					change := []func(*storage.Record){queue(fmt.Sprint("own", undone))}
					switch name.Kind {
					case storage.LimitKey:
						change = append(change, limit(ojs.RateLimit{Key: "own", Rate: two}))
					case storage.LimitQueue:
						change = append(change, queue("own"))
					case storage.LimitType:
						change = append(change, jobType("own"))
					}
					if name.Kind != storage.LimitKey {
						c.setLimit(name, ojs.RateLimit{Rate: two})
					}
					made := []storage.Record{c.job(change...), c.job(change...), c.job(change...)}
					got := c.insert(made...)
					q := storage.Claim{Queues: []string{made[0].Queue}, Types: []string{made[0].Type}, Max: 1,
						Limits: new(storage.Limited)}
					begin := c.now
					c.claims(q, got[0])
					c.now = begin.Add(time.Second)
					c.claims(q, got[1])
					c.now = begin.Add(time.Minute)
					c.unclaim(1, heldOf(c.get(got[undone])))
					c.claims(q, got[undone])
					left := begin.Add(time.Second) // the start that was not undone
					if undone == 1 {
						left = begin
					}
					q.Limits = new(storage.Limited)
					if c.claims(q); !q.Limits.Opens.Equal(left.Add(time.Hour)) {
						c.failf("start %d of 2 was undone and made again: the %s opens at %v, not %v",
							undone+1, name.Kind, q.Limits.Opens, left.Add(time.Hour))
					}
					for _, id := range got {
						c.settled(c.get(id), c.to(isCancelled))
					}
				}
				c.setLimit(name, ojs.RateLimit{})
			}
		},
	},
	{
		"limit-11",
		"Limits/OnLimit",
		"Limited",
		"A job that would be claimed and may not start is dropped or rescheduled if it says so, and the claim goes on behind it, as far as it wants jobs.",
		needsNothing,
		func(c *C) {
			key := func(on ojs.OnLimit) func(*storage.Record) {
				return limit(
					ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 1, Per: time.Minute}, OnLimit: on},
				)
			}
			// Priority decides among the jobs that may start, then age. Jobs at a limit
			// hold up no other job.
			waits := c.insert(c.job(atOnce("none", ojs.NoneAtOnce), priority(9)))
			order := c.insert(c.job(atOnce("o", 9)), c.job(atOnce("o", 9), priority(5)),
				c.job(priority(5)), c.job(atOnce("o", 9)))
			c.obeying(9, order[1], order[2], order[0], order[3])
			c.settled(c.get(waits[0]), c.to(ojs.StateCancelled))

			// A retried job is equal to new ones: its place is that of its return.
			c.settleAll([]storage.Record{c.get(order[0])}, func(_ int, r *storage.Record) {
				r.State, r.NextRetryAt, r.LeaseUntil = ojs.StateRetryable, c.now.Add(time.Second), time.Time{}
			})
			before := c.insert(c.job())
			c.now = c.now.Add(time.Second)
			_, err := c.S.Due(c.ctx, c.now, 9, nil)
			c.noErr("Due", err)
			after := c.insert(c.job())
			c.obeying(9, before[0], order[0], after[0])

			conc := limit(ojs.RateLimit{Key: "c", Concurrency: 1, OnLimit: ojs.OnLimitReschedule})
			got := c.insert(
				c.job(key("")),
				c.job(key(ojs.OnLimitDrop), priority(-1)),
				c.job(key(ojs.OnLimitReschedule), priority(-1)),
				c.job(key(ojs.OnLimitWait), priority(-1)),
				c.job(conc, priority(-1)),
				c.job(conc, priority(-1)),
				c.job(priority(-1)),
				c.job(key(ojs.OnLimitDrop), priority(-2)),
			)
			if done := c.obeying(1, got[0]); len(done.Dropped)+len(done.Postponed) > 0 {
				c.failf("a claim that has its job meets %v", done)
			}
			done := c.obeying(2, got[4], got[6])
			if ids := ids(done.Dropped); !slices.Equal(ids, got[1:2]) {
				c.failf("dropped %v, not %v", ids, got[1:2])
			}
			if ids := ids(done.Postponed); !slices.Equal(ids, []string{got[2], got[5]}) {
				c.failf("rescheduled %v, not %v", ids, []string{got[2], got[5]})
			}
			r := c.wantState(got[1], ojs.StateDiscarded)
			if r.Error == nil || r.Error.Type != policy.ErrorTypeRateLimited || r.DeadLettered() ||
				!r.FinishedAt.Equal(c.now) ||
				r.Version != done.Dropped[0].Version {
				c.failf("the dropped job is %v", r)
			}
			for i, at := range map[int]time.Time{
				2: c.now.Add(time.Minute), 5: c.now.Add(storage.LimitDelay),
			} {
				if r := c.wantState(got[i], ojs.StateScheduled); !r.ScheduledAt.Equal(at) ||
					r.Attempt != 0 {
					c.failf("the job is rescheduled to %v, not %v: %v", r.ScheduledAt, at, r)
				}
			}
			c.wantState(got[7], ojs.StateAvailable)
			c.wantState(got[3], ojs.StateAvailable)
			c.now = c.now.Add(storage.LimitDelay)
			d, err := c.S.Due(c.ctx, c.now, 9, nil)
			c.noErr("Due", err)
			if !slices.Equal(ids(d.Promoted), []string{got[5]}) {
				c.failf("promoted %v", ids(d.Promoted))
			}

			// Jobs rescheduled to the same time come due in the order of the claim.
			none := limit(ojs.RateLimit{
				Key: "z", Concurrency: ojs.NoneAtOnce, OnLimit: ojs.OnLimitReschedule,
			})
			got = c.insert(c.job(none, priority(1)), c.job(none, priority(2)))
			c.obeying(1, c.insert(c.job())[0])
			c.now = c.now.Add(storage.LimitDelay)
			d, err = c.S.Due(c.ctx, c.now, 9, nil)
			c.noErr("Due", err)
			if want := []string{got[1], got[0]}; !slices.Equal(ids(d.Promoted), want) {
				c.failf("promoted %v, not %v", ids(d.Promoted), want)
			}
		},
	},
	{
		"limit-12",
		"Limits/DroppedIsCounted",
		"Limited",
		"A dropped job is counted for those that wait for it.",
		needsNothing,
		func(c *C) {
			drop := limit(ojs.RateLimit{Key: "k", Concurrency: ojs.NoneAtOnce, OnLimit: ojs.OnLimitDrop})
			got := c.insert(c.job(drop))
			after := c.job(pending)
			after.Dependencies = &ojs.Dependencies{Condition: ojs.AllEnded}
			c.insertOne(storage.Insert{Record: after, DependsOn: got})
			done := new(storage.Limited)
			recs, err := c.S.Claim(c.ctx, c.now, storage.Claim{Max: 9, Limits: done}, nil)
			c.noErr("Claim", err)
			if len(recs) > 1 || !slices.Equal(ids(done.Moved), []string{after.ID}) {
				c.failf("claimed %v, moved %v", ids(recs), ids(done.Moved))
			}
			if len(recs) == 0 {
				c.obeying(9, after.ID)
			}
		},
	},
	// Rules L042 and L044.
	{
		"limit-13",
		"Limits/Look",
		"LimitStore",
		"Limits are looked up and listed as they are, and invalid ones refused.",
		needsNothing,
		func(c *C) {
			s := c.S
			rate := ojs.RateLimit{Key: "b", Concurrency: 4, Rate: ojs.Rate{Limit: 2, Per: time.Minute}}
			got := c.insert(
				c.job(limit(rate)),
				c.job(limit(rate)),
				c.job(limit(rate)),
				c.job(atOnce("a", 1)),
			)
			begin := c.now
			c.obeying(2, got[0], got[1])
			rate.Key = ""
			c.wantLimit(
				ofKey("b"),
				storage.Limit{
					Active:  2,
					Waiting: 1,
					Bounds:  rate,
					Starts:  2,
					Opens:   begin.Add(time.Minute),
				},
			)
			c.wantLimit(ofKey("a"), storage.Limit{Waiting: 1, Bounds: ojs.RateLimit{Concurrency: 1}})
			c.setLimit(ofKey("c"), ojs.RateLimit{Concurrency: 1})
			c.setLimit(
				storage.LimitName{Kind: storage.LimitQueue, Name: "q"},
				ojs.RateLimit{Concurrency: 7},
			)
			c.wantLimit(
				storage.LimitName{Kind: storage.LimitQueue, Name: "q"},
				storage.Limit{Active: 2, Waiting: 2,
					Setting: &ojs.RateLimit{Concurrency: 7}, Bounds: ojs.RateLimit{Concurrency: 7}},
			)
			c.wantLimit(
				storage.LimitName{Kind: storage.LimitType, Name: "x"},
				storage.Limit{Active: 2, Waiting: 2},
			)
			for _, want := range []struct {
				kind  storage.LimitKind
				after string
				max   int
				names []string
			}{
				{storage.LimitKey, "", 9, []string{"a", "b", "c"}},
				{storage.LimitKey, "", 2, []string{"a", "b"}},
				{storage.LimitKey, "a", 1, []string{"b"}}, {storage.LimitKey, "c", 9, nil},
				{storage.LimitKey, "", 0, nil},
				{storage.LimitQueue, "", 9, []string{"q"}}, {storage.LimitType, "", 9, nil},
			} {
				list, err := s.ListLimits(c.ctx, c.now, want.kind, want.after, want.max)
				c.noErr("ListLimits", err)
				var names []string
				for _, l := range list {
					names = append(names, l.Name)
				}
				if !slices.Equal(names, want.names) {
					c.failf(
						"%d limits of kind %s after %q are %q, not %q",
						want.max,
						want.kind,
						want.after,
						names,
						want.names,
					)
				}
			}
			for _, name := range []storage.LimitName{
				ofKey("unknown"), ofKey("x"), {Kind: storage.LimitQueue, Name: "b"},
			} {
				_, err := s.GetLimit(c.ctx, c.now, name)
				c.wantErr("GetLimit", err, ojs.ErrNotFound)
			}
			for _, name := range []storage.LimitName{{Kind: "other", Name: "a"}, ofKey("")} {
				_, err := s.GetLimit(c.ctx, c.now, name)
				c.wantErr("GetLimit", err, ojs.ErrInvalid)
				c.wantErr(
					"SetLimit",
					s.SetLimit(c.ctx, c.now, name, ojs.RateLimit{}, time.Time{}),
					ojs.ErrInvalid,
				)
				c.wantErr("BlockLimit", s.BlockLimit(c.ctx, c.now, name, c.now), ojs.ErrInvalid)
			}
			c.wantErr(
				"SetLimit",
				s.SetLimit(c.ctx, c.now, ofKey("a"), ojs.RateLimit{Concurrency: -2}, time.Time{}),
				ojs.ErrInvalid,
			)
			_, err := s.ListLimits(c.ctx, c.now, "other", "", 9)
			c.wantErr("ListLimits", err, ojs.ErrInvalid)
			ended, cancel := context.WithCancel(c.ctx)
			cancel()
			c.wantErr(
				"SetLimit",
				s.SetLimit(ended, c.now, ofKey("a"), ojs.RateLimit{}, time.Time{}),
				context.Canceled,
			)
			for _, id := range got[:2] {
				c.endsNow(id)
			}
			c.wantLimit(
				ofKey("b"),
				storage.Limit{Waiting: 1, Bounds: rate, Starts: 2, Opens: begin.Add(time.Minute)},
			)
			c.now = begin.Add(time.Minute)
			c.claims(storage.Claim{Max: 9}, got[2], got[3])
			c.endsNow(got[2])
			c.endsNow(got[3])
			for _, name := range []string{"a", "b"} {
				_, err := s.GetLimit(c.ctx, c.now, ofKey(name))
				c.wantErr("GetLimit", err, ojs.ErrNotFound)
			}

			// A job whose deadline has come does not wait.
			c.insert(c.job(atOnce("x", 1), expires(time.Second)), c.job(expires(time.Second)))
			two := ojs.RateLimit{Key: "x", Concurrency: 2, OnLimit: ojs.OnLimitDrop}
			runs := c.insert(c.job(limit(two)), c.job())
			c.pass(time.Second)
			c.wantLimit(ofKey("x"), storage.Limit{Waiting: 1, Bounds: ojs.RateLimit{Concurrency: 2}})
			x := storage.LimitName{Kind: storage.LimitType, Name: "x"}
			c.wantLimit(x, storage.Limit{Waiting: 2})
			// The bounds of a key are those of the job that started last.
			c.claims(storage.Claim{Max: 9}, runs...)
			c.now = c.now.Add(-time.Second) // the skipped jobs wait again
			c.wantLimit(x, storage.Limit{Active: 2, Waiting: 2})
			c.now = c.now.Add(time.Second)
			c.endsNow(runs[1])
			three := c.insert(c.job(atOnce("x", 3)))[0]
			want := storage.Limit{Active: 1, Waiting: 1, Bounds: ojs.RateLimit{Concurrency: 2}}
			c.wantLimit(ofKey("x"), want)
			c.setLimit(ofKey("x"), ojs.RateLimit{Concurrency: 9})
			c.setLimit(ofKey("x"), ojs.RateLimit{})
			c.wantLimit(ofKey("x"), want)
			// A key is listed while it is blocked, without a job.
			c.noErr("BlockLimit", s.BlockLimit(c.ctx, c.now, ofKey("d"), c.now.Add(time.Second)))
			blocked, err := s.ListLimits(c.ctx, c.now, storage.LimitKey, "c", 1)
			c.noErr("ListLimits", err)
			if len(blocked) != 1 || blocked[0].Name != "d" {
				c.failf("the limits of keys after c are %+v, not d, which is blocked", blocked)
			}
			c.noErr("BlockLimit", s.BlockLimit(c.ctx, c.now, ofKey("d"), time.Time{}))
			// A queue is listed while it is blocked, and not for its jobs.
			ofQueues := func(want ...string) {
				c.tb.Helper()
				list, err := s.ListLimits(c.ctx, c.now, storage.LimitQueue, "", 9)
				c.noErr("ListLimits", err)
				if len(list) != len(want) || len(want) > 0 && list[0].Name != want[0] {
					c.failf("the limits of queues are %+v, not of %q", list, want)
				}
			}
			q := storage.LimitName{Kind: storage.LimitQueue, Name: "q"}
			c.setLimit(q, ojs.RateLimit{})
			ofQueues()
			until := c.now.Add(time.Minute)
			c.noErr("BlockLimit", s.BlockLimit(c.ctx, c.now, q, until))
			ofQueues("q")
			c.wantLimit(q, storage.Limit{Active: 1, Waiting: 1, BlockedUntil: until, Opens: until})
			one := ojs.RateLimit{Concurrency: 1}
			c.setLimit(q, one) // another job has to end first
			c.wantLimit(q,
				storage.Limit{Active: 1, Waiting: 1, BlockedUntil: until, Setting: &one, Bounds: one})
			c.setLimit(q, ojs.RateLimit{})
			c.now = until
			c.wantLimit(q, storage.Limit{Active: 1, Waiting: 1})
			ofQueues()
			c.endsNow(runs[0])
			c.settled(c.get(three), c.to(ojs.StateCancelled))

			c.wantErr("BlockLimit", s.BlockLimit(ended, c.now, ofKey("a"), c.now), context.Canceled)
			_, err = s.GetLimit(ended, c.now, ofKey("c"))
			c.wantErr("GetLimit", err, context.Canceled)
			_, err = s.ListLimits(ended, c.now, storage.LimitKey, "", 9)
			c.wantErr("ListLimits", err, context.Canceled)
			c.limitsInTime()
		},
	},
	{
		"limit-14",
		"Limits/SettleAndClaim",
		"SettleClaimer.SettleAndClaim",
		"Settling and claiming in one step frees the slots of what ends, takes jobs as limits allow, and ends at an enqueue " +
			"TTL, unless the job has to wait.",
		needsSettleClaims,
		func(c *C) {
			ttl := func(r *storage.Record) { r.EnqueueTTL = time.Hour }
			name := storage.LimitName{Kind: storage.LimitType, Name: "blocked"}
			c.noErr("BlockLimit", c.S.BlockLimit(c.ctx, c.now, name, c.now.Add(time.Hour)))
			c.obeying(1) // no job is there yet
			blocked := c.insert(c.job(ttl, jobType("blocked"), priority(-100)))
			held := new(storage.Limited)
			c.stepped(storage.Claim{Types: []string{"blocked"}, Limits: held}, 2)
			if !held.Held {
				c.failf("no limit holds a job back, and one does")
			}
			c.settled(c.get(blocked[0]), c.to(ojs.StateCancelled))
			for _, on := range []ojs.OnLimit{ojs.OnLimitDrop, ojs.OnLimitReschedule} {
				ends := c.insert(c.job(ttl, limit(ojs.RateLimit{
					Key: "e", Concurrency: ojs.NoneAtOnce, OnLimit: on})), c.job(priority(-100)))
				c.stepped(storage.Claim{Limits: new(storage.Limited)}, 2)
				for _, id := range ends {
					c.settled(c.wantState(id, ojs.StateAvailable), c.to(ojs.StateCancelled))
				}
			}
			unknown := limit(ojs.RateLimit{Key: "u", Concurrency: ojs.NoneAtOnce, OnLimit: "of tomorrow"})
			odd := c.insert(c.job(unknown, ttl), c.job())
			c.stepped(storage.Claim{Limits: new(storage.Limited)}, 2, odd[1])
			c.settled(c.get(odd[0]), c.to(ojs.StateCancelled))
			c.endsNow(odd[1])
			got := c.insert(
				c.job(atOnce("k", 1)),
				c.job(atOnce("k", 1)),
				c.job(atOnce("k", 1)),
				c.job(),
				c.job(ttl, priority(-1)),
				c.job(priority(-2)),
			)
			c.obeying(1, got[0])
			r := c.get(got[0])
			r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, c.now, time.Time{}
			s, _ := settleClaimer(c.S)
			into := make([]*storage.Record, 9)
			for i := range into {
				into[i] = new(storage.Record)
			}
			_, n, err := s.SettleAndClaim(
				c.ctx,
				c.now,
				[]*storage.Record{&r},
				nil,
				storage.Claim{Limits: new(storage.Limited)},
				into,
			)
			c.noErr("SettleAndClaim", err)
			var claimed []string
			for _, r := range into[:n] {
				claimed = append(claimed, r.ID)
			}
			if want := []string{got[1], got[3]}; !slices.Equal(claimed, want) {
				c.failf("claimed %v, not %v", claimed, want)
			}
			now := c.insert(
				c.job(priority(5)),
				c.job(atOnce("n", 3), priority(5)),
				c.job(atOnce("n", 3), priority(5)),
				c.job(priority(5)),
			)
			c.claims(storage.Claim{Limits: &storage.Limited{Now: 2}, Max: 9}, now[0], now[1])
			c.claims(storage.Claim{Limits: &storage.Limited{Now: 1}, Max: 9}, now[2], now[3], got[4], got[5])
			c.setLimit(storage.LimitName{Kind: storage.LimitType, Name: "set"}, ojs.RateLimit{Concurrency: 9})
			now = c.insert(c.job(priority(5)), c.job(jobType("set"), priority(5)))
			c.claims(storage.Claim{Limits: &storage.Limited{Now: 1}, Max: 9}, now[0])
			c.claims(storage.Claim{Limits: &storage.Limited{Now: 1}, Max: 9}, now[1])
			throttle := limit(ojs.RateLimit{Key: "t", Throttle: ojs.Rate{Limit: 1, Per: time.Minute}})
			late := c.insert(c.job(throttle, priority(7)), c.job(throttle, priority(7)))
			c.obeying(1, late[0])
			now = c.insert(c.job(atOnce("m", 3), priority(6)), c.job(atOnce("m", 3), priority(6)))
			done := &storage.Limited{Now: 1}
			if c.claims(storage.Claim{Limits: done, Max: 9}, now[0]); !done.Opens.IsZero() {
				c.failf("the claim has ended at a job that may start, and limits open at %v", done.Opens)
			}
			c.settled(c.get(late[1]), c.to(ojs.StateCancelled))
			c.settled(c.get(now[1]), c.to(ojs.StateCancelled))

			name.Name = "closed"
			c.setLimit(name, ojs.RateLimit{Concurrency: ojs.NoneAtOnce})
			next := c.insert(
				c.job(ttl, jobType("closed"), priority(3)),
				c.job(priority(1)),
			)
			c.stepped(storage.Claim{Limits: new(storage.Limited)}, 2, next[1])

			// An outcome starts no job, so that it does not change the bounds of a key.
			outcome := c.get(c.insert(c.job(atOnce("outcome", 3)))[0])
			outcome.State, outcome.LeaseUntil = ojs.StateActive, c.now.Add(time.Minute)
			c.step(storage.Claim{}, 1, outcome)
			c.wantLimit(ofKey("outcome"), storage.Limit{Active: 1})
		},
	},
	// Rule L026.
	{
		"limit-15",
		"Limits/Notices",
		"Notice",
		"Others are told when a slot is freed for a job that waits, of a setting that changes, and when a limit opens.",
		needsNotices,
		func(c *C) {
			heard := make(chan storage.Notice, 100)
			n, _ := notifier(c.S)
			defer n.Notify("listener", func(n storage.Notice) { heard <- n })()
			wants := func(what string, is func(storage.Notice) bool) {
				c.tb.Helper()
				for {
					select {
					case n := <-heard:
						if is(n) || n.Everything {
							return
						}
					case <-wall.After(patience):
						c.failf("no notice of %s", what)
					}
				}
			}
			available := func(n storage.Notice) bool { return n.Available }
			drain := func() {
				for len(heard) > 0 {
					<-heard
				}
			}
			got := c.insert(c.job(atOnce("k", 1)), c.job(atOnce("k", 1)))
			c.obeying(9, got[0])
			drain()
			c.endsNow(got[0])
			wants("a free slot", available)
			c.claims(storage.Claim{Max: 1}, got[1])
			rate := limit(ojs.RateLimit{Key: "r", Rate: ojs.Rate{Limit: 1, Per: time.Minute}})
			c.insert(c.job(rate), c.job(rate))
			drain()
			c.claimOf(storage.Claim{Limits: new(storage.Limited), Max: 9})
			wants(
				"the time of a limit",
				func(n storage.Notice) bool { return n.Opens.Equal(c.now.Add(time.Minute)) },
			)
			drain()
			c.setLimit(ofKey("r"), ojs.RateLimit{Rate: ojs.Rate{Limit: 2, Per: time.Minute}})
			wants("a setting", available)
			drain()
			c.unshut("r")
			wants("the end of a setting", available)
			for _, until := range []time.Time{c.now.Add(time.Hour), {}} {
				drain()
				c.noErr("BlockLimit", c.S.BlockLimit(c.ctx, c.now, ofKey("r"), until))
				wants(fmt.Sprintf("a block until %v", until), available)
			}

			// Whichever limit it is, and however the job ceases to be active.
			for _, kind := range limitKinds {
				states := []ojs.State{isCompleted, isCancelled, ojs.StateDiscarded, ojs.StateRetryable}
				for i, s := range states {
					name := storage.LimitName{Kind: kind, Name: fmt.Sprint(kind, "-", s)}
					change := []func(*storage.Record){queue(name.Name), jobType(name.Name)}
					if kind == storage.LimitKey {
						change = append(change, atOnce(name.Name, 1))
					} else {
						c.setLimit(name, ojs.RateLimit{Concurrency: 1})
						if i%2 > 0 { // whether a key counts it, too, or not
							change = append(change, atOnce(name.Name, 9))
						}
					}
					list := c.insert(c.job(change...), c.job(change...))
					q := storage.Claim{Queues: []string{name.Name}, Limits: new(storage.Limited), Max: 9}
					c.claims(q, list[0])
					c.claims(q)
					drain()
					c.settled(c.get(list[0]), c.to(s))
					wants(fmt.Sprintf("a free slot of the %s, when its job is %s", kind, s), available)
				}
			}
		},
	},
	{
		"limit-16",
		"Limits/Closed",
		"Limited",
		"A claim that wants more tells which keys hold jobs back, and by which bound: once, and again after a job of the key has started.",
		needsNothing,
		func(c *C) {
			tells := func(want ...storage.ClosedKey) {
				c.tb.Helper()
				got := c.obeying(9).Closed
				slices.SortFunc(got, func(a, b storage.ClosedKey) int {
					return strings.Compare(a.Key, b.Key)
				})
				if got = slices.Compact(got); !slices.Equal(got, want) {
					c.failf("the claim tells of %v, not of %v", got, want)
				}
			}
			rate := limit(ojs.RateLimit{Key: "r", Rate: ojs.Rate{Limit: 2, Per: time.Hour}})
			throttle := limit(ojs.RateLimit{Key: "t", Throttle: ojs.Rate{Limit: 3, Per: time.Hour}})
			dropped := limit(ojs.RateLimit{Key: "d", Concurrency: ojs.NoneAtOnce, OnLimit: ojs.OnLimitDrop})
			got := c.insert(
				c.job(atOnce("k", 1)), c.job(atOnce("alone", 1)), c.job(rate), c.job(rate), c.job(throttle),
				c.job(dropped),
			)
			if done := c.obeying(5, got[:5]...); len(done.Closed) > 0 {
				c.failf("the claim tells of %v, and no job waits", done.Closed)
			}
			tells()
			c.noErr("BlockLimit", c.S.BlockLimit(c.ctx, c.now, ofKey("b"), c.now.Add(time.Hour)))
			next := c.insert(
				c.job(atOnce("k", 1)), c.job(atOnce("k", 1)), c.job(rate), c.job(throttle),
				c.job(atOnce("b", 9)),
			)
			k := storage.ClosedKey{Key: "k", Strategy: storage.LimitedByConcurrency, Bound: 1, Current: 1}
			tells(
				storage.ClosedKey{Key: "b", Strategy: storage.LimitedByBlock},
				k,
				storage.ClosedKey{Key: "r", Strategy: storage.LimitedByRate, Bound: 2, Current: 2},
				storage.ClosedKey{Key: "t", Strategy: storage.LimitedByThrottle, Bound: 3},
			)
			tells()
			c.endsNow(got[0])
			done := c.obeying(9, next[0])
			if !slices.Equal(slices.Compact(done.Closed), []storage.ClosedKey{k}) {
				c.failf("the claim that starts a job tells of %v, not of %v", done.Closed, k)
			}
			tells()

			// A job of the key that ends is no start.
			both := c.insert(c.job(atOnce("two", 9)), c.job(atOnce("two", 9)))
			c.obeying(9, both...)
			c.insert(c.job(atOnce("two", 1)))
			tells(storage.ClosedKey{Key: "two", Strategy: storage.LimitedByConcurrency, Bound: 1, Current: 2})
			c.endsNow(both[0])
			tells()
			// A start under other bounds does not have these told again.
			done = c.obeying(9, c.insert(c.job(atOnce("two", 9)))[0])
			if len(done.Closed) > 0 {
				c.failf("a start under other bounds has the claim tell again of %v", done.Closed)
			}
			tells()
			c.insert(c.job(atOnce("two", 2)))
			tells(storage.ClosedKey{Key: "two", Strategy: storage.LimitedByConcurrency, Bound: 2, Current: 2})

			// If another limit holds a job back, its key may be open.
			stopped := storage.LimitName{Kind: storage.LimitType, Name: "stopped"}
			c.setLimit(stopped, ojs.RateLimit{Concurrency: ojs.NoneAtOnce})
			minute := limit(ojs.RateLimit{Key: "m", Rate: ojs.Rate{Limit: 1, Per: time.Minute}})
			c.obeying(9, c.insert(c.job(minute))[0])
			c.now = c.now.Add(time.Minute)
			for _, key := range []func(*storage.Record){atOnce("open", 9), minute} {
				c.insert(c.job(key, jobType("stopped")))
			}
			tells()
		},
	},
	{
		"limit-17",
		"Limits/Many",
		"Limited",
		"A limit is kept while it counts a start, has jobs, a setting or a block, however many other limits come and go.",
		needsNothing,
		func(c *C) {
			s := c.S
			const long = 3 * time.Hour // a storage may look seldom for what it can forget
			until := c.now.Add(long)
			none := ojs.RateLimit{Concurrency: ojs.NoneAtOnce}
			seldom := ojs.Rate{Limit: 1, Per: long}
			jobs := map[string]func(*storage.Record){
				"active":   atOnce("active", 1),
				"block":    atOnce("block", 1),
				"rate":     limit(ojs.RateLimit{Key: "rate", Rate: seldom}),
				"set":      atOnce("set", 1),
				"throttle": limit(ojs.RateLimit{Key: "throttle", Throttle: seldom}),
			}
			c.obeying(1, c.insert(c.job(jobs["active"]))[0])
			c.noErr("BlockLimit", s.BlockLimit(c.ctx, c.now, ofKey("block"), until))
			c.noErr("SetLimit", s.SetLimit(c.ctx, c.now, ofKey("set"), none, until))
			waits := c.insert(c.job(atOnce("waits", ojs.NoneAtOnce)))
			for _, key := range []string{"rate", "throttle"} {
				id := c.insert(c.job(jobs[key]))[0]
				c.obeying(1, id)
				c.endsNow(id)
			}

			for i := range 3 {
				c.noErr("SetLimit", s.SetLimit(c.ctx, c.now, ofKey("ends"), none, c.now.Add(time.Second)))
				c.noErr("BlockLimit", s.BlockLimit(c.ctx, c.now, ofKey("ends"), c.now.Add(time.Second)))
				c.now = c.now.Add(50 * time.Minute)
				others := make([]storage.Record, 100)
				for k := range others {
					others[k] = c.job(atOnce(fmt.Sprint(i, "-", k), 1))
				}
				c.insertAll(others)
				others = c.claimOf(storage.Claim{Limits: new(storage.Limited), Max: 100})
				if len(others) != 100 {
					c.failf("%d of 100 jobs of other keys have started", len(others))
				}
				c.settleAll(others, func(_ int, r *storage.Record) { c.to(ojs.StateCompleted)(r) })
				c.obeying(1)
			}

			held := make(map[string]string)
			for _, key := range slices.Sorted(maps.Keys(jobs)) {
				held[key] = c.insert(c.job(jobs[key]))[0]
			}
			c.wantOpens(until)
			c.setLimit(ofKey("waits"), ojs.RateLimit{Concurrency: 1})
			c.obeying(1, waits[0])
			c.now = until
			c.obeying(9, held["block"], held["rate"], held["set"], held["throttle"])
		},
	},
	{
		"race-7",
		"Race/Limits",
		"Limited",
		"Of claims at the same time, and ends between them, never more are active than a limit allows, and never fewer while jobs wait.",
		needsNothing,
		func(c *C) {
			const most, jobs, claimers = 3, 120, 8
			for i := range jobs {
				c.insert(c.job(atOnce("k", most), priority(i%3)))
			}
			var active, ended atomic.Int32
			var wg sync.WaitGroup
			failure := make(chan string, claimers)
			for range claimers {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for ended.Load() < jobs && len(failure) == 0 {
						recs, err := c.S.Claim(
							c.ctx,
							c.now,
							storage.Claim{Max: 2, Worker: "w", Limits: new(storage.Limited)},
							nil,
						)
						if err != nil {
							failure <- fmt.Sprint("Claim failed: ", err)
							return
						}
						if n := active.Add(int32(len(recs))); n > most {
							failure <- fmt.Sprintf("%d jobs are active at once", n)
							return
						}
						for range 10 { // others claim while these are active
							runtime.Gosched()
						}
						for _, r := range recs {
							active.Add(-1)
							r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, c.now, time.Time{}
							out, err := c.S.Settle(
								c.ctx,
								c.now,
								[]storage.Change{{Record: r, AttemptFieldsOnly: true}},
								nil,
							)
							if err = errors.Join(err, out[0].Err); err != nil {
								failure <- fmt.Sprint("Settle failed: ", err)
								return
							}
							ended.Add(1)
						}
					}
				}()
			}
			wg.Wait()
			if len(failure) > 0 {
				c.failf("%s", <-failure)
			}
			for range most + 1 {
				c.insert(c.job(atOnce("k", most)))
			}
			recs, err := c.S.Claim(c.ctx, c.now,
				storage.Claim{Max: most + 1, Worker: "w", Limits: new(storage.Limited)}, nil)
			if err != nil || len(recs) != most {
				c.failf("a claim after the others takes %d jobs (error %v), not %d", len(recs), err, most)
			}
		},
	},
}
