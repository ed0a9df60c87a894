package main

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
)

type jobsVerb struct {
	filterArgs
	Limit  int    `short:"n" default:"50" help:"The most jobs to list; 0 lists all."`
	Cursor string `placeholder:"CURSOR" help:"Go on from where a listing ended."`
	By     string `enum:",state,queue,type,error" default:"" placeholder:"WHAT" help:"Count by state, queue, type or error."`
	Count  bool   `help:"Count the jobs."`
}

func (jobsVerb) Help() string {
	return filterHelp + `

The newest jobs come first, and of ended jobs the latest end.`
}

// Run lists or counts jobs.
func (v *jobsVerb) Run(c *call) error {
	cl, err := c.server()
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
	if cl != nil {
		return v.ofServer(c, cl, jobListing(c), f)
	}
	jobs, err := c.jobs()
	if err != nil {
		return err
	}
	switch {
	case v.By != "":
		return c.facets(jobs, f, inspect.Facet(v.By))
	case v.Count:
		return c.count(jobs, f)
	}
	stateOrder(&f, v.Terms)
	return v.list(c, jobs, f)
}

// checkLimit refuses a limit that is none.
func checkLimit(n int) error {
	if n < 0 {
		return usageError{fmt.Errorf("--limit is %d: it is 0 or more", n)}
	}
	return nil
}

// list lists jobs page by page, up to the limit.
func (v *jobsVerb) list(c *call, jobs *inspect.Jobs, f inspect.Filter) error {
	n, next := 0, ""
	foot := func() []string { return c.more(n, next) }
	return show(c, jobListing(c), v.pages(c, jobs, f, &n, &next), foot)
}

// more says that a listing has ended before its last job.
func (c *call) more(n int, next string) []string {
	if next == "" {
		return nil
	}
	text := fmt.Sprintf("%s; there are more: --limit 0, or --cursor %s", counted(n, "job"), next)
	return []string{c.style.paint(dim, text)}
}

// pages yields jobs and their workers, and says where the listing has ended.
func (v *jobsVerb) pages(
	c *call, jobs *inspect.Jobs, f inspect.Filter, n *int, next *string,
) iter.Seq2[listed, error] {
	return func(yield func(listed, error) bool) {
		*next = v.Cursor
		for {
			most := 1000
			if v.Limit > 0 {
				most = min(most, v.Limit-*n)
			}
			page, err := jobs.Page(c.ctx, f, *next, most)
			if err != nil {
				yield(listed{}, err)
				return
			}
			for i, job := range page.Jobs {
				if !yield(listed{job, page.Workers[i]}, nil) {
					return
				}
				*n++
			}
			if *next = page.Next; *next == "" || v.Limit > 0 && *n >= v.Limit {
				return
			}
		}
	}
}

// listed is a job of a listing.
type listed struct {
	*ojs.JobInfo
	worker string
}

// jobListing is how jobs are listed.
func jobListing(c *call) listing[listed] {
	return listing[listed]{
		columns: []column{{title: "ID"}, {title: "STATE"}, {title: "TYPE", long: true},
			{title: "QUEUE", long: true},
			{title: "AGE", right: true}, {title: "TRY", right: true, rank: 2}, {title: "WHEN", rank: 1},
			{title: "ERROR", long: true, rank: 3}, {title: "PRIORITY", right: true, wide: true},
			{title: "WORKER", wide: true}, {title: "CREATED", wide: true}},
		row: func(job listed) []cell {
			try := fmt.Sprintf("%d/%d", job.Attempt, job.MaxAttempts)
			return []cell{of(job.ID), stateCell(job.State), of(job.Type), of(job.Queue),
				of(age(job.CreatedAt, c.now())), of(try), of(timing(job.JobInfo, c.now())),
				of(latestError(job.JobInfo)),
				of(fmt.Sprint(job.Priority)), of(job.worker), of(moment(job.CreatedAt))}
		},
		id:    func(job listed) string { return job.ID },
		value: func(job listed) any { return job.JobInfo },
		none:  "no jobs",
	}
}

// timing is the time that matters of a job: since when it runs or has ended, or when it
// is due.
func timing(job *ojs.JobInfo, now time.Time) string {
	switch job.State {
	case ojs.StateActive:
		return "for " + span(now.Sub(job.StartedAt))
	case ojs.StateScheduled:
		return due(job.ScheduledAt, now)
	case ojs.StateRetryable:
		return due(job.NextRetryAt, now)
	}
	return ago(job.FinishedAt, now)
}

func due(at, now time.Time) string {
	if at.After(now) {
		return ago(at, now)
	}
	return "due"
}

// facets counts jobs by one of their properties.
func (c *call) facets(jobs *inspect.Jobs, f inspect.Filter, by inspect.Facet) error {
	facets, err := jobs.Facets(c.ctx, f, by, 0)
	if err != nil {
		return err
	}
	type row struct {
		Value string `json:"value"`
		N     int    `json:"n"`
		Exact bool   `json:"exact"`
	}
	var rows []row
	for _, v := range facets.Values {
		rows = append(rows, row{v.Value, v.N, facets.Exact})
	}
	return show(c, listing[row]{
		columns: []column{{title: "JOBS", right: true}, {title: strings.ToUpper(string(by)), long: true}},
		row: func(r row) []cell {
			value := of(r.Value)
			if by == inspect.FacetState {
				value = stateCell(r.Value)
			}
			return []cell{of(atLeast(inspect.Count{N: r.N, Exact: r.Exact})), value}
		},
		id:   func(r row) string { return r.Value },
		none: "no jobs",
	}, all(rows), func() []string { return c.looked(facets.Exact, facets.Looked) })
}

// looked says that not all jobs were looked at.
func (c *call) looked(exact bool, n int) []string {
	if exact {
		return nil
	}
	return []string{c.style.paint(dim, "of the "+counted(n, "job")+" that were looked at; there are more")}
}

// count counts jobs.
func (c *call) count(jobs *inspect.Jobs, f inspect.Filter) error {
	n, err := jobs.Count(c.ctx, f, 0)
	if err != nil {
		return err
	}
	value := struct {
		N      int  `json:"n"`
		Exact  bool `json:"exact"`
		Looked int  `json:"looked"`
	}{n.N, n.Exact, n.Looked}
	if !n.Exact && c.style.form == "id" {
		fmt.Fprintln(c.errs, "warning: there are more: not all jobs were counted")
	}
	return c.page(fmt.Sprint(n.N), value, func() []string { return []string{atLeast(n)} })
}
