package storagetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/cursor"
	"github.com/ojsengine/ojs/storage"
)

// Reference is the contract of a storage at its plainest: a list of jobs that every call
// goes through from the start. It is written to be read, and to compare other storages
// with; a busy one needs better than a list.
type Reference struct {
	mu          sync.Mutex // guards everything below
	closed      bool
	jobs        []*refJob // in the order of their insertion
	seq         int       // of the latest event
	floor       uint64    // no job that was deleted had a later version
	documents   map[storage.Kind]map[string]storage.Document
	lastVersion uint64 // of any document
	states      map[string]ojs.QueueState
	limits      map[storage.LimitName]*refLimit
	served      map[refLevel]int // the latest round of which a job was claimed

	// choose picks the next job of a claim; nil: first does.
	choose func(queue string, c storage.Claim, now time.Time) *refJob

	ends []*refJob // that have ended in the call under way, and have yet to be counted for others
}

// refJob is a job and when, as numbers of events, it came where it is.
type refJob struct {
	rec      storage.Record
	inserted int
	entered  int // among the available ones, or moved there, the last time
	round    int // that it has joined, or began: the place of the round; 0: it has no fairness key
	since    int // where it waits for its time
	ended    int // 0: not
	lives    int // how often it has been brought back after its end

	keptOn time.Time // until when Prune has kept it for its Keeper

	logs []storage.Log // the newest storage.MaxLogs, the oldest first

	counted bool         // it was stored with DependsOn or an OrderingKey
	key     string       // the OrderingKey until the job's end is counted
	waits   []awaitedJob // the jobs that it waits for, or has waited for
}

// awaitedJob names the end of a job that another waits for. While the other is in the
// quarantine, the job may end and be brought back, or another be stored under its id.
type awaitedJob struct {
	inserted int
	lives    int
}

func awaits(j *refJob) awaitedJob { return awaitedJob{j.inserted, j.lives} }

var _ storage.Storage = (*Reference)(nil)

// NewReference makes an empty storage.
func NewReference() *Reference {
	return &Reference{states: make(map[string]ojs.QueueState),
		limits: make(map[storage.LimitName]*refLimit), served: make(map[refLevel]int),
		documents: make(map[storage.Kind]map[string]storage.Document)}
}

// Capabilities implements storage.Storage.
func (s *Reference) Capabilities() storage.Capabilities {
	return storage.Capabilities{Name: "reference", Unique: storage.Strong, Mechanism: "mutex"}
}

func (s *Reference) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fmt.Errorf("%w: reference storage", ojs.ErrClosed)
	}
	return nil
}

func (s *Reference) find(id string) *refJob {
	for _, j := range s.jobs {
		if j.rec.ID == id {
			return j
		}
	}
	return nil
}

// moved notes that a job has come into its state, or has changed its place in it.
func (s *Reference) moved(j *refJob, keepsPlace bool) {
	s.seq++
	if !keepsPlace || j.rec.State != ojs.StateAvailable {
		j.since = s.seq
	}
	if !keepsPlace && j.rec.State == ojs.StateAvailable {
		j.entered = s.seq
		s.takeRound(j)
	}
	switch {
	case !j.rec.State.Terminal():
		if j.ended > 0 {
			j.lives++
		}
		j.ended, j.keptOn = 0, time.Time{}
	default: // it is its end: nothing moves a job that has ended to another end
		j.ended = s.seq
		s.ends = append(s.ends, j)
	}
}

// Insert implements storage.Storage.
func (s *Reference) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) ([]storage.Inserted, error) {
	if err := s.enter(ctx); err != nil {
		return dst, err
	}
	defer s.mu.Unlock()
	if err := s.insertable(batch); err != nil {
		return dst, err
	}
	var results []storage.Inserted
	err := s.try(func(trial *Reference) (err error) {
		results, err = trial.insertAll(now, batch)
		return err
	})
	return append(dst, results...), err
}

