package pipeline_test

import (
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs/engine/internal/idle"
	"github.com/ojsengine/ojs/engine/internal/pipeline"
)

// rig is a pipeline on a clock that a test moves. Jobs and outcomes are numbers. Started
// goroutines and wanted ticks are counted and nothing else.
type rig struct {
	*testing.T
	*pipeline.Pipeline[int, int]
	now           time.Time
	ahead         int
	joint         bool
	starts, ticks int
	in            time.Duration // when the latest tick is wanted
}

type task = pipeline.Task[int, int]

func newRig(t *testing.T, slots, ahead int, slow bool) *rig {
	r := &rig{T: t, now: time.Unix(1, 0), ahead: ahead, joint: !slow || ahead > 0}
	r.Pipeline = pipeline.New[int, int](pipeline.Config{
		Slots: slots,
		Slow:  slow,
		Joint: func() bool { return r.joint },
		Ahead: func() int { return r.ahead },
		Now:   func() time.Time { return r.now },
		Start: func() { r.starts++ },
		Arm:   func(d time.Duration) { r.ticks, r.in = r.ticks+1, d },
		Work:  new(idle.Counter),

		Unclaims: !slow || ahead > 0,
	})
	return r
}

// idle reports whether n goroutines are under way and nothing else is.
func (r *rig) idle(n int) bool {
	r.Work.Add(-n)
	defer r.Work.Add(n)
	ok, _ := r.Work.Idle(func() (bool, <-chan struct{}) { return true, nil })
	return ok
}

// entered is the task of a goroutine that has been started, and of which there must be
// one.
func (r *rig) entered() task {
	r.Helper()
	if r.starts == 0 {
		r.Fatal("no goroutine was started")
	}
	r.starts--
	return r.Enter()
}

// is checks the kind of a task, and how many jobs a step claims.
func (r *rig) is(t task, kind pipeline.Kind, claim int) task {
	r.Helper()
	if t.Kind != kind || t.Claim != claim {
		r.Fatalf("the task is %d and claims %d, want %d and %d", t.Kind, t.Claim, kind, claim)
	}
	return t
}

// runs checks that a task runs a job.
func (r *rig) runs(t task, job int) {
	r.Helper()
	if t.Kind != pipeline.Run || t.Job != job {
		r.Fatalf("the task is %d with job %d, want job %d to run", t.Kind, t.Job, job)
	}
}

// warm has a pipeline of one busy slot and quick handlers complete n jobs, from 0 on,
// each of which is claimed when it is wanted. The last one has returned.
func (r *rig) warm(n int) task {
	r.Helper()
	at, _ := r.complete(n, time.Microsecond)
	return at
}

// complete is warm with handlers that take some time. It returns the most jobs that one
// claim has asked for, too.
func (r *rig) complete(n int, each time.Duration) (at task, most int) {
	r.Helper()
	r.Available(pipeline.Unknown)
	at = r.entered()
	next := 0
	for done := 0; done < n; {
		switch at.Kind {
		case pipeline.Step:
			jobs := make([]int, at.Claim)
			for i := range jobs {
				jobs[i], next = next, next+1
			}
			most = max(most, at.Claim)
			at = r.Stepped(&at, jobs, false)
		case pipeline.Run:
			done++
			r.now = r.now.Add(each)
			at = r.Ended(at.Job, r.now)
		default:
			r.Fatalf("task %d", at.Kind)
		}
	}
	return at, most
}

// The local queue holds the completions of a longer time if a call of the storage takes
// time.
func TestSizeOfTheLocalQueue(t *testing.T) {
	_, most := newRig(t, 1, 500, false).complete(200, time.Millisecond)
	if most < 2 || most > 8 {
		t.Errorf("a claim asks for %d jobs at most, want 2 to 8", most)
	}
	if _, most = newRig(t, 1, 500, true).complete(200, time.Millisecond); most < 16 || most > 40 {
		t.Errorf("a claim of a slow storage asks for %d jobs at most, want 16 to 40", most)
	}
}

