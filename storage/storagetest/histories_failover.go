package storagetest

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/ojsengine/ojs/storage"
)

// Failovers makes histories as Histories does, each while the storage goes away and comes
// back. A call that fails by that is ambiguous: it may have been done, it may be done
// later, or never. All others have to be explained by an order, and with them what is
// there in the end. So no change is lost that a call has answered, none is made twice,
// and no ambiguous call is done in part.
//
// Before each history prepare is called. The function that it returns takes the storage
// away after a short while, brings it back, and returns. The function first returns the
// version that a job had when it was stored, of any that it had later.
func Failovers(
	t *testing.T, cfg Config, histories int, first func(id string, version uint64) uint64,
	prepare func() (disturb func()),
) {
	t.Helper()
	seed := rand.Uint64()
	stats, ambiguous, found, err := failovers(&cfg, seed, histories, first, prepare)
	if err != nil {
		t.Fatal(err)
	}
	if found != nil {
		t.Errorf("no order of the calls explains the answers (history %d of seed %d)\n%s", found.number,
			seed, found)
	}
	if ambiguous == 0 {
		t.Error("no call was ambiguous: nothing is proven")
	}
	if found == nil && stats.undecided == stats.histories {
		t.Errorf("%v: nothing is proven", stats)
	}
	t.Logf("%v, %d ambiguous calls", stats, ambiguous)
}

// failovers makes histories until one is not linearizable.
func failovers(
	cfg *Config, seed uint64, histories int, first func(string, uint64) uint64, prepare func() func(),
) (st stats, ambiguous int, found *violation, err error) {
	able := slices.DeleteFunc(slices.Clone(themes), func(th theme) bool {
		why, _ := cfg.lacks(nil, th.needs)
		return why != "" || !slices.Contains(disturbed, th.name)
	})
	p := &place{cfg: cfg}
	defer p.close()
	for n := range histories {
		p.renew()
		disturb := prepare()
		handles, err := p.handles()
		if err != nil {
			return st, ambiguous, nil, err
		}
		rnd := rand.New(rand.NewPCG(seed, uint64(n)))
		h := makeDisturbed(cfg, handles, &able[n%len(able)], n, rnd, disturb)
		st.histories++
		st.calls += len(h.calls)
		for _, c := range h.calls {
			if c.ambiguous() {
				ambiguous++
			}
		}
		if !h.findOut(first) {
			st.undecided++
			continue
		}
		began := wall.Now()
		result := h.check(h.effects())
		st.longest = max(st.longest, wall.Now().Sub(began))
		switch result {
		case porcupine.Unknown:
			st.undecided++
		case porcupine.Illegal:
			return st, ambiguous, h.shorten(), nil
		}
	}
	return st, ambiguous, nil, nil
}

// disturbed are the themes whose calls change jobs alone, and no jobs but those that they
// name or return: what a call without an answer has changed can be found out.
var disturbed = []string{"a lease", "one id", "replays", "equal jobs", "batches", "claims", "waiting jobs",
	"ended jobs", "steps"}

// callsBefore is how many calls a client makes at most before the storage is back.
const callsBefore = 12

// makeDisturbed has clients make calls while the storage goes away, and some when it is
// back. A client whose call is ambiguous makes none until then. The last call lists all
// jobs.
func makeDisturbed(
	cfg *Config, handles []*handle, th *theme, number int, rnd *rand.Rand, disturb func(),
) *history {
	m := newMaker(cfg, handles, th, number, 2+rnd.IntN(2), rnd)
	m.disturbed = true
	m.first()
	over := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		defer close(over)
		disturb()
	})
	for i, d := range m.draws {
		all.Go(func() {
			for before, after := 0, 0; after < 2; before++ {
				if before >= callsBefore {
					<-over
				}
				select {
				case <-over:
					after++
				default:
				}
				c := m.call(i, d.next())
				m.keep(c)
				if c.ambiguous() {
					<-over
				}
			}
		})
	}
	all.Wait()
	for range callsBefore { // the connections that are left may be dead
		c := m.call(0, &listCall{})
		m.keep(c)
		if !c.ambiguous() {
			break
		}
	}
	return m.end(cfg)
}

// findOut puts into the answers of ambiguous calls what they may have been: the versions
// of the jobs that they may have stored, and the jobs that they may have taken. It knows
// them from what others were answered. It reports false if that is not clear.
func (h *history) findOut(first func(string, uint64) uint64) bool {
	seen := make(map[string]map[uint64]bool) // by id: the first versions that no insert has answered
	each := func(f func(id string, version uint64)) {
		for _, c := range h.calls {
			for _, r := range slices.Concat(c.answer.Records, c.answer.Moved) {
				f(r.ID, r.Version)
			}
			for _, in := range c.answer.Inserted {
				for _, r := range slices.Concat(in.Replaced, in.Dropped) {
					f(r.ID, r.Version)
				}
				if in.Existing != nil {
					f(in.Existing.ID, in.Existing.Version)
				}
			}
		}
	}
	each(func(id string, version uint64) {
		if seen[id] == nil {
			seen[id] = make(map[uint64]bool)
		}
		seen[id][first(id, version)] = true
	})
	all := slices.Sorted(maps.Keys(seen))
	inserts := make(map[string][]*storage.Inserted)
	for _, c := range h.calls {
		of := func(batch []storage.Insert, answered *[]storage.Inserted) {
			for i, in := range *answered {
				delete(seen[batch[i].Record.ID], in.Version)
			}
			if c.ambiguous() {
				*answered = make([]storage.Inserted, len(batch))
				for i := range batch {
					id := batch[i].Record.ID
					inserts[id] = append(inserts[id], &(*answered)[i])
				}
			}
		}
		switch op := c.op.(type) {
		case *insertCall:
			of(op.batch, &c.answer.Inserted)
		case *settleCall:
			if c.ambiguous() {
				c.answer.Settled = make([]settled, len(op.changes))
			}
			for i := range c.answer.Settled {
				of(op.changes[i].Then, &c.answer.Settled[i].Then)
			}
		case *stepCall:
			if c.ambiguous() {
				c.answer.Settled = make([]settled, len(op.to))
			}
		}
	}
	for _, c := range h.calls {
		if !c.ambiguous() || !h.byJob {
			continue
		}
		switch c.op.(type) {
		case *pruneCall:
			c.answer.IDs = all
		case *claimCall, *dueCall, *stepCall:
			for _, id := range all {
				var r storage.Record
				r.ID = id
				c.answer.Records = append(c.answer.Records, r)
			}
		}
	}
	for id, list := range inserts {
		if len(seen[id]) > 1 || len(seen[id]) == 1 && len(list) > 1 {
			return false
		}
		for version := range seen[id] {
			list[0].Version = version
		}
	}
	for _, c := range h.calls {
		c.parts = c.op.parts(&c.answer, h.byJob)
	}
	return true
}
