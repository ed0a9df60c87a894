package env

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/locks"
)

// maxGone bounds the jobs that are known to be gone: half a megabyte.
const maxGone = 1 << 16

// Gone are the jobs that the engine deleted last, as hashes of their ids: a lookup of one
// of them says so, and not that there never was such a job.
type Gone struct {
	mu   locks.Mutex // guards the fields below
	seed maphash.Seed
	ids  []uint64 // a ring once there are maxGone
	next int
}

// Add records that jobs were deleted.
func (g *Gone) Add(ids ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ids == nil {
		g.seed = maphash.MakeSeed()
	}
	for _, id := range ids {
		h := maphash.String(g.seed, id)
		if len(g.ids) < maxGone {
			g.ids = append(g.ids, h)
			continue
		}
		g.ids[g.next] = h
		g.next = (g.next + 1) % maxGone
	}
}

// has looks at all of them: such lookups are rare, and keeping an index would slow down
// every deletion.
func (g *Gone) has(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.ids) > 0 && slices.Contains(g.ids, maphash.String(g.seed, id))
}

// Missing is the error of a lookup that failed with err: if no job has the id, it says
// whether there was one, as far as it is known.
func (c *Env) Missing(id string, err error) error {
	switch {
	case !foreign.Is(err, ojs.ErrNotFound), foreign.Is(err, ojs.ErrQuarantined):
		return err
	case c.Gone.has(id):
		return &ojs.PrunedError{ID: id}
	}
	return fmt.Errorf("%w: no job has the id %q: it never had, or the job has ended and was deleted some time ago (ojs.WithResultTTL keeps jobs for longer), or its transaction is not committed",
		ojs.ErrNotFound, id)
}
