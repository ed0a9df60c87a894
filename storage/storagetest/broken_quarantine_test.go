package storagetest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// tampered is a storage with a quarantine that has a fault: a nil function is the
// storage's own.
type tampered struct {
	*storagetest.Shelf
	notify  func(self any, f func(storage.Notice)) func()
	claim   func(ctx context.Context, now time.Time, c storage.Claim, dst records) (records, error)
	due     func(ctx context.Context, now time.Time, max int, buf records) (storage.Due, error)
	counts  func(ctx context.Context) ([]storage.Count, error)
	list    func(ctx context.Context, after string, limit int) ([]storage.Quarantined, error)
	release func(ctx context.Context, key string) error
	remove  func(ctx context.Context, key string) error
	insert  func(ctx context.Context, now time.Time, batch inserts, dst results) (results, error)
	reopen  func() storage.Storage
	dueName bool // an entry is due whose name is in the quarantine
}

func (s *tampered) Capabilities() storage.Capabilities {
	c := s.Shelf.Capabilities()
	c.Durable = true
	return c
}
func (s *tampered) Notify(self any, f func(storage.Notice)) func() {
	if s.notify != nil {
		return s.notify(self, f)
	}
	return s.Shelf.Notify(self, f)
}
func (s *tampered) Insert(ctx context.Context, now time.Time, batch inserts, dst results) (results, error) {
	if s.insert != nil {
		return s.insert(ctx, now, batch, dst)
	}
	return s.Shelf.Insert(ctx, now, batch, dst)
}
func (s *tampered) Claim(ctx context.Context, now time.Time, c storage.Claim, dst records) (records, error) {
	if s.claim != nil {
		return s.claim(ctx, now, c, dst)
	}
	return s.Shelf.Claim(ctx, now, c, dst)
}
func (s *tampered) Due(ctx context.Context, now time.Time, max int, buf records) (storage.Due, error) {
	if s.due != nil {
		return s.due(ctx, now, max, buf)
	}
	return s.Shelf.Due(ctx, now, max, buf)
}
func (s *tampered) DueDocuments(ctx context.Context, kind storage.Kind, now time.Time,
	after *storage.Document, max int) ([]storage.Document, time.Time, error) {
	due, next, err := s.Shelf.DueDocuments(ctx, kind, now, after, max)
	if s.dueName && len(due) == 0 {
		all, _ := s.Documents(ctx, kind, storage.DocumentQuery{})
		due = slices.DeleteFunc(all, func(d storage.Document) bool {
			return !s.any(func(q storage.Quarantined) bool { return q.Name == d.Name })
		})
	}
	return due, next, err
}
func (s *tampered) Counts(ctx context.Context) ([]storage.Count, error) {
	if s.counts != nil {
		return s.counts(ctx)
	}
	return s.Shelf.Counts(ctx)
}
func (s *tampered) Quarantined(ctx context.Context, after string, limit int) ([]storage.Quarantined, error) {
	if s.list != nil {
		return s.list(ctx, after, limit)
	}
	return s.Shelf.Quarantined(ctx, after, limit)
}
func (s *tampered) ReleaseQuarantined(ctx context.Context, key string) error {
	if s.release != nil {
		return s.release(ctx, key)
	}
	return s.Shelf.ReleaseQuarantined(ctx, key)
}
func (s *tampered) DeleteQuarantined(ctx context.Context, key string) error {
	if s.remove != nil {
		return s.remove(ctx, key)
	}
	return s.Shelf.DeleteQuarantined(ctx, key)
}

var errDamaged = errors.New("unexpected end of JSON input")

// any reports whether the quarantine has a record of which f holds.
func (s *tampered) any(f func(storage.Quarantined) bool) bool {
	list, _ := s.Shelf.Quarantined(context.Background(), "", 0)
	return slices.ContainsFunc(list, f)
}

func available(q storage.Quarantined) bool { return q.State == ojs.StateAvailable }

