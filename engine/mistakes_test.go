package engine_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

type notePerson struct {
	N  int    `json:"n"`
	To string `json:"to"`
}

// TestMistakes makes the mistakes of a first day with an engine. Each error names the
// mistake and the remedy.
func TestMistakes(t *testing.T) {
	eng, err := engine.New[any](memory.New(), quiet)
	must(t, err)
	notify := ojs.Define[notePerson]("note.send")
	nothing := func(context.Context, *ojs.Job[notePerson]) error { return nil }
	eng.Register(handler.For(notify, nothing))
	ctx := t.Context()
	new1 := func(s storage.Storage, opts ...engine.Option) error {
		_, err := engine.New[any](s, opts...)
		return err
	}
	enqueue := func(name string, args any, opts ...ojs.Option) error {
		return second(eng.Enqueue(ctx, name, args, opts...))
	}
	register := func(h handler.Handler) (err error) {
		defer func() { err, _ = recover().(error) }()
		eng.Register(h)
		return nil
	}
	recur := func(schedule, zone string) error {
		return eng.Cron().Set(ctx, cron.Entry{Name: "e", Schedule: schedule, TimeZone: zone,
			Job: ojs.NewDraft("x", nil)})
	}
	for _, tt := range []struct {
		name string
		err  error
		want string // the whole error, but for what a star stands for
	}{
		{"no storage", new1(nil),
			"ojs: invalid storage: is nil: make one, with memory.New() for example"},
		{"a nil storage of a type", new1((*memory.Storage)(nil)),
			"ojs: invalid storage: is a nil *memory.Storage: make one, with memory.New() for example"},
		{"no slots", new1(memory.New(), engine.WithConcurrency(0)),
			"ojs: invalid concurrency: 0 is not from 1 to 1000000"},
		{"too many slots", new1(memory.New(), engine.WithConcurrency(10_000_000)),
			"ojs: invalid concurrency: 10000000 is not from 1 to 1000000"},
		{"the most slots", new1(memory.New(), engine.WithConcurrency(1_000_000)), ""},
		{"a nil option", new1(memory.New(), nil), "ojs: invalid option: is nil"},
		{"a queue twice", new1(memory.New(), engine.WithQueueConfig("a", engine.QueueConfig{}),
			engine.WithQueueConfig("a", engine.QueueConfig{})), `ojs: invalid queue: "a" is given twice`},
		{"a handler twice", register(handler.For(notify, nothing)),
			"ojs: invalid handler: job type note.send has a handler already"},
		{"a handler for some versions beside one for all",
			register(handler.For(notify, nothing, handler.WithVersions(">=2.0"))),
			"ojs: invalid handler: job type note.send has a handler already, for all versions, and this is for >=2.0"},
		{"the zero handler", register(handler.Handler{}),
			"ojs: invalid handler: is the zero Handler; use handler.For"},
		{"a type with a colon", enqueue("email:deliver", nil),
			`ojs: invalid type: "email:deliver": use lower-case words of letters, digits, _ and -, joined by dots, ` +
				`each beginning with a letter, such as email.send`},
		{"no type", enqueue("", nil),
			`ojs: invalid type: is empty: use lower-case words of letters, digits, _ and -, joined by dots, ` +
				`each beginning with a letter, such as email.send`},
		{"a unique key that is not in the args", enqueue("x", notePerson{1, "a"},
			ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs, ArgsKeys: []string{"user_id"}})),
			`ojs: invalid unique.args_keys: "user_id" is no member of the args, whose members are: n, to`},
		{"a unique key of args without members", enqueue("x", struct{}{},
			ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs, ArgsKeys: []string{"user_id"}})),
			`ojs: invalid unique.args_keys: "user_id" is no member of the args, whose members are: none`},
		{"a unique key that is not in the meta", enqueue("x", nil, ojs.WithMeta("tenant", 7),
			ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByMeta, MetaKeys: []string{"user_id"}})),
			`ojs: invalid unique.meta_keys: "user_id" is no member of the meta, whose members are: tenant`},
		{"args of another type than the handler's", enqueue("note.send", "a string"),
			"ojs: invalid args: are a string, but the handler of note.send takes a engine_test.notePerson"},
		{"the second of three drafts", second(eng.EnqueueMany(ctx, ojs.NewDraft("x", nil),
			ojs.NewDraft("X", nil), ojs.NewDraft("x", nil))),
			`ojs: draft 2 of 3: ojs: invalid type: "X": use lower-case words *`},
		{"a zone by its old name", recur("0 3 * * *", "CET"),
			`ojs: cron entry "e": ojs: invalid time_zone: "CET" is not written as Area/City, such as Europe/Berlin`},
		{"a schedule that never comes", recur("0 0 31 2 *", ""),
			`ojs: cron entry "e": ojs: invalid schedule: "0 0 31 2 *" never comes`},
		{"a schedule of too many fields", recur("0 0 3 * * * * *", ""),
			`ojs: cron entry "e": ojs: invalid schedule: has 8 fields, neither 5 nor 6`},
		{"missed runs with the default overlap", eng.Cron().Set(ctx, cron.Entry{Name: "e",
			Schedule: "@daily", Job: ojs.NewDraft("x", nil), Missed: cron.MissedAll}),
			`ojs: cron entry "e": ojs: invalid missed: all goes with the overlap allow or enqueue, not with skip`},
		{"a filter with an unknown key", second(inspect.Parse("state:active colour:red", time.Now())),
			`ojs: invalid filter, column 14: "colour" is no key: use one of state, queue, *`},
		{"a filter that is an id", second(inspect.Parse("01a217", time.Now())),
			`ojs: invalid filter, column 1: "01a217" is no term: write key:value, such as error:01a217`},
		{"a draft that waits for an unknown one", second(eng.EnqueueMany(ctx,
			ojs.NewDraft("x", nil, ojs.WithDependsOn("nobody")))),
			`ojs: unknown dependency: job * cannot wait for job "nobody", which is not stored; enqueue that one *`},
		{"drafts that wait for each other", second(eng.EnqueueMany(ctx,
			ojs.NewDraft("x", nil, ojs.WithDraftName("a"), ojs.WithDependsOn("b")),
			ojs.NewDraft("x", nil, ojs.WithDraftName("b"), ojs.WithDependsOn("a")))),
			"ojs: invalid depends_on: has a circle: job * waits, directly or through others, for jobs that wait *"},
		{"a page of no jobs", second(eng.Jobs().Page(ctx, inspect.Filter{}, "", 0)),
			"ojs: invalid limit: 0 is not from 1 to 1000"},
		{"a bound of nothing", eng.Limits().Set(ctx, operate.LimitOfKey("k"), ojs.RateLimit{Concurrency: -2},
			time.Time{}),
			"ojs: invalid rate_limit.concurrency: -2 is negative"},
		{"args of 2 MiB", enqueue("x", strings.Repeat("x", 2<<20)),
			"ojs: invalid envelope: has 2097154 bytes of JSON, more than 1048576: store the data elsewhere, and " +
				"enqueue its name"},
		{"args that are too large with the rest", enqueue("x", strings.Repeat("x", 1<<20-10)),
			"ojs: invalid envelope: has 10490* bytes of JSON, more than 1048576: store the data elsewhere, and " +
				"enqueue its name"},
		{"args of 32 MiB", enqueue("x", strings.Repeat("x", 32<<20)),
			"ojs: invalid envelope: has more than 1048576 bytes of JSON: store the data elsewhere, and " +
				"enqueue its name"},
		{"meta of 1 MiB", enqueue("x", nil, ojs.WithMeta("file", strings.Repeat("x", 1<<20))),
			"ojs: invalid meta: has 1048587 bytes of JSON, more than 65536: store the data elsewhere, and " +
				"enqueue its name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want == "" {
				must(t, tt.err)
				return
			}
			pattern := strings.ReplaceAll(regexp.QuoteMeta(tt.want), `\*`, ".*")
			if tt.err == nil || !regexp.MustCompile("^"+pattern+"$").MatchString(tt.err.Error()) {
				t.Errorf("error %v\nwant  %s", tt.err, tt.want)
			}
			if !errors.Is(tt.err, ojs.ErrInvalid) && !errors.Is(tt.err, ojs.ErrDependency) {
				t.Errorf("%v is neither ErrInvalid nor ErrDependency", tt.err)
			}
		})
	}
}

