package browsertest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/network"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/ojsengine/ojs/dashboard"
)

//go:embed testdata/axe.min.js
var axe string

// violation is a rule of axe that a page breaks.
type violation struct {
	ID     string `json:"id"`
	Impact string `json:"impact"`
	Help   string `json:"help"`
	Nodes  []struct {
		HTML    string `json:"html"`
		Summary string `json:"failureSummary"`
	} `json:"nodes"`
}

// Every page is legible in both themes at three widths: axe finds nothing, nothing is
// wider than the window, and the policy has nothing to report.
func TestPages(t *testing.T) {
	for _, theme := range []string{"light", "dark"} {
		t.Run(theme, func(t *testing.T) {
			t.Parallel()
			s := newSiteOn(t, served(), dashboard.WithAuthorizer(dashboard.AllowAll))
			b := newBrowser(t, s)
			b.run(network.SetCookie("ojs_theme", theme).WithURL(s.url))
			pages := s.pages()
			for _, name := range slices.Sorted(maps.Keys(pages)) {
				b.run(chromedp.Navigate(s.url+pages[name]), chromedp.Evaluate(axe+";0", nil))
				for _, width := range widths() {
					where := fmt.Sprintf("%s-%s-%d", name, theme, width)
					b.run(chromedp.EmulateViewport(width, 800))
					b.picture(where)
					b.check(where)
					b.clean(where)
				}
			}
		})
	}
}

// widths are those of a desk, a tablet and a small phone, and for pictures two more.
func widths() []int64 {
	if os.Getenv("OJS_SHOTS") != "" {
		return []int64{1280, 768, 320, 1920, 390}
	}
	return []int64{1280, 768, 320}
}

func (b *browser) check(where string) {
	b.t.Helper()
	var wide bool
	b.run(chromedp.Evaluate(`document.documentElement.scrollWidth > innerWidth`, &wide))
	if wide {
		b.t.Errorf("%s is wider than the window", where)
	}
	var found string
	wait := func(p *cdpruntime.EvaluateParams) *cdpruntime.EvaluateParams { return p.WithAwaitPromise(true) }
	b.run(chromedp.Evaluate(`axe.run(document, {resultTypes: ['violations']}).
		then(r => JSON.stringify(r.violations))`, &found, wait))
	var violations []violation
	if err := json.Unmarshal([]byte(found), &violations); err != nil {
		b.t.Fatal(err)
	}
	for _, v := range violations {
		first := v.Nodes[0]
		b.t.Errorf("%s: %s (%s): %s\n%s\n%s", where, v.ID, v.Impact, v.Help, first.HTML, first.Summary)
	}
}

// picture keeps a picture of the page if OJS_SHOTS names a directory.
func (b *browser) picture(name string) {
	dir := os.Getenv("OJS_SHOTS")
	if dir == "" {
		return
	}
	var png []byte
	b.run(chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
