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
	skip := c.SkipKeys
	if skip == nil {
		skip = []string{}
	}
	var types []string // nil: all
	if len(c.Types) > 0 {
		types = c.Types
	}
	args := []any{rows.Nanos(now), c.Max, c.Worker, types, skip}
	sql := s.sql.claimAll
	if len(c.Queues) > 0 {
		sql, args = s.sql.claim, append(args, c.Queues)
	}
	var claimed []stored
	err := again(func() (err error) {
		claimed, err = selectRows(ctx, tuned{s}, true, sql, args...)
		return err
	})
	if err != nil {
		return dst, wrap(err)
	}
	slices.SortFunc(claimed, func(a, b stored) int { return cmp.Compare(a.ord, b.ord) })
	return decodeAll(claimed, dst)
}
