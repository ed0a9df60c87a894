package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/storage"
)

// Pauses of job types, and of everything, are values of the storage. An engine reads them
// when Run begins and when the storage tells that values have changed, and its gate then
// leaves out what is paused:
//
//   - pause/all: no engine on the storage claims jobs;
//   - pause/type/TYPE: no handler of the type gets jobs.

const (
	pausePrefix = "pause/"
	pauseAll    = pausePrefix + "all"
	pauseType   = pausePrefix + "type/"
)

// Pause is a pause of a job type or of everything.
type Pause struct {
	Type   string // "": every type, of every queue
	By     string // the name of who did it (ojs.WithActor)
	Reason string
	At     time.Time
}

// PauseType stops deliveries of jobs of a type, in all queues and for every engine on the
// storage: its handlers get none until ResumeType. Running jobs go on, and jobs of the
// type may be enqueued. An engine in another process obeys as soon as its storage tells
// it: at once in memory and PostgreSQL, after the storage's poll with SQLite. Workers
// that fetch jobs of any type are not bound by it.
//
// PauseType and ResumeType succeed for an unknown type, too. Its name may be a typing
// error, so that they return false for known and the engine logs a warning. A type is
// known if it is paused, if this engine or one that reports (WithReports) has a handler
// of it, or if one of the latest jobs is of it. They look at some thousand jobs at most.
func (q *Queues) PauseType(ctx context.Context, jobType, reason string) (known bool, err error) {
	if err := ojs.ValidateType(jobType); err != nil {
		return false, err
	}
	return q.core.pauseOfType(ctx, jobType, &Pause{Type: jobType, Reason: reason})
}

// ResumeType ends a pause of a type. A type that is not paused is no error.
func (q *Queues) ResumeType(ctx context.Context, jobType string) (known bool, err error) {
	if err := ojs.ValidateType(jobType); err != nil {
		return false, err
	}
	return q.core.pauseOfType(ctx, jobType, nil)
}

// pauseOfType pauses or resumes a type, and reports whether it is known.
func (c *core) pauseOfType(ctx context.Context, jobType string, p *Pause) (known bool, err error) {
	before, _ := c.pauses(ctx) // none, if they cannot be read now
	if err := c.setPause(ctx, pauseType+jobType, p); err != nil {
		return false, err
	}
	paused := slices.ContainsFunc(before, func(p Pause) bool { return p.Type == jobType })
	return paused || c.knowsType(ctx, jobType), nil
}

// PauseAll stops all deliveries of a storage, for maintenance: no engine and no worker
// gets jobs until ResumeAll. Running jobs go on, and jobs may be enqueued. The states of
// queues stay as they are, so that queues that are paused now still are after ResumeAll.
// For the rest it is as PauseType.
func (q *Queues) PauseAll(ctx context.Context, reason string) error {
	return q.core.setPause(ctx, pauseAll, &Pause{Reason: reason})
}

// ResumeAll ends PauseAll.
func (q *Queues) ResumeAll(ctx context.Context) error { return q.core.setPause(ctx, pauseAll, nil) }

// Pauses returns the pauses of everything and of types, that of everything first. Pauses
// of queues are in List.
func (q *Queues) Pauses(ctx context.Context) ([]Pause, error) {
	list, err := q.core.pauses(ctx)
	slices.SortFunc(list, func(a, b Pause) int { return cmp.Compare(a.Type, b.Type) })
	return list, err
}

func (c *core) pauses(ctx context.Context) (list []Pause, err error) {
	err = c.eachValue(ctx, pausePrefix, func(v document.Value) {
		var p Pause
		_ = json.Unmarshal(v.Data, &p) // what does not decode is a pause of which no more is known
		p.Type, _ = strings.CutPrefix(v.Key, pauseType)
		if v.Key == pauseAll {
			p.Type = ""
		}
		list = append(list, p)
	})
	return list, err
}

// eachValue calls f for each value whose key has the prefix, in their order.
func (c *core) eachValue(ctx context.Context, prefix string, f func(document.Value)) error {
	for v, err := range document.Of(c.store).EachValue(ctx, c.now(), storage.DocumentQuery{Prefix: prefix}) {
		if err != nil {
			return err
		}
		f(v)
	}
	return nil
}

// setPause stores a pause, or deletes it, and has this engine obey at once.
func (c *core) setPause(ctx context.Context, key string, p *Pause) error {
	if err := c.checkTx(ctx); err != nil {
		return err
	}
	v := document.Value{Key: key}
	if p != nil {
		p.By, p.At = ojs.Actor(ctx), c.now()
		var err error
		if v.Data, err = json.Marshal(p); err != nil {
			return err
		}
	}
	if err := document.Of(c.store).PutValues(ctx, c.now(), []document.Value{v}); err != nil {
		return err
	}
	did, what := "resumed", "all jobs"
	if p != nil {
		did = "paused"
	}
	if jobType, ok := strings.CutPrefix(key, pauseType); ok {
		what = "jobs of type " + jobType
	}
	c.log.Info(what+" are "+did, "component", "worker", "category", "lifecycle", "actor", ojs.Actor(ctx))
	return c.loadHolds(ctx)
}

// loadHolds reads the pauses, and has the gate obey. Calls take turns, so that none puts
// what it has read before a change in the place of what another has read after it.
func (c *core) loadHolds(ctx context.Context) error {
	select {
	case c.gate.holding <- struct{}{}:
		defer func() { <-c.gate.holding }()
	case <-ctx.Done():
		return ctx.Err()
	}
	list, err := c.pauses(ctx)
	if err != nil {
		return err
	}
	c.hold(func(h *holds) {
		h.all, h.types = false, nil
		for _, p := range list {
			if p.Type == "" {
				h.all = true
				continue
			}
			if h.types == nil {
				h.types = make(map[string]bool)
			}
			h.types[p.Type] = true
		}
	})
	return nil
}

// holds is what operators keep from being claimed.
type holds struct {
	all   bool            // everything
	quiet bool            // all that this engine would run
	types map[string]bool // jobs of types
}

func (h *holds) any() bool { return h.all || h.quiet || len(h.types) > 0 }

// open reports whether a claimer may claim at all, and takes the types that are held out
// of its list. A claimer of all types names none.
func (h *holds) open(w *wanted, ask *storage.Claim) bool {
	if h.all || h.quiet && !w.lapses {
		return false
	}
	if len(h.types) == 0 || w.all {
		return true
	}
	ask.Types = slices.DeleteFunc(slices.Clone(ask.Types), func(name string) bool {
		return h.types[versions.Name(name)]
	})
	return len(ask.Types) > 0
}

// hold changes what is held. Jobs that were claimed ahead go back, and claims look again.
func (c *core) hold(change func(*holds)) {
	g := c.gate
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
		c.returnClaimed()
	}
	c.available(unknown)
}
