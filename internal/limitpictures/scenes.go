package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage/memory"
)

// scene is a run of jobs under a limit.
type scene struct {
	name, title string
	jobs        []arrival
	end         time.Duration // of the picture
	count       count
}

// arrival is a job to enqueue.
type arrival struct {
	name  string
	at    time.Duration
	takes time.Duration
	limit ojs.RateLimit
	fails bool // its first attempt blocks the key for blocked
}

const blocked = 10 * time.Second

// count is the line below the jobs: how many run, or how many have started in the time
// before.
type count struct {
	label  string
	window time.Duration // 0: how many run
	limit  int           // 0: there is no line
}

func at(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// each makes arrivals of jobs with one limit.
func each(l ojs.RateLimit, takes float64, arrive ...float64) (list []arrival) {
	for i, a := range arrive {
		list = append(list, arrival{name: fmt.Sprint("job ", i+1), at: at(a), takes: at(takes), limit: l})
	}
	return list
}

var (
	perTen   = ojs.Rate{Limit: 3, Per: 10 * time.Second}
	oneByOne = ojs.Rate{Limit: 1, Per: 8 * time.Second}
)

var scenes = []scene{
	{"concurrency", "Concurrency: 2 — at most two run at once", []arrival{
		{name: "job 1", takes: at(5)}, {name: "job 2", takes: at(3)}, {name: "job 3", takes: at(6)},
		{name: "job 4", at: at(1), takes: at(4)}, {name: "job 5", at: at(2), takes: at(3)},
		{name: "job 6", at: at(14), takes: at(4)},
	}, at(20), count{"running", 0, 2}},
	{"rate", "Rate: 3 per 10 s — at most three starts in any 10 s", each(
		ojs.RateLimit{Key: "k", Rate: perTen}, 1, 0, 0, 4, 5, 6, 6, 13, 21,
	), at(26), count{"starts in 10 s", 10 * time.Second, 3}},
	{"throttle", "Throttle: 3 per 10 s — starts at least 3.3 s apart", each(
		ojs.RateLimit{Key: "k", Throttle: perTen}, 1, 0, 0, 4, 5, 6, 6, 13, 21,
	), at(26), count{"starts in 3.3 s", 10 * time.Second / 3, 1}},
	{"on-limit", "OnLimit, each with a key of 1 start per 8 s", []arrival{
		{name: "wait 1", takes: at(1), limit: ojs.RateLimit{Key: "wait", Rate: oneByOne}},
		{name: "wait 2", at: at(2), takes: at(1), limit: ojs.RateLimit{Key: "wait", Rate: oneByOne}},
		{name: "reschedule 1", takes: at(1),
			limit: ojs.RateLimit{Key: "later", Rate: oneByOne, OnLimit: ojs.OnLimitReschedule}},
		{name: "reschedule 2", at: at(2), takes: at(1),
			limit: ojs.RateLimit{Key: "later", Rate: oneByOne, OnLimit: ojs.OnLimitReschedule}},
		{name: "drop 1", takes: at(1),
			limit: ojs.RateLimit{Key: "drop", Rate: oneByOne, OnLimit: ojs.OnLimitDrop}},
		{name: "drop 2", at: at(2), takes: at(1),
			limit: ojs.RateLimit{Key: "drop", Rate: oneByOne, OnLimit: ojs.OnLimitDrop}},
	}, at(12), count{}},
	{"partition", "Concurrency: 1 for each customer — one customer's jobs hold back no other's", []arrival{
		{name: "customer 1", takes: at(4), limit: ojs.RateLimit{Key: "mail:1"}},
		{name: "customer 1", takes: at(4), limit: ojs.RateLimit{Key: "mail:1"}},
		{name: "customer 1", takes: at(4), limit: ojs.RateLimit{Key: "mail:1"}},
		{name: "customer 2", at: at(2), takes: at(3), limit: ojs.RateLimit{Key: "mail:2"}},
		{name: "customer 3", at: at(3), takes: at(3), limit: ojs.RateLimit{Key: "mail:3"}},
		{name: "customer 2", at: at(4), takes: at(3), limit: ojs.RateLimit{Key: "mail:2"}},
	}, at(14), count{}},
	{"block", "RateLimitedUntil — the first attempt of job 2 blocks the key for 10 s", []arrival{
		{name: "job 1", takes: at(2)},
		{name: "job 2", at: at(1), takes: at(2), fails: true},
		{name: "job 3", at: at(4), takes: at(2)},
		{name: "job 4", at: at(5), takes: at(2)},
	}, at(20), count{"running", 0, 2}},
}

// The pictures of concurrency and blocks have the same limit.
func (a *arrival) rateLimit() ojs.RateLimit {
	l := a.limit
	if l.Key == "" {
		l = ojs.RateLimit{Key: "k", Concurrency: 2}
	} else if !l.Bounds() {
		l.Concurrency = 1
	}
	return l
}

// job is what has happened to an arrival.
type job struct {
	name  string
	steps []step
}

// step is a state that began at a time since the beginning of the run.
type step struct {
	at    time.Duration
	state ojs.State
}

// recorder follows the jobs of a run. Observe is called on goroutines of the engine.
type recorder struct {
	mu    sync.Mutex
	start time.Time
	jobs  []job
}

// Observe implements engine.Observer.
func (r *recorder) Observe(ev *ojs.Event) {
	state, ok := map[ojs.EventType]ojs.State{
		ojs.EventEnqueued: ojs.StateAvailable, ojs.EventScheduled: ojs.StateScheduled,
		ojs.EventStarted: ojs.StateActive, ojs.EventRetrying: ojs.StateRetryable,
		ojs.EventCompleted: ojs.StateCompleted, ojs.EventDiscarded: ojs.StateDiscarded,
	}[ev.Type]
	if !ok {
		return
	}
	var i int
	if err := ev.Job.Args.Decode(&i); err != nil {
		panic(err) // each job of a run has a number
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jobs[i].steps = append(r.jobs[i].steps, step{ev.Time.Sub(r.start), state})
}

// run runs the scene's jobs on an engine under virtual time.
func (s *scene) run() (_ []job, err error) {
	virtual := clock.NewMock()
	rec := &recorder{start: virtual.Now(), jobs: make([]job, len(s.jobs))}
	for i, a := range s.jobs {
		rec.jobs[i].name = a.name
	}
	eng, err := engine.New[int](memory.New(), engine.WithClock(virtual), engine.WithObserver(rec),
		engine.WithConcurrency(len(s.jobs)), engine.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	eng.Handle("x", func(ctx context.Context, j *ojs.Job[int]) error {
		a := s.jobs[j.Args]
		if err := handler.Sleep(ctx, a.takes); err != nil {
			return err
		}
		if a.fails && j.Attempt == 1 {
			return ojs.RateLimitedUntil(virtual.Now().Add(blocked), errors.New("too many requests"))
		}
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	once := ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Second, Jitter: ojs.JitterOff})
	for passed := time.Duration(0); passed <= s.end; passed += time.Second {
		if err := advance(ctx, eng, virtual, rec.start.Add(passed)); err != nil {
			return nil, err
		}
		for i, a := range s.jobs {
			if a.at != passed {
				continue
			}
			limit := ojs.WithRateLimit(a.rateLimit())
			if _, err := eng.Enqueue(ctx, "x", i, limit, once); err != nil {
				return nil, err
			}
			if err := eng.WaitIdle(ctx); err != nil { // jobs of one instant start in their order
				return nil, err
			}
		}
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.jobs, nil
}

// advance moves the clock to a time, from one time at which something is due to the next.
func advance(ctx context.Context, eng *engine.Engine[int], virtual *clock.Mock, to time.Time) error {
	for {
		if err := eng.WaitIdle(ctx); err != nil {
			return err
		}
		next, some := eng.NextWake()
		if !some || next.After(to) {
			virtual.Set(to)
			return eng.WaitIdle(ctx)
		}
		virtual.Set(next)
	}
}
