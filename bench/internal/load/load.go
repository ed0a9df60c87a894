// Package load puts the same work on every contender, so that two of them never differ in
// how they were fed.
package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Args are the args of every job: small, as those of a job should be, and neither free to
// encode nor to decode.
type Args struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
}

// Job returns the args of the job with a number. The name is shared: it is the
// contenders' memory that is measured.
func Job(id int) Args { return Args{ID: id, Name: "Ada Lovelace"} }

// Produce enqueues the jobs numbered from 0, in batches, from that many goroutines at
// once, each a share of its own. It returns the first error, when all of them have ended.
func Produce(ctx context.Context, jobs, producers, batch int,
	enqueue func(ctx context.Context, first, n int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for p := range producers {
		first, end := p*jobs/producers, (p+1)*jobs/producers
		group.Go(func() {
			for ; first < end && ctx.Err() == nil; first += batch {
				if err := enqueue(ctx, first, min(batch, end-first)); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// Each is an enqueue of Produce that takes job by job.
func Each(enqueue func(ctx context.Context, job Args) error) func(ctx context.Context, first, n int) error {
	return func(ctx context.Context, first, n int) error {
		for id := first; id < first+n; id++ {
			if err := enqueue(ctx, Job(id)); err != nil {
				return err
			}
		}
		return nil
	}
}

// Countdown tells when handlers have been called as often as there are jobs.
type Countdown struct {
	left atomic.Int64
	zero chan struct{}
}

// NewCountdown counts down from n, which is positive.
func NewCountdown(n int) *Countdown {
	c := &Countdown{zero: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

// Done counts one.
func (c *Countdown) Done() {
	if c.left.Add(-1) == 0 {
		close(c.zero)
	}
}

// Wait waits for the last one, or for ctx.
func (c *Countdown) Wait(ctx context.Context) error {
	select {
	case <-c.zero:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d jobs have not run: %w", c.left.Load(), context.Cause(ctx))
	}
}

// Exact returns an error unless there were exactly as many calls as jobs. Ask when all is
// over: a job that runs twice has made Wait return too early.
func (c *Countdown) Exact() error {
	if n := c.left.Load(); n != 0 {
		return fmt.Errorf("%d handler calls too many", -n)
	}
	return nil
}
