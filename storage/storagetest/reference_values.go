package storagetest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs/storage"
)

// PutValues implements storage.Storage.
func (s *Reference) PutValues(ctx context.Context, now time.Time, values []storage.Value) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if err := storage.CheckValues(values); err != nil {
		return err
	}
	maps.DeleteFunc(s.values, func(_ string, v storage.Value) bool { return v.Expired(now) })
	for _, v := range values {
		if v.Data = slices.Clone(v.Data); len(v.Data) == 0 {
			delete(s.values, v.Key)
		} else {
			s.values[v.Key] = v
		}
	}
	return nil
}

// Values implements storage.Storage.
func (s *Reference) Values(ctx context.Context, now time.Time, prefix, after string,
	limit int) (list []storage.Value, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if limit <= 0 || limit > storage.MaxValues {
		limit = storage.MaxValues
	}
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		v := s.values[key]
		if strings.HasPrefix(key, prefix) && key > after && !v.Expired(now) && len(list) < limit {
			v.Data = slices.Clone(v.Data)
			list = append(list, v)
		}
	}
	return list, nil
}

// Logs implements storage.Storage.
func (s *Reference) Logs(ctx context.Context, id string) (list []storage.Log, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if j := s.find(id); j != nil {
		for _, l := range j.logs {
			list = append(list, storage.Log{Version: l.Version, Data: slices.Clone(l.Data)})
		}
	}
	return list, nil
}
