package storagetest_test

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// changeSeen changes every record that the storage answers with, if on says so.
func changeSeen(b *broken, on func() bool, f func(r *storage.Record)) {
	all := func(recs []storage.Record) {
		for i := range recs {
			if on() {
				f(&recs[i])
			}
		}
	}
	b.get = func(b *broken, ctx context.Context, id string) (storage.Record, error) {
		r, err := b.Storage.Get(ctx, id)
		if err == nil && on() {
			f(&r)
		}
		return r, err
	}
	b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
		p, err := b.Storage.List(ctx, q)
		all(p.Records)
		return p, err
	}
	b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
		recs, err := b.Storage.Claim(ctx, now, c, nil)
		all(recs)
		return append(dst, recs...), err
	}
}

// identity are the fields by which cases find their jobs and entries again.
var identity = map[string]bool{"ID": true, "Name": true, "Version": true}

// Each field of a job alone is lost when the storage is opened again.
func TestFieldsLostAtReopenAreCaught(t *testing.T) {
	storagetest.SkipWatched(t)
	for _, l := range fields.Leaves(reflect.TypeFor[storage.Record]()) {
		if identity[l.Path] {
			continue
		}
		t.Run(l.Path, func(t *testing.T) {
			t.Parallel()
			wantCaught(t, "fields-4 fields-2", func(b *broken) {
				opened := false
				b.reopen = func(b *broken) storage.Storage { opened = true; return b }
				changeSeen(b, func() bool { return opened }, func(r *storage.Record) {
					if v, ok := l.In(reflect.ValueOf(r).Elem()); ok {
						v.SetZero()
					}
				})
			})
		})
	}
}

// Each field of a job alone is taken from the first job that was stored, as a storage
// does that keeps what jobs have in common once.
func TestFieldsMixedBetweenJobsAreCaught(t *testing.T) {
	storagetest.SkipWatched(t)
	// no job has these fields when it is stored
	later := []string{"LeaseUntil", "NextRetryAt", "FinishedAt", "DeadLetteredAt"}
	for _, l := range fields.Leaves(reflect.TypeFor[storage.Record]()) {
		if identity[l.Path] || slices.Contains(later, l.Path) {
			continue
		}
		t.Run(l.Path, func(t *testing.T) {
			t.Parallel()
			wantCaught(t, "fields-3 fields-1", func(b *broken) {
				var first *storage.Record
				changeInsert(func(r *storage.Record) {
					if first == nil {
						c := r.Copy()
						first = &c
						return
					}
					from, ok := l.In(reflect.ValueOf(first).Elem())
					if to, there := l.In(reflect.ValueOf(r).Elem()); ok && there {
						to.Set(from)
					}
				})(b)
			})
		})
	}
}

// A field alone is lost of jobs that are otherwise as an engine makes them without
// options, as by a storage that keeps no document of such jobs.
func TestFieldsOfPlainJobsAreCaught(t *testing.T) {
	storagetest.SkipWatched(t)
	for _, name := range []string{"TypeVersion", "MaxAttempts", "Timeout", "TotalTimeout", "EnqueueTTL",
		"ResultTTL", "ExpiresAt", "Meta", "Extra", "Unique", "Fairness"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantCaught(t, "fields-3", changeInsert(func(r *storage.Record) {
				own := fields.Clone(*r)
				plain := []any{&own.TypeVersion, &own.MaxAttempts, &own.Timeout, &own.TotalTimeout,
					&own.EnqueueTTL, &own.ResultTTL, &own.ExpiresAt, &own.Meta, &own.Extra, &own.Unique,
					&own.Fairness}
				v := reflect.ValueOf(r).Elem().FieldByName(name)
				reflect.ValueOf(&own).Elem().FieldByName(name).SetZero()
				others := 0
				for _, p := range plain {
					if !reflect.ValueOf(p).Elem().IsZero() {
						others++
					}
				}
				// the timeout and the number of attempts are those of the engine
				if r.Retry.Equal(policy.Default()) && others <= 2 {
					v.SetZero()
				}
			}))
		})
	}
}

// Each field of a recurring entry alone is lost at once, or when the storage is opened
// again.
func TestFieldsOfCronsAreCaught(t *testing.T) {
	storagetest.SkipWatched(t)
	for _, l := range fields.Leaves(reflect.TypeFor[storage.Cron]()) {
		if identity[l.Path] {
			continue
		}
		for when, opened := range map[string]bool{"at once": true, "at Reopen": false} {
			t.Run(l.Path+" "+when, func(t *testing.T) {
				t.Parallel()
				wantCaught(t, "fields-6", func(b *broken) {
					lost := opened
					b.reopen = func(b *broken) storage.Storage { lost = true; return b }
					b.crons = func(b *broken, ctx context.Context,
						q storage.DocumentQuery) ([]storage.Cron, error) {
						list, err := document.Of(b.Storage).Crons(ctx, q)
						for i := range list {
							if v, ok := l.In(reflect.ValueOf(&list[i]).Elem()); ok && lost {
								v.SetZero()
							}
						}
						return list, err
					}
				})
			})
		}
	}
}

func TestWhatIsLostAtReopenIsCaught(t *testing.T) {
	storagetest.SkipWatched(t)
	for name, fault := range map[string]func(b *broken, lost func() bool){
		"queue states": func(b *broken, lost func() bool) {
			b.states = func(b *broken, ctx context.Context) (map[string]ojs.QueueState, error) {
				if lost() {
					return nil, nil
				}
				return b.Storage.QueueStates(ctx)
			}
		},
		"pauses": func(b *broken, lost func() bool) {
			b.states = func(b *broken, ctx context.Context) (map[string]ojs.QueueState, error) {
				m, err := b.Storage.QueueStates(ctx)
				for name, s := range m {
					if lost() && s == ojs.QueuePaused {
						delete(m, name)
					}
				}
				return m, err
			}
		},
		"recurring entries": func(b *broken, lost func() bool) {
			b.crons = func(b *broken, ctx context.Context, q storage.DocumentQuery) ([]storage.Cron, error) {
				if lost() {
					return nil, nil
				}
				return document.Of(b.Storage).Crons(ctx, q)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			wantCaught(t, "fields-6 fields-7", func(b *broken) {
				opened := false
				b.reopen = func(b *broken) storage.Storage { opened = true; return b }
				fault(b, func() bool { return opened })
			})
		})
	}
}
