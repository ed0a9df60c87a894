package dashboard

import (
	"context"
	"fmt"
	"html"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
)

// The page of an active job has what its attempt has logged so far, without secrets. Its
// stream gets a tick when the attempt logs, and that of another page does not. The page
// of another engine shows the log, too.
func TestRunningLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		newEngine := func(opts ...engine.Option) *site {
			eng, err := engine.New[any](store, append(opts, engine.WithLogger(quiet))...)
			if err != nil {
				t.Fatal(err)
			}
			pages, err := New(eng, WithLogger(quiet))
			if err != nil {
				t.Fatal(err)
			}
			return &site{t: t, eng: eng, pages: pages}
		}
		s := newEngine(engine.WithJobLogs(slog.LevelInfo), engine.WithReports(engine.Reports{}))
		other := newEngine()
		s.eng.Handle("slow", func(ctx context.Context, _ *ojs.Job[any]) error {
			for i := range 5 {
				handler.Logger(ctx).Info(fmt.Sprintf("step %d password=hunter", i))
				pace.Virtual(10 * time.Second)
			}
			return nil
		})
		id := s.enqueue("slow", nil)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.eng.Run(ctx) }()
		pace.Virtual(11 * time.Second)
		body := s.ok("/jobs/" + id + "/")
		if !strings.Contains(body, "Log of the running attempt") || !strings.Contains(body, "step 1") ||
			strings.Contains(body, "step 2") || strings.Contains(body, "hunter") {
			t.Errorf("the page of the active job:\n%s", body)
		}
		log := regexp.MustCompile(`data-log="([^"]+)"`).FindStringSubmatch(body)
		if len(log) == 0 {
			t.Fatalf("no data-log in\n%s", body)
		}
		ticks := func(path string) int {
			ctx, leave := context.WithTimeout(t.Context(), 15*time.Second)
			defer leave()
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(ctx, "GET", path, nil)
			r.Host = "localhost"
			s.pages.ServeHTTP(w, r)
			return strings.Count(w.Body.String(), "event: tick")
		}
		other.ok("/jobs/" + id + "/") // asks for the log
		without, with := make(chan int), make(chan int)
		go func() { without <- ticks("/live/") }()
		go func() { with <- ticks("/live/?" + html.UnescapeString(log[1])) }()
		if plain, following := <-without, <-with; following != plain+2 { // at once, and at 20 s
			t.Errorf("%d ticks, and %d of the page with the log", plain, following)
		}
		if body := other.ok("/jobs/" + id + "/"); !strings.Contains(body, "step 1") {
			t.Errorf("the page of the other engine:\n%s", body)
		}
		pace.Virtual(time.Minute)
		body = s.ok("/jobs/" + id + "/")
		if strings.Contains(body, "Log of the running attempt") || strings.Contains(body, "data-log") ||
			!strings.Contains(body, "step 4") {
			t.Errorf("the page of the completed job:\n%s", body)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, of := range []*site{s, other} {
			if err := of.pages.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
