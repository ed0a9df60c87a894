package memory_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// A listener that claims after it has registered misses no job: it claims the job, or
// hears of it.
func TestInboxTellsWhoListens(t *testing.T) {
	s := memory.New()
	mine, theirs := s.Bind("mine", s), s.Bind("theirs", s)
	n := 0
	fresh := func() storage.Insert {
		n++
		return storage.Insert{Record: record(fmt.Sprintf("%08d", n), ojs.StateAvailable), IDIsNew: true}
	}
	insert := func(batch []storage.Insert) {
		if _, err := mine.Insert(t.Context(), epoch, batch, nil); err != nil {
			t.Error(err)
		}
	}
	insert([]storage.Insert{fresh()}) // there is a kind
	if _, err := s.Get(t.Context(), "00000001"); err != nil {
		t.Fatal(err)
	}
	claimAll := func() (found int) {
		recs, err := theirs.Claim(t.Context(), epoch, storage.Claim{Max: 1000, Worker: "w"}, nil)
		if err != nil {
			t.Error(err)
		}
		return len(recs)
	}
	claimAll()
	missed := 0
	const rounds, size = 3000, 30
	for range rounds {
		var batch []storage.Insert
		for range size {
			batch = append(batch, fresh())
		}
		insert([]storage.Insert{fresh()}) // a job is available
		var both sync.WaitGroup
		var heard atomic.Bool
		var stop func()
		start := make(chan struct{})
		both.Go(func() { <-start; insert(batch) })
		both.Go(func() {
			<-start
			pace.Work(time.Duration(rand.IntN(40)) * 500 * time.Nanosecond)
			stop = s.Notify("theirs", func(n storage.Notice) { heard.Store(heard.Load() || n.Available) })
			for claimAll() > 0 {
			}
		})
		close(start)
		both.Wait()
		if left := claimAll(); left > 0 && !heard.Load() {
			missed++
		}
		stop()
	}
	if missed > 0 {
		t.Errorf("%d of %d times jobs were left that were neither found nor heard of", missed, rounds)
	}
}
