package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/internal/test/racedetector"
	"github.com/ojsengine/ojs/storage/memory"
)

// Random programs of handlers, workers, stops, timeouts, snoozes and cancels under
// virtual time, against the rules that the README promises: never more attempts than the
// policy allows, never early, one holder. The model does not ask the engine what an
// attempt has spent: it knows when each began and ended, and what it answered.
func TestRulesUnderRandomPrograms(t *testing.T) {
	seeds := uint64(60)
	switch {
	case !storm():
		seeds = 4
	case racedetector.On:
		seeds = 10
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("A006 P0.5 P0.6 P1.8 seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newAdversary(t, seed).play() })
		})
	}
}

const adversaryInterval = 3 * time.Second // between the attempts of a job

// adversary is a random program and the model of what it has done.
type adversary struct {
	t   *testing.T
	eng *engine.Engine[any]

	mu   sync.Mutex // guards all below
	rnd  *rand.Rand
	jobs map[string]*played
	ends []time.Time // of Run, which judges what goes on
}

// played is what the model knows of a job.
type played struct {
	timeout   time.Duration
	runs      int // allowed
	due       time.Time
	notBefore time.Time
	spent     int
	cancelled bool
	holder    *holder
}

// holder is a running attempt.
type holder struct {
	began time.Time
	gone  func() bool // reports that the attempt has lost its job
}

func newAdversary(t *testing.T, seed uint64) *adversary {
	a := &adversary{t: t, rnd: rand.New(rand.NewPCG(seed, 7)), jobs: make(map[string]*played)}
	grace := []time.Duration{0, time.Second, 5 * time.Second}[a.rnd.IntN(3)]
	eng, err := engine.New[any](memory.New(), quiet, engine.WithConcurrency(1+a.rnd.IntN(4)),
		engine.WithGracePeriod(grace))
	if err != nil {
		t.Fatal(err)
	}
	a.eng = eng
	eng.Handle("here", func(ctx context.Context, job *ojs.Job[any]) error {
		b := a.begin(job.ID, func() bool { return ctx.Err() != nil })
		b.plan(a)
		defer context.AfterFunc(ctx, func() { a.interrupted(job.ID, b, context.Cause(ctx)) })()
		if b.heeds {
			_ = handler.Sleep(ctx, b.works)
			if ctx.Err() != nil {
				pace.Virtual(b.lingers)
			}
		} else {
			pace.Virtual(b.works)
		}
		a.end(job.ID, b, context.Cause(ctx), b.began.Add(a.timeout(job.ID)+grace))
		return b.answer
	})
	return a
}

// bout is one attempt as the adversary plans it.
type bout struct {
	*holder
	works, lingers time.Duration
	heeds          bool // the end of its context
	answer         error
	unspent        bool // by its answer
	noted          bool // as unspent; guarded by adversary.mu
	wait           time.Duration
}

func (b *bout) plan(a *adversary) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.rnd
	b.works = time.Duration(r.IntN(15_000)) * time.Millisecond
	b.lingers = []time.Duration{0, 0, time.Millisecond, 4 * time.Second, 40 * time.Second}[r.IntN(5)]
	b.heeds = r.IntN(3) > 0
	b.wait = adversaryInterval
	switch r.IntN(8) {
	case 0:
	case 1, 2:
		b.wait = time.Duration(r.IntN(5000)) * time.Millisecond
		b.answer, b.unspent = ojs.Snooze(b.wait), true
	case 3:
		b.wait = time.Duration(r.IntN(5000)) * time.Millisecond
		b.answer = ojs.RetryAfter(b.wait, errBoom)
	case 4:
		b.answer = fmt.Errorf("wrapped: %w", ojs.Snooze(0))
		b.unspent, b.wait = true, 0
	default:
		b.answer = errBoom
	}
}

func (a *adversary) timeout(id string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.jobs[id].timeout
}

