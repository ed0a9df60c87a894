package keyed_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
)

// Listings of the jobs in rare states, and of failures by the types of their errors, read
// no other jobs: one of a thousand is in each such state here.
func TestListingsOfRareStates(t *testing.T) {
	const jobs = 100_000
	w := openLanes(t)
	states := []ojs.State{ojs.StateScheduled, ojs.StateRetryable, ojs.StateDiscarded, ojs.StateCancelled,
		ojs.StateActive}
	in := make(map[ojs.State][]string)
	var discarded []storage.Record
	for n := 0; n < jobs; n += 1000 {
		batch := make([]storage.Insert, 1000)
		for i := range batch {
			batch[i] = w.job(ojs.RateLimit{}, func(r *storage.Record) {
				r.Queue, r.Type = fmt.Sprint("q", i%10), fmt.Sprint("t", i%3)
				switch i {
				case 10:
					r.State, r.ScheduledAt = ojs.StateScheduled, w.now.Add(time.Hour)
				case 20, 50:
					r.Queue = "active"
				}
			})
		}
		w.insert(batch...)
		recs := must(w.Claim(t.Context(), w.now, storage.Claim{Queues: []string{"active"}, Max: 2}, nil))(t)
		if len(recs) != 2 {
			t.Fatalf("%d jobs were claimed", len(recs))
		}
		var changes []storage.Change
		for _, i := range []int{20, 30, 40} {
			r := must(w.Get(t.Context(), batch[i].Record.ID))(t)
			switch i {
			case 20:
				r.State, r.NextRetryAt = ojs.StateRetryable, w.now.Add(time.Hour)
			case 30:
				r.State, r.FinishedAt = ojs.StateDiscarded, w.now.Add(time.Duration(n/1000)*time.Minute)
				r.Error = &ojs.Failure{Type: []string{"smtp.refused", "smtp.busy", "timeout"}[n/1000%3]}
				discarded = append(discarded, r)
			case 40:
				r.State, r.FinishedAt = ojs.StateCancelled, w.now
			}
			changes = append(changes, storage.Change{Record: r})
		}
		for _, s := range must(w.Settle(t.Context(), w.now, changes, nil))(t) {
			must(0, s.Err)(t)
		}
		for i, state := range states {
			in[state] = append(in[state], batch[10*i+10].Record.ID)
		}
	}
	list := func(name string, q storage.Query, want []string) {
		t.Helper()
		var got, back []string
		looked := 0
		cost := w.of(func() {
			for {
				page := must(w.List(t.Context(), q))(t)
				got, looked = append(got, idsOf(page.Records)...), looked+page.Looked
				if q.Cursor = page.Next; q.Cursor == "" {
					q.Cursor, back = page.Prev, idsOf(page.Records)
					return
				}
			}
		})
		for q.Cursor != "" {
			page := must(w.List(t.Context(), q))(t)
			q.Cursor, back = page.Prev, append(idsOf(page.Records), back...)
		}
		if !slices.Equal(got, want) || !slices.Equal(back, want) {
			t.Errorf("%s: %d jobs, and %d on the way back, not %d", name, len(got), len(back), len(want))
		}
		if looked > len(want)+1 || cost.pairs > int64(8*len(want)+100) {
			t.Errorf("%s: %d jobs were looked at for %d, the reads are %+v", name, looked, len(want), cost)
		}
	}
	for _, state := range states {
		one := storage.Query{States: []ojs.State{state}, Limit: 30}
		list(string(state), one, in[state])
		one.Queues, one.Types = []string{"q0"}, []string{"t*"}
		if state == ojs.StateActive || state == ojs.StateRetryable {
			one.Queues = []string{"active"}
		}
		list(string(state)+" in a queue", one, in[state])
		one.Order = storage.OrderNewest
		newest := slices.Clone(in[state])
		slices.Reverse(newest)
		list("newest "+string(state), one, newest)
		one.Types = []string{"other"}
		if state != ojs.StateActive { // of which all are read
			list(string(state)+" of another type", one, nil)
		}
	}
	both := storage.Query{States: []ojs.State{ojs.StateActive, ojs.StateScheduled}, Limit: 30}
	list("active and scheduled", both,
		slices.Sorted(slices.Values(slices.Concat(in[ojs.StateActive], in[ojs.StateScheduled]))))

	// Failures, the latest first, of some types of errors in a range of times.
	slices.Reverse(discarded)
	for name, types := range map[string][]string{
		"all": nil, "one type": {"timeout"}, "types": {"smtp.*"}, "two": {"smtp.busy", "timeout"},
		"none": {"other"},
	} {
		q := storage.Query{Order: storage.OrderFinished, ErrorTypes: types,
			States:       []ojs.State{ojs.StateDiscarded},
			FinishedFrom: w.now.Add(20 * time.Minute), FinishedBefore: w.now.Add(70 * time.Minute), Limit: 10}
		var want []string
		for i := range discarded {
			if q.Matches(&discarded[i]) {
				want = append(want, discarded[i].ID)
			}
		}
		list("failures of "+name, q, want)
	}
}

// scans counts the scans of a store.
type scans struct {
	driver.DB
	n int
}

type scanTx struct {
	driver.Tx
	of *scans
}

func (s *scans) Begin(ctx context.Context, write bool) (driver.Tx, error) {
	tx, err := s.DB.Begin(ctx, write)
	return &scanTx{tx, s}, err
}

func (t *scanTx) Scan(from, to []byte, max int, reverse bool, dst []driver.Pair) ([]driver.Pair, error) {
	t.of.n++
	return t.Tx.Scan(from, to, max, reverse, dst)
}

// Pages of all dead letters do not read each queue of them.
func TestDeadLettersOfManyQueues(t *testing.T) {
	db := &scans{DB: drivertest.NewMemory(false, driver.Limits{})}
	s, err := keyed.Open(db, "keyed")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var changes []storage.Change
	const queues = 100
	for i := range queues {
		in := job(fmt.Sprint(i))
		in.Record.Queue = fmt.Sprint("q", i)
		must(s.Insert(background, now, []storage.Insert{in}, nil))(t)
		r := must(s.Get(background, in.Record.ID))(t)
		r.State, r.FinishedAt, r.DeadLetteredAt = ojs.StateDiscarded, now, now
		changes = append(changes, storage.Change{Record: r})
	}
	must(s.Settle(background, now, changes, nil))(t)
	for _, o := range []storage.Order{storage.OrderOldest, storage.OrderNewest, storage.OrderFinished} {
		db.n = 0
		page := must(s.List(background, storage.Query{DeadLetters: true, Order: o, Limit: 3}))(t)
		if len(page.Records) != 3 || db.n > queues/4 {
			t.Errorf("order %q: %d scans for a page of %d dead letters", o, db.n, len(page.Records))
		}
	}
}
