package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/ojsengine/ojs/storage"
)

// SetCron implements storage.CronStore.
func (s *Storage) SetCron(ctx context.Context, c storage.Cron) (uint64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	if s.crons[c.Name].Version != c.Version {
		return 0, storage.ErrFenced
	}
	c = c.Copy()
	c.Version++
	s.crons[c.Name] = c
	s.notice.Crons = s.heard
	return c.Version, nil
}

// DeleteCron implements storage.CronStore.
func (s *Storage) DeleteCron(ctx context.Context, name string) (bool, error) {
	if err := s.enter(ctx); err != nil {
		return false, err
	}
	defer s.leave()
	_, ok := s.crons[name]
	delete(s.crons, name)
	s.notice.Crons = s.heard && ok
	return ok, nil
}

// Crons implements storage.CronStore.
func (s *Storage) Crons(ctx context.Context) ([]storage.Cron, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	list := make([]storage.Cron, 0, len(s.crons))
	for _, c := range s.crons {
		list = append(list, c.Copy())
	}
	slices.SortFunc(list, func(a, b storage.Cron) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}
