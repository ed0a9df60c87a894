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

// The map of a new fleet comes about in two steps. Version 1 is a proposal, by which no
// program places jobs. Version 2 holds.
//
//  1. A program that finds no map in any cell proposes one. It stores the proposal in
//     each of its cells, in the order of their names, if the cell has no copy.
//  2. When each cell of the proposal has it, the first cell replaces it by version 2, by
//     a compare-and-swap. Then the others do.
//
// Any program may complete a proposal that it reads: the first cell decides. If a cell
// has another proposal, the program reads all cells again. Of several proposals, the one
// that has got to the last cell is completed, since the others wait for that cell. A
// proposal that is left behind is replaced by the map that holds, as an older copy is.

const (
	mapKey   = "fleet/map"            // of the value that is a cell's copy
	proposed = 1                      // the version of a proposal
	trust    = 10 * time.Second       // how long a copy may be used after it was read
	patience = time.Second            // for cells that do not answer, if the answers of others do
	heldWait = 30 * time.Second       // how long an enqueue waits for a strict move
	heldPoll = 250 * time.Millisecond // between two reads of the copy meanwhile
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
	held  map[int]bool    // the partitions that a strict move holds; nil: none
	of    map[*site][]int // the partitions of each site that are not held
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
	c := &chart{Map: m, sites: make([]*site, Partitions), of: make(map[*site][]int)}
	if m.held != nil {
		c.held = make(map[int]bool, len(m.held.Partitions))
		for _, p := range m.held.Partitions {
			c.held[p] = true
		}
	}
	for p, owner := range m.owners {
		if p > 0 && owner == m.owners[p-1] {
			c.sites[p] = c.sites[p-1]
		} else if c.sites[p] = a.site(owner); c.sites[p] == nil {
			return nil, fmt.Errorf("%w: cell %s has partitions, and is not configured: "+
				"version %d has the cells %s", ErrMap, owner, m.Version, strings.Join(m.Cells(), ", "))
		}
		if !c.held[p] {
			c.of[c.sites[p]] = append(c.of[c.sites[p]], p)
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
	doc, err := s.document(ctx, storage.KindValue, mapKey)
	if err != nil {
		return nil, 0, err
	}
	return s.decode(doc)
}

// decode decodes the document of the site's copy. It returns nil if there is none.
func (s *site) decode(doc storage.Document) (*Map, uint64, error) {
	if doc.Version == 0 {
		return nil, 0, nil
	}
	m, err := decode(s.name, doc.Data)
	return m, doc.Version, err
}

// document returns a document, the zero document if there is none.
func (s *site) document(ctx context.Context, kind storage.Kind, name string) (storage.Document, error) {
	docs, err := s.store.Documents(ctx, kind, storage.DocumentQuery{Names: []string{name}})
	if err != nil || len(docs) == 0 {
		return storage.Document{}, err
	}
	return docs[0], nil
}

// put replaces the copy of a version by a map; 0: there is none. It returns 0 if the copy
// has another version.
func (s *site) put(ctx context.Context, version uint64, m *Map) (uint64, error) {
	versions, err := s.store.PutDocuments(ctx, storage.KindValue, []storage.Document{
		{Name: mapKey, Version: version, Data: m.encode(s.name)}})
	if err != nil {
		return 0, err
	}
	return versions[0], nil
}

// known returns the newest chart. If none was read, it reads the copies of all sites, and
// makes the map if none holds.
func (a *atlas) known(ctx context.Context) (*chart, error) {
	for range 10 {
		if c := a.chart.Load(); c != nil {
			return c, nil
		}
		proposal, err := a.survey(ctx)
		if err != nil {
			return nil, err
		}
		if proposal != nil {
			if err := a.found(ctx, proposal); err != nil {
				return nil, err
			}
		}
	}
	return nil, fmt.Errorf("%w: programs with different cells propose maps", ErrMap)
}

// survey reads the copies of all sites, and offers those that hold. If none does, it
// returns the proposal to complete.
func (a *atlas) survey(ctx context.Context) (proposal *Map, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var calls sync.WaitGroup
	var answered sync.Once
	var timer *clock.Timer // set by the first site with a map that holds
	maps, errs := make([]*Map, len(a.sites)), make([]error, len(a.sites))
	for i, s := range a.sites {
		calls.Go(func() {
			maps[i], _, errs[i] = s.look(ctx)
			if m := maps[i]; m != nil && m.Version > proposed {
				_, errs[i] = a.offer(m)
				answered.Do(func() { timer = a.clock.AfterFunc(patience, cancel) })
			}
		})
	}
	calls.Wait()
	if timer != nil {
		timer.Stop()
	}
	if i := slices.IndexFunc(errs, misfits); i >= 0 {
		a.chart.Store(nil) // each call is refused
		return nil, errs[i]
	}
	if a.chart.Load() != nil {
		return nil, nil
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("ojs: the map of the fleet was not read, and is made when every cell answers: %w", err)
	}
	for _, m := range maps {
		if m != nil {
			proposal = m
		}
	}
	return cmp.Or(proposal, even(rand.Text(), a.sites)), nil
}

func misfits(err error) bool { return errors.Is(err, ErrMap) }

// found completes a proposal, unless a site has another copy.
func (a *atlas) found(ctx context.Context, proposal *Map) error {
	if _, err := a.draw(proposal); err != nil {
		return err
	}
	second := *proposal
	second.Version++
	var versions []uint64 // of the documents, by the order of names
	names := proposal.Cells()
	for _, name := range names {
		s := a.site(name)
		version, err := s.put(ctx, 0, proposal)
		if err == nil && version == 0 {
			var m *Map
			if m, version, err = s.look(ctx); err == nil && (m == nil || m.Fleet != proposal.Fleet) {
				return nil
			}
			if err == nil && m.Version > proposed {
				_, err = a.offer(m)
				return err
			}
		}
		if err != nil {
			return fmt.Errorf("ojs: cell %s: the map of the fleet was not made: %w", name, err)
		}
		versions = append(versions, version)
	}
	first, err := a.site(names[0]).put(ctx, versions[0], &second)
	if err != nil || first == 0 { // 0: another program has been faster
		return err
	}
	for i, name := range names[1:] {
		_, _ = a.site(name).put(ctx, versions[i+1], &second) // else the first reader does
	}
	_, err = a.offer(&second)
	return err
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
		doc, err := s.document(ctx, storage.KindValue, mapKey)
		if err != nil {
			return nil, err
		}
		if c := s.copied.Load(); c != nil && c.version == doc.Version && c.chart == newest {
			c = &copied{newest, began.Add(trust), doc.Version}
			s.copied.Store(c)
			return c, nil
		}
		m, version, err := s.decode(doc)
		switch {
		case err != nil:
			return nil, err
		case m == nil && slices.Contains(newest.Cells(), s.name):
			return nil, fmt.Errorf("%w: the storage of cell %s has no copy of version %d, by which it has partitions: "+
				"is it the storage of this cell?", ErrMap, s.name, newest.Version)
		case m != nil && m.Version > proposed:
			if newest, err = a.offer(m); err != nil {
				return nil, err
			}
			if m.Version == newest.Version {
				c := &copied{newest, began.Add(trust), version}
				s.copied.Store(c)
				return c, nil
			}
		}
		if _, err = s.put(ctx, version, newest.Map); err != nil { // and read it back
			return nil, err
		}
	}
}

// locate returns the site that has a partition, by its own copy. While a strict move
// holds the partition, it waits, and adds that to waited.
func (a *atlas) locate(ctx context.Context, partition int, waited *time.Duration) (*site, error) {
	refuse := func(h *hold, err error) error {
		return fmt.Errorf("%w: a strict move to cell %s holds partition %d: %w", ErrMoving, h.To,
			partition, err)
	}
	for {
		newest, err := a.known(ctx)
		if err != nil {
			return nil, err
		}
		s := newest.sites[partition]
		own, err := a.fresh(ctx, s)
		if err == nil && own.chart.sites[partition] == s {
			if !own.chart.held[partition] {
				return s, nil
			}
			if *waited >= heldWait {
				return nil, refuse(own.chart.Map.held, fmt.Errorf("it has not ended within %v", heldWait))
			}
			*waited += heldPoll
			_ = a.sleep(ctx, heldPoll) // the end of ctx is seen below
			// The program that makes the move may have died after it has ended the hold
			// in the cell that decides.
			if first := a.site(newest.Cells()[0]); first != s {
				_, _ = a.read(ctx, first, first.copied.Load())
			}
			if err := ctx.Err(); err != nil {
				return nil, refuse(own.chart.Map.held, err)
			}
		}
		if err == nil {
			_, err = a.read(ctx, s, own)
		}
		if err != nil {
			return nil, fmt.Errorf("ojs: cell %s: %w", s.name, err)
		}
	}
}

// sleep waits. It returns the error of the context if that ends before.
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

// check reads every copy, and returns ErrMap for those that do not fit. Sites that do not
// answer are left out.
func (a *atlas) check(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer a.clock.AfterFunc(patience, cancel).Stop()
	errs := make([]error, len(a.sites))
	if _, errs[0] = a.known(ctx); errs[0] == nil {
		var calls sync.WaitGroup
		for i, s := range a.sites {
			calls.Go(func() {
				if _, err := a.read(ctx, s, s.copied.Load()); err != nil {
					errs[i] = fmt.Errorf("ojs: cell %s: %w", s.name, err)
				}
			})
		}
		calls.Wait()
	}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return !misfits(err) })...)
}
