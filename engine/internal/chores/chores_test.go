package chores_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/engine/internal/chores"
	"github.com/ojsengine/ojs/engine/internal/idle"
	"github.com/ojsengine/ojs/scheduler"
)

// rig runs chores on a virtual clock and notes what they do.
type rig struct {
	*testing.T
	chores.Set
	clock *clock.Mock
	busy  idle.Counter

	mu   sync.Mutex // guards did
	did  []string
	fate map[string]error
}

func newRig(t *testing.T, list ...*chores.Chore) *rig {
	r := &rig{T: t, clock: clock.NewMock(), fate: make(map[string]error)}
	sched := scheduler.New(r.clock)
	r.Start(t.Context(), chores.Config{Sched: sched, Busy: &r.busy, Now: r.clock.Now,
		Failed: func(call string, err error, attrs ...any) { r.note(call + ": " + err.Error()) },
		Wait:   func(n int) time.Duration { return time.Duration(n) * time.Second },
	}, list...)
	for _, c := range list {
		run := c.Run
		c.Run = func(ctx context.Context, now time.Time) (next time.Time, err error) {
			r.note(c.Name)
			if run != nil {
				return run(ctx, now)
			}
			return next, r.fate[c.Name]
		}
	}
	t.Cleanup(func() {
		<-r.Stop()
		sched.Stop()
	})
	return r
}

func (r *rig) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.did = append(r.did, what)
}

// after moves the clock, waits until nothing is to do, and checks what was done.
func (r *rig) after(d time.Duration, want ...string) {
	r.Helper()
	r.clock.Add(d)
	for {
		ok, wait := r.busy.Idle(r.Sched.Settled)
		if ok {
			break
		}
		<-wait
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.did, want) {
		r.Errorf("did %q, want %q", r.did, want)
	}
	r.did = nil
}

// Invariant 1.
func TestRuns(t *testing.T) {
	var again *chores.Chore
	first := true
	again = &chores.Chore{Name: "again", Run: func(_ context.Context, now time.Time) (time.Time, error) {
		if first {
			first = false
			again.Poke()
		}
		return time.Time{}, nil
	}}
	later := &chores.Chore{Name: "later"}
	r := newRig(t, again, later)
	again.Poke()
	r.after(0, "again", "again")
	later.By(r.clock.Now().Add(2 * time.Second))
	later.By(r.clock.Now().Add(time.Second))
	later.By(r.clock.Now().Add(3 * time.Second))
	r.after(time.Second - 1)
	r.after(1, "later")
	r.after(time.Hour)
}

// Invariant 2.
func TestOrder(t *testing.T) {
	hold, held := make(chan struct{}), make(chan struct{})
	a, b := &chores.Chore{Name: "a"}, &chores.Chore{Name: "b"}
	first := &chores.Chore{Name: "first", Run: func(context.Context, time.Time) (time.Time, error) {
		close(held)
		<-hold
		return time.Time{}, nil
	}}
	r := newRig(t, first, a, b)
	first.Poke()
	<-held
	b.Poke()
	a.Poke()
	close(hold)
	r.after(0, "first", "a", "b")
}

// Invariant 3.
func TestFailure(t *testing.T) {
	bad, good := &chores.Chore{Name: "bad"}, &chores.Chore{Name: "good"}
	r := newRig(t, bad, good)
	r.fate["bad"] = errors.New("down")
	bad.By(r.clock.Now().Add(time.Second / 2)) // a time before the wait is over
	bad.Poke()
	good.Poke()
	r.after(0, "bad", "bad: down", "good")
	r.after(time.Second / 2)
	r.after(time.Second/2, "bad", "bad: down")
	r.after(time.Second)
	if n, err := bad.Failing(); n != 2 || err == nil {
		t.Errorf("%d runs have failed: %v", n, err)
	}
	delete(r.fate, "bad")
	r.Retry()
	r.after(0, "bad")
	if n, err := bad.Failing(); n != 0 || err != nil {
		t.Errorf("%d runs have failed: %v", n, err)
	}
	r.Retry()
	r.after(0)
}

// The time that an exact chore returns takes the place of earlier ones.
func TestExact(t *testing.T) {
	var next time.Duration
	c := &chores.Chore{Name: "c", Exact: true}
	r := newRig(t)
	c.Run = func(_ context.Context, now time.Time) (time.Time, error) {
		r.note("c")
		if next == 0 {
			return time.Time{}, nil
		}
		return now.Add(next), nil
	}
	s := new(chores.Set)
	s.Start(t.Context(), r.Config, c)
	defer func() { <-s.Stop() }()
	next = time.Minute
	c.Poke()
	r.after(0, "c")
	next = time.Hour
	c.Poke()
	r.after(0, "c")
	r.after(time.Minute)
	next = 0
	c.Poke()
	r.after(0, "c")
	r.after(time.Hour)
}

// Invariant 5, and a chore that was not started.
func TestStop(t *testing.T) {
	c, unstarted := &chores.Chore{Name: "c"}, new(chores.Chore)
	unstarted.Poke()
	unstarted.By(time.Unix(1, 0))
	s := new(chores.Set)
	mock := clock.NewMock()
	sched := scheduler.New(mock)
	defer sched.Stop()
	ran := false
	c.Run = func(context.Context, time.Time) (time.Time, error) {
		ran = true
		return time.Time{}, nil
	}
	s.Start(t.Context(), chores.Config{Sched: sched, Busy: new(idle.Counter), Now: mock.Now}, c)
	<-s.Stop()
	c.Poke()
	if ran || !s.Quitting() {
		t.Error("a chore runs after Stop")
	}
}

// A chore that has become wanted while another runs comes before those behind it.
func TestEarlierChoresComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran []string
		chore := func(name string, takes time.Duration) *chores.Chore {
			return &chores.Chore{Name: name, Run: func(context.Context, time.Time) (time.Time, error) {
				ran = append(ran, name)
				<-time.After(takes)
				return time.Time{}, nil
			}}
		}
		leases, claims, due := chore("leases", 0), chore("claims", time.Second), chore("due", 0)
		var set chores.Set
		stop := begin(&set, leases, claims, due)
		claims.Poke()
		<-time.After(time.Second / 2)
		due.Poke()
		leases.Poke()
		<-time.After(time.Minute)
		stop()
		if want := []string{"claims", "leases", "due"}; !slices.Equal(ran, want) {
			t.Errorf("ran %v, want %v", ran, want)
		}
	})
}

// Retry also runs a chore again that has failed and goes on.
func TestRetryOfAChoreThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		chore := &chores.Chore{Name: "replay"}
		chore.Run = func(_ context.Context, now time.Time) (time.Time, error) {
			if runs++; runs == 1 {
				chore.Fail("replay", errors.New("broken"))
				<-time.After(time.Second)
			}
			return now.Add(time.Hour), nil
		}
		var set chores.Set
		stop := begin(&set, chore)
		chore.Poke()
		<-time.After(time.Second / 2)
		set.Retry()
		<-time.After(time.Minute)
		stop()
		if runs != 2 {
			t.Errorf("ran %d times, want 2", runs)
		}
	})
}

// begin starts chores on the clock of a bubble.
func begin(set *chores.Set, list ...*chores.Chore) (stop func()) {
	sched := scheduler.New(clock.New())
	set.Start(context.Background(), chores.Config{Sched: sched, Busy: new(idle.Counter), Now: time.Now,
		Failed: func(string, error, ...any) {}, Wait: func(int) time.Duration { return time.Second },
	}, list...)
	return func() {
		<-set.Stop()
		sched.Stop()
	}
}
