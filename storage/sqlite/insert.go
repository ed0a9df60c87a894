package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/insert"
)

// Insert implements storage.Storage.
func (s *Storage) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) ([]storage.Inserted, error) {
	if len(batch) == 0 {
		return dst, s.write(ctx, func(*tx) error { return nil })
	}
	var results []storage.Inserted
	store := func(t *tx) (err error) {
		results, err = insert.Batch(inserter{t}, now, batch)
		return err
	}
	if insert.Check(batch, nil) == nil {
		encoded := make([]stored, len(batch)) // here, since the writer has other things to do
		for i := range batch {
			rec := batch[i].Record // its version comes from the transaction
			var err error
			if encoded[i], err = encode(&rec); err != nil {
				return dst, err
			}
		}
		if insert.Plain(batch) { // of others it is known now that they encode
			store = func(t *tx) (err error) {
				results, err = t.addAll(encoded)
				return err
			}
		}
	}
	err := s.write(ctx, func(t *tx) error { return t.around(func() error { return store(t) }) })
	if err != nil {
		return dst, err
	}
	return append(dst, results...), nil
}

// addAll stores jobs that ask for no lookups but of ids and queues.
func (t *tx) addAll(encoded []stored) ([]storage.Inserted, error) {
	for i := range encoded {
		if h, taken, err := t.idTaken(encoded[i].ID); err != nil {
			return nil, err
		} else if taken {
			return nil, &ojs.DuplicateError{ID: encoded[i].ID, State: rows.State(h.state)}
		}
	}
	states, err := t.queueStates()
	if err != nil {
		return nil, err
	}
	for i := range encoded {
		if q := encoded[i].Queue; states[q] == string(ojs.QueueDraining) {
			return nil, &ojs.QueueError{Queue: q, Err: ojs.ErrQueueDraining}
		}
	}
	results := make([]storage.Inserted, len(encoded))
	for i := range encoded {
		encoded[i].Version = t.firstVersion()
		if err := t.add(&encoded[i]); err != nil {
			return nil, err
		}
		results[i].Version = uint64(encoded[i].Version)
	}
	return results, nil
}

// undecodable is the error of an insert that has met jobs among which are some that do
// not decode.
type undecodable struct{ among []stored }

func (u *undecodable) Error() string { return "ojs: sqlite: a stored job does not decode" }

// around makes an insert, which has written nothing if it meets jobs that do not decode:
// they are set aside, and it is made again.
func (t *tx) around(insert func() error) error {
	for {
		err := insert()
		var met *undecodable
		if !errors.As(err, &met) {
			return err
		}
		if err := t.setAsideUndecodable(met.among); err != nil {
			return err
		}
	}
}

// idTaken returns the head of the job that has an id, if there is one.
func (t *tx) idTaken(id string) (h head, taken bool, err error) {
	h, taken, err = t.head(id)
	if err != nil || !taken {
		return h, false, err
	}
	list, err := t.query(selectBySeq, h.seq).all()
	for k := range list {
		if _, bad := t.decode(&list[k]); bad != nil {
			return h, false, &undecodable{list}
		}
	}
	return h, true, err
}

// inserter is a transaction as insert.Batch wants it. There is one writer, so no
// other call comes between.
type inserter struct{ t *tx }

var _ insert.Tx = inserter{}

func (i inserter) States(ids []string) (map[string]ojs.State, []uint64, error) {
	found := make(map[string]ojs.State)
	first := make([]uint64, len(ids))
	for k, id := range ids {
		h, ok, err := i.t.idTaken(id)
		if err != nil {
			return nil, nil, err
		}
		if ok {
			found[id] = rows.State(h.state)
		}
		first[k] = uint64(i.t.firstVersion())
	}
	return found, first, nil
}

func (i inserter) Peers(fingerprints []string) ([]*rows.Row, error) {
	var peers []*rows.Row
	add := func(list []stored, err error) error {
		if err != nil {
			return err
		}
		for k := range list {
			r, err := i.t.decode(&list[k])
			if err != nil {
				return &undecodable{list}
			}
			peers = append(peers, r)
		}
		return err
	}
	for _, fp := range fingerprints {
		if err := add(i.t.query(selectOpenPeers, fp).all()); err != nil {
			return nil, err
		}
		for state := rows.Completed; state <= rows.Discarded; state++ {
			if err := add(i.t.query(selectNewestEnded, fp, state).all()); err != nil {
				return nil, err
			}
		}
	}
	return peers, nil
}

func (i inserter) Draining(queues []string) (string, error) {
	states, err := i.t.queueStates()
	for _, q := range queues {
		if states[q] == string(ojs.QueueDraining) {
			return q, err
		}
	}
	return "", err
}

func (i inserter) Depth(queue string) (int, error) {
	q := i.t.query(sumDepth, queue)
	n := 0
	if q.next() {
		n = q.int()
	}
	for k, moved := range i.t.moved {
		if k.queue == queue && !rows.Terminal(k.state) {
			n += moved
		}
	}
	return n, q.close()
}

func (i inserter) Oldest(queue string, now time.Time, n int, without []string) ([]*rows.Row, error) {
	skip := make(map[string]bool, len(without))
	for _, id := range without {
		skip[id] = true
	}
	var oldest []*rows.Row
	q := i.t.query(selectOldest, queue, rows.Nanos(now))
	for len(oldest) < n && q.next() {
		s := q.row()
		if skip[s.ID] {
			continue
		}
		r, err := i.t.decode(&s)
		if err != nil {
			_ = q.close()
			return nil, &undecodable{[]stored{s}}
		}
		oldest = append(oldest, r)
	}
	return oldest, q.close()
}

func (i inserter) Add(recs []*storage.Record) error {
	for _, r := range recs {
		row, err := encode(r)
		if err != nil {
			return err
		}
		if err := i.t.add(&row); err != nil {
			return err
		}
	}
	return nil
}

func (i inserter) Save(changed []*rows.Row) error {
	for _, r := range changed {
		h, _, err := i.t.head(r.ID)
		if err != nil {
			return err
		}
		if h.state == rows.Active {
			i.t.taken(r.ID, h.version, ojs.ErrReplaced)
		}
		s, err := encode(&r.Record)
		if err != nil {
			return err
		}
		s.seq, s.place, s.own = h.seq, h.place, h.own
		if h.state != s.State { // or it was given other args and meta, and keeps its place
			if err := i.t.enterPlace(&s); err != nil {
				return err
			}
		}
		if err := i.t.save(h.kind, &s, true); err != nil {
			return err
		}
		i.t.ends(h, s.ID, s.State)
	}
	return nil
}
