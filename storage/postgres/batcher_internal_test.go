package postgres

import (
	"slices"
	"sync"
	"testing"
)

// sized is a call of so many jobs and bytes.
type sized struct {
	jobs, bytes int
	ended       chan struct{}
}

func (c *sized) size() (jobs, bytes int) { return c.jobs, c.bytes }
func (c *sized) done() <-chan struct{}   { return c.ended }

// A batch has neither too many jobs nor too many bytes, unless a single call has.
func TestBatchSizes(t *testing.T) {
	var batches [][]int
	first, arrived := make(chan struct{}), make(chan struct{})
	var b batcher[*sized]
	b.flush = func(calls []*sized) {
		if batches == nil { // the others come meanwhile
			close(first)
			<-arrived
		}
		var sizes []int
		for _, c := range calls {
			sizes = append(sizes, c.jobs)
		}
		batches = append(batches, sizes)
		for _, c := range calls {
			close(c.ended)
		}
	}
	var calls sync.WaitGroup
	do := func(jobs, bytes int) {
		calls.Go(func() {
			if err := b.do(t.Context(), &sized{jobs, bytes, make(chan struct{})}); err != nil {
				t.Error(err)
			}
		})
	}
	do(1, 1)
	<-first
	for n, c := range [][2]int{
		{10, 10 << 20}, {20, 20 << 20}, {30, 3 << 20}, {1970, 1}, {3000, 1 << 30}, {2, 1},
	} {
		do(c[0], c[1])
		for waiting := 0; waiting <= n; {
			b.mu.Lock()
			waiting = len(b.pending)
			b.mu.Unlock()
		}
	}
	close(arrived)
	calls.Wait()
	want := [][]int{{1}, {10, 20}, {30, 1970}, {3000}, {2}}
	if !slices.EqualFunc(batches, want, slices.Equal) {
		t.Errorf("%v and not %v", batches, want)
	}
}
