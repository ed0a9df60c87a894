package storagetest_test

import (
	"slices"
	"time"

	"github.com/ojsengine/ojs/storage"
)

// Storages that go wrong with many jobs only.
var _ = register([]fault{
	{"a page of sixty-four jobs is the last", "scale-1", changePage(func(p *storage.Page) {
		if len(p.Records) == 64 {
			p.Next = ""
		}
	})},
	{"pruned in no order beyond fifty", "scale-2", func(b *broken) {
		b.prune = func(b *broken, ctx Context, p storage.Prune) (storage.Pruned, error) {
			out, err := b.Storage.Prune(ctx, p)
			if len(out.IDs) > 50 {
				slices.Reverse(out.IDs[50:])
			}
			return out, err
		}
	}},
	{"timeouts of which there are many are lost", "scale-3", func(b *broken) {
		seen := make(map[time.Duration]bool) // by jobs of one type
		changeClaimed(func(recs []storage.Record) []storage.Record {
			b.mu.Lock()
			defer b.mu.Unlock()
			for i := range recs {
				if r := &recs[i]; r.Type == "t1" {
					if seen[r.Timeout] = true; len(seen) > 16 {
						r.Timeout = 0
					}
				}
			}
			return recs
		})(b)
	}},
	{"an empty page is the last", "scale-4", changePage(func(p *storage.Page) {
		if len(p.Records) == 0 {
			p.Next = ""
		}
	})},
})
