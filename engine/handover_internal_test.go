package engine

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

var (
	errDown = errors.New("down")
	noLog   = WithLogger(slog.New(slog.DiscardHandler))
)

// down is a storage that can settle and claim at once, but for now.
type down struct{ storage.SettleClaimer }

func (down) SettleAndClaim(_ context.Context, _ time.Time, _ []*storage.Record, dst []storage.Settled, _ storage.Claim, _ []*storage.Record) ([]storage.Settled, int, error) {
	return dst, 0, errDown
}

func (down) Unclaim(context.Context, time.Time, []storage.Held) (int, error) { return 0, errDown }

// handing is a run of which a worker has completed a job, and one ahead of it, and hands over while there are others.
func handing(t *testing.T, others int, opts ...Option) (*Engine[any], *run, *desk, *attempt) {
	eng, d, a := piling(t, 1, append([]Option{noLog, WithClock(clock.NewMock()), WithConcurrency(4)}, opts...)...)
	r := eng.core.run
	for range others {
		if _, err := eng.Enqueue(t.Context(), "x", nil); err != nil {
			t.Fatal(err)
		}
	}
	a = r.goOn(d, a, completedNow)
	a.begins(&d.pile)
	r.stopping, r.left, r.working = false, max(others, 1), 1
	return eng, r, d, a
}

// states counts the jobs of an engine by their state.
func states(t *testing.T, eng *Engine[any]) map[ojs.State]int {
	t.Helper()
	stats, err := eng.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stats.Total
}

