package dashboard

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
)

var (
	waitingStates = []ojs.State{ojs.StateScheduled, ojs.StateAvailable, ojs.StatePending, ojs.StateRetryable}
	openStates    = append(slices.Clone(waitingStates), ojs.StateActive)
	endedStates   = []ojs.State{ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded}
)

// manyVerb is an operation on many jobs, with the states that a filter may name for it.
type manyVerb struct {
	Do     Verb
	states []ojs.State
}

var manyVerbs = []manyVerb{
	{Retry, []ojs.State{ojs.StateDiscarded, ojs.StateRetryable}},
	{Run, []ojs.State{ojs.StateScheduled, ojs.StateRetryable, ojs.StatePending}},
	{Cancel, openStates},
	{Delete, endedStates},
	{Copy, endedStates},
	{Move, waitingStates},
	{Reschedule, []ojs.State{ojs.StateScheduled, ojs.StateAvailable, ojs.StateRetryable}},
	{Prioritize, []ojs.State{ojs.StateAvailable, ojs.StateScheduled}},
}

// ManyVerbs are the operations on many that are for jobs in these states and that the
// request may do; no state is any.
func (p *page) ManyVerbs(states ...ojs.State) []Verb {
	var out []Verb
	for _, v := range manyVerbs {
		other := slices.ContainsFunc(states, func(s ojs.State) bool { return !slices.Contains(v.states, s) })
		if !other && p.May(v.Do, "jobs", "", "", "") {
			out = append(out, v.Do)
		}
	}
	return out
}

// many is an operation on many that a request asks for: one after another, on the jobs of
// its ids or on all of its filter.
type many struct {
	Do     Verb
	Action Action
	All    bool   // that the filter selects
	Line   string // the filter, with times that do not move
	Link   string // where the jobs are listed, below the overview
	Fields []hiddenField
	Bulks  []operate.Bulk
	First  func(context.Context) error // what the run does before Bulks; nil: nothing
}

func isPattern(s string) bool { return s == "" || s[0] == '*' || s[len(s)-1] == '*' }

// manyOf reads an operation on many. A value that a form has yet to ask for, such as the
// queue to move to, may be missing until the form is posted.
func (h *Handler) manyOf(p *page) (many, error) {
	if err := p.r.ParseForm(); err != nil {
		return many{}, refused{fmt.Errorf("the form cannot be read: %w", err)}
	}
	m := many{Do: Verb(p.r.FormValue("do"))}
	if !slices.ContainsFunc(manyVerbs, func(v manyVerb) bool { return v.Do == m.Do }) {
		return m, ojs.ErrNotFound
	}
	var f inspect.Filter
	m.Fields = []hiddenField{{"do", string(m.Do)}}
	if p.r.FormValue("all") != "" {
		var err error
		if f, err = inspect.Parse(p.r.FormValue("q"), p.Now); err != nil {
			return m, refused{err}
		}
		f.Order = inspect.OrderOldest
		m.All, m.Line = true, f.String()
		m.Fields = append(m.Fields, hiddenField{"all", "1"}, hiddenField{"q", m.Line})
	} else {
		f.IDs = p.r.Form["id"]
		if len(f.IDs) == 0 || len(f.IDs) > 1000 || slices.ContainsFunc(f.IDs, isPattern) {
			return m, refused{fmt.Errorf("no job is selected: %w", ojs.ErrInvalid)}
		}
		m.Line = f.String()
		for _, id := range f.IDs {
			m.Fields = append(m.Fields, hiddenField{"id", id})
		}
	}
	if m.Link = "jobs/"; m.All {
		m.Link += "?q=" + escape(m.Line)
	}
	if p.r.FormValue("from") == "due/" {
		m.Link = "due/"
		m.Fields = append(m.Fields, hiddenField{"from", m.Link})
	}
	m.Action = Action{Do: m.Do, On: "jobs"}
	if len(f.Queues) == 1 {
		m.Action.Queue = f.Queues[0]
	}
	if len(f.Types) == 1 && !isPattern(f.Types[0]) {
		m.Action.Type = f.Types[0]
	}
	if err := h.may(p.r, m.Action); err != nil {
		return m, denied{err}
	}
	return m, m.steps(p, f)
}

