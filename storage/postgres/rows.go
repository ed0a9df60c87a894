package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// stored is a row as it was read.
type stored struct {
	ord        int64 // what else the statement says of it
	seq, place int64
	rows.Columns
}

// scanner reads the columns of jobs, as the constant columns names them.
type scanner struct {
	row    stored
	state  int16
	prio   int32
	att    int64
	times  [9]pgtype.Int8
	fp     pgtype.Text
	key    pgtype.Text
	target []any
}

func newScanner(withOrd bool) *scanner {
	s := &scanner{}
	r := &s.row
	if withOrd {
		s.target = append(s.target, &r.ord)
	}
	s.target = append(s.target, &r.seq, &r.place, &r.ID, &r.Queue, &r.Type, &s.state, &s.prio,
		&s.att, &r.Version)
	for i := range s.times {
		s.target = append(s.target, &s.times[i])
	}
	s.target = append(s.target, &r.Lease, &r.Progress, &r.Worker, &s.fp, &s.key, &r.Args, &r.Job, &r.Outcome,
		&r.Checkpoint, &r.Depends)
	return s
}

// scan reads a row, which the next scan overwrites but for its slices.
func (s *scanner) scan(from rowSet) error {
	r := &s.row
	r.Args, r.Job, r.Outcome, r.Checkpoint, r.Depends = nil, nil, nil, nil, nil // not to be written over
	if err := from.Scan(s.target...); err != nil {
		return err
	}
	r.State, r.Priority, r.Attempt = int(s.state), int(s.prio), int(s.att)
	for i, to := range []*int64{
		&r.Wake, &r.Deadline, &r.Created, &r.Enqueued, &r.Started, &r.NextRetry, &r.Finished, &r.Dead,
		&r.LeaseUntil,
	} {
		*to = rows.None
		if s.times[i].Valid {
			*to = s.times[i].Int64
		}
	}
	r.Fingerprint, r.RateKey = s.fp.String, s.key.String
	return nil
}

// collect reads every row of a result.
func collect(from rowSet, withOrd bool) ([]stored, error) {
	var list []stored
	s := newScanner(withOrd)
	for from.Next() {
		if err := s.scan(from); err != nil {
			return nil, err
		}
		list = append(list, s.row)
	}
	return list, from.Err()
}

func selectRows(
	ctx context.Context, q querier, withOrd bool, sql string, args ...any,
) (list []stored, err error) {
	err = q.query(ctx, sql, args, func(result rowSet) (err error) {
		list, err = collect(result, withOrd)
		return err
	})
	return list, err
}

func (r *stored) decode() (*rows.Row, error) {
	rec, err := rows.Decode(&r.Columns)
	return &rows.Row{Record: rec, Seq: r.seq, Was: rec.Version, Place: r.place}, err
}

// written is a row as statements write it.
type written struct {
	rows.Columns
	kept int64 // until when it is not pruned, once it has ended; or rows.None
}

func encode(r *storage.Record) (w written, err error) {
	w.Columns, err = rows.Encode(r)
	w.kept = rows.Nanos(r.KeptUntil())
	return w, err
}

// documentBytes is how large the documents of jobs are together.
func documentBytes(of []written) (n int) {
	for i := range of {
		n += len(of[i].Args) + len(of[i].Job) + len(of[i].Outcome) + len(of[i].Checkpoint)
	}
	return n
}

