package dashboard_test

import (
	"errors"
	"net/http"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/dashboard"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/memory"
)

// The pages beside an application's own, for operators only.
func Example() {
	eng, err := engine.New[any](memory.New())
	if err != nil {
		panic(err)
	}
	pages, err := dashboard.New(eng,
		dashboard.WithEnvironment("production"),
		dashboard.WithAuthorizer(func(r *http.Request, a dashboard.Action) error {
			if name, _, ok := r.BasicAuth(); a.Do == dashboard.Read || ok && name == "operator" {
				return nil
			}
			return errors.New("only operators change jobs")
		}))
	if err != nil {
		panic(err)
	}
	defer func() { _ = pages.Close() }()
	mux := http.NewServeMux()
	mux.Handle("/admin/jobs/", http.StripPrefix("/admin/jobs", pages))
}

// One dashboard for the engines of two storages. Only the owners of a storage change its
// jobs.
func ExampleNewMany() {
	shop, err := engine.New[any](memory.New())
	if err != nil {
		panic(err)
	}
	mail, err := engine.New[any](memory.New())
	if err != nil {
		panic(err)
	}
	engines := []dashboard.Named{{Name: "shop", Engine: shop}, {Name: "mail", Engine: mail}}
	pages, err := dashboard.NewMany(engines,
		dashboard.WithAuthorizer(func(r *http.Request, a dashboard.Action) error {
			if team, _, ok := r.BasicAuth(); a.Do == dashboard.Read || ok && team == a.Engine {
				return nil
			}
			return errors.New("only the team of an engine changes its jobs")
		}))
	if err != nil {
		panic(err)
	}
	defer func() { _ = pages.Close() }()
	http.Handle("/admin/jobs/", http.StripPrefix("/admin/jobs", pages))
}

// Package otel keeps the context of an enqueue in the job's metadata as traceparent,
// 00-TRACE-SPAN-FLAGS. The page of the job links to that trace, to whose span the traces
// of its attempts are linked, and to a log search.
func ExampleWithLinks() {
	eng, err := engine.New[any](memory.New())
	if err != nil {
		panic(err)
	}
	pages, err := dashboard.New(eng, dashboard.WithLinks(func(job *ojs.JobInfo) []dashboard.Link {
		logs := "https://logs.example.com/search?q=" + job.ID
		links := []dashboard.Link{{Name: "Log lines", URL: logs}}
		parent, _ := job.Meta["traceparent"].(string)
		if parts := strings.Split(parent, "-"); len(parts) == 4 {
			trace := "https://jaeger.example.com/trace/" + parts[1]
			links = append(links, dashboard.Link{Name: "Trace", URL: trace})
		}
		return links
	}))
	if err != nil {
		panic(err)
	}
	defer func() { _ = pages.Close() }()
	http.Handle("/admin/jobs/", http.StripPrefix("/admin/jobs", pages))
}
