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

var putValuesSQL = define("putValues", `INSERT INTO {schema}.value
		SELECT u.* FROM unnest($1::text[], $2::bytea[], $3::bigint[]) u (key, data, expires) ORDER BY u.key
		ON CONFLICT (key) DO UPDATE SET data = excluded.data, expires = excluded.expires`)

var deleteValuesSQL = define("deleteValues", `DELETE FROM {schema}.value WHERE key = ANY ($1::text[])`)

var dropValuesSQL = define("dropValues", `DELETE FROM {schema}.value WHERE key = ANY (ARRAY(
		SELECT key FROM {schema}.value WHERE expires <= $1 ORDER BY expires LIMIT $2 FOR UPDATE SKIP LOCKED))`)

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
	return s.atomically(ctx, func(ctx context.Context, tx transaction, n *storage.Notice) error {
		n.Values = len(values) > 0
		if len(keys) > 0 {
			if err := tx.exec(ctx, s.sql[putValuesSQL], keys, data, expires); err != nil {
				return err
			}
		}
		if len(gone) > 0 {
			if err := tx.exec(ctx, s.sql[deleteValuesSQL], gone); err != nil {
				return err
			}
		}
		return tx.exec(ctx, s.sql[dropValuesSQL], rows.Nanos(now), 2*len(values)+10)
	})
}

// expiry is when a value expires, as its column has it.
func expiry(t time.Time) int64 {
	if t.IsZero() {
		return math.MaxInt64
	}
	return rows.Nanos(t)
}

var valuesSQL = define("values", `SELECT key, data, expires FROM {schema}.value
		WHERE key >= $1 AND key > $2 AND key < $3 AND expires > $4 ORDER BY key LIMIT $5`)

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
	err = s.in(ctx).query(ctx, s.sql[valuesSQL], args, each([]any{&v.Key, &v.Data, &expires}, func() {
		if v.Expires = (time.Time{}); expires != math.MaxInt64 {
			v.Expires = rows.Time(expires)
		}
		list = append(list, v)
		v.Data = nil // not to be written over
	}))
	return list, wrap(err)
}
