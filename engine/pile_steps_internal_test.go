package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/policy"
)

var completedNow = policy.Outcome{Kind: policy.Returned}

// A worker piles up jobs when it has been quick often enough in a row, and the more often the longer it has been trusted in vain.
func TestPace(t *testing.T) {
	now := time.Unix(1, 0)
	var p pace
	quick := func(n int) {
		for range n {
			now = now.Add(1)
			p.completed(now)
		}
	}
	took := func(d time.Duration) { now = now.Add(d); p.completed(now) }
	want := func(what string, quick, slow int) {
		t.Helper()
		if p.quick != quick || p.slow != slow {
			t.Errorf("%s: %d quick ones, less what is in doubt, and %d slow ones in a row, want %d and %d", what, p.quick, p.slow, quick, slow)
		}
	}
	took(0)
	want("the first, which began nobody knows when", 0, 1)
	took(quickTime - 1)
	want("just quick", 1, 0)
	quick(3)
	want("quick", 4, 0)
	took(quickTime)
	want("not quick", 0, 1)
	took(time.Hour)
	want("again", 0, 2)
	quick(1)
	want("quick again", 1, 0)
	took(0)
	want("too short to tell", 0, 1)
	took(-time.Hour)
	want("a clock that is set back", 0, 2)
	p.cleared()
	want("cleared", -trust, 3)
	quick(trust)
	want("trusted again", 0, 0)
	took(time.Hour)
	want("in doubt", -trust, 1)
	p.cleared()
	want("cleared again", -4*trust, 2)
	for range 20 {
		p.cleared()
	}
	want("cleared all the time", -mostDoubt, 22)
	quick(2 * mostDoubt)
	want("quick for long", mostDoubt, 0)
	took(time.Hour)
	want("and beyond doubt", 0, 1)
}

// How long quick jobs take is known by when a worker is trusted, and neither one that is not quick nor an odd one makes much of it.
func TestPaceMean(t *testing.T) {
	const many = 32 // trust, but for the race detector
	now := time.Unix(1, 0)
	p := pace{ended: now}
	took := func(n int, d time.Duration) {
		for range n {
			now = now.Add(d)
			p.completed(now)
		}
	}
	about := func(what string, want time.Duration) {
		t.Helper()
		if p.mean < want*9/10 || p.mean > want*11/10 {
			t.Errorf("%s: a job takes %v, want about %v", what, p.mean, want)
		}
	}
	took(many, time.Microsecond)
	about("trusted", time.Microsecond)
	took(1, time.Hour)
	about("one that is not quick", time.Microsecond)
	took(many, 20*time.Microsecond)
	about("others", 20*time.Microsecond)
	took(1, 10*time.Microsecond)
	about("an odd one", 19*time.Microsecond)
	took(2*many, time.Microsecond)
	about("as before", time.Microsecond)
}

// A worker claims ahead its share of what is there, if it has been quick and nobody has left anything.
func TestClaimsAhead(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*run, *desk)
		want   int
	}{
		"many jobs":                       {func(r *run, _ *desk) { r.left = unknown }, 20},
		"a share":                         {func(r *run, _ *desk) { r.left = 12 }, 3},
		"a share, and no free slot":       {func(r *run, _ *desk) { r.left, r.working = 12, 4 }, 12},
		"a share, and more than all work": {func(r *run, _ *desk) { r.left, r.working = 12, 5 }, 12},
		"hardly any":                      {func(r *run, _ *desk) { r.left = 2 }, 1},
		"none":                            {func(r *run, _ *desk) { r.left = 0 }, 1},
		"not quick for long":              {func(r *run, d *desk) { r.left, d.pace.quick = unknown, trust-1 }, 1},
		"no piles":                        {func(r *run, _ *desk) { r.left, r.mayPile = unknown, false }, 1},
		"what others left":                {func(r *run, _ *desk) { r.left = unknown; r.setOrphans([]*attempt{nil}) }, 0},

		"nothing to wait for":                  {func(r *run, d *desk) { r.left, r.procs, d.pace.mean = 12, 2, waitTime-1 }, 6},
		"nothing to wait for, many processors": {func(r *run, d *desk) { r.left, r.procs, d.pace.mean = 12, 16, waitTime-1 }, 3},
		"nothing to wait for, one processor":   {func(r *run, d *desk) { r.left, r.procs, d.pace.mean = 12, 1, waitTime-1 }, 12},
		"nothing to wait for, and no free slot": {func(r *run, d *desk) {
			r.left, r.working, r.procs, d.pace.mean = 12, 5, 2, waitTime-1
		}, 12},
	} {
		t.Run(name, func(t *testing.T) {
			eng, d, _ := piling(t, 1, WithConcurrency(4), WithPrefetch(20))
			r := eng.core.run
			r.working, d.pace.quick, d.pace.mean = 1, trust, waitTime
			c.change(r, d)
			if n := r.claimsAhead(d); n != c.want {
				t.Errorf("%d, want %d", n, c.want)
			}
		})
	}
}

