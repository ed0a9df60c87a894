package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/dashboard"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pgtest"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/postgres"
	"github.com/ojsengine/ojs/storage/sqlite"
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
	eng, err := engine.New[any](st)
	if err != nil {
		b.Fatal(err)
	}
	var drafts []ojs.Draft
	last := ""
	for i := range n {
		queue := ojs.WithQueue([]string{"a", "b", "c"}[i%3])
		drafts = append(drafts, ojs.NewDraft("email.send", map[string]any{"n": i}, queue))
		if len(drafts) == 1000 || i == n-1 {
			tickets, err := eng.EnqueueMany(context.Background(), drafts...)
			if err != nil {
				b.Fatal(err)
			}
			drafts, last = drafts[:0], tickets[0].ID
		}
	}
	pages, err := dashboard.New(eng)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = pages.Close() }()
	for _, path := range []string{"/", "/jobs/", "/jobs/?q=state:available+args.n:7", "/jobs/?by=type",
		"/jobs/" + last + "/", "/queues/", "/queues/a/", "/failures/", "/dead/", "/due/", "/history/",
		"/limits/", "/types/", "/system/"} {
		name := path
		if path == "/jobs/"+last+"/" {
			name = "/jobs/ID/"
		}
		b.Run(fmt.Sprintf("%d%s", n, name), func(b *testing.B) {
			before := pgtest.ProcessorTime(os.Getpid()) + pgtest.ProcessorTime(server)
			for b.Loop() {
				w := httptest.NewRecorder()
				pages.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
				if w.Code != http.StatusOK {
					b.Fatalf("%d\n%s", w.Code, w.Body)
				}
			}
			used := pgtest.ProcessorTime(os.Getpid()) + pgtest.ProcessorTime(server) - before
			b.ReportMetric(used*1000/float64(b.N), "cpu-ms/op")
		})
	}
}
