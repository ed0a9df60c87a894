package postgres_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// hot is a storage that has many jobs with each ability.
type hot struct {
	t     *testing.T
	s     *postgres.Storage
	pool  *pgxpool.Pool
	spied *pgxpool.Pool // of the storage
	name  string
	now   time.Time
	n     int // of the latest job
}

func (h *hot) record(queue string, with ...func(*storage.Record)) storage.Record {
	h.n++
	r := record(h.n)
	r.Queue, r.CreatedAt, r.EnqueuedAt = queue, h.now, h.now
	for _, f := range with {
		f(&r)
	}
	return r
}

func (h *hot) insert(ins ...storage.Insert) []storage.Inserted {
	h.t.Helper()
	done, err := h.s.Insert(h.t.Context(), h.now, ins, nil)
	must(h.t, err)
	return done
}

func (h *hot) add(queue string, with ...func(*storage.Record)) storage.Record {
	h.t.Helper()
	r := h.record(queue, with...)
	h.insert(storage.Insert{Record: r})
	return r
}

func (h *hot) claim(c storage.Claim) []storage.Record {
	h.t.Helper()
	c.Worker, c.Max = "w", max(c.Max, 1)
	got, err := h.s.Claim(h.t.Context(), h.now, c, nil)
	must(h.t, err)
	if len(got) == 0 {
		h.t.Errorf("%+v claims no job", c)
	}
	return got
}

// take claims n jobs of a queue and its types.
func (h *hot) take(queue string, n int) []storage.Record {
	h.t.Helper()
	return h.claim(storage.Claim{Queues: []string{queue}, Max: n, Limits: new(storage.Limited)})
}

func (h *hot) settle(changes ...storage.Change) {
	h.t.Helper()
	done, err := h.s.Settle(h.t.Context(), h.now, changes, nil)
	must(h.t, err)
	for i := range done {
		must(h.t, done[i].Err)
	}
}

// changes are those of records to a state.
func (h *hot) changes(recs []storage.Record, to ojs.State, with ...func(*storage.Change)) []storage.Change {
	list := make([]storage.Change, len(recs))
	for i, r := range recs {
		r.State, r.LeaseUntil = to, time.Time{}
		switch {
		case to.Terminal():
			r.FinishedAt = h.now
		case to == ojs.StateRetryable:
			r.NextRetryAt = h.now.Add(time.Hour)
		}
		list[i] = storage.Change{Record: r, AttemptFieldsOnly: true}
		for _, f := range with {
			f(&list[i])
		}
	}
	return list
}

// Options of records.
func limited(key string) func(*storage.Record) {
	return func(r *storage.Record) {
		r.RateLimit = &ojs.RateLimit{Key: key, Concurrency: 5, Rate: ojs.Rate{Limit: 100, Per: time.Minute}}
	}
}

func fair(r *storage.Record)      { r.Fairness = ojs.Fairness{Key: "tenant KK", Weight: 1} }
func pending(r *storage.Record)   { r.State, r.Dependencies = ojs.StatePending, new(ojs.Dependencies) }
func versioned(r *storage.Record) { r.TypeVersion = "1.2" }
func unique(print string) func(*storage.Record) {
	return func(r *storage.Record) {
		r.Fingerprint, r.Unique = print, &ojs.UniquePolicy{States: ojs.AllStates(), Period: time.Hour}
	}
}
func member(id string) func(*storage.Record) {
	return func(r *storage.Record) { r.Meta = map[string]any{"workflow_id": id} }
}

func (h *hot) cron(name string) storage.Cron {
	return storage.Cron{Name: name, Schedule: "@daily", Type: "x", CreatedAt: h.now,
		NextRun: h.now.Add(time.Hour)}
}

func held(r storage.Record) storage.Held { return storage.Held{ID: r.ID, Version: r.Version} }

