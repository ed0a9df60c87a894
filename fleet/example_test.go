package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/storage/memory"
)

// cells are those of a program: each storage is a database of its own.
func cells() []fleet.Cell {
	return []fleet.Cell{{Name: "a", Store: memory.New()}, {Name: "b", Store: memory.New()}}
}

// Jobs of a tenant are in one cell. Jobs without a key go to any cell that answers.
func Example() {
	f, err := fleet.New[string](fleet.Config{Cells: cells(), Concurrency: 20})
	if err != nil {
		log.Fatal(err)
	}
	f.Handle("invoice.send", func(_ context.Context, job *ojs.Job[string]) error {
		fmt.Println("send to", job.Args)
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()

	ticket, err := f.Enqueue(ctx, "invoice.send", "ada@example.org", fleet.WithCell("tenant-7"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := f.Wait(ctx, ticket.ID); err != nil { // by any process, by the id alone
		log.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output: send to ada@example.org
}

// The engine of a cell has everything that engines have.
func ExampleFleet_Cell() {
	ctx := context.Background()
	f, err := fleet.New[any](fleet.Config{Cells: cells()})
	if err != nil {
		log.Fatal(err)
	}
	eng, err := f.Cell(ctx, "tenant-7")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := eng.Queues().Pause(ctx, "reports"); err != nil {
		log.Fatal(err)
	}
	states, err := eng.Queues().List(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, q := range states {
		fmt.Println(q.Name, q.State)
	}
	// Output: reports paused
}

// A recurring job is in the cell of its name.
func ExampleFleet_Cron() {
	ctx := context.Background()
	f, err := fleet.New[any](fleet.Config{Cells: cells()})
	if err != nil {
		log.Fatal(err)
	}
	entries, err := f.Cron(ctx, "daily-report")
	if err != nil {
		log.Fatal(err)
	}
	err = entries.Set(ctx, cron.Entry{Name: "daily-report", Schedule: "0 6 * * *",
		Job: ojs.NewDraft("report.build", nil)})
	if err != nil {
		log.Fatal(err)
	}
	entry, err := entries.Get(ctx, "daily-report")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(entry.Schedule)
	// Output: 0 6 * * *
}

// A dashboard, metrics and health checks go over the engines.
func ExampleFleet_Engines() {
	ctx := context.Background()
	f, err := fleet.New[any](fleet.Config{Cells: cells()})
	if err != nil {
		log.Fatal(err)
	}
	for name, eng := range f.Engines() { // each a dashboard.Named{Name: name, Engine: eng}
		fmt.Println("cell", name, "answers:", eng.Health(ctx).Storage)
	}
	// Output:
	// cell a answers: healthy
	// cell b answers: healthy
}

// All drafts of a call are in one cell, or none is stored.
func ExampleFleet_EnqueueMany() {
	f, err := fleet.New[any](fleet.Config{Cells: cells()})
	if err != nil {
		log.Fatal(err)
	}
	_, err = f.EnqueueMany(context.Background(),
		ojs.NewDraft("invoice.send", "ada@example.org", fleet.WithCell("tenant-7")),
		ojs.NewDraft("invoice.send", "bob@example.org", fleet.WithCell("tenant-3")))
	fmt.Println(errors.Is(err, fleet.ErrCells))
	// Output: true
}

// The map says which cell has the partition of a key.
func ExampleFleet_Map() {
	f, err := fleet.New[any](fleet.Config{Cells: cells()})
	if err != nil {
		log.Fatal(err)
	}
	m, err := f.Map(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m)
	fmt.Println("tenant-7 is in cell", m.Cell(fleet.Partition("tenant-7")))
	// Output:
	// version 2: a 2048, b 2048
	// tenant-7 is in cell b
}

// Some partitions move to another cell. Their jobs end where they are.
func ExampleFleet_Move() {
	ctx := context.Background()
	f, err := fleet.New[any](fleet.Config{Cells: cells()})
	if err != nil {
		log.Fatal(err)
	}
	m, err := f.Map(ctx)
	if err != nil {
		log.Fatal(err)
	}
	// It takes 40 s, until no program trusts the old map.
	moved, err := f.Move(ctx, fleet.Move{Partitions: m.Partitions("a")[:512], To: "b"})
	if err != nil {
		log.Fatal(err) // the move is to be repeated
	}
	fmt.Println(moved.Left, "jobs end where they are, and", moved.Recurring, "recurring jobs fire there")
}
