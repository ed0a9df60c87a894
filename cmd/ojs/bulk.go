package main

import (
	"errors"
	"fmt"
	"iter"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
)

// change is a verb that changes the jobs that ids or a filter select.
type change struct {
	selection
	Yes   bool `short:"y" help:"Do it. Without it, a filter only shows what would change."`
	Limit int  `short:"n" default:"0" help:"The most jobs to change; 0 is all."`
}

// changed is the result for one job in JSON.
type changed struct {
	ID    string `json:"id"`
	Done  bool   `json:"done"`
	Error string `json:"error,omitempty"`
}

// apply does an action to the jobs, or shows which jobs it would change. done is the
// participle of the action, such as "retried".
func (v *change) apply(c *call, do operate.Action, done string) error {
	cl, err := c.server()
	if err != nil {
		return err
	}
	f, byID, err := v.filter(c)
	if err != nil {
		return err
	}
	if byID && len(f.IDs) == 0 {
		if len(v.Jobs) == 0 {
			return usageError{fixError{errors.New("no jobs are named"),
				"give ids, or a filter such as state:discarded"}}
		}
		return nil // the standard input has no ids
	}
	if err := checkLimit(v.Limit); err != nil {
		return err
	}
	bulk := operate.Bulk{Do: do, On: f, Limit: v.Limit}
	if cl != nil {
		return v.onServer(c, cl, bulk, byID, done)
	}
	op, err := c.operator()
	if err != nil {
		return err
	}
	if !byID && !v.Yes {
		return v.preview(c, op, bulk, done)
	}
	return v.act(c, op.Jobs().Apply(c.acting(), bulk), done)
}

// preview shows what a filter selects, and how to change it.
func (v *change) preview(c *call, op *operate.Operator, bulk operate.Bulk, done string) error {
	p, err := op.Jobs().Preview(c.ctx, bulk, v.sample(c))
	if err != nil {
		return err
	}
	var sample []listed
	for _, job := range p.Sample {
		sample = append(sample, listed{job, ""})
	}
	return v.shown(c, bulk, sample, p.Count, done)
}

// sample is how many of the jobs a preview shows.
func (v *change) sample(c *call) int {
	if c.style.isTable() {
		return 10
	}
	return 1000
}

// shown writes a preview.
func (v *change) shown(c *call, bulk operate.Bulk, sample []listed, n inspect.Count, done string) error {
	l := jobListing(c)
	l.none = "no jobs to " + bulk.Do.String()
	if err := show(c, l, all(sample), nil); err != nil || n.N == 0 {
		return err
	}
	selected := atLeast(n)
	if v.Limit > 0 && (v.Limit < n.N || v.Limit == n.N && !n.Exact) {
		selected = number(v.Limit) + " of " + selected
	}
	noun := "jobs"
	if selected == "1" {
		noun = "job"
	}
	_, err := fmt.Fprintf(c.errs, "%s %s would be %s; run it again with --yes\n", selected, noun, done)
	return err
}

// act changes the jobs. Refusals are written to the standard error.
func (v *change) act(c *call, jobs iter.Seq2[operate.Progress, error], done string) error {
	out := jsonArray{w: c.out}
	last := operate.Progress{}
	code := exitDone
	for p, err := range jobs {
		if err != nil {
			err = fixError{err, fmt.Sprintf("run it again for the other jobs: %s %s before",
				counted(last.Done, "job"), done)}
			if c.style.form == "json" {
				err = errors.Join(err, out.end())
			}
			return err
		}
		if last = p; p.ID == "" {
			continue
		}
		if p.Err != nil {
			fmt.Fprintf(c.errs, "ojs: %s\n", plainError(ofJob(p.ID, p.Err)))
			if n := codeOf(p.Err); code == exitDone || n == exitRefused {
				code = n
			}
		}
		if err := c.changed(&out, p); err != nil {
			return err
		}
	}
	if c.style.form == "json" {
		if err := out.end(); err != nil {
			return err
		}
	}
	if c.style.isTable() {
		line := counted(last.Done, "job") + " " + done
		if last.Refused > 0 {
			line += ", " + number(last.Refused) + " refused"
		}
		if err := write(c.out, line); err != nil {
			return err
		}
	}
	c.code = code
	return nil
}

// ofJob names the job of an error that does not.
func ofJob(id string, err error) error {
	if errors.Is(err, ojs.ErrNotFound) {
		return fmt.Errorf("job %s: %w", id, err)
	}
	return err
}

func (c *call) changed(out *jsonArray, p operate.Progress) error {
	result := changed{ID: p.ID, Done: p.Err == nil}
	if p.Err != nil {
		result.Error = plainError(p.Err)
	}
	switch c.style.form {
	case "json":
		return out.add(result)
	case "ndjson":
		return c.json(result, "")
	case "id":
		if p.Err == nil {
			return write(c.out, p.ID)
		}
	}
	return nil
}

const changeHelp = `Ids change jobs at once. A filter only shows what it selects, unless --yes is given.
Without state: it selects the jobs that the verb is for.

` + filterHelp
