package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

var (
	quietLog = slog.New(slog.DiscardHandler)
	quiet    = engine.WithLogger(quietLog)
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open opens a storage in a schema, "" for a new one, which the end of the test closes.
// It returns the schema's name.
func open(t testing.TB, name string, opts ...postgres.Option) (*postgres.Storage, string) {
	t.Helper()
	pool := connect(t)
	if name == "" {
		name = schema(t, pool)
	}
	s, err := postgres.Open(t.Context(), pool,
		append([]postgres.Option{postgres.WithSchema(name)}, opts...)...)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s, name
}

// record is an available job.
func record(n int) storage.Record {
	var r storage.Record
	r.ID, r.Type, r.Queue, r.State = fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", n), "x", "q",
		ojs.StateAvailable
	r.CreatedAt, r.Lease, r.Timeout = time.Now(), time.Minute, time.Minute
	return r
}

func insert(ctx context.Context, s storage.Storage, recs ...storage.Record) error {
	batch := make([]storage.Insert, len(recs))
	for i := range recs {
		batch[i].Record = recs[i]
	}
	_, err := s.Insert(ctx, time.Now(), batch, nil)
	return err
}

// settle makes a change that nothing is in the way of.
func settle(t *testing.T, ctx context.Context, s storage.Storage, rec storage.Record) {
	t.Helper()
	settled, err := s.Settle(ctx, time.Now(), []storage.Change{{Record: rec}}, nil)
	must(t, err)
	must(t, settled[0].Err)
}

// addDead stores a dead letter.
func addDead(t *testing.T, s storage.Storage, n int) storage.Record {
	t.Helper()
	must(t, insert(t.Context(), s, record(n)))
	claimed, err := s.Claim(t.Context(), time.Now(), storage.Claim{Max: 1}, nil)
	must(t, err)
	rec := claimed[0]
	rec.State, rec.FinishedAt, rec.DeadLetteredAt, rec.LeaseUntil = ojs.StateDiscarded, time.Now(),
		time.Now(), time.Time{}
	settle(t, t.Context(), s, rec)
	rec.Version++
	return rec
}

func newEngine(t testing.TB, s storage.Storage, opts ...engine.Option) *engine.Engine[int] {
	t.Helper()
	eng, err := engine.New[int](s, append([]engine.Option{quiet}, opts...)...)
	must(t, err)
	return eng
}

// start runs an engine until the test ends.
func start(t testing.TB, eng *engine.Engine[int]) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
}

func TestOptions(t *testing.T) {
	pool := connect(t)
	for field, opt := range map[string]postgres.Option{
		"option": nil, "schema": postgres.WithSchema("Not; a name"), "poll": postgres.WithPoll(0),
		"logger": postgres.WithLogger(nil),
	} {
		var invalid *ojs.InvalidError
		if _, err := postgres.Open(t.Context(), pool, opt); !errors.As(err, &invalid) ||
			invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := postgres.Open(t.Context(), nil); !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("no pool: %v", err)
	}
}

// However many open a new schema at once, one of them makes it; and one that a later
// version has made is refused.
func TestSchema(t *testing.T) {
	pool := connect(t)
	name := schema(t, pool)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, err := postgres.Open(t.Context(), pool, postgres.WithSchema(name))
			if err != nil {
				t.Error(err)
				return
			}
			_ = s.Close()
		})
	}
	wg.Wait()
	_, err := pool.Exec(t.Context(), "INSERT INTO "+name+".migration (version) VALUES ($1)",
		postgres.NewestVersion()+1)
	must(t, err)
	if _, err := postgres.Open(t.Context(), pool, postgres.WithSchema(name)); !errors.Is(err,
		postgres.ErrNewer) {
		t.Errorf("a newer schema: %v", err)
	}
	one, _ := open(t, "")
	other, _ := open(t, "")
	_, err = newEngine(t, one).Enqueue(t.Context(), "x", 1)
	must(t, err)
	if counts, err := other.Counts(t.Context()); err != nil || len(counts) != 0 {
		t.Errorf("another schema's jobs: %v, %v", counts, err)
	}
}

