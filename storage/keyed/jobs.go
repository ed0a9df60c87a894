package keyed

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/internal/times"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/depend"
	"github.com/ojsengine/ojs/storage/insert"
)

// job is a stored job.
type job struct {
	insert.Job
	flags  flags
	limit  string    // as the value has it: the key of the limit that counts it, "" if there is none
	round  int64     // its round among jobs that take turns; 0: it is in none
	since  int64     // number of the time for which it waits for others; 0: it does not
	keptOn time.Time // until when its workflow keeps it; zero: no longer than its KeptUntil
	back   spot      // where an active job was before its claim
	handle int64     // number of the handle that has claimed an active job; 0: not known
	begun  bool      // a claim has counted its start, and has taken it out of its lane
	body   []byte    // of its value; nil: it has to be encoded
}

// spot is where an available job is; 0: not known.
type spot struct{ place, round int64 }

// flags are what the storage notes of a job. They are stored.
type flags byte

const (
	counted  flags = 1 << iota // its Dependencies are the storage's
	awaited                    // it has edges
	lined                      // it is in a line, or has the turn
	keptOn                     // job.keptOn follows
	released                   // it has ended, and its time to be kept is over
	buried                     // it is active, and its handle is dead: it is due at any time
)

// become has a job take over a record, under its version raised by one.
func (j *job) become(to *storage.Record) {
	kept := j.Dependencies
	j.Record = *to
	j.Version++
	if j.flags&counted != 0 {
		j.Dependencies = kept
	}
}

// noted brings what the storage notes of a job to the state that it has come into.
func (t *tx) noted(j *job, was ojs.State) {
	if j.State != ojs.StatePending {
		j.since = 0
	} else if j.since == 0 && j.flags&counted != 0 {
		j.since = t.next(placeName)
	}
	if !j.State.Terminal() || !was.Terminal() {
		j.flags, j.keptOn = j.flags&^(keptOn|released), time.Time{}
	}
	if !j.State.Terminal() {
		return
	}
	if !was.Terminal() && (t.everyEnd || j.flags&(awaited|lined) != 0) {
		t.ends = append(t.ends, depend.End{Seq: j.Seq, ID: j.ID, State: j.State, Line: j.line()})
	}
	j.flags &^= awaited | lined
}

// comesFrom notes where an active job goes if its claim is undone.
func (j *job) comesFrom(before *job) {
	if before.State == ojs.StateAvailable {
		j.back = spot{before.Place, before.round}
	}
	if j.Fairness.Key != before.Fairness.Key || j.Queue != before.Queue || j.Priority != before.Priority {
		j.back.round = 0
	}
}

// wakeAt is when Due has to look at a job.
func (j *job) wakeAt() time.Time {
	if j.flags&buried != 0 {
		return time.Unix(0, 0)
	}
	return j.WakeAt()
}

// keptUntil is until when a finished job is kept.
func (j *job) keptUntil() time.Time {
	return times.Latest(j.keptOn, j.KeptUntil())
}

// entry is what a job has in an index.
type entry struct{ key, value key }

// indexes are the entries of a job, one in each table at most. The table id has one
// besides, which never changes.
type indexes []entry

// find returns the entry in a table, given the table's byte, or one without a key.
func (list indexes) find(t byte) entry {
	for _, e := range list {
		if e.key[0] == t {
			return e
		}
	}
	return entry{}
}

// entries collects the entries of a job.
type entries struct {
	list indexes
	buf  key // with the keys and values
}

// room begins a key or a value, which reserve ends.
func (e *entries) room() key { return e.buf[len(e.buf):] }

// reserve keeps the room of a key or a value from others.
func (e *entries) reserve(k key) key {
	if len(k) <= cap(e.buf)-len(e.buf) { // or else it has memory of its own
		e.buf = e.buf[:len(e.buf)+len(k)]
	}
	return k
}

// in begins a key in a table.
func (e *entries) in(t table) key { return e.room().byte(byte(t)) }

func (e *entries) add(k, value key) { e.list = append(e.list, entry{e.reserve(k), value}) }

