package sqlite

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/cursor"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// maxScan bounds the rows that one page looks at, found or not, so that no listing holds
// a reader for long.
const maxScan = 1024

// Get implements storage.Storage.
func (s *Storage) Get(ctx context.Context, id string) (rec storage.Record, err error) {
	var bad int64
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		list, err := query(conn, selectByID, id).all()
		if err == nil && len(list) == 0 {
			if err := quarantinedJob(conn, id); err != nil {
				return err
			}
			return fmt.Errorf("%w: job %q", ojs.ErrNotFound, id)
		}
		if err == nil {
			if rec, err = rows.Decode(&list[0].Columns); err != nil {
				bad, err = list[0].seq, nil
			}
		}
		return err
	})
	if err != nil || bad == 0 {
		return rec, err
	}
	if err := s.setAsideRead(ctx, []int64{bad}); err != nil {
		return storage.Record{}, err
	}
	return s.Get(ctx, id)
}

// List implements storage.Storage.
func (s *Storage) List(ctx context.Context, q storage.Query) (page storage.Page, err error) {
	walk, err := cursor.Begin(q.Cursor)
	if err != nil {
		return page, err
	}
	if !q.Order.Valid() {
		return page, fmt.Errorf("%w: storage sqlite has no order %q", ojs.ErrUnsupported, q.Order)
	}
	limit := q.Limit
	if limit <= 0 || limit > 1000 {
		limit = 1000
	}
	var bad []int64
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		st := listing(conn, &q, &walk)
		for st.next() {
			r := st.head()
			at := position(&q, &r)
			if len(page.Records) == limit || page.Looked == maxScan {
				walk.Stop(at)
				break
			}
			page.Looked++
			walk.Pass(at)
			name := rows.TypeName(r.Type)
			if state := rows.State(r.State); state != "" && !q.MayMatch(state, r.Queue, name) {
				continue
			}
			r = st.row()
			rec, err := rows.Decode(&r.Columns)
			if err != nil {
				bad = append(bad, r.seq)
				continue
			}
			if q.Matches(&rec) {
				page.Records = append(page.Records, rec)
			}
		}
		return st.close()
	})
	if walk.From.Back {
		slices.Reverse(page.Records)
	}
	page.Prev, page.Next = walk.Ends()
	if err == nil {
		err = s.setAsideRead(ctx, bad)
	}
	return page, err
}

// position is where a row is in the order of a query.
func position(q *storage.Query, r *stored) cursor.Position {
	switch {
	case q.Order == storage.OrderFinished:
		return cursor.Position{r.Finished, r.place}
	case q.Order == storage.OrderDue:
		return cursor.Position{r.Wake, max(r.place, r.own)}
	case q.Order == storage.OrderClaim:
		return cursor.Position{int64(r.Priority), r.place, r.own}
	case q.DeadLetters:
		return cursor.Position{r.place}
	}
	return cursor.Position{r.seq}
}

// listing begins to read rows in the order of a query, from where a page begins. Every
// statement follows an index, and reads no row before it is asked for. That of the active
// jobs sorts their numbers first.
func listing(conn *zombiezen.Conn, q *storage.Query, w *cursor.Walk) *statement {
	at, back := w.From.After, w.From.Back
	const most = maxScan + 1
	switch q.Order {
	case storage.OrderFinished:
		if w.First {
			at = cursor.Position{math.MaxInt64, math.MaxInt64}
		}
		return query(conn, finishedStatement(q, back), at[0], at[1], most)
	case storage.OrderDue:
		switch {
		case back:
			return query(conn, listDueBack, at[0], at[1], most)
		case w.First:
			at = cursor.Position{math.MinInt64, math.MinInt64}
		}
		return query(conn, listDue, at[0], at[1], most)
	case storage.OrderClaim:
		switch {
		case back:
			return query(conn, listReadyBack, at[0], at[1], at[2], most)
		case w.First:
			at[0] = math.MaxInt64
		}
		return query(conn, listReady, at[0], at[1], at[2], most)
	}
	newest := q.Order == storage.OrderNewest
	if newest && w.First {
		at[0] = math.MaxInt64
	}
	sql := [3][4]string{
		{listJobs, listJobsBack, listNewest, listNewestBack},
		{listDead, listDeadBack, listLastDead, listLastDeadBack},
		{listActive, listActiveBack, listActiveNewest, listActiveNewestBack},
	}
	i, k := 0, 0
	switch {
	case q.DeadLetters:
		i = 1
	case q.OnlyActive():
		i = 2
	}
	if newest {
		k = 2
	}
	if back {
		k++
	}
	return query(conn, sql[i][k], at[0], most)
}

// finishedStatement reads the finished jobs of a query's states: one list of each kind,
// merged.
func finishedStatement(q *storage.Query, back bool) string {
	states := []int{rows.Completed, rows.Cancelled, rows.Discarded}
	if len(q.States) > 0 {
		asked := rows.Codes(q.States)
		states = slices.DeleteFunc(states, func(s int) bool { return !slices.Contains(asked, s) })
	}
	parts := []string{keptFinished}
	for _, state := range states {
		if !q.DeadLetters {
			parts = append(parts, fmt.Sprintf(someFinished, state))
		}
		if state == rows.Discarded {
			parts = append(parts, deadFinished)
		}
	}
	within, order := " AND (finished, place) < (?1, ?2)", " ORDER BY finished DESC, place DESC LIMIT ?3"
	if back {
		within, order = " AND (finished, place) >= (?1, ?2)", " ORDER BY finished, place LIMIT ?3"
	}
	return strings.Join(parts, within+" UNION ALL ") + within + order
}

// ClaimedBy implements storage.Storage. It leaves out rows that do not decode.
func (s *Storage) ClaimedBy(ctx context.Context, worker string) (recs []storage.Record, err error) {
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		recs = nil
		list, err := query(conn, selectClaimedBy, worker).all()
		for i := range list {
			if rec, err := rows.Decode(&list[i].Columns); err == nil {
				recs = append(recs, rec)
			}
		}
		return err
	})
	return recs, err
}

// Counts implements storage.Storage.
func (s *Storage) Counts(ctx context.Context) (counts []storage.Count, err error) {
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		q := query(conn, selectTally)
		for q.next() {
			c := storage.Count{Queue: q.text(), State: rows.State(q.int()), N: q.int()}
			if c.State != "" && c.N > 0 { // others have been changed by hand
				counts = append(counts, c)
			}
		}
		return q.close()
	})
	return counts, err
}
