package main

import (
	"context"

	"github.com/alitto/pond/v2"

	"github.com/ojsengine/ojs/bench/internal/load"
)

// startPond submits closures to a pool with its default queue, which has no bound. Go is
// its cheapest call: no caller can wait for the task.
func startPond(workers int, handle func(load.Args)) (*system, error) {
	pool := pond.NewPool(workers)
	return &system{
		enqueue: load.Each(func(_ context.Context,
			a load.Args) error {
			return pool.Go(func() { handle(a) })
		}),
		close: func() error {
			pool.StopAndWait()
			return nil
		},
	}, nil
}

// holdPond keeps tasks waiting behind one that does not end before the pool is closed.
func holdPond(int) (*system, error) {
	release := make(chan struct{})
	s, err := startPond(1, func(load.Args) { <-release })
	if err != nil {
		return nil, err
	}
	stop := s.close
	s.close = func() error {
		close(release)
		return stop()
	}
	return s, nil
}
