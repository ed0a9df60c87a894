package server

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/iso8601"
)

var adminSystemRoutes = []route{
	{method: http.MethodGet, path: "/admin/stats", need: permAdminRead, serve: (*Server).adminStats},
	{method: http.MethodGet, path: "/admin/stats/history", need: permAdminRead,
		serve: (*Server).adminHistory},
	{method: http.MethodGet, path: statsStream, need: permAdminRead, whole: true, waits: true,
		serve: (*Server).streamStats},
	{method: http.MethodGet, path: "/admin/system/maintenance", need: permAdminRead,
		serve: (*Server).replyMaintenance},
	{method: http.MethodPost, path: "/admin/system/maintenance", need: permAdminWrite, whole: true,
		body:  requiredBody,
		serve: (*Server).setMaintenance},
	{method: http.MethodGet, path: "/admin/system/config", need: permAdminRead, whole: true,
		serve: (*Server).systemConfig},
}

// adminStats answers GET /admin/stats (F148).
func (s *Server) adminStats(c *call) error {
	list, err := s.queues(c)
	if err != nil {
		return err
	}
	total, paused := make(map[ojs.State]int), 0
	for i := range list {
		for state, n := range list[i].Counts {
			total[state] += n
		}
		if list[i].State == ojs.QueuePaused {
			paused++
		}
	}
	seen, err := s.workersSeen(c)
	if err != nil {
		return err
	}
	now, words := s.now(), make(map[string]int)
	for i := range seen {
		words[seen[i].word(now)]++
	}
	n, err := s.lastHour(c.ctx, "")
	if err != nil {
		return err
	}
	counts := countsOf(total)
	return c.reply(http.StatusOK, obj{
		"queues", obj{"total", len(list), "active", len(list) - paused, "paused", paused},
		"workers", obj{"total", len(seen), "running", words["running"], "quiet", words["quiet"], "stale",
			words["stale"]},
		"jobs", append(counts[:len(counts):len(counts)], "counts", counts),
		"throughput", append(perMinute(&n), "latency_ms", latency(&n)),
		"uptime_seconds", int64(now.Sub(s.begun).Seconds()), "timestamp", now})
}

// adminHistory answers GET /admin/stats/history (F148).
func (s *Server) adminHistory(c *call) error {
	if err := c.mayAllOr(c.param("queue")); err != nil {
		return err
	}
	period := c.param("period")
	widths := map[string][2]time.Duration{"": {time.Minute, time.Minute}, "1m": {time.Minute, time.Minute},
		"5m": {time.Minute, 5 * time.Minute}, "1h": {time.Hour, time.Hour}, "1d": {time.Hour, 24 * time.Hour}}
	width, ok := widths[period]
	if !ok {
		return invalid("period", "is unknown").expected("1m, 5m, 1h or 1d").received(clip(period))
	}
	if period == "" {
		period = "1m"
	}
	since, err := c.moment("since")
	if err != nil {
		return err
	}
	until, err := c.moment("until")
	if err != nil {
		return err
	}
	if until.IsZero() {
		until = s.now()
	}
	if since.IsZero() {
		since = until.Add(-60 * width[1])
	}
	buckets, err := s.history(c.ctx, since, until, width[0])
	if err != nil {
		return err
	}
	data := []obj{}
	for i := 0; i < len(buckets); {
		start := buckets[i].Start.Truncate(width[1])
		var n counts
		for ; i < len(buckets) && buckets[i].Start.Before(start.Add(width[1])); i++ {
			n.add(&buckets[i], c.param("queue"))
		}
		data = append(data, point(start, &n))
	}
	return c.reply(http.StatusOK, obj{"period", period, "data", data})
}

func point(start time.Time, n *counts) obj {
	return obj{"timestamp", start, "processed", n.completed, "failed", n.failed, "enqueued", n.enqueued,
		"latency_p50_ms", n.runs.Quantile(0.5).Milliseconds(), "latency_p99_ms",
		n.runs.Quantile(0.99).Milliseconds()}
}

