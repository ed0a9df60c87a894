package dashboard

import (
	"context"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/telemetry"
	"github.com/ojsengine/ojs/workflow"
)

// A queue grows if more jobs came than ended in each third of a quarter of an hour, and
// many wait.
func TestGrowingQueues(t *testing.T) {
	s := newSite(t)
	now := s.clock.Now().Add(30 * time.Second)
	bucket := func(ago int, queue string, in, out uint64) telemetry.Bucket {
		return telemetry.Bucket{Start: now.Truncate(time.Minute).Add(-time.Duration(ago) * time.Minute),
			Meters: []telemetry.Meter{{Queue: queue, Type: "t", Enqueued: in, Completed: out}}}
	}
	buckets := []telemetry.Bucket{
		bucket(15, "mail", 500, 400), bucket(7, "mail", 500, 490), bucket(1, "mail", 20, 10),
		bucket(15, "burst", 900, 0), bucket(7, "burst", 0, 300), bucket(1, "burst", 0, 300), // works it off
		bucket(15, "few", 10, 0), bucket(7, "few", 10, 0), bucket(1, "few", 10, 0),
		bucket(14, "later", 100, 0), bucket(9, "later", 100, 0), bucket(4, "later", 100, 0), // scheduled
		bucket(40, "old", 500, 0), bucket(16, "old", 500, 0), bucket(0, "old", 500, 0),
		bucket(15, "gone", 100, 0), bucket(7, "gone", 100, 0), bucket(1, "gone", 100, 0),
		bucket(11, "web", 500, 0), bucket(6, "web", 500, 0), bucket(2, "web", 500, 499),
	}
	var queues []operate.QueueStats
	for _, name := range []string{"mail", "burst", "few", "later", "old", "web", "quiet"} {
		n := 200
		if name == "later" {
			n = 50
		}
		counts := map[ojs.State]int{ojs.StateAvailable: n}
		queues = append(queues, operate.QueueStats{Name: name, Counts: counts})
	}
	p := s.pages.newPage(nil, httptest.NewRequest("GET", "/", nil))
	p.Now = now
	want := []notice{
		noticeOf("queues/web/", "web", "the queue grows: in 15m, 1,001 more jobs came than ended"),
		noticeOf("queues/mail/", "mail", "the queue grows: in 15m, 120 more jobs came than ended")}
	if got := p.growing(buckets, queues); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// The overview names the recurring entries whose runs nothing has made. Paused entries
// are none of them, and there are none while everything is paused.
func TestMissedRunsAreNamed(t *testing.T) {
	s := newSite(t)
	ctx := context.Background()
	for _, e := range []cron.Entry{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"},
		{Name: "f"}, {Name: "g"}, {Name: "paused", Paused: true}} {
		e.Schedule, e.Job = "0 * * * *", ojs.NewDraft("t", nil)
		if err := s.eng.Cron().Set(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	hourly := cron.Entry{Name: "first", Schedule: "30 * * * *", Job: ojs.NewDraft("t", nil)}
	if err := s.eng.Cron().Set(ctx, hourly); err != nil {
		t.Fatal(err)
	}
	s.clock.Add(time.Hour + 59*time.Second)
	first := `href="./cron/first/">first</a>: the run of 30m 59s ago has not been made<`
	for _, step := range []struct {
		has  string
		want bool
	}{{first, true}, {`href="./cron/a/"`, false}} {
		if body := s.ok("/"); strings.Contains(body, step.has) != step.want {
			t.Errorf("%s: %v in\n%s", step.has, !step.want, body)
		}
	}
	s.clock.Add(time.Second)
	body := s.ok("/")
	for has, want := range map[string]bool{"the run of 31m ago has not been made": true,
		`href="./cron/a/">a</a>: the run of 1m ago has not been made<`: true,
		`href="./cron/d/"`: true, `href="./cron/e/"`: false, `href="./cron/paused/"`: false,
		`href="./cron/">Recurring</a>: 3 more entries are overdue`: true} {
		if strings.Contains(body, has) != want {
			t.Errorf("%s: %v in\n%s", has, !want, body)
		}
	}
	if n := strings.Count(s.ok("/cron/"), ">overdue</span>"); n != 8 {
		t.Errorf("%d entries are overdue, want 8", n)
	}
	if !strings.Contains(s.ok("/cron/first/"), ">overdue</span>") || strings.Contains(s.ok("/cron/paused/"),
		">overdue</span>") {
		t.Error("the page of an entry does not say whether it is overdue")
	}
	if err := s.eng.Queues().PauseAll(ctx, ""); err != nil {
		t.Fatal(err)
	}
	if body := s.ok("/"); strings.Contains(body, "has not been made") ||
		!strings.Contains(body, "Everything is paused") {
		t.Errorf("while everything is paused:\n%s", body)
	}
}

// The overview names types with jobs that no engine seems to run.
func TestTypesWithoutAHandlerAreNamed(t *testing.T) {
	s := newSite(t)
	s.eng.Handle("handled", func(context.Context, *ojs.Job[any]) error { return nil })
	s.enqueue("handled", nil)
	s.enqueue("nobody", nil)
	step := func(name string) workflow.Part { return workflow.Step(name, ojs.NewDraft("handled", nil)) }
	flow := workflow.New("order", workflow.Chain(workflow.Group(step("a"), step("b")),
		workflow.Group(step("c"), step("d"))))
	if _, err := s.eng.Workflows().Start(context.Background(), flow); err != nil {
		t.Fatal(err)
	}
	has := func(want bool) {
		t.Helper()
		text := "no engine here or that reports has a handler"
		body := s.ok("/")
		if strings.Contains(body, `<a href="./types/nobody/">nobody</a>: `+text) != want ||
			strings.Contains(body, text) != want || strings.Contains(body, `</a>, <a href="./types/`) {
			t.Errorf("want %v in\n%s", want, body)
		}
	}
	has(true)
	if n := strings.Count(s.ok("/types/"), "not here"); n != 1 { // the jobs of the workflow itself need none
		t.Errorf("%d types have no handler, want 1", n)
	}
	s.pages.conf.visitor = true // and no engine reports: nothing is known
	has(false)
	s.pages.conf.visitor = false
	s.eng.Handle("nobody", func(context.Context, *ojs.Job[any]) error { return nil })
	has(false)
}
