package storagetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Benchmark measures the calls that jobs take, with 1,000 and with 100,000 jobs stored:
// the same for every storage. The claims under overload are to cost about the same
// however many keys are closed, and however many queues have jobs.
func Benchmark(b *testing.B, open func(tb testing.TB) storage.Storage) {
	benchmarkClaims(b, open)
	ctx := context.Background()
	for _, stored := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("stored=%d", stored), func(b *testing.B) {
			s := open(b)
			defer s.Close()
			n := 0
			job := func(change ...func(*storage.Record)) storage.Insert {
				n++
				var r storage.Record
				r.ID = fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", n)
				r.Type, r.Queue, r.State = "x", "q", ojs.StateAvailable
				r.CreatedAt, r.Lease, r.Timeout = epoch, time.Hour, time.Hour
				for _, f := range change {
					f(&r)
				}
				return storage.Insert{Record: r}
			}
			insert := func(b *testing.B, batch ...storage.Insert) {
				if _, err := s.Insert(ctx, epoch, batch, nil); err != nil {
					b.Fatal(err)
				}
			}
			for n < stored {
				batch := make([]storage.Insert, 100)
				for i := range batch {
					batch[i] = job(queue(fmt.Sprint("old", i%7)),
						scheduled(time.Duration(n)*time.Second+time.Hour))
				}
				insert(b, batch...)
			}
			b.Run("Insert", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					insert(b, job(queue("inserted"), pending))
				}
			})
			b.Run("InsertUnique", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					in := job(queue("inserted"), pending)
					in.Record.Fingerprint, in.Record.Unique = in.Record.ID, &ojs.UniquePolicy{}
					insert(b, in)
				}
			})
			b.Run("Insert100", func(b *testing.B) {
				b.ReportAllocs()
				batch := make([]storage.Insert, 100)
				for b.Loop() {
					for i := range batch {
						batch[i] = job(queue("inserted"), pending)
					}
					insert(b, batch...)
				}
			})
			b.Run("Life", func(b *testing.B) { // insert, claim, settle
				b.ReportAllocs()
				for b.Loop() {
					insert(b, job())
					recs, err := s.Claim(ctx, epoch, storage.Claim{Queues: []string{"q"}, Max: 1}, nil)
					if err != nil || len(recs) != 1 {
						b.Fatal(recs, err)
					}
					recs[0].State, recs[0].FinishedAt = ojs.StateCompleted, epoch
					out, err := s.Settle(ctx, epoch, []storage.Change{{Record: recs[0]}}, nil)
					if err != nil || out[0].Err != nil {
						b.Fatal(out, err)
					}
				}
			})
			b.Run("Life100", func(b *testing.B) { // of 100 jobs in each call, as attempts change them
				b.ReportAllocs()
				batch, changes := make([]storage.Insert, 100), make([]storage.Change, 100)
				for b.Loop() {
					for i := range batch {
						batch[i] = job()
					}
					insert(b, batch...)
					recs, err := s.Claim(ctx, epoch,
						storage.Claim{Queues: []string{"q"}, Max: len(batch)}, nil)
					if err != nil || len(recs) != len(batch) {
						b.Fatal(len(recs), err)
					}
					for i := range recs {
						recs[i].State, recs[i].FinishedAt = ojs.StateCompleted, epoch
						changes[i] = storage.Change{Record: recs[i], AttemptFieldsOnly: true}
					}
					if _, err := s.Settle(ctx, epoch, changes, nil); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("ClaimNothing", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if recs, err := s.Claim(ctx, epoch, storage.Claim{Max: 1}, nil); err != nil ||
						len(recs) != 0 {
						b.Fatal(recs, err)
					}
				}
			})
			b.Run("DueNothing", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.Due(ctx, epoch, 100, nil); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("Counts", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.Counts(ctx); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// benchmarkClaims measures an insert and a claim of the job: behind jobs of closed keys,
// and with many ready queues.
func benchmarkClaims(b *testing.B, open func(tb testing.TB) storage.Storage) {
	ctx := context.Background()
	run := func(name string, waiting, keys, queues int, ask storage.Claim) {
		b.Run(name, func(b *testing.B) {
			s := open(b)
			defer s.Close()
			n := 0
			job := func(key, queue string) storage.Insert {
				n++
				var r storage.Record
				r.ID = fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", n)
				r.Type, r.Queue, r.State = "x", queue, ojs.StateAvailable
				r.CreatedAt, r.Lease, r.Timeout = epoch, time.Hour, time.Hour
				if key != "" {
					r.RateLimit = &ojs.RateLimit{Key: key, Concurrency: ojs.NoneAtOnce}
				}
				return storage.Insert{Record: r}
			}
			insert := func(batch ...storage.Insert) {
				if _, err := s.Insert(ctx, epoch, batch, nil); err != nil {
					b.Fatal(err)
				}
			}
			var batch []storage.Insert
			for i := range waiting {
				key := ""
				if keys > 0 {
					key = fmt.Sprint("key", i%keys)
				}
				if batch = append(batch, job(key, fmt.Sprint("q", i%queues))); len(batch) == 1000 ||
					i == waiting-1 {
					insert(batch...)
					batch = nil
				}
			}
			ask.Max = 1
			b.ReportAllocs()
			for b.Loop() {
				insert(job("", "q0"))
				recs, err := s.Claim(ctx, epoch, ask, nil)
				if err != nil || len(recs) != 1 {
					b.Fatal(len(recs), err)
				}
			}
		})
	}
	one := storage.Claim{Queues: []string{"q0"}, Types: []string{"x"}}
	run("ClosedKeys=0", 0, 0, 1, one)
	run("ClosedKeys=2000", 8_000, 2_000, 1, one)
	run("ClosedKeys=100000", 100_000, 100_000, 1, one)
	run("Queues=1", 10_000, 0, 1, storage.Claim{})
	run("Queues=10000", 10_000, 0, 10_000, storage.Claim{})
}
