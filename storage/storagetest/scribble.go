package storagetest

import (
	"context"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/storage"
)

// scribbler is the storage of every case and of Random: a storage that shares memory with
// its callers answers wrongly through it. Each call gets copies of what it is given, and
// its caller copies of what it returns. As soon as the call returns, the scribbler
// overwrites what the storage has seen of either. Key sets are not copied: engines keep
// them, and storages read them in a call only.
type scribbler struct{ storage.Storage }

func scribble(s storage.Storage) *scribbler { return &scribbler{s} }

// Unwrap returns the storage itself, for abilities that are not scribbled over.
func (s *scribbler) Unwrap() storage.Storage { return s.Storage }

// unscribbled returns the storage that s scribbles over, or s.
func unscribbled(s storage.Storage) storage.Storage {
	if w, ok := s.(*scribbler); ok {
		return w.Storage
	}
	return s
}

// ability finds an optional ability of a storage. Of a storage that is opened again
// between calls it is that of the storage that is open at the call.
func ability[A any](s storage.Storage) (a A, ok bool) {
	s = unscribbled(s)
	if r, again := s.(*reopened); again {
		if _, ok = storage.As[A](r.current()); !ok {
			return a, false
		}
		a, ok = any(r).(A)
		return a, ok
	}
	return storage.As[A](s)
}

// quarantiner, notifier and settleClaimer find the abilities of a storage. settleClaimer
// scribbles if s does.

func quarantiner(s storage.Storage) (storage.Quarantiner, bool) {
	return ability[storage.Quarantiner](s)
}

func notifier(s storage.Storage) (storage.Notifier, bool) {
	return storage.As[storage.Notifier](unscribbled(s))
}

func settleClaimer(s storage.Storage) (storage.SettleClaimer, bool) {
	sc, ok := unscribbled(s).(storage.SettleClaimer)
	if r, again := unscribbled(s).(*reopened); again {
		_, ok = r.current().(storage.SettleClaimer)
	}
	if _, scribbles := s.(*scribbler); ok && scribbles {
		return stepScribbler{sc}, true
	}
	return sc, ok
}

// given returns a copy of what a call is given, and a function that scribbles over the
// copy once the call has returned.
func given[T any](v T) (T, func()) {
	c := fields.Clone(v)
	return c, func() { fields.Scribble(&c) }
}

// givenClaim is given of a claim, whose Limits receive a copy of what they have done.
func givenClaim(c storage.Claim) (storage.Claim, func()) {
	to := c.Limits
	c, done := given(c)
	return c, func() {
		if to != nil {
			*to = fields.Clone(*c.Limits)
		}
		done()
	}
}

// returned replaces the elements of a result by copies of them, and scribbles over what
// they were.
func returned[E any](list []E) {
	for i := range list {
		c := fields.Clone(list[i])
		fields.Scribble(&list[i])
		list[i] = c
	}
}

// only returns a copy of a result and scribbles over what it was.
func only[T any](v T) T {
	c := fields.Clone(v)
	fields.Scribble(&v)
	return c
}

func (s *scribbler) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) ([]storage.Inserted, error) {
	batch, done := given(batch)
	defer done()
	n := len(dst)
	dst, err := s.Storage.Insert(ctx, now, batch, dst)
	returned(dst[min(n, len(dst)):])
	return dst, err
}

func (s *scribbler) Claim(ctx context.Context, now time.Time, c storage.Claim,
	dst []storage.Record) ([]storage.Record, error) {
	c, done := givenClaim(c)
	defer done()
	n := len(dst)
	dst, err := s.Storage.Claim(ctx, now, c, dst)
	returned(dst[min(n, len(dst)):])
	return dst, err
}

func (s *scribbler) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	changes, done := given(changes)
	defer done()
	n := len(dst)
	dst, err := s.Storage.Settle(ctx, now, changes, dst)
	for i := range dst[min(n, len(dst)):] {
		returned(dst[n+i].Then)
		returned(dst[n+i].Moved)
	}
	return dst, err
}

func (s *scribbler) Extend(ctx context.Context, now time.Time,
	extensions []storage.Extension) ([]string, error) {
	extensions, done := given(extensions)
	defer done()
	lost, err := s.Storage.Extend(ctx, now, extensions)
	return only(lost), err
}

