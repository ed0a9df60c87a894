package dashboard

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/terms"
)

//go:embed templates
var templateFiles embed.FS

// templates has one set for each page: the layout, the parts that pages share, and the
// page's own file, which defines "main".
var templates = parseTemplates()

func parseTemplates() map[string]*template.Template {
	shared := template.Must(template.ParseFS(templateFiles, "templates/layout.html", "templates/parts.html"))
	sets := make(map[string]*template.Template)
	files, err := templateFiles.ReadDir("templates")
	if err != nil {
		panic(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".html")
		if name == "layout" || name == "parts" {
			continue
		}
		set := template.Must(shared.Clone())
		sets[name] = template.Must(set.ParseFS(templateFiles, path.Join("templates", f.Name())))
	}
	return sets
}

// page is an answer while it is made, and the root of its template.
type page struct {
	h        *Handler
	w        http.ResponseWriter
	r        *http.Request
	answered bool // the page function has written the answer itself

	display
	Now   time.Time
	Root  string // the relative link to the overview, with its last slash
	Here  string // the path of the entry of the navigation that the page belongs to
	File  string // the template
	Title string
	Data  any

	Refresh int // seconds until the page loads itself again; 0: never
}

func (h *Handler) newPage(w http.ResponseWriter, r *http.Request) *page {
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if first != "" {
		first += "/"
	}
	return &page{h: h, w: w, r: r, display: displayOf(r), Now: h.conf.clock.Now(), Root: depth(r.URL.Path),
		Here: first}
}

// show names the page's template, title and data.
func (p *page) show(file, title string, data any) error {
	p.File, p.Title, p.Data = file, title, data
	return nil
}

// moved answers with a redirect.
func (p *page) moved(to string) error {
	p.answered = true
	redirect(p.w, to)
	return nil
}

// write renders a page before it sends the first byte, so that a failure is a whole page.
func (h *Handler) write(p *page, status int) {
	var b bytes.Buffer
	if err := templates[p.File].ExecuteTemplate(&b, "layout", p); err != nil {
		h.conf.log.Error("ojs: dashboard: template failed", "page", p.File, "error", err)
		http.Error(p.w, "the page failed; the log has the error", http.StatusInternalServerError)
		return
	}
	p.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	p.w.WriteHeader(status)
	_, _ = p.w.Write(b.Bytes()) // a client that has left misses it
}

// problem is a page that says what went wrong.
type problem struct {
	Status       int
	Title, Text  string
	Origin, Host string // of a form that came from another origin
}

func (h *Handler) problem(w http.ResponseWriter, r *http.Request, pr problem) {
	p := h.newPage(w, r)
	_ = p.show("problem", p.T(pr.Title), pr)
	h.write(p, pr.Status)
}

// With returns the page with other data, for a template inside a template.
func (p *page) With(data any) *page {
	q := *p
	q.Data = data
	return &q
}

// Site is the title of all pages, Environment the badge beside it.
func (p *page) Site() string        { return p.h.conf.title }
func (p *page) Environment() string { return p.h.conf.environment }
func (p *page) ReadOnly() bool      { return p.h.conf.authorize == nil }

// navEntry is an entry of the navigation with its number.
type navEntry struct {
	entry
	N int // 0: it shows none
}

// Counts reports whether the entry has a number.
func (e navEntry) Counts() bool { return e.count != nil }

// Nav has the entries of the navigation. All pages share the numbers, which storages
// count and which are some seconds old. A page that says what went wrong has none: its
// reader may not be allowed to know them.
func (p *page) Nav() []navEntry {
	out := make([]navEntry, len(navigation))
	var stats *engine.Stats
	if p.File != "problem" {
		stats = p.h.recentStats(p.r.Context(), p.Now)
	}
	for i, e := range navigation {
		if out[i].entry = e; e.count != nil && stats != nil {
			out[i].N = e.count(stats)
		}
	}
	return out
}

// countsAge is how old the numbers of the navigation may be.
const countsAge = 5 * time.Second

// seenStats are the stats at a moment.
type seenStats struct {
	stats engine.Stats
	at    time.Time
}

// stats are those of the engine. The navigation of the next pages has them, too.
func (h *Handler) stats(ctx context.Context) (engine.Stats, error) {
	stats, err := h.eng.Stats(ctx)
	if err == nil {
		h.counts.Store(&seenStats{stats, h.conf.clock.Now()})
	}
	return stats, err
}

// recentStats are stats that are some seconds old; nil if they cannot be read. One page
// at a time reads them. The others have the old ones, or wait for the first.
func (h *Handler) recentStats(ctx context.Context, now time.Time) *engine.Stats {
	seen := h.counts.Load()
	if seen == nil {
		select {
		case h.counting <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		seen = h.counts.Load()
	} else if now.Sub(seen.at) >= countsAge {
		select {
		case h.counting <- struct{}{}:
		default:
			return &seen.stats
		}
	} else {
		return &seen.stats
	}
	defer func() { <-h.counting }()
	if seen != nil && now.Sub(seen.at) < countsAge { // another page has read them meanwhile
		return &seen.stats
	}
	stats, err := h.stats(ctx)
	if err != nil {
		return nil
	}
	return &stats
}

// Style and Script are the addresses of the assets.
func (p *page) Asset(name string) string { return p.Top() + "assets/" + assetVersion + "/" + name }

// Seg is a name as a segment of an address.
func (p *page) Seg(name string) string { return url.PathEscape(name) }

// JobLink is the address of a job.
func (p *page) JobLink(id string) string { return p.Root + "jobs/" + url.PathEscape(id) + "/" }

// QueueLink is the address of a queue.
func (p *page) QueueLink(name string) string { return p.Root + "queues/" + url.PathEscape(name) + "/" }

// List is the address of the jobs that a filter line selects.
func (p *page) List(line string) string { return p.Root + "jobs/?q=" + url.QueryEscape(line) }

// ListBy is the address of the jobs of a queue, type or error type.
func (p *page) ListBy(key, value string) string { return p.List(terms.Term(key, value)) }

// MayDo reports whether the request may do an action.
func (p *page) MayDo(a Action) bool { return p.h.may(p.r, a) == nil }

// May reports whether to show the button of an action.
func (p *page) May(do Verb, on, name, queue, jobType string) bool {
	return p.h.may(p.r, Action{Do: do, On: on, Name: name, Queue: queue, Type: jobType}) == nil
}
