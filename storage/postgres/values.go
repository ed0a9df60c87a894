package postgres

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// PutValues implements storage.Storage.
func (s *Storage) PutValues(ctx context.Context, now time.Time, values []storage.Value) error {
	if err := storage.CheckValues(values); err != nil {
		return err
	}
	last := make(map[string]*storage.Value, len(values)) // of each key
	for i := range values {
		last[values[i].Key] = &values[i]
	}
	var keys, gone []string
	var data [][]byte
	var expires []int64
	for _, key := range slices.Sorted(maps.Keys(last)) { // all calls lock in the same order
		if v := last[key]; len(v.Data) > 0 {
			keys, data, expires = append(keys, key), append(data, v.Data), append(expires, expiry(v.Expires))
		} else {
			gone = append(gone, key)
		}
	}
	return s.atomically(ctx, func(_ context.Context, tx transaction, n *storage.Notice) error {
		n.Values = len(values) > 0
		if len(keys) > 0 {
			if err := tx.exec(ctx, s.sql.putValues, keys, data, expires); err != nil {
				return err
			}
		}
		if len(gone) > 0 {
			if err := tx.exec(ctx, s.sql.deleteValues, gone); err != nil {
				return err
			}
		}
		return tx.exec(ctx, s.sql.dropValues, rows.Nanos(now), 2*len(values)+10)
	})
}

// expiry is when a value expires, as its column has it.
func expiry(t time.Time) int64 {
	if t.IsZero() {
		return math.MaxInt64
	}
	return rows.Nanos(t)
}

// Values implements storage.Storage.
func (s *Storage) Values(
	ctx context.Context, now time.Time, prefix, after string, limit int,
) (list []storage.Value, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	if !sayable(prefix) || !sayable(after) { // no key begins or comes so
		return nil, nil
	}
	if limit <= 0 || limit > storage.MaxValues {
		limit = storage.MaxValues
	}
	var v storage.Value
	var expires int64
	args := []any{prefix, after, prefix + "\x7f", rows.Nanos(now), limit}
	err = s.in(ctx).query(ctx, s.sql.values, args, each([]any{&v.Key, &v.Data, &expires}, func() {
		if v.Expires = (time.Time{}); expires != math.MaxInt64 {
			v.Expires = rows.Time(expires)
		}
		list = append(list, v)
		v.Data = nil // not to be written over
	}))
	return list, wrap(err)
}
