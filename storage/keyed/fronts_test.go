package keyed_test

import (
	"fmt"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed"
)

// The reads of a claim do not depend on how many queues and types have jobs.
func TestClaimsAmongManyBacklogs(t *testing.T) {
	of := map[string]func(i int, r *storage.Record){
		"queues": func(i int, r *storage.Record) { r.Queue = fmt.Sprint("q", i) },
		"types":  func(i int, r *storage.Record) { r.Type = fmt.Sprint("t", i) },
	}
	claims := map[string]storage.Claim{
		"of all queues":      {},
		"of a queue":         {Queues: []string{"q", "q0"}},
		"of types":           {Types: []string{"x", "t0", "t5@>=0"}},
		"of a queue's types": {Queues: []string{"q"}, Types: []string{"x", "t0", "t1"}},
	}
	for many, where := range of {
		for _, n := range []int{10, 10_000} {
			w := openLanes(t)
			var batch []storage.Insert
			for i := range 2 * n {
				batch = append(batch, w.job(ojs.RateLimit{}, func(r *storage.Record) { where(i%n, r) }))
			}
			w.insert(batch...)
			for name, q := range claims {
				cost := w.of(func() {
					for range 5 {
						q.Max = 1
						recs := must(w.Claim(t.Context(), w.now, q, nil))(t)
						w.complete(recs...)
					}
				})
				t.Logf("%d %s, 5 claims %s: %+v", n, many, name, cost)
				if cost.reads > 400 || cost.pairs > 700 || cost.writes > 200 {
					t.Errorf("%d %s: claims %s cost %+v", n, many, name, cost)
				}
			}
			for range 50 { // they leave fronts behind
				must(w.Claim(t.Context(), w.now, storage.Claim{Max: 1}, nil))(t)
			}
			cost := w.of(func() { must(w.Claim(t.Context(), w.now, storage.Claim{Max: 1}, nil))(t) })
			if cost.reads > 80 {
				t.Errorf("%d %s: a late claim costs %+v", n, many, cost)
			}
			keyed.CheckFronts(t, w.Storage)
		}
	}
}

// A claim that finds less than it wants looks at no backlog whose jobs wait for limits.
func TestClaimsAmongHeldBacklogs(t *testing.T) {
	w := openLanes(t)
	var batch []storage.Insert
	for i := range 1000 {
		batch = append(batch, w.job(once("k", ojs.NoneAtOnce), func(r *storage.Record) {
			r.Queue = fmt.Sprint("q", i)
		}))
	}
	w.insert(batch...)
	claim := func() {
		if recs := must(w.Claim(t.Context(), w.now, storage.Claim{Max: 1}, nil))(t); len(recs) > 0 {
			t.Errorf("claimed %v", recs)
		}
	}
	claim()
	if cost := w.of(claim); cost.reads > 30 || cost.pairs > 50 {
		t.Errorf("a claim costs %+v", cost)
	}
}

// A claim goes on when what it takes ends the fronts.
func TestClaimThatEndsFronts(t *testing.T) {
	w := openLanes(t)
	keyed.KeepFronts(w.Storage, 1)
	limit := storage.LimitName{Kind: storage.LimitQueue, Name: "q0"}
	must(0, w.SetLimit(t.Context(), w.now, limit, ojs.RateLimit{Concurrency: 5}, w.now.AddDate(1, 0, 0)))(t)
	var batch []storage.Insert
	for i := range 3 {
		in := w.job(ojs.RateLimit{})
		in.Record.Queue = fmt.Sprint("q", i)
		batch = append(batch, in)
	}
	w.insert(batch...)
	keyed.CheckFronts(t, w.Storage)
	keyed.KeepFronts(w.Storage, 16)
	if recs := must(w.Claim(t.Context(), w.now, storage.Claim{Max: 3}, nil))(t); len(recs) != 3 {
		t.Errorf("claimed %d of 3 jobs", len(recs))
	}
}
