package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/hostile"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// bytesLiteral is how a statement writes down bytes.
func bytesLiteral(document string) string { return fmt.Sprintf(`'\x%x'::bytea`, document) }

// table is a name in a statement that stands for a table.
var table = regexp.MustCompile(`\{(\w+)\}`)

// wholeJobs makes a view of jobs with the columns of quarantined_job, for statements that
// change any of them.
const wholeJobs = `
	CREATE VIEW {whole} AS SELECT b.seq, b.id, s.queue, s.type, s.state, s.priority, s.attempt, s.version, s.place, s.wake,
		s.deadline, b.created, s.enqueued, s.started, s.next_retry, s.finished, s.dead, s.lease_until, b.lease,
		coalesce(s.progress, 0) AS progress, coalesce(s.worker, '') AS worker, s.fingerprint, s.rate_key, b.args, b.job,
		s.outcome, s.checkpoint, s.kept, s.released, s.other_place
		FROM {job} b JOIN {stage} s USING (seq);
	CREATE FUNCTION {change_whole}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		UPDATE {job} SET created = NEW.created, lease = NEW.lease, args = NEW.args, job = NEW.job WHERE seq = NEW.seq;
		UPDATE {stage} SET queue = NEW.queue, type = NEW.type, state = NEW.state, priority = NEW.priority, attempt = NEW.attempt,
			version = NEW.version, place = NEW.place, wake = NEW.wake, deadline = NEW.deadline, enqueued = NEW.enqueued,
			started = NEW.started, next_retry = NEW.next_retry, finished = NEW.finished, dead = NEW.dead,
			lease_until = NEW.lease_until, progress = NEW.progress, worker = NEW.worker, fingerprint = NEW.fingerprint,
			rate_key = NEW.rate_key, outcome = NEW.outcome, checkpoint = NEW.checkpoint, kept = NEW.kept WHERE seq = NEW.seq;
		RETURN NEW;
	END $$;
	CREATE TRIGGER change_whole INSTEAD OF UPDATE ON {whole} FOR EACH ROW EXECUTE FUNCTION {change_whole}();`

func hostileConfig(t *testing.T) hostile.Config {
	pool := connect(t)
	names := make(map[storage.Storage]string)
	return hostile.Config{
		Open: func(tb testing.TB) storage.Storage {
			name := schema(tb, pool)
			s, err := postgres.Open(context.Background(), pool, postgres.WithSchema(name))
			if err != nil {
				tb.Fatal(err)
			}
			names[s] = name
			_, err = pool.Exec(context.Background(), table.ReplaceAllString(wholeJobs, name+".$1"))
			if err != nil {
				tb.Fatal(err)
			}
			return s
		},
		Exec: func(tb testing.TB, s storage.Storage, sql string) {
			tb.Helper()
			sql = strings.ReplaceAll(sql, "{job}", "{whole}")
			if _, err := pool.Exec(context.Background(),
				table.ReplaceAllString(sql, names[s]+".$1")); err != nil {
				tb.Fatalf("%s: %v", sql, err)
			}
		},
		Bytes: bytesLiteral,
	}
}

func TestHostileRows(t *testing.T) {
	t.Parallel()
	hostile.Run(t, hostileConfig(t))
}

