package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ojsengine/ojs/cron"
)

type cronVerb struct {
	List   cronListVerb   `cmd:"" default:"withargs" help:"List recurring jobs."`
	Show   cronShowVerb   `cmd:"" help:"Show one, with its last and next runs."`
	Run    cronRunVerb    `cmd:"" help:"Make a run now."`
	Pause  cronPauseVerb  `cmd:"" help:"Make no more runs."`
	Resume cronResumeVerb `cmd:"" help:"End a pause."`
	Sync   cronSyncVerb   `cmd:"" help:"Make them those of a file."`
}

// cronRow is a recurring job in JSON.
type cronRow struct {
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	Schedule    string    `json:"schedule"`
	TimeZone    string    `json:"time_zone"`
	Type        string    `json:"type"`
	Paused      bool      `json:"paused"`
	Next        time.Time `json:"next,omitzero"`
	Last        time.Time `json:"last,omitzero"`
	Runs        int       `json:"runs"`
	LastJob     string    `json:"last_job,omitempty"`
}

func rowOfCron(e *cron.Entry) cronRow {
	zone := e.TimeZone
	if zone == "" {
		zone = "UTC"
	}
	return cronRow{e.Name, e.Description, e.Schedule, zone, e.Job.Type(), e.Paused, e.NextRun.UTC(),
		e.LastRun.UTC(),
		e.Runs, e.LastJobID}
}

func (c *call) cron() (*cron.Entries, error) {
	eng, err := c.engine()
	if err != nil {
		return nil, err
	}
	return eng.Cron(), nil
}

// cronEntries lists the recurring jobs. A server gives them without their jobs.
func (c *call) cronEntries() ([]cron.Entry, error) {
	cl, err := c.server()
	if err != nil {
		return nil, err
	}
	if cl != nil {
		return cl.Cron().List(c.ctx)
	}
	entries, err := c.cron()
	if err != nil {
		return nil, err
	}
	return entries.List(c.ctx)
}

type cronListVerb struct{}

// Run lists the recurring jobs.
func (cronListVerb) Run(c *call) error {
	list, err := c.cronEntries()
	if err != nil {
		return err
	}
	var rows []cronRow
	for i := range list {
		rows = append(rows, rowOfCron(&list[i]))
	}
	return show(c, listing[cronRow]{
		columns: []column{{title: "NAME", long: true}, {title: "SCHEDULE"}, {title: "ZONE", rank: 2},
			{title: "TYPE", long: true}, {title: "NEXT"}, {title: "LAST"}, {title: "RUNS", right: true,
				rank: 1},
			{title: "DESCRIPTION", long: true, rank: 3}},
		row: func(r cronRow) []cell {
			return []cell{of(r.Name), of(r.Schedule), of(r.TimeZone), of(r.Type), nextRun(r, c.now()),
				of(ago(r.Last, c.now())), of(number(r.Runs)), of(r.Description)}
		},
		id:   func(r cronRow) string { return r.Name },
		none: "no recurring jobs",
	}, all(rows), nil)
}

func nextRun(r cronRow, now time.Time) cell {
	switch {
	case r.Paused:
		return tinted(yellow, "paused")
	case r.Next.IsZero():
		return tinted(dim, "never")
	}
	return of(due(r.Next, now))
}

type cronShowVerb struct {
	Name string `arg:"" help:"The name of the entry."`
	Next int    `default:"5" help:"How many of the next runs to show."`
}

// Run shows a recurring job.
func (v *cronShowVerb) Run(c *call) error {
	entries, err := c.cron()
	if err != nil {
		return err
	}
	e, err := entries.Get(c.ctx, v.Name)
	if err != nil {
		return err
	}
	runs, err := entries.Runs(c.ctx, v.Name)
	if err != nil {
		return err
	}
	next, err := entries.Next(c.ctx, v.Name, v.Next)
	if err != nil {
		return err
	}
	row := rowOfCron(&e)
	return c.page(e.Name, row, func() []string {
		now := c.now()
		lines := c.style.fields([]field{{"name", of(e.Name)}, {"description", of(e.Description)},
			{"schedule", of(e.Schedule + " in " + row.TimeZone)}, {"type", of(e.Job.Type())},
			{"overlap", of(string(e.Overlap))}, {"next", nextRun(row, now)}, {"runs", of(number(e.Runs))}})
		var after, before []string
		for _, t := range next {
			line := t.At.Format("2006-01-02 15:04:05 MST") + "  " + ago(t.At, now)
			if t.Skipped != "" {
				line += "  skipped: " + t.Skipped
			}
			after = append(after, line)
		}
		for _, r := range runs {
			how := "  job " + r.JobID + "  " + string(r.State)
			if r.Skipped != "" {
				how = "  skipped: " + r.Skipped
			}
			if r.Manual {
				how += "  by hand"
			}
			before = append(before, moment(r.Due)+how)
		}
		return append(append(lines, c.section("next runs", after)...), c.section("last runs", before)...)
	})
}

// cronNames are the names of entries.
type cronNames struct {
	Names []string `arg:"" name:"name" help:"Names of entries."`
}

// switcher pauses and resumes entries: of a storage or of a server.
type switcher interface {
	Pause(ctx context.Context, name string) error
	Resume(ctx context.Context, name string) error
}

// each calls f for each name.
func (v *cronNames) each(c *call, did string, f func(s switcher, name string) error) error {
	cl, err := c.server()
	if err != nil {
		return err
	}
	var entries switcher
	if cl != nil {
		entries = cl.Cron()
	} else if entries, err = c.cron(); err != nil {
		return err
	}
	for _, name := range v.Names {
		if err := f(entries, name); err != nil {
			return fmt.Errorf("entry %s: %w", name, err)
		}
		if err := c.done(name, "entry "+name+" is "+did); err != nil {
			return err
		}
	}
	return nil
}

type cronRunVerb struct{ cronNames }

// Run makes runs now.
func (v *cronRunVerb) Run(c *call) error {
	entries, err := c.cron()
	if err != nil {
		return err
	}
	for _, name := range v.Names {
		ticket, err := entries.Trigger(c.acting(), name)
		if err != nil {
			return fmt.Errorf("entry %s: %w", name, err)
		}
		if err := c.done(ticket.ID, "entry "+name+" has enqueued job "+ticket.ID); err != nil {
			return err
		}
	}
	return nil
}

type cronPauseVerb struct{ cronNames }

// Run pauses entries.
func (v *cronPauseVerb) Run(c *call) error {
	return v.each(c, "paused", func(s switcher, name string) error { return s.Pause(c.acting(), name) })
}

type cronResumeVerb struct{ cronNames }

// Run ends the pauses of entries.
func (v *cronResumeVerb) Run(c *call) error {
	return v.each(c, "active", func(s switcher, name string) error { return s.Resume(c.acting(), name) })
}
