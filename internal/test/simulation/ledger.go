package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// ledger stands before the storage of a run. It does one call at a time, keeps a copy of
// every job as the calls leave it, and checks each answer against the copies and against
// what handlers have done.
type ledger struct {
	inner storage.Storage
	w     *world

	mu     sync.Mutex // held during each call; guards the fields below
	jobs   map[string]*job
	order  []*job         // in the order of insertion
	byN    map[int][]*job // by the number of their draft
	places uint64         // the latest place in a queue
	queues map[string]ojs.QueueState
	runs   map[string]string // of recurring entries: the job of each
	starts map[limitKey][]time.Time
}

// job is what the ledger knows of a job.
type job struct {
	rec    storage.Record
	n      int       // of its draft
	number int       // of its insertion
	place  uint64    // in its queue, since it last became available
	since  time.Time // when it became available
	hold   *hold     // of the attempt under way; nil: none
	last   *hold     // the latest claim
	reaper *node     // who has been handed its lost lease, and settles it
	asked  *node     // which has not got the answer of the claim, and may give it back; nil: none
	begun  int       // attempts that have begun
	gone   bool      // deleted
	ended  time.Time // when it ended
	freed  bool      // an operator has taken it out of the order of its ordering key
	saved  int       // the checkpoint that a call has stored since the job last began anew
	tried  int       // the largest that a call may have stored
	logs   []uint64  // the versions of the outcomes that came with a log
}

// hold is a claim.
type hold struct {
	job     *job
	node    *node
	version uint64
	attempt int
	worker  string
	now     time.Time // of the call
	told    bool      // the caller has got the answer
	ordinal int       // of the Run that has called
	run     *attempt  // nil: its handler has not begun
	lost    time.Time // when it was taken from its holder; zero: it was not
	cause   error     // of the loss
	start   *expectation
	undone  bool      // the claim was taken back
	until   time.Time // its lease, as far as the caller knows
	place   uint64
	since   time.Time // of the job before the claim
}

// lasts reports whether the hold counts in the limits of its engine: that of a worker,
// which may vanish, until the lease that the engine knows of is over.
func (h *hold) lasts(now time.Time) bool {
	if isRemote(h.worker) {
		return h.until.After(now)
	}
	return h.job.rec.LeaseUntil.After(now)
}

type limitKey struct {
	node *node
	name string
}

func newLedger(w *world, inner storage.Storage) *ledger {
	return &ledger{
		w: w, inner: inner, jobs: make(map[string]*job), byN: make(map[int][]*job),
		queues: make(map[string]ojs.QueueState),
		runs:   make(map[string]string), starts: make(map[limitKey][]time.Time),
	}
}

func (l *ledger) broken(number int, j *job, format string, args ...any) {
	id := ""
	if j != nil {
		id = j.rec.ID
	}
	l.w.broken(number, id, format, args...)
}

func (l *ledger) note(n *node, j *job, told bool, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if !told {
		what += " (the answer is lost)"
	}
	l.w.note(n.name, j.rec.ID, "v%d %s: %s", j.rec.Version, j.rec.State, what)
}

// refresh takes a job over as it is stored now.
func (l *ledger) refresh(j *job) {
	rec, err := l.inner.Get(context.Background(), j.rec.ID)
	if err != nil {
		l.broken(1, j, "it is lost: %v", err)
		j.gone = true
		return
	}
	l.update(j, rec)
}

// update takes a job over as a call has left it.
func (l *ledger) update(j *job, rec storage.Record) {
	was := j.rec.State
	moved := was != rec.State || j.rec.Queue != rec.Queue || j.rec.Priority != rec.Priority
	j.rec = rec
	if rec.State == ojs.StateAvailable && moved {
		l.places++
		j.place, j.since = l.places, l.w.now()
	}
	if rec.State.Terminal() && !was.Terminal() {
		j.ended = l.w.now()
		j.saved, j.tried = 0, 0
	}
	if rec.State != ojs.StateActive {
		j.reaper = nil
	}
}

// take takes the claim of a job from its holder.
func (l *ledger) take(j *job, cause error) {
	if j.hold != nil {
		j.hold.lost, j.hold.cause = l.w.now(), cause
		j.hold = nil
	}
}

// alive returns the job of an id, unless nothing is known of it.
func (l *ledger) alive(id string) *job {
	if j := l.jobs[id]; j != nil && !j.gone {
		return j
	}
	return nil
}

