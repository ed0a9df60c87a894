package postgres

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/depend"
)

// picked is a job that a claim with limits has picked and locked.
type picked struct {
	seq                        int64
	queue, jobType, key, limit string // limit is its bounds, "" if it has none
	ends, wide                 bool   // it ends a step; the limit of its queue or type counts it
}

// round is a transaction of a claim that meets jobs that limits count.
type round struct {
	*claims
	ctx      context.Context
	tx       inTx
	counters map[storage.LimitName]*tallied
	wide     wideSet
	most     int // how many jobs it claims

	start []*picked
	gone  []gone
	leave []string
	opens int64
	over  bool
	more  bool                      // another round may find jobs
	aside map[string]*ojs.RateLimit // bounds that let no job start

	shut      []closedLane
	dropped   []storage.Record
	postponed []storage.Record
	moved     []storage.Record
	undecoded []bad
	said      said
	notice    storage.Notice
}

// gone is a job that a limit drops or reschedules.
type gone struct {
	*picked
	on ojs.OnLimit
	at int64
}

// verdict is what limits say of a job that is next.
type verdict int

const (
	mayStart verdict = iota
	isHeld           // it waits
	isGone           // it is dropped or rescheduled
	endsIt           // the claim ends before it
	unknown          // its limits are not locked
)

// claimLimited claims what a claim lacks, as far as limits allow. Jobs that it has
// claimed before an error are claimed.
func (s *Storage) claimLimited(ctx context.Context, a *claims) error {
	s.limited.Store(true)
	const tries = 20
	for try := 0; try < tries && a.left() > 0 && !a.over; try++ {
		var r *round
		err := s.transact(ctx, tuned{s}, func(ctx context.Context, tx transaction) error {
			r = &round{claims: a, ctx: ctx, tx: tx.(inTx), most: a.left(), opens: a.opens,
				leave: a.leave, aside: make(map[string]*ojs.RateLimit)}
			return r.make()
		})
		if err != nil {
			return err
		}
		started, spoiled := len(a.ords), a.took(ctx)
		r.said.added = r.said.added || a.added
		a.leave, a.opens, a.said, a.shut = r.leave, r.opens, r.said, append(a.shut, r.shut...)
		a.over = r.over
		to := a.c.Limits
		to.Dropped = append(to.Dropped, r.dropped...)
		to.Postponed = append(to.Postponed, r.postponed...)
		to.Moved = append(to.Moved, r.moved...)
		_ = s.setAsideRead(ctx, false, r.undecoded)
		s.tell(ctx, &r.notice)
		if !r.more && !a.more && !spoiled {
			break
		}
		if started+len(a.met)+len(r.gone)+len(r.aside) > 0 {
			try = -1 // it goes on with fewer
		}
	}
	return nil
}

var pickHeadsSQL = picking("pickHeads", endsStep, limitPick, "$8",
	" SELECT seq, queue, type, coalesce(key, ''), coalesce(bounds, ''), ends, wide FROM picked")

func (r *round) make() (err error) {
	s := r.s
	var locked lockedLimits
	err = r.all([]sent{{sql: s.sql[tuneSQL]},
		{r.variant(lockHeadsSQL), r.inQueues(r.looks(r.most)), locked.read()}})
	if err != nil {
		return err
	}
	var list []picked
	var j picked
	read := each([]any{&j.seq, &j.queue, &j.jobType, &j.key, &j.limit, &j.ends, &j.wide},
		func() { list = append(list, j) })
	err = r.all([]sent{{sql: s.sql[promoteSQL], args: []any{r.most}},
		{r.variant(pickHeadsSQL), r.inQueues(r.looks(r.most)), read}})
	if err != nil {
		return err
	}
	names := locked.list()
	r.wide = make(wideSet)
	for _, name := range names {
		r.wide[name] = name.Kind != storage.LimitKey
	}
	if r.counters, err = s.counters(r.ctx, r.tx, names); err != nil {
		return err
	}
	if err := r.decide(list); err != nil {
		return err
	}
	r.more = r.more || len(list) == r.most && len(r.start) < r.most
	if err := r.claim(); err != nil {
		return err
	}
	if err := s.storeStarts(r.ctx, r.tx, r.now, r.counters); err != nil {
		return err
	}
	if err := r.putAway(); err != nil {
		return err
	}
	r.said.added = locked.added
	return r.setAside()
}

// all makes statements in one round trip.
func (r *round) all(list []sent) error {
	return readBatch(r.tx.SendBatch(r.ctx, batchOf(list)), list)
}