// A schema may have a name that is a word of SQL's.
func TestSchemaNames(t *testing.T) {
	if os.Getenv("OJS_TEST_POSTGRES") != "" {
		t.Skip("the server may have schemas with these names")
	}
	pool := connect(t)
	for _, name := range []string{"order", "user", "all"} {
		s, err := postgres.Open(t.Context(), pool, postgres.WithSchema(name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		must(t, insert(t.Context(), s, record(1)))
		must(t, s.Close())
		_, err = pool.Exec(t.Context(), `DROP SCHEMA "`+name+`" CASCADE`)
		must(t, err)
	}
}

// A role that may do nothing in the database but what it likes in one schema is enough.
func TestSchemaOfARole(t *testing.T) {
	admin := connect(t)
	name := schema(t, admin)
	_, err := admin.Exec(t.Context(), "CREATE ROLE "+name+"; CREATE SCHEMA "+name+" AUTHORIZATION "+name)
	must(t, err)
	t.Cleanup(func() { // after the schema, which goes first
		_, err := admin.Exec(context.Background(), "DROP SCHEMA "+name+" CASCADE; DROP ROLE "+name)
		must(t, err)
	})
	cfg := admin.Config()
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET ROLE "+name)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	defer pool.Close()
	for range 2 {
		s, err := postgres.Open(t.Context(), pool, postgres.WithSchema(name))
		must(t, err)
		_, err = newEngine(t, s).Enqueue(t.Context(), "x", 1)
		must(t, err)
		must(t, s.Close())
	}
}

// The view shows every job, also one whose documents are not UTF-8.
func TestView(t *testing.T) {
	s, name := open(t, "")
	var err error
	plain, odd := record(1), record(2)
	plain.Args, err = ojs.NewArgs(json.RawMessage(`["ä"]`))
	must(t, err)
	odd.Args, err = ojs.NewArgs(json.RawMessage("[\"\xff\"]"))
	must(t, err)
	must(t, insert(t.Context(), s, plain, odd))
	rows, err := connect(t).Query(t.Context(), "SELECT args FROM "+name+".jobs ORDER BY id")
	must(t, err)
	shown, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	if want := []string{`["ä"]`, `["\377"]`}; !slices.Equal(shown, want) {
		t.Errorf("%q", shown)
	}
}

// However many are asked for, those that there are are claimed, promoted and pruned.
func TestMost(t *testing.T) {
	s, _ := open(t, "")
	addDead(t, s, 0)
	now := time.Now()
	claim := func(n int, queues ...string) {
		must(t, insert(t.Context(), s, record(n)))
		claimed, err := s.Claim(t.Context(), now, storage.Claim{Max: math.MaxInt, Queues: queues}, nil)
		if err != nil || len(claimed) != 1 {
			t.Errorf("%d claimed of the queues %q, %v", len(claimed), queues, err)
		}
	}
	claim(1)
	claim(2, "q")
	_, err := s.SetQueueState(t.Context(), "other", ojs.QueuePaused) // which changes how claims are made
	must(t, err)
	claim(3)
	if d, err := s.Due(t.Context(), now.Add(time.Hour), math.MaxInt, nil); err != nil || len(d.Stalled) != 3 {
		t.Errorf("%d stalled, %v", len(d.Stalled), err)
	}
	p, err := s.Prune(t.Context(), storage.Prune{DeadLetters: true, Before: now.Add(time.Hour),
		Max: math.MaxInt})
	if err != nil || len(p.IDs) != 1 {
		t.Errorf("%d pruned, %v", len(p.IDs), err)
	}
}

// A lookup of a text that PostgreSQL cannot store finds nothing and does not fail.
func TestNoTexts(t *testing.T) {
	s, _ := open(t, "")
	must(t, insert(t.Context(), s, record(1)))
	for _, text := range []string{"a\x00b", "\xff", ""} {
		if _, err := s.Get(t.Context(), text); !errors.Is(err, ojs.ErrNotFound) {
			t.Errorf("Get(%q): %v", text, err)
		}
		if n, err := s.Delete(t.Context(), []string{text}); err != nil || n != 0 {
			t.Errorf("Delete(%q): %d, %v", text, n, err)
		}
		if page, err := s.List(t.Context(), storage.Query{Queues: []string{text}}); err != nil ||
			len(page.Records) != 0 {
			t.Errorf("List of queue %q: %d, %v", text, len(page.Records), err)
		}
	}
}

func TestWithTx(t *testing.T) {
	s, _ := open(t, "", postgres.WithPoll(time.Hour))
	pool := connect(t)
	eng := newEngine(t, s)
	ran := make(chan string, 10)
	eng.Handle("x", func(_ context.Context, job *ojs.Job[int]) error { ran <- job.ID; return nil })
	start(t, eng)
	errBack := errors.New("back")
	once := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs})
	for name, opts := range map[string][]ojs.Option{"plain": nil, "unique": {once}} {
		t.Run(name, func(t *testing.T) {
			var ticket ojs.Ticket
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
				ctx := postgres.WithTx(t.Context(), tx)
				ticket, err = eng.Enqueue(ctx, "x", 1, opts...)
				must(t, err)
				if job, err := eng.Get(ctx, ticket.ID); err != nil || job.State != ojs.StateAvailable {
					t.Errorf("seen from the transaction: %+v, %v", job, err)
				}
				if _, err := eng.Get(t.Context(), ticket.ID); !errors.Is(err, ojs.ErrNotFound) {
					t.Errorf("seen from elsewhere: %v", err)
				}
				return errBack
			})
			if !errors.Is(err, errBack) {
				t.Fatal(err)
			}
			if _, err := eng.Get(t.Context(), ticket.ID); !errors.Is(err, ojs.ErrNotFound) {
				t.Errorf("after the rollback: %v", err)
			}
			must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
				ticket, err = eng.Enqueue(postgres.WithTx(t.Context(), tx), "x", 1, opts...)
				return err
			}))
			if id := <-ran; id != ticket.ID { // told by the commit: the next poll is in an hour
				t.Errorf("ran %s, not %s", id, ticket.ID)
			}
			if _, err := ticket.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("a failed enqueue leaves the transaction usable", func(t *testing.T) {
		later := ojs.WithDelay(time.Hour)
		_, err := eng.Enqueue(t.Context(), "x", 7, once, later)
		must(t, err)
		must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			ctx := postgres.WithTx(t.Context(), tx)
			if _, err := eng.Enqueue(ctx, "x", 7, once, later); !errors.Is(err, ojs.ErrDuplicate) {
				t.Errorf("an equal job: %v", err)
			}
			_, err := eng.Enqueue(ctx, "x", 8, once, later)
			return err
		}))
	})
	t.Run("a settle is part of it, too", func(t *testing.T) {
		ticket, err := eng.Enqueue(t.Context(), "x", 9, ojs.WithDelay(time.Hour))
		must(t, err)
		err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			must(t, eng.Cancel(postgres.WithTx(t.Context(), tx), ticket.ID))
			return errBack
		})
		if job, err2 := eng.Get(t.Context(), ticket.ID); err2 != nil || job.State != ojs.StateScheduled ||
			!errors.Is(err, errBack) {
			t.Errorf("%+v, %v, %v", job, err, err2)
		}
	})
}

