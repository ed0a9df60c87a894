package storagetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/storage"
)

func (c *C) settleClaimer() storage.SettleClaimer {
	c.tb.Helper()
	s, ok := settleClaimer(c.S)
	if !ok {
		c.failf("the storage does not settle and claim in one step")
	}
	return s
}

// used are n records that other jobs have left, with something in each field that a job
// without anything has not.
func used(n int) []*storage.Record {
	out := make([]*storage.Record, n)
	for i := range out {
		at := epoch.Add(-time.Hour)
		f := ojs.Failure{Attempt: 1, At: at, Type: "old", Message: "old"}
		r := &storage.Record{Version: 99, Worker: "old", LeaseUntil: at, Fingerprint: "old",
			Checkpoint: json.RawMessage(`"old"`)}
		r.ID, r.Type, r.Queue, r.State = "old", "old", "old", ojs.StateCompleted
		r.Priority, r.Attempt, r.MaxAttempts, r.Progress = 99, 99, 99, 1
		r.Args, _ = ojs.NewArgs("old")
		r.Meta, r.Extra = map[string]any{"old": true}, map[string]json.RawMessage{"old": json.RawMessage("1")}
		r.Timeout, r.TotalTimeout, r.EnqueueTTL = time.Hour, time.Hour, time.Hour
		r.Lease, r.ResultTTL = time.Hour, time.Hour
		r.Retry = ojs.RetryPolicy{MaxAttempts: 99, NonRetryableErrors: []string{"old"},
			OnExhaustion: ojs.ExhaustionDeadLetter}
		r.RateLimit, r.Unique = &ojs.RateLimit{Key: "old"}, &ojs.UniquePolicy{Key: "old"}
		r.CreatedAt, r.ScheduledAt, r.ExpiresAt, r.EnqueuedAt, r.StartedAt = at, at, at, at, at
		r.NextRetryAt, r.FinishedAt, r.DeadLetteredAt = at, at, at
		r.Error, r.Errors, r.Result = &f, []ojs.Failure{f}, json.RawMessage(`"old"`)
		r.History, r.Dependencies = []ojs.Note{{At: at, Worker: "old"}}, &ojs.Dependencies{OrderingKey: "old"}
		r.Fairness = ojs.Fairness{Key: "old"}
		out[i] = r
	}
	return out
}

// usedList is used, as a list.
func usedList(n int) []storage.Record {
	list := make([]storage.Record, n)
	for i, r := range used(n) {
		list[i] = *r
	}
	return list
}

// step settles outcomes and claims up to n jobs, in one step.
func (c *C) step(q storage.Claim, n int, to ...storage.Record) ([]storage.Settled, []storage.Record) {
	c.tb.Helper()
	var outcomes []*storage.Record
	for i := range to {
		outcomes = append(outcomes, &to[i])
	}
	into := used(n)
	out, n, err := c.settleClaimer().SettleAndClaim(c.ctx, c.now, outcomes, nil, q, into)
	c.noErr("SettleAndClaim", err)
	if len(out) != len(to) || n < 0 || n > len(into) {
		c.failf("SettleAndClaim of %d outcomes into %d records returned %d results and says %d jobs", len(to),
			len(into), len(out), n)
	}
	var recs []storage.Record
	for _, r := range into[:n] {
		recs = append(recs, *r)
	}
	return out, recs
}

// stepped wants one step to claim these jobs, in this order.
func (c *C) stepped(q storage.Claim, n int, want ...string) {
	c.tb.Helper()
	if _, recs := c.step(q, n); !slices.Equal(ids(recs), want) {
		c.failf("claimed %v, not %v", short(ids(recs)), short(want))
	}
}

// unclaim wants this many claims to be undone.
func (c *C) unclaim(want int, held ...storage.Held) {
	c.tb.Helper()
	n, err := c.settleClaimer().Unclaim(c.ctx, c.now, held)
	c.noErr("Unclaim", err)
	if n != want {
		c.failf("Unclaim says that %d jobs are available now, not %d", n, want)
	}
}

// as changes a record into an outcome.
func as(r storage.Record, change func(*storage.Record)) storage.Record {
	change(&r)
	return r
}

