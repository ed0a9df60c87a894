package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/engine"
	binding "github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/server/jsonschema"
	"github.com/ojsengine/ojs/storage"
)

// withBinding puts the HTTP binding under /ojs, beside the pages. Its engine has no
// handlers: it promotes, prunes and fires what is due. The closer ends the engine, too.
func withBinding(ctx context.Context, st storage.Storage, who access, log *slog.Logger, pages http.Handler,
	closePages io.Closer) (http.Handler, io.Closer, error) {
	opts := append(binding.EngineOptions(), engine.WithName("ojs-binding"), engine.WithLogger(log),
		engine.WithReports(engine.Reports{})) // so that its statistics count
	eng, err := engine.New[any](st, opts...)
	if err != nil {
		return nil, nil, err
	}
	conf := []binding.Option{binding.WithLogger(log), binding.WithSchemas(jsonschema.New())}
	if !who.open() {
		conf = append(conf, binding.WithAuthenticator(who))
	}
	srv, err := binding.New(eng, conf...)
	if err != nil {
		return nil, nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(running) }()
	both := func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/ojs/") { // a ServeMux would redirect some of them
			srv.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	}
	return http.HandlerFunc(both), closers(func() error {
		err := closePages.Close()
		grace, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer clock.New().AfterFunc(gracePeriod, cancel).Stop()
		defer cancel()
		err = errors.Join(err, srv.Close(grace))
		stop()
		return errors.Join(err, <-ended)
	}), nil
}

// closers is an io.Closer.
type closers func() error

// Close closes.
func (c closers) Close() error { return c() }

// Authenticate proves a request of the binding by the log-in of the pages.
func (a access) Authenticate(r *http.Request) (*binding.Principal, error) {
	if !a.permits(r) {
		return nil, nil
	}
	name := actor(r)
	if name == "" {
		name = "token"
	}
	return &binding.Principal{Name: name, Grants: []binding.Grant{{Role: binding.Admin}}}, nil
}
