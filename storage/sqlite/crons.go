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

// SetCrons implements storage.Storage.
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

// DeleteCron implements storage.Storage.
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

// Crons implements storage.Storage.
func (s *Storage) Crons(ctx context.Context, q storage.CronQuery) ([]storage.Cron, error) {
	return s.readCrons(ctx, func(r *cronReader) error {
		if q.Names == nil {
			return r.read(listCrons, q.After, q.Most())
		}
		for _, name := range slices.Compact(slices.Sorted(slices.Values(q.Names))) {
			if strings.Compare(name, q.After) <= 0 || len(r.list) == q.Most() {
				continue
			}
			if err := r.read(selectCron, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// DueCrons implements storage.Storage.
func (s *Storage) DueCrons(ctx context.Context, now time.Time, after *storage.Cron,
	max int) (due []storage.Cron, next time.Time, err error) {
	due, err = s.readCrons(ctx, func(r *cronReader) error {
		run, name := rows.CronPlace(after)
		if err := r.read(dueCrons, run, name, rows.Nanos(now), max); err != nil {
			return err
		}
		if len(r.list) > 0 {
			run, name = rows.CronPlace(&r.list[len(r.list)-1])
		}
		next = time.Time{}
		q := query(r.conn, nextCron, run, name)
		if q.next() {
			next = rows.Time(q.int64())
		}
		return q.close()
	})
	return due, next, err
}

// cronReader reads entries, and keeps apart those that do not decode.
type cronReader struct {
	conn *zombiezen.Conn
	list []storage.Cron
	bad  []named
}

func (r *cronReader) read(sql string, args ...any) error {
	q := query(r.conn, sql, args...)
	for q.next() {
		name, version := q.text(), q.int64()
		c, err := rows.DecodeCron(name, version, q.blob())
		if err != nil {
			r.bad = append(r.bad, named{storage.KindCron, name, version, err})
			continue
		}
		r.list = append(r.list, c)
	}
	return q.close()
}

// readCrons reads entries, again if it has to set some aside, since others come in their
// places.
func (s *Storage) readCrons(ctx context.Context, f func(*cronReader) error) ([]storage.Cron, error) {
	for {
		var r cronReader
		err := s.read(ctx, func(conn *zombiezen.Conn) error {
			r = cronReader{conn: conn}
			return f(&r)
		})
		if err != nil || len(r.bad) == 0 {
			return r.list, err
		}
		if err := s.setAsideNamed(ctx, r.bad); err != nil {
			return nil, err
		}
	}
}
