package browsertest

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/dashboard"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/workflow"
)

// An operator's tasks take a few clicks from the overview.
func TestTasks(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.WithAuthorizer(dashboard.AllowAll))
	ctx := context.Background()
	step := workflow.Step("charge", ojs.NewDraft("card.charge", nil, ojs.WithMaxAttempts(1)))
	flow, err := s.eng.Workflows().Start(ctx, workflow.New("payment", step))
	s.must(err)
	s.wait(func() bool {
		status, err := s.eng.Workflows().Get(ctx, flow.ID)
		s.must(err)
		return status.State == workflow.StateFailed
	})
	b := newBrowser(t, s)
	for task, steps := range map[string]struct {
		clicks []string
		done   string // what the last page has
	}{
		"retry all failures of one kind since an hour": {[]string{`a.tile[href$="failures/?since=1h"]`,
			`a[aria-label^="Retry: card.charge"]`, `form.bound button.main`}, `[data-live=run]`},
		"cancel all that runs of a type": {[]string{`a.tile[href$="running/"]`,
			`[data-keep="stop-report.build"] summary`, `[data-keep="stop-report.build"] button`},
			`[data-live=run]`},
		"find a failed workflow and retry it": {[]string{`.nav a[href$="workflows/"]`,
			`.tabs a[href$="state=failed"]`, `form[action*="` + flow.ID + `"] button`}, `.note.ok`},
		"see yesterday's percentiles": {[]string{`.nav a[href$="history/"]`, `.tabs a[href*="from="]`},
			`[aria-label="Time of an attempt"]`},
	} {
		b.run(chromedp.Navigate(s.url), chromedp.WaitVisible(`button.live`),
			chromedp.Evaluate(`localStorage.setItem('ojs_live', 'off')`, nil))
		for i, click := range steps.clicks {
			b.run(chromedp.WaitVisible(click), leaves(chromedp.Click(click)))
			if i == len(steps.clicks)-1 {
				b.run(chromedp.WaitVisible(steps.done))
			}
		}
		if len(steps.clicks) > 3 {
			t.Errorf("%s takes %d clicks", task, len(steps.clicks))
		}
		b.clean(task)
	}
	s.wait(func() bool { return s.count(inspect.Filter{States: []ojs.State{ojs.StateActive}}) == 0 })
	b.run(chromedp.Navigate(s.url), chromedp.SetValue(`.find input`, s.digest),
		leaves(chromedp.SendKeys(`.find input`, kb.Enter)), chromedp.WaitVisible(`.moments`))
	if at := b.text(`location.pathname`); !strings.HasSuffix(at, "/jobs/"+s.digest+"/") {
		t.Errorf("an id leads to %s", at)
	}
}
