package main

import (
	"context"
	"errors"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/bench/internal/load"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/memory"
)

const jobType = "noop"

// startOJS runs our engine as New makes it. A job is over when its outcome is stored, so
// that settle waits for more than the handler's return.
func startOJS(workers int, handle func(load.Args)) (*system, error) {
	store := memory.New()
	eng, err := engine.New[load.Args](store, engine.WithConcurrency(workers))
	if err != nil {
		return nil, err
	}
	eng.Handle(jobType, func(_ context.Context, job *ojs.Job[load.Args]) error {
		handle(job.Args)
		return nil
	})
	return runOJS(eng, store, enqueueOJS(eng)), nil
}

// encodedArgs are args of a type that is not plain, and so go through JSON.
type encodedArgs struct {
	load.Args
	Tags []string `json:",omitempty"`
}

// startOJSEncoded is startOJS with args that have to be encoded.
func startOJSEncoded(workers int, handle func(load.Args)) (*system, error) {
	store := memory.New()
	eng, err := engine.New[encodedArgs](store, engine.WithConcurrency(workers))
	if err != nil {
		return nil, err
	}
	eng.Handle(jobType, func(_ context.Context, job *ojs.Job[encodedArgs]) error {
		handle(job.Args.Args)
		return nil
	})
	return runOJS(eng, store, load.Each(func(ctx context.Context, a load.Args) error {
		_, err := eng.Enqueue(ctx, jobType, encodedArgs{Args: a})
		return err
	})), nil
}

// runOJS runs an engine until the system is closed.
func runOJS[T any](eng *engine.Engine[T], store *memory.Storage,
	enqueue func(ctx context.Context, first, n int) error) *system {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	return &system{
		enqueue: enqueue,
		settle:  eng.WaitIdle,
		close: func() error {
			stop()
			return errors.Join(<-ended, store.Close())
		},
	}
}

// holdOJS enqueues jobs that could start at once to an engine that does not run.
func holdOJS(int) (*system, error) { return heldOJS() }

// holdOJSScheduled enqueues jobs that wait for a time.
func holdOJSScheduled(int) (*system, error) { return heldOJS(ojs.WithDelay(24 * time.Hour)) }

func heldOJS(opts ...ojs.Option) (*system, error) {
	store := memory.New()
	eng, err := engine.New[load.Args](store)
	if err != nil {
		return nil, err
	}
	eng.Handle(jobType, func(context.Context, *ojs.Job[load.Args]) error { return nil })
	return &system{enqueue: enqueueOJS(eng, opts...), close: store.Close}, nil
}

func enqueueOJS(eng *engine.Engine[load.Args], opts ...ojs.Option) func(ctx context.Context, first,
	n int) error {
	return func(ctx context.Context, first, n int) error {
		if n == 1 {
			_, err := eng.Enqueue(ctx, jobType, load.Job(first), opts...)
			return err
		}
		drafts := make([]ojs.Draft, 0, n)
		for id := first; id < first+n; id++ {
			drafts = append(drafts, ojs.NewDraft(jobType, load.Job(id), opts...))
		}
		_, err := eng.EnqueueMany(ctx, drafts...)
		return err
	}
}
