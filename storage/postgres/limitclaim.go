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
	"github.com/ojsengine/ojs/storage/rule"
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
	*tx
	counters map[storage.LimitName]*tallied

	start []*picked
	gone  []gone
	more  bool                      // another round may find jobs
	aside map[string]*ojs.RateLimit // bounds that let no job start

	dropped   []storage.Record
	postponed []storage.Record
	moved     []storage.Record
	undecoded []bad
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
		before := *a.asking
		var r *round
		err := s.transact(ctx, tuned{s: s}, func(t *tx) {
			*a.asking = before // or what a round has changed that is undone
			a.said = said{added: before.added}
			r = &round{claims: a, tx: t, aside: make(map[string]*ojs.RateLimit)}
			r.make()
		})
		if err != nil {
			*a.asking = before
			return err
		}
		started, spoiled := len(a.ords), a.took(ctx)
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

func (r *round) make() {
	var locked lockedLimits
	r.send(r.s.sent(tuneSQL, nil), r.looking(lockHeadsSQL, r.left(), locked.read()))
	var list []picked
	var j picked
	read := each([]any{&j.seq, &j.queue, &j.jobType, &j.key, &j.limit, &j.ends, &j.wide},
		func() { list = append(list, j) })
	r.send(r.s.sent(promoteSQL, nil, r.left()), r.looking(pickHeadsSQL, r.left(), read))
	r.counters = r.tx.counters(locked.list())
	r.decide(list)
	r.more = r.more || len(list) == r.left() && len(r.start) < r.left()
	r.claim()
	r.storeStarts(r.now, r.counters)
	r.putAway()
	r.added = r.added || locked.added
	r.setAside()
}

// decide decides which of the jobs start, and what happens to the others.
func (r *round) decide(list []picked) {
	for i := range list {
		j := &list[i]
		if len(r.start) == r.left() {
			return
		}
		if slices.Contains(r.leave, "queue "+j.queue) ||
			slices.Contains(r.leave, "type "+rows.TypeName(j.jobType)) {
			r.more = true
			continue
		}
		switch r.judge(j) {
		case mayStart:
			if r.behindOwn(j) {
				r.more = true
				return
			}
			r.count(j)
			r.start = append(r.start, j)
		case endsIt:
			r.over = true
			return
		case unknown:
			r.more = true
			return
		}
	}
}

// limits are the limits that count a job. Of its queue and type they may not be locked.
func (r *round) limits(j *picked) []storage.LimitName {
	return slices.DeleteFunc(limitsOf(j.queue, j.jobType, j.limit, j.key), func(l storage.LimitName) bool {
		return l.Kind != storage.LimitKey && r.counters[l] == nil
	})
}

