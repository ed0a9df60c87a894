package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
)

func isRemote(worker string) bool { return strings.HasPrefix(worker, "remote-") }

// begin notes that an attempt of a job begins.
func (n *node) begin(ctx context.Context, id string, number int, remote bool) *attempt {
	now := n.w.now()
	a := &attempt{node: n, id: id, number: number, ctx: ctx, remote: remote, began: now,
		limit: ojs.DefaultTimeout}
	l := n.w.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	n.mu.Lock()
	claims := n.claims[id]
	n.mu.Unlock()
	for i := len(claims) - 1; i >= 0 && a.hold == nil; i-- {
		if h := claims[i]; h.attempt == number && h.run == nil {
			a.hold = h
		}
	}
	if a.hold != nil && !remote {
		a.hold.start.optional = false
	}
	n.w.mu.Lock()
	n.w.attempts = append(n.w.attempts, a)
	n.w.mu.Unlock()
	j := l.jobs[id]
	if j == nil {
		n.w.broken(5, id, "%s began attempt %d of a job that was never stored", n.name, number)
		return a
	}
	a.step = script(n.w.seed, j.n, j.begun)
	a.limit = j.rec.Timeout
	j.begun++
	n.w.note(n.name, id, "attempt %d begins: %s (%v, %v)", number, a.step.kind, a.step.d, a.step.then)
	if a.hold == nil {
		if n.alive() {
			n.w.broken(5, id, "%s began attempt %d, and has no claim of it that has not begun",
				n.name, number)
		}
		return a
	}
	a.hold.run = a
	if e := j.rec.Deadline(); !e.IsZero() && !now.Before(e) && n.alive() && a.hold.lost.IsZero() {
		n.w.broken(17, id, "attempt %d began %v after its deadline", number, now.Sub(e))
	}
	return a
}

// ends notes what an attempt answers.
func (a *attempt) ends(answer string, after time.Duration) {
	l := a.node.w.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	a.returned, a.answer, a.after = a.node.w.now(), answer, after
	switch a.cause = context.Cause(a.ctx); a.cause {
	case ojs.ErrCancelled, ojs.ErrReplaced, ojs.ErrLeaseLost:
		if a.node.alive() {
			a.node.w.checkCause(a, a.cause)
		}
	}
	a.node.w.note(a.node.name, a.id, "attempt %d returns %s, cause %v", a.number, answer, a.cause)
	a.node.w.mu.Lock()
	defer a.node.w.mu.Unlock()
	a.node.w.attempts = slices.DeleteFunc(a.node.w.attempts, func(o *attempt) bool { return o == a })
}

// soon is the longest timeout that a handler waits for.
const soon = time.Minute

// handle is the handler of every type.
func (n *node) handle(ctx context.Context, job *ojs.Job[Args]) error {
	a := n.begin(ctx, job.ID, job.Attempt, false)
	w, s := n.w, a.step
	answer, after := answerGoexit, time.Duration(0)
	defer func() { a.ends(answer, after) }()
	returns := func(what string, err error) error {
		answer = what
		return err
	}
	err := errors.New("a handler's error")
	kind := s.kind
	if a.limit > soon && (kind == "until told" || kind == "late success" || kind == "late failure" ||
		kind == "late snooze" || kind == "hang") {
		kind = "work"
	}
	overtime := a.limit + n.cfg.grace/2 + s.d%time.Second
	switch kind {
	case "succeed":
		if s.d%2 == 0 {
			_ = handler.SetResult(ctx, job.Args.N)
		}
		return returns(answerOK, nil)
	case "work":
		var slept error
		if s.d%2 == 0 {
			slept = handler.Sleep(ctx, s.d)
		} else {
			slept = w.sleep(ctx, s.d)
		}
		if slept != nil {
			return returns(answerError, slept)
		}
		return returns(answerOK, nil)
	case "checkpoint":
		var done int
		_, _ = handler.LoadCheckpoint(ctx, &done)
		for range 3 {
			handler.Progress(ctx, float64(done+1)/20)
			if err := handler.SaveCheckpoint(ctx, done+1); err != nil {
				return returns(answerError, err)
			}
			done++
			if err := w.sleep(ctx, s.d/4); err != nil {
				return returns(answerError, err)
			}
		}
		_ = handler.Heartbeat(ctx)
		if done < 6 {
			return returns(answerError, err)
		}
		return returns(answerOK, nil)
	case "enqueue":
		if job.Args.Depth == 0 {
			for i := range 1 + int(s.d%3) {
				number := 1_000_000*(i+1) + 10*job.Args.N
				d := draft(stream(w.seed, "child", number), number, w.now())
				opts := append(slices.Clone(d.Options()), ojs.WithQueue("a"))
				_, err := n.eng.EnqueueMany(ctx, ojs.NewDraft(d.Type(), Args{N: number, Depth: 1}, opts...))
				w.checkError(n, "none", "a handler's enqueue", err)
			}
		}
		return returns(answerOK, nil)
	case "fail":
		return returns(answerError, err)
	case "fail slowly":
		_ = w.sleep(ctx, s.d)
		return returns(answerError, err)
	case "fatal":
		return returns(answerFatal, ojs.Errorf("fatal.test", "a handler's error"))
	case "retry after":
		after = s.then
		return returns(answerRetry, ojs.RetryAfter(s.then, err))
	case "discard":
		return returns(answerDiscard, ojs.Discard(err))
	case "permanent":
		return returns(answerPermanent, ojs.Permanent(err))
	case "dead letter":
		return returns(answerDead, ojs.DeadLetter(err))
	case "panic":
		_ = w.sleep(ctx, s.d)
		answer = answerPanic
		panic("a handler's panic")
	case "goexit":
		_ = w.sleep(ctx, s.d)
		runtime.Goexit()
	case "snooze":
		after = s.then
		return returns(answerSnooze, ojs.Snooze(s.then))
	case "until told":
		select {
		case <-ctx.Done():
		case <-n.dead:
		case <-w.over:
		}
		return returns(answerError, ctx.Err())
	case "late success":
		w.sleepThrough(overtime, n.dead)
		return returns(answerOK, nil)
	case "late failure":
		w.sleepThrough(overtime, n.dead)
		return returns(answerError, err)
	case "late snooze":
		w.sleepThrough(overtime, n.dead)
		after = s.then
		return returns(answerSnooze, ojs.Snooze(s.then))
	case "hang":
		w.sleepThrough(a.limit+n.cfg.grace+3*time.Second+s.d, n.dead)
		return returns(answerOK, nil)
	}
	panic("simulation: no such step: " + kind)
}

