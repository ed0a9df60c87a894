package postgres_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// asRole makes a role with the name of a schema and a suffix, which the end of the test
// drops, and a pool that logs in as that role.
func asRole(t *testing.T, admin *pgxpool.Pool, schema, suffix string) (role string, pool *pgxpool.Pool) {
	t.Helper()
	if os.Getenv("OJS_TEST_POSTGRES") != "" {
		t.Skip("the server may want a password")
	}
	role = schema + "_" + suffix
	_, err := admin.Exec(t.Context(), "CREATE ROLE "+role+" LOGIN")
	must(t, err)
	cfg := admin.Config()
	cfg.ConnConfig.User = role
	pool, err = pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	t.Cleanup(func() {
		pool.Close()
		_, err := admin.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		must(t, err)
	})
	return role, pool
}

// granted makes a role with the privileges of an access to a schema.
func granted(t *testing.T, admin *pgxpool.Pool, schema string, a postgres.Access) *pgxpool.Pool {
	t.Helper()
	role, pool := asRole(t, admin, schema, string(a))
	script, err := postgres.Grants(a, role, postgres.WithSchema(schema))
	must(t, err)
	_, err = admin.Exec(t.Context(), script)
	must(t, err)
	return pool
}

// openAs opens a schema with a pool, which the end of the test closes.
func openAs(t testing.TB, pool *pgxpool.Pool, name string, opts ...postgres.Option) *postgres.Storage {
	t.Helper()
	s, err := postgres.Open(t.Context(), pool, append(opts, postgres.WithSchema(name))...)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// A worker runs the engine's suite. It does not own the schema, and cannot migrate it.
func TestWorkerRole(t *testing.T) {
	admin := connect(t)
	cfg := configOn(t, admin)
	cfg.Open = func(tb testing.TB) storage.Storage {
		name := schema(tb, admin)
		must(tb, postgres.Migrate(context.Background(), admin, postgres.WithSchema(name)))
		return openAs(t, granted(t, admin, name, postgres.Worker), name)
	}
	cfg.Reopen, cfg.Another, cfg.Plant, cfg.Mend, cfg.Quarantine = nil, nil, nil, nil, false
	storagetest.RunEngine(t, cfg)
	s := cfg.Open(t).(*postgres.Storage)
	list, err := s.Quarantined(t.Context(), "", 10)
	if err != nil || len(list) != 0 {
		t.Errorf("the quarantine: %v, %v", list, err)
	}
}

// Roles do without what PUBLIC may execute, where an administrator has revoked that.
func TestRolesWithoutPublicFunctions(t *testing.T) {
	admin := connect(t)
	owner, name := open(t, "")
	now := time.Now().UTC()
	_, err := admin.Exec(t.Context(), "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA "+name+" FROM PUBLIC")
	must(t, err)
	failed := func(r *storage.Record) {
		r.State, r.FinishedAt = ojs.StateDiscarded, now
		r.Error = &ojs.Failure{Type: "x", At: now, Attempt: 1}
	}
	for i, a := range []postgres.Access{postgres.Enqueuer, postgres.Worker} {
		s := openAs(t, granted(t, admin, name, a), name)
		r := record(i)
		r.Meta = map[string]any{"workflow_id": r.ID}
		must(t, insert(t.Context(), s, r))
		if a == postgres.Worker {
			r, err = s.Get(t.Context(), r.ID)
			must(t, err)
			failed(&r)
			_, err := s.Settle(t.Context(), now, []storage.Change{{Record: r}}, nil)
			must(t, err)
		}
	}
	reader := openAs(t, granted(t, admin, name, postgres.Reader), name)
	for _, s := range []*postgres.Storage{owner, reader} {
		for _, q := range []storage.Query{{Keepers: true}, {Workflow: record(1).ID},
			{States: []ojs.State{ojs.StateDiscarded}, ErrorTypes: []string{"x"},
				Order: storage.OrderFinished}} {
			page, err := s.List(t.Context(), q)
			if err != nil || len(page.Records) == 0 {
				t.Errorf("%+v: %d jobs, %v", q, len(page.Records), err)
			}
		}
	}
}

// An enqueuer stores jobs of all kinds and looks them up. Nothing else works, and what
// fails says why.
func TestEnqueuerRole(t *testing.T) {
	admin := connect(t)
	owner, name := open(t, "")
	s := openAs(t, granted(t, admin, name, postgres.Enqueuer), name, postgres.WithPoll(10*time.Millisecond))
	eng := newEngine(t, s)
	ticket, err := eng.Enqueue(t.Context(), "x", 1)
	must(t, err)
	_, err = eng.Get(t.Context(), ticket.ID)
	must(t, err)
	if _, err := eng.Get(t.Context(), record(9).ID); !errors.Is(err, ojs.ErrNotFound) {
		t.Errorf("a job that is not there: %v", err)
	}
	for _, conflict := range []ojs.Conflict{ojs.ConflictReject, ojs.ConflictReplace} {
		once := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs, OnConflict: conflict})
		for n := range 2 {
			_, err := eng.Enqueue(t.Context(), "x", 2, once)
			if duplicate := errors.Is(err, ojs.ErrDuplicate); duplicate != (conflict == ojs.ConflictReject &&
				n == 1) || err != nil && !duplicate {
				t.Errorf("%s, job %d: %v", conflict, n, err)
			}
		}
	}
	replaces := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs, OnConflict: ojs.ConflictReplace})
	replaced, err := eng.Enqueue(t.Context(), "x", 4, replaces)
	must(t, err)
	waits, err := eng.Enqueue(t.Context(), "x", 5, ojs.WithDependsOn(replaced.ID),
		ojs.WithCondition(ojs.AnyFailed))
	must(t, err)
	_, err = eng.Enqueue(t.Context(), "x", 4, replaces)
	must(t, err)
	if info, err := eng.Get(t.Context(), waits.ID); err != nil || info.State != ojs.StateAvailable {
		t.Errorf("a job that waited for a replaced one: %v, %v", info, err)
	}
	key := ojs.WithOrderingKey("k")
	_, err = eng.Enqueue(t.Context(), "x", 6, replaces, key)
	must(t, err)
	next, err := eng.Enqueue(t.Context(), "x", 7, key)
	must(t, err)
	_, err = eng.Enqueue(t.Context(), "x", 6, replaces, key)
	must(t, err)
	if info, err := eng.Get(t.Context(), next.ID); err != nil || info.State != ojs.StateAvailable {
		t.Errorf("a job behind a replaced one: %v, %v", info, err)
	}
	for range 3 { // which begin a round, join one, and look up what was served
		_, err = eng.Enqueue(t.Context(), "x", 8, ojs.WithFairnessKey("tenant", 2))
		must(t, err)
	}
	must(t, pgx.BeginFunc(t.Context(), admin, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "SET LOCAL ROLE "+name+"_enqueuer")
		must(t, err)
		_, err = eng.Enqueue(postgres.WithTx(t.Context(), tx), "x", 3)
		return err
	}))
	for _, state := range ojs.AllStates() {
		for _, order := range []storage.Order{storage.OrderOldest, storage.OrderDue, storage.OrderFinished} {
			_, err := s.List(t.Context(), storage.Query{States: []ojs.State{state}, Order: order})
			must(t, err)
		}
	}
	now := time.Now()
	for what, f := range map[string]func() error{
		"delete": func() error { _, err := s.Delete(t.Context(), []string{ticket.ID}); return err },
		"pause": func() error {
			_, err := s.SetQueueState(t.Context(), "q", ojs.QueuePaused)
			return err
		},
		"cron": func() error { _, err := document.Of(s).DeleteCron(t.Context(), "c"); return err },
		"migration": func() error {
			return execAs(t, admin, name, "INSERT INTO "+name+".migration VALUES (99)")
		},
		"prune": func() error {
			_, err := s.Prune(t.Context(), storage.Prune{Now: now, Before: now, Max: 1})
			return err
		},
	} {
		if err := f(); !errors.Is(err, postgres.ErrPrivilege) &&
			!strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s: %v", what, err)
		}
	}
	counts, err := owner.Counts(t.Context())
	must(t, err)
	if n := total(counts); n != 14 { // one has replaced another, three times
		t.Errorf("%d jobs, not 14: %v", n, counts)
	}
}

