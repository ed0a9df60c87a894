package dashboard

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/internal/cronspec"
	"github.com/ojsengine/ojs/internal/foreign"
)

var (
	overlaps = []cron.Overlap{cron.OverlapSkip, cron.OverlapAllow, cron.OverlapCancelPrevious,
		cron.OverlapEnqueue}
	misses = []cron.Missed{cron.MissedOnce, cron.MissedSkip, cron.MissedAll}
)

// cronForm is a recurring entry as its form has it.
type cronForm struct {
	Name, Schedule, TimeZone, Description, Type string
	Overlap, Missed                             string
	Queue                                       string // of a new entry; "": that of the type
	New                                         bool
	editable
}

// Overlaps and Misses are the choices of the form.
func (cronForm) Overlaps() []cron.Overlap { return overlaps }
func (cronForm) Misses() []cron.Missed    { return misses }

// entryOf is the entry that an address names, with its form; new if there is none.
func (h *Handler) entryOf(p *page) (entry cron.Entry, job *ojs.JobInfo, form cronForm, err error) {
	name := p.r.PathValue("name")
	entry, err = h.eng.Cron().Get(p.r.Context(), name)
	if foreign.Is(err, ojs.ErrNotFound) {
		form = cronForm{Name: name, New: true, Overlap: string(cron.OverlapSkip),
			Missed: string(cron.MissedOnce)}
		form.editable.Args = "null"
		return cron.Entry{Name: name}, nil, form, nil
	}
	if err != nil {
		return entry, nil, form, err
	}
	args, err := ojs.NewArgs(entry.Job.Args())
	if err != nil {
		return entry, nil, form, err
	}
	var o ojs.Options
	o.Apply(entry.Job.Options()...)
	job = &ojs.JobInfo{Args: args}
	job.Type, job.Queue, job.Meta = entry.Job.Type(), o.Queue, o.Meta
	form = cronForm{Name: name, Schedule: entry.Schedule, TimeZone: entry.TimeZone,
		Description: entry.Description, Type: entry.Job.Type(), Queue: o.Queue,
		Overlap: string(entry.Overlap), Missed: string(entry.Missed)}
	form.editable, err = h.editable(job)
	form.Was += entry.Schedule + entry.TimeZone + entry.Description
	return entry, job, form, err
}

// cronEdit shows the form of an entry.
func (h *Handler) cronEdit(p *page) error {
	entry, _, form, err := h.entryOf(p)
	if err != nil {
		return err
	}
	if err := h.may(p.r, Action{Do: Set, On: "cron", Name: entry.Name, Type: form.Type}); err != nil {
		return denied{err}
	}
	return p.show("cronedit", entry.Name, &form)
}

// actOnCronEdit makes or changes an entry, after a page that shows the change with the
// next runs.
func (h *Handler) actOnCronEdit(p *page) error {
	entry, job, form, err := h.entryOf(p)
	if err != nil {
		return err
	}
	if Verb(p.r.PostFormValue("do")) != Set {
		return ojs.ErrNotFound
	}
	value := func(name string) string { return strings.TrimSpace(p.r.PostFormValue(name)) }
	if !form.New {
		if err := form.unchanged(p); err != nil {
			return err
		}
	} else if job, err = newJob(value("type")); err != nil {
		return err
	}
	c := confirmation{Do: Set, Title: entry.Name,
		Action: Action{Do: Set, On: "cron", Name: entry.Name, Type: job.Type, Queue: value("queue")}}
	args, err := h.argsOf(p, job, &form.editable)
	if err != nil {
		return err
	}
	switch {
	case form.New:
		if args == nil {
			args = []byte("null")
		}
		var opts []ojs.Option
		if queue := value("queue"); queue != "" {
			opts = append(opts, ojs.WithQueue(queue))
		}
		entry.Job = ojs.NewDraft(job.Type, json.RawMessage(args), opts...)
	case job.Args.Encoded():
		return badField("args", "the args of the entry are encoded: change the entry in its program")
	case args != nil:
		entry.Job = ojs.NewDraft(job.Type, json.RawMessage(args), entry.Job.Options()...)
	}
	for _, f := range []struct {
		name, to string
		at       *string
	}{{"Schedule", value("schedule"), &entry.Schedule}, {"Time zone", value("zone"), &entry.TimeZone},
		{"Description", value("description"), &entry.Description},
		{"If the run before goes on", value("overlap"), (*string)(&entry.Overlap)},
		{"Runs missed", value("missed"), (*string)(&entry.Missed)}} {
		if *f.at != f.to {
			c.Changes = append(c.Changes, change{p.T(f.name), *f.at, f.to})
			*f.at = f.to
		}
	}
	c.Changes = append(c.Changes, changesOf(p, &form.editable, args, nil, nil)...)
	schedule, err := cronspec.Parse(entry.Schedule, entry.TimeZone)
	if err != nil {
		return refusal(err)
	}
	if entry.Gap == cron.GapRun {
		schedule = schedule.RunInGap()
	}
	if words := p.Schedule(entry.Schedule); words != "" {
		c.Notes = append(c.Notes, p.T("Schedule")+": "+words)
	}
	at := p.Now
	for range 3 {
		if at, _ = schedule.Next(at, p.Now); at.IsZero() {
			break
		}
		c.Notes = append(c.Notes, p.T("Next run")+": "+schedule.In(at).Format("2006-01-02 15:04:05 MST"))
	}
	if !p.sure() {
		return p.confirm(c, "type", "queue", "schedule", "zone", "description", "overlap", "missed", "args",
			"was")
	}
	if err := h.allowed(p, c.Action); err != nil {
		return err
	}
	if err := h.eng.Cron().Set(p.r.Context(), entry); err != nil {
		return refusal(err)
	}
	return p.moved("../?did=entry")
}

// newJob is the job of a new entry.
func newJob(jobType string) (*ojs.JobInfo, error) {
	if jobType == "" {
		return nil, refused{fmt.Errorf("type: name the type of the entry's jobs: %w", ojs.ErrInvalid)}
	}
	if err := notOwn(jobType); err != nil {
		return nil, err
	}
	return &ojs.JobInfo{JobHeader: ojs.JobHeader{Type: jobType}}, nil
}
