package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/dashboard"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/internal/test/needles"
	"github.com/ojsengine/ojs/internal/test/pgtest"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/postgres"
	"github.com/ojsengine/ojs/storage/sqlite"
	"github.com/ojsengine/ojs/telemetry"
)

// The time of pages over many jobs, on each storage, and the processor time with that of
// the server:
//
//	OJS_JOBS=1000000 go test -run '^$' -bench Pages -benchtime 20x -timeout 30m ./cmd/ojs
func BenchmarkPages(b *testing.B) {
	n := 10_000
	if text := os.Getenv("OJS_JOBS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	onStorages(b, func(b *testing.B, st storage.Storage, server int) { benchPages(b, st, n, server) })
}

// onStorages runs a benchmark on each storage. server is the process of its server; 0:
// it has none.
func onStorages(b *testing.B, bench func(b *testing.B, st storage.Storage, server int)) {
	ctx := context.Background()
	b.Run("memory", func(b *testing.B) { bench(b, memory.New(), 0) })
	b.Run("sqlite", func(b *testing.B) {
		st, err := sqlite.Open(ctx, filepath.Join(b.TempDir(), "jobs.db"))
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = st.Close() }()
		bench(b, st, 0)
	})
	b.Run("postgres", func(b *testing.B) {
		db, err := pgtest.Start()
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		pool, err := pgxpool.New(ctx, db.DSN())
		if err != nil {
			b.Fatal(err)
		}
		defer pool.Close()
		st, err := postgres.Open(ctx, pool)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = st.Close() }()
		bench(b, st, db.PID())
	})
}

func benchPages(b *testing.B, st storage.Storage, n, server int) {
	cl := clock.NewMock()
	cl.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	eng, err := engine.New[any](st, engine.WithClock(cl))
	if err != nil {
		b.Fatal(err)
	}
	flows := needles.Fill(b, st, eng, cl, n)
	reported := append(history(cl.Now()), failures(b, st, cl.Now())...)
	if err := document.Of(st).PutValues(b.Context(), cl.Now(), reported); err != nil {
		b.Fatal(err)
	}
	pages, err := dashboard.New(eng, dashboard.WithClock(cl), dashboard.WithHosts("*"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = pages.Close() }()
	for _, path := range []string{"/", "/jobs/", "/jobs/?q=state:active", "/jobs/?q=state:available",
		"/jobs/?q=type:needle.waits", "/jobs/?q=state:discarded+type:needle.fails",
		"/jobs/?q=state:discarded+errortype:hay.error", "/jobs/?q=args.n:7", "/jobs/?by=type",
		"/jobs/" + flows[0] + "/", "/queues/", "/queues/hay-waits/", "/failures/",
		"/failures/?of=stored", "/dead/", "/due/", "/history/", "/limits/",
		"/types/", "/types/hay.fails/", "/workers/", "/workflows/",
		"/workflows/?state=failed", "/workflows/" + flows[0] + "/", "/running/", "/system/"} {
		name := strings.Replace(path, flows[0], "ID", 1)
		b.Run(fmt.Sprintf("%d%s", n, name), func(b *testing.B) {
			before := pgtest.ProcessorTime(os.Getpid()) + pgtest.ProcessorTime(server)
			var took []float64 // ms
			for b.Loop() {
				cl.Add(time.Second) // as between two loads of an open page
				began := time.Now()
				w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
				r.Header.Set("X-Live", "1") // as an open page loads itself
				pages.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatalf("%d\n%s", w.Code, w.Body)
				}
				took = append(took, float64(time.Since(began))/1e6)
			}
			used := pgtest.ProcessorTime(os.Getpid()) + pgtest.ProcessorTime(server) - before
			slices.Sort(took)
			b.ReportMetric(used*1000/float64(b.N), "cpu-ms/op")
			b.ReportMetric(took[len(took)/2], "p50-ms")
			b.ReportMetric(took[len(took)*99/100], "p99-ms")
		})
	}
}

// failures are what an engine has counted in a month: 10 kinds of 20 types.
func failures(b *testing.B, st storage.Storage, now time.Time) (values []document.Value) {
	var meters telemetry.Meters
	var rec telemetry.FailureRecorder
	meters.CountFailures = true
	for day := range 30 {
		at := now.AddDate(0, 0, day-29)
		for i := range 200 {
			r := &storage.Record{JobInfo: ojs.JobInfo{State: ojs.StateDiscarded,
				Error: &ojs.Failure{Type: fmt.Sprintf("error.%c", 'a'+i/20), Message: "no answer", At: at}}}
			r.Type = fmt.Sprint("type.", i%20)
			meters.Ended(1, func(int) (telemetry.Attempt, bool) { return telemetry.Attempt{Job: r}, true })
		}
		err := rec.Record(b.Context(), &meters, st, at, "web-1", "v1", stored.Into(&values))
		if err != nil {
			b.Fatal(err)
		}
		rec.Stored()
	}
	return values
}

// history is an hour of what engines report, of 20 types.
func history(now time.Time) (values []document.Value) {
	for tier, width := range map[string]time.Duration{"10s": 10 * time.Second, "1m": time.Minute,
		"1h": time.Hour} {
		for i := range 90 {
			start := now.Truncate(width).Add(-time.Duration(i) * width).Unix()
			var types []string
			for k := range 20 {
				const of = `{"q":"q%d","t":"type.%d","n":[90,80,3,2,1,0,0,0,0],"wait":[9000000,114,60,118,20],` +
					`"run":[90000000,151,70,155,10]}`
				types = append(types, fmt.Sprintf(of, k%5, k))
			}
			values = append(values, document.Value{Key: fmt.Sprintf("history/%s/%010d/web-1", tier, start),
				Data: []byte("[" + strings.Join(types, ",") + "]")})
		}
	}
	return values
}