// steps fills in what is done to the jobs of a filter.
func (m *many) steps(p *page, f inspect.Filter) error {
	add := func(do operate.Action) { m.Bulks = append(m.Bulks, operate.Bulk{Do: do, On: f}) }
	switch m.Do {
	case Retry:
		add(operate.RetryJobs())
	case Cancel:
		add(operate.CancelJobs())
	case Delete:
		add(operate.DeleteJobs())
	case Purge: // what has not been cancelled cannot be deleted
		add(operate.CancelJobs())
		add(operate.DeleteJobs())
	case Copy:
		add(operate.CopyJobs())
	case Run: // a pending job is activated, one that waits for its time gets another
		asked := f.States
		if f.States = common(asked, ojs.StatePending); len(f.States) > 0 {
			add(operate.ActivateJobs())
		}
		if f.States = common(asked, ojs.StateScheduled, ojs.StateRetryable); len(f.States) > 0 {
			add(operate.RescheduleJobs(p.Now))
		}
		if len(m.Bulks) == 0 {
			return badField("filter", "it names no state of jobs that wait for a time or to be activated")
		}
	case Move:
		queue := strings.TrimSpace(p.r.FormValue("queue"))
		if queue == "" && !p.posted() {
			queue = "default"
		} else if err := ojs.ValidateQueue(queue); err != nil {
			return refusal(err)
		}
		other := m.Action // the permission is needed in both queues
		other.Queue = queue
		if err := p.h.may(p.r, other); p.posted() && err != nil {
			return denied{err}
		}
		add(operate.MoveJobs(queue))
	case Reschedule:
		at, err := p.moment("at")
		if err != nil {
			return err
		}
		if at.IsZero() {
			at = p.Now
		}
		add(operate.RescheduleJobs(at))
	case Prioritize:
		priority := 0
		if p.posted() {
			var err error
			if priority, err = p.whole("priority"); err != nil {
				return err
			}
		}
		add(operate.PrioritizeJobs(priority))
	}
	if !p.posted() {
		return nil
	}
	return m.pace(p)
}

// pace fills in how many jobs the form limits the operation to, and how far apart they
// are.
func (m *many) pace(p *page) error {
	limit := 0
	if strings.TrimSpace(p.r.PostFormValue("limit")) != "" {
		var err error
		if limit, err = p.whole("limit"); err == nil && limit < 1 {
			err = badField("limit", "use a number from 1 on, or nothing for all")
		}
		if err != nil {
			return err
		}
	}
	ms, err := strconv.Atoi(p.r.PostFormValue("every"))
	if err != nil || ms < 0 || ms > 60_000 {
		ms = 0
	}
	for i := range m.Bulks {
		m.Bulks[i].Limit, m.Bulks[i].Every = limit, time.Duration(ms)*time.Millisecond
	}
	return nil
}

// posted reports whether the request is a form, which has every value.
func (p *page) posted() bool { return p.r.Method == "POST" }

// common are the states that a filter names among these; all of these if it names none.
func common(asked []ojs.State, states ...ojs.State) []ojs.State {
	if len(asked) == 0 {
		return states
	}
	return slices.DeleteFunc(states, func(s ojs.State) bool { return !slices.Contains(asked, s) })
}

// Starts reports whether the operation has jobs run, so that their number and their pace
// matter.
func (m *many) Starts() bool { return m.Do == Retry || m.Do == Run || m.Do == Copy }

// Danger reports whether the operation loses what no other one brings back.
func (m *many) Danger() bool { return m.Do == Cancel || m.Do == Delete || m.Do == Purge }
