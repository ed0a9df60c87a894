package postgres

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Delete implements storage.Storage.
func (s *Storage) Delete(ctx context.Context, ids []string) (n int, err error) {
	if err := s.enterApart(ctx); err != nil {
		return 0, err
	}
	defer s.mu.RUnlock()
	if ids = sayables(ids); len(ids) == 0 {
		return 0, nil
	}
	var held string
	var state int16
	var some bool
	for moved := int64(1); moved > 0; { // by others while the statement waited for them
		err = again(func() error {
			return tuned{s}.query(ctx, s.sql.remove, []any{ids}, one(&some, &n, &held, &state, &moved))
		})
		if err != nil {
			return 0, wrap(err)
		}
	}
	if held != "" {
		return 0, &ojs.TransitionError{ID: held, From: rows.State(int(state)), To: "deleted"}
	}
	return n, nil
}

// releases is how many kept jobs one Prune releases when their time has come. It bounds
// the time that a Prune takes. It is far above what engines delete in one Prune, so
// releasing keeps up.
const releases = 2000

// Prune implements storage.Storage. Jobs that are kept are neither in the index that it
// goes by nor among those it counts: a job becomes one of the others when it is released.
func (s *Storage) Prune(ctx context.Context, p storage.Prune) (out storage.Pruned, err error) {
	if err := s.enter(ctx); err != nil {
		return out, err
	}
	defer s.mu.RUnlock()
	states := []int16{rows.Completed, rows.Cancelled, rows.Discarded}
	if p.DeadLetters {
		states = []int16{rows.Discarded}
	}
	if len(p.States) > 0 {
		asked := rows.Codes(p.States)
		states = slices.DeleteFunc(states, func(s int16) bool { return !slices.Contains(asked, int(s)) })
	}
	if len(states) == 0 {
		return out, nil
	}
	if err := s.release(ctx, p.Now); err != nil {
		return out, wrap(err)
	}
	spare := int64(math.MaxInt64)
	if !p.Spare.IsZero() {
		spare = rows.Nanos(p.Spare)
	}
	var oldest *int64
	err = again(func() error {
		var some bool
		args := []any{states, p.DeadLetters, rows.Nanos(p.Before), p.Beyond, min(p.Max, maxRows), spare}
		return tuned{s}.query(ctx, s.sql.prune, args, one(&some, &out.IDs, &out.Left, &oldest))
	})
	if err != nil {
		return storage.Pruned{}, wrap(err)
	}
	if oldest != nil {
		out.Oldest = rows.Time(*oldest)
	}
	return out, nil
}

// release ends the keeping of each job that is kept until now at the latest, but keeps
// the job on if its workflow keeps it. If the clock has gone back, it keeps jobs again
// that a later time has released. Its statements are transactions of their own, so
// that the statement that prunes sees their effect. A job that it has not looked at is
// not released: a call that meets a lock of another leaves the job to that.
func (s *Storage) release(ctx context.Context, now time.Time) error {
	ns := rows.Nanos(now)
	var over, members, until []int64
	var keepers []string
	var seq, finished int64
	var job []byte
	err := again(func() error {
		over, members, keepers, until = nil, nil, nil, nil
		into := []any{&seq, &finished, &job}
		return tuned{s}.query(ctx, s.sql.keptUntil, []any{ns, releases}, each(into, func() {
			over = append(over, seq)
			if keeper := rows.Keeper(job); keeper != "" && sayable(keeper) {
				members, keepers = append(members, seq), append(keepers, keeper)
				until = append(until, rows.Nanos(storage.KeptOn(now, rows.Time(finished))))
			}
		}))
	})
	if err != nil || len(over) == 0 {
		return err
	}
	if len(members) > 0 {
		args := []any{ns, members, keepers, until}
		if err := again(func() error {
			return tuned{s}.query(ctx, s.sql.keepOn, args, each([]any{&seq}, func() {}))
		}); err != nil {
			return err
		}
	}
	return again(func() error {
		return tuned{s}.query(ctx, s.sql.release, []any{ns, over}, each(nil, func() {}))
	})
}
