package browsertest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a tab, with all that a page must not do while it is open.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu  sync.Mutex
	bad []string // reports of the policy, exceptions, requests to other origins
}

// newBrowser opens a tab in a Chromium of its own.
func newBrowser(t *testing.T, s *site) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("chromium is not installed: apt-get install chromium")
		}
		t.Skip("chromium is not installed")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.NoFirstRun)
	ctx, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(stop)
	ctx, stopTab := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // waits for the end of the process
			t.Error(err)
		}
		stopTab()
	})
	b := &browser{t: t, ctx: ctx}
	origin := s.url[:strings.Index(s.url, "/admin")]
	report := func(text string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.bad = append(b.bad, text)
	}
	chromedp.ListenTarget(ctx, func(ev any) {
		switch ev := ev.(type) {
		case *log.EventEntryAdded:
			if !strings.Contains(ev.Entry.Text, "status of 404") { // a page of a test is missing on purpose
				report("log: " + ev.Entry.Text)
			}
		case *runtime.EventExceptionThrown:
			report("exception: " + ev.ExceptionDetails.Error())
		case *network.EventRequestWillBeSent:
			at := ev.Request.URL
			own := at == "about:blank" || strings.HasPrefix(at, "data:") // the browser's own icons of fields
			if !own && !strings.HasPrefix(at, origin) {
				report("request to " + at)
			}
		}
	})
	b.run(network.Enable(), log.Enable(), runtime.Enable())
	return b
}

// run does actions, within a minute.
func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	ended := make(chan error, 1)
	ctx, stop := context.WithTimeout(b.ctx, time.Minute)
	defer stop()
	if b.bare() { // the first call starts the browser, which lives as long as its context
		ctx = b.ctx
	}
	go func() { ended <- chromedp.Run(ctx, actions...) }()
	if err := <-ended; err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) bare() bool { return chromedp.FromContext(b.ctx).Target == nil }

// clean fails the test for what the pages did that they must not.
func (b *browser) clean(where string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.bad {
		b.t.Errorf("%s: %s", where, text)
	}
	b.bad = nil
}

// text evaluates an expression that gives a string.
func (b *browser) text(expression string) (out string) {
	b.t.Helper()
	b.run(chromedp.Evaluate(expression, &out))
	return out
}

// until waits for an expression to be true.
func (b *browser) until(expression string) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, time.Minute)
	defer stop()
	poll := chromedp.Poll(expression, nil, chromedp.WithPollingInterval(50*time.Millisecond))
	for {
		err := chromedp.Run(ctx, poll)
		if err == nil {
			return
		}
		if ctx.Err() != nil || !leftPage(err) {
			b.t.Fatal(err)
		}
	}
}

// leftPage reports whether a call has failed because its page is gone: another one comes.
func leftPage(err error) bool {
	return strings.Contains(err.Error(), "navigated or closed") ||
		strings.Contains(err.Error(), "Cannot find context")
}
