package dashboard

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// A dashboard of several engines has a handler for each. The handler of the first serves
// the paths below the mount, and hands those below engines/NAME/ to the others. A menu in
// the head of each page leads from one engine to the next.

// Named is one of several engines in a dashboard.
type Named struct {
	// Name is shown in the menu, and is part of addresses: 1 to 60 letters, digits, "-",
	// "_" and ".", the first a letter or digit.
	Name   string
	Engine Engine
}

var engineName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$`)

// NewMany makes a handler for several engines, each with all the pages, and a menu to
// switch between them. The first engine is at the root of the handler, and each other
// below engines/NAME/. The options hold for all of them. Action.Engine tells an
// Authorizer which engine a request is about. No engine, a nil one, and a bad or repeated
// name are refused with an *ojs.InvalidError. Otherwise it is as New.
func NewMany(engines []Named, opts ...Option) (*Handler, error) {
	if len(engines) == 0 {
		return nil, invalid("engines", "name at least one engine")
	}
	var first *Handler
	for i, e := range engines {
		switch {
		case !engineName.MatchString(e.Name):
			return nil, invalid("engines", fmt.Sprintf("the name %.60q of an engine: use 1 to 60 letters, "+
				"digits, \"-\", \"_\" and \".\", the first a letter or digit", e.Name))
		case slices.ContainsFunc(engines[:i], func(o Named) bool { return o.Name == e.Name }):
			return nil, invalid("engines", fmt.Sprintf("the name %q is given to two engines", e.Name))
		case isNil(e.Engine):
			return nil, invalid("engines", fmt.Sprintf("the engine %q must not be nil", e.Name))
		}
		h, err := New(e.Engine, opts...)
		if err != nil {
			return nil, err
		}
		h.name = e.Name
		if first == nil {
			first = h
		}
		h.first = first
		first.engines = append(first.engines, h)
	}
	return first, nil
}

// serving returns the handler that a path is for, and the request with the path below it.
func (h *Handler) serving(r *http.Request) (*Handler, *http.Request) {
	rest, below := strings.CutPrefix(r.URL.Path, "/engines/")
	if !below {
		return h, r
	}
	name, rest, _ := strings.Cut(rest, "/")
	for _, other := range h.engines {
		if other != h && other.name == name {
			return other, withPath(r, "/"+rest)
		}
	}
	return h, r
}

// engineLink is an engine in the menu.
type engineLink struct {
	Name, Link string
	On         bool // the page is one of its
}

// Engines are the engines that the request may look at, if the dashboard has several. A
// link leads to the same entry of the navigation.
func (p *page) Engines() (links []engineLink) {
	here := p.Here
	if !slices.ContainsFunc(navigation, func(e entry) bool { return e.Path == here }) {
		here = ""
	}
	for _, e := range p.h.first.engines {
		if e.may(p.r, Action{Do: Read}) == nil {
			links = append(links, engineLink{e.name, p.Top() + e.below() + here, e == p.h})
		}
	}
	return links
}

// EngineName is the name of the page's engine; "" if the dashboard has only one.
func (p *page) EngineName() string { return p.h.name }

// below is the path of the engine's overview below that of the first.
func (h *Handler) below() string {
	if h == h.first {
		return ""
	}
	return "engines/" + h.name + "/"
}

// Top is the relative link to the overview of the first engine, as Root is to that of the
// page's.
func (p *page) Top() string {
	if p.h == p.h.first {
		return p.Root
	}
	return p.Root + "../../"
}
