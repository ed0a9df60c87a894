package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
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
		if err := tx.QueryRow(ctx,
			"INSERT INTO orders DEFAULT VALUES RETURNING id").Scan(&order); err != nil {
			return err
		}
		_, err := eng.Enqueue(postgres.WithTx(ctx, tx), "ship", order)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// The payment and the end of its job are one commit: no payment is made twice.
func ExampleWithTx_complete() {
	var (
		ctx  context.Context
		pool *pgxpool.Pool
		eng  *engine.Engine[int64]
	)
	eng.Handle("pay", func(ctx context.Context, job *ojs.Job[int64]) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE bill SET paid = true WHERE id = $1", job.Args); err != nil {
				return err
			}
			return handler.Complete(postgres.WithTx(ctx, tx))
		})
	})
	log.Fatal(eng.Run(ctx))
}

// A deployment step migrates as the owner of the schema and grants the programs their
// privileges. The programs open the schema as it is.
func ExampleMigrate() {
	ctx := context.Background()
	owner, err := pgxpool.New(ctx, "postgres://owner@localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	defer owner.Close()
	if err := postgres.Migrate(ctx, owner); err != nil {
		log.Fatal(err)
	}
	for role, access := range map[string]postgres.Access{
		"app": postgres.Worker, "web": postgres.Enqueuer, "support": postgres.Reader,
	} {
		script, err := postgres.Grants(access, role)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := owner.Exec(ctx, script); err != nil {
			log.Fatal(err)
		}
	}
}

// The migrations become files for another tool, or for the administrator of the database.
func ExampleSchema() {
	steps, err := postgres.Schema(postgres.WithSchema("jobs"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(steps[0].Name)
	fmt.Println(strings.Split(steps[0].SQL, "\n")[2])
	// Output:
	// 0001_jobs.up.sql
	// -- Version 1 of the schema jobs. Run this in one transaction.
}

// With database/sql, the order and the job that ships it are one transaction, too.
func ExampleWithSQLTx() {
	var (
		ctx context.Context
		db  *sql.DB // of the driver pgx or lib/pq
		eng *engine.Engine[int64]
	)
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	var order int64
	if err := tx.QueryRowContext(ctx,
		"INSERT INTO orders DEFAULT VALUES RETURNING id").Scan(&order); err != nil {
		log.Fatal(err)
	}
	if _, err := eng.Enqueue(postgres.WithSQLTx(ctx, tx), "ship", order); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}
