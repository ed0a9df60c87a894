package storagetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

var claimCases = []Case{
	{"claim-1", "Claim/MakesActive", "Record.Claim", "A claim counts an attempt, starts a lease, raises the version, and is what is stored.", needsNothing, func(c *C) {
		r := c.job()
		c.insert(r)
		c.pass(time.Second)
		want := c.get(r.ID)
		want.Claim(c.now, "worker-7", 0)
		recs := c.claimOf(storage.Claim{Max: 1, Worker: "worker-7"})
		if len(recs) != 1 {
			c.failf("Claim returned %d jobs", len(recs))
		}
		c.same("what Claim returned", recs[0], want)
		c.same("what is stored", c.get(r.ID), want)
		if n := len(c.claim(1)); n != 0 {
			c.failf("an active job was claimed again")
		}
	}},
	{"claim-2", "Claim/FirstInFirstOut", "OJS core, section 5.2", "At equal priority the job that became available first is claimed first.", needsNothing, func(c *C) {
		late := c.job(scheduled(time.Minute))
		c.insert(late, c.job())
		back := c.settled(c.one(), c.to(ojs.StateRetryable), func(r *storage.Record) {
			r.NextRetryAt = c.now.Add(30 * time.Second)
		})
		var want []string
		for range 5 {
			want = append(want, c.insert(c.job())...)
		}
		c.pass(time.Minute)
		c.due()
		want = append(want, back.ID, late.ID)
		want = append(want, c.insert(c.job())...)
		c.order(storage.Claim{}, want...)
	}},
	{"claim-3", "Claim/Priority", "OJS core, section 5.2", "A higher priority is claimed first, negative ones last.", needsNothing, func(c *C) {
		got := c.insert(c.job(priority(-3)), c.job(), c.job(priority(100)), c.job(priority(5)), c.job(),
			c.job(priority(5)), c.job(priority(-100)))
		c.order(storage.Claim{}, got[2], got[3], got[5], got[1], got[4], got[0], got[6])
	}},
	{"claim-4", "Claim/Queues", "Storage.Claim", "Claims take from the queues named, each until nothing is left in it, and from no other.", needsNothing, func(c *C) {
		got := c.insert(c.job(queue("a")), c.job(queue("b"), priority(9)),
			c.job(queue("c"), priority(9)), c.job(queue("a"), priority(1)))
		c.order(storage.Claim{Queues: []string{"a", "b", "none"}}, got[3], got[0], got[1])
	}},
	{"claim-5", "Claim/AllQueues", "Storage.Claim", "Without queues a claim takes from all of them, by priority and then first in first out.", needsNothing, func(c *C) {
		got := c.insert(c.job(queue("a")), c.job(queue("b")), c.job(queue("c"), priority(1)),
			c.job(queue("a")))
		c.order(storage.Claim{}, got[2], got[0], got[1], got[3])
	}},
	{"claim-6", "Claim/Types", "Storage.Claim", "Claims take only the types named, and all if none is.", needsNothing, func(c *C) {
		got := c.insert(c.job(jobType("a")), c.job(jobType("b"), priority(9)), c.job(jobType("c")))
		c.order(storage.Claim{Types: []string{"a", "c"}}, got[0], got[2])
		c.order(storage.Claim{}, got[1])
	}},
	{"claim-7", "Claim/Max", "Storage.Claim", "A claim takes at most Max jobs, over all queues together, and appends them to what it was given.", needsNothing, func(c *C) {
		var want []string
		for i := range 6 {
			want = append(want, c.insert(c.job(queue(fmt.Sprint("q", i/2))))...)
		}
		if recs := c.claim(0); len(recs) != 0 {
			c.failf("a claim of none returned %d", len(recs))
		}
		dst := make([]storage.Record, 1)
		recs, err := c.S.Claim(c.ctx, c.now, storage.Claim{Queues: []string{"q0", "q1", "q2"}, Max: 3}, dst)
		c.noErr("Claim", err)
		if len(recs) != 4 || recs[0].ID != "" || !slices.Equal(ids(recs[1:]), want[:3]) {
			c.failf("claimed %v, not %v", short(ids(recs)), short(want[:3]))
		}
	}},
	{"claim-8", "Claim/OnlyAvailable", "OJS core, section 6", "Only available jobs are claimed.", needsNothing, func(c *C) {
		for _, s := range without(ojs.StateAvailable) {
			c.reach(s)
		}
		c.pass(10 * time.Second) // a time passing is not enough: Due promotes
		if recs := c.claim(10); len(recs) != 0 {
			c.failf("claimed a job that was %s", recs[0].State)
		}
	}},
	{"claim-9", "Claim/PassesOverExpired", "Record.Deadline", "A job whose deadline has come is skipped, by its expiry or its total timeout.", needsNothing, func(c *C) {
		c.insert(c.job(expires(time.Minute), priority(9)),
			c.job(priority(9), func(r *storage.Record) { r.TotalTimeout = time.Minute }))
		live := c.insert(c.job(expires(time.Hour)), c.job(), c.job(expires(time.Hour)))
		c.pass(time.Minute)
		claims := []storage.Claim{
			{Types: []string{"x"}}, {Queues: []string{"q"}, Types: []string{"x"}}, {},
		}
		for i, q := range claims {
			q.Max = 1
			if recs := c.claimOf(q); !slices.Equal(ids(recs), live[i:i+1]) {
				c.failf("a claim of queues %q and types %q took %v, not %v",
					q.Queues, q.Types, short(ids(recs)), short(live[i:i+1]))
			}
		}
	}},
	{"claim-10", "Claim/NeverEarly", "OJS core, section 5.2", "A scheduled job is not claimed before its time, nor a retryable one.", needsNothing, func(c *C) {
		c.insert(c.job(scheduled(time.Minute)))
		c.reach(ojs.StateRetryable)
		c.pass(time.Minute - c.tick())
		c.due()
		if n := len(c.claim(10)); n != 0 {
			c.failf("%d jobs were claimed early", n)
		}
	}},
	{"claim-13", "Claim/ClockGoesBack", "package storage, Time", "A job that a claim has skipped as expired is claimed, in its place, if the clock goes back to before its deadline.", needsNothing, func(c *C) {
		got := c.insert(c.job(), c.job(expires(time.Minute)),
			c.job(expires(2*time.Minute), priority(1)), c.job(expires(time.Minute)), c.job())
		c.pass(2 * time.Minute)
		if recs := c.claimOf(storage.Claim{Max: 1, Queues: []string{"q"}}); len(recs) != 1 ||
			recs[0].ID != got[0] {
			c.failf("claimed %v", short(ids(recs)))
		}
		if recs := c.claim(1); len(recs) != 1 || recs[0].ID != got[4] {
			c.failf("claimed %v", short(ids(recs)))
		}
		last := c.insert(c.job())
		c.pass(-90 * time.Second)
		c.order(storage.Claim{}, got[2], got[1], got[3], last[0])
		// The one that expires last is skipped first.
		got = c.insert(c.job(expires(2*time.Minute)), c.job(expires(time.Minute)))
		c.pass(2 * time.Minute)
		c.order(storage.Claim{})
		c.pass(-30 * time.Second)
		c.order(storage.Claim{}, got[0])
	}},
}

