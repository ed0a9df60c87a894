package server

import (
	"cmp"
	"context"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/ojsengine/ojs"
)

var systemRoutes = []route{
	{method: http.MethodGet, path: "/manifest", need: permAny, serve: (*Server).manifest},
	{method: http.MethodGet, path: "/health", need: permHealth, serve: (*Server).health},
}

const homepage = "https://github.com/ojsengine/ojs"

// version is that of WithVersion, or the one that the toolchain has stored.
func (s *Server) version() string {
	built := ""
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "(devel)" {
		built = info.Main.Version
	}
	return cmp.Or(s.conf.version, built, "devel")
}

// manifest answers GET /ojs/manifest (F100, F170).
func (s *Server) manifest(c *call) error {
	unique := s.can.Unique != ""
	engine := s.eng != nil
	can := obj{"batch_enqueue", engine, "cron_jobs", engine, "dead_letter", true, "delayed_jobs", engine,
		"job_ttl", engine, "priority_queues", true, "rate_limiting", true, "schema_validation",
		s.offersSchemas(),
		"unique_jobs", unique && engine, "workflows", engine, "pause_resume", true}
	strength := string(s.can.Unique)
	return c.reply(http.StatusOK, obj{"ojs_version", "1.0", "specversion", "1.0",
		"implementation", obj{"name", "ojs", "version", s.version(), "language", "go", "homepage", homepage,
			"repository", homepage},
		"conformance_level", 4, "conformance_tier", "runtime", "protocols", []string{"http"},
		"backend", s.can.Name, "capabilities", can, "unique_job_strength", strength,
		"unique_jobs", obj{"strength", strength, "mechanism", s.can.Mechanism},
		"schema_validation", s.offersSchemas(),
		"extensions", extensions, "extensions_detail", obj{"official", extensions, "experimental",
			[]string{}},
		"event_delivery", "best-effort",
		"endpoints", obj{"base_url", base, "manifest", "/ojs/manifest", "health", base + "/health"}})
}

// extensions are what the server has beyond the core, by the names of the texts.
var extensions = []string{"admin-api", "bulk-operations", "dead-letter", "events", "job-versioning",
	"progress",
	"rate-limiting", "results", extension}

// healthPatience is how long the storage may take to answer (F101).
const healthPatience = 2 * time.Second

// health answers GET /health (F101, F171).
func (s *Server) health(c *call) error {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	defer s.clock.AfterFunc(healthPatience, cancel).Stop()
	begun := s.clock.Now()
	queues, err := s.ownQueues(ctx, c)
	out := obj{"status", "ok", "version", s.version(), "uptime_seconds",
		int64(s.now().Sub(s.begun).Seconds())}
	stopping := false
	select {
	case <-s.stop:
		stopping = true
	default:
	}
	if err != nil || stopping {
		word := "the storage does not answer"
		if err == nil {
			word = "the server is stopping"
		} else {
			s.conf.log.Warn("the storage does not answer", "request_id", c.id, "error", err)
		}
		out[1] = "degraded"
		c.w.Header().Set("Retry-After", "1")
		return c.reply(http.StatusServiceUnavailable, append(out, "backend",
			obj{"type", s.can.Name, "status", "disconnected", "error", word}))
	}
	took := s.clock.Since(begun).Milliseconds() // a whole number, which the Go client wants
	paused := 0
	for i := range queues {
		if queues[i].State == ojs.QueuePaused {
			paused++
		}
	}
	// The storage has just answered: without its workers the health is still told.
	n, err := s.countWorkers(ctx)
	if err != nil {
		n = new(workerCount)
	}
	total := int(n.kept.Load()) - n.gone
	return c.reply(http.StatusOK, append(out,
		"backend", obj{"type", s.can.Name, "status", "connected", "latency_ms", took},
		"queues", obj{"total", len(queues), "paused", paused},
		"workers", obj{"total", total, "active", total - n.stale, "stale", n.stale}))
}