// Invariant 1, and 6: a step claims one job, and each goroutine that has found one
// starts the next.
func TestSlotsFillUp(t *testing.T) {
	r := newRig(t, 2, 0, false)
	r.Available(5)
	r.Available(1)
	if r.starts != 1 {
		t.Fatalf("%d goroutines were started", r.starts)
	}
	a := r.is(r.entered(), pipeline.Step, 1)
	if r.starts != 0 {
		t.Error("a goroutine was started while another one claims")
	}
	r.runs(r.Stepped(&a, []int{1}, false), 1)
	b := r.is(r.entered(), pipeline.Step, 1)
	r.runs(r.Stepped(&b, []int{2}, false), 2)
	if r.starts != 0 || r.Busy() != 2 {
		t.Errorf("%d goroutines were started for no slot, %d are busy", r.starts, r.Busy())
	}
}

// Without a local queue the outcome is stored by the step that claims the next job, and
// the slot is free only then.
func TestExact(t *testing.T) {
	r := newRig(t, 1, 0, false)
	r.Available(2)
	a := r.is(r.entered(), pipeline.Step, 1)
	r.runs(r.Stepped(&a, []int{1}, false), 1)
	a = r.is(r.Ended(10, r.now), pipeline.Step, 1)
	if !slices.Equal(a.Outcomes, []int{10}) {
		t.Errorf("stores %v", a.Outcomes)
	}
	r.runs(r.Stepped(&a, []int{2}, false), 2)
	a = r.is(r.Ended(20, r.now), pipeline.Step, 0) // nothing is left
	r.Available(1)
	if r.starts != 0 || r.Busy() != 1 {
		t.Errorf("the slot of an outcome that is being stored is free")
	}
	a = r.is(r.Stepped(&a, nil, false), pipeline.Step, 1)
	r.is(r.Stepped(&a, nil, true), pipeline.Leave, 0)
	if !r.idle(0) || r.ticks != 0 {
		t.Errorf("idle %t, %d ticks", r.idle(0), r.ticks)
	}
}

// An empty claim is no news of what has come since it began.
func TestEmptyClaims(t *testing.T) {
	r := newRig(t, 1, 0, false)
	r.Available(1)
	a := r.is(r.entered(), pipeline.Step, 1)
	r.Available(1)
	a = r.is(r.Stepped(&a, nil, true), pipeline.Step, 1)
	a = r.is(r.Stepped(&a, nil, false), pipeline.Step, 1) // a claim that has failed says nothing
	r.Block()
	r.is(r.Stepped(&a, nil, false), pipeline.Leave, 0)
	if !r.idle(0) || r.starts != 0 {
		t.Errorf("blocked: idle %t, %d starts", r.idle(0), r.starts)
	}
	r.Unblock()
	a = r.is(r.entered(), pipeline.Step, 1)
	r.is(r.Stepped(&a, nil, true), pipeline.Leave, 0)
}

// The local queue grows with what completes, is refilled before it is empty, and keeps
// the order.
func TestLocalQueue(t *testing.T) {
	r := newRig(t, 2, 8, false)
	at := r.warm(100)
	sizes := make(map[int]bool)
	want := -1
	for range 100 {
		for at.Kind == pipeline.Step {
			sizes[at.Claim] = true
			jobs := make([]int, at.Claim)
			for i := range jobs {
				jobs[i] = 1000 + i
			}
			at = r.Stepped(&at, jobs, false)
		}
		if at.Kind != pipeline.Run {
			t.Fatalf("task %d", at.Kind)
		}
		if at.Job > 1000 && at.Job != want+1 {
			t.Fatalf("job %d after job %d", at.Job, want)
		}
		want = at.Job
		at = r.Ended(0, r.now)
	}
	if sizes[1] || !sizes[7] {
		t.Errorf("claims of %v jobs", sizes)
	}
	if r.ticks == 0 {
		t.Error("no tick is wanted")
	}
}

// Handlers that take their time have nothing waiting behind them.
func TestSlowHandlersHaveNoQueue(t *testing.T) {
	r := newRig(t, 2, 32, false)
	at := r.warm(100)
	for range 10 {
		for at.Kind == pipeline.Step {
			at = r.Stepped(&at, make([]int, at.Claim), false)
		}
		r.now = r.now.Add(20 * time.Millisecond)
		at = r.Ended(0, r.now)
	}
	for at.Kind != pipeline.Step || at.Claim == 0 {
		if at.Kind == pipeline.Step {
			at = r.Stepped(&at, nil, false)
			continue
		}
		r.now = r.now.Add(20 * time.Millisecond)
		at = r.Ended(0, r.now)
	}
	if at.Claim > 2 {
		t.Errorf("a claim of %d jobs behind a slow handler", at.Claim)
	}
}