var settleClaimCases = []Case{
	{"settleclaim-1", "SettleClaim/Both", "SettleClaimer.SettleAndClaim", "It settles as Settle does and claims as Claim does, and appends its results to what it was given.", needsSettleClaims, func(c *C) {
		id := c.insert(c.job(), c.job())[1]
		r := c.one()
		c.pass(time.Second)
		r.Progress, r.Result = 1, json.RawMessage(`{"n":1}`)
		c.to(ojs.StateCompleted)(&r)
		done, next := r, c.get(id)
		done.Version++
		next.Claim(c.now, "worker-7", 0)
		into := used(1)
		ask, dst := storage.Claim{Worker: "worker-7"}, make([]storage.Settled, 1)
		out, n, err := c.settleClaimer().SettleAndClaim(c.ctx, c.now, []*storage.Record{&r}, dst, ask, into)
		c.noErr("SettleAndClaim", err)
		want := []storage.Settled{{}, {Version: done.Version}}
		if n != 1 || len(fields.Diff(out, want)) > 0 {
			c.failf("SettleAndClaim returned %+v and %d jobs", out, n)
		}
		c.same("what was settled", c.get(r.ID), done)
		c.same("what was claimed", *into[0], next)
		c.same("what is stored of it", c.get(id), next)
	}},
	{"settleclaim-2", "SettleClaim/EachByItself", "SettleClaimer.SettleAndClaim", "Each outcome is stored or refused by itself, in order, and jobs are claimed even if some were refused.", needsSettleClaims, func(c *C) {
		next := c.insert(c.job(), c.job(), c.job(), c.job())[3]
		a, b, moved := c.one(), c.one(), c.one()
		c.settled(moved, c.to(ojs.StateRetryable))
		gone := c.job()
		gone.Version = 1
		done, retry := c.to(ojs.StateCompleted), c.to(ojs.StateRetryable)
		out, recs := c.step(storage.Claim{}, 1, as(a, done), as(b, c.to(ojs.StateScheduled)),
			as(gone, done), as(moved, done), as(b, retry), as(b, done))
		for i, want := range []struct {
			version uint64
			err     error
		}{
			{a.Version + 1, nil}, {b.Version, ojs.ErrTransition}, {0, ojs.ErrNotFound},
			{moved.Version + 1, storage.ErrFenced},
			{b.Version + 1, nil}, {b.Version + 1, storage.ErrFenced},
		} {
			if !errors.Is(out[i].Err, want.err) || out[i].Version != want.version {
				c.failf("outcome %d: %+v, not %+v", i+1, out[i], want)
			}
		}
		c.wantState(a.ID, ojs.StateCompleted)
		c.wantState(b.ID, ojs.StateRetryable)
		c.wantState(moved.ID, ojs.StateRetryable)
		if len(recs) != 1 || recs[0].ID != next {
			c.failf("claimed %v, not %v", short(ids(recs)), short([]string{next}))
		}
	}},
	{"settleclaim-3", "SettleClaim/MadeAvailable", "SettleClaimer.SettleAndClaim", "A job that an outcome makes available is claimed in the same step, in its place: by priority, behind those that were there, in the order of the outcomes.", needsSettleClaims, func(c *C) {
		c.insert(c.job())
		dead := c.settled(c.one(), c.dead)
		got := c.insert(c.job(pending), c.job(pending), c.job(), c.job(priority(-1)),
			c.job(pending, priority(1)), c.job(scheduled(time.Second)))
		c.pass(time.Second)
		to := func(id string) storage.Record {
			return as(c.get(id), func(r *storage.Record) {
				r.State, r.Attempt, r.EnqueuedAt = ojs.StateAvailable, 0, c.now
				r.FinishedAt, r.DeadLetteredAt = time.Time{}, time.Time{}
			})
		}
		outcomes := []storage.Record{to(got[1]), to(got[5]), to(got[0]), to(dead.ID), to(got[4])}
		fresh := c.job()
		_, err := c.S.Insert(c.ctx, c.now, []storage.Insert{{Record: fresh, IDIsNew: true}}, nil)
		c.noErr("Insert", err)
		out, recs := c.step(storage.Claim{}, 10, outcomes...)
		for _, s := range out {
			if s.Err != nil {
				c.failf("an outcome was refused: %v", s.Err)
			}
		}
		want := []string{got[4], got[2], fresh.ID, got[1], got[5], got[0], dead.ID, got[3]}
		if !slices.Equal(ids(recs), want) {
			c.failf("claimed %v, not %v", short(ids(recs)), short(want))
		}
	}},
	{"settleclaim-4", "SettleClaim/Order", "SettleClaimer.SettleAndClaim", "Jobs are claimed as by Claim: of the queues named, one after the other, or of all together, by priority and then first in first out, and only of the types named.", needsSettleClaims, func(c *C) {
		got := c.insert(c.job(queue("a")), c.job(queue("b"), priority(9)),
			c.job(queue("c"), priority(9)), c.job(queue("b")),
			c.job(queue("a"), priority(1)), c.job(queue("a"), jobType("y"), priority(5)),
			c.job(queue("c"), jobType("y"), priority(-1)),
			c.job(queue("d"), priority(5)))
		named := storage.Claim{Queues: []string{"b", "a", "none"}, Types: []string{"x", "none"}}
		c.stepped(named, 3, got[1], got[3], got[4])
		c.stepped(named, 3, got[0])
		c.stepped(storage.Claim{Types: []string{"none"}}, 1)
		c.stepped(storage.Claim{}, 5, got[2], got[5], got[7], got[6])
	}},
	{"settleclaim-5", "SettleClaim/PassesOver", "SettleClaimer.SettleAndClaim", "The step skips the jobs that Claim skips: jobs that wait for their time, whose deadline has come, or that a limit holds back.", needsSettleClaims, func(c *C) {
		c.insert(c.job(expires(time.Minute), priority(9)),
			c.job(priority(9), func(r *storage.Record) { r.TotalTimeout = time.Minute }))
		c.insert(c.job(scheduled(time.Second), priority(9)), c.job(pending, priority(9)))
		c.reach(ojs.StateRetryable)
		full := c.insert(c.job(limited("full"), priority(9)), c.job(limited("full")))
		live := c.insert(c.job(expires(time.Hour)), c.job(), c.job())
		c.pass(time.Minute)
		c.shut("full")
		c.stepped(storage.Claim{}, 2, live[:2]...)
		c.stepped(storage.Claim{Queues: []string{"q"}}, 2, live[2])
		c.unshut("full")
		c.order(storage.Claim{}, full...)
	}},
	{"settleclaim-7", "SettleClaim/Into", "SettleClaimer.SettleAndClaim", "It claims as many jobs as there are records for them, for any Max, says how many there are, and leaves nothing in them of what was there.", needsSettleClaims, func(c *C) {
		got := c.insert(c.job(), c.job(),
			c.job(func(r *storage.Record) { r.Meta = map[string]any{"a": "b"} }), c.job())
		for _, tt := range []struct{ max, room, want int }{{0, 1, 1}, {9, 1, 1}, {1, 0, 0}, {1, 3, 2},
			{2, 2, 0}} {
			_, recs := c.step(storage.Claim{Max: tt.max, Worker: "w"}, tt.room)
			if !slices.Equal(ids(recs), got[:tt.want]) {
				c.failf("with Max %d and %d records it claimed %v, not %v",
					tt.max, tt.room, short(ids(recs)), short(got[:tt.want]))
			}
			for _, r := range recs {
				c.same("what was claimed", r, c.get(r.ID))
			}
			got = got[tt.want:]
		}
	}},
	{"settleclaim-8", "SettleClaim/Copies", "package storage, Copies", "What is stored shares no memory with the outcomes, nor with the records that claimed jobs are written to.", needsSettleClaims, func(c *C) {
		meta := func(r *storage.Record) { r.Meta = map[string]any{"list": []any{"as given"}} }
		id := c.insert(c.job(meta), c.job(meta))[1]
		r := c.one()
		c.to(ojs.StateRetryable)(&r)
		r.Errors = []ojs.Failure{{Attempt: 1, At: c.now, Message: "as given"}}
		r.Checkpoint = json.RawMessage(`"as given"`)
		want := r.Copy()
		want.Version++
		out, recs := c.step(storage.Claim{}, 1, r)
		if out[0].Err != nil || len(recs) != 1 {
			c.failf("SettleAndClaim returned %+v and %d jobs", out, len(recs))
		}
		c.same("what was settled", c.get(r.ID), want) // the scribbler has overwritten what the call was given
		c.same("what was claimed", c.get(id), recs[0])
	}},
	{"settleclaim-9", "SettleClaim/EndedContext", "package storage, Errors", "With a context that has ended nothing is settled, claimed or undone.", needsSettleClaims, func(c *C) {
		waits := c.insert(c.job(), c.job())[1]
		r := c.one()
		want, next := c.get(r.ID), c.get(waits)
		ctx, cancel := context.WithCancel(c.ctx)
		cancel()
		s := c.settleClaimer()
		to := as(r, c.to(ojs.StateCompleted))
		_, n, err := s.SettleAndClaim(ctx, c.now, []*storage.Record{&to}, nil, storage.Claim{}, used(1))
		if !errors.Is(err, context.Canceled) || n != 0 {
			c.failf("SettleAndClaim returned %d jobs and %v", n, err)
		}
		n, err = s.Unclaim(ctx, c.now, []storage.Held{heldOf(r)})
		if !errors.Is(err, context.Canceled) || n != 0 {
			c.failf("Unclaim returned %d and %v", n, err)
		}
		c.same("the job that was to be settled and given back", c.get(r.ID), want)
		c.same("the job that was to be claimed", c.get(waits), next)
	}},
	{"settleclaim-10", "SettleClaim/Paused", "storage.QueueStore", "Jobs of paused queues are not claimed, and one that is given back to such a queue stays there.", needsSettleClaims, func(c *C) {
		set := func(to ojs.QueueState) {
			_, err := c.S.SetQueueState(c.ctx, "p", to)
			c.noErr("SetQueueState", err)
		}
		got := c.insert(c.job(queue("p"), priority(9)), c.job(queue("p"), priority(9)), c.job())
		r := c.one()
		set(ojs.QueuePaused)
		c.unclaim(1, heldOf(r))
		c.stepped(storage.Claim{Queues: []string{"p", "q"}}, 2, got[2])
		c.stepped(storage.Claim{}, 2)
		set(ojs.QueueActive)
		c.stepped(storage.Claim{}, 3, got[:2]...)
	}},
	{"settleclaim-11", "SettleClaim/Told", "storage.Notifier", "Others are told of the jobs that end, become available or are taken from their holders, and of the leases of what is claimed.", needsSettleClaims | needsNotices, func(c *C) {
		waits := c.insert(c.job(pending, queue("pending")))[0]
		c.insert(c.job(), c.job(), c.job(func(r *storage.Record) { r.Lease = time.Second }))
		done, taken := c.one(), c.one()
		e := c.listen("other")
		activated := as(c.get(waits), func(r *storage.Record) { r.State = ojs.StateAvailable })
		ends, cancelled := as(done, c.to(ojs.StateCompleted)), as(taken, c.to(ojs.StateCancelled))
		_, recs := c.step(storage.Claim{Queues: []string{"q"}}, 1, ends, cancelled, activated)
		if len(recs) != 1 {
			c.failf("SettleAndClaim claimed %d jobs", len(recs))
		}
		e.hears("a job has ended", ended(done.ID))
		e.hears("a job was cancelled", takenFor(heldOf(taken), ojs.ErrCancelled))
		e.hears("a job is available", available)
		e.hears("a lease may be lost",
			func(n storage.Notice) bool { return !n.Due.IsZero() && !n.Due.After(recs[0].LeaseUntil) })
		e.stop()
	}},
	{"settleclaim-12", "SettleClaim/NotSelf", "storage.Notifier", "A listener hears nothing of its own steps, nor of claims that it undoes.", needsSettleClaims | needsNotices, func(c *C) {
		e := c.listen("self")
		mine, theirs := storage.WithCaller(c.ctx, "self"), storage.WithCaller(c.ctx, "other")
		c.ctx = mine
		c.insert(c.job(), c.job(), c.job())
		own, other, back := c.one(), c.one(), c.one()
		c.unclaim(1, heldOf(back))
		c.step(storage.Claim{}, 1, as(own, c.to(ojs.StateCompleted)))
		c.ctx = theirs
		c.step(storage.Claim{}, 0, as(other, c.to(ojs.StateCompleted)))
		e.hears("another one's job has ended", ended(other.ID))
		for _, n := range e.past {
			if n.Available || slices.Contains(n.Ended, own.ID) {
				c.failf("told of its own calls: %+v", n)
			}
		}
		e.stop()
	}},
	{"settleclaim-13", "SettleClaim/Race", "storage.SettleClaimer", "Of concurrent steps each job goes to exactly one at a time, those that are given back included, and each outcome is stored.", needsSettleClaims, func(c *C) {
		const jobs, workers = 300, 8
		for range jobs {
			c.insert(c.job())
		}
		s := c.settleClaimer()
		var mu sync.Mutex // guards what follows
		holders, held, wrong := make(map[string]int), 0, false
		race(workers, func(worker int) {
			var to []*storage.Record
			for turn := 0; ; turn++ {
				into := used(3)
				out, n, err := s.SettleAndClaim(c.ctx, c.now, to, nil, storage.Claim{Worker: "racer"}, into)
				mu.Lock()
				if err != nil || len(out) != len(to) ||
					slices.ContainsFunc(out, func(s storage.Settled) bool { return s.Err != nil }) {
					c.errorf("SettleAndClaim returned %+v for %d outcomes: %v", out, len(to), err)
					wrong = true
				}
				for _, r := range into[:n] {
					if holders[r.ID]++; holders[r.ID] != 1 {
						c.errorf("a job has %d holders", holders[r.ID])
						wrong = true
					}
				}
				held += n - len(to)
				// a worker that gives jobs back meanwhile claims them again
				over := wrong || n == 0 && held == 0
				to = into[:n]
				var back []storage.Held
				if n > 1 && turn%3 == worker%3 {
					back, to = append(back, heldOf(*to[n-1])), to[:n-1]
					holders[back[0].ID]--
					held--
				}
				mu.Unlock()
				if over {
					return
				}
				if n, err := s.Unclaim(c.ctx, c.now, back); n != len(back) || err != nil {
					c.errorf("Unclaim of %d returned %d, %v", len(back), n, err)
				}
				for _, r := range to {
					c.to(ojs.StateCompleted)(r)
				}
			}
		})
		if got := c.list(storage.Query{States: []ojs.State{ojs.StateCompleted}}); len(got) != jobs {
			c.failf("%d of %d jobs have ended", len(got), jobs)
		}
	}},
	{"settleclaim-14", "SettleClaim/JustInserted", "SettleClaimer.SettleAndClaim", "A job that has just been inserted under a fresh id can be settled in a step.", needsSettleClaims, func(c *C) {
		c.insert(c.job(), c.job())
		first := c.one()
		for range 3 {
			r := c.job()
			out, err := c.S.Insert(c.ctx, c.now, []storage.Insert{{Record: r, IDIsNew: true}}, nil)
			c.noErr("Insert", err)
			r.Version = out[0].Version
			c.to(ojs.StateCancelled)(&r)
			if settled, _ := c.step(storage.Claim{}, 0, r); settled[0].Err != nil {
				c.failf("the job was not settled: %v", settled[0].Err)
			}
			c.wantState(r.ID, ojs.StateCancelled)
		}
		// So can a job that was there before, and the one that has just been inserted is
		// claimed in its place.
		r := c.job()
		_, err := c.S.Insert(c.ctx, c.now, []storage.Insert{{Record: r, IDIsNew: true}}, nil)
		c.noErr("Insert", err)
		settled, recs := c.step(storage.Claim{}, 3, as(first, c.to(ojs.StateCompleted)))
		if settled[0].Err != nil || settled[0].Version != first.Version+1 || len(recs) != 2 ||
			recs[1].ID != r.ID {
			c.failf("the step returned %+v and %v", settled[0], short(ids(recs)))
		}
	}},
	{"settleclaim-15", "SettleClaim/EnqueueTTL", "SettleClaimer.SettleAndClaim", "The first job that has an enqueue TTL ends the claim as one that has a rate limit does, and Claim takes it.", needsSettleClaims, func(c *C) {
		ttl := func(r *storage.Record) { r.EnqueueTTL = c.tick() }
		got := c.insert(c.job(), c.job(ttl), c.job(), c.job(queue("z"), priority(-2)))
		was := c.get(got[1])
		c.stepped(storage.Claim{}, 5, got[0])
		c.stepped(storage.Claim{Queues: []string{"q", "z"}}, 5)
		c.same("the job with an enqueue TTL", c.get(got[1]), was)
		c.order(storage.Claim{}, got[1:]...)
		// Jobs that get one, or lose it, while they are available.
		for _, of := range []func(*storage.Record){func(*storage.Record) {}, limited("k")} {
			got = c.insert(c.job(of), c.job(of, ttl))
			c.settled(c.get(got[0]), ttl)
			c.settled(c.get(got[1]), func(r *storage.Record) { r.EnqueueTTL = 0 })
			c.stepped(storage.Claim{}, 5)
			c.claims(storage.Claim{Max: 1}, got[0])
			c.stepped(storage.Claim{}, 5, got[1])
		}
	}},
	{"settleclaim-16", "SettleClaim/Durable", "SettleClaimer.SettleAndClaim", "What a step has settled and claimed stays so after the storage was opened again.", needsSettleClaims | needsReopen, func(c *C) {
		got := c.insert(c.job(), c.job(), c.job(), c.job())
		done, again := c.one(), c.one()
		c.pass(time.Second)
		out, recs := c.step(storage.Claim{Worker: "w"}, 1,
			as(done, c.to(ojs.StateCompleted)), as(again, c.to(ojs.StateRetryable)))
		if len(recs) != 1 || out[0].Err != nil || out[1].Err != nil {
			c.failf("the step returned %+v and %d jobs", out, len(recs))
		}
		settled := []storage.Record{c.get(done.ID), c.get(again.ID)}
		c.reopen()
		for _, want := range settled {
			c.same("what was settled", c.get(want.ID), want)
		}
		c.same("what was claimed", c.get(got[2]), recs[0])
		c.settled(recs[0], c.to(ojs.StateCompleted))
		c.order(storage.Claim{}, got[3])
	}},
}

