package legacy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed"
)

// batch is how many jobs are moved at once.
const batch = 500

// Move moves everything from the tables of the version Newest to a storage, and drops
// them. The context and the connection are of one transaction of the storage.
func Move(ctx context.Context, conn *zombiezen.Conn, to *keyed.Storage) error {
	f := file{conn}
	saved, err := f.saved()
	if err != nil {
		return err
	}
	if err := to.Restore(ctx, saved); err != nil {
		return err
	}
	if err := f.moveJobs(ctx, saved, to); err != nil {
		return err
	}
	if err := f.moveRest(ctx, to); err != nil {
		return err
	}
	values, err := f.values()
	if err != nil {
		return err
	}
	if err := document.Of(to).PutValues(ctx, time.Time{}, values); err != nil {
		return err
	}
	return drop(conn)
}

// file is a file of the version Newest, within a transaction.
type file struct{ conn *zombiezen.Conn }

// saved reads what is restored before the jobs.
func (f file) saved() (*keyed.Saved, error) {
	s := new(keyed.Saved)
	return s, errors.Join(
		f.each("SELECT max(seq, place) FROM counter", nil, func(r *reader) error {
			s.Last = r.int64()
			return nil
		}),
		f.each("SELECT n FROM cron_version", nil, func(r *reader) error {
			s.LastCron = r.int64()
			return nil
		}),
		f.limits(s), f.quarantined(s), f.crons(s),
	)
}

// each calls f with each row of a statement.
func (f file) each(sql string, args []any, row func(r *reader) error) (err error) {
	stmt, err := f.conn.Prepare(sql)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stmt.Reset()) }()
	for i, a := range args {
		switch a := a.(type) {
		case int64:
			stmt.BindInt64(i+1, a)
		case string:
			stmt.BindText(i+1, a)
		}
	}
	for {
		more, err := stmt.Step()
		if err != nil || !more {
			return err
		}
		if err := row(&reader{stmt: stmt}); err != nil {
			return err
		}
	}
}

// reader reads the columns of a row one after the other.
type reader struct {
	stmt *zombiezen.Stmt
	col  int
}

func (r *reader) null() bool { return r.stmt.ColumnIsNull(r.col) }

func (r *reader) int64() int64 {
	r.col++
	return r.stmt.ColumnInt64(r.col - 1)
}

func (r *reader) int() int { return int(r.int64()) }

func (r *reader) text() string {
	r.col++
	return r.stmt.ColumnText(r.col - 1)
}

func (r *reader) time() int64 {
	if r.null() {
		r.col++
		return rows.None
	}
	return r.int64()
}

func (r *reader) blob() []byte {
	if r.null() {
		r.col++
		return nil
	}
	b := make([]byte, r.stmt.ColumnLen(r.col))
	r.stmt.ColumnBytes(r.col, b)
	r.col++
	return b
}

// columns are those of a job, in the order in which job reads them.
const columns = `seq, place, own_place, kept, depends IS NOT NULL, coalesce(awaited, 0),
	id, queue, type, state, priority, attempt, version, wake, deadline, created, enqueued, started, next_retry,
	finished, dead, lease_until, lease, progress, worker, coalesce(fingerprint, ''), args, job, outcome,
	checkpoint, depends`

func (r *reader) job() (j keyed.SavedJob, c rows.Columns) {
	j.Seq, j.Place = r.int64(), r.int64()
	own := r.int64()
	j.KeptUntil, j.Counted, j.Awaited = rows.Time(r.time()), r.int() != 0, r.int() != 0
	c.ID, c.Queue, c.Type = r.text(), r.text(), r.text()
	c.State, c.Priority, c.Attempt, c.Version = r.int(), r.int(), r.int(), r.int64()
	c.Wake, c.Deadline, c.Created, c.Enqueued = r.time(), r.time(), r.time(), r.time()
	c.Started, c.NextRetry, c.Finished, c.Dead = r.time(), r.time(), r.time(), r.time()
	c.LeaseUntil, c.Lease = r.time(), r.int64()
	c.Progress = r.stmt.ColumnFloat(r.col)
	r.col++
	c.Worker, c.Fingerprint = r.text(), r.text()
	c.Args, c.Job, c.Outcome, c.Checkpoint, c.Depends = r.blob(), r.blob(), r.blob(), r.blob(), r.blob()
	if c.State == rows.Available { // the place of its round, unless it has its own alone
		j.Round = j.Place
	}
	j.Place = max(j.Place, own)
	return j, c
}

