package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// settleCall is a Settle on its way.
type settleCall struct {
	settling
	results []storage.Settled
	err     error
	ended   chan struct{}
}

func (c *settleCall) size() (int, int)      { return len(c.encoded), documentBytes(c.encoded) }
func (c *settleCall) done() <-chan struct{} { return c.ended }

// Settle implements storage.Storage.
func (s *Storage) Settle(
	ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled,
) ([]storage.Settled, error) {
	if slices.ContainsFunc(changes, logged) {
		return s.settleLogged(ctx, now, changes, dst)
	}
	if firstThen(changes) < len(changes) {
		if err := storage.CheckThen(changes); err != nil {
			return dst, err
		}
		return s.settleParts(ctx, now, changes, dst)
	}
	if err := s.enter(ctx); err != nil {
		return dst, err
	}
	defer s.mu.RUnlock()
	if len(changes) == 0 {
		return dst, nil
	}
	c := &settleCall{
		settling: settling{
			make([]written, len(changes)), make([]int64, len(changes)),
			slices.Repeat([]time.Time{now}, len(changes)), true,
		},
		ended: make(chan struct{}),
	}
	for i := range changes {
		var err error
		if c.encoded[i], err = encode(&changes[i].Record); err != nil {
			return dst, err
		}
		c.encoded[i].Version++
		c.froms[i] = int64(rows.From(c.encoded[i].State))
		c.sameJob = c.sameJob && changes[i].AttemptFieldsOnly
	}
	settles := &s.settles
	if len(c.entering()) > 0 {
		settles = &s.settlesInTurn
	}
	if tx := txOf(ctx); tx != nil {
		s.settleIn(ctx, tx, []*settleCall{c})
	} else if err := settles.do(ctx, c); err != nil {
		return dst, err
	}
	if c.err != nil {
		return dst, wrap(c.err)
	}
	var n storage.Notice
	s.noteSettled(&n, c.encoded, c.results)
	if tx := txOf(ctx); tx == nil {
		s.tell(ctx, &n)
	} else if !n.Empty() { // the commit notifies every process, this one too
		if err := s.tellAtCommit(ctx, tx, &n); err != nil {
			return dst, wrap(err)
		}
	}
	return append(dst, c.results...), nil
}

// noteSettled adds to a notice what changes tell that were applied.
func (s *Storage) noteSettled(n *storage.Notice, encoded []written, results []storage.Settled) {
	for i := range encoded {
		if results[i].Err == nil {
			e := &encoded[i]
			if e.State == rows.Cancelled {
				taken(n, e.ID, e.Version-1, ojs.ErrCancelled)
			}
			s.note(n, e)
			noteMoved(n, results[i].Moved)
		}
	}
}

// noteMoved adds to a notice what jobs that have moved tell.
func noteMoved(n *storage.Notice, moved []storage.Record) {
	for i := range moved {
		n.Add(moved[i].ID, moved[i].State, moved[i].WakeAt())
	}
}

func (s *Storage) flushSettles(calls []*settleCall) {
	ctx := context.Background() // that of none of the calls; each statement has its own time
	// A statement writes everything or what attempts change. Most calls are of attempts.
	slices.SortStableFunc(calls, func(a, b *settleCall) int {
		switch {
		case a.sameJob == b.sameJob:
			return 0
		case a.sameJob:
			return -1
		}
		return 1
	})
	at, _ := slices.BinarySearchFunc(calls, false, func(c *settleCall, sameJob bool) int {
		if c.sameJob != sameJob {
			return -1
		}
		return 0
	})
	s.settleIn(ctx, tuned{s}, calls[:at])
	s.settleIn(ctx, tuned{s}, calls[at:])
}

// settleIn makes calls of one kind, and ends them.
func (s *Storage) settleIn(ctx context.Context, q querier, calls []*settleCall) {
	if len(calls) == 0 {
		return
	}
	all := calls[0].settling
	if len(calls) > 1 {
		all = settling{sameJob: all.sameJob}
		for _, c := range calls {
			all.encoded, all.froms = append(all.encoded, c.encoded...), append(all.froms, c.froms...)
			all.nows = append(all.nows, c.nows...)
		}
	}
	results, err := s.settleRounds(ctx, q, all)
	if refused(err) && len(calls) > 1 && all.distinct() == len(all.encoded) {
		// In one round, of which nothing is done. So each is made by itself.
		for _, c := range calls {
			s.settleIn(ctx, q, []*settleCall{c})
		}
		return
	}
	for _, c := range calls {
		if c.err = err; err == nil {
			c.results = results[:len(c.encoded):len(c.encoded)]
			results = results[len(c.encoded):]
		}
		close(c.ended)
	}
}

