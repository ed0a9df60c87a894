package engine

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// The time that an attempt waits on a pile is not its handler's, and none passes for it there.
func TestTimeOnThePile(t *testing.T) {
	const timeout, wait = time.Second, 300 * time.Millisecond
	start := func(t *testing.T, change func(*storage.Record)) (*attempt, time.Time) {
		eng, err := New[any](memory.New())
		if err != nil {
			t.Fatal(err)
		}
		eng.Handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
		c := eng.core
		r := &run{c: c, base: t.Context(), sched: scheduler.New(clock.NewMock()), contexts: internal.NewRun(context.Background())}
		t.Cleanup(r.sched.Stop)
		now := c.now()
		var rec storage.Record
		rec.ID, rec.Type, rec.State, rec.Attempt, rec.Timeout, rec.Lease = "1", "x", ojs.StateActive, 1, timeout, time.Hour
		rec.CreatedAt, rec.StartedAt, rec.LeaseUntil = now, now, now.Add(time.Hour)
		change(&rec)
		a := r.newAttempt(&rec)
		r.begin(a)
		return a, now
	}
	for name, c := range map[string]struct {
		change func(*storage.Record)
		ends   time.Duration
		total  bool
	}{
		"timeout":                   {func(*storage.Record) {}, timeout + wait, false},
		"and a total one later":     {func(r *storage.Record) { r.TotalTimeout = time.Hour }, timeout + wait, false},
		"and a total one, too soon": {func(r *storage.Record) { r.TotalTimeout = timeout + wait/2 }, timeout + wait/2, true},
		"total timeout":             {func(r *storage.Record) { r.TotalTimeout = timeout / 2 }, timeout / 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			a, now := start(t, c.change)
			a.piled.Store(true)
			a.stuckAt = now
			a.tick(now.Add(time.Minute))
			if a.cause != nil || len(a.r.keeper.stuck) > 0 {
				t.Errorf("ended on the pile: %v", a.cause)
			}
			a.stuckAt = time.Time{}
			a.putOff(now.Add(wait))
			if !a.begins(&pile{}) {
				t.Error("does not begin")
			}
			if late := time.Duration(a.late.Load()); late != wait {
				t.Errorf("has waited for %v, want %v", late, wait)
			}
			want := policy.TimedOut
			if c.total {
				want = policy.TotalTimedOut
			}
			if o := policy.Timed(&a.rec.JobInfo, policy.Outcome{Kind: policy.TimedOut}, a.began(), now); o.Kind != want {
				t.Errorf("timed out as %v, want %v", o.Kind, want)
			}
			if d, _ := a.context.Deadline(); !d.Equal(now.Add(c.ends)) || !a.overdue().Equal(d) {
				t.Errorf("times out after %v, its context after %v, want %v", a.overdue().Sub(now), d.Sub(now), c.ends)
			}
			if a.tick(now.Add(c.ends - 1)); a.cause != nil {
				t.Errorf("ended before: %v", a.cause)
			}
			if a.tick(now.Add(c.ends)); a.cause != ojs.ErrTimeout {
				t.Errorf("ended by %v", a.cause)
			}
		})
	}
}

// A job that has expired on a pile does not begin.
func TestExpiredOnThePile(t *testing.T) {
	eng, err := New[any](memory.New())
	if err != nil {
		t.Fatal(err)
	}
	eng.Handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
	r := &run{c: eng.core, base: t.Context(), contexts: internal.NewRun(context.Background())}
	for _, expired := range []bool{false, true} {
		now := r.c.now()
		var rec storage.Record
		rec.ID, rec.Type, rec.State, rec.Timeout, rec.StartedAt, rec.ExpiresAt = "1", "x", ojs.StateActive, time.Hour, now, now.Add(time.Hour)
		if expired {
			rec.ExpiresAt = now
		}
		a := r.newAttempt(&rec)
		a.piled.Store(true)
		if a.begins(&pile{}) == expired {
			t.Errorf("expired %t, and begins %t", expired, !expired)
		}
	}
}

// The deadline of a job that is given back is the engine's to look at again.
func TestDeadlineOfWhatIsGivenBack(t *testing.T) {
	store := memory.New()
	eng, err := New[any](store, WithClock(clock.NewMock()))
	if err != nil {
		t.Fatal(err)
	}
	eng.Handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
	c := eng.core
	deadline := c.now().Add(time.Minute)
	if _, err := eng.Enqueue(t.Context(), "x", nil, ojs.WithExpiresAt(deadline)); err != nil {
		t.Fatal(err)
	}
	recs, err := store.Claim(t.Context(), c.now(), storage.Claim{Max: 1, Worker: c.worker}, nil)
	if err != nil || len(recs) != 1 {
		t.Fatal(recs, err)
	}
	r := &run{c: c, base: t.Context(), sched: scheduler.New(c.clock), contexts: internal.NewRun(context.Background()), stopping: true}
	defer r.sched.Stop()
	r.keeper.r = r
	c.run = r
	a := r.newAttempt(&recs[0])
	r.begin(a)
	r.keeper.at = time.Time{} // it has looked since
	r.giveBack([]*attempt{a})
	if !r.keeper.at.Equal(deadline) || len(r.attempts) != 0 || r.left != 1 {
		t.Errorf("looks at %v, want %v; %d attempts, %d jobs left", r.keeper.at, deadline, len(r.attempts), r.left)
	}
}

