package sqlite

import (
	"errors"
	"fmt"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs/internal/rows"
)

// statement is a prepared statement that is running. Its columns are read one after the
// other.
type statement struct {
	stmt *zombiezen.Stmt
	col  int
	err  error
}

// query begins a statement. It keeps the bytes that are bound until close.
func query(conn *zombiezen.Conn, sql string, args ...any) *statement {
	stmt, err := conn.Prepare(sql)
	if err != nil {
		return &statement{err: err}
	}
	s := &statement{stmt: stmt}
	for i, a := range args {
		s.bind(i+1, a)
	}
	return s
}

func (t *tx) query(sql string, args ...any) *statement { return query(t.conn, sql, args...) }

// exec runs a statement that returns nothing.
func (t *tx) exec(sql string, args ...any) error {
	return t.query(sql, args...).exec()
}

func (s *statement) exec() error {
	s.next()
	return s.close()
}

func (s *statement) bind(param int, v any) {
	if s.err != nil {
		return
	}
	switch v := v.(type) {
	case int64:
		s.stmt.BindInt64(param, v)
	case int:
		s.stmt.BindInt64(param, int64(v))
	case bool:
		s.stmt.BindBool(param, v)
	case string:
		s.stmt.BindText(param, v)
	case float64:
		s.stmt.BindFloat(param, v)
	case []byte:
		s.bytes(param, v)
	default:
		s.err = fmt.Errorf("%T cannot be bound", v)
	}
}

func (s *statement) bytes(param int, b []byte) {
	if b == nil {
		s.stmt.BindNull(param)
		return
	}
	s.stmt.BindBytes(param, b)
}

func (s *statement) optional(param int, text string) {
	if text == "" {
		s.stmt.BindNull(param)
		return
	}
	s.stmt.BindText(param, text)
}

func (s *statement) nanos(param int, ns int64) {
	if ns == rows.None {
		s.stmt.BindNull(param)
		return
	}
	s.stmt.BindInt64(param, ns)
}

// next goes to the next row. It reports false after the last, and after a failure.
func (s *statement) next() bool {
	if s.err != nil {
		return false
	}
	s.col = 0
	more, err := s.stmt.Step()
	s.err = err
	return more && err == nil
}

// close ends the statement and returns what went wrong with it.
func (s *statement) close() error {
	if s.stmt == nil {
		return s.err
	}
	reset := s.stmt.Reset()
	if s.err != nil { // of which reset tells again
		return s.err
	}
	return errors.Join(reset)
}

func (s *statement) int64() int64 {
	s.col++
	return s.stmt.ColumnInt64(s.col - 1)
}

func (s *statement) int() int { return int(s.int64()) }

func (s *statement) text() string {
	s.col++
	return s.stmt.ColumnText(s.col - 1)
}

func (s *statement) float() float64 {
	s.col++
	return s.stmt.ColumnFloat(s.col - 1)
}

func (s *statement) null() bool { return s.stmt.ColumnIsNull(s.col) }

func (s *statement) time() int64 {
	if s.null() {
		s.col++
		return rows.None
	}
	return s.int64()
}

func (s *statement) blob() []byte {
	if s.null() {
		s.col++
		return nil
	}
	b := make([]byte, s.stmt.ColumnLen(s.col))
	s.stmt.ColumnBytes(s.col, b)
	s.col++
	return b
}

// stored is a row as it was read.
type stored struct {
	seq, place int64
	kept       int64 // until when it is not pruned; rows.None unless it has ended and is kept
	awaited    bool  // other jobs may wait for it
	own        int64 // own_place
	rows.Columns
}

// row reads the columns of a job, as the constant columns names them.
func (s *statement) row() stored {
	var r stored
	r.seq, r.place = s.int64(), s.int64()
	r.ID, r.Queue, r.Type = s.text(), s.text(), s.text()
	r.State, r.Priority, r.Attempt, r.Version = s.int(), s.int(), s.int(), s.int64()
	r.Wake, r.Deadline, r.Created, r.Enqueued = s.time(), s.time(), s.time(), s.time()
	r.Started, r.NextRetry, r.Finished, r.Dead, r.LeaseUntil = s.time(), s.time(), s.time(),
		s.time(), s.time()
	r.Lease, r.Progress, r.Worker = s.int64(), s.float(), s.text()
	r.Fingerprint, r.RateKey = s.text(), s.text()
	r.Args, r.Job, r.Outcome, r.Checkpoint = s.blob(), s.blob(), s.blob(), s.blob()
	r.kept, r.Bounds = s.time(), s.text()
	r.FairKey, r.own = s.text(), s.int64()
	r.Depends, r.awaited = s.blob(), s.int() != 0
	return r
}

// head reads of a job what places it in a listing, and the columns that a query looks at
// first. It leaves the row to be read as a whole.
func (s *statement) head() stored {
	var r stored
	r.seq, r.place = s.int64(), s.int64()
	s.col = 3
	r.Queue, r.Type, r.State, r.Priority = s.text(), s.text(), s.int(), s.int()
	s.col = 9
	r.Wake = s.time()
	s.col = 15
	r.Finished = s.time()
	s.col = 30
	r.own = s.int64()
	s.col = 0
	return r
}

// all reads rows until the last.
func (s *statement) all() ([]stored, error) {
	var list []stored
	for s.next() {
		list = append(list, s.row())
	}
	return list, s.close()
}

func (r *stored) kind() kind { return kind{r.Queue, r.State, r.Dead != rows.None, r.kept != rows.None} }

// decode returns a row for reading and changing.
func (t *tx) decode(r *stored) (*rows.Row, error) {
	rec, err := rows.Decode(&r.Columns)
	if err == nil && r.Version > t.place { // it would raise all others with it (coversVersion)
		err = fmt.Errorf("version: %d is above every one that was given, %d", r.Version, t.place)
	}
	if err == nil && r.Bounds != "" && rec.RateLimit == nil {
		err = errors.New("bounds: is set, though the job has no rate limit")
	}
	return &rows.Row{Record: rec, Seq: r.seq, Was: rec.Version, Place: r.place}, err
}
