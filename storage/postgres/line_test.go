package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// ordered is a new job with an ordering key.
func ordered(n int, key string) storage.Insert {
	r := record(n)
	r.State, r.Dependencies = ojs.StatePending, &ojs.Dependencies{Condition: ojs.AllSucceeded}
	return storage.Insert{Record: r, OrderingKey: key}
}

// addLine stores jobs of one key, numbered from first on, and returns their ids.
func addLine(t *testing.T, s storage.Storage, first, n int, key string) (ids []string) {
	t.Helper()
	var batch []storage.Insert
	for i := range n {
		batch = append(batch, ordered(first+i, key))
		ids = append(ids, batch[i].Record.ID)
	}
	_, err := s.Insert(t.Context(), time.Now(), batch, nil)
	must(t, err)
	return ids
}

// completed is the change that completes an active job.
func completed(r storage.Record) storage.Change {
	r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, time.Now(), time.Time{}
	return storage.Change{Record: r, AttemptFieldsOnly: true}
}

// claimOne claims one job, which has to be the one with the id.
func claimOne(t *testing.T, s storage.Storage, id string) storage.Record {
	t.Helper()
	claimed, err := s.Claim(t.Context(), time.Now(), storage.Claim{Max: 9}, nil)
	must(t, err)
	if len(claimed) != 1 || claimed[0].ID != id {
		t.Fatalf("%d jobs are claimed, and not the one %s", len(claimed), id)
	}
	return claimed[0]
}

func wantMoved(t *testing.T, moved []storage.Record, want ...string) {
	t.Helper()
	var got []string
	for _, r := range moved {
		got = append(got, r.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("moved are %v, not %v", got, want)
	}
}

// wantNoLine wants no job to be left in a line.
func wantNoLine(t *testing.T, name string) {
	t.Helper()
	var n int
	must(t, connect(t).QueryRow(t.Context(), "SELECT count(*) FROM "+name+".line").Scan(&n))
	if n > 0 {
		t.Errorf("%d jobs are left in line", n)
	}
}

// Jobs of a key run one at a time and in order, in the engines of two processes, beside
// attempts that fail and jobs that are completed in transactions.
func TestOrderingOverProcesses(t *testing.T) {
	const keys, each = 3, 12
	one, name := open(t, "")
	two, _ := open(t, name)
	pool := connect(t)
	var mu sync.Mutex
	next := make(map[int]int)
	running := make(map[int]bool)
	begin := func(k, n int) {
		mu.Lock()
		defer mu.Unlock()
		if running[k] || next[k] != n {
			t.Errorf("job %d of key %d began, and %d is next", n, k, next[k])
		}
		running[k] = true
	}
	end := func(k, n int) {
		mu.Lock()
		defer mu.Unlock()
		running[k], next[k] = false, n
	}
	var engines []*engine.Engine[int]
	for _, s := range []storage.Storage{one, two} {
		eng := newEngine(t, s, engine.WithConcurrency(4))
		eng.Handle("x", func(ctx context.Context, job *ojs.Job[int]) error {
			k, n := job.Args/100, job.Args%100
			begin(k, n)
			if job.Attempt == 1 && n%4 == 1 {
				end(k, n)
				return errors.New("fails once")
			}
			end(k, n+1)
			if n%4 == 2 {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					return handler.Complete(postgres.WithTx(ctx, tx))
				})
			}
			return nil
		})
		start(t, eng)
		engines = append(engines, eng)
	}
	var tickets []ojs.Ticket
	for n := range each {
		for k := range keys {
			key := ojs.WithOrderingKey(fmt.Sprint(k))
			ticket, err := engines[n%2].Enqueue(t.Context(), "x", k*100+n, key, soon)
			must(t, err)
			tickets = append(tickets, ticket)
		}
	}
	for _, ticket := range tickets {
		_, err := ticket.Wait(t.Context())
		must(t, err)
	}
	wantNoLine(t, name)
}

