package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// completing is the change that completes a job, followed by new jobs.
func (c *C) completing(r storage.Record, then ...storage.Insert) storage.Change {
	c.to(ojs.StateCompleted)(&r)
	r.LeaseUntil = time.Time{}
	return storage.Change{Record: r, AttemptFieldsOnly: true, Then: then}
}

// inserts are new jobs without options.
func inserts(recs ...storage.Record) (list []storage.Insert) {
	for _, r := range recs {
		list = append(list, storage.Insert{Record: r})
	}
	return list
}

// change settles changes in one call and wants a result for each.
func (c *C) change(changes ...storage.Change) []storage.Settled {
	c.tb.Helper()
	out, err := c.S.Settle(c.ctx, c.now, changes, nil)
	c.noErr("Settle", err)
	if len(out) != len(changes) {
		c.failf("Settle of %d changes returned %d results", len(changes), len(out))
	}
	return out
}

// followed wants a change with a Then to be applied and returns the results of its Then.
func (c *C) followed(ch storage.Change) []storage.Inserted {
	c.tb.Helper()
	s := c.change(ch)[0]
	if s.Err != nil || s.Version != ch.Record.Version+1 || len(s.Then) != len(ch.Then) {
		c.failf("Settle with %d jobs to follow returned %+v", len(ch.Then), s)
	}
	return s.Then
}

// absent wants jobs not to be stored.
func (c *C) absent(why string, list ...storage.Insert) {
	c.tb.Helper()
	for _, in := range list {
		if _, err := c.S.Get(c.ctx, in.Record.ID); !errors.Is(err, ojs.ErrNotFound) {
			c.failf("%s, and %v is there: %v", why, short([]string{in.Record.ID}), err)
		}
	}
}

// nothingMoved wants a refused change with a Then to have changed nothing.
func (c *C) nothingMoved(what string, before storage.Record, s storage.Settled) {
	c.tb.Helper()
	if s.Then != nil || s.Version != before.Version {
		c.failf("%s: the result is %+v, and the stored version %d", what, s, before.Version)
	}
	c.same(what+": the job", c.get(before.ID), before)
}

