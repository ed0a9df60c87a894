package main

import (
	"context"

	"github.com/ojsengine/ojs/bench/internal/load"
)

// contender is a way to run jobs in memory.
type contender struct {
	name  string
	batch int // how many jobs its enqueue takes at once

	// start makes a system that calls handle for each job, on that many goroutines at
	// once. Nil: only hold is different.
	start func(workers int, handle func(load.Args)) (*system, error)
	// hold makes a system that takes that many jobs and runs none of them. Nil: it cannot
	// keep a job without running it.
	hold func(jobs int) (*system, error)
	// latency says that the contender's tells something that the others' would only
	// repeat.
	latency bool
}

func (c contender) runs() bool      { return c.start != nil }
func (c contender) holds() bool     { return c.hold != nil }
func (c contender) inLatency() bool { return c.latency }

// system is a contender that has been started.
type system struct {
	// enqueue hands over n jobs, those numbered from first.
	enqueue func(ctx context.Context, first, n int) error
	// settle waits until the contender is done with the jobs whose handlers have
	// returned. Nil: a return is the end.
	settle func(ctx context.Context) error
	// close stops the system. It is not called after an error: a system that has lost a
	// job may wait for it for ever.
	close func() error
}

// contenders stand in the order in which they take turns in a round: from what does least
// to what does most.
var contenders = []contender{
	{name: "channel", batch: 1, start: startChannel, hold: holdChannel, latency: true},
	{name: "channel + json", batch: 1, start: startChannelJSON, hold: holdChannelJSON},
	{name: "pond", batch: 1, start: startPond, hold: holdPond},
	{name: "ants", batch: 1, start: startAnts},
	{name: "golang-queue task", batch: 1, start: startGolangQueueTask, hold: holdGolangQueueTask,
		latency: true},
	{name: "golang-queue message", batch: 1, start: startGolangQueueMessage, hold: holdGolangQueueMessage,
		latency: true},
	{name: "watermill gochannel", batch: 1, start: startWatermill, hold: holdWatermill},
	{name: ours, batch: 1, start: startOJS, hold: holdOJS, latency: true},
	{name: ours + " encoded args", batch: 1, start: startOJSEncoded},
	{name: ours + " EnqueueMany(100)", batch: 100, start: startOJS},
	{name: ours + " scheduled", batch: 1, hold: holdOJSScheduled},
}

// ours is what the others are compared to.
const ours = "ojs"
