package memory

import (
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/depend"
	"github.com/ojsengine/ojs/storage/insert"
)

// plain reports whether no rule of package insert can decide about a batch: no job is
// unique, waits for others or goes into a bounded queue. A lone unique job without an
// equal one is plain, too.
func (s *store) plain(batch []storage.Insert) bool {
	return insert.Plain(batch) || len(batch) == 1 && batch[0].MaxDepth == 0 && !batch[0].Waits() &&
		len(batch[0].AwaitedBy) == 0 && s.unique[batch[0].Record.Fingerprint] == nil
}

// inserter is the insert.Tx of a batch. store.mu is its transaction.
type inserter struct {
	s     *store
	batch []storage.Insert
	next  int  // position of the next job that may be added
	ends  bool // the batch follows a change, which may end one of its peers
}

var _ insert.Tx = (*inserter)(nil)

// inserter returns what package insert stores a batch through. It has a copy of the
// batch, or no caller could have its batch on the stack.
func (s *store) inserter(batch []storage.Insert) *inserter {
	return &inserter{s: s, batch: slices.Clone(batch)}
}

// Peers implements insert.Tx. Of a state it returns the newest job, which is in the way
// if any is, and all that have not ended if the batch may end some.
func (x *inserter) Peers(fingerprints []string) (peers []*insert.Job, err error) {
	ends := x.ends || slices.ContainsFunc(x.batch, func(in storage.Insert) bool {
		return in.Record.Unique != nil && in.Record.Unique.Strategy() != ojs.ConflictIgnore &&
			in.Record.Unique.Strategy() != ojs.ConflictReject
	})
	for _, fp := range fingerprints {
		p := x.s.unique[fp]
		if p == nil {
			continue
		}
		for i := range p.byState {
			jobs := p.byState[i].items
			if !ends || states[i].Terminal() {
				jobs = jobs[:min(len(jobs), 1)]
			}
			for _, j := range jobs {
				peers = append(peers, j.stored())
			}
		}
	}
	return peers, nil
}

// stored is the job as package insert has it.
func (j *job) stored() *insert.Job {
	return &insert.Job{Record: j.record(), Seq: int64(j.ord), Was: j.version}
}

// States implements insert.Tx.
func (x *inserter) States(ids []string) (stored map[string]ojs.State, first []uint64, err error) {
	stored = make(map[string]ojs.State)
	for i, id := range ids {
		version := uint64(firstVersion)
		if !x.batch[i].IDIsNew {
			version = x.s.floor + 1
			if j := x.s.find(id); j != nil {
				stored[id] = j.current()
			}
		}
		first = append(first, version)
	}
	return stored, first, nil
}

// Draining implements insert.Tx.
func (x *inserter) Draining(queues []string) (string, error) {
	if i := slices.IndexFunc(queues, x.s.draining); i >= 0 {
		return queues[i], nil
	}
	return "", nil
}

// Depth implements insert.Tx.
func (x *inserter) Depth(queue string) (int, error) {
	if q := x.s.ready.queues[queue]; q != nil {
		return q.live, nil
	}
	return 0, nil
}

// Oldest implements insert.Tx.
func (x *inserter) Oldest(
	queue string, now time.Time, n int, without []string,
) (list []*insert.Job, err error) {
	for _, j := range x.s.ready.longest(queue, n, without, now) {
		list = append(list, j.stored())
	}
	return list, nil
}

// Add implements insert.Tx.
func (x *inserter) Add(records []*storage.Record) error {
	for _, r := range records {
		for x.batch[x.next].Record.ID != r.ID {
			x.next++
		}
		j := x.s.prepare(r)
		x.s.adopt(j, r)
		j.version = r.Version
		if x.batch[x.next].Waits() {
			j.rest.counted = true
		}
		if len(x.batch[x.next].AwaitedBy) > 0 { // so that its end is counted, if the batch replaces it
			j.marks |= awaited
		}
		x.s.enlist(j)
	}
	return nil
}

// Save implements insert.Tx.
func (x *inserter) Save(changed []*insert.Job) error {
	s := x.s
	for _, to := range changed {
		j := s.find(to.ID)
		if !to.State.Terminal() {
			s.reset(j, &to.Record)
			continue
		}
		if j.current() == ojs.StateActive {
			s.taken(j.id, j.version, ojs.ErrReplaced)
		}
		s.displace(j)
		s.set(j, &to.Record) // it may have taken over from another before
		s.place(j)
	}
	return nil
}

// Known implements insert.Tx.
func (x *inserter) Known(ids []string) (map[string]bool, error) {
	known := make(map[string]bool)
	for _, id := range ids {
		known[id] = x.s.find(id) != nil
	}
	return known, nil
}

// Waiting implements insert.Tx.
func (x *inserter) Waiting(ids []string) (map[string]bool, error) {
	waiting := make(map[string]bool)
	for _, id := range ids {
		_, waiting[id] = dependTx{x.s}.Waiter(id)
	}
	return waiting, nil
}

// Await implements insert.Tx.
func (x *inserter) Await(
	now time.Time, batch []storage.Insert, added func(int) bool,
) ([]storage.Record, error) {
	return depend.Await(dependTx{x.s}, now, batch, added), nil
}
