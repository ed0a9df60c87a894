package storagetest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Storages that list, count or delete the wrong jobs.
var _ = register([]fault{
	{"listed by the latest change", "list-1 insert-17", changePage(func(p *storage.Page) {
		slices.SortStableFunc(p.Records,
			func(a, b storage.Record) int { return int(a.Version) - int(b.Version) })
	})},
	{"paging that skips", "list-2 prune-5", changePage(func(p *storage.Page) {
		if len(p.Records) == 7 {
			p.Records = p.Records[:6]
		}
	})},
	{"error types not filtered", "list-3", changeQuery(func(q *storage.Query) { q.ErrorTypes = nil })},
	{"pages by offset", "list-4", func(b *broken) {
		b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
			if q.Limit != 3 || len(q.Queues)+len(q.Types)+len(q.States)+len(q.ErrorTypes) > 0 ||
				q.DeadLetters {
				return b.Storage.List(ctx, q)
			}
			var at int
			if q.Cursor != "" {
				if _, err := fmt.Sscanf(q.Cursor, "at %d", &at); err != nil {
					return b.Storage.List(ctx, q)
				}
			}
			page, err := b.Storage.List(ctx, storage.Query{})
			if err != nil {
				return page, err
			}
			n := len(page.Records)
			out := storage.Page{Records: page.Records[min(at, n):min(at+3, n)]}
			if at+3 < len(page.Records) {
				out.Next = fmt.Sprintf("at %d", at+3)
			}
			return out, nil
		}
	}},
	{"every discarded job a dead letter", "list-5 durable-1 due-10", func(b *broken) {
		b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
			if q.DeadLetters && len(q.Types) == 0 {
				q.DeadLetters, q.States = false, []ojs.State{ojs.StateDiscarded}
			}
			return b.Storage.List(ctx, q)
		}
	}},
	{"ended jobs not counted", "list-6", func(b *broken) {
		b.counts = func(b *broken, ctx context.Context) ([]storage.Count, error) {
			out, err := b.Storage.Counts(ctx)
			return slices.DeleteFunc(out, func(c storage.Count) bool { return c.State.Terminal() }), err
		}
	}},
	{"any cursor is the beginning", "list-7", changeQuery(func(q *storage.Query) {
		if strings.Contains(q.Cursor, "no cursor") {
			q.Cursor = ""
		}
	})},
	{"newest are the oldest", "list-9 list-14", changeQuery(func(q *storage.Query) {
		if q.Order == storage.OrderNewest {
			q.Order = storage.OrderOldest
		}
	})},
	{"finished in the order of their insertion", "list-10", func(b *broken) {
		b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
			if q.Order == storage.OrderFinished {
				where := q.Where
				q.Order = storage.OrderNewest
				q.Where = func(r *storage.Record) bool {
					return r.State.Terminal() && (where == nil || where(r))
				}
			}
			return b.Storage.List(ctx, q)
		}
	}},
	{"kept jobs have not finished", "list-10", func(b *broken) {
		b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
			if q.Order == storage.OrderFinished {
				q.Where = func(r *storage.Record) bool { return r.KeptUntil().IsZero() }
			}
			return b.Storage.List(ctx, q)
		}
	}},
	{"due in the order of ScheduledAt", "list-11", func(b *broken) {
		b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
			page, err := b.Storage.List(ctx, q)
			if q.Order == storage.OrderDue {
				slices.SortStableFunc(page.Records, func(a, b storage.Record) int {
					return a.ScheduledAt.Compare(b.ScheduledAt)
				})
			}
			return page, err
		}
	}},
	{"next to be claimed by their insertion", "list-12", func(b *broken) {
		b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
			if q.Order == storage.OrderClaim {
				q.Order, q.States = storage.OrderOldest, []ojs.State{ojs.StateAvailable}
			}
			return b.Storage.List(ctx, q)
		}
	}},
	{"workflows not asked for", "list-16", changeQuery(func(q *storage.Query) { q.Workflow = "" })},
	{"records of workflows not asked for", "list-16", changeQuery(func(q *storage.Query) {
		q.Keepers = false
	})},
	{"error types not asked for", "list-3 list-17", changeQuery(func(q *storage.Query) {
		q.ErrorTypes = nil
	})},
	{"a look at other jobs than those of the states", "list-17", func(b *broken) {
		b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
			page, err := b.Storage.List(ctx, q)
			if q.OfRare() {
				page.Looked += 2
			}
			return page, err
		}
	}},
	{"Where not asked", "list-13", changeQuery(func(q *storage.Query) { q.Where = nil })},
	{"Looked is less than was found", "list-13", changePage(func(p *storage.Page) {
		p.Looked = max(len(p.Records)-1, 0)
	})},
	{"no page before", "list-9 list-14", changePage(func(p *storage.Page) { p.Prev = "" })},
	{"pages back in the order of the walk", "list-9 list-10 list-11 list-12", func(b *broken) {
		b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
			p, err := b.Storage.List(ctx, q)
			if strings.HasPrefix(q.Cursor, "<") {
				slices.Reverse(p.Records)
			}
			return p, err
		}
	}},
	{"cuts that lose the job at them", "list-14", func(b *broken) {
		b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
			p, err := b.Storage.List(ctx, q)
			if strings.HasPrefix(q.Cursor, "<") && len(p.Records) > 1 {
				p.Records = p.Records[:len(p.Records)-1]
			}
			return p, err
		}
	}},
	{"unknown orders are the oldest", "list-15", changeQuery(func(q *storage.Query) {
		if !q.Order.Valid() {
			q.Order = storage.OrderOldest
		}
	})},
	{"unknown ids counted", "delete-1", func(b *broken) {
		b.remove = func(b *broken, ctx context.Context, ids []string) (int, error) {
			n, err := b.Storage.Delete(ctx, ids)
			if err != nil {
				return n, err
			}
			return len(ids), nil
		}
	}},
	{"ids of deleted jobs kept", "delete-3 settle-12", func(b *broken) {
		b.remove = func(b *broken, ctx context.Context, ids []string) (int, error) {
			n, err := b.Storage.Delete(ctx, ids)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, id := range ids {
				if err == nil {
					b.kept[id] = storage.Record{}
				}
			}
			return n, err
		}
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for i := range batch {
				if _, ok := b.kept[batch[i].Record.ID]; ok {
					return dst, &ojs.DuplicateError{ID: batch[i].Record.ID}
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"pages of any length", "list-8", func(b *broken) {
		b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
			p, err := b.Storage.List(ctx, q)
			if (q.Limit == 0 || q.Limit > 1000) && p.Next != "" {
				q.Cursor = p.Next
				more, _ := b.Storage.List(ctx, q)
				p.Records, p.Next = append(p.Records, more.Records...), more.Next
			}
			return p, err
		}
	}},
	{"a listing ends with its first 1000 jobs", "list-8", changePage(func(p *storage.Page) {
		if len(p.Records) == 1000 {
			p.Next = ""
		}
	})},
})
