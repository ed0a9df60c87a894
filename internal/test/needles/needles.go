// Package needles stores the few jobs that people look for among many others, older and
// newer ones, and checks that the pages of a dashboard find them.
package needles

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// N is how many needles of each kind there are. Their types begin with "needle.", and
// those of the others with "hay.".
const N = 30

const (
	flowsN = 150 // workflows
	rareN  = 50  // types with one failure each
)

// fill stores jobs.
type fill struct {
	testing.TB
	store storage.Storage
	eng   *engine.Engine[any]
	clock *clock.Mock
}

// Fill stores the needles and at least as many others as it is told. Half of these are
// older, and half newer, by their insertion and by their end. It returns the ids of the
// workflows; the oldest one has failed.
func Fill(
	tb testing.TB, store storage.Storage, eng *engine.Engine[any], cl *clock.Mock, others int,
) (flows []string) {
	f := fill{tb, store, eng, cl}
	f.hay(others / 2)
	cl.Add(time.Hour)
	f.kinds("needle", map[string]int{"waits": N, "done": N, "fails": N, "runs": N, "retries": N, "later": N,
		"held": N})
	f.rare()
	for i := range flowsN {
		step := workflow.Step("a", ojs.NewDraft("needle.step", i, ojs.WithQueue("needle-steps")))
		record, err := eng.Workflows().Start(tb.Context(), workflow.New(fmt.Sprint("flow-", i), step))
		f.must(err)
		flows = append(flows, record.ID)
	}
	steps := f.claim("needle-steps", flowsN)
	f.end(steps[:1], ojs.StateDiscarded, "needle.step-error")
	cl.Add(time.Hour)
	f.hay(others - others/2)
	cl.Add(time.Minute)
	return flows
}

func (f *fill) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// hay stores a mixture of n jobs, most of which wait or are completed.
func (f *fill) hay(n int) {
	of := map[string]int{"done": n / 4, "fails": n * 3 / 20, "runs": n / 200, "retries": n / 100,
		"later": n / 100, "held": n / 100}
	for _, m := range of {
		n -= m
	}
	of["waits"] = n
	f.kinds("hay", of)
}

// kinds stores jobs of types that begin with a name, each in the state of its kind.
func (f *fill) kinds(name string, of map[string]int) {
	f.Helper()
	f.enqueue(name, "waits", of["waits"])
	f.enqueue(name, "later", of["later"], ojs.WithDelay(later[name]))
	f.enqueue(name, "held", of["held"], ojs.WithPending())
	f.enqueue(name, "runs", of["runs"])
	f.claim(name+"-runs", of["runs"])
	for kind, to := range map[string]ojs.State{"done": ojs.StateCompleted, "fails": ojs.StateDiscarded,
		"retries": ojs.StateRetryable} {
		f.enqueue(name, kind, of[kind])
		f.end(f.claim(name+"-"+kind, of[kind]), to, name+".error")
	}
}

// rare stores failures of many types.
func (f *fill) rare() {
	f.Helper()
	var drafts []ojs.Draft
	for i := range rareN {
		drafts = append(drafts, ojs.NewDraft(fmt.Sprintf("rare.t%02d", i), i, ojs.WithQueue("rare")))
	}
	_, err := f.eng.EnqueueMany(f.Context(), drafts...)
	f.must(err)
	f.end(f.claim("rare", rareN), ojs.StateDiscarded, "rare.error")
}

// later is when scheduled jobs are due.
var later = map[string]time.Duration{"hay": 30 * time.Hour, "needle": 10 * time.Hour}

// enqueue stores n jobs of a kind, in the queue of the kind.
func (f *fill) enqueue(name, kind string, n int, opts ...ojs.Option) {
	f.Helper()
	opts = append(opts, ojs.WithQueue(name+"-"+kind))
	for n > 0 {
		drafts := make([]ojs.Draft, min(n, 1000))
		for i := range drafts {
			drafts[i] = ojs.NewDraft(name+"."+kind, i, opts...)
		}
		_, err := f.eng.EnqueueMany(f.Context(), drafts...)
		f.must(err)
		n -= len(drafts)
	}
}

