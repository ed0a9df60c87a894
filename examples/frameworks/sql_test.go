package frameworks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"testing"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pgtest"
	"github.com/ojsengine/ojs/storage/postgres"
)

var server string

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, &server)) }

var errUndone = errors.New("undone")

// A job is enqueued in the transaction of a library: it is there if the transaction
// commits, and only then. Each function begins a transaction, enqueues in it, and returns
// the error that enqueue returns, which rolls it back.
func TestTransactions(t *testing.T) {
	if server == "" {
		t.Skip("no PostgreSQL server is installed, and OJS_TEST_POSTGRES names none")
	}
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, server)
	must(t, err)
	t.Cleanup(pool.Close)
	name := fmt.Sprintf("frameworks%d", os.Getpid())
	store, err := postgres.Open(ctx, pool, postgres.WithSchema(name))
	must(t, err)
	t.Cleanup(func() {
		must(t, store.Close())
		_, err := pool.Exec(context.Background(), "DROP SCHEMA "+name+" CASCADE")
		must(t, err)
	})
	eng, err := engine.New[string](store)
	must(t, err)
	db, err := sql.Open("pgx", server)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	overSQLX := sqlx.NewDb(db, "pgx")
	overBun := bun.NewDB(db, pgdialect.New())
	overEnt := entsql.OpenDB("postgres", db)
	overGORM, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: db}))
	must(t, err)
	prepares, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: db}),
		&gorm.Config{PrepareStmt: true})
	must(t, err)

	for name, inTx := range map[string]func(enqueue func(tx postgres.SQLTx) error) error{
		"database/sql, sqlc": func(enqueue func(postgres.SQLTx) error) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := enqueue(tx); err != nil {
				return err
			}
			return tx.Commit()
		},
		"sqlx": func(enqueue func(postgres.SQLTx) error) error {
			tx, err := overSQLX.BeginTxx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := enqueue(tx); err != nil {
				return err
			}
			return tx.Commit()
		},
		"bun": func(enqueue func(postgres.SQLTx) error) error {
			return overBun.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				return enqueue(tx.Tx) // a bun.Tx itself reads $1 in its own way
			})
		},
		"ent": func(enqueue func(postgres.SQLTx) error) error {
			tx, err := overEnt.Tx(ctx)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := enqueue(tx.(*entsql.Tx)); err != nil {
				return err
			}
			return tx.Commit()
		},
		"GORM": func(enqueue func(postgres.SQLTx) error) error {
			return overGORM.Transaction(func(tx *gorm.DB) error {
				return enqueue(tx.Statement.ConnPool.(postgres.SQLTx))
			})
		},
		"GORM with PrepareStmt": func(enqueue func(postgres.SQLTx) error) error {
			return prepares.Transaction(func(tx *gorm.DB) error {
				return enqueue(tx.Statement.ConnPool.(postgres.SQLTx))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, end := range []error{nil, errUndone} {
				var id string
				err := inTx(func(tx postgres.SQLTx) error {
					ticket, err := eng.Enqueue(postgres.WithSQLTx(ctx, tx), "greet", "world",
						ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs, OnConflict: ojs.ConflictReplace}))
					if err != nil {
						return err
					}
					id = ticket.ID
					return end
				})
				if !errors.Is(err, end) {
					t.Fatal(err)
				}
				if _, err := eng.Get(ctx, id); errors.Is(err, ojs.ErrNotFound) != (end != nil) {
					t.Errorf("after %v the job is %v", end, err)
				}
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
