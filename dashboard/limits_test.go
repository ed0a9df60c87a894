package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// Limits are set, cleared and blocked from their pages: after a post that only shows what
// would change.
func TestActionsOnALimit(t *testing.T) {
	s := newSite(t, WithAuthorizer(AllowAll))
	name := operate.LimitOfKey("mail:acme")
	s.enqueue("t", 1, ojs.WithRateLimit(ojs.RateLimit{Key: name.Name, Concurrency: 2}))
	at := "/limits/key/mail:acme/"
	get := func() operate.Limit {
		t.Helper()
		l, err := s.eng.Limits().Get(context.Background(), name)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	body := s.ok("/limits/")
	if !strings.Contains(body, "mail:acme") || !strings.Contains(body, "2 at once") {
		t.Error(body)
	}
	for _, tc := range []struct {
		form string
		as   func(operate.Limit) bool
	}{
		{"do=set&concurrency=5&rate=100&rate_per=1m&until=2026-03-01T13:00", func(l operate.Limit) bool {
			return l.Setting != nil && l.Setting.Concurrency == 5 &&
				l.Setting.Rate == ojs.Rate{Limit: 100, Per: time.Minute} &&
				l.Until.Equal(s.clock.Now().Add(time.Hour))
		}},
		{"do=set&concurrency=0", func(l operate.Limit) bool {
			return l.Setting.Concurrency == ojs.NoneAtOnce
		}},
		{"do=clear", func(l operate.Limit) bool { return l.Setting == nil }},
		{"do=block&until=2026-03-01T14:00:30", func(l operate.Limit) bool {
			return l.BlockedUntil.Equal(s.clock.Now().Add(2*time.Hour + 30*time.Second))
		}},
		{"do=block&until=", func(l operate.Limit) bool { return l.BlockedUntil.IsZero() }},
	} {
		before := get()
		w := s.do("POST", at, tc.form)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `name="sure"`) {
			t.Fatalf("%s: %d\n%s", tc.form, w.Code, w.Body)
		}
		now := get()
		if now.BlockedUntil != before.BlockedUntil || (now.Setting == nil) != (before.Setting == nil) {
			t.Errorf("%s: the preview has done it", tc.form)
		}
		if w := s.do("POST", at, tc.form+"&sure=1"); w.Code != http.StatusSeeOther {
			t.Errorf("%s: %d\n%s", tc.form, w.Code, w.Body)
		}
		if !tc.as(get()) {
			t.Errorf("after %s: %+v", tc.form, get())
		}
		s.ok(at)
	}
	for form, status := range map[string]int{"do=set": 409, "do=set&concurrency=x": 409, "do=set&rate=1": 409,
		"do=set&concurrency=-1": 409, "do=block&until=tomorrow": 409, "do=nonsense": 404} {
		if w := s.do("POST", at, form+"&sure=1"); w.Code != status {
			t.Errorf("%s: %d, want %d\n%s", form, w.Code, status, w.Body)
		}
	}
	if w := s.get("/limits/nonsense/x/"); w.Code != http.StatusNotFound {
		t.Error(w.Code)
	}
	if w := s.get("/limits/?kind=queue&name=mail"); w.Header().Get("Location") != "./queue/mail/" {
		t.Error(w.Header())
	}
	if body := s.ok("/limits/queue/none/"); !strings.Contains(body, `value="set"`) {
		t.Error("a queue without a limit has no form to set one")
	}
}

// A request that may not set limits gets neither the form nor its preview.
func TestAuthorizerDecidesOnLimits(t *testing.T) {
	s := newSite(t, WithAuthorizer(func(_ *http.Request, a Action) error {
		if a.Do == Read || a.Do == Block && a.Queue == "mail" && a.Name == "queue/mail" {
			return nil
		}
		return errors.New("not yours")
	}))
	body := s.ok("/limits/queue/mail/")
	if strings.Contains(body, `value="set"`) || !strings.Contains(body, `value="block"`) {
		t.Error(body)
	}
	for form, status := range map[string]int{"do=set&concurrency=1": 403, "do=set&concurrency=1&sure=1": 403,
		"do=clear&sure=1": 403, "do=block&sure=1": 303} {
		if w := s.do("POST", "/limits/queue/mail/", form); w.Code != status {
			t.Errorf("%s: %d, want %d", form, w.Code, status)
		}
	}
}

