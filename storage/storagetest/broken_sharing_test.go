package storagetest_test

import (
	"context"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// Storages whose answers share memory with what they store. They answer Get with a record
// that they keep, as a cache would, and a copy of all of its fields but some. No rule
// names these fields: the scribbler overwrites everything that it can reach.
var sharing = map[string]func(kept, copied *storage.Record){
	"the meta":              func(k, c *storage.Record) { c.Meta = k.Meta },
	"the lists in the meta": func(k, c *storage.Record) { shareIn(c.Meta, k.Meta) },
	"the attributes":        func(k, c *storage.Record) { c.Extra = k.Extra },
	"the checkpoint":        func(k, c *storage.Record) { c.Checkpoint = k.Checkpoint },
	"the result":            func(k, c *storage.Record) { c.Result = k.Result },
	"the latest error":      func(k, c *storage.Record) { c.Error = k.Error },
	"the earlier errors":    func(k, c *storage.Record) { c.Errors = k.Errors },
	"the details of an error": func(k, c *storage.Record) {
		shareError(k, c, func(k, c *ojs.Failure) { c.Details = k.Details })
	},
	"the backtrace of an error": func(k, c *storage.Record) {
		shareError(k, c, func(k, c *ojs.Failure) { c.Backtrace = k.Backtrace })
	},
	"the errors that end a job": func(k, c *storage.Record) {
		c.Retry.NonRetryableErrors = k.Retry.NonRetryableErrors
	},
	"the rate limit":    func(k, c *storage.Record) { c.RateLimit = k.RateLimit },
	"the unique policy": func(k, c *storage.Record) { c.Unique = k.Unique },
	"the states of a unique policy": func(k, c *storage.Record) {
		shareUnique(k, c, func(k, c *ojs.UniquePolicy) { c.States = k.States })
	},
	"the keys of a unique policy": func(k, c *storage.Record) {
		shareUnique(k, c, func(k, c *ojs.UniquePolicy) { c.ArgsKeys = k.ArgsKeys })
	},
	"the meta keys of a unique policy": func(k, c *storage.Record) {
		shareUnique(k, c, func(k, c *ojs.UniquePolicy) { c.MetaKeys = k.MetaKeys })
	},
}

func shareIn(c, k map[string]any) {
	for name, v := range k {
		if _, list := v.([]any); list {
			c[name] = v
		}
	}
}

func shareError(k, c *storage.Record, f func(k, c *ojs.Failure)) {
	if k.Error != nil && c.Error != nil {
		f(k.Error, c.Error)
	}
}

func shareUnique(k, c *storage.Record, f func(k, c *ojs.UniquePolicy)) {
	if k.Unique != nil && c.Unique != nil {
		f(k.Unique, c.Unique)
	}
}

func TestSharedMemoryIsCaught(t *testing.T) {
	storagetest.SkipWatched(t)
	for name, share := range sharing {
		t.Run(name, func(t *testing.T) {
			wantCaught(t, "fields-3 fields-1", func(b *broken) {
				b.get = func(b *broken, ctx context.Context, id string) (storage.Record, error) {
					b.mu.Lock()
					defer b.mu.Unlock()
					r, err := b.Storage.Get(ctx, id)
					if err != nil {
						return r, err
					}
					kept, ok := b.kept[id]
					if !ok || kept.Version != r.Version {
						kept = r.Copy()
						b.kept[id] = kept
					}
					share(&kept, &r)
					return r, nil
				}
			})
		})
	}
	// Documents that share memory with those that were given, or handed out.
	for name, which := range map[string]int{"documents given": 0, "documents handed out": 1} {
		t.Run(name, func(t *testing.T) {
			wantCaught(t, "values-1", func(b *broken) {
				var kept [2]map[string][]byte // by when they were met: given, or handed out
				for i := range kept {
					kept[i] = make(map[string][]byte)
				}
				b.put = func(b *broken, ctx Context, list []storage.Document) ([]uint64, error) {
					versions, err := b.Storage.PutDocuments(ctx, storage.KindValue, list)
					for _, d := range list {
						kept[0][d.Name] = d.Data
						delete(kept[1], d.Name)
					}
					return versions, err
				}
				b.values = func(b *broken, ctx Context, q storage.DocumentQuery) ([]storage.Document, error) {
					list, err := b.Storage.Documents(ctx, storage.KindValue, q)
					for i, d := range list {
						if data := kept[which][d.Name]; data != nil {
							list[i].Data = data
						}
						kept[1][d.Name] = list[i].Data
					}
					return list, err
				}
			})
		})
	}
}
