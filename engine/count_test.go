package engine_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// Of each choice of states, a count that looks at the jobs has as many as are listed, in
// whichever order it looks.
func TestCountsOfStates(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.Handle("done", func(context.Context, *ojs.Job[any]) error { return nil })
		b.Handle("fails", func(context.Context, *ojs.Job[any]) error { return errBoom })
		b.Handle("runs", func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return ctx.Err() })
		b.run()
		for _, jobType := range []string{"done", "runs", "none"} {
			b.enqueue(jobType)
		}
		b.enqueue("fails", ojs.WithMaxAttempts(1))
		b.enqueue("fails")
		b.enqueue("done", ojs.WithPending())
		b.enqueue("done", ojs.WithDelay(time.Hour))
		must(t, b.Jobs().Cancel(b.ctx, b.enqueue("done", ojs.WithPending()).ID))
		b.advance(time.Millisecond)
		states := ojs.AllStates()
		for i := range states {
			for k := range states[:i+1] {
				both := slices.Compact([]ojs.State{states[i], states[k]})
				f := inspect.Filter{States: both, Types: []string{"*"}}
				want := b.listed(f)
				n, err := b.Jobs().Count(b.ctx, f, 0)
				must(t, err)
				if n.N != len(want) || !n.Exact || len(want) < len(f.States) {
					t.Errorf("%v: counted %+v, and %d are listed", f.States, n, len(want))
				}
			}
		}
	})
}

// Each key of the filter language selects what it says, and counts and facets agree with
// the listing.
func TestFilterSelects(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.Handle("mail.send", func(context.Context, *ojs.Job[any]) error { return nil })
		b.Handle("mail.bounce", func(_ context.Context, job *ojs.Job[any]) error {
			return ojs.DeadLetter(ojs.Errorf("smtp.refused", "Connection refused by %s", job.Type))
		})
		add := func(jobType string, args any, opts ...ojs.Option) string {
			ticket, err := b.Enqueue(b.ctx, jobType, args, opts...)
			must(t, err)
			return ticket.ID
		}
		a := add("mail.send", map[string]any{"user": 42, "to": map[string]any{"a.b": []any{"x", true}}},
			ojs.WithTags("vip", "eu"), ojs.WithQueue("mail"))
		c := add("mail.bounce", map[string]any{"user": "42"}, ojs.WithTags("vip"), ojs.WithQueue("mail"))
		b.run()
		must(t, b.WaitIdle(b.ctx))
		b.halt()
		d := add("mail.send", []any{"user", nil}, ojs.WithPriority(7),
			ojs.WithMeta("tenant", map[string]any{"id": 7}))
		e := add("mail.late", 1, ojs.WithDelay(time.Hour), ojs.WithPriority(-3),
			ojs.WithMeta("cron_name", "nightly"))
		now := time.Now()
		for line, want := range map[string][]string{
			"": {a, c, d, e}, "tag:vip": {a, c}, "tag:vip tag:eu": {a}, "tag:none": nil,
			"args.user:42": {a, c}, "args.user:43": nil, "args.to.a.b.1:true": {a}, "args.to.a.b.0:x": {a},
			"args.1:null":      {d},
			"meta.tenant.id:7": {d}, `meta.tenant:{"id":7}`: {d}, "meta.tenant.id:7 args.0:user": {d},
			"error:REFUSED": {c}, "error:smtp": {c}, "error:other": nil, "errortype:smtp.*": {c},
			"state:discarded": {c}, "type:mail.s*": {a, d}, "queue:mail": {a, c},
			"priority:7": {d}, "priority:..-1": {e}, "priority:0..": {a, c, d}, "attempt:1": {a, c},
			"attempt:0":   {d, e},
			"cron:night*": {e}, "worker:*": {a, c, d, e}, "worker:none": nil,
			"id:" + c: {c}, "id:" + e + " id:" + a + " id:none id:" + e: {e, a},
			"id:" + a[:8] + "*":            {a, c, d, e},
			"id:" + e + " state:available": nil,
			"due.since:+30m":               {e}, "due.until:+30m": nil, "due.since:+30m due.until:+2h": {e},
			"since:1h": {a, c, d, e}, "until:1h": nil, "finished.since:1h": {a, c}, "args:tenant": nil,
			`args:"\"user\""`: {a, c, d},
			"order:newest":    {e, d, c, a}, "order:due": {e}, "order:claim": {d},
			"order:finished tag:vip":         {c, a},
			"state:cancelled order:finished": nil, "dead:true": {c},
		} {
			f, err := inspect.Parse(line, now)
			must(t, err)
			got := b.listed(f)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", line, got, want)
			}
			var paged []string
			for cursor, more := "", true; more; more = cursor != "" {
				page, err := b.Jobs().Page(b.ctx, f, cursor, 1)
				must(t, err)
				for _, job := range page.Jobs {
					paged = append(paged, job.ID)
				}
				cursor = page.Next
			}
			if !slices.Equal(paged, want) {
				t.Errorf("%s by pages: %v, want %v", line, paged, want)
			}
			if f.Order != "" {
				continue // counts ignore it
			}
			n, err := b.Jobs().Count(b.ctx, f, 0)
			must(t, err)
			if n.N != len(want) || !n.Exact {
				t.Errorf("%s: counted %+v, want %d", line, n, len(want))
			}
		}
		for by, want := range map[inspect.Facet][]inspect.FacetValue{
			inspect.FacetType: {{Value: "mail.send", N: 2}, {Value: "mail.bounce", N: 1},
				{Value: "mail.late", N: 1}},
			inspect.FacetQueue: {{Value: "default", N: 2}, {Value: "mail", N: 2}},
			inspect.FacetState: {{Value: "available", N: 1}, {Value: "completed", N: 1},
				{Value: "discarded", N: 1}, {Value: "scheduled", N: 1}},
			inspect.FacetError: {{Value: "smtp.refused", N: 1}},
		} {
			for _, f := range []inspect.Filter{{}, {Types: []string{"*"}}} {
				got, err := b.Jobs().Facets(b.ctx, f, by, 0)
				must(t, err)
				if !reflect.DeepEqual(got.Values, want) || !got.Exact {
					t.Errorf("%s: %+v, want %+v", by, got, want)
				}
			}
		}
		_, err := b.Jobs().Facets(b.ctx, inspect.Filter{}, "age", 0)
		wantInvalid(t, err, "facet")
		_, err = b.Jobs().Count(b.ctx, inspect.Filter{}, -1)
		wantInvalid(t, err, "look")
		_, err = b.Jobs().Count(b.ctx, inspect.Filter{Members: []inspect.Member{{Path: "x", Value: "y"}}}, 0)
		wantInvalid(t, err, "filter.members")
		_, err = b.Jobs().Page(b.ctx, inspect.Filter{IDs: []string{a}}, "<1", 1)
		wantInvalid(t, err, "cursor")
	}, engine.WithConcurrency(1)) // so that the jobs end one after the other
}

