package storagetest_test

import (
	"context"
	"errors"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// settleOne settles one change.
type settleOne = func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error)

// eachChange has a storage settle the changes of a call one by one.
func eachChange(f settleOne) func(*broken) {
	return func(b *broken) {
		b.settle = func(b *broken, ctx Context, now Time, changes settles, dst outcomes) (outcomes, error) {
			if err := storage.CheckThen(changes); err != nil {
				return dst, err
			}
			for _, c := range changes {
				s, err := f(b, ctx, now, c)
				if err != nil {
					return dst, err
				}
				dst = append(dst, s)
			}
			return dst, nil
		}
	}
}

// settleOne is the right way to settle one change.
func (b *broken) settleOne(ctx Context, now Time, c storage.Change) (storage.Settled, error) {
	out, err := b.Storage.Settle(ctx, now, settles{c}, nil)
	if err != nil {
		return storage.Settled{}, err
	}
	return out[0], nil
}

// inTwo settles a change and then inserts what follows it, in two steps. If the insert
// fails, the change stays, as refused says.
func (b *broken) inTwo(ctx Context, now Time, c storage.Change,
	refused func(s *storage.Settled, err error)) (storage.Settled, error) {
	then := c.Then
	c.Then = nil
	s, err := b.settleOne(ctx, now, c)
	if err != nil || s.Err != nil || len(then) == 0 {
		return s, err
	}
	if s.Then, err = b.Storage.Insert(ctx, now, then, nil); err != nil {
		s.Then = nil
		refused(&s, err)
	}
	return s, nil
}

func keepsQuiet(*storage.Settled, error) {}

