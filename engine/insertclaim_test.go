package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// claimsNew is a durable storage, as far as engines know, that claims new jobs as they
// are stored.
type claimsNew struct {
	durableSteps
	claimed atomic.Int64
	after   func(batch []storage.Insert) // follows a claim before its call returns; nil: nothing
}

func newClaimsNew() *claimsNew {
	m := memory.New()
	return &claimsNew{durableSteps: durableSteps{durable{m}, m}}
}

func (s *claimsNew) Capabilities() storage.Capabilities {
	c := s.durableSteps.Capabilities()
	c.InsertClaims = true
	return c
}

func (s *claimsNew) Insert(
	ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted,
) ([]storage.Inserted, error) {
	dst, err := s.Storage.Insert(ctx, now, batch, dst)
	if err != nil || batch[0].Claim == nil {
		return dst, err
	}
	c := *batch[0].Claim
	c.Max = len(batch)
	recs, err := s.Storage.Claim(ctx, now, c, nil)
	if err != nil {
		return dst, err
	}
	same := len(recs) == len(batch)
	var held []storage.Held
	for i := range recs {
		held = append(held, storage.Held{ID: recs[i].ID, Version: recs[i].Version})
		same = same && recs[i].ID == batch[i].Record.ID
	}
	if !same {
		_, err := s.Unclaim(ctx, now, held)
		return dst, err
	}
	for i := range batch {
		dst[i].Claimed = true
	}
	if s.after != nil {
		s.after(batch)
	}
	s.claimed.Add(int64(len(batch)))
	return dst, nil
}

// eventsOfJobs keeps the types of the events of each job.
type eventsOfJobs struct {
	mu sync.Mutex
	of map[string][]event.Type
}

func (o *eventsOfJobs) Observe(ev *event.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.of[ev.Subject] = append(o.of[ev.Subject], ev.Type)
}

// Each job that the storage claims as it is stored runs once, and its start follows its
// enqueue in the events.
func TestInsertClaims(t *testing.T) {
	s := newClaimsNew()
	var mu sync.Mutex
	runs := make(map[string]int)
	seen := &eventsOfJobs{of: make(map[string][]event.Type)}
	eng, err := engine.New[int](s, quiet, engine.WithConcurrency(8), keepAll, engine.WithObserver(seen))
	must(t, err)
	eng.Handle("quick", func(_ context.Context, job *ojs.Job[int]) error {
		mu.Lock()
		defer mu.Unlock()
		runs[job.ID]++
		return nil
	})
	started(t, eng)
	late := time.Now().Add(time.Minute)
	jobs := 0
	for ; jobs < 200 || s.claimed.Load() < 50; jobs++ {
		if time.Now().After(late) {
			t.Fatalf("of %d jobs %d were claimed by their enqueue", jobs, s.claimed.Load())
		}
		_, err := eng.Enqueue(t.Context(), "quick", jobs)
		must(t, err)
		must(t, eng.WaitIdle(t.Context()))
	}
	stats, err := eng.Stats(t.Context())
	must(t, err)
	if n := stats.Total[ojs.StateCompleted]; n != jobs {
		t.Errorf("%d of %d jobs are completed", n, jobs)
	}
	mu.Lock()
	defer mu.Unlock()
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for id, n := range runs {
		if e := seen.of[id]; n != 1 || len(e) != 3 || e[0] != event.Enqueued || e[1] != event.Started {
			t.Errorf("job %s has run %d times: %v", id, n, e)
		}
	}
	if len(runs) != jobs {
		t.Errorf("%d of %d jobs have run", len(runs), jobs)
	}
}

// A job that is cancelled before the enqueue which claims it returns does not run.
func TestInsertClaimsWhatIsCancelled(t *testing.T) {
	s := newClaimsNew()
	eng, err := engine.New[int](s, quiet, engine.WithConcurrency(8), keepAll)
	must(t, err)
	var ran atomic.Int64
	eng.Handle("quick", func(context.Context, *ojs.Job[int]) error {
		ran.Add(1)
		return nil
	})
	s.after = func(batch []storage.Insert) {
		if err := eng.Cancel(t.Context(), batch[0].Record.ID); err != nil {
			t.Error(err)
		}
	}
	started(t, eng)
	late := time.Now().Add(time.Minute)
	unclaimed := int64(0)
	for jobs := int64(1); s.claimed.Load() < 5; jobs++ {
		if time.Now().After(late) {
			t.Fatal("no job was claimed by its enqueue")
		}
		_, err := eng.Enqueue(t.Context(), "quick", 1)
		must(t, err)
		unclaimed = jobs - s.claimed.Load()
		must(t, eng.WaitIdle(t.Context()))
	}
	if n := ran.Load(); n != unclaimed {
		t.Errorf("%d jobs have run, of which %d were not cancelled", n, unclaimed)
	}
}

// A job that is claimed by an enqueue while the engine stops is completed, or given back
// unspent.
func TestInsertClaimsDuringAStop(t *testing.T) {
	s := newClaimsNew()
	eng, err := engine.New[int](s, quiet, engine.WithConcurrency(8), keepAll)
	must(t, err)
	eng.Handle("quick", func(context.Context, *ojs.Job[int]) error { return nil })
	claimed, stopping := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.after = func([]storage.Insert) {
		once.Do(func() { close(claimed) })
		<-stopping
	}
	stop := started(t, eng)
	enqueued := make(chan struct{})
	go func() {
		defer close(enqueued)
		for {
			if _, err := eng.Enqueue(t.Context(), "quick", 1); err != nil {
				t.Error(err)
			}
			select {
			case <-claimed:
				return
			default:
			}
			if err := eng.WaitIdle(t.Context()); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	<-claimed
	time.AfterFunc(time.Millisecond, func() { close(stopping) })
	stop()
	<-enqueued
	for j, err := range eng.Jobs().List(t.Context(), inspect.Filter{}) {
		must(t, err)
		if j.State != ojs.StateCompleted && (j.State != ojs.StateAvailable || j.Attempt != 0) {
			t.Errorf("job %s is %s after attempt %d", j.ID, j.State, j.Attempt)
		}
	}
}
