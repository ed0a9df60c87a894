package keyed

import (
	"context"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/insert"
)

// Saved is what another store held, for Restore.
type Saved struct {
	// Last is a number that no number, place, round or version of a job exceeds, and that
	// later ones will. LastCron is so for the versions of recurring entries. Each call
	// for a store names the same.
	Last, LastCron int64

	Jobs       []SavedJob
	Crons      []storage.Cron
	Limits     []SavedLimit // before the jobs of their keys
	Rounds     []SavedRound // behind the jobs of their queues
	Quarantine []SavedAside
}

// SavedJob is a job. The numbers are above 0, and no two jobs have the same Seq.
type SavedJob struct {
	Record storage.Record // with its version
	Seq    int64          // its number in the order of insertion
	Place  int64          // by which it comes before others of its state and queue
	Round  int64          // of its turn by fairness; 0: it is in none

	KeptUntil time.Time // until when its workflow keeps it; zero: no longer than Record.KeptUntil
	Counted   bool      // its Dependencies are the storage's to count
	Awaited   bool      // other jobs may wait for it
	Handle    string    // the name of the handle that has claimed it (Enter); "": not known
	Lined     bool      // it is in the line of its ordering key, or has the turn
	WaitsFor  []int64   // the Seqs of the jobs whose ends are to be counted for it
	Logs      []storage.Log
}

// SavedLimit is what is known of a limit besides its jobs.
type SavedLimit struct {
	storage.LimitName
	Setting        *ojs.RateLimit // by SetLimit; nil: none
	Until, Blocked time.Time      // when the setting ends; until when no job starts
	Last           *ojs.RateLimit // the bounds of the job of a key that started last; nil: not known
	Window         time.Duration  // how long a start counts at most
	Most           int            // starts that count at most
	Starts         []time.Time    // in order
}

// SavedRound is the latest round of a queue and a priority of which a job was claimed.
type SavedRound struct {
	Queue    string
	Priority int
	Round    int64
}

// SavedAside is a record that does not decode. Value is what is left of it. It can be
// listed and deleted, and its release is refused.
type SavedAside struct {
	storage.Quarantined
	Value []byte
}

// Restore puts into a store what another one held. It checks nothing, and is for a store
// that is not in use yet. Several calls restore parts: see Saved. States of queues and
// values are set as ever.
func (s *Storage) Restore(ctx context.Context, saved *Saved) error {
	return s.do(ctx, func(t *tx) {
		crons := versionName + string(storage.KindCron)
		for name, last := range map[string]int64{placeName: saved.Last, crons: saved.LastCron} {
			if k := meta(name); t.number(k) < last {
				t.putNumber(k, last)
			}
		}
		t.raiseFloor(uint64(saved.Last))
		for i := range saved.Limits {
			t.restoreLimit(&saved.Limits[i])
		}
		for i := range saved.Jobs {
			t.restoreJob(&saved.Jobs[i])
		}
		for _, r := range saved.Rounds {
			t.putNumber(newKey(servedTable).name(r.Queue).number(^int64(r.Priority)), r.Round)
		}
		for i := range saved.Crons {
			c := &saved.Crons[i]
			t.storeDocument(storage.KindCron, &storage.Document{
				Name: c.Name, Version: c.Version, Due: c.NextRun, Data: fail.Must(rows.EncodeCron(c))})
		}
		for i := range saved.Quarantine {
			t.restoreAside(&saved.Quarantine[i])
		}
	})
}

func (t *tx) restoreJob(r *SavedJob) {
	j := &job{Job: insert.Job{Record: r.Record, Seq: r.Seq, Place: r.Place}, round: r.Round}
	for flag, set := range map[flags]bool{counted: r.Counted, awaited: r.Awaited, lined: r.Lined} {
		if set {
			j.flags |= flag
		}
	}
	if j.waiting() {
		j.since = t.next(placeName)
	}
	if j.State.Terminal() && r.KeptUntil.After(j.KeptUntil()) {
		j.flags, j.keptOn = j.flags|keptOn, r.KeptUntil
	}
	if r.Handle != "" {
		j.handle = t.enterHandle(r.Handle)
	}
	t.link(j)
	t.join(j)
	for _, seq := range r.WaitsFor {
		t.put(newKey(edgeTable).number(seq).number(j.Seq), key{}.number(j.since))
	}
	for _, log := range r.Logs {
		t.put(newKey(logTable).number(j.Seq).number(int64(log.Version)), log.Data)
	}
}

func (t *tx) restoreLimit(r *SavedLimit) {
	t.setLimit(r.LimitName, func(c *limit) {
		if r.Setting != nil {
			c.Set(*r.Setting, r.Until)
		}
		if !r.Blocked.IsZero() { // or else it would end a block
			c.Block(r.Blocked)
		}
		if r.Last != nil {
			c.Last = string(key{}.appendBounds(r.Last))
		}
		c.Window, c.Most = max(c.Window, int64(r.Window)), max(c.Most, int64(r.Most))
		for _, at := range r.Starts {
			t.start(c, at.UnixNano())
		}
	})
}

func (t *tx) restoreAside(r *SavedAside) {
	a := aside{Quarantined: r.Quarantined, value: append([]byte{}, r.Value...)}
	switch a.Kind {
	case storage.KindJob:
		a.key = jobKey(newSeq(t.next(placeName)))
	case storage.KindQueue:
		a.key = newKey(queueTable).name(a.Name)
	default:
		a.key = documentKey(a.Kind, a.Name)
	}
	if a.At.IsZero() {
		a.At = wall.Now().UTC()
	}
	t.enterAside(&a)
}
