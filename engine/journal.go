package engine

import (
	"time"

	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/storage"
)

// The journal. A call of the storage that changes jobs goes through these steps:
//
//  1. An operation of the event log begins. It is nil if no listener wants its events.
//  2. The storage is called.
//  3. If the call has failed, abort ends the operation without events. The call may have
//     changed the jobs all the same: waiters look, and claims and deadlines are repeated.
//  4. Otherwise record publishes the events of the change, and then those of the jobs
//     that the ends of others have moved.
//  5. The caller logs, counts and wakes, for these jobs by dependentsMoved.
//
// So nothing is told that was not stored, and an event comes before what it allows.

// abort makes step 3. It returns err.
func (c *core) abort(op *eventlog.Op, err error) error {
	op.End()
	c.uncertain(err)
	return err
}

// record makes step 4 for a call that was made at now. tell hands in the events of the
// change, if a listener may want them.
func (c *core) record(op *eventlog.Op, now time.Time, moved []storage.Record, tell func(*eventlog.Op)) {
	c.answered()
	if op == nil && len(moved) > 0 && c.events.Listening() {
		op = c.events.Begin(eventlog.Ends) // late: nothing has said that others would move
	}
	if op != nil {
		tell(op)
		c.dependentEvents(op, moved, now)
		op.End()
	}
}
