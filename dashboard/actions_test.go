package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/workflow"
)

func (s *site) state(id string) ojs.State {
	s.t.Helper()
	job, err := s.eng.Get(context.Background(), id)
	if errors.Is(err, ojs.ErrNotFound) || errors.Is(err, ojs.ErrPruned) {
		return "gone"
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return job.State
}

func TestActionsOnAJob(t *testing.T) {
	for _, tc := range []struct {
		job, do string
		status  int
		after   ojs.State
	}{
		{"discarded", "retry", 303, ojs.StateAvailable},
		{"dead", "retry", 303, ojs.StateAvailable},
		{"retryable", "retry", 303, ojs.StateAvailable},
		{"completed", "retry", 409, ojs.StateCompleted},
		{"available", "cancel", 303, ojs.StateCancelled},
		{"completed", "cancel", 409, ojs.StateCompleted},
		{"completed", "delete", 303, "gone"},
		{"available", "delete", 409, ojs.StateAvailable},
		{"pending", "run", 303, ojs.StateAvailable},
		{"scheduled", "run", 303, ojs.StateAvailable},
		{"completed", "run", 409, ojs.StateCompleted},
		{"completed", "copy", 303, ojs.StateCompleted},
		{"completed", "nonsense", 404, ojs.StateCompleted},
	} {
		t.Run(tc.job+" "+tc.do, func(t *testing.T) {
			s, ids := full(t, WithAuthorizer(AllowAll))
			w := s.do("POST", "/jobs/"+ids[tc.job]+"/", "do="+tc.do)
			after := s.state(ids[tc.job])
			if w.Code != tc.status || after != tc.after {
				t.Errorf("%d, then %s; want %d and %s\n%s", w.Code, after, tc.status, tc.after, w.Body)
			}
		})
	}
}

// Every button of a job's page does what it says: none is there that the engine refuses.
func TestButtonsWork(t *testing.T) {
	_, ids := full(t)
	for name := range ids {
		for _, do := range []string{"retry", "cancel", "delete", "run", "copy"} {
			s, ids := full(t, WithAuthorizer(AllowAll))
			at := "/jobs/" + ids[name] + "/"
			if !strings.Contains(s.ok(at), `name="do" value="`+do+`"`) {
				continue
			}
			if w := s.do("POST", at, "do="+do); w.Code != http.StatusSeeOther {
				t.Errorf("%s of a %s job: %d\n%s", do, name, w.Code, w.Body)
			}
		}
	}
}

func TestAuthorizerDecidesOnActions(t *testing.T) {
	var log bytes.Buffer
	s, ids := full(t, WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
		WithActor(func(r *http.Request) string { return r.Header.Get("User") }),
		WithAuthorizer(func(_ *http.Request, a Action) error {
			if a.Do == Read || a.Do == Retry && a.Queue == "mail" {
				return nil
			}
			return errors.New("not your queue")
		}))
	for _, tc := range []struct {
		job, do string
		status  int
	}{{"retryable", "retry", 303}, {"dead", "retry", 403}, {"available", "cancel", 403}} {
		at := "/jobs/" + ids[tc.job] + "/"
		if has := strings.Contains(s.ok(at), `value="`+tc.do+`"`); has != (tc.status == 303) {
			t.Errorf("%s: the button to %s is there: %v", tc.job, tc.do, has)
		}
		if w := s.do("POST", at, "do="+tc.do, "User", "ada"); w.Code != tc.status {
			t.Errorf("%s %s: %d, want %d", tc.do, tc.job, w.Code, tc.status)
		}
	}
	if w := s.do("POST", "/act/", "do=retry&all=1&q=", "User", "ada"); w.Code != http.StatusForbidden {
		t.Errorf("all: %d", w.Code)
	}
	w := s.do("POST", "/act/", "do=retry&all=1&q=queue:mail", "User", "ada")
	if w.Code != http.StatusSeeOther {
		t.Errorf("all of the queue: %d", w.Code)
	}
	if !strings.Contains(log.String(), "do=retry on=job name="+ids["retryable"]+" actor=ada") {
		t.Errorf("the log has no line:\n%s", &log)
	}
}

func TestActionsOnAQueue(t *testing.T) {
	s, _ := full(t, WithAuthorizer(AllowAll))
	for _, tc := range []struct{ do, shows string }{
		{"drain", "draining"}, {"resume", `value="pause"`}, {"pause", "paused"}} {
		if w := s.do("POST", "/queues/mail/", "do="+tc.do); w.Header().Get("Location") != "./?did="+tc.do {
			t.Errorf("%s: %d\n%s", tc.do, w.Code, w.Body)
		}
		if body := s.ok("/queues/mail/"); !strings.Contains(body, tc.shows) {
			t.Errorf("after %s the page has no %s", tc.do, tc.shows)
		}
	}
	if w := s.do("POST", "/queues/mail/", "do=retry"); w.Code != http.StatusNotFound {
		t.Error(w.Code)
	}
}

func TestActionsOnMany(t *testing.T) {
	s, ids := full(t, WithAuthorizer(AllowAll))
	selected := url.Values{"do": {"retry"}, "id": {ids["dead"], ids["completed"]}}
	if body := s.ok("/act/?" + selected.Encode()); !strings.Contains(body, `method="post"`) {
		t.Error("the preview has no form")
	}
	w := s.do("POST", "/act/", selected.Encode())
	if w.Code != http.StatusSeeOther {
		t.Fatalf("%d\n%s", w.Code, w.Body)
	}
	body := s.ok("/" + strings.TrimPrefix(w.Header().Get("Location"), "../"))
	if s.state(ids["dead"]) != ojs.StateAvailable || !strings.Contains(body, "is completed") {
		t.Errorf("%s\n%s", s.state(ids["dead"]), body)
	}
	all := url.Values{"do": {"cancel"}, "all": {"1"}, "q": {"queue:paused"}}
	if body := s.ok("/act/?" + all.Encode()); !strings.Contains(body, "Cancel: 1 job") {
		t.Error(body)
	}
	if s.state(ids["available"]) != ojs.StateAvailable {
		t.Error("the preview has done it")
	}
	if w := s.do("POST", "/act/", all.Encode()); w.Code != http.StatusSeeOther {
		t.Errorf("%d\n%s", w.Code, w.Body)
	}
	if s.state(ids["available"]) != ojs.StateCancelled || s.state(ids["scheduled"]) != ojs.StateScheduled {
		t.Error("not exactly the jobs of the filter were cancelled")
	}
	for form, status := range map[string]int{"do=retry": 409, "do=retry&all=1&q=nokey:1": 409,
		"all=1&do=nonsense": 404, "do=retry&id=*": 409, "do=retry&id=" + strings.Repeat("x", maxForm): 409} {
		if w := s.do("POST", "/act/", form); w.Code != status {
			t.Errorf("%.40s: %d, want %d", form, w.Code, status)
		}
	}
}

// A run that takes its time can be stopped, keeps others from starting, and ends with
// Close.
func TestRunStops(t *testing.T) {
	for _, end := range []string{"stop", "close"} {
		t.Run(end, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testRunStops(t, end) }) })
	}
}

