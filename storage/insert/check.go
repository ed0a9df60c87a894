package insert

import (
	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
)

// Plain reports whether no job of a batch is unique, waits for others or goes into a
// bounded queue. The lookups of such a batch are States and Draining.
func Plain(batch []storage.Insert) bool {
	for i := range batch { // a copy of each would cost more than the rest
		if in := &batch[i]; in.MaxDepth > 0 || in.Waits() || len(in.AwaitedBy) > 0 ||
			in.Record.Fingerprint != "" && in.Record.Unique != nil {
			return false
		}
	}
	return true
}

// Check refuses a batch with a job whose state is not one to begin in, whose id is stored
// (stored has the states), or whose id an earlier job of the batch has.
func Check(batch []storage.Insert, stored map[string]ojs.State) error {
	if err := storage.CheckBegin(batch); err != nil {
		return err
	}
	var ids map[string]struct{}
	for i := 1; i < len(batch) && ids == nil; i++ {
		if batch[i].Record.ID <= batch[i-1].Record.ID { // those of an engine come in order, and none twice
			ids = make(map[string]struct{}, len(batch))
		}
	}
	for i := range batch {
		r := &batch[i].Record
		if state, ok := stored[r.ID]; ok {
			return &ojs.DuplicateError{ID: r.ID, State: state}
		}
		if ids != nil {
			if _, twice := ids[r.ID]; twice {
				return &ojs.DuplicateError{ID: r.ID, State: r.State}
			}
			ids[r.ID] = struct{}{}
		}
	}
	return storage.CheckDependsOn(batch)
}

// Refused reports whether an error of Batch or Then is about the batch. Other errors are
// those of the transaction.
func Refused(err error) bool {
	var duplicate *ojs.DuplicateError
	var queue *ojs.QueueError
	return foreign.Is(err, ojs.ErrInvalid) || foreign.As(err, &duplicate) || foreign.As(err, &queue) ||
		foreign.Is(err, ojs.ErrDependency)
}
