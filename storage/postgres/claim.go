package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/storage"
)

// Claim implements storage.Storage.
func (s *Storage) Claim(
	ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record,
) ([]storage.Record, error) {
	if err := s.enter(ctx); err != nil {
		return dst, err
	}
	defer s.mu.RUnlock()
	if c.Max <= 0 {
		return dst, nil
	}
	a := s.asking(now, &c, min(c.Max, maxRows), false)
	for a.left() > 0 {
		var claimed []stored
		err := again(func() error {
			return s.within(ctx, func(ctx context.Context) error {
				return a.send(ctx, false, nil, func(result rowSet) (err error) {
					claimed, err = collect(result, true)
					claimed = slices.DeleteFunc(claimed, func(r stored) bool { return a.reads(&r) })
					return err
				})
			})
		})
		if err != nil && a.had == 0 {
			return dst, wrap(err)
		}
		slices.SortFunc(claimed, func(a, b stored) int { return cmp.Compare(a.ord, b.ord) })
		before := len(dst)
		dst = s.decodeClaimed(ctx, claimed, dst)
		a.took(dst[before:])
		if err != nil || a.more || len(dst)-before == len(claimed) {
			break // or some of them do not decode, and others come in their place
		}
	}
	if a.more && a.left() > 0 {
		before := len(dst)
		var err error
		if dst, err = s.claimLimited(ctx, a, dst); err != nil && a.had == 0 && len(dst) == before {
			return dst, wrap(err)
		}
	}
	a.tell(ctx)
	return dst, nil
}

// decodeClaimed appends the jobs that a statement has claimed to dst. It moves jobs that
// do not decode to the quarantine. If that fails, they stay active until their leases
// expire.
func (s *Storage) decodeClaimed(
	ctx context.Context, claimed []stored, dst []storage.Record,
) []storage.Record {
	var met []bad
	for i := range claimed {
		rec, err := rows.Decode(&claimed[i].Columns)
		if err != nil {
			met = append(met, bad{claimed[i], err})
			continue
		}
		dst = append(dst, rec)
	}
	_ = s.setAsideRead(ctx, true, met)
	return dst
}

// asking is a claim on its way.
type asking struct {
	s     *Storage
	c     *storage.Claim
	now   int64
	types claimTypes
	asked bool // the caller asks what limits do
	step  bool // the first job ends it that has an enqueue TTL
	most  int
	had   int             // jobs that it has claimed
	leave []string        // queues and types whose limits let no job start
	opens int64           // when time opens one of these; rows.None: never
	start []ojs.RateLimit // of the jobs that it has claimed
	shut  []closedLane
	said
}

// said is what the last statement of a claim has said of limits.
type said struct {
	more  bool  // they have more to say: claimLimited
	held  bool  // jobs are set aside
	over  bool  // a job that may start has ended the claim
	added bool  // keys that were not known
	first int64 // when time opens the first limit of a key; rows.None: never
}

func (s *Storage) asking(now time.Time, c *storage.Claim, most int, step bool) *asking {
	asked := c.Limits != nil
	c.ResetLimits()
	return &asking{
		s: s, c: c, asked: asked, now: rows.Nanos(now), types: typesOf(c.Types), step: step, most: most,
		leave: []string{}, opens: rows.None, said: said{first: rows.None},
	}
}

func (a *asking) left() int { return a.most - a.had }

// took adds jobs that are claimed.
func (a *asking) took(recs []storage.Record) {
	a.had += len(recs)
	for i := range recs {
		if l := recs[i].RateLimit; l != nil {
			a.start = append(a.start, *l)
		}
	}
}

// reads reads a row that is no job, and reports whether it is one.
func (a *asking) reads(row *stored) bool {
	switch row.ord {
	case -1:
		a.more = true
	case -2:
		a.held, a.first = true, row.seq
	case -3:
		a.over = true
	}
	return row.ord < 0
}

// variant is the statement for the queues of the claim.
func (a *asking) variant(of *picks) string {
	switch {
	case len(a.c.Queues) > 0:
		return of.in
	case len(a.leave) > 0 || a.s.paused.Load():
		return of.around
	}
	return of.all
}

// looks are the arguments of a statement that looks at up to most jobs.
func (a *asking) looks(most int) []any {
	t := &a.types
	return []any{a.now, most, t.names, t.ranged, t.from, t.until, a.leave}
}

// inQueues adds the queues to arguments, if the statement has them.
func (a *asking) inQueues(args []any) []any {
	if len(a.c.Queues) > 0 {
		args = append(args, a.c.Queues)
	}
	return args
}

