package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
)

// Every operation on many does to the jobs that it selects what the one on a job does,
// after a preview that changes nothing.
func TestOperationsOnMany(t *testing.T) {
	at := time.Date(2026, 3, 1, 15, 4, 0, 0, time.UTC)
	for _, tc := range []struct {
		do, q string
		form  url.Values
		title string // of the preview
		check func(s *site, ids map[string]string) bool
	}{
		{"run", "", nil, "Run now: 3 jobs", func(s *site, ids map[string]string) bool {
			return s.state(ids["pending"]) == ojs.StateAvailable &&
				s.state(ids["scheduled"]) == ojs.StateAvailable &&
				s.job(ids["retryable"]).NextRetryAt.Equal(s.clock.Now()) &&
				strings.Contains(s.ok("/runs/1/"), "Failed again</span><strong>0")
		}},
		{"run", "state:pending", nil, "Run now: 1 job", func(s *site, ids map[string]string) bool {
			return s.state(ids["pending"]) == ojs.StateAvailable &&
				s.state(ids["scheduled"]) == ojs.StateScheduled
		}},
		{"move", "queue:paused", url.Values{"queue": {"other"}}, "Move: 1 job",
			func(s *site, ids map[string]string) bool {
				job := s.job(ids["available"])
				return job.Queue == "other" && job.History[0].By == "ada"
			}},
		{"reschedule", "state:scheduled", url.Values{"at": {"2026-03-01T15:04"}}, "Reschedule: 1 job",
			func(s *site, ids map[string]string) bool {
				return s.job(ids["scheduled"]).ScheduledAt.Equal(at)
			}},
		{"prioritize", "queue:paused", url.Values{"priority": {"7"}}, "Set the priority: 1 job",
			func(s *site, ids map[string]string) bool { return s.job(ids["available"]).Priority == 7 }},
		{"copy", "state:completed type:works", url.Values{"limit": {"1"}}, "Copy: ",
			func(s *site, _ map[string]string) bool {
				return strings.Contains(s.ok("/runs/1/"), "the latest 1<")
			}},
		{"retry", "state:retryable", nil, "Retry: 1 job", func(s *site, ids map[string]string) bool {
			return s.state(ids["retryable"]) == ojs.StateAvailable
		}},
	} {
		t.Run(tc.do+" "+tc.q, func(t *testing.T) {
			ada := WithActor(func(*http.Request) string { return "ada" })
			s, ids := full(t, WithAuthorizer(AllowAll), ada)
			form := url.Values{"do": {tc.do}, "all": {"1"}, "q": {tc.q}}
			before := s.stored(ids["available"])
			if body := s.ok("/act/?" + form.Encode()); !strings.Contains(body, tc.title) {
				t.Errorf("no %q in the preview:\n%s", tc.title, body)
			}
			if string(s.stored(ids["available"])) != string(before) {
				t.Error("the preview has done it")
			}
			for key, values := range tc.form {
				form[key] = values
			}
			w := s.do("POST", "/act/", form.Encode())
			if w.Header().Get("Location") != "../runs/1/" {
				t.Fatalf("%d\n%s", w.Code, w.Body)
			}
			if !tc.check(s, ids) {
				t.Errorf("it was not done:\n%s", s.ok("/runs/1/"))
			}
		})
	}
}