// insertable looks at the states and ids of a batch, and at its DependsOn by itself.
func (s *Reference) insertable(batch []storage.Insert) error {
	for i, in := range batch {
		switch in.Record.State {
		case ojs.StateAvailable, ojs.StateScheduled, ojs.StatePending:
		default:
			return fmt.Errorf("%w: %q is no state to begin in", ojs.ErrInvalid, in.Record.State)
		}
		if j := s.find(in.Record.ID); j != nil {
			return &ojs.DuplicateError{ID: in.Record.ID, State: j.rec.State}
		}
		for _, other := range batch[:i] {
			if other.Record.ID == in.Record.ID {
				return &ojs.DuplicateError{ID: in.Record.ID, State: in.Record.State}
			}
		}
	}
	return storage.CheckDependsOn(batch)
}

// try does something to a copy, which takes the place of what there was if all of it goes
// well.
func (s *Reference) try(f func(trial *Reference) error) error {
	trial := &Reference{seq: s.seq, floor: s.floor, states: s.states, served: maps.Clone(s.served)}
	for _, j := range s.jobs {
		c := *j
		trial.jobs = append(trial.jobs, &c)
	}
	if err := f(trial); err != nil {
		return err
	}
	s.jobs, s.seq, s.served = trial.jobs, trial.seq, trial.served
	return nil
}

// countEnds counts the jobs that have ended in the call under way for those that wait for
// them, and returns the jobs that this has moved.
func (s *Reference) countEnds(now time.Time) (moved []storage.Record) {
	for len(s.ends) > 0 {
		ended := s.ends[0]
		s.ends = s.ends[1:]
		for _, j := range s.jobs {
			if slices.Contains(j.waits, awaits(ended)) && j.rec.State == ojs.StatePending &&
				s.count(now, j, &ended.rec) {
				moved = append(moved, j.rec.Copy())
			}
		}
		key := ended.key
		ended.key = ""
		moved = s.nextTurn(now, key, moved)
	}
	return moved
}

// nextTurn gives the turn of an ordering key to the first in line, unless a job has it.
func (s *Reference) nextTurn(now time.Time, key string, moved []storage.Record) []storage.Record {
	var first *refJob
	for _, j := range s.jobs {
		switch {
		case key == "" || j.key != key || j.rec.State.Terminal():
		case !j.rec.InLine():
			return moved
		case first == nil:
			first = j
		}
	}
	if first == nil {
		return moved
	}
	if first.rec.Turn(); first.rec.Resolve(now, "", "") {
		s.moved(first, false)
		moved = append(moved, first.rec.Copy())
	}
	return moved
}

// count counts a job that has ended for one that waits, and reports whether that moves.
func (s *Reference) count(now time.Time, j *refJob, ended *storage.Record) bool {
	j.rec.Count(ended.State)
	if !j.rec.Resolve(now, ended.ID, ended.State) {
		return false
	}
	s.moved(j, false)
	return true
}

// await has the new jobs of a batch wait for others, after all that the batch has ended.
func (s *Reference) await(now time.Time, batch []storage.Insert, mine []*refJob) (moved []storage.Record) {
	for i, in := range batch {
		if mine[i] == nil {
			continue
		}
		for _, id := range in.AwaitedBy {
			w := s.waiting(id)
			if w == nil {
				continue
			}
			w.rec.WaitsMore()
			w.waits = append(slices.Clone(w.waits), awaits(mine[i]))
		}
	}
	s.enterLines(batch, mine)
	return append(s.countEnds(now), s.awaitOthers(now, batch, mine)...)
}

// enterLines has the jobs of a batch wait for their turns.
func (s *Reference) enterLines(batch []storage.Insert, mine []*refJob) {
	for i, j := range mine {
		if j != nil && !j.rec.State.Terminal() { // else it gives the turn at its place in the batch
			j.key = batch[i].OrderingKey
		}
	}
}

// waiting returns the job with an id if it waits for others, else nil.
func (s *Reference) waiting(id string) *refJob {
	if j := s.find(id); j != nil && j.counted && j.rec.State == ojs.StatePending {
		return j
	}
	return nil
}

