package simulation

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/telemetry"
)

// next is right after the storage has something to do next, zero if it never has.
func (l *ledger) next(now time.Time) (next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range l.order {
		if at := j.rec.WakeAt(); !j.gone && !at.Before(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() {
		return next
	}
	return next.Add(1)
}

// anyJob chooses a job, one of the later rather than one of the first.
func (l *ledger) anyJob(r *rand.Rand) string {
	a, b := r.Float64(), r.Float64()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.order) == 0 {
		return "none"
	}
	return l.order[int(max(a, b)*float64(len(l.order)))].rec.ID
}

// anyActive chooses an active job, any job if none is.
func (l *ledger) anyActive(r *rand.Rand) string {
	id := l.anyJob(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	var active []string
	for _, j := range l.order {
		if !j.gone && j.rec.State == ojs.StateActive {
			active = append(active, j.rec.ID)
		}
	}
	if len(active) == 0 {
		return id
	}
	return active[r.IntN(len(active))]
}

// rivalHolder returns the engine that has an active rival, or n if none has.
func (l *ledger) rivalHolder(n *node) *node {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range l.order {
		rival := !j.gone && j.rec.Unique != nil && j.rec.Unique.Key == "rival"
		if rival && j.hold != nil && j.hold.node.alive() {
			return j.hold.node
		}
	}
	return n
}

// left are the jobs that have not ended, and of these the ids of the pending ones.
func (l *ledger) left() (pending []string, left []*job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range l.order {
		if j.gone || j.rec.State.Terminal() {
			continue
		}
		left = append(left, j)
		if j.rec.State == ojs.StatePending && j.rec.Dependencies == nil {
			pending = append(pending, j.rec.ID)
		}
	}
	return pending, left
}

func (l *ledger) wantCancelled(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if j := l.jobs[id]; j != nil && !j.gone && j.rec.State != ojs.StateCancelled {
		l.broken(21, j, "Cancel returned nil, and it is %s", j.rec.State)
	}
}

// wantNone checks that an enqueue that was refused has stored nothing.
func (l *ledger) wantNone(number, count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := number; n < number+count; n++ {
		for _, j := range l.byN[n] {
			l.broken(21, j, "its enqueue was refused, and it is stored")
		}
	}
}

func (l *ledger) wantStored(t ojs.Ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.jobs[t.ID] == nil {
		l.w.broken(1, t.ID, "its ticket was given, and it is not stored")
	}
}

// answered checks what a wait has returned.
func (l *ledger) answered(t ojs.Ticket, job *ojs.JobInfo, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.jobs[t.ID]
	var ended *ojs.EndedError
	switch {
	case j == nil:
	case err == nil && job.State != ojs.StateCompleted:
		l.broken(13, j, "a wait returned nil, and the job is %s", job.State)
	case errors.As(err, &ended) && !ended.State.Terminal():
		l.broken(13, j, "a wait returned %v", err)
	case (err == nil || ended != nil) && j.ended.IsZero():
		l.broken(13, j, "a wait returned %v, and the job has never ended", err)
	}
}

// free is how many slots a node has for another attempt.
func (n *node) free() int {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	free := n.cfg.concurrency
	for _, a := range n.w.attempts {
		if a.node == n && !a.remote {
			free--
		}
	}
	return free
}

// takes is what the handlers of a node take.
func (n *node) takes(r *storage.Record) bool {
	if !slices.Contains(n.cfg.types, r.Type) {
		return false
	}
	if r.Type != versionedType || n.cfg.versions == nil || r.TypeVersion == "" {
		return true
	}
	var c storage.Claim
	for _, within := range n.cfg.versions {
		c.Types = append(c.Types, versionedType+"@"+within)
	}
	return c.Takes(r.Type, r.TypeVersion)
}

// serves reports whether nothing but slots keeps a node from a job. ledger.mu is held.
func (n *node) serves(r *storage.Record) bool {
	if !n.takes(r) || n.w.ledger.held(n, r) {
		return false
	}
	l := n.w.ledger
	if most := n.cfg.typeLimit[r.Type]; most > 0 {
		if n.cfg.versions != nil && r.Type == versionedType || // a limit for each handler
			l.running(n, func(o *storage.Record) bool { return o.Type == r.Type }) >= most {
			return false
		}
	}
	if n.cfg.queues == nil {
		return true
	}
	qc, ok := n.cfg.queues[r.Queue]
	return ok && !qc.RateLimit.Bounds() && (qc.Concurrency == 0 ||
		l.running(n, func(o *storage.Record) bool { return o.Queue == r.Queue }) < qc.Concurrency)
}

// held reports whether the limit of its key may keep a node from a job.
func (l *ledger) held(n *node, r *storage.Record) bool {
	rl := r.RateLimit
	switch {
	case rl == nil:
		return false
	case rl.Rate.Limit > 0 || rl.Throttle.Limit > 0 || rl.OnLimit != "":
		return true
	}
	return l.active(rl.Key) >= rl.Concurrency
}

// running counts the jobs that a node holds, and those whose handlers go on, of some.
func (l *ledger) running(n *node, of func(r *storage.Record) bool) (count int) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	for _, a := range n.w.attempts {
		if j := l.jobs[a.id]; a.node == n && j != nil && of(&j.rec) {
			count++
		}
	}
	for _, j := range l.order {
		if h := j.hold; h != nil && h.node == n && (h.run == nil || !h.run.returned.IsZero()) && of(&j.rec) {
			count++
		}
	}
	return count
}

// check looks at everything while nothing moves. Everything that is due before now must
// have happened.
func (w *world) check() {
	now := w.now()
	exact := w.undisturbed()
	l := w.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	var running []*node
	free := make(map[*node]int)
	for _, n := range w.nodes {
		if n.running() && n.since().Before(now) {
			running = append(running, n)
			free[n] = n.free()
		}
	}
	if exact && len(running) > 0 {
		w.checkTimes(now, running, free)
	}
	if exact {
		w.checkTold(now)
	}
	if w.looks++; w.looks%8 == 0 {
		w.checkCounts()
	}
}

// checkTimes checks that everything due has happened, and every job that can run runs.
func (w *world) checkTimes(now time.Time, running []*node, free map[*node]int) {
	l := w.ledger
	for _, j := range l.order {
		if j.gone || j.rec.State.Terminal() {
			continue
		}
		if at := j.rec.WakeAt(); !at.IsZero() && at.Before(now) {
			l.broken(4, j, "it is %s, and something was due at %s, %v ago",
				j.rec.State, l.at(at), now.Sub(at))
		}
		l.checkTurn(j, now)
		if j.rec.State == ojs.StateAvailable && j.since.Before(now) && j.rec.Type == remoteType &&
			l.queues[j.rec.Queue] != ojs.QueuePaused {
			w.checkFetches(j, now)
		}
		if j.rec.State != ojs.StateAvailable || !j.since.Before(now) ||
			l.queues[j.rec.Queue] == ojs.QueuePaused {
			continue
		}
		for _, n := range running {
			if free[n] > 0 && n.serves(&j.rec) && !(w.prog.ahead && now.Sub(j.since) < moment) {
				l.broken(4, j, "it has been available for %v, and %s has %d free slots",
					now.Sub(j.since), n.name, free[n])
			}
		}
	}
}

// moment is how long a job may be available before an engine that claims ahead has it.
const moment = 50 * time.Millisecond

// checkTurn checks that a job waits for its turn only while another one of its ordering
// key has it. ledger.mu is held.
func (l *ledger) checkTurn(j *job, now time.Time) {
	d := j.rec.Dependencies
	if j.rec.State != ojs.StatePending || d == nil || !d.InLine {
		return
	}
	for _, o := range l.order {
		e := o.rec.Dependencies
		if o != j && !o.gone && !o.rec.State.Terminal() && e != nil && e.OrderingKey == d.OrderingKey &&
			(o.rec.State != ojs.StatePending || o.number < j.number) {
			return
		}
	}
	l.broken(4, j, "it waits for its turn, and no other job of ordering key %s has it", d.OrderingKey)
}

// checkFetches checks that no remote worker waits for a job that is available. ledger.mu
// is held.
func (w *world) checkFetches(j *job, now time.Time) {
	w.mu.Lock()
	fetching := maps.Clone(w.fetching)
	w.mu.Unlock()
	for n, waiting := range fetching {
		qc, ok := n.cfg.queues[j.rec.Queue]
		if waiting == 0 || !n.running() || !n.since().Before(now) || w.ledger.held(n, &j.rec) ||
			n.cfg.queues != nil && (!ok || qc.RateLimit.Bounds() || qc.Concurrency > 0 && w.ledger.running(n,
				func(o *storage.Record) bool { return o.Queue == j.rec.Queue }) >= qc.Concurrency) {
			continue
		}
		w.ledger.broken(4, j, "it has been available for %v, and %d workers of %s wait for a job",
			now.Sub(j.since), waiting, n.name)
	}
}

// checkTold checks that handlers that have lost their jobs, or whose time is over, know,
// and that waits are answered.
func (w *world) checkTold(now time.Time) {
	w.mu.Lock()
	attempts, waits := slices.Clone(w.attempts), slices.Clone(w.waits)
	w.mu.Unlock()
	l := w.ledger
	for _, a := range attempts {
		if a.remote || !a.node.alive() {
			continue
		}
		switch cause := context.Cause(a.ctx); cause {
		case nil:
		case ojs.ErrCancelled, ojs.ErrReplaced, ojs.ErrLeaseLost:
			w.checkCause(a, cause)
			continue
		default:
			continue
		}
		if h := a.hold; h != nil && !h.lost.IsZero() && h.lost.Add(a.unheard()).Before(now) {
			w.broken(11, a.id, "attempt %d in %s goes on with a live context, %v after the job was taken from it (%v)", a.number, a.node.name, now.Sub(h.lost), h.cause)
		}
		if end := a.began.Add(a.limit); end.Before(now) {
			w.broken(4, a.id, "attempt %d in %s has a live context %v after its timeout",
				a.number, a.node.name, now.Sub(end))
		}
	}
	for _, wt := range waits {
		if !wt.node.alive() {
			continue
		}
		if j := l.jobs[wt.id]; j != nil && !j.ended.IsZero() && j.ended.Before(now) &&
			j.rec.State.Terminal() {
			l.broken(13, j, "it ended %v ago, and a wait in %s has no answer", now.Sub(j.ended), wt.node.name)
		}
	}
}

// unheard is how long an attempt may not know that it has lost its job: until the next
// renewal of its lease, if the notice may be lost.
func (a *attempt) unheard() time.Duration {
	if !a.node.cfg.lossy {
		return 0
	}
	return a.hold.job.rec.Lease / 3
}

// checkCause checks that an attempt that was told of a loss has lost its job. ledger.mu
// is held.
func (w *world) checkCause(a *attempt, cause error) {
	if h := a.hold; h != nil && h.lost.IsZero() {
		w.broken(11, a.id, "attempt %d in %s was told: %v, and the job is its own",
			a.number, a.node.name, cause)
	}
}

// checkCounts checks that the storage counts and lists what there is.
func (w *world) checkCounts() {
	l := w.ledger
	type key struct {
		queue, jobType string
		state          ojs.State
	}
	want := make(map[key]int)
	jobs := 0
	for _, j := range l.order {
		if !j.gone {
			want[key{j.rec.Queue, j.rec.Type, j.rec.State}]++
			jobs++
		}
	}
	counts, err := l.inner.Counts(context.Background())
	if err != nil {
		w.broken(12, "", "%v", err)
	}
	for _, c := range counts {
		if k := (key{c.Queue, c.Type, c.State}); want[k] != c.N {
			w.broken(12, "", "queue %s has %d jobs that are %s, and %d are counted",
				c.Queue, want[k], c.State, c.N)
		} else {
			delete(want, k)
		}
	}
	for k, n := range want {
		w.broken(12, "", "queue %s has %d jobs that are %s, and none is counted", k.queue, n, k.state)
	}
	listed := 0
	for q := (storage.Query{}); ; {
		page, err := l.inner.List(context.Background(), q)
		if err != nil {
			w.broken(12, "", "%v", err)
		}
		for i := range page.Records {
			r := &page.Records[i]
			if j := l.alive(r.ID); j == nil || j.rec.Version != r.Version || j.rec.State != r.State {
				w.broken(12, r.ID, "it is listed as %s, version %d, which it is not", r.State, r.Version)
			}
			listed++
		}
		if q.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	if listed != jobs {
		w.broken(12, "", "%d jobs are stored, and %d are listed", jobs, listed)
	}
	for _, j := range l.order {
		if !j.gone {
			l.checkLogs(j)
		}
	}
}

// checkLogs checks that the logs of a job are those that came with its outcomes.
func (l *ledger) checkLogs(j *job) {
	logs, err := l.inner.Logs(context.Background(), j.rec.ID)
	if err != nil {
		l.broken(25, j, "%v", err)
	}
	var got []uint64
	for i := range logs {
		got = append(got, logs[i].Version)
	}
	if want := j.logs[max(len(j.logs)-storage.MaxLogs, 0):]; !slices.Equal(got, want) {
		l.broken(25, j, "the logs of the outcomes %v are stored, want %v", got, want)
	}
}

// since is when Run was called.
func (n *node) since() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.started
}

// checkMeters checks that the counters of each engine are those of its events.
func (w *world) checkMeters() {
	for _, n := range w.nodes {
		if !n.alive() {
			continue
		}
		told := make(map[event.Type]uint64)
		n.mu.Lock()
		for _, list := range n.observed {
			for _, typ := range list {
				told[typ]++
			}
		}
		n.mu.Unlock()
		var m telemetry.Meter
		for _, one := range n.eng.Meter() {
			m.Add(&one)
		}
		for _, c := range []struct {
			typ event.Type
			n   uint64
		}{
			{event.Enqueued, m.Enqueued}, {event.Started, m.Started}, {event.Completed, m.Completed},
			{event.Failed, m.Failed}, {event.Retrying, m.Retried}, {event.Cancelled, m.Cancelled},
		} {
			lost := c.typ == event.Enqueued && told[c.typ] < c.n // with the answer of an outcome
			if told[c.typ] != c.n && !lost {
				w.broken(26, "", "%s has told %d times of %s, and counted %d",
					n.name, told[c.typ], c.typ, c.n)
			}
		}
	}
}

// checkEvents checks what each engine has told.
func (w *world) checkEvents() {
	for _, n := range w.nodes {
		if !n.alive() {
			continue
		}
		n.mu.Lock()
		expected, observed := n.expected, n.observed
		n.mu.Unlock()
		for _, j := range w.ledger.order {
			id := j.rec.ID
			if !matches(expected[id], observed[id]) {
				w.broken(7, id, "%s told %v, want %v", n.name, observed[id], expected[id])
			}
		}
	}
}

// matches reports whether the events are those expected, in order but for late ones.
func matches(want []*expectation, got []event.Type) bool {
	if i := slices.IndexFunc(want, func(e *expectation) bool { return e.late }); i >= 0 {
		others := slices.Delete(slices.Clone(want), i, i+1)
		for k, t := range got {
			rest := slices.Delete(slices.Clone(got), k, k+1)
			if slices.Contains(want[i].types, t) && matches(others, rest) {
				return true
			}
		}
		return want[i].optional && matches(others, got)
	}
	// reach[k] says that the expectations so far can account for the first k events.
	reach := make([]bool, len(got)+1)
	reach[0] = true
	for _, e := range want {
		next := make([]bool, len(got)+1)
		for k, ok := range reach {
			if !ok {
				continue
			}
			if e.optional {
				next[k] = true
			}
			if k < len(got) && slices.Contains(e.types, got[k]) {
				next[k+1] = true
			}
		}
		reach = next
	}
	return reach[len(got)]
}

// String shows an expectation as a failure message does.
func (e expectation) String() string {
	s := string(e.types[0])
	for _, t := range e.types[1:] {
		s += "|" + string(t)
	}
	if e.optional {
		s = "[" + s + "]"
	}
	return s
}
