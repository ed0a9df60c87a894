package postgres

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Limits (storage.Limited), counted by what the tables say.
//
// The column bounds of a job has its rate limit. The statement of a claim ends at the
// first job that a limit counts, and says so. So other claims cost what they cost without
// limits. The rest of the claim looks behind jobs (past.go), and takes what it finds in
// transactions of this kind:
//
//	begin
//	lock the names of the limits that count the jobs
//	read the counters of the limits
//	decide which jobs start
//	make those active, and store when they have started
//	drop or reschedule others
//	commit
//
// Invariants:
//
//  1. A job becomes active, as far as a limit counts it, by a transaction that holds the
//     name of the limit. The counters are read by a later statement than the one that
//     locks, which sees what the holder before has done.
//  2. The end of a job locks no name: a claim that does not see it counts one too many.
//     The transaction of the end adds the key to job_freed.
//  3. A handle remembers the bounds that it has found closed, and its claims skip the
//     jobs that have them (rows.Lane). Before each such claim it reads the keys of
//     job_freed whose transactions its last look may not have seen, and looks at them
//     again. So it does with bounds that time has opened.
//  4. Names are locked in one order, before jobs, and jobs are skipped that others have
//     locked. So a claim deadlocks with no claim.
//
// The limits of queues and types are looked at when a claim meets a job of them. A claim
// that is under way while such a limit is set may not obey it.

// limits are what a handle remembers of limits. The turn guards it.
type limits struct {
	closed *rows.ClosedLanes          // nil: no claim has obeyed limits yet
	seen   int64                      // closed follows all transactions before this one
	at     time.Time                  // of the last look, by the wall clock
	wide   map[storage.LimitName]bool // queues and types that have been set or blocked
	met    bool                       // the latest claim that wanted more met a closed queue or type
	told   time.Time                  // the latest storage.Notice.Opens
}

const (
	// remembered is how long an entry of job_freed stays at the least.
	remembered = time.Minute
	// follows is for how long after its last look a handle may go on with what it knows.
	follows = remembered / 2
)

// wideSet are the queues and types that have been set or blocked, as far as known.
type wideSet = map[storage.LimitName]bool

func (s *Storage) lookForWide(ctx context.Context, q rowAsker) error {
	set := make(wideSet)
	result, err := q.Query(ctx, s.sql.wide)
	if err != nil {
		return err
	}
	var name storage.LimitName
	_, err = pgx.ForEachRow(result, []any{&name.Kind, &name.Name}, func() error {
		set[name] = true
		return nil
	})
	if err == nil {
		s.wide.Store(&set)
	}
	return err
}

// rowAsker is a connection or a pool.
type rowAsker interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// note adds to a notice what a row tells as it is now: also that it leaves a slot of a
// limit, if it has been active.
func (s *Storage) note(n *storage.Notice, c *written) {
	rows.Note(n, &c.Columns)
	if c.State == rows.Active || n.Available {
		return
	}
	n.Available = c.Bounds != ""
	if set := s.wide.Load(); set != nil && len(*set) > 0 && !n.Available {
		n.Available = (*set)[storage.LimitName{Kind: storage.LimitQueue, Name: c.Queue}] ||
			(*set)[storage.LimitName{Kind: storage.LimitType, Name: rows.TypeName(c.Type)}]
	}
}

// limitsOf returns the limits that count a job: those of its queue and type, if any, and
// last that of its key.
func limitsOf(wide wideSet, queue, jobType, bounds, key string) (names []storage.LimitName) {
	if len(wide) > 0 {
		for _, name := range [...]storage.LimitName{
			{Kind: storage.LimitQueue, Name: queue}, {Kind: storage.LimitType, Name: rows.TypeName(jobType)},
		} {
			if wide[name] {
				names = append(names, name)
			}
		}
	}
	if bounds != "" {
		names = append(names, storage.LimitName{Kind: storage.LimitKey, Name: key})
	}
	return names
}

// pair returns the kinds and the names of limits.
func pair(of []storage.LimitName) (kinds, names []string) {
	kinds, names = make([]string, len(of)), make([]string, len(of))
	for i, name := range of {
		kinds[i], names[i] = string(name.Kind), name.Name
	}
	return kinds, names
}

