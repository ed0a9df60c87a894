package storagetest_test

import (
	"errors"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Storages that break the rules of unique jobs.
var _ = register([]fault{
	{"reject ignored",
		"unique-1 insert-2 insert-9 unique-7 unique-9 unique-10 race-4 durable-1 settle-11 unique-16 insert-14",
		changeInsert(func(r *storage.Record) {
			if r.Unique != nil && r.Unique.Strategy() == ojs.ConflictReject && r.Unique.States == nil &&
				r.Unique.Period == 0 {
				r.Unique = nil
			}
		})},
	{"ignore rejects", "unique-2 general-4 unique-15 insert-3 unique-9 queue-2",
		changePolicy(func(p *ojs.UniquePolicy) {
			if p.OnConflict == ojs.ConflictIgnore {
				p.OnConflict = ojs.ConflictReject
			}
		})},
	{"replace leaves what runs", "unique-3 race-5 notify-2 unique-13",
		changePolicy(func(p *ojs.UniquePolicy) {
			if p.OnConflict == ojs.ConflictReplace && p.States == nil {
				p.States = []ojs.State{ojs.StateAvailable, ojs.StateScheduled, ojs.StatePending}
			}
		})},
	{"replace cancels what its policy does not count", "unique-17",
		changePolicy(func(p *ojs.UniquePolicy) {
			if p.Period > 0 && (p.OnConflict == ojs.ConflictReplace ||
				p.OnConflict == ojs.ConflictReplaceExceptSchedule) {
				p.Period, p.States = 0, nil
			}
		})},
	{"replace deletes what has ended", "unique-4", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			if p := batch[0:]; len(p) == 1 && p[0].Record.Unique != nil &&
				p[0].Record.Unique.Strategy() == ojs.ConflictReplace {
				page, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StateCompleted}})
				for _, r := range page.Records {
					if r.Fingerprint == p[0].Record.Fingerprint {
						_, _ = b.Storage.Delete(ctx, []string{r.ID})
					}
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"replace_except_schedule replaces", "unique-5 due-7 unique-14", changePolicy(func(p *ojs.UniquePolicy) {
		if p.OnConflict == ojs.ConflictReplaceExceptSchedule {
			p.OnConflict = ojs.ConflictReplace
		}
	})},
	{"replace_except_schedule ignores what is not scheduled", "unique-6", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				r := &batch[i].Record
				if r.Unique == nil || r.Unique.OnConflict != ojs.ConflictReplaceExceptSchedule {
					continue
				}
				page, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StateScheduled}})
				if len(page.Records) == 0 {
					*r = r.Copy()
					r.Unique.OnConflict = ojs.ConflictIgnore
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"ojs:debounce leaves the time", "unique-18", changePolicy(func(p *ojs.UniquePolicy) {
		if p.OnConflict == ojs.ConflictDebounce {
			p.OnConflict = ojs.ConflictReplaceExceptSchedule
		}
	})},
	{"ojs:debounce without a bound", "unique-18", changePolicy(func(p *ojs.UniquePolicy) { p.MaxWait = 0 })},
	{"ojs:debounce puts off what is to run now", "unique-19", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				r := &batch[i].Record
				if r.Unique != nil && r.Unique.OnConflict == ojs.ConflictDebounce &&
					r.State == ojs.StateAvailable {
					*r = r.Copy()
					r.Unique.OnConflict = ojs.ConflictReplaceExceptSchedule
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"fingerprint dropped when a job ends", "unique-7",
		changeSettle(func(to *storage.Record, _ storage.Record) {
			if to.State.Terminal() {
				to.Fingerprint = ""
			}
		})},
	{"period ignored", "unique-8 prune-5 general-4 prune-6 unique-15",
		changePolicy(func(p *ojs.UniquePolicy) { p.Period = 0 })},
	{"the oldest of several equals named", "unique-9 settle-11 unique-13 unique-15 unique-16",
		func(b *broken) {
			b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
				out, err := b.Storage.Insert(ctx, now, batch, dst)
				var dup *ojs.DuplicateError
				if errors.As(err, &dup) && dup.Fingerprint != "" {
					page, _ := b.Storage.List(ctx, storage.Query{})
					for _, r := range page.Records {
						if r.Fingerprint == dup.Fingerprint {
							return out, &ojs.DuplicateError{ID: r.ID, State: r.State,
								Fingerprint: dup.Fingerprint}
						}
					}
				}
				return out, err
			}
		}},
	{"no conflict within a batch", "unique-10 prune-4 insert-16 unique-15 unique-16 insert-12",
		func(b *broken) {
			b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
				batch = slices.Clone(batch)
				seen := make(map[string]bool)
				for i := range batch {
					r := &batch[i].Record
					if r.Fingerprint != "" && seen[r.Fingerprint] {
						*r = r.Copy()
						r.Unique = nil
					}
					seen[r.Fingerprint] = true
				}
				return b.Storage.Insert(ctx, now, batch, dst)
			}
		}},
	{"every fingerprint checked", "unique-11 settle-11 unique-13 unique-14",
		changeInsert(func(r *storage.Record) {
			if r.Fingerprint != "" && r.Unique == nil {
				r.Unique = &ojs.UniquePolicy{}
			}
		})},
	{"uniqueness checked again at promotion", "unique-12 due-7", func(b *broken) {
		b.due = func(b *broken, ctx Context, now Time, max int, buf records) (storage.Due, error) {
			d, err := b.Storage.Due(ctx, now, max, buf)
			d.Promoted = slices.DeleteFunc(d.Promoted,
				func(r storage.Record) bool { return r.Fingerprint != "" })
			return d, err
		}
	}},
	{"active jobs replaced whatever KeepActive says", "unique-13", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				batch[i].KeepActive = false
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"active jobs never replaced", "unique-13 unique-3 notify-2 race-5 unique-14", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				batch[i].KeepActive = true
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
})