// One step settles what a worker has completed and claims what comes next.
func TestHandover(t *testing.T) {
	t.Run("to one job", func(t *testing.T) {
		var logged bytes.Buffer
		eng, r, d, a := handing(t, 1, WithLogger(slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		moves := r.moves
		d.pace.ended = r.c.now().Add(-1)
		next, goesOn, done := r.handover(d, a, completedNow)
		if next == nil || !goesOn || !done || d.ahead || len(r.attempts) != 1 || r.left != 0 || r.moves != moves+1 || r.searching != 0 {
			t.Errorf("next %t, goes on %t, done %t, ahead %t; %d attempts, %d left, %d moves, %d search", next != nil, goesOn, done, d.ahead,
				len(r.attempts), r.left, r.moves-moves, r.searching)
		}
		if n := states(t, eng); n[ojs.StateCompleted] != 2 || n[ojs.StateActive] != 1 || d.pace.quick != 1 {
			t.Errorf("%v, %d quick jobs", n, d.pace.quick)
		}
		if log := logged.String(); strings.Count(log, "job completed") != 2 || strings.Contains(log, "job started") {
			t.Error(log)
		}
	})
	t.Run("and keeps nothing of a pile", func(t *testing.T) {
		_, r, d, a := handing(t, 1)
		r.handover(d, a, completedNow)
		for _, x := range append(d.ended[:cap(d.ended)], d.claimed[:cap(d.claimed)]...) {
			if x != nil {
				t.Errorf("keeps the attempt of job %s", x.rec.ID)
			}
		}
		if d.fate.rec != nil {
			t.Error("keeps the record of the last attempt, which may be another job's soon")
		}
	})
	t.Run("with jobs left for free slots", func(t *testing.T) {
		eng, r, d, a := handing(t, 3)
		next, _, _ := r.handover(d, a, completedNow)
		if next == nil || d.ahead {
			t.Fatalf("next %t, ahead %t", next != nil, d.ahead)
		}
		r.c.mu.Lock()
		r.working-- // its own
		r.c.mu.Unlock()
		r.quietly(t)
		if n := states(t, eng); n[ojs.StateCompleted] != 4 || n[ojs.StateActive] != 1 {
			t.Errorf("%v", n)
		}
	})
	t.Run("to none", func(t *testing.T) {
		_, r, d, a := handing(t, 0)
		next, goesOn, done := r.handover(d, a, completedNow)
		if next != nil || !goesOn || !done || r.searching != 1 || len(r.attempts) != 0 {
			t.Errorf("next %t, goes on %t, done %t; %d search, %d attempts", next != nil, goesOn, done, r.searching, len(r.attempts))
		}
	})
	t.Run("to some", func(t *testing.T) {
		eng, r, d, a := handing(t, 3)
		r.working, d.pace.quick, r.watched = 4, trust+1, false
		d.pace.ended = eng.core.now().Add(-1)
		next, _, _ := r.handover(d, a, completedNow)
		if next == nil || next.piled.Load() || !d.ahead || len(d.pile.waiting) != 2 || r.left != 0 || !r.watched {
			t.Fatalf("next %t, ahead %t, %d wait, %d left, watched %t", next != nil, d.ahead, len(d.pile.waiting), r.left, r.watched)
		}
		for _, x := range d.pile.waiting {
			if !x.piled.Load() {
				t.Error("waits, and is not on the pile")
			}
		}
	})
	t.Run("to one after one that was not quick", func(t *testing.T) {
		eng, r, d, a := handing(t, 3)
		r.working, d.pace.quick = 4, trust+1
		d.pace.ended = eng.core.now().Add(-quickTime)
		if next, _, _ := r.handover(d, a, completedNow); next == nil || d.ahead || len(d.pile.waiting) != 0 {
			t.Errorf("next %t, ahead %t, %d wait", next != nil, d.ahead, len(d.pile.waiting))
		}
	})
	t.Run("to what was left behind", func(t *testing.T) {
		eng, d, a := piling(t, 1)
		r := eng.core.run
		behind := d.pile.takeWaiting(nil)
		r.setOrphans(behind)
		r.stopping, r.working = false, r.c.concurrency
		next, goesOn, done := r.handover(d, a, completedNow)
		if next != nil || !goesOn || !done || len(r.orphans) != 1 {
			t.Errorf("next %t, goes on %t, done %t, %d left behind", next != nil, goesOn, done, len(r.orphans))
		}
	})
	t.Run("to what it had to pass over", func(t *testing.T) {
		eng, d, a := piling(t, 2, WithClock(clock.NewMock()))
		r := eng.core.run
		ahead := slices.Clone(r.attempts[1:])
		a = r.goOn(d, a, completedNow)
		d.pace.broken()
		if r.goOn(d, a, completedNow) != nil {
			t.Fatal("goes on")
		}
		r.stopping, r.left, r.working = false, 1, r.c.concurrency
		next, goesOn, done := r.handover(d, a, completedNow)
		if next != nil || !goesOn || !done || !d.pile.empty() || !slices.Equal(r.orphans, ahead[1:]) {
			t.Errorf("next %t, goes on %t, done %t, %d left behind", next != nil, goesOn, done, len(r.orphans))
		}
		if n := states(t, eng); n[ojs.StateCompleted] != 2 {
			t.Errorf("%v", n)
		}
	})
	t.Run("while everything is given back", func(t *testing.T) {
		eng, r, d, a := handing(t, 3)
		recs, err := eng.core.cheap.(storage.Storage).Claim(t.Context(), r.c.now(), storage.Claim{Max: 3, Worker: r.c.worker}, nil)
		if err != nil || len(recs) != 3 {
			t.Fatal(recs, err)
		}
		d.pile.takeDone(nil)
		d.claimed = nil
		for i := range recs {
			d.claimed = append(d.claimed, r.newAttempt(&recs[i]))
		}
		r.c.mu.Lock()
		r.forget(a)
		unpiled := r.unpiled
		r.stopping = true
		r.unpile()
		r.searching++
		next := r.deal(d, r.c.now(), unpiled)
		r.working-- // its own
		r.c.mu.Unlock()
		r.quietly(t)
		if n := states(t, eng); next == nil || n[ojs.StateAvailable] != 2 || !d.pile.empty() {
			t.Errorf("next %t, %v", next != nil, n)
		}
	})
}

// Attempts that wait for other jobs keep nothing of their own alive, be it on a desk or where all workers look for some.
func TestReusedAttemptsAreLight(t *testing.T) {
	_, _, d, a := handing(t, 1, WithPrefetch(2))
	args, err := ojs.NewArgs("large")
	if err != nil {
		t.Fatal(err)
	}
	d.spare = nil
	for i := range 3 {
		x := attempts.New().(*attempt)
		x.r, x.rec.Args = a.r, args
		if d.recycle(x, true); x.rec.Args.String() != "null" || len(d.spare) != min(i+1, 2) {
			t.Errorf("attempt %d, of %d on the desk, keeps args %s", i, len(d.spare), x.rec.Args)
		}
	}
	x := attempts.New().(*attempt)
	x.rec.Args, x.rec.Meta = args, map[string]any{"k": "v"}
	if !x.reusable(true) || x.rec.Meta != nil || x.rec.Args.String() != "null" {
		t.Errorf("keeps %v and %s", x.rec.Meta, x.rec.Args)
	}
}

// The line of an attempt that starts counts the time on a pile as waiting.
func TestStartAfterPile(t *testing.T) {
	var logged bytes.Buffer
	mock := clock.NewMock()
	eng, _, a := piling(t, 0, WithClock(mock), WithLogger(slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	r := eng.core.run
	r.working = 1
	mock.Add(300 * time.Millisecond)
	a.putOff(eng.core.now())
	r.work(a)
	if log := logged.String(); strings.Count(log, "job started") != 1 || !strings.Contains(log, "queue_wait_ms=300") {
		t.Error(log)
	}
}

// What handover is not for it leaves as it is.
func TestNoHandover(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Engine[any], *run, *attempt)
		o      policy.Outcome
	}{
		"an error":            {func(*Engine[any], *run, *attempt) {}, policy.Outcome{Kind: policy.Returned, Err: errDown}},
		"a panic":             {func(*Engine[any], *run, *attempt) {}, policy.Outcome{Kind: policy.Panicked}},
		"a rate limit":        {func(_ *Engine[any], _ *run, a *attempt) { a.rec.RateLimit = &ojs.RateLimit{Key: "k"} }, completedNow},
		"somebody who traces": {func(_ *Engine[any], r *run, _ *attempt) { r.c.tracers = append(r.c.tracers, nil) }, completedNow},
		"a listener":          {func(eng *Engine[any], _ *run, _ *attempt) { eng.Subscribe(EventFilter{}) }, completedNow},
		"limits":              {func(_ *Engine[any], r *run, _ *attempt) { r.c.gate.plain.Store(false) }, completedNow},
		"a job that is lost":  {func(_ *Engine[any], _ *run, a *attempt) { a.phase = over }, completedNow},
		"an ended context":    {func(_ *Engine[any], _ *run, a *attempt) { a.cause = ojs.ErrTimeout }, completedNow},
		"a slot that is gone": {func(_ *Engine[any], _ *run, a *attempt) { a.replaced = true }, completedNow},
		"nothing to do":       {func(_ *Engine[any], r *run, _ *attempt) { r.left = 0 }, completedNow},
		"a stop":              {func(_ *Engine[any], r *run, _ *attempt) { r.stopping = true }, completedNow},
		"a storage at fault":  {func(_ *Engine[any], r *run, _ *attempt) { r.blocked = true }, completedNow},
		"too many workers":    {func(_ *Engine[any], r *run, _ *attempt) { r.working = 5 }, completedNow},
	} {
		t.Run(name, func(t *testing.T) {
			eng, r, d, a := handing(t, 1)
			c.change(eng, r, a)
			phase, before, slow := a.phase, states(t, eng), d.pace.slow
			otherWay := !r.plain(a, c.o)
			next, goesOn, done := r.handover(d, a, c.o)
			if next != nil || goesOn || done || a.phase != phase || a.returned || r.searching != 0 || len(d.pile.done) != 1 {
				t.Errorf("next %t, goes on %t, done %t; %d search, %d done on the pile", next != nil, goesOn, done, r.searching, len(d.pile.done))
			}
			if (d.pace.slow > slow) != otherWay { // it has to earn its pile again
				t.Errorf("%d slow jobs in a row, not %d", d.pace.slow, slow)
			}
			if after := states(t, eng); after[ojs.StateActive] != before[ojs.StateActive] {
				t.Errorf("%v, before %v", after, before)
			}
		})
	}
}

// When the step fails outcomes are stored one by one. Nobody claims for a while, nor gets what the storage may still read.
func TestHandoverFails(t *testing.T) {
	eng, r, d, a := handing(t, 1)
	r.c.cheap = down{r.c.cheap}
	before := d.pile.done[0]
	next, goesOn, done := r.handover(d, a, completedNow)
	if next != nil || goesOn || !done || !r.blocked || r.failures != 1 || r.searching != 0 || r.working != 0 {
		t.Errorf("next %t, goes on %t, done %t; blocked %t, %d failures, %d search, %d work", next != nil, goesOn, done, r.blocked,
			r.failures, r.searching, r.working)
	}
	if r.left != unknown { // it may have claimed or settled something all the same
		t.Errorf("%d left", r.left)
	}
	if !a.kept || !before.kept || len(d.spare) != 0 || len(r.attempts) != 0 {
		t.Errorf("kept %t and %t, %d spare, %d attempts", a.kept, before.kept, len(d.spare), len(r.attempts))
	}
	if n := states(t, eng); n[ojs.StateCompleted] != 2 || n[ojs.StateAvailable] != 1 {
		t.Errorf("%v", n)
	}
}

// Who logs errors only reads of an outcome on a pile that could not be stored.
func TestLostOutcomeOfAPile(t *testing.T) {
	var logged bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelError}))
	eng, d, a := piling(t, 1, WithLogger(logger), WithClock(clock.NewMock()))
	r := eng.core.run
	gone := *a.rec
	gone.State, gone.LeaseUntil, gone.FinishedAt = ojs.StateCompleted, time.Time{}, r.c.now()
	if settled, err := r.c.store.Settle(t.Context(), r.c.now(), []storage.Change{{Record: gone}}, nil); err != nil || settled[0].Err != nil {
		t.Fatal(settled, err)
	}
	if n, err := r.c.store.Delete(t.Context(), []string{gone.ID}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	a = r.goOn(d, a, completedNow)
	r.stopping, r.left, r.working = false, 1, r.c.concurrency
	if _, _, done := r.handover(d, a, completedNow); !done {
		t.Fatal("not handed over")
	}
	if lines := strings.Count(logged.String(), "\n"); lines != 1 || !strings.Contains(logged.String(), gone.ID) {
		t.Errorf("%s", logged.String())
	}
}

