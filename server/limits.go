package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/iso8601"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
)

// Limits of keys and queues (L035, L042-L044). The storage counts them.

var limitRoutes = []route{
	{method: http.MethodGet, path: "/rate-limits", need: permInspect, whole: true,
		serve: (*Server).listLimits},
	{method: http.MethodGet, path: "/rate-limits/{key}", need: permInspect, whole: true,
		serve: (*Server).getLimit},
	{method: http.MethodPut, path: "/rate-limits/{key}", need: permOperate, whole: true, body: requiredBody,
		serve: (*Server).putLimit},
	{method: http.MethodPut, path: "/rate-limits/{key}/override", need: permOperate, whole: true,
		body: requiredBody, serve: (*Server).putLimit},
	{method: http.MethodDelete, path: "/rate-limits/{key}/override", need: permOperate, whole: true,
		serve: (*Server).clearLimit},
	{method: http.MethodGet, path: "/admin/queues/{name}/rate-limit", need: permAdminRead,
		serve: (*Server).getQueueLimit},
	{method: http.MethodPut, path: "/admin/queues/{name}/rate-limit", need: permAdminWrite,
		body:  requiredBody,
		serve: (*Server).putQueueLimit},
	{method: http.MethodDelete, path: "/admin/queues/{name}/rate-limit", need: permAdminWrite,
		serve: (*Server).clearQueueLimit},
}

// limitBounds reads the bounds of a limit, without a key (L035, L043).
func limitBounds(in *input) (l ojs.RateLimit, until time.Time, err error) {
	until = in.time("expires_at")
	if in.err != nil {
		return l, until, in.err
	}
	o := object{{"key", []byte(`"k"`)}} // which the form of a job wants
	for _, m := range in.object {
		if m.name == "key" || m.name == "on_limit" {
			return l, until, invalid(m.name, "is no member of a limit").
				expected("concurrency, rate, throttle, expires_at; or limit and period")
		}
		if m.name != "expires_at" && !isNull(m.value) {
			o = append(o, m)
		}
	}
	if err := l.UnmarshalJSON(o.appendJSON(nil)); err != nil {
		return l, until, err
	}
	if l.Key = ""; !l.Bounds() {
		return l, until, invalid("concurrency", "and rate and throttle are all missing").
			expected("at least one of concurrency, rate and throttle")
	}
	return l, until, nil
}

// bounds are the members of a limit's bounds, null for each that is not set.
func bounds(l *ojs.RateLimit) obj {
	o := obj{"concurrency", nil, "rate", nil, "throttle", nil}
	if l == nil {
		return o
	}
	if l.Concurrency != 0 {
		o[1] = max(l.Concurrency, 0) // NoneAtOnce
	}
	if l.Rate.Limit > 0 {
		o[3] = rate(l.Rate)
	}
	if l.Throttle.Limit > 0 {
		o[5] = rate(l.Throttle)
	}
	return o
}

func rate(r ojs.Rate) obj { return obj{"limit", r.Limit, "period", iso8601.Format(r.Per)} }

// limitObject is the state of a key's limit (L042).
func limitObject(l *storage.Limit) obj {
	o := obj{"key", l.Name, "concurrency", nil, "rate", nil, "throttle", nil}
	b := &l.Bounds
	if b.Concurrency != 0 {
		n := max(b.Concurrency, 0)
		o[3] = obj{"limit", n, "active", l.Active, "available", max(n-l.Active, 0)}
	}
	var opens any
	if !l.Opens.IsZero() {
		opens = l.Opens
	}
	if b.Rate.Limit > 0 {
		o[5] = append(rate(b.Rate), "current_count", l.Starts, "window_resets_at", opens)
	}
	if b.Throttle.Limit > 0 {
		o[7] = append(rate(b.Throttle), "next_allowed_at", opens)
	}
	o = append(o, "waiting_count", l.Waiting, "active", l.Active, "waiting", l.Waiting)
	switch {
	case b.Rate.Limit > 0:
		o = append(o, rate(b.Rate)...)
	case b.Concurrency != 0:
		o = append(o, "limit", max(b.Concurrency, 0))
	}
	o = o.opt("blocked_until", l.BlockedUntil)
	if l.Setting != nil {
		set := bounds(l.Setting)
		o = append(o, "override", set.opt("expires_at", l.Until))
	}
	return o
}

// limitKey is the key that the path names.
func (c *call) limitKey() (operate.LimitName, error) {
	key := c.value("key")
	c.about("rate_limit", key)
	l := ojs.RateLimit{Key: key, Concurrency: 1}
	return operate.LimitOfKey(key), l.Validate()
}

