package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
)

// The page Scheduled leads to a preview of what is done to some of its jobs or to all,
// and the preview leads back to it.
func TestDueActions(t *testing.T) {
	s := newSite(t, WithAuthorizer(AllowAll))
	s.eng.Handle("fails", func(context.Context, *ojs.Job[any]) error { return ojs.Errorf("t", "no") })
	id := s.enqueue("later", nil, ojs.WithDelay(time.Hour))
	other := s.enqueue("later", nil, ojs.WithDelay(2*time.Hour))
	retry := s.enqueue("fails", nil, ojs.WithMaxAttempts(2))
	s.run()
	const all = "state:scheduled state:retryable"
	s.has("/due/", `name="id" value="`+id+`"`, `name="id" value="`+retry+`"`,
		`value="run"`, `value="cancel"`, `value="reschedule"`,
		`name="q" value="`+all, `name="from" value="due/"`)
	state := func(id string) ojs.State {
		job, err := s.eng.Get(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		return job.State
	}
	form := url.Values{"do": {"reschedule"}, "id": {id}, "from": {"due/"}}
	s.has("/act/?"+form.Encode(), "Reschedule: 1 job", `href="../due/"`, `name="from" value="due/"`)
	form.Set("at", "2026-03-01T20:00:00")
	to := s.do("POST", "/act/", form.Encode()).Header().Get("Location")
	s.has(strings.TrimPrefix(to, ".."), `href="../../due/"`)
	job, err := s.eng.Get(context.Background(), id)
	if want := time.Date(2026, 3, 1, 20, 0, 0, 0, time.UTC); err != nil || !job.ScheduledAt.Equal(want) {
		t.Errorf("%v, %v", job.ScheduledAt, err)
	}
	form = url.Values{"do": {"cancel"}, "id": {other}, "from": {"https://evil.example.com/"}}
	s.has("/act/?"+form.Encode(), `href="../jobs/"`)
	s.do("POST", "/act/", form.Encode())
	form = url.Values{"do": {"run"}, "all": {"1"}, "q": {all}, "from": {"due/"}}
	s.has("/act/?"+form.Encode(), "Run now: 2 jobs")
	if w := s.do("POST", "/act/", form.Encode()); w.Code != http.StatusSeeOther {
		t.Errorf("%d\n%s", w.Code, w.Body)
	}
	s.run()
	waits := inspect.Filter{States: []ojs.State{ojs.StateScheduled, ojs.StateRetryable}}
	if n, err := s.eng.Jobs().Count(context.Background(), waits, 0); err != nil || n.N > 0 {
		t.Errorf("%d jobs still wait for a time, %v", n.N, err)
	}
	if got := state(other); got != ojs.StateCancelled {
		t.Errorf("the other job is %s", got)
	}
	if body := s.ok("/due/"); strings.Contains(body, `id="many"`) {
		t.Error("an empty list has a bar of actions")
	}
}

// The page Scheduled has the next hour by minute. If a job is due later than that, it has
// the next day by hour.
func TestDueCharts(t *testing.T) {
	s := newSite(t)
	s.enqueue("later", nil, ojs.WithDelay(90*time.Second))
	if body := s.ok("/due/"); !strings.Contains(body, "in 1m · 1") || strings.Contains(body, "by hour") {
		t.Error(body)
	}
	s.enqueue("later", nil, ojs.WithDelay(5*time.Hour))
	s.enqueue("later", nil, ojs.WithDelay(5*time.Hour+time.Minute))
	s.enqueue("later", nil, ojs.WithDelay(24*time.Hour))
	s.has("/due/", "in 1m · 1", "in 0s · 1", "in 5h · 2", "by hour", "1 job</p>", "3 jobs</p>")
}

// Without an authorizer the page Scheduled has no actions.
func TestDueReadOnly(t *testing.T) {
	s := newSite(t)
	s.enqueue("later", nil, ojs.WithDelay(time.Hour))
	if body := s.ok("/due/"); strings.Contains(body, `id="many"`) || strings.Contains(body, `name="id"`) {
		t.Error(body)
	}
}
