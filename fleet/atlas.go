package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/storage"
)

const (
	mapKey   = "fleet/map"            // of the value that is a cell's copy
	trust    = 10 * time.Second       // how long a copy may be used after it was read
	heldWait = 30 * time.Second       // how long a job waits for a strict move
	heldPoll = 250 * time.Millisecond // between two looks at the copy meanwhile
)

// atlas is what a process knows of the map. It is safe for concurrent use.
type atlas struct {
	sites []*site // sorted by name
	clock clock.Clock
	chart atomic.Pointer[chart] // of the newest map that was read; nil: none was
}

// chart is a map with the sites of this process.
type chart struct {
	*Map
	sites []*site         // by partition
	held  map[int]bool    // nil: none is
	open  map[*site][]int // the partitions of each site that are not held
}

// site is the place of one cell.
type site struct {
	name   string
	store  storage.Storage
	sem    chan struct{}          // one reader of the copy at a time, held during the storage's call
	copied atomic.Pointer[copied] // nil: it was not read
	failed atomic.Pointer[error]  // of the last read that failed; nil: none has
}

// copied is the copy of a site, as it was read.
type copied struct {
	chart   *chart
	until   time.Time // when it is to be read again
	version uint64    // of the document
}

// newAtlas checks the cells of a configuration.
func newAtlas(cells []Cell) (*atlas, error) {
	a := &atlas{}
	if len(cells) == 0 {
		return nil, draft.Invalid("cells", "are none: name one at least")
	}
	for _, c := range cells {
		if err := ojs.ValidateQueue(c.Name); err != nil { // the same alphabet serves
			return nil, draft.Invalid("cells", "name %q: %s", c.Name, err.(*ojs.InvalidError).Reason)
		}
		if v := reflect.ValueOf(c.Store); c.Store == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, draft.Invalid("cells", "the storage of %s is nil", c.Name)
		}
		for _, s := range a.sites {
			if s.name == c.Name {
				return nil, draft.Invalid("cells", "two have the name %s", c.Name)
			}
			if reflect.TypeOf(s.store).Comparable() && s.store == c.Store {
				return nil, draft.Invalid("cells", "%s and %s have the same storage", s.name, c.Name)
			}
		}
		a.sites = append(a.sites, &site{name: c.Name, store: c.Store, sem: make(chan struct{}, 1)})
	}
	slices.SortFunc(a.sites, func(x, y *site) int { return cmp.Compare(x.name, y.name) })
	return a, nil
}

func (a *atlas) site(name string) *site {
	for _, s := range a.sites {
		if s.name == name {
			return s
		}
	}
	return nil
}

// draw makes the chart of a map, which must have no cell that is not configured.
func (a *atlas) draw(m *Map) (*chart, error) {
	c := &chart{Map: m, sites: make([]*site, Partitions), open: make(map[*site][]int)}
	if len(m.held) > 0 {
		c.held = make(map[int]bool)
	}
	for _, p := range m.held {
		c.held[p] = true
	}
	for p, owner := range m.owners {
		if p > 0 && owner == m.owners[p-1] {
			c.sites[p] = c.sites[p-1]
		} else if c.sites[p] = a.site(owner); c.sites[p] == nil {
			return nil, fmt.Errorf("%w: cell %s has partitions, and is not configured: "+
				"version %d has the cells %s", ErrMap, owner, m.Version, strings.Join(m.Cells(), ", "))
		}
		if !c.held[p] {
			c.open[c.sites[p]] = append(c.open[c.sites[p]], p)
		}
	}
	return c, nil
}

// offer takes in a map that was read, and returns the chart of the newest map.
func (a *atlas) offer(m *Map) (*chart, error) {
	for {
		known := a.chart.Load()
		if known != nil {
			if known.Fleet != m.Fleet {
				return nil, fmt.Errorf("%w: the storages are of two fleets, "+
					"one with the cells %s, the other with %s", ErrMap,
					strings.Join(known.Cells(), ", "), strings.Join(m.Cells(), ", "))
			}
			if known.Version >= m.Version {
				return known, nil
			}
		}
		c, err := a.draw(m)
		if err != nil {
			return nil, err
		}
		if a.chart.CompareAndSwap(known, c) {
			return c, nil
		}
	}
}

// look reads the copy of a site as it is. It returns nil if there is none.
func (s *site) look(ctx context.Context) (*Map, uint64, error) {
	docs, err := s.store.Documents(ctx, storage.KindValue, storage.DocumentQuery{Names: []string{mapKey}})
	if err != nil || len(docs) == 0 {
		return nil, 0, err
	}
	m, err := decode(s.name, docs[0].Data)
	return m, docs[0].Version, err
}

// put replaces the copy of a version by a map. It returns 0 if the copy has another
// version.
func (s *site) put(ctx context.Context, version uint64, m *Map) (uint64, error) {
	versions, err := s.store.PutDocuments(ctx, storage.KindValue, []storage.Document{
		{Name: mapKey, Version: version, Data: m.encode(s.name)}})
	if err != nil {
		return 0, err
	}
	return versions[0], nil
}

