package main

import (
	"context"
	"fmt"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/bench/internal/load"
	"github.com/ojsengine/ojs/bench/internal/report"
)

// unique compares unique enqueues with plain ones.
func unique(ctx context.Context, c config, r *report.Report) error {
	s := &report.Section{
		Title:   fmt.Sprintf("Enqueue, medians of %d rounds", c.rounds),
		Metrics: []report.Metric{{Name: "ns/call"}, {Name: "allocs/call", Decimals: 1}, {Name: "bytes/call"}},
		Base:    "plain",
	}
	r.Sections = append(r.Sections, s)
	byArgs := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs, OnConflict: ojs.ConflictIgnore})
	for range c.rounds {
		for _, way := range []struct {
			name string
			opts []ojs.Option
			arg  func(i int) load.Args
		}{
			{"plain", nil, load.Job},
			{"unique, admitted", []ojs.Option{byArgs}, load.Job},
			{"unique, a duplicate", []ojs.Option{byArgs}, func(int) load.Args { return load.Job(0) }},
		} {
			st, err := newStock()
			if err != nil {
				return err
			}
			ns, allocs, bytes, err := each(c.calls*5, func(i int) error {
				_, err := st.eng.Enqueue(ctx, jobType, way.arg(i), way.opts...)
				return err
			})
			if err != nil {
				return err
			}
			s.Add(way.name, ns, allocs, bytes)
			if err := st.store.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}
