package rows

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Tx is what Insert asks of a transaction. From the first lookup on, nobody else may insert a job with one of the fingerprints
// or into a bounded queue, or change the rows that were returned, until the transaction ends.
type Tx interface {
	// Stored returns the states of those of the jobs that are stored, and for each id a version that no job with it has had.
	Stored(ids []string) (there map[string]ojs.State, first []uint64, err error)

	// Peers returns the jobs with one of the fingerprints: those that have not ended, and of those that have the newest of
	// each state, by creation and then by insertion. Their order does not matter.
	Peers(fingerprints []string) ([]*Row, error)

	// Draining returns one of the queues that is draining, "" if none is.
	Draining(queues []string) (string, error)

	// Depth returns how many jobs of the queue have not ended.
	Depth(queue string) (int, error)

	// Oldest returns the up to n jobs of the queue that have been available longest, without those whose deadline has come and
	// those left out.
	Oldest(queue string, now time.Time, n int, without []string) ([]*Row, error)

	// Add stores new rows, in order. An id that is stored already is an error of the storage.
	Add(recs []*storage.Record) error

	// Save replaces stored rows, or such that have just been added. Those that end do so in the order given.
	Save(changed []*Row) error
}

// Plain reports whether a batch asks for no lookups but of ids and draining queues: none of its jobs is unique or goes into
// a bounded queue.
func Plain(batch []storage.Insert) bool {
	return !slices.ContainsFunc(batch, func(in storage.Insert) bool {
		return in.MaxDepth > 0 || in.Record.Fingerprint != "" && in.Record.Unique != nil
	})
}

// Check refuses jobs in states that none begins in, ids that stand twice, and those that are stored, in the states there.
func Check(batch []storage.Insert, there map[string]ojs.State) error {
	var ids map[string]struct{}
	if len(batch) > 1 {
		ids = make(map[string]struct{}, len(batch))
	}
	for i := range batch {
		r := &batch[i].Record
		switch r.State {
		case ojs.StateAvailable, ojs.StateScheduled, ojs.StatePending:
		default:
			return &ojs.InvalidError{Code: ojs.CodeEnvelopeInvalid, Field: "state", Reason: fmt.Sprintf("%q is no state to begin in", r.State)}
		}
		if state, ok := there[r.ID]; ok {
			return &ojs.DuplicateError{ID: r.ID, State: state}
		}
		if ids != nil {
			if _, twice := ids[r.ID]; twice {
				return &ojs.DuplicateError{ID: r.ID, State: r.State}
			}
			ids[r.ID] = struct{}{}
		}
	}
	return nil
}

// Insert does what storage.Storage asks of an insert. If it fails the transaction has to be undone.
func Insert(tx Tx, now time.Time, batch []storage.Insert) ([]storage.Inserted, error) {
	b := &inserting{tx: tx, now: now, batch: batch, results: make([]storage.Inserted, len(batch))}
	for _, step := range []func() error{b.load, b.resolve, b.refuseDraining, b.makeRoom, b.write} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return b.results, nil
}

// inserting is a batch on its way. Everything is worked out first, on copies of what is stored, and written at the end.
type inserting struct {
	tx      Tx
	now     time.Time
	batch   []storage.Insert
	results []storage.Inserted

	first   []uint64          // the version in which each of the batch is stored
	peers   map[string][]*Row // by fingerprint, in order of insertion: stored ones, then those of the batch
	mine    []*Row            // the batch's, as they will be stored; nil: will not be
	changed []*Row            // to be saved, those that end in the order in which they do; the batch's only if they end
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
	there, first, err := b.tx.Stored(ids)
	if err != nil {
		return err
	}
	if err := Check(b.batch, there); err != nil {
		return err
	}
	b.first = first
	b.peers = make(map[string][]*Row)
	if len(prints) == 0 {
		return nil
	}
	slices.Sort(prints)
	found, err := b.tx.Peers(slices.Compact(prints))
	slices.SortFunc(found, func(x, y *Row) int { return cmp.Compare(x.Seq, y.Seq) })
	for _, r := range found {
		b.peers[r.Fingerprint] = append(b.peers[r.Fingerprint], r)
	}
	return err
}

func (b *inserting) resolve() error {
	b.mine = make([]*Row, len(b.batch))
	for i := range b.batch {
		r := &b.batch[i].Record
		if r.Fingerprint != "" && r.Unique != nil {
			taken, err := b.unique(r, b.batch[i].KeepActive, &b.results[i])
			if err != nil {
				return err
			}
			if taken {
				continue
			}
		}
		row := &Row{Record: *r}
		row.Version = b.first[i]
		b.mine[i] = row
		b.results[i].Version = b.first[i]
		if r.Fingerprint != "" {
			b.peers[r.Fingerprint] = append(b.peers[r.Fingerprint], row)
		}
	}
	return nil
}

