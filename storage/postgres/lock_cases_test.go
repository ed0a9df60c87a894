package postgres_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// overlap is two processes whose calls overlap where a case wants them to: between two
// statements of a, or while a transaction of the test holds a lock.
type overlap struct {
	*hot
	a, b   *postgres.Storage
	sa, sb *spy
	result chan error
	waited bool // the call of b has waited for a lock
	wrong  []string
}

// check notes an error.
func (o *overlap) check(err error) {
	if err != nil {
		o.wrong = append(o.wrong, err.Error())
	}
}

// want notes what is not so.
func (o *overlap) want(ok bool, format string, args ...any) {
	if !ok {
		o.wrong = append(o.wrong, fmt.Sprintf(format, args...))
	}
}

// begin begins a call of b, and returns when it has ended or waits for a lock.
func (o *overlap) begin(f func() error) {
	o.result = make(chan error, 1)
	go func() { o.result <- f() }()
	waits, err := o.sb.awaitWait(o.pool, func() bool { return len(o.result) > 0 })
	if err != nil {
		o.t.Error(err)
	}
	o.waited = o.waited || waits
}

// end waits for the call of b.
func (o *overlap) end() error { return <-o.result }

// around makes a call of a, and one of b when a is about to make the statement that comes
// after another one, "" for its first.
func (o *overlap) around(after, statement string, a, b func() error) (ofA, ofB error) {
	met := false
	f := func() {
		met = true
		o.begin(b)
	}
	if after == "" {
		o.sa.once(statement, f)
	} else {
		o.sa.after(after, statement, f)
	}
	ofA = a()
	if !met {
		return ofA, errors.Join(ofA, fmt.Errorf("no %q behind %q", statement, after))
	}
	return ofA, o.end()
}

