package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage"
)

type tailVerb struct {
	filterArgs
	Since string        `default:"0s" placeholder:"TIME" help:"Begin with what has happened in this time."`
	Every time.Duration `default:"1s" help:"How often to read the storage."`
	Once  bool          `help:"End after the first scan."`
}

func (tailVerb) Help() string {
	return `It shows jobs that are enqueued, start, fail and end. It reads the storage again and again: of a
job that starts and fails between two scans it shows both, and of more than 1,000 new jobs
between two scans the last 1,000.

` + filterHelp
}

// happening is something that has happened to a job.
type happening struct {
	At    time.Time `json:"at"`
	What  string    `json:"what"` // enqueued, started, failed or a terminal state
	ID    string    `json:"id"`
	Type  string    `json:"type"`
	Queue string    `json:"queue"`
	Try   int       `json:"attempt,omitempty"`
	Error string    `json:"error,omitempty"`
	Took  float64   `json:"took_seconds,omitempty"`
}

// overlap is how far each scan goes back behind the one before: a transaction may commit
// after its time.
const overlap = 10 * time.Second

var errTooOften = errors.New("--every is less than 100ms")

// mostOfScan bounds the jobs of each listing of a scan.
const mostOfScan = 1000

// Run shows what happens to jobs until it is stopped.
func (v *tailVerb) Run(c *call) error {
	jobs, err := c.jobs()
	if err != nil {
		return err
	}
	f, err := v.filter(c)
	if err != nil {
		return err
	}
	q, err := f.Query()
	if err != nil {
		return err
	}
	since, err := parseSpan(v.Since)
	if err != nil || since < 0 {
		return usageError{fmt.Errorf("--since takes a duration such as 90s, 2h or 3d, and not %q", v.Since)}
	}
	if v.Every < 100*time.Millisecond {
		return usageError{fixError{errTooOften, "give --every 100ms or more"}}
	}
	t := tail{call: c, jobs: jobs, q: q, begin: c.now().Add(-since), shown: make(map[happening]bool)}
	t.from = t.begin
	out := jsonArray{w: c.out}
	for {
		list, err := t.scan()
		if err != nil {
			return err
		}
		for _, h := range list {
			if err := t.tell(&out, h); err != nil {
				return err
			}
		}
		if v.Once || !c.wait(v.Every) {
			break
		}
	}
	if c.style.form == "json" {
		if err := out.end(); err != nil {
			return err
		}
	}
	return c.ctx.Err()
}

// tail reads what happens to the jobs of a query.
type tail struct {
	*call
	jobs  *inspect.Jobs
	q     storage.Query
	begin time.Time // nothing before it is shown
	from  time.Time // of the next scan
	shown map[happening]bool

	warned bool // that not all jobs are shown
}

// scan returns what has happened since the scan before, in the order of its times.
func (t *tail) scan() (list []happening, err error) {
	now := t.now()
	add := func(r *storage.Record) {
		for _, h := range happenings(r) {
			if !h.At.Before(t.from) && !t.shown[h] {
				t.shown[h] = true
				list = append(list, h)
			}
		}
	}
	for _, at := range []struct {
		f    inspect.Filter
		time func(r *storage.Record) time.Time // falls in the order of the listing
	}{
		{inspect.Filter{Order: inspect.OrderNewest},
			func(r *storage.Record) time.Time { return r.CreatedAt }},
		{inspect.Filter{Order: inspect.OrderFinished},
			func(r *storage.Record) time.Time { return r.FinishedAt }},
		{inspect.Filter{States: []ojs.State{ojs.StateActive, ojs.StateRetryable}}, nil},
	} {
		n, older := 0, 0
		for r, err := range t.jobs.Records(t.ctx, at.f) {
			if err != nil {
				return nil, err
			}
			if at.time != nil && at.time(r).Before(t.from) {
				older++ // clocks differ: a few older jobs are no end
			} else {
				older = 0
			}
			if n >= mostOfScan && at.time == nil && !t.warned {
				t.warned = true
				fmt.Fprintf(t.errs, "warning: of active and retryable jobs only the oldest %s are shown\n",
					number(mostOfScan))
			}
			if older >= 50 || n >= mostOfScan {
				break
			}
			if n++; t.q.Matches(r) {
				add(r)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b happening) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID))
	})
	if t.from = now.Add(-overlap); t.from.Before(t.begin) {
		t.from = t.begin
	}
	for h := range t.shown {
		if h.At.Before(t.from) {
			delete(t.shown, h)
		}
	}
	return list, nil
}

// happenings are what the record of a job tells of.
func happenings(r *storage.Record) []happening {
	h := happening{ID: r.ID, Type: r.Type, Queue: r.Queue}
	at := func(t time.Time, what string, try int, text string, took time.Duration) happening {
		h.At, h.What, h.Try, h.Error, h.Took = t.UTC(), what, try, text, max(took.Seconds(), 0)
		return h
	}
	list := []happening{at(r.CreatedAt, "enqueued", 0, "", 0)}
	for i := range r.Errors {
		f := &r.Errors[i]
		if !f.StartedAt.IsZero() {
			list = append(list, at(f.StartedAt, "started", f.Attempt, "", 0))
		}
		if last := i == len(r.Errors)-1; !last || r.State != ojs.StateDiscarded {
			list = append(list, at(f.At, "failed", f.Attempt, failureText(f), took(f.StartedAt, f.At)))
		}
	}
	if !r.StartedAt.IsZero() && (r.State == ojs.StateActive || r.State.Terminal()) {
		list = append(list, at(r.StartedAt, "started", r.Attempt, "", 0))
	}
	if r.State.Terminal() {
		text := ""
		if r.State == ojs.StateDiscarded {
			text = latestError(&r.JobInfo)
		}
		list = append(list, at(r.FinishedAt, string(r.State), r.Attempt, text,
			took(r.StartedAt, r.FinishedAt)))
	}
	return list
}

func took(start, end time.Time) time.Duration {
	if start.IsZero() {
		return 0
	}
	return end.Sub(start)
}

func (t *tail) tell(out *jsonArray, h happening) error {
	switch t.style.form {
	case "json":
		return out.add(h)
	case "ndjson":
		return t.json(h, "")
	case "id":
		return write(t.out, h.ID)
	}
	what := tintOf(h.What)
	if h.What == "failed" {
		what = yellow
	}
	if h.What == "started" {
		what = cyan
	}
	took := ""
	if h.Took > 0 {
		took = span(time.Duration(h.Took * float64(time.Second)))
	}
	line := h.At.Format("15:04:05") + "  " + t.style.paint(what, pad(h.What, 9, false)) + "  " + h.ID + "  "
	room := t.style.width - widthOf(h.At.Format("15:04:05")) - 9 - len(h.ID) - 6
	rest := clean(h.Type)
	for _, s := range []string{took, clean(h.Error)} {
		if s != "" {
			rest += "  " + s
		}
	}
	if t.style.width > 0 && room > 10 && t.style.form != "wide" {
		rest = cut(rest, room)
	}
	return write(t.out, line+rest)
}