// quarantineFaults are those of storages that set records aside.
var quarantineFaults = []struct {
	name   string
	caught string // the case whose rule it breaks, and after it those that it breaks too
	fault  func(s *tampered)
}{
	{"a bad record fails the claim",
		"quarantine-1 quarantine-4 quarantine-5 quarantine-7 quarantine-8 quarantine-9",
		func(s *tampered) {
			told := 0
			s.claim = func(ctx Context, now Time, c storage.Claim, dst records) (records, error) {
				if n, _ := s.CountQuarantined(ctx); n > told && s.any(available) {
					told = n
					return dst, errDamaged
				}
				return s.Shelf.Claim(ctx, now, c, dst)
			}
		}},
	{"a bad record takes another's place in a claim", "quarantine-1", func(s *tampered) {
		s.claim = func(ctx context.Context, now time.Time, c storage.Claim, dst records) (records, error) {
			if c.Max > 1 && s.any(available) {
				c.Max--
			}
			return s.Shelf.Claim(ctx, now, c, dst)
		}
	}},
	{"the attempts of jobs beside a bad record are spent", "quarantine-1", func(s *tampered) {
		s.claim = func(ctx context.Context, now time.Time, c storage.Claim, dst records) (records, error) {
			dst, err := s.Shelf.Claim(ctx, now, c, dst)
			for i := range dst {
				if s.any(available) {
					dst[i].Attempt++
				}
			}
			return dst, err
		}
	}},
	{"a bad record keeps others from coming due", "quarantine-2", func(s *tampered) {
		s.due = func(ctx context.Context, now time.Time, max int, buf records) (storage.Due, error) {
			if s.any(func(q storage.Quarantined) bool { return q.State == ojs.StateScheduled }) {
				return storage.Due{}, nil
			}
			return s.Shelf.Due(ctx, now, max, buf)
		}
	}},
	{"counted though it is in the quarantine", "quarantine-3", func(s *tampered) {
		s.counts = func(ctx context.Context) ([]storage.Count, error) {
			counts, err := s.Shelf.Counts(ctx)
			if s.any(available) {
				counts = append(counts, storage.Count{Queue: "q", State: ojs.StateAvailable, N: 1})
			}
			return counts, err
		}
	}},
	{"pages that overlap", "quarantine-4 quarantine-5 quarantine-6 quarantine-9 quarantine-12",
		func(s *tampered) {
			s.list = func(ctx context.Context, after string, limit int) ([]storage.Quarantined, error) {
				if after == "2" {
					after = "1"
				}
				return s.Shelf.Quarantined(ctx, after, limit)
			}
		}},
	{"no reason", "quarantine-4 quarantine-11", func(s *tampered) {
		s.list = func(ctx context.Context, after string, limit int) ([]storage.Quarantined, error) {
			list, err := s.Shelf.Quarantined(ctx, after, limit)
			for i := range list {
				list[i].Reason = ""
			}
			return list, err
		}
	}},
	{"released though it does not decode", "quarantine-5 quarantine-6", func(s *tampered) {
		s.release = func(ctx context.Context, key string) error {
			list, _ := s.Shelf.Quarantined(ctx, "", 0)
			for _, q := range list {
				if q.Key == key {
					s.Mend(q.Name)
				}
			}
			return s.Shelf.ReleaseQuarantined(ctx, key)
		}
	}},
	{"released in the place of another entry", "quarantine-12", func(s *tampered) {
		s.release = func(ctx context.Context, key string) error {
			list, _ := s.Shelf.Quarantined(ctx, "", 0)
			for _, q := range list {
				if q.Key == key && q.Kind == storage.KindCron {
					_, _ = document.Of(s).DeleteCron(ctx, q.Name)
				}
			}
			return s.Shelf.ReleaseQuarantined(ctx, key)
		}
	}},
	{"due at the time of another entry", "quarantine-12", func(s *tampered) { s.dueName = true }},
	{"released at the end of its queue", "quarantine-5 quarantine-1", func(s *tampered) {
		s.release = func(ctx context.Context, key string) error {
			list, _ := s.Shelf.Quarantined(ctx, "", 0)
			err := s.Shelf.ReleaseQuarantined(ctx, key)
			for _, q := range list {
				if r, gone := s.Get(ctx, q.Name); err == nil && gone == nil && q.Key == key &&
					r.State == ojs.StateAvailable {
					low := r
					low.Priority--
					_, _ = s.Settle(ctx, r.CreatedAt, []storage.Change{{Record: low}}, nil)
					low.Priority, low.Version = r.Priority, low.Version+1
					_, _ = s.Settle(ctx, r.CreatedAt, []storage.Change{{Record: low}}, nil)
				}
			}
			return err
		}
	}},
	{"deleted and not gone", "quarantine-6 quarantine-3", func(s *tampered) {
		s.remove = func(ctx context.Context, key string) error {
			if s.any(func(q storage.Quarantined) bool { return q.Key == key }) {
				return nil
			}
			return s.Shelf.DeleteQuarantined(ctx, key)
		}
	}},
	{"its id stays taken", "quarantine-7", func(s *tampered) {
		s.insert = func(ctx context.Context, now time.Time, batch inserts, dst results) (results, error) {
			for _, in := range batch {
				if s.any(func(q storage.Quarantined) bool { return q.Name == in.Record.ID }) {
					return dst, &ojs.DuplicateError{ID: in.Record.ID, State: ojs.StateAvailable}
				}
			}
			return s.Shelf.Insert(ctx, now, batch, dst)
		}
	}},
	{"a token of a later job with its id fits it", "quarantine-7", func(s *tampered) { s.Gap = 0 }},
	{"it takes room in its queue", "quarantine-7", func(s *tampered) {
		s.insert = func(ctx context.Context, now time.Time, batch inserts, dst results) (results, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				if batch[i].MaxDepth > 0 &&
					s.any(func(q storage.Quarantined) bool { return q.Queue == batch[i].Record.Queue }) {
					batch[i].MaxDepth--
				}
			}
			return s.Shelf.Insert(ctx, now, batch, dst)
		}
	}},
	{"nobody is told", "quarantine-8", func(s *tampered) {
		s.notify = func(any, func(storage.Notice)) func() { return func() {} }
	}},
	{"told twice", "quarantine-8", func(s *tampered) {
		s.notify = func(self any, f func(storage.Notice)) func() {
			return s.Shelf.Notify(self, func(n storage.Notice) { f(n); f(n) })
		}
	}},
	{"forgotten when it is opened again", "quarantine-9 quarantine-11", func(s *tampered) {
		s.reopen = func() storage.Storage { return &tampered{Shelf: storagetest.NewShelf()} }
	}},
	{"a released job waits for nothing", "quarantine-10", func(s *tampered) {
		s.release = func(ctx context.Context, key string) error {
			list, _ := s.Shelf.Quarantined(ctx, "", 0)
			err := s.Shelf.ReleaseQuarantined(ctx, key)
			for _, q := range list {
				if r, _ := s.Get(ctx, q.Name); q.Key == key && r.Dependencies != nil {
					r.State = ojs.StateAvailable
					_, _ = s.Settle(ctx, time.Time{}, []storage.Change{{Record: r}}, nil)
				}
			}
			return err
		}
	}},
}