// Parts of changes.
func logs(c *storage.Change)         { c.Log = []byte("log") }
func deadLettered(c *storage.Change) { c.Record.DeadLetteredAt = c.Record.FinishedAt }
func kept(c *storage.Change)         { c.Record.ResultTTL = time.Hour }
func whole(c *storage.Change)        { c.AttemptFieldsOnly = false }

// fill stores a few jobs of each kind, and then many copies of them.
func (h *hot) fill(copies int) {
	t := h.t
	for range 3 {
		h.add("plain")
		h.add("versions", versioned)
		h.add("fair", fair)
		h.add("limited", limited("key KK"))
		h.add("unique", unique("print KK"+fmt.Sprint(h.n)))
		h.add("expiring", func(r *storage.Record) { r.ExpiresAt = h.now.Add(time.Hour) })
		h.add("scheduled", func(r *storage.Record) {
			r.State, r.ScheduledAt = ojs.StateScheduled, h.now.Add(time.Hour)
		})
		first := h.add("dependencies")
		next := h.record("dependencies", pending)
		h.insert(storage.Insert{Record: next, DependsOn: []string{first.ID}})
		last := h.record("dependencies", pending)
		h.insert(storage.Insert{Record: last, DependsOn: []string{first.ID, next.ID}})
		h.insert(storage.Insert{Record: h.record("lines", pending), OrderingKey: "line KK"})
		for _, q := range strings.Fields("done done discarded cancelled dead kept member retryable active") {
			h.add(q)
		}
	}
	h.settle(h.changes(h.take("done", 6), ojs.StateCompleted, logs)...)
	h.settle(h.changes(h.take("discarded", 3), ojs.StateDiscarded, logs)...)
	h.settle(h.changes(h.take("cancelled", 3), ojs.StateCancelled)...)
	h.settle(h.changes(h.take("dead", 3), ojs.StateDiscarded, deadLettered)...)
	h.settle(h.changes(h.take("kept", 3), ojs.StateCompleted, kept)...)
	h.settle(h.changes(h.take("retryable", 3), ojs.StateRetryable, logs)...)
	h.take("active", 3)

	must(t, pgx.BeginFunc(t.Context(), h.pool, func(tx pgx.Tx) error {
		for _, table := range []string{"job", "stage", "edge", "line", "log"} {
			rows, err := tx.Query(t.Context(), `SELECT column_name, CASE
				WHEN column_name IN ('seq', 'place', 'other_place', 'own_place', 'dependency', 'waiting') THEN column_name || ' + c * 1000000'
				WHEN column_name = 'id' THEN 'id || ''-'' || c'
				WHEN column_name IN ('job', 'depends') THEN 'convert_to(replace(convert_from(' || column_name || ', ''UTF8''), ''KK'', ''K'' || c), ''UTF8'')'
				WHEN data_type = 'text' THEN 'replace(' || column_name || ', ''KK'', ''K'' || c)'
				ELSE column_name END FROM (SELECT column_name::text, data_type FROM information_schema.columns
					WHERE table_schema = $1 AND table_name = $2) c`, h.name, table)
			if err != nil {
				return err
			}
			var column, value string
			var columns, values []string
			if _, err := pgx.ForEachRow(rows, []any{&column, &value}, func() error {
				columns, values = append(columns, column), append(values, value)
				return nil
			}); err != nil {
				return err
			}
			if _, err := tx.Exec(t.Context(), fmt.Sprintf("INSERT INTO %[1]s.%[2]s (%[3]s) SELECT %[4]s FROM %[1]s.%[2]s, generate_series(1, $1::bigint) c",
				h.name, table, strings.Join(columns, ", "), strings.Join(values, ", ")), copies); err != nil {
				return fmt.Errorf("%s: %w", table, err)
			}
		}
		for _, sql := range []string{
			"SELECT setval('%[1]s.place', (SELECT max(place) FROM %[1]s.stage))",
			`INSERT INTO %[1]s.job_limit (kind, name, period, most, look) SELECT 'key', 'old ' || c, 1, 1, 9e18::bigint FROM generate_series(1, 30 * $1::bigint) c`,
			`INSERT INTO %[1]s.job_start SELECT 'key', 'old ' || c / 10, c, c FROM generate_series(1, 30 * $1::bigint) c`,
			`INSERT INTO %[1]s.document SELECT 'value', 'old ' || c, c, 9e18::bigint, 'x' FROM generate_series(1, 30 * $1::bigint) c`,
		} {
			args := []any{copies}
			if !strings.Contains(sql, "$1") {
				args = nil
			}
			if _, err := tx.Exec(t.Context(), fmt.Sprintf(sql, h.name), args...); err != nil {
				return err
			}
		}
		return nil
	}))
	crons := make([]storage.Cron, 10*copies)
	for i := range crons {
		crons[i] = h.cron(fmt.Sprint("cron ", i))
	}
	_, err := document.Of(h.s).SetCrons(t.Context(), crons)
	must(t, err)
}