// Ends, cancels and inserts of the same keys through two handles give each turn once.
func TestConcurrentTurns(t *testing.T) {
	const keys, each = 3, 5
	one, name := open(t, "")
	two, _ := open(t, name)
	handles := []*postgres.Storage{one, two}
	for round := range 6 {
		var lines [keys][]string
		for k := range keys {
			lines[k] = addLine(t, one, 1000*round+100*k, each, fmt.Sprint(k))
		}
		now := time.Now()
		claimed, err := one.Claim(t.Context(), now, storage.Claim{Max: 99}, nil)
		must(t, err)
		if len(claimed) != keys {
			t.Fatalf("%d jobs of %d keys have the turn", len(claimed), keys)
		}
		var wg sync.WaitGroup
		calls := []func() error{
			func() error { // the jobs that are next, the last key first
				_, _, err := two.CancelAll(t.Context(), now, []string{lines[2][1], lines[1][1], lines[0][2]})
				return err
			},
			func() error {
				batch := []storage.Insert{ordered(1000*round+900, "1"), ordered(1000*round+901, "0")}
				_, err := two.Insert(t.Context(), now, batch, nil)
				return err
			},
		}
		for i := range claimed {
			calls = append(calls, func() error {
				_, err := handles[i%2].Settle(t.Context(), now, []storage.Change{completed(claimed[i])}, nil)
				return err
			})
		}
		for _, call := range calls {
			wg.Go(func() {
				if err := call(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for range keys * (each + 1) { // at least one job ends each time
			claimed, err := two.Claim(t.Context(), now, storage.Claim{Max: 99}, nil)
			must(t, err)
			var changes []storage.Change
			seen := make(map[string]bool)
			for _, r := range claimed {
				if key := r.Dependencies.OrderingKey; seen[key] {
					t.Errorf("two jobs of key %s have the turn", key)
				}
				seen[r.Dependencies.OrderingKey] = true
				changes = append(changes, completed(r))
			}
			_, err = one.Settle(t.Context(), now, changes, nil)
			must(t, err)
		}
		wantNoLine(t, name)
	}
}

// In a transaction of the caller, the end of a job gives the turn if that commits.
func TestTurnInTransaction(t *testing.T) {
	s, _ := open(t, "")
	pool := connect(t)
	ids := addLine(t, s, 1, 2, "k")
	why, err := newEngine(t, s).Jobs().Explain(t.Context(), ids[1])
	must(t, err)
	if len(why.Obstacles) == 0 || why.Obstacles[0].Code != inspect.ObstacleOrdering {
		t.Errorf("a job in line: %+v", why)
	}
	change := []storage.Change{completed(claimOne(t, s, ids[0]))}
	for _, commits := range []bool{false, true} {
		tx, err := pool.Begin(t.Context())
		must(t, err)
		settled, err := s.Settle(postgres.WithTx(t.Context(), tx), time.Now(), change, nil)
		must(t, err)
		wantMoved(t, settled[0].Moved, ids[1])
		if commits {
			must(t, tx.Commit(t.Context()))
		} else {
			must(t, tx.Rollback(t.Context()))
		}
		r, err := s.Get(t.Context(), ids[1])
		must(t, err)
		if r.InLine() == commits {
			t.Errorf("commits %v: the next job is %s", commits, r.State)
		}
	}
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(t, err)
	defer tx.Rollback(context.Background())
	change[0] = completed(claimOne(t, s, ids[1]))
	_, err = s.Settle(postgres.WithTx(t.Context(), tx), time.Now(), change, nil)
	if !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("an end in a transaction that may not see the others in line: %v", err)
	}
}

// An end and an insert of one key wait for each other, whichever transaction is first:
// the second one finds what the first has done, and gives the turn.
func TestTurnBesideInsert(t *testing.T) {
	for _, endsFirst := range []bool{true, false} {
		s, _ := open(t, "")
		pool := connect(t)
		ids := addLine(t, s, 1, 1, "k")
		change := []storage.Change{completed(claimOne(t, s, ids[0]))}
		next := []storage.Insert{ordered(2, "k")}
		end := func(ctx context.Context) ([]storage.Record, error) {
			out, err := s.Settle(ctx, time.Now(), change, nil)
			if err != nil {
				return nil, err
			}
			return out[0].Moved, out[0].Err
		}
		insert := func(ctx context.Context) ([]storage.Record, error) {
			out, err := s.Insert(ctx, time.Now(), next, nil)
			if err != nil {
				return nil, err
			}
			return out[0].Moved, nil
		}
		first, second := insert, end
		if endsFirst {
			first, second = end, insert
		}
		tx, err := pool.Begin(t.Context())
		must(t, err)
		defer tx.Rollback(context.Background())
		moved, err := first(postgres.WithTx(t.Context(), tx))
		must(t, err)
		wantMoved(t, moved)
		ended := make(chan error, 1)
		go func() {
			var err error
			moved, err = second(t.Context())
			ended <- err
		}()
		awaitBlocked(t, pool, int(tx.Conn().PgConn().PID()))
		must(t, tx.Commit(t.Context()))
		must(t, <-ended)
		wantMoved(t, moved, next[0].Record.ID)
	}
}

// A job that enters the quarantine with the turn keeps no others waiting for longer than
// to the next insert or end of its key, and is in line no more when it is deleted there.
func TestTurnOfTheQuarantined(t *testing.T) {
	s, name := open(t, "")
	spoils := func(id string) {
		_, err := connect(t).Exec(t.Context(), "UPDATE "+name+".job SET args = '{' WHERE id = $1", id)
		must(t, err)
		claimed, err := s.Claim(t.Context(), time.Now(), storage.Claim{Max: 9}, nil)
		if err != nil || len(claimed) > 0 {
			t.Fatalf("%d jobs are claimed, %v", len(claimed), err)
		}
	}
	ids := addLine(t, s, 1, 3, "k")
	spoils(ids[0])
	in := ordered(4, "k")
	out, err := s.Insert(t.Context(), time.Now(), []storage.Insert{in}, nil)
	must(t, err)
	wantMoved(t, out[0].Moved, ids[1])
	spoils(ids[1])
	r, err := s.Get(t.Context(), ids[2])
	must(t, err)
	r.Cancel(time.Now())
	r.Version--
	change := []storage.Change{{Record: r, AttemptFieldsOnly: true}}
	settled, err := s.Settle(t.Context(), time.Now(), change, nil)
	must(t, err)
	wantMoved(t, settled[0].Moved, in.Record.ID)
	change[0] = completed(claimOne(t, s, in.Record.ID))
	_, err = s.Settle(t.Context(), time.Now(), change, nil)
	must(t, err)
	list, err := s.Quarantined(t.Context(), "", 9)
	must(t, err)
	for _, q := range list {
		must(t, s.DeleteQuarantined(t.Context(), q.Key))
	}
	wantNoLine(t, name)
}

// An end that waits for a transaction which waits for it is made again.
func TestDeadlockedTurn(t *testing.T) {
	s, name := open(t, "")
	pool := connect(t)
	ids := addLine(t, s, 1, 2, "k")
	first := claimOne(t, s, ids[0])
	tx, err := pool.Begin(t.Context())
	must(t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(t.Context(), "SET LOCAL deadlock_timeout = '1min'") // the other one is undone
	must(t, err)
	lock := "SELECT FROM " + name + ".stage s JOIN " + name + ".job b USING (seq) WHERE b.id = $1 FOR UPDATE"
	_, err = tx.Exec(t.Context(), lock, ids[1])
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		settled, err := s.Settle(t.Context(), time.Now(), []storage.Change{completed(first)}, nil)
		if err == nil && len(settled[0].Moved) != 1 {
			err = fmt.Errorf("moved %v", settled[0].Moved)
		}
		ended <- err
	}()
	awaitBlocked(t, pool, int(tx.Conn().PgConn().PID()))
	_, _ = tx.Exec(t.Context(), lock, ids[0])
	must(t, tx.Rollback(t.Context()))
	must(t, <-ended)
	claimOne(t, s, ids[1])
}

// The end of a job waits for a transaction that brings another one back into its line,
// and gives that one the turn.
func TestReviveIntoALine(t *testing.T) {
	s, name := open(t, "")
	pool := connect(t)
	first := claimOne(t, s, addLine(t, s, 1, 1, "k")[0])
	id := addLine(t, s, 2, 1, "k")[0]
	_, _, err := s.CancelAll(t.Context(), time.Now(), []string{id})
	must(t, err)
	ended, err := s.Get(t.Context(), id)
	must(t, err)
	tx, err := pool.Begin(t.Context())
	must(t, err)
	defer tx.Rollback(context.Background())
	again := ordered(2, "k")
	again.Record.Version = ended.Version
	moved, err := s.Revive(postgres.WithTx(t.Context(), tx), time.Now(), []storage.Insert{again})
	must(t, err)
	wantMoved(t, moved)
	settled := make(chan []storage.Settled, 1)
	go func() {
		out, err := s.Settle(t.Context(), time.Now(), []storage.Change{completed(first)}, nil)
		if err != nil {
			t.Error(err)
		}
		settled <- out
	}()
	awaitBlocked(t, pool, int(tx.Conn().PgConn().PID()))
	must(t, tx.Commit(t.Context()))
	for _, out := range <-settled {
		wantMoved(t, out.Moved, id)
	}
	_, _, err = s.CancelAll(t.Context(), time.Now(), []string{id})
	must(t, err)
	wantNoLine(t, name)
}
