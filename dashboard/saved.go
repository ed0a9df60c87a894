package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Saved filters are in a cookie of the browser, beside the settings of the display. So
// they need neither script nor a right to change the storage. People share a filter by
// its address.

const (
	cookieSaved  = "ojs_filters"
	maxSaved     = 20
	maxSavedName = 40   // bytes
	maxSavedSize = 3000 // bytes of the cookie, of which browsers keep 4096
)

// savedFilter is a filter line with a name.
type savedFilter struct {
	Name, Line string
	On         bool // it is the line of the page
}

// saved is the list of a page, and the form that saves its line.
type saved struct {
	Line string // "": the page has none
	List []savedFilter
	Full bool // the last one was not saved: there is no room
	Most int
}

// Saved are the filters of the reader, in the order of their names.
func (p *page) Saved(line string) saved {
	out := saved{Line: line, Most: maxSaved, Full: p.r.FormValue("full") != ""}
	list, err := url.ParseQuery(cookie(p.r, cookieSaved))
	if err != nil {
		return out
	}
	for name := range list {
		out.List = append(out.List, savedFilter{name, list.Get(name), list.Get(name) == line})
	}
	slices.SortFunc(out.List, func(a, b savedFilter) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// saveFilter is the overview's answer to the form that saves a filter. An empty line
// removes it. It needs no permission: it changes the browser's own cookie alone.
func (p *page) saveFilter() error {
	name, line := strings.TrimSpace(p.r.PostFormValue("name")), strings.TrimSpace(p.r.PostFormValue("q"))
	to := "./" + p.below(p.r.PostFormValue("engine")) + "jobs/?q=" + escape(p.r.PostFormValue("at"))
	if name == "" {
		return p.moved(to)
	}
	list, err := url.ParseQuery(cookie(p.r, cookieSaved))
	if err != nil {
		list = make(url.Values)
	}
	if list.Set(name, line); line == "" {
		list.Del(name)
	}
	value := list.Encode()
	if len(list) > maxSaved || len(name) > maxSavedName || len(value) > maxSavedSize {
		return p.moved(to + "&full=1")
	}
	http.SetCookie(p.w, &http.Cookie{Name: cookieSaved, Value: value, MaxAge: cookieAge, HttpOnly: true,
		SameSite: http.SameSiteLaxMode})
	return p.moved(to)
}
