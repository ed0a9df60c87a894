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
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/operate"
)

// config is how the engine serves a queue.
func (s *site) config(name string) engine.QueueConfig {
	s.t.Helper()
	qc, ok := s.eng.Describe().Configs[name]
	if !ok {
		s.t.Fatalf("the engine does not serve %s", name)
	}
	return qc
}

// configuring is the form of a queue with some of its values changed.
func (s *site) configuring(at string, values ...string) url.Values {
	s.t.Helper()
	form := url.Values{"do": {"configure"}, "was": {field(s.t, s.ok(at), `name="was" value="([^"]*)"`)}}
	for i := 0; i+1 < len(values); i += 2 {
		form.Set(values[i], values[i+1])
	}
	return form
}

const mailForm = "/queues/mail/configure/"

// A queue is configured from its form, after a page that only shows what would change.
func TestConfigureAQueue(t *testing.T) {
	conf := engine.QueueConfig{Concurrency: 2, MaxDepth: 10, Defaults: []ojs.Option{ojs.WithPriority(7)},
		RateLimit: ojs.RateLimit{Rate: ojs.Rate{Limit: 100, Per: time.Minute}}}
	s := newSiteOn(t, []engine.Option{engine.WithQueueConfig("mail", conf)}, WithAuthorizer(AllowAll),
		WithActor(func(*http.Request) string { return "ada" }))
	if body := s.ok("/queues/mail/"); !strings.Contains(body, `href="./configure/"`) {
		t.Error("the page of the queue does not lead to the form")
	}
	body := s.ok(mailForm)
	for _, want := range []string{`name="concurrency" type="number" min="0" step="1" value="2"`,
		`value="1m0s"`, `<option selected>reject</option>`, "until its program starts again"} {
		if !strings.Contains(body, want) {
			t.Errorf("the form has no %s:\n%s", want, body)
		}
	}
	form := s.configuring(mailForm, "concurrency", "5", "rate", "30", "rate_per", "10s", "depth", "20",
		"overflow", "block", "weight", "3", "all_concurrency", "8")
	w := s.do("POST", mailForm, form.Encode())
	for _, want := range []string{"2 at once, 100 starts in 1m", "5 at once, 30 starts in 10s", ">20<",
		">block<", "8 at once", `name="sure"`, "stored again"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d: the preview has no %s:\n%s", w.Code, want, w.Body)
		}
	}
	if got := s.config("mail"); got.Concurrency != 2 || got.MaxDepth != 10 {
		t.Errorf("the preview has done it: %+v", got)
	}
	form.Set("sure", "1")
	if w := s.do("POST", mailForm, form.Encode()); w.Header().Get("Location") != "../?did=configure" {
		t.Fatalf("%d\n%s", w.Code, w.Body)
	}
	got := s.config("mail")
	if got.Concurrency != 5 || got.MaxDepth != 20 || got.Overflow != engine.OverflowBlock ||
		got.Weight != 3 || got.RateLimit.Rate != (ojs.Rate{Limit: 30, Per: 10 * time.Second}) ||
		got.GlobalConcurrency != 8 {
		t.Errorf("%+v", got)
	}
	job, err := s.eng.Get(context.Background(), s.enqueue("t", 1, ojs.WithQueue("mail")))
	if err != nil || job.Priority != 7 {
		t.Errorf("a job has the priority %d, %v: the defaults are lost", job.Priority, err)
	}
	l, err := s.eng.Limits().Get(context.Background(), operate.LimitOfQueue("mail"))
	if err != nil || l.Setting == nil || l.Setting.Concurrency != 8 {
		t.Errorf("over all engines: %+v, %v", l, err)
	}
	// None at once, and nothing else but what the empty fields mean.
	form = s.configuring(mailForm, "concurrency", "0", "sure", "1")
	if w := s.do("POST", mailForm, form.Encode()); w.Code != http.StatusSeeOther {
		t.Fatalf("%d\n%s", w.Code, w.Body)
	}
	got = s.config("mail")
	if got.RateLimit.Concurrency != ojs.NoneAtOnce || got.Concurrency != 0 || got.GlobalConcurrency != 0 ||
		got.MaxDepth != 0 || got.Overflow != engine.OverflowBlock {
		t.Errorf("%+v", got)
	}
	if at := field(t, s.ok(mailForm), `name="concurrency" [^>]*value="([^"]*)"`); at != "0" {
		t.Error("the form does not have none at once")
	}
}

