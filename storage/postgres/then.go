package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/insert"
)

// A change with a Then is a transaction of its own. It takes its locks in the order of an
// insert: first names and equal jobs, and the job of the change last. So it meets inserts
// of equal jobs without a deadlock.

// firstThen returns the index of the first change with a Then, or how many changes there
// are.
func firstThen(changes []storage.Change) int {
	for i := range changes {
		if len(changes[i].Then) > 0 {
			return i
		}
	}
	return len(changes)
}

// settleParts is Settle of changes of which some have a Then: those that have one, and
// the changes between them, each in a step of its own.
func (s *Storage) settleParts(
	ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled,
) ([]storage.Settled, error) {
	for len(changes) > 0 {
		if n := firstThen(changes); n > 0 {
			var err error
			if dst, err = s.Settle(ctx, now, changes[:n], dst); err != nil {
				return dst, err
			}
			changes = changes[n:]
			continue
		}
		settled, err := s.settleThen(ctx, now, &changes[0])
		if err != nil {
			return dst, err
		}
		dst, changes = append(dst, settled), changes[1:]
	}
	return dst, nil
}

// errUnsettled undoes the transaction of a change that is refused.
var errUnsettled = errors.New("ojs: postgres: the change is refused")

// settleThen makes a change and stores what follows it, or does neither.
func (s *Storage) settleThen(
	ctx context.Context, now time.Time, c *storage.Change,
) (settled storage.Settled, err error) {
	if err := s.enter(ctx); err != nil {
		return storage.Settled{}, err
	}
	defer s.mu.RUnlock()
	for range retries {
		if settled, err = s.tryThen(ctx, now, c); err != errUnsettled {
			return settled, err
		}
	}
	return settled,
		fmt.Errorf("ojs: postgres: job %s does not change though nothing is in its way", c.Record.ID)
}

// tryThen is settleThen. It returns errUnsettled if another statement that changed the
// row of the job meanwhile, without raising its version, made it miss the row.
func (s *Storage) tryThen(
	ctx context.Context, now time.Time, c *storage.Change,
) (settled storage.Settled, err error) {
	ended := c.Record
	o, err := settlingOf(now, 1, func(int) *storage.Record { return &ended })
	if err != nil {
		return storage.Settled{}, err
	}
	e := o.encoded[0]
	ended.Version++
	err = s.atOnce(ctx, func(t *tx) {
		i := t.inserter()
		change := func() error {
			applied, list := t.applyCounting(o)
			if applied[0] == 0 {
				return errUnsettled
			}
			i.ended = append(i.ended, list...)
			return nil
		}
		settled = storage.Settled{Version: uint64(e.Version)}
		settled.Then = fail.Must(insert.Then(i, now, &ended, change, c.Then))
		last := &settled.Then[len(settled.Then)-1]
		settled.Moved, last.Moved = last.Moved, nil
		s.noteEnd(&t.notice, &e)
	})
	if isCode(err, uniqueViolation) { // in a transaction that does not see whose id it is
		err = duplicate(err, c.Then)
	}
	switch {
	case err == nil:
		return settled, nil
	case errors.Is(err, errUnsettled), insert.Refused(err):
		return s.unsettled(ctx, &e, err)
	}
	return storage.Settled{}, wrap(err)
}

// unsettled says why a change was refused: for what is stored of its job, or else for
// what was to follow it.
func (s *Storage) unsettled(ctx context.Context, e *written, refused error) (storage.Settled, error) {
	var there map[string]found
	if err := fail.Caught(func() { there = s.in(ctx).find([]string{e.ID}) }); err != nil {
		return storage.Settled{}, wrap(err)
	}
	f, ok := there[e.ID]
	settled := storage.Settled{Version: uint64(f.version), Err: f.refuses(ok, e)}
	if settled.Err == nil {
		if errors.Is(refused, errUnsettled) {
			return settled, errUnsettled
		}
		settled.Err = refused
	}
	return settled, nil
}
