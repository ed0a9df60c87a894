// Hello is the first program of the README: a handler, an engine, a job and its end.
package main

import (
	"context"
	"log"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/sqlite"
)

func main() {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, "jobs.db")
	if err != nil {
		log.Fatal(err)
	}
	eng, err := engine.New[string](store)
	if err != nil {
		log.Fatal(err)
	}
	eng.Handle("greet", func(ctx context.Context, job *ojs.Job[string]) error {
		log.Println("hello,", job.Args)
		return nil
	})
	go eng.Run(ctx)

	ticket, err := eng.Enqueue(ctx, "greet", "world")
	if err != nil {
		log.Fatal(err)
	}
	job, err := ticket.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	log.Println(job.State)
}