func (l *ledger) insert(ctx context.Context, n *node, told bool, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) ([]storage.Inserted, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := len(dst)
	dst, err := l.inner.Insert(ctx, now, batch, dst)
	if err != nil {
		l.refused(batch, now, err)
		return dst, err
	}
	l.stored(n, told, now, batch, dst[from:])
	return dst, nil
}

// stored follows an insert.
func (l *ledger) stored(n *node, told bool, now time.Time, batch []storage.Insert, out []storage.Inserted) {
	for i := range out {
		in, s := &batch[i], &out[i]
		for k := range s.Replaced {
			if j := l.alive(s.Replaced[k].ID); j != nil {
				l.take(j, ojs.ErrReplaced)
				l.refresh(j)
				l.note(n, j, told, "replaced by %s", in.Record.ID)
				n.expect(j.rec.ID, !told, event.Cancelled)
			}
		}
		if s.Existing != nil {
			l.existing(n, told, in, s, out, now)
			continue
		}
		j := &job{rec: in.Record.Copy(), number: len(l.order), n: -1}
		j.rec.State = ""
		if f, ok := number(in.Record.Meta["n"]); ok {
			j.n = f
			l.byN[f] = append(l.byN[f], j)
		}
		l.unique(&in.Record, now)
		l.jobs[j.rec.ID] = j
		l.order = append(l.order, j)
		l.refresh(j)
		l.note(n, j, told, "stored on queue %s, type %s, priority %d, scheduled %v, deadline %v, timeout %v, lease %v, %d attempts, unique %v",
			j.rec.Queue, j.rec.Type, j.rec.Priority, l.at(j.rec.ScheduledAt), l.at(j.rec.Deadline()),
			j.rec.Timeout, j.rec.Lease, j.rec.MaxAttempts, j.rec.Fingerprint != "")
		if want := in.Record.Meta["asked"]; want != nil && want != got(&j.rec).String() {
			l.broken(22, j, "its version, ordering key and fairness are %s, and its draft asks for %v",
				got(&j.rec), want)
		}
		if l.w.prog.codec && in.Record.Meta["cron_name"] == nil && !codec.IsEncoded(j.rec.Args, j.rec.Meta) {
			l.broken(22, j, "its args are stored as they are: %s", j.rec.Args)
		}
		if l.queues[j.rec.Queue] == ojs.QueueDraining {
			l.broken(16, j, "it was stored in queue %s, which is draining", j.rec.Queue)
		}
		n.expect(j.rec.ID, !told, event.Enqueued)
		if in.Record.State == ojs.StateScheduled { // a later one of the batch may have replaced it
			n.expect(j.rec.ID, !told, event.Scheduled)
		}
		l.recurring(j)
	}
	for i := range out {
		for k := range out[i].Dropped {
			if j := l.alive(out[i].Dropped[k].ID); j != nil {
				l.refresh(j)
				l.note(n, j, told, "dropped for %s", batch[i].Record.ID)
				n.expect(j.rec.ID, !told, event.Dropped)
				n.expect(j.rec.ID, !told, event.Discarded)
			}
		}
	}
	for i := range out {
		l.moved(n, told, out[i].Moved)
	}
	for i := range batch {
		if in := &batch[i]; in.MaxDepth > 0 && out[i].Existing == nil {
			if depth := l.depth(in.Record.Queue); depth > in.MaxDepth {
				l.w.broken(10, in.Record.ID, "queue %s has %d jobs that have not ended, and may have %d",
					in.Record.Queue, depth, in.MaxDepth)
			}
		}
	}
}

// at is a time as the history shows it.
func (l *ledger) at(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	if l.w.prog.ahead {
		t = t.Add(-today)
	}
	return "+" + t.Sub(l.w.start).String()
}

func number(v any) (int, bool) {
	switch v := v.(type) {
	case float64:
		return int(v), true
	case int:
		return v, true
	}
	return 0, false
}

// refused checks that there is a reason for a refusal.
func (l *ledger) refused(batch []storage.Insert, now time.Time, err error) {
	var dup *ojs.DuplicateError
	var full *ojs.QueueError
	switch {
	case errors.As(err, &dup) && len(batch) == 1:
		r := &batch[0].Record
		if j := l.alive(dup.ID); j == nil || j.rec.Fingerprint != r.Fingerprint ||
			!r.Unique.Counts(j.rec.State, j.rec.CreatedAt, now) {
			l.w.broken(21, dup.ID, "the job was refused for %v, which does not count", err)
		}
	case errors.As(err, &full) && full.Err == ojs.ErrQueueFull && len(batch) == 1:
		if depth := l.depth(full.Queue); depth < batch[0].MaxDepth {
			l.w.broken(21, "", "%v, but it has %d of %d", err, depth, batch[0].MaxDepth)
		}
	case errors.As(err, &full) && full.Err == ojs.ErrQueueDraining:
		if l.queues[full.Queue] != ojs.QueueDraining {
			l.w.broken(21, "", "%v, but it is %q", err, l.queues[full.Queue])
		}
	}
}

