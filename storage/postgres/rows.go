package postgres

import (
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/ojsengine/ojs/internal/cursor"
	"github.com/ojsengine/ojs/internal/rows"
)

// stored is a row as it was read.
type stored struct {
	ord        int64 // what else the statement says of it
	at         cursor.Position
	seq, place int64
	rows.Columns
}

// scanner reads the columns of jobs, as the constant columns names them.
type scanner struct {
	row    stored
	times  [9]pgtype.Int8
	target []any
}

// newScanner reads the columns behind n others: a number, and a position.
func newScanner(n int) *scanner {
	s := &scanner{}
	r := &s.row
	s.target = append([]any{&r.ord, &r.at[0], &r.at[1], &r.at[2]}[:n], &r.seq, &r.place, &r.ID,
		&r.Queue, &r.Type, &r.State, &r.Priority, &r.Attempt, &r.Version)
	for i := range s.times {
		s.target = append(s.target, &s.times[i])
	}
	s.target = append(s.target, &r.Lease, &r.Progress, &r.Worker, (*zeronull.Text)(&r.Fingerprint),
		(*zeronull.Text)(&r.RateKey), &r.Args, &r.Job, &r.Outcome, &r.Checkpoint, &r.Depends)
	return s
}

// scan reads a row, which the next scan overwrites but for its slices.
func (s *scanner) scan(from rowSet) error {
	r := &s.row
	r.Args, r.Job, r.Outcome, r.Checkpoint, r.Depends = nil, nil, nil, nil, nil // not to be written over
	if err := from.Scan(s.target...); err != nil {
		return err
	}
	for i, to := range []*int64{
		&r.Wake, &r.Deadline, &r.Created, &r.Enqueued, &r.Started, &r.NextRetry, &r.Finished, &r.Dead,
		&r.LeaseUntil,
	} {
		*to = rows.None
		if s.times[i].Valid {
			*to = s.times[i].Int64
		}
	}
	return nil
}

// rows makes a statement that returns columns of jobs behind n others.
func (t *tx) rows(n int, of statement, args ...any) (list []stored) {
	s := newScanner(n)
	t.query(of, func(result rowSet) error {
		for result.Next() {
			if err := s.scan(result); err != nil {
				return err
			}
			list = append(list, s.row)
		}
		return result.Err()
	}, args...)
	return list
}

func (r *stored) decode() (*rows.Row, error) {
	rec, err := rows.Decode(&r.Columns)
	return &rows.Row{Record: rec, Seq: r.seq, Was: rec.Version, Place: r.place}, err
}

// written is a row as statements write it.
type written = rows.Columns

// documentBytes is how large the documents of jobs are together.
func documentBytes(of []written) (n int) {
	for i := range of {
		n += len(of[i].Args) + len(of[i].Job) + len(of[i].Outcome) + len(of[i].Checkpoint)
	}
	return n
}

// field is a column of jobs as statements take it: an array.
type field struct {
	name, sql string // its type
	none      string // what the array has for NULL; "": no NULL
	of        func(jobs []written) any
}

// fields are the columns of the constant given.
var fields = []field{
	{"id", "text", "", column(func(c *written) string { return c.ID })},
	{"queue", "text", "", column(func(c *written) string { return c.Queue })},
	{"type", "text", "", column(func(c *written) string { return c.Type })},
	{"state", "smallint", "", column(func(c *written) int16 { return int16(c.State) })},
	{"priority", "integer", "", column(func(c *written) int32 { return int32(c.Priority) })},
	{"attempt", "bigint", "", column(func(c *written) int64 { return int64(c.Attempt) })},
	{"version", "bigint", "", column(func(c *written) int64 { return c.Version })},
	{"wake", "bigint", "{none}", column(func(c *written) int64 { return c.Wake })},
	{"deadline", "bigint", "{none}", column(func(c *written) int64 { return c.Deadline })},
	{"created", "bigint", "{none}", column(func(c *written) int64 { return c.Created })},
	{"enqueued", "bigint", "{none}", column(func(c *written) int64 { return c.Enqueued })},
	{"started", "bigint", "{none}", column(func(c *written) int64 { return c.Started })},
	{"next_retry", "bigint", "{none}", column(func(c *written) int64 { return c.NextRetry })},
	{"finished", "bigint", "{none}", column(func(c *written) int64 { return c.Finished })},
	{"dead", "bigint", "{none}", column(func(c *written) int64 { return c.Dead })},
	{"lease_until", "bigint", "{none}", column(func(c *written) int64 { return c.LeaseUntil })},
	{"lease", "bigint", "", column(func(c *written) int64 { return c.Lease })},
	{"progress", "float8", "", column(func(c *written) float64 { return c.Progress })},
	{"worker", "text", "", column(func(c *written) string { return c.Worker })},
	{"fingerprint", "text", "''", column(func(c *written) string { return c.Fingerprint })},
	{"rate_key", "text", "''", column(func(c *written) string { return c.RateKey })},
	{"args", "bytea", "", column(func(c *written) []byte { return c.Args })},
	{"job", "bytea", "", column(func(c *written) []byte { return c.Job })},
	{"outcome", "bytea", "", column(func(c *written) []byte { return c.Outcome })},
	{"checkpoint", "bytea", "", column(func(c *written) []byte { return c.Checkpoint })},
	{"kept", "bigint", "{none}", column(func(c *written) int64 { return c.Kept })},
	{"bounds", "text", "''", column(func(c *written) string { return c.Bounds })},
	{"fair_key", "text", "''", column(func(c *written) string { return c.FairKey })},
	{"share", "integer", "", column(func(c *written) int32 { return int32(c.Share) })},
}

func column[T any](get func(*written) T) func([]written) any {
	return func(of []written) any { return listOf(of, get) }
}

// listOf makes a list of what get returns for each element of another.
func listOf[E, T any](of []E, get func(*E) T) []T {
	list := make([]T, len(of))
	for i := range of {
		list[i] = get(&of[i])
	}
	return list
}

// fieldsOf are the fields with some names.
func fieldsOf(names string) (list []field) {
	for name := range strings.FieldsSeq(names) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		list = append(list, fields[i])
	}
	return list
}

func argumentsOf(jobs []written, fields []field) []any {
	args := make([]any, len(fields), len(fields)+5)
	for i := range fields {
		args[i] = fields[i].of(jobs)
	}
	return args
}

// arguments makes one array for each column of jobs, as the constant given takes them.
func arguments(of []written) []any { return argumentsOf(of, fields) }

var freshFields = fieldsOf("id queue type priority created enqueued lease args")

// freshArguments makes one array for each column that fresh jobs have, as insertFresh
// takes them.
func freshArguments(of []written) []any { return argumentsOf(of, freshFields) }

var completionFields = fieldsOf("id version attempt enqueued started finished")

// completionArguments makes one array for each column in which plain completions differ,
// as completeAll takes them.
func completionArguments(of []written) []any {
	return append(argumentsOf(of, completionFields), of[0].Worker, of[0].Progress)
}

var attemptFields = fieldsOf("id state attempt version wake deadline enqueued started next_retry finished dead" +
	" lease_until progress worker outcome checkpoint kept")

// attemptArguments makes one array for each column that attempts change, as settleAttempt
// takes them.
func attemptArguments(of []written, froms []int64) []any {
	return slices.Insert(argumentsOf(of, attemptFields), 1, any(froms))
}