// piling is a run, without workers, of which one has claimed jobs ahead of the one that it has. All are stored.
func piling(t *testing.T, jobsAhead int, opts ...Option) (eng *Engine[any], d *desk, a *attempt) {
	store := memory.New()
	eng, err := New[any](store, opts...)
	if err != nil {
		t.Fatal(err)
	}
	eng.Handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
	c := eng.core
	for range 1 + jobsAhead {
		if _, err := eng.Enqueue(t.Context(), "x", nil); err != nil {
			t.Fatal(err)
		}
	}
	recs, err := store.Claim(t.Context(), c.now(), storage.Claim{Max: 1 + jobsAhead, Worker: c.worker}, nil)
	if err != nil || len(recs) != 1+jobsAhead {
		t.Fatal(recs, err)
	}
	r := &run{c: c, base: t.Context(), sched: scheduler.New(c.clock), contexts: internal.NewRun(context.Background()), drained: make(chan struct{})}
	t.Cleanup(r.sched.Stop)
	r.stopping, r.mayPile, r.procs = true, true, 64 // nobody starts
	r.watch.Func = func(time.Time) {}
	r.looking.Func = func(time.Time) {}
	r.keeper.r = r
	c.run = r
	var all []*attempt
	for i := range recs {
		all = append(all, r.newAttempt(&recs[i]))
		r.begin(all[i])
	}
	a = all[0]
	d = &desk{ahead: true}
	d.pile.put(r, all[1:], c.now())
	a.begins(&d.pile)
	return eng, d, a
}

// A worker goes on with its pile unless others have left something behind, or its jobs have become slow.
func TestGoOn(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*run, *desk)
		goesOn bool
	}{
		"plain":            {func(*run, *desk) {}, true},
		"one slow job":     {func(_ *run, d *desk) { d.pace.broken() }, true},
		"slow jobs":        {func(_ *run, d *desk) { d.pace.broken(); d.pace.broken() }, false},
		"what others left": {func(r *run, _ *desk) { r.setOrphans([]*attempt{nil}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			eng, d, a := piling(t, 1)
			r := eng.core.run
			c.change(r, d)
			next := r.goOn(d, a, policy.Outcome{Kind: policy.Returned})
			if (next != nil) != c.goesOn || (len(d.pile.done) == 1) != c.goesOn || (len(d.pile.waiting) == 0) != c.goesOn {
				t.Errorf("goes on: %t; %d done, %d waiting", next != nil, len(d.pile.done), len(d.pile.waiting))
			}
		})
	}
}

// Pausing a queue gives back what was claimed ahead.
func TestPauseGivesBack(t *testing.T) {
	eng, d, _ := piling(t, 1)
	if err := eng.Queues().Pause(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	<-eng.core.run.drained // by what gives it back
	stats, err := eng.Stats(t.Context())
	if err != nil || !d.pile.empty() || stats.Total[ojs.StateAvailable] != 1 || stats.Busy != 1 {
		t.Errorf("%v, %d busy, %v", stats.Total, stats.Busy, err)
	}
}

// A handler that waits for a job leaves its worker's pile, and is the last one before which jobs are piled up.
func TestWaitingLeavesThePile(t *testing.T) {
	eng, d, a := piling(t, 1)
	waitsFor(context.Background())
	r := eng.core.run
	if !r.mayPile {
		t.Error("somebody else has waited")
	}
	waitsFor(a.ctx)
	if r.mayPile || !d.pile.empty() || len(r.orphans) != 1 {
		t.Errorf("may pile %t, %d left behind", r.mayPile, len(r.orphans))
	}
}

// A run knows how many processors it has.
func TestRunCountsProcessors(t *testing.T) {
	eng, err := New[any](memory.New(), noLog)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	if err := eng.WaitIdle(ctx); err != nil {
		t.Error(err)
	}
	eng.core.mu.Lock()
	procs := eng.core.run.procs
	eng.core.mu.Unlock()
	if procs != runtime.GOMAXPROCS(0) {
		t.Errorf("counts %d processors of %d", procs, runtime.GOMAXPROCS(0))
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
