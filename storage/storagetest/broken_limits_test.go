package storagetest_test

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// changeLimit changes the limits of jobs before these are stored.
func changeLimit(f func(l *ojs.RateLimit)) func(*broken) {
	return changeInsert(func(r *storage.Record) {
		if r.RateLimit != nil {
			f(r.RateLimit)
		}
	})
}

// changeLimited changes what a claim says of limits.
func changeLimited(f func(l *storage.Limited)) func(*broken) {
	return func(b *broken) {
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			dst, err := b.Storage.Claim(ctx, now, c, dst)
			if c.Limits != nil {
				f(c.Limits)
			}
			return dst, err
		}
	}
}

// Storages that count wrongly, or do not tell.
var _ = register([]fault{
	{"limits forgotten after many jobs", "race-7", func(b *broken) {
		var n atomic.Int32
		changeLimit(func(l *ojs.RateLimit) {
			if n.Add(1) > 50 {
				l.Concurrency = 1000
			}
		})(b)
	}},
	{"limits that hold nothing back", "limit-1 limit-3 limit-4 limit-5 limit-11 race-7",
		changeLimit(func(l *ojs.RateLimit) { *l = ojs.RateLimit{Key: l.Key, Concurrency: 1000} })},
	{"limits of the latest hundred keys only", "limit-17", func(b *broken) {
		var mu sync.Mutex
		first := make(map[string]int)
		changeLimit(func(l *ojs.RateLimit) {
			mu.Lock()
			defer mu.Unlock()
			n, seen := first[l.Key]
			if !seen {
				first[l.Key] = len(first)
			} else if len(first)-n > 100 {
				*l = ojs.RateLimit{Key: l.Key, Concurrency: 1000}
			}
		})(b)
	}},
	{"one more at once", "limit-1 limit-2 limit-5 race-7", changeLimit(func(l *ojs.RateLimit) {
		if l.Concurrency > 0 {
			l.Concurrency++
		}
	})},
	{"a claim that has all tells of the future", "limit-3", func(b *broken) {
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			had := len(dst)
			dst, err := b.Storage.Claim(ctx, now, c, dst)
			if c.Limits != nil && len(dst)-had == c.Max {
				c.Limits.Opens = now.Add(time.Second)
			}
			return dst, err
		}
	}},
	{"rates of a shorter period", "limit-3", changeLimit(func(l *ojs.RateLimit) { l.Rate.Per /= 2 })},
	{
		"throttles forgotten",
		"limit-4 limit-8",
		changeLimit(func(l *ojs.RateLimit) { l.Throttle = ojs.Rate{} }),
	},
	{
		"every held job waits",
		"limit-11",
		changeLimit(func(l *ojs.RateLimit) { l.OnLimit = ojs.OnLimitWait }),
	},
	{"rescheduled jobs dropped", "limit-11", changeLimit(func(l *ojs.RateLimit) {
		if l.OnLimit == ojs.OnLimitReschedule {
			l.OnLimit = ojs.OnLimitDrop
		}
	})},
	{"dropped jobs not returned", "limit-11", changeLimited(func(l *storage.Limited) { l.Dropped = nil })},
	{
		"jobs moved by dropped ones not returned",
		"limit-12",
		changeLimited(func(l *storage.Limited) { l.Moved = nil }),
	},
	{
		"no time at which limits open",
		"limit-3 limit-4 limit-9",
		changeLimited(func(l *storage.Limited) { l.Opens = Time{} }),
	},
	{"closed keys not told", "limit-16", changeLimited(func(l *storage.Limited) { l.Closed = nil })},
	{"closed keys told at each claim", "limit-16", func(b *broken) {
		var closed []storage.ClosedKey
		changeLimited(func(l *storage.Limited) {
			l.Closed = append(l.Closed, closed...)
			closed = l.Closed
		})(b)
	}},
	{"closed keys told again after any start", "limit-16", func(b *broken) {
		told := make(map[string][]storage.ClosedKey)
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			had := len(dst)
			dst, err := b.Storage.Claim(ctx, now, c, dst)
			if c.Limits == nil {
				return dst, err
			}
			for _, k := range c.Limits.Closed {
				told[k.Key] = append(told[k.Key], k)
			}
			for i := range dst[had:] {
				if r := &dst[had+i]; r.RateLimit != nil {
					c.Limits.Closed = append(c.Limits.Closed, told[r.RateLimit.Key]...)
				}
			}
			return dst, err
		}
	}},
	{"one bound told for another", "limit-16", changeLimited(func(l *storage.Limited) {
		for i := range l.Closed {
			l.Closed[i].Strategy = storage.LimitedByConcurrency
		}
	})},
	{"settings that never end", "limit-8", func(b *broken) {
		b.limit = func(b *broken, ctx Context, now Time, name limitName, bounds ojs.RateLimit, _ Time) error {
			return b.Storage.SetLimit(ctx, now, name, bounds, Time{})
		}
	}},
	{"settings of queues only", "limit-8 limit-13", func(b *broken) {
		b.limit = func(b *broken, ctx Context, now Time, name limitName, bounds ojs.RateLimit,
			until Time) error {
			if name.Kind == storage.LimitKey && bounds.ValidateBounds() == nil && name.Name != "" {
				return ctx.Err()
			}
			return b.Storage.SetLimit(ctx, now, name, bounds, until)
		}
	}},
	{"types confused with queues", "limit-6", func(b *broken) {
		b.limit = func(b *broken, ctx Context, now Time, name limitName, bounds ojs.RateLimit,
			until Time) error {
			if name.Kind == storage.LimitType {
				name.Kind = storage.LimitQueue
			}
			return b.Storage.SetLimit(ctx, now, name, bounds, until)
		}
	}},
	{"a block made shorter", "limit-9", func(b *broken) {
		b.block = func(b *broken, ctx Context, now Time, name storage.LimitName, until Time) error {
			if err := b.Storage.BlockLimit(ctx, now, name, Time{}); err != nil {
				return err
			}
			return b.Storage.BlockLimit(ctx, now, name, until)
		}
	}},
	{"undone claims count as starts", "limit-10", func(b *broken) {
		b.unclaim = func(b *broken, ctx Context, now Time, held []storage.Held) (int, error) {
			n, err := b.Storage.Unclaim(ctx, now, held)
			for _, h := range held {
				if rec, err := b.Storage.Get(ctx, h.ID); err == nil && rec.RateLimit != nil {
					name := storage.LimitName{Kind: storage.LimitKey, Name: rec.RateLimit.Key}
					_ = b.Storage.BlockLimit(ctx, now, name, now.Add(time.Hour))
				}
			}
			return n, err
		}
	}},
	{"what limits do not told by a step", "limit-14", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			c.Limits = nil
			return b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
		}
	}},
	{"no notice of limits", "limit-15", func(b *broken) {
		b.notify = func(b *broken, self any, f func(storage.Notice)) func() {
			return b.Storage.Notify(self, func(n storage.Notice) {
				if n.Opens = (Time{}); !n.Empty() {
					f(n)
				}
			})
		}
	}},
})