var unclaimCases = []Case{
	{"unclaim-1", "Unclaim/TakesBack", "Record.Unclaim", "A claim that is undone has counted no attempt and holds nothing, and what comes of it is fenced.", needsSettleClaims, func(c *C) {
		c.insert(c.job())
		for attempt := range 2 {
			c.pass(time.Second)
			r := c.one()
			if r.Attempt != attempt+1 {
				c.failf("the attempt is %d, not %d", r.Attempt, attempt+1)
			}
			c.unclaim(1, heldOf(r))
			want := r
			want.Unclaim()
			c.same("the job", c.get(r.ID), want)
			if s := c.settle(r, c.to(ojs.StateCompleted)); !errors.Is(s.Err, storage.ErrFenced) {
				c.failf("the result of a claim that was undone: %+v", s)
			}
			lost, err := c.S.Extend(c.ctx, c.now, []storage.Extension{{Held: heldOf(r)}})
			c.noErr("Extend", err)
			if len(lost) != 1 {
				c.failf("a claim that was undone was renewed")
			}
			r = c.one()
			if r.Attempt != attempt+1 {
				c.failf("the attempt is %d, not %d again", r.Attempt, attempt+1)
			}
			back := c.settled(r, c.to(ojs.StateRetryable))
			c.settled(back,
				func(r *storage.Record) { r.State, r.NextRetryAt = ojs.StateAvailable, time.Time{} })
		}
		byHand := c.settled(c.get(c.insert(c.job())[0]), c.to(ojs.StateActive))
		c.unclaim(1, heldOf(byHand))
		want := byHand
		want.State, want.StartedAt, want.Worker, want.LeaseUntil = isAvailable, time.Time{}, "", time.Time{}
		want.Version++
		c.same("a job that was made active without an attempt", c.get(byHand.ID), want)
	}},
	{"unclaim-2", "Unclaim/Place", "SettleClaimer.Unclaim", "Jobs that are given back are claimed, and dropped from full queues, as if they had not been claimed, in any order of giving them back.", needsSettleClaims, func(c *C) {
		rnd := rand.New(rand.NewPCG(1, 2))
		var waiting []storage.Record // in the order of claims
		insert := func(n int) {
			for range n {
				r := c.job(priority(rnd.IntN(3)), queue([]string{"a", "b"}[rnd.IntN(2)]),
					jobType([]string{"x", "y"}[rnd.IntN(2)]))
				if rnd.IntN(2) == 0 {
					r.Meta, r.TotalTimeout = map[string]any{"a": "b"}, time.Hour
				}
				c.insert(r)
				waiting = append(waiting, r)
			}
			slices.SortStableFunc(waiting, func(a, b storage.Record) int { return b.Priority - a.Priority })
		}
		for range 8 {
			insert(10)
			recs := c.claim(1 + rnd.IntN(15))
			insert(rnd.IntN(3)) // meanwhile
			var held []storage.Held
			for _, i := range rnd.Perm(len(recs)) {
				held = append(held, heldOf(recs[i]))
			}
			half := rnd.IntN(len(held))
			c.unclaim(half, held[:half]...)
			c.unclaim(len(held)-half, held[half:]...)
			gone := rnd.IntN(len(waiting))
			c.settled(c.get(waiting[gone].ID), c.to(ojs.StateCancelled))
			waiting = slices.Delete(waiting, gone, gone+1)
			n := rnd.IntN(len(waiting) / 2)
			if got, want := ids(c.claim(n)), ids(waiting[:n]); !slices.Equal(got, want) {
				c.failf("claimed %v, not %v", short(got), short(want))
			}
			waiting = waiting[n:]
		}
		c.order(storage.Claim{}, ids(waiting)...)
		beside := c.insert(c.job(), c.job(queue("other")), c.job(limited("k")))
		c.unclaim(1, heldOf(c.one()))
		c.order(storage.Claim{}, beside...)
		got := c.insert(c.job(queue("full")), c.job(queue("full")))
		c.unclaim(1, heldOf(c.claimOf(storage.Claim{Queues: []string{"full"}, Max: 1})[0]))
		out, err := c.S.Insert(c.ctx, c.now,
			[]storage.Insert{{Record: c.job(queue("full")), MaxDepth: 2, DropOldest: true}}, nil)
		c.noErr("Insert", err)
		if dropped := ids(out[0].Dropped); !slices.Equal(dropped, got[:1]) {
			c.failf("dropped %v, not %v", short(dropped), short(got[:1]))
		}
	}},
	{"unclaim-3", "Unclaim/NotCurrent", "SettleClaimer.Unclaim", "Claims that are not the ones named are skipped and left as they are, and do not count.", needsSettleClaims, func(c *C) {
		c.insert(c.job(), c.job(), c.job(func(r *storage.Record) { r.Lease = time.Second }), c.job())
		done, again, stalled, live := c.one(), c.one(), c.one(), c.one()
		c.settled(done, c.to(ojs.StateCompleted))
		back := c.settled(again, c.to(ojs.StateRetryable))
		c.settled(back, func(r *storage.Record) { r.State, r.NextRetryAt = ojs.StateAvailable, time.Time{} })
		c.one()
		c.pass(time.Second)
		if d := c.due(); len(d.Stalled) != 1 {
			c.failf("Due returned %d stalled jobs", len(d.Stalled))
		}
		newer, older := heldOf(live), heldOf(live)
		newer.Version++
		older.Version--
		stale := []storage.Held{heldOf(done), heldOf(again), heldOf(stalled), newer, older}
		for _, s := range without(ojs.StateActive) {
			stale = append(stale, heldOf(c.reach(s)))
		}
		var was []storage.Record
		for _, h := range stale {
			was = append(was, c.get(h.ID))
		}
		stale = append(stale, storage.Held{}, storage.Held{ID: "nobody", Version: 1})
		c.unclaim(0, stale...)
		c.unclaim(0)
		for _, want := range was {
			c.same("a job whose claim is not the one named", c.get(want.ID), want)
		}
		c.unclaim(1, append(stale, heldOf(live), heldOf(live))...)
		c.wantState(live.ID, ojs.StateAvailable)
	}},
	{"unclaim-4", "Unclaim/Due", "SettleClaimer.Unclaim", "A job that was given back has no lease to lose, and a deadline.", needsSettleClaims, func(c *C) {
		c.insert(c.job())
		c.unclaim(1, heldOf(c.one()))
		if d := c.due(); !d.Next.IsZero() {
			c.failf("Next is %v, though no lease is held", d.Next)
		}
		c.pass(time.Hour)
		if d := c.due(); len(d.Stalled) != 0 {
			c.failf("a lease was lost that had been given back")
		}
		c.settled(c.one(), c.to(ojs.StateCompleted))
		ends, late := c.job(expires(time.Minute)), c.job(expires(time.Second), queue("late"))
		ends.Lease, late.Lease = time.Hour, time.Hour
		c.insert(ends, late)
		a, b := c.one(), c.one()
		c.pass(time.Second)
		c.unclaim(2, heldOf(b), heldOf(a))
		c.order(storage.Claim{Queues: []string{"late"}})
		d := c.due()
		if got := ids(d.Expired); !slices.Equal(got, []string{late.ID}) {
			c.failf("expired %v, not %v", short(got), short([]string{late.ID}))
		}
		if !d.Next.Equal(ends.ExpiresAt) {
			c.failf("Next is %v, not the deadline %v", d.Next, ends.ExpiresAt)
		}
	}},
	{"unclaim-5", "Unclaim/Told", "storage.Notifier", "Others are told of the jobs that are given back.", needsSettleClaims | needsNotices, func(c *C) {
		c.insert(c.job())
		r := c.one()
		e := c.listen("other")
		c.unclaim(1, heldOf(r))
		e.hears("a job was given back", available)
		e.stop()
	}},
	{"unclaim-6", "Unclaim/Race", "package storage, Fencing", "Of a claim's outcome and its undoing, one wins.", needsSettleClaims, func(c *C) {
		s := c.settleClaimer()
		for round := range rounds {
			name := fmt.Sprint("one-", round)
			c.insert(c.job(queue(name)))
			r := c.claimOf(storage.Claim{Queues: []string{name}, Max: 1})[0]
			var undone, settled bool
			race(2, func(i int) {
				if (i+round)%2 == 0 { // the one that is started last tends to be first
					n, err := s.Unclaim(c.ctx, c.now, []storage.Held{heldOf(r)})
					if undone = n == 1; err != nil {
						c.errorf("Unclaim failed: %v", err)
					}
					return
				}
				to := as(r.Copy(), c.to(ojs.StateCompleted))
				out, _, err := s.SettleAndClaim(c.ctx, c.now, []*storage.Record{&to}, nil,
					storage.Claim{}, nil)
				settled = err == nil && out[0].Err == nil
			})
			if undone == settled {
				c.failf("undone: %v, settled: %v", undone, settled)
			}
			if got := c.get(r.ID); got.State.Terminal() != settled {
				c.failf("settled: %v, and the job is %s", settled, got.State)
			}
		}
	}},
	{"unclaim-7", "Unclaim/Durable", "SettleClaimer.Unclaim", "A job that was given back is in its place after the storage was opened again, and so is one that is given back then.", needsSettleClaims | needsReopen, func(c *C) {
		got := c.insert(c.job(), c.job(), c.job())
		before, _ := c.one(), c.one()
		_, recs := c.step(storage.Claim{}, 1)
		c.unclaim(1, heldOf(before))
		want := c.get(before.ID)
		c.reopen()
		c.same("the job that was given back", c.get(before.ID), want)
		c.unclaim(1, heldOf(c.get(got[1])))
		c.unclaim(len(recs), heldOf(recs[0]))
		c.order(storage.Claim{}, got...)
	}},
}
