package dashboard

import (
	"regexp"
	"slices"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

const (
	searchScan  = 3000 // jobs that a search by the end of an id scans, of those in rare states and of all
	searchFlows = 50   // workflows whose names a search reads
	searchMost  = 20   // results of a kind
	searchJobs  = 1000 // of the newest jobs, those whose args and keys a search scans
)

// finding is what a search has found of a kind.
type finding struct {
	Kind  string
	Links []noticeLink
	More  bool // there are more than Links
}

type searchData struct {
	Text   string
	Error  string // why the text is no filter line; "": it has no colon
	Found  []finding
	Flows  int          // the newest workflows, of more, whose names were scanned; 0: of all
	Looked int          // jobs by the end of their ids; 0: the text can be none
	ByID   noticeLink   // leads to more of these
	Lists  []searchList // jobs in which the text may be
}

// searchList is a list of jobs, and the first of them that a bounded search has found.
type searchList struct {
	Name, Path string
	Looked     int // among the newest jobs; 0: none was scanned
	Found      []noticeLink
	All        bool // Looked are all jobs
}

// add adds the names of a kind that contain the text.
func (d *searchData) add(kind string, links []noticeLink) {
	if len(links) > 0 {
		n := min(len(links), searchMost)
		d.Found = append(d.Found, finding{kind, links[:n], n < len(links)})
	}
}

var idEnd = regexp.MustCompile(`^[0-9a-f-]{4,36}$`)

// search leads to a job by its id, or to a list by a filter line. Of any other text it
// shows what has a name that contains it.
func (h *Handler) search(p *page) error {
	ctx := p.r.Context()
	text := strings.TrimPrefix(strings.TrimSpace(p.r.FormValue("q")), "…")
	if text == "" {
		return p.moved(p.Root + "jobs/")
	}
	data := &searchData{Text: text}
	if strings.Contains(text, ":") {
		if _, err := inspect.Parse(text, p.Now); err == nil {
			return p.moved(p.Root + "jobs/?q=" + escape(text))
		} else {
			data.Error = strings.TrimPrefix(err.Error(), "ojs: ")
		}
	}
	switch job, err := h.eng.Get(ctx, text); {
	case err == nil && job.Type == workflow.Type:
		return p.moved(p.Root + "workflows/" + p.Seg(text) + "/")
	case err == nil:
		return p.moved(p.JobLink(text))
	case !foreign.Is(err, ojs.ErrNotFound) && !foreign.Is(err, ojs.ErrPruned):
		return err
	}
	has := func(name string) bool { return strings.Contains(strings.ToLower(name), strings.ToLower(text)) }
	if err := h.searchNames(p, data, has); err != nil {
		return err
	}
	if err := h.searchWorkflows(p, data, has); err != nil {
		return err
	}
	if idEnd.MatchString(text) {
		if err := h.searchIDs(p, data); err != nil {
			return err
		}
	}
	list := func(name string, f inspect.Filter) {
		data.Lists = append(data.Lists, searchList{Name: name, Path: "jobs/?q=" + escape(f.String())})
	}
	for _, in := range []struct {
		name string
		f    inspect.Filter
	}{
		{p.T("Jobs whose args contain it"), inspect.Filter{Args: text}},
		{p.T("Jobs with the ordering key"), inspect.Filter{Keys: []string{text}}},
		{p.T("Unique jobs with the fingerprint"), inspect.Filter{Fingerprints: []string{text}}},
	} {
		if err := h.searchJobs(p, data, in.name, in.f); err != nil {
			return err
		}
	}
	list(p.T("Jobs whose latest error contains it"), inspect.Filter{Error: text,
		States: []ojs.State{ojs.StateRetryable, ojs.StateDiscarded}})
	list(p.T("Jobs with the tag"), inspect.Filter{Tags: []string{text}})
	return p.show("search", p.T("Search"), data)
}

// searchJobs finds jobs among the newest.
func (h *Handler) searchJobs(p *page, data *searchData, name string, f inspect.Filter) error {
	to := searchList{Name: name, Path: "jobs/?q=" + escape(f.String())}
	f.Order = inspect.OrderNewest
	list, err := h.eng.Jobs().Find(p.r.Context(), f, "", searchMost, searchJobs)
	if err != nil {
		return err
	}
	to.Looked, to.All = list.Looked, list.Next == ""
	for _, job := range list.Jobs {
		name := job.Type + " " + p.Short(job.ID)
		path := "jobs/"
		if job.Type == workflow.Type {
			path = "workflows/"
		}
		to.Found = append(to.Found, noticeLink{path + p.Seg(job.ID) + "/", name})
	}
	data.Lists = append(data.Lists, to)
	return nil
}

// searchNames finds types, queues, engines, recurring entries and limits of keys.
func (h *Handler) searchNames(p *page, data *searchData, has func(string) bool) error {
	ctx := p.r.Context()
	stored, err := h.eng.Jobs().Facets(ctx, inspect.Filter{}, inspect.FacetType, 0)
	if err != nil {
		return err
	}
	var names []string
	for _, v := range stored.Values {
		names = append(names, v.Value)
	}
	types, err := h.types(p, nil, names...)
	if err != nil {
		return err
	}
	names = nil
	for _, t := range types.Types {
		names = append(names, t.Type)
	}
	links := func(path string, names []string) (out []noticeLink) {
		for _, name := range names {
			if has(name) {
				out = append(out, noticeLink{path + p.Seg(name) + "/", name})
			}
		}
		return out
	}
	data.add(p.T("Types"), links("types/", names))
	queues, err := h.eng.Queues().List(ctx)
	if err != nil {
		return err
	}
	var list []string
	for i := range queues {
		list = append(list, queues[i].Name)
	}
	data.add(p.T("Queues"), links("queues/", list))
	var engines []noticeLink
	for i := range types.nodes {
		if n := &types.nodes[i]; has(n.ID) || has(n.Host) {
			engines = append(engines, noticeLink{"workers/" + p.Seg(n.ID) + "/", n.ID})
		}
	}
	stats, err := h.stats(ctx)
	if err != nil {
		return err
	}
	for _, w := range stats.Workers {
		if has(w.ID) {
			line := inspect.Filter{States: []ojs.State{ojs.StateActive}, Workers: []string{w.ID}}.String()
			engines = append(engines, noticeLink{"jobs/?q=" + escape(line), w.ID})
		}
	}
	data.add(p.T("Workers"), engines)
	entries, err := h.eng.Cron().List(ctx)
	if err != nil {
		return err
	}
	list = nil
	for i := range entries {
		list = append(list, entries[i].Name)
	}
	data.add(p.T("Recurring"), links("cron/", list))
	if len(data.Text) > 255 {
		return nil
	}
	name := operate.LimitOfKey(data.Text)
	switch _, err := h.eng.Limits().Get(ctx, name); {
	case err == nil:
		data.add(p.T("Limits"), []noticeLink{{limitPath("limits/", name), name.Name}})
	case !foreign.Is(err, ojs.ErrNotFound) && !foreign.Is(err, ojs.ErrInvalid):
		return err
	}
	return nil
}

// searchWorkflows finds workflows among the newest.
func (h *Handler) searchWorkflows(p *page, data *searchData, has func(string) bool) error {
	f := inspect.Filter{Types: []string{workflow.Type}, Order: inspect.OrderNewest}
	list, err := h.eng.Jobs().Page(p.r.Context(), f, "", searchFlows)
	if err != nil {
		return err
	}
	var found []noticeLink
	for _, record := range list.Jobs {
		f, err := h.flow(p.r.Context(), record)
		if stored.Missing(err) {
			continue
		}
		if err != nil {
			return err
		}
		if has(f.Name) {
			link := noticeLink{"workflows/" + p.Seg(f.ID) + "/", f.Name + " " + p.Short(f.ID)}
			found = append(found, link)
		}
	}
	if list.Next != "" {
		data.Flows = len(list.Jobs)
	}
	data.add(p.T("Workflows"), found)
	return nil
}

// searchIDs finds jobs by the ends of their ids: those in rare states, and then the
// newest.
func (h *Handler) searchIDs(p *page, data *searchData) error {
	all := inspect.Filter{IDs: []string{"*" + data.Text}, Order: inspect.OrderNewest}
	rare := all
	for _, s := range ojs.AllStates() {
		if storage.Rare(s) {
			rare.States = append(rare.States, s)
		}
	}
	var found []noticeLink
	for _, f := range []inspect.Filter{rare, all} {
		list, err := h.eng.Jobs().Find(p.r.Context(), f, "", searchMost, searchScan)
		if err != nil {
			return err
		}
		data.Looked += list.Looked
		for _, job := range list.Jobs {
			link := noticeLink{"jobs/" + p.Seg(job.ID) + "/", job.Type + " " + job.ID}
			if !slices.Contains(found, link) {
				found = append(found, link)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	all.Order = inspect.OrderOldest // which a line leaves out
	data.ByID = noticeLink{"jobs/?q=" + escape(all.String()), p.T("Look further")}
	data.add(p.T("Jobs by the ends of their ids"), found)
	return nil
}
