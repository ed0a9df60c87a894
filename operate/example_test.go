package operate_test

import (
	"context"
	"fmt"
	"log"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage/memory"
)

// A command cancels the waiting jobs of a queue in the storage of a program.
func ExampleOpen() {
	ctx, store := context.Background(), memory.New() // a command opens PostgreSQL or SQLite
	eng, err := engine.New[string](store)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := eng.Enqueue(ctx, "report.send", "ann", ojs.WithQueue("reports")); err != nil {
		log.Fatal(err)
	}

	jobs := operate.Open(store, clock.New(), nil).Jobs()
	op := operate.Bulk{Do: operate.CancelJobs(), On: inspect.Filter{Queues: []string{"reports"}}}
	for p, err := range jobs.Apply(ojs.WithActor(ctx, "ann"), op) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("cancelled", p.Job.Type)
	}
	// Output: cancelled report.send
}
