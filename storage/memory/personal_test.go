package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// Calls of the storage that For returns are self's.
func TestFor(t *testing.T) {
	s := memory.New()
	var heard []storage.Notice
	stop := s.Notify("self", func(n storage.Notice) { heard = append(heard, n) })
	defer stop()
	insert(t, s.Bind("self", s), record("mine", ojs.StateAvailable))
	if len(heard) != 0 {
		t.Errorf("heard %v of its own calls", heard)
	}
	insert(t, s.Bind("other", s), record("theirs", ojs.StateAvailable))
	insert(t, s, record("nobody's", ojs.StateAvailable))
	if len(heard) != 2 {
		t.Errorf("heard %v of two others' calls", heard)
	}
}

// notify-7: Bind makes Insert, Claim, Settle, Extend and Due the caller's. Of documents,
// queue states and limits the caller hears, unless the context names it.
func TestBoundCallerHearsOfOtherCalls(t *testing.T) {
	limit := storage.LimitName{Kind: storage.LimitQueue, Name: "q"}
	for name, call := range map[string]func(context.Context, storage.Storage) error{
		"PutDocuments": func(ctx context.Context, s storage.Storage) error {
			docs := []storage.Document{{Name: "a", Data: []byte("1"), Version: storage.AnyVersion}}
			_, err := s.PutDocuments(ctx, storage.KindValue, docs)
			return err
		},
		"SetQueueState": func(ctx context.Context, s storage.Storage) error {
			_, err := s.SetQueueState(ctx, "q", ojs.QueueActive)
			return err
		},
		"SetLimit": func(ctx context.Context, s storage.Storage) error {
			return s.SetLimit(ctx, epoch, limit, ojs.RateLimit{Concurrency: 1}, epoch.Add(time.Hour))
		},
		"BlockLimit": func(ctx context.Context, s storage.Storage) error {
			return s.BlockLimit(ctx, epoch, limit, epoch.Add(time.Hour))
		},
	} {
		t.Run("notify-7/"+name, func(t *testing.T) {
			s := memory.New()
			mine, heard := s.Bind("self", s), 0
			stop := s.Notify("self", func(storage.Notice) { heard++ })
			defer stop()
			if err := call(storage.WithCaller(t.Context(), "self"), mine); err != nil || heard > 0 {
				t.Errorf("heard of %d of its own calls; %v", heard, err)
			}
			if err := call(t.Context(), mine); err != nil || heard != 1 {
				t.Errorf("heard of %d calls, want 1; %v", heard, err)
			}
		})
	}
}