// A refusal is shown beside the form, which keeps the values that were typed.
func TestConfigureRefuses(t *testing.T) {
	s := newSiteOn(t, []engine.Option{engine.WithQueueConfig("mail", engine.QueueConfig{Concurrency: 2}),
		engine.WithQueueConfig("web", engine.QueueConfig{})}, WithAuthorizer(AllowAll))
	for _, tc := range []struct {
		values []string
		want   string
	}{
		{[]string{"concurrency", "many"}, `no whole number`},
		{[]string{"concurrency", "-1"}, `no whole number`},
		{[]string{"concurrency", "2", "rate", "5"}, `no duration`},
		{[]string{"concurrency", "2", "rate", "5", "rate_per", "-1s"}, `not positive`},
		{[]string{"concurrency", "2"}, `changes nothing`},
		{[]string{"concurrency", "2", "depth", "7", "overflow", "lose", "sure", "1"}, `none of reject`},
		{[]string{"concurrency", "2", "depth", "7", "weight", "3", "sure", "1"}, `only one has a weight`},
	} {
		w := s.do("POST", mailForm, s.configuring(mailForm, tc.values...).Encode())
		body := w.Body.String()
		if w.Code != http.StatusConflict || !strings.Contains(body, tc.want) ||
			!strings.Contains(body, `role="alert"`) || !strings.Contains(body, `value="`+tc.values[1]+`"`) {
			t.Errorf("%v: %d\n%s", tc.values, w.Code, body)
		}
		if got := s.config("mail"); got.Concurrency != 2 || got.MaxDepth != 0 || got.Weight != 0 {
			t.Errorf("%v has changed it: %+v", tc.values, got)
		}
	}
	form := s.configuring(mailForm, "concurrency", "9", "sure", "1")
	other := engine.QueueConfig{Concurrency: 4}
	if err := s.eng.ConfigureQueue(context.Background(), "mail", other); err != nil {
		t.Fatal(err)
	}
	w := s.do("POST", mailForm, form.Encode())
	if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "has changed since") ||
		!strings.Contains(w.Body.String(), `value="4"`) || s.config("mail").Concurrency != 4 {
		t.Errorf("a form of before: %d, %+v\n%s", w.Code, s.config("mail"), w.Body)
	}
	form = s.configuring(mailForm, "do", "purge")
	if w := s.do("POST", mailForm, form.Encode()); w.Code != http.StatusNotFound {
		t.Errorf("another verb: %d", w.Code)
	}
}

// The form is there for queues that this engine serves, and for who may configure them;
// with bounds over all engines, for who may set those too.
func TestAuthorizerDecidesOnConfigure(t *testing.T) {
	s := newSiteOn(t, []engine.Option{engine.WithQueueConfig("mail", engine.QueueConfig{Concurrency: 2}),
		engine.WithQueueConfig("web", engine.QueueConfig{Concurrency: 2}),
		engine.WithQueueConfig("shared", engine.QueueConfig{GlobalConcurrency: 2})},
		WithAuthorizer(func(_ *http.Request, a Action) error {
			if a.Do == Read || a.Do == Configure && a.On == "queue" && a.Name != "web" && a.Queue == a.Name {
				return nil
			}
			return errors.New("not yours")
		}))
	s.enqueue("t", 1, ojs.WithQueue("elsewhere"))
	for name, status := range map[string]int{"mail": 200, "web": 403, "shared": 403, "elsewhere": 404,
		"none": 404} {
		at := "/queues/" + name + "/configure/"
		if w := s.get(at); w.Code != status {
			t.Errorf("%s: %d, want %d", name, w.Code, status)
		}
		w := s.do("POST", at, "do=configure&concurrency=9&sure=1&was=x")
		if status != 200 && w.Code != status {
			t.Errorf("a form for %s: %d, want %d", name, w.Code, status)
		}
		if name != "none" && strings.Contains(s.ok("/queues/"+name+"/"), "./configure/") != (status == 200) {
			t.Errorf("the page of %s has the link, or has it not", name)
		}
	}
	if strings.Contains(s.ok(mailForm), "all_concurrency") {
		t.Error("the form has bounds that the request may not set")
	}
	form := s.configuring(mailForm, "concurrency", "3", "all_concurrency", "1", "sure", "1")
	if w := s.do("POST", mailForm, form.Encode()); w.Code != http.StatusSeeOther {
		t.Errorf("%d\n%s", w.Code, w.Body)
	}
	if got := s.config("mail"); got.Concurrency != 3 || got.GlobalConcurrency != 0 {
		t.Errorf("%+v", got)
	}
	reads := newSiteOn(t, []engine.Option{engine.WithQueueConfig("mail", engine.QueueConfig{})})
	if w := reads.get(mailForm); w.Code != http.StatusForbidden {
		t.Errorf("a dashboard that reads: %d", w.Code)
	}
}

func TestConfigureInGerman(t *testing.T) {
	mail := engine.WithQueueConfig("mail", engine.QueueConfig{})
	s := newSiteOn(t, []engine.Option{mail}, WithAuthorizer(AllowAll))
	form := s.configuring(mailForm, "concurrency", "3", "depth", "9")
	w := s.do("GET", mailForm, "", "Cookie", "ojs_lang=de")
	for _, want := range []string{"Konfigurieren: mail", "nur diese Engine", "Gewicht",
		"Schranken in dieser Engine"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the form has no %s:\n%s", want, w.Body)
		}
	}
	w = s.do("POST", mailForm, form.Encode(), "Cookie", "ojs_lang=de")
	for _, want := range []string{"Vorher", "Unfertige Jobs höchstens", "3 zugleich"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the preview has no %s:\n%s", want, w.Body)
		}
	}
}