// Invariants 2 and 4: a tick stores outcomes that wait, and gives back jobs that have
// waited for too long.
func TestTick(t *testing.T) {
	r := newRig(t, 2, 8, false)
	at := r.warm(100)
	for at.Kind == pipeline.Step {
		at = r.Stepped(&at, make([]int, at.Claim), false)
	}
	r.starts = 0 // no other goroutine comes to run
	at = r.Ended(7, r.now)
	if at.Kind != pipeline.Run {
		t.Fatalf("task %d", at.Kind)
	}
	r.Tick(r.now.Add(time.Millisecond))
	other := r.Enter()
	if other.Kind != pipeline.Step || !slices.Contains(other.Outcomes, 7) {
		t.Fatalf("task %d stores %v", other.Kind, other.Outcomes)
	}
	other = r.Stepped(&other, nil, false)
	if other.Kind != pipeline.Run {
		t.Fatalf("task %d", other.Kind)
	}
	r.ticks = 0
	r.Tick(r.now.Add(time.Hour))
	back := r.is(r.entered(), pipeline.Unclaim, 0)
	if len(back.Jobs) == 0 || r.ticks != 0 {
		t.Errorf("%d jobs go back, and %d ticks are wanted", len(back.Jobs), r.ticks)
	}
	r.is(r.Unclaimed(len(back.Jobs)), pipeline.Leave, 0) // both slots are taken
}

// The wait of a job begins when the step that claims it has ended, also if that took
// long: an observer may hold it up.
func TestWaitBeginsAfterTheStep(t *testing.T) {
	r := newRig(t, 2, 8, false)
	at := r.warm(100)
	for at.Kind != pipeline.Step || at.Claim < 3 {
		if at.Kind == pipeline.Step {
			at = r.Stepped(&at, make([]int, at.Claim), false)
			continue
		}
		at = r.Ended(0, r.now)
	}
	for r.starts > 0 {
		r.entered()
	}
	r.now = r.now.Add(time.Hour)
	r.Stepped(&at, make([]int, at.Claim), false)
	for r.Tick(r.now); r.starts > 0; {
		if at := r.entered(); at.Kind == pipeline.Unclaim {
			t.Errorf("%d jobs go back that have just been claimed", len(at.Jobs))
		}
	}
}

// Jobs in the local queue go back, and so do those that a claim under way brings.
func TestReturnAndStop(t *testing.T) {
	for name, call := range map[string]func(*rig){
		"return": func(r *rig) { r.Return() },
		"stop":   func(r *rig) { r.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2, 8, false)
			at := r.warm(100)
			for at.Kind != pipeline.Step || at.Claim < 2 {
				if at.Kind == pipeline.Step {
					at = r.Stepped(&at, make([]int, at.Claim), false)
				} else {
					at = r.Ended(0, r.now)
				}
			}
			call(r)
			at = r.is(r.Stepped(&at, []int{5, 6}, false), pipeline.Unclaim, 0)
			if !slices.Contains(at.Jobs, 5) || !slices.Contains(at.Jobs, 6) {
				t.Errorf("%v go back", at.Jobs)
			}
			if at = r.Unclaimed(2); (at.Kind == pipeline.Leave) != (name == "stop") {
				t.Errorf("task %d", at.Kind)
			}
		})
	}
}