// judge asks the limits of a job that is next.
func (r *round) judge(j *picked) verdict {
	ends := r.step && j.ends
	names := r.limits(j)
	if j.wide && (len(names) == 0 || names[0].Kind == storage.LimitKey) {
		return unknown
	}
	for _, name := range names {
		l, own := r.counters[name], new(ojs.RateLimit)
		if l == nil {
			return unknown
		}
		if name.Kind == storage.LimitKey {
			own = r.ownBounds(j)
		}
		at, open := l.opens(own, r.now)
		switch {
		case open:
		case name.Kind != storage.LimitKey:
			r.leave = append(slices.Clip(r.leave), string(name.Kind)+" "+name.Name)
			r.more = true
			r.opens = rule.Earlier(r.opens, at)
			return isHeld
		case !rule.Waits(own):
			if ends {
				return endsIt
			}
			r.gone = append(r.gone, gone{j, own.OnLimit, at})
			r.more = true
			return isGone
		default:
			r.aside[j.limit] = own
			return isHeld
		}
	}
	if ends || len(names) > 0 && len(r.start) >= r.startsLeft() {
		return endsIt
	}
	return mayStart
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
	return slices.ContainsFunc(r.limits(j), func(name storage.LimitName) bool {
		return r.counters[name].starts > 0 && r.counters[name].late(r.now)
	})
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
func (r *round) claim() {
	r.ords, r.met = nil, nil
	if len(r.start) == 0 {
		return
	}
	seqs := listOf(r.start, func(j **picked) int64 { return (*j).seq })
	r.query(claimTheseSQL, r.read, r.now, r.c.Worker, givenLease(r.c.Lease), seqs)
	if len(r.met) == 0 {
		return
	}
	for _, l := range r.counters { // jobs that do not decode are no starts [quarantine-1]
		l.Counter, l.starts = l.was, 0
	}
	for _, j := range r.start {
		if !slices.ContainsFunc(r.met, func(b bad) bool { return b.seq == j.seq }) {
			r.count(j)
		}
	}
}

var judgeSQL = define("judge", `INSERT INTO {schema}.job_judge SELECT unnest($1::text[])`)

// shutLanesSQL sets the heads of the lanes of the keys $1 with the bounds $2 aside.
var shutLanesSQL = define("shutLanes", `UPDATE {schema}.ready SET head = false WHERE seq = ANY (ARRAY(
		SELECT c.seq FROM unnest($1::text[], $2::text[]) u (name, bounds) CROSS JOIN LATERAL (
			SELECT r.seq FROM {schema}.ready r
			WHERE r.rate_key = u.name AND r.bounds = u.bounds AND r.head FOR UPDATE SKIP LOCKED) c))`)

var setOpensSQL = define("setOpens", `UPDATE {schema}.job_limit l SET opens = nullif(u.opens, {none}), ended = nullif(u.ended, {none})
		FROM unnest($1::text[], $2::bigint[], $3::bigint[]) u (name, opens, ended) WHERE l.kind = 'key' AND l.name = u.name
		AND (l.opens IS DISTINCT FROM nullif(u.opens, {none}) OR l.ended IS DISTINCT FROM nullif(u.ended, {none}))`)

// heldSQL returns whether jobs are set aside, whether lanes are to be judged, and when
// time opens a limit.
var heldSQL = define("held", `SELECT EXISTS (SELECT FROM {schema}.ready WHERE NOT head AND attempt >= 0), {judging},
		coalesce((SELECT opens FROM {schema}.job_limit WHERE opens IS NOT NULL ORDER BY opens LIMIT 1), {none})`)

// setAside sets the heads aside that may not start, and stores when time opens the lanes
// of their keys, also if it goes back.
func (r *round) setAside() {
	var keys, bounds []string
	for text, own := range r.aside {
		keys, bounds = append(keys, own.Key), append(bounds, text)
	}
	var shut []string
	var text string
	var active int
	r.send(r.s.sent(shutLanesSQL, nil, keys, bounds),
		r.s.sent(closedSQL, each([]any{&text, &active}, func() { shut = append(shut, text) })))
	var locked []string
	for name, l := range r.counters {
		if name.Kind == storage.LimitKey {
			locked = append(locked, name.Name)
		}
		if l.starts > 0 && l.late(r.now) {
			r.counters = r.tx.counters(slices.Collect(maps.Keys(r.counters)))
		}
	}
	opens := slices.Repeat([]int64{rows.None}, len(locked))
	ended := slices.Clone(opens)
	var again []string
	for _, text := range shut {
		own := r.ownBounds(&picked{limit: text})
		l := r.counters[storage.LimitName{Kind: storage.LimitKey, Name: own.Key}]
		if l == nil {
			continue
		}
		at, open := l.opens(own, r.now)
		if open || !rule.Waits(own) {
			again = append(again, own.Key)
			continue
		}
		r.shut = append(r.shut, closedLane{*own, l.Closes(own, r.now)})
		i := slices.Index(locked, own.Key)
		if opens[i] = rule.Earlier(opens[i], at); l.Over(r.now) {
			ended[i] = l.Until
		}
	}
	last := []sent{r.s.sent(setOpensSQL, nil, locked, opens, ended)}
	if len(again) > 0 {
		last = append(last, r.s.sent(judgeSQL, nil, again))
	}
	held := one(&r.said.held, &r.said.more, &r.said.first)
	if r.send(append(last, r.s.sent(heldSQL, held, r.now))...); !r.said.held {
		r.said.first = rows.None
	}
}

var bySeqSQL = define("bySeq", `SELECT {columns} FROM {whole} WHERE seq = ANY ($1::bigint[])`)

// putAway drops and reschedules jobs, in the order of the claim.
func (r *round) putAway() {
	if len(r.gone) == 0 {
		return
	}
	seqs := listOf(r.gone, func(g *gone) int64 { return g.seq })
	locked := make(map[int64]*rows.Row, len(r.gone))
	list, met := decoded(r.rows(0, bySeqSQL, seqs))
	for _, row := range list {
		locked[row.Seq] = row
	}
	r.undecoded = append(r.undecoded, met...)
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
		o.add(&row.Record, 1<<rows.Available)
		_, ends := r.applyLocked(o)
		if o.note(&r.notice); len(ends) == 0 {
			continue
		}
		c := r.counter(ends...)
		moved := depend.Count(c, now, nil)
		c.end(moved)
		r.moved = append(r.moved, moved...)
		r.undecoded = append(r.undecoded, c.met...)
	}
}