// Jobs leave a pile in the order in which they were claimed, whoever takes them.
func TestOrderOfAPile(t *testing.T) {
	t.Run("its worker", func(t *testing.T) {
		eng, d, a := piling(t, 3)
		r := eng.core.run
		want := slices.Clone(r.attempts[1:])
		for i := range 2 {
			if next := r.goOn(d, a, completedNow); next != want[i] {
				t.Fatalf("%d: not the next one", i)
			}
			a = want[i]
		}
		if done := d.pile.takeDone(nil); len(done) != 2 || done[1] != want[0] {
			t.Error("what is done is in another order")
		}
	})
	t.Run("others", func(t *testing.T) {
		mock := clock.NewMock()
		eng, d, a := piling(t, 3, WithClock(mock))
		r := eng.core.run
		want := slices.Clone(r.attempts[1:])
		r.goOn(d, a, completedNow)
		r.leavePile(d)
		mock.Add(time.Second)
		for i, a := range want[1:] {
			if r.orphan() != a {
				t.Errorf("%d: not the next one", i)
			}
			if waited := time.Duration(a.late.Load()); waited != time.Second {
				t.Errorf("%d: has waited for %v", i, waited)
			}
		}
		if r.orphan() != nil || r.behind.Load() != 0 {
			t.Error("another one")
		}
	})
}

// What is done on a pile takes no slot, counts for the worker's pace, and is the clock's no more.
func TestDoneOnThePile(t *testing.T) {
	mock := clock.NewMock()
	eng, d, a := piling(t, 1, WithClock(mock))
	r := eng.core.run
	d.pace.ended = mock.Now()
	mock.Add(quickTime - 1)
	next := r.goOn(d, a, completedNow)
	next.begins(&d.pile)
	if d.pace.quick != 1 {
		t.Errorf("%d quick jobs", d.pace.quick)
	}
	if r.busy() != 1 {
		t.Errorf("%d busy", r.busy())
	}
	next.storing = true
	if r.busy() != 0 {
		t.Errorf("%d busy, while the last one's slot is another's", r.busy())
	}
	if a.tick(a.overdue().Add(time.Hour)); a.cause != nil {
		t.Errorf("ended by %v", a.cause)
	}
}

// quietly waits until what clears a pile is over.
func (r *run) quietly(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Microsecond) {
		r.c.mu.Lock()
		working, storing := r.working, r.storing
		r.c.mu.Unlock()
		if working == 0 && storing == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d work, %d store", working, storing)
		}
	}
}

