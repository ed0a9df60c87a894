package browsertest

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/dashboard"
)

// A chart says the values of the column under the pointer, and of the column that the
// arrow keys choose, also after a tick. A column leads to its jobs.
func TestCharts(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.WithAuthorizer(dashboard.AllowAll))
	b := newBrowser(t, s)
	b.run(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(s.url+"history/"),
		chromedp.WaitVisible(`.plot[tabindex]`))
	b.reach(`.plot`)
	const column = `document.querySelector('.says')?.textContent.split('\n')[0] ?? ''`
	last := b.text(column)
	b.run(chromedp.KeyEvent(kb.ArrowLeft))
	before := b.text(column)
	if last == "" || before == last {
		t.Errorf("the key leads from %q to %q", last, before)
	}
	told := b.text(`document.querySelector('body > [role=status]').textContent`)
	if !strings.HasPrefix(told, before) {
		t.Errorf("a screen reader hears %q of %s", told, before)
	}
	b.run(chromedp.Evaluate(`document.querySelector('.plot').dataset.old = 1`, nil))
	s.enqueue("email.send", nil, ojs.WithQueue("mail"))
	b.until(`!document.querySelector('.plot[data-old]') && !!document.querySelector('.says')`)
	if got := b.text(column); got != before {
		t.Errorf("after a tick the chart says %q, want %q", got, before)
	}
	b.run(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(`table.jobs, .empty`))
	b.until(`location.search.startsWith('?q=finished.since')`)
	b.run(chromedp.Navigate(s.url+"history/?span=24h"), chromedp.WaitVisible(`.plot[tabindex]`))
	var at []float64
	b.run(chromedp.Evaluate(`(r => [r.x + r.width / 2, r.y + r.height / 2])(`+
		`document.querySelectorAll('.hit')[70].getBoundingClientRect())`, &at))
	b.run(chromedp.MouseEvent(input.MouseMoved, at[0], at[1]), chromedp.WaitVisible(`.says`))
	b.until(`document.querySelector('.says').textContent.includes('Completed ')`)
	b.run(chromedp.MouseEvent(input.MouseMoved, 1, 1))
	b.until(`!document.querySelector('.says')`)
	b.run(chromedp.MouseClickXY(at[0], at[1]), chromedp.WaitVisible(`#q`))
	b.until(`location.search.startsWith('?q=finished.since')`)
	b.clean("charts")
}

// The search box suggests keys, and values that the storage counts, for the term that is
// typed.
func TestCompletion(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := newBrowser(t, s)
	b.run(chromedp.Navigate(s.url+"queues/"), chromedp.WaitVisible(`button.live`),
		chromedp.Click(`.find input`))
	b.until(`!!document.querySelector('#terms option[value="type:email.send"]')`)
	b.run(chromedp.KeyEvent("state:discarded "))
	b.until(`!!document.querySelector('#terms option[value="state:discarded type:card.charge"]')`)
	b.clean("completion")
}

// A period, a comparison, the jobs of a column, columns of a list and saved filters need
// no script.
func TestChartsAndListsWithoutScript(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := newBrowser(t, s)
	b.run(emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(s.url+"history/"),
		chromedp.Click(`input[value=day]`, chromedp.NodeVisible),
		chromedp.SetValue(`select[name=scale]`, "log"), chromedp.Click(`main form button`),
		chromedp.WaitVisible(`.s-day`, chromedp.ByQuery), chromedp.Click(`.tabs a[href*="from="]`),
		chromedp.WaitVisible(`input[name=from]:not([value=""])`))
	columns, save := `[data-keep=columns] `, `[data-keep=save] `
	b.run(chromedp.Navigate(s.url+"jobs/?q=queue:mail"),
		chromedp.Click(columns+`summary`, chromedp.NodeVisible),
		chromedp.Click(`.toggles a[href$="cols=to"]`, chromedp.NodeVisible),
		chromedp.WaitVisible(`td.cell[data-name=to]:not(:empty)`), chromedp.Click(save+`summary`),
		chromedp.SendKeys(save+`input[name=name]`, "post", chromedp.NodeVisible),
		chromedp.Click(save+`button`),
		chromedp.WaitVisible(`.chip a[aria-current]`), chromedp.Navigate(s.url+"search/?q=nothing"),
		chromedp.Click(`.chip a`, chromedp.NodeVisible), chromedp.WaitVisible(`#q`),
		chromedp.Click(`.chip button[aria-label="Forget post"]`, chromedp.NodeVisible),
		chromedp.WaitNotPresent(`.chip`), chromedp.WaitVisible(`#q`))
	b.clean("charts and lists without script")
}
