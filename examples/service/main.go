// Service is a web service and its worker: one program with three roles, as it is
// deployed.
//
//	service migrate  # before a release: brings the tables up to date
//	service web      # takes orders, and shows the jobs under /admin/jobs/
//	service worker   # runs the jobs
//
// DATABASE_URL names the database, ADDR where the process listens (":8080" by default).
// Every process answers /livez, /readyz and /metrics. SIGTERM ends it: a worker gives its
// handlers 25 s to finish, and their jobs go back unspent after that.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/dashboard"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	ojsprometheus "github.com/ojsengine/ojs/prometheus"
	"github.com/ojsengine/ojs/storage/postgres"
)

// Receipt is what the job has to know.
type Receipt struct {
	Order int64  `json:"order"`
	Email string `json:"email"`
}

// sendReceipt is the job type, with the options of all its jobs.
var sendReceipt = ojs.Define[Receipt]("receipt.send", ojs.WithMaxAttempts(10), ojs.WithTimeout(time.Minute))

const tables = `CREATE TABLE IF NOT EXISTS orders (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, email text NOT NULL, receipt timestamptz)`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: service migrate|web|worker")
		os.Exit(2)
	}
	if err := run(ctx, os.Args[1]); err != nil {
		slog.Error("the service ends", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, role string) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if role == "migrate" {
		if _, err := pool.Exec(ctx, tables); err != nil {
			return err
		}
		return postgres.Migrate(ctx, pool)
	}

	store, err := postgres.Open(ctx, pool, postgres.WithoutMigration())
	if err != nil {
		return err
	}
	defer store.Close()
	collector := ojsprometheus.New()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	eng, err := engine.New[any](store, engine.WithObserver(collector), engine.WithLogger(slog.Default()),
		engine.WithGracePeriod(25*time.Second))
	if err != nil {
		return err
	}
	collector.Watch(eng.Stats)
	collector.Declare("default", sendReceipt.Name())

	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		h := eng.Health(r.Context())
		if h.Storage == engine.Unhealthy || role == "worker" && h.Status == engine.Unhealthy {
			http.Error(w, fmt.Sprint(h.Problems), http.StatusServiceUnavailable)
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	switch role {
	case "web":
		pages, err := dashboard.New(eng, dashboard.WithoutRunning()) // the workers run
		if err != nil {
			return err
		}
		defer pages.Close()
		mux.Handle("/admin/jobs/", http.StripPrefix("/admin/jobs", pages)) // put your login before it
		mux.HandleFunc("POST /orders", takeOrder(pool, eng))
		return serve(ctx, mux)
	case "worker":
		eng.Register(handler.For(sendReceipt, send(pool)))
		// The probes and the metrics are served until the handlers have ended.
		serving, stop := context.WithCancel(context.WithoutCancel(ctx))
		served := make(chan error, 1)
		go func() { served <- serve(serving, mux) }()
		err := eng.Run(ctx)
		stop()
		return errors.Join(err, <-served)
	}
	return fmt.Errorf("%q is no role: use migrate, web or worker", role)
}

// takeOrder stores an order and the job for its receipt in one transaction, so that there
// is never one without the other.
func takeOrder(pool *pgxpool.Pool, eng *engine.Engine[any]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var id int64
		err := pgx.BeginFunc(r.Context(), pool, func(tx pgx.Tx) error {
			email := r.FormValue("email")
			row := tx.QueryRow(r.Context(), "INSERT INTO orders (email) VALUES ($1) RETURNING id", email)
			err := row.Scan(&id)
			if err != nil {
				return err
			}
			_, err = sendReceipt.Enqueue(postgres.WithTx(r.Context(), tx), eng, Receipt{id, email})
			return err
		})
		if err != nil {
			slog.Error("an order is lost", "error", err)
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintln(w, id)
	}
}

// send notes that the receipt was sent and completes its job in one transaction. The mail
// itself may go out twice, if the process dies in between.
func send(pool *pgxpool.Pool) func(context.Context, *ojs.Job[Receipt]) error {
	return func(ctx context.Context, job *ojs.Job[Receipt]) error {
		handler.Logger(ctx).Info("mail", "to", job.Args.Email, "order", job.Args.Order)
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE orders SET receipt = $2 WHERE id = $1",
				job.Args.Order, handler.Now(ctx))
			if err != nil {
				return err
			}
			return handler.Complete(postgres.WithTx(ctx, tx))
		})
	}
}

// serve serves until ctx ends, and lets the requests that run finish.
func serve(ctx context.Context, h http.Handler) error {
	addr := os.Getenv("ADDR")
	if addr == "" {
		addr = ":8080"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	slog.Info("listening", "address", listener.Addr().String())
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Shutdown(context.WithoutCancel(ctx)) })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
