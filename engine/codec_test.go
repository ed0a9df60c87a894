package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/workflow"
)

// secret is a text that no storage, event or log line may show.
const secret = "4242-SECRET-4242"

type payment struct {
	Card  string
	Order int
}

var pay = ojs.Define[payment]("pay", noJitter)

func testKey(id string) codec.Key {
	return must1(codec.NewKey(id, bytes.Repeat([]byte(id[:1]), codec.KeySize)))
}

func testRing(ids ...string) *codec.Ring {
	var keys []codec.Key
	for _, id := range ids {
		keys = append(keys, testKey(id))
	}
	return must1(codec.NewRing(keys[0], keys[1:]...))
}

// withKeys is the usual chain.
func withKeys(keys codec.Keys) engine.Option {
	return engine.WithCodec(codec.Gzip(), codec.AES256GCM(keys))
}

// wantHidden wants a storage that has the secret nowhere.
func wantHidden(t *testing.T, s storage.Storage) {
	t.Helper()
	page := must1(s.List(context.Background(), storage.Query{}))
	for _, rec := range page.Records {
		wantNoSecret(t, "job "+rec.Type, rec.JobInfo, string(rec.Checkpoint))
		raw, err := json.Marshal(rec.JobInfo)
		wantNoSecret(t, "the envelope of "+rec.Type, string(raw), err)
	}
	for _, e := range must1(document.Of(s).Crons(context.Background(), storage.DocumentQuery{})) {
		wantNoSecret(t, "cron entry", e.Args.String(), e.Options.Meta)
	}
}

func wantNoSecret(t *testing.T, place string, values ...any) {
	t.Helper()
	for _, v := range values {
		if s := fmt.Sprintf("%+v %s", v, v); strings.Contains(s, secret) { // %s: JSON as text
			t.Errorf("%s shows the secret: %s", place, s)
		}
	}
}

