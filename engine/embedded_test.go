package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// embedding embeds a storage with all its abilities, and counts calls.
type embedding struct {
	*memory.Storage
	inserts, claims, settles atomic.Int64
}

func (s *embedding) Insert(
	ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted,
) ([]storage.Inserted, error) {
	s.inserts.Add(1)
	return s.Storage.Insert(ctx, now, batch, dst)
}

func (s *embedding) Claim(
	ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record,
) ([]storage.Record, error) {
	s.claims.Add(1)
	return s.Storage.Claim(ctx, now, c, dst)
}

func (s *embedding) Settle(
	ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled,
) ([]storage.Settled, error) {
	s.settles.Add(1)
	return s.Storage.Settle(ctx, now, changes, dst)
}

// An engine does not pass by the methods of a type that embeds the memory storage.
func TestEmbeddedStorageIsAsked(t *testing.T) {
	s := &embedding{Storage: memory.New()}
	eng, err := engine.New[any](s, quiet)
	must(t, err)
	eng.Handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	const jobs = 10
	for range jobs {
		_, err := eng.Enqueue(ctx, "x", nil)
		must(t, err)
	}
	must(t, eng.WaitIdle(ctx))
	stop()
	must(t, <-ended)
	if i, c, o := s.inserts.Load(), s.claims.Load(), s.settles.Load(); i != jobs || c == 0 || o == 0 {
		t.Errorf("%d inserts, %d claims and %d settles of %d jobs", i, c, o, jobs)
	}
}
