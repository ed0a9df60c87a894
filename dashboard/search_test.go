package dashboard

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/workflow"
)

// A search finds jobs by values of their args and by their keys, among the newest jobs,
// and says so.
func TestSearchOfJobs(t *testing.T) {
	s := newSite(t)
	id := s.enqueue("email.send", map[string]any{"customer": "cust_123"}, ojs.WithOrderingKey("order-7"),
		ojs.WithUnique(ojs.UniquePolicy{}))
	job, err := s.eng.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	fingerprint, err := policy.Fingerprint(job.Unique, job)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"cust_123", "order-7", fingerprint} {
		s.has("/search/?q="+url.QueryEscape(text), `href="../jobs/`+id+`/">email.send`)
	}
	s.has("/search/?q=cust_9", "none of all 1 jobs")
	for range 2 * searchJobs {
		s.enqueue("email.send", nil)
	}
	s.has("/search/?q=cust_9", "newest jobs")
}

// The search leads to a job by its id and to a list by a filter line, and lists what has
// a name or an id that contains the text.
func TestSearch(t *testing.T) {
	s, _ := full(t, WithAuthorizer(AllowAll))
	id := s.enqueue("email.send", nil, ojs.WithQueue("mailing"),
		ojs.WithRateLimit(ojs.RateLimit{Key: "bank:4", Concurrency: 1}))
	ctx := context.Background()
	if err := s.eng.Cron().Set(ctx, cron.Entry{Name: "email-digest", Schedule: "@daily",
		Job: ojs.NewDraft("t", nil)}); err != nil {
		t.Fatal(err)
	}
	step := workflow.Step("a", ojs.NewDraft("t", nil))
	flow, err := s.eng.Workflows().Start(ctx, workflow.New("emailing", step))
	if err != nil {
		t.Fatal(err)
	}
	at := func(text string) string { return "/search/?q=" + url.QueryEscape(text) }
	for text, to := range map[string]string{
		id: "../jobs/" + id + "/", " " + id + " ": "../jobs/" + id + "/",
		flow.ID:                   "../workflows/" + flow.ID + "/",
		"state:active type:email": "../jobs/?q=state%3Aactive+type%3Aemail", "": "../jobs/",
	} {
		if w := s.get(at(text)); w.Code != 303 || w.Header().Get("Location") != to {
			t.Errorf("%q: %d to %s, want %s", text, w.Code, w.Header().Get("Location"), to)
		}
	}
	if _, err := s.eng.Worker("fetcher-1", fetch.Config{}).Fetch(ctx); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]string{
		"fetcher": {`href="../jobs/?q=state%3Aactive&#43;worker%3Afetcher-1">fetcher-1`},
		"email": {`href="../types/email.send/"`, `href="../cron/email-digest/"`,
			`href="../workflows/` + flow.ID + `/"`, "Jobs whose args contain it"},
		"EMAIL":          {`href="../types/email.send/"`},
		"mailing":        {`href="../queues/mailing/"`},
		id[len(id)-8:]:   {`href="../jobs/` + id + `/"`},
		"…" + id[28:]:    {`href="../jobs/` + id + `/"`},
		"bank:4":         {`href="../limits/key/bank:4/"`, "&#34;bank&#34; is no key"},
		"nothing-has-it": {"No name contains it."},
		"deadbeef":       {"were scanned", "id%3A%2Adeadbeef\""},
		"<script>":       {"&lt;script&gt;"},
	} {
		s.has(at(text), want...)
	}
	// The filter of the list of jobs leads here if it gets a word.
	if w := s.get("/jobs/?q=email"); w.Header().Get("Location") != "../search/?q=email" {
		t.Errorf("%d to %s", w.Code, w.Header().Get("Location"))
	}
	if body := s.ok("/"); !strings.Contains(body, `action="./search/"`) {
		t.Error("the head of a page has no search")
	}
	s.has("/jobs/?q="+url.QueryEscape("id:*"+id[28:]), "1 shown")
}