func testRunStops(t *testing.T, end string) {
	s := newSite(t, WithAuthorizer(AllowAll))
	for range 20 {
		s.enqueue("t", 1)
	}
	answered := make(chan string, 1)
	go func() {
		answered <- s.do("POST", "/act/", "do=cancel&all=1&q=&every=1000").Header().Get("Location")
	}()
	synctest.Wait() // the pause is of the engine's clock, which stands still
	s.clock.Add(300 * time.Millisecond)
	if to := <-answered; to != "../runs/1/" {
		t.Errorf("the run leads to %s", to)
	}
	run := s.pages.runs.get(1)
	if got := run.state(); got.Done != 1 || !got.Ended.IsZero() {
		t.Errorf("under way: %+v", got)
	}
	if end == "close" {
		if err := s.pages.Close(); err != nil {
			t.Error(err)
		}
		if got := run.state(); got.Ended.IsZero() {
			t.Errorf("closed: %+v", got)
		}
		return
	}
	if body := s.ok("/runs/1/"); !strings.Contains(body, "under way") {
		t.Errorf("the page of the run:\n%s", body)
	}
	// A type is not paused while another run works.
	if to := s.do("POST", "/running/", "do=stop&type=t").Header().Get("Location"); to != "../runs/1/?busy=1" {
		t.Errorf("a second run leads to %s", to)
	}
	if pauses, err := s.eng.Queues().Pauses(t.Context()); err != nil || len(pauses) != 0 {
		t.Errorf("paused: %+v, %v", pauses, err)
	}
	if to := s.do("POST", "/act/", "do=cancel&all=1&q=").Header().Get("Location"); to != "../runs/1/?busy=1" {
		t.Errorf("another run leads to %s", to)
	}
	if w := s.do("POST", "/runs/1/", "do=stop"); w.Code != http.StatusSeeOther {
		t.Errorf("%d\n%s", w.Code, w.Body)
	}
	if got := run.state(); got.Ended.IsZero() || !got.Stopped || got.Done != 1 {
		t.Errorf("stopped: %+v", got)
	}
}

