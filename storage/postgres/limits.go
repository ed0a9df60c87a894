package postgres

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

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
// Counters are in limitcount.go, such a transaction is in
// limitclaim.go, and settings are in limitstore.go.
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
		s.keepWide(set)
	}
	return err
}

// keepWide keeps what a look has found, unless another has found more meanwhile: the
// limits of queues and types stay.
func (s *Storage) keepWide(set wideSet) {
	for {
		known := s.wide.Load()
		if known != nil && len(*known) > len(set) || s.wide.CompareAndSwap(known, &set) {
			return
		}
	}
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
	return s.lock(ctx, tx, "limit ", names)
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
	p.s.keepWide(wide)
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
