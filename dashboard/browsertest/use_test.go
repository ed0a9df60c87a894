package browsertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/dashboard"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/workflow"
)

func (s *site) state(id string) ojs.State {
	s.t.Helper()
	job, err := s.eng.Get(context.Background(), id)
	s.must(err)
	return job.State
}

// wait waits for what an operation on many does beside requests.
func (s *site) wait(done func() bool) {
	s.t.Helper()
	pace.Until(s.t, "it is done", done)
}

func (s *site) count(f inspect.Filter) int {
	s.t.Helper()
	n, err := s.eng.Jobs().Count(context.Background(), f, 0)
	s.must(err)
	return n.N
}

// A list keeps its rows while one is selected, and tells of newer ones. The page keeps
// what the reader has selected and opened.
func TestLive(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.WithAuthorizer(dashboard.AllowAll))
	b := newBrowser(t, s)
	b.run(chromedp.Navigate(s.url+"jobs/?q=queue:search"), chromedp.WaitVisible(`td.pick input`))
	picked := b.text(`(() => { const e = document.querySelector('td.pick input'); e.checked = true; e.focus(); return e.value })()`)
	id := s.enqueue("search.index", map[string]any{"page": 99}, ojs.WithQueue("search"))
	row := `!!document.querySelector('input[value="` + id + `"]')`
	b.until(`document.querySelector('.newer')?.textContent === '1 newer, show'`)
	var there bool
	if b.run(chromedp.Evaluate(row, &there)); there {
		t.Error("the list has moved under a selection")
	}
	b.run(chromedp.Evaluate(`document.querySelector('.newer').click()`, nil))
	b.until(row + ` && !document.querySelector('.newer')`)
	if got := b.text(`document.querySelector('td.pick input:checked').value`); got != picked {
		t.Errorf("selected is %s, want %s", got, picked)
	}
	if got := b.text(`document.activeElement.value ?? ''`); got != picked {
		t.Errorf("the focus is on %q, want %s", got, picked)
	}
	b.clean("live")
}

// If a change of the job adds a part to its page or removes one, the open page follows.
// It shows what a running attempt logs as it comes.
func TestLiveParts(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.WithAuthorizer(dashboard.AllowAll))
	id := s.enqueue("late.type", nil)
	b := newBrowser(t, s)
	b.run(chromedp.Navigate(s.url+"jobs/"+id+"/"), chromedp.WaitVisible(`[data-live=why]`))
	s.eng.Handle("late.type", func(context.Context, *ojs.Job[any]) error { return ojs.Permanent(errLate) })
	b.until(`!!document.querySelector('[data-live=error] .errbox') && !document.querySelector('[data-live=why]')`)
	if got := b.text(`document.querySelector('h1 .state').textContent`); got != "discarded" {
		t.Errorf("the job is %s", got)
	}
	b.run(chromedp.Navigate(s.url+"jobs/?q=type:new.type"), chromedp.WaitVisible(`.empty`))
	if b.text(`document.querySelector('#many') ? 'a bar' : ''`) != "" {
		t.Error("an empty list has a bar of actions")
	}
	s.enqueue("new.type", nil)
	b.run(chromedp.WaitVisible(`#many`), chromedp.WaitVisible(`td.pick`))

	next := make(chan string)
	s.eng.Handle("log.type", func(ctx context.Context, _ *ojs.Job[any]) error {
		for line := range next {
			handler.Logger(ctx).Info(line)
		}
		return nil
	})
	b.run(chromedp.Navigate(s.url + "jobs/" + s.enqueue("log.type", nil) + "/"))
	b.until(`!!document.querySelector('[data-log]')`)
	for _, line := range []string{"first line", "second line"} {
		next <- line
		b.until(`document.querySelector('[data-live=running-log] pre')?.textContent.includes('` + line + `')`)
	}
	close(next)
	b.until(`!document.querySelector('[data-live=running-log]') && !!document.querySelector('[data-live=logs]')`)
	b.clean("live parts")
}

var errLate = errors.New("too late")