var settleCases = []Case{
	{"settle-1", "Settle/Table", "OJS core, section 6.3", "Every transition of the table is made, and every other refused without a trace.", needsNothing, func(c *C) {
		for _, from := range ojs.AllStates() {
			for _, to := range ojs.AllStates() {
				r := c.reach(from)
				s := c.settle(r, c.to(to))
				legal := from.CanBecome(to) || from == to && from.Waiting()
				got := c.get(r.ID)
				if !legal {
					var refused *ojs.TransitionError
					if !errors.As(s.Err, &refused) || refused.From != from || refused.To != to ||
						s.Version != r.Version {
						c.failf("%s to %s: %+v", from, to, s)
					}
					c.same(fmt.Sprintf("a job that stays %s", from), got, r)
				} else {
					if s.Err != nil || s.Version != r.Version+1 || got.Version != s.Version {
						c.failf("%s to %s: %+v", from, to, s)
					}
					want := r
					c.to(to)(&want)
					want.Version++
					c.same(fmt.Sprintf("a job from %s to %s", from, to), got, want)
				}
			}
		}
	}},
	{"settle-2", "Settle/Fencing", "package storage, Fencing", "A change decided on another version than the stored one is refused, and says which one is.", needsNothing, func(c *C) {
		c.insert(c.job())
		old := c.one()
		now := c.settled(old, c.to(ojs.StateRetryable))
		for _, stale := range []uint64{old.Version, now.Version + 1, 0} {
			r := now
			r.Version = stale
			s := c.settle(r, c.to(ojs.StateCancelled))
			if !errors.Is(s.Err, storage.ErrFenced) || s.Version != now.Version {
				c.failf("version %d of %d: %+v", stale, now.Version, s)
			}
		}
		c.same("the job", c.get(now.ID), now)
	}},
	{"settle-3", "Settle/FencingOverGivenBackAttempts", "package storage, Fencing", "An attempt that was given back, and one before a replay by hand, are fenced although the attempt number falls.", needsNothing, func(c *C) {
		c.insert(c.job())
		first := c.one()
		back := c.settled(first, c.to(ojs.StateRetryable), func(r *storage.Record) { r.Attempt-- })
		c.settled(back, func(r *storage.Record) { r.State, r.NextRetryAt = ojs.StateAvailable, time.Time{} })
		second := c.one()
		if second.Attempt != first.Attempt {
			c.failf("the attempt is %d, not %d again", second.Attempt, first.Attempt)
		}
		if s := c.settle(first, c.to(ojs.StateCompleted)); !errors.Is(s.Err, storage.ErrFenced) {
			c.failf("the first attempt settled the job of the second: %+v", s)
		}
		dead := c.settled(second, c.dead)
		c.settled(dead, func(r *storage.Record) {
			r.State, r.Attempt = ojs.StateAvailable, 0
			r.FinishedAt, r.DeadLetteredAt = time.Time{}, time.Time{}
		})
		c.one()
		if s := c.settle(second, c.to(ojs.StateCompleted)); !errors.Is(s.Err, storage.ErrFenced) {
			c.failf("an attempt before the replay settled the job: %+v", s)
		}
	}},
	{"settle-4", "Settle/EachByItself", "Storage.Settle", "Each change is applied or refused by itself, and the results come in order.", needsNothing, func(c *C) {
		c.insert(c.job(), c.job())
		a, b := c.one(), c.one()
		c.to(ojs.StateCompleted)(&a)
		wrong := b
		c.to(ojs.StateScheduled)(&wrong)
		gone := c.job()
		gone.Version = 1
		c.to(ojs.StateCompleted)(&b)
		changes := []storage.Change{{Record: a}, {Record: wrong}, {Record: gone}, {Record: b}}
		out, err := c.S.Settle(c.ctx, c.now, changes, make([]storage.Settled, 1))
		c.noErr("Settle", err)
		if len(out) != 5 {
			c.failf("Settle appended %d results to one", len(out)-1)
		}
		if out[1].Err != nil || !errors.Is(out[2].Err, ojs.ErrTransition) ||
			!errors.Is(out[3].Err, ojs.ErrNotFound) || out[4].Err != nil {
			c.failf("Settle returned %+v", out[1:])
		}
		c.wantState(a.ID, ojs.StateCompleted)
		c.wantState(b.ID, ojs.StateCompleted)
	}},
	{"settle-5", "Settle/Place", "Storage.Settle", "An available job that stays so keeps its place, unless its queue or its priority changes.", needsNothing, func(c *C) {
		got := c.insert(c.job(), c.job(), c.job(), c.job())
		touch := func(id string, f func(*storage.Record)) { c.settled(c.get(id), f) }
		touch(got[0], func(r *storage.Record) { r.Meta = map[string]any{"touched": true} })
		touch(got[1], priority(-1))
		touch(got[1], priority(0))
		c.order(storage.Claim{}, got[0], got[2], got[3], got[1])
	}},
	{"settle-6", "Settle/MovesQueues", "Storage.Settle", "A job that is given another queue is found there, and not in the one before.", needsNothing, func(c *C) {
		id := c.insert(c.job(queue("a")))[0]
		c.settled(c.get(id), queue("b"))
		if n := len(c.claimOf(storage.Claim{Queues: []string{"a"}, Max: 1})); n != 0 {
			c.failf("it was claimed from the queue before")
		}
		c.order(storage.Claim{Queues: []string{"b"}}, id)
	}},
	{"settle-7", "Settle/Replay", "OJS dead letter", "A discarded job that is made available again is claimed after those that were there, and is not a dead letter.", needsNothing, func(c *C) {
		c.insert(c.job())
		dead := c.settled(c.one(), c.dead)
		before := c.insert(c.job())
		c.settled(dead, func(r *storage.Record) {
			r.State, r.Attempt = ojs.StateAvailable, 0
			r.FinishedAt, r.DeadLetteredAt = time.Time{}, time.Time{}
		})
		if got := c.list(storage.Query{DeadLetters: true}); len(got) != 0 {
			c.failf("dead letters %v", short(got))
		}
		c.order(storage.Claim{}, before[0], dead.ID)
	}},
	{"settle-8", "Settle/AttemptFieldsOnly", "Change.AttemptFieldsOnly", "A change of nothing but what attempts change is stored whole.", needsNothing, func(c *C) {
		c.insert(c.job(expires(time.Hour), func(r *storage.Record) { r.Meta = map[string]any{"kept": true} }))
		r := c.one()
		r.State, r.NextRetryAt = ojs.StateRetryable, c.now.Add(time.Minute)
		r.Attempt, r.Progress, r.Checkpoint, r.Worker = 7, 0.5, json.RawMessage(`{"page":3}`), "another"
		r.EnqueuedAt, r.StartedAt = c.now.Add(time.Second), c.now.Add(2*time.Second)
		r.LeaseUntil = c.now.Add(3 * time.Second)
		r.Errors = []ojs.Failure{{Attempt: 1, At: c.now, Type: "first", Code: ojs.CodeRetry},
			{Attempt: 7, At: c.now, Type: "last", Code: ojs.CodeRetry}}
		r.Error = &r.Errors[1]
		r.History = []ojs.Note{{At: c.now, What: ojs.NoteSnoozed, Attempt: 8, Until: c.now.Add(time.Minute)}}
		again := func(r *storage.Record) {
			out, err := c.S.Settle(c.ctx, c.now, []storage.Change{{Record: *r, AttemptFieldsOnly: true}}, nil)
			c.noErr("Settle", err)
			if out[0].Err != nil || out[0].Version != r.Version+1 {
				c.failf("Settle returned %+v", out[0])
			}
			r.Version++
			c.same("the job", c.get(r.ID), *r)
		}
		again(&r)
		c.pass(time.Hour / 2)
		c.due()
		r = c.one()
		r.State, r.FinishedAt, r.DeadLetteredAt = ojs.StateDiscarded, c.now, c.now
		r.Checkpoint, r.Result = nil, json.RawMessage("1")
		again(&r)
	}},
	{"settle-9", "Settle/PlaceWhateverChanges", "Storage.Settle", "An available job keeps its place when its type, its rate limit, its fingerprint, its deadline or the time of its creation changes, and is found by them.", needsNothing, func(c *C) {
		var got []string
		for range 8 {
			got = append(got, c.insert(c.job())[0])
		}
		touch := func(i int, f func(*storage.Record)) { c.settled(c.get(got[i]), f) }
		touch(0, jobType("y"))
		touch(1, limited("k"))
		touch(2, unique("f", ojs.UniquePolicy{}))
		touch(3, func(r *storage.Record) { r.TotalTimeout = time.Hour })
		touch(4, expires(time.Hour))
		touch(5, func(r *storage.Record) { r.CreatedAt = r.CreatedAt.Add(time.Second) })
		touch(6, func(r *storage.Record) { r.Timeout, r.Lease, r.MaxAttempts = time.Second, time.Hour, 9 })
		c.shut("k")
		q := storage.Claim{Types: []string{"x"}, Queues: []string{"q"}, Max: 1}
		if recs := c.claimOf(q); !slices.Equal(ids(recs), got[2:3]) {
			c.failf("claimed %v, not %v", short(ids(recs)), short(got[2:3]))
		}
		c.unshut("k")
		c.order(storage.Claim{}, got[0], got[1], got[3], got[4], got[5], got[6], got[7])
		// Beside jobs of another limit and of another queue.
		got = c.insert(c.job(), c.job(queue("other")), c.job(limited("k")), c.job(limited("j")))
		touch(0, limited("k"))
		c.order(storage.Claim{}, got...)
		got = c.insert(c.job(limited("k")), c.job(queue("other")), c.job(limited("j")), c.job())
		touch(0, func(r *storage.Record) { r.RateLimit = nil })
		c.order(storage.Claim{}, got...)
		got = c.insert(c.job(), c.job(queue("other")), c.job()) // in another queue it comes last
		touch(0, queue("other"))
		c.order(storage.Claim{}, got[1], got[2], got[0])
	}},
	{"settle-10", "Settle/Deadline", "Storage.Settle", "A job that claims have skipped since its deadline had come is claimed in its place when it is given a later one, or none, and expires at the new one.", needsNothing, func(c *C) {
		got := c.insert(c.job(expires(time.Minute)), c.job(expires(time.Minute)),
			c.job(expires(time.Minute), jobType("y")), c.job())
		c.pass(time.Minute)
		if recs := c.claim(1); len(recs) != 1 || recs[0].ID != got[3] {
			c.failf("claimed %v", short(ids(recs)))
		}
		last := c.insert(c.job())
		c.settled(c.get(got[1]), expires(time.Hour))
		c.settled(c.get(got[0]), expires(2*time.Hour))
		c.settled(c.get(got[2]), func(r *storage.Record) { r.ExpiresAt = time.Time{} })
		if d := c.due(); len(d.Expired) != 0 {
			c.failf("expired %v", short(ids(d.Expired)))
		}
		c.order(storage.Claim{Types: []string{"x"}, Queues: []string{"q"}}, got[0], got[1], last[0])
		c.order(storage.Claim{}, got[2])
		id := c.insert(c.job(scheduled(time.Hour)))[0]
		c.settled(c.get(id), expires(time.Second))
		c.pass(time.Second)
		if d := c.due(); !slices.Equal(ids(d.Expired), []string{id}) {
			c.failf("expired %v, not %v", short(ids(d.Expired)), short([]string{id}))
		}
		// The same of jobs of one rate limit: of the first, and of those behind it.
		k := func(r *storage.Record) { r.RateLimit = &ojs.RateLimit{Key: "k", Concurrency: 9} }
		got = c.insert(c.job(k), c.job(k), c.job(k), c.job(k, expires(time.Minute)))
		for _, i := range []int{0, 2} {
			c.settled(c.get(got[i]), expires(time.Minute))
		}
		c.pass(time.Minute)
		c.order(storage.Claim{}, got[1])
		c.settled(c.get(got[3]), expires(time.Hour))
		c.settled(c.get(got[2]), func(r *storage.Record) { r.ExpiresAt = time.Time{} })
		c.order(storage.Claim{}, got[2], got[3])
	}},
	{"settle-13", "Settle/FoundByItsNewValues", "Storage.Settle",
		"A job that is changed is claimed by its new type, rate limit and priority, and due at its new time.",
		needsNothing, func(c *C) {
			got := c.insert(c.job(jobType("old")), c.job(limited("old")), c.job(queue("p")),
				c.job(scheduled(time.Hour)))
			claims := func(q storage.Claim, want ...string) {
				c.tb.Helper()
				q.Max = 9
				if recs := c.claimOf(q); !slices.Equal(ids(recs), want) {
					c.failf("a claim of types %q and queues %q took %v, not %v",
						q.Types, q.Queues, short(ids(recs)), short(want))
				}
			}
			c.settled(c.get(got[0]), jobType("new"))
			claims(storage.Claim{Types: []string{"old"}})
			claims(storage.Claim{Types: []string{"new"}}, got[0])
			c.settled(c.get(got[1]), limited("new"))
			c.shut("new", "old")
			claims(storage.Claim{Queues: []string{"q"}})
			c.unshut("new")
			claims(storage.Claim{Queues: []string{"q"}}, got[1])
			c.insert(c.job(queue("p"), priority(1)))
			c.settled(c.get(got[2]), priority(2))
			recs := c.claimOf(storage.Claim{Queues: []string{"p"}, Max: 1})
			if !slices.Equal(ids(recs), got[2:3]) {
				c.failf("a job whose priority has risen is claimed after %v", short(ids(recs)))
			}
			next := c.now.Add(time.Minute)
			for _, at := range []time.Duration{10 * time.Second, 2 * time.Hour, 20 * time.Second} {
				c.settled(c.get(got[3]), func(r *storage.Record) { r.ScheduledAt = c.now.Add(at) })
				want := c.now.Add(min(at, time.Minute)) // leases end in a minute
				if d := c.due(); !d.Next.Equal(want) || len(d.Promoted) > 0 {
					c.failf("a job that is scheduled for %v has Due say %v, and it promotes %d",
						c.now.Add(at), d.Next, len(d.Promoted))
				}
			}
			c.now = next
			if d := c.due(); !slices.Equal(ids(d.Promoted), got[3:]) {
				c.failf("promoted %v, not %v", short(ids(d.Promoted)), short(got[3:]))
			}
			// The job behind one that leaves its limit is claimed, though claims have not
			// looked for it before.
			for i, leaves := range []func(*storage.Record){
				c.to(ojs.StateCancelled), c.to(ojs.StateScheduled), limited("other"), atOnce("many", 9),
				func(r *storage.Record) { r.RateLimit = nil }, queue("other"), jobType("other"),
				func(r *storage.Record) { r.TypeVersion = "1" },
			} {
				lane := []func(*storage.Record){atOnce(fmt.Sprint("lane", i), 1), queue("lane")}
				got = c.insert(c.job(lane...), c.job(lane...))
				c.claims(storage.Claim{Types: []string{"none"}, Max: 1}) // has looked at the limit
				c.settled(c.get(got[0]), leaves, priority(-1))
				c.claims(storage.Claim{Queues: []string{"lane"}, Types: []string{"x"}, Max: 1}, got[1])
			}
		}},
	{"settle-11", "Settle/Fingerprint", "Storage.Settle", "A job that is given another fingerprint, or another time of its creation, is in the way of others by these, and not by those before.", needsNothing, func(c *C) {
		one := func(fp string) func(*storage.Record) { return unique(fp, ojs.UniquePolicy{}) }
		blind := func(r *storage.Record) { r.Fingerprint = "f" }
		available := func(*storage.Record) {}
		for _, state := range []func(*storage.Record){available, pending, scheduled(time.Hour)} {
			id := c.insert(c.job(one("before"), state))[0]
			c.settled(c.get(id), one("after"))
			c.refuse(c.job(one("after")), id)
			c.insert(c.job(one("before"), state))
			c.settled(c.get(id), func(r *storage.Record) { r.Fingerprint, r.Unique = "", nil })
			c.settled(c.get(c.insert(c.job(one("after"), state))[0]), c.to(ojs.StateCancelled))
			for _, r := range []string{"before", "after"} {
				page, err := c.S.List(c.ctx,
					storage.Query{States: []ojs.State{ojs.StateAvailable, ojs.StatePending,
						ojs.StateScheduled}})
				c.noErr("List", err)
				for _, j := range page.Records {
					if j.Fingerprint == r {
						c.settled(j, c.to(ojs.StateCancelled))
					}
				}
			}
		}
		got := c.insert(c.job(blind), c.job(blind), c.job(blind))
		for i, age := range []time.Duration{1, 3, 2} {
			c.settled(c.get(got[i]),
				func(r *storage.Record) { r.CreatedAt = r.CreatedAt.Add(-age * time.Second) })
		}
		c.refuse(c.job(one("f")), got[0])
		c.settled(c.get(got[1]), func(r *storage.Record) { r.CreatedAt = c.now })
		c.refuse(c.job(one("f")), got[1])
	}},
	{"settle-12", "Settle/TokensOfADeletedJob", "package storage, Fencing", "A token of a job that was deleted or pruned does not fit the job that is made anew under its id, in any way of inserting it.", needsNothing, func(c *C) {
		one := unique("f", ojs.UniquePolicy{OnConflict: ojs.ConflictReplace})
		for claims := range 4 {
			for i, insert := range []func(r storage.Record) []storage.Insert{
				func(r storage.Record) []storage.Insert { return []storage.Insert{{Record: r}} },
				func(r storage.Record) []storage.Insert {
					return []storage.Insert{{Record: c.job(pending)}, {Record: r}}
				},
				func(r storage.Record) []storage.Insert {
					return []storage.Insert{{Record: r, MaxDepth: 1000}}
				},
				func(r storage.Record) []storage.Insert {
					one(&r)
					return []storage.Insert{{Record: c.job(one, pending)}, {Record: r}}
				},
			} {
				id, tokens := c.spent(claims)
				if c.forget(id); i == 0 && claims > 1 { // and a third one
					c.insert(c.job(func(r *storage.Record) { r.ID = id }))
					r := c.one()
					tokens = append(tokens, r.Version)
					c.settled(r, c.to(ojs.StateCompleted))
					c.forget(id)
				}
				out, err := c.S.Insert(c.ctx, c.now,
					insert(c.job(func(r *storage.Record) { r.ID = id })), nil)
				c.noErr("Insert", err)
				for _, in := range out {
					if in.Version == 0 {
						c.failf("Insert returned %+v", in)
					}
				}
				if got := c.get(id); got.Version != out[len(out)-1].Version {
					c.failf("Insert returned version %d, and %d is stored",
						out[len(out)-1].Version, got.Version)
				}
				c.fresh(id, tokens)
			}
		}
	}},
}