// A process learns of a change of another one at once, or without notifications at its
// next poll.
func TestTwoProcesses(t *testing.T) {
	for name, opts := range map[string][]postgres.Option{
		"notified": {postgres.WithPoll(time.Hour)},
		"deaf":     {postgres.WithPoll(20 * time.Millisecond), postgres.WithDeafEar()},
	} {
		t.Run(name, func(t *testing.T) {
			one, schema := open(t, "", opts...)
			two, _ := open(t, schema, opts...)
			works, other := newEngine(t, one), newEngine(t, two)
			causes := make(chan error, 1)
			works.Handle("x", func(context.Context, *ojs.Job[int]) error { return nil })
			works.Handle("blocks", func(ctx context.Context, _ *ojs.Job[int]) error {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return nil
			})
			start(t, works)
			must(t, works.WaitIdle(t.Context()))
			for n := range 5 {
				ticket, err := other.Enqueue(t.Context(), "x", n,
					ojs.WithDelay(time.Duration(n)*10*time.Millisecond))
				must(t, err)
				if job, err := ticket.Wait(t.Context()); err != nil || job.State != ojs.StateCompleted {
					t.Errorf("%+v, %v", job, err)
				}
			}
			lease := 30 * time.Minute
			if name == "deaf" {
				lease = 300 * time.Millisecond // its renewal finds out
			}
			ticket, err := other.Enqueue(t.Context(), "blocks", 0, ojs.WithLease(lease))
			must(t, err)
			for {
				job, err := other.Get(t.Context(), ticket.ID)
				must(t, err)
				if job.State == ojs.StateActive {
					break
				}
			}
			must(t, other.Cancel(t.Context(), ticket.ID))
			if cause := <-causes; !errors.Is(cause, ojs.ErrCancelled) &&
				!(name == "deaf" && errors.Is(cause, ojs.ErrLeaseLost)) {
				t.Errorf("cause %v", cause)
			}
		})
	}
}