// existing follows an insert that found an equal job.
func (l *ledger) existing(n *node, told bool, in *storage.Insert, s *storage.Inserted,
	out []storage.Inserted, now time.Time) {
	j := l.alive(s.Existing.ID)
	if j == nil {
		l.w.broken(21, s.Existing.ID, "it was named as an equal job and is not stored")
		return
	}
	replaced := slices.ContainsFunc(out, func(s storage.Inserted) bool { // since, by a later one of the batch
		return slices.ContainsFunc(s.Replaced, func(r storage.Record) bool { return r.ID == j.rec.ID })
	})
	if !replaced && !in.Record.Unique.Counts(j.rec.State, j.rec.CreatedAt, now) ||
		j.rec.Fingerprint != in.Record.Fingerprint {
		l.broken(21, j, "it was named as an equal job and does not count")
	}
	if s.Updated {
		l.refresh(j)
		l.note(n, j, told, "took over other args")
	} else {
		l.note(n, j, told, "an equal job was left out for it")
	}
}

// unique checks that nothing is in the way of a job that is stored.
func (l *ledger) unique(r *storage.Record, now time.Time) {
	if r.Unique == nil {
		return
	}
	for _, j := range l.order {
		if j.gone || j.rec.Unique == nil || j.rec.Type != r.Type || j.rec.TypeVersion != r.TypeVersion ||
			j.rec.Unique.Key != r.Unique.Key {
			continue
		}
		how := r.Unique.Strategy()
		replaces := how != ojs.ConflictReject && how != ojs.ConflictIgnore
		if r.Unique.Counts(j.rec.State, j.rec.CreatedAt, now) && !(replaces && j.rec.State.Terminal()) {
			l.w.broken(8, r.ID, "it was stored although the equal job %s is %s and counts",
				j.rec.ID, j.rec.State)
		}
	}
}

// depth is how many jobs of a queue have not ended.
func (l *ledger) depth(queue string) (n int) {
	for _, j := range l.order {
		if !j.gone && j.rec.Queue == queue && !j.rec.State.Terminal() {
			n++
		}
	}
	return n
}

// recurring checks that a run of a recurring entry is made once.
func (l *ledger) recurring(j *job) {
	name, ok := j.rec.Meta["cron_name"].(string)
	if !ok {
		return
	}
	run := fmt.Sprint(name, " at ", j.rec.Meta["cron_triggered_at"])
	if other, again := l.runs[run]; again {
		l.broken(20, j, "the run of %s has job %s too", run, other)
	}
	l.runs[run] = j.rec.ID
}

func (l *ledger) claim(ctx context.Context, n *node, run int, told bool, now time.Time, c storage.Claim,
	dst []storage.Record) ([]storage.Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := len(dst)
	dst, err := l.inner.Claim(ctx, now, c, dst)
	if err != nil {
		return dst, err
	}
	l.limited(n, told, c.Limits) // first: the claim may have what it has dropped another for
	for i := range dst[from:] {
		l.claimed(n, run, told, now, c, &dst[from+i])
	}
	return dst, nil
}