// Every fault of a quarantine is noticed by the case whose rule it breaks, and every case
// notices a fault.
func TestQuarantineFaultsAreCaught(t *testing.T) {
	storagetest.SkipWatched(t)
	storagetest.SetPatience(50 * time.Millisecond)
	config := func(fault func(*tampered)) storagetest.Config {
		of := func(s storage.Storage) *tampered { return s.(*tampered) }
		return storagetest.Config{
			Notices: true, Quarantine: true,
			Open: func(testing.TB) storage.Storage {
				s := &tampered{Shelf: storagetest.NewShelf()}
				fault(s)
				return s
			},
			Reopen: func(_ testing.TB, s storage.Storage) storage.Storage {
				if of(s).reopen != nil {
					return of(s).reopen()
				}
				return s
			},
			Plant: func(_ testing.TB, s storage.Storage, id string) { of(s).Plant(id) },
			Mend:  func(_ testing.TB, s storage.Storage, id string) { of(s).Mend(id) },
			PlantNamed: func(_ testing.TB, s storage.Storage, kind storage.Kind, name string) {
				of(s).PlantNamed(kind, name)
			},
			MendNamed: func(_ testing.TB, s storage.Storage, _ storage.Kind, name string) {
				of(s).Mend(name)
			},
		}
	}
	sound := config(func(*tampered) {})
	unnoticed := make(map[string]bool)
	for _, c := range storagetest.Cases() {
		if strings.HasPrefix(c.ID, "quarantine-") {
			unnoticed[c.ID] = true
			if failures := storagetest.Prove(sound, c); len(failures) > 0 {
				t.Errorf("%s fails a sound storage: %v", c.ID, failures)
			}
		}
	}
	for _, f := range quarantineFaults {
		var by []string
		for _, c := range storagetest.Cases() {
			if strings.HasPrefix(c.ID, "quarantine-") && len(storagetest.Prove(config(f.fault), c)) > 0 {
				by = append(by, c.ID)
				delete(unnoticed, c.ID)
			}
		}
		related := strings.Fields(f.caught)
		if !slices.Contains(by, related[0]) {
			t.Errorf("%s: not noticed by %s, but by %v", f.name, related[0], by)
		}
		for _, id := range by {
			if !slices.Contains(related, id) {
				t.Errorf("%s: noticed by %s, whose rule it does not break", f.name, id)
			}
		}
	}
	for id := range unnoticed {
		t.Errorf("%s notices no fault", id)
	}
}

// A wrapper lets the ability through.
func TestFaultyHasAQuarantine(t *testing.T) {
	s := storagetest.NewShelf()
	f := &storagetest.Faulty{Storage: s}
	q, ok := storage.As[storage.Quarantiner](f)
	if !ok {
		t.Fatal("a Faulty hides it")
	}
	if n, err := q.CountQuarantined(t.Context()); n != 0 || err != nil || f.Calls("CountQuarantined") != 1 {
		t.Errorf("%d, %v, %d calls", n, err, f.Calls())
	}
}