// A slow storage is asked for all free slots at once, by one claim at a time, and no
// claim waits for outcomes to be stored. As many outcomes as there are slots may be on
// their way.
func TestSlowStorage(t *testing.T) {
	r := newRig(t, 3, 0, true)
	r.Available(pipeline.Unknown)
	a := r.is(r.entered(), pipeline.Step, 3)
	r.Available(1)
	if r.starts != 0 {
		t.Error("two claims at once")
	}
	r.runs(r.Stepped(&a, []int{1, 2, 3}, false), 1)
	r.runs(r.entered(), 2)
	r.runs(r.entered(), 3)
	var stores []task
	for i := range 3 {
		s := r.is(r.Ended(i, r.now), pipeline.Step, 0)
		stores = append(stores, s)
	}
	a = r.is(r.entered(), pipeline.Step, 3)
	r.runs(r.Stepped(&a, []int{4, 5, 6}, false), 4)
	r.runs(r.entered(), 5)
	r.runs(r.entered(), 6)
	s := r.is(r.Ended(3, r.now), pipeline.Step, 0)
	r.is(r.Ended(4, r.now), pipeline.Leave, 0) // its outcome goes with the next step
	if r.starts != 0 || r.Busy() != 3 {
		t.Errorf("%d goroutines start, %d slots are busy", r.starts, r.Busy())
	}
	next := r.is(r.Stepped(&s, nil, false), pipeline.Step, 0)
	if !slices.Equal(next.Outcomes, []int{4}) {
		t.Errorf("stores %v", next.Outcomes)
	}
	for _, s := range stores {
		r.Stepped(&s, nil, false)
	}
}

// As many outcomes as there are slots may wait for a storage that has failed to take
// them, and hold no slot. Any other holds a slot until it is stored.
func TestFailedOutcomes(t *testing.T) {
	r := newRig(t, 1, 0, true)
	for i := range 2 {
		r.Available(1)
		a := r.is(r.entered(), pipeline.Step, 1)
		r.runs(r.Stepped(&a, []int{i}, false), i)
		s := r.is(r.Ended(i, r.now), pipeline.Step, 0)
		r.Failed(1)
		r.is(r.Stepped(&s, nil, false), pipeline.Leave, 0)
		if r.Busy() != i {
			t.Errorf("%d outcomes wait, %d slots are busy", i+1, r.Busy())
		}
	}
	r.Available(1)
	if r.starts != 0 || r.idle(1) || !r.idle(2) {
		t.Errorf("%d goroutines start, idle %t", r.starts, r.idle(1))
	}
	r.Stop()
	for range 2 {
		if r.Drained() {
			t.Error("drained with an outcome that is not stored")
		}
		r.Recovered()
	}
	if !r.Drained() {
		t.Error("not drained")
	}
}

// An outcome that the storage fails to take, after another job has got its slot, makes no
// more slots busy than there are.
func TestBusyIsAtMostTheSlots(t *testing.T) {
	r := newRig(t, 1, 0, true)
	r.Available(1)
	a := r.is(r.entered(), pipeline.Step, 1)
	r.runs(r.Stepped(&a, []int{0}, false), 0)
	r.Failed(2)
	if r.Busy() != 1 {
		t.Errorf("%d of 1 slots are busy", r.Busy())
	}
}

// A slow storage that stores and claims in one call has both in a step, for every slot
// that is free. Outcomes gather while a step is under way, and many make another one.
func TestSlowJointStorage(t *testing.T) {
	const slots, gather = 40, 32
	r := newRig(t, slots, 8, true)
	r.Available(slots)
	a := r.is(r.entered(), pipeline.Step, slots)
	r.runs(r.Stepped(&a, make([]int, slots), false), 0)
	for range slots - 1 {
		r.runs(r.entered(), 0)
	}
	first := r.is(r.Ended(0, r.now), pipeline.Step, 0)
	for i := range gather - 1 {
		r.is(r.Ended(1+i, r.now), pipeline.Leave, 0)
	}
	second := r.is(r.Ended(gather, r.now), pipeline.Step, 0)
	if len(first.Outcomes) != 1 || len(second.Outcomes) != gather {
		t.Errorf("the steps store %d and %d outcomes", len(first.Outcomes), len(second.Outcomes))
	}
	r.is(r.Ended(0, r.now), pipeline.Leave, 0)
	r.is(r.Stepped(&first, nil, false), pipeline.Leave, 0) // the second one is under way
	if at := r.Stepped(&second, nil, false); at.Kind != pipeline.Step || len(at.Outcomes) != 1 {
		t.Errorf("task %d stores %v", at.Kind, at.Outcomes)
	}
}

