package postgres

import (
	"context"

	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// SetCron implements storage.CronStore.
func (s *Storage) SetCron(ctx context.Context, c storage.Cron) (version uint64, err error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.RUnlock()
	entry, err := rows.EncodeCron(&c)
	if err != nil {
		return 0, err
	}
	sql, args := s.sql.setCron, []any{c.Name, int64(c.Version), entry}
	if c.Version == 0 {
		sql, args = s.sql.addCron, []any{c.Name, entry}
	}
	tag, err := s.exec(ctx, sql, args...)
	if err != nil {
		return 0, wrap(err)
	}
	if tag.RowsAffected() == 0 {
		return 0, storage.ErrFenced
	}
	s.tell(ctx, &storage.Notice{Crons: true})
	return c.Version + 1, nil
}

// DeleteCron implements storage.CronStore.
func (s *Storage) DeleteCron(ctx context.Context, name string) (bool, error) {
	if err := s.enter(ctx); err != nil {
		return false, err
	}
	defer s.mu.RUnlock()
	tag, err := s.exec(ctx, s.sql.deleteCron, name)
	if err != nil || tag.RowsAffected() == 0 {
		return false, wrap(err)
	}
	s.tell(ctx, &storage.Notice{Crons: true})
	return true, nil
}

// Crons implements storage.CronStore.
func (s *Storage) Crons(ctx context.Context) (list []storage.Cron, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	var version int64
	var entry []byte
	err = s.read(ctx, s.sql.crons, []any{&version, &entry}, func() error {
		c, err := rows.DecodeCron(entry)
		c.Version = uint64(version)
		list = append(list, c)
		return err
	})
	return list, wrap(err)
}
