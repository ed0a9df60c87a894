package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// noticing is a storage whose notices a test can add to, and whose reads it can fail.
type noticing struct {
	storage.Storage
	notifier storage.Notifier

	mu    sync.Mutex // guards the fields below
	hear  []func(storage.Notice)
	fails bool
}

func (s *noticing) Unwrap() storage.Storage { return s.Storage }

func (s *noticing) Notify(self any, f func(storage.Notice)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hear = append(s.hear, f)
	return s.notifier.Notify(self, f)
}

func (s *noticing) tell(n storage.Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.hear {
		f(n)
	}
}

func (s *noticing) Get(ctx context.Context, id string) (storage.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails {
		return storage.Record{}, errBoom
	}
	return s.Storage.Get(ctx, id)
}

// changesOf are the events as a test compares them: the state of each job.
func changesOf(events []ojs.Event) (states []string) {
	for _, ev := range events {
		switch {
		case ev.Type != ojs.EventChanged || ev.ID == "" || ev.Time.IsZero() || ev.Source == "":
			states = append(states, fmt.Sprintf("%+v", ev))
		case ev.Job == nil:
			states = append(states, "look again")
		default:
			told := ev.Data()["state"]
			if ev.Subject != ev.Job.ID || ev.Queue != ev.Job.Queue || told != string(ev.Job.State) {
				states = append(states, "the event does not fit its job")
			}
			states = append(states, string(ev.Job.State))
		}
	}
	return states
}

// A shared subscription sees what another engine on the storage does to jobs, and no
// other subscription does.
func TestSubscribeShared(t *testing.T) {
	changed := []ojs.EventType{ojs.EventChanged}
	type fleet struct {
		store       *noticing
		works, sees *engine.Engine[any]
		ctx         context.Context
		observed    *counter
	}
	for name, tc := range map[string]struct {
		filter engine.EventFilter
		do     func(t *testing.T, f *fleet)
		want   []string
	}{
		"an end": {engine.EventFilter{Types: changed}, func(t *testing.T, f *fleet) {
			_, err := f.works.Enqueue(f.ctx, "x", nil)
			must(t, err)
		}, []string{"completed"}},
		"a job that is deleted at once": {engine.EventFilter{Types: changed}, func(t *testing.T, f *fleet) {
			ticket, err := f.works.Enqueue(f.ctx, "x", nil)
			must(t, err)
			synctest.Wait()
			must(t, f.works.Jobs().Delete(f.ctx, ticket.ID))
		}, nil},
		"the loss of a claim": {engine.EventFilter{Types: changed}, func(t *testing.T, f *fleet) {
			ticket, err := f.works.Enqueue(f.ctx, "blocks", nil)
			must(t, err)
			synctest.Wait()
			must(t, f.works.Cancel(f.ctx, ticket.ID))
		}, []string{"cancelled"}},
		"its own engine's jobs are none": {engine.EventFilter{Types: changed}, func(t *testing.T, f *fleet) {
			ticket, err := f.sees.Enqueue(f.ctx, "none", nil)
			must(t, err)
			must(t, f.sees.Cancel(f.ctx, ticket.ID))
		}, nil},
		"the type has to be selected": {engine.EventFilter{Types: []ojs.EventType{ojs.EventCompleted}},
			func(t *testing.T, f *fleet) {
				_, err := f.works.Enqueue(f.ctx, "x", nil)
				must(t, err)
			}, nil},
		"other jobs and queues are none": {engine.EventFilter{Types: changed, Queues: []string{"a"},
			JobIDs: []string{"00000000-0000-7000-8000-00000000000a", "00000000-0000-7000-8000-00000000000b"}},
			func(t *testing.T, f *fleet) {
				for i, queue := range []string{"a", "b", "a"} {
					id := fmt.Sprintf("00000000-0000-7000-8000-00000000000%x", 10+i)
					_, err := f.works.Enqueue(f.ctx, "x", nil, ojs.WithQueue(queue), ojs.WithID(id))
					must(t, err)
				}
			}, []string{"completed"}},
		"everything": {engine.EventFilter{Types: changed, JobIDs: []string{"x"}, Queues: []string{"y"}},
			func(t *testing.T, f *fleet) {
				f.store.tell(storage.Notice{Everything: true})
				f.store.tell(storage.Notice{Everything: true})
			}, []string{"look again"}},
		"a read that fails": {engine.EventFilter{Types: changed}, func(t *testing.T, f *fleet) {
			f.store.tell(storage.Notice{Ended: []string{"a", "b"}})
			f.store.mu.Lock()
			defer f.store.mu.Unlock()
			f.store.fails = true
		}, []string{"look again"}},
		"more than it keeps": {engine.EventFilter{Types: changed}, func(t *testing.T, f *fleet) {
			ids := make([]string, 1001)
			for i := range ids {
				ids[i] = fmt.Sprint(i) // there is no such job
			}
			f.store.tell(storage.Notice{Ended: ids})
		}, []string{"look again"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := memory.New()
				f := &fleet{ctx: t.Context(), observed: &counter{},
					store: &noticing{Storage: inner, notifier: inner}}
				var err error
				f.works, err = engine.New[any](f.store, quiet)
				must(t, err)
				f.sees, err = engine.New[any](f.store, quiet, engine.WithObserver(f.observed))
				must(t, err)
				f.works.Handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
				f.works.Handle("blocks", func(ctx context.Context, _ *ojs.Job[any]) error {
					<-ctx.Done()
					return ctx.Err()
				})
				sub, err := f.sees.SubscribeShared(tc.filter)
				must(t, err)
				second, err := f.sees.SubscribeShared(engine.EventFilter{Types: changed})
				must(t, err)
				plain := f.sees.Subscribe(engine.EventFilter{Types: changed})
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- f.works.Run(ctx) }()
				synctest.Wait()
				tc.do(t, f)
				time.Sleep(time.Second)
				if got := changesOf(received(sub)); fmt.Sprint(got) != fmt.Sprint(tc.want) {
					t.Errorf("saw %v, want %v", got, tc.want)
				}
				if got := received(plain); len(got) > 0 {
					t.Errorf("a subscription that is not shared saw %v", names(got))
				}
				if f.observed.has(ojs.EventChanged) {
					t.Error("an observer saw it")
				}
				sub.Close()
				sub.Close()
				received(second)
				f.store.tell(storage.Notice{Everything: true})
				time.Sleep(time.Second)
				if got := changesOf(received(second)); fmt.Sprint(got) != "[look again]" {
					t.Errorf("the second saw %v", got)
				}
				second.Close()
				plain.Close()
				stop()
				must(t, <-ended)
			})
		})
	}
}

// counter has the types of the events that an observer has seen.
type counter struct {
	mu   sync.Mutex
	seen map[ojs.EventType]int
}

func (c *counter) Observe(ev *ojs.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = make(map[ojs.EventType]int)
	}
	c.seen[ev.Type]++
}

func (c *counter) has(t ojs.EventType) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[t] > 0
}

// A storage without notices says so.
func TestSubscribeSharedNeedsNotices(t *testing.T) {
	eng, err := engine.New[any](struct{ storage.Storage }{memory.New()}, quiet)
	must(t, err)
	if _, err := eng.SubscribeShared(engine.EventFilter{}); !errors.Is(err, ojs.ErrUnsupported) {
		t.Error(err)
	}
}