// Jobs that cannot be given back stay in front of the others, until the next look; if the engine stops they are left to their leases.
func TestGivingBackFails(t *testing.T) {
	for _, stopping := range []bool{false, true} {
		eng, d, _ := piling(t, 2, noLog, WithClock(clock.NewMock()))
		r := eng.core.run
		r.c.cheap = down{r.c.cheap}
		first, second := r.attempts[1], r.attempts[2]
		d.pile.takeWaiting(nil)
		r.setOrphans([]*attempt{second})
		r.watched, r.stopping = false, stopping
		r.giveBack([]*attempt{first})
		if stopping {
			if len(r.orphans) != 1 || first.phase != over || r.knows(first) {
				t.Errorf("stopping: %d are left", len(r.orphans))
			}
			continue
		}
		if len(r.orphans) != 2 || r.orphans[0] != first || r.behind.Load() != 2 || !r.watched || first.phase != running || !r.knows(first) || r.left != 0 {
			t.Errorf("%d are left, watched %t", len(r.orphans), r.watched)
		}
		if at, _ := r.sched.Next(); !at.Equal(r.c.now().Add(storageBackoff(1) + pileTime)) {
			t.Errorf("looks at %v", at)
		}
	}
}

// A handler that is about to wait leaves its pile, with what was done before; one that has returned has no pile any more.
func TestBlocks(t *testing.T) {
	eng, d, a := piling(t, 2)
	r := eng.core.run
	next := r.goOn(d, a, completedNow)
	next.begins(&d.pile)
	for _, returned := range []bool{true, false} {
		r.c.mu.Lock()
		next.returned = returned
		next.blocks()
		r.c.mu.Unlock()
		r.quietly(t)
		if d.pile.empty() == returned || states(t, eng)[ojs.StateCompleted] != map[bool]int{true: 0, false: 1}[returned] || (len(r.orphans) == 0) != returned {
			t.Errorf("returned %t: empty %t, %v, %d left", returned, d.pile.empty(), states(t, eng), len(r.orphans))
		}
	}
	r.c.mu.Lock()
	if !r.piled() {
		t.Error("nothing seems to be left")
	}
	r.c.mu.Unlock()
	d.pile.off()
	if len(r.piles) != 0 || d.pile.listed {
		t.Errorf("%d piles", len(r.piles))
	}
}

// A worker knows nothing of the one that had its desk before.
func TestCleanDesk(t *testing.T) {
	d := new(desk)
	d.pace.cleared()
	d.ahead, d.pile.cleared, d.fate.rec = true, true, new(storage.Record)
	d.putBack()
	if d.pace != (pace{}) || d.ahead || d.pile.cleared || d.fate.rec != nil {
		t.Errorf("pace %v, ahead %t, cleared %t", d.pace, d.ahead, d.pile.cleared)
	}
}
