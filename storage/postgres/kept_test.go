package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// addOld stores n jobs as a version of the storage without kept jobs did. The columns
// that it does not set have the same value in every job.
func addOld(t *testing.T, pool *pgxpool.Pool, schema string, n int, state int, columns, values string) {
	t.Helper()
	var split bool
	err := pool.QueryRow(t.Context(), "SELECT to_regclass($1) IS NOT NULL", schema+".stage").Scan(&split)
	must(t, err)
	script := `INSERT INTO %[1]s.job
		(seq, place, id, queue, type, state, priority, attempt, version, finished, lease, progress, worker%[4]s)
		SELECT p, p, 'old' || p, 'q', 'x', %[3]d, 0, 1, 3, p, 1, 0, ''%[5]s
		FROM (SELECT nextval('%[1]s.place') AS p FROM generate_series(1, %[2]d)) n`
	if split {
		script = `WITH n AS (SELECT nextval('%[1]s.place') AS p FROM generate_series(1, %[2]d)),
			body AS (INSERT INTO %[1]s.job (seq, id, lease) SELECT p, 'old' || p, 1 FROM n)
			INSERT INTO %[1]s.stage (seq, place, queue, type, state, priority, attempt, version, finished%[4]s)
			SELECT p, p, 'q', 'x', %[3]d, 0, 1, 3, p%[5]s FROM n`
	}
	_, err = pool.Exec(t.Context(), fmt.Sprintf(script, schema, n, state, columns, values))
	must(t, err)
}

// addKept stores n jobs that have ended, each kept a nanosecond longer than the one
// before, the first for 1 ns.
func addKept(t *testing.T, pool *pgxpool.Pool, schema string, n int, columns, values string) {
	t.Helper()
	addOld(t, pool, schema, n, 8, ", kept"+columns, ", p"+values)
}

