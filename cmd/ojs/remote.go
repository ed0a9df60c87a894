package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/remote"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// server returns the client of the server whose address --storage has; nil: that is the
// address of a storage. A verb that does not call it needs a storage.
func (c *call) server() (*remote.Client, error) {
	k, address, err := addressOf(c.flags.Storage, c.flags.Schema)
	if err != nil || k != onServer {
		return nil, err
	}
	u, err := url.Parse(address) // whose error has the address
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, usageError{fixError{errors.New("the address is not like https://jobs.example.org"),
			"leave out users and parameters, and set OJS_KEY or OJS_KEY_FILE for a key"}}
	}
	key, err := c.key()
	if err != nil {
		return nil, err
	}
	if key != "" && u.Scheme == "http" && !local(u.Hostname()) {
		return nil, usageError{fixError{errors.New("the key would go to " + u.Host + " in clear"),
			"give an https:// address, or one of this machine that a tunnel takes there"}}
	}
	return remote.Dial(address, remote.WithKey(key), remote.WithClock(c.clock))
}

// key is that of OJS_KEY, or of the file that OJS_KEY_FILE names; "": there is none.
func (c *call) key() (string, error) {
	if key := c.settings.get("OJS_KEY"); key != "" {
		return key, nil
	}
	path := c.settings.get("OJS_KEY_FILE")
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", usageError{fmt.Errorf("the file of OJS_KEY_FILE: %w", err)}
	}
	return strings.TrimSpace(string(text)), nil
}

const fixStorage = "give the address of the storage: postgres://… or the path of a SQLite file"

// needsStorage refuses what package remote has no call for.
func needsStorage(what string) error {
	return usageError{fixError{errors.New("the client of a server has no call for " + what), fixStorage}}
}

// forbidden reports whether a server refuses the key of the call.
func forbidden(err error) bool {
	var answer *remote.Error
	return errors.As(err, &answer) &&
		(answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden)
}

// limited yields the first n things; 0: all. It sets more if there are others.
func limited[T any](list iter.Seq2[T, error], n int, more *bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		seen := 0
		for thing, err := range list {
			if *more = n > 0 && seen == n && err == nil; *more {
				return
			}
			seen++
			if !yield(thing, err) || err != nil {
				return
			}
		}
	}
}

// serverJobs lists jobs of a server, of one state after the other: its binding selects by
// one.
func serverJobs(ctx context.Context, cl *remote.Client, f inspect.Filter) iter.Seq2[*ojs.JobInfo, error] {
	states := f.States
	if len(states) == 0 {
		return cl.Jobs().List(ctx, f)
	}
	return func(yield func(*ojs.JobInfo, error) bool) {
		for _, s := range states {
			f.States = []ojs.State{s}
			for job, err := range cl.Jobs().List(ctx, f) {
				if !yield(job, err) || err != nil {
					return
				}
			}
		}
	}
}

// ofServer lists the jobs of a server.
func (v *jobsVerb) ofServer(c *call, cl *remote.Client, l listing[listed], f inspect.Filter) error {
	if v.By != "" || v.Count {
		return needsStorage("a count of jobs other than ojs stats")
	}
	if v.Cursor != "" {
		return needsStorage("a cursor")
	}
	if f.Order == inspect.OrderOldest && !strings.Contains(filterLine(v.Terms), "order:") {
		f.Order = inspect.OrderNewest
	}
	more := false
	jobs := func(yield func(listed, error) bool) {
		for job, err := range limited(serverJobs(c.ctx, cl, f), v.Limit, &more) {
			if !yield(listed{job, ""}, err) {
				return
			}
		}
	}
	return show(c, l, jobs, c.moreIf(&more))
}

// moreIf says below a list of limited things that there are others.
func (c *call) moreIf(more *bool) func() []string {
	return func() []string {
		if !*more {
			return nil
		}
		return []string{c.style.paint(dim, "there are more: --limit 0")}
	}
}

// ofServer shows a job of a server.
func (v *jobVerb) ofServer(c *call, cl *remote.Client) error {
	if v.Logs {
		return needsStorage("the logs of a job")
	}
	job, err := cl.Get(c.ctx, v.ID)
	if err != nil {
		return err
	}
	return c.jobPage(inspect.TimelineOf(&storage.Record{JobInfo: *job}, c.now()), nil, false)
}

