package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/dashboard"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pgtest"
	"github.com/ojsengine/ojs/storage"
)

// The benchmark compares the processor time of the same jobs with and without an open
// overview, in rounds that take turns. The time of the storage's server and of the page's
// client counts too.
//
//	go test -run '^$' -bench OpenPage -benchtime 12x -cpu 1 -timeout 30m ./cmd/ojs
func BenchmarkOpenPage(b *testing.B) {
	onStorages(b, func(b *testing.B, st storage.Storage, server int) {
		n := 10_000
		if !st.Capabilities().Durable {
			n = 100_000
		}
		benchOpenPage(b, st, n, server)
	})
}

func benchOpenPage(b *testing.B, st storage.Storage, n, server int) {
	eng, err := engine.New[any](st, engine.WithReports(engine.Reports{}),
		engine.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		b.Fatal(err)
	}
	eng.Handle("email.send", func(context.Context, *ojs.Job[any]) error { return nil })
	pages, err := dashboard.New(eng)
	if err != nil {
		b.Fatal(err)
	}
	web := httptest.NewServer(pages)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
		if err := pages.Close(); err != nil {
			b.Error(err)
		}
		web.Close()
	}()
	drafts := make([]ojs.Draft, 1000)
	for i := range drafts {
		queue := ojs.WithQueue([]string{"a", "b", "c"}[i%3])
		drafts[i] = ojs.NewDraft("email.send", map[string]any{"n": i}, queue)
	}
	round := func() float64 {
		before := pgtest.ProcessorTime(os.Getpid()) + pgtest.ProcessorTime(server)
		for range n / len(drafts) {
			if _, err := eng.EnqueueMany(ctx, drafts...); err != nil {
				b.Fatal(err)
			}
		}
		if err := eng.WaitIdle(ctx); err != nil {
			b.Fatal(err)
		}
		return pgtest.ProcessorTime(os.Getpid()) + pgtest.ProcessorTime(server) - before
	}
	round()
	var without, added, each []float64
	for i := 0; b.Loop(); i++ {
		var plain, open float64
		loads := 0
		opened := func() {
			leave := openPage(b, web.URL)
			open = round()
			loads = leave()
		}
		if i%2 == 0 {
			opened()
		}
		plain = round()
		if i%2 == 1 {
			opened()
		}
		without = append(without, plain)
		added = append(added, 100*(open-plain)/plain)
		if loads > 0 {
			each = append(each, 1000*(open-plain)/float64(loads))
		}
	}
	b.ReportMetric(median(without), "cpu-s/round")
	b.ReportMetric(median(added), "added-%")
	b.ReportMetric(median(each), "cpu-ms/load")
}

// openPage shows the overview as a browser does: it listens to the ticks and loads the
// page at each. The function ends that, and returns how often the page was loaded.
func openPage(b *testing.B, address string) (leave func() int) {
	ctx, stop := context.WithCancel(context.Background())
	get := func(path string) *http.Response {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+path, nil)
		if err != nil {
			b.Error(err)
			return nil
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			if ctx.Err() == nil {
				b.Error(err)
			}
			return nil
		}
		return resp
	}
	loads, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		stream := get("/live/")
		if stream == nil {
			return
		}
		defer func() { _ = stream.Body.Close() }()
		lines := bufio.NewScanner(stream.Body)
		for lines.Scan() {
			if !strings.HasPrefix(lines.Text(), "event: tick") {
				continue
			}
			if page := get("/"); page != nil {
				_, _ = io.Copy(io.Discard, page.Body) // the end of the round ends it
				_ = page.Body.Close()
				loads++
			}
		}
	}()
	return func() int {
		stop()
		<-done
		return loads
	}
}

func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return (of[len(of)/2] + of[(len(of)-1)/2]) / 2
}
