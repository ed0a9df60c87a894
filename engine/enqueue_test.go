package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage/memory"
)

type email struct{ To, Subject string }

type report struct{ Month string }

var (
	sendEmail   = ojs.Define[email]("email.send", ojs.WithQueue("mail"), ojs.WithMaxAttempts(8))
	buildReport = ojs.Define[report]("report.build", ojs.WithTimeout(10*time.Minute))
)

func TestTypes(t *testing.T) {
	inBubble(t, func(b *rig) {
		var got []any
		b.Register(
			handler.For(sendEmail, func(_ context.Context, job *ojs.Job[email]) error {
				got = append(got, job.Args)
				return nil
			}),
			handler.For(buildReport, handler.Returning(
				func(_ context.Context, job *ojs.Job[report]) (string, error) {
					got = append(got, job.Args)
					return "https://reports.example/" + job.Args.Month, nil
				})),
		)
		mail, month := email{"a@b.c", "hi"}, report{"2026-03"}
		tickets, err := b.EnqueueMany(b.ctx, sendEmail.New(mail), buildReport.New(month),
			ojs.NewDraft("email.send", &mail))
		if err != nil {
			t.Fatal(err)
		}
		b.run()
		if want := []any{month, mail, mail}; !reflect.DeepEqual(got, want) &&
			!reflect.DeepEqual(got, []any{mail, month, mail}) {
			t.Errorf("got %+v", got)
		}
		var url string
		if err := tickets[1].Result(b.ctx, &url); err != nil || url != "https://reports.example/2026-03" {
			t.Errorf("result %q, %v", url, err)
		}
		if err := tickets[0].Result(b.ctx, &url); err == nil {
			t.Error("a job without a result has one")
		}
		for _, i := range []int{0, 2} { // the type's defaults hold for its name alone, too
			job := b.job(tickets[i].ID)
			if job.Queue != "mail" || job.MaxAttempts != 8 {
				t.Errorf("draft %d: queue %s, %d attempts", i, job.Queue, job.MaxAttempts)
			}
			if args, err := sendEmail.Decode(job); err != nil || args != mail {
				t.Errorf("Decode: %+v, %v", args, err)
			}
		}
	}, engine.WithConcurrency(1))
}

func TestEnqueueRefuses(t *testing.T) {
	tests := []struct {
		name  string
		draft ojs.Draft
		code  ojs.InvalidCode
	}{
		{"P0.1 type name", ojs.NewDraft("Email Send", nil), ojs.InvalidCodeType},
		{"P0.1 queue name", ojs.NewDraft("x", nil, ojs.WithQueue("Main")), ojs.InvalidCodeQueue},
		{"nil args for a handler that takes a struct", ojs.NewDraft("email.send", nil), ojs.InvalidCodeArgs},
		{"a delay and a time", ojs.NewDraft("x", nil, ojs.WithDelay(1), ojs.WithScheduledAt(time.Now())),
			ojs.InvalidCodeOption},
		{"args of another type than the handler's", ojs.NewDraft("email.send", report{}),
			ojs.InvalidCodeArgs},
		{"args that do not encode", ojs.NewDraft("x", math.NaN()), ojs.InvalidCodeArgs},
		{"args whose encoding panics", ojs.NewDraft("x", panicky{}), ojs.InvalidCodeArgs},
		{"raw args that are no JSON", ojs.NewDraft("x", json.RawMessage("{")), ojs.InvalidCodeArgs},
		{"meta that does not encode", ojs.NewDraft("x", nil, ojs.WithMeta("k", func() {})),
			ojs.InvalidCodeMeta},
		{"P0.5 timeout 0", ojs.NewDraft("x", nil, ojs.WithTimeout(0)), ojs.InvalidCodeOption},
		{"P0.5 total timeout below timeout", ojs.NewDraft("x", nil, ojs.WithTimeout(2*time.Minute),
			ojs.WithTotalTimeout(time.Minute)), ojs.InvalidCodeOption},
		{"lease 0", ojs.NewDraft("x", nil, ojs.WithLease(0)), ojs.InvalidCodeOption},
		{"ttl 0", ojs.NewDraft("x", nil, ojs.WithTTL(0)), ojs.InvalidCodeOption},
		{"id", ojs.NewDraft("x", nil, ojs.WithID("1")), ojs.InvalidCodeOption},
		{"nil option", ojs.NewDraft("x", nil, nil), ojs.InvalidCodeOption},
		{"negative attempts", ojs.NewDraft("x", nil, ojs.WithMaxAttempts(-2)), ojs.InvalidCodeRetry},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.Register(handler.For(sendEmail,
					func(context.Context, *ojs.Job[email]) error { return nil }))
				b.run()
				_, err := b.EnqueueMany(b.ctx, ojs.NewDraft("x", nil), tt.draft)
				var invalid *ojs.InvalidError
				if !errors.As(err, &invalid) || !errors.Is(err, ojs.ErrInvalid) || invalid.Code != tt.code ||
					invalid.Field == "" {
					t.Fatalf("error %v, want an InvalidError with %s", err, tt.code)
				}
				if !strings.HasPrefix(err.Error(), "ojs: ") {
					t.Errorf("message %q", err)
				}
				if counts, _ := b.store.Counts(b.ctx); len(counts) != 0 {
					t.Errorf("stored all the same: %v", counts)
				}
				if _, err := b.Enqueue(b.ctx, "x", nil); err != nil {
					t.Errorf("the engine is unwell afterwards: %v", err)
				}
			})
		})
	}
}