// of collects the entries of a job, given the state that it is in.
func (e *entries) of(j *job) indexes {
	if e.buf == nil {
		e.buf = make(key, 0, 1024)
	}
	e.list, e.buf = e.list[:0], e.buf[:0]
	seq := e.reserve(e.room().number(j.Seq))
	if j.Fingerprint != "" {
		e.add(e.in(equalTable).name(j.Fingerprint).number(j.Seq), nil)
	}
	if j.State == ojs.StateAvailable {
		if !j.inLane() {
			value := e.reserve(j.ready(e.room()))
			e.add(j.rank(e.in(readyTable).name(j.Queue).name(j.Type)), value)
		}
		e.add(j.rank(e.in(availableTable).name(j.Queue)), seq)
	}
	at, kind, value := j.wakeAt(), waits, seq
	if j.State == ojs.StateActive {
		if kind = leased; at.IsZero() {
			kind = unleased
		}
		value = e.reserve(append(e.room(), seq...).text(j.Worker))
	}
	if kind != waits || !at.IsZero() {
		e.add(e.in(wakeTable).byte(kind).time(at).number(j.Place), value)
	}
	if j.DeadLettered() {
		e.add(e.in(deadTable).number(j.Place), seq)
		e.add(e.in(deadOfTable).name(j.Queue).name(j.Type).number(j.Place), seq)
	}
	if j.State.Terminal() {
		at = j.FinishedAt
		e.add(j.group(e.in(endedTable)).time(at).number(j.Place), seq)
		if until := j.keptUntil(); !until.IsZero() {
			e.add(e.in(keptTable).bool(j.flags&released != 0).time(until).number(j.Seq), nil)
		}
	}
	if line := j.line(); line != "" && j.InLine() {
		e.add(e.in(lineTable).name(line).number(j.Seq), nil)
	} else if line != "" {
		e.add(e.in(turnTable).name(line).number(j.Seq), nil)
	}
	if rare(j.State) {
		e.add(j.section(e.in(stateTable)).number(j.Seq), seq)
		if j.State.Terminal() || !at.IsZero() {
			e.add(j.section(e.in(timeTable)).time(at).number(j.Place), seq)
		}
	}
	if j.State == ojs.StateDiscarded && j.Error != nil {
		failed := e.in(failTable).name(j.Error.Type[:min(len(j.Error.Type), maxName)])
		e.add(failed.time(at).number(j.Place), seq)
	}
	if keeper := j.Keeper(); keeper != "" {
		e.add(e.in(workflowTable).name(keeper).number(j.Seq), seq)
		if keeper == j.ID {
			e.add(e.in(keeperTable).number(j.Seq), seq)
		}
	}
	return e.list
}

// rare reports whether the table state has the jobs in a state. The table time has those
// of them with a time, and the table wake the active jobs.
func rare(state ojs.State) bool { return storage.Rare(state) && state != ojs.StateActive }

// group appends the beginning of the keys of the jobs that have ended in a state, dead
// letters or not. Prune looks at those that are not kept.
func (k key) group(state ojs.State, dead, kept bool) key {
	return k.byte(byte(rows.Code(state))).bool(dead).bool(kept)
}

// wakeKey is the beginning of the keys in the table wake of jobs of a kind.
func wakeKey(kind byte) key { return newKey(wakeTable).byte(kind) }

// claims returns the seqs of the active jobs, each with its worker behind it, in the
// order of insertion.
func (t *tx) claims() (list [][]byte) {
	for _, kind := range []byte{leased, unleased} {
		for _, seq := range t.scan(wakeKey(kind), nil) {
			list = append(list, seq)
		}
	}
	slices.SortFunc(list, bytes.Compare)
	return list
}

// endedKey is the beginning of the keys of a group in the table ended.
func endedKey(state ojs.State, dead, kept bool) key {
	return newKey(endedTable).group(state, dead, kept)
}

// group appends the group of a finished job.
func (j *job) group(k key) key {
	kept := !j.keptUntil().IsZero() && j.flags&released == 0
	return k.group(j.State, j.DeadLettered(), kept)
}

// section appends the state, the queue and the type of a job.
func (j *job) section(k key) key {
	return k.byte(byte(rows.Code(j.State))).name(j.Queue).name(j.Type)
}

func countKey(j *job) key { return j.section(newKey(countTable)) }

// tally changes the counters of a job.
func (t *tx) tally(j *job, by int) {
	t.countJob(j, by)
	if j.State.Terminal() {
		t.add(j.group(newKey(sizeTable)), by)
	}
}

// idKey is where the seq of a job is by its id, and jobKey where the job is by its seq.
func idKey(id string) key      { return newKey(idTable).name(id) }
func jobKey(seq []byte) []byte { return append(newKey(jobTable), seq...) }

func newSeq(seq int64) key { return make(key, 0, numberLen).number(seq) }

// save writes the value of a job.
func (t *tx) save(j *job) {
	t.o.value = j.encode(t.o.value[:0])
	t.put(jobKey(newSeq(j.Seq)), t.o.value)
}

// find returns the job with an id, nil if there is none.
func (t *tx) find(id string) *job {
	if seq := t.get(idKey(id)); seq != nil {
		return t.load(seq)
	}
	return nil
}

// load returns a job, nil if there is none. It shares no memory with the store but its
// body.
func (t *tx) load(seq []byte) *job {
	v := t.get(jobKey(seq))
	if v == nil {
		return nil
	}
	return readJob(seq, v, nil)
}