func TestActionsOnAnEntry(t *testing.T) {
	s, _ := full(t, WithAuthorizer(AllowAll))
	for _, tc := range []struct {
		do       string
		location string
		shows    string
	}{
		{"pause", "./?did=pause", `value="resume"`},
		{"resume", "./?did=resume", `value="pause"`},
		{"remove", "../?did=remove", ""},
	} {
		w := s.do("POST", "/cron/nightly/", "do="+tc.do)
		if w.Header().Get("Location") != tc.location {
			t.Errorf("%s: %d to %q\n%s", tc.do, w.Code, w.Header().Get("Location"), w.Body)
		}
		if tc.shows != "" && !strings.Contains(s.ok("/cron/nightly/"), tc.shows) {
			t.Errorf("after %s the page has no %s", tc.do, tc.shows)
		}
		if tc.do == "resume" {
			to := s.do("POST", "/cron/nightly/", "do=run").Header().Get("Location")
			s.ok(strings.TrimPrefix(to, "../.."))
		}
	}
	if w := s.get("/cron/nightly/"); w.Code != http.StatusNotFound {
		t.Errorf("the entry is there: %d", w.Code)
	}
}

func TestActionsOnAWorkflow(t *testing.T) {
	s, ids := full(t, WithAuthorizer(AllowAll))
	at := "/workflows/" + ids["workflow"] + "/"
	if body := s.ok(at); strings.Contains(body, `value="cancel"`) {
		t.Error("a workflow that has ended can be cancelled")
	}
	if w := s.do("POST", at, "do=cancel"); w.Code != http.StatusConflict {
		t.Error(w.Code)
	}
	job := ojs.NewDraft("no.handler", nil)
	record, err := s.eng.Workflows().Start(context.Background(), workflow.New("", workflow.Chain(
		workflow.Group(workflow.Step("a", job), workflow.Step("b", job)), workflow.Step("c", job))))
	if err != nil {
		t.Fatal(err)
	}
	at = "/workflows/" + record.ID + "/"
	if body := s.ok(at); !strings.Contains(body, `value="cancel"`) {
		t.Error("there is no button")
	}
	jobs, err := workflow.JobIDs(context.Background(), s.eng.Jobs().Step, record.ID)
	if err != nil || len(jobs) != 5 {
		t.Fatal(jobs, err)
	}
	for _, id := range jobs {
		j, err := s.eng.Get(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		button := strings.Contains(s.ok("/jobs/"+id+"/"), `name="do" value="cancel"`)
		if button != (j.Type == "no.handler") {
			t.Errorf("a job of type %s can be cancelled by itself: %v", j.Type, button)
		}
	}
	if w := s.do("POST", at, "do=cancel"); w.Code != http.StatusSeeOther {
		t.Errorf("%d\n%s", w.Code, w.Body)
	}
	if body := s.ok(at); !strings.Contains(body, "state cancelled") {
		t.Error("it is not cancelled")
	}
}

// A failed workflow is retried from its page, from the list and from the page of a failed
// step. The step alone has no button.
func TestRetryOfAWorkflow(t *testing.T) {
	s, ids := full(t, WithAuthorizer(AllowAll))
	at := "/workflows/" + ids["workflow"] + "/"
	status, err := s.eng.Workflows().Get(context.Background(), ids["workflow"])
	if err != nil {
		t.Fatal(err)
	}
	failed := status.Step("left").JobID
	for _, page := range []string{"/jobs/" + failed + "/", "/jobs/" + failed + "/edit/"} {
		body := s.ok(page)
		step := strings.Count(body, `name="do" value="retry"`)
		flow := `action="../..` + at + `"><button class="main" name="do" value="retry"`
		if strings.Contains(body, flow) {
			step--
		} else if !strings.HasSuffix(page, "edit/") {
			t.Errorf("%s has no button to retry the workflow", page)
		}
		if step > 0 {
			t.Errorf("%s has a button to retry the step", page)
		}
	}
	for _, page := range []string{"/workflows/", "/workflows/?state=failed"} {
		form := `action="./` + ids["workflow"] + `/"><button class="act" name="do" value="retry"`
		if body := s.ok(page); !strings.Contains(body, form) {
			t.Errorf("%s has no button to retry the workflow:\n%s", page, body)
		}
	}
	w := s.do("POST", "/jobs/"+failed+"/", "do=retry")
	if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "Workflows().Retry(ctx, ") {
		t.Errorf("%d\n%s", w.Code, w.Body)
	}
	if body := s.ok(at); !strings.Contains(body, `name="do" value="retry"`) {
		t.Error("the page of the workflow has no button for a retry")
	}
	if w := s.do("POST", at, "do=retry"); w.Code != http.StatusSeeOther {
		t.Errorf("%d\n%s", w.Code, w.Body)
	}
	if got := s.state(failed); got != ojs.StateAvailable {
		t.Errorf("the step is %s", got)
	}
	if w := s.do("POST", at, "do=retry"); w.Code != http.StatusConflict {
		t.Errorf("again: %d\n%s", w.Code, w.Body)
	}
}