// claimed follows the claim of a job.
func (l *ledger) claimed(n *node, run int, told bool, now time.Time, c storage.Claim, r *storage.Record) {
	j := l.alive(r.ID)
	switch {
	case j == nil:
		l.w.broken(21, r.ID, "it was claimed and is not stored")
	default:
		switch {
		case !c.Takes(j.rec.Type, j.rec.TypeVersion) && len(c.Types) > 0:
			l.broken(23, j, "%s claimed it for %v, and it is of type %s, version %q",
				n.name, c.Types, j.rec.Type, j.rec.TypeVersion)
		case j.rec.State != ojs.StateAvailable:
			l.broken(5, j, "%s claimed it while it was %s, of worker %s", n.name, j.rec.State, j.rec.Worker)
		case j.rec.Expired(now):
			l.broken(17, j, "it was claimed %v after its deadline", now.Sub(j.rec.Deadline()))
		case j.rec.Attempt >= j.rec.Retry.Runs():
			l.broken(2, j, "it was claimed for attempt %d of %d", j.rec.Attempt+1, j.rec.Retry.Runs())
		case l.queues[j.rec.Queue] == ojs.QueuePaused:
			l.broken(16, j, "it was claimed from queue %s, which is paused", j.rec.Queue)
		}
		l.inOrder(j, c, now)
		l.inLine(j)
		if j.reaper, j.asked = nil, nil; !told {
			j.asked = n
		}
		j.hold = &hold{
			job: j, node: n, version: j.rec.Version + 1, attempt: j.rec.Attempt + 1, worker: c.Worker,
			now: now, told: told, ordinal: run, place: j.place, since: j.since,
		}
		j.last = j.hold
		n.claimed(j.hold)
		l.refresh(j)
		j.hold.until = j.rec.LeaseUntil
		if j.rec.Version != j.hold.version || j.rec.Attempt != j.hold.attempt ||
			j.rec.State != ojs.StateActive {
			l.broken(5, j, "after its claim it is %s, attempt %d, version %d",
				j.rec.State, j.rec.Attempt, j.rec.Version)
		}
		l.note(n, j, told, "claimed by %s, attempt %d, lease until %s",
			c.Worker, j.rec.Attempt, l.at(j.rec.LeaseUntil))
		remote := strings.HasPrefix(c.Worker, "remote")
		// The handler of a claim that the engine loses on its way does not start.
		j.hold.start = n.expect(j.rec.ID, !told || !remote, event.Started)
		if told {
			l.limits(n, j, now, c.Worker)
		}
		l.sharedLimits(j, now)
	}
}

// limited follows the jobs that a claim has met and that a limit holds back.
func (l *ledger) limited(n *node, told bool, lim *storage.Limited) {
	if lim == nil {
		return
	}
	for i := range lim.Dropped {
		if j := l.alive(lim.Dropped[i].ID); j != nil {
			l.update(j, lim.Dropped[i].Copy())
			l.note(n, j, told, "dropped for its limit")
			n.expect(j.rec.ID, !told, event.LimitDropped)
			n.expect(j.rec.ID, !told, event.Discarded)
		}
	}
	for i := range lim.Postponed {
		if j := l.alive(lim.Postponed[i].ID); j != nil {
			l.update(j, lim.Postponed[i].Copy())
			l.note(n, j, told, "scheduled again for its limit")
			n.expect(j.rec.ID, !told, event.Scheduled)
		}
	}
	l.moved(n, told, lim.Moved)
}

func (l *ledger) settleAndClaim(ctx context.Context, n *node, run int, told bool, now time.Time,
	to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) (
	[]storage.Settled, int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changes := make([]storage.Change, len(to))
	for i, r := range to {
		changes[i] = storage.Change{Record: r.Copy(), AttemptFieldsOnly: true}
	}
	s, _ := storage.As[storage.SettleClaimer](l.inner)
	from := len(dst)
	dst, claimed, err := s.SettleAndClaim(ctx, now, to, dst, c, into)
	if err != nil {
		return dst, claimed, err
	}
	l.settled(n, told, now, changes, dst[from:])
	l.limited(n, told, c.Limits)
	for _, r := range into[:claimed] {
		l.claimed(n, run, told, now, c, r)
	}
	if l.w.failed() { // the engine may have no handler for what it has got
		claimed = 0
	}
	return dst, claimed, nil
}

func (l *ledger) unclaim(ctx context.Context, n *node, told bool, now time.Time,
	held []storage.Held) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, _ := storage.As[storage.SettleClaimer](l.inner)
	count, err := s.Unclaim(ctx, now, held)
	if err != nil {
		return count, err
	}
	for _, x := range held {
		j := l.alive(x.ID)
		if j == nil || j.rec.State != ojs.StateActive || j.rec.Version != x.Version {
			continue
		}
		h := j.last
		switch {
		case h.node != n:
			l.broken(5, j, "%s gave a claim of %s back", n.name, h.node.name)
		case h.run != nil:
			l.broken(5, j, "%s gave its claim back, and attempt %d has begun", n.name, h.attempt)
		case h.version != x.Version && j.asked != n: // else its lease has run out, too
			l.broken(5, j, "%s gave a claim back whose lease it had lost", n.name)
		}
		h.undone, j.hold, j.reaper = true, nil, nil
		l.refresh(j)
		j.place, j.since = h.place, l.w.now()
		if rl := j.rec.RateLimit; rl != nil {
			for _, k := range []limitKey{{h.node, "key " + rl.Key}, {nil, rl.Key}} {
				if i := slices.IndexFunc(l.starts[k], h.now.Equal); i >= 0 {
					l.starts[k] = slices.Delete(l.starts[k], i, i+1)
				}
			}
		}
		l.note(n, j, told, "its claim was taken back")
	}
	return count, nil
}

