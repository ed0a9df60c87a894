package keyed

import (
	"cmp"
	"context"

	"github.com/ojsengine/ojs/storage"
)

// Handles that are found dead. A process that is killed leaves active jobs, whose leases
// may last for long. The program may know earlier that the process is gone, from a lock
// that the operating system has released.
//
//  1. Enter gives the storage a name in the table handle. From then on the jobs that it
//     claims, or that Due hands over to it, note the number of the handle. A job that is
//     claimed for a worker elsewhere notes none.
//  2. Bury takes a name out of the table, and its active jobs are due at any time. Due
//     hands them over, and names them in storage.Due.Ended.
//  3. Leave takes out a name of which nothing is known: its jobs wait for their leases.

func handleKey(name string) key { return newKey(handleTable).text(name) }

// Enter enters the storage under a name that no other handle of the store has.
func (s *Storage) Enter(ctx context.Context, name string) error {
	n, err := change(ctx, s, func(t *tx) int64 { return t.enterHandle(name) })
	if err == nil {
		s.handle.Store(n)
	}
	return err
}

// enterHandle returns the number of a handle, which it enters if it is not there.
func (t *tx) enterHandle(name string) int64 {
	n := cmp.Or(t.number(handleKey(name)), t.next(placeName))
	t.putNumber(handleKey(name), n)
	return n
}

// Handles returns the names of the handles that have entered and have not left.
func (s *Storage) Handles(ctx context.Context) ([]string, error) {
	return view(ctx, s, func(t *tx) (names []string) {
		for name := range t.scan(newKey(handleTable), nil) {
			names = append(names, string(name))
		}
		return names
	})
}

// Leave takes the name of a handle out of the store.
func (s *Storage) Leave(ctx context.Context, name string) error {
	return s.do(ctx, func(t *tx) { t.delete(handleKey(name)) })
}

// Bury has the active jobs of a handle come due as if their leases had run out. Its
// process must have ended. Bury reports false if the handle has left.
func (s *Storage) Bury(ctx context.Context, name string) (bool, error) {
	return change(ctx, s, func(t *tx) bool {
		n := t.number(handleKey(name))
		if n == 0 {
			return false
		}
		t.delete(handleKey(name))
		for _, v := range t.claims() {
			if j := t.load(v[:numberLen]); j.handle == n {
				t.attempt(j, false, func(*storage.Record) { j.flags |= buried })
			}
		}
		return true
	})
}
