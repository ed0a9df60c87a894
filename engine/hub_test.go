package engine

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
)

// However the publishing of transitions interleaves, those of one job come out in order, and all of them do.
func TestHubOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h hub
		sub := h.subscribe(EventFilter{Buffer: 10_000})
		type op struct {
			n      uint64
			effect bool
			job    int
			v      uint64
		}
		var ops []*op
		versions := make([]uint64, 3) // of the jobs, as the storage has them
		finish := func(i int) {
			o := ops[i]
			ops = append(ops[:i], ops[i+1:]...)
			if !o.effect {
				h.end(o.n)
				return
			}
			id := fmt.Sprint(o.job)
			job := &ojs.JobInfo{JobHeader: ojs.JobHeader{ID: id, Attempt: int(o.v)}}
			h.end(o.n, &batch{id: id, version: o.v, events: []ojs.Event{{Type: ojs.EventStarted, Job: job}, {Type: ojs.EventCompleted, Job: job}}})
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) { ops = append(ops, &op{n: h.begin()}) },
			"effect": func(t *rapid.T) { // in the storage: atomic, in some order
				if len(ops) == 0 {
					return
				}
				o := ops[rapid.IntRange(0, len(ops)-1).Draw(t, "op")]
				if !o.effect {
					o.effect, o.job = true, rapid.IntRange(0, len(versions)-1).Draw(t, "job")
					versions[o.job]++
					o.v = versions[o.job]
				}
			},
			"end": func(t *rapid.T) {
				if len(ops) > 0 {
					finish(rapid.IntRange(0, len(ops)-1).Draw(t, "op"))
				}
			},
		})
		for len(ops) > 0 {
			finish(len(ops) - 1)
		}
		sub.Close()
		seen := make([]uint64, len(versions))
		for ev := range sub.C() {
			var job int
			if _, err := fmt.Sscan(ev.Job.ID, &job); err != nil {
				t.Fatal(err)
			}
			want := seen[job] + 1
			if ev.Type == ojs.EventCompleted {
				seen[job]++
			}
			if uint64(ev.Job.Attempt) != want {
				t.Fatalf("job %d: version %d came where %d belongs", job, ev.Job.Attempt, want)
			}
		}
		for job := range versions {
			if seen[job] != versions[job] {
				t.Fatalf("job %d: %d of %d transitions published", job, seen[job], versions[job])
			}
		}
	})
}
