package sqlite

import (
	"context"
	"math"
	"time"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// PutValues implements storage.Storage.
func (s *Storage) PutValues(ctx context.Context, now time.Time, values []storage.Value) error {
	if err := storage.CheckValues(values); err != nil {
		return err
	}
	return s.write(ctx, func(t *tx) error {
		for i := range values {
			v := &values[i]
			var err error
			if len(v.Data) == 0 {
				err = t.exec(deleteValue, v.Key)
			} else {
				err = t.exec(upsertValue, v.Key, v.Data, expiry(v.Expires))
			}
			if err != nil {
				return err
			}
		}
		if t.notice != nil {
			t.notice.Values = len(values) > 0
		}
		t.written = t.written || len(values) > 0
		return t.dropExpired(now, 2*len(values)+10)
	})
}

// dropExpired deletes some of the values that have expired.
func (t *tx) dropExpired(now time.Time, most int) error {
	var keys []string
	q := t.query(expiredValues, rows.Nanos(now), most)
	for q.next() {
		keys = append(keys, q.text())
	}
	err := q.close()
	for i := 0; i < len(keys) && err == nil; i++ {
		err = t.exec(deleteValue, keys[i])
	}
	return err
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
	if limit <= 0 || limit > storage.MaxValues {
		limit = storage.MaxValues
	}
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		list = nil
		q := query(conn, selectValues, prefix, after, prefix+"\x7f", rows.Nanos(now), limit)
		for q.next() {
			v := storage.Value{Key: q.text(), Data: q.blob()}
			if ns := q.int64(); ns != math.MaxInt64 {
				v.Expires = rows.Time(ns)
			}
			list = append(list, v)
		}
		return q.close()
	})
	return list, err
}