// awaitOthers has the jobs of a batch wait for others.
func (s *Reference) awaitOthers(
	now time.Time, batch []storage.Insert, mine []*refJob,
) (moved []storage.Record) {
	for i, in := range batch {
		j := mine[i]
		if j == nil {
			continue
		}
		for _, id := range in.DependsOn {
			if j.rec.State != ojs.StatePending {
				break
			}
			other := s.find(id)
			if !other.rec.State.Terminal() {
				j.waits = append(j.waits, awaits(other))
			} else if s.count(now, j, &other.rec) {
				moved = append(moved, j.rec.Copy())
			}
		}
		moved = append(moved, s.countEnds(now)...)
		moved = s.nextTurn(now, in.OrderingKey, moved)
		moved = append(moved, s.countEnds(now)...)
	}
	return moved
}

func (s *Reference) insertAll(now time.Time, batch []storage.Insert) ([]storage.Inserted, error) {
	awaited := make([]bool, len(batch))
	for i, in := range batch {
		awaited[i] = len(in.AwaitedBy) == 0 || slices.ContainsFunc(in.AwaitedBy,
			func(id string) bool { return s.waiting(id) != nil })
	}
	results := make([]storage.Inserted, len(batch))
	mine := make([]*refJob, len(batch))
	for i, in := range batch {
		if r := in.Record; r.Fingerprint != "" && r.Unique != nil {
			taken, err := s.unique(now, r, in.KeepActive, &results[i])
			if err != nil {
				return nil, err
			}
			if taken {
				continue
			}
		}
		j := &refJob{rec: in.Record.Copy()}
		j.rec.Version = s.floor + 1
		if j.counted = in.Waits(); j.counted {
			j.rec.Wait(&in)
		}
		s.jobs = append(s.jobs, j)
		s.moved(j, false)
		j.inserted = s.seq
		mine[i] = j
		results[i].Version = j.rec.Version
	}
	for _, in := range batch {
		if s.states[in.Record.Queue] == ojs.QueueDraining {
			return nil, &ojs.QueueError{Queue: in.Record.Queue, Err: ojs.ErrQueueDraining}
		}
	}
	if err := s.makeRoom(now, batch, mine, results); err != nil {
		return nil, err
	}
	for _, in := range batch {
		for _, id := range in.DependsOn {
			if s.find(id) == nil {
				return nil, &ojs.DependencyError{ID: in.Record.ID, Dependency: id}
			}
		}
	}
	for i, in := range batch {
		if !awaited[i] && mine[i] != nil {
			return nil, &ojs.DependencyError{ID: in.Record.ID, Dependency: in.AwaitedBy[0]}
		}
	}
	if len(batch) > 0 {
		results[len(batch)-1].Moved = s.await(now, batch, mine)
	}
	for i, in := range batch {
		if in.MaxDepth > 0 {
			results[i].Depth = s.depth(in.Record.Queue)
		}
	}
	return results, nil
}

// CancelAll implements storage.Storage.
func (s *Reference) CancelAll(ctx context.Context, now time.Time, ids []string) (
	cancelled, moved []storage.Record, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, nil, err
	}
	defer s.mu.Unlock()
	for i, id := range ids {
		j := s.find(id)
		switch {
		case i == 0 && j == nil:
			return nil, nil, fmt.Errorf("%w: job %q", ojs.ErrNotFound, id)
		case i == 0 && !j.rec.State.Waiting():
			return nil, nil, &ojs.TransitionError{ID: id, From: j.rec.State, To: ojs.StateCancelled}
		case j != nil && j.rec.State.Waiting():
			j.rec.Cancel(now)
			s.moved(j, false)
			cancelled = append(cancelled, j.rec.Copy())
		}
	}
	return cancelled, s.countEnds(now), nil
}

// Revive implements storage.Storage.
func (s *Reference) Revive(ctx context.Context, now time.Time, batch []storage.Insert) (
	moved []storage.Record, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if err := storage.CheckRevive(batch); err != nil {
		return nil, err
	}
	jobs := make([]*refJob, len(batch))
	for i, in := range batch {
		if jobs[i] = s.find(in.Record.ID); jobs[i] == nil {
			return nil, fmt.Errorf("%w: job %q", ojs.ErrNotFound, in.Record.ID)
		}
		if err := jobs[i].rec.CanRevive(&in.Record); err != nil {
			return nil, err
		}
	}
	for _, in := range batch {
		for _, id := range in.DependsOn {
			if s.find(id) == nil {
				return nil, &ojs.DependencyError{ID: in.Record.ID, Dependency: id}
			}
		}
	}
	for i, in := range batch {
		j := jobs[i]
		had := j.rec.Dependencies
		j.rec = in.Record.Copy()
		j.rec.Version++
		j.waits = nil
		switch {
		case in.Waits():
			j.counted = true
			j.rec.Wait(&in)
		case j.counted:
			j.rec.Dependencies = had
		}
		s.moved(j, false)
	}
	s.enterLines(batch, jobs)
	return s.awaitOthers(now, batch, jobs), nil
}