// decide decides which of the jobs start, and what happens to the others.
func (r *round) decide(list []picked) error {
	for i := range list {
		j := &list[i]
		if len(r.start) == r.most {
			return nil
		}
		if slices.Contains(r.leave, "queue "+j.queue) ||
			slices.Contains(r.leave, "type "+rows.TypeName(j.jobType)) {
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
		case unknown:
			r.more = true
			return nil
		}
	}
	return nil
}

// limits are the limits that count a job.
func (r *round) limits(j *picked) []storage.LimitName {
	return limitsOf(r.wide, j.queue, j.jobType, j.limit, j.key)
}

// judge asks the limits of a job that is next.
func (r *round) judge(j *picked) (verdict, error) {
	ends := r.step && j.ends
	names := r.limits(j)
	if j.wide && names[0].Kind == storage.LimitKey {
		return unknown, nil
	}
	for _, name := range names {
		t, own := r.counters[name], new(ojs.RateLimit)
		if t == nil {
			return unknown, nil
		}
		if name.Kind == storage.LimitKey {
			own = r.ownBounds(j)
		}
		at, open, err := r.s.opens(r.ctx, r.tx, t, own, r.now)
		switch {
		case err != nil:
			return 0, err
		case open:
		case name.Kind != storage.LimitKey:
			r.leave = append(slices.Clip(r.leave), string(name.Kind)+" "+name.Name)
			r.more = true
			if at != rows.None && (r.opens == rows.None || at < r.opens) {
				r.opens = at
			}
			return isHeld, nil
		case own.OnLimit == ojs.OnLimitDrop || own.OnLimit == ojs.OnLimitReschedule:
			if ends {
				return endsIt, nil
			}
			r.gone = append(r.gone, gone{j, own.OnLimit, at})
			r.more = true
			return isGone, nil
		default:
			r.aside[j.limit] = own
			return isHeld, nil
		}
	}
	if ends || len(names) > 0 && len(r.start) >= r.startsLeft() {
		return endsIt, nil
	}
	return mayStart, nil
}

// ownBounds are the bounds of a job. Nothing bounds a job whose text has been spoiled, so
// that it is found.
func (r *round) ownBounds(j *picked) *ojs.RateLimit {
	l, err := rows.ReadBounds(j.limit)
	if err != nil {
		l = ojs.RateLimit{}
	}
	if j.key != "" {
		l.Key = j.key
	}
	return &l
}

// behindOwn reports whether a limit of the job has a start of this round that is not the
// latest, since clocks differ: then the next round decides.
func (r *round) behindOwn(j *picked) bool {
	for _, name := range r.limits(j) {
		if t := r.counters[name]; t.starts > 0 && t.was.Started > 0 && t.was.LastStart > r.now {
			return true
		}
	}
	return false
}

// count counts the start of a job for the jobs behind it.
func (r *round) count(j *picked) {
	for _, name := range r.limits(j) {
		if name.Kind == storage.LimitKey {
			r.counters[name].start(r.ownBounds(j), j.limit, r.now)
		} else {
			r.counters[name].start(nil, "", r.now)
		}
	}
}

// claimTheseSQL makes the jobs $4 active, which the transaction has locked.
var claimTheseSQL = define("claimThese",
	"WITH numbered AS MATERIALIZED (SELECT nextval('{schema}.place') AS place, u.seq"+
		" FROM unnest($4::bigint[]) u (seq)), "+strings.NewReplacer("$8", "$2", "{until_claimed}",
		untilGiven("b.lease", "$3")).Replace(take+takenJobs))

// claim makes the jobs of start active.
func (r *round) claim() error {
	r.ords, r.met = nil, nil
	if len(r.start) == 0 {
		return nil
	}
	seqs := make([]int64, len(r.start))
	for i, j := range r.start {
		seqs[i] = j.seq
	}
	args := []any{r.now, r.c.Worker, givenLease(r.c.Lease), seqs}
	err := r.tx.query(r.ctx, r.s.sql[claimTheseSQL], args, r.read)
	if err != nil || len(r.met) == 0 {
		return err
	}
	for _, t := range r.counters { // jobs that do not decode are no starts [quarantine-1]
		t.Counter, t.starts = t.was, 0
	}
	for _, j := range r.start {
		if !slices.ContainsFunc(r.met, func(b bad) bool { return b.seq == j.seq }) {
			r.count(j)
		}
	}
	return nil
}

var judgeSQL = define("judge", `INSERT INTO {schema}.job_judge SELECT unnest($1::text[])`)

// shutLanesSQL sets the heads of the lanes of the keys $1 with the bounds $2 aside.
var shutLanesSQL = define("shutLanes", `UPDATE {schema}.ready SET head = false WHERE seq = ANY (ARRAY(
		SELECT c.seq FROM unnest($1::text[], $2::text[]) u (name, bounds) CROSS JOIN LATERAL (
			SELECT r.seq FROM {schema}.ready r
			WHERE r.rate_key = u.name AND r.bounds = u.bounds AND r.head FOR UPDATE SKIP LOCKED) c))`)

