package postgres_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// completeLogged inserts a job and completes it with a log.
func completeLogged(t *testing.T, ctx context.Context, s *postgres.Storage, n int) storage.Record {
	t.Helper()
	rec := record(n)
	_, err := s.Insert(t.Context(), rec.CreatedAt, []storage.Insert{{Record: rec}}, nil)
	must(t, err)
	claimed, err := s.Claim(t.Context(), rec.CreatedAt, storage.Claim{Max: 1, Worker: "w"}, nil)
	must(t, err)
	rec = claimed[0]
	rec.State, rec.FinishedAt, rec.LeaseUntil = ojs.StateCompleted, rec.CreatedAt, time.Time{}
	change := storage.Change{Record: rec, AttemptFieldsOnly: true, Log: []byte("x")}
	settled, err := s.Settle(ctx, rec.CreatedAt, []storage.Change{change}, nil)
	must(t, err)
	must(t, settled[0].Err)
	rec.Version = settled[0].Version
	return rec
}

// A log is stored if and only if the transaction of its change commits, outlives the time
// of its job in the quarantine, and leaves no row behind.
func TestLogs(t *testing.T) {
	pool := connect(t)
	s, name := open(t, "")
	want := func(why, id string, logs, rows int) {
		t.Helper()
		list, err := s.Logs(t.Context(), id)
		must(t, err)
		var n int
		must(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+name+".log").Scan(&n))
		if len(list) != logs || n != rows {
			t.Errorf("%s: %d logs, %d rows; want %d, %d", why, len(list), n, logs, rows)
		}
	}
	tx, err := pool.Begin(t.Context())
	must(t, err)
	one := completeLogged(t, postgres.WithTx(t.Context(), tx), s, 1)
	want("before the commit", one.ID, 0, 0)
	must(t, tx.Commit(t.Context()))
	want("after the commit", one.ID, 1, 1)

	two := completeLogged(t, t.Context(), s, 2)
	spoil := func(to string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), "UPDATE "+name+to+" WHERE id = $1", two.ID)
		must(t, err)
	}
	spoil(`.job SET args = '\x7b'`)
	_, _ = s.Get(t.Context(), two.ID) // which sets it aside
	want("in the quarantine", two.ID, 0, 2)
	list, err := s.Quarantined(t.Context(), "", 10)
	must(t, err)
	if len(list) != 1 {
		t.Fatalf("%d records in the quarantine", len(list))
	}
	spoil(`.quarantined_job SET args = '\x6e756c6c'`)
	must(t, s.ReleaseQuarantined(t.Context(), list[0].Key))
	want("released", two.ID, 1, 2)
	spoil(`.job SET args = '\x7b'`)
	_, _ = s.Get(t.Context(), two.ID)
	list, err = s.Quarantined(t.Context(), "", 10)
	must(t, err)
	if len(list) != 1 {
		t.Fatalf("%d records in the quarantine", len(list))
	}
	must(t, s.DeleteQuarantined(t.Context(), list[0].Key))
	want("deleted from the quarantine", two.ID, 0, 1)
	_, err = s.Delete(t.Context(), []string{one.ID})
	must(t, err)
	want("deleted", one.ID, 0, 0)
}

// A process is told of a change with a log once, and its caller is not told, in the
// storage's own transaction as without a log.
func TestLoggedChangeIsToldToOthers(t *testing.T) {
	s, name := open(t, "", postgres.WithPoll(time.Hour))
	other, _ := open(t, name, postgres.WithPoll(time.Hour))
	here, there := told(t, s), told(t, other)
	awaitListener(t, other, here)
	awaitListener(t, s, there)
	caller := new(int)
	var own, ends atomic.Int64
	defer s.Notify(caller, func(n storage.Notice) {
		if len(n.Ended) > 0 {
			own.Add(1)
		}
	})()
	defer s.Notify(nil, func(n storage.Notice) { ends.Add(int64(len(n.Ended))) })()
	done := completeLogged(t, storage.WithCaller(t.Context(), caller), s, 1)
	if n := ends.Load(); n != 1 {
		t.Errorf("told of %d ends before the call returned, not of one", n)
	}
	for n := (storage.Notice{}); !slices.Contains(n.Ended, done.ID); {
		n = <-there
	}
	// A notification that comes after all of the change.
	value := document.Value{Key: "k", Data: []byte("v")}
	must(t, document.Of(other).PutValues(t.Context(), time.Now(), []document.Value{value}))
	for n := (storage.Notice{}); !n.Values; {
		n = <-here
	}
	if own.Load() != 0 || ends.Load() != 1 {
		t.Errorf("the caller was told of %d of its changes, the process of %d ends", own.Load(), ends.Load())
	}
}

// The log of an attempt is stored with a completion in a transaction of the handler.
func TestLogsOfComplete(t *testing.T) {
	p := pays(t, engine.WithJobLogs(0))
	p.Handle("pay", func(ctx context.Context, job *ojs.Job[any]) error {
		handler.Logger(ctx).Info("paying")
		tx, err := p.pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if err := handler.Complete(postgres.WithTx(ctx, tx)); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
	p.run()
	ticket, err := p.Enqueue(t.Context(), "pay", nil)
	must(t, err)
	_, err = ticket.Wait(t.Context())
	must(t, err)
	logs, err := p.Jobs().Logs(t.Context(), ticket.ID)
	if err != nil || len(logs) != 1 || len(logs[0].Lines) != 1 ||
		!strings.Contains(string(logs[0].Lines[0]), "paying") {
		t.Errorf("%+v, %v", logs, err)
	}
}