// A menu in the head leads from one engine to the next, and to the same page of it.
func TestEngines(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	mail, err := engine.New[any](memory.New())
	s.must(err)
	_, err = mail.Enqueue(context.Background(), "mail.only", nil, ojs.WithQueue("outbox"))
	s.must(err)
	pages, err := dashboard.NewMany([]dashboard.Named{{Name: "shop", Engine: s.eng},
		{Name: "mail", Engine: mail}, {Name: strings.Repeat("long-name-", 6), Engine: mail}},
		dashboard.WithEnvironment("staging"))
	s.must(err)
	server := httptest.NewServer(http.StripPrefix("/admin/jobs", pages))
	t.Cleanup(func() { // after the browser has left
		s.must(pages.Close())
		server.Close()
	})
	s.url = server.URL + "/admin/jobs/"
	b := newBrowser(t, s)
	b.run(chromedp.Navigate(s.url+"queues/"), chromedp.Focus(`.engines summary`),
		chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(`.engines a`), chromedp.Evaluate(axe+";0", nil))
	for _, theme := range []string{"light", "dark"} {
		b.run(chromedp.Evaluate(`document.documentElement.dataset.theme = "`+theme+`"`, nil))
		for _, width := range []int64{1280, 320} {
			where := fmt.Sprintf("engines-%s-%d", theme, width)
			b.run(chromedp.EmulateViewport(width, 800))
			b.picture(where)
			b.check(where)
		}
	}
	b.run(chromedp.Click(`.engines a[href$="engines/mail/queues/"]`),
		chromedp.WaitVisible(`a[href$="outbox/"]`),
		chromedp.Click(`.nav a[href$="display/"]`), chromedp.SetValue(`select[name=lang]`, "de"),
		chromedp.Click(`main form button`), chromedp.WaitVisible(`html[lang=de]`),
		chromedp.Click(`.nav a[href$="jobs/"]`), chromedp.WaitVisible(`a[title]`))
	want := "/admin/jobs/engines/mail/jobs/ Jobs · mail · Jobs"
	if got := b.text(`location.pathname + ' ' + document.title`); got != want {
		t.Errorf("the page is %s, want %s", got, want)
	}
	b.run(chromedp.Click(`.engines summary`), chromedp.Click(`.engines a:not([href*="engines/"])`),
		chromedp.WaitVisible(`html[lang=de] td a[href$="`+s.failed+`/"]`))
	b.clean("engines")
}

// Reading and acting need no JavaScript.
func TestWithoutScript(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.WithAuthorizer(dashboard.AllowAll))
	b := newBrowser(t, s)
	_, err := s.eng.Queues().Pause(context.Background(), "billing")
	s.must(err)
	b.run(emulation.SetScriptExecutionDisabled(true),
		chromedp.Navigate(s.url+"jobs/"+s.failed+"/"),
		chromedp.Click(`button[value=retry]`, chromedp.NodeVisible),
		chromedp.WaitVisible(`.note.ok`))
	if got := s.state(s.failed); got != ojs.StateAvailable {
		t.Errorf("after a retry the job is %s", got)
	}
	b.run(chromedp.Click(`.ask summary`, chromedp.NodeVisible),
		chromedp.Click(`button[value=cancel]`, chromedp.NodeVisible),
		chromedp.WaitVisible(`.state.cancelled`))
	if got := s.state(s.failed); got != ojs.StateCancelled {
		t.Errorf("after cancel the job is %s", got)
	}
	b.clean("without script")
}

// A failed job is found and retried by the keyboard alone.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.WithAuthorizer(dashboard.AllowAll))
	b := newBrowser(t, s)
	_, err := s.eng.Queues().Pause(context.Background(), "billing")
	s.must(err)
	b.run(chromedp.Navigate(s.url), chromedp.WaitVisible(`button.live`),
		// The page keeps the slash from being typed, so no character follows the key.
		input.DispatchKeyEvent(input.KeyDown).WithKey("/"),
		chromedp.KeyEvent("id:"+s.failed), leaves(chromedp.KeyEvent(kb.Enter)))
	b.until(`!!document.querySelector('button.live') && document.querySelectorAll('table.jobs tbody tr').length === 1`)
	b.run(chromedp.KeyEvent("j"), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(`button[value=retry]`))
	for range 60 {
		b.run(chromedp.KeyEvent(kb.Tab))
		if b.text(`document.activeElement.value ?? ''`) == "retry" {
			break
		}
	}
	b.run(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(`.note.ok`))
	if got := s.state(s.failed); got != ojs.StateAvailable {
		t.Errorf("the job is %s", got)
	}
	b.run(chromedp.KeyEvent("t"))
	b.until(`document.documentElement.dataset.theme === 'dark'`)
	for dark := false; !dark; { // until the server has the cookie
		b.run(chromedp.Reload(), chromedp.WaitVisible(`button.live`))
		dark = b.text(`document.documentElement.dataset.theme ?? ''`) == "dark"
	}
	b.clean("keyboard")
}

