package dashboard

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/terms"
	"github.com/ojsengine/ojs/storage"
)

const pageSize = 50

// tab is a state with the number of jobs that the filter has in it.
type tab struct {
	State ojs.State // "": all states
	Count inspect.Count
	Known bool   // Count says anything
	Line  string // the filter line of the tab
	On    bool
}

// look is how many jobs the numbers of a page look at where storages do not count.
const look = 500

// sortLink is an order that a listing may have.
type sortLink struct {
	Name string
	Line string
	On   bool
}

// manyBar is a list of jobs with the operations on many of them.
type manyBar struct {
	Line  string // the filter line, as it was typed
	From  string // the page of the list, below the overview; "": that of the line
	Verbs []Verb
	Jobs  []*ojs.JobInfo
	Held  map[string]string // who holds the active ones, by their ids; empty: none is active
	Next  string            // the cursor of the next page; "": there is none

	Members memberColumns
}

type jobsData struct {
	manyBar
	Form  *filterForm
	Error string // why the line is refused; "": it is not
	Tabs  []tab
	Sorts []sortLink

	Prev   string
	Looked int
	Stored int // jobs in all

	By     inspect.Facet // the break-down that is shown; "": none
	Facets inspect.Facets
	Done   string
	New    bool     // the request may enqueue a job
	Known  []string // terms that a filter may have

	Toggles []memberToggle
}

// Terms are the keys that the filter line takes, as a help below it.
func (jobsData) Terms() []string {
	return []string{"state:discarded", "queue:mail", "type:email.*", "error:timeout", "errortype:smtp.*",
		"args.user.id:42", "meta.tenant:acme", "tag:vip", "worker:*", "attempt:3..", "priority:10..",
		"since:1h", "finished.since:1h", "due.until:+1h", "dead:true", "order:newest"}
}

// Facet names the breakdowns.
func (jobsData) Bys() []inspect.Facet {
	return []inspect.Facet{inspect.FacetType, inspect.FacetQueue, inspect.FacetError}
}

// jobs lists the jobs that the filter line selects.
func (h *Handler) jobs(p *page) error {
	members, cols := membersOf(p.r.FormValue("cols")), ""
	if len(members) > 0 {
		cols = "&cols=" + escape(members.String())
	}
	if p.r.FormValue("form") != "" {
		return p.moved("./?q=" + escape(lineOf(p)) + cols)
	}
	line := strings.TrimSpace(p.r.FormValue("q"))
	data := &jobsData{manyBar: manyBar{Line: line, Members: members}, Done: done(p.r.FormValue("did")),
		New: p.May(Enqueue, "job", "", "", "")}
	f, err := inspect.Parse(line, p.Now)
	data.Form = p.formOf(f, line)
	if !p.live() {
		known, failed := h.known(p)
		if failed != nil {
			return failed
		}
		data.Known = known
	}
	if err != nil && !strings.Contains(line, ":") {
		return p.moved(p.Root + "search/?q=" + escape(line))
	}
	if err != nil {
		data.Error = strings.TrimPrefix(err.Error(), "ojs: ")
		return p.show("jobs", p.T("Jobs"), data)
	}
	data.Verbs = p.ManyVerbs(f.States...)
	counts, err := h.tabs(p, f, data)
	if err != nil {
		return err
	}
	if f.Order == inspect.OrderOldest {
		f.Order = natural(f)
	}
	list, err := h.listed(p, f, counts)
	if foreign.Is(err, ojs.ErrInvalid) { // a cursor of another filter
		return p.moved("./?q=" + escape(line) + cols)
	}
	if err != nil {
		return err
	}
	data.Jobs, data.Next, data.Prev, data.Looked = h.shownAll(list.Jobs), list.Next, list.Prev, list.Looked
	data.Held, data.Toggles = held(list), members.toggles(data.Jobs)
	stats, err := h.stats(p.r.Context())
	if err != nil {
		return err
	}
	for _, n := range stats.Total {
		data.Stored += n
	}
	data.Sorts = sorts(f)
	if by := inspect.Facet(p.r.FormValue("by")); slices.Contains(data.Bys(), by) {
		data.By = by
		if data.Facets, err = h.eng.Jobs().Facets(p.r.Context(), f, by, look); err != nil {
			return err
		}
		if len(data.Facets.Values) > 20 {
			data.Facets.Values = data.Facets.Values[:20]
		}
	}
	return p.show("jobs", p.T("Jobs"), data)
}