// spent runs a job to its end, by way of some snoozes, and returns its id and the
// versions that it had.
func (c *C) spent(snoozes int) (id string, tokens []uint64) {
	c.tb.Helper()
	id = c.insert(c.job())[0]
	tokens = append(tokens, c.get(id).Version)
	note := func(r storage.Record) storage.Record {
		tokens = append(tokens, r.Version)
		return r
	}
	for range snoozes {
		back := note(c.settled(note(c.one()), c.to(ojs.StateRetryable)))
		note(c.settled(back,
			func(r *storage.Record) { r.State, r.NextRetryAt = ojs.StateAvailable, time.Time{} }))
	}
	note(c.settled(note(c.one()), c.to(ojs.StateCompleted)))
	return id, tokens
}

// forget deletes a job that has ended, or prunes it.
func (c *C) forget(id string) {
	c.tb.Helper()
	if c.ids%2 == 0 {
		_, err := c.S.Delete(c.ctx, []string{id})
		c.noErr("Delete", err)
	} else {
		_, err := c.S.Prune(c.ctx, storage.Prune{Now: c.now, Before: c.now.Add(time.Hour), Max: 1000})
		c.noErr("Prune", err)
	}
	if _, err := c.S.Get(c.ctx, id); !errors.Is(err, ojs.ErrNotFound) {
		c.failf("the job is there: %v", err)
	}
}