// execAs makes a statement as the enqueuer of a schema.
func execAs(t *testing.T, admin *pgxpool.Pool, name, sql string) error {
	return pgx.BeginFunc(t.Context(), admin, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "SET LOCAL ROLE "+name+"_enqueuer; "+sql)
		return err
	})
}

func total(counts []storage.Count) (n int) {
	for _, c := range counts {
		n += c.N
	}
	return n
}

// A reader sees everything and changes nothing, rows that do not decode included.
func TestReaderRole(t *testing.T) {
	admin := connect(t)
	owner, name := open(t, "")
	must(t, insert(t.Context(), owner, record(1), record(2)))
	_, err := admin.Exec(t.Context(), `UPDATE `+name+`.job SET args = '\x7b' WHERE id = $1`, record(1).ID)
	must(t, err)
	_, err = admin.Exec(t.Context(), `INSERT INTO `+name+`.document VALUES ('cron', 'bad', 1, NULL, '\x7b')`)
	must(t, err)
	_, err = admin.Exec(t.Context(), `INSERT INTO `+name+`.queue_state VALUES ('bad', 'no state')`)
	must(t, err)
	pool := granted(t, admin, name, postgres.Reader)
	s := openAs(t, pool, name)
	page, err := s.List(t.Context(), storage.Query{})
	if err != nil || len(page.Records) != 1 || page.Records[0].ID != record(2).ID {
		t.Errorf("list: %v, %v", page, err)
	}
	if _, err := s.Get(t.Context(), record(1).ID); !errors.Is(err, ojs.ErrQuarantined) {
		t.Errorf("a row that does not decode: %v", err)
	}
	if counts, err := s.Counts(t.Context()); err != nil || total(counts) != 2 {
		t.Errorf("counts: %v, %v", counts, err)
	}
	crons, err := document.Of(s).Crons(t.Context(), storage.DocumentQuery{})
	if err != nil || len(crons) != 0 {
		t.Errorf("crons: %v, %v", crons, err)
	}
	if _, err := s.QueueStates(t.Context()); err != nil {
		t.Errorf("queues: %v", err)
	}
	if n, err := s.CountQuarantined(t.Context()); err != nil || n != 0 {
		t.Errorf("quarantine: %d, %v", n, err)
	}
	var n int
	must(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+name+".jobs").Scan(&n))
	if err := insert(t.Context(), s, record(3)); n != 2 || !errors.Is(err, postgres.ErrPrivilege) {
		t.Errorf("%d jobs in the view; insert: %v", n, err)
	}
}

