package storagetest

import (
	"errors"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

var insertCases = []Case{
	{"insert-1", "Insert/Stores", "Storage.Insert", "A job that was inserted is there as it was given, with the version that Insert returned.", needsNothing, func(c *C) {
		far := time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, r := range []storage.Record{c.job(), c.job(scheduled(time.Hour)), c.job(pending),
			c.job(queue("other"), priority(-5), expires(time.Hour), limited("k")),
			c.job(func(r *storage.Record) { r.EnqueuedAt = far }),
			c.job(func(r *storage.Record) { r.StartedAt = far })} {
			out, err := c.insertBatch(r)
			c.noErr("Insert", err)
			if len(out) != 1 || out[0].Version == 0 {
				c.failf("Insert returned %+v", out)
			}
			r.Version = out[0].Version
			c.same("the job", c.get(r.ID), r)
		}
	}},
	{"insert-2", "Insert/AllOrNothing", "Storage.Insert", "A batch one job of which cannot be stored is not stored at all.", needsNothing, func(c *C) {
		there := c.insert(c.job())[0]
		for _, bad := range []storage.Record{
			c.job(func(r *storage.Record) { r.ID = there }),
			c.job(c.to(ojs.StateActive)),
			c.job(unique("f", ojs.UniquePolicy{})),
		} {
			first, last := c.job(), c.job()
			if bad.Fingerprint != "" {
				c.insert(c.job(unique("f", ojs.UniquePolicy{})))
			}
			if _, err := c.insertBatch(first, bad, last); err == nil {
				c.failf("the batch was accepted")
			}
			for _, r := range []storage.Record{first, last} {
				if _, err := c.S.Get(c.ctx, r.ID); !errors.Is(err, ojs.ErrNotFound) {
					c.failf("a job of the refused batch is there: %v", err)
				}
			}
		}
		if n := len(c.claim(10)); n != 2 {
			c.failf("%d jobs can be claimed, not the 2 that were stored", n)
		}
	}},
	{"insert-3", "Insert/Order", "Storage.Insert", "The jobs of a batch are claimed in its order, and their results come in it.", needsNothing, func(c *C) {
		ignored := unique("f", ojs.UniquePolicy{OnConflict: ojs.ConflictIgnore})
		there := c.insert(c.job(ignored, queue("away")))[0]
		batch := []storage.Insert{{Record: c.job()}, {Record: c.job(ignored)}, {Record: c.job()},
			{Record: c.job(), MaxDepth: 9}}
		slices.Reverse(batch) // not the order of their ids
		out, err := c.S.Insert(c.ctx, c.now, batch, make([]storage.Inserted, 1))
		c.noErr("Insert", err)
		if len(out) != 5 || out[0].Version != 0 {
			c.failf("Insert of 4 jobs appended %d results to one", len(out)-1)
		}
		for i, in := range batch {
			got := out[i+1]
			if i == 2 {
				if got.Existing == nil || got.Existing.ID != there || got.Version != 0 {
					c.failf("result %d is not that of the job that is ignored", i)
				}
			} else if got.Existing != nil || got.Version == 0 || got.Depth != in.MaxDepth/3 {
				c.failf("result %d is not that of job %d: depth %d, version %d", i, i, got.Depth, got.Version)
			}
		}
		c.order(storage.Claim{Queues: []string{"q"}}, batch[0].Record.ID, batch[1].Record.ID,
			batch[3].Record.ID)
	}},
	{"insert-4", "Insert/DuplicateID", "Storage.Insert", "An id that is stored already, in any state, or occurs twice in a batch, is refused as a duplicate.", needsNothing, func(c *C) {
		for _, state := range ojs.AllStates() {
			r := c.reach(state)
			again := c.job(func(n *storage.Record) { n.ID = r.ID })
			_, err := c.insertBatch(again)
			var dup *ojs.DuplicateError
			if !errors.As(err, &dup) || dup.ID != r.ID || dup.State != state {
				c.failf("an id of a job that is %s: %v", state, err)
			}
			c.wantState(r.ID, state)
		}
		for _, states := range [][]func(*storage.Record){{pending, scheduled(time.Hour)},
			{scheduled(time.Hour), pending}} {
			first := c.job(states[0])
			second := first
			states[1](&second)
			_, err := c.insertBatch(c.job(), first, second)
			var dup *ojs.DuplicateError
			if !errors.As(err, &dup) || dup.ID != first.ID || dup.State != second.State {
				c.failf("an id twice in a batch, %s and then %s: %v", first.State, second.State, err)
			}
		}
	}},
	{"insert-5", "Insert/StatesToBeginIn", "OJS core, section 6", "A job begins available, scheduled or pending, and in no other state.", needsNothing, func(c *C) {
		for _, state := range append(ojs.AllStates(), "", "dead") {
			r := c.job(func(r *storage.Record) { r.State = state })
			_, err := c.insertBatch(r)
			if begins := state == ojs.StateAvailable || state == ojs.StateScheduled ||
				state == ojs.StatePending; begins != (err == nil) {
				c.failf("state %q: %v", state, err)
			} else if !begins {
				c.wantErr("Insert", err, ojs.ErrInvalid)
			}
		}
	}},
	{"insert-6", "Insert/Copies", "package storage, Copies", "What is stored shares no memory with what was given, nor with what is handed out.", needsNothing, func(c *C) {
		r := c.job(func(r *storage.Record) {
			r.Meta = map[string]any{"list": []any{"as given"}}
			r.Errors = []ojs.Failure{{Message: "as given"}}
			r.Retry.NonRetryableErrors = []string{"as given"}
		})
		spoil := func(r *storage.Record) {
			r.Meta["list"].([]any)[0] = "spoilt"
			r.Meta["more"] = true
			r.Errors[0].Message = "spoilt"
			r.Retry.NonRetryableErrors[0] = "spoilt"
		}
		want := r.Copy()
		c.insert(r)
		want.Version = c.get(r.ID).Version
		spoil(&r)
		for range 2 {
			got := c.get(r.ID)
			c.same("the job", got, want)
			spoil(&got)
		}
		claimed := c.one()
		spoil(&claimed)
		page, err := c.S.List(c.ctx, storage.Query{})
		c.noErr("List", err)
		spoil(&page.Records[0])
		if got := c.get(r.ID); got.Meta["list"].([]any)[0] != "as given" ||
			got.Errors[0].Message != "as given" || got.Retry.NonRetryableErrors[0] != "as given" {
			c.failf("the stored job has changed: %+v", got)
		}
		to := c.get(r.ID)
		c.to(ojs.StateRetryable)(&to)
		c.settle(to)
		spoil(&to)
		if got := c.get(r.ID); got.Meta["list"].([]any)[0] != "as given" {
			c.failf("the job that was settled shares memory with what it was settled to: %+v", got)
		}
	}},
	{"insert-7", "Insert/MaxDepth", "OJS backpressure", "A queue that would have more jobs that have not ended than Insert.MaxDepth refuses the batch as a whole.", needsNothing, func(c *C) {
		bounded := func(n int, recs ...storage.Record) ([]storage.Inserted, error) {
			batch := make([]storage.Insert, len(recs))
			for i := range recs {
				batch[i] = storage.Insert{Record: recs[i], MaxDepth: n}
			}
			return c.S.Insert(c.ctx, c.now, batch, nil)
		}
		c.insert(c.job(), c.job(scheduled(time.Hour)))
		out, err := bounded(4, c.job(), c.job())
		c.noErr("Insert", err)
		if out[0].Depth != 4 || out[1].Depth != 4 {
			c.failf("the depth after the call is %d and %d, not 4", out[0].Depth, out[1].Depth)
		}
		_, err = bounded(4, c.job())
		var full *ojs.QueueError
		if !errors.As(err, &full) || full.Err != ojs.ErrQueueFull || full.Queue != "q" || full.MaxDepth != 4 {
			c.failf("a full queue returned %v", err)
		}
		c.settled(c.one(), c.to(ojs.StateCompleted))
		if _, err = bounded(4, c.job(), c.job()); !errors.Is(err, ojs.ErrQueueFull) {
			c.failf("a batch that fits in part returned %v", err)
		}
		_, err = bounded(4, c.job())
		c.noErr("Insert after a job has ended", err)
		_, err = bounded(4, c.job(queue("other")))
		c.noErr("Insert into another queue", err)
	}},
	{"insert-8", "Insert/DropOldest", "OJS backpressure", "With DropOldest a full queue gives up the jobs that have been available longest, in the same step.", needsNothing, func(c *C) {
		first := c.insert(c.job(priority(9)), c.job(), c.job(pending))
		was := c.get(first[0]).Version
		r := c.job()
		out, err := c.S.Insert(c.ctx, c.now,
			[]storage.Insert{{Record: r, MaxDepth: 3, DropOldest: true}}, nil)
		c.noErr("Insert", err)
		if len(out[0].Dropped) != 1 || out[0].Dropped[0].ID != first[0] || out[0].Depth != 3 {
			c.failf("dropped %v, depth %d", short(ids(out[0].Dropped)), out[0].Depth)
		}
		got := c.wantState(first[0], ojs.StateDiscarded)
		c.same("what Insert returned of the dropped job", out[0].Dropped[0], got)
		if got.Error == nil || got.Error.Type != policy.ErrorTypeDropped || got.FinishedAt.IsZero() ||
			got.Version != was+1 {
			c.failf("the dropped job is %+v", got)
		}
		c.order(storage.Claim{}, first[1], r.ID)
		_, err = c.S.Insert(c.ctx, c.now,
			[]storage.Insert{{Record: c.job(), MaxDepth: 3, DropOldest: true}}, nil)
		c.wantErr("Insert into a queue with nothing to drop", err, ojs.ErrQueueFull)

		// The limits of the jobs are no matter.
		want := c.insert(c.job(queue("l"), limited("j")), c.job(queue("l")),
			c.job(queue("l"), limited("k")), c.job(queue("l"), limited("j")))
		for _, id := range want {
			in := storage.Insert{Record: c.job(queue("l"), limited("i")), MaxDepth: 4, DropOldest: true}
			if dropped := ids(c.insertOne(in).Dropped); !slices.Equal(dropped, []string{id}) {
				c.failf("dropped %v, not %v", short(dropped), short([]string{id}))
			}
		}

		// Each job of a batch has its own MaxDepth.
		want = c.insert(c.job(queue("m")), c.job(queue("m")), c.job(queue("m")), c.job(queue("m")))
		out, err = c.S.Insert(c.ctx, c.now, []storage.Insert{
			{Record: c.job(queue("m")), MaxDepth: 3, DropOldest: true},
			{Record: c.job(queue("m")), MaxDepth: 5, DropOldest: true},
		}, nil)
		c.noErr("Insert", err)
		if dropped := ids(out[1].Dropped); !slices.Equal(dropped, want[:2]) || out[1].Depth != 4 {
			c.failf("dropped %v of %d, not %v", short(dropped), out[1].Depth, short(want[:2]))
		}
	}},
	{"insert-9", "Insert/IDIsNew", "Insert.IDIsNew", "A job whose id is fresh is stored like any other: in its order, unique and bounded if it shall be, and its id is in use then.", needsNothing, func(c *C) {
		fresh := func(recs ...storage.Record) ([]storage.Inserted, error) {
			batch := make([]storage.Insert, len(recs))
			for i := range recs {
				batch[i] = storage.Insert{Record: recs[i], IDIsNew: i%2 == 0, MaxDepth: 8}
			}
			return c.S.Insert(c.ctx, c.now, batch, nil)
		}
		one := unique("f", ojs.UniquePolicy{})
		first := c.insert(c.job())
		batch := []storage.Record{c.job(one), c.job(priority(1)), c.job(), c.job(scheduled(time.Hour)),
			c.job(priority(1))}
		slices.Reverse(batch[1:]) // not the order of their ids
		out, err := fresh(batch...)
		c.noErr("Insert", err)
		for i, r := range batch {
			r.Version = out[i].Version
			if c.same("the job", c.get(r.ID), r); out[i].Version == 0 || out[i].Depth != 6 {
				c.failf("Insert returned %+v", out[i])
			}
		}
		single := c.job()
		_, err = c.S.Insert(c.ctx, c.now, []storage.Insert{{Record: single, IDIsNew: true}}, nil)
		c.noErr("Insert", err)
		c.refuse(c.job(one), batch[0].ID)
		_, err = fresh(c.job(one))
		c.wantErr("Insert of an equal job", err, ojs.ErrDuplicate)
		_, err = fresh(c.job(), c.job())
		c.wantErr("Insert into a full queue", err, ojs.ErrQueueFull)
		for _, r := range []storage.Record{batch[2], single} {
			_, err = c.insertBatch(c.job(func(n *storage.Record) { n.ID = r.ID }))
			c.wantErr("Insert of an id that was fresh", err, ojs.ErrDuplicate)
		}
		c.order(storage.Claim{}, batch[1].ID, batch[4].ID, first[0], batch[0].ID, batch[3].ID, single.ID)

		// Beside a job that is available, each job of a batch counts.
		first = c.insert(c.job())
		_, err = c.S.Insert(c.ctx, c.now,
			[]storage.Insert{{Record: c.job(), IDIsNew: true}, {Record: c.job(one), IDIsNew: true}}, nil)
		c.wantErr("Insert of two jobs, of which one is like another", err, ojs.ErrDuplicate)
		urgent := storage.Insert{Record: c.job(priority(1)), IDIsNew: true}
		c.insertOne(urgent)
		c.order(storage.Claim{}, urgent.Record.ID, first[0])

		// Beside an available job that is like it, a job is unique and bounded, too.
		like := c.insert(c.job(unique("g", ojs.UniquePolicy{})))[0]
		_, err = c.S.Insert(c.ctx, c.now, []storage.Insert{{Record: c.job(one), IDIsNew: true}}, nil)
		c.wantErr("Insert of an equal job beside one with its policy", err, ojs.ErrDuplicate)
		c.order(storage.Claim{}, like)
		like = c.insert(c.job(queue("bounded")))[0]
		_, err = c.S.Insert(c.ctx, c.now,
			[]storage.Insert{{Record: c.job(queue("bounded")), IDIsNew: true, MaxDepth: 1}}, nil)
		c.wantErr("Insert into a queue with a job that has room for one", err, ojs.ErrQueueFull)
		c.order(storage.Claim{}, like)

		// Beside it, jobs of a batch have keys of their own.
		like = c.insert(c.job())[0]
		j, k := c.job(limited("j")), c.job(limited("k"))
		_, err = c.S.Insert(c.ctx, c.now,
			[]storage.Insert{{Record: j, IDIsNew: true}, {Record: k, IDIsNew: true}}, nil)
		c.noErr("Insert of jobs with keys", err)
		c.shut("k")
		c.order(storage.Claim{}, like, j.ID)
		c.unshut("k")
		c.order(storage.Claim{}, k.ID)
	}},
	{"insert-10", "Insert/DropOldestWhenTheClockGoesBack", "package storage, Time", "Jobs that have been skipped as expired are dropped for others if the clock goes back to before their deadline, in the order in which they became available.", needsNothing, func(c *C) {
		got := c.insert(c.job(), c.job(expires(time.Minute)),
			c.job(expires(2*time.Minute), priority(1)), c.job(pending))
		c.pass(2 * time.Minute)
		c.order(storage.Claim{}, got[0])
		drop := func(n int) ([]storage.Inserted, error) {
			return c.S.Insert(c.ctx, c.now,
				[]storage.Insert{{Record: c.job(), MaxDepth: n, DropOldest: true}}, nil)
		}
		_, err := drop(4)
		c.wantErr("Insert into a queue whose available jobs have expired", err, ojs.ErrQueueFull)
		c.pass(-90 * time.Second)
		out, err := drop(3)
		c.noErr("Insert", err)
		if gone := ids(out[0].Dropped); !slices.Equal(gone, got[1:3]) {
			c.failf("dropped %v, not %v", short(gone), short(got[1:3]))
		}
	}},
}
