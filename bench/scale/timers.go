package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/bench/internal/load"
	"github.com/ojsengine/ojs/bench/internal/report"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage/memory"
)

// timers compares the heap, the scheduler and scheduled jobs with time.AfterFunc: what it
// costs to set a timer and take it back, and how late those are that fire.
func timers(ctx context.Context, c config, r *report.Report) error {
	cost := &report.Section{
		Title: fmt.Sprintf("Set a timer and take it back, with %d set, medians of %d rounds",
			c.many/10, c.rounds),
		Metrics: []report.Metric{{Name: "ns"}, {Name: "bytes/timer"}},
		Base:    "time.AfterFunc",
	}
	late := &report.Section{
		Title: fmt.Sprintf("Lateness with %d due a second for %v, medians of %d rounds", c.perSecond,
			c.dueFor, c.rounds),
		Metrics: []report.Metric{{Name: "p50 µs"}, {Name: "p99 µs"}, {Name: "early"}},
		Base:    "time.AfterFunc",
	}
	r.Sections = append(r.Sections, cost, late)
	for range c.rounds {
		for _, t := range []struct {
			name string
			run  func(context.Context, config) (ns, bytes float64, err error)
		}{{"time.AfterFunc", setAfterFunc}, {"scheduler.Heap", setHeap},
			{"scheduler.Scheduler", setScheduler}, {"a scheduled job", setJob}} {
			ns, bytes, err := t.run(ctx, c)
			if err != nil {
				return err
			}
			cost.Add(t.name, ns, bytes)
		}
		for _, t := range []struct {
			name string
			run  func(context.Context, config) ([]time.Duration, error)
		}{{"time.AfterFunc", lateAfterFunc}, {"a scheduled job", lateJob}} {
			took, err := t.run(ctx, c)
			if err != nil {
				return err
			}
			slices.Sort(took)
			early := 0
			for early < len(took) && took[early] < 0 {
				early++
			}
			at := func(p int) float64 {
				return float64(took[min(len(took)*p/100, len(took)-1)].Nanoseconds()) / 1000
			}
			late.Add(t.name, at(50), at(99), float64(early))
		}
	}
	return nil
}

// setting times n pairs of set and reset beside what is set already, and what each of
// those keeps.
func setting(set int, keep func(i int), pair func(i int) error, n int) (ns, bytes float64, err error) {
	before := heap()
	for i := range set {
		keep(i)
	}
	bytes = float64(heap()-before) / float64(set)
	ns, _, _, err = each(n, pair)
	return ns, bytes, err
}

func spread(i int) time.Duration { return time.Hour + time.Duration(i*7919%1_000_003)*time.Millisecond }

func setAfterFunc(_ context.Context, c config) (ns, bytes float64, err error) {
	n := c.many / 10
	all := make([]*clock.Timer, n)
	ns, bytes, err = setting(n, func(i int) { all[i] = wall.AfterFunc(spread(i), func() {}) },
		func(i int) error {
			wall.AfterFunc(spread(i), func() {}).Stop()
			return nil
		}, c.calls*10)
	for _, t := range all {
		t.Stop()
	}
	return ns, bytes, err
}

func setHeap(_ context.Context, c config) (ns, bytes float64, err error) {
	n := c.many / 10
	var h scheduler.Heap[int]
	items, now := make([]scheduler.Item[int], n), wall.Now()
	ns, bytes, err = setting(n, func(i int) { h.Push(&items[i], now.Add(spread(i))) }, func(i int) error {
		var it scheduler.Item[int]
		h.Push(&it, now.Add(spread(i)))
		h.Remove(&it)
		return nil
	}, c.calls*10)
	return ns, bytes + float64(unsafe.Sizeof(items[0])), err // the items were there before
}

func setScheduler(_ context.Context, c config) (ns, bytes float64, err error) {
	s := scheduler.New(wall)
	defer s.Stop()
	now := wall.Now()
	var last scheduler.Timer
	ns, bytes, err = setting(c.many/10, func(i int) { s.At(now.Add(spread(i)), func(time.Time) {}) },
		func(i int) error {
			s.Set(&last, now.Add(spread(i)))
			s.Cancel(&last)
			return nil
		}, c.calls*10)
	return ns, bytes, err
}

func setJob(ctx context.Context, c config) (ns, bytes float64, err error) {
	s, err := newStock()
	if err != nil {
		return 0, 0, err
	}
	var failed error
	ns, bytes, err = setting(c.many/10, func(i int) {
		if _, err := s.eng.Enqueue(ctx, jobType, load.Job(i), ojs.WithDelay(spread(i))); err != nil {
			failed = err
		}
	}, func(i int) error {
		t, err := s.eng.Enqueue(ctx, jobType, load.Job(i), ojs.WithDelay(spread(i)))
		if err != nil {
			return err
		}
		return s.eng.Cancel(ctx, t.ID)
	}, c.calls)
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, 0, err
	}
	return ns, bytes, s.store.Close()
}

// lateness collects how late timers are.
type lateness struct {
	mu   sync.Mutex // guards took
	took []time.Duration
	left sync.WaitGroup
}

func (l *lateness) fired(due time.Time) {
	d := wall.Now().Sub(due)
	l.mu.Lock()
	l.took = append(l.took, d)
	l.mu.Unlock()
	l.left.Done()
}

// dues are the times at which something is due, from a moment that leaves time to set all
// of them.
func dues(c config) []time.Time {
	n := int(c.dueFor.Seconds() * float64(c.perSecond))
	start, all := wall.Now().Add(2*time.Second), make([]time.Time, n)
	for i := range all {
		all[i] = start.Add(time.Duration(i) * time.Second / time.Duration(c.perSecond))
	}
	return all
}

func lateAfterFunc(_ context.Context, c config) ([]time.Duration, error) {
	all := dues(c)
	var l lateness
	l.left.Add(len(all))
	for _, due := range all {
		wall.AfterFunc(due.Sub(wall.Now()), func() { l.fired(due) })
	}
	l.left.Wait()
	return l.took, nil
}

func lateJob(ctx context.Context, c config) ([]time.Duration, error) {
	store := memory.New()
	eng, err := engine.New[load.Args](store, engine.WithConcurrency(8))
	if err != nil {
		return nil, err
	}
	var l lateness
	eng.Handle(jobType, func(_ context.Context, job *ojs.Job[load.Args]) error {
		l.fired(job.ScheduledAt)
		return nil
	})
	run, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(run) }()
	all := dues(c)
	l.left.Add(len(all))
	for i, due := range all {
		if _, err := eng.Enqueue(ctx, jobType, load.Job(i), ojs.WithScheduledAt(due)); err != nil {
			return nil, err
		}
	}
	l.left.Wait()
	stop()
	if err := <-ended; err != nil {
		return nil, err
	}
	return l.took, store.Close()
}
