package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
)

type workersVerb struct {
	List      workersListVerb      `cmd:"" default:"withargs" help:"List what takes the jobs."`
	Quiet     workersQuietVerb     `cmd:"" help:"Have an engine take no more jobs."`
	Resume    workersResumeVerb    `cmd:"" help:"End quiet."`
	Terminate workersTerminateVerb `cmd:"" help:"End the run of an engine."`
}

// workerRow is a worker in JSON.
type workerRow struct {
	ID      string    `json:"id"`
	State   string    `json:"state"`
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Version string    `json:"version,omitempty"`
	Queues  []string  `json:"queues,omitempty"` // none: all
	Types   []string  `json:"types,omitempty"`
	Slots   int       `json:"slots,omitempty"`
	Busy    int       `json:"busy"`
	Started time.Time `json:"started,omitzero"`
	Seen    time.Time `json:"seen,omitzero"`
}

func rowOfWorker(w *inspect.Worker) workerRow {
	r := workerRow{ID: w.ID, State: "running", Busy: w.Jobs}
	n := w.Node
	switch {
	case w.Silent > 0:
		r.State = "silent"
	case n == nil:
		r.State = "holds jobs"
	case n.Quiet:
		r.State = "quiet"
	}
	if n != nil {
		r.Host, r.PID, r.Version, r.Queues, r.Types = n.Host, n.PID, n.Version, n.Queues, n.Types
		r.Slots, r.Busy, r.Started, r.Seen = n.Slots, max(n.Busy, w.Jobs), n.Started.UTC(), n.Seen.UTC()
	}
	return r
}

type workersListVerb struct{}

// Run lists workers.
func (workersListVerb) Run(c *call) error {
	jobs, err := c.jobs()
	if err != nil {
		return err
	}
	workers, err := jobs.Workers(c.ctx)
	if err != nil {
		return err
	}
	var rows []workerRow
	for i := range workers {
		rows = append(rows, rowOfWorker(&workers[i]))
	}
	return show(c, listing[workerRow]{
		columns: []column{{title: "WORKER", long: true}, {title: "STATE"}, {title: "HOST", long: true},
			{title: "PID", right: true, rank: 2}, {title: "BUSY", right: true}, {title: "QUEUES", long: true,
				rank: 1},
			{title: "UP", right: true, rank: 3}, {title: "SEEN", rank: 4},
			{title: "TYPES", long: true, rank: 5}},
		row: func(r workerRow) []cell {
			queues, busy, pid := "", number(r.Busy), ""
			if r.Host != "" {
				queues, busy, pid = strings.Join(r.Queues, ","), fmt.Sprintf("%d/%d", r.Busy,
					r.Slots), fmt.Sprint(r.PID)
				if len(r.Queues) == 0 {
					queues = "all"
				}
			}
			return []cell{of(r.ID), workerState(r.State), of(r.Host), of(pid), of(busy), of(queues),
				of(age(r.Started, c.now())), of(ago(r.Seen, c.now())), of(strings.Join(r.Types, ","))}
		},
		id:   func(r workerRow) string { return r.ID },
		none: "no workers: no engine reports, and no job is active",
	}, all(rows), nil)
}

func workerState(state string) cell {
	switch state {
	case "running":
		return tinted(green, state)
	case "silent":
		return tinted(red, state)
	}
	return tinted(yellow, state)
}

// workerIDs are the ids of workers.
type workerIDs struct {
	IDs []string `arg:"" name:"worker" help:"Ids of workers."`
}

func (v *workerIDs) each(c *call, done string, f func(w *operate.Workers, id string) error) error {
	op, err := c.operator()
	if err != nil {
		return err
	}
	for _, id := range v.IDs {
		if err := f(op.Workers(), id); err != nil {
			return err
		}
		if err := c.done(id, "worker "+id+" is told to "+done+"; it obeys with its next report"); err != nil {
			return err
		}
	}
	return nil
}

type workersQuietVerb struct{ workerIDs }

// Run makes workers quiet.
func (v *workersQuietVerb) Run(c *call) error {
	return v.each(c, "take no more jobs", func(w *operate.Workers,
		id string) error {
		return w.Quiet(c.acting(), id)
	})
}

type workersResumeVerb struct{ workerIDs }

// Run has workers take jobs again.
func (v *workersResumeVerb) Run(c *call) error {
	return v.each(c, "take jobs", func(w *operate.Workers,
		id string) error {
		return w.Resume(c.acting(), id)
	})
}

type workersTerminateVerb struct{ workerIDs }

// Run ends workers.
func (v *workersTerminateVerb) Run(c *call) error {
	return v.each(c, "end", func(w *operate.Workers, id string) error { return w.Terminate(c.acting(), id) })
}