// calls are calls of each ability.
func (h *hot) calls() []func() {
	t, ctx := h.t, h.t.Context()
	ok := func(_ any, err error) { t.Helper(); must(t, err) }
	step := func(q string, to []storage.Record, n int) []storage.Record {
		t.Helper()
		into, recs := make([]*storage.Record, n), make([]*storage.Record, len(to))
		for i := range into {
			into[i] = new(storage.Record)
		}
		for i := range to {
			recs[i] = &to[i]
		}
		c := storage.Claim{Worker: "w", Limits: new(storage.Limited)}
		if q != "" {
			c.Queues = []string{q}
		}
		done, n, err := h.s.SettleAndClaim(ctx, h.now, recs, nil, c, into)
		must(t, err)
		for i := range done {
			must(t, done[i].Err)
		}
		got := make([]storage.Record, n)
		for i := range got {
			got[i] = *into[i]
		}
		return got
	}
	ends := func(list []storage.Record, to ojs.State) (recs []storage.Record) {
		for _, c := range h.changes(list, to) {
			recs = append(recs, c.Record)
		}
		return recs
	}
	failing := func(c *storage.Change) { c.Record.Errors = []ojs.Failure{{Type: "e"}} }
	then := func(c *storage.Change) { c.Then = []storage.Insert{{Record: h.record("plain")}} }
	key := storage.LimitName{Kind: storage.LimitKey, Name: "key K7"}
	var dead []storage.Record
	return []func(){
		// Without logs, limits and the rest.
		func() { h.add("plain") },
		func() { ok(h.s.Get(ctx, record(1).ID)) },
		func() { ok(h.s.Counts(ctx)) },
		func() { h.settle(h.changes(h.take("plain", 2), ojs.StateCompleted)...) },
		func() { h.settle(h.changes(h.take("plain", 1), ojs.StateRetryable, failing)...) },
		func() { h.settle(h.changes(h.take("plain", 1), ojs.StateCancelled)...) },
		func() {
			got := step("plain", nil, 2)
			got = step("plain", ends(got, ojs.StateCompleted), 2)
			got = step("plain", ends(got, ojs.StateDiscarded), 2)
			got = step("plain", ends(got, ojs.StateRetryable), 2)
			both := append(ends(got[:1], ojs.StateCompleted), ends(got[1:], ojs.StateDiscarded)...)
			got = step("plain", both, 2)
			ok(h.s.Unclaim(ctx, h.now, []storage.Held{held(got[0])}))
			ok(h.s.Extend(ctx, h.now, []storage.Extension{{Held: held(got[1])}}))
			h.settle(h.changes(got[1:], ojs.StateCompleted, whole)...)
		},
		func() {
			h.insert(storage.Insert{Record: h.record("plain", unique("a")), IDIsNew: true})
			h.insert(storage.Insert{Record: h.record("bounded"), MaxDepth: 100})
			h.insert(storage.Insert{Record: h.record("bounded"), MaxDepth: 1, DropOldest: true})
			claim := &storage.Claim{Worker: "w", Max: 1}
			h.insert(storage.Insert{Record: h.record("fresh"), IDIsNew: true, Claim: claim})
			claim.Queues = []string{"fresh"}
			h.insert(storage.Insert{Record: h.record("fresh"), IDIsNew: true, Claim: claim})
		},
		// Logs.
		func() {
			h.settle(h.changes(h.take("plain", 2), ojs.StateCompleted, logs)...)
			got := h.take("plain", 1)
			h.settle(h.changes(got, ojs.StateRetryable, logs)...)
			ok(h.s.Logs(ctx, got[0].ID))
		},
		// Dependencies, groups and lines.
		func() {
			a := h.record("await")
			b := h.record("await", pending)
			h.insert(storage.Insert{Record: a}, storage.Insert{Record: b, DependsOn: []string{a.ID}})
			h.insert(storage.Insert{Record: h.record("await"), AwaitedBy: []string{b.ID}})
			h.insert(storage.Insert{Record: h.record("await", pending), DependsOn: []string{a.ID, b.ID}})
			h.settle(h.changes(h.take("await", 1), ojs.StateCompleted)...)
			h.settle(h.changes(h.take("await", 1), ojs.StateCompleted)...)
			h.settle(h.changes(h.take("await", 1), ojs.StateCompleted, then)...)
			_, _, err := h.s.CancelAll(ctx, h.now, []string{h.add("await").ID})
			must(t, err)
		},
		func() {
			for range 3 {
				h.insert(storage.Insert{Record: h.record("turns", pending), OrderingKey: "mine"})
			}
			h.settle(h.changes(h.take("turns", 1), ojs.StateCompleted)...)
			step("turns", ends(h.take("turns", 1), ojs.StateCompleted), 1)
		},
		func() {
			h.settle(h.changes(h.take("dependencies", 1), ojs.StateCompleted)...)
			h.settle(h.changes(h.take("lines", 1), ojs.StateCompleted)...)
		},
		func() {
			dead = []storage.Record{h.add("revive")}
			h.settle(h.changes(h.take("revive", 1), ojs.StateDiscarded, deadLettered)...)
			r, err := h.s.Get(ctx, dead[0].ID)
			must(t, err)
			r.State, r.FinishedAt, r.DeadLetteredAt = ojs.StateAvailable, time.Time{}, time.Time{}
			_, err = h.s.Revive(ctx, h.now, []storage.Insert{{Record: r}})
			must(t, err)
		},
		// Fairness.
		func() {
			for range 3 {
				h.add("mine", fair)
			}
			h.settle(h.changes(h.take("mine", 1), ojs.StateRetryable)...)
			h.settle(h.changes(h.take("fair", 2), ojs.StateCompleted)...)
			got := step("mine", nil, 1)
			ok(h.s.Unclaim(ctx, h.now, []storage.Held{held(got[0])}))
			r := h.changes(h.take("mine", 1), ojs.StateRetryable)[0]
			h.settle(r)
			r.Record.Version++
			r.Record.State, r.Record.NextRetryAt = ojs.StateAvailable, time.Time{}
			h.settle(r)
		},
		// Versions.
		func() {
			h.claim(storage.Claim{Queues: []string{"versions"}, Types: []string{"x@1.2"}, Max: 2})
			h.claim(storage.Claim{Types: []string{"x@>=1 <2"}, Max: 2})
		},
		// Queues.
		func() {
			h.claim(storage.Claim{Max: 2})
			ok(h.s.SetQueueState(ctx, "fair", ojs.QueuePaused))
			h.claim(storage.Claim{Max: 2})
			step("", nil, 2)
			h.claim(storage.Claim{Queues: []string{"fair", "plain"}})
			ok(h.s.SetQueueState(ctx, "fair", ojs.QueueActive))
			ok(h.s.QueueStates(ctx))
		},
		// Limits.
		func() {
			h.add("limited", limited("key K1"))
			h.settle(h.changes(h.take("limited", 2), ojs.StateCompleted)...)
			h.settle(h.changes(step("limited", nil, 2), ojs.StateCompleted)...)
			got := step("limited", nil, 2)
			step("limited", ends(got, ojs.StateCompleted), 2)
			got = step("limited", nil, 1)
			ok(h.s.Unclaim(ctx, h.now, []storage.Held{held(got[0])}))
		},
		func() {
			bounds := ojs.RateLimit{Concurrency: 1}
			must(t, h.s.SetLimit(ctx, h.now, key, bounds, time.Time{}))
			must(t, h.s.BlockLimit(ctx, h.now, key, h.now.Add(time.Minute)))
			ok(h.s.GetLimit(ctx, h.now, key))
			ok(h.s.ListLimits(ctx, h.now, storage.LimitKey, "", 10))
		},
		// Times that come, and kept jobs.
		func() {
			due := func(r *storage.Record) { r.State, r.ScheduledAt = ojs.StateScheduled, h.now }
			h.add("due", due)
			h.add("due", due, fair)
			h.add("due", func(r *storage.Record) { r.ExpiresAt = h.now })
			d, err := h.s.Due(ctx, h.now, 100, nil)
			must(t, err)
			if len(d.Promoted) != 2 || len(d.Expired) != 1 {
				t.Errorf("due: %d, %d", len(d.Promoted), len(d.Expired))
			}
		},
		func() {
			h.add("prune", member(record(1).ID))
			h.settle(h.changes(h.take("prune", 1), ojs.StateCompleted)...)
			later := h.now.Add(time.Second)
			ok(h.s.Prune(ctx, storage.Prune{Now: later, Beyond: 1 << 30, Max: 10}))
			ok(h.s.Prune(ctx, storage.Prune{Now: h.now, Before: later, Max: 10}))
			ok(h.s.Prune(ctx, storage.Prune{Now: h.now, Before: later, DeadLetters: true, Max: 10}))
			h.add("delete")
			got := h.take("delete", 1)
			h.settle(h.changes(got, ojs.StateCompleted, logs)...)
			ok(h.s.Delete(ctx, []string{got[0].ID}))
		},
		// Lists.
		func() {
			rare := []ojs.State{ojs.StateScheduled, ojs.StateRetryable, ojs.StateActive, ojs.StateCancelled,
				ojs.StateDiscarded}
			for _, q := range []storage.Query{{}, {Order: storage.OrderNewest}, {DeadLetters: true},
				{DeadLetters: true, Order: storage.OrderNewest}, {Order: storage.OrderFinished},
				{Order: storage.OrderDue}, {Order: storage.OrderClaim},
				{States: rare}, {States: rare, Order: storage.OrderNewest},
				{States: rare[:2], Order: storage.OrderDue}, {States: rare[3:], Order: storage.OrderFinished},
				{DeadLetters: true, Queues: []string{"dead"}},
				{DeadLetters: true, Queues: []string{"dead"}, Order: storage.OrderNewest},
				{Workflow: record(1).ID}, {Workflow: record(1).ID, Order: storage.OrderNewest},
				{Keepers: true}, {Keepers: true, Order: storage.OrderNewest},
				{States: rare[4:], ErrorTypes: []string{"e*"}, Order: storage.OrderFinished}} {
				q.Limit = 3
				first, err := h.s.List(ctx, q)
				must(t, err)
				q.Cursor = first.Next
				page, err := h.s.List(ctx, q)
				must(t, err)
				q.Cursor = page.Prev
				ok(h.s.List(ctx, q))
			}
		},
		// A caller's transaction.
		func() {
			h.add("own")
			must(t, pgx.BeginFunc(ctx, h.spied, func(tx pgx.Tx) error {
				ctx := postgres.WithTx(ctx, tx)
				for _, in := range []storage.Insert{
					{Record: h.record("own")}, {Record: h.record("own", unique("own"))},
					{Record: h.record("own"), MaxDepth: 10},
					{Record: h.record("own"), MaxDepth: 1, DropOldest: true},
					{Record: h.record("own", fair)}, {Record: h.record("own", pending), OrderingKey: "own"},
				} {
					_, err := h.s.Insert(ctx, h.now, []storage.Insert{in}, nil)
					must(t, err)
				}
				got := h.take("lines", 1)
				done, err := h.s.Settle(ctx, h.now, h.changes(got, ojs.StateCompleted, logs), nil)
				must(t, err)
				must(t, done[0].Err)
				ok(h.s.Get(ctx, got[0].ID))
				return nil
			}))
		},
		// Values and recurring entries.
		func() {
			mine := document.Value{Key: "mine", Data: []byte("x")}
			must(t, document.Of(h.s).PutValues(ctx, h.now, []document.Value{mine, {Key: "gone"}}))
			ok(document.Of(h.s).Values(ctx, h.now, "old 12", "", 10))
			ok(document.Of(h.s).SetCrons(ctx, []storage.Cron{h.cron("mine")}))
			_, _, err := document.Of(h.s).DueCrons(ctx, h.now, nil, 10)
			must(t, err)
			ok(document.Of(h.s).Crons(ctx, storage.DocumentQuery{Limit: 3}))
			ok(document.Of(h.s).Crons(ctx, storage.DocumentQuery{Names: []string{"mine"}, Limit: 3}))
			ok(document.Of(h.s).DeleteCron(ctx, "mine"))
		},
	}
}

