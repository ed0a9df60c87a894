package sqlite

import (
	"context"
	"slices"
	"strings"
	"time"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// SetCrons implements storage.CronStore.
func (s *Storage) SetCrons(ctx context.Context, entries []storage.Cron) (versions []uint64, err error) {
	documents, err := rows.EncodeCrons(entries)
	if err != nil {
		return nil, err
	}
	versions = make([]uint64, len(entries))
	err = s.write(ctx, func(t *tx) error {
		for i := range entries {
			var err error
			if versions[i], err = t.setCron(&entries[i], documents[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return versions, nil
}

// setCron stores an entry, and returns 0 if its version is not that of the stored one.
func (t *tx) setCron(c *storage.Cron, document []byte) (uint64, error) {
	q := t.query(cronVersion, c.Name)
	var there uint64
	if q.next() {
		there = uint64(q.int64())
	}
	if err := q.close(); err != nil || there != c.Version {
		return 0, err
	}
	q = t.query(raiseCronVersion)
	q.next()
	version := q.int64()
	if err := q.close(); err != nil {
		return 0, err
	}
	if t.notice != nil {
		t.notice.Crons = true
	}
	t.written = true
	return uint64(version), t.exec(upsertCron, c.Name, version, document)
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
func (s *Storage) Crons(ctx context.Context, q storage.CronQuery) (list []storage.Cron, err error) {
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		if q.Names == nil {
			list, err = readCrons(query(conn, listCrons, q.After, q.Most()), list)
			return err
		}
		for _, name := range slices.Compact(slices.Sorted(slices.Values(q.Names))) {
			if strings.Compare(name, q.After) <= 0 || len(list) == q.Most() {
				continue
			}
			if list, err = readCrons(query(conn, selectCron, name), list); err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

// DueCrons implements storage.CronStore.
func (s *Storage) DueCrons(ctx context.Context, now time.Time, after *storage.Cron, max int) (due []storage.Cron, next time.Time, err error) {
	run, name := rows.CronPlace(after)
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		if due, err = readCrons(query(conn, dueCrons, run, name, rows.Nanos(now), max), due); err != nil {
			return err
		}
		if len(due) > 0 {
			run, name = rows.CronPlace(&due[len(due)-1])
		}
		q := query(conn, nextCron, run, name)
		if q.next() {
			next = rows.Time(q.int64())
		}
		return q.close()
	})
	return due, next, err
}

// readCrons appends the entries of a statement to a list.
func readCrons(q *statement, list []storage.Cron) ([]storage.Cron, error) {
	for q.next() {
		version := uint64(q.int64())
		c, err := rows.DecodeCron(q.blob())
		if err != nil {
			_ = q.close()
			return list, err
		}
		c.Version = version
		list = append(list, c)
	}
	return list, q.close()
}
