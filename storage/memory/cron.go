package memory

import (
	"context"
	"encoding/binary"
	"iter"
	"slices"
	"time"

	"github.com/ojsengine/ojs/internal/sorted"
	"github.com/ojsengine/ojs/storage"
)

// crons are the recurring jobs. Storage.mu guards them.
type crons struct {
	byName  sorted.Map[*storage.Cron]
	runs    sorted.Map[*storage.Cron] // entries with a next run, by runKey
	version uint64                    // the latest of any entry
}

// runKey orders entries as storage.Cron.CompareRuns does.
func runKey(c *storage.Cron) string { return timeKey(c.NextRun) + c.Name }

// timeKey is a key in the order of times.
func timeKey(t time.Time) string {
	var b [12]byte
	binary.BigEndian.PutUint64(b[:], uint64(t.Unix())^1<<63)
	binary.BigEndian.PutUint32(b[8:], uint32(t.Nanosecond()))
	return string(b[:])
}

func (cs *crons) set(c *storage.Cron) (version uint64) {
	was, there := cs.byName.Get(c.Name)
	if !there && c.Version != 0 || there && was.Version != c.Version {
		return 0
	}
	if there {
		cs.runs.Delete(runKey(was))
	}
	cs.version++
	entry := c.Copy()
	entry.Version = cs.version
	cs.byName.Set(c.Name, &entry)
	if !entry.NextRun.IsZero() {
		cs.runs.Set(runKey(&entry), &entry)
	}
	return entry.Version
}

// SetCrons implements storage.Storage.
func (s *Storage) SetCrons(ctx context.Context, entries []storage.Cron) ([]uint64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	versions := make([]uint64, len(entries))
	for i := range entries {
		versions[i] = s.crons.set(&entries[i])
		s.notice.Crons = s.notice.Crons || s.heard && versions[i] > 0
	}
	return versions, nil
}

// DeleteCron implements storage.Storage.
func (s *Storage) DeleteCron(ctx context.Context, name string) (bool, error) {
	if err := s.enter(ctx); err != nil {
		return false, err
	}
	defer s.leave()
	entry, there := s.crons.byName.Get(name)
	if there {
		s.crons.byName.Delete(name)
		s.crons.runs.Delete(runKey(entry))
		s.notice.Crons = s.heard
	}
	return there, nil
}

// Crons implements storage.Storage.
func (s *Storage) Crons(ctx context.Context, q storage.CronQuery) ([]storage.Cron, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	from, list := q.After+"\x00", []storage.Cron{}
	entries := s.crons.byName.From(from)
	if q.Names != nil {
		entries = s.crons.named(from, q.Names)
	}
	for _, entry := range entries {
		if len(list) == q.Most() {
			break
		}
		list = append(list, entry.Copy())
	}
	return list, nil
}

// named yields the entries of some names, from one on, in the order of names.
func (cs *crons) named(from string, names []string) iter.Seq2[string, *storage.Cron] {
	return func(yield func(string, *storage.Cron) bool) {
		for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
			if entry, there := cs.byName.Get(name); there && name >= from && !yield(name, entry) {
				return
			}
		}
	}
}

// DueCrons implements storage.Storage.
func (s *Storage) DueCrons(
	ctx context.Context, now time.Time, after *storage.Cron, max int,
) ([]storage.Cron, time.Time, error) {
	if err := s.enter(ctx); err != nil {
		return nil, time.Time{}, err
	}
	defer s.leave()
	from := ""
	if after != nil {
		from = runKey(after) + "\x00"
	}
	list := []storage.Cron{}
	for _, entry := range s.crons.runs.From(from) {
		if entry.NextRun.After(now) || len(list) == max {
			return list, entry.NextRun, nil
		}
		list = append(list, entry.Copy())
	}
	return list, time.Time{}, nil
}
