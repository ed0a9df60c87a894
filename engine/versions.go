package engine

import (
	"slices"
	"strings"

	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/versions"
)

// Versions of job types.
//
// A type has one handler for every version, or several with ranges that do not overlap.
// Claims name a range behind the type (storage.Claim.Takes), so that a job
// whose version none of them takes stays available, and holds up no other. Jobs without a
// version run with the handler that was registered first.

// add adds a handler to those of its type. It refuses one whose range overlaps another.
func (h *handlers) add(c *core, added *jobType) error {
	given := added.given
	name := given.Type()
	added.takes = versions.Range{Open: true}
	if wanted := given.Versions(); wanted != "" {
		var err error
		if added.takes, err = versions.ParseRange(wanted); err != nil {
			return invalid("handler", "job type %s: versions %q: %v", name, wanted, err)
		}
	}
	for _, t := range h.of(name) {
		if t.takes.Overlaps(added.takes) {
			if t.given.Versions() == given.Versions() {
				return invalid("handler", "job type %s has a handler already", name)
			}
			return invalid("handler", "job type %s has a handler already, for %s, and this is for %s", name,
				rangeName(t.given), rangeName(given))
		}
	}
	added.patterns = patterns(given, len(h.byType[name]) == 0)
	h.byType[name] = append(slices.Clone(h.byType[name]), added)
	return nil
}

func rangeName(h handler.Handler) string {
	if h.Versions() == "" {
		return "all versions"
	}
	return h.Versions()
}

// all returns the handlers, by type.
func (h *handlers) all() (list []*jobType) {
	for _, name := range h.types {
		list = append(list, h.byType[name]...)
	}
	return list
}

// of returns the handlers of a type, in the order in which they were registered.
func (h *handlers) of(name string) []*jobType { return h.byType[name] }

// find returns the handler for jobs of a version of a type, nil if there is none.
func (h *handlers) find(name, version string) *jobType {
	list := h.byType[name]
	if len(list) == 0 {
		return nil
	}
	if version == "" || len(list) == 1 && list[0].given.Versions() == "" {
		return list[0]
	}
	v, err := versions.Parse(version)
	if err != nil {
		return nil
	}
	for _, t := range list {
		if t.takes.Has(v) {
			return t
		}
	}
	return nil
}

// patterns returns how claims name the jobs of a handler, which is the first of its type
// or not.
func patterns(h handler.Handler, first bool) []string {
	switch {
	case h.Versions() == "":
		return []string{h.Type()}
	case first:
		return []string{h.Type() + "@", h.Type() + "@" + h.Versions()}
	}
	return []string{h.Type() + "@" + h.Versions()}
}

// workerTypes returns how claims name the types of a remote worker, each of which may
// have a range of versions behind an "@".
func (c *core) workerTypes(types []string) (list []string, err error) {
	if !slices.ContainsFunc(types, func(t string) bool { return strings.Contains(t, "@") }) {
		return types, nil
	}
	for _, t := range types {
		name, wanted, ranged := strings.Cut(t, "@")
		switch _, err := versions.ParseRange(wanted); {
		case ranged && err != nil:
			return nil, invalid("types", "versions %q of %s: %v", wanted, name, err)
		case !ranged:
			list = append(list, name)
		default:
			list = append(list, name+"@", t)
		}
	}
	return list, nil
}