// The page of a run says what happened to the jobs that it has made run.
func TestRunSaysWhatFailsAgain(t *testing.T) {
	s := newSite(t, WithAuthorizer(AllowAll))
	s.eng.Handle("t", func(_ context.Context, job *ojs.Job[any]) error {
		if job.Meta["bad"] != nil {
			return errors.New("again")
		}
		return nil
	})
	for i := range 3 {
		if s.enqueue("t", nil); i > 0 {
			s.enqueue("t", nil, ojs.WithMeta("bad", true), ojs.WithMaxAttempts(1))
		}
	}
	s.run()
	if w := s.do("POST", "/act/", "do=copy&all=1&q="); w.Code != http.StatusSeeOther {
		t.Fatalf("%d\n%s", w.Code, w.Body)
	}
	s.clock.Add(time.Second)
	s.run()
	body := s.ok("/runs/1/")
	for _, want := range []string{"the latest 5", `Completed</span><strong>3`,
		`Failed again</span><strong class="bad">2`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
}

// A page that has not looked at every job never says that there is none: the operation is
// offered, and reaches the job.
func TestPreviewBeyondItsLook(t *testing.T) {
	s := newSite(t, WithAuthorizer(AllowAll))
	for range 3 * inspect.DefaultLook { // a page of a listing may look at more
		s.enqueue("t", nil)
	}
	last := s.enqueue("t", nil, ojs.WithMeta("last", true))
	form := url.Values{"do": {"cancel"}, "all": {"1"}, "q": {"meta.last:true"}}
	body := s.ok("/act/?" + form.Encode())
	if strings.Contains(body, "There is no job") || !strings.Contains(body, `method="post"`) {
		t.Errorf("the operation is not offered:\n%s", body)
	}
	if w := s.do("POST", "/act/", form.Encode()); w.Code != http.StatusSeeOther {
		t.Fatalf("%d\n%s", w.Code, w.Body)
	}
	s.ok("/runs/1/")
	if got := s.state(last); got != ojs.StateCancelled {
		t.Errorf("the job is %s", got)
	}
	body = s.ok("/jobs/?by=error&q=" + url.QueryEscape(form.Get("q")))
	if strings.Contains(body, "No job has a value") {
		t.Error("the break-down says none of what it has not scanned")
	}
}

func TestOperationsOnManyAreRefused(t *testing.T) {
	s, ids := full(t, WithAuthorizer(func(_ *http.Request, a Action) error {
		if a.Do == Move && a.Queue == "secret" || a.Do == Purge {
			return errors.New("not yours")
		}
		return nil
	}))
	id := "&id=" + ids["available"]
	for form, status := range map[string]int{
		"do=move" + id:                           409, // it names no queue
		"do=move&queue=Not+A+Queue" + id:         409,
		"do=move&queue=secret" + id:              403,
		"do=prioritize" + id:                     409,
		"do=prioritize&priority=3000000000" + id: 409,
		"do=reschedule&at=tomorrow" + id:         409,
		"do=run&all=1&q=state:completed":         409,
		"do=retry&all=1&q=state:completed":       409,
		"do=cancel&all=1&q=&limit=0":             409,
		"do=cancel&all=1&q=&limit=x":             409,
		"do=edit&all=1&q=":                       404,
		"do=purge&all=1&q=":                      404,
		"do=prioritize&priority=3&every=5" + id:  303,
	} {
		if w := s.do("POST", "/act/", form); w.Code != status {
			t.Errorf("%s: %d, want %d\n%s", form, w.Code, status, w.Body)
		}
	}
	if body := s.ok("/queues/mail/"); strings.Contains(body, "purge") {
		t.Error("the page of a queue offers a purge")
	}
	if w := s.do("POST", "/queues/mail/purge/", "name=mail"); w.Code != http.StatusForbidden {
		t.Error(w.Code)
	}
}

// A list offers the operations that are for its jobs, and none if it is empty.
func TestListOffersWhatItsJobsTake(t *testing.T) {
	s, _ := full(t, WithAuthorizer(AllowAll))
	for q, want := range map[string]string{
		"state:discarded": "retry delete copy", "state:available": "cancel move reschedule prioritize",
		"state:available+state:pending": "cancel move",
		"state:pending":                 "run cancel move", "state:active": "", // there is none
		"state:active+state:completed": "", "type:nothing": "",
		"": "retry run cancel delete copy move reschedule prioritize",
	} {
		var got []string
		_, verbs, _ := strings.Cut(s.ok("/jobs/?q="+q), `<select id="do"`)
		for _, part := range strings.Split(verbs, `<option value="`)[1:] {
			verb, _, _ := strings.Cut(part, `"`)
			got = append(got, verb)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q offers %v, want %s", q, got, want)
		}
	}
}

// A purge asks for the name of the queue, and leaves nothing in it but what runs.
func TestPurge(t *testing.T) {
	s, ids := full(t, WithAuthorizer(AllowAll))
	s.enqueue("t", 1, ojs.WithQueue("paused"), ojs.WithDelay(time.Hour))
	done := s.enqueue("t", 1, ojs.WithQueue("paused"))
	if err := s.eng.Cancel(context.Background(), done); err != nil {
		t.Fatal(err)
	}
	if body := s.ok("/queues/paused/"); !strings.Contains(body, `href="./purge/"`) {
		t.Error("the page of the queue has no link")
	}
	if body := s.ok("/queues/paused/purge/"); !strings.Contains(body, "Purge: 3 jobs") {
		t.Error(body)
	}
	for _, name := range []string{"", "mail", "pause"} {
		if w := s.do("POST", "/queues/paused/purge/", "name="+name); w.Code != http.StatusConflict {
			t.Errorf("%q: %d", name, w.Code)
		}
	}
	if s.state(ids["available"]) != ojs.StateAvailable {
		t.Error("a purge without the name of the queue was done")
	}
	w := s.do("POST", "/queues/paused/purge/", "name=paused")
	if w.Header().Get("Location") != "../../../runs/1/" {
		t.Fatalf("%d\n%s", w.Code, w.Body)
	}
	if body := s.ok("/runs/1/"); !strings.Contains(body, "<strong>3</strong>") ||
		!strings.Contains(body, "Purge: done") {
		t.Error(body)
	}
	if s.state(ids["available"]) != "gone" || s.state(done) != "gone" || s.state(ids["retryable"]) == "gone" {
		t.Error("not exactly the jobs of the queue are gone")
	}
	if w := s.get("/queues/Not%20A%20Queue/purge/"); w.Code != http.StatusNotFound {
		t.Error(w.Code)
	}
}

// Pauses of everything and of a type are told with who made them and why, and end.
func TestPausesOfTypesAndOfEverything(t *testing.T) {
	s, _ := full(t, WithAuthorizer(AllowAll), WithActor(func(*http.Request) string { return "ada" }))
	post := func(at, form string) {
		t.Helper()
		if w := s.do("POST", at, form); w.Code != http.StatusSeeOther {
			t.Fatalf("%s %s: %d\n%s", at, form, w.Code, w.Body)
		}
	}
	has := func(path string, want bool, texts ...string) {
		t.Helper()
		body := s.ok(path)
		for _, text := range texts {
			if strings.Contains(body, text) != want {
				t.Errorf("%s has %q: %v", path, text, !want)
			}
		}
	}
	post("/types/no.handler/", "do=pause&reason=%3Cb%3E")
	post("/queues/", "do=pause&reason=the+database+moves")
	pauses, err := s.eng.Queues().Pauses(context.Background())
	if err != nil || len(pauses) != 2 || pauses[0].By != "ada" || pauses[1].Type != "no.handler" {
		t.Errorf("%+v, %v", pauses, err)
	}
	has("/", true, "Everything is paused", "the database moves", "ada", "no.handler</a>: the type is paused",
		"&lt;b&gt;")
	has("/queues/", true, "Everything is paused", "Resume everything", "the type is paused")
	has("/queues/mail/", true, "Everything is paused")
	has("/types/no.handler/", true, "Resume the type", "&lt;b&gt;")
	post("/types/no.handler/", "do=resume")
	post("/queues/", "do=resume")
	has("/", false, "Everything is paused", "the type is paused")
	has("/queues/", true, "Pause everything")
	if w := s.do("POST", "/", "do=pause&reason=storm"); w.Header().Get("Location") != "./?did=pause" {
		t.Errorf("pause on the overview: %d to %q", w.Code, w.Header().Get("Location"))
	}
	has("/", true, "Everything is paused", "storm", "Resume everything")
	if w := s.do("POST", "/", "do=resume"); w.Code != http.StatusSeeOther {
		t.Errorf("resume on the overview: %d", w.Code)
	}
	has("/", true, "Pause everything")
	has("/types/no.handler/", true, "Pause the type")
	long := "do=pause&reason=" + strings.Repeat("x", 301)
	for form, status := range map[string]int{"do=drain": 404, long: 409} {
		if w := s.do("POST", "/queues/", form); w.Code != status {
			t.Errorf("%.20s: %d", form, w.Code)
		}
	}
	if w := s.do("POST", "/types/Not%20A%20Type/", "do=pause"); w.Code != http.StatusConflict {
		t.Error(w.Code)
	}
	read, _ := full(t)
	for _, path := range []string{"/queues/", "/types/works/"} {
		if body := read.ok(path); strings.Contains(body, "Pause ") {
			t.Errorf("%s of pages that only read has a pause", path)
		}
	}
}
