package storagetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// admit inserts a job and wants it stored.
func (c *C) admit(r storage.Record) storage.Inserted {
	c.tb.Helper()
	out, err := c.insertBatch(r)
	c.noErr("Insert", err)
	if out[0].Existing != nil || out[0].Version == 0 {
		c.failf("the job was not stored: %+v", out[0])
	}
	return out[0]
}

// refuse inserts a job and wants it refused because of another one.
func (c *C) refuse(r storage.Record, because string) {
	c.tb.Helper()
	_, err := c.insertBatch(r)
	var dup *ojs.DuplicateError
	if !errors.As(err, &dup) || dup.ID != because || dup.Fingerprint != r.Fingerprint {
		c.failf("Insert returned %v, not the duplicate of %v", err, short([]string{because}))
	}
	if _, err := c.S.Get(c.ctx, r.ID); !errors.Is(err, ojs.ErrNotFound) {
		c.failf("the refused job is there")
	}
}

var uniqueCases = []Case{
	{"unique-13", "Unique/KeepActive", "OJS unique jobs, section 5.2", "With KeepActive the newest active job refuses what would replace it, and the batch with it; without, it is replaced.", needsNothing, func(c *C) {
		for _, conflict := range []ojs.Conflict{ojs.ConflictReplace, ojs.ConflictReplaceExceptSchedule} {
			fp := string(conflict)
			equal := func(change ...func(*storage.Record)) storage.Record {
				return c.job(append(change, unique(fp, ojs.UniquePolicy{OnConflict: conflict}))...)
			}
			blind := func(r *storage.Record) { r.Fingerprint = fp }
			var active []string
			for range 2 {
				r := c.job(blind, queue(fp))
				c.insert(r)
				c.claimOf(storage.Claim{Queues: []string{fp}, Max: 1})
				c.pass(time.Second)
				active = append(active, r.ID)
			}
			waiting := c.insert(c.job(blind), c.job(blind, scheduled(time.Hour)))
			other, r := c.job(), equal()
			_, err := c.S.Insert(c.ctx, c.now,
				[]storage.Insert{{Record: other}, {Record: r, KeepActive: true}}, nil)
			var dup *ojs.DuplicateError
			if !errors.As(err, &dup) || dup.ID != active[1] || dup.State != ojs.StateActive ||
				dup.Fingerprint != fp {
				c.failf("%s: Insert returned %v, not the duplicate of %v", conflict, err, short(active[1:]))
			}
			for _, id := range []string{other.ID, r.ID} {
				_, err := c.S.Get(c.ctx, id)
				c.wantErr("Get of a job of the refused batch", err, ojs.ErrNotFound)
			}
			c.wantState(waiting[0], ojs.StateAvailable)
			c.wantState(waiting[1], ojs.StateScheduled)
			out, err := c.S.Insert(c.ctx, c.now, []storage.Insert{{Record: equal()}}, nil)
			c.noErr("Insert", err)
			if got := ids(out[0].Replaced); !slices.Contains(got, active[0]) ||
				!slices.Contains(got, active[1]) {
				c.failf("%s: replaced %v", conflict, short(got))
			}
		}
	}},
	{"unique-1", "Unique/Reject", "OJS unique jobs, section 5.1", "A second job with the fingerprint is refused, and the error names the first.", needsNothing, func(c *C) {
		first := c.job(unique("f", ojs.UniquePolicy{}))
		c.admit(first)
		c.refuse(c.job(unique("f", ojs.UniquePolicy{})), first.ID)
		c.admit(c.job(unique("g", ojs.UniquePolicy{})))
	}},
	{"unique-2", "Unique/Ignore", "OJS unique jobs, section 5.4", "With ignore the second job is not stored, and the call returns the first.", needsNothing, func(c *C) {
		p := ojs.UniquePolicy{OnConflict: ojs.ConflictIgnore}
		first := c.job(unique("f", p))
		c.admit(first)
		out, err := c.insertBatch(c.job(unique("f", p)))
		c.noErr("Insert", err)
		if out[0].Existing == nil || out[0].Version != 0 {
			c.failf("Insert returned %+v", out[0])
		}
		c.same("Existing", *out[0].Existing, c.get(first.ID))
		if n := len(c.list(storage.Query{})); n != 1 {
			c.failf("%d jobs are stored", n)
		}
	}},
	{"unique-3", "Unique/Replace", "OJS unique jobs, section 5.2", "With replace every equal job that has not ended is cancelled, an active one too, and the new one stored.", needsNothing, func(c *C) {
		if c.S.Capabilities().Unique != storage.Strong {
			return // it may refuse to replace what runs
		}
		none := ojs.UniquePolicy{States: []ojs.State{ojs.StateDiscarded}}
		olds := []storage.Record{c.job(unique("f", none)),
			c.job(unique("f", none), scheduled(time.Hour)), c.job(unique("f", none), pending)}
		for _, r := range olds {
			c.admit(r)
		}
		running := c.one()
		r := c.job(unique("f", ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}))
		out := c.admit(r)
		if len(out.Replaced) != len(olds) {
			c.failf("replaced %v", short(ids(out.Replaced)))
		}
		for _, old := range out.Replaced {
			got := c.wantState(old.ID, ojs.StateCancelled)
			c.same("what Insert returned of a replaced job", old, got)
			if got.FinishedAt.IsZero() {
				c.failf("a replaced job has no time of its end")
			}
		}
		if s := c.settle(running, c.to(ojs.StateCompleted)); !errors.Is(s.Err, storage.ErrFenced) {
			c.failf("the late result of a replaced job: %v", s.Err)
		}
		c.order(storage.Claim{}, r.ID)
	}},
	{"unique-4", "Unique/ReplaceLeavesTheEnded", "reading 32", "replace leaves an equal job alone that has ended.", needsNothing, func(c *C) {
		p := ojs.UniquePolicy{OnConflict: ojs.ConflictReplace, States: ojs.AllStates()}
		first := c.job(unique("f", p))
		c.admit(first)
		was := c.settled(c.one(), c.to(ojs.StateCompleted))
		if out := c.admit(c.job(unique("f", p))); len(out.Replaced) != 0 {
			c.failf("replaced %v", short(ids(out.Replaced)))
		}
		c.same("the job that has ended", c.get(first.ID), was)
	}},
	{"unique-17", "Unique/ReplaceOnlyThoseInTheWay", "Storage.Insert", "An equal job that is not in the way, by its state or by its time, is not replaced, be it stored or of the batch.", needsNothing, func(c *C) {
		none := ojs.UniquePolicy{States: []ojs.State{ojs.StateDiscarded}}
		for _, conflict := range []ojs.Conflict{ojs.ConflictReplace, ojs.ConflictReplaceExceptSchedule} {
			old := func(r *storage.Record) { r.CreatedAt = r.CreatedAt.Add(-2 * time.Hour) }
			p := ojs.UniquePolicy{OnConflict: conflict, Period: time.Hour,
				States: []ojs.State{ojs.StateAvailable}}
			equal := func(f string, change ...func(*storage.Record)) storage.Record {
				return c.job(append(change, unique(f, none))...)
			}
			for _, stored := range []bool{true, false} {
				f := fmt.Sprint(conflict, stored)
				recs := []storage.Record{equal(f, pending), equal(f, old), equal(f)}
				batch := append(slices.Clone(recs), c.job(unique(f, p)))
				if stored {
					c.insert(recs...)
					batch = batch[3:]
				}
				out, err := c.insertBatch(batch...)
				c.noErr("Insert", err)
				if got := ids(out[len(out)-1].Replaced); !slices.Equal(got, []string{recs[2].ID}) {
					c.failf("%s replaced %v, not %v", conflict, short(got), short([]string{recs[2].ID}))
				}
				c.wantState(recs[0].ID, ojs.StatePending)
				c.wantState(recs[1].ID, ojs.StateAvailable)
			}
		}
	}},
	{"unique-5", "Unique/ReplaceExceptSchedule", "OJS unique jobs, section 5.3", "With replace_except_schedule a scheduled equal job takes over the args and meta, and nothing else.", needsNothing, func(c *C) {
		p := ojs.UniquePolicy{OnConflict: ojs.ConflictReplaceExceptSchedule}
		first := c.job(unique("f", p), scheduled(time.Hour), priority(3))
		c.admit(first)
		was := c.get(first.ID)
		c.pass(time.Minute)
		second := c.job(unique("f", p), scheduled(2*time.Hour),
			func(r *storage.Record) { r.Meta = map[string]any{"new": true} })
		second.Args, _ = ojs.NewArgs("new")
		out, err := c.insertBatch(second)
		c.noErr("Insert", err)
		if out[0].Existing == nil || !out[0].Updated || out[0].Version != 0 || len(out[0].Replaced) != 0 {
			c.failf("Insert returned %+v", out[0])
		}
		want := was
		want.Args, want.Meta, want.Version = second.Args, second.Meta, was.Version+1
		got := c.get(first.ID)
		c.same("the scheduled job", got, want)
		c.same("Existing", *out[0].Existing, got)

		step := c.job(unique("g", p), scheduled(time.Hour), func(r *storage.Record) {
			r.Meta = map[string]any{"workflow_id": "w", "step_id": "s", "old": true}
		})
		c.admit(step)
		_, err = c.insertBatch(c.job(unique("g", p), func(r *storage.Record) {
			r.Meta = map[string]any{"new": true}
		}))
		c.noErr("Insert", err)
		kept := map[string]any{"workflow_id": "w", "step_id": "s", "new": true}
		if got := c.get(step.ID).Meta; !reflect.DeepEqual(got, kept) {
			c.failf("the meta of a step is %v, not %v", got, kept)
		}
	}},
	{"unique-6", "Unique/ReplaceExceptScheduleOtherwise", "OJS unique jobs, section 5.3", "In any other state than scheduled, replace_except_schedule is replace.", needsNothing, func(c *C) {
		p := ojs.UniquePolicy{OnConflict: ojs.ConflictReplaceExceptSchedule}
		first := c.job(unique("f", p))
		c.admit(first)
		c.admit(c.job(unique("f", p), scheduled(time.Hour)))
		c.wantState(first.ID, ojs.StateCancelled)

		// A job that the same batch has cancelled is not scheduled either.
		all := ojs.UniquePolicy{OnConflict: ojs.ConflictReplaceExceptSchedule, States: ojs.AllStates()}
		c.admit(c.job(unique("g", p)))
		second := c.job(unique("g", ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}))
		last := c.job(unique("g", all))
		out, err := c.insertBatch(second, last)
		c.noErr("Insert", err)
		if out[1].Existing != nil || !slices.Equal(ids(out[1].Replaced), []string{second.ID}) {
			c.failf("Insert returned %+v", out[1])
		}
		c.wantState(last.ID, ojs.StateAvailable)
	}},
	{"unique-18", "Unique/Debounce", "Storage.Insert",
		"With ojs:debounce a scheduled equal job takes over args, meta and time, at most MaxWait after its creation.",
		needsNothing, caseDebounce},
	{"unique-19", "Unique/DebounceOtherwise", "Storage.Insert",
		"If the record or the equal job is not scheduled, ojs:debounce is replace.",
		needsNothing, func(c *C) {
			p := ojs.UniquePolicy{OnConflict: ojs.ConflictDebounce}
			first, third := c.job(unique("f", p)), c.job(unique("f", p))
			second := c.job(unique("f", p), scheduled(time.Hour))
			for _, r := range []storage.Record{first, second, third} {
				c.admit(r)
			}
			c.wantState(first.ID, ojs.StateCancelled)
			c.wantState(second.ID, ojs.StateCancelled)
			c.wantState(third.ID, ojs.StateAvailable)
		}},
	{"unique-7", "Unique/States", "OJS unique jobs, section 6", "A job is in the way in the states that the new one's policy names, by default those in which it has not ended.", needsNothing, func(c *C) {
		for _, state := range ojs.AllStates() {
			f := "not-in-" + string(state)
			c.reachUnique(state, f)
			c.admit(c.job(unique(f, ojs.UniquePolicy{States: without(state)}), queue("away")))
		}
		for _, state := range ojs.AllStates() {
			f := "in-" + string(state)
			r := c.reachUnique(state, f)
			c.refuse(c.job(unique(f, ojs.UniquePolicy{States: []ojs.State{state}})), r.ID)
			if state.Terminal() {
				c.admit(c.job(unique(f, ojs.UniquePolicy{}), queue("away")))
			} else {
				c.refuse(c.job(unique(f, ojs.UniquePolicy{})), r.ID)
			}
		}
	}},
	{"unique-8", "Unique/Period", "OJS unique jobs, section 7", "A job is in the way until the period from its creation is over, and a refused attempt does not move that.", needsNothing, func(c *C) {
		p := ojs.UniquePolicy{Period: time.Hour, States: ojs.AllStates()}
		first := c.job(unique("f", p))
		c.admit(first)
		c.pass(time.Hour - c.tick())
		c.refuse(c.job(unique("f", p)), first.ID)
		c.pass(c.tick())
		c.admit(c.job(unique("f", p)))
	}},
	{"unique-9", "Unique/Newest", "reading 30", "Of several equal jobs the newest is named.", needsNothing, func(c *C) {
		none := ojs.UniquePolicy{States: []ojs.State{ojs.StateDiscarded}}
		var last string
		for range 3 {
			r := c.job(unique("f", none))
			c.admit(r)
			last = r.ID
			c.pass(time.Second)
		}
		c.refuse(c.job(unique("f", ojs.UniquePolicy{})), last)
		older := func(r *storage.Record) { r.CreatedAt = r.CreatedAt.Add(-time.Hour) }
		same := c.insert(c.job(unique("f", none)), c.job(unique("f", none)), c.job(unique("f", none), older))
		c.refuse(c.job(unique("f", ojs.UniquePolicy{})), same[1])
		ignore := ojs.UniquePolicy{OnConflict: ojs.ConflictIgnore}
		out := c.insertOne(storage.Insert{Record: c.job(unique("f", ignore))})
		if out.Existing == nil || out.Existing.ID != same[1] {
			c.failf("with ignore, the newest is not the one that Insert names")
		}
		all := ojs.UniquePolicy{States: ojs.AllStates()}
		blind := func(f string) func(*storage.Record) {
			return func(r *storage.Record) { r.Fingerprint = f }
		}
		for i, state := range ojs.AllStates() { // of ended jobs, too
			f := fmt.Sprint("f", i)
			c.reachUnique(state, f)
			c.pass(time.Second)
			for _, change := range []func(*storage.Record){scheduled(time.Hour), pending} {
				r := c.job(blind(f), change)
				c.insert(r)
				c.refuse(c.job(unique(f, all)), r.ID)
				c.pass(time.Second)
			}
			r := c.settled(c.get(c.insert(c.job(blind(f)))[0]), c.to(ojs.StateCancelled))
			c.refuse(c.job(unique(f, all)), r.ID)
		}
	}},
	{"unique-10", "Unique/WithinABatch", "reading 38", "Equal jobs of one batch are in each other's way.", needsNothing, func(c *C) {
		a, b := c.job(unique("f", ojs.UniquePolicy{}), pending), c.job(unique("f", ojs.UniquePolicy{}))
		_, err := c.insertBatch(a, b)
		var dup *ojs.DuplicateError
		if !errors.As(err, &dup) || dup.ID != a.ID || dup.State != a.State || dup.Fingerprint != "f" {
			c.failf("Insert of equal jobs returned %v, not a duplicate of the first, which is %s",
				err, a.State)
		}
		if n := len(c.list(storage.Query{})); n != 0 {
			c.failf("%d jobs of the refused batch are there", n)
		}
		p := ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}
		a, b = c.job(unique("f", p)), c.job(unique("f", p))
		last := c.job(unique("f", p))
		out, err := c.insertBatch(a, b, last)
		c.noErr("Insert", err)
		for i, want := range []string{a.ID, b.ID} { // each once
			if got := ids(out[i+1].Replaced); !slices.Equal(got, []string{want}) {
				c.failf("job %d of the batch replaced %v, not %v", i+2, short(got), short([]string{want}))
			}
			c.wantState(want, ojs.StateCancelled)
		}
		c.wantState(last.ID, ojs.StateAvailable)

		none := ojs.UniquePolicy{States: []ojs.State{ojs.StateDiscarded}}
		stored := c.job(unique("g", none))
		c.admit(stored)
		older := c.job(unique("g", none),
			func(r *storage.Record) { r.CreatedAt = r.CreatedAt.Add(-time.Minute) })
		out, err = c.insertBatch(older, c.job(unique("g", p)))
		c.noErr("Insert", err)
		if got := ids(out[1].Replaced); !slices.Equal(got, []string{older.ID, stored.ID}) {
			c.failf("replaced %v, and not the oldest first", short(got))
		}
	}},
	{"unique-11", "Unique/OnlyWithAPolicy", "reading 29", "Jobs without a fingerprint conflict with no job, and a record without a policy is not checked.", needsNothing, func(c *C) {
		c.admit(c.job())
		c.admit(c.job())
		first := c.job(unique("f", ojs.UniquePolicy{}))
		c.admit(first)
		c.admit(c.job(func(r *storage.Record) { r.Fingerprint = "f" }))
	}},
	{"unique-12", "Unique/NoOtherCheck", "OJS unique jobs, section 9.2", "Promotion and settling check no uniqueness.", needsNothing, func(c *C) {
		none := ojs.UniquePolicy{States: []ojs.State{ojs.StateDiscarded}}
		c.admit(c.job(unique("f", none), scheduled(time.Minute)))
		c.admit(c.job(unique("f", none)))
		c.pass(time.Minute)
		if d := c.due(); len(d.Promoted) != 1 {
			c.failf("Due promoted %v", short(ids(d.Promoted)))
		}
		c.settled(c.one(), c.to(ojs.StateRetryable))
		if n := len(c.claim(10)); n != 1 {
			c.failf("%d of the equal jobs can be claimed", n)
		}
	}},
}