// claim claims n jobs of a queue.
func (f *fill) claim(queue string, n int) (recs []storage.Record) {
	f.Helper()
	for len(recs) < n {
		c := storage.Claim{Queues: []string{queue}, Max: min(n-len(recs), 1000), Worker: queue + "-worker"}
		some, err := f.store.Claim(f.Context(), f.clock.Now(), c, nil)
		f.must(err)
		if len(some) == 0 {
			f.Fatal(errors.New("queue " + queue + " has too few jobs"))
		}
		recs = append(recs, some...)
	}
	return recs
}

// end ends attempts. Every third job that is discarded becomes a dead letter.
func (f *fill) end(recs []storage.Record, to ojs.State, errorType string) {
	f.Helper()
	now := f.clock.Now()
	for len(recs) > 0 {
		changes := make([]storage.Change, min(len(recs), 1000))
		for i := range changes {
			r := recs[i]
			at := now.Add(-time.Duration(i) * time.Millisecond)
			switch r.State = to; to {
			case ojs.StateRetryable:
				r.NextRetryAt = now.Add(20 * time.Hour)
			case ojs.StateDiscarded:
				if i%3 == 0 {
					r.DeadLetteredAt = at
				}
				fallthrough
			default:
				r.FinishedAt = at
			}
			if to != ojs.StateCompleted {
				r.Error = &ojs.Failure{Type: errorType, Message: "no", At: at, Attempt: 1}
			}
			changes[i] = storage.Change{Record: r}
		}
		settled, err := f.store.Settle(f.Context(), now, changes, nil)
		f.must(err)
		for i := range settled {
			f.must(settled[i].Err)
		}
		recs = recs[len(changes):]
	}
}

// none are the sentences with which pages say that there is nothing.
var none = regexp.MustCompile(`No stored job|No job |There (are|is) no |There is no`)

