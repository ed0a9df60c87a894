package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/dashboard"
	"github.com/ojsengine/ojs/engine"
	ojsprometheus "github.com/ojsengine/ojs/prometheus"
	binding "github.com/ojsengine/ojs/server"
)

type serveVerb struct {
	Listen         string   `setting:"OJS_LISTEN" default:"127.0.0.1:8080" placeholder:"ADDR" help:"The address to listen on."`
	Actions        bool     `setting:"OJS_ACTIONS" help:"Let the pages change jobs; without it they only read."`
	Binding        bool     `setting:"OJS_BINDING" help:"Answer programs in any language under /ojs, by the HTTP binding of Open Job Spec; they may do everything, and finished jobs are pruned."`
	Environment    string   `setting:"OJS_ENVIRONMENT" placeholder:"NAME" help:"A badge beside the title, such as production."`
	TrustedOrigins []string `setting:"OJS_TRUSTED_ORIGINS" placeholder:"ORIGIN" help:"Origins that may post forms, with commas between."`
}

func (serveVerb) Help() string {
	return `It shows the jobs of a storage as web pages and runs no jobs. /metrics is for Prometheus, and
/health says whether the storage answers. Variables, or the file with settings, have what
other users of the machine should not see:

  OJS_USER, OJS_PASSWORD      the log-in of the pages and of /metrics
  OJS_TOKEN                   a bearer token, or the password of any user

Without them the pages are for this machine only. /health asks for no log-in.`
}

// Run serves the dashboard until the call ends.
func (v *serveVerb) Run(c *call) error {
	who, err := accessOf(c.settings.get)
	if err != nil {
		return err
	}
	if err := who.check(v.Listen); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(c.errs, nil))
	st, err := c.store()
	if err != nil {
		return err
	}
	eng, err := engine.New[any](st, engine.WithName("ojs-serve"), engine.WithLogger(log))
	if err != nil {
		return err
	}
	opts := []dashboard.Option{dashboard.WithoutRunning(), dashboard.WithHosts("*"), // guard has decided
		dashboard.WithEnvironment(v.Environment),
		dashboard.WithActor(actor), dashboard.WithLogger(log)}
	if v.Actions {
		opts = append(opts, dashboard.WithAuthorizer(dashboard.AllowAll)) // the log-in has decided
	}
	if len(v.TrustedOrigins) > 0 {
		opts = append(opts, dashboard.WithTrustedOrigins(v.TrustedOrigins...))
	}
	pages, err := dashboard.New(eng, opts...)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", v.Listen)
	if err != nil {
		return errors.Join(err, pages.Close())
	}
	counts := ojsprometheus.New()
	counts.Watch(eng.Stats)
	counts.WatchLimits(eng.Limits().List)
	h := who.guard(withMetrics(counts, pages))
	end := closer(func(context.Context) error { return pages.Close() })
	ctx, stop := context.WithCancel(c.ctx)
	defer stop()
	if v.Binding {
		if h, end, err = withBinding(ctx, stop, st, who, log, counts, h, end); err != nil {
			return errors.Join(err, listener.Close(), pages.Close())
		}
	}
	h = withHealth(eng, c.clock, h)
	fmt.Fprintf(c.out, "ojs: serving the dashboard on http://%s/\n", listener.Addr())
	if err := notify(c.env, "READY=1"); err != nil {
		log.Warn("systemd is not told that the command is ready", "error", err)
	}
	return answer(ctx, listener, h, func(grace context.Context) error {
		_ = notify(c.env, "STOPPING=1") // READY=1 has told of an error
		return end(grace)
	})
}

// closer ends what answers requests, before a context ends.
type closer func(grace context.Context) error

// gracePeriod is how long requests under way may take once the command is to end.
const gracePeriod = 10 * time.Second

// answer answers requests until ctx ends, and then those under way, for gracePeriod at
// most.
func answer(ctx context.Context, listener net.Listener, h http.Handler, end closer) error {
	server := binding.HTTPServer(h)
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		grace, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer clock.New().AfterFunc(gracePeriod, cancel).Stop()
		err := end(grace) // it ends streams, which Shutdown would wait for
		stopped <- errors.Join(err, server.Shutdown(grace))
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(err, end(ctx))
	}
	return <-stopped
}