type panicky struct{}

func (panicky) MarshalJSON() ([]byte, error) { panic("in MarshalJSON") }

func TestIDs(t *testing.T) {
	t.Run("P0.1 UUIDv7 in the order of enqueueing", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var ids []string
			for i := range 5000 {
				if i%1000 == 0 {
					b.advance(time.Millisecond)
				}
				ids = append(ids, b.enqueue("x").ID)
			}
			if !slices.IsSorted(ids) || len(slices.Compact(ids)) != 5000 {
				t.Error("ids are not sorted and distinct")
			}
			for _, id := range ids {
				if u, err := uuid.Parse(id); err != nil || u.Version() != 7 || u.Variant() != uuid.RFC4122 {
					t.Fatalf("%s is no UUIDv7", id)
				}
			}
		})
	})
	t.Run("of the caller: stored once", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			id := uuid.Must(uuid.NewV7()).String()
			b.enqueue("x", ojs.WithID(strings.ToUpper(id)))
			b.want(id, ojs.StateAvailable, 0)
			_, err := b.EnqueueMany(b.ctx, ojs.NewDraft("y", nil), ojs.NewDraft("x", nil, ojs.WithID(id)))
			var dup *ojs.DuplicateError
			if !errors.As(err, &dup) || dup.ID != id || dup.State != ojs.StateAvailable ||
				!errors.Is(err, ojs.ErrDuplicate) {
				t.Errorf("error %v", err)
			}
			other := uuid.Must(uuid.NewV7()).String()
			if _, err := b.EnqueueMany(b.ctx, ojs.NewDraft("x", nil, ojs.WithID(other)),
				ojs.NewDraft("x", nil, ojs.WithID(other))); !errors.Is(err, ojs.ErrDuplicate) {
				t.Errorf("twice in one batch: %v", err)
			}
			if counts, _ := b.store.Counts(b.ctx); len(counts) != 1 || counts[0].N != 1 {
				t.Errorf("stored %v", counts)
			}
			unique := ojs.WithUnique(ojs.UniquePolicy{})
			_, err = b.EnqueueMany(b.ctx, ojs.NewDraft("x", nil), ojs.NewDraft("z", nil, unique),
				ojs.NewDraft("y", nil), ojs.NewDraft("z", nil, unique))
			if !errors.Is(err, ojs.ErrDuplicate) ||
				!strings.HasPrefix(err.Error(),
					"ojs: two drafts are equal, draft 2 is one: ojs: duplicate: ") {
				t.Errorf("equal jobs in one batch: %v", err)
			}
		})
	})
	t.Run("the same seed gives the same ids and jitter", func(t *testing.T) {
		ids := func(seed uint64) (got []string) {
			eng, err := engine.New[any](memory.New(), engine.WithClock(clock.NewMock()),
				engine.WithRand(rand.New(rand.NewPCG(seed, 0))), quiet)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				ticket, err := eng.Enqueue(t.Context(), "x", nil)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, ticket.ID)
			}
			return got
		}
		if !slices.Equal(ids(1), ids(1)) || slices.Equal(ids(1), ids(2)) {
			t.Errorf("%v, %v, %v", ids(1), ids(1), ids(2))
		}
	})
}

