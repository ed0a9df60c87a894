package dashboard

import (
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/terms"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
)

var limitKinds = []storage.LimitKind{storage.LimitKey, storage.LimitQueue, storage.LimitType}

// kindNames are the tabs of the page.
var kindNames = map[storage.LimitKind]string{storage.LimitKey: "Keys", storage.LimitQueue: "Queues",
	storage.LimitType: "Types"}

// NextStart is when a job of a limit may start next, as far as the limit knows.
func (p *page) NextStart(l operate.Limit) template.HTML {
	most := l.Bounds.Concurrency
	text := p.T("now")
	switch {
	case !l.Opens.IsZero():
		return p.Ago(l.Opens)
	case most == ojs.NoneAtOnce:
		text = p.T("when the bounds change")
	case most > 0 && l.Active >= most:
		text = p.T("when a job ends")
	}
	return template.HTML(template.HTMLEscapeString(text))
}

type limitsData struct {
	Kind   storage.LimitKind // "": all
	Groups []limitGroup      // those of all kinds that have limits
	Set    bool              // the request may set limits
}

// limitGroup are limits of a kind.
type limitGroup struct {
	Kind   storage.LimitKind
	Limits []operate.Limit
	After  string // the last name, if there may be more
}

// Kinds are the kinds of limits, and KindName is the name of one.
func (limitsData) Kinds() []storage.LimitKind          { return limitKinds }
func (limitsData) KindName(k storage.LimitKind) string { return kindNames[k] }
func (d limitsData) Is(k storage.LimitKind) bool       { return d.Kind == k }
func (p *page) LimitLink(l operate.LimitName) string   { return limitPath(p.Root+"limits/", l) }
func limitPath(root string, l operate.LimitName) string {
	return root + string(l.Kind) + "/" + url.PathEscape(l.Name) + "/"
}

// limits lists the limits that the storage counts, of one kind or of all.
func (h *Handler) limits(p *page) error {
	data := &limitsData{Kind: storage.LimitKind(p.r.FormValue("kind")), Set: p.May(Set, "limit", "", "", "")}
	kinds := limitKinds
	if data.Kind.Valid() {
		kinds = []storage.LimitKind{data.Kind}
	} else {
		data.Kind = ""
	}
	if name := p.r.FormValue("name"); name != "" {
		return p.moved(limitPath("./", operate.LimitName{Kind: kinds[0], Name: name}))
	}
	for _, kind := range kinds {
		q := operate.LimitQuery{Kind: kind, Limit: pageSize}
		if data.Kind != "" {
			q.After = p.r.FormValue("after")
		}
		list, err := h.eng.Limits().List(p.r.Context(), q)
		if err != nil {
			return refusal(err)
		}
		group := limitGroup{Kind: kind, Limits: list}
		if len(list) == pageSize {
			group.After = list[pageSize-1].Name
		}
		if len(list) > 0 {
			data.Groups = append(data.Groups, group)
		}
	}
	return p.show("limits", p.T("Limits"), data)
}

type limitData struct {
	operate.Limit
	Jobs    string            // the filter line of its jobs; "": there is none
	Form    map[string]string // the setting, as the fields of the form
	Actions []Verb
	Done    string
}

// limitOf is the limit that an address names. A limit that the storage does not know has
// neither jobs nor a setting.
func (h *Handler) limitOf(p *page) (operate.Limit, error) {
	name := operate.LimitName{Kind: storage.LimitKind(p.r.PathValue("kind")), Name: p.r.PathValue("name")}
	if !name.Kind.Valid() {
		return operate.Limit{}, ojs.ErrNotFound
	}
	return h.limitNamed(p, name)
}

func (h *Handler) limitNamed(p *page, name operate.LimitName) (operate.Limit, error) {
	l, err := h.eng.Limits().Get(p.r.Context(), name)
	if foreign.Is(err, ojs.ErrNotFound) {
		return operate.Limit{LimitName: name}, nil
	}
	return l, refusal(err)
}

func limitAction(do Verb, l *operate.Limit) Action {
	a := Action{Do: do, On: "limit", Name: string(l.Kind) + "/" + l.Name}
	switch l.Kind {
	case storage.LimitQueue:
		a.Queue = l.Name
	case storage.LimitType:
		a.Type = l.Name
	}
	return a
}

// limit shows one limit.
func (h *Handler) limit(p *page) error {
	l, err := h.limitOf(p)
	if err != nil {
		return err
	}
	data := &limitData{Limit: l, Form: fieldsOf("", l.Setting), Done: done(p.r.FormValue("did"))}
	switch l.Kind {
	case storage.LimitQueue:
		data.Jobs = terms.Term("queue", l.Name)
	case storage.LimitType:
		data.Jobs = terms.Term("type", l.Name)
	}
	for _, do := range []Verb{Set, Clear, Block} {
		if h.may(p.r, limitAction(do, &l)) == nil && (do != Clear || l.Setting != nil) {
			data.Actions = append(data.Actions, do)
		}
	}
	return p.show("limit", l.Name, data)
}

