package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage"
)

type explainVerb struct {
	ID string `arg:"" help:"The id of the job."`
}

func (explainVerb) Help() string {
	return `It names everything that is in the way of a job: its state, pauses, limits, jobs before it,
and whether an engine that reports takes jobs of its queue and type.`
}

// obstacle is an inspect.Obstacle in JSON.
type obstacle struct {
	Code  inspect.ObstacleCode `json:"code"`
	Text  string               `json:"text"`
	Until time.Time            `json:"until,omitzero"`
	N     int                  `json:"n,omitempty"`
	Fix   string               `json:"fix,omitempty"`
}

// Run explains why a job does not run.
func (v *explainVerb) Run(c *call) error {
	jobs, err := c.jobs()
	if err != nil {
		return err
	}
	found, err := jobs.Explain(c.ctx, v.ID)
	if err != nil {
		return err
	}
	rec, err := jobs.Record(c.ctx, v.ID)
	if err != nil {
		return err
	}
	list := make([]obstacle, 0, len(found.Obstacles))
	for _, o := range found.Obstacles {
		text, fix := inWords(o, &rec.JobInfo)
		list = append(list, obstacle{o.Code, text, o.Until, o.N, fix})
	}
	if !found.State.Terminal() && found.State != ojs.StateActive {
		nodes, err := jobs.Nodes(c.ctx)
		if err != nil {
			return err
		}
		list = append(list, byNodes(nodes, &rec.JobInfo)...)
	}
	value := struct {
		ID        string     `json:"id"`
		State     ojs.State  `json:"state"`
		Obstacles []obstacle `json:"obstacles"`
	}{rec.ID, found.State, list}
	return c.page(rec.ID, value, func() []string {
		lines := c.style.fields([]field{{"id", of(rec.ID)}, {"state", stateCell(found.State)},
			{"type", of(rec.Type)}, {"queue", of(rec.Queue)}})
		if len(list) == 0 {
			return append(lines, "", "Nothing is in its way: the next free slot takes it.")
		}
		lines = append(lines, "")
		for _, o := range list {
			text := clean(o.Text)
			switch {
			case o.Code == inspect.ObstacleRunning, o.Code == inspect.ObstacleSilent:
				text += "; its lease ends " + ago(o.Until, c.now())
			case !o.Until.IsZero():
				text += " (" + ago(o.Until, c.now()) + ")"
			}
			lines = append(lines, c.bullet("- ", text)...)
			if o.Fix != "" {
				lines = append(lines, c.bullet("  ", "fix: "+clean(o.Fix))...)
			}
		}
		return lines
	})
}

// bullet is a text behind a mark.
func (c *call) bullet(mark, text string) (lines []string) {
	for _, part := range c.style.wrap(text, len(mark)) {
		lines = append(lines, mark+part)
		mark = strings.Repeat(" ", len(mark))
	}
	return lines
}

// inWords is an obstacle in the words of the command, and the call that takes it away; ""
// if time does or none.
func inWords(o inspect.Obstacle, job *ojs.JobInfo) (text, fix string) {
	text = o.Text
	switch o.Code {
	case inspect.ObstaclePaused:
		switch o.Of.Kind {
		case storage.LimitQueue:
			return text, "ojs queues resume " + job.Queue
		case storage.LimitType:
			return text, "ojs queues resume --type " + job.Type
		}
		return text, "ojs queues resume --all"
	case inspect.ObstaclePending:
		return "the job waits until it is activated", "ojs activate " + job.ID
	case inspect.ObstacleNotDue:
		if job.State == ojs.StateRetryable {
			return text, "ojs retry " + job.ID
		}
		return text, "ojs reschedule --at now " + job.ID
	case inspect.ObstacleLimit:
		return text, "ojs limits"
	case inspect.ObstacleEnded:
		if job.State == ojs.StateDiscarded {
			return text, "ojs retry " + job.ID
		}
	}
	return text, ""
}

// served reports whether an engine that is not quiet takes jobs of a queue, and of a type
// of it, and whether one of these has a slot.
func served(nodes []inspect.Node, queue, jobType string) (byQueue, byType, slot bool) {
	for i := range nodes {
		node := &nodes[i]
		if node.Quiet || len(node.Queues) > 0 && !slices.Contains(node.Queues, queue) {
			continue
		}
		byQueue = true
		if slices.Contains(node.Types, jobType) {
			byType = true
			slot = slot || node.Busy < node.Slots
		}
	}
	return byQueue, byType, slot
}

// byNodes tells of the engines that report: whether one takes the job.
func byNodes(nodes []inspect.Node, job *ojs.JobInfo) []obstacle {
	queue, handler, slot := served(nodes, job.Queue, job.Type)
	switch {
	case len(nodes) == 0:
		return []obstacle{{Code: "no_worker", Text: "no engine reports on the storage",
			Fix: "start the program that runs the jobs"}}
	case !queue:
		return []obstacle{{Code: inspect.ObstacleOtherQueues,
			Text: fmt.Sprintf("no engine that reports takes jobs of queue %s", job.Queue),
			Fix:  "ojs move --queue NAME " + job.ID + ", or let an engine work the queue"}}
	case !handler:
		return []obstacle{{Code: inspect.ObstacleNoHandler,
			Text: "no engine of its queue that reports has a handler of type " + job.Type,
			Fix:  "deploy a program that handles the type"}}
	case !slot:
		return []obstacle{{Code: inspect.ObstacleNoSlot,
			Text: "every slot of the engines that take it is busy",
			Fix:  "ojs workers"}}
	}
	return nil
}