// unique resolves the conflicts of a record with those that are stored or will be before it. It reports whether the record is
// not to be stored.
func (b *inserting) unique(r *storage.Record, keepActive bool, result *storage.Inserted) (bool, error) {
	var inWay []*Row // the newest last
	for _, p := range b.peers[r.Fingerprint] {
		if r.Unique.Counts(p.State, p.CreatedAt, b.now) {
			inWay = append(inWay, p)
		}
	}
	if len(inWay) == 0 {
		return false, nil
	}
	slices.SortStableFunc(inWay, func(a, b *Row) int { return a.CreatedAt.Compare(b.CreatedAt) })
	newest := inWay[len(inWay)-1]
	var takes *Row
	switch r.Unique.Strategy() {
	case ojs.ConflictIgnore:
		c := newest.Copy()
		result.Existing = &c
		return true, nil
	case ojs.ConflictReplaceExceptSchedule:
		for _, p := range inWay {
			if p.State == ojs.StateScheduled {
				takes = p
			}
		}
	case ojs.ConflictReplace:
	default:
		return false, &ojs.DuplicateError{ID: newest.ID, State: newest.State, Fingerprint: r.Fingerprint}
	}
	for _, p := range slices.Backward(inWay) {
		if keepActive && p.State == ojs.StateActive {
			return false, &ojs.DuplicateError{ID: p.ID, State: p.State, Fingerprint: r.Fingerprint}
		}
	}
	for _, p := range inWay {
		if p != takes && !p.State.Terminal() {
			b.end(p, func(r *storage.Record) { r.Cancel(b.now) })
			result.Replaced = append(result.Replaced, p.Copy())
		}
	}
	if takes == nil {
		return false, nil
	}
	takes.Update(r)
	if takes.Seq != 0 && !slices.Contains(b.changed, takes) {
		b.changed = append(b.changed, takes)
	}
	c := takes.Copy()
	result.Existing, result.Updated = &c, true
	return true, nil
}

// end makes the transition of a job that ends, and puts it behind those that have ended before.
func (b *inserting) end(r *Row, how func(*storage.Record)) {
	how(&r.Record)
	if at := slices.Index(b.changed, r); at >= 0 { // it has been updated
		b.changed = slices.Delete(b.changed, at, at+1)
	}
	b.changed = append(b.changed, r)
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

// overflow is by how much a batch overfills a queue.
type overflow struct {
	queue              string
	excess, most, last int
}

// makeRoom looks whether the bounded queues take the batch, and drops what has to go for it.
func (b *inserting) makeRoom() error {
	stored := make(map[string]int) // by queue: the stored jobs that have not ended, after the batch
	depth := func(queue string) (int, error) {
		if n, known := stored[queue]; known {
			return n, nil
		}
		n, err := b.tx.Depth(queue)
		for _, r := range b.changed {
			if r.Seq != 0 && r.Queue == queue && r.State.Terminal() {
				n--
			}
		}
		stored[queue] = n
		return n, err
	}
	var bounded []string
	for i := range b.batch {
		if b.batch[i].MaxDepth > 0 {
			bounded = append(bounded, b.batch[i].Record.Queue)
		}
	}
	slices.Sort(bounded) // a lookup may lock, and all have to lock in the same order
	for _, q := range slices.Compact(bounded) {
		if _, err := depth(q); err != nil {
			return err
		}
	}
	comes := make(map[string]int) // by queue: the jobs of the batch so far that stay
	var full []*overflow
	for i := range b.batch {
		in := &b.batch[i]
		q := in.Record.Queue
		if b.mine[i] == nil || b.mine[i].State.Terminal() {
			continue
		}
		comes[q]++
		if in.MaxDepth == 0 {
			continue
		}
		n, err := depth(q)
		if err != nil {
			return err
		}
		over := n + comes[q] - in.MaxDepth
		if over <= 0 {
			continue
		}
		if !in.DropOldest {
			return &ojs.QueueError{Queue: q, MaxDepth: in.MaxDepth, Err: ojs.ErrQueueFull}
		}
		at := slices.IndexFunc(full, func(o *overflow) bool { return o.queue == q })
		if at < 0 {
			at = len(full)
			full = append(full, &overflow{queue: q})
		}
		full[at].excess, full[at].most, full[at].last = max(full[at].excess, over), in.MaxDepth, i
	}
	slices.SortFunc(full, func(x, y *overflow) int { return cmp.Compare(x.last, y.last) })
	for _, o := range full {
		var gone []string
		for _, r := range b.changed {
			gone = append(gone, r.ID)
		}
		oldest, err := b.tx.Oldest(o.queue, b.now, o.excess, gone)
		if err != nil {
			return err
		}
		if len(oldest) < o.excess {
			return &ojs.QueueError{Queue: o.queue, MaxDepth: o.most, Err: ojs.ErrQueueFull}
		}
		for _, r := range oldest {
			b.end(r, func(r *storage.Record) { r.Drop(b.now) })
			b.results[o.last].Dropped = append(b.results[o.last].Dropped, r.Copy())
		}
		stored[o.queue] -= len(oldest)
	}
	for i := range b.batch {
		if b.batch[i].MaxDepth > 0 {
			q := b.batch[i].Record.Queue
			n, err := depth(q)
			if err != nil {
				return err
			}
			b.results[i].Depth = n + comes[q]
		}
	}
	return nil
}

func (b *inserting) write() error {
	var added []*storage.Record
	for i, r := range b.mine {
		switch {
		case r == nil:
		case r.State.Terminal(): // added as it came, to end in its turn among the stored ones
			came := b.batch[i].Record
			came.Version = b.first[i]
			r.Was = came.Version
			added = append(added, &came)
		default:
			added = append(added, &r.Record)
		}
	}
	var err error
	if len(added) > 0 {
		err = b.tx.Add(added)
	}
	if err == nil && len(b.changed) > 0 {
		err = b.tx.Save(b.changed)
	}
	return err
}

// Refused reports whether an error of Insert says something about the batch and nothing about the storage.
func Refused(err error) bool {
	return errors.Is(err, ojs.ErrDuplicate) || errors.Is(err, ojs.ErrInvalid) || errors.Is(err, ojs.ErrQueueFull) || errors.Is(err, ojs.ErrQueueDraining)
}
