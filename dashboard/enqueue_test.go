package dashboard

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
)

// A new job is shown before it is enqueued, and is enqueued as it was shown.
func TestEnqueue(t *testing.T) {
	s := newSite(t, WithAuthorizer(AllowAll))
	s.enqueue("known.type", nil, ojs.WithQueue("mail"))
	s.has("/jobs/", `href="../enqueue/"`)
	s.has("/enqueue/", `<option value="known.type">`, `<option value="mail">`)
	form := url.Values{"do": {"enqueue"}, "type": {"mail.send"}, "queue": {"slow"},
		"at": {"2026-03-02T08:30"}, "priority": {"7"}}
	form.Set("args", `{"to": "ada", "n": 12345678901234567890}`)
	count := func() int {
		f := engine.Filter{Types: []string{"mail.send"}}
		list, err := s.eng.Jobs().Page(context.Background(), f, "", 10)
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Jobs)
	}
	w := s.do("POST", "/enqueue/", form.Encode())
	for _, text := range []string{"mail.send", "12345678901234567890", "slow", "2026-03-02 08:30:00 UTC",
		">7<", `name="sure"`} {
		if !strings.Contains(w.Body.String(), text) {
			t.Errorf("no %q in\n%s", text, w.Body)
		}
	}
	if n := count(); n != 0 {
		t.Fatalf("the first post has enqueued %d jobs", n)
	}
	form.Set("sure", "1")
	to := s.do("POST", "/enqueue/", form.Encode()).Header().Get("Location")
	if n := count(); n != 1 || !strings.HasPrefix(to, "../jobs/") {
		t.Fatalf("%d jobs, the form leads to %q", n, to)
	}
	id := strings.Split(to, "/")[2]
	job, err := s.eng.Get(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	due := time.Date(2026, 3, 2, 8, 30, 0, 0, time.UTC)
	if string(job.Args.JSON()) != `{"to":"ada","n":12345678901234567890}` || job.Queue != "slow" ||
		job.Priority != 7 || !job.ScheduledAt.Equal(due) {
		t.Errorf("%+v with %s", job, job.Args.JSON())
	}
	s.has(strings.TrimPrefix(to, ".."), "The job is enqueued.")
	for field, value := range map[string]string{"type": "Not A Type", "queue": "no queue", "args": "{",
		"priority": "x", "at": "tomorrow"} {
		bad := url.Values{"do": {"enqueue"}, "type": {"mail.send"}, "sure": {"1"}}
		bad.Set(field, value)
		if w := s.do("POST", "/enqueue/", bad.Encode()); w.Code != http.StatusConflict {
			t.Errorf("%s %q: %d", field, value, w.Code)
		}
	}
	if n := count(); n != 1 {
		t.Errorf("%d jobs", n)
	}
}

// An authorizer decides on new jobs by their type and queue.
func TestAuthorizerDecidesOnEnqueue(t *testing.T) {
	if w := newSite(t).do("POST", "/enqueue/", "do=enqueue&type=a&sure=1"); w.Code != http.StatusForbidden {
		t.Errorf("read only: %d", w.Code)
	}
	if w := newSite(t).get("/enqueue/"); w.Code != http.StatusForbidden {
		t.Errorf("the form, read only: %d", w.Code)
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	s := newSite(t, WithLogger(logger), WithAuthorizer(func(_ *http.Request, a Action) error {
		if a.Do == Enqueue && (a.Type == "secret" || a.Queue == "secret") {
			return errReadOnly
		}
		return nil
	}))
	for form, want := range map[string]int{"type=secret": 403, "type=a&queue=secret": 403, "type=a": 303} {
		if w := s.do("POST", "/enqueue/", "do=enqueue&sure=1&"+form); w.Code != want {
			t.Errorf("%s: %d, want %d\n%s", form, w.Code, want, w.Body)
		}
	}
	line := `do=enqueue on=job name="" actor="" type=a queue=default`
	if strings.Count(log.String(), line) != 1 {
		t.Errorf("the log does not name the job once:\n%s", &log)
	}
}
