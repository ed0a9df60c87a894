package server

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs/internal/iso8601"
)

// call is a request under way.
type call struct {
	s   *Server
	w   http.ResponseWriter
	r   *http.Request
	ctx context.Context

	id  string // of the request (F011)
	who *Principal
	rt  *route

	admitted bool   // underway counts it
	body     object // of a route that reads one
	sent     []byte // the body as JSON

	kind, name string // what an error of the library is about; see about
	query      url.Values
	status     int            // that was answered; 0: none yet
	depths     map[string]int // of queues, once a full one has been met
	buf        []byte
}

// reset readies a used call for another request. Its buffer stays, unless it is large.
func (c *call) reset() {
	buf := c.buf[:0]
	if cap(buf) > 1<<20 {
		buf = nil
	}
	*c = call{buf: buf}
}

// about says which thing the request is about, for the answer that it is not found.
func (c *call) about(kind, name string) { c.kind, c.name = kind, name }

// value returns a part of the path, unescaped.
func (c *call) value(name string) string { return c.r.PathValue(name) }

// in reads the body. A route without a body has an empty one.
func (c *call) in() *input { return &input{object: c.body, call: c} }

// admin reports whether the path is under /admin, whose answers have other forms.
func (c *call) admin() bool { return strings.HasPrefix(c.r.URL.Path, base+"/admin/") }

// readQuery reads the query. A malformed one is refused: without its bad parts a call
// would change more jobs.
func (c *call) readQuery() (err error) {
	if c.r.URL.RawQuery == "" {
		return nil
	}
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		return invalid("query", "is not valid").expected("name=value, with & between, and %3B for ;")
	}
	return nil
}

// param returns a query parameter, "" if it is absent.
func (c *call) param(name string) string {
	if c.query == nil {
		c.query = c.r.URL.Query()
	}
	return c.query.Get(name)
}

// number reads a query parameter that is an integer from least to most.
func (c *call) number(name string, absent, least, most int) (int, error) {
	text := c.param(name)
	if text == "" {
		return absent, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, invalid(name, "is not an integer in its range").
			expected("an integer from " + strconv.Itoa(least) + " to " +
				strconv.Itoa(most)).received(clip(text))
	}
	return n, nil
}

// moment reads a query parameter that is a time; zero: it is absent.
func (c *call) moment(name string) (t time.Time, err error) {
	text := c.param(name)
	if text == "" {
		return t, nil
	}
	t, ok := parseTime(text)
	if !ok {
		return t, invalid(name, "is no RFC 3339 time with a zone").
			expected("such as 2026-03-01T12:00:00Z").received(clip(text))
	}
	return t, nil
}

// only refuses members of a body and parameters with other names. It refuses a parameter
// without a value, with several, or beside a member of its name. A call that ignored one
// would change other jobs. Only a DELETE has parameters beside confirm (F178).
func (c *call) only(names ...string) error {
	for _, m := range c.body {
		if !slices.Contains(names, m.name) {
			return invalid(clip(m.name), "is unknown").expected(strings.Join(names, ", "))
		}
	}
	if c.r.Method != http.MethodDelete {
		names = []string{"confirm"}
	}
	for name, values := range c.query {
		switch {
		case name == "cell":
		case !slices.Contains(names, name):
			return invalid(clip(name), "is unknown").expected(strings.Join(names, ", "))
		case slices.Contains(values, ""):
			return invalid(name, "is empty").expected("a value, or no parameter")
		case name != "confirm" && (len(values) > 1 || c.body.get(name) != nil):
			return givenTwice(name)
		}
	}
	return nil
}

func givenTwice(name string) error { return invalid(name, "is given twice").expected("one value") }

// confirmed refuses a call that has not "confirm": true (F145). The parameter of the same
// name works too (F178).
func (c *call) confirmed() error {
	if string(c.body.get("confirm")) == "true" || c.body.get("confirm") == nil &&
		c.param("confirm") == "true" {
		return nil
	}
	return invalid("confirm", "is not true: the call changes many jobs").expected("true")
}

// age is the time older_than of an object. It may be a duration, which ends now.
func (c *call) age(in *input) time.Time {
	if d, err := iso8601.Parse(in.text("older_than")); err == nil {
		return c.s.now().Add(-d)
	}
	return in.time("older_than")
}

// olderThan is the time older_than of the body, or else of the query.
func (c *call) olderThan(given time.Time) (time.Time, error) {
	if !given.IsZero() {
		return given, nil
	}
	if d, err := iso8601.Parse(c.param("older_than")); err == nil {
		return c.s.now().Add(-d), nil
	}
	return c.moment("older_than")
}

// reply answers with an object. 204 has no body.
func (c *call) reply(status int, body obj) error {
	return c.replyJSON(status, appendValue(c.buf[:0], body))
}

// replyJSON answers with JSON that is an object. The memory of body is the call's from
// then on.
func (c *call) replyJSON(status int, body []byte) error {
	c.buf = body
	_ = c.write(status, body) // a caller that has gone reads nothing
	return nil
}

// write sends an answer. The error says that the caller has hung up.
func (c *call) write(status int, body []byte) error {
	c.status = status
	h := c.w.Header()
	if status == http.StatusNoContent {
		c.w.WriteHeader(status)
		return nil
	}
	h["Content-Type"] = contentType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	c.w.WriteHeader(status)
	return c.send(body)
}

var contentType = []string{"application/openjobspec+json"}

// fail answers with an error.
func (c *call) fail(err error) {
	r := c.refusalOf(err)
	h := c.w.Header()
	for _, line := range r.header {
		h.Set(line[0], line[1])
	}
	if after := r.retryAfter(); after != "" {
		h.Set("Retry-After", after)
	}
	c.buf = r.appendTo(c.buf[:0], c.id)
	_ = c.write(r.status, c.buf)
	c.s.logRefusal(c, r)
}

// engine returns the engine, or refuses a call of a server that has none.
func (c *call) engine() (Engine, error) {
	if c.s.eng == nil {
		return nil,
			unsupported("this server has a storage and no engine: it neither enqueues nor hands out jobs")
	}
	return c.s.eng, nil
}
