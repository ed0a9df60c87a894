package load

import (
	"context"
	"errors"
	"sync"
	"testing"
)

func TestProduceGivesEachJobOnce(t *testing.T) {
	for _, c := range []struct{ jobs, producers, batch int }{{1, 1, 1}, {10, 4, 1}, {1001, 3, 100},
		{2, 4, 100}} {
		var mu sync.Mutex
		seen := make(map[int]int)
		enqueue := Each(func(_ context.Context, job Args) error {
			mu.Lock()
			defer mu.Unlock()
			seen[job.ID]++
			return nil
		})
		if err := Produce(t.Context(), c.jobs, c.producers, c.batch, enqueue); err != nil {
			t.Fatal(err)
		}
		for id := range c.jobs {
			if seen[id] != 1 {
				t.Errorf("%+v: job %d was produced %d times", c, id, seen[id])
			}
		}
		if len(seen) != c.jobs {
			t.Errorf("%+v: %d jobs", c, len(seen))
		}
	}
}

func TestProduceStopsAtAnError(t *testing.T) {
	boom := errors.New("boom")
	err := Produce(t.Context(), 100, 2, 1, func(context.Context, int, int) error { return boom })
	if !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
}

func TestCountdown(t *testing.T) {
	c := NewCountdown(2)
	c.Done()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	c.Done()
	if err := c.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Exact(); err != nil {
		t.Error(err)
	}
	c.Done()
	if err := c.Exact(); err == nil {
		t.Error("a job that has run twice is not noticed")
	}
}