// inLine checks that no earlier job of the same ordering key has yet to end.
func (l *ledger) inLine(j *job) {
	d := j.rec.Dependencies
	if d == nil || d.OrderingKey == "" || j.freed {
		return
	}
	for _, o := range l.order {
		if e := o.rec.Dependencies; o.number < j.number && !o.gone && !o.freed && !o.rec.State.Terminal() &&
			e != nil && e.OrderingKey == d.OrderingKey {
			l.broken(24, j, "it was claimed while %s, which is before it, is %s", o.rec.ID, o.rec.State)
		}
	}
}

// sharedLimits checks the limit of a key that all engines share.
func (l *ledger) sharedLimits(j *job, now time.Time) {
	rl := j.rec.RateLimit
	if rl == nil || l.w.prog.jumps {
		return
	}
	k := limitKey{nil, rl.Key}
	starts := append(l.starts[k], now)
	l.starts[k] = starts
	if r := rl.Rate; r.Limit > 0 && len(starts) > r.Limit {
		if before := starts[len(starts)-1-r.Limit]; now.Sub(before) < r.Per {
			l.broken(15, j, "key %s: %d starts in %v over all engines, and %d are allowed in %v",
				rl.Key, r.Limit+1, now.Sub(before), r.Limit, r.Per)
		}
	}
	if rl.Concurrency > 0 {
		if active := l.active(rl.Key); active > rl.Concurrency {
			l.broken(15, j, "key %s: %d jobs are active, and %d may be", rl.Key, active, rl.Concurrency)
		}
	}
}

// active is how many jobs of a key are active.
func (l *ledger) active(key string) (n int) {
	for _, o := range l.order {
		if rl := o.rec.RateLimit; !o.gone && rl != nil && rl.Key == key && o.rec.State == ojs.StateActive {
			n++
		}
	}
	return n
}

// inOrder checks that no other job of the queue should have been claimed first. The jobs
// that the call takes later are available still.
func (l *ledger) inOrder(j *job, c storage.Claim, now time.Time) {
	for _, o := range l.order {
		if o.gone || o == j || o.rec.State != ojs.StateAvailable || o.rec.Queue != j.rec.Queue ||
			o.rec.Expired(now) ||
			len(c.Types) > 0 && !c.Takes(o.rec.Type, o.rec.TypeVersion) || o.rec.RateLimit != nil ||
			o.rec.Priority == j.rec.Priority && (o.rec.Fairness.Key != "" || j.rec.Fairness.Key != "") {
			continue
		}
		if o.rec.Priority > j.rec.Priority || o.rec.Priority == j.rec.Priority && o.place < j.place {
			l.broken(9, j,
				"it was claimed before %s, which has priority %d, place %d; its own is %d, %d",
				o.rec.ID, o.rec.Priority, o.place,
				j.rec.Priority, j.place)
		}
	}
}

// limits checks what bounds the starts of an engine.
func (l *ledger) limits(n *node, j *job, now time.Time, worker string) {
	if l.w.prog.jumps {
		return // a limit goes by a clock that only goes on
	}
	check := func(name string, bounds ojs.RateLimit, counts func(h *hold) bool) {
		k := limitKey{n, name}
		starts := append(l.starts[k], now)
		l.starts[k] = starts
		if r := bounds.Rate; r.Limit > 0 && len(starts) > r.Limit {
			if before := starts[len(starts)-1-r.Limit]; now.Sub(before) < r.Per {
				l.broken(15, j, "%s: %d starts in %v, and %d are allowed in %v",
					name, r.Limit+1, now.Sub(before), r.Limit, r.Per)
			}
		}
		if th := bounds.Throttle; th.Limit > 0 && len(starts) > 1 {
			if gap := now.Sub(starts[len(starts)-2]); gap < th.Per/time.Duration(th.Limit) {
				l.broken(15, j, "%s: two starts within %v", name, gap)
			}
		}
		if bounds.Concurrency > 0 {
			var running []string
			for _, o := range l.order {
				if h := o.hold; h != nil && h.node == n && h.told &&
					(h.run == nil || h.run.returned.IsZero()) && h.lasts(now) && counts(h) {
					running = append(running, o.rec.ID)
				}
			}
			if len(running) > bounds.Concurrency {
				l.broken(15, j, "%s: jobs %v run at once in %s, and %d may",
					name, running, n.name, bounds.Concurrency)
			}
		}
	}
	if rl := j.rec.RateLimit; rl != nil {
		check("key "+rl.Key, *rl,
			func(h *hold) bool { return h.job.rec.RateLimit != nil && h.job.rec.RateLimit.Key == rl.Key })
	}
	if qc, ok := n.cfg.queues[j.rec.Queue]; ok {
		bounds := qc.RateLimit
		bounds.Concurrency = qc.Concurrency
		check("queue "+j.rec.Queue, bounds, func(h *hold) bool { return h.job.rec.Queue == j.rec.Queue })
	}
	if most := n.cfg.typeLimit[j.rec.Type]; most > 0 && !strings.HasPrefix(worker, "remote") {
		if j.rec.Type == versionedType && n.cfg.versions != nil {
			most *= len(n.cfg.versions) // a limit of each handler
		}
		check("type "+j.rec.Type, ojs.RateLimit{Concurrency: most},
			func(h *hold) bool { return h.job.rec.Type == j.rec.Type })
	}
}

