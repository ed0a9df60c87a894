package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
)

type jobVerb struct {
	ID   string `arg:"" help:"The id of the job."`
	Logs bool   `help:"Show what its last attempts have logged."`
}

// Run shows a job: what it is, its attempts, and what is to come.
func (v *jobVerb) Run(c *call) error {
	cl, err := c.server()
	if err != nil {
		return err
	}
	if cl != nil {
		return v.ofServer(c, cl)
	}
	jobs, err := c.jobs()
	if err != nil {
		return err
	}
	t, err := jobs.Timeline(c.ctx, v.ID)
	if err != nil {
		return err
	}
	var logs []inspect.AttemptLog
	if v.Logs {
		if logs, err = jobs.Logs(c.ctx, v.ID); err != nil {
			return err
		}
	}
	return c.jobPage(t, logs, v.Logs)
}

// jobPage writes a job.
func (c *call) jobPage(t *inspect.Timeline, logs []inspect.AttemptLog, withLogs bool) error {
	return c.page(t.Job.ID, t.Job, func() []string {
		lines := c.style.fields(jobFields(t, c.now()))
		lines = append(lines, c.section("args", jsonLines(argsOf(t.Job)))...)
		if len(t.Job.Result) > 0 {
			lines = append(lines, c.section("result", jsonLines(t.Job.Result))...)
		}
		lines = append(lines, c.attempts(t)...)
		lines = append(lines, c.notes(t)...)
		if withLogs {
			lines = append(lines, c.section("logs", logLines(logs))...)
		}
		return lines
	})
}

func jobFields(t *inspect.Timeline, now time.Time) []field {
	job := t.Job
	state := stateCell(job.State)
	if job.DeadLettered() {
		state.text += ", a dead letter"
	}
	progress := ""
	if job.Progress > 0 && job.Progress < 1 {
		progress = fmt.Sprintf("%.0f %%", job.Progress*100)
	}
	jobType := job.Type
	if job.TypeVersion != "" {
		jobType += ", version " + job.TypeVersion
	}
	list := []field{{"id", of(job.ID)}, {"state", state}, {"type", of(jobType)}, {"queue", of(job.Queue)},
		{"attempt", of(fmt.Sprintf("%d of %d", job.Attempt, job.MaxAttempts))}, {"progress", of(progress)},
		{"error", tinted(red, latestError(job))}, {"worker", of(t.Worker)}}
	if job.Priority != 0 {
		list = append(list, field{"priority", of(fmt.Sprint(job.Priority))})
	}
	list = append(list, field{"created", of(when(job.CreatedAt, now))},
		field{"scheduled", of(when(job.ScheduledAt, now))}, field{"started", of(when(job.StartedAt, now))},
		field{"next retry", of(when(job.NextRetryAt, now))}, field{"lease until",
			of(when(t.LeaseUntil, now))},
		field{"deadline", of(when(t.Deadline, now))}, field{"ended", of(when(job.FinishedAt, now))},
		field{"timeout", of(period(job.Timeout))})
	if job.RateLimit != nil {
		list = append(list, field{"limit", of("key " + job.RateLimit.Key + ", " + bounds(*job.RateLimit))})
	}
	if d := job.Dependencies; d != nil {
		list = append(list, field{"waits for", of(counted(d.Unfinished, "job"))},
			field{"ordering key", of(d.OrderingKey)})
	}
	if job.Unique != nil {
		list = append(list, field{"unique", of("yes")})
	}
	if len(job.Meta) > 0 {
		meta, _ := json.Marshal(job.Meta) // it was JSON
		list = append(list, field{"meta", of(string(meta))})
	}
	return list
}

func argsOf(job *ojs.JobInfo) []byte {
	b, err := json.Marshal(job.Args)
	if err != nil {
		return []byte(`"` + err.Error() + `"`)
	}
	return b
}

// jsonLines are the lines of JSON for a person.
func jsonLines(b []byte) []string {
	var value json.RawMessage = b
	pretty, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return []string{clean(string(b))}
	}
	if len(b) < 60 {
		return []string{clean(string(b))}
	}
	var lines []string
	for line := range strings.SplitSeq(string(pretty), "\n") {
		lines = append(lines, clean(line))
	}
	return lines
}

// section has a title above lines.
func (c *call) section(title string, lines []string) []string {
	if len(lines) == 0 {
		return nil
	}
	out := []string{"", c.style.paint(dim, title)}
	for _, line := range lines {
		out = append(out, "  "+line)
	}
	return out
}

func (c *call) attempts(t *inspect.Timeline) []string {
	var rows [][]cell
	now, others := c.now(), false
	for i := range t.Attempts {
		a := &t.Attempts[i]
		took := ""
		if d := a.Duration(now); d > 0 {
			took = span(d)
		}
		at, text := a.End, ""
		if at.IsZero() {
			at = a.Start
		}
		if a.Failure != nil {
			text = failureText(a.Failure)
		}
		worker := a.Worker
		if worker == t.Worker {
			worker = "" // the page has it
		}
		others = others || worker != ""
		rows = append(rows, []cell{of(fmt.Sprint(a.N)), outcomeCell(a.Outcome), of(moment(at)), of(took),
			of(text), of(worker)})
	}
	for i, next := range t.Next {
		if i == 3 {
			rows = append(rows, []cell{of("…"), {}, {}, {}, of("and " + number(len(t.Next)-i) + " more"), {}})
			break
		}
		rows = append(rows, []cell{of(fmt.Sprint(next.N)), tinted(blue, "to come"), of(moment(next.At)), {},
			of(ago(next.At, now)), {}})
	}
	if len(rows) == 0 {
		return nil
	}
	narrow := c.style
	narrow.width = max(0, narrow.width-2)
	return c.section("attempts", narrow.lines([]column{{title: "N", right: true}, {title: "OUTCOME"},
		{title: "AT"}, {title: "TOOK", right: true}, {title: "", long: true},
		{title: "WORKER", long: true, wide: !others}}, rows))
}

func outcomeCell(o inspect.AttemptOutcome) cell {
	switch o {
	case inspect.OutcomeFailed:
		return tinted(red, string(o))
	case inspect.OutcomeCompleted:
		return tinted(green, string(o))
	case inspect.OutcomeRunning:
		return tinted(cyan, string(o))
	}
	return of(string(o))
}

func (c *call) notes(t *inspect.Timeline) []string {
	var lines []string
	for _, n := range t.Notes {
		line := moment(n.At) + "  " + string(n.What)
		if n.Text != "" {
			line += ": " + clean(n.Text)
		}
		if n.By != "" {
			line += ", by " + clean(n.By)
		}
		lines = append(lines, line)
	}
	return c.section("changes", lines)
}

func logLines(logs []inspect.AttemptLog) (lines []string) {
	for _, l := range logs {
		if l.Encoded != nil {
			lines = append(lines, fmt.Sprintf("attempt %d: the log is encoded", l.Attempt))
		}
		for _, line := range l.Lines {
			lines = append(lines, fmt.Sprintf("%d  %s", l.Attempt, clean(string(line))))
		}
	}
	if lines == nil {
		lines = []string{"none are kept: give the engines engine.WithJobLogs"}
	}
	return lines
}
