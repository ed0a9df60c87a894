package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Contender is a durable job engine on a database of its own, for one round.
type Contender interface {
	// Name is the row of the report.
	Name() string
	// Setup makes the tables.
	Setup(ctx context.Context) error
	// EndToEnd takes jobs from before the first enqueue until the last is stored as
	// completed, with the engine running all the while. Producers enqueue at once, each a
	// share of the jobs; a batch is what one call enqueues. It checks that the database
	// says so too, and returns errors.ErrUnsupported if the contender has no such
	// enqueue.
	EndToEnd(ctx context.Context, jobs, producers, batch int) (time.Duration, error)
	// Close stops what Setup and EndToEnd have started.
	Close() error
}

// Filler is a contender that can begin with finished jobs.
type Filler interface {
	Contender
	// Fill stores n finished jobs, which EndToEnd does not delete.
	Fill(ctx context.Context, n int) error
}

// onPostgres are the contenders on PostgreSQL. Each has a database to itself, whose pool
// is closed for it, and runs that many jobs at once.
var onPostgres = []func(pool *pgxpool.Pool, workers int) Contender{
	newOJSOnPostgres,
	newRiver,
	newRiverFast,
	newRiverDefaults,
}

// onSQLite are the contenders on SQLite. Each has a file to itself, which does not exist
// yet and is removed for it, and runs that many jobs at once.
var onSQLite = []func(path string, sync synchronous, workers int) Contender{
	newOJSOnSQLite,
	newGoqite,
	newBacklite,
}

// synchronous is SQLite's pragma.
type synchronous string

const (
	full   synchronous = "FULL"   // a commit is on the disk
	normal synchronous = "NORMAL" // a commit survives the process, not the loss of power
)

// mode is a way to enqueue.
type mode struct{ producers, batch int }
