package browsertest

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/dashboard"
)

func (s *site) state(id string) ojs.State {
	s.t.Helper()
	job, err := s.eng.Get(context.Background(), id)
	s.must(err)
	return job.State
}

// A page shows a new job by itself, and keeps what the reader has selected and opened.
func TestLive(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.WithAuthorizer(dashboard.AllowAll))
	b := newBrowser(t, s)
	b.run(chromedp.Navigate(s.url+"jobs/?q=queue:search"), chromedp.WaitVisible(`td.pick input`))
	picked := b.text(`(() => { const e = document.querySelector('td.pick input'); e.checked = true; e.focus(); return e.value })()`)
	id := s.enqueue("search.index", map[string]any{"page": 99}, ojs.WithQueue("search"))
	b.until(`!!document.querySelector('input[value="` + id + `"]')`)
	if got := b.text(`document.querySelector('td.pick input:checked').value`); got != picked {
		t.Errorf("selected is %s, want %s", got, picked)
	}
	if got := b.text(`document.activeElement.value ?? ''`); got != picked {
		t.Errorf("the focus is on %q, want %s", got, picked)
	}
	b.clean("live")
}

// Reading and acting need no JavaScript.
func TestWithoutScript(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.WithAuthorizer(dashboard.AllowAll))
	b := newBrowser(t, s)
	s.must(s.eng.Queues().Pause(context.Background(), "billing"))
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
	s.must(s.eng.Queues().Pause(context.Background(), "billing"))
	b.run(chromedp.Navigate(s.url), chromedp.WaitVisible(`button.live`),
		// The page keeps the slash from being typed, so no character follows the key.
		input.DispatchKeyEvent(input.KeyDown).WithKey("/"),
		chromedp.KeyEvent("id:"+s.failed), chromedp.KeyEvent(kb.Enter),
		chromedp.WaitVisible(`table.jobs`))
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
	b.clean("keyboard")
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
	for _, path := range []string{"", "jobs/", "jobs/" + id + "/", filtered} {
		b.run(chromedp.Navigate(s.url+path), chromedp.WaitVisible("main"))
		if title := b.text(`document.title`); title == "owned" {
			t.Errorf("%s runs a script of a job", path)
		}
		var posts int
		b.run(chromedp.Evaluate(`document.querySelectorAll('form[method=post]').length`, &posts))
		if posts > 0 {
			t.Errorf("%s has %d forms that post", path, posts)
		}
	}
	b.clean("hostile")
}
