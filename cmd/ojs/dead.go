package main

import (
	"fmt"

	"github.com/ojsengine/ojs/inspect"
)

type deadVerb struct{ jobsVerb }

func (deadVerb) Help() string {
	return `Dead letters are the jobs that were kept for a person; the longest dead come first.
"ojs retry dead:true" runs them again.

` + filterHelp
}

// Run lists dead letters.
func (v *deadVerb) Run(c *call) error {
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
	f.DeadLettered = true
	if cl != nil {
		return v.ofServer(c, cl, deadListing(c), f)
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
	n, next := 0, ""
	return show(c, deadListing(c), v.pages(c, jobs, f, &n, &next), func() []string { return c.more(n, next) })
}

// deadListing is how dead letters are listed.
func deadListing(c *call) listing[listed] {
	l := jobListing(c)
	l.columns = []column{{title: "ID"}, {title: "DEAD", right: true}, {title: "TYPE", long: true},
		{title: "QUEUE", long: true, rank: 1}, {title: "TRY", right: true, rank: 2}, {title: "ERROR",
			long: true}}
	l.row = func(job listed) []cell {
		return []cell{of(job.ID), of(age(job.DeadLetteredAt, c.now())), of(job.Type), of(job.Queue),
			of(fmt.Sprintf("%d/%d", job.Attempt, job.MaxAttempts)), tinted(red, latestError(job.JobInfo))}
	}
	l.none = "no dead letters"
	return l
}
