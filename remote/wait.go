package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/workflow"
)

// pollTime is how long the server may hold a call that waits.
const pollTime = 30 * time.Second

// Get looks a job up. It returns ojs.ErrNotFound if there is none with the id.
func (c *Client) Get(ctx context.Context, id string) (*ojs.JobInfo, error) {
	var answer struct {
		Job *job `json:"job"`
	}
	if err := c.get(ctx, "/jobs/"+segment(id), &answer); err != nil {
		return nil, err
	}
	if answer.Job == nil {
		return nil, fmt.Errorf("ojs: GET /jobs/%s: the server's answer has no job", id)
	}
	return &answer.Job.JobInfo, nil
}

// Wait blocks until the job has ended or ctx has, as ojs.Ticket.Wait does. It holds one
// request open, and outlasts a server that is started anew.
func (c *Client) Wait(ctx context.Context, id string) (*ojs.JobInfo, error) {
	return c.wait(ctx, id, false)
}

// storedWaiter waits for jobs that were stored: if one is not there, it was deleted.
type storedWaiter struct{ c *Client }

// Wait implements bridge.Waiter.
func (w storedWaiter) Wait(ctx context.Context, id string) (*ojs.JobInfo, error) {
	return w.c.wait(ctx, id, true)
}

func (c *Client) wait(ctx context.Context, id string, stored bool) (*ojs.JobInfo, error) {
	query := url.Values{"wait": {"true"}, "timeout": {strconv.Itoa(int(pollTime / time.Second))}}
	for pause := minPause; ; {
		asked := c.clock.Now()
		err := c.do(ctx, &request{method: http.MethodGet, path: "/jobs/" + segment(id) + "/result",
			query:  query,
			within: pollTime + callTime, most: 1})
		var refused *Error
		_, again := repeatable(err)
		timedOut := errors.As(err, &refused) && refused.Status == http.StatusRequestTimeout
		stored = stored || timedOut && refused.Code != codeUnknown // the server has found the job
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("ojs: job %s has not ended: %w", id, ctx.Err())
		case err == nil:
			return c.ended(ctx, id)
		case errors.Is(err, ojs.ErrNotFound) && stored:
			return nil, &ojs.PrunedError{ID: id}
		case timedOut, again:
			if c.clock.Now().Sub(asked) > pollTime/2 {
				pause = minPause
			}
			if c.sleep(ctx, pause) != nil {
				return nil, fmt.Errorf("ojs: job %s has not ended: %w", id, ctx.Err())
			}
			pause = min(2*pause, maxPause)
		default:
			return nil, err
		}
	}
}

// ended is the outcome of a job that has ended.
func (c *Client) ended(ctx context.Context, id string) (*ojs.JobInfo, error) {
	job, err := c.Get(ctx, id)
	switch {
	case errors.Is(err, ojs.ErrNotFound):
		return nil, &ojs.PrunedError{ID: id}
	case err != nil:
		return nil, err
	case job.State.Terminal() && job.Type == workflow.Type:
		return job, workflow.EndError(ctx, c.Get, job)
	case job.State == ojs.StateCompleted:
		return job, nil
	case job.State.Terminal():
		return job, &ojs.EndedError{ID: id, State: job.State, DeadLettered: job.DeadLettered(),
			Last: job.Error}
	}
	return c.wait(ctx, id, true) // it was retried by hand in between
}