func TestOptionLayers(t *testing.T) {
	inBubble(t, func(b *rig) {
		layered := ojs.Define[any]("layered", ojs.WithQueue("mail"), ojs.WithTimeout(3*time.Second),
			ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 3}))
		ticket, err := layered.Enqueue(b.ctx, b, nil, ojs.WithPriority(4), ojs.WithMeta("call", true),
			ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 4}))
		if err != nil {
			t.Fatal(err)
		}
		job := b.job(ticket.ID)
		want := policy.Default()
		want.MaxAttempts, want.InitialInterval, want.MaxInterval = 4, 2*time.Second, 10*time.Second
		if !reflect.DeepEqual(job.Retry, want) {
			t.Errorf("A001 A102 A172 B001 retry %+v, want %+v", job.Retry, want)
		}
		if job.Priority != 4 || job.Timeout != 3*time.Second || job.Lease != 2*time.Minute ||
			job.TotalTimeout != time.Hour {
			t.Errorf("priority %d, timeout %v, lease %v, total %v", job.Priority, job.Timeout, job.Lease,
				job.TotalTimeout)
		}
		if want := map[string]any{"call": true, "engine": 1.0, "tags": []any{"a", "b"}}; !reflect.DeepEqual(
			job.Meta, want) {
			t.Errorf("meta %v, want %v", job.Meta, want)
		}
		other := b.job(b.enqueue("plain").ID) // on no queue with defaults
		if other.Lease != time.Minute || other.Retry.InitialInterval != time.Second {
			t.Errorf("lease %v, retry %+v", other.Lease, other.Retry)
		}
	},
		engine.WithDefaults(ojs.WithPriority(1), ojs.WithTimeout(time.Second), ojs.WithLease(time.Minute),
			ojs.WithMeta("engine", 1),
			ojs.WithTags("a"), ojs.WithTotalTimeout(time.Hour),
			ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 1, MaxInterval: 10 * time.Second})),
		engine.WithQueueConfig("mail", engine.QueueConfig{Defaults: []ojs.Option{ojs.WithPriority(2),
			ojs.WithTimeout(2 * time.Second),
			ojs.WithLease(2 * time.Minute), ojs.WithTags("a", "b"),
			ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 2, InitialInterval: 2 * time.Second})}}),
	)
}

func TestJobIsACopy(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.Handle("x", func(_ context.Context, job *ojs.Job[any]) error {
			job.Meta["list"].([]any)[0] = "changed"
			job.Args.(map[string]any)["a"] = "changed"
			if len(job.Errors) > 0 {
				job.Errors[0].Message = "changed"
			}
			if job.Attempt == 1 {
				return errBoom
			}
			return nil
		})
		list := []any{"kept"}
		args := map[string]any{"a": "kept"}
		ticket, err := b.Enqueue(b.ctx, "x", args, ojs.WithMeta("list", list))
		if err != nil {
			t.Fatal(err)
		}
		list[0], args["a"] = "changed", "changed"
		b.run()
		b.advance(time.Minute)
		for range 2 {
			job := b.want(ticket.ID, ojs.StateCompleted, 2)
			if job.Meta["list"].([]any)[0] != "kept" || job.Args.String() != `{"a":"kept"}` ||
				job.Errors[0].Message != "boom" {
				t.Errorf("meta %v, args %v, errors %v", job.Meta, job.Args, job.Errors)
			}
			job.Meta["list"].([]any)[0] = "changed"
			job.Errors[0].Message = "changed"
		}
	})
}

