package admission

import (
	"testing"
	"time"

	"github.com/ojsengine/ojs/engine/internal/jobtypes"
)

// A storage that can tell that this process has ended takes away what ends with it, and
// leaves what workers elsewhere go on with.
func TestRemoteClaims(t *testing.T) {
	g := NewGate(&jobtypes.QueueSet{})
	for _, lapses := range []bool{false, true} {
		if c, _, _, _ := g.ask(Wanted{All: true, Lapses: lapses}, time.Now()); c.Remote != lapses {
			t.Errorf("a claim of a worker elsewhere (%v) says %v", lapses, c.Remote)
		}
	}
}

// A claim that fails leaves what weighted queues are owed as it was.
func TestFailedClaimOwesNothing(t *testing.T) {
	g := NewGate(&jobtypes.QueueSet{})
	g.queues = []*queueGate{{name: "a", weight: 3}, {name: "b", weight: 1}}
	for range 5 {
		g.takeBack(g.order(time.Now(), func(time.Time) {}))
	}
	for _, q := range g.queues {
		if q.credit != 0 {
			t.Errorf("after claims that failed queue %s is owed %d", q.name, q.credit)
		}
	}
}