// Many engines share the work; each job runs once, and each run of a recurring job is
// made once.
func TestManyEngines(t *testing.T) {
	_, schema := open(t, "")
	const engines, jobs = 4, 400
	var ran, recurred atomic.Int64
	seen := sync.Map{}
	all := make([]*engine.Engine[int], engines)
	for i := range all {
		s, _ := open(t, schema)
		all[i] = newEngine(t, s)
		all[i].Handle("x", func(_ context.Context, job *ojs.Job[int]) error {
			if _, twice := seen.LoadOrStore(job.ID, true); twice {
				t.Errorf("job %s ran twice", job.ID)
			}
			ran.Add(1)
			return nil
		})
		all[i].Handle("recurs", func(_ context.Context, job *ojs.Job[int]) error {
			if _, twice := seen.LoadOrStore(job.Meta["cron_triggered_at"], true); twice {
				t.Errorf("the run of %v was made twice", job.Meta["cron_triggered_at"])
			}
			recurred.Add(1)
			return nil
		})
		start(t, all[i])
	}
	must(t,
		all[0].Cron().Set(t.Context(),
			cron.Entry{Name: "c", Schedule: "@every 1s", Job: ojs.NewDraft("recurs", 0),
				Overlap: cron.OverlapAllow}))
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			for n := range jobs / engines {
				ticket, err := all[i].Enqueue(t.Context(), "x", n)
				if err != nil {
					t.Error(err)
				} else if n%10 == 0 {
					if _, err := ticket.Wait(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for ran.Load() < jobs || recurred.Load() < 2 {
		must(t, t.Context().Err())
	}
	if n := ran.Load(); n != jobs {
		t.Errorf("%d runs of %d jobs", n, jobs)
	}
}

// skewed is the clock of a machine that is wrong.
type skewed struct {
	clock.Clock
	by time.Duration
}

func (c skewed) Now() time.Time { return c.Clock.Now().Add(c.by) }

// A machine whose clock is wrong knows by how much.
func TestClockOffset(t *testing.T) {
	for _, by := range []time.Duration{-time.Minute, 0, time.Minute} {
		s, _ := open(t, "", postgres.WithClock(skewed{clock.New(), by}))
		if off := s.ClockOffset() + by; off < -time.Second || off > time.Second {
			t.Errorf("%v wrong, and told to add %v", by, s.ClockOffset())
		}
	}
}

var seqScan = regexp.MustCompile(`Seq Scan on (job|ready|active|waiting|done)\b`)

// checkPlans wants each statement planned along its indexes.
func checkPlans(t *testing.T, s *postgres.Storage, when string) {
	t.Helper()
	plans, err := s.Plans(t.Context())
	must(t, err)
	for statement, plan := range plans {
		for line := range strings.Lines(plan) {
			// The count of a key goes along an index. The counts of a queue and of a type
			// read as many rows as jobs run.
			wide := statement == "counters" && strings.Contains(line, " on active j_")
			if !wide && seqScan.MatchString(line) || strings.Contains(line, "Bitmap") {
				t.Errorf("%s, %s:\n%s", when, statement, plan)
				break
			}
		}
	}
	for statement, indexes := range map[string]string{
		"get": "job_id", "claim": "ready_order", "claim all": "ready_all", "claim around": "ready_order",
		"insert claim": "ready_order", "insert claim all": "ready_all",
		"claim these": "ready_pkey", "promote": "ready_lane", "closed": "ready_lane",
		"lock heads": "ready_order job_judge_name", "claim judged": "ready_order",
		"ahead judged all": "ready_all", "ahead": "ready_order job_pkey", "ahead all": "ready_all job_pkey",
		"rest rounds": "ready_round served_place", "compact served": "ready_round served_place",
		"settle attempt": "job_id active_pkey", "end attempt": "job_id active_pkey",
		"end step": "job_id active_pkey",
		"complete": "job_id active_pkey", "complete step": "job_id active_pkey",
		"settle all": "job_id active_pkey", "extend": "job_id active_pkey",
		"due":        "ready_wake_place_idx active_wake_place_idx",
		"next":       "ready_wake_place_idx active_wake_place_idx",
		"peers":      "ready_fingerprint_state_created_seq_idx done_fingerprint_state_created_seq_idx",
		"take edges": "edge_pkey line_pkey", "first in line": "line_key waiting_pkey",
		"locked": "job_pkey active_pkey", "kept": "done_kept done_released", "keep on": "job_id",
		"release": "done_pkey", "prune": "done_ended done_pkey job_pkey",
		"by seq":   "job_pkey",
		"remove":   "job_id done_pkey",
		"inserted": "ready_pkey done_pkey", "rare": "waiting_inserted done_inserted", "dead": "done_dead",
		"dead of": "done_dead_of", "members": "job_workflow", "keepers": "job_keeper",
		"rare due": "waiting_due", "rare finished": "done_finished", "failed": "done_failed",
		"wait": "ready_wake_place_idx active_wake_place_idx", "ready": "ready_all",
		"finished": "done_ended done_kept_finished",
	} {
		names := []string{statement}
		if plans[statement] == "" {
			names = []string{statement + " up", statement + " down"}
		}
		for _, name := range names {
			for _, index := range strings.Fields(indexes) {
				if !strings.Contains(plans[name], "using "+index+" ") {
					t.Errorf("%s, %s does not use %s:\n%s", when, name, index, plans[name])
				}
			}
		}
	}
	// It begins in each index at a state, and reads no job in another.
	if plan := plans["finished down"]; strings.Count(plan, "Index Cond: ((state = ") != 2 {
		t.Errorf("%s, finished reads other states:\n%s", when, plan)
	}
}

// Pages walk along the index with the fewest other jobs. They look at no more jobs than
// they have if each is one of the query, and at many if few may be.
func TestWaysOfListings(t *testing.T) {
	s, spy, _ := openSpied(t, "", postgres.WithPoll(time.Hour))
	const limit, read, most = 10, 1000, 5000
	discarded := []ojs.State{ojs.StateDiscarded}
	errors, queues := []string{"smtp.*"}, []string{"b"}
	long := []string{strings.Repeat("long", 100)}
	for _, tc := range []struct {
		q         storage.Query
		statement string
		scan      int
	}{
		{storage.Query{}, "walkStage", limit},
		{storage.Query{Queues: queues}, "walkStage", most},
		{storage.Query{DeadLetters: true, States: discarded, Order: "finished"}, "walkFinished", limit},
		{storage.Query{DeadLetters: true, States: discarded, Queues: queues, Order: "finished"},
			"walkFinished", most},
		{storage.Query{DeadLetters: true, Queues: queues, Order: "finished"}, "walkFinished", most},
		{storage.Query{DeadLetters: true, Queues: queues, Order: "due"}, "walkDue", most},
		{storage.Query{DeadLetters: true, States: []ojs.State{"pending"}}, "walkDead", most},
		{storage.Query{States: discarded, Order: "finished"}, "walkFinished", limit},
		{storage.Query{States: discarded, Queues: queues, Order: "finished"}, "walkRareFinished", limit},
		{storage.Query{States: []ojs.State{"active", "retryable"}, Order: "due"}, "walkDue", most},
		{storage.Query{States: []ojs.State{"retryable"}, Order: "due"}, "walkRareDue", limit},
		{storage.Query{States: discarded, ErrorTypes: errors, Order: "finished"}, "walkFailed", limit},
		{storage.Query{States: discarded, ErrorTypes: long, Order: "finished"}, "walkFailed", read},
		{storage.Query{States: discarded, ErrorTypes: errors, Queues: queues, Order: "finished"},
			"walkFailed", most},
		{storage.Query{States: discarded, ErrorTypes: errors, DeadLetters: true, Order: "finished"},
			"walkFailed", read},
		{storage.Query{Keepers: true}, "walkKeepers", limit},
		{storage.Query{Keepers: true, States: []ojs.State{"completed"}}, "walkKeepers", most},
		{storage.Query{Keepers: true, States: []ojs.State{"pending"}}, "walkRare", read},
		{storage.Query{Workflow: "x"}, "walkMembers", limit},
		{storage.Query{Workflow: "x", States: []ojs.State{"pending"}}, "walkMembers", most},
		{storage.Query{Workflow: "x", Order: "finished"}, "walkFinished", read},
		{storage.Query{States: []ojs.State{"active"}, Types: []string{"x"}}, "walkRare", limit},
	} {
		spy.mu.Lock()
		clear(spy.sent)
		spy.mu.Unlock()
		tc.q.Limit = limit
		_, err := s.List(t.Context(), tc.q)
		must(t, err)
		spy.mu.Lock()
		for st, args := range spy.sent {
			if name := spy.names[st.sql]; strings.HasPrefix(name, "walk") &&
				(name != tc.statement || args[2] != tc.scan+1) {
				t.Errorf("%+v sends %s for %v jobs, want %s for %d",
					tc.q, name, args[2], tc.statement, tc.scan+1)
			}
		}
		spy.mu.Unlock()
	}
}

// The planner takes the indexes, with statistics of another time, or none at all, and
// with a backlog.
func TestPlans(t *testing.T) {
	s, name := open(t, "")
	check := func(when string) { checkPlans(t, s, when) }
	check("empty")
	pool := connect(t)
	_, err := pool.Exec(t.Context(), "ANALYZE "+name+".job, "+name+".stage")
	must(t, err)
	eng := newEngine(t, s)
	for range 10 {
		drafts := make([]ojs.Draft, 1000)
		for i := range drafts {
			drafts[i] = ojs.NewDraft("x", i)
		}
		_, err := eng.EnqueueMany(t.Context(), drafts...)
		must(t, err)
	}
	check("with a backlog that no statistics know")
	_, err = pool.Exec(t.Context(), "ANALYZE "+name+".job, "+name+".stage")
	must(t, err)
	check("with statistics")
	_, err = pool.Exec(t.Context(),
		"UPDATE "+name+
			".stage SET state = 8, finished = 1, kept = seq, dead = CASE WHEN seq % 2 = 0 THEN 1 END WHERE seq < 9000")
	must(t, err)
	check("with kept jobs that no statistics know")
	_, err = pool.Exec(t.Context(), "ANALYZE "+name+".job, "+name+".stage")
	must(t, err)
	check("with kept jobs")
}

// The planner takes the indexes among jobs of all states, and of many queues, types and
// keys, with statistics and without. With OJS_STORM there are 1,000,000 jobs.
func TestPlansOfManyJobs(t *testing.T) {
	jobs := 10_000
	if os.Getenv("OJS_STORM") != "" {
		jobs = 1_000_000
	}
	s, name := open(t, "")
	pool := connect(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO "+name+`.job (seq, created, lease, id)
		SELECT n, n, 1000000000, 'job ' || n FROM generate_series(1, $1::bigint) n`, jobs)
	must(t, err)
	_, err = pool.Exec(t.Context(), "INSERT INTO "+name+`.stage (seq, place, version, attempt, wake, lease_until, finished, dead,
			kept, created, priority, state, queue, type, fingerprint, rate_key, fair_key, share, own_place)
		SELECT n, n, 65536, 1, CASE WHEN state IN (2, 4, 5) THEN n END, CASE WHEN state = 4 THEN n END,
			CASE WHEN state > 5 THEN n END, CASE WHEN state = 8 THEN n END, CASE WHEN n % 7 = 0 AND state > 5 THEN n END,
			CASE WHEN n % 3 = 0 THEN n END, n % 5, state, 'queue ' || n % 50, 'type ' || n % 20,
			CASE WHEN n % 3 = 0 THEN 'f' || n END, CASE WHEN n % 11 = 0 THEN 'k' || n % 1000 END,
			CASE WHEN state = 3 THEN 'tenant ' || n % 4 END, 1, CASE WHEN state = 3 THEN n END
		FROM (SELECT n, (ARRAY[1, 2, 3, 3, 3, 4, 5, 6, 7, 8])[1 + n % 10]::smallint AS state
			FROM generate_series(1, $1::bigint) n) n`, jobs)
	must(t, err)
	checkPlans(t, s, "without statistics")
	checkTurns(t, pool, name, "without statistics")
	_, err = pool.Exec(t.Context(), "ANALYZE "+name+".job, "+name+".stage")
	must(t, err)
	checkPlans(t, s, "with statistics")
	checkTurns(t, pool, name, "with statistics")
}

// unseen waits until no transaction sees rows any more that are dead by now. VACUUM
// leaves what one may see, and a look of the storage or an ANALYZE of the autovacuum that
// happens to be under way would count as bloat: the space of a round for each time.
func unseen(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mark string // a transaction that is younger than all that left dead rows
	must(t, pool.QueryRow(ctx, "SELECT pg_current_xact_id()::xid::text").Scan(&mark))
	// in this order: a new snapshot is as old as the oldest who writes
	for _, column := range []string{"backend_xid", "backend_xmin"} {
		var query string
		for n := 1; n > 0; {
			err := pool.QueryRow(ctx,
				"SELECT count(*), coalesce(max(query), '') FROM pg_stat_activity WHERE datname = current_database() AND age("+
					column+") > age($1::text::xid)", mark).Scan(&n, &query)
			if err != nil {
				t.Fatalf("%v while an old transaction went on: %s", err, query)
			}
		}
	}
}

// The space of jobs that are pruned is used again once it is vacuumed, and the counts
// stay few.
func TestNoBloat(t *testing.T) {
	s, name := open(t, "", postgres.WithPoll(10*time.Millisecond))
	pool := connect(t)
	size := func() (bytes int64) {
		unseen(t, pool)
		_, err := pool.Exec(t.Context(), "VACUUM "+name+".job, "+name+".stage")
		must(t, err)
		must(t, pool.QueryRow(t.Context(), `SELECT sum(pg_total_relation_size(relid)) FROM (
			SELECT relid FROM pg_partition_tree($1) UNION ALL SELECT $2::regclass) r`, name+".stage", name+".job").Scan(&bytes))
		return bytes
	}
	var early int64
	for round := range 30 {
		batch := make([]storage.Insert, 500)
		for i := range batch {
			r := &batch[i].Record
			r.ID, r.Type, r.Queue, r.State = fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", round*500+i), "x",
				"q", ojs.StateAvailable
			r.CreatedAt, r.Lease, r.Timeout = time.Now(), time.Minute, time.Minute
		}
		_, err := s.Insert(t.Context(), time.Now(), batch, nil)
		must(t, err)
		claimed, err := s.Claim(t.Context(), time.Now(), storage.Claim{Max: 500, Worker: "w"}, nil)
		must(t, err)
		changes := make([]storage.Change, len(claimed))
		for i := range claimed {
			changes[i] = storage.Change{Record: claimed[i], AttemptFieldsOnly: true}
			changes[i].Record.State, changes[i].Record.FinishedAt = ojs.StateCompleted, time.Now()
		}
		_, err = s.Settle(t.Context(), time.Now(), changes, nil)
		must(t, err)
		_, err = s.Prune(t.Context(), storage.Prune{Beyond: 100, Max: 1000})
		must(t, err)
		bytes := size()
		if round == 5 {
			early = bytes
		}
		if round > 5 && bytes > early+early/4 {
			t.Fatalf("%d bytes after round %d, %d after the fifth", bytes, round, early)
		}
	}
	for n := 100; n > 10; { // a look sums them up
		must(t, t.Context().Err())
		must(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+name+".tally").Scan(&n))
	}
}

// A call does not wait for ever for a database that does not answer, and the next one
// finds it when it does again.
func TestNoAnswer(t *testing.T) {
	_, name := open(t, "")
	pool := connect(t)
	openImpatient := func() (*postgres.Storage, error) {
		return postgres.Open(t.Context(), pool, postgres.WithSchema(name),
			postgres.WithPatience(100*time.Millisecond))
	}
	s, err := openImpatient()
	for errors.Is(err, context.DeadlineExceeded) && t.Context().Err() == nil { // on a busy machine
		s, err = openImpatient()
	}
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	now := time.Now()
	var r storage.Insert
	r.Record.ID, r.Record.Type, r.Record.Queue, r.Record.State = "01890a5d-ac96-774b-bcce-000000000001", "x",
		"q", ojs.StateAvailable
	calls := map[string]func() error{
		"Claim": func() error {
			_, err := s.Claim(t.Context(), now, storage.Claim{Max: 1}, nil)
			return err
		},
		"Due":    func() error { _, err := s.Due(t.Context(), now, 1, nil); return err },
		"Insert": func() error { _, err := s.Insert(t.Context(), now, []storage.Insert{r}, nil); return err },
		"Get":    func() error { _, err := s.Get(t.Context(), r.Record.ID); return err },
	}
	must(t, pgx.BeginFunc(t.Context(), connect(t), func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "LOCK TABLE "+name+".job IN ACCESS EXCLUSIVE MODE")
		must(t, err)
		for call, f := range calls {
			if err := f(); !errors.Is(err, context.DeadlineExceeded) ||
				!strings.HasPrefix(err.Error(), "ojs: ") {
				t.Errorf("%s: %v", call, err)
			}
		}
		return nil
	}))
	for call, f := range calls {
		for f() != nil && !errors.Is(f(), ojs.ErrNotFound) && !errors.Is(f(), ojs.ErrDuplicate) {
			if err := t.Context().Err(); err != nil {
				t.Fatalf("%s: %v", call, err)
			}
		}
	}
}