var thenCases = []Case{
	{"then-1", "Then/Stored", "Change.Then", "What follows a change is stored with it, in order, as Insert stores it, and every call finds it.", needsNothing, func(c *C) {
		c.insert(c.job())
		r := c.one()
		c.pass(time.Second)
		a, b, last := c.job(), c.job(priority(1)), c.job(queue("other"))
		later, waits := c.job(scheduled(time.Minute)), c.job(pending)
		out := c.followed(c.completing(r, inserts(a, later, b, waits, last)...))
		if done := c.wantState(r.ID, ojs.StateCompleted); done.Version != r.Version+1 {
			c.failf("the job that was completed at version %d has version %d", r.Version, done.Version)
		}
		for i, want := range []storage.Record{a, later, b, waits, last} {
			if want.Version = out[i].Version; want.Version == 0 {
				c.failf("job %d that follows was not stored: %+v", i+1, out[i])
			}
			c.same(fmt.Sprintf("job %d that follows", i+1), c.get(want.ID), want)
		}
		want := []string{r.ID, a.ID, later.ID, b.ID, waits.ID, last.ID}
		if got := c.list(storage.Query{}); !slices.Equal(got, want) {
			c.failf("listed %v, not %v", short(got), short(want))
		}
		c.order(storage.Claim{}, b.ID, a.ID, last.ID)
		c.pass(time.Minute)
		if d := c.due(); !slices.Equal(ids(d.Promoted), []string{later.ID}) {
			c.failf("due are %v", short(ids(d.Promoted)))
		}
	}},
	{"then-2", "Then/Refused", "Change.Then", "A change that is refused stores nothing of what follows it, and one that is made twice stores it once.", needsNothing, func(c *C) {
		c.insert(c.job(), c.job(), c.job())
		first, moved, gone := c.one(), c.one(), c.job()
		gone.Version = 1
		c.settled(moved, c.to(ojs.StateRetryable))
		waiting := c.get(c.insert(c.job(pending))[0])
		fenced, unknown, illegal := inserts(c.job()), inserts(c.job()), inserts(c.job())
		ch := c.completing(first, inserts(c.job(), c.job())...)
		again := c.completing(first, inserts(c.job())...)
		bad := c.completing(waiting, illegal...)
		out := c.change(c.completing(moved, fenced...), c.completing(gone, unknown...), bad, ch, again, ch)
		for i, want := range []error{
			storage.ErrFenced, ojs.ErrNotFound, ojs.ErrTransition, nil, storage.ErrFenced, storage.ErrFenced,
		} {
			if !errors.Is(out[i].Err, want) || want != nil && out[i].Then != nil {
				c.failf("change %d: %+v, not %v", i+1, out[i], want)
			}
		}
		c.absent("the change was refused as stale", fenced...)
		c.absent("the job is not there", unknown...)
		c.absent("there is no such transition", illegal...)
		c.absent("the job has been completed before", again.Then...)
		s := c.change(ch)[0]
		if !errors.Is(s.Err, storage.ErrFenced) || s.Version != first.Version+1 || s.Then != nil {
			c.failf("the change that was made before: %+v", s)
		}
		for _, in := range ch.Then {
			c.wantState(in.Record.ID, ojs.StateAvailable)
		}
		if n := len(c.list(storage.Query{})); n != 6 {
			c.failf("%d jobs are stored, not 6", n)
		}
	}},
	{"then-3", "Then/JustAfter", "Change.Then", "What follows is stored by the rules of Insert just after the change: the job has ended for them.", needsNothing, func(c *C) {
		// Equal jobs: the one that ends is in the way only if ended ones are.
		equal := func(p ojs.UniquePolicy) storage.Record { return c.job(unique("f", p)) }
		c.insert(equal(ojs.UniquePolicy{}))
		r := c.one()
		next := equal(ojs.UniquePolicy{})
		out := c.followed(c.completing(r, inserts(next)...))
		if out[0].Version == 0 || out[0].Existing != nil {
			c.failf("a job equal to the one that ends was not stored: %+v", out[0])
		}
		r = c.one()
		counts := ojs.UniquePolicy{OnConflict: ojs.ConflictIgnore, States: []ojs.State{ojs.StateCompleted}}
		c.pass(time.Second)
		ignored := equal(counts)
		done := c.completing(r, inserts(ignored)...)
		out = c.followed(done)
		done.Record.Version++
		if out[0].Version != 0 || out[0].Existing == nil {
			c.failf("a job for which completed ones count was stored: %+v", out[0])
		}
		c.same("the job in its way", *out[0].Existing, done.Record)
		c.absent("an equal job has completed", inserts(ignored)...)

		// Replaced jobs: the one that ends is none of them.
		c.insert(c.job(unique("g", ojs.UniquePolicy{}), queue("g")))
		r = c.claimOf(storage.Claim{Queues: []string{"g"}, Max: 1})[0]
		old := c.insert(c.job(func(r *storage.Record) { r.Fingerprint = "g" }))[0]
		replaces := unique("g", ojs.UniquePolicy{OnConflict: ojs.ConflictReplace})
		out = c.followed(c.completing(r, inserts(c.job(queue("g"), replaces))...))
		if !slices.Equal(ids(out[0].Replaced), []string{old}) {
			c.failf("%v were replaced, not %v", short(ids(out[0].Replaced)), short([]string{old}))
		}
		c.same("the replaced job", c.get(old), out[0].Replaced[0])
		c.wantState(r.ID, ojs.StateCompleted)
		c.claim(9)

		// The job that ends is in the way of its equals, as completed and at its age.
		blind := func(q, fp string) storage.Record {
			return c.job(queue(q), func(r *storage.Record) { r.Fingerprint = fp })
		}
		c.insert(blind("h", "else"), blind("open", "h"))
		r = c.claimOf(storage.Claim{Queues: []string{"h"}, Max: 1})[0]
		if out := c.followed(c.completing(r, inserts(c.job(unique("h", counts)))...)); out[0].Version == 0 {
			c.failf("a job was not stored beside the unequal one that ends: %+v", out[0])
		}
		c.insert(blind("i", "i"))
		r = c.claimOf(storage.Claim{Queues: []string{"i"}, Max: 1})[0]
		except := ojs.UniquePolicy{OnConflict: ojs.ConflictReplaceExceptSchedule,
			States: []ojs.State{ojs.StateScheduled, ojs.StateCompleted}}
		if out := c.followed(c.completing(r, inserts(c.job(unique("i", except)))...)); out[0].Version == 0 {
			c.failf("a job was not stored, and the one that ends is not scheduled: %+v", out[0])
		}
		c.insert(blind("j", "j"))
		r = c.claimOf(storage.Claim{Queues: []string{"j"}, Max: 1})[0]
		c.pass(time.Second)
		newer := c.insert(blind("j", "j"))[0]
		counts.States = []ojs.State{ojs.StateAvailable, ojs.StateCompleted}
		out = c.followed(c.completing(r, inserts(c.job(unique("j", counts)))...))
		if out[0].Existing == nil || out[0].Existing.ID != newer {
			c.failf("the newest equal job is %v: %+v", short([]string{newer}), out[0])
		}

		// So is an older one in the state that the job has left.
		older := c.insert(blind("k", "k"))[0]
		c.pass(time.Second)
		c.insert(blind("k", "k"))
		r = c.claimOf(storage.Claim{Queues: []string{"k"}, Max: 2})[1]
		counts.States = []ojs.State{ojs.StateActive}
		out = c.followed(c.completing(r, inserts(c.job(unique("k", counts)))...))
		if out[0].Existing == nil || out[0].Existing.ID != older {
			c.failf("%v is active and in the way: %+v", short([]string{older}), out[0])
		}

		// A bounded queue: the place of the one that ends is free.
		c.insert(c.job(queue("b")), c.job(queue("b")))
		r = c.claimOf(storage.Claim{Queues: []string{"b"}, Max: 1})[0]
		fits := storage.Insert{Record: c.job(queue("b")), MaxDepth: 2}
		if out := c.followed(c.completing(r, fits)); out[0].Depth != 2 {
			c.failf("the queue has %d jobs, not 2", out[0].Depth)
		}
		r = c.claimOf(storage.Claim{Queues: []string{"b"}, Max: 1})[0]
		drops := []storage.Insert{
			{Record: c.job(queue("b")), MaxDepth: 2, DropOldest: true},
			{Record: c.job(queue("b")), MaxDepth: 2, DropOldest: true},
		}
		out = c.followed(c.completing(r, drops...))
		oldest := []string{fits.Record.ID}
		if got := slices.Concat(ids(out[0].Dropped), ids(out[1].Dropped)); !slices.Equal(got, oldest) {
			c.failf("%v were dropped, not %v", short(got), short(oldest))
		}
		c.wantState(fits.Record.ID, ojs.StateDiscarded)
		// It ended first.
		p := storage.Prune{Now: c.now.Add(time.Hour), Before: c.now.Add(time.Hour), Max: 100}
		pruned, err := c.S.Prune(c.ctx, p)
		c.noErr("Prune", err)
		if n := len(pruned.IDs); n < 2 || pruned.IDs[n-2] != r.ID || pruned.IDs[n-1] != fits.Record.ID {
			last := []string{r.ID, fits.Record.ID}
			c.failf("pruned %v, the last of which should be %v", short(pruned.IDs), short(last))
		}
	}},
	{"then-4", "Then/AllOrNothing", "Change.Then", "If Insert refuses what follows, the change is refused with its error: the job stays as it is, and the other changes of the call are made.", needsNothing, func(c *C) {
		same := c.insert(c.job(queue("full")), c.job(unique("f", ojs.UniquePolicy{}), queue("equal")))[1]
		there := c.get(c.insert(c.job(queue("there")))[0])
		c.insert(c.job(), c.job(), c.job())
		r, before, after := c.one(), c.one(), c.one()
		for r.Queue != "q" || before.Queue != "q" || after.Queue != "q" {
			r, before, after = before, after, c.one()
		}
		own, begun := c.job(), c.job()
		own.ID, begun.State = r.ID, ojs.StateActive
		twice, used, equal := c.job(), there, c.job(unique("f", ojs.UniquePolicy{}))
		used.Version = 0
		tooMany := func() storage.Insert { return storage.Insert{Record: c.job(queue("full")), MaxDepth: 1} }
		for what, then := range map[string]struct {
			list  []storage.Insert
			err   error
			state ojs.State // of the duplicate
		}{
			"a full queue":       {append(inserts(c.job()), tooMany()), ojs.ErrQueueFull, ""},
			"an id that is used": {inserts(c.job(), used), ojs.ErrDuplicate, c.get(there.ID).State},
			"the job's own id":   {inserts(c.job(), own), ojs.ErrDuplicate, ojs.StateCompleted},
			"an id twice":        {inserts(twice, twice), ojs.ErrDuplicate, ojs.StateAvailable},
			"an equal job":       {inserts(c.job(), equal), ojs.ErrDuplicate, c.get(same).State},
			"a state":            {inserts(c.job(), begun), ojs.ErrInvalid, ""},
		} {
			s := c.change(c.completing(r, then.list...))[0]
			if !errors.Is(s.Err, then.err) {
				c.failf("%s: %+v, not %v", what, s, then.err)
			}
			var dup *ojs.DuplicateError
			if errors.As(s.Err, &dup) && dup.State != then.state {
				c.failf("%s: the duplicate is %q, not %q", what, dup.State, then.state)
			}
			c.nothingMoved(what, r, s)
			c.absent(what, then.list[0])
		}
		if n := len(c.list(storage.Query{})); n != 6 {
			c.failf("%d jobs are stored, not 6", n)
		}
		out := c.change(c.completing(before, inserts(c.job())...),
			c.completing(r, tooMany()), c.completing(after, inserts(c.job())...))
		if out[0].Err != nil || !errors.Is(out[1].Err, ojs.ErrQueueFull) || out[2].Err != nil {
			c.failf("the results are %+v", out)
		}
		c.pass(time.Second)
		lost, err := c.S.Extend(c.ctx, c.now, []storage.Extension{{Held: heldOf(r)}})
		if c.noErr("Extend", err); len(lost) > 0 {
			c.failf("the claim of the job that stays is lost")
		}
		c.followed(c.completing(c.get(r.ID), inserts(c.job())...))
	}},
	{"then-5", "Then/OnlyEnds", "Change.Then",
		"A change that may have no Then fails the call, and nothing is changed.", needsNothing, func(c *C) {
			c.insert(c.job(), c.job())
			first, r := c.one(), c.one()
			then := inserts(c.job())
			retry, whole := c.completing(r, then...), c.completing(r, then...)
			c.to(ojs.StateRetryable)(&retry.Record)
			whole.AttemptFieldsOnly = false
			for _, ch := range []storage.Change{retry, whole} {
				other := c.completing(first, inserts(c.job())...)
				_, err := c.S.Settle(c.ctx, c.now, []storage.Change{other, ch}, nil)
				c.wantErr("Settle", err, ojs.ErrInvalid)
				c.same("the job", c.get(r.ID), r)
				c.same("the job before it", c.get(first.ID), first)
				c.absent("the call has failed", then...)
				c.absent("the call has failed", other.Then...)
			}
		}},
	{"then-6", "Then/InOrder", "Change.Then",
		"Each change meets what the changes before it have stored.", needsNothing, func(c *C) {
			c.insert(c.job(), c.job(func(r *storage.Record) { r.Fingerprint = "f" }), c.job())
			a, b, last := c.one(), c.one(), c.one()
			replaces := c.job(unique("f", ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}))
			never, ignored := c.job(), c.job(unique("f", ojs.UniquePolicy{OnConflict: ojs.ConflictIgnore}))
			out := c.change(c.completing(a, inserts(replaces)...), c.completing(b, inserts(never)...),
				c.completing(last, inserts(ignored)...))
			first := out[0].Then
			if out[0].Err != nil || len(first[0].Replaced) != 1 || first[0].Replaced[0].ID != b.ID {
				c.failf("the first change: %+v", out[0])
			}
			if !errors.Is(out[1].Err, storage.ErrFenced) || out[1].Version != b.Version+1 {
				c.failf("the change of the job that was replaced: %+v", out[1])
			}
			third := out[2].Then
			if out[2].Err != nil || third[0].Existing == nil || third[0].Existing.ID != replaces.ID {
				c.failf("the last change: %+v", out[2])
			}
			c.absent("its change was refused", inserts(never)...)
			c.wantState(b.ID, ojs.StateCancelled)
			c.wantState(replaces.ID, ojs.StateAvailable)
		}},
	{"then-7", "Then/Fields", "Change.Then", "Every field of a job that follows a change is what it was given, and the results share no memory.", needsNothing, func(c *C) {
		f := c.filler()
		for range 10 {
			f.insert(c.job(queue("fields")))
			r := c.claimOf(storage.Claim{Queues: []string{"fields"}, Max: 1})[0]
			want := f.record(f.seed%2 == 0, ojs.StateAvailable)
			out := f.followed(c.completing(r, inserts(want)...))
			want.Version = out[0].Version
			differs(f, "a job that follows", f.get(want.ID), want)
		}
	}},
	{"then-8", "Then/OneWins", "Change.Then", "Of concurrent changes of one job one is applied, and what follows it is stored, alone.", needsNothing, func(c *C) {
		for range rounds {
			c.insert(c.job())
			r := c.one()
			changes := make([]storage.Change, 4)
			for i := range changes {
				changes[i] = c.completing(r, inserts(c.job(queue("race")), c.job(queue("race")))...)
			}
			won, wins := make([]bool, len(changes)), atomic.Int32{}
			race(len(changes), func(i int) {
				out, err := c.S.Settle(c.ctx, c.now, changes[i:i+1:i+1], nil)
				if err == nil && len(out) == 1 && out[0].Err == nil {
					won[i] = true
					wins.Add(1)
				}
			})
			if n := wins.Load(); n != 1 {
				c.failf("%d of %d changes were applied", n, len(changes))
			}
			for i := range changes {
				if !won[i] {
					c.absent("another change was applied", changes[i].Then...)
					continue
				}
				for _, in := range changes[i].Then {
					c.wantState(in.Record.ID, ojs.StateAvailable)
				}
			}
		}
	}},
	{"then-9", "Then/Reopened", "Capabilities.Durable",
		"A change and what follows it outlive the storage together.", needsReopen, func(c *C) {
			c.insert(c.job(), c.job())
			r, refused := c.one(), c.one()
			follows, never := c.job(), c.job()
			out := c.followed(c.completing(r, inserts(follows)...))
			c.change(c.completing(refused, storage.Insert{Record: never}, storage.Insert{Record: follows}))
			c.reopen()
			c.wantState(r.ID, ojs.StateCompleted)
			follows.Version = out[0].Version
			c.same("the job that follows", c.get(follows.ID), follows)
			c.same("the job whose change was refused", c.get(refused.ID), refused)
			c.absent("its change was refused", inserts(never)...)
			c.order(storage.Claim{}, follows.ID)
		}},
	{"then-10", "Then/Notices", "storage.Notifier",
		"Others are told of what follows a change.", needsNotices, func(c *C) {
			c.insert(c.job(), c.job())
			r, other := c.one(), c.one()
			e := c.listen("other")
			c.followed(c.completing(r, inserts(c.job())...))
			e.hears("a job is available", available)
			e.hears("the job has ended", ended(r.ID))
			later := c.job(scheduled(time.Minute))
			c.followed(c.completing(other, inserts(later)...))
			at := c.get(later.ID).ScheduledAt
			e.hears("a job comes due", func(n storage.Notice) bool { return n.Due.Equal(at) })
			e.stop()
		}},
}
