package dashboard

import (
	"context"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/workflow"
)

// maxForm is how large the body of a post may be, in bytes.
const maxForm = 1 << 20

// allowed checks the permission for an action and logs it. It is called right before the
// action is done.
func (h *Handler) allowed(p *page, a Action, more ...any) error {
	if err := h.may(p.r, a); err != nil {
		return denied{err}
	}
	args := append([]any{"do", a.Do, "on", a.On, "name", a.Name, "actor", ojs.Actor(p.r.Context())}, more...)
	if h.name != "" {
		args = append(args, "engine", h.name)
	}
	h.conf.log.InfoContext(p.r.Context(), "ojs: dashboard: action", args...)
	return nil
}

// refused is an action that the engine has refused: not a failure of the page.
type refused struct{ error }

// refusal marks the errors that tell an operator what was wrong with an action.
func refusal(err error) error {
	var state *ojs.TransitionError
	var queue *ojs.QueueError
	var double *ojs.DuplicateError
	if foreign.Is(err, ojs.ErrInvalid) || foreign.As(err, &state) || foreign.As(err, &queue) ||
		foreign.As(err, &double) {
		return refused{err}
	}
	return err
}

// jobActions are the actions that a job in a state takes.
func jobActions(job *ojs.JobInfo) []Verb {
	if job.Type == workflow.Type { // the page of the workflow has what can be done to it
		if job.State.Terminal() {
			return []Verb{Delete}
		}
		return nil
	}
	switch job.State {
	case ojs.StateDiscarded:
		if job.Meta[workflow.MetaWorkflow] != nil { // its workflow is retried, not the step
			return []Verb{Copy, Delete}
		}
		return []Verb{Retry, Copy, Delete}
	case ojs.StateCompleted, ojs.StateCancelled:
		return []Verb{Copy, Delete}
	case ojs.StateRetryable:
		return []Verb{Retry, Cancel}
	case ojs.StateScheduled:
		return []Verb{Run, Cancel}
	case ojs.StatePending:
		if job.Dependencies == nil { // nothing but its jobs ends the wait of one that depends
			return []Verb{Run, Cancel}
		}
		if job.Dependencies.Join { // its workflow is cancelled as a whole
			return nil
		}
	}
	return []Verb{Cancel}
}

// actOnJob does what a form of a job's page asks for.
func (h *Handler) actOnJob(p *page) error {
	ctx, id, do := p.r.Context(), p.r.PathValue("id"), Verb(p.r.PostFormValue("do"))
	job, err := h.eng.Get(ctx, id)
	if err != nil {
		return err
	}
	if !slices.Contains([]Verb{Retry, Cancel, Delete, Run, Copy}, do) {
		return ojs.ErrNotFound
	}
	action := Action{Do: do, On: "job", Name: id, Queue: job.Queue, Type: job.Type}
	if err := h.allowed(p, action); err != nil {
		return err
	}
	to := "./"
	switch do {
	case Retry:
		err = h.eng.Jobs().Retry(ctx, id)
	case Cancel:
		err = h.eng.Cancel(ctx, id)
	case Delete:
		if err = h.eng.Jobs().Delete(ctx, id); err == nil {
			return p.moved("../?did=delete")
		}
	case Run:
		if job.State == ojs.StatePending {
			err = h.eng.Jobs().Activate(ctx, id)
		} else {
			err = h.eng.Jobs().Reschedule(ctx, id, p.Now)
		}
	case Copy:
		var ticket ojs.Ticket
		if ticket, err = h.eng.Jobs().Copy(ctx, id, nil); err == nil {
			to = "../" + ticket.ID + "/"
		}
	}
	if err != nil {
		return refusal(err)
	}
	return p.moved(to + "?did=" + string(do))
}

// actOnQueue does what a form of a queue's page asks for.
func (h *Handler) actOnQueue(p *page) error {
	name, do := p.r.PathValue("name"), Verb(p.r.PostFormValue("do"))
	steps := map[Verb]func(context.Context, string) (known bool, err error){
		Pause: h.eng.Queues().Pause, Resume: h.eng.Queues().Resume, Drain: h.eng.Queues().Drain}
	step, ok := steps[do]
	if !ok {
		return ojs.ErrNotFound
	}
	if err := h.allowed(p, Action{Do: do, On: "queue", Name: name, Queue: name}); err != nil {
		return err
	}
	known, err := step(p.r.Context(), name)
	if err != nil {
		return refusal(err)
	}
	return p.moved("./?did=" + did(do, known, "queue"))
}
