package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// attempt is a handler that has been called, or a delivery in the hands of a remote
// worker.
type attempt struct {
	node   *node
	id     string
	number int
	hold   *hold // nil: the ledger knows of no claim
	ctx    context.Context
	step   step
	remote bool
	began  time.Time
	limit  time.Duration

	// Guarded by ledger.mu.
	returned time.Time // zero: it has not
	answer   string    // what it returned: see the constants
	after    time.Duration
	cause    error           // why its context had ended by then
	says     string          // what it is about to return
	wait     time.Duration   // and to ask for
	result   json.RawMessage // that it has set, plain
	then     int             // jobs that it has asked to be stored with its completion
}

// The answers of an attempt.
const (
	answerOK        = "ok"
	answerError     = "an error"
	answerFatal     = "a non-retryable error"
	answerRetry     = "RetryAfter"
	answerDiscard   = "Discard"
	answerDead      = "DeadLetter"
	answerPermanent = "Permanent"
	answerSnooze    = "Snooze"
	answerPanic     = "a panic"
	answerGoexit    = "Goexit"
	answerRelease   = "a release"
)

// extras checks what comes with a change: the result, the log, and the jobs that are
// stored with it.
func (l *ledger) extras(j *job, c *storage.Change) {
	to, codecs := &c.Record, l.w.prog.codec
	var a *attempt
	if h := j.hold; h != nil && j.reaper == nil && j.rec.State == ojs.StateActive {
		a = h.run
	}
	completes := to.State == ojs.StateCompleted && a != nil
	want := 0
	if completes {
		want = a.then
	}
	if len(c.Then) != want {
		l.broken(25, j, "%d jobs are stored with it as %s, want %d", len(c.Then), to.State, want)
	}
	if completes {
		raw := to.Result
		if codecs && raw != nil && !codec.IsEncodedValue(raw) {
			l.broken(22, j, "its result is stored as it is: %s", raw)
		} else if codecs && raw != nil {
			raw, _ = masks.DecodeValue(context.Background(), raw, "")
		}
		if string(raw) != string(a.result) {
			l.broken(25, j, "its result is %s, and its attempt has set %s", raw, a.result)
		}
	}
	l.logged(j, a, c)
}

// logged checks the log that comes with a change. An attempt logs one line.
func (l *ledger) logged(j *job, a *attempt, c *storage.Change) {
	if c.Log == nil {
		if l.w.prog.logs && a != nil && !a.remote && c.Record.State != ojs.StateCancelled {
			l.broken(25, j, "the log of attempt %d is not stored", a.number)
		}
		return
	}
	var log struct {
		Attempt int
		Lines   json.RawMessage
	}
	var lines []struct {
		Msg, Job string
		N        int
	}
	err := json.Unmarshal(c.Log, &log)
	if raw := log.Lines; err == nil {
		if l.w.prog.codec {
			if !codec.IsEncodedValue(raw) {
				l.broken(22, j, "its log is stored as it is: %s", raw)
			}
			raw, err = masks.DecodeValue(context.Background(), raw, "")
		}
		if err == nil {
			err = json.Unmarshal(raw, &lines)
		}
	}
	switch {
	case err != nil || len(lines) != 1:
		l.broken(25, j, "its log is %s, %v; want one line", c.Log, err)
	case j.rec.State != ojs.StateActive || j.reaper != nil:
		l.broken(25, j, "a log is stored without an attempt: %s", c.Log)
	case log.Attempt != j.rec.Attempt || lines[0].N != j.rec.Attempt || lines[0].Job != j.rec.ID:
		l.broken(25, j, "the log of attempt %d is that of attempt %d of %s",
			j.rec.Attempt, lines[0].N, lines[0].Job)
	}
}

// mask is a codec that any reader can undo.
type mask struct{}

// masks is the chain of an engine with the codec.
var masks = func() *codec.Chain {
	c, err := codec.NewChain(mask{})
	if err != nil {
		panic(err)
	}
	return c
}()

// Encoding implements codec.Codec.
func (mask) Encoding() string { return "binary/mask" }

// Encode implements codec.Codec.
func (mask) Encode(_ context.Context, data []byte) ([]byte, string, error) {
	masked := slices.Clone(data)
	for i := range masked {
		masked[i] ^= 0x55
	}
	return masked, "", nil
}

// Decode implements codec.Codec.
func (m mask) Decode(ctx context.Context, data []byte, _ string) ([]byte, error) {
	plain, _, err := m.Encode(ctx, data)
	return plain, err
}

// historyLimit is how many failures the history of a job keeps.
const historyLimit = 10

