package postgres_test

import (
	"context"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/postgres"
)

func ExampleOpen() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := postgres.Open(ctx, pool)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close() // before the pool
	eng, err := engine.New[string](store)
	if err != nil {
		log.Fatal(err)
	}
	eng.Handle("greet", func(_ context.Context, job *ojs.Job[string]) error {
		log.Println("hello,", job.Args)
		return nil
	})
	log.Fatal(eng.Run(ctx)) // here, and in as many other processes as there are
}

// The order and the job that ships it are there together, or not at all.
func ExampleWithTx() {
	var (
		ctx  context.Context
		pool *pgxpool.Pool
		eng  *engine.Engine[int64]
	)
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var order int64
		if err := tx.QueryRow(ctx, "INSERT INTO orders DEFAULT VALUES RETURNING id").Scan(&order); err != nil {
			return err
		}
		_, err := eng.Enqueue(postgres.WithTx(ctx, tx), "ship", order)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}
