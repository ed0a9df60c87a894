// Signup is a small web service that creates accounts and welcomes them by mail: the
// account and the job to send the mail are written in one transaction, so that there is
// never one without the other.
//
//	DATABASE_URL=postgres://... go run .
//	curl -d email=ada@example.org localhost:8080/signup
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/postgres"
)

// Welcome is what the job has to know.
type Welcome struct {
	Account int64  `json:"account"`
	Email   string `json:"email"`
}

const schema = `CREATE TABLE IF NOT EXISTS account (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, email text UNIQUE NOT NULL)`

// service is the web service.
type service struct {
	pool *pgxpool.Pool
	jobs *engine.Engine[Welcome]
}

func (s *service) signUp(w http.ResponseWriter, r *http.Request) {
	email := r.FormValue("email")
	err := pgx.BeginFunc(r.Context(), s.pool, func(tx pgx.Tx) error {
		var id int64
		if err := tx.QueryRow(r.Context(), "INSERT INTO account (email) VALUES ($1) RETURNING id",
			email).Scan(&id); err != nil {
			return err
		}
		_, err := s.jobs.Enqueue(postgres.WithTx(r.Context(), tx), "welcome", Welcome{id, email})
		return err
	})
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == "23505":
		http.Error(w, "there is an account with this address", http.StatusConflict)
	case err != nil:
		log.Println(err)
		http.Error(w, "try again later", http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusCreated)
	}
}

// open prepares the database and the engine, whose handler sends the mails.
func open(ctx context.Context, pool *pgxpool.Pool, send func(ctx context.Context, w Welcome) error,
	opts ...postgres.Option) (*service, func() error, error) {
	if _, err := pool.Exec(ctx, schema); err != nil {
		return nil, nil, err
	}
	store, err := postgres.Open(ctx, pool, opts...)
	if err != nil {
		return nil, nil, err
	}
	eng, err := engine.New[Welcome](store)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	// A mail may be sent twice if the process dies between the sending and its being
	// noted: jobs run at least once.
	eng.Handle("welcome", func(ctx context.Context,
		job *ojs.Job[Welcome]) error {
		return send(ctx, job.Args)
	})
	return &service{pool, eng}, store.Close, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	s, closeStore, err := open(ctx, pool, func(_ context.Context, w Welcome) error {
		log.Printf("welcome, %s", w.Email)
		return nil
	})
	if err != nil {
		return err
	}
	defer closeStore()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /signup", s.signUp)
	server := &http.Server{Addr: "localhost:8080", Handler: mux}
	served := make(chan error, 1)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		served <- server.ListenAndServe()
		stop() // without its door the service is of no use
	}()
	context.AfterFunc(ctx, func() { _ = server.Shutdown(context.WithoutCancel(ctx)) })
	err = s.jobs.Run(ctx)
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}
