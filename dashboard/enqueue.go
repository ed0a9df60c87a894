package dashboard

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/ojsengine/ojs"
)

// enqueueData is the form of a new job.
type enqueueData struct {
	Types  []string // that an engine has a handler for or has counted
	Queues []string
}

// enqueueForm shows the form of a new job.
func (h *Handler) enqueueForm(p *page) error {
	if err := h.may(p.r, Action{Do: Enqueue, On: "job"}); err != nil {
		return denied{err}
	}
	types, err := h.types(p, nil)
	if err != nil {
		return err
	}
	data := &enqueueData{}
	for _, row := range types.Types {
		if !slices.Contains(noHandlers, row.Type) {
			data.Types = append(data.Types, row.Type)
		}
	}
	queues, err := h.eng.Queues().List(p.r.Context())
	if err != nil {
		return err
	}
	for _, q := range queues {
		data.Queues = append(data.Queues, q.Name)
	}
	p.Here = "jobs/"
	return p.show("enqueue", p.T("New job"), data)
}

// actOnEnqueue enqueues a job, after a page that shows it.
func (h *Handler) actOnEnqueue(p *page) error {
	p.Here = "jobs/"
	if Verb(p.r.PostFormValue("do")) != Enqueue {
		return ojs.ErrNotFound
	}
	value := func(name string) string { return strings.TrimSpace(p.r.PostFormValue(name)) }
	jobType, queue, args := value("type"), value("queue"), value("args")
	if queue == "" {
		queue = ojs.DefaultQueue
	}
	if args == "" {
		args = "null"
	}
	if err := cmp.Or(ojs.ValidateType(jobType), notOwn(jobType), ojs.ValidateQueue(queue)); err != nil {
		return refusal(err)
	}
	if !json.Valid([]byte(args)) {
		return badField("args", "the text is no JSON")
	}
	c := confirmation{Do: Enqueue, Makes: true, Title: p.T("New job") + ": " + jobType,
		Action: Action{Do: Enqueue, On: "job", Queue: queue, Type: jobType},
		Changes: []change{{p.T("Type"), "", jobType}, {p.T("Queue"), "", queue},
			{p.T("Args"), "", indent([]byte(args))}}}
	opts := []ojs.Option{ojs.WithQueue(queue)}
	at, err := p.moment("at")
	if err != nil {
		return err
	}
	if !at.IsZero() {
		opts = append(opts, ojs.WithScheduledAt(at))
		c.Changes = append(c.Changes, change{p.T("Due"), "", p.plain(at)})
	}
	if value("priority") != "" {
		n, err := p.whole("priority")
		if err != nil {
			return err
		}
		opts = append(opts, ojs.WithPriority(n))
		c.Changes = append(c.Changes, change{p.T("Priority"), "", strconv.Itoa(n)})
	}
	if !p.sure() {
		return p.confirm(c, "type", "queue", "args", "at", "priority")
	}
	if err := h.allowed(p, c.Action, "type", jobType, "queue", queue); err != nil {
		return err
	}
	draft := ojs.NewDraft(jobType, json.RawMessage(compact([]byte(args))), append(opts, p.makes()...)...)
	tickets, err := h.eng.EnqueueMany(p.r.Context(), draft)
	if id, again := p.made(err); again {
		return p.moved(p.Root + "jobs/" + escape(id) + "/?did=again")
	}
	if err != nil {
		return refusal(err)
	}
	return p.moved(p.Root + "jobs/" + escape(tickets[0].ID) + "/?did=enqueue")
}

// notOwn refuses the types of the engine's own jobs.
func notOwn(jobType string) error {
	if slices.Contains(ownTypes, jobType) {
		return badField("type", strconv.Quote(jobType)+
			" is a type of the engine's own jobs: start a workflow in a program")
	}
	return nil
}
