package postgres

import (
	"context"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// obedience is what a claim knows of limits.
type obedience struct {
	bounds map[int64]string // by the number of a job
	own    map[string]*ojs.RateLimit
	left   []storage.LimitName // queues and types whose limits keep their jobs
	met    bool                // such a limit
	opens  int64               // when time opens one of them; rows.None: never
}

// leaves reports whether the limit of its queue or type keeps a job, as far as the claim
// has met it.
func (p *past) leaves(j *rows.Waiting) bool {
	for _, name := range p.left {
		if name.Name == j.Queue && name.Kind == storage.LimitQueue ||
			name.Kind == storage.LimitType && name.Name == rows.TypeName(j.Type) {
			return true
		}
	}
	return false
}

// leftNames are the names of the limits of a kind that keep their jobs.
func (p *past) leftNames(kind storage.LimitKind) []string {
	names := []string{}
	for _, name := range p.left {
		if name.Kind == kind {
			names = append(names, name.Name)
		}
	}
	return names
}

// leftLane names the lane of claims that leave the same queues and types.
func (p *past) leftLane() (names []string) {
	for _, name := range p.left {
		names = append(names, string(name.Kind)+":"+name.Name)
	}
	slices.Sort(names)
	return names
}

// ownBounds are the bounds of a job with such a text. Nothing bounds a job whose text has
// been spoiled, so that it is found.
func (p *past) ownBounds(j *rows.Waiting) *ojs.RateLimit {
	text := p.bounds[j.Seq]
	if l := p.own[text]; l != nil {
		return l
	}
	l, err := rows.ReadBounds(text)
	if err != nil {
		l = ojs.RateLimit{}
	}
	l.Key = j.Key
	if p.own == nil {
		p.own = make(map[string]*ojs.RateLimit)
	}
	p.own[text] = &l
	return &l
}

// verdict is what limits say of a job that is next.
type verdict int

const (
	mayStart verdict = iota
	isHeld           // it waits
	isGone           // it is dropped or rescheduled
	endsIt           // the claim ends before it
)

// round is a transaction of a claim that meets jobs that limits count.
type round struct {
	*past
	ctx      context.Context
	tx       inTx
	counters map[storage.LimitName]*tallied
	ttl      map[int64]bool // jobs with an enqueue TTL, if those end the claim
	before   int            // jobs that the claim has already

	start  []*rows.Waiting
	gone   []gone
	closed []closing
	left   []storage.LimitName
	opens  int64
	over   bool
	more   bool // another look finds jobs in the places of jobs that were not taken

	got       []stored
	missed    bool // some of start, which others have
	recount   bool // and the decisions rest on them: the round is to begin anew
	done      map[int64]bool
	dropped   []storage.Record
	postponed []storage.Record
	moved     []storage.Record
	undecoded []bad
	added     bool // keys that had no row
	notice    storage.Notice
}

// gone is a job that a limit drops or reschedules.
type gone struct {
	*rows.Waiting
	on ojs.OnLimit
	at int64
}

// closing are bounds that a round has found closed.
type closing struct {
	name string
	own  *ojs.RateLimit
	at   int64
	key  storage.ClosedKey
}

// takeWithin claims jobs, up to so many, as far as limits allow.
func (p *past) takeWithin(picked []rows.Waiting, most int, names []storage.LimitName) (r *round, err error) {
	err = again(func() error {
		return p.s.within(p.ctx, func(ctx context.Context) error {
			return begun(ctx, tuned{p.s}, func(tx transaction) error {
				r = &round{past: p, ctx: ctx, tx: tx.(inTx), before: p.had + len(p.claimed), opens: p.opens,
					left: p.left, done: make(map[int64]bool)}
				return r.make(picked, most, names)
			})
		})
	})
	if err != nil {
		return nil, err
	}
	for _, l := range r.closed {
		if p.s.limits.closed.Close(l.name, l.own, l.at) {
			p.c.Limits.Closed = append(p.c.Limits.Closed, l.key)
		}
	}
	if len(r.left) > len(p.left) {
		p.left, p.met, p.opens = r.left, true, r.opens
	}
	p.over = p.over || r.over
	to := p.c.Limits
	to.Dropped = append(to.Dropped, r.dropped...)
	to.Postponed = append(to.Postponed, r.postponed...)
	to.Moved = append(to.Moved, r.moved...)
	p.s.joinedAll(r.moved)
	_ = p.s.setAsideRead(p.ctx, false, r.undecoded)
	p.s.tell(p.ctx, &r.notice)
	if r.added {
		_ = p.s.forgetIdle(p.ctx, p.now) // another claim will
	}
	return r, nil
}

func (r *round) make(picked []rows.Waiting, most int, names []storage.LimitName) (err error) {
	s := r.s
	if err := r.tx.exec(r.ctx, s.sql.tune); err != nil {
		return err
	}
	if len(names) > 0 {
		if err := s.lockLimits(r.ctx, r.tx, names); err != nil {
			return err
		}
	}
	if r.counters, err = s.counters(r.ctx, r.tx, names); err != nil {
		return err
	}
	if r.plain {
		if err := r.readTTL(picked); err != nil {
			return err
		}
	}
	if err := r.decide(picked, most); err != nil {
		return err
	}
	if err := r.claim(); err != nil {
		return err
	}
	if r.recount {
		// The decisions count starts that were none.
		r.closed, r.gone, r.left, r.over = nil, nil, r.past.left, false
	}
	if r.added, err = s.storeStarts(r.ctx, r.tx, r.now, r.counters); err != nil {
		return err
	}
	return r.putAway()
}

// readTTL finds out which jobs have an enqueue TTL.
func (r *round) readTTL(picked []rows.Waiting) error {
	r.ttl = make(map[int64]bool)
	seqs := make([]int64, len(picked))
	for i := range picked {
		seqs[i] = picked[i].Seq
	}
	var seq int64
	return r.tx.query(r.ctx, r.s.sql.withTTL, []any{seqs}, each([]any{&seq}, func() { r.ttl[seq] = true }))
}

// decide decides which of the jobs start, and what happens to the others.
func (r *round) decide(picked []rows.Waiting, most int) error {
	for i := range picked {
		j := &picked[i]
		if len(r.start) == most {
			return nil
		}
		if r.leaves(j) {
			r.more = true
			continue
		}
		v, err := r.judge(j)
		if err != nil {
			return err
		}
		switch v {
		case mayStart:
			if r.behindOwn(j) {
				r.more = true
				return nil
			}
			r.count(j)
			r.start = append(r.start, j)
		case endsIt:
			r.over = true
			return nil
		default:
			r.more = true
		}
	}
	return nil
}

// leaves is past.leaves with what the round has met.
func (r *round) leaves(j *rows.Waiting) bool {
	return (&past{obedience: obedience{left: r.left}}).leaves(j)
}

// judge asks the limits of a job that is next.
func (r *round) judge(j *rows.Waiting) (verdict, error) {
	bounds := r.bounds[j.Seq]
	ends := r.plain && r.ttl[j.Seq]
	names := limitsOf(r.s.limits.wide, j.Queue, j.Type, bounds, j.Key)
	for _, name := range names {
		t, own := r.counters[name], new(ojs.RateLimit)
		if name.Kind == storage.LimitKey {
			own = r.ownBounds(j)
		}
		at, open, err := r.s.opens(r.ctx, r.tx, t, own, r.now)
		switch {
		case err != nil:
			return 0, err
		case open:
		case name.Kind != storage.LimitKey:
			r.left = append(slices.Clip(r.left), name)
			if at != rows.None && (r.opens == rows.None || at < r.opens) {
				r.opens = at
			}
			return isHeld, nil
		case own.OnLimit == ojs.OnLimitDrop || own.OnLimit == ojs.OnLimitReschedule:
			if ends {
				return endsIt, nil
			}
			r.gone = append(r.gone, gone{j, own.OnLimit, at})
			return isGone, nil
		default:
			r.closed = append(r.closed, closing{bounds, own, at, t.Closes(own, r.now)})
			return isHeld, nil
		}
	}
	n := r.c.Limits.Now
	if ends || len(names) > 0 && n > 0 && r.before+len(r.start) >= n {
		return endsIt, nil
	}
	return mayStart, nil
}

// behindOwn reports whether a limit of the job has a start of this round that is not the
// latest, since clocks differ: then the next round decides.
func (r *round) behindOwn(j *rows.Waiting) bool {
	for _, name := range limitsOf(r.s.limits.wide, j.Queue, j.Type, r.bounds[j.Seq], j.Key) {
		if t := r.counters[name]; t.starts > 0 && t.was.Started > 0 && t.was.LastStart > r.now {
			return true
		}
	}
	return false
}

// count counts the start of a job for the jobs behind it.
func (r *round) count(j *rows.Waiting) {
	for _, name := range limitsOf(r.s.limits.wide, j.Queue, j.Type, r.bounds[j.Seq], j.Key) {
		if name.Kind == storage.LimitKey {
			r.counters[name].start(r.ownBounds(j), r.bounds[j.Seq], r.now)
		} else {
			r.counters[name].start(nil, "", r.now)
		}
	}
}

// claim makes the jobs of start active. Jobs that another transaction has locked are
// missed.
func (r *round) claim() error {
	if len(r.start) == 0 {
		return nil
	}
	got, err := r.takeThese(r.ctx, r.tx, r.start, len(r.start))
	if err != nil {
		return err
	}
	r.got = got
	starts := make(map[int64]bool, len(got)) // without jobs that do not decode [quarantine-1]
	for i := range got {
		r.done[got[i].seq] = true
		if _, err := rows.Decode(&got[i].Columns); err == nil {
			starts[got[i].seq] = true
		}
	}
	if r.missed = len(starts) < len(r.start); !r.missed {
		return nil
	}
	r.recount = r.over             // perhaps because of their number
	for _, t := range r.counters { // count the jobs that have started
		t.Counter, t.starts = t.was, 0
	}
	for _, j := range r.start {
		if starts[j.Seq] {
			r.count(j)
		} else if len(limitsOf(r.s.limits.wide, j.Queue, j.Type, r.bounds[j.Seq], j.Key)) > 0 {
			r.recount = true
		}
	}
	return nil
}

// putAway drops and reschedules jobs, in the order of the claim.
func (r *round) putAway() error {
	if len(r.gone) == 0 {
		return nil
	}
	seqs := make([]int64, len(r.gone))
	for i, g := range r.gone {
		seqs[i] = g.Seq
	}
	list, err := selectRows(r.ctx, r.tx, false, r.s.sql.lockReady, seqs)
	if err != nil {
		return err
	}
	locked := make(map[int64]*rows.Row, len(list))
	for i := range list {
		row, err := list[i].decode()
		if err != nil {
			r.undecoded = append(r.undecoded, bad{list[i], err})
			continue
		}
		locked[row.Seq] = row
	}
	now := rows.Time(r.now)
	for _, g := range r.gone {
		row := locked[g.Seq]
		if row == nil {
			r.missed, r.recount = true, true
			continue
		}
		var o settling
		if g.on == ojs.OnLimitDrop {
			row.Limit(now)
			o.sameJob = true
			r.dropped = append(r.dropped, row.Record)
		} else {
			row.Postpone(now, rows.Time(g.at))
			r.postponed = append(r.postponed, row.Record)
		}
		w, err := encode(&row.Record)
		if err != nil {
			return err
		}
		o.encoded, o.froms = []written{w}, []int64{1 << rows.Available}
		applied, list, err := r.s.applyCounting(r.ctx, r.tx, o)
		if err == nil && applied[0] == 0 {
			err = errNotLocked
		}
		if err != nil {
			return err
		}
		r.done[g.Seq] = true
		rows.Note(&r.notice, &w.Columns)
		if len(list) == 0 {
			continue
		}
		c := r.s.counter(r.ctx, r.tx)
		moved, err := c.count(now, list...)
		if err == nil {
			err = c.store()
		}
		if err != nil {
			return err
		}
		r.moved = append(r.moved, moved...)
		r.undecoded = append(r.undecoded, c.met...)
		noteMoved(&r.notice, moved)
	}
	return nil
}

// tell completes what a claim says of limits. It has taken less than it wanted: left.
func (p *past) tell(left bool) {
	x, to := &p.s.limits, p.c.Limits
	left = left && !p.over
	if left {
		x.met = p.met
	}
	to.Held = x.closed.Len() > 0 || x.met || p.met
	p.s.held.Store(to.Held)
	opens := x.closed.Opens()
	if at := rows.Time(p.opens); !at.IsZero() && (opens.IsZero() || at.Before(opens)) {
		opens = at
	}
	if left {
		to.Opens = opens
	}
	if !opens.IsZero() && !opens.Equal(x.told) {
		x.told = opens
		p.s.tell(p.ctx, &storage.Notice{Opens: opens})
	}
}
