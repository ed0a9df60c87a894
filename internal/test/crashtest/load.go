package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
)

// task is the args of every job.
type task struct {
	Key   int    `json:"key"`   // what makes unique ones equal
	Batch string `json:"batch"` // that it was enqueued in; "": by itself
	Size  int    `json:"size"`  // of the batch

	// Of a job that follows another one: that job, and its attempt.
	Parent  string `json:"parent,omitempty"`
	Attempt int    `json:"attempt,omitempty"`

	Waits bool `json:"waits,omitempty"` // for the other jobs of its batch
}

// Types of jobs.
const (
	quick = "quick"
	slow  = "slow"  // takes some milliseconds
	flaky = "flaky" // fails now and then, and is tried again soon
	once  = "once"  // unique
	exact = "exact" // completes itself in a transaction, if the storage has those

	// parent is followed by children jobs, with handler.Then, and fails now and then
	parent   = "parent"
	children = 3
)

// Some jobs have a rate limit, with this key, that lets so many be active at once.
const (
	limited     = "limited"
	mostLimited = 4
)

// orderingKeys is how many ordering keys there are, which some jobs have.
const orderingKeys = 16

// maxAttempts is few enough for jobs to run out of them, now and then.
const maxAttempts = 5

// defaults are of every job. The lease is short, so that the jobs of the dead come back
// soon, unless no job may wait for its end.
func defaults(faults bool) []ojs.Option {
	lease := 500 * time.Millisecond
	if faults {
		lease = ojs.DefaultLease
	}
	return []ojs.Option{
		ojs.WithLease(lease),
		ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: maxAttempts, InitialInterval: 10 * time.Millisecond,
			MaxInterval: 50 * time.Millisecond}),
	}
}

var errFlaky = errors.New("flaky")

// handle gives the engine handlers for all types.
func handle(eng *engine.Engine[task], j *journal, inTx InTx) {
	for _, typ := range []string{quick, slow, flaky, once, parent, exact} {
		eng.Handle(typ, func(ctx context.Context, job *ojs.Job[task]) error {
			j.started(job.ID, job.Attempt)
			if typ == slow || typ == once {
				if err := handler.Sleep(ctx, time.Duration(rand.IntN(20))*time.Millisecond); err != nil {
					return err
				}
			}
			if typ == parent {
				if err := handler.Then(ctx, follow(job)...); err != nil {
					return err
				}
			}
			if (typ == flaky || typ == parent) && rand.IntN(3) == 0 {
				return errFlaky
			}
			if typ == exact && inTx != nil {
				return inTx(ctx, func(ctx context.Context) error {
					if err := handler.Complete(ctx); err != nil {
						return err
					}
					j.succeeded(job.ID, job.Attempt) // if it commits
					return nil
				})
			}
			j.succeeded(job.ID, job.Attempt)
			return nil
		})
	}
}

// follow returns the jobs that follow a parent. An equal job may keep them from being
// stored, which fails the attempt.
func follow(job *ojs.Job[task]) []ojs.Draft {
	args := task{Parent: job.ID, Attempt: job.Attempt, Key: rand.IntN(8)}
	drafts := make([]ojs.Draft, children)
	for i := range drafts {
		drafts[i] = plain(args)
	}
	if rand.IntN(8) == 0 {
		drafts[rand.IntN(children)] = ojs.NewDraft(once, args, unique(ojs.ConflictReject))
	}
	return drafts
}

const (
	enqueuers = 4   // of a producer, which may share what a commit costs
	ahead     = 100 // enqueues of each whose jobs need not have ended
)