// unique resolves the conflict of a record with what is there. It reports whether the
// record is not to be stored.
func (s *Reference) unique(now time.Time, r storage.Record, keepActive bool,
	result *storage.Inserted) (bool, error) {
	var inWay []*refJob // the newest last
	for _, j := range s.jobs {
		if j.rec.Fingerprint == r.Fingerprint && r.Unique.Counts(j.rec.State, j.rec.CreatedAt, now) {
			inWay = append(inWay, j)
		}
	}
	if len(inWay) == 0 {
		return false, nil
	}
	slices.SortStableFunc(inWay, func(a, b *refJob) int { return a.rec.CreatedAt.Compare(b.rec.CreatedAt) })
	newest := inWay[len(inWay)-1]
	var takes *refJob
	switch r.Unique.Strategy() {
	case ojs.ConflictReject:
		return false, &ojs.DuplicateError{ID: newest.rec.ID, State: newest.rec.State,
			Fingerprint: r.Fingerprint}
	case ojs.ConflictIgnore:
		c := newest.rec.Copy()
		result.Existing = &c
		return true, nil
	case ojs.ConflictReplaceExceptSchedule, ojs.ConflictDebounce:
		for _, j := range inWay {
			if j.rec.State == ojs.StateScheduled &&
				(r.Unique.OnConflict != ojs.ConflictDebounce || r.State == ojs.StateScheduled) {
				takes = j
			}
		}
	}
	for _, j := range slices.Backward(inWay) {
		if keepActive && j.rec.State == ojs.StateActive {
			return false, &ojs.DuplicateError{ID: j.rec.ID, State: j.rec.State, Fingerprint: r.Fingerprint}
		}
	}
	for _, j := range inWay {
		if j != takes && !j.rec.State.Terminal() {
			j.rec.Cancel(now)
			s.moved(j, false)
			result.Replaced = append(result.Replaced, j.rec.Copy())
		}
	}
	if takes == nil {
		return false, nil
	}
	c := r.Copy()
	takes.rec.Update(&c)
	c = takes.rec.Copy()
	result.Existing, result.Updated = &c, true
	return true, nil
}

// makeRoom drops what has to go from bounded queues, after the batch has been stored.
func (s *Reference) makeRoom(now time.Time, batch []storage.Insert, mine []*refJob,
	results []storage.Inserted) error {
	type overflow struct {
		queue              string
		excess, most, last int
	}
	var full []*overflow
	for i, in := range batch {
		q := in.Record.Queue
		if mine[i] == nil || mine[i].rec.State.Terminal() || in.MaxDepth == 0 {
			continue
		}
		over := s.depth(q) - in.MaxDepth // as it was when this one came: without those after it
		for _, later := range mine[i+1:] {
			if later != nil && later.rec.Queue == q && !later.rec.State.Terminal() {
				over--
			}
		}
		if over <= 0 {
			continue
		}
		if !in.DropOldest {
			return &ojs.QueueError{Queue: q, MaxDepth: in.MaxDepth, Err: ojs.ErrQueueFull}
		}
		at := slices.IndexFunc(full, func(o *overflow) bool { return o.queue == q })
		if at < 0 {
			at = len(full)
			full = append(full, &overflow{queue: q})
		}
		full[at].excess, full[at].most, full[at].last = max(full[at].excess, over), in.MaxDepth, i
	}
	slices.SortFunc(full, func(a, b *overflow) int { return cmp.Compare(a.last, b.last) })
	for _, o := range full {
		var oldest []*refJob
		for _, j := range s.jobs {
			if j.rec.Queue == o.queue && j.rec.State == ojs.StateAvailable && !j.rec.Expired(now) &&
				!slices.Contains(mine, j) {
				oldest = append(oldest, j)
			}
		}
		if len(oldest) < o.excess {
			return &ojs.QueueError{Queue: o.queue, MaxDepth: o.most, Err: ojs.ErrQueueFull}
		}
		slices.SortFunc(oldest, func(a, b *refJob) int { return cmp.Compare(a.entered, b.entered) })
		for _, j := range oldest[:o.excess] {
			j.rec.Drop(now)
			s.moved(j, false)
			results[o.last].Dropped = append(results[o.last].Dropped, j.rec.Copy())
		}
	}
	return nil
}