// checkCounts compares what the triggers have counted with what is stored.
func checkCounts(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT row(queue, type, state, dead, sum(n))::text FROM (
			SELECT queue, type, state, dead, n FROM `+schema+`.tally
			UNION ALL
			SELECT queue, type, state, CASE WHEN kept IS NULL THEN dead IS NOT NULL END, -1 FROM `+schema+`.stage) c
		GROUP BY queue, type, state, dead HAVING sum(n) <> 0`)
	must(t, err)
	wrong, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	if len(wrong) > 0 {
		t.Errorf("counted too often, of queue, type, state and whether dead: %v", wrong)
	}
}

// prune prunes and compares how many it took.
func prune(t *testing.T, s storage.Storage, p storage.Prune, n int) {
	t.Helper()
	p.Max = 1000
	if got, err := s.Prune(t.Context(), p); err != nil || len(got.IDs) != n {
		t.Errorf("%+v pruned %d, %v, not %d", p, len(got.IDs), err, n)
	}
}

// A schema of the version that kept no jobs is migrated, with what is in it, and the
// processes of that version that still run do not spoil the counts of those that are
// kept.
func TestUpgradeToKept(t *testing.T) {
	pool := connect(t)
	name := schema(t, pool)
	must(t, postgres.MakeVersion(t.Context(), pool, name, 1))
	addOld(t, pool, name, 5, 6, "", "")
	addOld(t, pool, name, 4, 8, ", dead", ", p")
	addOld(t, pool, name, 3, 3, "", "")
	s, _ := open(t, name)
	checkCounts(t, pool, name)
	prune(t, s, storage.Prune{Beyond: 3}, 2)
	prune(t, s, storage.Prune{DeadLetters: true, Beyond: 3}, 1)

	now := time.Now()
	kept := storage.Insert{Record: storage.Record{Fingerprint: "f"}}
	r := &kept.Record
	r.ID, r.Type, r.Queue, r.State = "01890a5d-ac96-774b-bcce-000000000001", "x", "kept", ojs.StateAvailable
	r.CreatedAt, r.Lease, r.Unique = now, time.Minute, &ojs.UniquePolicy{States: ojs.AllStates(),
		Period: time.Hour}
	_, err := s.Insert(t.Context(), now, []storage.Insert{kept}, nil)
	must(t, err)
	claimed, err := s.Claim(t.Context(), now, storage.Claim{Queues: []string{"kept"}, Max: 1}, nil)
	must(t, err)
	change := storage.Change{Record: claimed[0], AttemptFieldsOnly: true}
	change.Record.State, change.Record.FinishedAt = ojs.StateCompleted, now
	_, err = s.Settle(t.Context(), now, []storage.Change{change}, nil)
	must(t, err)
	addOld(t, pool, name, 1, 6, "", "")
	_, err = pool.Exec(t.Context(), `WITH gone AS (DELETE FROM `+name+`.tally RETURNING *)
		INSERT INTO `+name+`.tally SELECT queue, state, dead, sum(n), type FROM gone GROUP BY 1, 2, 3, 5 HAVING sum(n) <> 0`)
	must(t, err)
	checkCounts(t, pool, name)
	prune(t, s, storage.Prune{Now: now, Beyond: 3}, 1)
	prune(t, s, storage.Prune{Now: now.Add(time.Hour), Beyond: 3}, 1)
	if _, err := s.Get(t.Context(), r.ID); err != nil {
		t.Error(err)
	}
	prune(t, s, storage.Prune{Now: now.Add(time.Hour), Before: now.Add(time.Second)}, 3)
	checkCounts(t, pool, name)
}

// A process that runs already may have locked what the migration wants, and want what the
// migration has locked.
func TestUpgradeBesideOlder(t *testing.T) {
	pool := connect(t)
	name := schema(t, pool)
	must(t, postgres.MakeVersion(t.Context(), pool, name, 1))
	tx, err := pool.Begin(t.Context())
	must(t, err)
	defer tx.Rollback(context.Background())
	var pid int
	must(t, tx.QueryRow(t.Context(), "SELECT pg_backend_pid() FROM (SELECT count(*) FROM "+name+
		".tally) n").Scan(&pid))
	opened := make(chan error, 1)
	go func() {
		s, err := postgres.Open(t.Context(), pool, postgres.WithSchema(name))
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	awaitBlocked(t, pool, pid)
	if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM "+name+".job"); err != nil {
		t.Logf("the database has picked this side to fail, which it is free to: %v", err)
	}
	must(t, tx.Rollback(t.Context()))
	must(t, <-opened)
}

// awaitBlocked waits until another process of the server waits for the transaction of the
// process pid.
func awaitBlocked(t *testing.T, pool *pgxpool.Pool, pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for waits := false; !waits; {
		must(t,
			pool.QueryRow(ctx,
				"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1::integer = ANY (pg_blocking_pids(pid)))", pid).Scan(&waits))
	}
}

// Jobs whose time has come are released and pruned once each, however many prune at once,
// and more of them than one call releases.
func TestPruneKeptAtOnce(t *testing.T) {
	const jobs, left = 5000, 100
	one, name := open(t, "")
	pool := connect(t)
	addKept(t, pool, name, jobs, "", "")
	addKept(t, pool, name, jobs, ", dead", ", p")
	prune(t, one, storage.Prune{Beyond: left}, 0)
	var wg sync.WaitGroup
	var pruned [2]atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range 4 {
		s, _ := open(t, name)
		dead := i % 2
		wg.Go(func() {
			for pruned[dead].Load() < jobs-left && ctx.Err() == nil {
				got, err := s.Prune(ctx, storage.Prune{DeadLetters: dead == 1, Now: time.Now(),
					Beyond: left, Max: 256})
				if err != nil {
					t.Error(err)
					return
				}
				pruned[dead].Add(int64(len(got.IDs)))
			}
		})
	}
	wg.Wait()
	for i := range pruned {
		if n := pruned[i].Load(); n != jobs-left {
			t.Errorf("%d pruned, not %d", n, jobs-left)
		}
	}
	checkCounts(t, pool, name)
}

// A dead letter that is retried while it is being pruned stays.
func TestPruneBesideRetry(t *testing.T) {
	s, name := open(t, "")
	pool := connect(t)
	addOld(t, pool, name, 2, 8, ", dead", ", p")
	pruned := make(chan error, 1)
	must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		var pid int
		must(t, tx.QueryRow(t.Context(), `WITH retried AS (UPDATE `+name+`.stage SET state = 3, dead = NULL, finished = NULL,
				place = nextval('`+name+`.place'), version = version + 1 WHERE seq = 1 RETURNING 1)
			SELECT pg_backend_pid() FROM retried`).Scan(&pid))
		go func() {
			got, err := s.Prune(t.Context(), storage.Prune{DeadLetters: true, Before: time.Now(), Max: 10})
			if err == nil && len(got.IDs) != 1 {
				err = fmt.Errorf("%d pruned, not 1", len(got.IDs))
			}
			pruned <- err
		}()
		awaitBlocked(t, pool, pid)
		return nil
	}))
	must(t, <-pruned)
	if got, err := s.Get(t.Context(), "old1"); err != nil || got.State != ojs.StateAvailable {
		t.Errorf("%+v, %v", got, err)
	}
	checkCounts(t, pool, name)
}
