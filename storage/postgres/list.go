package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/cursor"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// sayable reports whether a text can be one of the database's. No stored one is any
// other.
func sayable(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// sayables are those of texts that can be.
func sayables(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return !sayable(text) })
}

// maxRows is more rows than any storage has, and a number that every statement takes.
const maxRows = 1 << 30

// A page looks at no more than maxScan jobs, found or not, so that no listing keeps the
// database busy for long. It reads no more than maxRead of them whole to find out whether
// the query selects them.
const (
	maxScan = 5000
	maxRead = 1000
)

// Get implements storage.Storage.
func (s *Storage) Get(ctx context.Context, id string) (storage.Record, error) {
	if err := s.enter(ctx); err != nil {
		return storage.Record{}, err
	}
	defer s.mu.RUnlock()
	if !sayable(id) {
		return storage.Record{}, fmt.Errorf("%w: job %q", ojs.ErrNotFound, id)
	}
	list, err := selectRows(ctx, s.in(ctx), false, s.sql.get, id)
	if err != nil {
		return storage.Record{}, wrap(err)
	}
	if len(list) == 0 {
		return storage.Record{}, wrap(s.missing(ctx, id))
	}
	rec, err := rows.Decode(&list[0].Columns)
	if err == nil {
		return rec, nil
	}
	met := []bad{{list[0], err}}
	if err := s.setAsideRead(ctx, false, met); err != nil {
		return storage.Record{}, wrap(err)
	}
	err = s.missing(ctx, id)
	if !errors.Is(err, ojs.ErrQuarantined) && errors.Is(err, ojs.ErrNotFound) { // it could not be moved
		err = &ojs.QuarantinedError{ID: id, Reason: rows.Reason(met[0].why)}
	}
	return storage.Record{}, wrap(err)
}

// List implements storage.Storage. One statement walks along the index of the order and
// finds the jobs that the query may select; another reads them.
func (s *Storage) List(ctx context.Context, q storage.Query) (page storage.Page, err error) {
	walk, err := cursor.Begin(q.Cursor)
	if err != nil {
		return page, err
	}
	if !q.Order.Valid() {
		return page, fmt.Errorf("%w: storage postgres has no order %q", ojs.ErrUnsupported, q.Order)
	}
	if err := s.enter(ctx); err != nil {
		return page, err
	}
	defer s.mu.RUnlock()
	limit := q.Limit
	if limit <= 0 || limit > 1000 {
		limit = 1000
	}
	scan, read := reach(&q, limit)
	hits, scanned, end, err := s.walk(ctx, &q, &walk, scan, read)
	if err != nil || scanned == 0 {
		page.Prev, page.Next = walk.Ends()
		return page, wrap(err)
	}
	seqs := make([]int64, min(len(hits), read))
	for i := range seqs {
		seqs[i] = hits[i].seq
	}
	list, err := selectRows(ctx, s.in(ctx), false, s.sql.bySeq, seqs)
	if err != nil {
		return page, wrap(err)
	}
	bySeq := make(map[int64]*stored, len(list))
	for i := range list {
		bySeq[list[i].seq] = &list[i]
	}
	var met []bad
	stopped := false
	for i := range hits {
		h := &hits[i]
		if stopped = len(page.Records) == limit || i == len(seqs); stopped {
			walk.Stop(h.at)
			break
		}
		page.Looked = h.ord
		walk.Pass(h.at)
		r := bySeq[h.seq]
		if r == nil { // deleted meanwhile
			continue
		}
		rec, err := rows.Decode(&r.Columns)
		if err != nil {
			met = append(met, bad{*r, err})
		} else if q.Matches(&rec) {
			page.Records = append(page.Records, rec)
		}
	}
	if !stopped {
		page.Looked = min(scanned, scan)
		if scanned > scan {
			if !walk.From.Back {
				walk.Pass(end[0])
			}
			walk.Stop(end[1])
		}
	}
	if walk.From.Back {
		slices.Reverse(page.Records)
	}
	page.Prev, page.Next = walk.Ends()
	return page, wrap(s.setAsideRead(ctx, false, met))
}

// hit is a job that a page may have.
type hit struct {
	seq int64
	ord int // among those that the page looks at
	at  cursor.Position
}

