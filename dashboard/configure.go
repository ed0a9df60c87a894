package dashboard

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/operate"
)

var overflows = []engine.Overflow{engine.OverflowReject, engine.OverflowBlock, engine.OverflowDropOldest}

// configureForm is how this engine serves a queue, as the form has it.
type configureForm struct {
	Name   string
	Fields map[string]string // by the names of the fields
	Global bool              // it has the bounds over all engines
	Was    string            // the sum of the configuration that it was made of
	Error  string            // why its values are refused; "": they are not

	conf engine.QueueConfig
}

// Overflows are the choices of the form.
func (*configureForm) Overflows() []engine.Overflow { return overflows }

// boundFields are the fields of the form for bounds, whose names have a prefix.
type boundFields struct {
	fields map[string]string
	prefix string
}

// Part is the part of the form for bounds with a prefix.
func (f *configureForm) Part(prefix string) boundFields { return boundFields{f.Fields, prefix} }

// Name is the name of a field, and Value what it has.
func (b boundFields) Name(field string) string  { return b.prefix + field }
func (b boundFields) Value(field string) string { return b.fields[b.prefix+field] }

// mayConfigure returns nil if the request may give a queue this configuration. The engine
// stores bounds over all engines anew, so that they need the permission to set a limit.
func (h *Handler) mayConfigure(p *page, name string, conf *engine.QueueConfig) error {
	if err := h.may(p.r, Action{Do: Configure, On: "queue", Name: name, Queue: name}); err != nil {
		return err
	}
	if l := conf.GlobalBounds(); !l.Bounds() {
		return nil
	}
	return h.maySetLimit(p, name)
}

func (h *Handler) maySetLimit(p *page, name string) error {
	return h.may(p.r, limitAction(Set, &operate.Limit{LimitName: operate.LimitOfQueue(name)}))
}

// configureForm is the form of the queue that an address names.
func (h *Handler) configureForm(p *page) (*configureForm, error) {
	name := p.r.PathValue("name")
	conf, ok := h.eng.Describe().Configs[name]
	if !ok {
		return nil, ojs.ErrNotFound
	}
	f := &configureForm{Name: name, conf: conf}
	if err := h.mayConfigure(p, name, &f.conf); err != nil {
		return nil, denied{err}
	}
	f.Global = h.maySetLimit(p, name) == nil
	here := f.conf.Bounds()
	f.Fields = fieldsOf("", &here)
	global := f.conf.GlobalBounds()
	for field, value := range fieldsOf("all_", &global) {
		f.Fields[field] = value
	}
	f.Fields["weight"], f.Fields["depth"] = filled(f.conf.Weight), filled(f.conf.MaxDepth)
	f.Fields["overflow"] = string(cmp.Or(f.conf.Overflow, engine.OverflowReject))
	shown := f.conf
	shown.Defaults = nil // functions: the form does not change them
	sum := sha256.Sum256([]byte(fmt.Sprintf("%+v", shown)))
	f.Was = hex.EncodeToString(sum[:8])
	return f, nil
}

