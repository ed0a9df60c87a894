package dashboard

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
)

// An entry is made and changed from its form, after a page with the next runs.
func TestCronForms(t *testing.T) {
	s := newSite(t, WithAuthorizer(AllowAll))
	if w := s.get("/cron/?new=nightly"); w.Header().Get("Location") != "./nightly/edit/" {
		t.Fatal(w.Header())
	}
	at := "/cron/nightly/edit/"
	get := func() cron.Entry {
		t.Helper()
		entry, err := s.eng.Cron().Get(context.Background(), "nightly")
		if err != nil {
			t.Fatal(err)
		}
		return entry
	}
	s.ok(at)
	form := url.Values{"do": {"set"}, "type": {"report.build"}, "queue": {"reports"},
		"schedule": {"30 2 * * *"}, "zone": {"Europe/Berlin"}, "overlap": {"allow"}, "missed": {"skip"},
		"args": {`{"big":12345678901234567890}`}}
	w := s.do("POST", at, form.Encode())
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "2026-03-02 02:30:00 CET") {
		t.Errorf("%d\n%s", w.Code, w.Body)
	}
	if w := s.get("/cron/nightly/"); w.Code != http.StatusNotFound {
		t.Error("the preview has made the entry")
	}
	form.Set("sure", "1")
	if w := s.do("POST", at, form.Encode()); w.Code != http.StatusSeeOther {
		t.Fatalf("%d\n%s", w.Code, w.Body)
	}
	entry := get()
	if entry.Overlap != cron.OverlapAllow || entry.Missed != cron.MissedSkip ||
		entry.Job.Type() != "report.build" {
		t.Errorf("%+v", entry)
	}
	args := func() string { return argsOf(t, get()) }
	if args() != `{"big":12345678901234567890}` {
		t.Errorf("args are %s", args())
	}
	was := field(t, s.ok(at), `name="was" value="([^"]*)"`)
	form = url.Values{"do": {"set"}, "was": {was}, "schedule": {"0 4 * * *"}, "zone": {"Europe/Berlin"},
		"overlap": {"allow"}, "missed": {"skip"}, "args": {`{"big":1}`}, "sure": {"1"}}
	if w := s.do("POST", at, form.Encode()); w.Code != http.StatusSeeOther {
		t.Fatalf("%d\n%s", w.Code, w.Body)
	}
	var o ojs.Options
	o.Apply(get().Job.Options()...)
	if get().Schedule != "0 4 * * *" || args() != `{"big":1}` || o.Queue != "reports" {
		t.Errorf("%+v with %s in %s", get(), args(), o.Queue)
	}
	if w := s.do("POST", at, form.Encode()); w.Code != http.StatusConflict {
		t.Errorf("a form of before: %d", w.Code)
	}
	for _, bad := range []url.Values{
		{"do": {"set"}, "type": {"t"}, "schedule": {"nonsense"}, "args": {"null"}},
		{"do": {"set"}, "type": {"t"}, "schedule": {"* * * * *"}, "zone": {"EST"}, "args": {"null"}},
		{"do": {"set"}, "type": {""}, "schedule": {"* * * * *"}, "args": {"null"}},
		{"do": {"set"}, "type": {"t"}, "schedule": {"* * * * *"}, "args": {"{"}},
		{"do": {"set"}, "type": {"No Type"}, "schedule": {"* * * * *"}, "args": {"null"}, "sure": {"1"}},
	} {
		if w := s.do("POST", "/cron/other/edit/", bad.Encode()); w.Code != http.StatusConflict {
			t.Errorf("%v: %d\n%s", bad, w.Code, w.Body)
		}
	}
	reads := newSite(t)
	if w := reads.get(at); w.Code != http.StatusForbidden {
		t.Errorf("a dashboard that reads: %d", w.Code)
	}
	if w := reads.do("POST", at, form.Encode()); w.Code == http.StatusSeeOther {
		t.Error("a dashboard that reads has changed an entry")
	}
}

// argsOf are the args of an entry.
func argsOf(t *testing.T, entry cron.Entry) string {
	t.Helper()
	args, err := ojs.NewArgs(entry.Job.Args())
	if err != nil {
		t.Fatal(err)
	}
	return string(args.JSON())
}

// The form of an entry with redacted args keeps them.
func TestCronFormKeepsRedactedArgs(t *testing.T) {
	hide := func(_ *ojs.JobInfo, part Part, in []byte) []byte {
		if part == PartArgs {
			return []byte(`"hidden"`)
		}
		return in
	}
	s := newSite(t, WithAuthorizer(AllowAll), WithRedact(hide))
	entry := cron.Entry{Name: "e", Schedule: "@daily",
		Job: ojs.NewDraft("t", json.RawMessage(`{"k":"s3cret"}`))}
	if err := s.eng.Cron().Set(context.Background(), entry); err != nil {
		t.Fatal(err)
	}
	body := s.ok("/cron/e/edit/")
	if strings.Contains(body, "s3cret") {
		t.Error("the form shows the args")
	}
	was := field(t, body, `name="was" value="([^"]*)"`)
	form := url.Values{"do": {"set"}, "was": {was}, "schedule": {"@hourly"},
		"overlap": {"skip"}, "missed": {"once"}, "sure": {"1"}}
	if w := s.do("POST", "/cron/e/edit/", form.Encode()); w.Code != http.StatusSeeOther {
		t.Fatalf("%d\n%s", w.Code, w.Body)
	}
	got, err := s.eng.Cron().Get(context.Background(), "e")
	if err != nil {
		t.Fatal(err)
	}
	if args := argsOf(t, got); args != `{"k":"s3cret"}` || got.Schedule != "@hourly" {
		t.Errorf("%s, %s", args, got.Schedule)
	}
}