// walk looks at so many jobs behind a cursor, and one more. It returns those that the
// query may select, as many as are read and one more, how many it has looked at, and the
// positions of the last one that the page may pass and of the one behind that.
func (s *Storage) walk(
	ctx context.Context, q *storage.Query, w *cursor.Walk, scan, read int,
) (hits []hit, scanned int, end [2]cursor.Position, err error) {
	sql, from := s.walking(q, w)
	states := []int16{} // those of finished jobs, for the order that has only these
	var asked []int16   // nil: all
	for _, code := range rows.Codes(q.States) {
		asked = append(asked, int16(code))
	}
	for _, state := range []int16{rows.Completed, rows.Cancelled, rows.Discarded} {
		if asked == nil || slices.Contains(asked, state) {
			states = append(states, state)
		}
	}
	var queues, types []string // nil: all
	prefixes := []string{}
	if len(q.Queues) > 0 {
		queues = sayables(q.Queues)
	}
	if len(q.Types) > 0 {
		types = []string{}
	}
	for _, pattern := range sayables(q.Types) {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
			prefixes = append(prefixes, prefix)
		} else {
			types = append(types, pattern)
		}
	}
	args := []any{
		from[0], from[1], scan + 1, states, q.DeadLetters, asked, queues, types, prefixes, scan, read + 1,
		from[2],
	}
	var h hit
	var ord int64
	err = s.in(ctx).query(ctx, sql, args, each([]any{&h.seq, &ord, &h.at[0], &h.at[1], &h.at[2]}, func() {
		switch h.ord = int(ord); {
		case h.seq > 0:
			hits = append(hits, h)
		case h.ord <= scan:
			scanned, end[0] = max(scanned, h.ord), h.at
		default:
			scanned, end[1] = h.ord, h.at
		}
	}))
	return hits, scanned, end, err
}

// reach is at how many jobs a page looks at most, and how many it reads whole.
func reach(q *storage.Query, limit int) (scan, read int) {
	scan, read = maxScan, limit
	if q.Where != nil || len(q.ErrorTypes) > 0 || !q.CreatedFrom.IsZero() || !q.CreatedBefore.IsZero() ||
		!q.FinishedFrom.IsZero() || !q.FinishedBefore.IsZero() {
		read = maxRead // the statement does not know these
	}
	if len(q.States)+len(q.Queues)+len(q.Types) == 0 {
		scan = read
	}
	return scan, read
}

// walking returns the statement that walks along an order, and where it begins.
func (s *Storage) walking(q *storage.Query, w *cursor.Walk) (sql string, from cursor.Position) {
	from = w.From.After
	least := cursor.Position{math.MinInt64, math.MinInt64}
	greatest := cursor.Position{math.MaxInt64, math.MaxInt64}
	begin := least
	var way [2]string // forward, back
	switch {
	case q.Order == storage.OrderFinished:
		way, begin = s.sql.walkFinished, greatest
	case q.Order == storage.OrderDue:
		way = s.sql.walkDue
	case q.Order == storage.OrderClaim:
		way, begin = s.sql.walkReady, cursor.Position{math.MaxInt64, math.MinInt64}
	case q.OnlyActive() && q.Order == storage.OrderNewest:
		way, begin = s.sql.walkActiveNewest, greatest
	case q.OnlyActive():
		way = s.sql.walkActive
	case q.Order == storage.OrderNewest && q.DeadLetters:
		way, begin = s.sql.walkLastDead, greatest
	case q.Order == storage.OrderNewest:
		way, begin = s.sql.walkNewest, greatest
	case q.DeadLetters:
		way = s.sql.walkDead
	default:
		way = s.sql.walkOldest
	}
	if w.From.Back {
		return way[1], from
	}
	if w.First {
		from = begin
	}
	return way[0], from
}

// ClaimedBy implements storage.Storage. It leaves out rows that do not decode.
func (s *Storage) ClaimedBy(ctx context.Context, worker string) (recs []storage.Record, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	if !sayable(worker) {
		return nil, nil
	}
	list, err := selectRows(ctx, s.in(ctx), false, s.sql.claimedBy, worker)
	for i := range list {
		if rec, err := rows.Decode(&list[i].Columns); err == nil {
			recs = append(recs, rec)
		}
	}
	return recs, wrap(err)
}

// Counts implements storage.Storage.
func (s *Storage) Counts(ctx context.Context) (counts []storage.Count, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	var c storage.Count
	var state int16
	var n int64
	err = s.in(ctx).query(ctx, s.sql.counts, nil, each([]any{&c.Queue, &state, &n}, func() {
		if c.State, c.N = rows.State(int(state)), int(n); c.State != "" { // or it is for the quarantine
			counts = append(counts, c)
		}
	}))
	return counts, wrap(err)
}
