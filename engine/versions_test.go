package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
	"github.com/ojsengine/ojs/workflow"
)

func TestVersions(t *testing.T) {
	type one struct{ Name string }
	type two struct{ First, Last string }
	var (
		v1 = ojs.Define[one]("greet", ojs.WithVersion("1.0"), noJitter)
		v2 = ojs.Define[two]("greet", ojs.WithVersion("2.3"), noJitter)
	)
	// both handles both versions, and notes what has run.
	both := func(b *rig, ran *[]string) {
		b.Register(
			handler.For(v1, func(_ context.Context, job *ojs.Job[one]) error {
				*ran = append(*ran, fmt.Sprint("1: ", job.Args.Name, " ", job.TypeVersion))
				return nil
			}, handler.WithVersions("<2.0")),
			handler.For(v2, func(_ context.Context, job *ojs.Job[two]) error {
				*ran = append(*ran, fmt.Sprint("2: ", job.Args.First, " ", job.TypeVersion))
				return nil
			}, handler.WithVersions(">=2.0 <3.0")))
	}
	stores := map[string]func() storage.Storage{
		"memory":           func() storage.Storage { return memory.New() },
		"reference":        func() storage.Storage { return storagetest.NewReference() },
		"without its step": func() storage.Storage { return bare{memory.New()} },
	}
	for name, open := range stores {
		t.Run("V003 V006 V007 V009 a version runs with its handler: "+name, func(t *testing.T) {
			inBubbleOn(t, open(), func(b *rig) {
				var ran []string
				both(b, &ran)
				third := ojs.WithVersion("3.0")
				late := must1(b.EnqueueMany(b.ctx,
					ojs.NewDraft("greet", two{First: "late"}, third, ojs.WithPriority(9)),
					ojs.NewDraft("greet", two{First: "expires"}, third, ojs.WithTTL(time.Minute)),
					v2.New(two{First: "b"}), v1.New(one{"a"}), v2.New(two{First: "c"}, ojs.WithVersion("2")),
					ojs.NewDraft("greet", one{"plain"})))
				b.run()
				b.advance(time.Second)
				want := []string{"2: b 2.3", "1: a 1.0", "2: c 2", "1: plain "}
				if !reflect.DeepEqual(ran, want) {
					t.Errorf("ran %q, want %q", ran, want)
				}
				b.want(late[0].ID, ojs.StateAvailable, 0)
				b.advance(time.Minute)
				b.want(late[1].ID, ojs.StateDiscarded, 0)
				nop := func(context.Context, *ojs.Job[two]) error { return nil }
				b.Register(handler.For(ojs.Define[two]("greet"), nop, handler.WithVersions(">=3.0")))
				b.advance(0)
				job := b.want(late[0].ID, ojs.StateCompleted, 1)
				if job.Type != "greet" || job.TypeVersion != "3.0" {
					t.Errorf("type %q, version %q", job.Type, job.TypeVersion)
				}
			}, engine.WithConcurrency(1))
		})
	}
	t.Run("V006 a handler without a range takes every version", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("greet", nothing)
			tickets := must1(b.EnqueueMany(b.ctx, v1.New(one{}), v2.New(two{}), ojs.NewDraft("greet", nil)))
			b.run()
			for _, ticket := range tickets {
				b.want(ticket.ID, ojs.StateCompleted, 1)
			}
		})
	})
	t.Run("V006 an engine that takes a version is woken for its jobs", func(t *testing.T) {
		store := memory.New()
		old := must1(engine.New[any](store, quiet))
		inBubbleOn(t, store, func(b *rig) {
			var ran []string
			both(b, &ran)
			b.run()
			must1(old.EnqueueMany(b.ctx,
				ojs.NewDraft("greet", one{"other"}, ojs.WithVersion("9.0")), v2.New(two{First: "now"})))
			b.advance(time.Second)
			if !reflect.DeepEqual(ran, []string{"2: now 2.3"}) {
				t.Errorf("ran %q", ran)
			}
		})
	})
	t.Run("V001 V009 versions through retries, replays, recurring jobs and Then", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			failed := false
			var seen []string
			b.Register(handler.For(v2, func(ctx context.Context, job *ojs.Job[two]) error {
				seen = append(seen, job.TypeVersion)
				switch {
				case !failed:
					failed = true
					return handler.Then(ctx, v1.New(one{"never"}))
				case job.Attempt == 1 && job.Args.First == "retry":
					return errBoom
				case job.Args.First == "retry" && len(seen) < 4:
					return ojs.DeadLetter(errBoom)
				}
				return nil
			}, handler.WithVersions("2.3")))
			must1(v2.Enqueue(b.ctx, b, two{}))
			b.run()
			ticket := must1(v2.Enqueue(b.ctx, b, two{First: "retry"}))
			b.advance(time.Minute)
			wantInvalid(t, b.DeadLetters().Retry(b.ctx, ticket.ID, ojs.WithVersion("1.0")), "version")
			must(t, b.DeadLetters().Retry(b.ctx, ticket.ID))
			entry := cron.Entry{Name: "n", Schedule: "@every 1h", Job: v2.New(two{})}
			must(t, b.Cron().Set(b.ctx, entry))
			b.advance(time.Hour)
			for _, v := range seen {
				if v != "2.3" {
					t.Errorf("versions %q", seen)
				}
			}
			waiting := 0
			available := inspect.Filter{States: []ojs.State{ojs.StateAvailable}}
			for job, err := range b.Jobs().List(b.ctx, available) {
				if must(t, err); job.TypeVersion == "1.0" {
					waiting++
				}
			}
			if len(seen) < 5 || waiting != 1 {
				t.Errorf("%q ran, %d wait", seen, waiting)
			}
		})
	})
	t.Run("V001 V009 the members of a workflow have their own versions", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var ran []string
			both(b, &ran)
			must1(b.Workflows().Start(b.ctx, workflow.New("", workflow.Chain(
				workflow.Step("a", v1.New(one{"a"})), workflow.Step("b", v2.New(two{First: "b"})),
				workflow.Step("c", ojs.NewDraft("greet", one{"c"}, ojs.WithVersion("1"))),
				workflow.Step("d", ojs.NewDraft("greet", one{"d"}))))))
			b.run()
			b.advance(time.Second)
			if want := []string{"1: a 1.0", "2: b 2.3", "1: c 1", "1: d "}; !reflect.DeepEqual(ran, want) {
				t.Errorf("ran %q, want %q", ran, want)
			}
		})
	})
	t.Run("V007 overlapping ranges are refused", func(t *testing.T) {
		eng := must1(engine.New[any](memory.New()))
		nop := func(context.Context, *ojs.Job[one]) error { return nil }
		refused := func(opts ...handler.Option) (said bool) {
			defer func() { said = recover() != nil }()
			eng.Register(handler.For(ojs.Define[one]("x"), nop, opts...))
			return false
		}
		for i, c := range []struct {
			within string
			want   bool
		}{
			{">=1.0 <2.0", false}, {"1.5", true}, {"*", true}, {"", true}, {"2.0", false}, {">=2.0", true},
			{"<1.0", false},
		} {
			var opts []handler.Option
			if c.within != "" {
				opts = append(opts, handler.WithVersions(c.within))
			}
			if got := refused(opts...); got != c.want {
				t.Errorf("%d: %q refused: %t", i, c.within, got)
			}
		}
		if n := len(eng.Describe().Handlers); n != 3 {
			t.Errorf("%d handlers", n)
		}
		for _, bad := range []string{"", "^1.0", "~1", "x"} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("WithVersions(%q) is accepted", bad)
					}
				}()
				handler.WithVersions(bad)
			}()
		}
	})
	t.Run("V007 each handler has its own limit and its own type of args", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			running := map[string]int{}
			most := map[string]int{}
			run := func(name string) {
				b.mu.Lock()
				running[name]++
				most[name] = max(most[name], running[name])
				b.mu.Unlock()
				pace.Virtual(time.Second)
				b.mu.Lock()
				running[name]--
				b.mu.Unlock()
			}
			b.Register(
				handler.For(v1, func(context.Context, *ojs.Job[one]) error { run("1"); return nil },
					handler.WithVersions("1.0"), handler.WithSlots(2)),
				handler.For(v2, func(context.Context, *ojs.Job[two]) error { run("2"); return nil },
					handler.WithVersions(">=2.0"), handler.WithSlots(3)))
			for range 6 {
				must1(b.EnqueueMany(b.ctx, v1.New(one{}), v2.New(two{}), ojs.NewDraft("greet", one{})))
			}
			b.run()
			b.advance(time.Minute)
			if most["1"] != 2 || most["2"] != 3 {
				t.Errorf("at once %v", most)
			}
			_, err := b.EnqueueMany(b.ctx, ojs.NewDraft("greet", one{}, ojs.WithVersion("2.0")))
			wantInvalid(t, err, "args")
			must1(b.EnqueueMany(b.ctx, ojs.NewDraft("greet", one{}, ojs.WithVersion("0.5"))))
		})
	})
	t.Run("V008 versions are different jobs, unless keys leave them out", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			enqueue := func(version string, p ojs.UniquePolicy) error {
				opts := []ojs.Option{ojs.WithUnique(p)}
				if version != "" {
					opts = append(opts, ojs.WithVersion(version))
				}
				_, err := b.Enqueue(b.ctx, "u", 1, opts...)
				return err
			}
			byDefault := ojs.UniquePolicy{}
			named := ojs.UniquePolicy{Keys: ojs.ByArgs | ojs.ByVersion}
			without := ojs.UniquePolicy{Keys: ojs.ByType | ojs.ByQueue}
			for i, c := range []struct {
				version string
				policy  ojs.UniquePolicy
				twice   bool
			}{
				{"1.0", byDefault, false}, {"2.0", byDefault, false}, {"2", byDefault, true},
				{"", byDefault, false},
				{"1.0", named, false}, {"2.0", named, false}, {"1.0", named, true},
				{"1.0", without, false}, {"2.0", without, true}, {"", without, true},
			} {
				if err := enqueue(c.version, c.policy); errors.Is(err, ojs.ErrDuplicate) != c.twice {
					t.Errorf("%d: %q: %v", i, c.version, err)
				}
			}
			// The JSON of a job keeps its identity.
			stored := b.enqueue("v", ojs.WithVersion("1.0"), ojs.WithUnique(byDefault))
			var job ojs.JobInfo
			must(t, json.Unmarshal(must1(json.Marshal(b.job(stored.ID))), &job))
			again := ojs.NewDraft("v", nil, ojs.WithVersion("1.0"), ojs.WithUnique(*job.Unique))
			if _, err := b.EnqueueMany(b.ctx, again); !errors.Is(err, ojs.ErrDuplicate) {
				t.Errorf("an equal job: %v", err)
			}
		})
	})
	t.Run("V004 a remote worker names the versions that it takes", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			tickets := must1(b.EnqueueMany(b.ctx, v1.New(one{}), v2.New(two{}), ojs.NewDraft("greet", nil)))
			w := b.Worker("w", fetch.Config{Types: []string{"greet@>=2.0 <3.0"}})
			ds := must1(w.FetchMany(b.ctx, 9))
			if len(ds) != 2 || ds[0].Job.ID != tickets[1].ID || ds[1].Job.ID != tickets[2].ID {
				t.Errorf("%d deliveries", len(ds))
			}
			_, err := b.Worker("v", fetch.Config{Types: []string{"greet@^2"}}).FetchMany(b.ctx, 1)
			wantInvalid(t, err, "types")
			d := must1(b.Worker("all", fetch.Config{Types: []string{"greet"}}).Fetch(b.ctx))
			if d.Job.ID != tickets[0].ID {
				t.Errorf("fetched version %q", d.Job.TypeVersion)
			}
			// A worker goes by its latest range, and is woken for jobs of it.
			stored := make(chan []ojs.Ticket, 1)
			time.AfterFunc(time.Minute, func() {
				stored <- must1(b.EnqueueMany(b.ctx, v2.New(two{}), v1.New(one{})))
			})
			ranged := b.Worker("w", fetch.Config{Types: []string{"greet@<2.0"}})
			ctx, cancel := context.WithTimeout(b.ctx, time.Hour)
			defer cancel()
			d, err = ranged.Fetch(ctx)
			if tickets = <-stored; err != nil || d.Job.ID != tickets[1].ID {
				t.Errorf("V006 not woken for %s: %v", tickets[1].ID, err)
			}
			// A type without a range has every version, beside one that has a range.
			other := b.enqueue("other", ojs.WithVersion("9.0"))
			ranged = b.Worker("w", fetch.Config{Types: []string{"greet@<2.0", "other"}})
			if ds := must1(ranged.FetchMany(b.ctx, 9)); len(ds) != 1 || ds[0].Job.ID != other.ID {
				t.Errorf("%d deliveries", len(ds))
			}
			must1(b.Worker("all", fetch.Config{Types: []string{"greet"}}).Fetch(b.ctx))
			// A worker that names no type takes every version.
			last := must1(v2.Enqueue(b.ctx, b, two{}))
			if d = must1(b.Worker("any", fetch.Config{}).Fetch(b.ctx)); d.Job.ID != last.ID {
				t.Errorf("fetched version %q", d.Job.TypeVersion)
			}
		})
	})
}
