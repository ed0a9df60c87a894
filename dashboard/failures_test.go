package dashboard

import (
	"context"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
)

// A group of failures tells how many jobs have failed in the last hour, and in the hour
// before.
func TestFailuresTrend(t *testing.T) {
	s := newSite(t)
	s.eng.Handle("mail.send", func(context.Context, *ojs.Job[any]) error {
		return ojs.Permanent(ojs.Errorf("smtp.refused", "greylisted"))
	})
	id := ""
	fail := func(n int) {
		for range n {
			id = s.enqueue("mail.send", nil)
		}
		s.run()
	}
	fail(3)
	s.clock.Add(90 * time.Minute)
	fail(2)
	s.has("/failures/", "2 in the last hour, 3 in the hour before", `<svg class="spark"`)
	s.clock.Add(90 * time.Minute)
	s.has("/failures/", "0 in the last hour, 2 in the hour before")
	alike := regexp.MustCompile(`href="../../(jobs/\?q=[^"]*failure[^"]*)"`)
	link := alike.FindStringSubmatch(s.ok("/jobs/" + id + "/"))
	if len(link) == 0 {
		t.Fatal("the page of a job has no link to the jobs that failed alike")
	}
	if n := strings.Count(s.ok("/"+html.UnescapeString(link[1])), `<td class="one">`); n != 5 {
		t.Errorf("%s lists %d jobs, want 5", link[1], n)
	}
}

// The failures of the last hour are grouped alone, and so are their links.
func TestFailuresOfAPeriod(t *testing.T) {
	s := newSite(t, WithAuthorizer(AllowAll))
	s.eng.Handle("mail.send", func(context.Context, *ojs.Job[any]) error {
		return ojs.Permanent(ojs.Errorf("smtp.refused", "greylisted"))
	})
	for _, n := range []int{3, 2} {
		s.clock.Add(90 * time.Minute)
		for range n {
			s.enqueue("mail.send", nil)
		}
		s.run()
	}
	s.has("/failures/", `<td class="num">5</td>`)
	s.has("/failures/?since=3h", `<td class="num">5</td>`) // no period of the page
	body := s.has("/failures/?since=1h", `<td class="num">2</td>`)
	link := regexp.MustCompile(`href="\.\./(act/\?do=retry[^"]*)"`).FindStringSubmatch(body)
	if len(link) == 0 || strings.Contains(body, "do=cancel") {
		t.Fatalf("no link to a retry, or one to cancel:\n%s", body)
	}
	s.has("/"+html.UnescapeString(link[1]), "Retry: 2 jobs")
	s.clock.Add(2 * time.Hour)
	s.has("/failures/?since=1h", "No stored job was discarded in this period.")
	s.has("/jobs/", `<option value="type:mail.send">`, `<option value="state:discarded">`)
}

// Engines that report count failures by kind: the page has jobs that were deleted, too,
// and a page of its own for each kind. Secrets are masked.
func TestCountedFailures(t *testing.T) {
	reports := engine.WithReports(engine.Reports{Version: "v1.2.3"})
	sited := func(opts ...Option) *site {
		s := newSiteOn(t, []engine.Option{reports}, append(opts, WithAuthorizer(AllowAll))...)
		s.eng.Handle("mail.send", func(_ context.Context, job *ojs.Job[any]) error {
			return ojs.Permanent(ojs.Errorf("smtp.refused", "job %s: password=hunter", job.ID))
		})
		return s
	}
	s := sited()
	gone := s.enqueue("mail.send", nil)
	s.run()
	if err := s.eng.Jobs().Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	s.clock.Add(24 * time.Hour)
	id := s.enqueue("mail.send", nil)
	s.run()
	body := s.has("/failures/", "smtp.refused", `data-name="30 days">2<`, `data-name="24 hours">1<`, "v1.2.3",
		"do=retry")
	link := regexp.MustCompile(`href="\./([0-9a-f]{16}/)"`).FindStringSubmatch(body)
	if len(link) == 0 || strings.Contains(body, "hunter") {
		t.Fatalf("no link to the kind, or a secret:\n%s", body)
	}
	s.has("/failures/?type=mail.send", `data-name="30 days">2<`)
	s.has("/failures/?type=other", "No attempt of the type has failed in 30 days.")
	s.has("/failures/?of=stored", "Failures that are alike", `<td class="num">1</td>`)
	body = s.has("/failures/"+link[1], "v1.2.3", id, "2, 1 of these since",
		`class="over-time"`, "Stored jobs, the newest first")
	if strings.Contains(body, "hunter") {
		t.Errorf("a secret on\n%s", body)
	}
	wellFormed(t, "/failures/"+link[1], body)
	s.has("/jobs/"+id+"/", `href="../../failures/`+link[1])
	if w := s.get("/failures/none/"); w.Code != http.StatusNotFound {
		t.Errorf("no kind: %d", w.Code)
	}

	s = sited(WithRedact(func(_ *ojs.JobInfo, _ Part, json []byte) []byte { return []byte(`"hidden"`) }))
	s.enqueue("mail.send", nil)
	s.run()
	if body := s.has("/failures/", "smtp.refused"); strings.Contains(body, "password") {
		t.Errorf("a message that the redactor has not seen:\n%s", body)
	}
}
