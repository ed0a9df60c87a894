package main

import (
	"errors"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/telemetry"
)

type failuresVerb struct {
	filterArgs
	Limit int `short:"n" default:"20" help:"The most groups to show; 0 shows all."`
	Look  int `default:"2000" help:"How many jobs to look at, and some thousand beyond."`

	Counted bool `help:"Show the failed attempts of 30 days that engines have counted, of deleted jobs, too. The filter may have type: only."`
}

func (failuresVerb) Help() string {
	return `Failures are alike if the type of the job, the type of the error and its message without ids
and numbers are. Without state: in the filter they are those of discarded and retryable jobs.

` + filterHelp
}

// failureRow is a group of failures in JSON.
type failureRow struct {
	Key     string    `json:"key"`
	N       int       `json:"n"`
	Exact   bool      `json:"exact"`
	Type    string    `json:"type"`
	Error   string    `json:"error"`
	Message string    `json:"message"`
	Frame   string    `json:"frame,omitempty"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Trend   [24]int   `json:"trend"` // of the last two hours, by 5 minutes
	Sample  string    `json:"sample"`
}

// Run groups failed jobs.
func (v *failuresVerb) Run(c *call) error {
	jobs, err := c.jobs()
	if err != nil {
		return err
	}
	f, err := v.filter(c)
	if err == nil {
		err = checkLimit(v.Limit)
	}
	if err != nil {
		return err
	}
	if v.Counted {
		return v.counted(c, jobs, f)
	}
	found, err := jobs.Failures(c.ctx, f, v.Look)
	if err != nil {
		return err
	}
	var rows []failureRow
	for i, g := range found.Groups {
		if v.Limit > 0 && i == v.Limit {
			break
		}
		rows = append(rows, failureRow{g.Key, g.N, found.Exact, g.Type, g.ErrorType, g.Message, g.Frame,
			g.First.UTC(), g.Last.UTC(), g.Trend, g.Sample.ID})
	}
	return show(c, listing[failureRow]{
		columns: []column{{title: "JOBS", right: true}, {title: "LAST", right: true},
			{title: "TREND", rank: 1},
			{title: "TYPE", long: true}, {title: "ERROR", long: true}, {title: "FILTER"},
			{title: "SAMPLE", rank: 2}},
		row: func(r failureRow) []cell {
			n := atLeast(inspect.Count{N: r.N, Exact: r.Exact})
			message := r.Error
			if r.Message != "" {
				message += ": " + r.Message
			}
			return []cell{of(n), of(age(r.Last, c.now())), of(spark(r.Trend[:])), of(r.Type),
				tinted(red, message), of("failure:" + r.Key), of(r.Sample)}
		},
		id:   func(r failureRow) string { return r.Key },
		none: "no failures",
	}, all(rows), func() []string {
		if more := len(found.Groups) - len(rows); more > 0 {
			return []string{c.style.paint(dim, counted(more,
				"group")+" more: --limit "+number(len(found.Groups)))}
		}
		return c.looked(found.Exact, found.Looked)
	})
}

// countedRow is the failed attempts of a kind in JSON.
type countedRow struct {
	Key     string     `json:"key"`
	N       uint64     `json:"n"`
	Type    string     `json:"type"`
	Error   string     `json:"error"`
	Message string     `json:"message"`
	Frame   string     `json:"frame,omitempty"`
	First   time.Time  `json:"first"`
	Version string     `json:"version"` // of the program whose attempt failed first
	Last    time.Time  `json:"last"`
	Days    [30]uint64 `json:"days"`  // of UTC, today last
	Hours   [24]uint64 `json:"hours"` // the current one last
	Sample  string     `json:"sample"`
	Text    string     `json:"text"` // the message of the sample
}

// counted shows the failures that engines have counted.
func (v *failuresVerb) counted(c *call, jobs *inspect.Jobs, f inspect.Filter) error {
	types := inspect.Filter{Types: f.Types}
	if f.String() != types.String() {
		return usageError{errors.New("--counted takes type: and no other term")}
	}
	q, err := f.Query()
	if err != nil {
		return err
	}
	list, err := jobs.CountedFailures(c.ctx, new(telemetry.KnownFailures))
	if err != nil {
		return err
	}
	rows, more := []countedRow(nil), 0
	for _, g := range list {
		switch {
		case !q.Matches(&storage.Record{JobInfo: ojs.JobInfo{JobHeader: ojs.JobHeader{Type: g.Type}}}):
		case v.Limit > 0 && len(rows) == v.Limit:
			more++
		default:
			rows = append(rows, countedRow{g.Key, g.N, g.Type, g.ErrorType, g.Message, g.Frame,
				g.First.UTC(), g.Version, g.Last.UTC(), g.Days, g.Hours, g.Sample, g.Text})
		}
	}
	return show(c, listing[countedRow]{
		columns: []column{{title: "FAILURES", right: true}, {title: "LAST", right: true},
			{title: "FIRST", right: true, rank: 1}, {title: "VERSION", rank: 1}, {title: "TREND", rank: 2},
			{title: "TYPE", long: true}, {title: "ERROR", long: true}, {title: "FILTER"},
			{title: "SAMPLE", rank: 2}},
		row: func(r countedRow) []cell {
			message, filter := r.Error, "failure:"+r.Key
			switch {
			case r.Error == "":
				message, filter = "all other kinds", ""
			case r.Message != "":
				message += ": " + r.Message
			}
			days := make([]int, len(r.Days))
			for i, n := range r.Days {
				days[i] = int(n)
			}
			return []cell{of(number(int(r.N))), of(age(r.Last, c.now())), of(age(r.First, c.now())),
				of(r.Version), of(spark(days)), of(r.Type), tinted(red, message), of(filter), of(r.Sample)}
		},
		id:   func(r countedRow) string { return r.Key },
		none: "no failures are counted: engines with reports count them",
	}, all(rows), func() []string {
		if more > 0 {
			return []string{c.style.paint(dim, counted(more, "group")+" more: --limit 0")}
		}
		return nil
	})
}

// spark draws numbers as bars.
func spark(numbers []int) string {
	const bars = "▁▂▃▄▅▆▇█"
	most := 1
	for _, n := range numbers {
		most = max(most, n)
	}
	out := make([]rune, len(numbers))
	for i, n := range numbers {
		out[i] = ' '
		if n > 0 {
			out[i] = []rune(bars)[(n*8-1)/most%8]
		}
	}
	return string(out)
}
