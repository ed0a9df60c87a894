package keyed

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
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
		return fail.Must(insert.Batch(t, now, batch))
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
			n += t.count(byte(rows.Code(state)), storage.LimitName{Kind: storage.LimitQueue, Name: queue})
		}
	}
	return n, nil
}

// Oldest implements insert.Tx. Within a priority the places rise with the rounds: a job's
// round is never behind its place.
func (t *tx) Oldest(queue string, now time.Time, n int, without []string) ([]*insert.Job, error) {
	all := newKey(availableTable).name(queue)
	var oldest []*insert.Job // by place
	for from := (key{}); n > 0 && from != nil; {
		var priority key
		for rest, seq := range t.scan(all, from) {
			if priority == nil {
				priority = append(key{}, rest[:numberLen]...)
			}
			full := len(oldest) == n
			if !bytes.HasPrefix(rest, priority) || full && number(rest[numberLen:]) > oldest[n-1].Place {
				break
			}
			j := t.load(seq)
			if full && j.Place > oldest[n-1].Place || j.Expired(now) || slices.Contains(without, j.ID) {
				continue
			}
			at, _ := slices.BinarySearchFunc(oldest, j.Place, func(o *insert.Job, place int64) int {
				return cmp.Compare(o.Place, place)
			})
			oldest = slices.Insert(oldest, at, &j.Job)
			oldest = oldest[:min(n, len(oldest))]
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
			t.noticeTaken(j, ojs.ErrReplaced)
		}
		t.change(j, j.State != to.State, func(r *storage.Record) { *r = to.Record })
	}
	return nil
}