// employ starts a remote worker on a node. A good one completes what it gets.
func (w *world) employ(n *node, good bool) {
	w.remote++
	id := fmt.Sprint("remote-", w.remote)
	r := stream(w.seed, "remote", w.remote)
	worker := n.eng.Worker(id, engine.WorkerConfig{Types: []string{remoteType}})
	w.note(n.name, "", "remote worker %s comes, good: %v", id, good)
	w.busy.Go(func() {
		for jobs := 5 + r.IntN(20); good || jobs > 0; jobs-- {
			ds, err := worker.FetchMany(w.ctx, 1+r.IntN(3))
			switch {
			case errors.Is(err, errFault):
				if w.sleep(w.ctx, time.Second) != nil {
					return
				}
				continue
			case err != nil:
				return
			}
			var held []*attempt
			for _, d := range ds {
				held = append(held, n.begin(w.ctx, d.Job.ID, d.Job.Attempt, true))
			}
			for i, d := range ds {
				kind := 0
				if !good {
					kind = r.IntN(12)
				}
				w.deliver(n, worker, d, held[i], kind, r)
			}
		}
		worker.Close()
	})
}

// deliver does what a remote worker does with a delivery.
func (w *world) deliver(n *node, worker *engine.Worker, d *engine.Delivery, a *attempt, kind int,
	r *rand.Rand) {
	err := errors.New("a worker's error")
	pause := func(d time.Duration) bool { return w.sleep(w.ctx, d) == nil }
	finish := func(answer string, after time.Duration, end func() error) {
		a.ends(answer, after)
		for range 5 {
			err := end()
			w.checkError(n, a.id, "a worker's "+answer, err, ojs.ErrLeaseLost, ojs.ErrTimeout)
			if !errors.Is(err, errFault) || !pause(200*time.Millisecond) {
				return
			}
		}
	}
	ack := func() { finish(answerOK, 0, func() error { return d.Ack(w.ctx, a.number) }) }
	switch kind {
	case 0, 1, 2, 3:
		if pause(between(r, 0, 500*time.Millisecond)) {
			ack()
		}
	case 4, 5:
		finish(answerError, 0, func() error { return d.Fail(w.ctx, err) })
	case 6:
		finish(answerRelease, 0, func() error { return d.Release(w.ctx) })
	case 7:
		finish(answerSnooze, time.Second, func() error { return d.Fail(w.ctx, ojs.Snooze(time.Second)) })
	case 8, 9: // a long job
		for range 3 {
			if !pause(d.Job.Lease / 2) {
				return
			}
			var err error
			if kind == 8 {
				err = d.Heartbeat(w.ctx)
			} else {
				_, err = worker.Heartbeat(w.ctx, d.Token)
			}
			w.checkError(n, a.id, "a worker's heartbeat", err, ojs.ErrLeaseLost, ojs.ErrTimeout)
			if err != nil {
				break
			}
		}
		ack()
	case 10: // too late
		if pause(d.Job.Lease + between(r, 0, time.Second)) {
			ack()
		}
	default: // it forgets the job
	}
}

// checkError checks that an error is one that a call may return.
func (w *world) checkError(n *node, id, what string, err error, more ...error) {
	if err == nil {
		return
	}
	w.note(n.name, id, "%s: %v", what, err)
	for _, allowed := range append(more, errFault, errDead, errOver, context.Canceled, ojs.ErrDuplicate,
		ojs.ErrQueueFull, ojs.ErrQueueDraining, ojs.ErrTransition, ojs.ErrNotFound, ojs.ErrPruned,
		ojs.ErrInvalid, ojs.ErrCancelled, ojs.ErrTimeout, ojs.ErrShutdown, ojs.ErrLeaseLost,
		ojs.ErrReplaced,
		context.DeadlineExceeded) {
		if errors.Is(err, allowed) {
			return
		}
	}
	w.broken(21, id, "%s: %s failed with %v", n.name, what, err)
}