// arguments makes one array for each column of jobs, as the constant given takes them.
func arguments(of []written) []any {
	return []any{
		texts(of, func(c *written) string { return c.ID }),
		texts(of, func(c *written) string { return c.Queue }),
		texts(of, func(c *written) string { return c.Type }), states(of),
		column(of, func(c *written) int32 { return int32(c.Priority) }),
		numbers(of, func(c *written) int64 { return int64(c.Attempt) }),
		numbers(of, func(c *written) int64 { return c.Version }),
		numbers(of, func(c *written) int64 { return c.Wake }),
		numbers(of, func(c *written) int64 { return c.Deadline }),
		numbers(of, func(c *written) int64 { return c.Created }),
		numbers(of, func(c *written) int64 { return c.Enqueued }),
		numbers(of, func(c *written) int64 { return c.Started }),
		numbers(of, func(c *written) int64 { return c.NextRetry }),
		numbers(of, func(c *written) int64 { return c.Finished }),
		numbers(of, func(c *written) int64 { return c.Dead }),
		numbers(of, func(c *written) int64 { return c.LeaseUntil }),
		numbers(of, func(c *written) int64 { return c.Lease }),
		column(of, func(c *written) float64 { return c.Progress }),
		texts(of, func(c *written) string { return c.Worker }),
		texts(of, func(c *written) string { return c.Fingerprint }),
		texts(of, func(c *written) string { return c.RateKey }),
		documents(of, func(c *written) []byte { return c.Args }),
		documents(of, func(c *written) []byte { return c.Job }),
		documents(of, func(c *written) []byte { return c.Outcome }),
		documents(of, func(c *written) []byte { return c.Checkpoint }),
		numbers(of, func(c *written) int64 { return c.kept }),
		texts(of, func(c *written) string { return c.Bounds }),
		texts(of, func(c *written) string { return c.FairKey }),
		column(of, func(c *written) int32 { return int32(c.Share) }),
	}
}

// freshArguments makes one array for each column that fresh jobs have, as insertFresh
// takes them.
func freshArguments(of []written) []any {
	return []any{
		texts(of, func(c *written) string { return c.ID }),
		texts(of, func(c *written) string { return c.Queue }),
		texts(of, func(c *written) string { return c.Type }),
		column(of, func(c *written) int32 { return int32(c.Priority) }),
		numbers(of, func(c *written) int64 { return c.Created }),
		numbers(of, func(c *written) int64 { return c.Enqueued }),
		numbers(of, func(c *written) int64 { return c.Lease }),
		documents(of, func(c *written) []byte { return c.Args }),
	}
}

// completionArguments makes one array for each column in which plain completions differ,
// as completeAll takes them.
func completionArguments(of []written) []any {
	return []any{
		texts(of, func(c *written) string { return c.ID }),
		numbers(of, func(c *written) int64 { return c.Version }),
		numbers(of, func(c *written) int64 { return int64(c.Attempt) }),
		numbers(of, func(c *written) int64 { return c.Enqueued }),
		numbers(of, func(c *written) int64 { return c.Started }),
		numbers(of, func(c *written) int64 { return c.Finished }),
		of[0].Worker, of[0].Progress,
	}
}

// attemptArguments makes one array for each column that attempts change, as settleAttempt
// takes them.
func attemptArguments(of []written, froms []int64) []any {
	return []any{
		texts(of, func(c *written) string { return c.ID }), froms, states(of),
		numbers(of, func(c *written) int64 { return int64(c.Attempt) }),
		numbers(of, func(c *written) int64 { return c.Version }),
		numbers(of, func(c *written) int64 { return c.Wake }),
		numbers(of, func(c *written) int64 { return c.Deadline }),
		numbers(of, func(c *written) int64 { return c.Enqueued }),
		numbers(of, func(c *written) int64 { return c.Started }),
		numbers(of, func(c *written) int64 { return c.NextRetry }),
		numbers(of, func(c *written) int64 { return c.Finished }),
		numbers(of, func(c *written) int64 { return c.Dead }),
		numbers(of, func(c *written) int64 { return c.LeaseUntil }),
		column(of, func(c *written) float64 { return c.Progress }),
		texts(of, func(c *written) string { return c.Worker }),
		documents(of, func(c *written) []byte { return c.Outcome }),
		documents(of, func(c *written) []byte { return c.Checkpoint }),
		numbers(of, func(c *written) int64 { return c.kept }),
	}
}

func column[T any](of []written, get func(*written) T) []T {
	list := make([]T, len(of))
	for i := range of {
		list[i] = get(&of[i])
	}
	return list
}

func texts(of []written, get func(*written) string) []string     { return column(of, get) }
func numbers(of []written, get func(*written) int64) []int64     { return column(of, get) }
func documents(of []written, get func(*written) []byte) [][]byte { return column(of, get) }
func states(of []written) []int16 {
	return column(of, func(c *written) int16 { return int16(c.State) })
}
