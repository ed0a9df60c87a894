package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/postgres"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// kinds of storages.
type kind string

const (
	onMemory   kind = "memory"
	onSQLite   kind = "sqlite"
	onPostgres kind = "postgres"
	onServer   kind = "server"
)

// addressOf tells which storage an address names. It returns the path of a SQLite file,
// and the address of a server.
func addressOf(address, schema string) (k kind, path string, err error) {
	path, named := strings.CutPrefix(address, "sqlite:")
	switch {
	case strings.HasPrefix(address, "postgres://"), strings.HasPrefix(address, "postgresql://"):
		return onPostgres, "", nil
	case address == "":
		return "", "", usageError{fixError{errors.New("no storage is given"),
			"use --storage or OJS_STORAGE, with postgres://…, the path of a SQLite file, or https://… of a server"}}
	case address == "memory":
		return onMemory, "", nil
	case !named && strings.Contains(path, "://"):
		scheme, _, _ := strings.Cut(path, "://") // without the rest, which may have a password
		if k = onServer; scheme != "http" && scheme != "https" {
			return "", "", usageError{fixError{fmt.Errorf("storage %s://… is none that the command knows",
				scheme),
				"use postgres://…, the path of a SQLite file, or https://… of a server"}}
		}
	case !named && strings.Contains(path, "="): // key=value, which may have a password
		return "", "", usageError{fixError{errors.New("the storage has a =, as no address has"),
			"use postgres://…, or sqlite:PATH for a file whose path has one"}}
	default:
		k = onSQLite
	}
	if schema != "" {
		return "", "", usageError{errors.New("--schema is for PostgreSQL alone")}
	}
	return k, path, nil
}

// open opens the storage of an address. The function closes it. open makes neither a file
// nor a schema: the programs that run the jobs do that, or ojs migrate up.
func (p *program) open(ctx context.Context, address, schema string) (storage.Storage, func() error, error) {
	k, path, err := addressOf(address, schema)
	if err != nil {
		return nil, nil, err
	}
	if p.storage != nil {
		return p.storage, func() error { return nil }, nil
	}
	switch k {
	case onMemory:
		st := memory.New()
		return st, st.Close, nil
	case onPostgres:
		return openPostgres(ctx, address, schema)
	}
	if _, err := os.Stat(path); err != nil {
		return nil, nil, fixError{fmt.Errorf("storage: %w", err),
			"the program that runs the jobs makes the file; ojs migrate up makes an empty one"}
	}
	st, err := sqlite.Open(ctx, path, sqlite.WithoutMigration())
	if err != nil {
		return nil, nil, err
	}
	return st, st.Close, nil
}

func openPostgres(ctx context.Context, address, schema string) (storage.Storage, func() error, error) {
	pool, opts, err := poolOf(ctx, address, schema)
	if err != nil {
		return nil, nil, err
	}
	st, err := postgres.Open(ctx, pool, append(opts, postgres.WithoutMigration())...)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return st, func() error {
		err := st.Close()
		pool.Close()
		return err
	}, nil
}

// poolOf makes a pool of connections that are named after the command, and the options
// for the schema.
func poolOf(ctx context.Context, address, schema string) (*pgxpool.Pool, []postgres.Option, error) {
	cfg, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, nil, usageError{err}
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 10 * time.Second
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "ojs"
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	var opts []postgres.Option
	if schema != "" {
		opts = append(opts, postgres.WithSchema(schema))
	}
	return pool, opts, nil
}
