// Package document reads and writes what is stored as documents: recurring jobs, and the
// small values that engines on one storage tell each other.
package document

import (
	"context"
	"time"

	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Store has the documents of a storage by their types.
type Store struct{ s storage.DocumentStore }

// Of returns the documents of a storage.
func Of(s storage.DocumentStore) Store { return Store{s} }

// SetCrons stores entries, each by itself, under the rules of
// storage.DocumentStore.PutDocuments.
func (s Store) SetCrons(ctx context.Context, entries []storage.Cron) ([]uint64, error) {
	list := make([]storage.Document, len(entries))
	for i := range entries {
		c := &entries[i]
		data, err := rows.EncodeCron(c)
		if err != nil {
			return nil, err
		}
		list[i] = storage.Document{Name: c.Name, Version: c.Version, Due: c.NextRun, Data: data}
	}
	return s.s.PutDocuments(ctx, storage.KindCron, list)
}

// DeleteCron deletes an entry. It reports whether there was one.
func (s Store) DeleteCron(ctx context.Context, name string) (bool, error) {
	gone := []storage.Document{{Name: name, Version: storage.AnyVersion}}
	versions, err := s.s.PutDocuments(ctx, storage.KindCron, gone)
	return err == nil && versions[0] > 0, err
}

// Crons returns entries in the order of their names.
func (s Store) Crons(ctx context.Context, q storage.DocumentQuery) ([]storage.Cron, error) {
	list, err := s.s.Documents(ctx, storage.KindCron, q)
	if err != nil {
		return nil, err
	}
	return crons(list)
}

// DueCrons returns entries that are due, under the rules of
// storage.DocumentStore.DueDocuments.
func (s Store) DueCrons(
	ctx context.Context, now time.Time, after *storage.Cron, most int,
) (due []storage.Cron, next time.Time, err error) {
	var from *storage.Document
	if after != nil {
		from = &storage.Document{Name: after.Name, Due: after.NextRun}
	}
	list, next, err := s.s.DueDocuments(ctx, storage.KindCron, now, from, most)
	if err == nil {
		due, err = crons(list)
	}
	return due, next, err
}

func crons(list []storage.Document) ([]storage.Cron, error) {
	entries := make([]storage.Cron, len(list))
	for i := range list {
		var err error
		if entries[i], err = rows.DecodeCron(&list[i]); err != nil {
			return nil, err
		}
	}
	return entries, nil
}