// lockLimits locks the names of limits until the transaction ends.
func (s *Storage) lockLimits(ctx context.Context, tx transaction, of []storage.LimitName) error {
	names := make([]string, len(of))
	for i, name := range of {
		names[i] = string(name.Kind) + " " + name.Name
	}
	return (&inserter{ctx: ctx, s: s, tx: tx}).lock("limit ", names)
}

// tallied is a counter with what a transaction adds to it.
type tallied struct {
	rows.Counter
	was    rows.Counter // as it is stored
	starts int64        // that are not stored
}

// counters reads what the tables have of limits.
func (s *Storage) counters(
	ctx context.Context, q querier, of []storage.LimitName,
) (map[storage.LimitName]*tallied, error) {
	found := make(map[storage.LimitName]*tallied, len(of))
	if len(of) == 0 {
		return found, nil
	}
	kinds, names := pair(of)
	var c rows.Counter
	var setting string
	var ord int64
	var failure error
	columns := []any{&ord, &c.Stored, &setting, &c.Until, &c.Blocked, &c.Last, &c.Window, &c.Most,
		&c.Active, &c.Started, &c.LastStart}
	err := q.query(ctx, s.sql.counters, []any{kinds, names}, each(columns, func() {
		t := &tallied{Counter: c}
		t.LimitName = of[ord-1]
		if setting != "" {
			bounds, err := rows.ReadBounds(setting)
			if err != nil {
				failure = err
			}
			t.Setting = &bounds
		}
		t.was = t.Counter
		found[t.LimitName] = t
	}))
	if err == nil && slices.ContainsFunc(kinds, func(k string) bool { return k != string(storage.LimitKey) }) {
		var n int
		err = q.query(ctx, s.sql.activeOf, []any{kinds, names}, each([]any{&ord, &n}, func() {
			t := found[of[ord-1]]
			t.Active, t.was.Active = n, n
		}))
	}
	return found, cmp.Or(err, failure)
}

// opens reports whether bounds let a job start, and otherwise when time does: see
// rows.Counter.
func (s *Storage) opens(
	ctx context.Context, q querier, t *tallied, own *ojs.RateLimit, now int64,
) (at int64, open bool, err error) {
	return t.Open(own, now, s.startOf(ctx, q, t, now))
}

// startOf returns the function that looks up a start of a counter by its number.
func (s *Storage) startOf(
	ctx context.Context, q querier, t *tallied, now int64,
) func(n int64) (int64, bool, error) {
	return func(n int64) (at int64, there bool, err error) {
		switch {
		case n > t.was.Started: // of this transaction
			return now, true, nil
		case n == t.was.Started:
			return t.was.LastStart, true, nil
		}
		err = q.query(ctx, s.sql.start, []any{string(t.Kind), t.Name, n}, one(&there, &at))
		return at, there, err
	}
}

// start counts the start of a job.
func (t *tallied) start(own *ojs.RateLimit, bounds string, now int64) {
	t.Active++
	if own != nil {
		t.Remember(own)
		t.Last = bounds
	}
	if t.Window == 0 {
		return
	}
	t.starts++
	t.Started++
	t.LastStart = max(t.LastStart, now)
}

// spareStarts is how many starts are kept besides the ones that count. An undone claim
// takes its start back, and an older start may then count again.
const spareStarts = 64

// storeStarts stores what a transaction has added to counters. It reports whether there
// are keys that had no row.
func (s *Storage) storeStarts(
	ctx context.Context, tx inTx, now int64, counters map[storage.LimitName]*tallied,
) (added bool, err error) {
	var b pgx.Batch
	for name, t := range counters {
		kind := string(name.Kind)
		if t.Last != t.was.Last || t.Window != t.was.Window || t.Most != t.was.Most {
			added = added || !t.Stored
			b.Queue(s.sql.setStarted, kind, name.Name, t.Last, t.Window, t.Most, later(now, idlePeriod))
		}
		if t.starts == 0 {
			continue
		}
		b.Queue(s.sql.addStarts, kind, name.Name, t.was.Started, t.starts, now)
		if t.was.LastStart > now && t.was.Started > 0 { // clocks differ
			b.Queue(s.sql.sortStarts, kind, name.Name)
		}
		if t.Started/spareStarts > t.was.Started/spareStarts {
			b.Queue(s.sql.trimStarts, kind, name.Name, t.Started-min(t.Most, math.MaxInt32)-spareStarts)
		}
	}
	if b.Len() == 0 {
		return false, nil
	}
	return added, tx.SendBatch(ctx, &b).Close()
}