// Jobs are selected, moved and paused by the keyboard alone.
func TestKeyboardOnMany(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.WithAuthorizer(dashboard.AllowAll))
	b := newBrowser(t, s)
	id := s.enqueue("search.index", nil, ojs.WithQueue("search"), ojs.WithTags("needle"))
	b.run(chromedp.Navigate(s.url), chromedp.WaitVisible(`button.live`),
		input.DispatchKeyEvent(input.KeyDown).WithKey("/"),
		chromedp.KeyEvent("tag:needle"), leaves(chromedp.KeyEvent(kb.Enter)))
	b.until(`!!document.querySelector('button.live') && document.querySelectorAll('table.jobs tbody tr').length === 1`)
	b.run(chromedp.KeyEvent("j"), chromedp.KeyEvent("x"),
		input.DispatchKeyEvent(input.KeyDown).WithKey("a"), chromedp.KeyEvent("M"),
		chromedp.KeyEvent(kb.Tab), leaves(chromedp.KeyEvent(kb.Enter)),
		chromedp.WaitVisible(`input[name=queue]`))
	b.until(`document.activeElement.name === 'queue'`)
	b.run(chromedp.KeyEvent("other"), leaves(chromedp.KeyEvent(kb.Enter)),
		chromedp.WaitVisible(`[data-live=run]`))
	b.until(`location.pathname.endsWith('/runs/1/')`)
	s.wait(func() bool {
		job, err := s.eng.Get(context.Background(), id)
		s.must(err)
		return job.Queue == "other"
	})
	b.clean("keyboard on many")
}

// leaves does an action that leads to another page. This page may be gone before it
// answers.
func leaves(do chromedp.Action) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		_ = do.Do(ctx)
		return nil
	})
}

// leads presses a key that leads to another page. This page may be gone before it
// answers, and the next one shows that the key was heard.
func leads(key string) chromedp.Action {
	return leaves(input.DispatchKeyEvent(input.KeyDown).WithKey(key))
}

// The keys r, c and e lead to the page that asks before the action. The action is for the
// selected rows, or else for the row with the focus. A key by itself changes nothing.
func TestKeysOfActions(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.WithAuthorizer(dashboard.AllowAll))
	b := newBrowser(t, s)
	list := func(line, rows string) {
		t.Helper()
		b.run(chromedp.Navigate(s.url+"jobs/?q="+line), chromedp.WaitVisible(`table.jobs`))
		b.until(`!!document.querySelector('button.live') && ` +
			`document.querySelectorAll('table.jobs tbody tr').length === ` + rows)
	}
	asked := chromedp.WaitReady(`input[type=hidden][name=id]`, chromedp.ByQuery)
	asks := func(want string) {
		t.Helper()
		b.until(`location.pathname.endsWith('/act/') && !!document.querySelector('form.bound button')`)
		const query = `(p => p.get('do') + ' ' + p.getAll('id'))(new URLSearchParams(location.search))`
		if got := b.text(query); got != want {
			t.Errorf("the page asks for %s, want %s", got, want)
		}
	}
	one := "id:" + s.failed
	for key, do := range map[string]string{"r": "retry", "e": "delete"} {
		list(one, "1")
		b.run(chromedp.KeyEvent("j"), leads(key), asked)
		asks(do + " " + s.failed)
	}
	if got := s.state(s.failed); got != ojs.StateDiscarded {
		t.Errorf("a key has made the job %s", got)
	}
	s.enqueue("search.index", nil, ojs.WithQueue("search"), ojs.WithTags("pair"))
	s.enqueue("search.index", nil, ojs.WithQueue("search"), ojs.WithTags("pair"))
	list("tag:pair", "2")
	b.run(chromedp.KeyEvent("c")) // no row has the focus, and none is selected
	b.run(chromedp.KeyEvent("j"), chromedp.KeyEvent("x"), chromedp.KeyEvent("j"), chromedp.KeyEvent("x"),
		leads("c"), asked)
	b.until(`document.querySelectorAll('input[type=hidden][name=id]').length === 2`)
	b.run(chromedp.Click(`button.danger`), chromedp.WaitVisible(`[data-live=run]`))
	s.wait(func() bool {
		return s.count(inspect.Filter{Tags: []string{"pair"}, States: []ojs.State{ojs.StateCancelled}}) == 2
	})
	b.clean("keys of actions")
}