func (l *ledger) settle(ctx context.Context, n *node, told bool, now time.Time,
	changes []storage.Change, dst []storage.Settled) ([]storage.Settled, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := len(dst)
	dst, err := l.inner.Settle(ctx, now, changes, dst)
	if err != nil {
		return dst, err
	}
	l.settled(n, told, now, changes, dst[from:])
	return dst, nil
}

// settled follows changes.
func (l *ledger) settled(n *node, told bool, now time.Time, changes []storage.Change, out []storage.Settled) {
	for i := range changes {
		to, s := &changes[i].Record, &out[i]
		j := l.alive(to.ID)
		switch {
		case j == nil:
			if s.Err == nil {
				l.w.broken(21, to.ID, "it was settled and is not stored")
			}
			continue
		case s.Err != nil:
			if errors.Is(s.Err, storage.ErrFenced) && to.Version == j.rec.Version {
				l.broken(6, j, "a change by %s was refused though it names the version %d",
					n.name, to.Version)
			}
			l.w.note(n.name, j.rec.ID, "a change of v%d to %s is refused: %v", to.Version, to.State, s.Err)
			continue
		case to.Version != j.rec.Version:
			l.broken(6, j, "%s settled version %d of it, which is at %d", n.name, to.Version, j.rec.Version)
		case !j.rec.State.CanBecome(to.State) && !(j.rec.State == to.State && to.State.Waiting()):
			l.broken(6, j, "%s made it %s from %s", n.name, to.State, j.rec.State)
		}
		before, held := j.rec, j.hold
		if before.State == ojs.StatePending && to.State != ojs.StatePending ||
			before.State.Terminal() && !to.State.Terminal() {
			j.freed = true
		}
		l.extras(j, &changes[i])
		switch {
		case before.State != ojs.StateActive:
			l.operated(n, told, &before, to, now)
		case to.State == ojs.StateCancelled:
			l.take(j, ojs.ErrCancelled)
			n.expect(j.rec.ID, !told, event.Cancelled)
		default:
			l.outcome(n, told, j, to, now)
			l.take(j, nil)
		}
		if changes[i].Log != nil {
			j.logs = append(j.logs, s.Version)
		}
		l.refresh(j)
		if got := &j.rec; got.State != to.State || got.Attempt != to.Attempt ||
			got.Version != before.Version+1 || len(got.Errors) != len(to.Errors) ||
			!got.NextRetryAt.Equal(to.NextRetryAt) || got.Queue != to.Queue || got.Priority != to.Priority {
			l.broken(21, j, "it was settled as %s, attempt %d, %d failures, and is %s, attempt %d, %d failures, version %d", to.State, to.Attempt,
				len(to.Errors), got.State, got.Attempt, len(got.Errors), got.Version)
		}
		l.stored(n, told, now, changes[i].Then, s.Then)
		l.moved(n, told, s.Moved)
		attempt := ""
		if held != nil {
			attempt = fmt.Sprintf(" of attempt %d by %s", held.attempt, held.node.name)
		}
		l.note(n, j, told, "was %s%s, %d spent, next %s, %s",
			before.State, attempt, j.rec.Attempt, l.at(j.rec.NextRetryAt), failure(&j.rec))
	}
}

func failure(r *storage.Record) string {
	if r.Error == nil {
		return "no failure"
	}
	return r.Error.Type + " " + r.Error.Message
}

