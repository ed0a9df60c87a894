package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/dashboard"
	"github.com/ojsengine/ojs/engine"
)

const serveUsage = `ojs serve shows the jobs of a storage as web pages. It runs no jobs.

The storage is postgres://…, sqlite:PATH or the path of a SQLite file. The environment has
what other users of the machine should not see:

  OJS_STORAGE                 the storage, if -storage is not given
  OJS_USER, OJS_PASSWORD      the log-in of the pages
  OJS_TOKEN                   a bearer token, or the password of any user

`

// serve serves the dashboard until ctx ends.
func serve(ctx context.Context, args []string, env func(string) string, out, errs io.Writer) (err error) {
	flags := flag.NewFlagSet("ojs serve", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.Usage = func() {
		fmt.Fprint(errs, serveUsage)
		flags.PrintDefaults()
	}
	address := flags.String("storage", "", "the storage (default $OJS_STORAGE)")
	schema := flags.String("schema", "", "the schema of PostgreSQL (default \"ojs\")")
	listen := flags.String("listen", "127.0.0.1:8080", "the address to listen on")
	actions := flags.Bool("actions", false, "let the pages change jobs; without it they only read")
	environment := flags.String("environment", "", "a badge beside the title, such as production")
	origins := flags.String("trusted-origins", "", "origins that may post forms, with commas between")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return usageError{err}
	case flags.NArg() > 0:
		return usageError{fmt.Errorf("%q is not expected: serve takes flags only", flags.Arg(0))}
	}
	who, err := accessOf(env)
	if err != nil {
		return err
	}
	if err := who.check(*listen); err != nil {
		return err
	}
	if *address == "" {
		*address = env("OJS_STORAGE")
	}
	log := slog.New(slog.NewTextHandler(errs, nil))
	st, closeStorage, err := open(ctx, *address, *schema)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStorage()) }()
	eng, err := engine.New[any](st, engine.WithName("ojs-serve"), engine.WithLogger(log))
	if err != nil {
		return err
	}
	opts := []dashboard.Option{dashboard.WithoutRunning(), dashboard.WithEnvironment(*environment),
		dashboard.WithActor(actor), dashboard.WithLogger(log)}
	if *actions {
		opts = append(opts, dashboard.WithAuthorizer(dashboard.AllowAll)) // the log-in has decided
	}
	if *origins != "" {
		opts = append(opts, dashboard.WithTrustedOrigins(strings.Split(*origins, ",")...))
	}
	pages, err := dashboard.New(eng, opts...)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return errors.Join(err, pages.Close())
	}
	fmt.Fprintf(out, "ojs: serving the dashboard on http://%s/\n", listener.Addr())
	return answer(ctx, listener, who.guard(pages), pages)
}

// answer answers requests until ctx ends, and then those under way, for 10 s at most.
func answer(ctx context.Context, listener net.Listener, h http.Handler, pages io.Closer) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		err := pages.Close() // ends streams, which Shutdown would wait for
		grace, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer clock.New().AfterFunc(10*time.Second, cancel).Stop()
		stopped <- errors.Join(err, server.Shutdown(grace))
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(err, pages.Close())
	}
	return <-stopped
}
