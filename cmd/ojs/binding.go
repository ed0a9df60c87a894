package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/ojsengine/ojs/engine"
	ojsprometheus "github.com/ojsengine/ojs/prometheus"
	binding "github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/server/jsonschema"
	"github.com/ojsengine/ojs/server/websocket"
	"github.com/ojsengine/ojs/storage"
)

// withBinding puts the HTTP binding under /ojs, beside the pages. Its engine has no
// handlers: it promotes, prunes and fires what is due. The closer ends the engine, too.
// If the engine ends by itself, end is called: without it no job would be promoted.
func withBinding(ctx context.Context, end func(), st storage.Storage, who access, log *slog.Logger,
	counts *ojsprometheus.Collector, pages http.Handler, closePages closer) (http.Handler, closer, error) {
	opts := append(binding.EngineOptions(), engine.WithName("ojs-binding"), engine.WithLogger(log),
		engine.WithObserver(counts), engine.WithReports(engine.Reports{})) // so that its statistics count
	eng, err := engine.New[any](st, opts...)
	if err != nil {
		return nil, nil, err
	}
	counts.Watch(eng.Stats)
	conf := []binding.Option{binding.WithLogger(log), binding.WithSchemas(jsonschema.New()),
		binding.WithWebSockets(websocket.New())}
	if !who.open() {
		conf = append(conf, binding.WithAuthenticator(who))
	} else {
		log.Warn("the binding asks for no log-in: every program on this machine may do everything; " +
			"set OJS_TOKEN, or OJS_USER and OJS_PASSWORD")
	}
	srv, err := binding.New(eng, conf...)
	if err != nil {
		return nil, nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() {
		err := eng.Run(running)
		if running.Err() == nil {
			log.Error("the engine of the binding has ended; the command ends, too", "error", err)
			err = errors.Join(errors.New("ojs: the engine of the binding has ended"), err)
			end()
		}
		ended <- err
	}()
	both := func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/ojs/") { // a ServeMux would redirect some of them
			srv.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	}
	return http.HandlerFunc(both), func(grace context.Context) error {
		err := errors.Join(closePages(grace), srv.Close(grace))
		stop()
		select {
		case failed := <-ended:
			return errors.Join(err, failed)
		case <-grace.Done():
			return errors.Join(err, grace.Err())
		}
	}, nil
}

// Authenticate proves a request of the binding by the log-in of the pages.
func (a access) Authenticate(r *http.Request) (*binding.Principal, error) {
	if !a.permits(r) {
		return nil, nil
	}
	name := actor(r)
	if name == "" {
		name = "token"
	}
	return &binding.Principal{Name: name, Grants: []binding.Grant{{Role: binding.RoleAdmin}}}, nil
}