// settling are changes on their way to a statement.
type settling struct {
	encoded []written // with the versions after the change
	froms   []int64   // the states in which a change may find its job, and the bits below
	nows    []time.Time
	sameJob bool // each is AttemptFieldsOnly
}

// ends reports whether each of the changes ends an active job, and is AttemptFieldsOnly.
func (o *settling) ends() bool {
	for i := range o.encoded {
		if o.froms[i] != 1<<rows.Active || !rows.Terminal(o.encoded[i].State) {
			return false
		}
	}
	return o.sameJob
}

// completes reports whether each of the changes completes an active job, all of them of
// one worker and with one progress, and has nothing that few completions have.
func (o *settling) completes() bool {
	if !o.ends() {
		return false
	}
	for i := range o.encoded {
		c := &o.encoded[i]
		if c.State != rows.Completed || c.Worker != o.encoded[0].Worker ||
			c.Progress != o.encoded[0].Progress || c.Outcome != nil || c.Checkpoint != nil ||
			c.Wake != rows.None || c.Deadline != rows.None || c.NextRetry != rows.None ||
			c.Finished == rows.None || c.Dead != rows.None || c.LeaseUntil != rows.None ||
			c.kept != rows.None {
			return false
		}
	}
	return true
}

// bounded reports whether a limit of its key counts one of the jobs.
func (o *settling) bounded() bool {
	return slices.ContainsFunc(o.encoded, bounded)
}

func bounded(w written) bool { return w.Bounds != "" }

func (o *settling) part(from, to int) settling {
	return settling{o.encoded[from:to], o.froms[from:to], o.nows[from:to], o.sameJob}
}

// distinct returns how many of the changes, from the first on, are of different jobs.
func (o *settling) distinct() int {
	return distinct(len(o.encoded), func(i int) string { return o.encoded[i].ID })
}

// settleRounds applies changes in order: one statement for as many as are of different
// jobs.
func (s *Storage) settleRounds(ctx context.Context, q querier, o settling) ([]storage.Settled, error) {
	results := make([]storage.Settled, len(o.encoded))
	for from := 0; from < len(o.encoded); {
		rest := o.part(from, len(o.encoded))
		n := rest.distinct()
		if err := s.settleDistinct(ctx, q, rest.part(0, n), results[from:from+n], retries); err != nil {
			return nil, err
		}
		from += n
	}
	return results, nil
}

// retries is how often a change is made again that missed its row.
const retries = 10

// settleDistinct applies changes of different jobs, with up to tries retries, and finds
// why others were not applied.
func (s *Storage) settleDistinct(
	ctx context.Context, q querier, o settling, results []storage.Settled, tries int,
) error {
	if s.counting.Load() || len(o.entering()) > 0 {
		return s.settleCounting(ctx, q, o, results)
	}
	applied, held, err := s.apply(ctx, q, o)
	if held {
		return s.settleCounting(ctx, q, o, results)
	}
	if err != nil {
		return err
	}
	return s.explainAll(ctx, q, o, applied, results, tries)
}

// explainAll makes the results of changes of different jobs, of which some were applied.
func (s *Storage) explainAll(
	ctx context.Context, q querier, o settling, applied []bool, results []storage.Settled, tries int,
) error {
	var refused []string
	for i := range o.encoded {
		if !applied[i] {
			refused = append(refused, o.encoded[i].ID)
		}
	}
	there := make(map[string]found)
	if len(refused) > 0 {
		var id string
		var f found
		read := each([]any{&id, &f.version, &f.state}, func() { there[id] = f })
		err := q.query(ctx, s.sql.versions, []any{refused}, read)
		if err != nil {
			return err
		}
	}
	return s.explain(ctx, q, o, applied, there, results, tries)
}

// found is what is stored of a job to which a change was not applied.
type found struct {
	version int64
	state   int16
}

