package storagetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage"
)

// SameBehaviour runs one program, in virtual time, over the storage and over Reference,
// and wants the same to happen: the same attempts in the same order at the same times,
// and for every job the same events. The parts of it that need an ability which cfg does
// not claim are left out. Config.TimePrecision has to be a second or a whole part of one.
func SameBehaviour(t *testing.T, cfg Config) {
	t.Helper()
	t.Run("SameBehaviour", func(t *testing.T) {
		s := cfg.Open(t)
		defer closes(t, s)
		if d := difference(play(t, NewReference(), cfg), play(t, s, cfg)); d != "" {
			t.Error(d)
		}
	})
}

// difference is the first one between what shall happen and what has, "" if there is
// none.
func difference(want, got []string) string {
	const none = "nothing more"
	for i := range max(len(want), len(got)) {
		w, g := none, none
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g {
			return fmt.Sprintf("line %d of %d is\n%s\nand not\n%s", i+1, len(want), g, w)
		}
	}
	return ""
}

// stage is an engine on which a scenario is played.
type stage struct {
	*engine.Engine[string]
	t     *testing.T
	ctx   context.Context
	clock *clock.Mock
	start time.Time
	cfg   Config // says what the storage can

	mu    sync.Mutex        // guards the fields below
	names map[string]string // of jobs, by id, in the order of their enqueue
	ran   []string
}

// play plays the part of the scenario that a storage of cfg can, over s, and returns what
// has happened.
func play(t *testing.T, s storage.Storage, cfg Config) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	late := wall.AfterFunc(watchdog, cancel)
	defer late.Stop()
	mock := clock.NewMock()
	mock.Set(epoch)
	opts := []engine.Option{
		engine.WithClock(mock), engine.WithRand(rand.New(rand.NewPCG(1, 2))), engine.WithConcurrency(1),
		engine.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))),
	}
	if cfg.TimePrecision > 0 {
		opts = append(opts, engine.WithRetryHook(rounded(cfg.TimePrecision)))
	}
	eng, err := engine.New[string](s, opts...)
	if err != nil {
		t.Fatal(err)
	}
	g := &stage{Engine: eng, t: t, ctx: ctx, clock: mock, start: epoch,
		names: make(map[string]string), cfg: cfg}
	sub := eng.Subscribe(engine.EventFilter{Types: []event.Type{"job.*", "dead_letter.*", "queue.*",
		"cron.*"}, Buffer: 10_000})
	defer sub.Close()
	g.handlers()
	run, stop := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- eng.Run(run) }()
	g.acts()
	stop()
	if err := <-over; err != nil {
		t.Error(err)
	}
	return append(g.ran, g.events(sub)...)
}

// events are what subscribers were told, job by job.
func (g *stage) events(sub *engine.Subscription) []string {
	byJob := make(map[string][]string)
	for {
		select {
		case ev := <-sub.C():
			who := g.name(ev.Subject)
			line := fmt.Sprintf("%s: %v %s", who, ev.Time.Sub(g.start), ev.Type)
			if ev.Job != nil {
				line += fmt.Sprintf(" %s attempt %d of %d, retry %v, finished %v",
					ev.Job.State, ev.Job.Attempt, ev.Job.MaxAttempts, g.since(ev.Job.NextRetryAt),
					g.since(ev.Job.FinishedAt))
				line += fmt.Sprintf(", errors %d, progress %v, args %s",
					len(ev.Job.Errors), ev.Job.Progress, ev.Job.Args)
			}
			byJob[who] = append(byJob[who], line)
			continue
		default:
		}
		break
	}
	var lines []string
	for _, who := range slices.Sorted(maps.Keys(byJob)) {
		lines = append(lines, byJob[who]...)
	}
	return lines
}

func (g *stage) since(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Sub(g.start).String()
}

// name is what a job is called in the log: ids are random.
func (g *stage) name(id string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if name, ok := g.names[id]; ok {
		return name
	}
	if !strings.Contains(id, "-") { // a queue or a recurring job
		return id
	}
	name := fmt.Sprintf("job %03d", len(g.names))
	g.names[id] = name
	return name
}