// actOnLimit sets, clears and blocks.
func (h *Handler) actOnLimit(p *page) error {
	l, err := h.limitOf(p)
	if err != nil {
		return err
	}
	ctx, limits := p.r.Context(), h.eng.Limits()
	do := Verb(p.r.PostFormValue("do"))
	c := confirmation{Do: do, Action: limitAction(do, &l), Title: p.T(verbNames[do]) + ": " + l.Name}
	var setting string
	if l.Setting != nil {
		setting = p.Bounds(*l.Setting)
	}
	did := string(do)
	var step func() error
	var until time.Time
	switch do {
	case Set:
		var bounds ojs.RateLimit
		if bounds, err = boundsOf(p, ""); err == nil && !bounds.Bounds() {
			const text = "the form bounds nothing: fill in a number at once, a rate or a throttle: %w"
			err = refused{fmt.Errorf(text, ojs.ErrInvalid)}
		}
		if err == nil {
			until, err = p.moment("until")
		}
		if err != nil {
			return err
		}
		c.Changes = []change{{p.T("Bounds"), setting, p.Bounds(bounds)},
			{p.T("Until"), p.plain(l.Until), p.plain(until)}}
		step = func() error { return limits.Set(ctx, l.LimitName, bounds, until) }
	case Clear:
		c.Changes = []change{{p.T("Bounds"), setting, ""}}
		step = func() error { return limits.Clear(ctx, l.LimitName) }
	case Block:
		if until, err = p.moment("until"); err != nil {
			return err
		}
		if until.IsZero() {
			did = "unblock"
		}
		c.Changes = []change{{p.T("Blocked until"), p.plain(l.BlockedUntil), p.plain(until)}}
		step = func() error { return limits.Block(ctx, l.LimitName, until) }
	default:
		return ojs.ErrNotFound
	}
	if !p.sure() {
		return p.confirm(c, "concurrency", "rate", "rate_per", "throttle", "throttle_per", "until")
	}
	if err := h.allowed(p, c.Action, "changes", fmt.Sprint(c.Changes)); err != nil {
		return err
	}
	if err := step(); err != nil {
		return refusal(err)
	}
	return p.moved("./?did=" + did)
}

// number is a whole number from 0 on of a form, 0 for an empty field.
func (p *page) number(field string) (n int, given bool, err error) {
	text := strings.TrimSpace(p.r.PostFormValue(field))
	if text == "" {
		return 0, false, nil
	}
	if n, err = strconv.Atoi(text); err != nil || n < 0 {
		err = refused{fmt.Errorf("%s: %q is no whole number from 0 on: %w", field, text, ojs.ErrInvalid)}
	}
	return n, true, err
}

// boundsOf are the bounds of a form whose fields have names with a prefix. An empty field
// bounds nothing, and 0 at once is none at once.
func boundsOf(p *page, prefix string) (l ojs.RateLimit, err error) {
	rate := func(name string) (r ojs.Rate, err error) {
		n, given, err := p.number(prefix + name)
		if !given || err != nil {
			return r, err
		}
		text := strings.TrimSpace(p.r.PostFormValue(prefix + name + "_per"))
		if r.Per, err = time.ParseDuration(text); err != nil {
			err = refused{fmt.Errorf("%s%s_per: %q is no duration such as 90s or 1h30m: %w", prefix, name,
				text, ojs.ErrInvalid)}
		}
		r.Limit = n
		return r, err
	}
	n, given, err := p.number(prefix + "concurrency")
	if err != nil {
		return l, err
	}
	if l.Concurrency = n; given && n == 0 {
		l.Concurrency = ojs.NoneAtOnce
	}
	if l.Rate, err = rate("rate"); err != nil {
		return l, err
	}
	if l.Throttle, err = rate("throttle"); err != nil {
		return l, err
	}
	return l, refusal(l.ValidateBounds())
}

// fieldsOf are the fields of the form for bounds: what boundsOf reads.
func fieldsOf(prefix string, l *ojs.RateLimit) map[string]string {
	fields := make(map[string]string)
	if l == nil {
		return fields
	}
	if l.Concurrency != 0 {
		fields[prefix+"concurrency"] = strconv.Itoa(max(l.Concurrency, 0)) // below 0: none at once
	}
	for name, r := range map[string]ojs.Rate{prefix + "rate": l.Rate, prefix + "throttle": l.Throttle} {
		if r.Limit > 0 {
			fields[name], fields[name+"_per"] = strconv.Itoa(r.Limit), r.Per.String()
		}
	}
	return fields
}

// Bounds are bounds in words.
func (p *page) Bounds(l ojs.RateLimit) string {
	var parts []string
	switch {
	case l.Concurrency == ojs.NoneAtOnce:
		parts = append(parts, p.T("none at once"))
	case l.Concurrency > 0:
		parts = append(parts, p.T("%s at once", p.Num(l.Concurrency)))
	}
	if r := l.Rate; r.Limit > 0 {
		parts = append(parts, p.T("%s starts in %s", p.Num(r.Limit), short(r.Per)))
	}
	if r := l.Throttle; r.Limit > 0 {
		parts = append(parts, p.T("%s apart", short(r.Per/time.Duration(r.Limit))))
	}
	if parts == nil {
		return "–"
	}
	return strings.Join(parts, ", ")
}

// moment is a time of a form, by the reader's zone; zero if the field is empty.
func (p *page) moment(field string) (time.Time, error) {
	text := strings.TrimSpace(p.r.PostFormValue(field))
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339} {
		if t, err := time.ParseInLocation(layout, text, p.Zone); err == nil {
			return t, nil
		}
	}
	return time.Time{}, refused{fmt.Errorf("%s: %q is no time such as 2026-03-01T15:04: %w", field, text,
		ojs.ErrInvalid)}
}

// plain is a moment as text; "" if it is zero.
func (p *page) plain(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(p.Zone).Format("2006-01-02 15:04:05 MST")
}
