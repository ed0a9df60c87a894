package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// bounded makes an insert into a bounded queue that gives up its oldest jobs.
func bounded(r storage.Record, depth int) storage.Insert {
	return storage.Insert{Record: r, MaxDepth: depth, DropOldest: true}
}

// batchCases are about what the jobs of one batch do to each other.
var batchCases = []Case{
	{"insert-11", "Insert/DropsNoneOfTheBatch", "Storage.Insert",
		"A full queue gives up no job of the batch, nor one that is not available.", needsNothing,
		func(c *C) {
			c.insert(c.job(scheduled(time.Hour)), c.job(pending), c.job(queue("other")))
			batch := []storage.Insert{bounded(c.job(), 3), bounded(c.job(), 3)}
			_, err := c.S.Insert(c.ctx, c.now, batch, nil)
			c.wantErr("Insert of two jobs where one has room", err, ojs.ErrQueueFull)
			var full *ojs.QueueError
			if !errors.As(err, &full) || full.Queue != "q" || full.MaxDepth != 3 {
				c.failf("the error names another queue or depth: %v", err)
			}
			for _, in := range batch {
				_, err := c.S.Get(c.ctx, in.Record.ID)
				c.wantErr("Get of a job of the refused batch", err, ojs.ErrNotFound)
			}
			c.insertOne(bounded(c.job(), 3))
			if n := len(c.list(storage.Query{Queues: []string{"q"}})); n != 3 {
				c.failf("the queue has %d jobs, not 3", n)
			}
		}},
	{"insert-12", "Insert/CountsWhatCameBefore", "Storage.Insert",
		"A bounded queue counts its jobs that have not ended, and the batch up to a record, but no replaced jobs.",
		needsNothing, func(c *C) {
			for i, s := range ojs.AllStates() {
				r := c.reach(s)
				want := i%2 + 1
				if s.Terminal() {
					want--
				}
				for range i % 2 {
					c.insert(c.job(queue(r.Queue), scheduled(time.Hour)))
				}
				depth := storage.Insert{Record: c.job(queue(r.Queue)), MaxDepth: want}
				if want > 0 { // 0 is no bound
					_, err := c.S.Insert(c.ctx, c.now, []storage.Insert{depth}, nil)
					c.wantErr("Insert into a full queue with a job that is "+string(s), err, ojs.ErrQueueFull)
				}
				depth.MaxDepth++
				if out := c.insertOne(depth); out.Depth != want+1 {
					c.failf("a queue with a job that is %s has %d jobs, not %d", s, out.Depth, want+1)
				}
			}
			first := storage.Insert{Record: c.job(queue("before")), MaxDepth: 1}
			after := storage.Insert{Record: c.job(queue("before"))}
			out, err := c.S.Insert(c.ctx, c.now, []storage.Insert{first, after}, nil)
			c.noErr("Insert of a job with room before one without a bound", err)
			if out[0].Depth != 2 {
				c.failf("the depth is %d, not 2", out[0].Depth)
			}
			after.Record = c.job(queue("after"))
			first.Record = c.job(queue("after"))
			_, err = c.S.Insert(c.ctx, c.now, []storage.Insert{after, first}, nil)
			c.wantErr("Insert of a job without room after one without a bound", err, ojs.ErrQueueFull)
			replaces := unique("f", ojs.UniquePolicy{OnConflict: ojs.ConflictReplace})
			c.insert(c.job(queue("replaced"), replaces))
			for range 2 {
				in := storage.Insert{Record: c.job(queue("replaced"), replaces), MaxDepth: 1}
				if out := c.insertOne(in); len(out.Replaced) != 1 || out.Depth != 1 {
					c.failf("replaced %v, depth %d", short(ids(out.Replaced)), out.Depth)
				}
			}
			equal := []storage.Insert{
				{Record: c.job(queue("replaced"), replaces), MaxDepth: 1},
				{Record: c.job(queue("replaced"), replaces), MaxDepth: 1},
			}
			_, err = c.S.Insert(c.ctx, c.now, equal, nil)
			c.noErr("Insert of equal jobs of which the second replaces the first", err)

			// A replaced job takes no room after others, and needs none.
			c.insert(c.job(queue("taken")))
			last := storage.Insert{Record: c.job(queue("elsewhere"), replaces)}
			tight := func(change ...func(*storage.Record)) storage.Insert {
				return storage.Insert{Record: c.job(append(change, queue("taken"))...), MaxDepth: 1}
			}
			_, err = c.S.Insert(c.ctx, c.now,
				[]storage.Insert{tight(), {Record: c.job(queue("taken"), replaces)}, last}, nil)
			c.wantErr("Insert of a job without room before one that is replaced", err, ojs.ErrQueueFull)
			c.insert(c.job(queue("taken")))
			_, err = c.S.Insert(c.ctx, c.now, []storage.Insert{tight(replaces), last}, nil)
			c.noErr("Insert of a job without room that the next one replaces", err)
		}},
	{"insert-13", "Insert/DroppedFor", "Inserted.Dropped",
		"The jobs that a queue gives up are in the result of its last record without room.", needsNothing, func(c *C) {
			old := c.insert(c.job(), c.job(), c.job(), c.job(queue("other")))
			batch := []storage.Insert{
				bounded(c.job(), 4), bounded(c.job(queue("other")), 1),
				bounded(c.job(), 4), bounded(c.job(), 4), bounded(c.job(), 9),
			}
			out, err := c.S.Insert(c.ctx, c.now, batch, nil)
			c.noErr("Insert", err)
			for i, want := range [][]string{{}, old[3:], {}, old[:2], {}} {
				if got := ids(out[i].Dropped); !slices.Equal(got, want) {
					c.failf("record %d dropped %v, not %v", i, short(got), short(want))
				}
			}
			for i, want := range []int{5, 1, 5, 5, 5} {
				if out[i].Depth != want {
					c.failf("the depth after record %d is %d, not %d", i, out[i].Depth, want)
				}
			}
		}},
	{"insert-14", "Insert/FirstError", "Storage.Insert",
		"Of several faults of a batch the first is named: states and ids, equal jobs, draining queues, full queues.",
		needsNothing, func(c *C) {
			there := c.insert(c.job(unique("f", ojs.UniquePolicy{}), queue("full")))[0]
			_, err := c.S.SetQueueState(c.ctx, "draining", ojs.QueueDraining)
			c.noErr("SetQueueState", err)
			wrong := []struct {
				what  string
				in    func() storage.Insert
				names func(err error) bool
			}{
				{"a full queue", func() storage.Insert {
					return storage.Insert{Record: c.job(queue("full")), MaxDepth: 1}
				}, func(err error) bool { return errors.Is(err, ojs.ErrQueueFull) }},
				{"a draining queue", func() storage.Insert {
					return storage.Insert{Record: c.job(queue("draining"))}
				}, func(err error) bool { return errors.Is(err, ojs.ErrQueueDraining) }},
				{"an equal job", func() storage.Insert {
					return storage.Insert{Record: c.job(unique("f", ojs.UniquePolicy{}))}
				}, func(err error) bool {
					var dup *ojs.DuplicateError
					return errors.As(err, &dup) && dup.Fingerprint == "f"
				}},
				{"an id that is stored", func() storage.Insert {
					return storage.Insert{Record: c.job(func(r *storage.Record) { r.ID = there })}
				}, func(err error) bool {
					var dup *ojs.DuplicateError
					return errors.As(err, &dup) && dup.Fingerprint == ""
				}},
				{"a state to end in", func() storage.Insert {
					return storage.Insert{Record: c.job(c.to(ojs.StateCompleted))}
				}, func(err error) bool { return errors.Is(err, ojs.ErrInvalid) }},
			}
			for i, first := range wrong {
				for _, other := range wrong[:i] {
					batches := [][]storage.Insert{{other.in(), {Record: c.job()}, first.in()},
						{first.in(), other.in()}}
					if i == 4 && other.what == wrong[3].what {
						batches = batches[1:] // of one check the first record in the batch is named
					}
					for _, batch := range batches {
						_, err := c.S.Insert(c.ctx, c.now, batch, nil)
						if !first.names(err) {
							c.failf("for %s beside %s Insert returned %v", first.what, other.what, err)
						}
					}
				}
			}
		}},
	{"insert-15", "Insert/SeenAtOnce", "package storage, Fencing",
		"A job that has just been inserted, fresh or not, is seen by every call.", needsNothing, func(c *C) {
			for i := range 8 {
				q := fmt.Sprint("q", i)
				r := c.job(queue(q))
				c.insertOne(storage.Insert{Record: r, IDIsNew: i%2 == 0})
				switch i / 2 {
				case 0:
					c.wantState(r.ID, ojs.StateAvailable)
				case 1:
					counts, err := c.S.Counts(c.ctx)
					c.noErr("Counts", err)
					want := storage.Count{Queue: q, Type: r.Type, State: ojs.StateAvailable, N: 1}
					if !slices.Contains(counts, want) {
						c.failf("Counts returned %v", counts)
					}
				case 2:
					if got := c.list(storage.Query{Queues: []string{q}}); !slices.Equal(got, []string{r.ID}) {
						c.failf("List returned %v", short(got))
					}
				}
				got := c.claimOf(storage.Claim{Types: []string{"x"}, Max: 2})
				if !slices.Equal(ids(got), []string{r.ID}) {
					c.failf("claimed %v, not %v", short(ids(got)), short([]string{r.ID}))
				}
			}
		}},
	{"unique-14", "Unique/NewestScheduledTakesOver", "OJS unique jobs, section 5.3",
		"Of several scheduled equal jobs the newest takes over, and the others are cancelled.",
		needsNothing, func(c *C) {
			if c.S.Capabilities().Unique != storage.Strong {
				return // it may refuse to replace what runs
			}
			blind := func(r *storage.Record) { r.Fingerprint = "f" }
			older := func(r *storage.Record) { r.CreatedAt = r.CreatedAt.Add(-time.Minute) }
			active := c.insert(c.job(blind, older, older))[0]
			c.one()
			newer := func(r *storage.Record) { r.CreatedAt = r.CreatedAt.Add(time.Second) }
			got := c.insert(c.job(blind, scheduled(time.Hour)), c.job(blind, scheduled(2*time.Hour)),
				c.job(blind, older, scheduled(time.Hour)), c.job(blind, newer))
			policy := ojs.UniquePolicy{OnConflict: ojs.ConflictReplaceExceptSchedule}
			out := c.insertOne(storage.Insert{Record: c.job(unique("f", policy))})
			if out.Existing == nil || out.Existing.ID != got[1] || !out.Updated || out.Version != 0 {
				c.failf("Insert did not update the newest of the scheduled jobs, or stored the job")
			}
			want := []string{active, got[2], got[0], got[3]} // the oldest first
			if !slices.Equal(ids(out.Replaced), want) {
				c.failf("replaced %v, not %v", short(ids(out.Replaced)), short(want))
			}
			for _, id := range want {
				c.wantState(id, ojs.StateCancelled)
			}
			c.wantState(got[1], ojs.StateScheduled)
		}},
}