// Storages that break the rules of Change.Then.
var _ = register([]fault{
	{"what follows is lost", "then-1 then-2 then-3 then-4 then-5 then-6 then-7 then-8 then-9 then-10",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			then := c.Then
			c.Then = nil
			s, err := b.settleOne(ctx, now, c)
			if s.Err == nil && len(then) > 0 {
				s.Then = make(results, len(then))
				for i := range s.Then {
					s.Then[i].Version = 1
				}
			}
			return s, err
		})},
	{"what follows is stored though the change is refused", "then-2 then-4 then-6 then-8",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			s, err := b.settleOne(ctx, now, c)
			if s.Err != nil && len(c.Then) > 0 {
				_, _ = b.Storage.Insert(ctx, now, c.Then[:1], nil)
			}
			return s, err
		})},
	{"stored once more by a change that is repeated", "then-2",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			s, err := b.settleOne(ctx, now, c)
			if errors.Is(s.Err, storage.ErrFenced) && s.Version == c.Record.Version+1 {
				again := slices.Clone(c.Then)
				for i := range again {
					again[i].IDIsNew = true
				}
				_, _ = b.Storage.Insert(ctx, now, again, nil)
			}
			return s, err
		})},
	{"the change stays though what follows is refused", "then-4",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			return b.inTwo(ctx, now, c, func(s *storage.Settled, err error) {
				s.Version, s.Err = c.Record.Version, err
			})
		})},
	{"what follows is dropped if it is refused", "then-4",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			return b.inTwo(ctx, now, c, keepsQuiet)
		})},
	{"what follows is stored job by job", "then-4",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			s, err := b.settleOne(ctx, now, c)
			if _, full := errors.AsType[*ojs.QueueError](s.Err); full {
				_, _ = b.Storage.Insert(ctx, now, c.Then[:1], nil)
			}
			return s, err
		})},
	{"a refusal of what follows fails the call", "then-4",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			s, err := b.settleOne(ctx, now, c)
			if err == nil && errors.Is(s.Err, ojs.ErrQueueFull) {
				err = s.Err
			}
			return s, err
		})},
	{"what follows is stored before the change", "then-3",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			stored, err := b.Storage.Get(ctx, c.Record.ID)
			if len(c.Then) == 0 || err != nil || stored.CanSettle(&c.Record) != nil {
				return b.settleOne(ctx, now, c)
			}
			inserted, err := b.Storage.Insert(ctx, now, c.Then, nil)
			if err != nil {
				return storage.Settled{Version: stored.Version, Err: err}, nil
			}
			c.Then = nil
			s, err := b.settleOne(ctx, now, c)
			s.Then = inserted
			return s, err
		})},
	{"bounds of what follows are ignored", "then-3 then-4",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			c.Then = slices.Clone(c.Then)
			for i := range c.Then {
				c.Then[i].MaxDepth = 0
			}
			return b.settleOne(ctx, now, c)
		})},
	{"any change may have a Then", "then-5", func(b *broken) {
		b.settle = func(b *broken, ctx Context, now Time, changes settles, dst outcomes) (outcomes, error) {
			for _, c := range changes {
				s, err := b.inTwo(ctx, now, c, keepsQuiet)
				if err != nil {
					return dst, err
				}
				dst = append(dst, s)
			}
			return dst, nil
		}
	}},
	{"changes before one that fails the call are applied", "then-5", func(b *broken) {
		b.settle = func(b *broken, ctx Context, now Time, changes settles, dst outcomes) (outcomes, error) {
			for _, c := range changes {
				out, err := b.Storage.Settle(ctx, now, settles{c}, nil)
				if err != nil {
					return dst, err
				}
				dst = append(dst, out...)
			}
			return dst, nil
		}
	}},
	{"all changes first, and then what follows them", "then-6", func(b *broken) {
		b.settle = func(b *broken, ctx Context, now Time, changes settles, dst outcomes) (outcomes, error) {
			if err := storage.CheckThen(changes); err != nil || len(changes) < 2 {
				return b.Storage.Settle(ctx, now, changes, dst)
			}
			bare := slices.Clone(changes)
			for i := range bare {
				bare[i].Then = nil
			}
			out, err := b.Storage.Settle(ctx, now, bare, nil)
			for i, s := range out {
				if s.Err == nil && len(changes[i].Then) > 0 {
					out[i].Then, out[i].Err = b.Storage.Insert(ctx, now, changes[i].Then, nil)
				}
			}
			return append(dst, out...), err
		}
	}},
	{"results of what follows are lost", "then-1 then-2 then-3 then-4 then-6 then-7 then-9 then-10",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			s, err := b.settleOne(ctx, now, c)
			s.Then = nil
			return s, err
		})},
	{"what follows loses its meta", "then-7",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			c.Then = slices.Clone(c.Then)
			for i := range c.Then {
				c.Then[i].Record.Meta = nil
			}
			return b.settleOne(ctx, now, c)
		})},
	{"the last change of one job wins", "then-8 then-2",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			s, err := b.settleOne(ctx, now, c)
			if len(c.Then) > 0 && errors.Is(s.Err, storage.ErrFenced) {
				if out, err := b.Storage.Insert(ctx, now, c.Then, nil); err == nil {
					return storage.Settled{Version: s.Version, Then: out}, nil
				}
			}
			return s, err
		})},
	{"what follows is lost at Reopen", "then-9", func(b *broken) {
		b.kept = make(map[string]storage.Record)
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			s, err := b.settleOne(ctx, now, c)
			if s.Err == nil {
				for _, in := range c.Then {
					b.mu.Lock()
					b.kept[in.Record.ID] = in.Record
					b.mu.Unlock()
				}
			}
			return s, err
		})(b)
		b.reopen = func(b *broken) storage.Storage {
			ctx := context.Background()
			for id := range b.kept {
				r, err := b.Storage.Get(ctx, id)
				if err != nil {
					continue
				}
				r.State = ojs.StateCancelled
				_, _ = b.Storage.Settle(ctx, r.CreatedAt, settles{{Record: r}}, nil)
				_, _ = b.Storage.Delete(ctx, []string{id})
			}
			return b
		}
	}},
	{"what follows is not told", "then-10", func(b *broken) {
		following := false
		changeNotice(func(n *storage.Notice) {
			if following {
				n.Available = false
			}
		})(b)
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			following = len(c.Then) > 0
			defer func() { following = false }()
			return b.settleOne(ctx, now, c)
		})(b)
	}},
})
