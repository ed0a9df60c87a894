package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/ojsengine/ojs/bench/internal/report"
)

// idle watches an engine that has many scheduled jobs and nothing to do.
func idle(ctx context.Context, c config, r *report.Report) error {
	s := &report.Section{
		Title:   fmt.Sprintf("An idle engine over %v", c.idleFor),
		Metrics: []report.Metric{{Name: "bytes/job"}, {Name: "CPU ms", Decimals: 1}},
	}
	r.Sections = append(r.Sections, s)
	before := heap()
	st, err := newStock()
	if err != nil {
		return err
	}
	if _, err := st.add(ctx, c.many, st.later); err != nil {
		return err
	}
	run, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- st.eng.Run(run) }()
	if err := st.eng.WaitIdle(ctx); err != nil {
		return err
	}
	kept := float64(heap()-before) / float64(c.many)
	debug.FreeOSMemory() // or the runtime would do so bit by bit, which is not the engine's
	wall.Sleep(c.idleFor / 5)
	start, err := cpu()
	if err != nil {
		return err
	}
	wall.Sleep(c.idleFor)
	end, err := cpu()
	if err != nil {
		return err
	}
	s.Add(fmt.Sprintf("%d scheduled jobs", c.many), kept, float64((end-start).Microseconds())/1000)
	stop()
	if err := <-ended; err != nil {
		return err
	}
	return st.store.Close()
}

// cpu returns the time that the process has been given by now.
func cpu() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