// fresh runs a job to its end and tries tokens that were never its own at each of its
// steps.
func (c *C) fresh(id string, tokens []uint64) {
	c.tb.Helper()
	try := func(r storage.Record) {
		c.tb.Helper()
		for _, v := range tokens {
			stale := r
			stale.Version = v
			if s := c.settle(stale, c.to(ojs.StateCancelled)); !errors.Is(s.Err, storage.ErrFenced) ||
				s.Version != r.Version {
				c.failf("a token of the job before, version %d, against version %d of a job that is %s: %+v",
					v, r.Version, r.State, s)
			}
			lost, err := c.S.Extend(c.ctx, c.now,
				[]storage.Extension{{Held: storage.Held{ID: id, Version: v}}})
			c.noErr("Extend", err)
			if !slices.Equal(lost, []string{id}) {
				c.failf("a token of the job before renewed the lease")
			}
		}
		c.same("the job", c.get(id), r)
	}
	try(c.get(id))
	for range 3 {
		r := c.one()
		if r.ID != id {
			c.failf("claimed %v", short([]string{r.ID}))
		}
		try(r)
		back := c.settled(r, c.to(ojs.StateRetryable))
		try(back)
		try(c.settled(back,
			func(r *storage.Record) { r.State, r.NextRetryAt = ojs.StateAvailable, time.Time{} }))
	}
	try(c.settled(c.one(), c.to(ojs.StateCompleted)))
}