// outcome checks that what an active job becomes follows from its attempt. j is the job
// before, to what it becomes.
func (l *ledger) outcome(n *node, told bool, j *job, to *storage.Record, now time.Time) {
	spent := to.Attempt == j.rec.Attempt
	before, after := j.rec.Errors, to.Errors
	failed := len(after) > len(before) ||
		len(after) == historyLimit && !after[historyLimit-1].At.Equal(before[historyLimit-1].At)
	what := ""
	if len(after) > len(before)+1 {
		l.broken(19, j, "attempt %d has added %d failures to the history",
			j.rec.Attempt, len(after)-len(before))
	}
	if failed {
		what = to.Error.Type
	}
	n.expectOutcome(to, !told, spent, what)
	if !spent && to.Attempt != j.rec.Attempt-1 {
		l.broken(19, j, "attempt %d became attempt %d", j.rec.Attempt, to.Attempt)
	}
	if to.State == ojs.StateRetryable && spent && to.Attempt >= to.Retry.Runs() {
		l.broken(2, j, "it is retried after attempt %d of %d", to.Attempt, to.Retry.Runs())
	}
	if to.State == ojs.StateRetryable && !l.w.prog.jumps &&
		to.NextRetryAt.Before(now.Add(-2*time.Minute)) {
		l.broken(19, j, "its next attempt is at %s", l.at(to.NextRetryAt))
	}
	if spent && to.State != ojs.StateCompleted && !failed {
		l.broken(19, j, "an attempt was spent, and the history has no failure of it")
	}
	if !spent && failed {
		l.broken(19, j, "an attempt was given back, and the history has a failure of it: %v", to.Error)
	}

	if j.asked == n && !spent && (j.hold == nil || j.hold.run == nil) {
		return // the engine has looked for claims whose answer was lost
	}
	if j.reaper != nil {
		if j.reaper != n {
			l.broken(6, j, "%s settled it, and %s had been handed its lost lease", n.name, j.reaper.name)
		}
		if !spent || what != policy.ErrorTypeLeaseExpired {
			l.broken(19, j, "its lease was lost, and it became %s with %q, spent %v", to.State, what, spent)
		}
		return
	}
	h := j.hold
	if h == nil {
		l.broken(5, j, "%s settled it, and it has no holder", n.name)
		return
	}
	a := h.run
	stopping := h.node.stopped() || h.ordinal != h.node.ordinal()
	byClock := spent && (what == policy.ErrorTypeTimeout || what == policy.ErrorTypeTotalTimeout)
	dies := spent && what == policy.ErrorTypeWorkerDeath // the answer of a worker may not have arrived
	switch {
	case a == nil || a.returned.IsZero(), a.remote && dies,
		// the engine may have settled it before it returned
		byClock && (a.remote || !a.returned.Before(h.began().Add(a.limit+n.cfg.grace))):
		l.unreturned(n, j, h, to, spent, what, stopping, now)
		return
	case h.node != n:
		l.broken(6, j, "%s settled an attempt of %s", n.name, h.node.name)
	}
	if to.State == ojs.StateCompleted && a.answer != answerOK {
		l.broken(19, j, "it completed, and its handler returned %s", a.answer)
		return
	}
	surely, timedOut := a.timedOut(to, now)
	interrupted := errors.Is(a.cause, ojs.ErrShutdown)
	fails := func(types ...string) {
		switch {
		case interrupted && !spent:
		case !spent:
			l.broken(19, j, "its handler returned %s (cause %v) and the attempt was given back",
				a.answer, a.cause)
		case timedOut && (what == policy.ErrorTypeTimeout || what == policy.ErrorTypeTotalTimeout):
		case slices.Contains(types, what):
		default:
			l.broken(19, j, "its handler returned %s (cause %v) and the history says %q",
				a.answer, a.cause, what)
		}
	}
	ends := func(why string, dead bool) {
		if to.State != ojs.StateDiscarded || to.DeadLettered() != dead {
			l.broken(19, j, "its handler returned %s, and it is %s, a dead letter: %v; want a dead letter: %v", why, to.State, to.DeadLettered(), dead)
		}
	}
	exhausts := func() {
		late := to.TotalTimeout > 0
		if to.State == ojs.StateDiscarded && to.Attempt < to.Retry.Runs() && !late {
			l.broken(19, j, "it was discarded after attempt %d of %d, and its handler returned %s",
				to.Attempt, to.Retry.Runs(), a.answer)
		}
		if to.State == ojs.StateDiscarded &&
			to.DeadLettered() != (to.Retry.OnExhaustion == ojs.ExhaustionDeadLetter) {
			l.broken(19, j, "it is exhausted, and a dead letter: %v", to.DeadLettered())
		}
	}
	switch a.answer {
	case answerOK:
		if to.State != ojs.StateCompleted && !(timedOut && byClock) { // at the moment of its timeout
			l.broken(19, j, "its handler returned nil, and it is %s", to.State)
		}
	case answerSnooze:
		switch {
		case surely && !spent:
			l.broken(19, j, "it exceeded its timeout before it snoozed, and the attempt was given back")
		case spent && timedOut:
		case spent:
			l.broken(19, j, "it snoozed, and its attempt is spent")
		case !l.w.prog.jumps && !interrupted && to.NextRetryAt.Before(a.returned.Add(a.after)):
			l.broken(3, j, "it snoozed for %v, and is due %v too early",
				a.after, a.returned.Add(a.after).Sub(to.NextRetryAt))
		}
	case answerRelease:
		if spent && !timedOut {
			l.broken(19, j, "it was released, and its attempt is spent")
		}
	case answerDiscard, answerPermanent:
		fails(policy.ErrorTypeError)
		ends(a.answer, false)
	case answerDead:
		fails(policy.ErrorTypeError)
		ends(a.answer, true)
	case answerFatal:
		fails("fatal.test")
		if !interrupted && !timedOut {
			ends(a.answer, to.Retry.OnExhaustion == ojs.ExhaustionDeadLetter)
		}
	case answerPanic:
		fails(policy.ErrorTypePanic)
		exhausts()
	case answerGoexit:
		fails(policy.ErrorTypeGoexit)
		exhausts()
	default:
		fails(policy.ErrorTypeError)
		exhausts()
		if failed && !timedOut && !interrupted && to.State == ojs.StateRetryable {
			l.backoff(j, a, to)
		}
	}
}

