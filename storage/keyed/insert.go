package keyed

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/insert"
)

var _ insert.Tx = (*tx)(nil)

// Insert implements storage.Storage. Package insert has its rules.
func (s *Storage) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) ([]storage.Inserted, error) {
	results, err := change(ctx, s, func(t *tx) []storage.Inserted {
		t.at(now)
		t.fetchLimits(len(batch), func(i int) string { return limitOf(&batch[i].Record) })
		for i := range batch {
			if key := limitOf(&batch[i].Record); key != "" && !t.key(key).Stored {
				t.forget(now.UnixNano())
			}
		}
		t.everyEnd = storage.Awaited(batch)
		return must(insert.Batch(t, now, batch))
	})
	return append(dst, results...), err
}

// States implements insert.Tx.
func (t *tx) States(ids []string) (map[string]ojs.State, []uint64, error) {
	stored := make(map[string]ojs.State)
	t.fetch(ids)
	for _, id := range ids {
		if seq := t.get(idKey(id)); seq != nil {
			stored[id] = t.load(seq).State
		}
	}
	return stored, slices.Repeat([]uint64{t.floor() + 1}, len(ids)), nil
}

// Peers implements insert.Tx.
func (t *tx) Peers(fingerprints []string) (peers []*insert.Job, err error) {
	for _, f := range fingerprints {
		for seq := range t.scan(newKey(equalTable).name(f), nil) {
			peers = append(peers, &t.load(seq).Job)
		}
	}
	return peers, nil
}

// Draining implements insert.Tx.
func (t *tx) Draining(queues []string) (string, error) {
	for _, q := range queues {
		if t.queueState(q) == ojs.QueueDraining {
			return q, nil
		}
	}
	return "", nil
}

// Depth implements insert.Tx.
func (t *tx) Depth(queue string) (n int, err error) {
	for _, state := range ojs.AllStates() {
		if !state.Terminal() {
			for _, count := range t.scan(newKey(countTable).byte(byte(rows.Code(state))).name(queue), nil) {
				n += int(number(count))
			}
		}
	}
	return n, nil
}

// Oldest implements insert.Tx. Without a fairness key, the jobs of a priority are in the
// order of their places; with one, the table aged has them.
func (t *tx) Oldest(queue string, now time.Time, n int, without []string) ([]*insert.Job, error) {
	var oldest []*insert.Job // by place
	add := func(seq []byte) (full bool) {
		j := t.load(seq)
		if full = len(oldest) == n && j.Place > oldest[n-1].Place; full || j.Expired(now) ||
			slices.Contains(without, j.ID) {
			return full
		}
		at, _ := slices.BinarySearchFunc(oldest, j.Place, func(o *insert.Job, place int64) int {
			return cmp.Compare(o.Place, place)
		})
		oldest = slices.Insert(oldest, at, &j.Job)
		oldest = oldest[:min(n, len(oldest))]
		return false
	}
	if n == 0 {
		return nil, nil
	}
	for _, seq := range t.scan(newKey(agedTable).name(queue), nil) {
		if add(seq) {
			break
		}
	}
	all := newKey(availableTable).name(queue)
	for from := (key{}); from != nil; {
		var priority key
		for rest, seq := range t.scan(all, from) {
			if priority == nil {
				priority = append(key{}, rest[:numberLen]...)
			}
			if !bytes.HasPrefix(rest, priority) || number(rest[numberLen:]) != 0 || add(seq) {
				break
			}
		}
		if from = nil; priority != nil {
			from = behind(priority)
		}
	}
	return oldest, nil
}

// Add implements insert.Tx.
func (t *tx) Add(records []*storage.Record) error {
	for _, r := range records {
		seq := t.next(placeName)
		t.store(&job{Job: insert.Job{Record: *r, Seq: seq, Place: seq}})
	}
	return nil
}

// Save implements insert.Tx.
func (t *tx) Save(changed []*insert.Job) error {
	for _, to := range changed {
		j := t.find(to.ID)
		if to.State.Terminal() {
			t.taken(j, ojs.ErrReplaced)
		}
		t.change(j, j.State != to.State, func(r *storage.Record) { *r = to.Record })
	}
	return nil
}