var leaseCases = []Case{
	{"lease-1", "Lease/Extend", "Record.Extend", "A renewal holds the job for its whole lease from now, without raising the version.", needsNothing, func(c *C) {
		c.insert(c.job())
		r := c.one()
		c.pass(50 * time.Second)
		lost, err := c.S.Extend(c.ctx, c.now,
			[]storage.Extension{{Held: storage.Held{ID: r.ID, Version: r.Version}}})
		c.noErr("Extend", err)
		if len(lost) != 0 {
			c.failf("lost %v", short(lost))
		}
		want := r
		want.Extend(c.now, storage.Extension{})
		c.same("the job", c.get(r.ID), want)
		c.pass(59 * time.Second)
		if d := c.due(); len(d.Stalled) != 0 || !d.Next.Equal(want.LeaseUntil) {
			c.failf("before the renewed lease is over Due returned %+v", d)
		}
	}},
	{"lease-2", "Lease/ExtendLost", "Storage.Extend", "A lease of a job that is not active, is claimed anew or is not there cannot be renewed, and its id is returned.", needsNothing, func(c *C) {
		c.insert(c.job(), c.job(), c.job())
		done, again, live := c.one(), c.one(), c.one()
		c.settled(done, c.to(ojs.StateCompleted))
		back := c.settled(again, c.to(ojs.StateRetryable))
		c.settled(back, func(r *storage.Record) { r.State, r.NextRetryAt = ojs.StateAvailable, time.Time{} })
		c.one()
		held := func(r storage.Record) storage.Extension {
			return storage.Extension{Held: storage.Held{ID: r.ID, Version: r.Version}}
		}
		lost, err := c.S.Extend(c.ctx, c.now,
			[]storage.Extension{held(done), held(live), held(again),
				{Held: storage.Held{ID: "nobody", Version: 1}}})
		c.noErr("Extend", err)
		if want := []string{done.ID, again.ID, "nobody"}; !slices.Equal(lost, want) {
			c.failf("lost %v, not %v", short(lost), short(want))
		}
	}},
	{"lease-3", "Lease/Expiry", "Record.TakeOver", "When a lease is over Due hands the job to one caller, under a new version, with the same attempt.", needsNothing, func(c *C) {
		c.insert(c.job())
		r := c.one()
		c.pass(time.Minute - c.tick())
		if d := c.due(); len(d.Stalled) != 0 {
			c.failf("a lease was over early")
		}
		c.pass(c.tick())
		d := c.due()
		if len(d.Stalled) != 1 {
			c.failf("Due returned %d stalled jobs", len(d.Stalled))
		}
		if len(d.Ended) != 0 {
			c.failf("a lease that is over blames the end of a process")
		}
		want := r
		want.TakeOver(c.now)
		c.same("the stalled job", d.Stalled[0], want)
		c.same("what is stored", c.get(r.ID), want)
		if d := c.due(); len(d.Stalled) != 0 {
			c.failf("it was handed out twice")
		}
		if s := c.settle(r, c.to(ojs.StateCompleted)); !errors.Is(s.Err, storage.ErrFenced) {
			c.failf("the late result of a lost lease: %+v", s)
		}
		c.settled(d.Stalled[0], c.to(ojs.StateRetryable))
	}},
	{"lease-4", "Lease/ExpiryAgain", "Storage.Due", "A job whose new holder vanishes too is handed on again.", needsNothing, func(c *C) {
		c.insert(c.job())
		c.one()
		for range 3 {
			c.pass(time.Minute)
			if d := c.due(); len(d.Stalled) != 1 {
				c.failf("Due returned %d stalled jobs", len(d.Stalled))
			}
		}
	}},
	{"lease-5", "Lease/ProgressAndCheckpoints", "Record.Extend", "A renewal keeps the greatest progress and the latest checkpoint; a claim begins at no progress and keeps the checkpoint.", needsNothing, func(c *C) {
		c.insert(c.job())
		r := c.one()
		for _, x := range []storage.Extension{{Progress: 0.5, Checkpoint: []byte(`{"row":1}`)},
			{Progress: 0.25}, {Checkpoint: []byte(`{"row":2}`)}} {
			x.Held = storage.Held{ID: r.ID, Version: r.Version}
			if _, err := c.S.Extend(c.ctx, c.now, []storage.Extension{x}); err != nil {
				c.failf("Extend failed: %v", err)
			}
		}
		got := c.get(r.ID)
		if got.Progress != 0.5 || string(got.Checkpoint) != `{"row":2}` {
			c.failf("progress %v, checkpoint %s", got.Progress, got.Checkpoint)
		}
		back := c.settled(got, c.to(ojs.StateRetryable))
		c.settled(back, func(r *storage.Record) { r.State, r.NextRetryAt = ojs.StateAvailable, time.Time{} })
		if again := c.one(); again.Progress != 0 || string(again.Checkpoint) != `{"row":2}` {
			c.failf("the next attempt begins at %v with %s", again.Progress, again.Checkpoint)
		}
	}},
}

