package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// databases numbers them.
var databases atomic.Int64

// database makes a database for one round of one contender, with a pool. The function
// that it returns removes both. A new database inherits no rows, statistics or bloat.
func database(ctx context.Context, dsn string, conns int) (_ *pgxpool.Pool, remove func() error, err error) {
	name := fmt.Sprintf("ojs_bench_%d_%d", os.Getpid(), databases.Add(1))
	if err := execute(ctx, dsn, "CREATE DATABASE "+name); err != nil {
		return nil, nil, err
	}
	drop := func() error {
		return execute(context.WithoutCancel(ctx), dsn, "DROP DATABASE "+name+" WITH (FORCE)")
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, errors.Join(err, drop())
	}
	config.ConnConfig.Database = name
	config.MaxConns = int32(conns)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, errors.Join(err, drop())
	}
	return pool, func() error {
		pool.Close()
		return drop()
	}, nil
}

// keepOld opens a transaction that began before every job and sees none of them, so that
// the server removes no dead row. The removal of the database ends it.
func keepOld(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class LIMIT 1")
	return err
}

// execute runs a statement on a connection of its own.
func execute(ctx context.Context, dsn, statement string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}
