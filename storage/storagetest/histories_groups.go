package storagetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// cancelAll draws a cancel of some jobs, most often of jobs that wait.
func (d *draw) cancelAll() operation {
	c := &cancelAllCall{now: d.now()}
	for range 1 + d.rnd.IntN(3) {
		r, ok := d.job(ojs.StatePending, ojs.StateAvailable)
		if !ok {
			return nil
		}
		if !slices.Contains(c.ids, r.ID) {
			c.ids = append(c.ids, r.ID)
		}
	}
	return c
}

// revive draws jobs that are brought back, most often jobs that have ended.
func (d *draw) revive() operation {
	c := &reviveCall{now: d.now()}
	for range 1 + d.rnd.IntN(2) {
		old, ok := d.job(finished...)
		if !ok {
			return nil
		}
		if slices.ContainsFunc(c.batch, func(in storage.Insert) bool { return in.Record.ID == old.ID }) {
			continue
		}
		r := d.record(c.now)
		r.ID, r.Version = old.ID, d.stale(old.Version)
		c.batch = append(c.batch, storage.Insert{Record: r})
	}
	d.dependsOn(c.batch)
	return c
}

type cancelAllCall struct {
	whole
	now time.Time
	ids []string
}

func (c *cancelAllCall) do(ctx context.Context, h *handle) answer {
	return cancelAnswer(h.s.CancelAll(ctx, c.now, c.ids))
}

func cancelAnswer(cancelled, moved []storage.Record, err error) answer {
	return answer{Records: cancelled, Moved: moved, Err: outcome(err)}
}

func (c *cancelAllCall) step(m *model, got *answer, _ int) (seen, want answer) {
	return *got, cancelAnswer(m.ref.CancelAll(context.Background(), c.now, c.ids))
}

func (c *cancelAllCall) String() string {
	return "CancelAll " + strings.Join(jobNames(c.ids), ", ") + " at " + at(c.now)
}

type reviveCall struct {
	whole
	now   time.Time
	batch []storage.Insert
}

func (c *reviveCall) do(ctx context.Context, h *handle) answer {
	moved, err := h.s.Revive(ctx, c.now, c.batch)
	return answer{Moved: moved, Err: outcome(err)}
}

func (c *reviveCall) step(m *model, got *answer, _ int) (seen, want answer) {
	moved, err := m.ref.Revive(context.Background(), c.now, c.batch)
	return *got, answer{Moved: moved, Err: outcome(err)}
}

func (c *reviveCall) String() string {
	var parts []string
	for i := range c.batch {
		parts = append(parts, insertText(&c.batch[i]))
	}
	return "Revive " + strings.Join(parts, "; ") + " at " + at(c.now)
}