// Every form that changes jobs, queues and pauses works without JavaScript.
func TestFormsWithoutScript(t *testing.T) {
	t.Parallel()
	s := newSiteOn(t, served(), dashboard.WithAuthorizer(dashboard.AllowAll),
		dashboard.WithActor(func(*http.Request) string { return "ada" }))
	b := newBrowser(t, s)
	ctx := context.Background()
	b.run(emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(s.url+"jobs/?q=queue:search"),
		chromedp.WaitVisible(`td.pick input`),
		chromedp.SetValue(`#do`, "prioritize"), chromedp.Click(`td.pick input`),
		chromedp.Click(`#many button:not([name])`), chromedp.WaitVisible(`input[name=priority]`),
		chromedp.SendKeys(`input[name=priority]`, "9"), chromedp.Click(`button.main`),
		chromedp.WaitVisible(`[data-live=run]`))
	s.wait(func() bool { return s.count(inspect.Filter{Priority: &inspect.Range{Min: 9, Max: 9}}) == 1 })
	row := `td.pick input[value="` + s.digest + `"]` // which is due in 45 minutes
	b.run(chromedp.Navigate(s.url+"due/"), chromedp.WaitVisible(row),
		chromedp.SetValue(`#do`, "cancel"), chromedp.Click(row),
		chromedp.Click(`#many button:not([name])`), chromedp.WaitVisible(`button.danger`),
		chromedp.Click(`button.danger`), chromedp.WaitVisible(`[data-live=run]`))
	s.wait(func() bool { return s.state(s.digest) == ojs.StateCancelled })
	s.digest = s.enqueue("email.digest", nil, ojs.WithQueue("mail"), ojs.WithDelay(time.Hour))
	b.run(chromedp.Navigate(s.url+"jobs/"+s.digest+"/edit/"), chromedp.WaitVisible(`input[name=queue]`),
		chromedp.SetValue(`input[name=queue]`, "other"), chromedp.Click(`button[value=move]`),
		chromedp.WaitVisible(`table.changes`), chromedp.Click(`button.main`),
		chromedp.WaitVisible(`.note.ok`))
	job, err := s.eng.Get(ctx, s.digest)
	if s.must(err); job.Queue != "other" || job.History[0].By != "ada" {
		t.Errorf("the job is %+v, %v", job, err)
	}
	b.run(chromedp.Navigate(s.url+"queues/"), chromedp.Click(`.ask summary`, chromedp.NodeVisible),
		chromedp.SendKeys(`input[name=reason]`, "maintenance", chromedp.NodeVisible),
		chromedp.Click(`button[value=pause]`), chromedp.WaitVisible(`button[value=resume]`))
	if list, err := s.eng.Queues().Pauses(ctx); err != nil || len(list) != 1 || list[0].By != "ada" {
		t.Errorf("%+v, %v", list, err)
	}
	b.run(chromedp.Navigate(s.url+"queues/mail/configure/"), chromedp.WaitVisible(`input[name=depth]`),
		chromedp.SendKeys(`input[name=depth]`, "500"), chromedp.Click(`button[value=configure]`),
		chromedp.WaitVisible(`table.changes`), chromedp.Click(`button.main`),
		chromedp.WaitVisible(`.note.ok`))
	if c := s.eng.Describe().Configs["mail"]; c.MaxDepth != 500 {
		t.Errorf("the queue is served with %+v", c)
	}
	b.run(chromedp.Navigate(s.url+"jobs/?q=order:newest"), chromedp.Click(`details.help summary`),
		chromedp.SetValue(`select[name=state]`, "discarded", chromedp.NodeVisible),
		chromedp.SendKeys(`input[name=type]`, "card.*"), chromedp.Click(`details[open] button`),
		chromedp.WaitVisible(`.tabs [href="./?q=state%3adiscarded%20type%3acard.%2a"][aria-current]`))
	line := b.text(`document.getElementById('q').value`)
	if line != "state:discarded type:card.* order:newest" {
		t.Errorf("the form leads to the line %q", line)
	}
	b.run(chromedp.Navigate(s.url+"queues/search/purge/"), chromedp.WaitVisible(`input[name=name]`),
		chromedp.SendKeys(`input[name=name]`, "search"), chromedp.Click(`button.danger`),
		chromedp.WaitVisible(`[data-live=run]`))
	s.wait(func() bool { return s.count(inspect.Filter{Queues: []string{"search"}}) == 0 })
	b.clean("forms without script")
}

