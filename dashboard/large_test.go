package dashboard

import (
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/workflow"
)

// Pages find the few jobs that people look for among many others, older and newer ones:
// those that run, failures and workflows. They offer what can be done to all of them.
func TestFewAmongMany(t *testing.T) {
	const around, running, failures, flows = 6_000, 15, 2_500, 3
	cl := clock.NewMock()
	cl.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	store, ctx := memory.New(), t.Context()
	eng, err := engine.New[any](store, engine.WithClock(cl), engine.WithLogger(quiet))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	pages, err := New(eng, WithClock(cl), WithLogger(quiet), WithAuthorizer(AllowAll))
	must(err)
	defer pages.Close()
	s := &site{t, cl, eng, pages}
	many := func(n int, jobType string, opts ...ojs.Option) {
		t.Helper()
		drafts := make([]ojs.Draft, n)
		for i := range drafts {
			drafts[i] = ojs.NewDraft(jobType, i, opts...)
		}
		for len(drafts) > 0 {
			most := min(len(drafts), 1000)
			_, err := eng.EnqueueMany(ctx, drafts[:most]...)
			must(err)
			drafts = drafts[most:]
		}
	}
	claim := func(queue string, n int) []storage.Record {
		t.Helper()
		c := storage.Claim{Queues: []string{queue}, Max: n, Worker: "w"}
		recs, err := store.Claim(ctx, cl.Now(), c, nil)
		must(err)
		if len(recs) != n {
			t.Fatalf("%d of %d claimed", len(recs), n)
		}
		return recs
	}
	many(around, "waits", ojs.WithQueue("later"))
	many(running, "runs", ojs.WithQueue("runs"))
	many(failures, "bad", ojs.WithQueue("bad"))
	var ids []string
	for i := range flows {
		step := ojs.NewDraft("step", nil, ojs.WithQueue("later"))
		flow := workflow.New(fmt.Sprint("flow-", i), workflow.Step("a", step))
		record, err := eng.Workflows().Start(ctx, flow)
		must(err)
		ids = append(ids, record.ID)
	}
	var changes []storage.Change
	for i, r := range claim("bad", failures) {
		r.State, r.FinishedAt = ojs.StateDiscarded, cl.Now().Add(-time.Duration(i)*time.Second)
		r.DeadLetteredAt = r.FinishedAt
		r.Error = &ojs.Failure{Message: "no", At: r.FinishedAt, Attempt: 1,
			Type: []string{"smtp.refused", "timeout"}[i%2]}
		changes = append(changes, storage.Change{Record: r})
	}
	_, err = store.Settle(ctx, cl.Now(), changes, nil)
	must(err)
	claim("runs", running)
	many(around, "waits", ojs.WithQueue("later"))

	list := func(line string) string { return "/jobs/?q=" + url.QueryEscape(line) }
	act := func(do, line string) string { return "/act/?do=" + do + "&all=1&q=" + url.QueryEscape(line) }
	for path, want := range map[string]string{
		list("state:active"):                                 "15 shown, 15 of",
		list("state:active type:runs"):                       "15 shown, 15 of",
		list("state:discarded type:bad"):                     "50 shown, 50 of",
		list("state:discarded errortype:smtp.*"):             "50 shown, 50 of",
		list("workflow:" + ids[1]):                           "3 shown, 3 of",
		list("args:no-such-text"):                            "there are more to look at",
		"/failures/":                                         "2,000 jobs that were looked at",
		"/workflows/":                                        "flow-2",
		act("retry", "state:discarded type:bad"):             "Retry: 2,500 jobs",
		act("retry", "state:discarded errortype:timeout"):    "1,250 jobs",
		act("cancel", "state:active type:runs"):              "Cancel: 15 jobs",
		act("retry", "state:discarded args:no-such-text"):    `method="post"`,
		act("cancel", "workflow:"+ids[0]):                    `method="post"`,
		act("delete", "state:discarded finished.since:500s"): "501 jobs",
	} {
		body := html.UnescapeString(s.ok(path))
		if !strings.Contains(body, want) {
			t.Errorf("%s: no %q in\n%s", path, want, body)
		}
		offers := strings.Contains(body, `method="post"`)
		if strings.HasPrefix(path, "/act/") && !offers ||
			strings.Contains(body, "No stored job has failed") ||
			strings.Contains(body, "There are no workflows") {
			t.Errorf("%s says none of what was not looked at, or offers nothing:\n%s", path, body)
		}
	}
	// The links of dead letters by their errors are to pages that an index has.
	line := url.QueryEscape("dead:true state:discarded order:finished errortype:timeout")
	if !strings.Contains(html.UnescapeString(s.ok("/dead/")), line) {
		t.Errorf("no link to %s", line)
	}
	// Counts by type and queue are exact.
	if body := s.ok("/failures/"); !strings.Contains(body, `>bad</a></td><td class="num">2,500</td>`) {
		t.Errorf("not all failures are counted:\n%s", body)
	}
}
