package storagetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// BenchmarkPages measures pages of 50 jobs at random places of a listing in each order,
// forth and back, of a storage with so many jobs: a third each are finished, scheduled
// and available. The queries named few match none of them, and those named indexed are of
// rare states, queues and types. Counts are all of them. It reports the median and the
// 99th percentile in ms.
func BenchmarkPages(b *testing.B, open func(tb testing.TB) storage.Storage, stored int) {
	ctx := context.Background()
	s := open(b)
	defer s.Close()
	var batch []storage.Insert
	var ended []storage.Record
	var at []int // of ended, in the batch
	for n := range stored {
		var r storage.Record
		r.ID = fmt.Sprintf(idFormat, n)
		r.Type, r.Queue, r.State = fmt.Sprint("type", n%10), fmt.Sprint("q", n%7), ojs.StateAvailable
		r.CreatedAt, r.Lease, r.Timeout, r.Priority = epoch, time.Hour, time.Hour, n%3
		switch n % 3 {
		case 0:
			scheduled(time.Duration(n%1000) * time.Second)(&r)
		case 1:
			ended, at = append(ended, r), append(at, len(batch))
		}
		batch = append(batch, storage.Insert{Record: r, IDIsNew: true})
		if len(batch) < 1000 && n+1 < stored {
			continue
		}
		out, err := s.Insert(ctx, epoch, batch, nil)
		if err != nil {
			b.Fatal(err)
		}
		changes := make([]storage.Change, len(ended))
		for i := range ended {
			changes[i].Record = ended[i]
			to := &changes[i].Record
			to.Version, to.State, to.FinishedAt = out[at[i]].Version, ojs.StateCancelled,
				epoch.Add(time.Duration(n/5000)*time.Second)
			if n%9 == 0 {
				to.State = ojs.StateDiscarded
			}
		}
		settled, err := s.Settle(ctx, epoch, changes, nil)
		if err != nil || settled[0].Err != nil {
			b.Fatal(err, settled[0].Err)
		}
		batch, ended, at = batch[:0], ended[:0], at[:0]
	}
	measure := func(b *testing.B, call func() error) {
		var took []time.Duration
		for b.Loop() {
			begin := wall.Now()
			if err := call(); err != nil {
				b.Fatal(err)
			}
			took = append(took, wall.Since(begin))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
	}
	b.Run("counts", func(b *testing.B) {
		measure(b, func() error {
			_, err := s.Counts(ctx)
			return err
		})
	})
	rare := []ojs.State{ojs.StateScheduled, ojs.StateRetryable, ojs.StateCancelled, ojs.StateDiscarded}
	for _, o := range allOrders {
		random := rand.New(rand.NewPCG(1, 1))
		q := storage.Query{Order: o}
		var cursors []string
		for q.Limit = 1000; ; {
			page, err := s.List(ctx, q)
			if err != nil {
				b.Fatal(err)
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
			cursors = append(cursors, page.Next)
			if page.Prev != "" {
				cursors = append(cursors, page.Prev)
			}
		}
		q.Limit = 50
		few, indexed := q, q
		few.Types = []string{"none"}
		indexed.Types, indexed.States = []string{"type1", "type2*"}, rare
		indexed.Queues = []string{"q1", "q3", "q5"}
		for _, of := range []struct {
			name string
			q    storage.Query
		}{{"", q}, {"-few", few}, {"-indexed", indexed}} {
			name := string(o)
			if name == "" {
				name = "oldest"
			}
			b.Run(name+of.name, func(b *testing.B) {
				measure(b, func() error {
					of.q.Cursor = cursors[random.IntN(len(cursors))]
					_, err := s.List(ctx, of.q)
					return err
				})
			})
		}
	}
}
