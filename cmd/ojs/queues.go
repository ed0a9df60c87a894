package main

import (
	"errors"
	"fmt"

	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
)

type queuesVerb struct {
	List   queuesListVerb   `cmd:"" default:"withargs" help:"List queues, and what is paused."`
	Pause  queuesPauseVerb  `cmd:"" help:"Start no more jobs of a queue, a type or at all."`
	Drain  queuesDrainVerb  `cmd:"" help:"Refuse new jobs of a queue, and run those that it has."`
	Resume queuesResumeVerb `cmd:"" help:"End a pause or a drain."`
	Limit  queuesLimitVerb  `cmd:"" help:"Limit a queue over all engines."`
}

type queuesListVerb struct{}

// Run lists queues.
func (queuesListVerb) Run(c *call) error {
	cl, err := c.server()
	if err != nil {
		return err
	}
	var rows []queueRow
	var pauses []inspect.Pause
	if cl != nil {
		rows, err = c.queueRowsOf(cl)
	} else {
		rows, pauses, err = c.queuesAndPauses()
	}
	if err != nil {
		return err
	}
	return show(c, listing[queueRow]{columns: queueColumns,
		row:  func(q queueRow) []cell { return q.row() },
		id:   func(q queueRow) string { return q.Name },
		none: "no queues",
	}, all(rows), func() (lines []string) {
		for _, p := range pauses {
			what := "everything is paused"
			if p.Type != "" {
				what = "type " + p.Type + " is paused"
			}
			what += " since " + moment(p.At)
			if p.By != "" {
				what += " by " + p.By
			}
			if p.Reason != "" {
				what += ": " + p.Reason
			}
			lines = append(lines, c.style.paint(yellow, clean(what)))
		}
		return lines
	})
}

func (c *call) queuesAndPauses() ([]queueRow, []inspect.Pause, error) {
	op, err := c.operator()
	if err != nil {
		return nil, nil, err
	}
	rows, err := c.queueRows(op)
	if err != nil {
		return nil, nil, err
	}
	pauses, err := op.Queues().Pauses(c.ctx)
	return rows, pauses, err
}

// paused are what a pause is about: queues, a type, or everything.
type paused struct {
	Queues []string `arg:"" optional:"" name:"queue" help:"Names of queues."`
	Type   string   `placeholder:"TYPE" xor:"what" help:"A job type, in all queues."`
	All    bool     `xor:"what" help:"Everything."`
}

// set calls one of three functions, and warns of a name that the storage does not know.
func (v *paused) set(c *call, did string, queue, jobType func(string) (bool, error),
	everything func() error) error {
	if (len(v.Queues) > 0) == (v.Type != "" || v.All) {
		return usageError{errors.New("give names of queues, --type TYPE or --all")}
	}
	done := func(kind, name string, known bool) error {
		if !known {
			fmt.Fprintf(c.errs, "warning: %s %s has no jobs, and no engine names it; is the name right?\n",
				kind, clean(name))
		}
		return c.done(name, kind+" "+name+" is "+did)
	}
	if v.All {
		if err := everything(); err != nil {
			return err
		}
		return c.done("all", "everything is "+did)
	}
	if v.Type != "" {
		known, err := jobType(v.Type)
		if err != nil {
			return err
		}
		return done("type", v.Type, known)
	}
	for _, name := range v.Queues {
		known, err := queue(name)
		if err != nil {
			return err
		}
		if err := done("queue", name, known); err != nil {
			return err
		}
	}
	return nil
}

// onServer calls a function for queues of a server.
func (v *paused) onServer(c *call, did string, queue func(string) error) error {
	if v.Type != "" || v.All {
		return needsStorage("a pause of a type or of everything")
	}
	return v.set(c, did, func(name string) (bool, error) { return true, queue(name) }, nil, nil)
}

// done tells of a change of something that is no job.
func (c *call) done(id, text string) error {
	return c.page(id, struct {
		ID   string `json:"id"`
		Done string `json:"done"`
	}{id, text}, func() []string { return []string{clean(text)} })
}

type queuesPauseVerb struct {
	paused
	Reason string `placeholder:"TEXT" help:"Why, for others who look; of --type and --all."`
}

// Run pauses queues, a type or everything.
func (v *queuesPauseVerb) Run(c *call) error {
	cl, err := c.server()
	switch {
	case err != nil:
		return err
	case cl != nil && v.Reason != "":
		return needsStorage("the reason of a pause")
	case cl != nil:
		pause := func(name string) error { return cl.Queues().Pause(c.acting(), name) }
		return v.onServer(c, "paused", pause)
	}
	q, err := c.queues()
	if err != nil {
		return err
	}
	ctx := c.acting()
	return v.set(c, "paused", func(name string) (bool, error) { return q.Pause(ctx, name) },
		func(name string) (bool, error) { return q.PauseType(ctx, name, v.Reason) },
		func() error { return q.PauseAll(ctx, v.Reason) })
}

type queuesResumeVerb struct{ paused }

// Run ends pauses and drains.
func (v *queuesResumeVerb) Run(c *call) error {
	cl, err := c.server()
	switch {
	case err != nil:
		return err
	case cl != nil:
		resume := func(name string) error { return cl.Queues().Resume(c.acting(), name) }
		return v.onServer(c, "active", resume)
	}
	q, err := c.queues()
	if err != nil {
		return err
	}
	ctx := c.acting()
	return v.set(c, "active", func(name string) (bool, error) { return q.Resume(ctx, name) },
		func(name string) (bool, error) { return q.ResumeType(ctx, name) },
		func() error { return q.ResumeAll(ctx) })
}

type queuesDrainVerb struct {
	Queues []string `arg:"" name:"queue" help:"Names of queues."`
}

// Run drains queues.
func (v *queuesDrainVerb) Run(c *call) error {
	q, err := c.queues()
	if err != nil {
		return err
	}
	ctx := c.acting()
	p := paused{Queues: v.Queues}
	return p.set(c, "draining", func(name string) (bool, error) { return q.Drain(ctx, name) }, nil, nil)
}

func (c *call) queues() (*operate.Queues, error) {
	op, err := c.operator()
	if err != nil {
		return nil, err
	}
	return op.Queues(), nil
}

type queuesLimitVerb struct {
	Queue string `arg:"" help:"The name of the queue."`
	limitBounds
	Clear bool `help:"Remove the limit."`
}

// Run limits a queue.
func (v *queuesLimitVerb) Run(c *call) error {
	name := operate.LimitOfQueue(v.Queue)
	if v.Clear {
		return c.clearLimit(name)
	}
	return v.set(c, name)
}
