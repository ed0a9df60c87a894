package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
)

// The page of a job tells its whole life: attempts that failed and that were put off, by
// which worker, what was done by hand and by whom, and what is to come.
func TestJobPageTellsTheLifeOfAJob(t *testing.T) {
	hide := WithRedact(func(_ *ojs.JobInfo, part Part, in []byte) []byte {
		if part == PartMessage {
			return []byte(`"hidden"`)
		}
		return in
	})
	s := newSite(t, WithAuthorizer(AllowAll), hide,
		WithActor(func(*http.Request) string { return "ada" }))
	var calls atomic.Int32
	s.eng.Handle("t", func(context.Context, *ojs.Job[any]) error {
		if calls.Add(1) == 1 {
			return ojs.Snooze(time.Minute)
		}
		return errors.New("secret")
	})
	id := s.enqueue("t", nil, ojs.WithMaxAttempts(4))
	s.run()
	s.clock.Add(time.Minute)
	s.run()
	if w := s.do("POST", "/jobs/"+id+"/edit/", "do=move&queue=other&sure=1"); w.Code != http.StatusSeeOther {
		t.Fatalf("%d\n%s", w.Code, w.Body)
	}
	body := s.ok("/jobs/" + id + "/")
	for _, want := range []string{"attempt 1 put it off", "attempt 1 failed", "put off</td>", "moved",
		"· ada", "hidden", "attempt 2 due", "Attempts that may follow</summary", `class="m-failed"`,
		`class="m-snoozed"`, `class="m-next"`} {
		if want = strings.ReplaceAll(want, "</summary", " (2)</summary"); !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
	if strings.Contains(body, "secret") {
		t.Error("the error is not redacted")
	}
}
