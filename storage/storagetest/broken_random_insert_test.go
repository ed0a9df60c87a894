package storagetest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// bounding changes the bounds of a batch, and leaves what the call says of depths as it
// should be.
func bounding(f func(d *doctored, batch []storage.Insert)) func(*doctored) {
	return func(d *doctored) {
		d.insert = func(d *doctored, now time.Time, batch []storage.Insert) ([]storage.Inserted, error) {
			bounded := slices.Clone(batch)
			f(d, bounded)
			out, err := d.Reference.Insert(context.Background(), now, bounded, nil)
			for i := range out {
				if out[i].Depth = 0; batch[i].MaxDepth > 0 {
					out[i].Depth = d.depth(batch[i].Record.Queue)
				}
			}
			return out, err
		}
	}
}

// onlyOne leaves of the bounds of each queue in a batch the one that better prefers.
func onlyOne(better func(a, b int) bool) func(*doctored, []storage.Insert) {
	return func(_ *doctored, batch []storage.Insert) {
		keep := make(map[string]int)
		for i, in := range batch {
			if k, ok := keep[in.Record.Queue]; in.MaxDepth > 0 && (!ok || better(i, k)) {
				keep[in.Record.Queue] = i
			}
		}
		for i := range batch {
			if k, ok := keep[batch[i].Record.Queue]; ok && k != i {
				batch[i].MaxDepth = 0
			}
		}
	}
}

// forgetting is a depth that leaves a state out.
func forgetting(s ojs.State) func(*doctored) {
	return bounding(func(d *doctored, batch []storage.Insert) {
		for i := range batch {
			for _, j := range d.jobs {
				if batch[i].MaxDepth > 0 && j.rec.Queue == batch[i].Record.Queue && j.rec.State == s {
					batch[i].MaxDepth++
				}
			}
		}
	})
}

// Storages that are wrong about bounded queues and equal jobs.
var _ = registerRandom([]randomFault{
	{
		"of several bounds of one queue the last counts", "insert-13",
		bounding(onlyOne(func(a, b int) bool { return a > b })),
	},
	{
		"of several bounds of one queue the first counts", "insert-7",
		bounding(onlyOne(func(a, b int) bool { return a < b })),
	},
	{"scheduled jobs are not in the depth", "insert-7", forgetting(ojs.StateScheduled)},
	{"pending jobs are not in the depth", "insert-8", forgetting(ojs.StatePending)},
	{"retryable jobs are not in the depth", "insert-12", forgetting(ojs.StateRetryable)},
	{"active jobs are not in the depth", "insert-8", forgetting(ojs.StateActive)},
	{"of equal jobs of one time the first inserted is the newest", "unique-9", func(d *doctored) {
		d.insert = func(d *doctored, now time.Time, batch []storage.Insert) ([]storage.Inserted, error) {
			slices.Reverse(d.jobs)
			out, err := d.Reference.Insert(context.Background(), now, batch, nil)
			slices.SortFunc(d.jobs, func(a, b *refJob) int { return cmp.Compare(a.inserted, b.inserted) })
			return out, err
		}
	}},
})

// Storages whose versions fall for an id that is deleted and made anew.
var _ = registerRandom([]randomFault{
	{
		"the floor of versions is that of the first of the jobs deleted together",
		"settle-12",
		func(d *doctored) {
			d.gone = func(d *doctored, floor uint64, deleted []*refJob) {
				d.floor = max(floor, deleted[0].rec.Version)
			}
		},
	},
	{
		"the floor of versions is lost at Reopen",
		"durable-3",
		func(d *doctored) { d.reopen = func(d *doctored) { d.floor = 0 } },
	},
})
