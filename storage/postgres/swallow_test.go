package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// lines is a log that sends its messages on.
type lines chan string

func (l lines) Enabled(context.Context, slog.Level) bool { return true }
func (l lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l lines) WithGroup(string) slog.Handler            { return l }
func (l lines) Handle(_ context.Context, r slog.Record) error {
	select {
	case l <- r.Message:
	default:
	}
	return nil
}

// If the network swallows everything, on old connections and on new ones, every call
// fails within its time limit and says why. The listener notices before its next poll,
// and without a call. When the network is back, everything works again.
func TestSwallowedCalls(t *testing.T) {
	t.Parallel()
	if os.Getenv("OJS_TEST_POSTGRES") != "" {
		t.Skip("the server may want more than a proxy knows")
	}
	direct, name := open(t, "")
	p := startBadNetwork(t, server)
	p.good.Store(true)
	const patience = 200 * time.Millisecond
	cfg, err := pgxpool.ParseConfig(p.dsn())
	must(t, err)
	cfg.ConnConfig.ConnectTimeout, cfg.PingTimeout = patience, patience
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	t.Cleanup(pool.Close)
	logged := make(lines, 100)
	s, err := postgres.Open(t.Context(), pool, postgres.WithSchema(name), postgres.WithPatience(patience),
		postgres.WithPoll(time.Hour), postgres.WithLogger(slog.New(logged)))
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })

	eng := newEngine(t, s)
	ran := make(chan int, 100)
	eng.Handle("x", func(_ context.Context, job *ojs.Job[int]) error { ran <- job.Args; return nil })
	start(t, eng)
	there := newEngine(t, direct)
	soon := ojs.WithLease(time.Second) // for a claim whose answer comes too late
	ticket, err := there.Enqueue(t.Context(), "x", 1, soon)
	must(t, err)
	if n := <-ran; n != 1 { // told by a notification: the next poll is in an hour
		t.Errorf("job %d ran", n)
	}
	_, err = ticket.Wait(t.Context()) // the job would run again if its result were swallowed
	must(t, err)

	p.swallow()
	for line := ""; line != "ojs: postgres: not listening"; {
		line = <-logged
	}
	now := time.Now()
	insert := func(id string, unique string) error {
		var in storage.Insert
		r := &in.Record
		r.ID, r.Type, r.Queue, r.State, r.CreatedAt, r.Lease = id, "y", "q", ojs.StateAvailable,
			now, time.Minute
		if r.Fingerprint = unique; unique != "" {
			r.Unique = &ojs.UniquePolicy{Keys: ojs.ByArgs}
		}
		_, err := s.Insert(t.Context(), now, []storage.Insert{in}, nil)
		return err
	}
	const id = "01890a5d-ac96-774b-bcce-000000000001"
	for call, f := range map[string]func() error{
		"Insert":        func() error { return insert(id, "") },
		"Insert unique": func() error { return insert(id, "f") },
		"Claim": func() error {
			_, err := s.Claim(t.Context(), now, storage.Claim{Max: 1}, nil)
			return err
		},
		"Settle": func() error {
			var c storage.Change
			c.Record.ID, c.Record.State = id, ojs.StateCancelled
			_, err := s.Settle(t.Context(), now, []storage.Change{c}, nil)
			return err
		},
		"Extend": func() error {
			_, err := s.Extend(t.Context(), now, []storage.Extension{{Held: storage.Held{ID: id}}})
			return err
		},
		"Due":       func() error { _, err := s.Due(t.Context(), now, 1, nil); return err },
		"ClaimedBy": func() error { _, err := s.ClaimedBy(t.Context(), "w"); return err },
		"Get":       func() error { _, err := s.Get(t.Context(), id); return err },
		"List":      func() error { _, err := s.List(t.Context(), storage.Query{}); return err },
		"Counts":    func() error { _, err := s.Counts(t.Context()); return err },
		"Delete":    func() error { _, err := s.Delete(t.Context(), []string{id}); return err },
		"Prune":     func() error { _, err := s.Prune(t.Context(), storage.Prune{Max: 1}); return err },
		"SetQueueState": func() error {
			_, err := s.SetQueueState(t.Context(), "q", ojs.QueuePaused)
			return err
		},
		"QueueStates": func() error { _, err := s.QueueStates(t.Context()); return err },
		"SetCrons": func() error {
			_, err := s.SetCrons(t.Context(), []storage.Cron{{Name: "c"}})
			return err
		},
		"DueCrons": func() error {
			_, _, err := s.DueCrons(t.Context(), time.Now(), nil, 1)
			return err
		},
		"DeleteCron": func() error { _, err := s.DeleteCron(t.Context(), "c"); return err },
		"Crons":      func() error { _, err := s.Crons(t.Context(), storage.CronQuery{}); return err },
		"Open": func() error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := postgres.Open(ctx, pool, postgres.WithSchema(name))
			return err
		},
	} {
		began := time.Now()
		err := f()
		// some make several statements, or wait for those of the engine
		if took := time.Since(began); took > 20*patience {
			t.Errorf("%s took %v", call, took)
		}
		if !errors.Is(err, context.DeadlineExceeded) && (err == nil ||
			!strings.HasPrefix(err.Error(), "ojs: ")) {
			t.Errorf("%s: %v", call, err)
		}
	}
	_, err = there.Enqueue(t.Context(), "x", 2, soon)
	must(t, err)
	p.spit()
	if n := <-ran; n != 2 { // the listener is back, and looks at what it did not hear
		t.Errorf("job %d ran", n)
	}
	_, err = eng.Enqueue(t.Context(), "x", 3, soon)
	for err != nil {
		_, err = eng.Enqueue(t.Context(), "x", 3, soon, ojs.WithIdempotencyKey("3"))
	}
	if n := <-ran; n != 3 {
		t.Errorf("job %d ran", n)
	}
}
