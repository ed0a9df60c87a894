// Package journal makes calls of a storage that move jobs, and then tells listeners and
// waiters of the change. Calls without events of moved jobs bypass it: Delete, Prune,
// Unclaim.
//
// # Invariants
//
//  1. The operation of the event log begins before the call if a listener wants events of
//     the call itself. For jobs that the call has moved only, it begins after the call.
//     It ends after both, also if the call fails: then without events.
//  2. A call that has failed may have changed the jobs all the same: Uncertain follows.
//  3. No event and no wake-up tells of what was not stored.
//  4. Events come before what they allow: logs, counters and wake-ups follow them. If
//     the ends of jobs have moved others, the events of these come last.
package journal

import (
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/storage"
)

// Journal makes calls. It is safe for concurrent use, and has no lock.
type Journal struct {
	Log       *eventlog.Log
	Uncertain func(err error) // follows a call that has failed
	Answered  func()          // follows a call that has not

	// Tell hands in the events of jobs that the ends of others have moved, Follow does
	// the rest for them.
	Tell   func(op *eventlog.Op, moved []storage.Record)
	Follow func(moved []storage.Record)
}

// Do makes a call. op has begun for it, and is nil if no listener wants its events. The
// call returns the jobs that the ends of others have moved. tell hands in the events of
// the call itself, if a listener may want them. follow does the rest; nil: there is none.
func (j *Journal) Do(op *eventlog.Op, call func() (moved []storage.Record, err error),
	tell func(op *eventlog.Op), follow func()) error {
	moved, err := call()
	if err != nil {
		op.End()
		j.Uncertain(err)
		return err
	}
	j.Answered()
	if op == nil && len(moved) > 0 && j.Log.Listening() {
		op = j.Log.Begin(eventlog.Ends) // late: nothing has said that others would move
	}
	if op != nil {
		tell(op)
		j.Tell(op, moved)
		op.End()
	}
	if follow != nil {
		follow()
	}
	j.Follow(moved)
	return nil
}
