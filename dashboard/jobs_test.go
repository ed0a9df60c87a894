package dashboard

import (
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
)

// The second page of a list has the jobs after those of the first, however many other
// jobs are claimed before them.
func TestNextPageOfWaitingJobs(t *testing.T) {
	s := newSite(t)
	many := func(jobType string, n int) {
		drafts := make([]ojs.Draft, n)
		for i := range drafts {
			drafts[i] = ojs.NewDraft(jobType, i)
		}
		for len(drafts) > 0 {
			some := min(len(drafts), 1000)
			if _, err := s.eng.EnqueueMany(t.Context(), drafts[:some]...); err != nil {
				t.Fatal(err)
			}
			drafts = drafts[some:]
		}
	}
	many("hay", 11_000)
	many("needle", 60)
	for _, line := range []string{"state:available+type:needle", "state:available"} {
		first := s.ok("/jobs/?q=" + line)
		next := regexp.MustCompile(`rel="next" href="\./(\?q=[^"]*)"`).FindStringSubmatch(first)
		if next == nil {
			t.Fatalf("%s: no page follows", line)
		}
		if n := strings.Count(s.ok("/jobs/"+html.UnescapeString(next[1])), `<td class="one">`); n < 10 {
			t.Errorf("%s: %d jobs on the second page", line, n)
		}
	}
}
