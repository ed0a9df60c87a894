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
		return decodeAll(claimed, dst)
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
		if dst, err = decodeAll(claimed, dst); err != nil {
			return dst, err
		}
		left -= len(claimed)
		// Of the first jobs in order some may have been left out, since another one had their key: what is behind them comes next.
		before := len(skip)
		for i := range claimed {
			if key := claimed[i].RateKey; key != "" {
				skip = append(skip[:len(skip):len(skip)], key)
			}
		}
		if len(skip) == before {
			break
		}
	}
	return dst, nil
}
