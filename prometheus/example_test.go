package ojsprometheus_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	ojsprometheus "github.com/ojsengine/ojs/prometheus"
	"github.com/ojsengine/ojs/storage/memory"
)

// The text of /metrics after one job.
func Example() {
	collector := ojsprometheus.New()
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer, with promhttp.Handler
	registry.MustRegister(collector)
	eng, err := engine.New[string](memory.New(), engine.WithObserver(collector))
	if err != nil {
		log.Fatal(err)
	}
	collector.Watch(eng.Stats)
	collector.Declare("default", "mail.send")
	eng.Handle("mail.send", func(context.Context, *ojs.Job[string]) error { return nil })
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{}) // http.Handle("/metrics", metrics)

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- eng.Run(ctx) }()
	if _, err := eng.Enqueue(ctx, "mail.send", "ada@example.org"); err != nil {
		log.Fatal(err)
	}
	if err := eng.WaitIdle(ctx); err != nil {
		log.Fatal(err)
	}
	page := httptest.NewRecorder()
	metrics.ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	for lines := bufio.NewScanner(page.Body); lines.Scan(); {
		if l := lines.Text(); strings.HasPrefix(l, "ojs_job_completed") ||
			strings.HasPrefix(l, "ojs_job_failed") {
			fmt.Println(l)
		}
	}
	// Output:
	// ojs_job_completed_total{queue="default",type="mail.send"} 1
	// ojs_job_failed_total{queue="default",type="mail.send"} 0
}