// Check asks pages for the needles. A page has every text that is wanted of it, and does
// not say that there is nothing.
func Check(t *testing.T, pages http.Handler, flows []string) {
	list := func(line string) string { return "/jobs/?q=" + url.QueryEscape(line) }
	act := func(do, line string) string { return "/act/?do=" + do + "&all=1&q=" + url.QueryEscape(line) }
	const all = "30 shown, "
	row := func(name string) string { return ">" + name + `</a></td><td class="num">30</td>` }
	tab := func(state string) string { return state + ` <span class="count">30<` }
	for _, page := range []struct {
		path string
		want []string
	}{
		// States, queues, types, errors and workers, and several of these.
		{list("state:active type:needle.runs"), []string{all, tab("active")}},
		{list("state:active worker:needle-runs-worker"), []string{all, tab("active")}},
		{list("state:discarded type:needle.*"), []string{"31 shown, 31 of"}},
		{list("state:discarded errortype:needle.error"), []string{all + "30 of", tab("discarded")}},
		{list("state:discarded queue:needle-fails error:needle"), []string{all, tab("discarded")}},
		{list("state:retryable type:needle.retries"), []string{all + "30 of", tab("retryable")}},
		{list("state:scheduled queue:needle-later"), []string{all + "30 of", tab("scheduled")}},
		{list("state:pending type:needle.held"), []string{all + "30 of", tab("pending")}},
		{list("state:available type:needle.waits"), []string{all, tab("available")}},
		{list("state:available queue:needle-waits"), []string{all, tab("available")}},
		{list("state:completed type:needle.done"), []string{all, tab("completed")}},
		{list("type:needle.fails"), []string{all, tab("all"), tab("discarded")}},
		{list("type:needle.waits"), []string{all, tab("all"), tab("available")}},
		{list("queue:needle-done"), []string{all, tab("all"), tab("completed")}},
		{list("dead:true type:needle.fails"), []string{"10 shown, 10 of"}},
		{list("workflow:" + flows[1]), []string{"3 shown, 3 of"}},
		{list("args:no-such-text"), []string{"there are more to scan"}},
		{list("type:needle.waits args:no-such-text"), []string{"there are more to scan"}},

		// Pages of their own.
		{"/failures/", []string{row("needle.fails"), "needle.error", "needle.step-error"}},
		{"/failures/?since=24h", []string{row("needle.fails"), "needle.error", "needle.step-error",
			"state%3Adiscarded+finished.since"}},
		{"/dead/", []string{"needle.error", `>needle.fails</a></td><td class="num">10</td>`,
			url.QueryEscape("dead:true state:discarded order:finished errortype:needle.error")}},
		{"/types/", []string{"needle.waits", "needle.held"}},
		{"/types/needle.fails/", []string{row("discarded")}},
		{"/types/needle.waits/", []string{row("available")}},
		{"/queues/needle-waits/", []string{row("needle.waits")}},
		{"/queues/", []string{"needle-retries"}},
		{"/workers/", []string{"needle-runs-worker"}},
		{"/due/", []string{"needle.later"}},
		{"/workflows/", []string{"flow-149", "flow-130", `all <span class="count">150<`}},
		{"/workflows/?state=failed", []string{">flow-0<"}},
		{"/workflows/" + flows[0] + "/", []string{"failed"}},
		{"/failures/?type=rare.t00", []string{"rare.error"}},
		{"/failures/?type=rare.t49", []string{"rare.error"}},
		{"/", []string{"Discarded lately"}},
		{"/running/", []string{`needle.runs">30</a>`}},

		// Previews of all that match.
		{act("retry", "state:discarded type:needle.fails"), []string{"Retry: 30 jobs", "needle.fails"}},
		{act("retry", "type:needle.fails"), []string{"Retry: 30 jobs", "needle.fails"}},
		{act("retry", "state:discarded errortype:needle.error"), []string{"30 jobs", "needle.fails"}},
		{act("retry", "state:discarded errortype:needle.error finished.since:24h"),
			[]string{"30 jobs", "needle.fails"}},
		{act("delete", "dead:true type:needle.fails"), []string{"10 jobs", "needle.fails"}},
		{act("cancel", "state:active type:needle.runs"), []string{"Cancel: 30 jobs", "needle.runs"}},
		{act("cancel", "state:available type:needle.waits"), []string{"Cancel: 30 jobs"}},
		{act("cancel", "queue:needle-waits"), []string{"Cancel: 30 jobs"}},
		{act("cancel", "workflow:"+flows[2]), []string{`<button class="danger"`}},
		{act("run", "state:pending type:needle.held"), []string{"30 jobs", "needle.held"}},
		{act("retry", "args:no-such-text"), []string{`<button class="main"`}},
		{act("retry", "state:discarded errortype:needle.error since:3h"), []string{`<button class="main"`}},
	} {
		body := get(t, pages, page.path)
		for range 3 { // a page may lead on
			next := older.FindStringSubmatch(body)
			if next == nil || strings.Contains(body, page.want[0]) {
				break
			}
			path, _, _ := strings.Cut(page.path, "?")
			body = get(t, pages, path+next[1])
		}
		for _, text := range page.want {
			if !strings.Contains(body, text) {
				t.Errorf("%s: no %q in\n%s", page.path, text, short(body))
			}
		}
	}
}

// older is the link to the next page of workflows.
var older = regexp.MustCompile(`rel="next" href="\./(\?state=[^"]*)"`)

// get returns what a page has, which does not say that there is nothing.
func get(t *testing.T, pages http.Handler, path string) string {
	t.Helper()
	w := httptest.NewRecorder()
	pages.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "GET", path, nil))
	_, body, _ := strings.Cut(html.UnescapeString(w.Body.String()), "<main")
	if w.Code != http.StatusOK {
		t.Errorf("%s: %d\n%s", path, w.Code, body)
	}
	if said := none.FindString(body); said != "" {
		t.Errorf("%s says %q:\n%s", path, said, short(body))
	}
	return body
}

// short is a page without its tags.
func short(body string) string {
	text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(body, " ")
	text = regexp.MustCompile(`\s+`).ReplaceAllString(text, " ")
	return text[:min(len(text), 1500)]
}