func TestCodec(t *testing.T) {
	given := payment{secret, 7}
	t.Run("K003 K010 K015 K016 handlers get plain values, everything else encoded ones", func(t *testing.T) {
		logged := new(lockedBuffer)
		debug := &slog.HandlerOptions{Level: slog.LevelDebug}
		log := engine.WithLogger(slog.New(slog.NewTextHandler(logged, debug)))
		store := memory.New()
		inBubbleOn(t, store, func(b *rig) {
			sub := b.Subscribe(engine.EventFilter{Types: jobEvents})
			b.Register(handler.For(pay, func(ctx context.Context, job *ojs.Job[payment]) error {
				if job.Args != given || !reflect.DeepEqual(job.Meta, map[string]any{"tenant": "a"}) {
					t.Errorf("handler got %+v, meta %v", job.Args, job.Meta)
				}
				if h := handler.Job(ctx); !reflect.DeepEqual(h.Meta, job.Meta) {
					t.Errorf("handler.Job has meta %v", h.Meta)
				}
				var saved string
				switch found, err := handler.LoadCheckpoint(ctx, &saved); {
				case err != nil:
					t.Error(err)
				case !found:
					must(t, handler.SaveCheckpoint(ctx, secret))
					found, err := handler.LoadCheckpoint(ctx, &saved)
					if !found || err != nil || saved != secret {
						t.Errorf("checkpoint %q, %v", saved, err)
					}
					details := map[string]any{"card": secret}
					return &ojs.Error{Type: "declined", Message: "no", Details: details}
				case saved != secret:
					t.Errorf("checkpoint %q", saved)
				}
				wantNoSecret(t, "storage", must1(b.store.Get(ctx, job.ID)))
				return handler.SetResult(ctx, map[string]any{"receipt": secret})
			}))
			ticket := must1(pay.Enqueue(b.ctx, b, given, ojs.WithMeta("tenant", "a")))
			b.run()
			var result struct{ Receipt string }
			if err := ticket.Result(b.ctx, &result); err != nil || result.Receipt != secret {
				t.Errorf("result %+v, %v", result, err)
			}
			wantHidden(t, store)

			job := b.want(ticket.ID, ojs.StateCompleted, 2)
			if !job.Args.Encoded() || job.Meta[codec.MetaKeyID] != "k1" || job.Meta["tenant"] != "a" {
				t.Errorf("stored args %s, meta %v", job.Args, job.Meta)
			}
			if _, err := pay.Decode(job); err == nil || !strings.Contains(err.Error(), "Jobs().Decode") {
				t.Errorf("a lookup decodes: %v", err)
			}
			if err := job.DecodeResult(&result); err == nil {
				t.Error("the result of a lookup decodes")
			}
			plain := must1(b.Jobs().Decode(b.ctx, job))
			if args, err := pay.Decode(plain); err != nil || args != given {
				t.Errorf("%+v, %v", args, err)
			}
			details := plain.Errors[0].Details
			if must(t, plain.DecodeResult(&result)); result.Receipt != secret || details["card"] != secret {
				t.Errorf("%+v, details %v", result, details)
			}
			if len(plain.Meta) != 1 || !job.Args.Encoded() {
				t.Error("the copy has meta of the codec, or the job was changed")
			}

			sub.Close()
			events := 0
			for ev := range sub.C() {
				events++
				raw, err := json.Marshal(ev)
				wantNoSecret(t, "event", string(raw), err, *ev.Job)
				if ev.Type == event.Completed && ev.Data()["result"] != "[encrypted]" {
					t.Errorf("the event has the result %v", ev.Data()["result"])
				}
			}
			if events < 6 || !strings.Contains(logged.String(), "declined") {
				t.Errorf("%d events, log %s", events, logged)
			}
			wantNoSecret(t, "log", logged)
		}, withKeys(testRing("k1")), log, engine.WithMiddleware(
			func(ctx context.Context, job *ojs.JobHeader, next handler.Next) error {
				if !reflect.DeepEqual(job.Meta, map[string]any{"tenant": "a"}) {
					t.Errorf("K010 a middleware sees the meta %v", job.Meta)
				}
				return next(ctx)
			}))
	})

	t.Run("K002 K012 jobs of an old key run, unchanged, through retries and replays", func(t *testing.T) {
		store := memory.New()
		keys := testRing("old")
		inBubbleOn(t, store, func(b *rig) {
			b.Register(handler.For(pay, func(_ context.Context, job *ojs.Job[payment]) error {
				if job.Args != given {
					t.Errorf("%+v", job.Args)
				}
				if b.ran() < 3 {
					return ojs.DeadLetter(errBoom)
				}
				return nil
			}))
			ticket := must1(pay.Enqueue(b.ctx, b, given))
			before := b.job(ticket.ID)
			must(t, keys.Add(testKey("new")))
			must(t, keys.Use("new"))
			b.run()
			b.want(ticket.ID, ojs.StateDiscarded, 1)
			must(t, b.DeadLetters().Retry(b.ctx, ticket.ID))
			b.advance(0)
			must(t, b.DeadLetters().Retry(b.ctx, ticket.ID, ojs.WithPriority(3)))
			b.advance(0)
			after := b.want(ticket.ID, ojs.StateCompleted, 1)
			if after.Args.String() != before.Args.String() || after.Meta[codec.MetaKeyID] != "old" {
				t.Errorf("%s became %s, meta %v", before.Args, after.Args, after.Meta)
			}
			if fresh := b.job(must1(pay.Enqueue(b.ctx, b, given)).ID); fresh.Meta[codec.MetaKeyID] != "new" {
				t.Errorf("meta %v", fresh.Meta)
			}
		}, withKeys(keys))
	})

	t.Run("K011 a missing key is waited for, and nothing is lost", func(t *testing.T) {
		store := memory.New()
		producer := must1(engine.New[any](store, withKeys(testRing("new")), quiet))
		keys := testRing("old")
		inBubbleOn(t, store, func(b *rig) {
			b.Register(handler.For(pay, func(_ context.Context, job *ojs.Job[payment]) error {
				if b.ran(); job.Args != given {
					t.Errorf("%+v", job.Args)
				}
				return nil
			}))
			first := must1(pay.Enqueue(b.ctx, producer, given, ojs.WithMaxAttempts(5)))
			last := must1(pay.Enqueue(b.ctx, producer, given, ojs.WithMaxAttempts(1)))
			b.run()
			job := b.want(first.ID, ojs.StateRetryable, 1)
			if job.Error.Type != "codec.key_not_found" {
				t.Errorf("%+v", job.Error)
			}
			job = b.want(last.ID, ojs.StateDiscarded, 1)
			if !job.DeadLettered() || job.Error.Type != "codec.key_not_found" {
				t.Errorf("%+v", job.Error)
			}
			must(t, keys.Add(testKey("new")))
			b.advance(time.Minute)
			b.want(first.ID, ojs.StateCompleted, 2)
			must(t, b.DeadLetters().Retry(b.ctx, last.ID))
			b.advance(0)
			b.want(last.ID, ojs.StateCompleted, 1)
			if n := len(b.times()); n != 2 {
				t.Errorf("the handler ran %d times", n)
			}
		}, withKeys(keys))
	})

	t.Run("K011 what cannot be decoded is a dead letter, and its handler is not called", func(t *testing.T) {
		wrong := must1(codec.NewRing(must1(codec.NewKey("k1", bytes.Repeat([]byte{9}, 32)))))
		for name, opts := range map[string][]engine.Option{
			"another key of the id": {withKeys(wrong)},
			"unknown encoding":      {engine.WithCodec(codec.Gzip())},
			"no codec":              nil,
		} {
			t.Run(name, func(t *testing.T) {
				store := memory.New()
				producer := must1(engine.New[any](store, withKeys(testRing("k1")), quiet))
				inBubbleOn(t, store, func(b *rig) {
					b.handle("pay", func(context.Context, *ojs.Job[any]) error { return nil })
					ticket := must1(pay.Enqueue(b.ctx, producer, given, ojs.WithMaxAttempts(5)))
					before := b.job(ticket.ID)
					b.run()
					job := b.want(ticket.ID, ojs.StateDiscarded, 1)
					if !job.DeadLettered() || job.Error.Type != "codec.decode_failed" ||
						job.Error.Reason != ojs.ReasonNonRetryable || len(b.times()) > 0 {
						t.Errorf("%+v, ran %v", job.Error, b.times())
					}
					if job.Args.String() != before.Args.String() {
						t.Error("the args were changed")
					}
				}, opts...)
			})
		}
	})

	t.Run("K013 K014 fingerprints are made of the plain args", func(t *testing.T) {
		store := memory.New()
		plain := must1(engine.New[any](store, quiet))
		inBubbleOn(t, store, func(b *rig) {
			unique := ojs.WithUnique(ojs.UniquePolicy{ArgsKeys: []string{"Order"}})
			first := must1(pay.Enqueue(b.ctx, b, given, unique))
			for _, eng := range []ojs.Enqueuer{b, plain} {
				_, err := pay.Enqueue(b.ctx, eng, payment{"another card", 7}, unique)
				if !errors.Is(err, ojs.ErrDuplicate) {
					t.Errorf("an equal job: %v", err)
				}
			}
			must1(pay.Enqueue(b.ctx, b, payment{secret, 8}, unique))

			stored := b.job(first.ID)
			_, err := b.EnqueueMany(b.ctx, ojs.NewDraft("pay", stored.Args, unique))
			wantInvalid(t, err, "unique")
			_, err = b.EnqueueMany(b.ctx, ojs.NewDraft("pay", stored.Args,
				ojs.WithUnique(ojs.UniquePolicy{Key: "7", Keys: ojs.ByType})))
			must(t, err)
		}, withKeys(testRing("k1")))
	})

	t.Run("K013 a dead letter in another queue has a fingerprint of its plain args", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("pay", func(context.Context, *ojs.Job[any]) error { return ojs.DeadLetter(errBoom) })
			unique := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByType | ojs.ByQueue | ojs.ByArgs})
			ticket := must1(pay.Enqueue(b.ctx, b, given, unique))
			b.run()
			b.halt()
			must(t, b.DeadLetters().Retry(b.ctx, ticket.ID, ojs.WithQueue("other")))
			_, err := pay.Enqueue(b.ctx, b, given, unique, ojs.WithQueue("other"))
			if !errors.Is(err, ojs.ErrDuplicate) {
				t.Errorf("an equal job: %v", err)
			}
		}, withKeys(testRing("k1")))
	})

	t.Run("K014 a search by args leaves encoded jobs out", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			must1(pay.Enqueue(b.ctx, b, given))
			for _, text := range []string{secret, "ojs_encoded", ""} {
				n := 0
				for _, err := range b.Jobs().List(b.ctx, inspect.Filter{Args: text}) {
					if must(t, err); text != "" {
						t.Errorf("%q finds it", text)
					}
					n++
				}
				if text == "" && n != 1 {
					t.Errorf("%d jobs", n)
				}
			}
			member := inspect.Filter{Members: []inspect.Member{{Path: "args.0.ojs_encoded", Value: "true"}}}
			for _, err := range b.Jobs().List(b.ctx, member) {
				t.Errorf("its marker finds it, %v", err)
			}
			b.Register(handler.For(pay, func(context.Context, *ojs.Job[payment]) error { return nil }))
			_, err := b.Enqueue(b.ctx, "pay", 7) // args are judged before they are encoded
			wantInvalid(t, err, "args")
		}, withKeys(testRing("k1")))
	})

	t.Run("K016 size limits count what is stored", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			large := strings.Repeat("x", 2*jsonvalue.MaxEnvelope)
			ticket := must1(b.Enqueue(b.ctx, "large", large))
			if n := b.job(ticket.ID).Args.Len(); n > 10_000 {
				t.Errorf("%d bytes", n)
			}
			b.handle("large", func(ctx context.Context, job *ojs.Job[any]) error {
				if job.Args != large {
					t.Error("it is not what was given")
				}
				return nil
			})
			b.run()
			b.want(ticket.ID, ojs.StateCompleted, 1)
			_, err := b.Enqueue(b.ctx, "large", strings.Repeat("x", codec.MaxPlaintext+1))
			wantInvalid(t, err, "envelope")
		}, withKeys(testRing("k1")))
		inBubble(t, func(b *rig) {
			fits := strings.Repeat("x", 900_000) // and base64 of it does not
			_, err := b.Enqueue(b.ctx, "large", fits)
			wantInvalid(t, err, "envelope")
			b.handle("result", func(ctx context.Context, _ *ojs.Job[any]) error {
				wantInvalid(t, handler.SetResult(ctx, fits), "result")
				wantInvalid(t, handler.SaveCheckpoint(ctx, fits), "checkpoint")
				return ojs.DeadLetter(&ojs.Error{Message: "no", Details: map[string]any{"x": fits[:60_000]}})
			})
			ticket := b.enqueue("result")
			b.run()
			job := b.want(ticket.ID, ojs.StateDiscarded, 1)
			if _, said := job.Error.Details["details_error"]; !said || len(b.times()) != 1 {
				t.Errorf("%d details, %d runs", len(job.Error.Details), len(b.times()))
			}
		}, engine.WithCodec(codec.AES256GCM(testRing("k1"))))
	})

	t.Run("K014 hooks see plain args, before the encoding", func(t *testing.T) {
		hook := func(_ context.Context, job *ojs.Job[any]) error {
			if job.Args != any(given) {
				t.Errorf("hook got %v", job.Args)
			}
			return nil
		}
		inBubble(t, func(b *rig) {
			ticket := must1(pay.Enqueue(b.ctx, b, given))
			if !b.job(ticket.ID).Args.Encoded() {
				t.Error("it is stored in clear")
			}
		}, withKeys(testRing("k1")), engine.WithEnqueueHook(hook))
	})

	t.Run("Then, EnqueueMany and batches encode each job", func(t *testing.T) {
		next := ojs.Define[payment]("next", noJitter)
		store := memory.New()
		inBubbleOn(t, store, func(b *rig) {
			b.Register(
				handler.For(pay, func(ctx context.Context, job *ojs.Job[payment]) error {
					return handler.Then(ctx, next.New(job.Args), next.New(job.Args))
				}),
				handler.ForBatch(next, func(ctx context.Context, jobs []*ojs.Job[payment]) []error {
					for _, job := range jobs {
						if b.ran(); job.Args != given {
							t.Errorf("batch got %+v", job.Args)
						}
					}
					must(t, handler.SetResult(ctx, secret))
					return nil
				}))
			must1(b.EnqueueMany(b.ctx, pay.New(given), pay.New(given)))
			b.run()
			b.advance(time.Second)
			if n := len(b.times()); n != 4 {
				t.Errorf("%d runs", n)
			}
			wantHidden(t, store)
			for job, err := range b.Jobs().List(b.ctx, inspect.Filter{}) {
				if must(t, err); !job.Args.Encoded() || job.State != ojs.StateCompleted {
					t.Errorf("%s: %s", job.State, job.Args)
				}
			}
		}, withKeys(testRing("k1")))
	})

	t.Run("K002 recurring jobs are stored encoded", func(t *testing.T) {
		store := memory.New()
		keys := testRing("k1")
		inBubbleOn(t, store, func(b *rig) {
			b.Register(handler.For(pay, func(_ context.Context, job *ojs.Job[payment]) error {
				if b.ran(); job.Args != given || job.Meta["cron_name"] != "n" || len(job.Meta) != 3 {
					t.Errorf("%+v, meta %v", job.Args, job.Meta)
				}
				return nil
			}))
			entry := cron.Entry{Name: "n", Schedule: "@every 1h",
				Job: pay.New(given, ojs.WithMeta("tenant", "a"), ojs.WithUnique(ojs.UniquePolicy{}))}
			must(t, b.Cron().Set(b.ctx, entry))
			b.run()
			b.advance(time.Hour)
			wantHidden(t, store)
			// An entry that was looked up may be set again, and is not encoded twice.
			must(t, b.Cron().Set(b.ctx, must1(b.Cron().Get(b.ctx, "n"))))
			b.advance(time.Hour)
			must(t, keys.Add(testKey("x2")))
			must(t, keys.Use("x2"))
			b.advance(time.Hour)
			if n := len(b.times()); n != 3 {
				t.Errorf("%d runs", n)
			}
			n := 0
			for job, err := range b.Jobs().List(b.ctx, inspect.Filter{}) {
				if must(t, err); job.Meta[codec.MetaKeyID] == "x2" {
					n++
				}
			}
			if wantHidden(t, store); n != 1 {
				t.Errorf("%d jobs of the new key", n)
			}
		}, withKeys(keys))
	})

	t.Run("K011 the run of a recurring job without its key waits for it", func(t *testing.T) {
		store := memory.New()
		producer := must1(engine.New[any](store, withKeys(testRing("k1")), quiet))
		keys := testRing("other")
		inBubbleOn(t, store, func(b *rig) {
			b.Register(handler.For(pay, func(_ context.Context, job *ojs.Job[payment]) error {
				if b.ran(); job.Args != given {
					t.Errorf("%+v", job.Args)
				}
				return nil
			}))
			must(t, producer.Cron().Set(b.ctx, cron.Entry{Name: "n", Schedule: "@every 1h",
				Job: pay.New(given)}))
			b.run()
			b.advance(time.Hour)
			must(t, keys.Add(testKey("k1")))
			b.advance(time.Minute)
			if n := len(b.times()); n != 1 {
				t.Errorf("%d runs", n)
			}
		}, withKeys(keys))
	})

	t.Run("a delivery is encoded, and what a worker hands in becomes so", func(t *testing.T) {
		store := memory.New()
		inBubbleOn(t, store, func(b *rig) {
			ticket := must1(pay.Enqueue(b.ctx, b, given))
			w := b.Worker("w", fetch.Config{})
			d := must1(w.Fetch(b.ctx))
			if !d.Job.Args.Encoded() {
				t.Errorf("the worker got %s", d.Job.Args)
			}
			must(t, d.SaveCheckpoint(b.ctx, secret))
			failure := &ojs.Error{Message: "no", Details: map[string]any{"card": secret}}
			must(t, d.Fail(b.ctx, ojs.RetryAfter(time.Millisecond, failure)))
			wantHidden(t, store)
			b.run()
			b.advance(time.Second)
			d = must1(w.Fetch(b.ctx))
			must(t, d.Decode(b.ctx))
			if args := must1(pay.Decode(d.Job)); args != given || string(d.Checkpoint) != `"`+secret+`"` {
				t.Errorf("%+v, checkpoint %s", args, d.Checkpoint)
			}
			// Its own encoding is kept.
			chain := must1(codec.NewChain(codec.AES256GCM(testRing("k1"))))
			raw := must1(chain.EncodeValue(b.ctx, json.RawMessage(`"`+secret+`"`)))
			must(t, d.SaveCheckpoint(b.ctx, raw))
			if got := must1(store.Get(b.ctx, ticket.ID)).Checkpoint; string(got) != string(raw) {
				t.Errorf("checkpoint %s", got)
			}
			must(t, d.Ack(b.ctx, secret))
			wantHidden(t, store)
			var result string
			if err := ticket.Result(b.ctx, &result); err != nil || result != secret {
				t.Errorf("%q, %v", result, err)
			}
		}, withKeys(testRing("k1")))
	})

	t.Run("an engine without a codec keeps and delivers encoded jobs as they are", func(t *testing.T) {
		chain := must1(codec.NewChain(codec.AES256GCM(testRing("k1"))))
		inBubble(t, func(b *rig) {
			tenant := map[string]any{"tenant": "a"}
			args, meta, err := chain.EncodeArgs(b.ctx, must1(ojs.NewArgs(given)), tenant)
			must(t, err)
			opts := []ojs.Option{}
			for k, v := range meta {
				opts = append(opts, ojs.WithMeta(k, v))
			}
			must1(b.EnqueueMany(b.ctx, ojs.NewDraft("pay", args, opts...)))
			d := must1(b.Worker("w", fetch.Config{}).Fetch(b.ctx))
			if d.Job.Args.String() != args.String() || !reflect.DeepEqual(d.Job.Meta, meta) {
				t.Errorf("%s, meta %v", d.Job.Args, d.Job.Meta)
			}
			if err := d.Decode(b.ctx); err == nil || !d.Job.Args.Encoded() {
				t.Errorf("decoded: %v", err)
			}
			result := must1(chain.EncodeValue(b.ctx, json.RawMessage(`"done"`)))
			must(t, d.Ack(b.ctx, result))
			if got := b.job(d.Job.ID).Result; string(got) != string(result) {
				t.Errorf("result %s", got)
			}
		})
	})

	t.Run("K002 encoded args stay as they came, in batches and workflows", func(t *testing.T) {
		keys := testRing("k1", "old")
		old := must1(codec.NewChain(codec.AES256GCM(testRing("old"))))
		inBubble(t, func(b *rig) {
			b.Register(handler.For(pay, func(_ context.Context, job *ojs.Job[payment]) error {
				if b.ran(); job.Args != given {
					t.Errorf("%+v", job.Args)
				}
				return nil
			}))
			args, meta, err := old.EncodeArgs(b.ctx, must1(ojs.NewArgs(given)), nil)
			must(t, err)
			draft := ojs.NewDraft("pay", args, ojs.WithMeta(codec.MetaKeyID, "old"),
				ojs.WithMeta(codec.MetaEncodings, meta[codec.MetaEncodings]))
			must1(b.EnqueueMany(b.ctx, draft, draft))
			must1(b.Workflows().Start(b.ctx, workflow.New("", workflow.Chain(
				workflow.Step("a", draft),
				workflow.Group(workflow.Step("b", draft), workflow.Step("c", draft))))))
			b.run()
			b.advance(time.Second)
			n := 0
			for job, err := range b.Jobs().List(b.ctx, inspect.Filter{Types: []string{"pay"}}) {
				must(t, err)
				if n++; job.Args.String() != args.String() || job.Meta[codec.MetaKeyID] != "old" {
					t.Errorf("%s became %s, meta %v", args, job.Args, job.Meta)
				}
			}
			if n != 5 || len(b.times()) != 5 {
				t.Errorf("%d jobs, %d runs", n, len(b.times()))
			}
		}, withKeys(keys))
	})

	t.Run("a job that comes encoded is not encoded again", func(t *testing.T) {
		keys := testRing("k1")
		chain := must1(codec.NewChain(codec.AES256GCM(keys)))
		inBubble(t, func(b *rig) {
			b.Register(handler.For(pay, func(_ context.Context, job *ojs.Job[payment]) error {
				if b.ran(); job.Args != given {
					t.Errorf("%+v", job.Args)
				}
				return nil
			}))
			args, _, err := chain.EncodeArgs(b.ctx, must1(ojs.NewArgs(given)), nil)
			must(t, err)
			must1(b.EnqueueMany(b.ctx, ojs.NewDraft("pay", args)))
			b.run()
			if n := len(b.times()); n != 1 {
				t.Errorf("%d runs", n)
			}
		}, withKeys(keys))
	})

	t.Run("decoded args that do not fit the handler are not quoted", func(t *testing.T) {
		store := memory.New()
		producer := must1(engine.New[any](store, withKeys(testRing("k1")), quiet))
		inBubbleOn(t, store, func(b *rig) {
			b.Register(handler.For(ojs.Define[struct{ N int8 }]("n"),
				func(context.Context, *ojs.Job[struct{ N int8 }]) error { return nil }))
			ticket := must1(producer.Enqueue(b.ctx, "n", map[string]int{"N": 424242}))
			b.run()
			job := b.want(ticket.ID, ojs.StateDiscarded, 1)
			if job.Error.Type != policy.ErrorTypeArgs || !job.DeadLettered() ||
				strings.Contains(job.Error.Message, "424242") {
				t.Errorf("%+v", job.Error)
			}
		}, withKeys(testRing("k1")))
	})

	t.Run("an enqueue without a key stores nothing and says why", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			_, err := pay.Enqueue(b.ctx, b, given)
			var e *codec.Error
			if !errors.As(err, &e) || e.Type != codec.ErrorTypeKeyNotFound || len(b.deadLetters()) > 0 {
				t.Errorf("%v", err)
			}
			for job := range b.Jobs().List(b.ctx, inspect.Filter{}) {
				t.Errorf("%v is stored", job)
			}
		}, engine.WithCodec(codec.AES256GCM(noKeys{})))
	})

	t.Run("codecs that make no chain are refused", func(t *testing.T) {
		for _, opts := range [][]engine.Option{
			{engine.WithCodec()}, {engine.WithCodec(nil)}, {engine.WithCodec(codec.Gzip(), codec.Gzip())},
			{engine.WithCodec(codec.Gzip()), engine.WithCodec(codec.Gzip())},
		} {
			_, err := engine.New[any](memory.New(), opts...)
			wantInvalid(t, err, "codec")
		}
	})
}

// noKeys is a source of keys that fails.
type noKeys struct{}

func (noKeys) Current(context.Context) (codec.Key, error)     { return codec.Key{}, errBoom }
func (noKeys) Key(context.Context, string) (codec.Key, error) { return codec.Key{}, errBoom }
