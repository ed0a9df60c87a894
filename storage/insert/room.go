package insert

import (
	"cmp"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// overflow is a bounded queue that has no room for a batch.
type overflow struct {
	queue    string
	excess   int // jobs to drop
	maxDepth int // of the job at last
	last     int // position in the batch of the last job without room, whose result has the dropped jobs
}

// makeRoom finds the bounded queues that the batch overfills. It drops their oldest jobs,
// or refuses the batch.
func (b *inserting) makeRoom() error {
	stored, err := b.depths()
	if err != nil {
		return err
	}
	added := make(map[string]int) // by queue: jobs of the batch that wait
	var full []*overflow
	for i := range b.batch {
		in := &b.batch[i]
		q := in.Record.Queue
		if b.added[i] == nil || b.added[i].State.Terminal() {
			continue
		}
		added[q]++
		over := stored[q] + added[q] - in.MaxDepth
		if in.MaxDepth == 0 || over <= 0 {
			continue
		}
		if !in.DropOldest {
			return &ojs.QueueError{Queue: q, MaxDepth: in.MaxDepth, Err: ojs.ErrQueueFull}
		}
		at := slices.IndexFunc(full, func(o *overflow) bool { return o.queue == q })
		if at < 0 {
			at = len(full)
			full = append(full, &overflow{queue: q})
		}
		full[at].excess, full[at].maxDepth, full[at].last = max(full[at].excess, over), in.MaxDepth, i
	}
	slices.SortFunc(full, func(x, y *overflow) int { return cmp.Compare(x.last, y.last) })
	for _, o := range full {
		if err := b.drop(o); err != nil {
			return err
		}
		stored[o.queue] -= o.excess
	}
	for i := range b.batch {
		if b.batch[i].MaxDepth > 0 {
			q := b.batch[i].Record.Queue
			b.results[i].Depth = stored[q] + added[q]
		}
	}
	return nil
}

// depths returns how many stored jobs of each bounded queue have not ended once the
// change before the batch is made and its replacements are saved.
func (b *inserting) depths() (map[string]int, error) {
	var bounded []string
	for i := range b.batch {
		if b.batch[i].MaxDepth > 0 {
			bounded = append(bounded, b.batch[i].Record.Queue)
		}
	}
	slices.Sort(bounded) // a lookup may lock, and all transactions must lock in the same order
	depths := make(map[string]int)
	for _, q := range slices.Compact(bounded) {
		n, err := b.tx.Depth(q)
		if err != nil {
			return nil, err
		}
		for _, j := range b.changed {
			if j.Seq != 0 && j.Queue == q && j.State.Terminal() {
				n--
			}
		}
		if b.ended != nil && b.ended.Queue == q {
			n--
		}
		depths[q] = n
	}
	return depths, nil
}

// drop ends the oldest stored jobs of a queue that the batch overfills.
func (b *inserting) drop(o *overflow) error {
	changed := make([]string, len(b.changed))
	for i, j := range b.changed {
		changed[i] = j.ID
	}
	if b.ended != nil {
		changed = append(changed, b.ended.ID)
	}
	oldest, err := b.tx.Oldest(o.queue, b.now, o.excess, changed)
	if err != nil {
		return err
	}
	if len(oldest) < o.excess {
		return &ojs.QueueError{Queue: o.queue, MaxDepth: o.maxDepth, Err: ojs.ErrQueueFull}
	}
	for _, j := range oldest {
		b.end(j, func(r *storage.Record) { r.Drop(b.now) })
		b.results[o.last].Dropped = append(b.results[o.last].Dropped, j.Copy())
	}
	return nil
}
