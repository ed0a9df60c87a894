package memory

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/ojsengine/ojs/internal/sorted"
	"github.com/ojsengine/ojs/storage"
)

// values are the values of a storage. Storage.mu guards them.
type values struct {
	byKey sorted.Map[*storage.Value]
	due   sorted.Map[*storage.Value] // values that expire, by expiryKey
}

// expiryKey orders values by when they expire.
func expiryKey(v *storage.Value) string { return timeKey(v.Expires) + v.Key }

// PutValues implements storage.Storage.
func (s *Storage) PutValues(ctx context.Context, now time.Time, list []storage.Value) error {
	if err := storage.CheckValues(list); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	for i := range list {
		s.values.put(&list[i])
	}
	var expired []*storage.Value
	for _, v := range s.values.due.From("") {
		if !v.Expired(now) || len(expired) == 2*len(list)+10 {
			break
		}
		expired = append(expired, v)
	}
	for _, v := range expired {
		s.values.remove(v.Key)
	}
	s.notice.Values = s.heard && len(list) > 0
	return nil
}

func (vs *values) put(v *storage.Value) {
	vs.remove(v.Key)
	if len(v.Data) == 0 {
		return
	}
	kept := &storage.Value{Key: strings.Clone(v.Key), Data: bytes.Clone(v.Data), Expires: v.Expires}
	vs.byKey.Set(kept.Key, kept)
	if !kept.Expires.IsZero() {
		vs.due.Set(expiryKey(kept), kept)
	}
}

func (vs *values) remove(key string) {
	if v, there := vs.byKey.Get(key); there {
		vs.byKey.Delete(key)
		vs.due.Delete(expiryKey(v))
	}
}

// Values implements storage.Storage.
func (s *Storage) Values(
	ctx context.Context, now time.Time, prefix, after string, limit int,
) ([]storage.Value, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if limit <= 0 || limit > storage.MaxValues {
		limit = storage.MaxValues
	}
	from := prefix
	if after >= prefix {
		from = after + "\x00"
	}
	var list []storage.Value
	for key, v := range s.values.byKey.From(from) {
		if !strings.HasPrefix(key, prefix) || len(list) == limit {
			break
		}
		if !v.Expired(now) {
			list = append(list, storage.Value{Key: key, Data: bytes.Clone(v.Data), Expires: v.Expires})
		}
	}
	return list, nil
}
