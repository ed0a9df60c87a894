package sqlite_test

import (
	"context"
	"testing"
	"time"

	zombiezen "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// People read their jobs with SQL, on connections of their own and within a transaction.
func TestRegister(t *testing.T) {
	s := fresh(t, sqlite.WithSynchronous(sqlite.Normal))
	eng, err := engine.New[map[string]any](s, engine.WithLogger(discard))
	must(t, err)
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	_, err = eng.EnqueueMany(t.Context(),
		ojs.NewDraft("mail", map[string]any{"to": "ann"}, ojs.WithQueue("out"), ojs.WithPriority(3),
			ojs.WithMeta("tenant", "a")),
		ojs.NewDraft("mail", map[string]any{"to": "bob"}, ojs.WithQueue("out"), ojs.WithScheduledAt(at)),
		ojs.NewDraft("scan", map[string]any{}))
	must(t, err)
	ask := func(conn *zombiezen.Conn, sql string) (got string) {
		t.Helper()
		must(t, sqlitex.Execute(conn, sql, &sqlitex.ExecOptions{ResultFunc: func(stmt *zombiezen.Stmt) error {
			for i := range stmt.ColumnCount() {
				got += stmt.ColumnText(i) + " "
			}
			return nil
		}}))
		return got
	}
	check := func(conn *zombiezen.Conn) {
		t.Helper()
		for range 2 { // again does no harm
			must(t, sqlite.Register(conn))
		}
		for sql, want := range map[string]string{
			"SELECT queue, state, count(*) FROM ojs_jobs GROUP BY queue, state ORDER BY 1, 2": "default available 1 " +
				"out available 1 out scheduled 1 ",
			"SELECT type, attempt, args ->> '$[0].to', meta ->> 'tenant' FROM ojs_jobs LIMIT 1": "mail 0 ann a ",

			"SELECT datetime(max(scheduled_at)) FROM ojs_jobs":   "2030-01-02 03:04:05 ",
			"SELECT job ->> 'specversion' FROM ojs_jobs LIMIT 1": "1.0 ",
		} {
			if got := ask(conn, sql); got != want {
				t.Errorf("%s: %q, not %q", sql, got, want)
			}
		}
	}
	conn, err := zombiezen.OpenConn(file(t, s), zombiezen.OpenReadOnly)
	must(t, err)
	defer conn.Close()
	check(conn)
	must(t, s.Within(t.Context(), func(_ context.Context, conn *zombiezen.Conn) error {
		check(conn)
		return nil
	}))
	must(t, sqlite.Exec(file(t, s), "UPDATE ojs_kv SET v = x'ff' WHERE k >= x'02' AND k < x'03'"))
	if got := ask(conn, "SELECT count(*), count(id) FROM ojs_jobs"); got != "3 0 " {
		t.Errorf("of damaged jobs: %s", got)
	}
}
