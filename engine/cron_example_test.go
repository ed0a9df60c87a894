package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/memory"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A run that the schedule does not have, for an operator, and what came of it.
func ExampleEngine_Cron_trigger() {
	ctx, eng := begin()
	build := ojs.NewDraft("report.build", nil)
	check(eng.Cron().Set(ctx, cron.Entry{Name: "report", Schedule: "0 3 * * *", Job: build}))

	ticket, err := eng.Cron().Trigger(ctx, "report")
	check(err)
	_, again := eng.Cron().Trigger(ctx, "report") // the entry skips overlaps
	fmt.Println(ticket.State, errors.Is(again, ojs.ErrDuplicate))

	check(eng.Cancel(ctx, ticket.ID))
	runs, err := eng.Cron().Runs(ctx, "report")
	check(err)
	for _, run := range runs {
		fmt.Println(run.State, run.Manual)
	}
	// Output:
	// available true
	// cancelled true
}

// The next runs over the night in which the clocks of Berlin are put forward.
func ExampleEngine_Cron_next() {
	clk := clock.NewMock()
	clk.Set(time.Date(2027, 3, 27, 12, 0, 0, 0, time.UTC))
	eng, err := engine.New[string](memory.New(), engine.WithClock(clk))
	check(err)
	ctx := context.Background()
	check(eng.Cron().Set(ctx, cron.Entry{
		Name: "report", Schedule: "30 2 * * *", TimeZone: "Europe/Berlin",
		Job: ojs.NewDraft("report.build", nil),
	}))

	next, err := eng.Cron().Next(ctx, "report", 2)
	check(err)
	for _, t := range next {
		fmt.Printf("%s %q\n", t.At.Format("Mon 15:04 MST"), t.Skipped)
	}
	// Output:
	// Sun 03:30 CEST "dst_skip"
	// Mon 02:30 CEST ""
	// Tue 02:30 CEST ""
}

// An entry whose runs are all made, also those that came due while no engine ran. Each
// job is told the day that it is for.
func Example_recurringEntry() {
	type Report struct {
		Day string `json:"day"`
	}
	clk := clock.NewMock()
	clk.Set(time.Date(2027, 5, 1, 12, 0, 0, 0, time.UTC))
	eng, err := engine.New[Report](memory.New(), engine.WithClock(clk))
	check(err)
	ctx, stop := context.WithCancel(context.Background())
	days := make(chan string)
	eng.Handle("report.build", func(_ context.Context, job *ojs.Job[Report]) error {
		days <- job.Args.Day
		return nil
	})
	check(eng.Cron().Set(ctx, cron.Entry{
		Name: "report", Schedule: "0 3 * * *",
		Missed: cron.MissedAll, MissedLimit: 7,
		Overlap:  cron.OverlapEnqueue, // one after the other
		Template: true,
		Job:      ojs.NewDraft("report.build", Report{Day: "{run-1d:2006-01-02}"}),
	}))
	clk.Add(3 * 24 * time.Hour) // nothing runs

	done := make(chan error)
	go func() { done <- eng.Run(ctx) }()
	for range 3 {
		fmt.Println(<-days)
	}
	stop()
	check(<-done)
	// Output:
	// 2027-05-01
	// 2027-05-02
	// 2027-05-03
}
