package memory

import (
	"iter"
	"slices"
	"time"

	"github.com/ojsengine/ojs/internal/cursor"
)

// maxReady bounds the available jobs that a listing in the order of claims has: each page
// walks to its place from the first of them.
const maxReady = 10_000

// byClaim goes through the available jobs in the order storage.OrderClaim.
func (r *ready) byClaim(w *cursor.Walk) iter.Seq2[cursor.Position, *job] {
	return func(yield func(cursor.Position, *job) bool) {
		r.bringBack(time.Time{})
		var levels heap[*levelHead]
		for _, q := range r.queues {
			for l := range q.lists() {
				levels.push(&levelHead{job: l.head})
			}
		}
		place := func(j *job) cursor.Position {
			return cursor.Position{-int64(j.priority), int64(j.stands()), int64(j.place)}
		}
		passed := func(at cursor.Position) bool { return slices.Compare(at[:], w.From.After[:]) <= 0 }
		var before []*job // the cursor of a walk back
	walk:
		for range maxReady {
			if levels.len() == 0 {
				break
			}
			head := levels.items[0]
			j := head.job
			if head.job = j.next; head.job == nil {
				levels.remove(0)
			} else {
				levels.fix(0)
			}
			switch at := place(j); {
			case w.From.Back && !passed(at):
				break walk
			case w.From.Back:
				before = append(before, j)
			case (w.First || !passed(at)) && !yield(at, j):
				return
			}
		}
		for _, j := range slices.Backward(before) {
			if !yield(place(j), j) {
				return
			}
		}
	}
}

// levelHead is the first job of a level that has not been passed.
type levelHead struct{ job *job }

func (h *levelHead) before(k *levelHead) bool { return comesBefore(h.job, k.job) }
func (h *levelHead) moved(int)                {} // only the first of the heap is changed