// filled is a number as a field of a form has it, which is empty for 0.
func filled(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// configure shows the form that changes how this engine serves a queue.
func (h *Handler) configure(p *page) error {
	f, err := h.configureForm(p)
	if err != nil {
		return err
	}
	return f.show(p)
}

func (f *configureForm) show(p *page) error {
	return p.show("configure", p.T(verbNames[Configure])+": "+f.Name, f)
}

// actOnConfigure changes how this engine serves a queue, after a page that shows what
// would change. A refusal is shown beside the form.
func (h *Handler) actOnConfigure(p *page) error {
	f, err := h.configureForm(p)
	if err != nil {
		return err
	}
	err = h.configured(p, f)
	var not refused
	if !foreign.As(err, &not) {
		return err
	}
	f.Error = strings.TrimPrefix(not.Error(), "ojs: ")
	if p.r.PostFormValue("was") == f.Was {
		for _, name := range configureFields {
			f.Fields[name] = p.r.PostFormValue(name)
		}
	}
	if err := f.show(p); err != nil {
		return err
	}
	p.answered = true
	h.write(p, http.StatusConflict)
	return nil
}

var configureFields = []string{"concurrency", "rate", "rate_per", "throttle", "throttle_per",
	"weight", "depth", "overflow",
	"all_concurrency", "all_rate", "all_rate_per", "all_throttle", "all_throttle_per"}

// configured does what the form asks for.
func (h *Handler) configured(p *page, f *configureForm) error {
	if Verb(p.r.PostFormValue("do")) != Configure {
		return ojs.ErrNotFound
	}
	if p.r.PostFormValue("was") != f.Was {
		return refused{errors.New("the configuration has changed since the form was made: these are its values now")}
	}
	c := confirmation{Do: Configure, Title: p.T(verbNames[Configure]) + ": " + f.Name,
		Action: Action{Do: Configure, On: "queue", Name: f.Name, Queue: f.Name},
		Notes:  []string{p.T("This changes this engine only, until its program starts again.")}}
	to, err := f.changed(p, &c)
	if err != nil {
		return err
	}
	if err := h.mayConfigure(p, f.Name, &to); err != nil {
		return denied{err}
	}
	if len(c.Changes) == 0 {
		return refused{fmt.Errorf("the form changes nothing: %w", ojs.ErrInvalid)}
	}
	if !p.sure() {
		return p.confirm(c, append(slices.Clone(configureFields), "was")...)
	}
	if err := h.allowed(p, c.Action, "changes", fmt.Sprint(c.Changes)); err != nil {
		return err
	}
	if err := h.eng.ConfigureQueue(p.r.Context(), f.Name, to); err != nil {
		return refusal(err)
	}
	return p.moved("../?did=" + string(Configure))
}

// changed is the configuration with the values of the form, whose changes it adds to the
// confirmation. Fields that the form does not have stay as they are.
func (f *configureForm) changed(p *page, c *confirmation) (engine.QueueConfig, error) {
	to := f.conf
	differ := func(name, before, after string) {
		if before != after {
			c.Changes = append(c.Changes, change{name, before, after})
		}
	}
	rebound := func(name, prefix string, was ojs.RateLimit, atOnce *int, l *ojs.RateLimit) error {
		asked, err := boundsOf(p, prefix)
		if err != nil {
			return err
		}
		if asked.Concurrency == was.Concurrency && asked.Rate == was.Rate && asked.Throttle == was.Throttle {
			return nil
		}
		differ(name, p.Bounds(was), p.Bounds(asked))
		*atOnce, l.Concurrency = max(asked.Concurrency, 0), min(asked.Concurrency, 0)
		l.Rate, l.Throttle = asked.Rate, asked.Throttle
		return nil
	}
	err := rebound(p.T("Bounds in this engine"), "", to.Bounds(), &to.Concurrency, &to.RateLimit)
	if err != nil {
		return to, err
	}
	for _, n := range []struct {
		field, name string
		at          *int
	}{{"weight", p.T("Weight"), &to.Weight}, {"depth", p.T("Unfinished jobs at most"), &to.MaxDepth}} {
		before := *n.at
		after, _, err := p.number(n.field)
		if err != nil {
			return to, err
		}
		*n.at = after
		differ(n.name, filled(before), filled(after))
	}
	before := f.Fields["overflow"]
	if after := cmp.Or(p.r.PostFormValue("overflow"), before); after != before {
		to.Overflow = engine.Overflow(after)
		differ(p.T("An enqueue above that"), before, after)
	}
	if !f.Global {
		return to, nil
	}
	was := to.GlobalBounds()
	err = rebound(p.T("Bounds over all engines"), "all_", was, &to.GlobalConcurrency, &to.GlobalRateLimit)
	if is := to.GlobalBounds(); is.Bounds() || was.Bounds() {
		c.Notes = append(c.Notes,
			p.T("Bounds over all engines are stored again, in the place of those set by hand."))
	}
	return to, err
}