func (g *stage) handlers() {
	note := func(job *ojs.Job[string]) {
		g.log("%v %s %s %q attempt %d", g.clock.Now().Sub(g.start), g.name(job.ID), job.Type, job.Args,
			job.Attempt)
	}
	handle := func(jobType string, f func(ctx context.Context, job *ojs.Job[string]) error) {
		g.Handle(jobType, func(ctx context.Context, job *ojs.Job[string]) error {
			note(job)
			return f(ctx, job)
		})
	}
	handle("ok", func(ctx context.Context, job *ojs.Job[string]) error {
		return handler.SetResult(ctx, job.Args)
	})
	handle("fails", func(_ context.Context, job *ojs.Job[string]) error {
		if job.Attempt < 3 {
			return ojs.Errorf("test.failure", "attempt %d", job.Attempt)
		}
		return nil
	})
	handle("dies", func(_ context.Context, job *ojs.Job[string]) error {
		return ojs.DeadLetter(errors.New("dead"))
	})
	handle("panics", func(context.Context, *ojs.Job[string]) error { panic("no") })
	handle("snoozes", func(ctx context.Context, job *ojs.Job[string]) error {
		n := 0
		if _, err := handler.LoadCheckpoint(ctx, &n); err != nil || n == 2 {
			return err
		}
		if err := handler.SaveCheckpoint(ctx, n+1); err != nil {
			return err
		}
		return ojs.Snooze(time.Minute)
	})
	handle("sleeps", func(ctx context.Context, job *ojs.Job[string]) error {
		handler.Progress(ctx, 0.5)
		return handler.Sleep(ctx, time.Hour)
	})
}

// acts is the program.
func (g *stage) acts() {
	once := ojs.UniquePolicy{Keys: ojs.ByArgs}
	with := func(c ojs.Conflict) ojs.Option {
		p := once
		p.OnConflict = c
		return ojs.WithUnique(p)
	}
	g.enqueue("ok", "first")
	g.enqueue("fails", "three times",
		ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 5, InitialInterval: time.Second}))
	g.enqueue("fails", "twice is enough",
		ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 2, OnExhaustion: ojs.ExhaustionDeadLetter}))
	g.enqueue("panics", "p", ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: ojs.NoRetry}))
	dead := g.enqueue("dies", "d")
	g.enqueue("snoozes", "s")
	g.advance(10 * time.Second)

	// Order: by priority, and then by when they came.
	_, err := g.Queues().Pause(g.ctx, "default")
	g.check(err)
	for i := range 9 {
		g.enqueue("ok", fmt.Sprint("in order ", i), ojs.WithPriority(i%3))
	}
	// The batch has two priorities, which make a difference even without the pause.
	many := make([]ojs.Draft, 5)
	for i := range many {
		many[i] = ojs.NewDraft("ok", fmt.Sprint("batch ", i), ojs.WithPriority(i%2))
	}
	_, err = g.EnqueueMany(g.ctx, many...)
	g.check(err)
	g.advance(time.Second)
	_, err = g.Queues().Resume(g.ctx, "default")
	g.check(err)
	g.advance(10 * time.Minute)

	// Time.
	g.enqueue("ok", "later", ojs.WithDelay(time.Hour))
	moved := g.enqueue("ok", "moved", ojs.WithDelay(2*time.Hour))
	g.check(g.Jobs().Reschedule(g.ctx, moved.ID, g.clock.Now().Add(90*time.Minute)))
	g.enqueue("ok", "too late", ojs.WithPending(), ojs.WithTTL(30*time.Minute))
	g.enqueue("sleeps", "longer than its timeout", ojs.WithTimeout(time.Minute),
		ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 2, InitialInterval: time.Second}))
	g.enqueue("ok", "activated", ojs.WithPending())
	activated := g.enqueue("ok", "activated, too", ojs.WithPending())
	g.check(g.Jobs().Activate(g.ctx, activated.ID))
	cancelled := g.enqueue("ok", "cancelled", ojs.WithDelay(time.Minute))
	g.check(g.Cancel(g.ctx, cancelled.ID))
	g.advance(3 * time.Hour)

	// Unique jobs.
	g.enqueue("ok", "u", with(ojs.ConflictIgnore), ojs.WithDelay(time.Minute))
	g.enqueue("ok", "u", with(ojs.ConflictIgnore))
	if _, err := g.Enqueue(g.ctx, "ok", "u", with(ojs.ConflictReject)); !errors.Is(err, ojs.ErrDuplicate) {
		g.t.Errorf("an equal job: %v", err)
	}
	g.enqueue("ok", "u", with(ojs.ConflictReplaceExceptSchedule))
	g.enqueue("ok", "u", with(ojs.ConflictReplace), ojs.WithDelay(30*time.Second))
	g.advance(time.Hour)

	// The dead, the foreign, and what recurs.
	g.check(g.DeadLetters().Retry(g.ctx, dead.ID))
	foreign := g.Worker("foreign", fetch.Config{Types: []string{"elsewhere"}})
	g.enqueue("elsewhere", "lost", ojs.WithLease(time.Minute),
		ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Second}))
	lost, err := foreign.Fetch(g.ctx)
	g.check(err)
	g.advance(2 * time.Minute)
	if err := lost.Ack(g.ctx, nil); !errors.Is(err, ojs.ErrLeaseLost) {
		g.t.Errorf("a late result: %v", err)
	}
	found, err := foreign.Fetch(g.ctx)
	g.check(err)
	g.check(found.Ack(g.ctx, "found"))
	g.check(g.Cron().Set(g.ctx, cron.Entry{Name: "hourly", Schedule: "0 * * * *",
		Job: ojs.NewDraft("ok", "recurring")}))
	g.advance(5 * time.Hour)
	g.byHand()
	g.check(g.Cron().Remove(g.ctx, "hourly"))
	g.advance(24 * time.Hour)
	g.look()
}