// begin notes the begin of an attempt.
func (a *adversary) begin(id string, gone func() bool) *bout {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, p := time.Now(), a.jobs[id]
	if p == nil {
		p = &played{}
		a.jobs[id] = p
	}
	p.spent++ // until its end says otherwise
	switch {
	case p.holder != nil && !p.holder.gone():
		a.t.Errorf("job %s has two holders at %v", id, now)
	case now.Before(p.due) || now.Before(p.notBefore):
		a.t.Errorf("job %s begins at %v, due %v, not before %v", id, now, p.due, p.notBefore)
	case p.cancelled:
		a.t.Errorf("job %s begins after it was cancelled", id)
	}
	if p.runs > 0 && p.spent > p.runs {
		a.t.Errorf("job %s: attempt %d of %d", id, p.spent, p.runs)
	}
	b := &bout{holder: &holder{began: now, gone: gone}}
	p.holder = b.holder
	return b
}

// interrupted notes the end of an attempt's context. A stop gives its job back a second
// later at the latest, unspent unless its timeout has passed by then.
func (a *adversary) interrupted(id string, b *bout, cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.jobs[id]
	if cause == ojs.ErrShutdown && !b.noted && time.Now().Before(b.began.Add(p.timeout)) {
		p.spent--
		b.noted = true
	}
}

// released notes that a worker gives a job back before its timeout, or that it could not.
func (a *adversary) released(id string, b *bout, done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.jobs[id]
	switch {
	case done && time.Now().Before(b.began.Add(p.timeout)):
		p.spent--
		b.noted = true
	case !done && b.noted:
		p.spent++
		b.noted = false
	}
}

// end notes the end of an attempt: it was not spent if it snoozed, or a stop interrupted
// it, before its timeout. It has been judged without its answer at a time, unless it was
// before that.
func (a *adversary) end(id string, b *bout, cause error, judged time.Time) {
	if cause == ojs.ErrShutdown {
		a.interrupted(id, b, cause)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now, p := time.Now(), a.jobs[id]
	mine := p.holder == b.holder && (cause == nil || cause == ojs.ErrShutdown || cause == ojs.ErrTimeout)
	if p.holder == b.holder {
		p.holder = nil
	}
	if b.answer == nil || !mine {
		return
	}
	for _, end := range a.ends {
		if cause != nil && !end.Before(b.began) && end.Before(judged) {
			judged = end
		}
	}
	inTime := now.Before(b.began.Add(p.timeout))
	switch {
	case b.noted && !now.Before(judged):
	case inTime && b.unspent:
		if !b.noted {
			p.spent--
			b.noted = true
		}
		p.notBefore = now.Add(b.wait)
	case b.noted:
	case !now.Before(judged):
		p.notBefore = judged.Add(adversaryInterval)
		if !b.unspent {
			p.notBefore = judged.Add(min(b.wait, adversaryInterval))
		}
	case !b.unspent:
		p.notBefore = now.Add(b.wait)
	default:
		p.notBefore = now.Add(adversaryInterval)
	}
}

// enqueue adds a job to the program.
func (a *adversary) enqueue() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, typ := a.rnd, []string{"here", "there"}[a.rnd.IntN(2)]
	p := &played{timeout: time.Duration(1+r.IntN(12)) * time.Second, runs: 1 + r.IntN(4)}
	delay := time.Duration(r.IntN(3)*r.IntN(4000)) * time.Millisecond
	p.due = time.Now().Add(delay)
	ticket, err := a.eng.Enqueue(context.Background(), typ, nil, ojs.WithTimeout(p.timeout),
		ojs.WithDelay(delay),
		ojs.WithLease(time.Duration(2+r.IntN(20))*time.Second), ojs.WithRetry(ojs.RetryPolicy{
			MaxAttempts: p.runs, InitialInterval: adversaryInterval, BackoffCoefficient: 1,
			Jitter: ojs.JitterOff, MaxInterval: time.Minute,
		}))
	if err != nil {
		a.t.Error(err)
	}
	if there := a.jobs[ticket.ID]; there != nil { // it has begun already
		p.spent, p.holder, p.notBefore = there.spent, there.holder, there.notBefore
	}
	a.jobs[ticket.ID] = p
	return ticket.ID
}