// A call that finds a row on its way to the quarantine waits until it is there.
func TestQuarantineCountsRowsOnTheirWay(t *testing.T) {
	pool := connect(t)
	name := schema(t, pool)
	s, err := postgres.Open(t.Context(), pool, postgres.WithSchema(name))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	exec := func(q interface {
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	}, sql string) {
		t.Helper()
		if _, err := q.Exec(t.Context(), table.ReplaceAllString(sql, name+".$1")); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	eng, err := engine.New[int](s, engine.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := eng.Enqueue(t.Context(), "work", 1); err != nil {
		t.Fatal(err)
	}
	exec(pool, "UPDATE {stage} SET state = 99")
	tx, err := pool.Begin(t.Context()) // keeps the row from entering the quarantine
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	exec(tx, wholeJobs)
	exec(tx, "INSERT INTO {quarantined_job} SELECT * FROM {whole}")
	counted := make(chan int, 2)
	count := func() {
		n, err := s.CountQuarantined(context.Background())
		if err != nil {
			t.Error(err)
		}
		counted <- n
	}
	go count()
	for waits := false; !waits; { // for the transaction, with the row locked
		err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted
			AND pid IN (SELECT pid FROM pg_stat_activity WHERE query LIKE '%' || $1 || '%'))`, name).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
	}
	go count()
	select {
	case n := <-counted:
		t.Errorf("%d records in the quarantine while one is on its way", n)
		counted <- n
	case <-time.After(200 * time.Millisecond): // it waits too
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if n := <-counted; n != 1 {
			t.Errorf("%d records in the quarantine", n)
		}
	}
}

// A migration that gives job or stage a column gives it to quarantined_job too: rows move
// between them as they are. The columns of lanes and limited follow from others.
func TestQuarantinedJobHasTheColumnsOfJob(t *testing.T) {
	pool := connect(t)
	name := schema(t, pool)
	s, err := postgres.Open(t.Context(), pool, postgres.WithSchema(name))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	columns := func(table string) []string {
		rows, err := pool.Query(t.Context(), `SELECT column_name || ' ' || udt_name || coalesce(' ' || collation_name, '') FROM information_schema.columns
			WHERE table_schema = $1 AND table_name = $2 AND column_name NOT IN ('limited', 'lane', 'most', 'head', 'late') ORDER BY 1`, name, table)
		if err != nil {
			t.Fatal(err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(list) == 0 {
			t.Fatal(list, err)
		}
		return list
	}
	job := append(columns("job"), columns("stage")...)
	slices.Sort(job)
	if job, quarantined := slices.Compact(job), columns("quarantined_job"); !slices.Equal(job, quarantined) {
		t.Errorf("quarantined_job has %v, and job %v", quarantined, job)
	}
}

// Inside a transaction of the caller's an equal job that does not decode is set aside by
// that transaction, or stays with it.
func TestEnqueueInATransactionBesideABadRow(t *testing.T) {
	cfg := hostileConfig(t)
	pool := connect(t)
	for _, commits := range []bool{true, false} {
		s := cfg.Open(t).(*postgres.Storage)
		eng, err := engine.New[int](s, engine.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		unique := ojs.WithUnique(ojs.UniquePolicy{})
		bad, err := eng.Enqueue(t.Context(), "work", 1, unique)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Exec(t, s, "UPDATE {job} SET args = "+bytesLiteral("{"))
		told := make(chan storage.Notice, 100)
		stop := s.Notify(nil, func(n storage.Notice) { told <- n })
		errBack := errors.New("rolled back")
		var ticket *ojs.Ticket
		err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			made, err := eng.Enqueue(postgres.WithTx(t.Context(), tx), "work", 1, unique)
			for len(told) > 0 {
				if n := <-told; len(n.Quarantined) > 0 {
					t.Errorf("commit %v: told before the end of the transaction: %+v", commits, n.Quarantined)
				}
			}
			if ticket = &made; err == nil && !commits {
				err = errBack
			}
			return err
		})
		stop()
		want := 1
		if commits && err != nil || !commits && err != errBack {
			t.Fatal(err)
		}
		if !commits {
			want = 0
		}
		if n, err := s.CountQuarantined(t.Context()); n != want || err != nil {
			t.Errorf("commit %v: %d records in the quarantine, %v", commits, n, err)
		}
		if _, err := eng.Get(t.Context(), ticket.ID); (err == nil) != commits {
			t.Errorf("commit %v: Get of the enqueued job: %v", commits, err)
		}
		if _, err := eng.Get(t.Context(), bad.ID); !errors.Is(err, ojs.ErrQuarantined) {
			t.Errorf("commit %v: Get of the bad job: %v", commits, err)
		}
		if n, err := s.CountQuarantined(t.Context()); n != 1 || err != nil {
			t.Errorf("commit %v: %d records in the quarantine, %v", commits, n, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
