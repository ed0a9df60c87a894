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
	"github.com/ojsengine/ojs/fleet"
	ojsprometheus "github.com/ojsengine/ojs/prometheus"
	"github.com/ojsengine/ojs/storage/memory"
)

// Each cell of a fleet has a collector, whose metrics have the label cell.
func Example_fleet() {
	registry := prometheus.NewRegistry()
	var cells []fleet.Cell
	for _, name := range []string{"a", "b"} {
		collector := ojsprometheus.New()
		collector.Declare("default", "mail.send")
		labels := prometheus.Labels{"cell": name}
		prometheus.WrapRegistererWith(labels, registry).MustRegister(collector)
		cells = append(cells, fleet.Cell{Name: name, Store: memory.New(),
			Options: []engine.Option{engine.WithObserver(collector)}})
	}
	f, err := fleet.New[string](fleet.Config{Cells: cells})
	if err != nil {
		log.Fatal(err)
	}
	f.Handle("mail.send", func(context.Context, *ojs.Job[string]) error { return nil })

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	for _, tenant := range []string{"acme", "globex", "initech"} {
		ticket, err := f.Enqueue(ctx, "mail.send", "ada@example.org", fleet.WithCell(tenant))
		if err != nil {
			log.Fatal(err)
		}
		if _, err := f.Wait(ctx, ticket.ID); err != nil {
			log.Fatal(err)
		}
	}
	page := httptest.NewRecorder()
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	metrics.ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	for lines := bufio.NewScanner(page.Body); lines.Scan(); {
		if l := lines.Text(); strings.HasPrefix(l, "ojs_job_completed") {
			fmt.Println(l)
		}
	}
	// Output:
	// ojs_job_completed_total{cell="a",queue="default",type="mail.send"} 1
	// ojs_job_completed_total{cell="b",queue="default",type="mail.send"} 2
}