// moveJobs moves the jobs, in the order of insertion.
func (f file) moveJobs(ctx context.Context, saved *keyed.Saved, to *keyed.Storage) error {
	edges := make(map[int64][]int64) // by the job that waits
	err := f.each("SELECT dependency, waiting FROM edge", nil, func(r *reader) error {
		dependency, waiting := r.int64(), r.int64()
		edges[waiting] = append(edges[waiting], dependency)
		return nil
	})
	if err != nil {
		return err
	}
	for after, more := int64(math.MinInt64), true; more; {
		part := &keyed.Saved{Last: saved.Last}
		n := 0
		const next = "SELECT " + columns + " FROM job WHERE seq > ? ORDER BY seq LIMIT ?"
		err := f.each(next, []any{after, int64(batch)}, func(r *reader) error {
			j, c := r.job()
			n, after = n+1, j.Seq
			var err error
			if j.Record, err = rows.Decode(&c); err == nil && c.Version > saved.Last {
				err = fmt.Errorf("version: %d is above every one that was given, %d", c.Version, saved.Last)
			}
			if err != nil {
				why := storage.Quarantined{Reason: rows.Reason(err)}
				part.Quarantine = append(part.Quarantine, damaged(&c, why))
				return nil
			}
			if j.Record.Fairness.Key == "" {
				j.Round = 0
			}
			j.WaitsFor = edges[j.Seq]
			part.Jobs = append(part.Jobs, j)
			return nil
		})
		for i := range part.Jobs {
			err = errors.Join(err, f.rest(&part.Jobs[i]))
		}
		if err == nil {
			err = to.Restore(ctx, part)
		}
		if err != nil {
			return err
		}
		more = n == batch
	}
	return nil
}

// damaged is a job that does not decode. The quarantine has its row as JSON.
func damaged(c *rows.Columns, q storage.Quarantined) keyed.SavedAside {
	q.Kind, q.Name, q.Queue = storage.KindJob, c.ID, c.Queue
	q.Type, q.State = rows.TypeName(c.Type), rows.State(c.State)
	if math.IsNaN(c.Progress) || math.IsInf(c.Progress, 0) { // of which JSON knows nothing
		c.Progress = 0
	}
	row, _ := json.Marshal(c)
	return keyed.SavedAside{Quarantined: q, Value: row}
}

// rest reads what other tables have of a job.
func (f file) rest(j *keyed.SavedJob) error {
	of := []any{j.Seq}
	return errors.Join(
		f.each("SELECT version, data FROM log WHERE seq = ? ORDER BY version", of, func(r *reader) error {
			j.Logs = append(j.Logs, storage.Log{Version: uint64(r.int64()), Data: r.blob()})
			return nil
		}),
		f.each("SELECT 1 FROM line WHERE seq = ?", of, func(*reader) error {
			j.Lined = true
			return nil
		}),
		f.each("SELECT name FROM holder WHERE id = (SELECT holder FROM job WHERE seq = ?)", of,
			func(r *reader) error {
				j.Handle = r.text()
				return nil
			}),
	)
}

// quarantined reads the records that were set aside, in their order.
func (f file) quarantined(s *keyed.Saved) error {
	var seqs []int64
	err := f.each("SELECT kind, name, reason, at, body, coalesce(seq, 0) FROM quarantine ORDER BY n", nil,
		func(r *reader) error {
			var q keyed.SavedAside
			q.Kind, q.Name, q.Reason = storage.Kind(r.text()), r.text(), r.text()
			q.At, q.Value = time.UnixMilli(r.int64()).UTC(), r.blob()
			s.Quarantine, seqs = append(s.Quarantine, q), append(seqs, r.int64())
			return nil
		})
	for i, seq := range seqs {
		q := &s.Quarantine[i]
		err = errors.Join(err, f.each("SELECT "+columns+" FROM quarantined_job WHERE seq = ?", []any{seq},
			func(r *reader) error {
				_, c := r.job()
				*q = damaged(&c, q.Quarantined)
				return nil
			}))
	}
	return err
}

