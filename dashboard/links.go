package dashboard

import (
	"net/url"
	"strings"

	"github.com/ojsengine/ojs"
)

// Link leads from a job to another program, such as the one that keeps its trace.
type Link struct {
	Name string // the text of the link; "": the host of the URL
	URL  string // absolute, http or https, without user information
}

// maxLinks is how many links the page of a job shows.
const maxLinks = 20

// WithLinks sets a function that returns the links of a job for its page, at most 20,
// such as its trace or its lines in a log search. The job is a copy, and its parts are
// what WithRedact shows of them, so that no link has what the page hides. A URL that is
// not absolute, has another scheme than http and https, or has user information is left
// out, with a line at WARN. The function may be called concurrently. There are no links
// by default.
func WithLinks(links func(job *ojs.JobInfo) []Link) Option {
	return func(c *config) error {
		if links == nil {
			return invalid("links", "must not be nil")
		}
		c.links = links
		return nil
	}
}

// linksOf are the links of a job, which has gone through shown.
func (h *Handler) linksOf(shown *ojs.JobInfo) (list []Link) {
	if h.conf.links == nil {
		return nil
	}
	for _, l := range h.conf.links(shown.Clone()) {
		u, err := url.Parse(l.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
			h.conf.log.Warn("ojs: dashboard: link left out: its URL must be http or https, with a host and "+
				"without user information", "link", l.Name, "job", shown.ID)
			continue
		}
		if l.Name = strings.TrimSpace(l.Name); l.Name == "" {
			l.Name = u.Host
		}
		if list = append(list, l); len(list) == maxLinks {
			break
		}
	}
	return list
}
