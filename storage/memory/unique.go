package memory

import (
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// peers are the jobs of one fingerprint, by state and the newest first. Whether any of
// them is in the way of a new job is told by one look per state, however many there are:
// if the newest is too old, so are the others.
type peers struct {
	byState [len(states)]heap[*job]
	n       int
	first   [1]*job // room for one, as there is almost always
}

func (j *job) before(k *job) bool {
	if !j.createdAt().Equal(k.createdAt()) {
		return j.createdAt().After(k.createdAt())
	}
	return j.ord > k.ord
}
func (j *job) moved(to int) { j.rest.peerAt = to }

func (s *Storage) addPeer(j *job) {
	fp := j.fingerprint()
	if fp == "" {
		return
	}
	p := s.unique[fp]
	if p == nil {
		p = new(peers)
		p.byState[j.state].items = p.first[:0]
		s.unique[fp] = p
	}
	p.byState[j.state].push(j)
	p.n++
}

func (s *Storage) removePeer(j *job) {
	fp := j.fingerprint()
	if fp == "" {
		return
	}
	p := s.unique[fp]
	p.byState[j.state].remove(j.rest.peerAt)
	if p.n--; p.n == 0 {
		delete(s.unique, fp)
	}
}

// plan is what uniqueness makes of a batch, before anything of it is done.
type plan struct {
	fates  []fate
	gone   map[*job]bool    // stored jobs that the batch cancels
	placed map[string][]int // by fingerprint: the batch's jobs that will be stored
	after  *lead            // the change that the batch follows
}

// fate is what happens to one job of a batch.
type fate struct {
	equal    *peer // the job that it duplicates, so that it is not stored; nil: it is stored
	update   bool  // equal gets its args and meta
	replaces []peer
	replaced bool // by a later one of the batch
}

// peer is an equal job: a stored one, or one of the batch.
type peer struct {
	stored *job
	index  int
}

// resolve decides on the conflicts of a batch: of each of its jobs with what is stored
// and with those before it. It is nil if no job of the batch is unique.
func (s *Storage) resolve(batch []storage.Insert, now time.Time, after *lead) (*plan, error) {
	conflicts := false
	for i := range batch {
		fp := batch[i].Record.Fingerprint
		// a lone job conflicts only with stored jobs
		conflicts = conflicts || fp != "" && (len(batch) > 1 || s.unique[fp] != nil)
	}
	if !conflicts && after == nil {
		return nil, nil
	}
	p := &plan{fates: make([]fate, len(batch)), gone: make(map[*job]bool), after: after}
	p.placed = make(map[string][]int)
	for i := range batch {
		rec := &batch[i].Record
		if rec.Fingerprint == "" {
			continue
		}
		if rec.Unique != nil {
			if err := s.resolveOne(p, batch, i, now); err != nil {
				return nil, err
			}
		}
		if p.fates[i].equal == nil {
			p.placed[rec.Fingerprint] = append(p.placed[rec.Fingerprint], i)
		}
	}
	return p, nil
}

func (s *Storage) resolveOne(p *plan, batch []storage.Insert, i int, now time.Time) error {
	rec, f := &batch[i].Record, &p.fates[i]
	newest, ok := s.newest(p, batch, rec, now, func(ojs.State) bool { return true })
	if !ok {
		return nil
	}
	switch rec.Unique.Strategy() {
	case ojs.ConflictIgnore:
		f.equal = &newest
	case ojs.ConflictReplaceExceptSchedule, ojs.ConflictDebounce:
		if scheduled, ok := s.newest(p, batch, rec, now,
			func(s ojs.State) bool { return s == ojs.StateScheduled }); ok && rec.TakenOver() {
			f.equal, f.update = &scheduled, true
		}
		fallthrough
	case ojs.ConflictReplace:
		f.replaces = s.open(p, batch, rec, now)
		if f.update {
			f.replaces = slices.DeleteFunc(f.replaces, func(q peer) bool { return q == *f.equal })
		}
		for _, q := range slices.Backward(f.replaces) {
			if batch[i].KeepActive && q.stored != nil && q.stored.current() == ojs.StateActive {
				return &ojs.DuplicateError{ID: q.stored.id, State: ojs.StateActive,
					Fingerprint: rec.Fingerprint}
			}
		}
		for _, q := range f.replaces {
			if q.stored != nil {
				p.gone[q.stored] = true
				continue
			}
			p.fates[q.index].replaced = true
		}
	default:
		id, state := p.look(newest, batch)
		return &ojs.DuplicateError{ID: id, State: state, Fingerprint: rec.Fingerprint}
	}
	return nil
}

// look returns the id of a job, and the state that the batch so far leaves it in.
func (p *plan) look(q peer, batch []storage.Insert) (string, ojs.State) {
	if q.stored == nil {
		if r := &batch[q.index].Record; !p.fates[q.index].replaced {
			return r.ID, r.State
		}
		return batch[q.index].Record.ID, ojs.StateCancelled
	}
	if p.gone[q.stored] {
		return q.stored.id, ojs.StateCancelled
	}
	return q.stored.id, p.after.state(q.stored)
}

// newest finds the newest job that is in the way of rec and in a state for which ok
// holds.
func (s *Storage) newest(
	p *plan, batch []storage.Insert, rec *storage.Record, now time.Time, ok func(ojs.State) bool,
) (peer, bool) {
	mine, created := -1, time.Time{} // of the batch
	for _, k := range p.placed[rec.Fingerprint] {
		at := batch[k].Record.CreatedAt
		_, state := p.look(peer{index: k}, batch)
		if ok(state) && rec.Unique.Counts(state, at, now) && (mine < 0 || !at.Before(created)) {
			mine, created = k, at
		}
	}
	best := s.newestStored(p, rec, now, ok)
	if mine >= 0 && (best == nil || !best.createdAt().After(created)) {
		return peer{index: mine}, true
	}
	return peer{stored: best}, best != nil
}

func (s *Storage) newestStored(
	p *plan, rec *storage.Record, now time.Time, ok func(ojs.State) bool,
) (best *job) {
	there := s.unique[rec.Fingerprint]
	if there == nil {
		return nil
	}
	for i := range there.byState {
		if !ok(states[i]) {
			continue
		}
		there.byState[i].search(0, func(j *job) bool {
			if p.goes(j) {
				return false
			}
			if rec.Unique.Counts(j.current(), j.createdAt(), now) && (best == nil || j.before(best)) {
				best = j
			}
			return true
		})
	}
	for j := range p.gone { // cancelled by now
		if j.fingerprint() == rec.Fingerprint && ok(ojs.StateCancelled) && (best == nil || j.before(best)) &&
			rec.Unique.Counts(ojs.StateCancelled, j.createdAt(), now) {
			best = j
		}
	}
	if e := p.after; e != nil && e.job.fingerprint() == rec.Fingerprint && ok(e.to.State) &&
		(best == nil || e.job.before(best)) && rec.Unique.Counts(e.to.State, e.job.createdAt(), now) {
		best = e.job
	}
	return best
}

// open returns every job that is in the way of rec and has not ended, the oldest first.
func (s *Storage) open(p *plan, batch []storage.Insert, rec *storage.Record, now time.Time) []peer {
	var all []peer
	if there := s.unique[rec.Fingerprint]; there != nil {
		for i := range there.byState {
			if states[i].Terminal() {
				continue
			}
			for _, j := range there.byState[i].items {
				if !p.goes(j) && rec.Unique.Counts(j.current(), j.createdAt(), now) {
					all = append(all, peer{stored: j})
				}
			}
		}
		slices.SortFunc(all, func(a, b peer) int {
			if b.stored.before(a.stored) {
				return -1
			}
			return 1
		})
	}
	stored := len(all)
	for _, k := range p.placed[rec.Fingerprint] {
		r := &batch[k].Record
		if !p.fates[k].replaced && rec.Unique.Counts(r.State, r.CreatedAt, now) {
			all = append(all, peer{index: k})
		}
	}
	if len(all) > stored { // what comes last may have been created first
		created := func(q peer) time.Time {
			if q.stored != nil {
				return q.stored.createdAt()
			}
			return batch[q.index].Record.CreatedAt
		}
		slices.SortStableFunc(all, func(a, b peer) int { return created(a).Compare(created(b)) })
	}
	return all
}

// stores reports whether the i-th job of the batch is stored, stays whether it is not
// replaced at once.
func (p *plan) stores(i int) bool { return p == nil || p.fates[i].equal == nil }

func (p *plan) stays(i int) bool { return p == nil || p.fates[i].equal == nil && !p.fates[i].replaced }

// goes reports whether a stored job ends before the jobs of the batch are counted.
func (p *plan) goes(j *job) bool {
	return p != nil && (p.gone[j] || p.after != nil && p.after.job == j)
}

// leaves counts the stored jobs of a queue that go.
func (p *plan) leaves(queue string) (n int) {
	if p != nil {
		if p.after != nil && p.after.job.kind.queue == queue {
			n++
		}
		for j := range p.gone {
			if j.kind.queue == queue {
				n++
			}
		}
	}
	return n
}

// carryOut does to the equals of the i-th job of the batch what the plan says, before
// that job is stored. Stored has those of the batch that have been stored so far.
func (s *Storage) carryOut(
	p *plan, i int, batch []storage.Insert, stored []*job, now time.Time, result *storage.Inserted,
) {
	if p == nil {
		return
	}
	find := func(q peer) *job {
		if q.stored != nil {
			return q.stored
		}
		return stored[q.index]
	}
	f := &p.fates[i]
	for _, q := range f.replaces {
		j := find(q)
		if j.current() == ojs.StateActive {
			s.taken(j.id, j.version, ojs.ErrReplaced)
		}
		result.Replaced = s.change(j, result.Replaced, func(r *storage.Record) { r.Cancel(now) })
	}
	if f.equal == nil {
		return
	}
	j := find(*f.equal)
	r := j.record()
	if f.update {
		from := batch[i].Record.Copy()
		r.Update(&from)
		s.set(j, &r)
		s.wakeAnew(j)
	}
	result.Existing, result.Updated = &r, f.update
}