// TestUnknownNames holds F090: a pause of an unknown queue succeeds. It says that the
// queue is unknown, in its result and in the log; so do its like.
func TestUnknownNames(t *testing.T) {
	inBubble(t, func(b *rig) {
		var buf bytes.Buffer
		warn := &slog.HandlerOptions{Level: slog.LevelWarn}
		log := slog.New(slog.NewTextHandler(&buf, warn))
		eng, err := engine.New[any](b.store, engine.WithLogger(log),
			engine.WithQueueConfig("served", engine.QueueConfig{}))
		must(t, err)
		eng.Register(handler.For(ojs.Define[any]("has.handler", ojs.WithQueue("of-type")),
			func(context.Context, *ojs.Job[any]) error { return nil }))
		b.enqueue("has.job", ojs.WithQueue("has-job"))
		b.run()
		b.advance(time.Minute) // it has reported
		q := eng.Queues()
		type call func(name string) (bool, error)
		of := func(f func(context.Context, string) (bool, error)) call {
			return func(name string) (bool, error) { return f(b.ctx, name) }
		}
		pauseType := func(name string) (bool, error) { return q.PauseType(b.ctx, name, "") }
		for _, tt := range []struct {
			name string
			do   call
			on   string
			want bool
		}{
			{"pause of a queue with jobs", of(q.Pause), "has-job", true},
			{"pause of a queue that is served", of(q.Pause), "served", true},
			{"pause of a type's queue", of(q.Pause), "of-type", true},
			{"pause of the default queue", of(q.Pause), "default", true},
			{"pause of another engine's queue", of(q.Pause), "elsewhere", true},
			{"F090 pause of an unknown queue", of(q.Pause), "emial", false},
			{"pause again, which changes nothing", of(q.Pause), "emial", true},
			{"resume of a queue that was paused by mistake", of(q.Resume), "emial", true},
			{"resume of an unknown queue", of(q.Resume), "emial", false},
			{"drain of an unknown queue", of(q.Drain), "fial", false},
			{"pause of a type with a handler", pauseType, "has.handler", true},
			{"pause of a type with a job", pauseType, "has.job", true},
			{"pause of an unknown type", pauseType, "emial.send", false},
			{"resume of a type that was paused by mistake", of(q.ResumeType), "emial.send", true},
			{"resume of an unknown type", of(q.ResumeType), "emial.send", false},
		} {
			buf.Reset()
			known, err := tt.do(tt.on)
			if err != nil || known != tt.want || strings.Contains(buf.String(), tt.on) == tt.want {
				t.Errorf("%s: known is %v, %v, want %v, logged %q", tt.name, known, err, tt.want, &buf)
			}
		}
		for name, want := range map[operate.LimitName]bool{
			operate.LimitOfQueue("emial"): false, operate.LimitOfQueue("served"): true,
			operate.LimitOfType("emial.send"): false, operate.LimitOfType("has.handler"): true,
			operate.LimitOfKey("new"): true,
		} {
			buf.Reset()
			must(t, eng.Limits().Set(b.ctx, name, ojs.RateLimit{Concurrency: 1}, time.Time{}))
			must(t, eng.Limits().Block(b.ctx, name, b.start.Add(time.Hour)))
			if got := strings.Count(buf.String(), "level=WARN"); (got == 0) != want {
				t.Errorf("limit of %v: %d warnings", name, got)
			}
		}
		if err := b.ConfigureQueue(b.ctx, "emial", engine.QueueConfig{}); !errors.Is(err, ojs.ErrNotFound) {
			t.Errorf("Configure of an unknown queue: %v", err)
		}
	}, engine.WithReports(engine.Reports{}), engine.WithQueueConfig("elsewhere", engine.QueueConfig{}))
}
