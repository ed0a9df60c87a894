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
		b.put = func(b *broken, ctx Context, now Time, values []storage.Value) error {
			var some []storage.Value
			for _, v := range values {
				if len(v.Data) > 0 {
					some = append(some, v)
				}
			}
			return b.Storage.PutValues(ctx, now, some)
		}
	}},
	{"values of other prefixes", "values-2", func(b *broken) {
		b.values = func(b *broken, ctx Context, now Time, of keys) ([]storage.Value, error) {
			all, err := b.Storage.Values(ctx, now, "", of.after, of.limit)
			var some []storage.Value
			for _, v := range all {
				if strings.Contains(v.Key, of.prefix) {
					some = append(some, v)
				}
			}
			return some, err
		}
	}},
	{"values at their expiry", "values-3", func(b *broken) {
		b.values = func(b *broken, ctx Context, now Time, of keys) ([]storage.Value, error) {
			return b.Storage.Values(ctx, now.Add(-time.Nanosecond), of.prefix, of.after, of.limit)
		}
	}},
	{"expired values never deleted", "values-3", func(b *broken) {
		b.put = func(b *broken, ctx Context, now Time, values []storage.Value) error {
			return b.Storage.PutValues(ctx, now.Add(-24*time.Hour), values)
		}
	}},
	{"pages of values without a limit", "values-4", func(b *broken) {
		b.values = func(b *broken, ctx Context, now Time, of keys) (all []storage.Value, err error) {
			for {
				page, err := b.Storage.Values(ctx, now, of.prefix, of.after, of.limit)
				all = append(all, page...)
				if len(page) < storage.MaxValues || of.limit == 0 || err != nil {
					return all, err
				}
				of.after = page[len(page)-1].Key
			}
		}
	}},
	{"values stored before the bad one", "values-5", func(b *broken) {
		b.put = func(b *broken, ctx Context, now Time, values []storage.Value) error {
			for i := range values {
				if err := b.Storage.PutValues(ctx, now, values[i:i+1]); err != nil {
					return err
				}
			}
			return ctx.Err()
		}
	}},
	{"values lost when reopened", "values-6", func(b *broken) {
		b.reopen = func(b *broken) storage.Storage {
			list, _ := b.Storage.Values(context.Background(), time.Time{}, "", "", 0)
			for i := range list {
				list[i].Data = nil
			}
			_ = b.Storage.PutValues(context.Background(), time.Time{}, list)
			return b
		}
	}},
	{"values whose data end at a NUL", "values-1", func(b *broken) {
		b.put = func(b *broken, ctx Context, now Time, values []storage.Value) error {
			cut := append([]storage.Value{}, values...)
			for i := range cut {
				if n := bytes.IndexByte(cut[i].Data, 0); n >= 0 {
					cut[i].Data = append([]byte("?"), cut[i].Data[:n]...)
				}
			}
			return b.Storage.PutValues(ctx, now, cut)
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