// produce enqueues as fast as the workers can follow, with a pause after each enqueue,
// until ctx ends. It ends with an error if an enqueue fails, unless that may be.
func produce(
	ctx context.Context, eng *engine.Engine[task], j *journal, mayFail bool, pause time.Duration,
) error {
	failed := make(chan error, enqueuers)
	var all sync.WaitGroup
	for n := range enqueuers {
		all.Go(func() {
			name := fmt.Sprintf("%d.%d", os.Getpid(), n)
			var behind [ahead]ojs.Ticket // a ring
			for n := 0; ctx.Err() == nil; n++ {
				if t := behind[n%ahead]; t.ID != "" {
					var ended *ojs.EndedError
					if _, err := t.Wait(ctx); err != nil && !errors.As(err, &ended) && !mayFail {
						failed <- fmt.Errorf("wait: %w", err)
						return
					}
				}
				tickets, err := enqueue(ctx, eng, fmt.Sprintf("%s.%d", name, n))
				switch {
				case errors.Is(err, ojs.ErrDuplicate):
				case err != nil && mayFail:
					<-wall.After(10 * time.Millisecond) // more calls to what fails prove no more
				case err != nil:
					failed <- err
					return
				default:
					j.enqueued(tickets)
					behind[n%ahead] = tickets[0]
				}
				<-wall.After(pause)
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}

// enqueue enqueues one job or a batch.
func enqueue(
	ctx context.Context, eng *engine.Engine[task], batch string,
) ([]ojs.Ticket, error) {
	switch {
	case rand.IntN(6) == 0:
		return eng.EnqueueMany(ctx, waiting(batch)...)
	case rand.IntN(6) == 0:
		return startWorkflow(ctx, eng)
	}
	switch n := rand.IntN(8); {
	case n < 2:
		ticket, err := eng.Enqueue(ctx, once, task{Key: rand.IntN(8)},
			unique([]ojs.Conflict{ojs.ConflictIgnore, ojs.ConflictReject}[n]))
		return []ojs.Ticket{ticket}, err
	case n < 4:
		args := task{Batch: batch, Size: 2 + rand.IntN(9)}
		drafts := make([]ojs.Draft, args.Size)
		for i := range drafts {
			drafts[i] = plain(args)
		}
		if rand.IntN(4) == 0 { // all of it or nothing, if there is an equal job
			args.Key = rand.IntN(8)
			drafts[rand.IntN(len(drafts))] = ojs.NewDraft(once, args, unique(ojs.ConflictReject))
		}
		return eng.EnqueueMany(ctx, drafts...)
	case n < 5:
		return eng.EnqueueMany(ctx, ojs.NewDraft(parent, task{}))
	}
	return eng.EnqueueMany(ctx, plain(task{}))
}

// waiting returns a batch of which the last jobs wait for all others, some by a join.
func waiting(batch string) []ojs.Draft {
	args := task{Batch: batch, Size: 4 + rand.IntN(8)}
	var names []string
	var drafts []ojs.Draft
	for i := range args.Size - 3 {
		names = append(names, fmt.Sprint(i))
		drafts = append(drafts, plain(args).With(ojs.WithDraftName(names[i])))
	}
	all := ojs.WithDependsOn(names...)
	ended := ojs.WithCondition(ojs.AllEnded)
	drafts = append(drafts, ojs.NewDraft(quick, args, ojs.WithDraftName("join"), all, ended, ojs.WithJoin()))
	args.Waits = true
	return append(drafts, ojs.NewDraft(quick, args, all, ended),
		ojs.NewDraft(flaky, args, ojs.WithDependsOn("join")))
}

func plain(args task) ojs.Draft {
	opts := []ojs.Option{ojs.WithPriority(rand.IntN(3))}
	if rand.IntN(8) == 0 {
		opts = append(opts, ojs.WithDelay(time.Duration(rand.IntN(50))*time.Millisecond))
	}
	if rand.IntN(8) == 0 {
		opts = append(opts, ojs.WithRateLimit(ojs.RateLimit{Key: limited, Concurrency: mostLimited}))
	}
	if rand.IntN(8) == 0 {
		opts = append(opts, ojs.WithOrderingKey(fmt.Sprint(rand.IntN(orderingKeys))))
	}
	return ojs.NewDraft([]string{quick, slow, flaky, exact}[rand.IntN(4)], args, opts...)
}

func unique(c ojs.Conflict) ojs.Option {
	return ojs.WithUnique(ojs.UniquePolicy{ArgsKeys: []string{"key"}, OnConflict: c})
}
