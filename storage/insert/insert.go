// Package insert does what [storage.Storage] asks of Insert, for storages with
// transactions: it checks the batch, resolves conflicts of unique jobs, refuses
// draining queues and makes room in bounded ones. A storage implements the few
// lookups of [Tx] and calls [Batch] inside a transaction.
//
// All storages of this module insert this way; storage/memory inserts plain jobs by
// itself, and checks them by Check.
package insert

import (
	"cmp"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Tx is a transaction of a storage. Between the first lookup and the end of the
// transaction, no other caller may insert a job with one of the fingerprints or into
// one of the bounded queues, or change the jobs that a lookup returned. Batch calls the
// lookups first, in the order in which they stand here, then Add, then Save, then Await.
// If a method fails, Batch returns its error.
type Tx interface {
	// Peers returns the stored jobs with one of the fingerprints, in any order. Of the
	// jobs that have ended it may leave out all but the newest of each fingerprint and
	// state: the one created last, and among jobs created at the same time the one
	// inserted last.
	Peers(fingerprints []string) ([]*Job, error)

	// States returns the states of the ids that are stored, and for each id a version
	// above every version that a job with this id has had.
	States(ids []string) (stored map[string]ojs.State, first []uint64, err error)

	// Draining returns one of the queues that is draining, or "".
	Draining(queues []string) (string, error)

	// Depth returns how many stored jobs of a queue have not ended. Batch asks for the
	// bounded queues in the order of their names.
	Depth(queue string) (int, error)

	// Oldest returns up to n available jobs of a queue, those available longest first.
	// It skips the ids in without, and jobs whose deadline has come.
	Oldest(queue string, now time.Time, n int, without []string) ([]*Job, error)

	// Known returns which of the ids are those of stored jobs.
	Known(ids []string) (map[string]bool, error)

	// Waiting returns which of the ids are those of stored jobs that are pending and
	// wait for others (storage.Insert.DependsOn). Batch asks for the AwaitedBy of each
	// job that it is going to add. If Save ends such a job, Await counts that in its
	// place among the ends (depend.Tx.Ends).
	Waiting(ids []string) (map[string]bool, error)

	// Add stores new jobs, in order.
	Add(records []*storage.Record) error

	// Save replaces jobs that are stored or that Add has just stored. Jobs that end do so
	// in the order given. A job that does not end keeps its place. Add and Save may be
	// called several times.
	Save(changed []*Job) error

	// Await is called last, for each batch, also for one without DependsOn. It has the
	// jobs that were added wait for others and for their turns (depend.Await). It returns
	// the jobs that have moved.
	Await(now time.Time, batch []storage.Insert, added func(i int) bool) ([]storage.Record, error)
}

// Job is a stored job.
type Job struct {
	storage.Record
	Seq   int64  // number in the order of insertion, above 0
	Was   uint64 // version in the storage; Record.Version is above it once Batch has changed the job
	Place int64  // for the storage's own use
}

// Batch inserts a batch at now, and returns a result for each of its jobs. After an error
// the caller must roll the transaction back. Errors about the batch are those of
// [storage.Storage]: *ojs.InvalidError, *ojs.DuplicateError and *ojs.QueueError.
func Batch(tx Tx, now time.Time, batch []storage.Insert) ([]storage.Inserted, error) {
	return Then(tx, now, nil, func() error { return nil }, batch)
}

// Then inserts the batch of a storage.Change.Then. First it makes its lookups and checks,
// as if the stored job were ended, the record that the change is going to store. If the
// batch is refused, nothing has been written. Then it calls change, which makes the
// change, and writes the batch.
func Then(
	tx Tx, now time.Time, ended *storage.Record, change func() error, batch []storage.Insert,
) ([]storage.Inserted, error) {
	b := &inserting{tx: tx, now: now, batch: batch, ended: ended,
		results: make([]storage.Inserted, len(batch))}
	for _, step := range []func() error{
		b.load, b.resolve, b.refuseDraining, b.makeRoom, b.know, change, b.write, b.await,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return b.results, nil
}

// inserting is the work of one Batch. Its steps change copies in memory. The last step
// writes.
type inserting struct {
	tx      Tx
	now     time.Time
	batch   []storage.Insert
	results []storage.Inserted
	ended   *storage.Record // see Then; nil: the batch follows no change

	first []uint64 // version under which each job of the batch is stored
	// by fingerprint, in the order of insertion: stored jobs, then jobs of the batch
	peers   map[string][]*Job
	added   []*Job // by position in the batch; nil: the job is not stored
	changed []*Job // for Save; a job of the batch is here only if it ends

	replaced []int // by position in the batch: how many jobs have been replaced before it is stored
}

func (b *inserting) load() error {
	ids := make([]string, len(b.batch))
	var prints []string
	for i := range b.batch {
		r := &b.batch[i].Record
		ids[i] = r.ID
		if r.Fingerprint != "" && r.Unique != nil {
			prints = append(prints, r.Fingerprint)
		}
	}
	var found []*Job
	if len(prints) > 0 {
		slices.Sort(prints)
		var err error
		if found, err = b.tx.Peers(slices.Compact(prints)); err != nil {
			return err
		}
	}
	// Peers may have waited for a call that has stored one of the ids.
	stored, first, err := b.tx.States(ids)
	if err != nil {
		return err
	}
	if b.ended != nil && stored[b.ended.ID] != "" {
		stored[b.ended.ID] = b.ended.State
	}
	if err := Check(b.batch, stored); err != nil {
		return err
	}
	b.first = first
	b.peers = make(map[string][]*Job)
	slices.SortFunc(found, func(x, y *Job) int { return cmp.Compare(x.Seq, y.Seq) })
	for _, j := range found {
		if b.ended != nil && j.ID == b.ended.ID {
			j.Record = b.ended.Copy()
		}
		b.peers[j.Fingerprint] = append(b.peers[j.Fingerprint], j)
	}
	return nil
}

func (b *inserting) resolve() error {
	b.added, b.replaced = make([]*Job, len(b.batch)), make([]int, len(b.batch))
	for i := range b.batch {
		r := &b.batch[i].Record
		if i > 0 {
			b.replaced[i] = b.replaced[i-1]
		}
		if r.Fingerprint != "" && r.Unique != nil {
			if err := b.unique(&b.batch[i], &b.results[i]); err != nil {
				return err
			}
			b.replaced[i] += len(b.results[i].Replaced)
			if b.results[i].Existing != nil {
				continue
			}
		}
		j := &Job{Record: *r}
		j.Version = b.first[i]
		if b.batch[i].Waits() {
			j.Wait(&b.batch[i])
		}
		b.added[i] = j
		b.results[i].Version = b.first[i]
		if r.Fingerprint != "" {
			b.peers[r.Fingerprint] = append(b.peers[r.Fingerprint], j)
		}
	}
	return nil
}

// unique resolves the conflicts of a job with stored jobs and with jobs before it in the
// batch. If it sets result.Existing, the job is not stored.
func (b *inserting) unique(in *storage.Insert, result *storage.Inserted) error {
	r := &in.Record
	var equal []*Job
	for _, j := range b.peers[r.Fingerprint] {
		if r.Unique.Counts(j.State, j.CreatedAt, b.now) {
			equal = append(equal, j)
		}
	}
	if len(equal) == 0 {
		return nil
	}
	// The sort is stable: jobs created at the same time stay in the order of insertion.
	slices.SortStableFunc(equal, func(x, y *Job) int { return x.CreatedAt.Compare(y.CreatedAt) })
	newest := equal[len(equal)-1]
	var updated *Job
	switch r.Unique.Strategy() {
	case ojs.ConflictIgnore:
		c := newest.Copy()
		result.Existing = &c
		return nil
	case ojs.ConflictReplaceExceptSchedule, ojs.ConflictDebounce:
		for _, j := range equal {
			if j.State == ojs.StateScheduled && r.TakenOver() {
				updated = j
			}
		}
	case ojs.ConflictReplace:
	default:
		return &ojs.DuplicateError{ID: newest.ID, State: newest.State, Fingerprint: r.Fingerprint}
	}
	for _, j := range slices.Backward(equal) {
		if in.KeepActive && j.State == ojs.StateActive {
			return &ojs.DuplicateError{ID: j.ID, State: j.State, Fingerprint: r.Fingerprint}
		}
	}
	for _, j := range equal {
		if j != updated && !j.State.Terminal() {
			b.end(j, func(r *storage.Record) { r.Cancel(b.now) })
			result.Replaced = append(result.Replaced, j.Copy())
		}
	}
	if updated == nil {
		return nil
	}
	given := r.Copy() // the result shares no memory with the batch
	updated.Update(&given)
	if updated.Seq != 0 && !slices.Contains(b.changed, updated) {
		b.changed = append(b.changed, updated)
	}
	c := updated.Copy()
	result.Existing, result.Updated = &c, true
	return nil
}

// end ends a job, after all jobs that the batch has ended before.
func (b *inserting) end(j *Job, transition func(*storage.Record)) {
	transition(&j.Record)
	if at := slices.Index(b.changed, j); at >= 0 { // an update put it there
		b.changed = slices.Delete(b.changed, at, at+1)
	}
	b.changed = append(b.changed, j)
}

func (b *inserting) refuseDraining() error {
	var queues []string
	for i := range b.batch {
		if q := b.batch[i].Record.Queue; !slices.Contains(queues, q) {
			queues = append(queues, q)
		}
	}
	draining, err := b.tx.Draining(queues)
	if err == nil && draining != "" {
		err = &ojs.QueueError{Queue: draining, Err: ojs.ErrQueueDraining}
	}
	return err
}

// write adds the new jobs, and then saves what the batch changes. A job that joins a
// round (package storage, Fairness) must not find jobs there that have been replaced
// before it, so these are saved first.
func (b *inserting) write() error {
	var added []*storage.Record
	updated, ended := b.changes()
	flush := func(changed []*Job) error {
		var err error
		if len(added) > 0 {
			err = b.tx.Add(added)
		}
		if added = nil; err == nil && len(changed) > 0 {
			err = b.tx.Save(changed)
		}
		return err
	}
	saved := 0
	for i, j := range b.added {
		if j == nil {
			continue
		}
		r := &b.batch[i].Record
		joins := r.State == ojs.StateAvailable && r.Fairness.Key != ""
		if replaced := ended[saved:b.replaced[i]]; joins && slices.ContainsFunc(replaced, keyed) {
			if err := flush(replaced); err != nil {
				return err
			}
			saved = b.replaced[i]
		}
		if j.State.Terminal() { // stored as it came; Save ends it in its turn
			came := *r
			came.Version, came.Dependencies = b.first[i], j.Dependencies
			j.Was = came.Version
			r = &came
		} else {
			r = &j.Record
		}
		added = append(added, r)
	}
	return flush(slices.Concat(ended[saved:], updated))
}

func keyed(j *Job) bool { return j.Fairness.Key != "" }

// changes splits the changed jobs into those that go on and those that end, in order.
func (b *inserting) changes() (updated, ended []*Job) {
	for _, j := range b.changed {
		if j.State.Terminal() {
			ended = append(ended, j)
		} else {
			updated = append(updated, j)
		}
	}
	return updated, ended
}

// know refuses a batch with a job that is to wait for one that neither is stored nor will
// be.
func (b *inserting) know() error {
	if !storage.DependsOn(b.batch) {
		return nil
	}
	stored := make(map[string]bool) // jobs of the batch
	for i := range b.batch {
		stored[b.batch[i].Record.ID] = b.added[i] != nil
	}
	var ids []string
	for i := range b.batch {
		ids = append(ids, b.batch[i].DependsOn...)
	}
	slices.Sort(ids)
	known, err := b.tx.Known(slices.Compact(ids))
	if err != nil {
		return err
	}
	for i := range b.batch {
		for _, id := range b.batch[i].DependsOn {
			if !known[id] && !stored[id] {
				return &ojs.DependencyError{ID: b.batch[i].Record.ID, Dependency: id}
			}
		}
	}
	return b.awaited()
}

// awaited refuses a batch with a job whose AwaitedBy names no job that waits.
func (b *inserting) awaited() error {
	if !storage.Awaited(b.batch) {
		return nil
	}
	for i := range b.batch {
		ids := b.batch[i].AwaitedBy
		if len(ids) == 0 || b.added[i] == nil {
			continue
		}
		waiting, err := b.tx.Waiting(ids)
		if err != nil {
			return err
		}
		if b.ended != nil {
			delete(waiting, b.ended.ID)
		}
		if !slices.ContainsFunc(ids, func(id string) bool { return waiting[id] }) {
			return &ojs.DependencyError{ID: b.batch[i].Record.ID, Dependency: ids[0]}
		}
	}
	return nil
}

func (b *inserting) await() error {
	if len(b.batch) == 0 {
		return nil
	}
	moved, err := b.tx.Await(b.now, b.batch, func(i int) bool { return b.added[i] != nil })
	b.results[len(b.results)-1].Moved = moved
	for _, m := range moved {
		for i := range b.batch {
			if b.batch[i].MaxDepth > 0 && m.State.Terminal() && b.batch[i].Record.Queue == m.Queue {
				b.results[i].Depth--
			}
		}
	}
	return err
}
