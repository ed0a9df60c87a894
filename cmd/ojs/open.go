package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// open opens the storage of an address: postgres://…, sqlite:PATH, or the path of a
// SQLite file. The function closes it. open makes neither a file nor a schema: that is
// done by the programs that run the jobs.
func open(ctx context.Context, address, schema string) (storage.Storage, func() error, error) {
	if strings.HasPrefix(address, "postgres://") || strings.HasPrefix(address, "postgresql://") {
		return openPostgres(ctx, address, schema)
	}
	path, named := strings.CutPrefix(address, "sqlite:")
	switch {
	case address == "":
		return nil, nil, usageError{errors.New("no storage is given: use -storage or OJS_STORAGE, " +
			"with postgres://… or the path of a SQLite file")}
	case !named && strings.Contains(path, "://"):
		scheme, _, _ := strings.Cut(path, "://") // without the rest, which may have a password
		const text = "storage %s://…: use postgres://… or the path of a SQLite file"
		return nil, nil, usageError{fmt.Errorf(text, scheme)}
	case schema != "":
		return nil, nil, usageError{errors.New("-schema is for PostgreSQL alone")}
	}
	if _, err := os.Stat(path); err != nil {
		return nil, nil, fmt.Errorf("storage: %w; the program that runs the jobs makes the file", err)
	}
	s, err := sqlite.Open(ctx, path, sqlite.WithoutMigration())
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

func openPostgres(ctx context.Context, address, schema string) (storage.Storage, func() error, error) {
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	opts := []postgres.Option{postgres.WithoutMigration()}
	if schema != "" {
		opts = append(opts, postgres.WithSchema(schema))
	}
	s, err := postgres.Open(ctx, pool, opts...)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return s, func() error {
		err := s.Close()
		pool.Close()
		return err
	}, nil
}