func (s *scribbler) Due(ctx context.Context, now time.Time, max int,
	buf []storage.Record) (storage.Due, error) {
	d, err := s.Storage.Due(ctx, now, max, buf)
	returned(d.Promoted)
	returned(d.Expired)
	returned(d.Stalled)
	returned(d.Moved)
	return d, err
}

func (s *scribbler) Get(ctx context.Context, id string) (storage.Record, error) {
	r, err := s.Storage.Get(ctx, id)
	return only(r), err
}

func (s *scribbler) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	q, done := given(q)
	defer done()
	p, err := s.Storage.List(ctx, q)
	return only(p), err
}

func (s *scribbler) ClaimedBy(ctx context.Context, worker string) ([]storage.Record, error) {
	list, err := s.Storage.ClaimedBy(ctx, worker)
	return only(list), err
}

func (s *scribbler) Counts(ctx context.Context) ([]storage.Count, error) {
	list, err := s.Storage.Counts(ctx)
	return only(list), err
}

func (s *scribbler) Delete(ctx context.Context, ids []string) (int, error) {
	ids, done := given(ids)
	defer done()
	return s.Storage.Delete(ctx, ids)
}

func (s *scribbler) Prune(ctx context.Context, p storage.Prune) (storage.Pruned, error) {
	p, done := given(p)
	defer done()
	out, err := s.Storage.Prune(ctx, p)
	return only(out), err
}

func (s *scribbler) QueueStates(ctx context.Context) (map[string]ojs.QueueState, error) {
	m, err := s.Storage.QueueStates(ctx)
	return only(m), err
}

func (s *scribbler) PutDocuments(ctx context.Context, kind storage.Kind,
	list []storage.Document) ([]uint64, error) {
	list, done := given(list)
	defer done()
	versions, err := s.Storage.PutDocuments(ctx, kind, list)
	return only(versions), err
}

func (s *scribbler) Documents(ctx context.Context, kind storage.Kind,
	q storage.DocumentQuery) ([]storage.Document, error) {
	q, done := given(q)
	defer done()
	list, err := s.Storage.Documents(ctx, kind, q)
	return only(list), err
}

func (s *scribbler) DueDocuments(ctx context.Context, kind storage.Kind, now time.Time,
	after *storage.Document, max int) ([]storage.Document, time.Time, error) {
	after, done := given(after)
	defer done()
	due, next, err := s.Storage.DueDocuments(ctx, kind, now, after, max)
	return only(due), next, err
}

func (s *scribbler) CancelAll(ctx context.Context, now time.Time, ids []string) (
	cancelled, moved []storage.Record, err error) {
	ids, done := given(ids)
	defer done()
	cancelled, moved, err = s.Storage.CancelAll(ctx, now, ids)
	returned(cancelled)
	returned(moved)
	return cancelled, moved, err
}

func (s *scribbler) Revive(ctx context.Context, now time.Time, batch []storage.Insert) (
	[]storage.Record, error) {
	batch, done := given(batch)
	defer done()
	moved, err := s.Storage.Revive(ctx, now, batch)
	returned(moved)
	return moved, err
}

func (s *scribbler) Logs(ctx context.Context, id string) ([]storage.Log, error) {
	list, err := s.Storage.Logs(ctx, id)
	return only(list), err
}

type stepScribbler struct{ storage.SettleClaimer }

func (s stepScribbler) SettleAndClaim(ctx context.Context, now time.Time, to []*storage.Record,
	dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
	to, settled := given(to)
	defer settled()
	c, claimed := givenClaim(c)
	defer claimed()
	before := len(dst)
	dst, n, err := s.SettleClaimer.SettleAndClaim(ctx, now, to, dst, c, into)
	for i := range dst[min(before, len(dst)):] {
		returned(dst[before+i].Moved)
	}
	for _, r := range into[:max(0, min(n, len(into)))] {
		c := fields.Clone(*r)
		fields.Scribble(r)
		*r = c
	}
	return dst, n, err
}

func (s stepScribbler) Unclaim(ctx context.Context, now time.Time, held []storage.Held) (int, error) {
	held, done := given(held)
	defer done()
	return s.SettleClaimer.Unclaim(ctx, now, held)
}