// node is a node of a plan.
type node struct {
	Type      string `json:"Node Type"`
	Relation  string `json:"Relation Name"`
	Index     string `json:"Index Name"`
	Condition string `json:"Index Cond"`
	Subplan   string `json:"Subplan Name"`
	Filter    string `json:"Join Filter"`
	Plans     []node
}

// scans returns the relations of which a plan reads everything, but for those that a
// LIMIT ends. A condition on other columns of an index than the first does not help.
func (n *node) scans(first map[string]string, ends bool) (all []string) {
	switch {
	case n.Type == "Seq Scan":
		all = append(all, n.Relation)
	case n.Index != "" && !ends && (n.Condition == "" || !strings.Contains(n.Condition, first[n.Index])):
		all = append(all, n.Index)
	}
	for i := range n.Plans {
		child := &n.Plans[i]
		passes := false
		switch n.Type {
		case "Limit":
			passes = true
		case "LockRows", "Append", "Merge Append", "Result", "Subquery Scan", "ProjectSet", "WindowAgg":
			passes = ends
		case "Nested Loop":
			passes = ends && i == 0 && n.Filter == "" // else it may find no row for the limit
		}
		all = append(all, child.scans(first, passes && child.Subplan == "")...)
	}
	return all
}

// explain returns the plan of a statement: as it is for all arguments, or for some.
func (h *hot) explain(st sent, generic bool, args []any) (*node, error) {
	var plans []struct{ Plan node }
	var text []byte
	ctx := h.t.Context()
	err := pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error {
		if st.tuned {
			if _, err := tx.Exec(ctx, h.s.Tune()); err != nil {
				return err
			}
		}
		if !generic {
			return tx.QueryRow(ctx, "EXPLAIN (FORMAT JSON) "+st.sql, args...).Scan(&text)
		}
		values := []string{}
		for n := 1; strings.Contains(st.sql, fmt.Sprintf("$%d", n)); n++ {
			values = append(values, "NULL")
		}
		execute := "EXECUTE hot"
		if len(values) > 0 {
			execute += "(" + strings.Join(values, ", ") + ")"
		}
		all := "SET LOCAL plan_cache_mode = force_generic_plan"
		for _, sql := range []string{all, "PREPARE hot AS " + st.sql} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		sql := "EXPLAIN (FORMAT JSON) " + execute
		err := tx.QueryRow(ctx, sql, pgx.QueryExecModeSimpleProtocol).Scan(&text)
		if err == nil {
			_, err = tx.Exec(ctx, "DEALLOCATE hot")
		}
		return err
	})
	if err == nil {
		err = json.Unmarshal(text, &plans)
	}
	if err != nil {
		return nil, err
	}
	return &plans[0].Plan, nil
}