var setOpensSQL = define("setOpens", `UPDATE {schema}.job_limit l SET opens = nullif(u.opens, {none})
		FROM unnest($1::text[], $2::bigint[]) u (name, opens)
		WHERE l.kind = 'key' AND l.name = u.name AND l.opens IS DISTINCT FROM nullif(u.opens, {none})`)

// heldSQL returns whether jobs are set aside, whether lanes are to be judged, and when
// time opens a limit.
var heldSQL = define("held", `SELECT EXISTS (SELECT FROM {schema}.ready WHERE NOT head AND attempt >= 0), {judging},
		coalesce((SELECT opens FROM {schema}.job_limit WHERE opens IS NOT NULL ORDER BY opens LIMIT 1), {none})`)

// setAside sets the heads aside that may not start, and stores when time opens the lanes
// of their keys.
func (r *round) setAside() error {
	var keys, bounds []string
	for text, own := range r.aside {
		keys, bounds = append(keys, own.Key), append(bounds, text)
	}
	var list []string
	var text string
	var active int
	var pending bool
	closed := sent{r.s.sql[closedSQL], nil, each([]any{&text, &active}, func() { list = append(list, text) })}
	err := r.all([]sent{{sql: r.s.sql[shutLanesSQL], args: []any{keys, bounds}}, closed})
	if err != nil {
		return err
	}
	var locked []string
	for name, t := range r.counters {
		if name.Kind == storage.LimitKey {
			locked = append(locked, name.Name)
		}
		if t.starts > 0 && t.was.LastStart > r.now && t.was.Started > 0 { // clocks differ
			r.counters, err = r.s.counters(r.ctx, r.tx, slices.Collect(maps.Keys(r.counters)))
			if err != nil {
				return err
			}
		}
	}
	opens := slices.Repeat([]int64{rows.None}, len(locked))
	var again []string
	for _, text := range list {
		own := r.ownBounds(&picked{limit: text})
		t := r.counters[storage.LimitName{Kind: storage.LimitKey, Name: own.Key}]
		if t == nil {
			continue
		}
		at, open, err := r.s.opens(r.ctx, r.tx, t, own, r.now)
		switch {
		case err != nil:
			return err
		case open || own.OnLimit == ojs.OnLimitDrop || own.OnLimit == ojs.OnLimitReschedule:
			again = append(again, own.Key)
			continue
		}
		r.shut = append(r.shut, closedLane{*own, t.Closes(own, r.now)})
		if i := slices.Index(locked, own.Key); at != rows.None && (opens[i] == rows.None || at < opens[i]) {
			opens[i] = at
		}
	}
	last := []sent{{sql: r.s.sql[setOpensSQL], args: []any{locked, opens}}}
	if len(again) > 0 {
		last = append(last, sent{sql: r.s.sql[judgeSQL], args: []any{again}})
	}
	last = append(last, sent{r.s.sql[heldSQL], []any{r.now},
		each([]any{&r.said.held, &pending, &r.said.first}, func() {
			if r.said.more = pending; !r.said.held {
				r.said.first = rows.None
			}
		})})
	return r.all(last)
}

var bySeqSQL = define("bySeq", `SELECT {columns} FROM {whole} WHERE seq = ANY ($1::bigint[])`)

// putAway drops and reschedules jobs, in the order of the claim.
func (r *round) putAway() error {
	if len(r.gone) == 0 {
		return nil
	}
	seqs := make([]int64, len(r.gone))
	for i, g := range r.gone {
		seqs[i] = g.seq
	}
	list, err := selectRows(r.ctx, r.tx, false, r.s.sql[bySeqSQL], seqs)
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
		row := locked[g.seq]
		if row == nil { // it does not decode
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
		w, err := rows.Encode(&row.Record)
		if err != nil {
			return err
		}
		o.encoded, o.froms = []written{w}, []int64{1 << rows.Available}
		_, list, err := r.s.applyLocked(r.ctx, r.tx, o)
		if err != nil {
			return err
		}
		rows.Note(&r.notice, &w)
		if len(list) == 0 {
			continue
		}
		c := r.s.counter(r.ctx, r.tx, list...)
		moved := depend.Count(c, now, nil)
		if err := c.end(); err != nil {
			return err
		}
		r.moved = append(r.moved, moved...)
		r.undecoded = append(r.undecoded, c.met...)
		noteMoved(&r.notice, moved)
	}
	return nil
}
