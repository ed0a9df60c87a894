package dashboard

import (
	"slices"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
)

// maxReason is how long the reason of a pause may be, in bytes.
const maxReason = 300

// pauseOf is the pause of a type, or that of everything for "".
func pauseOf(list []inspect.Pause, jobType string) *inspect.Pause {
	if i := slices.IndexFunc(list, func(p inspect.Pause) bool { return p.Type == jobType }); i >= 0 {
		return &list[i]
	}
	return nil
}

// hold is a pause with the forms that begin and end it.
type hold struct {
	*inspect.Pause        // nil: it is not paused
	Of             string // a type; "": everything
	May            bool   // the request may begin or end it
}

func (h *Handler) holdOf(p *page, list []inspect.Pause, jobType string) hold {
	pause := pauseOf(list, jobType)
	do := Pause
	if pause != nil {
		do = Resume
	}
	return hold{pause, jobType, h.may(p.r, pauseAction(do, jobType)) == nil}
}

func pauseAction(do Verb, jobType string) Action {
	if jobType == "" {
		return Action{Do: do, On: "everything"}
	}
	return Action{Do: do, On: "type", Name: jobType, Type: jobType}
}

// actOnEverything pauses and resumes everything.
func (h *Handler) actOnEverything(p *page) error { return h.actOnHold(p, "") }

// actOnOverview does what a form that posts to the overview asks for.
func (h *Handler) actOnOverview(p *page) error {
	if p.r.PostFormValue("set") == "filter" {
		return p.saveFilter()
	}
	return h.actOnEverything(p)
}

// actOnType pauses and resumes a type.
func (h *Handler) actOnType(p *page) error { return h.actOnHold(p, p.r.PathValue("name")) }

func (h *Handler) actOnHold(p *page, jobType string) error {
	ctx, queues, do := p.r.Context(), h.eng.Queues(), Verb(p.r.PostFormValue("do"))
	reason := strings.TrimSpace(p.r.PostFormValue("reason"))
	if len(reason) > maxReason {
		return badField("reason", "use at most 300 bytes")
	}
	var step func() (known bool, err error)
	switch {
	case do == Pause && jobType == "":
		step = func() (bool, error) { return true, queues.PauseAll(ctx, reason) }
	case do == Pause:
		step = func() (bool, error) { return queues.PauseType(ctx, jobType, reason) }
	case do == Resume && jobType == "":
		step = func() (bool, error) { return true, queues.ResumeAll(ctx) }
	case do == Resume:
		step = func() (bool, error) { return queues.ResumeType(ctx, jobType) }
	default:
		return ojs.ErrNotFound
	}
	if err := h.allowed(p, pauseAction(do, jobType), "reason", reason); err != nil {
		return err
	}
	known, err := step()
	if err != nil {
		return refusal(err)
	}
	return p.moved("./?did=" + did(do, known, "type"))
}
