package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/bench/internal/load"
	"github.com/ojsengine/ojs/bench/internal/report"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

const jobType = "noop"

// stock is a storage with jobs in it, and an engine that does not run.
type stock struct {
	store  storage.Storage
	eng    *engine.Engine[load.Args]
	worker *fetch.Worker
	rnd    *rand.Rand
	next   int
}

func newStock() (*stock, error) {
	s := &stock{store: memory.New(), rnd: rand.New(rand.NewPCG(1, 2))}
	var err error
	if s.eng, err = engine.New[load.Args](s.store); err != nil {
		return nil, err
	}
	s.eng.Handle(jobType, func(context.Context, *ojs.Job[load.Args]) error { return nil })
	s.worker = s.eng.Worker("w", fetch.Config{})
	return s, nil
}

// add enqueues n jobs, each with the options that opts makes for it.
func (s *stock) add(ctx context.Context, n int, opts func() []ojs.Option) (tickets []ojs.Ticket, err error) {
	const batch = 1000
	for n > 0 {
		drafts := make([]ojs.Draft, min(n, batch))
		for i := range drafts {
			drafts[i] = ojs.NewDraft(jobType, load.Job(s.next), opts()...)
			s.next++
		}
		ts, err := s.eng.EnqueueMany(ctx, drafts...)
		if err != nil {
			return nil, err
		}
		tickets = append(tickets, ts...)
		n -= len(drafts)
	}
	return tickets, nil
}

func (s *stock) anyPriority() []ojs.Option {
	return []ojs.Option{ojs.WithPriority(s.rnd.IntN(201) - 100)}
}

func (s *stock) later() []ojs.Option {
	return []ojs.Option{ojs.WithDelay(time.Hour + time.Duration(s.rnd.Int64N(int64(24*time.Hour))))}
}

// fillings are the ways to have n jobs stored.
var fillings = []struct {
	name string
	fill func(ctx context.Context, s *stock, n int, c config) error
}{
	{"waiting", func(ctx context.Context, s *stock, n int, _ config) error {
		_, err := s.add(ctx, n, s.anyPriority)
		return err
	}},
	{"scheduled", func(ctx context.Context, s *stock, n int, _ config) error {
		_, err := s.add(ctx, n, s.later)
		return err
	}},
	{"active", func(ctx context.Context, s *stock, n int, c config) error {
		n = max(n/c.activeShare, 1)
		if _, err := s.add(ctx, n, func() []ojs.Option {
			return []ojs.Option{ojs.WithLease(24 * time.Hour)}
		}); err != nil {
			return err
		}
		for n > 0 {
			ds, err := s.worker.FetchMany(ctx, min(n, 500))
			if err != nil {
				return err
			}
			n -= len(ds)
		}
		return nil
	}},
}

// calls are what is measured. Prepare enqueues what the calls are about, and is not.
var calls = []struct {
	name string
	call func(ctx context.Context, s *stock, n int) (prepare func() error, call func(i int) error)
}{
	{"enqueue", func(ctx context.Context, s *stock, n int) (func() error, func(int) error) {
		return nil, func(i int) error {
			_, err := s.eng.Enqueue(ctx, jobType, load.Job(i), ojs.WithPriority(i%201-100))
			return err
		}
	}},
	{"claim and ack", func(ctx context.Context, s *stock, n int) (func() error, func(int) error) {
		return func() error { _, err := s.add(ctx, n, s.anyPriority); return err }, func(int) error {
			d, err := s.worker.Fetch(ctx)
			if err != nil {
				return err
			}
			return d.Ack(ctx, nil)
		}
	}},
	{"cancel", func(ctx context.Context, s *stock, n int) (func() error, func(int) error) {
		var tickets []ojs.Ticket
		return func() (err error) { tickets, err = s.add(ctx, n, s.anyPriority); return err },
			func(i int) error { return s.eng.Cancel(ctx, tickets[i].ID) }
	}},
	{"unique check", func(ctx context.Context, s *stock, n int) (func() error, func(int) error) {
		opt := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs, OnConflict: ojs.ConflictIgnore})
		return nil, func(i int) error {
			_, err := s.eng.Enqueue(ctx, jobType, load.Job(-1-i/2), opt) // every second is there already
			return err
		}
	}},
	{"get", func(ctx context.Context, s *stock, n int) (func() error, func(int) error) {
		var tickets []ojs.Ticket
		return func() (err error) { tickets, err = s.add(ctx, n, s.later); return err }, func(i int) error {
			_, err := s.eng.Get(ctx, tickets[i].ID)
			return err
		}
	}},
	{"stats", func(ctx context.Context, s *stock, n int) (func() error, func(int) error) {
		return nil, func(i int) error {
			_, err := s.eng.Stats(ctx)
			return err
		}
	}},
}

// flat compares calls over few stored jobs with the same over many.
func flat(ctx context.Context, c config, r *report.Report) error {
	for _, f := range fillings {
		for _, call := range calls {
			s := &report.Section{
				Title:   fmt.Sprintf("%s, with jobs %s, medians of %d rounds", call.name, f.name, c.rounds),
				Metrics: []report.Metric{{Name: "ns/call"}, {Name: "allocs/call", Decimals: 1}},
				Base:    fmt.Sprint(c.few),
			}
			r.Sections = append(r.Sections, s)
		}
	}
	for range c.rounds {
		for i, f := range fillings {
			for _, stored := range []int{c.few, c.many} {
				st, err := newStock()
				if err != nil {
					return err
				}
				if err := f.fill(ctx, st, stored, c); err != nil {
					return err
				}
				for j, call := range calls {
					prepare, f := call.call(ctx, st, c.calls)
					if prepare != nil {
						if err := prepare(); err != nil {
							return err
						}
					}
					ns, allocs, _, err := each(c.calls, f)
					if err != nil {
						return fmt.Errorf("%s: %w", call.name, err)
					}
					first := len(r.Sections) - len(fillings)*len(calls)
					r.Sections[first+i*len(calls)+j].Add(fmt.Sprint(stored), ns, allocs)
				}
				if err := errors.Join(st.store.Close()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
