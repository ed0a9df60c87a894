package admission

import (
	"context"
	"slices"

	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/storage"
)

// LoadHolds reads the pauses of types and of everything, and has the gate obey. It
// reports whether the pause of everything has ended. It is called when Run begins and
// when the storage tells that values have changed. Calls take turns, so that none puts
// what it has read before a change in the place of what another has read after it.
func (c *Admission) LoadHolds(ctx context.Context) (resumed bool, err error) {
	select {
	case c.Gate.holding <- struct{}{}:
		defer func() { <-c.Gate.holding }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	list, err := c.Jobs.Pauses(ctx)
	if err != nil {
		return false, err
	}
	c.hold(func(h *holds) {
		was := h.types[""]
		h.types = make(map[string]bool)
		for _, p := range list {
			h.types[p.Type] = true
		}
		resumed = was && !h.types[""]
	})
	return resumed, nil
}

// AllPaused reports whether everything is paused.
func (c *Admission) AllPaused() bool {
	c.Gate.mu.Lock()
	defer c.Gate.mu.Unlock()
	return c.Gate.holds.types[""]
}

// holds is what operators keep from being claimed.
type holds struct {
	quiet bool            // all that this engine would run
	types map[string]bool // jobs of types; "": everything
}

func (h *holds) any() bool { return h.quiet || len(h.types) > 0 }

// open reports whether a claimer may claim at all, and takes the types that are held out
// of its list. A claimer of all types names none.
func (h *holds) open(w *Wanted, ask *storage.Claim) bool {
	if h.types[""] || h.quiet && !w.Lapses {
		return false
	}
	if len(h.types) == 0 || w.All {
		return true
	}
	ask.Types = slices.DeleteFunc(slices.Clone(ask.Types), func(name string) bool {
		return h.types[versions.Name(name)]
	})
	return len(ask.Types) > 0
}

// hold changes what is held. Jobs that were claimed ahead go back, and claims look again.
func (c *Admission) hold(change func(*holds)) {
	g := c.Gate
	g.mu.Lock()
	before := g.holds.any()
	change(&g.holds)
	after := g.holds.any()
	g.plain.Store(!g.looksAfterEach && !after)
	g.mu.Unlock()
	if !before && !after {
		return
	}
	if after {
		c.ReturnClaimed()
	}
	c.Available(env.Unknown)
}
