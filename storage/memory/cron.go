package memory

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs/storage"
)

// crons are the recurring jobs, by name and by their next run. Storage.mu guards them.
type crons struct {
	byName  map[string]*cronEntry
	sorted  []*cronEntry     // by name; nil: the next listing makes it
	runs    heap[*cronEntry] // the entries that have a next run
	version uint64           // the latest of any entry
}

type cronEntry struct {
	storage.Cron
	at int // in crons.runs; -1: nowhere
}

var _ heapItem[*cronEntry] = (*cronEntry)(nil)

func (e *cronEntry) before(o *cronEntry) bool { return e.CompareRuns(&o.Cron) < 0 }
func (e *cronEntry) moved(to int)             { e.at = to }

func (cs *crons) set(c *storage.Cron) (version uint64) {
	e := cs.byName[c.Name]
	switch {
	case e == nil && c.Version != 0 || e != nil && e.Version != c.Version:
		return 0
	case e == nil:
		e = &cronEntry{at: -1}
		cs.byName[c.Name] = e
		cs.sorted = nil
	}
	e.Cron = c.Copy()
	cs.version++
	e.Version = cs.version
	switch {
	case e.at >= 0 && e.NextRun.IsZero():
		cs.leave(e)
	case e.at >= 0:
		cs.runs.fix(e.at)
	case !e.NextRun.IsZero():
		cs.runs.push(e)
	}
	return e.Version
}

func (cs *crons) leave(e *cronEntry) {
	if e.at >= 0 {
		cs.runs.remove(e.at)
		e.at = -1
	}
}

// due returns up to most entries whose next run is not after now, beginning after one in
// the order of runs, and the next run of the first entry that comes then.
func (cs *crons) due(now time.Time, after *storage.Cron, most int) (due []*cronEntry, next time.Time) {
	var taken []*cronEntry
	for cs.runs.len() > 0 {
		e := cs.runs.items[0]
		before := after != nil && e.CompareRuns(after) <= 0
		if !before && (e.NextRun.After(now) || len(due) == most) {
			next = e.NextRun
			break
		}
		cs.leave(e)
		taken = append(taken, e)
		if !before {
			due = append(due, e)
		}
	}
	for _, e := range taken {
		cs.runs.push(e)
	}
	return due, next
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
	e, ok := s.crons.byName[name]
	if ok {
		s.crons.leave(e)
		delete(s.crons.byName, name)
		s.crons.sorted = nil
		s.notice.Crons = s.heard
	}
	return ok, nil
}

// Crons implements storage.Storage.
func (s *Storage) Crons(ctx context.Context, q storage.CronQuery) ([]storage.Cron, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	byName := func(a, b *cronEntry) int { return strings.Compare(a.Name, b.Name) }
	var from []*cronEntry
	if q.Names != nil {
		for _, name := range q.Names {
			if e := s.crons.byName[name]; e != nil {
				from = append(from, e)
			}
		}
		slices.SortFunc(from, byName)
		from = slices.Compact(from)
	} else {
		if s.crons.sorted == nil {
			s.crons.sorted = slices.SortedFunc(maps.Values(s.crons.byName), byName)
		}
		from = s.crons.sorted
	}
	i, found := slices.BinarySearchFunc(from, q.After,
		func(e *cronEntry, name string) int { return strings.Compare(e.Name, name) })
	if found {
		i++
	}
	from = from[i:]
	list := make([]storage.Cron, min(len(from), q.Most()))
	for i := range list {
		list[i] = from[i].Copy()
	}
	return list, nil
}

// DueCrons implements storage.Storage.
func (s *Storage) DueCrons(
	ctx context.Context, now time.Time, after *storage.Cron, max int,
) ([]storage.Cron, time.Time, error) {
	if err := s.enter(ctx); err != nil {
		return nil, time.Time{}, err
	}
	defer s.leave()
	due, next := s.crons.due(now, after, max)
	list := make([]storage.Cron, len(due))
	for i, e := range due {
		list[i] = e.Copy()
	}
	return list, next, nil
}