func (s *Reference) depth(queue string) (n int) {
	for _, j := range s.jobs {
		if j.rec.Queue == queue && !j.rec.State.Terminal() {
			n++
		}
	}
	return n
}

// Claim implements storage.Storage.
func (s *Reference) Claim(ctx context.Context, now time.Time, c storage.Claim,
	dst []storage.Record) ([]storage.Record, error) {
	if err := s.enter(ctx); err != nil {
		return dst, err
	}
	defer s.mu.Unlock()
	return append(dst, s.claim(now, c, false)...), nil
}

// claim is Claim. If it is to be undoable, it ends before the first job that has an
// enqueue TTL.
func (s *Reference) claim(now time.Time, c storage.Claim, undoable bool) (recs []storage.Record) {
	queues := c.Queues
	if len(queues) == 0 {
		queues = []string{""} // all of them together
	}
	left := c.Max
	first := s.first
	if s.choose != nil {
		first = s.choose
	}
	c.ResetLimits()
	for _, q := range queues {
		for left > 0 {
			best := first(q, c, now)
			if best == nil {
				break
			}
			if undoable && best.rec.EnqueueTTL > 0 {
				return recs
			}
			if s.heldBack(best, now, c.Limits) {
				continue
			}
			if c.Limits.Now > 0 && len(recs) >= c.Limits.Now && s.counts(&best.rec) {
				return recs
			}
			s.serve(best)
			best.rec.Claim(now, c.Worker, c.Lease)
			s.moved(best, false)
			s.started(&best.rec, now)
			recs = append(recs, best.rec.Copy())
			left--
		}
	}
	if left > 0 {
		s.told(c, now)
	}
	return recs
}

// first is the job that a claim takes next from a queue, or from all.
func (s *Reference) first(queue string, c storage.Claim, now time.Time) (best *refJob) {
	for _, j := range s.jobs {
		if (best == nil || j.rec.Priority > best.rec.Priority ||
			j.rec.Priority == best.rec.Priority && j.comesBefore(best)) && s.claimable(j, queue, c, now) {
			best = j
		}
	}
	return best
}

func (s *Reference) claimable(j *refJob, queue string, c storage.Claim, now time.Time) bool {
	return s.asked(j, queue, c, now) && !s.waits(&j.rec, now)
}

// asked reports whether a claim takes the job if no limit holds it back.
func (s *Reference) asked(j *refJob, queue string, c storage.Claim, now time.Time) bool {
	r := &j.rec
	return r.State == ojs.StateAvailable && !r.Expired(now) && s.states[r.Queue] != ojs.QueuePaused &&
		(queue == "" || r.Queue == queue) && c.Takes(r.Type, r.TypeVersion)
}

// Settle implements storage.Storage.
func (s *Reference) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	if err := s.enter(ctx); err != nil {
		return dst, err
	}
	defer s.mu.Unlock()
	if err := storage.CheckThen(changes); err != nil {
		return dst, err
	}
	for i := range changes {
		dst = append(dst, s.settleThen(now, &changes[i]))
	}
	return dst, nil
}

