package remote_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/remote"
	"github.com/ojsengine/ojs/server"
)

// A client and a worker use a fleet as one server: jobs of all cells run once, those of a
// key in its cell.
func TestFleet(t *testing.T) {
	var cfg fleet.Config
	for _, name := range []string{"a", "b", "c"} {
		cfg.Cells = append(cfg.Cells, fleet.Cell{Name: name, Store: bindingtest.Fresh(t)})
	}
	f, err := fleet.New[any](cfg, append(server.EngineOptions(),
		engine.WithLogger(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := server.NewFleet(f, server.WithCellKeys(server.CellKeys{Meta: "tenant"}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	ts := httptest.NewServer(srv)
	r := &rig{t: t, url: ts.URL, http: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() {
		r.http.CloseIdleConnections()
		if err := srv.Close(context.Background()); err != nil {
			t.Error(err)
		}
		ts.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	w := worker[int](r, remote.WithConcurrency(4))
	var mu sync.Mutex
	ran := make(map[int]int)
	w.Handle("x", func(_ context.Context, job *ojs.Job[int]) error {
		mu.Lock()
		defer mu.Unlock()
		ran[job.Args]++
		return nil
	})
	client := r.dial()
	var tickets []ojs.Ticket
	for i := range 60 {
		var opts []ojs.Option
		if i%3 > 0 {
			opts = append(opts, ojs.WithMeta("tenant", fmt.Sprint("tenant-", i%7)))
		}
		ticket, err := w.Enqueue(within(t), "x", i, opts...)
		if err != nil {
			t.Fatal(err)
		}
		if i%3 > 0 {
			m, err := f.Map(ctx)
			if err != nil {
				t.Fatal(err)
			}
			eng, err := f.CellOf(ctx, ticket.ID)
			if err != nil || eng.Describe().Name != m.Cell(fleet.Partition(fmt.Sprint("tenant-", i%7))) {
				t.Errorf("job %d of a tenant is in cell %v, %v", i, eng, err)
			}
		}
		tickets = append(tickets, ticket)
	}
	list, err := client.Queues().List(within(t))
	if err != nil || len(list) != 1 || list[0].Counts[ojs.StateAvailable] != 60 {
		t.Errorf("the queues are %v, %v", list, err)
	}
	stopped := runs(r, w)
	for _, ticket := range tickets {
		if _, err := client.Wait(within(t), ticket.ID); err != nil {
			t.Error(err)
		}
	}
	late, err := w.Enqueue(within(t), "x", 60, ojs.WithMeta("tenant", "tenant-1")) // for a long poll
	if err == nil {
		_, err = client.Wait(within(t), late.ID)
	}
	if err != nil {
		t.Error(err)
	}
	if err := stopped(); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for i := range 61 {
		if ran[i] != 1 {
			t.Errorf("job %d ran %d times", i, ran[i])
		}
	}
}
