package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// If the network swallows everything while the statement of a call waits, every call
// fails within its time limit and says why: so each statement has the limit's context.
func TestSwallowedStatements(t *testing.T) {
	t.Parallel()
	s, _, p, _, name := behindBadNetwork(t, 5*time.Second)
	beside := connect(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	calls := everyCall(t, ctx, s)
	tx, err := beside.Begin(ctx)
	must(t, err)
	_, err = tx.Exec(ctx, `DO $$ DECLARE r record; BEGIN
		FOR r IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = '"`+name+`"'::regnamespace LOOP
			EXECUTE format('LOCK TABLE "`+name+`".%I IN ACCESS EXCLUSIVE MODE', r.relname);
		END LOOP; END $$`)
	must(t, err)
	defer func() { must(t, tx.Rollback(context.WithoutCancel(ctx))) }()
	type answer struct {
		call string
		err  error
	}
	answers := make(chan answer, len(calls))
	for call, f := range calls {
		go func() { answers <- answer{call, f()} }()
	}
	for waits := 0; waits < len(calls); {
		must(t, beside.QueryRow(ctx, `SELECT count(*) FROM pg_locks JOIN pg_class c ON c.oid = relation
			WHERE NOT granted AND relnamespace = '"`+name+`"'::regnamespace`).Scan(&waits))
	}
	p.swallow()
	for range calls {
		if a := <-answers; !errors.Is(a.err, postgres.ErrUnavailable) || ctx.Err() != nil {
			t.Errorf("%s returned %v", a.call, a.err)
		}
	}
}

// behindBadNetwork opens a storage that a network swallows on demand, with a time limit
// for its calls. direct is another one of its schema, beside that network.
func behindBadNetwork(
	t *testing.T, patience time.Duration, opts ...postgres.Option,
) (s *postgres.Storage, pool *pgxpool.Pool, p *badNetwork, direct *postgres.Storage, name string) {
	t.Helper()
	if os.Getenv("OJS_TEST_POSTGRES") != "" {
		t.Skip("the server may want more than a proxy knows")
	}
	direct, name = open(t, "")
	p = startBadNetwork(t, server)
	p.good.Store(true)
	cfg, err := pgxpool.ParseConfig(p.dsn() + " pool_max_conns=50")
	must(t, err)
	cfg.ConnConfig.ConnectTimeout, cfg.PingTimeout = patience, patience
	pool, err = pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	t.Cleanup(pool.Close)
	opts = append([]postgres.Option{postgres.WithSchema(name), postgres.WithPatience(patience),
		postgres.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
	await(t, "Open within the patience, on a busy machine", func() bool {
		s, err = postgres.Open(t.Context(), pool, opts...)
		return err == nil
	})
	t.Cleanup(func() { must(t, s.Close()) })
	return s, pool, p, direct, name
}

// everyCall has the calls of a storage, each with arguments that the database has to see.
func everyCall(t *testing.T, ctx context.Context, s *postgres.Storage) map[string]func() error {
	now := time.Now()
	const id = "01890a5d-ac96-774b-bcce-000000000001"
	var in storage.Insert
	r := &in.Record
	r.ID, r.Type, r.Queue, r.CreatedAt, r.State, r.Lease = id, "y", "q", now, ojs.StateAvailable, time.Minute
	ended := *r
	ended.State = ojs.StateCancelled
	limit := storage.LimitName{Kind: storage.LimitKey, Name: "k"}
	claim := storage.Claim{Max: 1, Worker: "w"}
	calls := map[string]func() error{
		"Insert": func() error { _, err := s.Insert(ctx, now, []storage.Insert{in}, nil); return err },
		"Claim":  func() error { _, err := s.Claim(ctx, now, claim, nil); return err },
		"Settle": func() error {
			_, err := s.Settle(ctx, now, []storage.Change{{Record: ended}}, nil)
			return err
		},
		"SettleAndClaim": func() error {
			_, _, err := s.SettleAndClaim(ctx, now, []*storage.Record{&ended}, nil, claim,
				[]*storage.Record{{}})
			return err
		},
		"Unclaim": func() error { _, err := s.Unclaim(ctx, now, []storage.Held{{ID: id}}); return err },
		"Extend": func() error {
			_, err := s.Extend(ctx, now, []storage.Extension{{Held: storage.Held{ID: id}}})
			return err
		},
		"Due":       func() error { _, err := s.Due(ctx, now, 1, nil); return err },
		"ClaimedBy": func() error { _, err := s.ClaimedBy(ctx, "w"); return err },
		"Get":       func() error { _, err := s.Get(ctx, id); return err },
		"List":      func() error { _, err := s.List(ctx, storage.Query{}); return err },
		"Counts":    func() error { _, err := s.Counts(ctx); return err },
		"Delete":    func() error { _, err := s.Delete(ctx, []string{id}); return err },
		"Prune":     func() error { _, err := s.Prune(ctx, storage.Prune{Max: 1}); return err },
		"CancelAll": func() error { _, _, err := s.CancelAll(ctx, now, []string{id}); return err },
		"Revive":    func() error { _, err := s.Revive(ctx, now, []storage.Insert{in}); return err },
		"SetQueueState": func() error {
			_, err := s.SetQueueState(ctx, "q", ojs.QueuePaused)
			return err
		},
		"QueueStates": func() error { _, err := s.QueueStates(ctx); return err },
		"PutDocuments": func() error {
			_, err := s.PutDocuments(ctx, storage.KindCron, []storage.Document{{Name: "c"}})
			return err
		},
		"Documents": func() error {
			_, err := s.Documents(ctx, storage.KindCron, storage.DocumentQuery{})
			return err
		},
		"DueDocuments": func() error {
			_, _, err := s.DueDocuments(ctx, storage.KindCron, now, nil, 1)
			return err
		},
		"SetLimit": func() error {
			return s.SetLimit(ctx, now, limit, ojs.RateLimit{Concurrency: 1}, time.Time{})
		},
		"BlockLimit": func() error { return s.BlockLimit(ctx, now, limit, now.Add(time.Hour)) },
		"GetLimit":   func() error { _, err := s.GetLimit(ctx, now, limit); return err },
		"ListLimits": func() error {
			_, err := s.ListLimits(ctx, now, limit.Kind, "", 1)
			return err
		},
		"Logs":               func() error { _, err := s.Logs(ctx, id); return err },
		"Quarantined":        func() error { _, err := s.Quarantined(ctx, "", 1); return err },
		"CountQuarantined":   func() error { _, err := s.CountQuarantined(ctx); return err },
		"ReleaseQuarantined": func() error { return s.ReleaseQuarantined(ctx, "1") },
		"DeleteQuarantined":  func() error { return s.DeleteQuarantined(ctx, "1") },
	}
	for _, part := range []reflect.Type{reflect.TypeFor[storage.Storage](),
		reflect.TypeFor[storage.SettleClaimer](), reflect.TypeFor[storage.Quarantiner]()} {
		for m := range part.Methods() {
			if calls[m.Name] == nil && m.Name != "Capabilities" && m.Name != "Close" {
				t.Errorf("%s is not tried", m.Name)
			}
		}
	}
	return calls
}
