package memory

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage"
)

// values are the values of a storage, by their keys. The storage's lock guards them.
type values struct {
	byKey  map[string]*value
	sorted []string // keys, in order, some of values that have been deleted
	fresh  []string // keys that are not in sorted yet
	due    scheduler.Heap[*value]
}

type value struct {
	storage.Value
	expires scheduler.Item[*value] // in due, if it ever does
}

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
	for range 2*len(list) + 10 {
		it, due := s.values.due.PopDue(now)
		if !due {
			break
		}
		delete(s.values.byKey, it.Value.Key)
	}
	s.notice.Values = s.heard && len(list) > 0
	return nil
}

func (vs *values) put(v *storage.Value) {
	old := vs.byKey[v.Key]
	if old != nil {
		vs.due.Remove(&old.expires)
	}
	if len(v.Data) == 0 {
		delete(vs.byKey, v.Key)
		return
	}
	if old == nil {
		if vs.byKey == nil {
			vs.byKey = make(map[string]*value)
		}
		old = new(value)
		old.Key, old.expires.Value = strings.Clone(v.Key), old
		vs.byKey[old.Key] = old
		vs.fresh = append(vs.fresh, old.Key)
	}
	old.Data, old.Expires = bytes.Clone(v.Data), v.Expires
	if !v.Expires.IsZero() {
		vs.due.Push(&old.expires, v.Expires)
	}
}

// keys returns the keys in order, some of values that have been deleted.
func (vs *values) keys() []string {
	if len(vs.fresh) > 0 || len(vs.sorted) > 2*len(vs.byKey)+100 {
		keys := append(vs.sorted, vs.fresh...)
		vs.fresh = nil
		keys = slices.DeleteFunc(keys, func(key string) bool { return vs.byKey[key] == nil })
		slices.Sort(keys)
		vs.sorted = slices.Compact(keys)
	}
	return vs.sorted
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
	keys := s.values.keys()
	at, there := slices.BinarySearch(keys, max(prefix, after))
	if there && after >= prefix {
		at++
	}
	var list []storage.Value
	for ; at < len(keys) && strings.HasPrefix(keys[at], prefix) && len(list) < limit; at++ {
		if v := s.values.byKey[keys[at]]; v != nil && !v.Expired(now) {
			list = append(list, storage.Value{Key: v.Key, Data: bytes.Clone(v.Data), Expires: v.Expires})
		}
	}
	return list, nil
}