// onServer does an action to the jobs of a server, or shows which jobs it would change.
func (v *change) onServer(c *call, cl *remote.Client, bulk operate.Bulk, byID bool, done string) error {
	do, is := serverActions[bulk.Do.String()]
	if !is {
		return needsStorage("ojs " + bulk.Do.String())
	}
	if do.waiting != nil && !byID && !slices.Contains(bulk.On.States, ojs.StateActive) {
		do.act = do.waiting
	}
	act := func(ctx context.Context, id string) error { return do.act(cl.Jobs(), ctx, id) }
	if byID {
		return v.act(c, applied(c, bulk.On.IDs, v.Limit, act), done)
	}
	if len(bulk.On.States) == 0 && !bulk.On.DeadLettered {
		bulk.On.States = do.states
	}
	most, more := 0, false
	if !v.Yes {
		most = max(mostPreviewed, v.Limit)
	}
	var sample []listed
	var ids []string
	for job, err := range limited(serverJobs(c.ctx, cl, bulk.On), most, &more) {
		if err != nil {
			return err
		}
		if ids = append(ids, job.ID); len(ids) <= v.sample(c) {
			sample = append(sample, listed{job, ""})
		}
	}
	if v.Yes {
		return v.act(c, applied(c, ids, v.Limit, act), done)
	}
	return v.shown(c, bulk, sample, inspect.Count{N: len(ids), Exact: !more}, done)
}

// mostPreviewed is how many jobs of a server are counted without --yes.
const mostPreviewed = 1000

// serverAction is an action that the client of a server has, and the states of the jobs
// that it is for without state: in the filter. The server refuses jobs of other states
// when it acts: a job may have started since it was listed.
type serverAction struct {
	act     func(*remote.Jobs, context.Context, string) error
	waiting func(*remote.Jobs, context.Context, string) error // of a filter without state:active; nil: act
	states  []ojs.State
}

// serverActions are by the names of operate.Action.
var serverActions = map[string]serverAction{
	"retry": {(*remote.Jobs).Retry, nil, []ojs.State{ojs.StateDiscarded}},
	"cancel": {(*remote.Jobs).Cancel, (*remote.Jobs).CancelWaiting,
		[]ojs.State{ojs.StateScheduled, ojs.StateAvailable, ojs.StatePending, ojs.StateRetryable}},
	"delete": {(*remote.Jobs).Delete, nil,
		[]ojs.State{ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded}},
	"activate": {(*remote.Jobs).Activate, nil, []ojs.State{ojs.StatePending}},
}

// applied does an action to jobs, one after the other, until it is done to some; 0: all.
func applied(c *call, ids []string, limit int,
	act func(context.Context, string) error) iter.Seq2[operate.Progress, error] {
	return func(yield func(operate.Progress, error) bool) {
		var p operate.Progress
		for _, id := range ids {
			p.Result = operate.Result{ID: id, Err: act(c.acting(), id)}
			if p.Err == nil {
				p.Done++
			} else if p.Refused++; !refused(p.Err) && !errors.Is(p.Err, ojs.ErrNotFound) {
				yield(p, p.Err)
				return
			}
			if !yield(p, nil) || limit > 0 && p.Done == limit {
				return
			}
		}
	}
}

// queueRowsOf are the queues of a server.
func (c *call) queueRowsOf(cl *remote.Client) ([]queueRow, error) {
	queues, err := cl.Queues().List(c.ctx)
	rows := make([]queueRow, 0, len(queues))
	for _, q := range queues {
		rows = append(rows, queueRow{Name: q.Name, State: q.State, States: q.Counts})
	}
	return rows, err
}

// workflowsOf lists the workflows of a server.
func workflowsOf(ctx context.Context, cl *remote.Client) iter.Seq2[*workflow.Status, error] {
	return func(yield func(*workflow.Status, error) bool) {
		f := inspect.Filter{Types: []string{workflow.Type}, Order: inspect.OrderOldest}
		for job, err := range cl.Jobs().List(ctx, f) {
			var s *workflow.Status
			if err == nil {
				s, err = cl.Workflows().Get(ctx, job.ID)
			}
			if errors.Is(err, ojs.ErrNotFound) { // it has been deleted meanwhile
				continue
			}
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}