// findFor returns the job that a change is about, nil if there is none.
func (t *tx) findFor(c *storage.Change) *job {
	seq := t.get(idKey(c.Record.ID))
	if seq == nil || !c.AttemptFieldsOnly {
		return t.find(c.Record.ID)
	}
	return readJob(seq, t.get(jobKey(seq)), &c.Record)
}

// fetch reads the jobs of ids at once.
func (t *tx) fetch(ids []string) {
	if len(ids) < 2 {
		return
	}
	for _, id := range ids {
		t.o.ask(idKey(id))
	}
	t.o.fetch()
	for _, id := range ids {
		if seq := t.get(idKey(id)); seq != nil {
			t.o.ask(jobKey(seq))
		}
	}
	t.o.fetch()
}

// store writes a job that has no entries in the indexes, and adds them.
func (t *tx) store(j *job) {
	t.enterRound(j)
	t.link(j)
}

// link writes a job with its entries.
func (t *tx) link(j *job) {
	t.save(j)
	t.put(idKey(j.ID), newSeq(j.Seq))
	t.replace(nil, t.o.now.of(j))
	t.tally(j, 1)
	t.enterLimit(j)
	t.notice.Add(j.ID, j.State, j.WakeAt())
}

// change changes a stored job. If it moves, it goes behind all others, wherever it is
// then.
func (t *tx) change(j *job, moves bool, transition func(r *storage.Record)) {
	t.attempt(j, moves, func(r *storage.Record) { transition(r); j.body = nil })
}

// attempt is a change of nothing but what attempts change, as
// storage.Change.AttemptFieldsOnly has it, and of what the storage notes of the job.
func (t *tx) attempt(j *job, moves bool, transition func(r *storage.Record)) {
	was := t.o.was.of(j)
	before := *j
	j.flags &^= buried
	transition(&j.Record)
	t.noted(j, before.State)
	j.comesFrom(&before)
	if moves {
		t.leaveRound(&before)
		j.Place = t.next(placeName)
		t.enterRound(j)
	}
	enters := t.leaveLimit(&before, j)
	t.save(j)
	t.replace(was, t.o.now.of(j))
	if enters { // the entries of a lane may be where others were
		t.enterLimit(j)
	}
	if before.State != j.State || before.Queue != j.Queue || before.Type != j.Type || j.State.Terminal() {
		t.tally(&before, -1)
		t.tally(j, 1)
	}
	if !before.State.Terminal() || !j.State.Terminal() {
		t.notice.Add(j.ID, j.State, j.wakeAt())
	}
}

// noticeTaken tells that a claim is taken from its holder.
func (t *tx) noticeTaken(j *job, cause error) {
	if j.State == ojs.StateActive {
		t.notice.AddTaken(j.ID, j.Version, cause)
	}
}

// replace writes the entries of a job in the place of those that it had.
func (t *tx) replace(was, now indexes) {
	for _, e := range was {
		if has := now.find(e.key[0]); !bytes.Equal(has.key, e.key) {
			t.delete(e.key)
		}
	}
	for _, e := range now {
		had := was.find(e.key[0])
		if bytes.Equal(had.key, e.key) && bytes.Equal(had.value, e.value) {
			continue
		}
		if t.put(e.key, e.value); table(e.key[0]) == readyTable {
			t.entersReady(e.key)
		}
	}
}

// remove deletes a job. The floor of the versions rises to its version, so that no claim
// token of it fits a later job.
func (t *tx) remove(j *job) {
	t.replace(t.o.was.of(j), nil)
	t.delete(idKey(j.ID))
	t.tally(j, -1)
	seq := newSeq(j.Seq)
	t.delete(jobKey(seq))
	t.deleteAll(logsKey(seq), 0)
	t.raiseFloor(j.Version)
}

func (t *tx) raiseFloor(version uint64) {
	t.putNumber(meta(floorName), int64(max(t.floor(), version)))
}

func (t *tx) floor() uint64 { return uint64(t.number(meta(floorName))) }

// Get implements storage.Storage.
func (s *Storage) Get(ctx context.Context, id string) (storage.Record, error) {
	return view(ctx, s, func(t *tx) storage.Record {
		j := t.find(id)
		if j == nil {
			t.quarantined(id)
			fail.With(fmt.Errorf("%w: job %q", ojs.ErrNotFound, id))
		}
		return j.Record
	})
}

// Counts implements storage.Storage.
func (s *Storage) Counts(ctx context.Context) ([]storage.Count, error) {
	return view(ctx, s, func(t *tx) (counts []storage.Count) {
		for k, n := range t.scan(newKey(countTable), nil) {
			queue, jobType := section(k[1:])
			counts = append(counts, storage.Count{Queue: queue, Type: jobType,
				State: rows.State(int(k[0])), N: int(number(n))})
		}
		return counts
	})
}
