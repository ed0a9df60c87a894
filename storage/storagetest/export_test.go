package storagetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/notify"
	"github.com/ojsengine/ojs/internal/test/racedetector"
	"github.com/ojsengine/ojs/storage"
)

// Prove runs one case and returns its failures.
func Prove(cfg Config, c Case) []string { return ProveUntil(cfg, c, func() {}) }

// ProveUntil is Prove with the failures that come until wait returns, after the test.
func ProveUntil(cfg Config, c Case, wait func()) []string {
	tb := &quiet{}
	done := make(chan struct{})
	go func() { defer close(done); prove(tb, cfg, c) }()
	<-done
	wait()
	tb.end()
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return tb.failures
}

// ProveReopened is Prove on a storage that is opened again between the calls.
func ProveReopened(cfg Config, c Case) []string { return Prove(cfg.reopening(), c) }

// Reopens reports whether a storage of cfg runs the case while it is opened again.
func Reopens(cfg Config, c Case) bool { return c.reopens() && CanRun(cfg.reopening(), c) }

// CanRun reports whether a storage of cfg can run the case.
func CanRun(cfg Config, c Case) bool { why, _ := cfg.lacks(nil, c.needs); return why == "" }

// NeedsNotices reports whether the case is about notices.
func (c Case) NeedsNotices() bool { return c.needs&needsNotices != 0 }

// Stepper is a Reference that settles and claims in one step.
type Stepper struct{ *Reference }

// SettleAndClaim implements storage.SettleClaimer.
func (s Stepper) SettleAndClaim(ctx context.Context, now time.Time, to []*storage.Record,
	dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
	return s.settleAndClaim(ctx, now, to, dst, c, into)
}

// Unclaim implements storage.SettleClaimer.
func (s Stepper) Unclaim(ctx context.Context, _ time.Time, held []storage.Held) (int, error) {
	return s.unclaim(ctx, held)
}

// SetPatience sets how long a notice is waited for.
func SetPatience(d time.Duration) { patience = d }

// Shelf is a Reference that sets records aside, as soon as they are damaged.
type Shelf struct {
	*Reference
	hub   notify.Hub
	aside []*shelved
	keys  int
	Gap   uint64 // between the versions of a job set aside and of a later one with its id
}

// shelved is a record that was set aside.
type shelved struct {
	storage.Quarantined
	job    *refJob
	cron   storage.Document
	state  ojs.QueueState
	mended bool
}

// NewShelf makes an empty storage.
func NewShelf() *Shelf { return &Shelf{Reference: NewReference(), Gap: 1 << 16} }

// Notify implements storage.Notifier, of nothing but what is set aside.
func (s *Shelf) Notify(self any, f func(storage.Notice)) func() { return s.hub.Notify(self, f) }

// Plant damages the record of a job.
func (s *Shelf) Plant(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.find(id)
	s.remove(func(other *refJob) bool { return other == j })
	s.floor += s.Gap
	s.keys++
	q := storage.Quarantined{Key: strconv.Itoa(s.keys), Kind: storage.KindJob, Name: id,
		Reason: "damaged", At: epoch, Queue: j.rec.Queue, Type: j.rec.Type, State: j.rec.State}
	s.aside = append(s.aside, &shelved{Quarantined: q, job: j})
	s.hub.Tell(context.Background(), storage.Notice{Quarantined: []storage.Quarantined{q}})
}

// PlantNamed damages a recurring entry or the state of a queue.
func (s *Shelf) PlantNamed(kind storage.Kind, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys++
	q := storage.Quarantined{Key: strconv.Itoa(s.keys), Kind: kind, Name: name, Reason: "damaged", At: epoch}
	r := &shelved{Quarantined: q}
	if kind == storage.KindCron {
		r.cron = s.of(storage.KindCron)[name]
		delete(s.of(storage.KindCron), name)
	} else {
		r.state = s.states[name]
		delete(s.states, name)
	}
	s.aside = append(s.aside, r)
}

// Mend undoes Plant for a record in the quarantine.
func (s *Shelf) Mend(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.aside {
		r.mended = r.mended || r.Name == id
	}
}

// Get implements storage.Storage.
func (s *Shelf) Get(ctx context.Context, id string) (storage.Record, error) {
	r, err := s.Reference.Get(ctx, id)
	if !errors.Is(err, ojs.ErrNotFound) {
		return r, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.aside {
		if r.Name == id {
			err = &ojs.QuarantinedError{Key: r.Key, ID: id, Reason: r.Reason}
		}
	}
	return r, err
}

// Quarantined implements storage.Quarantiner.
func (s *Shelf) Quarantined(ctx context.Context, after string,
	limit int) (list []storage.Quarantined, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	from, _ := strconv.Atoi(after)
	if limit <= 0 || limit > 1000 {
		limit = 1000
	}
	for _, r := range s.aside {
		if n, _ := strconv.Atoi(r.Key); n > from && len(list) < limit {
			list = append(list, r.Quarantined)
		}
	}
	return list, nil
}

// CountQuarantined implements storage.Quarantiner.
func (s *Shelf) CountQuarantined(ctx context.Context) (int, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return len(s.aside), nil
}

func (s *Shelf) index(key string) (int, error) {
	i := slices.IndexFunc(s.aside, func(r *shelved) bool { return r.Key == key })
	if i < 0 {
		return i, fmt.Errorf("%w: %q in the quarantine", ojs.ErrNotFound, key)
	}
	return i, nil
}

// ReleaseQuarantined implements storage.Quarantiner.
func (s *Shelf) ReleaseQuarantined(ctx context.Context, key string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	i, err := s.index(key)
	if err != nil {
		return err
	}
	r := s.aside[i]
	if !r.mended {
		return &ojs.QuarantinedError{Key: key, ID: r.Name, Reason: r.Reason}
	}
	if j := s.find(r.Name); j != nil {
		return &ojs.DuplicateError{ID: r.Name, State: j.rec.State}
	}
	_, entry := s.of(storage.KindCron)[r.Name]
	_, state := s.states[r.Name]
	if r.Kind == storage.KindCron && entry || r.Kind == storage.KindQueue && state {
		return &ojs.DuplicateError{ID: r.Name}
	}
	s.aside = slices.Delete(s.aside, i, i+1)
	switch r.Kind {
	case storage.KindCron:
		s.of(storage.KindCron)[r.Name] = r.cron
		return nil
	case storage.KindQueue:
		s.states[r.Name] = r.state
		return nil
	}
	s.jobs = append(s.jobs, r.job)
	slices.SortFunc(s.jobs, func(a, b *refJob) int { return cmp.Compare(a.inserted, b.inserted) })
	return nil
}

// DeleteQuarantined implements storage.Quarantiner.
func (s *Shelf) DeleteQuarantined(ctx context.Context, key string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	i, err := s.index(key)
	if err == nil {
		s.aside = slices.Delete(s.aside, i, i+1)
	}
	return err
}

// SkipWatched skips a test of planted faults when the race detector is on: it makes the
// search eight times as slow, and the answers of calls betray the faults.
func SkipWatched(t *testing.T) {
	if racedetector.On {
		t.Skip("the answers of calls betray planted faults: .ci/run looks for them without the race detector")
	}
}
