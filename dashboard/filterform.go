package dashboard

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/terms"
)

// filterForm is a filter line as fields. The form leads to the page of the line that the
// fields make. The field of the error is text. Each other field has the values of its key
// as the line has them, with spaces between them.
type filterForm struct {
	States []choice
	Fields []filterField
	Rest   string // the terms that have no field
}

type filterField struct{ Key, Name, Value, Hint string }

// listKeys are the keys with a field that may have several values.
var listKeys = []string{"state", "queue", "type", "tag", "since"}

// formOf is the form of a filter, which the line has made.
func (p *page) formOf(f inspect.Filter, line string) *filterForm {
	each := func(key string, values []string) string {
		var out []string
		for _, value := range values {
			out = append(out, strings.TrimPrefix(terms.Term(key, value), key+":"))
		}
		return strings.Join(out, " ")
	}
	form := &filterForm{Fields: []filterField{
		{"queue", p.T("Queue"), each("queue", f.Queues), "mail"},
		{"type", p.T("Type"), each("type", f.Types), "email.*"},
		{"error", p.T("Error"), f.Error, "timeout"},
		{"tag", p.T("Tag"), each("tag", f.Tags), "vip"},
		{"since", p.T("Created since"), p.sinceOf(f, line), "1h"},
	}}
	var states, names []string
	for _, s := range f.States {
		states, names = append(states, string(s)), append(names, p.T(string(s)))
	}
	form.States = []choice{{"", p.T("any"), len(states) == 0}}
	for _, s := range ojs.AllStates() {
		form.States = append(form.States, choice{string(s), p.T(string(s)),
			len(states) == 1 && f.States[0] == s})
	}
	if len(states) > 1 {
		all := choice{strings.Join(states, " "), strings.Join(names, ", "), true}
		form.States = append(form.States, all)
	}
	f.States, f.Queues, f.Types, f.Error, f.Tags, f.CreatedFrom = nil, nil, nil, "", nil, time.Time{}
	form.Rest = f.String()
	return form
}

var sinceTerm = regexp.MustCompile(`(?:^|\s)since:(\S+)`)

// sinceOf is the time of creation as the line has it, such as 1h, or else as a time.
func (p *page) sinceOf(f inspect.Filter, line string) string {
	if f.CreatedFrom.IsZero() {
		return ""
	}
	for _, m := range sinceTerm.FindAllStringSubmatch(line, -1) {
		g, err := inspect.Parse("since:"+m[1], p.Now)
		if err == nil && g.CreatedFrom.Equal(f.CreatedFrom) {
			return m[1]
		}
	}
	return strings.TrimPrefix(inspect.Filter{CreatedFrom: f.CreatedFrom}.String(), "since:")
}

// lineOf is the filter line of a form that was sent.
func lineOf(p *page) string {
	terms := []string{inspect.Filter{Error: strings.TrimSpace(p.r.FormValue("error"))}.String()}
	for _, key := range listKeys {
		for _, value := range values(p.r.FormValue(key)) {
			terms = append(terms, key+":"+value)
		}
	}
	terms = slices.DeleteFunc(append(terms, p.r.FormValue("rest")), func(s string) bool { return s == "" })
	return strings.Join(terms, " ")
}

// values splits the text of a field at the spaces outside of quotes.
func values(text string) (out []string) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		quoted := 0
		if value, err := strconv.QuotedPrefix(text); err == nil && text[0] == '"' { // not '...' or `...`
			quoted = len(value)
		}
		end := len(text)
		if n := strings.IndexFunc(text[quoted:], unicode.IsSpace); n >= 0 {
			end = quoted + n
		}
		out, text = append(out, text[:end]), text[end:]
	}
	return out
}