// listLimits answers GET /rate-limits (L044).
func (s *Server) listLimits(c *call) error {
	p, err := c.paging()
	if err != nil {
		return err
	}
	var all []storage.Limit
	for after := ""; ; {
		page, err := s.op.Limits().List(c.ctx, operate.LimitQuery{After: after, Limit: 1000})
		if err != nil {
			return err
		}
		all = append(all, page...)
		if len(page) < 1000 {
			break
		}
		after = page[len(page)-1].Name
	}
	page, next := pageOf(&p, all, func(l *storage.Limit) string { return l.Name })
	list := make([]obj, len(page))
	for i := range page {
		list[i] = limitObject(&page[i])
	}
	return c.reply(http.StatusOK, p.answer("items", list, len(list), len(all), next))
}

// getLimit answers GET /rate-limits/{key} (L042).
func (s *Server) getLimit(c *call) error {
	name, err := c.limitKey()
	if err != nil {
		return err
	}
	l, err := s.op.Limits().Get(c.ctx, name)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, limitObject(&l))
}

// putLimit answers PUT /rate-limits/{key} (L043).
func (s *Server) putLimit(c *call) error {
	name, err := c.limitKey()
	if err != nil {
		return err
	}
	if err := s.setLimit(c, name); err != nil {
		return err
	}
	return s.replyLimit(c, name)
}

// setLimit sets the bounds of the body.
func (s *Server) setLimit(c *call, name operate.LimitName) error {
	b, until, err := limitBounds(c.in())
	if err != nil {
		return err
	}
	if err := s.op.Limits().Set(c.ctx, name, b, until); err != nil {
		return err
	}
	c.audit("limit.set", string(name.Kind)+" "+name.Name)
	return nil
}

// clearLimit answers DELETE /rate-limits/{key}/override.
func (s *Server) clearLimit(c *call) error {
	name, err := c.limitKey()
	if err != nil {
		return err
	}
	l, err := s.op.Limits().Get(c.ctx, name)
	if err != nil {
		return err
	}
	if l.Setting == nil {
		return notFound("rate_limit_override", name.Name)
	}
	if err := s.op.Limits().Clear(c.ctx, name); err != nil {
		return err
	}
	c.audit("limit.cleared", "key "+name.Name)
	return s.replyLimit(c, name)
}

// replyLimit answers a change of a key, of which nothing else may be known.
func (s *Server) replyLimit(c *call, name operate.LimitName) error {
	l, err := s.op.Limits().Get(c.ctx, name)
	if err != nil && !errors.Is(err, ojs.ErrNotFound) {
		return err
	}
	l.LimitName = name
	return c.reply(http.StatusOK, limitObject(&l))
}

// queueLimit answers with the limit of the queue that the path names.
func (s *Server) queueLimit(c *call) error {
	name := c.value("name")
	l, err := s.op.Limits().Get(c.ctx, operate.LimitOfQueue(name))
	if err != nil && !errors.Is(err, ojs.ErrNotFound) {
		return err
	}
	return c.reply(http.StatusOK, append(obj{"name", name, "queue", name}, bounds(l.Setting)...))
}

// limitedQueue checks the name of the queue that the path names.
func (c *call) limitedQueue() (operate.LimitName, error) {
	name := c.value("name")
	c.about("queue", name)
	if ojs.ValidateQueue(name) != nil {
		return operate.LimitName{}, notFound("queue", name)
	}
	return operate.LimitOfQueue(name), c.may(name)
}

// getQueueLimit answers GET /admin/queues/{name}/rate-limit (L035).
func (s *Server) getQueueLimit(c *call) error {
	name, err := c.limitedQueue()
	if err != nil {
		return err
	}
	known, err := s.knowsQueue(c, name.Name)
	if err == nil && !known {
		_, err = s.op.Limits().Get(c.ctx, name)
	}
	if err != nil {
		return err
	}
	return s.queueLimit(c)
}

// putQueueLimit answers PUT /admin/queues/{name}/rate-limit. It takes effect at once.
func (s *Server) putQueueLimit(c *call) error {
	name, err := c.limitedQueue()
	if err != nil {
		return err
	}
	if err := s.setLimit(c, name); err != nil {
		return err
	}
	return s.queueLimit(c)
}

// clearQueueLimit answers DELETE /admin/queues/{name}/rate-limit.
func (s *Server) clearQueueLimit(c *call) error {
	name, err := c.limitedQueue()
	if err != nil {
		return err
	}
	if err := s.op.Limits().Clear(c.ctx, name); err != nil {
		return err
	}
	c.audit("limit.cleared", "queue "+name.Name)
	return s.queueLimit(c)
}
