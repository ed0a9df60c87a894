package dashboard

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/workflow"
)

// The page of changes of a job never writes a redacted value back:
//
//  1. Args that the redactor has changed are not in the form. An empty field keeps them.
//  2. Entries of meta that the redactor has changed are not in the form, and are refused.
//  3. Only what differs from what the form had is written.
//  4. The form has a sum of what it was made of. If the job is another by then, the
//     change is refused.

// maxEditable is how large the args and the meta may be that a form has, in bytes.
const maxEditable = 64 << 10

// editable is a job as the form has it.
type editable struct {
	Args     string // indented JSON; "" if Withheld is not
	Withheld string // why the form has no args
	Meta     string // indented JSON, without the entries of Hidden
	Hidden   []string
	Was      string // the sum of the rest
}

func (h *Handler) editable(job *ojs.JobInfo) (e editable, err error) {
	shown := h.shown(job)
	raw := job.Args.JSON()
	switch {
	case job.Args.Encoded():
		e.Withheld = "The args are encoded."
	case !sameJSON(raw, shown.Args.JSON()):
		e.Withheld = "The args are redacted."
	case len(raw) > maxEditable:
		e.Withheld = "The args are too large for a form."
	default:
		e.Args = indent(raw)
	}
	meta := make(map[string]any)
	for key, value := range job.Meta {
		have, err := json.Marshal(value)
		if err != nil {
			return e, err
		}
		if other, ok := shown.Meta[key]; ok {
			if b, err := json.Marshal(other); err == nil && sameJSON(have, b) {
				meta[key] = value
				continue
			}
		}
		e.Hidden = append(e.Hidden, key)
	}
	slices.Sort(e.Hidden)
	b, err := json.Marshal(meta)
	if err != nil {
		return e, err
	}
	e.Meta = indent(b)
	sum := sha256.Sum256([]byte(e.Args + "\x00" + e.Meta + "\x00" + string(job.State) + "\x00" + job.Queue))
	e.Was = hex.EncodeToString(sum[:8])
	return e, nil
}

func indent(raw []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}