// Invariants 2 and 4: jobs wait longer before they go back to a slow storage, and
// outcomes wait for the step under way.
func TestSlowJointStorageWaits(t *testing.T) {
	r := newRig(t, 2, 32, true)
	at := r.warm(1000)
	for at.Kind != pipeline.Step || at.Claim == 0 {
		if at.Kind == pipeline.Step {
			at = r.Stepped(&at, nil, false)
		} else {
			at = r.Ended(0, r.now)
		}
	}
	other := r.Enter() // which the step has started
	for range 2 {
		if other.Kind != pipeline.Run {
			t.Fatalf("task %+v while %+v is under way", other, at)
		}
		other = r.Ended(7, r.now)
		if r.in != pipeline.TickTime {
			t.Errorf("a tick for outcomes is wanted in %v", r.in)
		}
		r.Tick(r.now.Add(time.Millisecond))
	}
	at = r.Stepped(&at, make([]int, at.Claim), false)
	if at.Kind != pipeline.Step || !slices.Equal(at.Outcomes, []int{7, 7}) {
		t.Fatalf("task %d stores %v after the step", at.Kind, at.Outcomes)
	}
	if at = r.Stepped(&at, nil, false); at.Kind != pipeline.Run {
		t.Fatalf("task %d", at.Kind)
	}
	r.is(r.Enter(), pipeline.Leave, 0) // both slots are taken
	r.starts = 0
	r.Tick(r.now.Add(99 * time.Millisecond))
	if r.starts != 0 || r.in < 99*time.Millisecond {
		t.Errorf("%d goroutines come after 99 ms; the next tick is wanted in %v", r.starts, r.in)
	}
	r.Tick(r.now.Add(100 * time.Millisecond))
	r.is(r.entered(), pipeline.Unclaim, 0)
}

// The local queue of a storage whose steps take long grows by what completes meanwhile.
func TestLongSteps(t *testing.T) {
	r := newRig(t, 2, 32, true)
	r.Available(pipeline.Unknown)
	at, most := r.entered(), 0
	for steps := 0; steps < 40; {
		if at.Kind == pipeline.Step {
			steps++
			most = max(most, at.Claim)
			r.now = r.now.Add(50 * time.Millisecond)
			at = r.Stepped(&at, make([]int, at.Claim), false)
			continue
		}
		at = r.Ended(0, r.now)
	}
	if most < 24 {
		t.Errorf("the largest claim is of %d jobs", most)
	}
}

// Invariant 2: jobs that were claimed ahead go back after a Resize to one slot, with
// which no job is claimed ahead.
func TestResizeToExact(t *testing.T) {
	r := newRig(t, 2, 8, false)
	at := r.warm(100)
	for at.Kind == pipeline.Step {
		at = r.Stepped(&at, make([]int, at.Claim), false)
	}
	r.ahead = 0
	r.Resize(func() int { return 1 })
	for r.starts > 0 { // of the time with two slots
		other := r.entered()
		for other.Kind == pipeline.Step {
			other = r.Stepped(&other, nil, false)
		}
		r.is(other, pipeline.Leave, 0)
	}
	r.ticks = 0
	r.Tick(r.now.Add(time.Millisecond)) // which came for outcomes
	if r.ticks != 1 || r.starts != 0 {
		t.Fatalf("%d ticks are wanted for jobs that wait, %d goroutines start", r.ticks, r.starts)
	}
	r.Tick(r.now.Add(r.in + time.Millisecond))
	if back := r.is(r.entered(), pipeline.Unclaim, 0); len(back.Jobs) == 0 {
		t.Error("no job goes back")
	}
}

// Jobs wait for more slots only while the storage works: a slot more is no help before.
func TestFull(t *testing.T) {
	r := newRig(t, 1, 0, true)
	r.Available(5)
	a := r.is(r.entered(), pipeline.Step, 1)
	r.runs(r.Stepped(&a, []int{1}, false), 1)
	full := func(when string, want bool) {
		t.Helper()
		if r.Full() != want {
			t.Errorf("%s: full %t", when, !want)
		}
	}
	full("one slot, five jobs", true)
	r.Block()
	full("claims fail", false)
	r.Unblock()
	full("claims go on", true)
	s := r.is(r.Ended(1, r.now), pipeline.Step, 0)
	r.Failed(2)
	full("outcomes are not stored", false)
	r.Recovered()
	r.Recovered()
	r.Stepped(&s, nil, false)
}
