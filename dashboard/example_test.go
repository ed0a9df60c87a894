package dashboard_test

import (
	"errors"
	"net/http"

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