func aside(kind storage.Kind, name string, why error, value []byte) keyed.SavedAside {
	q := storage.Quarantined{Kind: kind, Name: name, Reason: rows.Reason(why)}
	return keyed.SavedAside{Quarantined: q, Value: value}
}

// crons reads the recurring entries.
func (f file) crons(s *keyed.Saved) error {
	return f.each("SELECT name, version, entry FROM cron", nil, func(r *reader) error {
		d := storage.Document{Name: r.text(), Version: uint64(r.int64()), Data: r.blob()}
		if c, err := rows.DecodeCron(&d); err == nil {
			s.Crons = append(s.Crons, c)
		} else {
			s.Quarantine = append(s.Quarantine, aside(storage.KindCron, d.Name, err, d.Data))
		}
		return nil
	})
}

// moveRest moves rounds, which are restored behind the jobs, and states of queues.
func (f file) moveRest(ctx context.Context, to *keyed.Storage) error {
	rest := new(keyed.Saved)
	err := f.each("SELECT queue, state FROM queue_state", nil, func(r *reader) error {
		queue, state := r.text(), ojs.QueueState(r.text())
		if !state.Valid() {
			rest.Quarantine = append(rest.Quarantine,
				aside(storage.KindQueue, queue, rows.NoQueueState(string(state)), []byte(state)))
			return nil
		}
		_, err := to.SetQueueState(ctx, queue, state)
		return err
	})
	err = errors.Join(err, f.each("SELECT queue, priority, place FROM served", nil, func(r *reader) error {
		round := keyed.SavedRound{Queue: r.text(), Priority: r.int(), Round: r.int64()}
		rest.Rounds = append(rest.Rounds, round)
		return nil
	}))
	return errors.Join(err, to.Restore(ctx, rest))
}

// values reads the values.
func (f file) values() (list []document.Value, err error) {
	err = f.each("SELECT key, data, expires FROM value", nil, func(r *reader) error {
		v := document.Value{Key: r.text(), Data: r.blob()}
		if at := r.int64(); at != math.MaxInt64 {
			v.Expires = rows.Time(at)
		}
		list = append(list, v)
		return nil
	})
	return list, err
}

// limits reads the limits of keys, queues and types.
func (f file) limits(s *keyed.Saved) error {
	bounds := func(text string) (*ojs.RateLimit, error) {
		if text == "" {
			return nil, nil
		}
		b, err := rows.ReadBounds(text)
		return &b, err
	}
	err := f.each("SELECT kind, name, setting, until, blocked, last, period, most FROM job_limit", nil,
		func(r *reader) (err error) {
			var l keyed.SavedLimit
			l.Kind, l.Name = storage.LimitKind(r.text()), r.text()
			l.Setting, err = bounds(r.text())
			l.Until, l.Blocked = rows.Time(r.time()), rows.Time(r.time())
			last, lastErr := bounds(r.text())
			if err = errors.Join(err, lastErr); err != nil {
				return fmt.Errorf("job_limit of %s %q: %w", l.Kind, l.Name, err)
			}
			l.Last = last
			l.Window, l.Most = time.Duration(r.int64()), r.int()
			s.Limits = append(s.Limits, l)
			return nil
		})
	for i := range s.Limits {
		l := &s.Limits[i]
		err = errors.Join(err, f.each("SELECT at FROM job_start WHERE kind = ? AND name = ? ORDER BY n",
			[]any{string(l.Kind), l.Name}, func(r *reader) error {
				l.Starts = append(l.Starts, rows.Time(r.int64()))
				return nil
			}))
	}
	return err
}

// drop removes the tables.
func drop(conn *zombiezen.Conn) error {
	tables := []string{"job", "tally", "counter", "queue_state", "cron", "cron_version", "holder",
		"quarantine", "quarantined_job", "edge", "value", "job_limit", "job_start", "line", "log", "served"}
	return runScript(conn, "DROP TABLE "+strings.Join(tables, "; DROP TABLE "))
}