// holding makes a call of b while a transaction has made a statement, which reports
// whether it waits.
func (o *overlap) holding(sql string, b func() error) {
	tx, err := o.pool.Begin(o.t.Context())
	must(o.t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(o.t.Context(), fmt.Sprintf(sql, o.name))
	must(o.t, err)
	o.begin(b)
	must(o.t, tx.Rollback(context.Background()))
	o.check(o.end())
}

// bothBehind makes a call of a and one of b while a transaction has made a statement,
// which both wait for. It is rolled back.
func (o *overlap) bothBehind(sql string, a, b func() error) {
	ofA := make(chan error, 1)
	o.holding(sql, func() error {
		go func() { ofA <- a() }()
		if _, err := o.sa.awaitWait(o.pool, func() bool { return len(ofA) > 0 }); err != nil {
			return err
		}
		return b()
	})
	o.check(<-ofA)
}

// holdingTx is holding with calls of a in a transaction, which commits.
func (o *overlap) holdingTx(a func(ctx context.Context) error, b func() error) {
	must(o.t, pgx.BeginFunc(o.t.Context(), o.sa.pool, func(tx pgx.Tx) error {
		if err := a(postgres.WithTx(o.t.Context(), tx)); err != nil {
			return err
		}
		o.begin(b)
		return nil
	}))
	o.check(o.end())
}

func (o *overlap) get(id string) storage.Record {
	o.t.Helper()
	r, err := o.a.Get(o.t.Context(), id)
	must(o.t, err)
	return r
}

// all are the jobs of a state.
func (o *overlap) all(states ...ojs.State) []storage.Record {
	o.t.Helper()
	page, err := o.a.List(o.t.Context(), storage.Query{States: states})
	must(o.t, err)
	return page.Records
}

// state wants a job to have a state.
func (o *overlap) state(r storage.Record, want ojs.State) {
	o.t.Helper()
	is := o.get(r.ID).State
	o.want(is == want, "it is %s", is)
}

// due makes a job one that is due.
func (o *overlap) due(r *storage.Record) { r.State, r.ScheduledAt = ojs.StateScheduled, o.now }

func (o *overlap) prunes(s *postgres.Storage, now time.Time) func() error {
	return func() error {
		_, err := s.Prune(o.t.Context(), storage.Prune{Now: now, Before: o.now, Max: 1})
		return err
	}
}

func (o *overlap) inserts(s *postgres.Storage, ins ...storage.Insert) func() error {
	return func() error {
		_, err := s.Insert(o.t.Context(), o.now, ins, nil)
		return err
	}
}

func (o *overlap) claims(s *postgres.Storage, c storage.Claim) func() error {
	c.Max, c.Worker, c.Limits = max(c.Max, 1), "w", new(storage.Limited)
	return func() error {
		_, err := s.Claim(o.t.Context(), o.now, c, nil)
		return err
	}
}

func (o *overlap) settles(s *postgres.Storage, changes ...storage.Change) func() error {
	return func() error {
		done, err := s.Settle(o.t.Context(), o.now, changes, nil)
		for i := range done {
			err = errors.Join(err, done[i].Err)
		}
		return err
	}
}

// waiting is a new job that waits for others.
func (o *overlap) waiting(ids ...string) storage.Insert {
	return storage.Insert{Record: o.record("q", pending), DependsOn: ids}
}

// ended are the changes of claimed jobs to completed, with what else they set.
func (o *overlap) ended(recs []storage.Record, set func(*storage.Record)) []storage.Change {
	return o.changes(recs, ojs.StateCompleted, func(c *storage.Change) { set(&c.Record) })
}

// one reads what a statement about the schema returns.
func (o *overlap) one(sql string, into any) {
	o.t.Helper()
	must(o.t, o.pool.QueryRow(o.t.Context(), fmt.Sprintf(sql, o.name)).Scan(into))
}

// sql makes a statement about the schema.
func (o *overlap) sql(sql string, args ...any) {
	o.t.Helper()
	_, err := o.pool.Exec(o.t.Context(), fmt.Sprintf(sql, o.name), args...)
	must(o.t, err)
}

// fairly inserts a job with a fairness key in a transaction. A call of b begins before
// the commit.
func (o *overlap) fairly(b func() error) {
	in := storage.Insert{Record: o.record("q", tenant("key"))}
	o.holdingTx(func(ctx context.Context) error {
		_, err := o.a.Insert(ctx, o.now, []storage.Insert{in}, nil)
		return err
	}, b)
}

func tenant(key string) func(*storage.Record) {
	return func(r *storage.Record) { r.Fairness = ojs.Fairness{Key: key, Weight: 1} }
}

func (o *overlap) completes(s *postgres.Storage, recs ...storage.Record) func() error {
	return o.settles(s, o.changes(recs, ojs.StateCompleted)...)
}

func (o *overlap) unclaims(s *postgres.Storage, r storage.Record, want int) func() error {
	return func() error {
		n, err := s.Unclaim(o.t.Context(), o.now, []storage.Held{{ID: r.ID, Version: r.Version}})
		if err == nil && n != want {
			err = fmt.Errorf("%d claims are undone", n)
		}
		return err
	}
}

func (o *overlap) cancels(s *postgres.Storage, recs ...storage.Record) func() error {
	ids := make([]string, len(recs))
	for i := range recs {
		ids[i] = recs[i].ID
	}
	return func() error {
		_, _, err := s.CancelAll(o.t.Context(), o.now, ids)
		return err
	}
}

// rowOf locks the row of a job that says where it stands.
func rowOf(r storage.Record) string {
	return "SELECT FROM %[1]s.stage WHERE seq = (SELECT seq FROM %[1]s.job WHERE id = '" + r.ID +
		"') FOR UPDATE"
}

// removal is how a lock is taken out of a statement, or an order.
type removal struct{ statement, part, by string }

const (
	waitsLock = " FOR UPDATE"
	skipsLock = "FOR UPDATE SKIP LOCKED"
	xactLock  = "pg_catalog.pg_advisory_xact_lock("
)

var (
	noNames  = removal{"takeNames", "", "SELECT FROM unnest($1::bigint[])"}
	noName   = removal{"lockName", "", "SELECT FROM unnest($1::text[])"}
	noRounds = removal{"lockRounds", "", "SELECT FROM unnest($1::text[])"}
	noLimits = removal{"lockHeadsIn", "ORDER BY kind, name", "WHERE false"}
	noLimit  = removal{"lockLimits", "ORDER BY 1, 2", "WHERE false"}
)

// unlocked are the ways to lose a lock that others skip.
func unlocked(statements ...string) (list []removal) {
	for _, s := range statements {
		lock := skipsLock
		if strings.HasSuffix(s, "Around") {
			lock = "FOR UPDATE OF j SKIP LOCKED"
		}
		list = append(list, removal{s, lock, ""}, removal{s, " SKIP LOCKED", ""})
	}
	return list
}

// lockCase is a rule that needs a lock. Without the lock the case notices.
type lockCase struct {
	name    string
	without []removal
	run     func(o *overlap)
}

// The rules that need a lock hold although calls overlap where the lock is needed. With
// OJS_STORM each lock is taken out of its statement, and its case notices.
func TestLocks(t *testing.T) {
	cases := make(map[string]bool) // by statement
	for _, c := range lockCases() {
		for _, r := range c.without {
			cases[r.statement] = true
		}
	}
	for sql, statement := range postgres.StatementNames("any") {
		locks := strings.Contains(sql, "FOR UPDATE") || strings.Contains(sql, "_lock")
		if locks && !cases[statement] && statement != "leaveNames" {
			t.Errorf("no case needs the lock of %s", statement)
		}
	}
	unused := &spares{pool: connect(t)}
	empty := func(tb testing.TB) string { return unused.take(t, tb) }
	for _, c := range lockCases() {
		t.Run(c.name, func(t *testing.T) {
			if wrong := runLockCase(t, empty, c, removal{}); len(wrong) > 0 {
				t.Errorf("%q", wrong)
			}
			for _, r := range c.without {
				if os.Getenv("OJS_STORM") == "" {
					break
				}
				if wrong := runLockCase(t, empty, c, r); len(wrong) == 0 {
					t.Errorf("nothing is wrong without %q of %s", r.part, r.statement)
				} else {
					t.Logf("without %q of %s: %q", r.part, r.statement, wrong)
				}
			}
		})
	}
}

// runLockCase returns what is wrong without a lock, in the schema that empty returns.
func runLockCase(t *testing.T, empty func(testing.TB) string, c lockCase, without removal) []string {
	t.Helper()
	var o *overlap
	t.Run("run", func(t *testing.T) { // which ends its storages
		o = &overlap{hot: &hot{t: t, pool: connect(t), now: time.Now()}}
		o.name = empty(t)
		o.a, o.sa, _ = openSpied(t, o.name, postgres.WithPoll(time.Hour))
		o.b, o.sb, _ = openSpied(t, o.name, postgres.WithPoll(time.Hour))
		o.s = o.a
		if without.statement != "" {
			for _, s := range []*postgres.Storage{o.a, o.b} {
				must(t, s.Replace(without.statement, without.part, without.by))
			}
		}
		c.run(o)
	})
	return o.wrong
}

func lockCases() []lockCase {
	replaces := func(r *storage.Record) {
		unique("print")(r)
		r.Unique.States = []ojs.State{ojs.StateAvailable, ojs.StateActive}
		r.Unique.OnConflict = ojs.ConflictReplace
	}
	once := func(r *storage.Record) {
		r.RateLimit = &ojs.RateLimit{Key: "key", Concurrency: 1}
	}
	dropped := func(r *storage.Record) {
		r.RateLimit = &ojs.RateLimit{Key: "key", Concurrency: 1, OnLimit: ojs.OnLimitDrop}
	}
	line := func(o *overlap) storage.Insert {
		return storage.Insert{Record: o.record("q", pending), OrderingKey: "line"}
	}
	turns := func(o *overlap) {
		n := len(o.all(ojs.StateAvailable, ojs.StateActive))
		o.want(n == 1, "%d jobs have the turn", n)
	}
	rounds := func(o *overlap) {
		var n int
		must(o.t, o.pool.QueryRow(o.t.Context(), "SELECT count(*) FROM (SELECT FROM "+o.name+
			".ready GROUP BY fair_key, place HAVING count(*) > 1) twice").Scan(&n))
		o.want(n == 0, "a key has two jobs in a round")
	}
	// passes is a case in which a call does not wait for a row that another transaction
	// has locked.
	passes := func(name string, statements []string, prepare func(*overlap) (string, func() error)) lockCase {
		return lockCase{name, unlocked(statements...), func(o *overlap) {
			locked, call := prepare(o)
			o.holding(locked, call)
			o.want(!o.waited, "the call waits")
		}}
	}
	claimsPast := func(statement string, c storage.Claim, prepare func(o *overlap)) lockCase {
		return passes("a claim leaves a locked job, "+statement, []string{statement},
			func(o *overlap) (string, func() error) {
				first, second := o.add("q"), o.add("q")
				if prepare != nil {
					prepare(o)
				}
				return rowOf(first), func() error {
					claim := claimers["Claim"]
					if statement[:5] == "ahead" {
						claim = claimers["SettleAndClaim"]
					}
					c := c
					c.Max = 1
					got, err := claim(o.t.Context(), o.b, c)
					o.want(len(got) == 1 && got[0].ID == second.ID, "%d jobs are claimed", len(got))
					return err
				}
			})
	}
	// knowsLimits has the next claim of b lock keys.
	knowsLimits := func(o *overlap) {
		o.add("limited", limited("known"))
		must(o.t, o.claims(o.b, storage.Claim{Queues: []string{"limited"}})())
	}
	// claimsLimited is claimsPast for jobs with limits.
	claimsLimited := func(
		statement, variant string, c storage.Claim, prepare func(o *overlap),
	) lockCase {
		passed := passes("a claim leaves a locked job with a limit, "+statement+variant,
			[]string{statement + variant}, func(o *overlap) (string, func() error) {
				if prepare != nil {
					prepare(o)
				}
				o.add("q", limited("one"))
				must(o.t, o.claims(o.b, c)()) // from now on it knows of limits
				first := o.add("q", limited("one"))
				second := o.add("q", limited("two"))
				o.sql("UPDATE %s.ready SET head = true")
				return rowOf(first), func() error {
					c := c
					c.Max, c.Limits = 1, new(storage.Limited)
					got, err := o.b.Claim(o.t.Context(), o.now, c, nil)
					o.want(len(got) == 1 && got[0].ID == second.ID, "%d jobs are claimed", len(got))
					return err
				}
			})
		if statement == "lockHeads" { // pickHeads locks the job
			passed.without = passed.without[1:]
		}
		return passed
	}
	pausesAnother := func(o *overlap) {
		_, err := o.b.SetQueueState(o.t.Context(), "another", ojs.QueuePaused)
		must(o.t, err)
	}
	// quarantined has a record that does not decode enter the quarantine.
	quarantined := func(o *overlap) (key string) {
		bad := o.add("q")
		o.sql("UPDATE %s.job SET args = '{'")
		_, err := o.a.Get(o.t.Context(), bad.ID)
		var q *ojs.QuarantinedError
		if !errors.As(err, &q) {
			o.t.Fatal(err)
		}
		return q.Key
	}
	inQ := storage.Claim{Queues: []string{"q"}}
	// ordered is a case in which a call that waits for the first of two does not hold the
	// second.
	ordered := func(name string, r removal, prepare func(*overlap) (_, _ string, _ func() error)) lockCase {
		return lockCase{name + " are locked in one order", []removal{r}, func(o *overlap) {
			first, second, call := prepare(o)
			tx, err := o.pool.Begin(o.t.Context())
			must(o.t, err)
			defer tx.Rollback(context.Background())
			_, err = tx.Exec(o.t.Context(), fmt.Sprintf(first, o.name))
			must(o.t, err)
			o.begin(call)
			o.want(o.waited, "the call does not wait")
			var free bool
			other, err := o.pool.Begin(o.t.Context())
			must(o.t, err)
			defer other.Rollback(context.Background())
			_, err = other.Exec(o.t.Context(), "SET LOCAL lock_timeout = '100ms'")
			must(o.t, err)
			err = other.QueryRow(o.t.Context(), fmt.Sprintf(second, o.name)).Scan(&free)
			o.want(err == nil && free, "the call holds the second: %v", err)
			must(o.t, other.Rollback(context.Background()))
			must(o.t, tx.Rollback(context.Background()))
			o.check(o.end())
		}}
	}
	inOrder := func(statement string) removal {
		return removal{statement, "ORDER BY seq FOR UPDATE", "ORDER BY seq DESC FOR UPDATE"}
	}
	free := func(r storage.Record) string {
		return strings.Replace(rowOf(r), "SELECT", "SELECT true", 1) + " NOWAIT"
	}
	list := []lockCase{
		ordered("jobs that are cancelled", inOrder("lockChanged"), func(
			o *overlap,
		) (string, string, func() error) {
			a, b := o.add("q"), o.add("q")
			return rowOf(a), free(b), o.cancels(o.b, b, a)
		}),
		ordered("jobs whose ends are counted", inOrder("lockChanged"), func(
			o *overlap,
		) (string, string, func() error) {
			o.add("q")
			o.add("q")
			d := o.take("q", 2)
			for i := range d {
				o.insert(o.waiting(d[i].ID))
			}
			return rowOf(d[0]), free(d[1]), o.completes(o.b, d[1], d[0])
		}),
		ordered("jobs that a new job waits for", inOrder("lockChanged"), func(
			o *overlap,
		) (string, string, func() error) {
			a, b := o.add("q"), o.add("q")
			return rowOf(a), free(b), o.inserts(o.b, o.waiting(b.ID, a.ID))
		}),
		ordered("jobs that wait for one that ends", inOrder("waitingJobs"), func(
			o *overlap,
		) (string, string, func() error) {
			o.add("q")
			d := o.take("q", 1)
			a, b := o.waiting(d[0].ID), o.waiting(d[0].ID)
			o.insert(a, b)
			return rowOf(a.Record), free(b.Record), o.completes(o.b, d...)
		}),
		ordered("jobs that are deleted", inOrder("remove"), func(o *overlap) (string, string, func() error) {
			o.add("q")
			o.add("q")
			d := o.take("q", 2)
			o.settle(o.changes(d, ojs.StateCompleted)...)
			return rowOf(d[0]), free(d[1]), func() error {
				_, err := o.b.Delete(o.t.Context(), []string{d[1].ID, d[0].ID})
				return err
			}
		}),
		ordered("equal jobs", inOrder("locked"), func(o *overlap) (string, string, func() error) {
			another := func(r *storage.Record) { r.Fingerprint = "another" }
			a, b := o.add("q", replaces), o.add("q", replaces, another)
			return rowOf(a), free(b), o.inserts(o.b, storage.Insert{Record: o.record("q", replaces, another)},
				storage.Insert{Record: o.record("q", replaces)})
		}),
		ordered("names", removal{"takeNames", "$1::bigint[])", "$1::bigint[]) ORDER BY 1 DESC"}, func(
			o *overlap,
		) (string, string, func() error) {
			hash := func(print string) int64 {
				sum := sha256.Sum256([]byte("unique " + print))
				return int64(binary.BigEndian.Uint64(sum[:]))
			}
			prints := []string{"a", "b"} // of which the second has the lesser hash
			for hash(prints[0]) < hash(prints[1]) {
				prints[1] += "b"
			}
			var ins []storage.Insert
			for _, print := range prints {
				ins = append(ins, storage.Insert{Record: o.record("q", unique(print))})
			}
			take := func(print string) string {
				return fmt.Sprintf("INSERT INTO %%s.name_lock VALUES (%d)"+
					" ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING true", hash(print))
			}
			return take(prints[1]), take(prints[0]), o.inserts(o.b, ins...)
		}),
		ordered("queues", removal{"lockRounds", "l (queue)", "l (queue) ORDER BY l.queue DESC"}, func(
			o *overlap,
		) (string, string, func() error) {
			var changes []storage.Change
			for _, q := range []string{"b", "a"} {
				o.add(q, tenant("key"))
				c := o.changes(o.take(q, 1), ojs.StateRetryable)[0]
				o.settle(c)
				c.Record.Version++
				c.Record.State, c.Record.NextRetryAt = ojs.StateAvailable, time.Time{}
				changes = append(changes, c)
			}
			key := "hashtextextended('%[1]s fair ' || "
			return "SELECT pg_advisory_xact_lock(" + key + "'a', 3131961357))",
				"SELECT pg_try_advisory_xact_lock(" + key + "'b', 3131961357))", o.settles(o.b, changes...)
		}),
		{"of two equal jobs one is stored", []removal{noNames}, func(o *overlap) {
			in := func() storage.Insert { return storage.Insert{Record: o.record("q", unique("print"))} }
			_, _ = o.around("", "insert", o.inserts(o.a, in()), o.inserts(o.b, in()))
			o.want(len(o.all()) == 1, "%d are stored", len(o.all()))
		}},
		{"a bounded queue has no more than its depth", []removal{noNames}, func(o *overlap) {
			in := func() storage.Insert { return storage.Insert{Record: o.record("q"), MaxDepth: 1} }
			_, _ = o.around("", "insert", o.inserts(o.a, in()), o.inserts(o.b, in()))
			o.want(len(o.all()) == 1, "%d are stored", len(o.all()))
		}},
		{"a job that makes room is not claimed meanwhile",
			[]removal{{"oldest", skipsLock, ""}}, func(o *overlap) {
				o.add("q")
				in := storage.Insert{Record: o.record("q"), MaxDepth: 1, DropOldest: true}
				a, b := o.around("", "settleAllCounting", o.inserts(o.a, in), o.claims(o.b, inQ))
				o.check(errors.Join(a, b))
				n := len(o.all(ojs.StateAvailable, ojs.StateActive))
				o.want(n == 1, "the queue has %d", n)
			}},
		passes("an insert makes room by a job that is not locked", []string{"oldest"}, func(
			o *overlap,
		) (string, func() error) {
			first := o.add("q")
			o.add("q")
			in := storage.Insert{Record: o.record("q"), MaxDepth: 2, DropOldest: true}
			return rowOf(first), o.inserts(o.b, in)
		}),
		{"a job that is replaced is not claimed meanwhile",
			[]removal{{"locked", waitsLock, ""}}, func(o *overlap) {
				o.add("q", replaces)
				in := storage.Insert{Record: o.record("q", replaces)}
				a, b := o.around("", "settleAllCounting", o.inserts(o.a, in), o.claims(o.b, inQ))
				o.check(errors.Join(a, b))
				n := len(o.all(ojs.StateAvailable, ojs.StateActive))
				o.want(n == 1, "%d equal jobs live", n)
			}},
		{"two new jobs of an ordering key: one has the turn", []removal{noNames}, func(o *overlap) {
			a, b := o.around("setDepends", "commit", o.inserts(o.a, line(o)), o.inserts(o.b, line(o)))
			o.check(errors.Join(a, b))
			turns(o)
		}},
		{"a new job beside the end of the one with the turn gets it", []removal{noNames}, func(o *overlap) {
			o.insert(line(o))
			first := o.take("q", 1)
			a, b := o.around("firstInLine", "commit", o.completes(o.a, first...), o.inserts(o.b, line(o)))
			o.check(errors.Join(a, b))
			turns(o)
		}},
		{"a revived job and a new one of an ordering key: one has the turn",
			[]removal{noNames}, func(o *overlap) {
				o.insert(line(o))
				o.settle(o.changes(o.take("q", 1), ojs.StateDiscarded)...)
				in := storage.Insert{Record: o.all()[0], OrderingKey: "line"}
				in.Record.FinishedAt = time.Time{}
				pending(&in.Record)
				a, b := o.around("setDepends", "commit", func() error {
					_, err := o.a.Revive(o.t.Context(), o.now, []storage.Insert{in})
					return err
				}, o.inserts(o.b, line(o)))
				o.check(errors.Join(a, b))
				turns(o)
			}},
		{"a limit of one lets one job start", []removal{noLimits}, func(o *overlap) {
			o.add("q", once)
			o.add("r", once)
			inR := storage.Claim{Queues: []string{"r"}}
			a, b := o.around("", "claimThese", o.claims(o.a, inQ), o.claims(o.b, inR))
			o.check(errors.Join(a, b))
			n := len(o.all(ojs.StateActive))
			o.want(n == 1, "%d are active", n)
		}},
		{"no job starts once a limit is set that lets none", []removal{noLimits}, func(o *overlap) {
			o.add("q", once)
			a, b := o.around("", "claimThese", o.claims(o.a, inQ), func() error {
				name := storage.LimitName{Kind: storage.LimitKey, Name: "key"}
				none := ojs.RateLimit{Concurrency: ojs.NoneAtOnce}
				return o.b.SetLimit(o.t.Context(), o.now, name, none, time.Time{})
			})
			o.check(errors.Join(a, b))
			o.want(o.waited, "the limit is set while a claim counts it")
		}},
		{"no job starts once a limit of its queue is set that is not locked", nil, func(o *overlap) {
			o.add("limited", once) // the claim judges its key
			o.add("q")
			a, b := o.around("", "pickHeadsIn", o.claims(o.a, inQ), func() error {
				name := storage.LimitName{Kind: storage.LimitQueue, Name: "q"}
				none := ojs.RateLimit{Concurrency: ojs.NoneAtOnce}
				return o.b.SetLimit(o.t.Context(), o.now, name, none, time.Time{})
			})
			o.check(errors.Join(a, b))
			n := len(o.all(ojs.StateActive))
			o.want(n == 0, "%d are active", n)
		}},
		{"a key is not forgotten while a claim counts it", nil, func(o *overlap) {
			o.add("q", limited("key"))
			o.completes(o.a, o.take("q", 1)...)()
			o.add("q", limited("key"))
			a, b := o.around("", "addStarts", o.claims(o.a, inQ), func() error {
				return o.b.ForgetIdle(o.t.Context(), o.now.Add(2*time.Hour))
			})
			o.check(errors.Join(a, b))
			var kept int
			o.one("SELECT count(*) FROM %s.job_limit", &kept)
			o.want(o.waited && kept == 1, "the key is forgotten while a claim counts it")
		}},
		{"the start of an undone claim is taken back beside another start",
			[]removal{noLimit}, func(o *overlap) {
				for range 3 {
					o.add("q", limited("key"))
				}
				got := o.take("q", 2)
				a, b := o.around("", "addStarts", o.claims(o.a, inQ), o.unclaims(o.b, got[1], 1))
				o.check(errors.Join(a, b))
				var numbers []int64
				o.one("SELECT array_agg(n ORDER BY n) FROM %s.job_start", &numbers)
				o.want(slices.Equal(numbers, []int64{1, 2}), "the starts are %v", numbers)
			}},
		{"of a setting and a block at once both last", []removal{noLimit}, func(o *overlap) {
			name := storage.LimitName{Kind: storage.LimitQueue, Name: "q"}
			a, b := o.around("", "setLimit", func() error {
				return o.a.SetLimit(o.t.Context(), o.now, name, ojs.RateLimit{Concurrency: 1}, time.Time{})
			}, func() error {
				return o.b.BlockLimit(o.t.Context(), o.now, name, o.now.Add(time.Hour))
			})
			o.check(errors.Join(a, b))
			l, err := o.a.GetLimit(o.t.Context(), o.now, name)
			o.check(err)
			o.want(l.Setting != nil && !l.BlockedUntil.IsZero(), "the limit is %+v", l)
		}},
		{"of two calls that pause a queue one has found it active", []removal{noName}, func(o *overlap) {
			var active atomic.Int32
			pause := func(s *postgres.Storage) func() error {
				return func() error {
					was, err := s.SetQueueState(o.t.Context(), "q", ojs.QueuePaused)
					if was == ojs.QueueActive {
						active.Add(1)
					}
					return err
				}
			}
			o.bothBehind("INSERT INTO %s.queue_state VALUES ('q', 'draining')", pause(o.a), pause(o.b))
			o.want(active.Load() == 1, "%d have found it active", active.Load())
		}},
		{"of two calls that store a new recurring job one does", []removal{noName}, func(o *overlap) {
			var stored atomic.Int32
			set := func(s *postgres.Storage) func() error {
				return func() error {
					versions, err := document.Of(s).SetCrons(o.t.Context(), []storage.Cron{{Name: "x"}})
					if err == nil && versions[0] > 0 {
						stored.Add(1)
					}
					return err
				}
			}
			o.bothBehind("INSERT INTO %s.document VALUES ('cron', 'x', 1, NULL, 'x')", set(o.a), set(o.b))
			o.want(stored.Load() == 1, "%d have stored it", stored.Load())
		}},
		{"a new job sees who has joined a round",
			[]removal{{"insert", xactLock, "pg_catalog.abs("}}, func(o *overlap) {
				o.add("q", tenant("other"))
				o.fairly(o.inserts(o.b, storage.Insert{Record: o.record("q", tenant("key"))}))
				rounds(o)
			}},
		{"a job that comes due sees who has joined a round",
			[]removal{{"due", xactLock, "pg_catalog.abs("}}, func(o *overlap) {
				o.add("q", tenant("other"))
				o.add("q", tenant("key"), o.due)
				o.fairly(func() error {
					_, err := o.b.Due(o.t.Context(), o.now, 10, nil)
					return err
				})
				rounds(o)
			}},
		{"a job that is retried sees who has joined a round", []removal{noRounds}, func(o *overlap) {
			o.add("q", tenant("key"))
			c := o.changes(o.take("q", 1), ojs.StateRetryable)[0]
			o.settle(c)
			c.Record.Version++
			c.Record.State, c.Record.NextRetryAt = ojs.StateAvailable, time.Time{}
			o.add("q", tenant("other"))
			o.fairly(o.settles(o.b, c))
			rounds(o)
		}},
		{"an undone claim does not wait for rounds",
			[]removal{{"tryRounds", "pg_catalog.pg_try_advisory_xact_lock(", "0 <> ("}}, func(o *overlap) {
				o.add("q", tenant("key"))
				got := o.take("q", 1)
				o.fairly(o.unclaims(o.b, got[0], 1))
				o.want(!o.waited, "the call waits")
			}},
		{"a job does not end unseen by a new job that waits for it",
			[]removal{{"lockChanged", waitsLock, ""}}, func(o *overlap) {
				o.add("q")
				d := o.take("q", 1)
				w := o.waiting(d[0].ID)
				a, b := o.around("", "setAwaited", o.inserts(o.a, w), o.completes(o.b, d...))
				o.check(errors.Join(a, b))
				o.state(w.Record, ojs.StateAvailable)
			}},
		{"no new job waits for a job whose end is counted",
			[]removal{{"lockChanged", waitsLock, ""}}, func(o *overlap) {
				o.add("q")
				d := o.take("q", 1)
				first, second := o.waiting(d[0].ID), o.waiting(d[0].ID)
				o.insert(first)
				a, b := o.around("", "settleCounting", o.completes(o.a, d...), o.inserts(o.b, second))
				o.check(errors.Join(a, b))
				o.state(second.Record, ojs.StateAvailable)
			}},
		{"two ends at once count twice", []removal{{"waitingJobs", waitsLock, ""}}, func(o *overlap) {
			o.add("q")
			o.add("q")
			d := o.take("q", 2)
			w := o.waiting(d[0].ID, d[1].ID)
			o.insert(w)
			a, b := o.around("", "setDepends", o.completes(o.a, d[0]), o.completes(o.b, d[1]))
			o.check(errors.Join(a, b))
			o.state(w.Record, ojs.StateAvailable)
		}},
		{"a job that is cancelled is not claimed meanwhile",
			[]removal{{"lockChanged", waitsLock, ""}}, func(o *overlap) {
				r := o.add("q")
				a, b := o.around("", "settleCounting", o.cancels(o.a, r), o.claims(o.b, inQ))
				o.check(errors.Join(a, b))
				o.state(r, ojs.StateCancelled)
			}},
		{"a job whose claim is undone does not end meanwhile",
			[]removal{{"lockedIDs", waitsLock, ""}}, func(o *overlap) {
				o.add("q")
				got := o.take("q", 1)
				a, b := o.around("", "settleCounting", o.unclaims(o.a, got[0], 1), o.completes(o.b, got...))
				o.check(a)
				o.want(errors.Is(b, storage.ErrFenced), "it has ended: %v", b)
			}},
		{"a job to which a dependency is added does not move meanwhile",
			[]removal{{"lockChanged", waitsLock, ""}}, func(o *overlap) {
				o.add("q")
				d := o.take("q", 1)
				w := o.waiting(d[0].ID)
				o.insert(w)
				in := storage.Insert{Record: o.record("q"), AwaitedBy: []string{w.Record.ID}}
				a, b := o.around("", "insert", o.inserts(o.a, in), o.completes(o.b, d...))
				o.check(errors.Join(a, b))
				o.state(w.Record, ojs.StatePending)
			}},
		{"a job that a limit drops does not end meanwhile",
			nil, func(o *overlap) {
				o.add("q", dropped)
				o.take("q", 1)
				r := o.add("q", dropped)
				a, b := o.around("", "settleCounting", o.claims(o.a, inQ), o.cancels(o.b, r))
				o.check(a)
				o.want(b != nil, "it is cancelled")
				o.state(r, ojs.StateDiscarded)
			}},
		claimsPast("claimIn", inQ, nil),
		claimsPast("claimAll", storage.Claim{}, nil),
		claimsPast("claimAround", storage.Claim{}, pausesAnother),
		claimsPast("aheadIn", inQ, nil),
		claimsPast("aheadAll", storage.Claim{}, nil),
		claimsPast("aheadAround", storage.Claim{}, pausesAnother),
		claimsPast("claimJudgedIn", inQ, knowsLimits),
		claimsPast("claimJudgedAll", storage.Claim{}, knowsLimits),
		claimsPast("claimJudgedAround", storage.Claim{}, func(o *overlap) {
			pausesAnother(o)
			knowsLimits(o)
		}),
		claimsPast("aheadJudgedIn", inQ, knowsLimits),
		claimsPast("aheadJudgedAll", storage.Claim{}, knowsLimits),
		claimsPast("aheadJudgedAround", storage.Claim{}, func(o *overlap) {
			pausesAnother(o)
			knowsLimits(o)
		}),
		claimsLimited("lockHeads", "In", inQ, nil),
		claimsLimited("lockHeads", "All", storage.Claim{}, nil),
		claimsLimited("lockHeads", "Around", storage.Claim{}, pausesAnother),
		claimsLimited("pickHeads", "In", inQ, nil),
		claimsLimited("pickHeads", "All", storage.Claim{}, nil),
		claimsLimited("pickHeads", "Around", storage.Claim{}, pausesAnother),
		passes("a claim leaves a locked job that was set aside", []string{"promote"}, func(
			o *overlap,
		) (string, func() error) {
			o.add("q", once)
			got := o.take("q", 1)
			aside := o.add("q", once)
			o.completes(o.a, got...)()
			return rowOf(aside), o.claims(o.b, inQ)
		}),
		passes("a claim leaves a locked head that may not start", []string{"shutLanes"}, func(
			o *overlap,
		) (string, func() error) {
			rate := func(r *storage.Record) {
				r.RateLimit = &ojs.RateLimit{Key: "key", Rate: ojs.Rate{Limit: 1, Per: time.Hour}}
			}
			o.add("q", rate)
			o.take("q", 1)
			o.add("q", rate)
			last := o.add("q", rate)
			o.sql("UPDATE %s.ready SET head = true")
			return rowOf(last), o.claims(o.b, storage.Claim{Queues: []string{"q"}, Max: 2})
		}),
		passes("a step leaves keys that another one judges", []string{"judgeLimits"}, func(
			o *overlap,
		) (string, func() error) {
			o.add("q", once)
			r := o.take("q", 1)[0]
			o.add("q", once)
			r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, o.now, time.Time{}
			return "SELECT FROM %s.job_judge FOR UPDATE", func() error {
				into := []*storage.Record{new(storage.Record)}
				_, _, err := o.b.SettleAndClaim(o.t.Context(), o.now, []*storage.Record{&r}, nil,
					storage.Claim{Worker: "w", Limits: new(storage.Limited)}, into)
				return err
			}
		}),
		passes("Due leaves a locked job", []string{"due"}, func(o *overlap) (string, func() error) {
			first, second := o.add("q", o.due), o.add("q", o.due)
			return rowOf(first), func() error {
				d, err := o.b.Due(o.t.Context(), o.now, 2, nil)
				only := len(d.Promoted) == 1 && d.Promoted[0].ID == second.ID
				o.want(only, "%d are promoted", len(d.Promoted))
				return err
			}
		}),
		passes("Prune leaves a locked job whose time has come", []string{"release"}, func(
			o *overlap,
		) (string, func() error) {
			o.add("q")
			o.settle(o.ended(o.take("q", 1), func(r *storage.Record) { r.ResultTTL = time.Minute })...)
			return rowOf(o.all()[0]), o.prunes(o.b, o.now.Add(time.Hour))
		}),
		passes("Prune leaves a locked job that its workflow keeps", []string{"keepOn"}, func(
			o *overlap,
		) (string, func() error) {
			keeper := o.add("keeper")
			o.add("q", member(keeper.ID))
			o.settle(o.changes(o.take("q", 1), ojs.StateCompleted)...)
			return rowOf(o.all(ojs.StateCompleted)[0]), o.prunes(o.b, o.now.Add(time.Hour))
		}),
		{"two prunes of an earlier clock keep a job on",
			[]removal{{"keptUntil", "FOR UPDATE", ""}}, func(o *overlap) {
				o.add("q")
				o.add("q")
				o.settle(o.changes(o.take("q", 2), ojs.StateCompleted)...)
				o.sql("UPDATE %s.stage SET released = $1", o.now.Add(time.Hour).UnixNano())
				// While a transaction has the second job, one prune has the first job,
				// and the other waits for it.
				tx, err := o.pool.Begin(o.t.Context())
				must(o.t, err)
				defer tx.Rollback(context.Background())
				last := o.all()[1]
				_, err = tx.Exec(o.t.Context(), fmt.Sprintf(rowOf(last), o.name))
				must(o.t, err)
				first := make(chan error, 1)
				go func() { first <- o.prunes(o.a, o.now)() }()
				_, err = o.sa.awaitWait(o.pool, func() bool { return len(first) > 0 })
				must(o.t, err)
				o.begin(o.prunes(o.b, o.now))
				must(o.t, tx.Rollback(context.Background()))
				o.check(errors.Join(<-first, o.end()))
				var kept int
				o.one("SELECT count(kept) FROM %s.stage", &kept)
				o.want(kept == 2, "%d of 2 are kept", kept)
			}},
		passes("a call leaves a locked row that does not decode", []string{"setAside"}, func(
			o *overlap,
		) (string, func() error) {
			bad := o.add("q")
			o.sql("UPDATE %s.job SET args = '{'")
			return rowOf(bad), func() error {
				_, err := o.b.Get(o.t.Context(), bad.ID)
				if errors.Is(err, ojs.ErrQuarantined) {
					return nil
				}
				return err
			}
		}),
		passes("a look leaves locked rounds that were served", []string{"compactServed"}, func(
			o *overlap,
		) (string, func() error) {
			o.add("q", tenant("key"))
			o.take("q", 1)
			compact := func() error { return o.b.CompactServed(o.t.Context()) }
			return "SELECT FROM %s.served FOR UPDATE", compact
		}),
		{"a row that has been mended and changed since is not set aside",
			[]removal{{"setAside", "version = ($2::bigint[])[pg_catalog.array_position($1::bigint[], seq)]",
				"$2::bigint[] IS NOT NULL"}}, func(o *overlap) {
				bad := o.add("q")
				o.sql("UPDATE %s.job SET args = '{'")
				get := func() error { _, err := o.a.Get(o.t.Context(), bad.ID); return err }
				_, b := o.around("", "setAside", get, func() error {
					o.sql("UPDATE %s.job SET args = '1'")
					o.sql("UPDATE %s.stage SET version = version + 1")
					return nil
				})
				o.check(b)
				n, err := o.a.CountQuarantined(o.t.Context())
				o.check(err)
				o.want(n == 0, "%d records are in the quarantine", n)
			}},
		{"a record that is released is not deleted meanwhile",
			[]removal{{"quarantineEntry", waitsLock, ""}}, func(o *overlap) {
				key := quarantined(o)
				o.sql("UPDATE %s.quarantined_job SET args = '1'")
				release := func() error { return o.a.ReleaseQuarantined(o.t.Context(), key) }
				drop := func() error { return o.b.DeleteQuarantined(o.t.Context(), key) }
				a, b := o.around("", "quarantinedJob", release, drop)
				o.check(a)
				o.want(errors.Is(b, ojs.ErrNotFound), "it is deleted: %v", b)
			}},
		{"a release waits for a transaction that mends the record",
			[]removal{{"quarantinedJob", waitsLock, ""}}, func(o *overlap) {
				key := quarantined(o)
				must(o.t, pgx.BeginFunc(o.t.Context(), o.pool, func(tx pgx.Tx) error {
					_, err := tx.Exec(o.t.Context(), "UPDATE "+o.name+".quarantined_job SET args = '1'")
					o.begin(func() error { return o.b.ReleaseQuarantined(o.t.Context(), key) })
					return err
				}))
				o.check(o.end())
			}},
	}
	return list
}

// Two processes that make a schema do so one after the other.
func TestMigrationsDoNotOverlap(t *testing.T) {
	pool := connect(t)
	name := schema(t, pool)
	steps, err := postgres.Schema(postgres.WithSchema(name))
	must(t, err)
	a, b := newSpy(t, name), newSpy(t, name)
	a.names[steps[0].SQL] = "first step"
	ended := make(chan error, 1)
	a.once("first step", func() {
		go func() { ended <- postgres.Migrate(t.Context(), b.pool, postgres.WithSchema(name)) }()
		_, err := b.awaitWait(pool, func() bool { return len(ended) > 0 })
		must(t, err)
	})
	must(t, postgres.Migrate(t.Context(), a.pool, postgres.WithSchema(name)))
	must(t, <-ended)
}