// A count that may not look at every job is a lower bound, and says so.
func TestCountIsALowerBound(t *testing.T) {
	inBubble(t, func(b *rig) {
		drafts := make([]ojs.Draft, 3000)
		for i := range drafts {
			drafts[i] = ojs.NewDraft("x", i, ojs.WithQueue(fmt.Sprint("q", i%2)))
		}
		_, err := b.EnqueueMany(b.ctx, drafts...)
		must(t, err)
		n, err := b.Jobs().Count(b.ctx, inspect.Filter{Attempt: &inspect.Range{}}, 1000)
		must(t, err)
		if n.N != 1000 || n.Exact || n.Looked != 1000 {
			t.Errorf("%+v", n)
		}
		n, err = b.Jobs().Count(b.ctx, inspect.Filter{Attempt: &inspect.Range{}}, 3000)
		must(t, err)
		if n.N != 3000 || !n.Exact {
			t.Errorf("%+v", n)
		}
		n, err = b.Jobs().Count(b.ctx, inspect.Filter{Queues: []string{"q1"}, Types: []string{"x"}}, 1)
		must(t, err)
		if n.N != 1500 || !n.Exact || n.Looked != 0 {
			t.Errorf("%+v", n)
		}
		page, err := b.Jobs().Page(b.ctx, inspect.Filter{Types: []string{"none"}}, "", 10)
		must(t, err)
		if page.Looked != 3000 || page.Next != "" || len(page.Jobs) != 0 {
			t.Errorf("%+v", page)
		}
	})
}

// FacetsBy agrees with Facets, and looks at the jobs once.
func TestFacetsByLooksOnce(t *testing.T) {
	looked := 0
	store := hooked(func(c *storagetest.Call) {
		if c.Method == "List" {
			c.Do()
			page, _ := c.Out.(storage.Page)
			looked += page.Looked
		}
	})
	inBubbleOn(t, store, func(b *rig) {
		b.Handle("x", func(context.Context, *ojs.Job[any]) error {
			return ojs.DeadLetter(ojs.Errorf("smtp.refused", "no"))
		})
		for i := range 30 {
			b.enqueue("x", ojs.WithQueue(fmt.Sprint("q", i%3)))
		}
		b.run()
		must(t, b.WaitIdle(b.ctx))
		b.halt()
		by := []inspect.Facet{inspect.FacetState, inspect.FacetError, inspect.FacetType, inspect.FacetQueue}
		for _, f := range []inspect.Filter{{DeadLettered: true}, {}, {Queues: []string{"q1"}}} {
			looked = 0
			list, err := b.Jobs().FacetsBy(b.ctx, f, 0, by...)
			must(t, err)
			if looked > 30 {
				t.Errorf("%v: %d jobs looked at, of 30", f, looked)
			}
			for i, facet := range by {
				if want := must1(b.Jobs().Facets(b.ctx, f, facet, 0)); !reflect.DeepEqual(list[i], want) {
					t.Errorf("%v by %s: %+v, want %+v", f, facet, list[i], want)
				}
			}
			n := must1(b.Jobs().Count(b.ctx, f, 0))
			if got := list[0].Count(); got != n {
				t.Errorf("%v: counted %+v, want %+v", f, got, n)
			}
		}
	})
}

// Due reads the entries that are due, and no other.
func TestCronDueReadsDueEntries(t *testing.T) {
	listed := false
	store := hooked(func(c *storagetest.Call) { listed = listed || c.Method == "Documents cron" })
	inBubbleOn(t, store, func(b *rig) {
		entries := make([]cron.Entry, 600)
		for i := range entries {
			entries[i] = cron.Entry{Name: fmt.Sprintf("e%03d", i), Schedule: "@hourly",
				Job: ojs.NewDraft("x", nil), Paused: i%2 == 0}
			if i > 580 {
				entries[i].Schedule = "@yearly"
			}
		}
		must(t, b.Cron().Set(b.ctx, entries...))
		listed = false
		at := b.start.Add(2 * time.Hour)
		due, err := b.Cron().Due(b.ctx, at)
		must(t, err)
		if len(due) != 290 || due[0].Name != "e001" || listed {
			t.Errorf("%d entries are due; all were listed: %v", len(due), listed)
		}
		for _, e := range due {
			if e.Paused || e.NextRun.IsZero() || e.NextRun.After(at) {
				t.Errorf("%+v is due", e)
			}
		}
	})
}
