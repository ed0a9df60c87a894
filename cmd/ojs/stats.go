package main

import (
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
)

type statsVerb struct{}

func (statsVerb) Help() string {
	return `The counts are exact and cost no look at jobs. A lag is how long the next job of a queue
has been available. Beyond 100 queues lags are not read.`
}

// counts are those of jobs.
type counts struct {
	At      time.Time         `json:"at"`
	Storage string            `json:"storage"`
	Jobs    int               `json:"jobs"`
	States  map[ojs.State]int `json:"states"`
	Queues  []queueRow        `json:"queues"`
}

// stats are the counts of a storage.
type stats struct {
	counts
	Workers int  `json:"workers"` // that report
	Slots   int  `json:"slots"`
	Busy    int  `json:"busy"`
	Paused  bool `json:"paused"` // everything is
}

// Run shows the counts.
func (statsVerb) Run(c *call) error {
	if cl, err := c.server(); cl != nil || err != nil {
		if err != nil {
			return err
		}
		rows, err := c.queueRowsOf(cl)
		if err != nil {
			return err
		}
		n := c.countsOf(string(onServer), rows)
		return c.page(n.Storage, n, func() []string { return c.countLines(n.head(), n.Queues) })
	}
	op, err := c.operator()
	if err != nil {
		return err
	}
	s, err := c.stats(op)
	if err != nil {
		return err
	}
	return c.page(s.Storage, s, func() []string { return c.statsLines(&s) })
}

// stats counts the jobs of the storage.
func (c *call) stats(op *operate.Operator) (stats, error) {
	rows, err := c.queueRows(op)
	s := stats{counts: c.countsOf(c.opened.Capabilities().Name, rows)}
	if err != nil {
		return s, err
	}
	jobs := op.Jobs()
	nodes, err := jobs.Nodes(c.ctx)
	if err != nil {
		return s, err
	}
	for i := range nodes {
		s.Workers++
		s.Slots += nodes[i].Slots
		s.Busy += nodes[i].Busy
	}
	pauses, err := jobs.Pauses(c.ctx)
	if err != nil {
		return s, err
	}
	s.Paused = slices.ContainsFunc(pauses, inspect.Pause.OfAll)
	return s, nil
}

func (c *call) countsOf(storage string, queues []queueRow) counts {
	n := counts{At: c.now().UTC(), Storage: storage, States: make(map[ojs.State]int), Queues: queues}
	for _, q := range queues {
		for state, jobs := range q.States {
			n.Jobs += jobs
			n.States[state] += jobs
		}
	}
	return n
}

func (n *counts) head() []field {
	head := []field{{"storage", of(n.Storage)}, {"jobs", of(number(n.Jobs))}}
	for _, state := range ojs.AllStates() {
		if n := n.States[state]; n > 0 {
			head = append(head, field{"  " + string(state), tinted(tintOf(state), number(n))})
		}
	}
	return head
}

func (c *call) statsLines(s *stats) []string {
	head := s.head()
	workers := cell{"none that reports", yellow}
	if s.Workers > 0 {
		workers = of(number(s.Workers) + ", " + number(s.Busy) + " of " + number(s.Slots) + " slots busy")
	}
	head = append(head, field{"workers", workers})
	if s.Paused {
		head = append(head, field{"paused", cell{"everything; ojs queues resume --all ends that", yellow}})
	}
	return c.countLines(head, s.Queues)
}

func (c *call) countLines(head []field, queues []queueRow) []string {
	lines := c.style.fields(head)
	if len(queues) == 0 {
		return lines
	}
	var rows [][]cell
	for i := range queues {
		rows = append(rows, queues[i].row())
	}
	return append(append(lines, ""), c.style.lines(queueColumns, rows)...)
}

// queueRow is a queue with its counts.
type queueRow struct {
	Name   string            `json:"name"`
	State  ojs.QueueState    `json:"state"`
	States map[ojs.State]int `json:"states"`
	Lag    *float64          `json:"lag_seconds,omitempty"` // of the next available job; nil: not read
	Limit  string            `json:"limit,omitempty"`
}

var queueColumns = []column{{title: "QUEUE", long: true}, {title: "STATE"},
	{title: "WAITING", right: true}, {title: "ACTIVE", right: true}, {title: "LATER", right: true, rank: 4},
	{title: "DONE", right: true, rank: 2}, {title: "FAILED", right: true}, {title: "LAG", right: true,
		rank: 1},
	{title: "LIMIT", long: true, rank: 3}}

func (q *queueRow) row() []cell {
	count := func(t tint, states ...ojs.State) cell {
		n := 0
		for _, s := range states {
			n += q.States[s]
		}
		if n == 0 {
			t = dim
		}
		return cell{number(n), t}
	}
	lag := ""
	if q.Lag != nil && *q.Lag > 0 {
		lag = span(time.Duration(*q.Lag * float64(time.Second)))
	}
	return []cell{of(q.Name), stateCell(q.State), count(plain, ojs.StateAvailable),
		count(cyan, ojs.StateActive), count(plain, ojs.StateScheduled, ojs.StatePending, ojs.StateRetryable),
		count(plain, ojs.StateCompleted, ojs.StateCancelled), count(red, ojs.StateDiscarded), of(lag),
		of(q.Limit)}
}

// mostLags is how many queues there may be for their lags to be read, which costs a look
// at each.
const mostLags = 100

// queueRows are the queues by name.
func (c *call) queueRows(op *operate.Operator) ([]queueRow, error) {
	queues, err := op.Queues().List(c.ctx)
	if err != nil {
		return nil, err
	}
	limits, err := c.limitsOf(op, "queue")
	if err != nil {
		return nil, err
	}
	rows := make([]queueRow, 0, len(queues))
	for _, q := range queues {
		row := queueRow{Name: q.Name, State: q.State, States: q.Counts}
		for _, l := range limits {
			if l.Name == q.Name {
				row.Limit = bounds(l.Bounds)
			}
		}
		if len(queues) <= mostLags {
			row.Lag = new(float64)
		}
		if q.Counts[ojs.StateAvailable] > 0 && row.Lag != nil {
			f := inspect.Filter{Queues: []string{q.Name}, Order: inspect.OrderClaim}
			page, err := op.Jobs().Page(c.ctx, f, "", 1)
			if err != nil {
				return nil, err
			}
			if len(page.Jobs) > 0 {
				*row.Lag = c.now().Sub(page.Jobs[0].EnqueuedAt).Seconds()
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}
