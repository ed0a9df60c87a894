package insert_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/insert"
)

// table is a transaction over a few rows.
type table struct {
	insert.Tx
	peers []*insert.Job
	saved []insert.Job
	added []storage.Record

	meanwhile map[string]ojs.State // what another call stores while Peers waits for it
	stored    map[string]ojs.State
}

func (t *table) States([]string) (map[string]ojs.State, []uint64, error) {
	return t.stored, []uint64{11, 12}, nil
}
func (t *table) Peers([]string) ([]*insert.Job, error) {
	t.stored = t.meanwhile
	return t.peers, nil
}
func (t *table) Await(time.Time, []storage.Insert, func(int) bool) ([]storage.Record, error) {
	return nil, nil
}
func (t *table) Draining([]string) (string, error) { return "", nil }
func (t *table) Save(changed []*insert.Job) error {
	for _, r := range changed {
		t.saved = append(t.saved, *r)
	}
	return nil
}
func (t *table) Add(recs []*storage.Record) error {
	for _, r := range recs {
		t.added = append(t.added, *r)
	}
	return nil
}

// A stored job that a batch first updates and then cancels is saved once, two versions
// on, and knows the version that it had.
func TestTwoStepsOfOneJob(t *testing.T) {
	now := time.Unix(0, 0).UTC()
	job := func(id string, state ojs.State, c ojs.Conflict) storage.Record {
		var r storage.Record
		r.ID, r.State, r.Queue, r.Fingerprint, r.CreatedAt = id, state, "q", "f", now
		r.Unique = &ojs.UniquePolicy{OnConflict: c}
		return r
	}
	there := job("there", ojs.StateScheduled, ojs.ConflictReject)
	there.Version = 5
	tx := &table{peers: []*insert.Job{{Record: there, Seq: 1, Was: 5}}}
	results, err := insert.Batch(tx, now, []storage.Insert{
		{Record: job("updates", ojs.StateAvailable, ojs.ConflictReplaceExceptSchedule)},
		{Record: job("replaces", ojs.StateAvailable, ojs.ConflictReplace)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(tx.saved) != 1 || tx.saved[0].State != ojs.StateCancelled || tx.saved[0].Version != 7 ||
		tx.saved[0].Was != 5 {
		t.Errorf("saved %+v", tx.saved)
	}
	if !slices.EqualFunc(tx.added, []string{"replaces"}, func(r storage.Record, id string) bool {
		return r.ID == id
	}) {
		t.Errorf("added %+v", tx.added)
	}
	if !results[0].Updated || results[0].Version != 0 || len(results[1].Replaced) != 1 ||
		results[1].Version != 12 || tx.added[0].Version != 12 {
		t.Errorf("%+v", results)
	}
}

// A job that another call stores while the lookup of equal jobs waits for that call has
// its id taken, and is no job of the batch. It need not be equal to one of the batch. The
// error is about the first such job.
func TestIDTakenWhileEqualsAreLookedUp(t *testing.T) {
	var r storage.Record
	r.ID, r.State, r.Queue, r.Fingerprint = "same", ojs.StateAvailable, "q", "f"
	r.Unique = &ojs.UniquePolicy{OnConflict: ojs.ConflictIgnore}
	there := r
	there.State, there.Version = ojs.StateScheduled, 5
	first, other := r, r
	first.ID, first.Fingerprint, first.Unique = "first", "", nil
	other.ID = "other"
	for want, batch := range map[string][]storage.Insert{
		"same": {{Record: r}}, "first": {{Record: first}, {Record: r}}, "other": {{Record: other}},
	} {
		tx := &table{
			peers: []*insert.Job{{Record: there, Seq: 1, Was: 5}},
			meanwhile: map[string]ojs.State{
				"same": ojs.StateScheduled, "first": ojs.StateScheduled, "other": ojs.StateScheduled,
			},
		}
		results, err := insert.Batch(tx, time.Now(), batch)
		var taken *ojs.DuplicateError
		if !errors.As(err, &taken) || taken.ID != want || taken.State != ojs.StateScheduled {
			t.Errorf("%s: %+v, %v", want, results, err)
		}
	}
}