var dueCases = []Case{
	{"due-1", "Due/Promotes", "Record.Promote", "Scheduled and retryable jobs whose time has come become available, and not before.", needsNothing, func(c *C) {
		s, r := c.job(scheduled(time.Hour)), c.reach(ojs.StateRetryable)
		c.insert(s)
		c.pass(time.Hour - c.tick())
		if d := c.due(); len(d.Promoted) != 0 || !d.Next.Equal(epoch.Add(time.Hour)) {
			c.failf("before the time Due returned %+v", d)
		}
		c.pass(c.tick())
		was := []storage.Record{c.get(r.ID), c.get(s.ID)}
		d := c.due()
		if len(d.Promoted) != 2 {
			c.failf("Due promoted %v", short(ids(d.Promoted)))
		}
		for _, want := range was {
			want.Promote(c.now)
			i := slices.IndexFunc(d.Promoted, func(p storage.Record) bool { return p.ID == want.ID })
			if i < 0 {
				c.failf("Due promoted %v", short(ids(d.Promoted)))
			}
			c.same("a promoted job", d.Promoted[i], want)
			c.same("what is stored", c.get(want.ID), want)
		}
	}},
	{"due-2", "Due/Order", "Storage.Due", "Jobs enter their queue in the order in which they came due, and for the same time in that in which they began to wait.", needsNothing, func(c *C) {
		var recs []storage.Record
		for _, d := range []int{3, 1, 2, 1, 3} {
			recs = append(recs, c.job(scheduled(time.Duration(d)*time.Minute)))
		}
		got := c.insert(recs...)
		c.pass(time.Hour)
		want := []string{got[1], got[3], got[2], got[0], got[4]}
		if d := c.due(); !slices.Equal(ids(d.Promoted), want) {
			c.failf("promoted %v, not %v", short(ids(d.Promoted)), short(want))
		}
		c.order(storage.Claim{}, want...)
	}},
	{"due-3", "Due/Expires", "Record.Expire", "A job whose deadline has come ends, in each state in which it may wait.", needsNothing, func(c *C) {
		end := expires(time.Minute)
		total := func(r *storage.Record) { r.TotalTimeout = time.Minute }
		deadlines := []func(*storage.Record){end, total}
		var got []string
		for _, ends := range deadlines {
			c.insert(c.job(ends))
			got = append(got, c.settled(c.one(), c.to(ojs.StateRetryable)).ID) // in an hour
		}
		for _, ends := range deadlines {
			got = append(got, c.insert(c.job(ends), c.job(ends, pending),
				c.job(ends, scheduled(30*time.Second)), c.job(ends, scheduled(time.Hour)))...)
		}
		c.insert(c.job(end, queue("active")))
		active := c.claimOf(storage.Claim{Queues: []string{"active"}, Max: 1})[0]
		c.pass(time.Minute - c.tick())
		if d := c.due(); len(d.Expired) != 0 {
			c.failf("a job expired early")
		}
		c.pass(c.tick())
		want := make(map[string]storage.Record)
		for _, id := range got {
			r := c.get(id)
			r.Expire(c.now)
			want[id] = r
		}
		d := c.due()
		if len(d.Expired) != len(got) {
			c.failf("Due expired %v, not %v", short(ids(d.Expired)), short(got))
		}
		for _, r := range d.Expired {
			c.same("an expired job", r, want[r.ID])
			c.same("what is stored", c.get(r.ID), want[r.ID])
		}
		c.settled(c.get(active.ID), c.to(ojs.StateCompleted)) // a running one is left alone

		// However short the time is.
		c.insert(c.job(func(r *storage.Record) { r.TotalTimeout = c.tick() }))
		c.pass(c.tick())
		if d := c.due(); len(d.Expired) != 1 {
			c.failf("Due expired %v, not the job with the least total timeout", short(ids(d.Expired)))
		}
	}},
	{"due-8", "Due/EnqueueTTL", "Record.Deadline", "A job's enqueue TTL ends its wait for the first attempt, and no wait after that.", needsNothing, func(c *C) {
		ttl := func(r *storage.Record) { r.EnqueueTTL = time.Minute }
		got := c.insert(c.job(ttl), c.job(ttl, pending), c.job(ttl, scheduled(30*time.Second)))
		var started []string
		for _, q := range []string{"started", "full"} {
			started = append(started, c.insert(c.job(ttl, queue(q)))...)
			tried := c.claimOf(storage.Claim{Queues: []string{q}, Max: 1})[0]
			c.to(ojs.StateRetryable)(&tried)
			tried.NextRetryAt = c.now.Add(2 * time.Minute)
			c.change(storage.Change{Record: tried, AttemptFieldsOnly: true})
			c.wantState(tried.ID, ojs.StateRetryable)
		}
		c.pass(time.Minute)
		d := c.due()
		if len(d.Expired) != len(got) {
			c.failf("Due expired %v, not %v", short(ids(d.Expired)), short(got))
		}
		for _, r := range d.Expired {
			if r.Error == nil || r.Error.Type != policy.ErrorTypeEnqueueTTL || r.State != ojs.StateDiscarded {
				c.failf("a job whose enqueue TTL is over is %s with %+v", r.State, r.Error)
			}
		}
		c.pass(time.Minute)
		if d := c.due(); !slices.Equal(ids(d.Promoted), started) || len(d.Expired) != 0 {
			c.failf("jobs that have been started: promoted %v, expired %v",
				short(ids(d.Promoted)), short(ids(d.Expired)))
		}
		full := c.insertOne(storage.Insert{Record: c.job(queue("full")), MaxDepth: 1, DropOldest: true})
		if !slices.Equal(ids(full.Dropped), started[1:]) {
			c.failf("a full queue dropped %v, not %v", short(ids(full.Dropped)), short(started[1:]))
		}
		c.claims(storage.Claim{Queues: []string{"started"}, Max: 5}, started[0])
	}},
	{"due-4", "Due/Max", "Storage.Due", "Due does at most max jobs, and Next then is a time that has come.", needsNothing, func(c *C) {
		for range 5 {
			c.insert(c.job(scheduled(time.Minute)))
		}
		c.pass(time.Hour)
		d, err := c.S.Due(c.ctx, c.now, 3, nil)
		c.noErr("Due", err)
		if len(d.Promoted) != 3 || d.Next.IsZero() || d.Next.After(c.now) {
			c.failf("Due promoted %d, next %v", len(d.Promoted), d.Next)
		}
		if d := c.due(); len(d.Promoted) != 2 {
			c.failf("the second call promoted %d", len(d.Promoted))
		}
	}},
	{"due-5", "Due/Next", "Storage.Due", "Next is the earliest time of any job, zero if there is none.", needsNothing, func(c *C) {
		next := func(want time.Duration) {
			c.tb.Helper()
			d := c.due()
			if want == 0 && !d.Next.IsZero() || want != 0 && !d.Next.Equal(epoch.Add(want)) {
				c.failf("Next is %v, not %v after the beginning", d.Next, want)
			}
		}
		next(0)
		c.insert(c.job(queue("plain")))
		next(0)
		c.insert(c.job(scheduled(time.Hour)))
		next(time.Hour)
		id := c.insert(c.job(expires(30*time.Minute), queue("expires")))[0]
		next(30 * time.Minute)
		r := c.claimOf(storage.Claim{Queues: []string{"plain"}, Max: 1})[0]
		next(time.Minute)
		c.settled(r, c.to(ojs.StateCompleted))
		next(30 * time.Minute)
		c.settled(c.get(id), c.to(ojs.StateCancelled))
		next(time.Hour)
	}},
	{"due-7", "Due/SameTime", "Storage.Due", "Jobs that are due at the same time come in the order in which they began to wait: a renewal and a change begin anew, and taking over does not.", needsNothing, func(c *C) {
		p := ojs.UniquePolicy{OnConflict: ojs.ConflictReplaceExceptSchedule}
		got := c.insert(c.job(scheduled(time.Minute)), c.job(scheduled(time.Minute)),
			c.job(scheduled(time.Minute), unique("f", p)), c.job(scheduled(time.Minute)))
		c.settled(c.get(got[0]), func(r *storage.Record) { r.Meta = map[string]any{"changed": true} })
		_, err := c.insertBatch(c.job(unique("f", p)))
		c.noErr("Insert", err)
		held := c.insert(c.job(), c.job(), c.job())
		claims := c.claim(3)
		if len(claims) != 3 {
			c.failf("Claim returned %d jobs, not 3", len(claims))
		}
		lost, err := c.S.Extend(c.ctx, c.now,
			[]storage.Extension{{Held: storage.Held{ID: held[0], Version: claims[0].Version}}})
		if c.noErr("Extend", err); len(lost) > 0 {
			c.failf("the claim of job %v was lost", short(lost))
		}
		c.pass(time.Minute)
		d := c.due()
		if want := []string{got[1], got[2], got[3], got[0]}; !slices.Equal(ids(d.Promoted), want) {
			c.failf("promoted %v, not %v", short(ids(d.Promoted)), short(want))
		}
		if want := []string{held[1], held[2], held[0]}; !slices.Equal(ids(d.Stalled), want) {
			c.failf("stalled %v, not %v", short(ids(d.Stalled)), short(want))
		}
		c.pass(time.Minute)
		if again := c.due(); !slices.Equal(ids(again.Stalled), ids(d.Stalled)) {
			c.failf("handed on %v, not in the order of the first time, %v",
				short(ids(again.Stalled)), short(ids(d.Stalled)))
		}

		// An available job that keeps its place does not begin anew.
		end := expires(time.Minute)
		waits := c.insert(c.job(end), c.job(end))
		c.settled(c.get(waits[0]), func(r *storage.Record) { r.Meta = map[string]any{"changed": true} })
		c.pass(time.Minute)
		if expired := ids(c.due().Expired); !slices.Equal(expired, waits) {
			c.failf("expired %v, not %v", short(expired), short(waits))
		}
	}},
	{"due-9", "Due/OneCall", "Storage.Due", "Jobs that began to wait for the same time in one call come in the order of that call.", needsNothing, func(c *C) {
		batch := []storage.Record{c.job(scheduled(time.Minute)), c.job(scheduled(time.Minute)),
			c.job(scheduled(time.Minute))}
		slices.Reverse(batch)
		_, err := c.insertBatch(batch...)
		c.noErr("Insert", err)
		c.insert(c.job(), c.job(priority(1)), c.job(priority(2)), c.job(priority(3)))
		claims := c.claim(4) // in another order than that of the inserts
		renewed := []storage.Extension{{Held: heldOf(claims[2])}, {Held: heldOf(claims[1])}}
		if lost, err := c.S.Extend(c.ctx, c.now, renewed); err != nil || len(lost) > 0 {
			c.failf("Extend lost %v, %v", short(lost), err)
		}
		c.pass(time.Minute)
		d := c.due()
		if !slices.Equal(ids(d.Promoted), ids(batch)) {
			c.failf("promoted %v, not %v", short(ids(d.Promoted)), short(ids(batch)))
		}
		want := []string{claims[0].ID, claims[3].ID, claims[2].ID, claims[1].ID}
		if !slices.Equal(ids(d.Stalled), want) {
			c.failf("stalled %v, not %v", short(ids(d.Stalled)), short(want))
		}
		var changes []storage.Change
		for _, i := range []int{1, 3, 0, 2} {
			r := d.Stalled[i]
			c.to(ojs.StateRetryable)(&r)
			want[len(changes)] = r.ID
			changes = append(changes, storage.Change{Record: r, AttemptFieldsOnly: i%2 == 0})
		}
		_, err = c.S.Settle(c.ctx, c.now, changes, nil)
		c.noErr("Settle", err)
		c.pass(time.Hour)
		if d := c.due(); !slices.Equal(ids(d.Promoted), want) {
			c.failf("promoted %v, not in the order of the changes, %v", short(ids(d.Promoted)), short(want))
		}
	}},
	{"due-10", "Due/ExpiresWhy", "Record.Expire", "A job that expires says why, and is a dead letter only if that is its total timeout and its policy wants it.", needsNothing, func(c *C) {
		total := func(r *storage.Record) { r.TotalTimeout = time.Minute }
		enqueue := func(r *storage.Record) { r.EnqueueTTL = time.Minute }
		for _, end := range []ojs.Exhaustion{ojs.ExhaustionDeadLetter, ojs.ExhaustionDiscard} {
			for _, tt := range []struct {
				errorType string
				set       []func(*storage.Record)
			}{
				{policy.ErrorTypeExpired, []func(*storage.Record){expires(time.Minute)}},
				{policy.ErrorTypeEnqueueTTL, []func(*storage.Record){enqueue}},
				{policy.ErrorTypeEnqueueTTL, []func(*storage.Record){enqueue, expires(time.Minute)}},
				{policy.ErrorTypeTotalTimeout, []func(*storage.Record){total}},
				{policy.ErrorTypeTotalTimeout, []func(*storage.Record){total, enqueue, expires(time.Minute)}},
			} {
				r := c.job(tt.set...)
				r.Retry.OnExhaustion = end
				c.insert(r)
				c.pass(time.Minute)
				if d := c.due(); !slices.Equal(ids(d.Expired), []string{r.ID}) {
					c.failf("expired %v", short(ids(d.Expired)))
				}
				got := c.wantState(r.ID, ojs.StateDiscarded)
				if got.Error == nil || got.Error.Type != tt.errorType || !got.FinishedAt.Equal(c.now) {
					c.failf("%s: the job ended at %v with %v", tt.errorType, got.FinishedAt, got.Error)
				}
				dead := tt.errorType == policy.ErrorTypeTotalTimeout && end == ojs.ExhaustionDeadLetter
				if got.DeadLettered() != dead ||
					slices.Contains(c.list(storage.Query{DeadLetters: true}), r.ID) != dead {
					c.failf("%s with %q: a dead letter since %v", tt.errorType, end, got.DeadLetteredAt)
				}
			}
		}
	}},
	{"due-6", "Due/ClockGoesBack", "package storage, Time", "A clock that goes back hands out less, never more, and fails nothing.", needsNothing, func(c *C) {
		c.insert(c.job(scheduled(time.Minute)), c.job(expires(time.Minute), queue("expires")))
		for _, at := range []time.Duration{-time.Hour, 0, time.Minute - c.tick()} {
			d, err := c.S.Due(c.ctx, epoch.Add(at), 10, nil)
			c.noErr("Due", err)
			if n := len(d.Promoted) + len(d.Expired) + len(d.Stalled); n != 0 ||
				!d.Next.Equal(epoch.Add(time.Minute)) {
				c.failf("at %v Due returned %d jobs, next %v", at, n, d.Next)
			}
		}
		c.now = epoch.Add(-time.Hour)
		r := c.one()
		c.settled(r, c.to(ojs.StateCompleted))
	}},
}
