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
	"github.com/ojsengine/ojs/inspect"
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
		f := inspect.Filter{Types: []string{"mail.send"}}
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

// A confirmation that is sent twice makes one job, new or copied, and the second leads to
// the same job.
func TestConfirmTwiceMakesOneJob(t *testing.T) {
	s := newSite(t, WithAuthorizer(AllowAll))
	first := s.enqueue("t", 1)
	for at, form := range map[string]url.Values{
		"/enqueue/":                 {"do": {"enqueue"}, "type": {"a.new"}},
		"/jobs/" + first + "/edit/": {"do": {"copy"}, "args": {"2"}},
	} {
		body := s.do("POST", at, form.Encode()).Body.String()
		form.Set("sure", "1")
		form.Set("id", field(t, body, `name="id" value="([^"]*)"`))
		before := len(s.list())
		once, twice := s.do("POST", at, form.Encode()), s.do("POST", at, form.Encode())
		if n := len(s.list()) - before; n != 1 {
			t.Errorf("%s has made %d jobs", at, n)
		}
		to, again := once.Header().Get("Location"), twice.Header().Get("Location")
		job, _, _ := strings.Cut(to, "?")
		if !strings.Contains(job, form.Get("id")) || again != job+"?did=again" {
			t.Errorf("%s leads to %s, and then to %s", at, to, again)
		}
		form.Set("id", "7")
		if w := s.do("POST", at, form.Encode()); w.Code != http.StatusConflict {
			t.Errorf("%s with a bad id: %d", at, w.Code)
		}
		form.Set("id", first)
		w := s.do("POST", at, form.Encode())
		if n := len(s.list()) - before; n != 1 || w.Code != http.StatusSeeOther {
			t.Errorf("%s with the id of another job: %d, %d jobs", at, w.Code, n)
		}
	}
	s.has("/jobs/"+first+"/?did=again", "The form was confirmed before")
}

func (s *site) list() []*ojs.JobInfo {
	s.t.Helper()
	page, err := s.eng.Jobs().Page(context.Background(), inspect.Filter{}, "", 100)
	if err != nil {
		s.t.Fatal(err)
	}
	return page.Jobs
}

// No form makes a job of the engine's own types.
func TestOwnTypesAreRefused(t *testing.T) {
	s := newSite(t, WithAuthorizer(AllowAll))
	for _, own := range ownTypes {
		for _, form := range []string{"/enqueue/?do=enqueue", "/enqueue/?do=enqueue&sure=1",
			"/cron/new/edit/?do=set&schedule=@daily", "/cron/new/edit/?do=set&schedule=@daily&sure=1"} {
			at, fields, _ := strings.Cut(form, "?")
			w := s.do("POST", at, fields+"&type="+own)
			if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "own jobs") {
				t.Errorf("%s of %s: %d\n%s", form, own, w.Code, w.Body)
			}
		}
	}
	if n := len(s.list()); n != 0 {
		t.Errorf("%d jobs", n)
	}
}
