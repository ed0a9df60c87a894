package main

import (
	"net/http"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ojsengine/ojs/engine"
	ojsprometheus "github.com/ojsengine/ojs/prometheus"
)

// withMetrics puts /metrics beside the pages.
func withMetrics(counts *ojsprometheus.Collector, pages http.Handler) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(counts)
	return at("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), pages)
}

// patience is how long the storage may take to answer for /health.
const patience = 2 * time.Second

// withHealth puts /health beside everything else. It is 503 if the storage does not
// answer.
func withHealth(eng *engine.Engine[any], clock clock.Clock, others http.Handler) http.Handler {
	return at("/health", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := clock.WithTimeout(r.Context(), patience)
		defer cancel()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		text := `{"status":"ok"}`
		if eng.Health(ctx).Storage == engine.Unhealthy {
			w.WriteHeader(http.StatusServiceUnavailable)
			text = `{"status":"unhealthy"}`
		}
		_, _ = w.Write([]byte(text + "\n")) // an error says that the caller has hung up
	}), others)
}

// at answers a path by one handler, and other paths by another. A ServeMux would redirect
// some of them.
func at(path string, h, others http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != path:
			others.ServeHTTP(w, r)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "ojs: "+path+" is for GET", http.StatusMethodNotAllowed)
		default:
			h.ServeHTTP(w, r)
		}
	})
}
