// Package depend makes jobs wait for other jobs and for their turns, as [storage.Insert]
// says of DependsOn, AwaitedBy and OrderingKey. A storage implements the few lookups of
// [Tx], and calls the functions inside a transaction.
//
// storage/memory, storage/keyed and storage/postgres do it this way.
package depend

import (
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// End is the end of a job that others may wait for.
type End struct {
	Seq   int64 // number of the job in the storage
	ID    string
	State ojs.State
	Line  string // its ordering key, for the storage's own use
}

// Tx is a transaction of a storage. J is a job as the transaction has changed it, and
// shows the changes that are made through it. Methods may return several J for one job:
// after a change through one of them, the package uses no other that it has. No other
// caller may change the jobs meanwhile.
//
// The methods return no errors. If a lookup of a storage fails, the storage keeps the
// error and rolls the transaction back after the call. Until then its methods may return
// anything that lets the call end: Take no jobs, and First none.
type Tx[J any] interface {
	// Ends is the list of the jobs that the transaction has ended and that are not
	// counted, in the order in which they ended. Jobs that no other waits for and that
	// are in no line may be left out. A new job with AwaitedBy that its batch has
	// replaced must be there. Change appends to the list, also while Count goes through
	// it. Count empties it.
	Ends() *[]End

	// Take removes the edges from the first of some ends. It returns the jobs that the
	// edges led to, in the order of insertion, and the key of the line that the ended
	// job was in, "" if none. Count skips jobs that are not pending. The list of jobs is
	// valid until the next Take. The further ends are counted next, so that Take may
	// read for all of them at once.
	Take(ends []End) (waiting []J, line string)

	// First returns the first job in the line of a key, unless a job has the turn. Count
	// then gives that job the turn by Change. A storage may note the turn in First: Count
	// does not ask again before Change.
	First(key string) (first J, some bool)

	// Change counts a step for a job that is pending and waits. If the job moves by
	// that, Change makes the transition, adds the job to Ends if it has ended, and
	// appends it to moved. A change of the counts alone leaves the version as it is.
	Change(j J, by Step, moved []storage.Record) []storage.Record

	// Find returns a job of the batch, or one that a job of the batch names in DependsOn.
	// Both are stored.
	Find(id string) J

	// State returns the state of a job.
	State(j J) ojs.State

	// Waiter returns the job with an id if it is stored, pending, and waits for others.
	// It is asked for the ids in AwaitedBy, which are not of the batch.
	Waiter(id string) (j J, some bool)

	// Enter notes that jobs of a batch wait: the added ones that have DependsOn or an
	// OrderingKey. The pending ones with a key enter its line. Await calls
	// it once, after the edges of AwaitedBy are made and before an end is counted.
	Enter(batch []storage.Insert, added func(i int) bool)

	// Edge makes an edge from a job to one that waits for it. The first has not ended, or
	// its end is in Ends.
	Edge(from, to J)
}

// Step is what is counted for a job that waits: a job that has ended, its turn, or a new
// job to wait for.
type Step struct {
	kind kind
	now  time.Time
	end  End
}

type kind uint8

const (
	ended kind = iota
	turned
	awaits
)

// Count counts the step in the Dependencies of a job, and reports whether the job moves
// by that.
func (s *Step) Count(r *storage.Record) (moves bool) {
	switch s.kind {
	case ended:
		r.Count(s.end.State)
	case turned:
		r.Turn()
	default:
		r.WaitsMore()
		return false
	}
	return r.Decided()
}

// Move makes the transition of a job that moves by the step, after Count.
func (s *Step) Move(r *storage.Record) { r.Resolve(s.now, s.end.ID, s.end.State) }

// Count counts the ends of the transaction, and the ends that follow from them. It
// appends the jobs that move to moved.
func Count[J any](tx Tx[J], now time.Time, moved []storage.Record) []storage.Record {
	ends := tx.Ends()
	for i := 0; i < len(*ends); i++ {
		end := (*ends)[i]
		waiting, line := tx.Take((*ends)[i:])
		for _, j := range waiting {
			if tx.State(j) == ojs.StatePending {
				moved = tx.Change(j, Step{now: now, end: end}, moved)
			}
		}
		moved = turn(tx, now, line, moved)
	}
	clear(*ends)
	*ends = (*ends)[:0]
	return moved
}

// turn gives the turn of a key to the first job in line, unless a job has it.
func turn[J any](tx Tx[J], now time.Time, key string, moved []storage.Record) []storage.Record {
	if key == "" {
		return moved
	}
	if first, some := tx.First(key); some {
		moved = tx.Change(first, Step{kind: turned, now: now}, moved)
	}
	return moved
}

// Await makes the jobs of a batch that were added wait for others and for their turns,
// and others for them. It counts all ends, and returns the jobs that move.
func Await[J any](
	tx Tx[J], now time.Time, batch []storage.Insert, added func(i int) bool,
) []storage.Record {
	for i := range batch {
		if len(batch[i].AwaitedBy) == 0 || !added(i) {
			continue
		}
		j := tx.Find(batch[i].Record.ID)
		for _, id := range batch[i].AwaitedBy {
			if w, some := tx.Waiter(id); some {
				tx.Change(w, Step{kind: awaits}, nil)
				tx.Edge(j, w)
			}
		}
	}
	return wait(tx, now, batch, added)
}

// Revive makes the jobs of a storage.GroupStore.Revive, which are stored anew, wait for
// others and for their turns. It returns the jobs that move.
func Revive[J any](tx Tx[J], now time.Time, batch []storage.Insert) []storage.Record {
	return wait(tx, now, batch, func(int) bool { return true })
}

func wait[J any](
	tx Tx[J], now time.Time, batch []storage.Insert, added func(i int) bool,
) []storage.Record {
	tx.Enter(batch, added)
	moved := Count(tx, now, nil)
	for i := range batch {
		in := &batch[i]
		if !in.Waits() || !added(i) {
			continue
		}
		j := tx.Find(in.Record.ID)
		for _, id := range in.DependsOn {
			if tx.State(j) != ojs.StatePending { // it was replaced, or what has ended decides
				break
			}
			other := tx.Find(id)
			if state := tx.State(other); state.Terminal() {
				moved = tx.Change(j, Step{now: now, end: End{ID: id, State: state}}, moved)
			} else {
				tx.Edge(other, j)
			}
		}
		moved = Count(tx, now, moved)
		moved = Count(tx, now, turn(tx, now, in.OrderingKey, moved))
	}
	return moved
}
