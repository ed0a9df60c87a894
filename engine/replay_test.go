package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// dies is a handler whose jobs become dead letters.
func dies(context.Context, *ojs.Job[any]) error { return ojs.DeadLetter(errBoom) }

func TestReplayCount(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("x", dies)
		b.run()
		id := b.enqueue("x", ojs.WithMeta("kept", "k")).ID
		b.advance(0)
		if meta := b.job(id).Meta; !reflect.DeepEqual(meta, map[string]any{"kept": "k"}) {
			t.Errorf("P0.7 a job that was never replayed: %v", meta)
		}
		for n := 1; n <= 3; n++ {
			b.advance(time.Hour)
			must(t, b.DeadLetters().Retry(b.ctx, id))
			b.advance(0)
			want := map[string]any{
				"kept": "k", draft.MetaReplayCount: float64(n),
				draft.MetaLastReplayedAt: b.start.Add(time.Duration(n) * time.Hour).UTC().Format(
					draft.MetaTimes),
			}
			if meta := b.job(id).Meta; !reflect.DeepEqual(meta, want) {
				t.Errorf("P0.7 replayed %d times: %v, want %v", n, meta, want)
			}
		}
	})
}

func TestReplayRules(t *testing.T) {
	rule := func(name string, f inspect.Filter, delay time.Duration, most int) engine.ReplayRule {
		return engine.ReplayRule{Name: name, Filter: f, Delay: delay, MaxReplays: most}
	}
	t.Run("P0.7 at their times, as often as they may, and each says which", func(t *testing.T) {
		off := rule("off", inspect.Filter{}, 0, 100)
		off.Disabled = true
		inBubble(t, func(b *rig) {
			b.handle("smtp",
				func(context.Context,
					*ojs.Job[any]) error {
					return ojs.DeadLetter(ojs.Errorf("smtp.down", "no"))
				})
			b.handle("other", dies)
			b.run()
			events := b.Subscribe(engine.EventFilter{Types: []event.Type{"dead_letter.replayed"}})
			defer events.Close()
			id := b.enqueue("smtp").ID
			b.advance(10 * time.Hour)
			if got, want := b.times(), seconds(0, 3600, 7200); !reflect.DeepEqual(got, want) {
				t.Errorf("ran at %v, want %v", got, want)
			}
			job := b.want(id, ojs.StateDiscarded, 1)
			if job.Meta[draft.MetaReplayCount] != 2.0 || job.Meta[draft.MetaReplayRule] != "retry-smtp" ||
				len(job.Errors) != 3 {
				t.Errorf("meta %v, %d errors", job.Meta, len(job.Errors))
			}
			for range 2 {
				if ev := <-events.C(); ev.Type != event.DeadLetterReplayed || ev.Job.ID != id {
					t.Errorf("event %+v", ev)
				}
			}
			must(t, b.DeadLetters().Retry(b.ctx, id))
			b.advance(10 * time.Hour)
			if job := b.want(id, ojs.StateDiscarded, 1); job.Meta[draft.MetaReplayCount] != 3.0 ||
				job.Meta[draft.MetaReplayRule] != nil {
				t.Errorf("after a replay by hand: %v", job.Meta)
			}
			other := b.enqueue("other").ID
			b.advance(10 * time.Hour)
			if job := b.want(other, ojs.StateDiscarded, 1); job.Meta != nil {
				t.Errorf("a job that no rule selects: %v", job.Meta)
			}
		}, engine.WithReplayRules(off, rule("retry-smtp", inspect.Filter{ErrorTypes: []string{"smtp.*"}},
			time.Hour, 2)))
	})
	t.Run("P0.7 a rule finds what died before Run, and in another engine", func(t *testing.T) {
		store := memory.New()
		inBubbleOn(t, store, func(b *rig) {
			other, err := engine.New[any](store, quiet)
			must(t, err)
			w := other.Worker("w", fetch.Config{})
			die := func() string {
				id := b.enqueue("x").ID
				d, err := w.Fetch(b.ctx)
				must(t, err)
				must(t, d.Fail(b.ctx, ojs.DeadLetter(errBoom)))
				return id
			}
			before := die()
			b.run()
			b.advance(time.Minute)
			if job := b.job(before); job.State != ojs.StateAvailable {
				t.Errorf("before Run: %s", job.State)
			}
			must(t, b.Cancel(b.ctx, before))
			elsewhere := die()
			b.advance(5 * time.Minute)
			if job := b.job(elsewhere); job.State != ojs.StateAvailable {
				t.Errorf("in another engine: %s", job.State)
			}
		}, engine.WithReplayRules(rule("all", inspect.Filter{}, time.Minute, 1)))
	})
	t.Run("P0.7 a job that dies again meanwhile waits for its time anew", func(t *testing.T) {
		store := &storagetest.Faulty{Storage: memory.New()}
		inBubbleOn(t, store, func(b *rig) {
			other := must1(engine.New[any](store, quiet))
			w := other.Worker("w", fetch.Config{})
			die := func() {
				must(t, must1(w.Fetch(b.ctx)).Fail(b.ctx, ojs.DeadLetter(errBoom)))
			}
			id := b.enqueue("x").ID
			die()
			b.run()
			b.advance(30 * time.Second)
			var again sync.Once
			store.OnCall(func(c *storagetest.Call) {
				if c.Method == "List" {
					again.Do(func() {
						c.Do()
						must(t, other.DeadLetters().Retry(b.ctx, id))
						die()
					})
				}
			})
			b.advance(time.Minute)
			if job := b.want(id, ojs.StateDiscarded, 1); job.Meta[draft.MetaReplayCount] != 1.0 {
				t.Errorf("%v", job.Meta)
			}
		}, engine.WithReplayRules(rule("all", inspect.Filter{}, time.Minute, 9)))
	})
	t.Run("P0.7 many deaths cost one list", func(t *testing.T) {
		store := &storagetest.Faulty{Storage: memory.New()}
		inBubbleOn(t, store, func(b *rig) {
			b.handle("x", dies)
			b.run()
			b.advance(time.Minute)
			before := store.Calls("List")
			const n = 200
			var ids []string
			for range n {
				ids = append(ids, b.enqueue("x").ID)
			}
			b.advance(2 * time.Second)
			for _, id := range ids {
				if job := b.job(id); job.Meta[draft.MetaReplayCount] != 1.0 {
					t.Fatalf("%v", job.Meta)
				}
			}
			if lists := store.Calls("List") - before; lists > 4 {
				t.Errorf("%d lists for %d deaths", lists, 2*n)
			}
		}, engine.WithReplayRules(rule("at-once", inspect.Filter{}, 0, 1)))
	})
	t.Run("P0.7 bad rules are refused", func(t *testing.T) {
		good := rule("a", inspect.Filter{}, 0, 1)
		for _, tt := range []struct {
			field string
			rules []engine.ReplayRule
		}{
			{"name", []engine.ReplayRule{rule("", inspect.Filter{}, 0, 1)}},
			{"name", []engine.ReplayRule{good, good}},
			{"delay", []engine.ReplayRule{rule("a", inspect.Filter{}, -1, 1)}},
			{"max_replays", []engine.ReplayRule{rule("a", inspect.Filter{}, 0, 0)}},
			{"filter.states",
				[]engine.ReplayRule{rule("a",
					inspect.Filter{States: []ojs.State{ojs.StateDiscarded}}, 0, 1)}},
		} {
			_, err := engine.New[any](memory.New(), engine.WithReplayRules(tt.rules...))
			wantInvalid(t, err, tt.field)
		}
	})
}

