package postgres_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/test/memdir"
	"github.com/ojsengine/ojs/internal/test/pgtest"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// logicalServer starts a server whose changes can be replicated by logical replication.
func logicalServer(t *testing.T) *pgtest.Server {
	t.Helper()
	s, err := pgtest.StartIn(memdir.Dir(), "wal_level=logical")
	if errors.Is(err, pgtest.ErrNotInstalled) {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// published connects to a database of the tests' server with a publication of all tables,
// which refuses updates and deletes of a table without a replica identity.
func published(t *testing.T) *pgxpool.Pool {
	t.Helper()
	admin := connect(t)
	const name = "published"
	_, err := admin.Exec(t.Context(), "CREATE DATABASE "+name)
	refused := new(pgconn.PgError)
	if !errors.As(err, &refused) || refused.Code != "42P04" && refused.Code != "23505" { // there is one
		must(t, err)
	}
	pool := poolAt(t, server, func(cfg *pgxpool.Config) { cfg.ConnConfig.Database = name })
	execAll(t, pool, "DROP PUBLICATION IF EXISTS everything", "CREATE PUBLICATION everything FOR ALL TABLES",
		"CREATE TABLE IF NOT EXISTS bare AS SELECT 1 AS n")
	if _, err := pool.Exec(t.Context(), "DELETE FROM bare"); err == nil {
		t.Fatal("the publication refuses nothing")
	}
	return pool
}

// Every table may be in a publication, as TestStorage shows. The listener compacts
// tables, and jobs with a fairness key run.
func TestPublicationOfAllTables(t *testing.T) {
	t.Parallel()
	pool := published(t)
	s := openAs(t, pool, schema(t, pool), often)
	e := startShop(t, s)
	e.well(1)
	conn, err := pool.Acquire(t.Context())
	must(t, err)
	must(t, s.Look(t.Context(), conn.Conn())) // compacts tables
	conn.Release()
	_, err = e.Enqueue(t.Context(), "x", 2, ojs.WithFairnessKey("tenant", 1))
	must(t, err)
	e.well(3)
	await(t, "the job with a fairness key", func() bool { return e.has(2) })
}

// Each table of the schema that is written to the log has a replica identity. A new table
// without a key needs one, too.
func TestReplicaIdentity(t *testing.T) {
	pool := connect(t)
	_, name := open(t, "")
	rows, err := pool.Query(t.Context(), `SELECT relname FROM pg_class c
		WHERE relnamespace = $1::regnamespace AND relkind = 'r' AND relpersistence = 'p' AND relreplident <> 'f'
		AND NOT (relreplident = 'd' AND EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary))`, name)
	must(t, err)
	bare, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	for _, table := range bare {
		t.Errorf("the table %s has no replica identity: publications of it break updates and deletes", table)
	}
}

// subscribe copies the schema ojs of one server to another, as a switch-over by logical
// replication does.
func subscribe(t *testing.T, from *pgtest.Server, to *pgxpool.Pool) {
	t.Helper()
	must(t, postgres.Migrate(t.Context(), to))
	execAll(t, to, "TRUNCATE ojs.migration", fmt.Sprintf(
		"CREATE SUBSCRIPTION moved CONNECTION 'host=%s user=postgres dbname=postgres' PUBLICATION everything", from.Dir()))
	await(t, "the copy", func() bool {
		var left int
		must(t, to.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'").Scan(&left))
		return left == 0
	})
}

// A switch-over by logical replication brings the rows and not the sequences. Open says
// so, and so do open storages; after Advance new jobs come after those that are stored.
func TestLogicalSwitchOver(t *testing.T) {
	t.Parallel()
	before, after := logicalServer(t), logicalServer(t)
	old, moved := poolAt(t, before.DSN(), nil), poolAt(t, after.DSN(), nil)
	execAll(t, old, "CREATE PUBLICATION everything FOR ALL TABLES")
	end := startEndpoint(t, before)
	s := openAs(t, poolAt(t, end.dsn(), nil), "ojs", often, postgres.WithLogger(quietLog))
	eng := newEngine(t, s)
	for n := range 50 {
		_, err := eng.Enqueue(t.Context(), "x", n, ojs.WithFairnessKey("tenant", 1))
		must(t, err)
	}
	_, err := s.Claim(t.Context(), time.Now(), storage.Claim{Max: 10, Worker: "w"}, nil)
	must(t, err)
	subscribe(t, before, moved)
	var first string
	must(t, old.QueryRow(t.Context(),
		"SELECT id FROM ojs.jobs WHERE state = 'active' ORDER BY id LIMIT 1").Scan(&first))
	changed, err := s.Get(t.Context(), first)
	must(t, err)
	changed.State, changed.FinishedAt, changed.LeaseUntil = ojs.StateCompleted, time.Now(), time.Time{}
	settle(t, t.Context(), s, changed) // and with it deletes of rows without a key
	await(t, "the last change", func() bool {
		var state string
		must(t, moved.QueryRow(t.Context(), "SELECT state FROM ojs.jobs WHERE id = $1", first).Scan(&state))
		return state == string(ojs.StateCompleted)
	})
	execAll(t, old, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
	end.moveTo(after)

	n := 1000
	store := func() error {
		n++
		return insert(t.Context(), s, record(n))
	}
	await(t, "the open storage is refused", func() bool { return errors.Is(store(), postgres.ErrBehind) })
	if _, err := postgres.Open(t.Context(), moved); !errors.Is(err, postgres.ErrBehind) {
		t.Errorf("opened with sequences that are behind: %v", err)
	}
	must(t, postgres.Advance(t.Context(), moved))
	await(t, "the open storage goes on", func() bool { return store() == nil })
	again := openAs(t, moved, "ojs")
	for n := range 300 {
		must(t, insert(t.Context(), again, record(2+n)))
	}
	list, err := again.Claim(t.Context(), time.Now(), storage.Claim{Max: 41, Worker: "w"}, nil)
	must(t, err)
	for i, r := range list[:40] {
		if r.Fairness.Key == "" {
			t.Fatalf("the %d. job to be claimed is a new one", i+1)
		}
	}
}

// Advance moves each sequence past all that is stored, once.
func TestAdvance(t *testing.T) {
	t.Parallel()
	pool := connect(t)
	s, name := open(t, "")
	for n := range 30 {
		must(t, insert(t.Context(), s, record(n)))
	}
	claimed, err := s.Claim(t.Context(), time.Now(), storage.Claim{Max: 1, Worker: "w"}, nil)
	must(t, err)
	for range 5 { // which moves its place beyond its number
		_, err := s.Extend(t.Context(), time.Now(), []storage.Extension{{
			Held: storage.Held{ID: claimed[0].ID, Version: claimed[0].Version}}})
		must(t, err)
	}
	_, err = document.Of(s).SetCrons(t.Context(), []storage.Cron{{Name: "c"}})
	must(t, err)
	last := func(sequence string) (n int64) {
		t.Helper()
		must(t, pool.QueryRow(t.Context(),
			fmt.Sprintf("SELECT last_value FROM %s.%s", name, sequence)).Scan(&n))
		return n
	}
	place, version := last("place"), last("document_version")
	execAll(t, pool,
		fmt.Sprintf("INSERT INTO %s.quarantine (n, kind, name, reason) OVERRIDING SYSTEM VALUE VALUES (7, 'cron', 'c', 'why')", name),
		fmt.Sprintf("ALTER SEQUENCE %s.place RESTART", name),
		fmt.Sprintf("ALTER SEQUENCE %s.document_version RESTART", name))
	// The number of a new job is taken: its id is not to blame.
	if err := insert(t.Context(), s, record(30)); !errors.Is(err, postgres.ErrBehind) ||
		errors.Is(err, ojs.ErrDuplicate) {
		t.Errorf("stored under a number that is taken: %v", err)
	}
	for range 2 {
		must(t, postgres.Advance(t.Context(), pool, postgres.WithSchema(name)))
		for sequence, past := range map[string]int64{
			"place": place, "document_version": version, "quarantine_n_seq": 7,
		} {
			if n := last(sequence); n <= past || n > past+1<<25 {
				t.Errorf("%s is at %d, and %d was given out", sequence, n, past)
			}
		}
	}
}
