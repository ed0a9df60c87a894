package engine_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

func TestWarnsOfWhatItCannotReach(t *testing.T) {
	do := func(context.Context, *ojs.Job[any]) error { return nil }
	inQueue := ojs.Define[any]("in.queue", ojs.WithQueue("elsewhere"))
	for _, tt := range []struct {
		name string
		opts []engine.Option
		f    func(b *rig)
		want []string // parts of the lines, in order
	}{
		{"nothing is wrong", []engine.Option{
			engine.WithQueueConfig("default", engine.QueueConfig{Concurrency: 10}),
		}, func(b *rig) {
			b.Handle("x", do)
			b.run()
			b.enqueue("x")
		}, nil},
		{"a queue's concurrency above the engine's",
			[]engine.Option{engine.WithConcurrency(2),
				engine.WithQueueConfig("default", engine.QueueConfig{Concurrency: 3})},
			func(b *rig) { b.Handle("x", do); b.run() },
			[]string{`concurrency of a queue is above the engine's, which holds for its attempts" queue=default queue_concurrency=3 concurrency=2`}},
		{"a handler's concurrency above the engine's", []engine.Option{
			engine.WithConcurrency(2),
		}, func(b *rig) {
			b.Handle("x", do, handler.WithSlots(3))
			b.run()
		},
			[]string{`concurrency of a handler is above the engine's, which holds" job_type=x handler_concurrency=3 concurrency=2`}},
		{"types of queues that are not served", []engine.Option{
			engine.WithQueueConfig("mail", engine.QueueConfig{}),
		}, func(b *rig) {
			b.Handle("x", do)
			b.Register(handler.For(inQueue, do))
			b.run()
		},
			[]string{`go to queues that this engine does not serve, unless they are enqueued to another" job_types="[in.queue x]" queues="[default elsewhere]"`}},
		{"every queue is served", nil, func(b *rig) {
			b.Register(handler.For(inQueue, do))
			b.run()
			b.enqueue("in.queue")
		}, nil},
		{"a job for a queue that is not served, once for each", []engine.Option{
			engine.WithQueueConfig("default", engine.QueueConfig{}),
		}, func(b *rig) {
			b.Handle("x", do)
			b.run()
			for range 3 {
				b.enqueue("x", ojs.WithQueue("a"))
				b.enqueue("x", ojs.WithQueue("b"))
			}
		}, []string{"does not serve; they wait for one that does\" queue=a", "queue=b"}},
		{"an engine that only enqueues",
			[]engine.Option{engine.WithQueueConfig("default", engine.QueueConfig{MaxDepth: 5})},
			func(b *rig) { b.enqueue("x", ojs.WithQueue("a")) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var logged bytes.Buffer
			log := engine.WithLogger(
				slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn})))
			inBubble(t, tt.f, append(tt.opts, log)...)
			lines := strings.Split(strings.TrimSuffix(logged.String(), "\n"), "\n")
			if logged.Len() == 0 {
				lines = nil
			}
			if len(lines) != len(tt.want) {
				t.Fatalf("logged %q, want %d lines", lines, len(tt.want))
			}
			for i, want := range tt.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("logged %q, want %q", lines[i], want)
				}
			}
		})
	}
}

// joiner is a storage that takes part in transactions that are strings.
type joiner struct{ storage.Storage }

func (joiner) Joins(tx any) bool         { _, ok := tx.(string); return ok }
func (j joiner) Unwrap() storage.Storage { return j.Storage }

func TestRefusesTransactionsThatItCannotJoin(t *testing.T) {
	for _, tt := range []struct {
		name  string
		store storage.Storage
		tx    any
		ok    bool
	}{
		{"without the ability", memory.New(), "tx", false},
		{"of another kind", joiner{memory.New()}, 7, false},
		{"of the storage's kind", joiner{memory.New()}, "tx", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubbleOn(t, tt.store, func(b *rig) {
				there := b.enqueue("x")
				ctx := storage.WithTx(b.ctx, tt.tx)
				_, enqueue := b.Enqueue(ctx, "x", nil)
				_, many := b.EnqueueMany(ctx, ojs.NewDraft("x", nil), ojs.NewDraft("x", nil))
				_, pause := b.Queues().Pause(ctx, "q")
				for what, err := range map[string]error{
					"enqueue": enqueue, "enqueue of many": many, "cancel": b.Cancel(ctx, there.ID),
					"pause of a queue": pause,
					"pause of all":     b.Queues().PauseAll(ctx, "why"),
					"recurring job": b.Cron().Set(ctx, cron.Entry{Name: "c", Schedule: "@daily",
						Job: ojs.NewDraft("x", nil)}),
					"limit": b.Limits().Set(ctx, operate.LimitOfQueue("q"), ojs.RateLimit{Concurrency: 2},
						time.Time{}),
					"block": b.Limits().Block(ctx, operate.LimitOfQueue("q"), time.Now()),
				} {
					if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, ojs.ErrUnsupported) {
						t.Errorf("%s: %v", what, err)
					}
				}
				counts, err := b.store.Counts(b.ctx)
				must(t, err)
				want := storage.Count{Queue: "default", Type: "x", State: ojs.StateAvailable, N: 1}
				if !tt.ok && (len(counts) != 1 || counts[0] != want) {
					t.Errorf("counts %v after refused calls", counts)
				}
			})
		})
	}
}

// A job is not stored outside of a transaction that turns out to be nil.
func TestRefusesANilTransaction(t *testing.T) {
	for name, store := range map[string]storage.Storage{
		"memory": memory.New(), "that joins": joiner{memory.New()},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, store, func(b *rig) {
				there := b.enqueue("x")
				ctx := storage.WithTx(b.ctx, nil)
				_, enqueue := b.Enqueue(ctx, "x", nil)
				for what, err := range map[string]error{
					"enqueue": enqueue, "cancel": b.Cancel(ctx, there.ID),
				} {
					var invalid *ojs.InvalidError
					if !errors.As(err, &invalid) || invalid.Field != "tx" {
						t.Errorf("%s: %v", what, err)
					}
				}
			})
		})
	}
}

func TestRefusesANilStorage(t *testing.T) {
	var none *memory.Storage
	for _, s := range []storage.Storage{nil, none} {
		_, err := engine.New[any](s)
		wantInvalid(t, err, "storage")
	}
}