func TestActionsOnAWorker(t *testing.T) {
	s := newSite(t, WithAuthorizer(AllowAll))
	id := `evil "><script>`
	worker := s.eng.Worker(id, fetch.Config{})
	s.enqueue("t", 1)
	if _, err := worker.Fetch(context.Background()); err != nil {
		t.Fatal(err)
	}
	if body := s.ok("/workers/"); strings.Contains(body, id) || !strings.Contains(body, `value="quiet"`) {
		t.Error(body)
	}
	form := url.Values{"id": {id}, "do": {"quiet"}}.Encode()
	if w := s.do("POST", "/workers/", form); w.Code != http.StatusSeeOther {
		t.Errorf("%d\n%s", w.Code, w.Body)
	}
	if _, err := worker.Fetch(context.Background()); !errors.Is(err, fetch.ErrQuiet) {
		t.Error(err)
	}
}

// The links of a group of failures preview the jobs of the group and no others.
func TestFailureGroups(t *testing.T) {
	s := newSite(t, WithAuthorizer(AllowAll))
	s.eng.Handle("t", func(_ context.Context, job *ojs.Job[any]) error {
		return fmt.Errorf("%v: order %v is lost", job.Queue, job.Args)
	})
	for i := range 3 {
		s.enqueue("t", 100+i, ojs.WithQueue("a"), ojs.WithMaxAttempts(1))
	}
	s.enqueue("t", 7, ojs.WithQueue("b"), ojs.WithMaxAttempts(1))
	s.run()
	body := s.ok("/failures/")
	links := regexp.MustCompile(`href="\.\./(act/\?do=retry[^"]*)"`).FindAllStringSubmatch(body, -1)
	if len(links) != 2 || !strings.Contains(body, "order # is lost") {
		t.Fatalf("%d groups:\n%s", len(links), body)
	}
	for i, want := range []string{"Retry: 3 jobs", "Retry: 1 job"} {
		if page := s.ok("/" + strings.ReplaceAll(links[i][1], "&amp;", "&")); !strings.Contains(page, want) {
			t.Errorf("group %d: no %q", i, want)
		}
	}
}
