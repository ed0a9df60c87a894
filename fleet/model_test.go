package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
)

// front is what a fleet and an engine have in common.
type front interface {
	ojs.Enqueuer
	Enqueue(context.Context, string, int, ...ojs.Option) (ojs.Ticket, error)
	Get(context.Context, string) (*ojs.JobInfo, error)
	Cancel(context.Context, string) error
	Run(context.Context) error
}

// answers makes random calls and writes down what they return, with jobs named by their
// place. Each key has its own sequence, as if no other key were there.
type answers struct {
	front
	ids  map[string][]string // of the jobs of each key
	said map[string]string
}

func (a *answers) note(key string, what string, err error) {
	kind := ""
	for _, is := range []error{ojs.ErrInvalid, ojs.ErrDuplicate, ojs.ErrNotFound, ojs.ErrTransition,
		ojs.ErrDependency} {
		if errors.Is(err, is) {
			kind = is.Error()
		}
	}
	if err != nil && kind == "" {
		kind = err.Error()
	}
	a.said[key] += fmt.Sprintf("%s %s\n", what, kind)
}

func (a *answers) place(key, id string) int {
	for i, have := range a.ids[key] {
		if have == id {
			return i
		}
	}
	a.ids[key] = append(a.ids[key], id)
	return len(a.ids[key]) - 1
}

// call makes a call for a key.
func (a *answers) call(ctx context.Context, key string, verb, n, m int) {
	opts := []ojs.Option{fleet.WithCell(key), ojs.WithMeta("key", key)}
	job := func() string {
		if ids := a.ids[key]; len(ids) > 0 {
			return ids[n%len(ids)]
		}
		return "01960000-0000-7000-8000-000000000000"
	}
	enqueue := func(what string, more ...ojs.Option) {
		ticket, err := a.Enqueue(ctx, []string{"quick", "slow", "fails"}[n%3], m, append(opts, more...)...)
		if err == nil {
			what += fmt.Sprint(" ", a.place(key, ticket.ID), ticket.State, ticket.Deduplicated)
		}
		a.note(key, what, err)
	}
	switch verb {
	case 0:
		enqueue("enqueue")
	case 1:
		enqueue("delayed", ojs.WithDelay(time.Duration(m)*time.Second))
	case 2:
		enqueue("unique", ojs.WithUnique(ojs.UniquePolicy{OnConflict: ojs.ConflictReplace, Key: key}))
	case 3:
		enqueue("ordered", ojs.WithOrderingKey(key))
	case 4:
		enqueue("limited", ojs.WithRateLimit(ojs.RateLimit{Key: key, Concurrency: 1}))
	case 5:
		enqueue("after", ojs.WithDependsOn(job()))
	case 6:
		enqueue("idempotent", ojs.WithIdempotencyKey(key+fmt.Sprint(m%2)))
	case 7:
		a.note(key, "cancel", a.Cancel(ctx, job()))
	case 8:
		list, err := a.EnqueueMany(ctx, ojs.NewDraft("quick", m, append(opts, ojs.WithDraftName("first"))...),
			ojs.NewDraft("slow", m, append(opts, ojs.WithDependsOn("first"))...))
		what := "batch"
		for _, ticket := range list {
			what += fmt.Sprint(" ", a.place(key, ticket.ID), ticket.State)
		}
		a.note(key, what, err)
	}
}

// look writes down the jobs of every key.
func (a *answers) look(ctx context.Context) {
	for key, ids := range a.ids {
		for i, id := range ids {
			job, err := a.Get(ctx, id)
			what := fmt.Sprint("job ", i)
			if err == nil {
				what += fmt.Sprint(" ", job.State, job.Attempt, job.Args, job.ScheduledAt, job.StartedAt,
					job.FinishedAt)
			}
			a.note(key, what, err)
		}
	}
}

// Random calls: for each key the fleet answers as one engine does that has this key only,
// and the engine of a cell as one that has the keys of the cell.
func TestAnswersAsOneEngine(t *testing.T) {
	const cells, keys = 3, 4
	noJitter := engine.WithDefaults(ojs.WithRetry(ojs.RetryPolicy{Jitter: ojs.JitterOff}))
	type step struct{ key, verb, n, m int }
	check := func(t *testing.T, rt *rapid.T, steps []step) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var ended []chan error
		start := func(f front, handle func(string, func(context.Context, *ojs.Job[int]) error)) *answers {
			handle("quick", func(context.Context, *ojs.Job[int]) error { return nil })
			handle("slow", func(context.Context, *ojs.Job[int]) error {
				pace.Virtual(1500 * time.Millisecond)
				return nil
			})
			handle("fails", func(context.Context, *ojs.Job[int]) error { return errors.New("boom") })
			done := make(chan error, 1)
			ended = append(ended, done)
			go func() { done <- f.Run(ctx) }()
			return &answers{f, make(map[string][]string), make(map[string]string)}
		}
		r := &rig{t: t, ctx: ctx}
		r.cells, r.stores = newCells(t, cells)
		f, err := fleet.New[int](fleet.Config{Cells: r.cells, Concurrency: 300}, quiet, noJitter)
		if err != nil {
			t.Fatal(err)
		}
		whole := start(f, func(name string, h func(context.Context, *ojs.Job[int]) error) {
			f.Handle(name, h)
		})
		var alone []*answers // by key, on an engine of the key's cell or of its own
		names := make([]string, keys)
		for i := range keys {
			names[i] = keyIn(i%cells, cells)
			if i >= cells {
				names[i] = "other-" + names[i]
			}
			s := memory.New()
			defer func() { _ = s.Close() }()
			eng, err := engine.New[int](s, quiet, noJitter, engine.WithConcurrency(100))
			if err != nil {
				t.Fatal(err)
			}
			alone = append(alone, start(eng, func(name string, h func(context.Context, *ojs.Job[int]) error) {
				eng.Handle(name, h)
			}))
		}
		synctest.Wait()
		for _, s := range steps {
			if s.verb == 9 {
				pace.Virtual(time.Duration(s.m) * time.Second)
			} else {
				whole.call(ctx, names[s.key], s.verb, s.n, s.m)
				alone[s.key].call(ctx, names[s.key], s.verb, s.n, s.m)
			}
			synctest.Wait()
		}
		pace.Virtual(time.Minute)
		whole.look(ctx)
		for i, a := range alone {
			a.look(ctx)
			if got, want := whole.said[names[i]], a.said[names[i]]; got != want {
				rt.Errorf("key %s: the fleet says\n%s\nan engine says\n%s", names[i], got, want)
			}
		}
		stop()
		for _, done := range ended {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	one := rapid.Custom(func(t *rapid.T) step {
		draw := func(most int) int { return rapid.IntRange(0, most).Draw(t, "n") }
		return step{draw(keys - 1), draw(9), draw(20), draw(5)}
	})
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(one, 1, 40).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) { check(t, rt, steps) })
	})
}
