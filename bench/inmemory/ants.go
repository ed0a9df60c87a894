package main

import (
	"context"
	"time"

	"github.com/panjf2000/ants/v2"

	"github.com/ojsengine/ojs/bench/internal/load"
)

// startAnts submits closures to a pool of goroutines. It has no queue: Submit waits until
// a goroutine is free.
func startAnts(workers int, handle func(load.Args)) (*system, error) {
	pool, err := ants.NewPool(workers)
	if err != nil {
		return nil, err
	}
	return &system{
		enqueue: load.Each(func(_ context.Context,
			a load.Args) error {
			return pool.Submit(func() { handle(a) })
		}),
		close: func() error { return pool.ReleaseTimeout(10 * time.Second) },
	}, nil
}
