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
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage"
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
		if h := claims[i]; h.attempt == number && h.run == nil && !h.undone {
			a.hold = h
		}
	}
	if a.hold != nil && !remote {
		a.hold.start.optional = false
		a.hold.start.late = !a.hold.lost.IsZero() // the answer of its claim was slow
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
	if !remote && n.alive() {
		n.mu.Lock()
		runs, over := n.runs, n.stop == nil
		late := n.stopping && now.After(n.toldAt.Add(n.cfg.grace+time.Second))
		n.mu.Unlock()
		switch {
		case over || a.hold.ordinal != runs:
			n.w.broken(14, id, "attempt %d began in %s after the end of the Run that claimed it",
				number, n.name)
		case late && !n.w.prog.jumps:
			n.w.broken(14, id, "attempt %d began in %s after the grace period of the stop", number, n.name)
		}
	}
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

type attemptKey struct{}

// around is the middleware of every engine: it notes the beginning and the end of each
// attempt, and panics itself at times.
func (n *node) around(ctx context.Context, header *ojs.JobHeader, next handler.Next) error {
	handler.Logger(ctx).Debug("not kept")
	handler.Logger(ctx).Info("begins", "job", header.ID, "n", header.Attempt)
	a := n.begin(ctx, header.ID, header.Attempt, false)
	a.says = answerGoexit
	defer func() { a.ends(a.says, a.wait) }()
	if a.step.kind == "middleware panic" {
		a.says = answerPanic
		panic("a middleware's panic")
	}
	err := next(context.WithValue(ctx, attemptKey{}, a))
	if a.says == answerGoexit { // a batch has ended without the attempt, or for all of them
		if a.says = answerError; errors.Is(err, errExits) {
			a.says = answerGoexit
		}
	}
	if a.step.kind == "late middleware panic" {
		a.says = answerPanic
		panic("a middleware's panic")
	}
	return err
}

// within is the middleware of a handler for a range of versions.
func (n *node) within(versions string) handler.Middleware {
	takes := storage.Claim{Types: []string{versionedType + "@" + versions}}
	return func(ctx context.Context, header *ojs.JobHeader, next handler.Next) error {
		if v := header.TypeVersion; v != "" && !takes.Takes(versionedType, v) {
			n.w.broken(23, header.ID, "the handler for versions %s got one of version %q", versions, v)
		}
		return next(ctx)
	}
}

var errExits = errors.New("simulation: a batch calls Goexit")

// handleBatch is the handler of batches.
func (n *node) handleBatch(ctx context.Context, jobs []*ojs.Job[Args]) []error {
	w, errs := n.w, make([]error, len(jobs))
	if len(jobs) > n.cfg.batch {
		w.broken(15, jobs[0].ID, "a call of %s got a batch of %d jobs, and %d is the most",
			n.name, len(jobs), n.cfg.batch)
	}
	var list []*attempt
	for _, job := range jobs {
		a, _ := handler.JobContext(ctx, job).Value(attemptKey{}).(*attempt)
		if a == nil || a.id != job.ID {
			w.broken(5, job.ID, "a batch of %s got it without its attempt", n.name)
			return nil
		}
		list = append(list, a)
	}
	for _, a := range list {
		_ = w.sleep(ctx, a.step.d/8)
		if a.step.kind == "panic" {
			for _, a := range list {
				a.says = answerPanic
			}
			panic("a batch's panic")
		}
	}
	for i, a := range list {
		err := errors.New("a handler's error")
		switch a.step.kind {
		case "fail", "fail slowly", "goexit", "until told":
			a.says, errs[i] = answerError, err
		case "discard":
			a.says, errs[i] = answerDiscard, ojs.Discard(err)
		case "dead letter":
			a.says, errs[i] = answerDead, ojs.DeadLetter(err)
		case "snooze":
			a.says, a.wait, errs[i] = answerSnooze, a.step.then, ojs.Snooze(a.step.then)
		default:
			a.says = answerOK
			a.set(handler.JobContext(ctx, jobs[i]), jobs[i].Args.N)
		}
	}
	return errs
}

// set sets the result of the attempt.
func (a *attempt) set(ctx context.Context, v int) {
	if handler.SetResult(ctx, v) == nil {
		l := a.node.w.ledger
		l.mu.Lock()
		defer l.mu.Unlock()
		a.result = fmt.Append(nil, v)
	}
}

// handle is the handler of every type.
func (n *node) handle(ctx context.Context, job *ojs.Job[Args]) error {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	w, s := n.w, a.step
	returns := func(what string, err error) error {
		a.says = what
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
			a.set(ctx, job.Args.N)
		}
		return returns(answerOK, nil)
	case "late middleware panic":
		return returns(answerOK, nil)
	case "then":
		if job.Args.Depth > 0 {
			return returns(answerOK, nil)
		}
		for i := range 1 + int(s.d%2) {
			if handler.Then(ctx, follower(100_000_000+10*job.Args.N+i)) == nil {
				w.ledger.mu.Lock()
				a.then++
				w.ledger.mu.Unlock()
			}
		}
		if err2 := w.sleep(ctx, s.d/2); err2 != nil || s.d%3 == 0 {
			return returns(answerError, err)
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
		_, err2 := handler.LoadCheckpoint(ctx, &done)
		w.ledger.loaded(a, done, err2)
		for range 3 {
			handler.Progress(ctx, float64(done+1)/20)
			w.ledger.saves(a, done+1, false)
			if err := handler.SaveCheckpoint(ctx, done+1); err != nil {
				return returns(answerError, err)
			}
			done++
			w.ledger.saves(a, done, true)
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
		a.wait = s.then
		return returns(answerRetry, ojs.RetryAfter(s.then, err))
	case "discard":
		return returns(answerDiscard, ojs.Discard(err))
	case "permanent":
		return returns(answerPermanent, ojs.Permanent(err))
	case "dead letter":
		return returns(answerDead, ojs.DeadLetter(err))
	case "panic":
		_ = w.sleep(ctx, s.d)
		a.says = answerPanic
		panic("a handler's panic")
	case "goexit":
		_ = w.sleep(ctx, s.d)
		runtime.Goexit()
	case "snooze":
		a.wait = s.then
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
		a.wait = s.then
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
	worker := n.eng.Worker(id, fetch.Config{Types: []string{remoteType}})
	w.note(n.name, "", "remote worker %s comes, good: %v", id, good)
	w.busy.Go(func() {
		for jobs := 5 + r.IntN(20); good || jobs > 0; jobs-- {
			w.fetches(n, 1)
			ds, err := worker.FetchMany(w.ctx, 1+r.IntN(3))
			w.fetches(n, -1)
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
					kind = r.IntN(14)
				}
				w.deliver(n, worker, d, held[i], kind, r)
			}
		}
		worker.Close()
	})
}

// fetches counts the workers that wait for a job in a node.
func (w *world) fetches(n *node, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fetching[n] += by
}

// deliver does what a remote worker does with a delivery.
func (w *world) deliver(n *node, worker *fetch.Worker, d *fetch.Delivery, a *attempt, kind int,
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
	ack := func() {
		var then []ojs.Draft
		if a.step.d%3 == 0 {
			then = append(then, follower(200_000_000+w.number()))
		}
		w.ledger.mu.Lock()
		a.then, a.result = len(then), fmt.Append(nil, a.number)
		w.ledger.mu.Unlock()
		finish(answerOK, 0, func() error { return d.Ack(w.ctx, a.number, then...) })
	}
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
			lost := w.ledger.lost(a)
			if kind == 8 {
				err = d.Heartbeat(w.ctx)
			} else {
				var b fetch.Beat
				b, err = worker.Heartbeat(w.ctx, d.Token)
				lost = lost && slices.Contains(b.Held, a.id) && !w.ledger.holds(worker.ID(), a)
			}
			if lost && err == nil {
				w.broken(6, a.id, "a worker's heartbeat for attempt %d succeeded after it had lost the job",
					a.number)
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
	case 11: // a heartbeat after its lease
		if pause(d.Job.Lease + between(r, 0, 20*time.Second)) {
			lost := w.ledger.lost(a)
			err := d.Heartbeat(w.ctx)
			w.checkError(n, a.id, "a worker's late heartbeat", err, ojs.ErrLeaseLost, ojs.ErrTimeout)
			if lost && err == nil {
				w.broken(6, a.id, "a worker's heartbeat for attempt %d succeeded after it had lost the job",
					a.number)
			}
		}
	default: // it forgets the job
	}
}

// number is one that no other call has returned.
func (w *world) number() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.numbers++
	return w.numbers
}

// lost reports whether an attempt has lost its job.
func (l *ledger) lost(a *attempt) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return a.hold != nil && !a.hold.lost.IsZero()
}

// holds reports whether a worker holds the job of an attempt by a later claim.
func (l *ledger) holds(worker string, a *attempt) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.jobs[a.id]
	return j != nil && j.hold != nil && j.hold != a.hold && j.hold.worker == worker
}

// saves notes a checkpoint that an attempt saves, or has saved.
func (l *ledger) saves(a *attempt, v int, stored bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if j := l.jobs[a.id]; j != nil && a.hold != nil && a.hold.lost.IsZero() && j.hold == a.hold {
		j.tried = max(j.tried, v)
		if stored {
			j.saved = v
		}
	}
}

// loaded checks the checkpoint that an attempt has read.
func (l *ledger) loaded(a *attempt, v int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.jobs[a.id]
	if err == nil && (j == nil || j.hold != a.hold || a.node.w.prog.jumps) {
		return
	}
	if err != nil || v < j.saved || v > j.tried {
		l.broken(25, j, "attempt %d has read the checkpoint %d (%v), and %d was saved, %d at most",
			a.number, v, err, j.saved, j.tried)
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