func without(s ojs.State) (out []ojs.State) {
	for _, other := range ojs.AllStates() {
		if other != s {
			out = append(out, other)
		}
	}
	return out
}

// reachUnique is reach for a job with a fingerprint.
func (c *C) reachUnique(s ojs.State, fingerprint string) storage.Record {
	c.tb.Helper()
	r := c.job(queue("reach-"+fingerprint), unique(fingerprint, ojs.UniquePolicy{}))
	switch s {
	case ojs.StateScheduled:
		scheduled(time.Hour)(&r)
	case ojs.StatePending:
		pending(&r)
	}
	c.admit(r)
	if s == ojs.StateAvailable || s == ojs.StateScheduled || s == ojs.StatePending {
		return r
	}
	claimed := c.claimOf(storage.Claim{Queues: []string{r.Queue}, Max: 1})
	if len(claimed) != 1 {
		c.failf("Claim returned %d jobs, not 1", len(claimed))
	}
	if s == ojs.StateActive {
		return claimed[0]
	}
	return c.settled(claimed[0], c.to(s))
}

func caseDebounce(c *C) {
	for _, most := range []time.Duration{0, 90 * time.Second} {
		f := fmt.Sprint("debounced ", most)
		p := ojs.UniquePolicy{OnConflict: ojs.ConflictDebounce, MaxWait: most}
		first := c.job(unique(f, p), scheduled(time.Minute), priority(3))
		c.admit(first)
		want := c.get(first.ID)
		for _, step := range []time.Duration{20 * time.Second, 30 * time.Second, 35 * time.Second} {
			c.pass(step)
			next := c.job(unique(f, p), scheduled(time.Minute), func(r *storage.Record) {
				r.Meta = map[string]any{"step": step.String()}
				r.ExpiresAt = c.now.Add(time.Hour)
			})
			next.Args, _ = ojs.NewArgs(step.String())
			out, err := c.insertBatch(next)
			c.noErr("Insert", err)
			if o := out[0]; o.Existing == nil || !o.Updated || o.Version != 0 || len(o.Replaced) != 0 {
				c.failf("Insert returned %+v", out[0])
			}
			want.Args, want.Meta, want.Version = next.Args, next.Meta, want.Version+1
			want.ScheduledAt, want.ExpiresAt = next.ScheduledAt, next.ExpiresAt
			if last := want.CreatedAt.Add(most); most > 0 && last.Before(want.ScheduledAt) {
				want.ScheduledAt = last
			}
			got := c.get(first.ID)
			c.same("the scheduled job", got, want)
			c.same("Existing", *out[0].Existing, got)
			if d := c.due(); len(d.Promoted) > 0 || !d.Next.Equal(want.ScheduledAt) {
				c.failf("%v are due, the next at %v, not %v", short(ids(d.Promoted)), d.Next,
					want.ScheduledAt)
			}
		}
		c.pass(want.ScheduledAt.Sub(c.now))
		if d := c.due(); !slices.Equal(ids(d.Promoted), []string{first.ID}) {
			c.failf("promoted %v", short(ids(d.Promoted)))
		}
	}

	// A time may come nearer too, and jobs of a batch are treated alike.
	p := ojs.UniquePolicy{OnConflict: ojs.ConflictDebounce}
	first := c.job(unique("g", p), scheduled(time.Hour))
	_, err := c.insertBatch(first, c.job(unique("g", p), scheduled(2*time.Minute)))
	c.noErr("Insert", err)
	_, err = c.insertBatch(c.job(unique("g", p), scheduled(time.Minute)))
	c.noErr("Insert", err)
	if d := c.due(); !d.Next.Equal(c.now.Add(time.Minute)) {
		c.failf("the next is due at %v, not in a minute", d.Next)
	}

	// A job that takes over, and is replaced in the same batch, ends with all that it
	// took over, be it stored or of the batch.
	for _, stored := range []bool{true, false} {
		f := fmt.Sprint("replaced, stored: ", stored)
		first := c.job(unique(f, p), scheduled(time.Hour))
		next := c.job(unique(f, p), scheduled(time.Minute), func(r *storage.Record) {
			r.Meta, r.ExpiresAt = map[string]any{"new": true}, c.now.Add(time.Hour)
		})
		next.Args, _ = ojs.NewArgs("new")
		last := c.job(unique(f, ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}))
		batch := []storage.Record{first, next, last}
		if stored {
			c.admit(first)
			batch = batch[1:]
		}
		out, err := c.insertBatch(batch...)
		c.noErr("Insert", err)
		want := first
		want.Args, want.Meta = next.Args, next.Meta
		want.ScheduledAt, want.ExpiresAt = next.ScheduledAt, next.ExpiresAt
		got := c.get(first.ID)
		want.Cancel(c.now)
		want.Version = got.Version
		c.same("the job that took over and was replaced", got, want)
		c.same("the replaced job", out[len(out)-1].Replaced[0], got)
	}
}