// summed are the relations that listings by queue and type read whole.
var summed = map[string]string{"tally": "the look sums it up", "active": "as many jobs as run",
	"active_pkey": "as many jobs as run"}

// mayRead are the relations that statements may read whole, and why.
var mayRead = map[string]map[string]string{
	"counters":         {"active": "as many jobs as run"},
	"claimedBy":        {"active_pkey": "as many jobs as run"},
	"counts":           {"tally": "the look sums it up"},
	"compact":          {"tally": "the look sums it up"},
	"depth":            {"tally": "the look sums it up"},
	"prune":            {"tally": "the look sums it up"},
	"forgetEdges":      {"edge_pkey": "few calls revive jobs"},
	"walkRareDue":      summed,
	"walkRareFinished": summed,
	"walkDeadOf":       summed,
	"walkRare":         summed,
	"waitingOfType":    {"ready_all": "counts jobs for people, and no index has them by type"},
}

// No statement reads a whole table or index that grows with the jobs. The jobs use each
// ability. With the settings of tune, each statement has one plan for all arguments. A
// statement that is sent without them is planned for its arguments, and for all. With
// OJS_STORM there are 300,000 jobs.
func TestHotStatements(t *testing.T) {
	copies := 150
	if os.Getenv("OJS_STORM") != "" {
		copies = 5000
	}
	s, spy, name := openSpied(t, "", postgres.WithPoll(time.Hour))
	h := &hot{t: t, s: s, pool: connect(t), spied: spy.pool, name: name, now: time.Now()}
	h.fill(copies)
	h.analyze()
	for _, call := range h.calls() {
		call()
	}
	h.analyze()
	first := make(map[string]string)
	rows, err := h.pool.Query(t.Context(), `SELECT c.relname, pg_get_indexdef(c.oid, 1, true) FROM pg_index i
		JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = $1::regnamespace`, name)
	must(t, err)
	var index, column string
	_, err = pgx.ForEachRow(rows, []any{&index, &column}, func() error {
		first[index] = column
		return nil
	})
	must(t, err)
	check := func(st sent, generic bool, args []any, large int) {
		t.Helper()
		statement := spy.names[st.sql]
		plan, err := h.explain(st, generic, args)
		if err != nil {
			t.Errorf("%s: %v", statement, err)
			return
		}
		for _, r := range plan.scans(first, false) {
			var n int
			must(t, h.pool.QueryRow(t.Context(), "SELECT coalesce(max(reltuples), 0)::bigint FROM pg_class "+
				"WHERE relnamespace = $1::regnamespace AND relname = $2", name, r).Scan(&n))
			if n >= large && mayRead[statement][r] == "" {
				t.Errorf("%s (tuned %v, generic %v) reads all of %s, which has %d:%s",
					statement, st.tuned, generic, r, n, plan.text(""))
			}
		}
	}
	for sql, statement := range spy.names {
		// A person calls Advance, once.
		if statement != "listen" && statement != "commit" && statement != "advance" {
			check(sent{sql, true}, true, nil, copies)
		}
	}
	for st, args := range maps.Clone(spy.sent) {
		if !st.tuned && spy.names[st.sql] != "listen" { // the planner reads small tables whole
			check(st, true, args, 3000)
			check(st, false, args, 3000)
		}
	}
}

func (h *hot) analyze() {
	h.t.Helper()
	rows, err := h.pool.Query(h.t.Context(), "SELECT schemaname || '.' || tablename FROM pg_tables"+
		" WHERE schemaname = $1", h.name)
	must(h.t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(h.t, err)
	_, err = h.pool.Exec(h.t.Context(), "ANALYZE "+strings.Join(tables, ", "))
	must(h.t, err)
}

// text is the plan, one node a line.
func (n *node) text(indent string) string {
	s := "\n" + indent + strings.TrimSpace(n.Type+" "+n.Relation+" "+n.Index+" "+n.Condition+" "+n.Subplan)
	for i := range n.Plans {
		s += n.Plans[i].text(indent + "  ")
	}
	return s
}
