package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// A short history is counted, a long one estimated from a bounded number of values.
func TestHistorySizes(t *testing.T) {
	inBubble(t, func(b *rig) {
		sizes := func() []engine.HistorySize {
			list, err := b.HistorySizes(b.ctx)
			must(t, err)
			if len(list) != 3 || list[0].Width != 10*time.Second || list[2].Keep != 90*24*time.Hour {
				t.Fatalf("%+v", list)
			}
			return list
		}
		for _, size := range sizes() {
			if size.Values != 0 || size.Bytes != 0 || !size.Oldest.IsZero() || !size.Exact {
				t.Errorf("of nothing: %+v", size)
			}
		}
		start := b.start.Truncate(time.Hour)
		put := func(n int) {
			var values []storage.Value
			for i := range n {
				at := start.Add(time.Duration(i) * time.Minute)
				for _, worker := range []string{"a", "b"} {
					key := fmt.Sprintf("history/1m/%010d/%s", at.Unix(), worker)
					values = append(values, storage.Value{Key: key, Data: make([]byte, 100)})
				}
			}
			must(t, b.store.PutValues(b.ctx, b.start, values))
		}
		put(7)
		b.advance(7 * time.Minute)
		got := sizes()[1]
		if got.Values != 14 || got.Bytes != 1400 || !got.Oldest.Equal(start) || !got.Exact {
			t.Errorf("14 values: %+v", got)
		}
		put(40 * 60)
		b.advance(40 * time.Hour)
		got = sizes()[1]
		near := func(n int) bool { return n > 4700 && n < 4900 }
		if got.Exact || !near(got.Values) || !near(got.Bytes/100) {
			t.Errorf("4800 values: %+v", got)
		}
	})
}

// If the clock has gone back behind the oldest bucket, the history has one bucket at
// least, so that its values are counted.
func TestHistorySizesAfterClockWentBack(t *testing.T) {
	inBubble(t, func(b *rig) {
		var values []storage.Value
		for i := range 3 {
			at := b.start.Truncate(time.Minute).Add(time.Hour + time.Duration(i)*time.Minute)
			key := fmt.Sprintf("history/1m/%010d/a", at.Unix())
			values = append(values, storage.Value{Key: key, Data: make([]byte, 100)})
		}
		must(t, b.store.PutValues(b.ctx, b.start, values))
		list, err := b.HistorySizes(b.ctx)
		must(t, err)
		if got := list[1]; got.Values != 3 || got.Bytes != 300 || !got.Exact || !got.Oldest.After(b.start) {
			t.Errorf("%+v", got)
		}
	})
}

// clocked is a storage with a clock of its own.
type clocked struct{ storage.Storage }

func (clocked) ClockOffset() time.Duration { return -3 * time.Second }

// wrapper is a storage over another.
type wrapper struct{ storage.Storage }

func (w wrapper) Unwrap() storage.Storage { return w.Storage }

func TestClockOffset(t *testing.T) {
	for name, test := range map[string]struct {
		store storage.Storage
		ahead time.Duration
		known bool
	}{
		"none":    {memory.New(), 0, false},
		"its own": {clocked{memory.New()}, -3 * time.Second, true},
		"wrapped": {wrapper{clocked{memory.New()}}, -3 * time.Second, true},
	} {
		eng, err := engine.New[any](test.store)
		must(t, err)
		if ahead, known := eng.ClockOffset(); ahead != test.ahead || known != test.known {
			t.Errorf("%s: %v, %v", name, ahead, known)
		}
	}
}

func TestRetentionOf(t *testing.T) {
	eng, err := engine.New[any](memory.New(),
		engine.WithRetention(engine.Retention{Completed: time.Hour, MaxFinished: -1}))
	must(t, err)
	want := engine.Retention{Completed: time.Hour, Cancelled: 7 * 24 * time.Hour,
		Discarded: 30 * 24 * time.Hour, DeadLetters: 180 * 24 * time.Hour,
		MaxDeadLetters: 10_000, MinAge: time.Minute}
	if got := eng.Retention(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