// settleThen makes a change and stores what follows it, or does neither.
func (s *Reference) settleThen(now time.Time, c *storage.Change) (settled storage.Settled) {
	if len(c.Then) == 0 {
		settled = s.settle(&c.Record)
		s.keepLog(c, &settled)
		settled.Moved = s.countEnds(now)
		return settled
	}
	err := s.try(func(trial *Reference) (err error) {
		if settled = trial.settle(&c.Record); settled.Err != nil {
			return nil // the copy is as it was
		}
		trial.keepLog(c, &settled)
		if err := trial.insertable(c.Then); err != nil {
			return err
		}
		if settled.Then, err = trial.insertAll(now, c.Then); err == nil {
			last := &settled.Then[len(settled.Then)-1]
			settled.Moved, last.Moved = last.Moved, nil
		}
		return err
	})
	if err != nil {
		return storage.Settled{Version: c.Record.Version, Err: err}
	}
	return settled
}

// keepLog keeps the log of a change that was applied.
func (s *Reference) keepLog(c *storage.Change, settled *storage.Settled) {
	if c.Log == nil || settled.Err != nil {
		return
	}
	j := s.find(c.Record.ID)
	l := storage.Log{Version: settled.Version, Data: slices.Clone(c.Log)}
	all := slices.Concat(j.logs, []storage.Log{l}) // a trial shares the list
	j.logs = all[max(0, len(all)-storage.MaxLogs):]
}

func (s *Reference) settle(to *storage.Record) storage.Settled {
	j := s.find(to.ID)
	if j == nil {
		return storage.Settled{Err: ojs.ErrNotFound}
	}
	from := j.rec
	if err := from.CanSettle(to); err != nil {
		return storage.Settled{Version: from.Version, Err: err}
	}
	stays := from.State == to.State
	j.rec = to.Copy()
	if j.counted {
		j.rec.Dependencies = from.Dependencies
	}
	j.rec.Version++
	if from.Fairness.Key != to.Fairness.Key {
		if j.round = 0; to.Fairness.Key != "" { // for Unclaim
			j.round = j.entered
		}
	}
	s.moved(j, stays && from.Queue == to.Queue && from.Priority == to.Priority &&
		from.Fairness.Key == to.Fairness.Key)
	return storage.Settled{Version: j.rec.Version}
}

// settleAndClaim is what storage.SettleClaimer says of SettleAndClaim. The reference has
// no such ability to show, so that SameBehaviour compares engines that use it with one
// that does not.
func (s *Reference) settleAndClaim(ctx context.Context, now time.Time, to []*storage.Record,
	dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
	if err := s.enter(ctx); err != nil {
		return dst, 0, err
	}
	defer s.mu.Unlock()
	for _, r := range to {
		settled := s.settle(r)
		settled.Moved = s.countEnds(now)
		dst = append(dst, settled)
	}
	c.Max = len(into)
	recs := s.claim(now, c, true)
	for i := range recs {
		*into[i] = recs[i]
	}
	return dst, len(recs), nil
}

// unclaim is what storage.SettleClaimer says of Unclaim.
func (s *Reference) unclaim(ctx context.Context, held []storage.Held) (n int, err error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	for _, h := range held {
		j := s.find(h.ID)
		if j == nil || j.rec.State != ojs.StateActive || j.rec.Version != h.Version {
			continue
		}
		s.takeBack(&j.rec)
		s.rest(j)
		j.rec.Unclaim()
		n++
	}
	return n, nil
}

// Extend implements storage.Storage.
func (s *Reference) Extend(ctx context.Context, now time.Time, extensions []storage.Extension) (lost []string,
	err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	for _, x := range extensions {
		j := s.find(x.ID)
		if j == nil || j.rec.State != ojs.StateActive || j.rec.Version != x.Version {
			lost = append(lost, x.ID)
			continue
		}
		j.rec.Extend(now, x)
		s.seq++
		j.since = s.seq
	}
	return lost, nil
}

// next is the job that time comes to first, nil if it comes to none.
func (s *Reference) next() (first *refJob) {
	var when time.Time
	for _, j := range s.jobs {
		at := j.rec.WakeAt()
		if at.IsZero() {
			continue
		}
		if first == nil || at.Before(when) || at.Equal(when) && j.since < first.since {
			first, when = j, at
		}
	}
	return first
}

