package dashboard

import (
	"context"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
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