// operated follows the change of a job that was not active.
func (l *ledger) operated(n *node, told bool, before, to *storage.Record, now time.Time) {
	ev := event.Scheduled
	switch {
	case to.State == ojs.StateCancelled:
		ev = event.Cancelled
	case before.State == to.State && before.Priority != to.Priority:
		ev = event.PriorityChanged
	case to.State == ojs.StateAvailable && before.State == ojs.StateDiscarded && before.DeadLettered():
		ev = event.DeadLetterRetried
	case to.State == ojs.StateAvailable:
		ev = event.Available
	}
	n.expect(to.ID, !told, ev)
}

func (l *ledger) extend(ctx context.Context, n *node, told bool, now time.Time,
	xs []storage.Extension) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost, err := l.inner.Extend(ctx, now, xs)
	if err != nil {
		return lost, err
	}
	for _, x := range xs {
		j := l.alive(x.ID)
		mine := j != nil && j.rec.State == ojs.StateActive && j.rec.Version == x.Version
		if isLost := slices.Contains(lost, x.ID); mine == isLost {
			l.w.broken(6, x.ID, "the lease of version %d was extended: %v; it was its holder's: %v",
				x.Version, !isLost, mine)
		}
		if mine {
			l.refresh(j)
			if told && j.hold != nil && j.hold.node == n {
				j.hold.until = j.rec.LeaseUntil
			}
			if want := now.Add(j.rec.LeaseFor(x.Lease)); !j.rec.LeaseUntil.Equal(want) {
				l.broken(6, j, "its lease ends at %s after its renewal, want %s",
					l.at(j.rec.LeaseUntil), l.at(want))
			}
		}
	}
	return lost, nil
}

// moved follows jobs that waited for others, which have ended.
func (l *ledger) moved(n *node, told bool, moved []storage.Record) {
	for i := range moved {
		j := l.alive(moved[i].ID)
		if j == nil {
			continue
		}
		// An insert moves new jobs at the head of their ordering key before it returns.
		passed := j.rec.Version > moved[i].Version // its deadline had come, too
		if j.rec.State != ojs.StatePending && j.rec.Version < moved[i].Version {
			l.broken(3, j, "it was %s and waited for nothing, but was moved to %s",
				j.rec.State, moved[i].State)
		}
		switch {
		case j.rec.Version < moved[i].Version:
			l.update(j, moved[i].Copy())
		case !passed && j.rec.State == ojs.StateAvailable: // it is new, and was looked at
			l.places++
			j.place = l.places
		}
		l.note(n, j, told, "waits for no other job")
		switch moved[i].State { // before the events of what it has passed to
		case ojs.StateAvailable:
			n.expect(j.rec.ID, !told || passed, event.Available).late = passed
		case ojs.StateScheduled:
			n.expect(j.rec.ID, !told || passed, event.Scheduled).late = passed
		}
	}
}

func (l *ledger) due(ctx context.Context, n *node, told bool, now time.Time, most int,
	buf []storage.Record) (storage.Due, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, err := l.inner.Due(ctx, now, most, buf)
	if err != nil {
		return d, err
	}
	for i := range d.Promoted {
		j := l.alive(d.Promoted[i].ID)
		if j == nil {
			l.w.broken(21, d.Promoted[i].ID, "it was promoted and is not stored")
			continue
		}
		at := j.rec.NextRetryAt
		if j.rec.State == ojs.StateScheduled {
			at = j.rec.ScheduledAt
		}
		if at.After(now) || j.rec.State != ojs.StateScheduled && j.rec.State != ojs.StateRetryable {
			l.broken(3, j, "it was promoted from %s at %s, and was due at %s",
				j.rec.State, l.at(now), l.at(at))
		}
		l.refresh(j)
		l.note(n, j, told, "promoted, was due at %s", l.at(at))
	}
	for i := range d.Expired {
		j := l.alive(d.Expired[i].ID)
		if j == nil {
			continue
		}
		if !j.rec.Expired(now) {
			l.broken(3, j, "it expired at %s while it was %s, and its deadline is %s",
				l.at(now), j.rec.State, l.at(j.rec.Deadline()))
		}
		if e := d.Expired[i].Error; e != nil && e.Type == policy.ErrorTypeEnqueueTTL && j.begun > 0 {
			l.broken(3, j, "its enqueue TTL ended it after %d attempts", j.begun)
		}
		l.refresh(j)
		l.note(n, j, told, "expired")
		n.expectOneOf(j.rec.ID, !told, event.Expired, event.TTLExpired, event.TotalTimeout)
		n.expect(j.rec.ID, !told, event.Discarded)
		if j.rec.DeadLettered() {
			n.expect(j.rec.ID, !told, event.DeadLetterAdded)
		}
	}
	l.moved(n, told, d.Moved)
	for i := range d.Stalled {
		j := l.alive(d.Stalled[i].ID)
		if j == nil {
			continue
		}
		if j.rec.State != ojs.StateActive || j.rec.LeaseUntil.After(now) {
			l.broken(5, j, "it was handed to %s as stalled at %s while it was %s until %s",
				n.name, l.at(now), j.rec.State, l.at(j.rec.LeaseUntil))
		}
		if h := j.hold; h != nil && h.run != nil && !h.run.remote && h.run.returned.IsZero() &&
			h.node.alive() && l.w.undisturbed() {
			l.broken(5, j, "its lease has run out, and attempt %d in %s goes on", h.attempt, h.node.name)
		}
		l.renewable(j, now)
		l.take(j, ojs.ErrLeaseLost)
		l.refresh(j)
		j.reaper = n
		l.note(n, j, told, "its lease had run out")
	}
	var next *job
	for _, j := range l.order {
		if at := j.rec.WakeAt(); !j.gone && !at.IsZero() && (next == nil || at.Before(next.rec.WakeAt())) {
			next = j
		}
	}
	if next != nil && (d.Next.IsZero() || d.Next.After(next.rec.WakeAt())) && next.rec.WakeAt().After(now) {
		l.broken(4, next, "Due says that nothing comes before %s", l.at(d.Next))
	}
	return d, nil
}