// Due implements storage.Storage.
func (s *Reference) Due(ctx context.Context, now time.Time, limit int,
	buf []storage.Record) (storage.Due, error) {
	d := storage.Due{Promoted: buf[:0]}
	if err := s.enter(ctx); err != nil {
		return storage.Due{}, err
	}
	defer s.mu.Unlock()
	for range limit {
		j := s.next()
		if j == nil || j.rec.WakeAt().After(now) {
			break
		}
		switch {
		case j.rec.Expired(now):
			j.rec.Expire(now)
			d.Expired = append(d.Expired, j.rec.Copy())
		case j.rec.State == ojs.StateActive:
			j.rec.TakeOver(now)
			d.Stalled = append(d.Stalled, j.rec.Copy())
		default:
			j.rec.Promote(now)
			d.Promoted = append(d.Promoted, j.rec.Copy())
		}
		s.moved(j, false)
		d.Moved = append(d.Moved, s.countEnds(now)...)
	}
	if j := s.next(); j != nil {
		d.Next = j.rec.WakeAt()
	}
	return d, nil
}

// Get implements storage.Storage.
func (s *Reference) Get(ctx context.Context, id string) (storage.Record, error) {
	if err := s.enter(ctx); err != nil {
		return storage.Record{}, err
	}
	defer s.mu.Unlock()
	if j := s.find(id); j != nil {
		return j.rec.Copy(), nil
	}
	return storage.Record{}, fmt.Errorf("%w: job %q", ojs.ErrNotFound, id)
}

// List implements storage.Storage.
func (s *Reference) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	walk, err := cursor.Begin(q.Cursor)
	if err != nil {
		return storage.Page{}, err
	}
	if !q.Order.Valid() {
		return storage.Page{}, fmt.Errorf("%w: reference storage has no order %q", ojs.ErrUnsupported,
			q.Order)
	}
	if err := s.enter(ctx); err != nil {
		return storage.Page{}, err
	}
	defer s.mu.Unlock()
	type listed struct {
		at  cursor.Position
		job *refJob
	}
	var jobs []listed
	from := walk.From.After
	for _, j := range s.jobs {
		at, ok := j.place(&q)
		ok = ok && (!q.Indexed() || q.Matches(&j.rec))
		if ok && (walk.First || walk.From.Back == (slices.Compare(at[:], from[:]) <= 0)) {
			jobs = append(jobs, listed{at, j})
		}
	}
	slices.SortFunc(jobs, func(a, b listed) int { return slices.Compare(a.at[:], b.at[:]) })
	if walk.From.Back {
		slices.Reverse(jobs)
	}
	limit := q.Limit
	if limit <= 0 || limit > 1000 {
		limit = 1000
	}
	var page storage.Page
	for _, l := range jobs {
		if len(page.Records) == limit {
			walk.Stop(l.at)
			break
		}
		page.Looked++
		walk.Pass(l.at)
		if q.Matches(&l.job.rec) {
			page.Records = append(page.Records, l.job.rec.Copy())
		}
	}
	if walk.From.Back {
		slices.Reverse(page.Records)
	}
	page.Prev, page.Next = walk.Ends()
	return page, nil
}

// place returns where the job is in the order of a query, false if it is not in it.
func (j *refJob) place(q *storage.Query) (at cursor.Position, ok bool) {
	r := &j.rec
	switch q.Order {
	case storage.OrderFinished:
		at := r.FinishedAt // which may be too far off for nanoseconds
		return cursor.Position{-at.Unix(), -int64(at.Nanosecond()), -int64(j.ended)}, r.State.Terminal()
	case storage.OrderDue:
		return cursor.Position{r.WakeAt().UnixNano(), int64(j.since)}, !r.WakeAt().IsZero()
	case storage.OrderClaim:
		at = cursor.Position{-int64(r.Priority), int64(j.stands()), int64(j.entered)}
		return at, r.State == ojs.StateAvailable
	}
	n := int64(j.inserted)
	if q.DeadLetters {
		n = int64(j.ended)
	}
	if q.Order == storage.OrderNewest {
		n = -n
	}
	return cursor.Position{n}, !q.DeadLetters || r.DeadLettered()
}

// ClaimedBy implements storage.Storage.
func (s *Reference) ClaimedBy(ctx context.Context, worker string) (list []storage.Record, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if j.rec.State == ojs.StateActive && j.rec.Worker == worker {
			list = append(list, j.rec.Copy())
		}
	}
	return list, nil
}

