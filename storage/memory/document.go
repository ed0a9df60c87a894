package memory

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs/internal/sorted"
	"github.com/ojsengine/ojs/storage"
)

// documents are the documents of a kind. store.mu guards them.
type documents struct {
	byName  sorted.Map[string, *storage.Document]
	due     sorted.Map[string, *storage.Document] // with a Due, by dueKey
	version uint64                                // the latest of any document
}

// dueKey orders documents as storage.Document.CompareDue does.
func dueKey(d *storage.Document) string { return timeKey(d.Due) + d.Name }

// timeKey is a key in the order of times.
func timeKey(t time.Time) string {
	var b [12]byte
	binary.BigEndian.PutUint64(b[:], uint64(t.Unix())^1<<63)
	binary.BigEndian.PutUint32(b[8:], uint32(t.Nanosecond()))
	return string(b[:])
}

// documentsOf are those of a kind.
func (s *store) documentsOf(kind storage.Kind) *documents {
	return orMake(s.documents, kind, func() *documents { return new(documents) })
}

// put stores or deletes a document, and returns the version that it has or had.
func (ds *documents) put(d *storage.Document) (version uint64) {
	var stored uint64
	if was, there := ds.byName.Get(d.Name); there {
		if stored = was.Version; d.Version == stored || d.Version == storage.AnyVersion {
			ds.byName.Delete(d.Name)
			ds.due.Delete(dueKey(was))
		}
	}
	switch {
	case d.Version != stored && d.Version != storage.AnyVersion:
		return 0
	case len(d.Data) == 0:
		return stored
	}
	ds.version++
	kept := d.Copy()
	kept.Name, kept.Version = strings.Clone(d.Name), ds.version
	ds.byName.Set(kept.Name, &kept)
	if !kept.Due.IsZero() {
		ds.due.Set(dueKey(&kept), &kept)
	}
	return kept.Version
}

// PutDocuments implements storage.Storage.
func (s *store) PutDocuments(
	ctx context.Context, kind storage.Kind, list []storage.Document,
) ([]uint64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	versions := make([]uint64, len(list))
	for i := range list {
		versions[i] = s.documentsOf(kind).put(&list[i])
		if s.heard && versions[i] > 0 {
			s.notice.AddDocuments(kind)
		}
	}
	return versions, nil
}

// Documents implements storage.Storage.
func (s personal) Documents(
	ctx context.Context, kind storage.Kind, q storage.DocumentQuery,
) (list []storage.Document, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	stored := s.documentsOf(kind)
	if q.Names != nil {
		for _, name := range slices.Compact(slices.Sorted(slices.Values(q.Names))) {
			if d, there := stored.byName.Get(name); there && q.Selects(name) && len(list) < q.Most() {
				list = append(list, d.Copy())
			}
		}
		return list, nil
	}
	for name, d := range stored.byName.From(q.From()) {
		if !q.Selects(name) || len(list) == q.Most() {
			break
		}
		list = append(list, d.Copy())
	}
	return list, nil
}

// DueDocuments implements storage.Storage.
func (s personal) DueDocuments(
	ctx context.Context, kind storage.Kind, now time.Time, after *storage.Document, max int,
) (due []storage.Document, next time.Time, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, time.Time{}, err
	}
	defer s.leave()
	from := ""
	if after != nil {
		from = dueKey(after) + "\x00"
	}
	for _, d := range s.documentsOf(kind).due.From(from) {
		if d.Due.After(now) || len(due) == max {
			return due, d.Due, nil
		}
		due = append(due, d.Copy())
	}
	return due, time.Time{}, nil
}
