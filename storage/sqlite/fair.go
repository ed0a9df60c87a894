package sqlite

import "github.com/ojsengine/ojs/internal/rows"

// Jobs with a fairness key take turns in rounds (package storage, Fairness).
//
//   - The column place of such a job is that of its round while it is available, and
//     own_place is where it would stand without its key. An available job without a key
//     has 0 there. So the order of claims is priority, place, own_place for all jobs.
//   - claimJob moves place to ready_place and leaves own_place, for Unclaim.
//   - The table served has the latest round of which a job was claimed, for each level.
//     It means nothing once the level has no job. A job that leaves need not look for
//     that: one that enters does (rest).

// level names the available jobs with a fairness key of one queue and priority.
type level struct {
	queue    string
	priority int
}

func (r *stored) level() level { return level{r.Queue, r.Priority} }

// servedRound is a row of the table served, as the transaction has it.
type servedRound struct {
	place   int64 // 0: no job was claimed
	changed bool
}

// enterPlace gives a job a new place, and one that becomes available its round. Another
// job may be stored under its seq yet.
func (t *tx) enterPlace(r *stored) error {
	r.place, r.own = t.nextPlace(), 0
	if r.State != rows.Available || r.FairKey == "" {
		return nil
	}
	r.own = r.place
	if err := t.rest(r.level(), r.seq); err != nil {
		return err
	}
	s, err := t.servedOf(r.level())
	if err != nil {
		return err
	}
	last, n := int64(0), 0 // the latest round of the key, and its jobs there
	q := t.query(lastRound, r.Queue, r.Priority, r.FairKey, r.seq, r.Share)
	for q.next() {
		place := q.int64()
		if n > 0 && place != last {
			break
		}
		last = place
		n++
	}
	if err := q.close(); err != nil {
		return err
	}
	if last > s.place && n < r.Share {
		r.place = last
	} else {
		q := t.query(nextRound, r.Queue, r.Priority, max(last, s.place), r.seq)
		if q.next() {
			r.place = q.int64()
		}
		if err := q.close(); err != nil {
			return err
		}
	}
	t.entersRound(r)
	return nil
}

// entersRound has claims look at a job that has joined a round.
func (t *tx) entersRound(r *stored) {
	if r.place < r.own {
		t.lanes.Enter(rows.Position{Priority: r.Priority, Spot: rows.Spot{Place: r.place, Own: r.own}})
		t.behind++
	}
}

// serve notes that a job is claimed.
func (t *tx) serve(r *stored) error {
	if r.FairKey == "" {
		return nil
	}
	s, err := t.servedOf(r.level())
	if err == nil && s.place < r.place {
		s.place, s.changed = r.place, true
	}
	return err
}

// rest forgets which rounds of a level have been served, if no other job is there.
func (t *tx) rest(l level, seq int64) error {
	s, err := t.servedOf(l)
	if err != nil || s.place == 0 {
		return err
	}
	some, err := t.hasRounds(l, seq)
	if err == nil && !some {
		s.place, s.changed = 0, true
	}
	return err
}

// hasRounds reports whether a level has a job besides one.
func (t *tx) hasRounds(l level, seq int64) (bool, error) {
	q := t.query(nextRound, l.queue, l.priority, 0, seq)
	some := q.next()
	return some, q.close()
}

// servedOf returns what the transaction knows of a level.
func (t *tx) servedOf(l level) (*servedRound, error) {
	if s := t.levels[l]; s != nil {
		return s, nil
	}
	s := new(servedRound)
	q := t.query(selectServed, l.queue, l.priority)
	if q.next() {
		s.place = q.int64()
	}
	if err := q.close(); err != nil {
		return nil, err
	}
	if t.levels == nil {
		t.levels = make(map[level]*servedRound)
	}
	t.levels[l] = s
	return s, nil
}

// flushServed writes what has changed, and forgets levels that have no job.
func (t *tx) flushServed() error {
	for l, s := range t.levels {
		if !s.changed {
			continue
		}
		if err := t.rest(l, 0); err != nil {
			return err
		}
		sql, args := upsertServed, []any{l.queue, l.priority, s.place}
		if s.place == 0 {
			sql, args = deleteServed, args[:2]
		}
		if err := t.exec(sql, args...); err != nil {
			return err
		}
	}
	return nil
}