// Counts implements storage.Storage.
func (s *Reference) Counts(ctx context.Context) ([]storage.Count, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var counts []storage.Count
	for _, j := range s.jobs {
		of := storage.Count{Queue: j.rec.Queue, Type: j.rec.Type, State: j.rec.State}
		i := slices.IndexFunc(counts, func(c storage.Count) bool {
			c.N = 0
			return c == of
		})
		if i < 0 {
			i = len(counts)
			counts = append(counts, of)
		}
		counts[i].N++
	}
	return counts, nil
}

// Delete implements storage.Storage.
func (s *Reference) Delete(ctx context.Context, ids []string) (int, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	for _, id := range ids {
		if j := s.find(id); j != nil && !j.rec.State.Terminal() {
			return 0, &ojs.TransitionError{ID: id, From: j.rec.State, To: "deleted"}
		}
	}
	before := len(s.jobs)
	s.remove(func(j *refJob) bool { return slices.Contains(ids, j.rec.ID) })
	return before - len(s.jobs), nil
}

func (s *Reference) remove(which func(j *refJob) bool) {
	s.jobs = slices.DeleteFunc(s.jobs, func(j *refJob) bool {
		if !which(j) {
			return false
		}
		s.floor = max(s.floor, j.rec.Version)
		return true
	})
}

// Prune implements storage.Storage.
func (s *Reference) Prune(ctx context.Context, p storage.Prune) (storage.Pruned, error) {
	var out storage.Pruned
	if err := s.enter(ctx); err != nil {
		return out, err
	}
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if keeper := s.find(j.rec.Keeper()); keeper != nil && j.rec.State.Terminal() &&
			!j.rec.KeptUntil().After(p.Now) && keeper.rec.Keeps(p.Now) && !j.keptOn.After(p.Now) {
			j.keptOn = storage.KeptOn(p.Now, j.rec.FinishedAt)
		}
	}
	for {
		var first *refJob
		n := 0
		for _, j := range s.jobs {
			if s.prunable(j, &p) {
				n++
				if first == nil || j.rec.FinishedAt.Before(first.rec.FinishedAt) ||
					j.rec.FinishedAt.Equal(first.rec.FinishedAt) && j.ended < first.ended {
					first = j
				}
			}
		}
		out.Left, out.Oldest = n, time.Time{}
		if first == nil {
			return out, nil
		}
		out.Oldest = first.rec.FinishedAt
		if len(out.IDs) == p.Max || !p.Selects(out.Oldest, n) {
			return out, nil
		}
		s.remove(func(j *refJob) bool { return j == first })
		out.IDs = append(out.IDs, first.rec.ID)
	}
}

// prunable reports whether a job is one of those that p counts.
func (s *Reference) prunable(j *refJob, p *storage.Prune) bool {
	r := &j.rec
	return r.State.Terminal() && !r.KeptUntil().After(p.Now) && !j.keptOn.After(p.Now) &&
		r.DeadLettered() == p.DeadLetters &&
		(len(p.States) == 0 || slices.Contains(p.States, r.State))
}

// Close implements storage.Storage.
func (s *Reference) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// SetQueueState implements storage.Storage.
func (s *Reference) SetQueueState(ctx context.Context, queue string,
	to ojs.QueueState) (ojs.QueueState, error) {
	if !to.Valid() {
		return "", fmt.Errorf("%w: queue state %q is not active, paused or draining", ojs.ErrInvalid, to)
	}
	if err := s.enter(ctx); err != nil {
		return "", err
	}
	defer s.mu.Unlock()
	was := s.states[queue]
	if was == "" {
		was = ojs.QueueActive
	}
	if s.states[queue] = to; to == ojs.QueueActive {
		delete(s.states, queue)
	}
	return was, nil
}

// QueueStates implements storage.Storage.
func (s *Reference) QueueStates(ctx context.Context) (map[string]ojs.QueueState, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	states := make(map[string]ojs.QueueState)
	for name, state := range s.states {
		states[name] = state
	}
	return states, nil
}