// byHand triggers runs of a recurring job whose jobs wait for one another.
func (g *stage) byHand() {
	g.check(g.Cron().Set(g.ctx, cron.Entry{Name: "serial", Schedule: "0 3 * * *",
		Overlap: cron.OverlapEnqueue, Template: true, Job: ojs.NewDraft("elsewhere", "{run-1d}")}))
	for range 3 {
		run, err := g.Cron().Trigger(g.ctx, "serial")
		g.check(err)
		g.log("triggered %s, %s", g.name(run.ID), run.State)
	}
	g.advance(time.Minute)
	runs, err := g.Cron().Runs(g.ctx, "serial")
	g.check(err)
	g.check(g.Cancel(g.ctx, runs[2].JobID)) // the first, for which the others wait
	runs, err = g.Cron().Runs(g.ctx, "serial")
	g.check(err)
	for _, run := range runs {
		g.log("run of %s is %s", g.name(run.JobID), run.State)
	}
	for _, run := range runs[:2] {
		g.check(g.Cancel(g.ctx, run.JobID))
	}
	next, err := g.Cron().Next(g.ctx, "serial", 2)
	g.check(err)
	g.log("next at %s and %s", g.since(next[0].At), g.since(next[1].At))
	g.check(g.Cron().Remove(g.ctx, "serial"))
}

// look adds what listings and counts show.
func (g *stage) look() {
	for job, err := range g.Jobs().List(g.ctx, inspect.Filter{}) {
		g.check(err)
		g.log("listed %s %s %s attempt %d, finished %s", g.name(job.ID), job.Type, job.State,
			job.Attempt, g.since(job.FinishedAt))
	}
	stats, err := g.Stats(g.ctx)
	g.check(err)
	for _, state := range ojs.AllStates() {
		g.log("%d %s", stats.Total[state], state)
	}
}

func (g *stage) log(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ran = append(g.ran, line)
}

func (g *stage) check(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *stage) enqueue(jobType, args string, opts ...ojs.Option) ojs.Ticket {
	g.t.Helper()
	ticket, err := g.Enqueue(g.ctx, jobType, args, opts...)
	g.check(err)
	g.name(ticket.ID)
	g.check(g.WaitIdle(g.ctx))
	return ticket
}

// advance moves the clock on from one time at which something is due to the next.
func (g *stage) advance(d time.Duration) {
	g.t.Helper()
	end := g.clock.Now().Add(d)
	for {
		g.check(g.WaitIdle(g.ctx))
		next, some := g.NextWake()
		if !some || next.After(end) {
			break
		}
		g.clock.Set(next)
	}
	g.clock.Set(end)
	g.check(g.WaitIdle(g.ctx))
}
