package dashboard

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/workflow"
)

// counting is a storage that counts what its listings look at, and lookups.
type counting struct {
	storage.Storage
	looked, crons, gets atomic.Int64
	listed              func(q storage.Query) // called after each List; nil: nothing is
}

func (c *counting) Get(ctx context.Context, id string) (storage.Record, error) {
	c.gets.Add(1)
	return c.Storage.Get(ctx, id)
}

func (c *counting) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	page, err := c.Storage.List(ctx, q)
	c.looked.Add(int64(page.Looked))
	if c.listed != nil {
		c.listed(q)
	}
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
	store := &counting{Storage: memory.New()}
	s := newSiteOver(t, store, nil)
	cl, eng := s.clock, s.eng
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

// An open list of a few jobs among many is made anew rarely. In between it has the same
// jobs, if they are still selected.
func TestOpenListLooksRarely(t *testing.T) {
	for line, counted := range map[string]bool{"type:few": true, "type:few+since:1h": false} {
		t.Run(line, func(t *testing.T) { testOpenList(t, line, counted) })
	}
}

// testOpenList loads a list whose jobs storages have counted or not: the look at many
// jobs ends with the last of them, or with the first page.
func testOpenList(t *testing.T, line string, counted bool) {
	cl := clock.NewMock()
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
	var few []string
	if counted {
		few = []string{s.enqueue("few", nil), s.enqueue("few", nil)}
	}
	const jobs = 20_000
	drafts := make([]ojs.Draft, jobs)
	for i := range drafts {
		drafts[i] = ojs.NewDraft("many", i)
	}
	if _, err := eng.EnqueueMany(t.Context(), drafts...); err != nil {
		t.Fatal(err)
	}
	if len(few) == 0 {
		few = []string{s.enqueue("few", nil), s.enqueue("few", nil)}
	}
	body := ""
	load := func(want int) (looked int64) {
		t.Helper()
		store.looked.Store(0)
		store.gets.Store(0)
		body = s.do("GET", "/jobs/?q="+line, "", "X-Live", "1").Body.String()
		rows := 0
		for _, id := range few {
			rows += strings.Count(body, `title="`+id+`"`)
		}
		if rows != want {
			t.Errorf("the list has %d of the jobs, want %d", rows, want)
		}
		return store.looked.Load()
	}
	first := load(2)
	if first < jobs/4 {
		t.Fatalf("the list looks at %d jobs", first)
	}
	cl.Add(time.Second)
	if n := load(2); n > first/2 || store.gets.Load() > 0 { // that of the tabs remains
		t.Errorf("a second later it looks at %d jobs, and gets %d", n, store.gets.Load())
	}
	if err := eng.Cancel(t.Context(), few[0]); err != nil {
		t.Fatal(err)
	}
	cl.Add(listAge)
	if load(2); strings.Count(body, `class="state cancelled"`) != 1 {
		t.Error("the list has jobs as they were")
	}
	cl.Add(time.Minute)
	if n := load(2); n < first {
		t.Errorf("a minute later it looks at %d jobs, want %d", n, first)
	}
	// The first job that matches shows at once.
	none := func() string {
		return s.do("GET", "/jobs/?q=type:new+since:1h", "", "X-Live", "1").Body.String()
	}
	none()
	id := s.enqueue("new", nil)
	if !strings.Contains(none(), `title="`+id+`"`) {
		t.Error("no job matches, says the list, and one does")
	}
}

// Pages read the steps of a workflow by one listing.
func TestStepsAreReadTogether(t *testing.T) {
	store := &counting{Storage: memory.New()}
	s := newSiteOver(t, store, nil)
	eng := s.eng
	const flows, steps = 10, 40
	id := ""
	for range flows {
		var parts []workflow.Part
		for i := range steps {
			parts = append(parts, workflow.Step(fmt.Sprint("s", i), ojs.NewDraft("x", i)))
		}
		ticket, err := eng.Workflows().Start(t.Context(), workflow.New("flow", workflow.Group(parts...)))
		if err != nil {
			t.Fatal(err)
		}
		id = ticket.ID
	}
	for path, most := range map[string]int64{"/workflows/": flows, "/workflows/" + id + "/": 1} {
		store.gets.Store(0)
		store.looked.Store(0)
		s.ok(path)
		if gets, looked := store.gets.Load(), store.looked.Load(); gets > most || looked > flows*(steps+5) {
			t.Errorf("%s makes %d lookups, want %d at most, and looks at %d jobs", path, gets, most, looked)
		}
	}
}
