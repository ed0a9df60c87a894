package keyed_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
)

// written counts the writes of transactions.
type written struct {
	driver.DB
	n int
}

type writtenTx struct {
	driver.Tx
	db *written
}

func (w *written) Begin(ctx context.Context, write bool) (driver.Tx, error) {
	tx, err := w.DB.Begin(ctx, write)
	return writtenTx{tx, w}, err
}

func (t writtenTx) Commit(writes []driver.Pair) error {
	t.db.n += len(writes)
	return t.Tx.Commit(writes)
}

// TestWritesOfAJob holds how many keys the calls of a job's life write for each job.
func TestWritesOfAJob(t *testing.T) {
	db := &written{DB: drivertest.NewMemory(false, driver.Limits{})}
	s := open(t, db)
	defer s.Close()
	ctx := background
	n := 0
	life := func(jobs int) (writes [3]int) {
		count := func(call int, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			writes[call], db.n = db.n, 0
		}
		db.n = 0
		batch := make([]storage.Insert, jobs)
		for i := range batch {
			n++
			batch[i] = job(fmt.Sprint("job", n))
		}
		_, err := s.Insert(ctx, now, batch, nil)
		count(0, err)
		claimed, err := s.Claim(ctx, now, storage.Claim{Max: jobs}, nil)
		count(1, err)
		changes := make([]storage.Change, len(claimed))
		for i := range claimed {
			claimed[i].State, claimed[i].FinishedAt = ojs.StateCompleted, now
			claimed[i].Args, _ = ojs.NewArgs("another") // which no attempt changes
			changes[i] = storage.Change{Record: claimed[i], AttemptFieldsOnly: true}
		}
		_, err = s.Settle(ctx, now, changes, nil)
		count(2, err)
		return writes
	}
	life(1)
	one, many := life(1), life(11)
	for call, want := range []int{4, 4, 3} {
		if got := many[call] - one[call]; got != 10*want {
			t.Errorf("call %d of a job writes %.1f keys, want %d", call, float64(got)/10, want)
		}
	}
	if r, err := s.Get(ctx, "job1"); err != nil || string(r.Args.JSON()) != "null" {
		t.Errorf("a change of attempt fields has written args %s: %v", r.Args.JSON(), err)
	}
}