// held are the workers of the active jobs of a page, by the ids of the jobs.
func held(list inspect.Page) map[string]string {
	var out map[string]string
	for i, job := range list.Jobs {
		if job.State != ojs.StateActive {
			continue
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[job.ID] = list.Workers[i]
	}
	return out
}

// natural is the order in which a person wants to see the jobs of a filter that names
// none: the latest ends, the next that are due or claimed, or else the newest. Storages
// may end a listing in OrderClaim before jobs that few filters select.
func natural(f inspect.Filter) inspect.Order {
	all := func(in ...ojs.State) bool {
		for _, s := range f.States {
			if !slices.Contains(in, s) {
				return false
			}
		}
		return len(f.States) > 0
	}
	ended := !f.FinishedFrom.IsZero() || !f.FinishedBefore.IsZero()
	switch {
	case ended && len(f.States) == 0, all(ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded):
		return inspect.OrderFinished
	case f.DeadLettered:
		return inspect.OrderOldest
	case all(ojs.StateScheduled, ojs.StateRetryable):
		return inspect.OrderDue
	case all(ojs.StateAvailable) && f.Tallied() && len(f.Queues)+len(f.Types) == 0:
		return inspect.OrderClaim
	}
	return inspect.OrderNewest
}

var orderNames = map[inspect.Order]string{
	inspect.OrderNewest: "newest first", inspect.OrderFinished: "latest end first",
	inspect.OrderDue: "soonest due first", inspect.OrderClaim: "next to run first",
}

// sorts are the orders that have a place for the jobs of the filter.
func sorts(f inspect.Filter) []sortLink {
	if f.DeadLettered || len(f.IDs) > 0 {
		return nil
	}
	orders := []inspect.Order{inspect.OrderNewest}
	if n := natural(f); n != inspect.OrderNewest {
		orders = append(orders, n)
	}
	var out []sortLink
	for _, o := range orders {
		g := f
		g.Order = o
		out = append(out, sortLink{orderNames[o], g.String(), f.Order == o})
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

// tabs counts the jobs of the filter by state. If storages count them, the numbers are
// exact, and counts has them. Otherwise a look at some jobs counts those in the states of
// the filter, and the other tabs have no number.
func (h *Handler) tabs(p *page, f inspect.Filter, data *jobsData) (counts map[ojs.State]int, err error) {
	all := f
	all.States, all.Order = nil, inspect.OrderOldest
	count := make(map[ojs.State]int)
	var sum inspect.Count
	of := all
	if !f.Tallied() {
		of.States = f.States
	}
	facets, err := h.eng.Jobs().Facets(p.r.Context(), of, inspect.FacetState, look)
	if err != nil {
		return nil, err
	}
	sum = facets.Count()
	for _, v := range facets.Values {
		count[ojs.State(v.Value)] = v.N
	}
	ofAll := len(of.States) == 0
	data.Tabs = []tab{{Count: sum, Known: ofAll && (sum.Exact || sum.N > 0), Line: all.String(),
		On: len(f.States) == 0}}
	for _, s := range ojs.AllStates() {
		g := all
		g.States = []ojs.State{s}
		known := (ofAll || slices.Contains(of.States, s)) && (facets.Exact || count[s] > 0)
		n := inspect.Count{N: count[s], Exact: facets.Exact}
		data.Tabs = append(data.Tabs, tab{s, n, known, g.String(), len(f.States) == 1 && f.States[0] == s})
	}
	if f.Tallied() {
		counts = count
	}
	return counts, nil
}

// maxKnown is how many types and queues the filter suggests.
const maxKnown = 50

// known are the terms of states, types and queues that have jobs, which storages count,
// and the other keys of the filter line.
func (h *Handler) known(p *page) (list []string, err error) {
	facets, err := h.eng.Jobs().FacetsBy(p.r.Context(), inspect.Filter{}, 0, inspect.FacetState,
		inspect.FacetType, inspect.FacetQueue)
	if err != nil {
		return nil, err
	}
	for i, key := range []string{"state", "type", "queue"} {
		for _, v := range facets[i].Values[:min(len(facets[i].Values), maxKnown)] {
			list = append(list, terms.Term(key, v.Value))
		}
	}
	list = append(list, "dead:true")
	for _, key := range inspect.FilterKeys() {
		if !strings.HasSuffix(key, ".") { // any member follows
			key += ":"
		}
		if !slices.ContainsFunc(list, func(t string) bool { return strings.HasPrefix(t, key) }) {
			list = append(list, key)
		}
	}
	return list, nil
}

// terms are the suggestions of the search box, a line each. The script asks for them when
// the box gets the focus, so that no page has them.
func (h *Handler) terms(p *page) error {
	known, err := h.known(p)
	if err != nil {
		return err
	}
	p.answered = true
	p.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(p.w, strings.Join(known, "\n")) // a client that has left misses it
	return nil
}

// maxScan is how many jobs a list looks at for jobs that are known to be there.
const maxScan = 100_000

// listed is the page of a list. If storages have counted its jobs, by their states, the
// page is full or has all of them.
func (h *Handler) listed(p *page, f inspect.Filter, counts map[ojs.State]int) (inspect.Page, error) {
	ctx, at, n, most := p.r.Context(), p.r.FormValue("at"), pageSize, 0
	stored := 0
	if counts != nil {
		most = maxScan
		var rare []ojs.State // that have jobs, if an index finds these
		for s, of := range counts {
			if len(f.States) == 0 || slices.Contains(f.States, s) {
				stored += of
			}
			rare = append(rare, s)
		}
		few := !slices.ContainsFunc(rare, func(s ojs.State) bool { return !storage.Rare(s) })
		if stored == 0 {
			return inspect.Page{}, nil
		}
		if len(f.States) == 0 && few && f.Order == inspect.OrderNewest {
			f.States = rare
		}
		if at == "" {
			n = min(n, stored)
		}
	}
	// A relative time in the line is another one with each load.
	key := listKey{strings.TrimSpace(p.r.FormValue("q")), at, f.Order}
	if p.live() {
		if before := h.lists.recent(key, p.Now); before != nil {
			return h.again(ctx, f, before, p.Now)
		}
	}
	list, err := h.eng.Jobs().Find(ctx, f, at, n, most)
	if counts != nil && at == "" && len(list.Jobs) >= stored {
		list.Next = ""
	}
	if err == nil {
		h.lists.keep(key, p.Now, list)
	}
	return list, err
}

// costlyLists are pages of lists for which many jobs were looked at. An open page that
// loads itself again gets the same jobs, as they were some seconds ago. The list is made
// anew after a second for each 2,000 jobs that were looked at. A list without jobs is not
// kept, since the first job that matches has to show at once.
type costlyLists struct {
	mu sync.Mutex // guards of, and its lists
	of map[listKey]*costlyList
}

type listKey struct {
	line, cursor string
	order        inspect.Order
}

type costlyList struct {
	page inspect.Page // its jobs are as they were at read
	ids  []string
	at   time.Time // when the list was made
	read time.Time
}

const (
	maxLists   = 20              // that are kept
	listSecond = 2000            // jobs that an open list looks at in a second, on average
	listAge    = 5 * time.Second // of the jobs of a list that is kept: each costs a lookup
)

func (c *costlyLists) keep(key listKey, now time.Time, page inspect.Page) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, key)
	if page.Looked <= listSecond || len(page.Jobs) == 0 {
		return
	}
	if len(c.of) == maxLists || c.of == nil {
		c.of = make(map[listKey]*costlyList)
	}
	l := &costlyList{page: page, at: now, read: now}
	for _, job := range page.Jobs {
		l.ids = append(l.ids, job.ID)
	}
	c.of[key] = l
}

// recent returns a list that need not be made anew; nil: there is none.
func (c *costlyLists) recent(key listKey, now time.Time) *costlyList {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.of[key]
	if l == nil || now.Sub(l.at) >= time.Duration(l.page.Looked/listSecond)*time.Second {
		return nil
	}
	return l
}

// again is a list with those of its jobs that the filter still selects. One open page
// reads them, for all that show the list.
func (h *Handler) again(
	ctx context.Context, f inspect.Filter, l *costlyList, now time.Time,
) (inspect.Page, error) {
	h.lists.mu.Lock()
	page, fresh := l.page, now.Sub(l.read) < listAge
	if !fresh {
		l.read = now
	}
	h.lists.mu.Unlock()
	if fresh {
		return page, nil
	}
	f.IDs = l.ids
	list, err := h.eng.Jobs().Page(ctx, f, "", len(l.ids))
	if err != nil {
		return page, err
	}
	h.lists.mu.Lock()
	defer h.lists.mu.Unlock()
	l.page.Jobs, l.page.Workers = list.Jobs, list.Workers
	return l.page, nil
}

// Narrow is the filter line with a value of the break-down.
func (d *jobsData) Narrow(value string) string {
	key := map[inspect.Facet]string{inspect.FacetType: "type", inspect.FacetQueue: "queue",
		inspect.FacetError: "errortype"}[d.By]
	return strings.TrimSpace(d.Line + " " + terms.Term(key, value))
}