// idlePeriod is after what time a key of which a job has started is looked at, and again,
// to see whether it can be forgotten.
const idlePeriod = int64(time.Hour)

// forgetIdle forgets some keys that have neither jobs that wait or are active, nor
// settings, nor starts that count. Each claim that adds a key looks at several, so that
// keys that come and go do not add up.
func (s *Storage) forgetIdle(ctx context.Context, now int64) error {
	var names []string
	var name string
	add := func() { names = append(names, name) }
	err := tuned{s}.query(ctx, s.sql.idleLimits, []any{now}, each([]any{&name}, add))
	if err != nil || len(names) == 0 {
		return err
	}
	of := make([]storage.LimitName, len(names))
	for i, name := range names {
		of[i] = storage.LimitName{Kind: storage.LimitKey, Name: name}
	}
	return s.within(ctx, func(ctx context.Context) error {
		return begun(ctx, tuned{s}, func(tx transaction) error {
			if err := s.lockLimits(ctx, tx, of); err != nil {
				return err
			}
			if err := tx.exec(ctx, s.sql.forgetLimits, names, now); err != nil {
				return err
			}
			return tx.exec(ctx, s.sql.lookLater, names, later(now, idlePeriod))
		})
	})
}

// later is d after a time, or the end of time.
func later(ns, d int64) int64 {
	if d > 0 && ns > math.MaxInt64-d {
		return math.MaxInt64
	}
	return ns + d
}