// reach moves the focus with the key Tab until it is on what the selector names.
func (b *browser) reach(selector string) {
	b.t.Helper()
	for range 150 {
		var there bool
		b.run(chromedp.Evaluate("document.activeElement.matches(`"+selector+"`)", &there))
		if there {
			return
		}
		b.run(chromedp.KeyEvent(kb.Tab))
	}
	b.t.Fatalf("the key Tab does not lead to %s", selector)
}

// Every form is filled in and sent by the keyboard alone.
func TestFormsByKeyboard(t *testing.T) {
	t.Parallel()
	s := newSiteOn(t, served(), dashboard.WithAuthorizer(dashboard.AllowAll))
	b := newBrowser(t, s)
	ctx := context.Background()
	enter, sure := chromedp.KeyEvent(kb.Enter), `form button.main`
	for _, form := range []struct {
		page   string
		fields []string // a selector, and what is typed there
		button string
		then   string // a button of the page that asks once more; "": none does
		shown  string // on the last page
	}{
		{"enqueue/", []string{`[name=type]`, "late.type", `[name=args]`, `{"n":1}`},
			`button[value=enqueue]`, sure, `.note.ok`},
		{"jobs/" + s.digest + "/edit/", []string{`[name=priority]`, "5"}, `button[value=prioritize]`, sure,
			`.note.ok`},
		{"cron/weekly/edit/", []string{`[name=schedule]`, "0 5 * * 1", `[name=type]`, "report.build"},
			`button[value=set]`, sure, `.note.ok`},
		{"limits/key/bank/", []string{`[name=concurrency]`, "7"}, `button[value=set]`, sure, `.note.ok`},
		{"queues/mail/configure/", []string{`[name=depth]`, "300"},
			`button[value=configure]`, sure, `.note.ok`},
		{"types/report.build/", []string{`summary.danger`, kb.Enter, `[name=reason]`, "broken"},
			`button[value=pause]`, "", `button[value=resume]`},
		{"act/?do=reschedule&all=1&q=queue:mail+state:scheduled", []string{`[name=limit]`, "2"}, sure, "",
			`[data-live=run]`},
		{"queues/search/purge/", []string{`[name=name]`, "search"},
			`form button.danger`, "", `[data-live=run]`},
		{"jobs/", []string{`details.help summary`, kb.Enter, `details [name=queue]`, "billing"},
			`details[open] button`, "", `.tabs [href="./?q=queue%3abilling"][aria-current]`},
		{"history/", []string{`[name=with]`, " "}, `main form button`, "", `.tabs a[href*="with=day"]`},
		{"jobs/?q=queue:mail", []string{`[data-keep=columns] summary`, kb.Enter, `[name=cols]`, "to"},
			`[data-keep=columns] button`, "", `td.cell[data-name=to]:not(:empty)`},
		{"jobs/?q=queue:mail", []string{`[data-keep=save] summary`, kb.Enter, `[data-keep=save] [name=name]`,
			"post"}, `[data-keep=save] button`, "", `.chip`},
		{"display/", nil, `main form button`, "", `main form`},
	} {
		b.run(chromedp.Navigate(s.url+form.page), chromedp.WaitVisible(`main h1`))
		for i := 0; i < len(form.fields); i += 2 {
			b.reach(form.fields[i])
			b.run(chromedp.KeyEvent(form.fields[i+1]))
		}
		b.reach(form.button)
		if b.run(enter); form.then != "" {
			b.run(chromedp.WaitVisible(form.then))
			b.reach(form.then)
			b.run(enter)
		}
		b.run(chromedp.WaitVisible(form.shown))
	}
	job, err := s.eng.Get(ctx, s.digest)
	if s.must(err); job.Priority != 5 {
		t.Errorf("the job is %+v", job)
	}
	s.wait(func() bool { return s.count(inspect.Filter{Queues: []string{"search"}}) == 0 })
	if n := s.count(inspect.Filter{Types: []string{"late.type"}}); n != 1 {
		t.Errorf("%d jobs were enqueued", n)
	}
	pauses, err := s.eng.Queues().Pauses(ctx)
	if s.must(err); len(pauses) != 1 || pauses[0].Reason != "broken" {
		t.Errorf("%+v", pauses)
	}
	if entry, err := s.eng.Cron().Get(ctx, "weekly"); err != nil || entry.Schedule != "0 5 * * 1" {
		t.Errorf("%+v, %v", entry, err)
	}
	b.clean("forms by keyboard")
}