func compact(raw []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

func sameJSON(a, b []byte) bool { return bytes.Equal(compact(a), compact(b)) }

// changes are the verbs of the page for a job, as far as its state permits them.
func changes(job *ojs.JobInfo) []Verb {
	if job.Type == workflow.Type {
		return nil
	}
	var out []Verb
	if job.State == ojs.StateAvailable || job.State == ojs.StateScheduled {
		out = append(out, Prioritize)
	}
	if job.State.Waiting() {
		if out = append(out, Move); job.State != ojs.StatePending {
			out = append(out, Reschedule)
		}
		out = append(out, Edit)
	}
	if job.State == ojs.StateDiscarded && job.Meta[workflow.MetaWorkflow] == nil {
		out = append(out, Retry)
	}
	return append(out, Copy)
}

// mayChange are the verbs of the page that the request may do.
func (p *page) mayChange(job *ojs.JobInfo) (out []Verb) {
	for _, do := range changes(job) {
		if p.May(do, "job", job.ID, job.Queue, job.Type) {
			out = append(out, do)
		}
	}
	return out
}

type editData struct {
	Job *ojs.JobInfo
	editable
	Verbs []Verb
	At    string // when it is due, as a field of a form has it
}

// edit shows the forms that change a job.
func (h *Handler) edit(p *page) error {
	job, err := h.eng.Get(p.r.Context(), p.r.PathValue("id"))
	if err != nil {
		return err
	}
	data := &editData{Job: h.shown(job), Verbs: p.mayChange(job)}
	if len(data.Verbs) == 0 {
		return ojs.ErrNotFound
	}
	if data.editable, err = h.editable(job); err != nil {
		return err
	}
	at := job.ScheduledAt
	if job.State == ojs.StateRetryable {
		at = job.NextRetryAt
	}
	if !at.IsZero() {
		data.At = at.In(p.Zone).Format("2006-01-02T15:04:05")
	}
	return p.show("edit", p.T("Change")+": "+job.Type, data)
}

// actOnEdit changes a job, after a page that shows what would change.
func (h *Handler) actOnEdit(p *page) error {
	ctx, id, do := p.r.Context(), p.r.PathValue("id"), Verb(p.r.PostFormValue("do"))
	job, err := h.eng.Get(ctx, id)
	if err != nil {
		return err
	}
	if !slices.Contains([]Verb{Copy, Edit, Move, Reschedule, Prioritize, Retry}, do) {
		return ojs.ErrNotFound
	}
	c := confirmation{Do: do, Title: p.T(verbNames[do]) + ": " + job.Type,
		Action: Action{Do: do, On: "job", Name: id, Queue: job.Queue, Type: job.Type}}
	e, err := h.editable(job)
	if err != nil {
		return err
	}
	jobs, to := h.eng.Jobs(), "../?did="+string(do)
	var step func() error
	queue := strings.TrimSpace(p.r.PostFormValue("queue"))
	switch do {
	case Prioritize:
		n, err := p.whole("priority")
		if err != nil {
			return err
		}
		c.Changes = []change{{p.T("Priority"), strconv.Itoa(job.Priority), strconv.Itoa(n)}}
		step = func() error { return jobs.SetPriority(ctx, id, n) }
	case Move:
		c.Changes = []change{{p.T("Queue"), job.Queue, queue}}
		step = func() error { return jobs.Move(ctx, id, queue) }
	case Reschedule:
		at, err := p.moment("at")
		if err != nil {
			return err
		}
		if at.IsZero() {
			at = p.Now
		}
		before := job.ScheduledAt
		if job.State == ojs.StateRetryable {
			before = job.NextRetryAt
		}
		c.Changes = []change{{p.T("Due"), p.plain(before), p.plain(at)}}
		step = func() error { return jobs.Reschedule(ctx, id, at) }
	case Edit:
		if err := e.unchanged(p); err != nil {
			return err
		}
		args, err := h.argsOf(p, job, &e)
		if err != nil {
			return err
		}
		meta, err := e.metaOf(p)
		if err != nil {
			return err
		}
		if args == nil && len(meta) == 0 {
			return refused{fmt.Errorf("the form changes nothing: %w", ojs.ErrInvalid)}
		}
		c.Changes = changesOf(p, &e, args, meta, job.Meta)
		step = func() error { return jobs.Edit(ctx, id, operate.Edit{Args: given(args), Meta: meta}) }
	case Retry:
		n, err := p.whole("priority")
		if err != nil {
			return err
		}
		c.Changes = []change{{p.T("Queue"), job.Queue, queue},
			{p.T("Priority"), strconv.Itoa(job.Priority), strconv.Itoa(n)}}
		step = func() error {
			return jobs.Retry(ctx, id, ojs.WithQueue(queue), ojs.WithPriority(n))
		}
	case Copy:
		args, err := h.argsOf(p, job, &e)
		if err != nil {
			return err
		}
		var opts []ojs.Option
		c.Changes = changesOf(p, &e, args, nil, nil)
		if queue != "" && queue != job.Queue {
			opts = append(opts, ojs.WithQueue(queue))
			c.Changes = append(c.Changes, change{p.T("Queue"), job.Queue, queue})
		}
		c.Makes = true
		c.Notes = []string{p.T("A copy is a new job. The job that is copied stays as it is.")}
		step = func() error {
			ticket, err := jobs.Copy(ctx, id, given(args), append(opts, p.makes()...)...)
			to = "../../" + ticket.ID + "/?did=copy"
			if first, again := p.made(err); again {
				to = "../../" + first + "/?did=again"
				return nil
			}
			return err
		}
	}
	other := c.Action // a job that goes to another queue needs the permission there too
	if (do == Move || do == Copy || do == Retry) && queue != "" {
		other.Queue = queue
		if err := h.may(p.r, other); err != nil {
			return denied{err}
		}
	}
	if !p.sure() {
		return p.confirm(c, "priority", "queue", "at", "args", "meta", "was")
	}
	if err := h.allowed(p, c.Action); err != nil {
		return err
	}
	if err := step(); err != nil {
		return refusal(err)
	}
	return p.moved(to)
}

// given is args for a call, which takes nil for none.
func given(args []byte) any {
	if args == nil {
		return nil
	}
	return json.RawMessage(args)
}

// unchanged refuses a form that was made of another state of the job.
func (e *editable) unchanged(p *page) error {
	if p.r.PostFormValue("was") != e.Was {
		return refused{errors.New("the job has changed since the form was made: open the form again")}
	}
	return nil
}

// argsOf are the args of the form; nil: they stay as they are.
func (h *Handler) argsOf(p *page, job *ojs.JobInfo, e *editable) ([]byte, error) {
	text := strings.TrimSpace(p.r.PostFormValue("args"))
	switch {
	case text == "" && e.Withheld == "":
		return nil, badField("args", "an empty field is no JSON; write null for none")
	case text == "":
		return nil, nil
	case !json.Valid([]byte(text)):
		return nil, badField("args", "the text is no JSON")
	}
	args := compact([]byte(text))
	switch {
	case e.Withheld == "" && bytes.Equal(args, compact([]byte(e.Args))):
		return nil, nil
	case e.Withheld != "" && bytes.Equal(args, compact(h.shown(job).Args.JSON())):
		return nil, badField("args", "these are the redacted args, not those of the job")
	}
	return args, nil
}

// metaOf are the entries of meta that the form changes, as an operate.Edit has them.
func (e *editable) metaOf(p *page) (map[string]any, error) {
	var had, has map[string]json.RawMessage
	text := strings.TrimSpace(p.r.PostFormValue("meta"))
	if text == "" {
		text = "{}"
	}
	if json.Unmarshal([]byte(text), &has) != nil || has == nil {
		return nil, badField("meta", "the text is no JSON object")
	}
	if err := json.Unmarshal([]byte(e.Meta), &had); err != nil {
		return nil, err
	}
	out := make(map[string]any)
	for key, value := range has {
		if slices.Contains(e.Hidden, key) {
			return nil, badField("meta", strconv.Quote(key)+" is redacted and cannot be changed here")
		}
		if old, ok := had[key]; ok && sameJSON(old, value) {
			continue
		}
		var v any
		if err := jsonvalue.Unmarshal(value, &v); err != nil {
			return nil, err
		}
		out[key] = v
	}
	for key := range had {
		if _, ok := has[key]; !ok {
			out[key] = nil
		}
	}
	return out, nil
}

// changesOf are the args and the entries of meta before and after.
func changesOf(p *page, e *editable, args []byte, meta, had map[string]any) (out []change) {
	if args != nil {
		before := e.Args
		if e.Withheld != "" {
			before = p.T(e.Withheld)
		}
		out = append(out, change{p.T("Args"), before, indent(args)})
	}
	text := func(v any) string {
		if v == nil {
			return ""
		}
		b, err := json.Marshal(v)
		if err != nil {
			return err.Error()
		}
		return indent(b)
	}
	for _, key := range slices.Sorted(maps.Keys(meta)) {
		out = append(out, change{"meta." + key, text(had[key]), text(meta[key])})
	}
	return out
}

// whole is a whole number of a form.
func (p *page) whole(field string) (int, error) {
	text := strings.TrimSpace(p.r.PostFormValue(field))
	n, err := strconv.Atoi(text)
	if err != nil {
		err = badField(field, strconv.Quote(text)+" is no whole number")
	}
	return n, err
}

// badField refuses the value of a field.
func badField(field, why string) error {
	return refused{fmt.Errorf("%s: %s: %w", field, why, ojs.ErrInvalid)}
}