// began is when the time of an attempt begins: that of a handler with its call, that of a
// remote worker's attempt with its claim at the earliest.
func (h *hold) began() time.Time {
	if a := h.run; a != nil && !a.remote && a.began.After(h.now) {
		return a.began
	}
	return h.now
}

// timedOut reports whether an attempt that has returned has surely reached its timeout or
// its job's total timeout, and whether it may have. A handler's time is exact. A remote
// worker's attempt begins between its claim and the return of its fetch. It ends between
// its answer and the call that stores the answer.
func (a *attempt) timedOut(to *storage.Record, now time.Time) (surely, maybe bool) {
	if a.remote {
		return exceeds(to, a.began, a.returned), exceeds(to, a.hold.began(), now)
	}
	exact := errors.Is(a.cause, ojs.ErrTimeout) || exceeds(to, a.hold.began(), a.returned)
	return exact, exact
}

// exceeds reports whether an attempt that begins and ends at the given times reaches its
// timeout or its job's total timeout.
func exceeds(r *storage.Record, began, ended time.Time) bool {
	return ended.Sub(began) >= r.Timeout ||
		r.TotalTimeout > 0 && ended.Sub(r.CreatedAt) >= r.TotalTimeout
}

// backoff checks how long a failed job waits.
func (l *ledger) backoff(j *job, a *attempt, to *storage.Record) {
	p := to.Retry
	wait := to.NextRetryAt.Sub(to.Error.At)
	if a.answer == answerRetry {
		if want := min(a.after, p.MaxInterval); wait != want {
			l.broken(3, j, "it waits for %v, and asked for %v", wait, want)
		}
		return
	}
	want := float64(p.InitialInterval)
	for range to.Attempt - 1 {
		want *= p.BackoffCoefficient
	}
	low := min(time.Duration(want), p.MaxInterval)
	high := low
	if p.Jitter == ojs.JitterOn {
		low, high = low/2, min(high+high/2, p.MaxInterval)
	}
	if wait < low-time.Microsecond || wait > high+time.Microsecond {
		l.broken(3, j, "it waits for %v after attempt %d, want from %v to %v", wait, to.Attempt, low, high)
	}
}

// unreturned checks a settle while the handler goes on, or before it is called: by the
// clock, or by a stop.
func (l *ledger) unreturned(n *node, j *job, h *hold, to *storage.Record, spent bool, what string,
	stopping bool, now time.Time) {
	expired := to.State == ojs.StateDiscarded && !j.rec.Deadline().IsZero() && !now.Before(j.rec.Deadline())
	overran := exceeds(to, h.began(), now)
	remote := h.run != nil && h.run.remote || h.worker != "" && h.node != n
	switch {
	case expired, remote && spent && overran, remote && spent && now.Sub(h.now) >= 30*time.Second:
	case remote && spent && what == policy.ErrorTypeWorkerDeath && l.w.prog.jumps: // heard after a jump
	case !spent && stopping:
	case !spent && h.run == nil && !j.rec.Deadline().IsZero() && !now.Before(j.rec.Deadline()):
	case spent && overran && (what == policy.ErrorTypeTimeout || what == policy.ErrorTypeTotalTimeout):
	default:
		begun := "has not begun"
		if h.run != nil {
			begun = "goes on"
		}
		l.broken(19, j, "%s made it %s (%q, spent %v) while its handler %s",
			n.name, to.State, what, spent, begun)
	}
}