// explain is explainAll, given what is stored of the other jobs.
func (s *Storage) explain(
	ctx context.Context, q querier, o settling, applied []bool, there map[string]found,
	results []storage.Settled, tries int,
) error {
	for i := range o.encoded {
		results[i] = storage.Settled{Version: uint64(o.encoded[i].Version)}
	}
	for i := range o.encoded {
		if applied[i] {
			continue
		}
		c := &o.encoded[i]
		f, ok := there[c.ID]
		results[i] = storage.Settled{Version: uint64(f.version)}
		switch {
		case !ok || rows.State(int(f.state)) == "": // which will be set aside
			results[i].Err = ojs.ErrNotFound
		case f.version != c.Version-1:
			results[i].Err = storage.ErrFenced
		case !rows.Settles(int(f.state), c.State):
			results[i].Err = &ojs.TransitionError{ID: c.ID, From: rows.State(int(f.state)),
				To: rows.State(c.State)}
		case tries == 0:
			return fmt.Errorf("ojs: postgres: job %s does not change though nothing is in its way", c.ID)
		default: // it missed the row while another statement changed it without raising its version
			if err := s.settleDistinct(ctx, q, o.part(i, i+1), results[i:i+1], tries-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply changes the jobs that have the version before and a state of froms. It reports
// which those are. If other jobs may wait for one of the jobs, it changes nothing and
// reports held.
func (s *Storage) apply(ctx context.Context, q querier, o settling) (applied []bool, held bool, err error) {
	sql, args := s.applying(o)
	err = again(func() error {
		applied, held = make([]bool, len(o.encoded)), false
		var ord int64
		return q.query(ctx, sql, args, each([]any{&ord}, func() {
			if held = ord == 0; !held {
				applied[ord-1] = true
			}
		}))
	})
	return applied, held, err
}

// applying is the statement that applies changes, and returns the numbers of those that
// it has applied, from 1 on.
func (s *Storage) applying(o settling) (sql string, args []any) {
	switch {
	case o.completes():
		return s.sql.complete, completionArguments(o.encoded)
	case o.ends():
		return s.sql.endAttempt, attemptArguments(o.encoded, o.froms)
	case o.sameJob:
		return s.sql.settleAttempt, attemptArguments(o.encoded, o.froms)
	}
	return s.sql.settleAll, append(arguments(o.encoded), o.froms)
}

// Extend implements storage.Storage.
func (s *Storage) Extend(
	ctx context.Context, now time.Time, extensions []storage.Extension,
) (lost []string, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	if len(extensions) == 0 {
		return nil, nil
	}
	for len(extensions) > 0 {
		n := distinct(len(extensions), func(i int) string { return extensions[i].ID })
		missed, err := s.extend(ctx, rows.Nanos(now), extensions[:n])
		if err != nil {
			return nil, wrap(err)
		}
		lost = append(lost, missed...)
		extensions = extensions[n:]
	}
	return lost, nil
}

// distinct returns how many ids, from the first on, are different ones.
func distinct(n int, id func(i int) string) int {
	seen := make(map[string]struct{}, n)
	for i := range n {
		if _, twice := seen[id(i)]; twice {
			return i
		}
		seen[id(i)] = struct{}{}
	}
	return n
}

func (s *Storage) extend(
	ctx context.Context, now int64, extensions []storage.Extension,
) (lost []string, err error) {
	n := len(extensions)
	ids, versions, progress, checkpoints, leases := make([]string, n), make([]int64, n), make([]float64, n),
		make([][]byte, n), make([]int64, n)
	for i := range extensions {
		x := &extensions[i]
		ids[i], versions[i], progress[i], checkpoints[i] = x.ID, int64(x.Version), x.Progress, x.Checkpoint
		leases[i] = givenLease(x.Lease)
	}
	extended := make(map[string]bool, n)
	err = again(func() error {
		var id string
		args := []any{ids, versions, progress, checkpoints, now, leases}
		return tuned{s}.query(ctx, s.sql.extend, args, each([]any{&id}, func() { extended[id] = true }))
	})
	for _, id := range ids {
		if err == nil && !extended[id] {
			lost = append(lost, id)
		}
	}
	return lost, err
}
