package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/insert"
)

// A change with a Then is a transaction of its own. It takes its locks in the order of an
// insert: first names and equal jobs, and the job of the change last. So it meets inserts
// of equal jobs without a deadlock.

// follows reports whether a change has a Then.
func follows(c storage.Change) bool { return len(c.Then) > 0 }

// settleThen makes a change and stores what follows it, or does neither.
func (s *Storage) settleThen(
	ctx context.Context, now time.Time, changes []storage.Change,
) ([]storage.Settled, error) {
	c := &changes[0]
	ended := c.Record
	o, err := settlingOf(now, 1, func(int) *storage.Record { return &ended })
	if err != nil {
		return nil, err
	}
	e := &o.encoded[0]
	ended.Version++
	settled := make([]storage.Settled, 1)
	for tries := 1; ; tries++ {
		err := s.atOnce(ctx, func(t *tx) {
			i := &inserter{tx: t}
			change := func() error {
				_, list := t.applyLocked(o)
				i.ended = append(i.ended, list...)
				return nil
			}
			then := fail.Must(insert.Then(i, now, &ended, change, c.Then))
			last := &then[len(then)-1]
			settled[0] = storage.Settled{Version: uint64(e.Version), Then: then, Moved: last.Moved}
			last.Moved = nil
			if logged(*c) {
				t.tune()
			}
			t.addLogs(changes, settled)
			s.noteEnd(&t.notice, e)
		})
		if isCode(err, uniqueViolation) { // in a transaction that does not see whose id it is
			err = duplicate(err, c.Then)
		}
		missed := errors.Is(err, errUnchanged) // while another statement changed its row
		if !missed && !insert.Refused(err) {
			return settled, err
		}
		// It is refused for what is stored of its job, or else for what was to follow it.
		looked := fail.Caught(func() {
			f, ok := s.in(ctx).find([]string{e.ID})[e.ID]
			settled[0] = storage.Settled{Version: uint64(f.version), Err: f.refuses(ok, e)}
		})
		switch {
		case looked != nil:
			return nil, looked
		case settled[0].Err != nil:
			return settled, nil
		case !missed:
			settled[0].Err = err
			return settled, nil
		case tries == retries:
			return nil, err
		}
	}
}