// takeBack forgets the starts of jobs whose claims a transaction undoes. They are as they
// were before.
func (s *Storage) takeBack(ctx context.Context, tx transaction, undone []storage.Record) error {
	var names []storage.LimitName
	of := make([][]storage.LimitName, len(undone))
	for i := range undone {
		r := &undone[i]
		of[i] = []storage.LimitName{
			{Kind: storage.LimitQueue, Name: r.Queue}, {Kind: storage.LimitType, Name: r.Type},
		}
		if r.RateLimit != nil && !r.RateLimit.Local {
			of[i] = append(of[i], storage.LimitName{Kind: storage.LimitKey, Name: r.RateLimit.Key})
		}
		names = append(names, of[i]...)
	}
	kinds, list := pair(names)
	keeps := make(map[storage.LimitName]bool)
	var name storage.LimitName
	err := tx.query(ctx, s.sql.keepStarts, []any{kinds, list}, each([]any{&name.Kind, &name.Name}, func() {
		keeps[name] = true
	}))
	if err != nil || len(keeps) == 0 {
		return err
	}
	names = slices.DeleteFunc(names, func(name storage.LimitName) bool { return !keeps[name] })
	if err := s.lockLimits(ctx, tx, names); err != nil {
		return err
	}
	for i := range undone {
		for _, name := range of[i] {
			if !keeps[name] {
				continue
			}
			at := rows.Nanos(undone[i].StartedAt)
			err := tx.exec(ctx, s.sql.takeStart, string(name.Kind), name.Name, at)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// mostAgain is how many closed bounds are looked at again though nothing is known to have
// changed: jobs may have been changed by hand, or wait no more.
const mostAgain = 100

// follow brings what the handle knows of limits up to date, before a claim.
func (p *past) follow(forget bool) error {
	x := &p.s.limits
	if x.closed == nil || wall.Since(x.at) > follows {
		x.closed, x.seen = rows.NewClosedLanes(), math.MaxInt64
	}
	since := x.seen
	if x.closed.Len() == 0 {
		since = math.MaxInt64 // there is nothing to look at again
	}
	var seen int64
	var freed, kinds, names []string
	var some bool
	began := wall.Now()
	read := one(&some, &seen, &freed, &kinds, &names)
	err := tuned{p.s}.query(p.ctx, p.s.sql.beginLimits, []any{since}, read)
	if err != nil {
		return err
	}
	wide := make(wideSet, len(names))
	for i := range names {
		wide[storage.LimitName{Kind: storage.LimitKind(kinds[i]), Name: names[i]}] = true
	}
	x.wide = wide
	p.s.wide.Store(&wide)
	var again []*rows.ClosedLane
	for l, due := x.closed.Due(rows.Time(p.now)); due; l, due = x.closed.Due(rows.Time(p.now)) {
		again = append(again, l)
	}
	if forget {
		again = append(again, x.closed.Some(mostAgain)...)
	}
	for _, key := range freed {
		again = append(again, x.closed.OfKey(key)...)
	}
	if err := p.lookAgain(again); err != nil {
		x.closed = nil // it has lost lanes that time opens
		p.s.lanes.Forget()
		return err
	}
	x.seen, x.at = seen, began
	return nil
}

// lookAgain opens closed bounds if a job may start, or if no job that waits has them.
func (p *past) lookAgain(list []*rows.ClosedLane) error {
	if len(list) == 0 {
		return nil
	}
	of := make([]storage.LimitName, len(list))
	texts := make([]string, len(list))
	for i, l := range list {
		of[i], texts[i] = storage.LimitName{Kind: storage.LimitKey, Name: l.Own.Key}, l.Name
	}
	q := tuned{p.s}
	counters, err := p.s.counters(p.ctx, q, of)
	if err != nil {
		return err
	}
	waiting := make(map[string]bool, len(list))
	var text string
	read := each([]any{&text}, func() { waiting[text] = true })
	err = q.query(p.ctx, p.s.sql.boundsWaiting, []any{texts}, read)
	if err != nil {
		return err
	}
	for i, l := range list {
		at, open, err := p.s.opens(p.ctx, q, counters[of[i]], &l.Own, p.now)
		if err != nil {
			return err
		}
		if open || !waiting[l.Name] {
			p.s.limits.closed.Open(l)
		} else {
			p.s.limits.closed.Close(l.Name, &l.Own, at)
		}
	}
	return nil
}

// obedience is what a claim knows of limits.
type obedience struct {
	obeys  bool
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
		p.s.limits.closed.Close(l.name, l.own, l.at)
	}
	if len(r.left) > len(p.left) {
		p.left, p.met, p.opens = r.left, true, r.opens
	}
	p.over = p.over || r.over
	if to := p.c.Limits; to != nil {
		to.Dropped = append(to.Dropped, r.dropped...)
		to.Postponed = append(to.Postponed, r.postponed...)
		to.Moved = append(to.Moved, r.moved...)
	}
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
	if r.missed {
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
		if r.past.taken[j.Key] {
			r.more = true
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
	local := j.Key != "" && (bounds == "" || !r.obeys)
	ends := r.plain && (local || r.ttl[j.Seq])
	if !r.obeys {
		if ends {
			return endsIt, nil
		}
		return mayStart, nil
	}
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
		case ends && own.OnLimit != "" && own.OnLimit != ojs.OnLimitWait:
			return endsIt, nil
		case own.OnLimit == ojs.OnLimitDrop || own.OnLimit == ojs.OnLimitReschedule:
			r.gone = append(r.gone, gone{j, own.OnLimit, at})
			return isGone, nil
		default:
			r.closed = append(r.closed, closing{bounds, own, at})
			return isHeld, nil
		}
	}
	n := 0
	if r.c.Limits != nil {
		n = r.c.Limits.Now
	}
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

// claim makes the jobs active that may start, but for those that others have.
func (r *round) claim() error {
	if len(r.start) == 0 {
		return nil
	}
	seqs, keys := make([]int64, len(r.start)), make([]string, len(r.start))
	for i, j := range r.start {
		seqs[i], keys[i] = j.Seq, j.Key
	}
	args := r.types.arguments([]any{r.now, len(r.start), r.c.Worker, r.types.names, []string{}})
	args = append(args, seqs, keys, r.queue)
	got, err := selectRows(r.ctx, r.tx, true, r.s.sql.claimThese, args...)
	if err != nil {
		return err
	}
	slices.SortFunc(got, func(a, b stored) int { return cmp.Compare(a.ord, b.ord) })
	r.got = got
	for i := range got {
		r.done[got[i].seq] = true
	}
	if r.missed = len(got) < len(r.start); !r.missed {
		return nil
	}
	for _, t := range r.counters { // count those that have started, and no others
		t.Counter, t.starts = t.was, 0
	}
	for _, j := range r.start {
		if r.done[j.Seq] {
			r.count(j)
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
			r.missed = true
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
	if to == nil {
		return
	}
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

// isBounds tells the names of lanes apart: they are keys, or bounds as text.
func isBounds(name string) bool { return strings.HasPrefix(name, `{"Key":`) }