const keyMaintenance = "server/maintenance"

// maintenance is what the storage keeps of a maintenance beside the pause (F150).
type maintenance struct {
	Ends time.Time `json:"ends,omitzero"`
}

// replyMaintenance answers with the maintenance, as it is now (F183).
func (s *Server) replyMaintenance(c *call) error {
	pauses, err := s.op.Queues().Pauses(c.ctx)
	if err != nil {
		return err
	}
	var on bool
	var all inspect.Pause
	for _, p := range pauses {
		if p.Type == "" {
			on, all = true, p
		}
	}
	var m maintenance
	if on {
		v, there, err := s.documents().Value(c.ctx, s.now(), keyMaintenance)
		if err != nil {
			return err
		}
		if there {
			_ = json.Unmarshal(v.Data, &m)
		}
	}
	var reason any
	if all.Reason != "" {
		reason = all.Reason
	}
	return c.reply(http.StatusOK, obj{"maintenance", on, "enabled", on, "reason", reason,
		"enabled_at", all.At, "started_at", all.At, "estimated_end", m.Ends, "ends_at", m.Ends})
}

// setMaintenance answers POST /admin/system/maintenance (F150).
func (s *Server) setMaintenance(c *call) error {
	in := c.in()
	in.require("enabled")
	on, reason := in.flag("enabled"), in.text("reason")
	lasts := in.get("estimated_duration")
	name := "estimated_duration"
	if lasts == nil {
		name, lasts = "duration", in.get("duration")
	}
	if in.err != nil {
		return in.err
	}
	var m maintenance
	if lasts != nil {
		var text string
		if !decodeText(lasts, &text) {
			text = "PT" + string(lasts) + "S"
		}
		d, err := iso8601.Parse(text)
		if err != nil || d <= 0 {
			return invalid(name, "is no positive ISO 8601 duration").received(kindOf(lasts))
		}
		m.Ends = s.now().Add(d)
	}
	if !on {
		if err := s.op.Queues().ResumeAll(c.ctx); err != nil {
			return err
		}
		if err := s.documents().PutValues(c.ctx, s.now(),
			[]document.Value{{Key: keyMaintenance}}); err != nil {
			return err
		}
		c.audit("system.maintenance", "off")
		return s.replyMaintenance(c)
	}
	err := s.documents().PutValues(c.ctx, s.now(), []document.Value{{Key: keyMaintenance, Data: marshal(m)}})
	if err == nil {
		err = s.op.Queues().PauseAll(c.ctx, reason)
	}
	if err != nil {
		return err
	}
	c.audit("system.maintenance", "on")
	return s.replyMaintenance(c)
}

// systemConfig answers GET /admin/system/config. It has no secrets.
func (s *Server) systemConfig(c *call) error {
	conf := &s.conf
	limit := any(nil)
	if conf.limit.Burst > 0 {
		limit = obj{"per_second", conf.limit.PerSecond, "burst", conf.limit.Burst}
	}
	return c.reply(http.StatusOK, obj{"backend", s.can.Name, "durable", s.can.Durable,
		"authentication", conf.auth != nil, "request_rate", limit,
		"max_requests_per_client", conf.maxRequests,
		"limits", obj{"body_bytes", conf.maxBody, "batch_body_bytes", conf.maxBatchBody, "args_bytes",
			conf.maxArgs,
			"meta_bytes", conf.maxMeta, "json_depth", conf.maxDepth, "batch_jobs", conf.maxBatch,
			"fetch_jobs", conf.maxFetch},
		"defaults", obj{"queue", ojs.DefaultQueue, "priority", 0, "timeout_ms",
			draft.Milliseconds(ojs.DefaultTimeout),
			"visibility_timeout_ms", draft.Milliseconds(ojs.DefaultLease), "retry", raw(defaultRetryJSON)}})
}