// claiming is the statement that claims what the claim lacks. The transaction may have
// locked keys.
func (a *asking) claiming(locked bool) (sql string, args []any) {
	args = append(a.looks(a.left()), a.c.Worker, givenLease(a.c.Lease))
	var of *picks
	switch {
	case locked && a.step:
		of = &a.s.sql.aheadJudged
	case locked:
		of = &a.s.sql.claimJudged
	case a.step:
		of = &a.s.sql.ahead
	default:
		of = &a.s.sql.claim
	}
	if locked {
		args = append(args, a.startsLeft())
	}
	return a.variant(of), a.inQueues(args)
}

// startsLeft is how many more jobs start at once (storage.Limited.Now).
func (a *asking) startsLeft() int {
	if a.c.Limits.Now == 0 {
		return math.MaxInt32
	}
	return a.c.Limits.Now - a.had
}

// sent is a statement with what reads its result.
type sent struct {
	sql  string
	args []any
	read func(rowSet) error
}

// send makes statements and then that of the claim, in one transaction and one round
// trip. If jobs with limits are known to be about, or end by the statements, it locks
// their keys in between.
func (a *asking) send(ctx context.Context, ends bool, before []sent, read func(rowSet) error) error {
	s := a.s
	a.said = said{first: rows.None}
	heads := s.limited.Load()
	limits := heads || ends
	list := append([]sent{{sql: s.sql.tune}}, before...)
	var locked lockedLimits
	if limits {
		lock := sent{s.sql.judgeLimits, []any{a.now}, locked.read()}
		if heads {
			lock.sql, lock.args = a.variant(&s.sql.lockHeads), a.inQueues(a.looks(a.left()))
		}
		list = append(list, lock, sent{sql: s.sql.promote, args: []any{1}})
	}
	sql, args := a.claiming(limits)
	list = append(list, sent{sql, args, read})
	var shut []closedLane
	if limits {
		list = append(list, sent{s.sql.closed, nil, readLanes(&shut)})
	}
	if err := s.together(ctx, limits, list); err != nil {
		return err
	}
	a.added = locked.added
	s.limited.Store(a.more || len(locked.names) > 0)
	a.shut = append(a.shut, shut...)
	return nil
}

// together makes statements in one transaction and one round trip. If they lock, later
// ones see what the holders of the locks before have done.
func (s *Storage) together(ctx context.Context, locks bool, list []sent) error {
	if locks && s.isolated {
		list = slices.Concat(
			[]sent{{sql: "BEGIN ISOLATION LEVEL READ COMMITTED"}}, list, []sent{{sql: "COMMIT"}})
	}
	return readBatch(s.pool.SendBatch(ctx, batchOf(list)), list)
}

func batchOf(list []sent) *pgx.Batch {
	var b pgx.Batch
	for i := range list {
		b.Queue(list[i].sql, list[i].args...)
	}
	return &b
}

// readBatch reads the results of a batch.
func readBatch(results pgx.BatchResults, list []sent) (err error) {
	defer func() {
		if closing := results.Close(); err == nil {
			err = closing
		}
	}()
	for i := range list {
		if list[i].read == nil {
			if _, err := results.Exec(); err != nil {
				return err
			}
			continue
		}
		result, err := results.Query()
		if err != nil {
			return err
		}
		if err := readAll(result, list[i].read); err != nil {
			return err
		}
	}
	return nil
}

// claimTypes are the types of a claim as statements take them: see ofTypes in sql.go.
type claimTypes struct {
	names               []string // nil: all
	ranged, from, until []string
}

// givenLease is the lease of a claim or a renewal as statements take it (leaseFor).
func givenLease(lease time.Duration) int64 { return int64(cmp.Or(lease, ojs.DefaultLease)) }

// typesOf reads the Types of a claim (storage.Claim.Takes).
func typesOf(patterns []string) (t claimTypes) {
	t.ranged, t.from, t.until = []string{}, []string{}, []string{}
	add := func(name, from, until string) {
		t.ranged, t.from, t.until = append(t.ranged, name), append(t.from, from), append(t.until, until)
	}
	for _, pattern := range patterns {
		name, wanted, ranged := strings.Cut(pattern, "@")
		if !ranged || wanted == "" {
			t.names = append(t.names, name)
		}
		if !ranged {
			add(name, "-1", "Infinity")
			continue
		}
		r, err := versions.ParseRange(wanted)
		if err != nil { // it has no version
			continue
		}
		until := "Infinity"
		if !r.Open {
			until = numeric(r.Until)
		}
		add(name, numeric(r.From), until)
	}
	if len(patterns) > 0 && t.names == nil {
		t.names = []string{}
	}
	return t
}

// numeric is a version as the constant version in sql.go has it.
func numeric(v versions.Version) string { return fmt.Sprintf("%d%019d", v.Major, v.Minor) }
