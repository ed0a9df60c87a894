package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage/memory"
)

// BenchmarkLook measures pages, counts and facets on 1,000,000 jobs, of which few match.
// It reports the median and the 99th percentile in ms. A read of one job, for comparison,
// is first.
func BenchmarkLook(b *testing.B) {
	eng, err := engine.New[any](memory.New(), quiet)
	if err != nil {
		b.Fatal(err)
	}
	drafts := make([]ojs.Draft, 1000)
	for n := range 1000 {
		for i := range drafts {
			drafts[i] = ojs.NewDraft(fmt.Sprint("type", i%10), map[string]int{"user": n*1000 + i},
				ojs.WithQueue(fmt.Sprint("q", i%7)))
		}
		if _, err := eng.EnqueueMany(b.Context(), drafts...); err != nil {
			b.Fatal(err)
		}
	}
	measure := func(b *testing.B, look func() error) {
		var took []time.Duration
		for b.Loop() {
			begin := time.Now()
			if err := look(); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
	}
	ticket, err := eng.Enqueue(b.Context(), "type1", nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("get", func(b *testing.B) {
		measure(b, func() error { _, err := eng.Get(b.Context(), ticket.ID); return err })
	})
	for _, line := range []string{"", "type:none", "args.user:-1", "type:type1 order:newest"} {
		f, err := inspect.Parse(line, time.Time{})
		if err != nil {
			b.Fatal(err)
		}
		for name, look := range map[string]func() error{
			"page":  func() error { _, err := eng.Jobs().Page(b.Context(), f, "", 50); return err },
			"count": func() error { _, err := eng.Jobs().Count(b.Context(), f, 0); return err },
			"facets": func() error {
				_, err := eng.Jobs().Facets(b.Context(), f, inspect.FacetType, 0)
				return err
			},
		} {
			b.Run(name+" "+line, func(b *testing.B) { measure(b, look) })
		}
	}
}