// renewable checks that the holder of a job whose lease has run out could not have
// renewed it.
func (l *ledger) renewable(j *job, now time.Time) {
	h := j.hold
	if h == nil || h.run == nil || h.run.remote || !h.told || l.w.prog.jumps {
		return
	}
	n := h.node
	if n.stopped() || h.ordinal != n.ordinal() {
		return
	}
	n.mu.Lock()
	last := n.hampered
	n.mu.Unlock()
	from := j.rec.LeaseUntil.Add(-j.rec.Lease)
	if last.Before(from) && h.began().Before(from.Add(j.rec.Lease/6)) {
		l.broken(5, j, "its lease has run out, and %s, which has attempt %d, could have renewed it since %s",
			n.name, h.attempt, l.at(last))
	}
}

func (l *ledger) delete(ctx context.Context, n *node, told bool, ids []string) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	count, err := l.inner.Delete(ctx, ids)
	if err != nil || count == 0 {
		return count, err
	}
	for _, id := range ids {
		j := l.alive(id)
		if j == nil {
			continue
		}
		if !j.rec.State.Terminal() {
			l.broken(18, j, "it was deleted while it was %s", j.rec.State)
		}
		j.gone = true
		l.note(n, j, told, "deleted")
		if j.rec.DeadLettered() {
			n.expect(id, !told, event.DeadLetterDeleted)
		}
	}
	return count, nil
}

func (l *ledger) prune(ctx context.Context, n *node, told bool, p storage.Prune) (storage.Pruned, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	done, err := l.inner.Prune(ctx, p)
	if err != nil {
		return done, err
	}
	for _, id := range done.IDs {
		j := l.alive(id)
		if j == nil {
			l.w.broken(21, id, "it was pruned and is not stored")
			continue
		}
		j.gone = true
		l.note(n, j, told, "pruned")
		finished := j.rec.FinishedAt
		switch {
		case !j.rec.State.Terminal():
			l.broken(18, j, "it was pruned while it was %s", j.rec.State)
		case j.rec.KeptUntil().After(p.Now):
			l.broken(18, j, "it was pruned %v too early, for its result or its unique policy",
				j.rec.KeptUntil().Sub(p.Now))
		case !finished.Before(p.Before) && (p.Beyond == 0 || !p.Spare.IsZero() && !finished.Before(p.Spare)):
			l.broken(18, j, "it was pruned at %s, had finished at %s, and %+v does not select it",
				l.at(p.Now), l.at(finished), p)
		case p.DeadLetters != j.rec.DeadLettered():
			l.broken(18, j, "it was pruned, and is a dead letter: %v", j.rec.DeadLettered())
		}
	}
	return done, nil
}

func (l *ledger) setQueueState(ctx context.Context, n *node, queue string,
	to ojs.QueueState) (ojs.QueueState, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, err := l.inner.SetQueueState(ctx, queue, to)
	if err == nil {
		l.queues[queue] = to
		l.w.note(n.name, "queue "+queue, "queue %s is %s", queue, to)
	}
	return was, err
}