func TestFilterArgs(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("x", dies)
		b.run()
		var ids []string
		for _, args := range []string{`{"customer":"cust_123","n":9999}`, `{"customer":"cust_124"}`,
			`"a\u003cb"`, `["\u00e9t\u00e9"]`, `null`} {
			ticket, err := b.Enqueue(b.ctx, "x", json.RawMessage(args))
			must(t, err)
			ids = append(ids, ticket.ID)
		}
		b.advance(0)
		for text, want := range map[string][]int{
			"cust_123": {0}, "cust_": {0, 1}, `"n":9999`: {0}, "a<b": {2}, "été": {3}, `\u003c`: {2},
			"nobody": nil, "": {0, 1, 2, 3, 4},
		} {
			t.Run(fmt.Sprintf("P0.7 search by args %q", text), func(t *testing.T) {
				var got []int
				for job, err := range b.DeadLetters().List(b.ctx, inspect.Filter{Args: text}) {
					must(t, err)
					got = append(got, slices.Index(ids, job.ID))
				}
				slices.Sort(got) // jobs that die at one moment come in any order
				if !slices.Equal(got, want) {
					t.Errorf("List: %v, want %v", got, want)
				}
				page, err := b.Jobs().Page(b.ctx, inspect.Filter{Args: text}, "", 100)
				must(t, err)
				if len(page.Jobs) != len(want) {
					t.Errorf("Page: %d jobs, want %v", len(page.Jobs), want)
				}
			})
		}
		rs, err := results(b.Jobs().Apply(b.ctx, operate.Bulk{Do: operate.DeleteJobs(),
			On: inspect.Filter{DeadLettered: true, Args: "cust_124"}}))
		if err != nil || len(rs) != 1 || rs[0].ID != ids[1] || len(b.deadLetters()) != 4 {
			t.Errorf("P0.7 delete by args: %v, %v", rs, err)
		}
	})
}