// A pile is left alone as long as its worker moves. Else its outcomes are stored at the next look and its jobs left to others, and if
// nobody begins one of them until the look after, they go back.
func TestLooks(t *testing.T) {
	eng, d, a := piling(t, 4)
	r := eng.core.run
	count := func(state ojs.State) int {
		stats, err := eng.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stats.Total[state]
	}
	look := func(what string, waiting, done, orphans, completed, available int, watched bool) {
		t.Helper()
		r.watched = true // by whoever looks now
		r.lookAtPiles(r.c.now())
		r.quietly(t)
		if len(d.pile.waiting) != waiting || len(d.pile.done) != done || len(r.orphans) != orphans || r.watched != watched {
			t.Errorf("%s: %d wait, %d are done, %d are left, watched %t", what, len(d.pile.waiting), len(d.pile.done), len(r.orphans), r.watched)
		}
		if c, n := count(ojs.StateCompleted), count(ojs.StateAvailable); c != completed || n != available {
			t.Errorf("%s: %d completed, %d available", what, c, n)
		}
	}
	look("new", 4, 0, 0, 0, 0, true)
	a = r.goOn(d, a, completedNow)
	look("moved", 3, 1, 0, 0, 0, true)
	if d.pile.cleared {
		t.Error("cleared")
	}
	look("not moved", 0, 0, 3, 1, 0, true)
	if r.orphan() == nil {
		t.Fatal("nothing is left")
	}
	look("somebody else has taken one", 0, 0, 2, 1, 0, true)
	look("nobody has", 0, 0, 0, 1, 2, false)
	look("nothing is there", 0, 0, 0, 1, 2, false)
	if !d.pile.cleared || r.left != 2 {
		t.Errorf("the worker knows: %t; %d jobs to claim", d.pile.cleared, r.left)
	}
	if r.goOn(d, a, completedNow) != nil || d.ahead || d.pile.cleared || d.pace.doubt != trust {
		t.Errorf("ahead %t, cleared %t, doubt %d", d.ahead, d.pile.cleared, d.pace.doubt)
	}
}

// What a worker leaves behind is looked at, and begun by another one for which there is a slot.
func TestLeftBehind(t *testing.T) {
	for name, leave := range map[string]func(*run, *desk){
		"by its worker": func(r *run, d *desk) { r.leavePile(d) },
		"by a look": func(r *run, d *desk) {
			d.pile.moved()
			r.lookAtPiles(r.c.now())
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, stopping := range []bool{true, false} { // if it stops nobody begins it
				eng, d, _ := piling(t, 1)
				r := eng.core.run
				id := r.attempts[1].rec.ID
				r.watched, r.stopping = false, stopping
				if leave(r, d); stopping {
					finds := name == "by a look" // its worker finds out later that nothing is ahead any more
					if !r.watched || len(r.orphans) != 1 || d.ahead != finds {
						t.Errorf("watched %t, %d left, ahead %t", r.watched, len(r.orphans), d.ahead)
					}
					continue
				}
				r.quietly(t)
				if job, err := eng.Get(t.Context(), id); err != nil || job.State != ojs.StateCompleted {
					t.Errorf("%s, %v", job.State, err)
				}
			}
		})
	}
}

// A worker whose handler asked for its attempt, which something that it left behind may have, does not go on with its pile, and is not
// trusted with another one soon.
func TestGoOnNotWithAGhost(t *testing.T) {
	eng, d, a := piling(t, 1)
	handler.Job(a.ctx)
	if eng.core.run.goOn(d, a, completedNow) != nil || len(d.pile.done) != 0 || len(d.pile.waiting) != 1 || d.pace.doubt != trust {
		t.Errorf("%d done, %d wait, doubt %d", len(d.pile.done), len(d.pile.waiting), d.pace.doubt)
	}
}

// Of outcomes that were piled up, those whose jobs are not their own any more are dropped; the others are no longer the clock's.
func TestOutcomesOfAPile(t *testing.T) {
	eng, d, a := piling(t, 2)
	r := eng.core.run
	next := r.goOn(d, a, completedNow)
	r.goOn(d, next, completedNow)
	done := d.pile.takeDone(nil)
	if len(done) != 2 {
		t.Fatalf("%d are done", len(done))
	}
	a.phase, next.stuckAt = over, r.c.now() // the one lost, the other about to be reported
	r.c.mu.Lock()
	mine := r.settling(done)
	r.c.mu.Unlock()
	if len(mine) != 1 || mine[0] != next || next.phase != settling || !next.stuckAt.IsZero() || !next.returned || !a.returned || r.knows(a) {
		t.Errorf("%d outcomes; of the one left phase %d, stuck at %v; the other known %t", len(mine), next.phase, next.stuckAt, r.knows(a))
	}
}
