package storagetest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs/storage"
)

// of are the documents of a kind, by their names.
func (s *Reference) of(kind storage.Kind) map[string]storage.Document {
	if s.documents[kind] == nil {
		s.documents[kind] = make(map[string]storage.Document)
	}
	return s.documents[kind]
}

// PutDocuments implements storage.Storage.
func (s *Reference) PutDocuments(ctx context.Context, kind storage.Kind,
	list []storage.Document) ([]uint64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	stored := s.of(kind)
	versions := make([]uint64, len(list))
	for i := range list {
		d, was := list[i].Copy(), stored[list[i].Name].Version
		if d.Version != storage.AnyVersion && d.Version != was {
			continue
		}
		if len(d.Data) == 0 {
			delete(stored, d.Name)
			versions[i] = was
			continue
		}
		s.lastVersion++
		d.Version = s.lastVersion
		stored[d.Name], versions[i] = d, d.Version
	}
	return versions, nil
}

// Documents implements storage.Storage.
func (s *Reference) Documents(ctx context.Context, kind storage.Kind,
	q storage.DocumentQuery) (list []storage.Document, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.documents[kind])) {
		if name > q.After && strings.HasPrefix(name, q.Prefix) &&
			(q.Names == nil || slices.Contains(q.Names, name)) && len(list) < q.Most() {
			d := s.documents[kind][name]
			list = append(list, d.Copy())
		}
	}
	return list, nil
}

// DueDocuments implements storage.Storage.
func (s *Reference) DueDocuments(ctx context.Context, kind storage.Kind, now time.Time,
	after *storage.Document, max int) ([]storage.Document, time.Time, error) {
	if err := s.enter(ctx); err != nil {
		return nil, time.Time{}, err
	}
	defer s.mu.Unlock()
	var list []storage.Document
	for _, d := range s.documents[kind] {
		if !d.Due.IsZero() && (after == nil || d.CompareDue(after) > 0) {
			list = append(list, d.Copy())
		}
	}
	slices.SortFunc(list, func(a, b storage.Document) int { return a.CompareDue(&b) })
	n := 0
	for n < len(list) && n < max && !list[n].Due.After(now) {
		n++
	}
	if n == len(list) {
		return list, time.Time{}, nil
	}
	return list[:n], list[n].Due, nil
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
