//go:build linux

// Ha runs three nodes of PostgreSQL with Patroni on this machine, and an engine on them.
// Kill the primary and look.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pgtest"
	"github.com/ojsengine/ojs/storage/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run works until ctx ends. Each line of in kills the primary, or starts it again.
func run(ctx context.Context, in io.Reader, out io.Writer) error {
	fmt.Fprintln(out, "Three nodes start. That takes some seconds.")
	cluster, err := pgtest.StartPatroni(10*time.Second, "127.0.0.1", pgtest.Local)
	if err != nil {
		return err
	}
	defer cluster.Close()
	const settings = " connect_timeout=2 pool_ping_timeout=2s pool_max_conns=20"
	pool, err := pgxpool.New(ctx, cluster.DSN()+settings)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := postgres.Open(ctx, pool, postgres.WithPatience(5*time.Second))
	if err != nil {
		return err
	}
	defer store.Close()
	eng, err := engine.New[int](store)
	if err != nil {
		return err
	}
	var acknowledged, ran atomic.Int64
	eng.Handle("count", func(context.Context, *ojs.Job[int]) error {
		ran.Add(1)
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	wall := clock.New()
	go produce(ctx, wall, eng, &acknowledged)

	lines := make(chan struct{})
	go func() {
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- struct{}{}
		}
	}()
	fmt.Fprintln(out, "Enter kills the primary and its agent. Enter again starts them. Ctrl-C ends.")
	killed := -1
	report := wall.Ticker(time.Second)
	defer report.Stop()
	for {
		select {
		case <-ctx.Done():
			return <-ended
		case <-lines:
			if killed >= 0 {
				if err := cluster.Up(killed); err != nil {
					return err
				}
				fmt.Fprintf(out, "n%d starts\n", killed)
				killed = -1
			} else if killed = cluster.Primary(); killed >= 0 {
				cluster.Kill(killed)
				fmt.Fprintf(out, "n%d is killed\n", killed)
			}
		case <-report.C:
			primary := "no primary"
			if i := cluster.Primary(); i >= 0 {
				primary = fmt.Sprintf("n%d is the primary", i)
			}
			fmt.Fprintf(out, "%s: %d jobs acknowledged, %d runs\n", primary, acknowledged.Load(), ran.Load())
		}
	}
}

// produce enqueues a job after the other. While a call fails it is repeated, with the key
// by which the storage knows that it is the same.
func produce(ctx context.Context, wall clock.Clock, eng *engine.Engine[int], acknowledged *atomic.Int64) {
	for n := 0; ctx.Err() == nil; n++ {
		key := ojs.WithIdempotencyKey(fmt.Sprint(n))
		for ctx.Err() == nil {
			if _, err := eng.Enqueue(ctx, "count", n, key); err == nil {
				acknowledged.Add(1)
				break
			}
			wall.Sleep(100 * time.Millisecond)
		}
		wall.Sleep(10 * time.Millisecond)
	}
}
