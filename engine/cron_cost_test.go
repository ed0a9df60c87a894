package engine_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

func cronEntries(n int) []cron.Entry {
	entries := make([]cron.Entry, n)
	for i := range entries {
		entries[i] = cron.Entry{Name: fmt.Sprint("e", i), Schedule: "0 3 * * *",
			Job: ojs.NewDraft("x", i)}
	}
	return entries
}

// The cost of a change or a run of one entry does not grow with the number of stored
// entries.
func TestCronCostsWhatIsTouched(t *testing.T) {
	var entries atomic.Int64 // that the storage has read and written
	store := hooked(func(c *storagetest.Call) {
		c.Do()
		switch c.Method {
		case "PutDocuments cron":
			entries.Add(int64(len(c.In.([]storage.Document))))
		case "Documents cron", "DueDocuments cron":
			entries.Add(int64(len(c.Out.([]storage.Document))))
		}
	})
	inBubbleOn(t, store, func(b *rig) {
		b.handle("x", nothing)
		b.run()
		touched := func(what string, most int64, f func()) {
			t.Helper()
			entries.Store(0)
			f()
			b.advance(0)
			if n := entries.Load(); n > most {
				t.Errorf("P1.1 %s touches %d entries, more than %d", what, n, most)
			}
		}
		all := cronEntries(300)
		touched("a set of 300 entries", 3*300, func() { b.cron(all...) })
		one := cron.Entry{Name: "one", Schedule: "@every 1m", Job: ojs.NewDraft("x", nil)}
		touched("a set", 3, func() { b.cron(one) })
		touched("an update", 3, func() { b.cron(one) })
		touched("a get", 1, func() { b.entry("one") })
		touched("a run", 3, func() { b.advance(time.Minute) })
		touched("an idle minute between runs", 0, func() { b.advance(59 * time.Second) })
		touched("a pause", 3, func() { must(t, b.Cron().Pause(b.ctx, "one")) })
		touched("a removal", 3, func() { must(t, b.Cron().Remove(b.ctx, "one")) })
		touched("an idle hour", 0, func() { b.advance(time.Hour) })
		b.advance(2 * time.Hour) // 3 o'clock: all of them at once
		if n := len(b.times()); n != 301 {
			t.Errorf("P1.1 %d runs, want 301", n)
		}
	})
}

func BenchmarkCronSet(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n, " entries stored"), func(b *testing.B) {
			eng, err := engine.New[any](memory.New(), quiet)
			if err != nil {
				b.Fatal(err)
			}
			if err := eng.Cron().Set(b.Context(), cronEntries(n)...); err != nil {
				b.Fatal(err)
			}
			one := cron.Entry{Name: "one", Schedule: "0 4 * * *", Job: ojs.NewDraft("x", nil)}
			for b.Loop() {
				if err := eng.Cron().Set(b.Context(), one); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
