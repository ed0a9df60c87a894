package storagetest_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
)

// Storages that break the rules of recurring entries.
var _ = register([]fault{
	{"the latest entry wins", "cron-1 cron-3 cron-4 cron-6", func(b *broken) {
		b.cron = func(b *broken, ctx Context, entries []storage.Cron) ([]uint64, error) {
			entries = slices.Clone(entries)
			for i := range entries {
				q := storage.DocumentQuery{Names: []string{entries[i].Name}}
				old, err := document.Of(b.Storage).Crons(ctx, q)
				if err != nil {
					return nil, err
				}
				if entries[i].Version = 0; len(old) > 0 {
					entries[i].Version = old[0].Version
				}
			}
			return document.Of(b.Storage).SetCrons(ctx, entries)
		}
	}},
	{"versions of a deleted entry come again", "cron-3 durable-3", func(b *broken) {
		// by name: the version before the entry's first, from which its own count
		before := make(map[string]uint64)
		b.cron = func(b *broken, ctx Context, entries []storage.Cron) ([]uint64, error) {
			entries = slices.Clone(entries)
			for i := range entries {
				if entries[i].Version > 0 {
					entries[i].Version += before[entries[i].Name]
				}
			}
			versions, err := document.Of(b.Storage).SetCrons(ctx, entries)
			for i, v := range versions {
				if v > 0 && entries[i].Version == 0 {
					before[entries[i].Name] = v - 1
				}
				versions[i] -= min(v, before[entries[i].Name])
			}
			return versions, err
		}
		b.crons = func(b *broken, ctx context.Context, q storage.DocumentQuery) ([]storage.Cron, error) {
			list, err := document.Of(b.Storage).Crons(ctx, q)
			for i := range list {
				list[i].Version -= before[list[i].Name]
			}
			return list, err
		}
	}},
	{"one stale entry refuses all", "cron-4 cron-6", func(b *broken) {
		b.cron = func(b *broken, ctx Context, entries []storage.Cron) ([]uint64, error) {
			for i := range entries {
				q := storage.DocumentQuery{Names: []string{entries[i].Name}}
				old, err := document.Of(b.Storage).Crons(ctx, q)
				if err != nil {
					return nil, err
				}
				if len(old) == 0 && entries[i].Version > 0 ||
					len(old) > 0 && old[0].Version != entries[i].Version {
					return make([]uint64, len(entries)), nil
				}
			}
			return document.Of(b.Storage).SetCrons(ctx, entries)
		}
	}},
	{"a page begins with the entry it is to begin after", "cron-2 cron-6 cron-7", func(b *broken) {
		b.crons = func(b *broken, ctx context.Context, q storage.DocumentQuery) ([]storage.Cron, error) {
			list, err := document.Of(b.Storage).Crons(ctx, q)
			at, _ := document.Of(b.Storage).Crons(ctx, storage.DocumentQuery{Names: []string{q.After}})
			if len(at) == 1 && q.Names == nil {
				list = append(at, list...)
				list = list[:min(len(list), q.Most())]
			}
			return list, err
		}
	}},
	{"names ignored", "cron-2 cron-6 cron-5", func(b *broken) {
		b.crons = func(b *broken, ctx context.Context, q storage.DocumentQuery) ([]storage.Cron, error) {
			q.Names = nil
			return document.Of(b.Storage).Crons(ctx, q)
		}
	}},
	{"an entry due now waits for the next look", "cron-5 cron-6", func(b *broken) {
		b.runs = func(b *broken, ctx Context, now Time, after *storage.Cron,
			max int) ([]storage.Cron, time.Time, error) {
			return document.Of(b.Storage).DueCrons(ctx, now.Add(-1), after, max)
		}
	}},
	{"entries due a moment early", "cron-5", func(b *broken) {
		b.runs = func(b *broken, ctx Context, now Time, after *storage.Cron,
			max int) ([]storage.Cron, time.Time, error) {
			return document.Of(b.Storage).DueCrons(ctx, now.Add(time.Microsecond), after, max)
		}
	}},
	{"every look at due entries begins with the first", "cron-5 cron-6", func(b *broken) {
		b.runs = func(b *broken, ctx Context, now Time, _ *storage.Cron,
			max int) ([]storage.Cron, time.Time, error) {
			return document.Of(b.Storage).DueCrons(ctx, now, nil, max)
		}
	}},
	{"the next run not told", "cron-5 cron-6 race-6", func(b *broken) {
		b.runs = func(b *broken, ctx Context, now Time, after *storage.Cron,
			max int) ([]storage.Cron, time.Time, error) {
			due, _, err := document.Of(b.Storage).DueCrons(ctx, now, after, max)
			return due, time.Time{}, err
		}
	}},
	{"due entries and the next run of different moments", "race-6", func(b *broken) {
		var sets atomic.Int64
		b.cron = func(b *broken, ctx Context, entries []storage.Cron) ([]uint64, error) {
			defer sets.Add(1)
			return document.Of(b.Storage).SetCrons(ctx, entries)
		}
		b.runs = func(
			b *broken, ctx Context, now Time, after *storage.Cron, max int,
		) ([]storage.Cron, time.Time, error) {
			due, next, err := document.Of(b.Storage).DueCrons(ctx, now, after, max)
			if err == nil && len(due) > 0 {
				for was, n := sets.Load(), 0; sets.Load() == was && n < 1000; n++ {
					runtime.Gosched()
				}
				_, next, err = document.Of(b.Storage).DueCrons(ctx, time.Time{}, &due[len(due)-1], 1)
			}
			return due, next, err
		}
	}},
	{"due entries in the order of their names", "cron-5 cron-6", func(b *broken) {
		b.runs = func(b *broken, ctx Context, now Time, after *storage.Cron,
			max int) ([]storage.Cron, time.Time, error) {
			due, next, err := document.Of(b.Storage).DueCrons(ctx, now, after, max)
			slices.SortFunc(due, func(a, b storage.Cron) int { return strings.Compare(a.Name, b.Name) })
			return due, next, err
		}
	}},
	{"entries in no order", "cron-2 cron-4 cron-6 cron-7", func(b *broken) {
		b.crons = func(b *broken, ctx context.Context, q storage.DocumentQuery) ([]storage.Cron, error) {
			list, err := document.Of(b.Storage).Crons(ctx, q)
			slices.Reverse(list)
			return list, err
		}
	}},
	{"any number of entries at once", "cron-7", func(b *broken) {
		b.crons = func(b *broken, ctx context.Context, q storage.DocumentQuery) ([]storage.Cron, error) {
			list, err := document.Of(b.Storage).Crons(ctx, q)
			if len(list) == storage.MaxDocuments {
				q.After = list[len(list)-1].Name
				more, _ := document.Of(b.Storage).Crons(ctx, q)
				list = append(list, more...)
			}
			return list, err
		}
	}},
})