func TestNoHandlerWarnsOnce(t *testing.T) {
	var log bytes.Buffer
	inBubble(t, func(b *rig) {
		b.handle("known", func(context.Context, *ojs.Job[any]) error { return nil })
		for range 3 {
			b.enqueue("known")
			b.enqueue("unknown")
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 ||
			!strings.Contains(log.String(), "job_type=unknown") {
			t.Errorf("log: %s", log.String())
		}
	}, engine.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
}

func TestClosedStorage(t *testing.T) {
	inBubble(t, func(b *rig) {
		ticket := b.enqueue("x")
		if err := b.store.Close(); err != nil {
			t.Fatal(err)
		}
		_, enqueueErr := b.Enqueue(b.ctx, "x", nil)
		_, getErr := b.Get(b.ctx, ticket.ID)
		_, waitErr := ticket.Wait(b.ctx)
		for _, err := range []error{enqueueErr, getErr, waitErr, b.Cancel(b.ctx, ticket.ID)} {
			if !errors.Is(err, ojs.ErrClosed) {
				t.Errorf("error %v, want ErrClosed", err)
			}
		}
	})
}

func TestEndedContext(t *testing.T) {
	inBubble(t, func(b *rig) {
		ctx, cancel := context.WithCancel(b.ctx)
		cancel()
		if _, err := b.Enqueue(ctx, "x", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("Enqueue: %v", err)
		}
		if counts, _ := b.store.Counts(b.ctx); len(counts) != 0 {
			t.Errorf("stored %v", counts)
		}
		ticket := b.enqueue("x")
		ctx, cancel = context.WithTimeout(b.ctx, time.Minute)
		defer cancel()
		if _, err := ticket.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) ||
			b.elapsed() != time.Minute {
			t.Errorf("Wait: %v at %v", err, b.elapsed())
		}
		if tickets, err := b.EnqueueMany(b.ctx); err != nil || len(tickets) != 0 {
			t.Errorf("nothing: %v, %v", tickets, err)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	for name, opt := range map[string]engine.Option{
		"nil option":       nil,
		"concurrency":      engine.WithConcurrency(0),
		"prefetch":         engine.WithPrefetch(0),
		"a large prefetch": engine.WithPrefetch(1001),
		"grace":            engine.WithGracePeriod(-1),
		"clock":            engine.WithClock(nil),
		"logger":           engine.WithLogger(nil),
		"rand":             engine.WithRand(nil),
		"name":             engine.WithName(""),
		"queue name":       engine.WithQueueConfig("", engine.QueueConfig{}),
		"queue defaults": engine.WithQueueConfig("a",
			engine.QueueConfig{Defaults: []ojs.Option{ojs.WithTimeout(-1)}}),
		"queue default queue": engine.WithQueueConfig("a",
			engine.QueueConfig{Defaults: []ojs.Option{ojs.WithQueue("b")}}),
		"defaults": engine.WithDefaults(ojs.WithLease(0)),
	} {
		if _, err := engine.New[any](memory.New(), opt); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	twice := engine.WithQueueConfig("a", engine.QueueConfig{})
	if _, err := engine.New[any](memory.New(), twice, twice); !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("a queue twice: %v", err)
	}
	if _, err := engine.New[any](nil); !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("no storage: %v", err)
	}
}

func TestRegisterPanics(t *testing.T) {
	f := func(context.Context, *ojs.Job[any]) error { return nil }
	for name, register := range map[string]func(*engine.Engine[any]){
		"name":   func(e *engine.Engine[any]) { e.Handle("Bad Name", f) },
		"nil":    func(e *engine.Engine[any]) { e.Handle("x", nil) },
		"twice":  func(e *engine.Engine[any]) { e.Handle("x", f); e.Handle("x", f) },
		"zero":   func(e *engine.Engine[any]) { e.Register(handler.Handler{}) },
		"a pair": func(e *engine.Engine[any]) { h := handler.For(ojs.Define[any]("x"), f); e.Register(h, h) },
	} {
		eng, err := engine.New[any](memory.New(),
			engine.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			register(eng)
		}()
	}
}

func TestParsedDraft(t *testing.T) {
	inBubble(t, func(b *rig) {
		d, err := ojs.ParseDraft([]byte(`{"specversion":"1.0","type":"email.send","args":[{"To":"a@b.c"}],
			"state":"completed","attempt":7,"created_at":"2001-01-01T00:00:00Z","result":1,"x_custom":[1],
			"options":{"queue":"mail","retry":{"max_attempts":0}}}`))
		if err != nil {
			t.Fatal(err)
		}
		var got email
		b.Register(handler.For(ojs.Define[email]("email.send"),
			func(_ context.Context, job *ojs.Job[email]) error {
				got = job.Args
				return errBoom
			}))
		tickets, err := b.EnqueueMany(b.ctx, d)
		if err != nil {
			t.Fatal(err)
		}
		b.want(tickets[0].ID, ojs.StateAvailable, 0)
		b.run()
		b.advance(time.Hour)
		job := b.want(tickets[0].ID, ojs.StateDiscarded, 1)
		if got.To != "a@b.c" || job.Queue != "mail" || job.Retry.MaxAttempts != ojs.NoRetry ||
			!job.CreatedAt.Equal(b.start) ||
			job.Result != nil || string(job.Extra["x_custom"]) != "[1]" {
			t.Errorf("args %+v, job %+v", got, job)
		}
	})
}