// A form that a page of another origin sends changes nothing, and the answer says why.
func TestForgedForm(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.WithAuthorizer(dashboard.AllowAll))
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<form method="post" action="%squeues/mail/"><button name="do" value="pause">Win</button></form>`,
			s.url)
	}))
	t.Cleanup(other.Close) // after the browser has left
	b := newBrowser(t, s)
	b.run(chromedp.Navigate(other.URL), chromedp.Click(`button`), chromedp.WaitVisible(`main h1`))
	got, want := b.text(`document.querySelector('h1').textContent`), "This form came from another origin"
	if got != want {
		t.Errorf("the answer is %q, want %q", got, want)
	}
	list, err := s.eng.Queues().List(context.Background())
	s.must(err)
	for _, q := range list {
		if q.Name == "mail" && q.State != "active" {
			t.Errorf("the queue is %s", q.State)
		}
	}
}

// The pages work under any path, behind proxies that take a part of it away, forms
// included.
func TestMounts(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.WithAuthorizer(dashboard.AllowAll))
	inner := httptest.NewServer(s.root)
	t.Cleanup(inner.Close) // after the browser has left
	to, err := url.Parse(inner.URL)
	s.must(err)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host
	}}
	mux := http.NewServeMux()
	mux.Handle("/", s.root)
	mux.Handle("/strip/", http.StripPrefix("/strip", s.root))
	mux.Handle("/mux/", s.root)
	mux.Handle("/jobs-of/shop/", http.StripPrefix("/jobs-of/shop", s.root))
	mux.Handle("/proxy/", http.StripPrefix("/proxy", proxy))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL + "/admin"
	b := newBrowser(t, s)
	for _, prefix := range []string{"/", "/strip/", "/mux/", "/jobs-of/shop/", "/proxy/"} {
		b.run(chromedp.Navigate(server.URL+prefix),
			chromedp.Click(`.nav a[href$="queues/"]`, chromedp.NodeVisible),
			chromedp.Click(`td a[href$="queues/mail/"]`, chromedp.NodeVisible),
			chromedp.Click(`button[value=pause]`, chromedp.NodeVisible),
			chromedp.Click(`button[value=resume]`, chromedp.NodeVisible),
			chromedp.WaitVisible(`button[value=pause]`))
		want := prefix + "queues/mail/ grid"
		if got := b.text(`location.pathname + ' ' + getComputedStyle(document.body).display`); got != want {
			t.Errorf("%s leads to %s, want %s", prefix, got, want)
		}
	}
	b.clean("mounts")
}

// One failure among a million jobs is on the first screen, and large args do not weigh
// the page of their job down.
func TestMillionJobs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx := context.Background()
	drafts := make([]ojs.Draft, 1000)
	for i := range drafts {
		drafts[i] = ojs.NewDraft("no.handler", nil, ojs.WithQueue("deep"))
	}
	for range 1000 {
		_, err := s.eng.EnqueueMany(ctx, drafts...)
		s.must(err)
	}
	once := ojs.WithMaxAttempts(1)
	needle := s.enqueue("card.charge", map[string]any{"order": 1}, ojs.WithQueue("needle"), once)
	s.wait(func() bool { return s.state(needle) == ojs.StateDiscarded })
	large := s.enqueue("no.handler", map[string]any{"text": strings.Repeat("x", 900_000)})
	b := newBrowser(t, s)
	b.run(chromedp.Navigate(s.url), chromedp.Click(`a[href$="`+needle+`/"]`, chromedp.NodeVisible),
		chromedp.WaitVisible(`.errbox`))
	found := "jobs/?q=queue:needle+state:discarded"
	for _, path := range []string{found, "queues/deep/", "jobs/" + large + "/"} {
		b.run(chromedp.Navigate(s.url+path), chromedp.WaitVisible("main h1"))
		var size int
		if b.run(chromedp.Evaluate(`document.documentElement.outerHTML.length`, &size)); size > 100_000 {
			t.Errorf("%s has %d characters", path, size)
		}
	}
	b.clean("a million")
}

// A page that only reads offers no form that posts, and scripts in it do not run.
func TestHostileText(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := newBrowser(t, s)
	evil := `"><img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`
	args := map[string]any{"evil": evil}
	id := s.enqueue("no.handler", args, ojs.WithMeta("evil", evil), ojs.WithTags(evil))
	filtered := "jobs/?q=" + strings.ReplaceAll(evil, `"`, "%22")
	ctx := ojs.WithActor(context.Background(), evil)
	s.eng.Handle("logs.evil", func(ctx context.Context, _ *ojs.Job[any]) error {
		handler.Logger(ctx).Info(evil, evil, evil)
		return &ojs.Error{Type: "evil", Message: evil, Details: map[string]any{evil: evil}}
	})
	failed := s.enqueue("logs.evil", args, ojs.WithMaxAttempts(1),
		ojs.WithRateLimit(ojs.RateLimit{Key: "evil", Concurrency: 5}))
	s.wait(func() bool { return s.state(failed) == ojs.StateDiscarded })
	s.enqueue("no.handler", args, ojs.WithRateLimit(ojs.RateLimit{Key: "evil", Concurrency: 5}))
	s.must(s.eng.Jobs().SetPriority(ctx, id, 3))
	_, err := s.eng.Queues().PauseType(ctx, "no.handler", evil)
	s.must(err)
	s.must(s.eng.Cron().Set(ctx, cron.Entry{Name: "evil", Schedule: "@daily", Description: evil,
		Job: ojs.NewDraft("no.handler", args)}))
	_, err = s.eng.Worker(evil, fetch.Config{}).Fetch(ctx)
	s.must(err)
	step := workflow.Step("a", ojs.NewDraft("no.handler", args))
	flow, err := s.eng.Workflows().Start(ctx, workflow.New(evil, step))
	s.must(err)
	b.run(network.SetCookie("ojs_filters", url.Values{evil: {evil}}.Encode()).WithURL(s.url))
	text := url.QueryEscape(evil)
	for _, path := range []string{"workflows/", "workflows/" + flow.ID + "/", "search/?q=" + text,
		"jobs/?q=type:no.handler&cols=evil," + text, "history/?with=day&type=" + text + "&queue=" + text,
		"history/?from=" + text + "&to=" + text + "&scale=" + text, "jobs/?full=1&q=type:no.handler",
		"", "jobs/", "jobs/" + id + "/", "jobs/" + failed + "/", filtered,
		"failures/",
		"queues/", "types/no.handler/", "cron/", "cron/evil/", "workers/", "limits/",
		"limits/key/" + url.PathEscape(strings.ReplaceAll(evil, "/", "")) + "/"} {
		b.run(chromedp.Navigate(s.url+path), chromedp.WaitVisible("main"))
		if title := b.text(`document.title`); title == "owned" {
			t.Errorf("%s runs a script of a job", path)
		}
		var posts int
		const others = `form[method=post]:not(:has([name=set]))` // than those of the reader's own cookie
		b.run(chromedp.Evaluate(`document.querySelectorAll('`+others+`').length`, &posts))
		if posts > 0 {
			t.Errorf("%s has %d forms that post", path, posts)
		}
	}
	b.clean("hostile")
}