// The page of a queue has the bounds over all engines as numbers, with what is used of
// them.
func TestQueueHasWhatIsUsedOfItsLimit(t *testing.T) {
	s := newSite(t)
	s.eng.Handle("t", func(context.Context, *ojs.Job[any]) error { return nil })
	bounds := ojs.RateLimit{Concurrency: 4, Rate: ojs.Rate{Limit: 100, Per: time.Minute}}
	err := s.eng.Limits().Set(context.Background(), operate.LimitOfQueue("mail"), bounds, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.enqueue("t", nil, ojs.WithQueue("mail"))
	}
	s.run()
	s.has("/queues/mail/", "4 at once, 100 starts in 1m", "<strong>0/4</strong>", "<strong>3/100</strong>",
		"Starts in 1m")
}

// The page of a queue says what bounds it in this engine, and leads to its limit over all
// engines.
func TestLimitsOfAQueue(t *testing.T) {
	for _, tc := range []struct {
		name string
		conf engine.QueueConfig
		want string
	}{
		{"concurrency", engine.QueueConfig{Concurrency: 3}, "3 at once in this engine, "},
		{"the lower concurrency", engine.QueueConfig{Concurrency: 3,
			RateLimit: ojs.RateLimit{Concurrency: 2}}, "2 at once in this engine, "},
		{"rate", engine.QueueConfig{RateLimit: ojs.RateLimit{Rate: ojs.Rate{Limit: 5, Per: time.Minute}}},
			"5 starts in 1m in this engine, "},
		{"none", engine.QueueConfig{}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSiteOn(t, []engine.Option{engine.WithQueueConfig("mail", tc.conf)})
			body := s.ok("/queues/mail/")
			want := "Limits: " + tc.want + `<a href="../../limits/queue/mail/">over all engines</a>`
			if !strings.Contains(body, want) {
				t.Errorf("the page has no %q:\n%s", want, body)
			}
		})
	}
}

// One page has the limits of all kinds. It says that there is none only if there is none.
func TestLimitsOfAllKinds(t *testing.T) {
	s := newSite(t, WithAuthorizer(AllowAll))
	s.has("/limits/", "none is set")
	ctx := context.Background()
	for _, name := range []operate.LimitName{operate.LimitOfQueue("mail"), operate.LimitOfType("t")} {
		if err := s.eng.Limits().Set(ctx, name, ojs.RateLimit{Concurrency: 4}, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	body := s.has("/limits/", `href="../limits/queue/mail/"`, `href="../limits/type/t/"`, ">0/4<")
	if strings.Contains(body, "none is set") {
		t.Errorf("it says that there is no limit:\n%s", body)
	}
	s.has("/limits/?kind=key", "none is set")
}

// A limit that lets no job start says what has to happen first.
func TestNextStartOfALimit(t *testing.T) {
	store := memory.New()
	s := siteOn(t, store)
	queue := func(name string, bounds ojs.RateLimit) string {
		t.Helper()
		err := s.eng.Limits().Set(t.Context(), operate.LimitOfQueue(name), bounds, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return "/limits/queue/" + name + "/"
	}
	full := queue("full", ojs.RateLimit{Concurrency: 4})
	free := queue("free", ojs.RateLimit{Concurrency: 5})
	none := queue("none", ojs.RateLimit{Concurrency: ojs.NoneAtOnce})
	for _, name := range []string{"full", "free"} {
		for i := range 5 {
			s.enqueue("t", i, ojs.WithQueue(name))
		}
		claim := storage.Claim{Queues: []string{name}, Max: 4, Worker: "w"}
		if _, err := store.Claim(t.Context(), s.clock.Now(), claim, nil); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{full: "when a job ends", free: "now",
		none: "when the bounds change"} {
		s.has(path, "Next start possible</span><strong>"+want+"<")
	}
	s.has("/limits/", `num">when a job ends<`, `num">now<`, `num">when the bounds change<`)
}