// A role that may not migrate is told what to do about a schema that is not up to date,
// and so is a program that asks for no migration.
func TestOlderSchema(t *testing.T) {
	admin := connect(t)
	name := schema(t, admin)
	_, stranger := asRole(t, admin, name, "stranger")
	refused := func(pool *pgxpool.Pool, says string, opts ...postgres.Option) {
		t.Helper()
		s, err := postgres.Open(t.Context(), pool, append(opts, postgres.WithSchema(name))...)
		missing := strings.Contains(says, "does not exist")
		if errors.Is(err, postgres.ErrMissing) != missing ||
			errors.Is(err, postgres.ErrOlder) == missing || !strings.HasPrefix(err.Error(), "ojs: ") ||
			!strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "postgres.Migrate") {
			t.Errorf("%v", err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
	refused(admin, "the schema does not exist: "+name, postgres.WithoutMigration())
	refused(stranger, "the schema does not exist: "+name)
	must(t, postgres.MakeVersion(t.Context(), admin, name, 9))
	refused(admin, "is of version 9", postgres.WithoutMigration())
	script, err := postgres.Grants(postgres.Worker, name+"_stranger", postgres.WithSchema(name))
	must(t, err)
	_, err = admin.Exec(t.Context(), script)
	must(t, err)
	refused(stranger, "is of version 9")
	must(t, postgres.Migrate(t.Context(), admin, postgres.WithSchema(name)))
	_, err = admin.Exec(t.Context(), script)
	must(t, err)
	openAs(t, stranger, name)
	openAs(t, admin, name, postgres.WithoutMigration())
}

// A storage whose schema becomes too new for it refuses its calls, and says why.
func TestNewerSchemaBesideOpenStorage(t *testing.T) {
	s, name := open(t, "", postgres.WithPoll(10*time.Millisecond))
	pool := connect(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO "+name+".migration (version) VALUES ($1)",
		postgres.NewestVersion()+1)
	must(t, err)
	must(t, insert(t.Context(), s, record(1))) // it may run beside that version
	_, err = pool.Exec(t.Context(), "INSERT INTO "+name+".migration (version, oldest) VALUES ($1, $1)",
		postgres.NewestVersion()+2)
	must(t, err)
	for err = nil; err == nil; _, err = s.Counts(t.Context()) {
		must(t, t.Context().Err())
	}
	if !errors.Is(err, postgres.ErrNewer) || !strings.Contains(err.Error(), "newer release") {
		t.Error(err)
	}
	if _, err := postgres.Open(t.Context(), pool, postgres.WithSchema(name)); !errors.Is(err,
		postgres.ErrNewer) {
		t.Error(err)
	}
	if err := postgres.Migrate(t.Context(), pool, postgres.WithSchema(name)); !errors.Is(err,
		postgres.ErrNewer) {
		t.Error(err)
	}
}

// The files make the schema that Migrate makes. A file that is not the next one changes
// nothing.
func TestSchemaFiles(t *testing.T) {
	pool := connect(t)
	byHand, byMigrate := schema(t, pool), schema(t, pool)
	files, err := postgres.Schema(postgres.WithSchema(byHand))
	must(t, err)
	run := func(m postgres.Migration) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), m.SQL)
			return err
		})
	}
	for i, m := range files {
		must(t, run(m))
		for _, wrong := range []int{0, i, i + 2} {
			if wrong < len(files) {
				if err := run(files[wrong]); err == nil {
					t.Errorf("%s ran after %s", files[wrong].Name, m.Name)
				}
			}
		}
	}
	must(t, postgres.Migrate(t.Context(), pool, postgres.WithSchema(byMigrate)))
	must(t, postgres.Migrate(t.Context(), pool, postgres.WithSchema(byMigrate)))
	describe := func(name string) []string {
		rows, err := pool.Query(t.Context(), `
			SELECT format('column %s.%s %s %s', table_name, column_name, data_type, is_nullable)
				FROM information_schema.columns WHERE table_schema = $1
			UNION ALL SELECT replace(indexdef, $1, '') FROM pg_indexes WHERE schemaname = $1
			UNION ALL SELECT replace(pg_get_functiondef(oid), $1, '') FROM pg_proc WHERE pronamespace = $1::regnamespace
			UNION ALL SELECT 'version ' || version FROM `+name+`.migration ORDER BY 1`, name)
		must(t, err)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		must(t, err)
		return list
	}
	if a, b := describe(byHand), describe(byMigrate); !slices.Equal(a, b) || len(a) < 60 {
		t.Errorf("by hand:\n%s\nby Migrate:\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
	s := openAs(t, pool, byHand, postgres.WithoutMigration())
	must(t, insert(t.Context(), s, record(1)))
}

// Arguments of Grants that make no sense are refused, and names of roles are quoted.
func TestGrants(t *testing.T) {
	script, err := postgres.Grants(postgres.Reader, `a"; DROP ROLE b`)
	if err != nil || !strings.Contains(script, `TO "a""; DROP ROLE b"`) {
		t.Errorf("%s, %v", script, err)
	}
	var invalid *ojs.InvalidError
	if _, err := postgres.Grants("owner", "x"); !errors.As(err, &invalid) || invalid.Field != "access" {
		t.Error(err)
	}
	if _, err := postgres.Grants(postgres.Reader, ""); !errors.As(err, &invalid) || invalid.Field != "role" {
		t.Error(err)
	}
	if _, err := postgres.Grants(postgres.Reader, "x", postgres.WithSchema("Not; a name")); !errors.As(
		err, &invalid) {
		t.Error(err)
	}
}
