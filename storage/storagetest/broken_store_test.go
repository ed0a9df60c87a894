package storagetest_test

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/ojsengine/ojs/storage"
)

// Storages that break the rules of values.
var _ = register([]fault{
	{"values kept that were deleted", "values-1", func(b *broken) {
		b.put = func(b *broken, ctx Context, values []storage.Document) ([]uint64, error) {
			var some []storage.Document
			for _, v := range values {
				if len(v.Data) > 0 {
					some = append(some, v)
				}
			}
			_, err := b.Storage.PutDocuments(ctx, storage.KindValue, some)
			return make([]uint64, len(values)), err
		}
	}},
	{"values of other prefixes", "values-2", func(b *broken) {
		b.values = func(b *broken, ctx Context, q storage.DocumentQuery) ([]storage.Document, error) {
			prefix := q.Prefix
			q.Prefix = ""
			all, err := b.Storage.Documents(ctx, storage.KindValue, q)
			var some []storage.Document
			for _, v := range all {
				if strings.Contains(v.Name, prefix) {
					some = append(some, v)
				}
			}
			return some, err
		}
	}},
	{"expired values are never due", "values-3", func(b *broken) {
		b.expired = func(*broken) ([]storage.Document, time.Time, error) { return nil, time.Time{}, nil }
	}},
	{"pages of documents without a limit", "values-4", func(b *broken) {
		b.values = func(b *broken, ctx Context, q storage.DocumentQuery) (all []storage.Document, err error) {
			for {
				page, err := b.Storage.Documents(ctx, storage.KindValue, q)
				all = append(all, page...)
				if len(page) < storage.MaxDocuments || q.Limit == 0 || err != nil {
					return all, err
				}
				q.After = page[len(page)-1].Name
			}
		}
	}},
	{"values lost when reopened", "values-6", func(b *broken) {
		b.reopen = func(b *broken) storage.Storage {
			list, _ := b.Storage.Documents(context.Background(), storage.KindValue, storage.DocumentQuery{})
			for i := range list {
				list[i].Data = nil
			}
			_, _ = b.Storage.PutDocuments(context.Background(), storage.KindValue, list)
			return b
		}
	}},
	{"values whose data end at a NUL", "values-1", func(b *broken) {
		b.put = func(b *broken, ctx Context, values []storage.Document) ([]uint64, error) {
			cut := append([]storage.Document{}, values...)
			for i := range cut {
				if n := bytes.IndexByte(cut[i].Data, 0); n >= 0 {
					cut[i].Data = append([]byte("?"), cut[i].Data[:n]...)
				}
			}
			return b.Storage.PutDocuments(ctx, storage.KindValue, cut)
		}
	}},
	{"values put in silence", "values-7", func(b *broken) {
		b.notify = func(b *broken, self any, f func(storage.Notice)) func() {
			return b.Storage.Notify(self, func(n storage.Notice) {
				if n.Values = false; !n.Empty() {
					f(n)
				}
			})
		}
	}},
})