// fetch plays a worker until ctx ends.
func (a *adversary) fetch(ctx context.Context, id string) {
	w := a.eng.Worker(id, fetch.Config{Types: []string{"there"}})
	for {
		d, err := w.Fetch(ctx)
		if err != nil {
			return
		}
		over := d.LeaseUntil // and later, if it is renewed
		deadline := time.Now().Add(d.Job.Timeout)
		var mu sync.Mutex
		var lost bool
		b := a.begin(d.Job.ID, func() bool {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			return lost || !now.Before(over) || !now.Before(deadline)
		})
		b.plan(a)
		var cause error
		for end := time.Now().Add(b.works); time.Now().Before(end); {
			pace.Virtual(min(time.Second, time.Until(end)))
			if !b.heeds {
				continue // and say nothing
			}
			if err := d.Heartbeat(context.Background()); err != nil {
				cause = err
				break
			}
			mu.Lock()
			over = time.Now().Add(d.Job.Lease)
			mu.Unlock()
		}
		mu.Lock()
		lost = true
		mu.Unlock()
		a.mu.Lock()
		release := cause == nil && a.rnd.IntN(5) == 0
		if release {
			b.answer, b.unspent, b.wait = errBoom, true, 0
		}
		a.mu.Unlock()
		if cause == nil {
			switch {
			case release:
				a.released(d.Job.ID, b, true) // before another worker can have it
				if cause = d.Release(context.Background()); cause != nil {
					a.released(d.Job.ID, b, false)
				}
			case b.answer == nil:
				cause = d.Ack(context.Background(), nil)
			default:
				cause = d.Fail(context.Background(), b.answer)
			}
		}
		if over.After(deadline) {
			over = deadline
		}
		a.end(d.Job.ID, b, cause, over)
	}
}

// play plays the program to its end, and looks whether every job has come to one.
func (a *adversary) play() {
	ctx, done := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for _, id := range []string{"w1", "w2"} {
		group.Go(func() { a.fetch(ctx, id) })
	}
	group.Go(func() { // Run after Run
		for ctx.Err() == nil {
			a.mu.Lock()
			works, rests := time.Duration(a.rnd.IntN(20_000))*time.Millisecond,
				time.Duration(a.rnd.IntN(3000))*time.Millisecond
			a.mu.Unlock()
			run, stop := context.WithTimeout(ctx, works)
			if err := a.eng.Run(run); err != nil && !errors.Is(err, engine.ErrStuck) {
				a.t.Error(err)
			}
			stop()
			a.mu.Lock()
			a.ends = append(a.ends, time.Now())
			a.mu.Unlock()
			pace.Virtual(rests)
		}
	})
	var ids []string
	for range 40 {
		ids = append(ids, a.enqueue())
		a.mu.Lock()
		pause, cancel := time.Duration(a.rnd.IntN(4000))*time.Millisecond, a.rnd.IntN(10) == 0
		victim := ids[a.rnd.IntN(len(ids))]
		a.mu.Unlock()
		pace.Virtual(pause)
		if cancel && a.eng.Cancel(context.Background(), victim) == nil {
			a.mu.Lock()
			a.jobs[victim].cancelled = true
			a.mu.Unlock()
		}
	}
	pace.Virtual(6 * time.Hour)
	done()
	group.Wait()
	pace.Virtual(time.Hour) // for handlers that go on
	for _, id := range ids {
		job, err := a.eng.Get(context.Background(), id)
		if err != nil || !job.State.Terminal() {
			a.t.Errorf("job %+v after 6 h: %v", job, err)
			continue
		}
		if i := slices.IndexFunc(job.Errors,
			func(f ojs.Failure) bool { return f.Attempt > job.MaxAttempts }); i >= 0 ||
			job.Attempt > job.MaxAttempts {
			a.t.Errorf("job %s: attempt %d of %d: %+v", id, job.Attempt, job.MaxAttempts, job.Errors)
		}
	}
}