// known returns the newest chart. If none was read, it reads the copies of all sites, and
// makes the first map if there is none.
func (a *atlas) known(ctx context.Context) (*chart, error) {
	if c := a.chart.Load(); c != nil {
		return c, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var calls sync.WaitGroup
	var answered sync.Once
	var patience *clock.Timer // with the other cells, after the first has answered
	errs := make([]error, len(a.sites))
	for i, s := range a.sites {
		calls.Go(func() {
			m, _, err := s.look(ctx)
			if err == nil && m != nil {
				_, err = a.offer(m)
				answered.Do(func() { patience = a.clock.AfterFunc(time.Second, cancel) })
			}
			errs[i] = err
		})
	}
	calls.Wait()
	if patience != nil {
		patience.Stop()
	}
	misfit := slices.IndexFunc(errs, func(err error) bool { return errors.Is(err, ErrMap) })
	c := a.chart.Load()
	switch {
	case misfit >= 0:
		a.chart.Store(nil) // each call is refused
		return nil, errs[misfit]
	case c != nil:
		return c, nil
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("ojs: the map of the fleet was not read, and is made when every cell answers: %w", err)
	}
	return a.found(ctx)
}

// found makes the first map, in the order of the names of its cells. If another program
// is faster in one of them, its own map holds.
func (a *atlas) found(ctx context.Context) (*chart, error) {
	names := make([]string, len(a.sites))
	for i, s := range a.sites {
		names[i] = s.name
	}
	first := even(rand.Text(), names)
	written := make([]uint64, len(a.sites))
	for i, s := range a.sites {
		var err error
		if written[i], err = s.put(ctx, 0, first); err != nil {
			return nil, err
		}
		if written[i] > 0 {
			continue
		}
		m, _, err := s.look(ctx)
		if err != nil || m == nil {
			return nil, cmp.Or(err, fmt.Errorf("%w: the copy in cell %s comes and goes", ErrMap, s.name))
		}
		if m.Fleet == first.Fleet {
			continue // another program has copied it
		}
		for k, s := range a.sites[:i] { // which were of no fleet
			if written[k] > 0 {
				_, err = s.store.PutDocuments(ctx, storage.KindValue, []storage.Document{
					{Name: mapKey, Version: written[k]}})
				if err != nil {
					return nil, err
				}
			}
		}
		return a.offer(m)
	}
	// From the second version on, a cell with partitions has a copy.
	second := first.next()
	if _, err := a.sites[0].put(ctx, written[0], second); err != nil {
		return nil, err
	}
	if _, err := a.offer(first); err != nil {
		return nil, err
	}
	own, err := a.read(ctx, a.sites[0], nil)
	if err != nil {
		return nil, err
	}
	return own.chart, nil
}

// fresh returns the chart of the site's copy, read within the time for which copies are
// trusted.
func (a *atlas) fresh(ctx context.Context, s *site) (*copied, error) {
	c := s.copied.Load()
	if c != nil && a.clock.Now().Before(c.until) {
		return c, nil
	}
	return a.read(ctx, s, c)
}

// read reads the copy of a site, unless another caller has read it since the site had the
// copy old. It brings the copy up to date.
func (a *atlas) read(ctx context.Context, s *site, old *copied) (*copied, error) {
	failed := s.failed.Load()
	select {
	case s.sem <- struct{}{}:
		defer func() { <-s.sem }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c := s.copied.Load(); c != old {
		return c, nil
	}
	if f := s.failed.Load(); f != failed { // those that waited for a read fail with it
		return nil, *f
	}
	c, err := a.reread(ctx, s)
	if err != nil && ctx.Err() == nil {
		s.failed.Store(&err)
	}
	return c, err
}

// reread is read, one call at a time.
func (a *atlas) reread(ctx context.Context, s *site) (*copied, error) {
	for {
		newest, err := a.known(ctx)
		if err != nil {
			return nil, err
		}
		began := a.clock.Now()
		m, version, err := s.look(ctx)
		if err != nil {
			return nil, err
		}
		if m != nil {
			if newest, err = a.offer(m); err != nil {
				return nil, err
			}
		} else if newest.Version > 1 && slices.Contains(newest.owners, s.name) {
			return nil, fmt.Errorf("%w: the storage of cell %s has no copy of version %d, by which it has partitions: "+
				"is it the storage of this cell?", ErrMap, s.name, newest.Version)
		}
		if m != nil && m.Version == newest.Version {
			c := &copied{newest, began.Add(trust), version}
			s.copied.Store(c)
			return c, nil
		}
		if _, err = s.put(ctx, version, newest.Map); err != nil { // and read it back
			return nil, err
		}
	}
}

// locate returns the site that gives out a partition, by its own copy.
func (a *atlas) locate(ctx context.Context, partition int) (*site, error) {
	var began time.Time // of the wait for a move
	for {
		newest, err := a.known(ctx)
		if err != nil {
			return nil, err
		}
		s := newest.sites[partition]
		own, err := a.fresh(ctx, s)
		if err == nil && own.chart.sites[partition] == s && !own.chart.held[partition] {
			return s, nil
		}
		if err == nil && own.chart.held[partition] {
			if now := a.clock.Now(); began.IsZero() {
				began = now
			} else if now.Sub(began) >= heldWait {
				return nil, fmt.Errorf("%w: partition %d moves from cell %s to cell %s: "+
					"if no program moves it, repeat the move", ErrMoving, partition, s.name, own.chart.to)
			}
			err = a.sleep(ctx, heldPoll)
		}
		if err == nil {
			_, err = a.read(ctx, s, own)
		}
		if err != nil {
			return nil, fmt.Errorf("ojs: cell %s: %w", s.name, err)
		}
	}
}

// sleep waits for d, or until ctx ends.
func (a *atlas) sleep(ctx context.Context, d time.Duration) error {
	timer := a.clock.Timer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
