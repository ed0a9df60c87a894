package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Claim implements storage.Storage.
func (s *Storage) Claim(ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
	if err := s.enter(ctx); err != nil {
		return dst, err
	}
	defer s.mu.RUnlock()
	if c.Max <= 0 {
		return dst, nil
	}
	most := min(c.Max, maxRows)
	if c.SkipKeys.Len() > 0 {
		claimed, err := s.claimPast(ctx, rows.Nanos(now), &c, most)
		if err != nil && len(claimed) == 0 {
			return dst, wrap(err)
		}
		return append(dst, claimed...), nil
	}
	skip := []string{} // keys of which this claim has a job
	var types []string // nil: all
	if len(c.Types) > 0 {
		types = c.Types
	}
	for left := most; left > 0; {
		args := []any{rows.Nanos(now), left, c.Worker, types, skip}
		sql := s.sql.claimAll
		if s.paused.Load() {
			sql = s.sql.claimAround
		}
		if len(c.Queues) > 0 {
			sql, args = s.sql.claim, append(args, c.Queues)
		}
		var claimed []stored
		err := again(func() (err error) {
			claimed, err = selectRows(ctx, tuned{s}, true, sql, args...)
			return err
		})
		if err != nil && left == most {
			return dst, wrap(err)
		}
		slices.SortFunc(claimed, func(a, b stored) int { return cmp.Compare(a.ord, b.ord) })
		first := len(dst)
		dst = s.decodeClaimed(ctx, claimed, dst)
		got := len(dst) - first
		left -= got
		// Of the first jobs in order some may have been left out, since another one had
		// their key: what is behind them comes next.
		before := len(skip)
		for i := range dst[first:] {
			if limit := dst[first+i].RateLimit; limit != nil && limit.Key != "" {
				skip = append(skip[:len(skip):len(skip)], limit.Key)
			}
		}
		if len(skip) == before && got == len(claimed) {
			break
		}
	}
	return dst, nil
}

// decodeClaimed appends the jobs that a statement has claimed to dst. It moves jobs that
// do not decode to the quarantine. If that fails, they stay active until their leases
// expire.
func (s *Storage) decodeClaimed(ctx context.Context, claimed []stored, dst []storage.Record) []storage.Record {
	var met []bad
	for i := range claimed {
		rec, err := rows.Decode(&claimed[i].Columns)
		if err != nil {
			met = append(met, bad{claimed[i], err})
			continue
		}
		dst = append(dst, rec)
	}
	_ = s.setAsideRead(ctx, true, met)
	return dst
}
