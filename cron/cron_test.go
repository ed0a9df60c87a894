package cron_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// host is an engine that keeps what it is told, and has no jobs.
type host struct {
	now     time.Time
	ids     int
	refusal error
	jobs    []time.Time // when each was enqueued
	events  []string
}

func (h *host) entries(s storage.Storage) *cron.Entries {
	return cron.New(cron.Engine{
		Store: s, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return h.now },
		NewID:   func() string { h.ids++; return fmt.Sprint("id-", h.ids) },
		CheckTx: func(context.Context) error { return nil },
		Draft: func(d ojs.Draft) (args ojs.Args, o ojs.Options, err error) {
			args, err = ojs.NewArgs(d.Args())
			return args, ojs.DefaultOptions(), err
		},
		Check: func(context.Context, ojs.Draft) error { return nil },
		Enqueue: func(context.Context, ojs.Draft) (ojs.Ticket, error) {
			if h.refusal == nil {
				h.jobs = append(h.jobs, h.now)
			}
			return ojs.Ticket{}, h.refusal
		},
		Refused: func(error) bool { return true },
		Cancel:  func(context.Context, string) error { return nil },
		Trace: func(ctx context.Context, _ *storage.Cron) (context.Context, func(error)) {
			return ctx, func(error) {}
		},
		Emit:    func(ev event.Event) { h.events = append(h.events, string(ev.Type)+" "+ev.Reason) },
		Changed: func() {},
	})
}

// Two engines on a storage make one run for each time that is due (invariant 1). A run
// that is refused has no job, and the next run takes place (invariant 2).
func TestEachRunOnce(t *testing.T) {
	store, ctx := memory.New(), t.Context()
	defer store.Close()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	hosts := []*host{{now: start}, {now: start}}
	var tickers []*cron.Ticker
	for _, h := range hosts {
		failed := func(call string, err error, _ ...any) { t.Error(call, err) }
		tickers = append(tickers, h.entries(store).Ticker(failed, func() {}, func() bool { return false }))
	}
	entries := tickers[0].Entries
	entry := cron.Entry{Name: "e", Schedule: "@every 1m", Overlap: cron.OverlapAllow,
		Job: ojs.NewDraft("x", nil)}
	if err := entries.Set(ctx, entry); err != nil {
		t.Fatal(err)
	}
	tick := func() {
		for i, ticker := range tickers {
			hosts[i].now = hosts[i].now.Add(time.Minute)
			if next := ticker.Tick(ctx); !next.Equal(hosts[i].now.Add(time.Minute)) {
				t.Errorf("at %v the next tick is at %v", hosts[i].now, next)
			}
		}
	}
	tick()
	hosts[0].refusal = errors.New("no")
	tick()
	hosts[0].refusal = nil
	tick()
	times := []time.Time{start.Add(time.Minute), start.Add(3 * time.Minute)}
	if !slices.Equal(hosts[0].jobs, times) || len(hosts[1].jobs) != 0 {
		t.Errorf("%v and %v, want %v", hosts[0].jobs, hosts[1].jobs, times)
	}
	want := []string{"cron.triggered ", "cron.skipped enqueue_failed", "cron.triggered "}
	if !slices.Equal(hosts[0].events, want) {
		t.Errorf("%q, want %q", hosts[0].events, want)
	}
	runs, err := entries.Runs(ctx, "e")
	if err != nil || len(runs) != 3 || runs[1].JobID != "" || runs[1].Skipped != "enqueue_failed" {
		t.Errorf("%+v, %v", runs, err)
	}
	if e, err := entries.Get(ctx, "e"); err != nil || e.Runs != 2 || e.LastJobID != "id-3" {
		t.Errorf("%+v, %v", e, err)
	}
}
