package dashboard

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// counting is a storage that counts what its listings look at.
type counting struct {
	storage.Storage
	looked, crons atomic.Int64
}

func (c *counting) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	page, err := c.Storage.List(ctx, q)
	c.looked.Add(int64(page.Looked))
	return page, err
}

func (c *counting) Documents(ctx context.Context, kind storage.Kind, q storage.DocumentQuery) (
	[]storage.Document, error) {
	list, err := c.Storage.Documents(ctx, kind, q)
	if kind == storage.KindCron {
		c.crons.Add(int64(len(list)))
	}
	return list, err
}

// A page that loads itself again and again looks at a bounded number of jobs and entries.
// The active jobs on it cost a look at these alone.
func TestPagesLookAtFewJobs(t *testing.T) {
	cl := clock.NewMock()
	cl.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	store := &counting{Storage: memory.New()}
	eng, err := engine.New[any](store, engine.WithClock(cl), engine.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := New(eng, WithClock(cl), WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Close()
	s := &site{t, cl, eng, pages}
	const jobs, active = 20_000, 3
	drafts := make([]ojs.Draft, jobs)
	for i := range drafts {
		drafts[i] = ojs.NewDraft("x", i)
	}
	if _, err := eng.EnqueueMany(t.Context(), drafts...); err != nil {
		t.Fatal(err)
	}
	claimed, err := store.Claim(t.Context(), cl.Now(), storage.Claim{Max: active, Worker: "w"}, nil)
	if err != nil || len(claimed) != active {
		t.Fatal(len(claimed), err)
	}
	entries := make([]cron.Entry, 500)
	for i := range entries {
		entries[i] = cron.Entry{Name: fmt.Sprint("e", i), Schedule: "@daily",
			Job: ojs.NewDraft("x", nil)}
	}
	if err := eng.Cron().Set(t.Context(), entries...); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path  string
		jobs  int64
		crons int64
	}{
		{"/workers/", active, 0},
		{"/running/", active, 0},
		{"/search/?q=word", 3 * 1100, 500},
		{"/jobs/?q=state:active", 2 * active, 0},
		{"/jobs/?q=type:none", 0, 0},
		{"/", 10, 0},
		{"/dead/", 0, 0},
		{"/failures/", 5000, 0},
		{"/queues/", 10, 0},
		{"/types/", 0, 0},
		{"/due/", 10, 0},
	} {
		store.looked.Store(0)
		store.crons.Store(0)
		s.ok(tt.path)
		if n, crons := store.looked.Load(), store.crons.Load(); n > tt.jobs || crons > tt.crons {
			t.Errorf("%s looks at %d jobs and %d entries, want %d and %d at most", tt.path, n, crons,
				tt.jobs, tt.crons)
		}
	}
}
