package main

import (
	"context"

	"github.com/golang-queue/queue"
	"github.com/golang-queue/queue/core"

	"github.com/ojsengine/ojs/bench/internal/load"
)

// startGolangQueueTask queues closures, which are not encoded.
func startGolangQueueTask(workers int, handle func(load.Args)) (*system, error) {
	pool := queue.NewPool(int64(workers), queue.WithLogger(queue.NewEmptyLogger()))
	return golangQueueTask(pool, handle), nil
}

// startGolangQueueMessage queues messages, which carry bytes: those of the args as JSON.
func startGolangQueueMessage(workers int, handle func(load.Args)) (*system, error) {
	run := func(_ context.Context, m core.TaskMessage) error {
		a, err := decode(m.Payload())
		if err == nil {
			handle(a)
		}
		return err
	}
	pool := queue.NewPool(int64(workers), queue.WithLogger(queue.NewEmptyLogger()), queue.WithFn(run))
	return golangQueueMessage(pool), nil
}

// holdGolangQueueTask leaves the queue unstarted.
func holdGolangQueueTask(int) (*system, error) {
	q, err := heldGolangQueue()
	if err != nil {
		return nil, err
	}
	s := golangQueueTask(q, func(load.Args) {})
	s.close = nothing
	return s, nil
}

func holdGolangQueueMessage(int) (*system, error) {
	q, err := heldGolangQueue()
	if err != nil {
		return nil, err
	}
	s := golangQueueMessage(q)
	s.close = nothing
	return s, nil
}

func heldGolangQueue() (*queue.Queue, error) {
	return queue.NewQueue(queue.WithWorker(queue.NewRing()))
}

// nothing closes what was never started: to release such a queue would be to wait for its
// jobs.
func nothing() error { return nil }

func golangQueueTask(q *queue.Queue, handle func(load.Args)) *system {
	return &system{
		enqueue: load.Each(func(_ context.Context, a load.Args) error {
			return q.QueueTask(func(context.Context) error {
				handle(a)
				return nil
			})
		}),
		close: func() error {
			q.Release()
			return nil
		},
	}
}

func golangQueueMessage(q *queue.Queue) *system {
	return &system{
		enqueue: load.Each(func(_ context.Context, a load.Args) error {
			b, err := encode(a)
			if err != nil {
				return err
			}
			return q.Queue(payload(b))
		}),
		close: func() error {
			q.Release()
			return nil
		},
	}
}

// payload is a core.QueuedMessage.
type payload []byte

func (p payload) Bytes() []byte { return p }
