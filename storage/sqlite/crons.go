package sqlite

import (
	"context"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// SetCron implements storage.CronStore.
func (s *Storage) SetCron(ctx context.Context, c storage.Cron) (version uint64, err error) {
	err = s.write(ctx, func(t *tx) error {
		q := t.query(cronVersion, c.Name)
		var there uint64
		if q.next() {
			there = uint64(q.int64())
		}
		if err := q.close(); err != nil {
			return err
		}
		if there != c.Version {
			return storage.ErrFenced
		}
		version = c.Version + 1
		entry, err := rows.EncodeCron(&c)
		if err != nil {
			return err
		}
		if t.notice != nil {
			t.notice.Crons = true
		}
		t.written = true
		return t.exec(upsertCron, c.Name, int64(version), entry)
	})
	if err != nil {
		return 0, err
	}
	return version, nil
}

// DeleteCron implements storage.CronStore.
func (s *Storage) DeleteCron(ctx context.Context, name string) (deleted bool, err error) {
	err = s.write(ctx, func(t *tx) error {
		t.written = true
		if err := t.exec(deleteCron, name); err != nil {
			return err
		}
		deleted = t.conn.Changes() > 0
		if t.notice != nil {
			t.notice.Crons = deleted
		}
		return nil
	})
	return deleted, err
}

// Crons implements storage.CronStore.
func (s *Storage) Crons(ctx context.Context) (list []storage.Cron, err error) {
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		q := query(conn, selectCrons)
		for q.next() {
			version := uint64(q.int64())
			c, err := rows.DecodeCron(q.blob())
			if err != nil {
				_ = q.close()
				return err
			}
			c.Version = version
			list = append(list, c)
		}
		return q.close()
	})
	return list, err
}
