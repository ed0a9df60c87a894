package keyed

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/codec"
	"github.com/ojsengine/ojs/storage/insert"
)

// job is a stored job. Its value in the table of jobs is its place, its state, its queue
// and type, what the storage notes of it, and then the bytes of package codec: a listing
// need not decode the jobs that it does not select.
type job struct {
	insert.Job
	flags  flags
	limit  string    // as the value has it: the key of the limit that counts it, "" if there is none
	round  int64     // its round among jobs that take turns; 0: it is in none
	since  int64     // number of the time for which it waits for others; 0: it does not
	keptOn time.Time // until when its workflow keeps it; zero: no longer than its KeptUntil
	begun  bool      // a claim has counted its start, and has taken it out of its lane
}

// flags are what the storage notes of a job. They are stored.
type flags byte

const (
	counted  flags = 1 << iota // its Dependencies are the storage's
	awaited                    // it has edges
	lined                      // it is in a line, or has the turn
	keptOn                     // job.keptOn follows
	released                   // it has ended, and its time to be kept is over
)

// encode returns the value of a job.
func (j *job) encode() []byte {
	record := must(codec.EncodeRecord(&j.Record))
	v := make(key, 0, 24+len(j.Queue)+len(j.Type)+len(record))
	v = binary.AppendUvarint(v, uint64(j.Place))
	v = v.byte(byte(rows.Code(j.State))).name(j.Queue).name(j.Type).byte(byte(j.flags))
	v = binary.AppendUvarint(binary.AppendUvarint(v, uint64(j.round)), uint64(j.since))
	if j.flags&keptOn != 0 {
		v = v.time(j.keptOn)
	}
	v = binary.AppendUvarint(v.name(limitOf(&j.Record)), j.Version)
	return append(v, record...)
}

// decodeHead reads what stands before the record, and returns the record's bytes. Its
// error says that the value is damaged.
func (j *job) decodeHead(v []byte) (record []byte, err error) {
	r := reader{b: v}
	j.Place, j.State, j.Queue, j.Type = int64(r.uint()), rows.State(int(r.byte())), r.name(), r.name()
	j.flags, j.round, j.since = flags(r.byte()), int64(r.uint()), int64(r.uint())
	if j.flags&keptOn != 0 {
		j.keptOn = timeOf(r.take(timeLen))
	}
	if j.limit, j.Version = r.name(), r.uint(); r.short || j.State == "" {
		return nil, errors.New("the head of the record is damaged")
	}
	return r.b, nil
}

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
	}
	if !j.State.Terminal() || !was.Terminal() {
		j.flags, j.keptOn = j.flags&^(keptOn|released), time.Time{}
	}
	if !j.State.Terminal() {
		return
	}
	if !was.Terminal() && (t.everyEnd || j.flags&(awaited|lined) != 0) {
		t.ends = append(t.ends, end{j.Seq, j.ID, j.State, j.line()})
	}
	j.flags &^= awaited | lined
}

// keptUntil is until when a finished job is kept.
func (j *job) keptUntil() time.Time {
	if until := j.KeptUntil(); until.After(j.keptOn) {
		return until
	}
	return j.keptOn
}

// entry is what a job has in an index.
type entry struct {
	key   key
	value []byte
}

// entries appends the entries that a job has in the indexes, given the state that it is
// in. There is at most one in each table, in the order of the tables (replace).
func (t *tx) entries(j *job, list []entry) []entry {
	add := func(k key, value []byte) { list = append(list, entry{k, value}) }
	seq := key{}.number(j.Seq)
	add(newKey(idTable).name(j.ID), seq)
	if j.Fingerprint != "" {
		add(newKey(equalTable).name(j.Fingerprint).number(j.Seq), nil)
	}
	if j.State == ojs.StateAvailable {
		if !j.inLane() {
			add(append(newKey(readyTable).name(j.Queue).name(j.Type), j.rank()...), j.ready())
		}
		add(append(newKey(availableTable).name(j.Queue), j.rank()...), seq)
	}
	if at := j.WakeAt(); !at.IsZero() {
		add(newKey(wakeTable).time(at).number(j.Place), seq)
	}
	if j.DeadLettered() {
		add(newKey(deadTable).number(j.Place), seq)
	}
	if j.State.Terminal() {
		add(append(newKey(endedTable), j.group()...).time(j.FinishedAt).number(j.Place), seq)
		if until := j.keptUntil(); !until.IsZero() {
			add(newKey(keptTable).byte(byte(j.flags&released/released)).time(until).number(j.Seq), nil)
		}
	}
	if line := j.line(); line != "" && j.InLine() {
		add(newKey(lineTable).name(line).number(j.Seq), nil)
	} else if line != "" {
		add(newKey(turnTable).name(line).number(j.Seq), nil)
	}
	if j.State == ojs.StateActive {
		add(newKey(activeTable).number(j.Seq), key(seq).text(j.Worker))
	}
	return list
}

// groupOf is the beginning of the keys of the jobs that have ended in a state, dead
// letters or not. Prune looks at those that are not kept.
func groupOf(state ojs.State, dead, kept bool) (g []byte) {
	g = []byte{byte(rows.Code(state)), 0, 0}
	if dead {
		g[1] = 1
	}
	if kept {
		g[2] = 1
	}
	return g
}

// endedKey is the beginning of the keys of a group in the table ended.
func endedKey(state ojs.State, dead, kept bool) key {
	return append(newKey(endedTable), groupOf(state, dead, kept)...)
}

// group is that of a finished job.
func (j *job) group() []byte {
	kept := !j.keptUntil().IsZero() && j.flags&released == 0
	return groupOf(j.State, j.DeadLettered(), kept)
}

func countKey(j *job) key {
	return newKey(countTable).byte(byte(rows.Code(j.State))).name(j.Queue).name(j.Type)
}

// tally changes the counters of a job.
func (t *tx) tally(j *job, by int) {
	t.add(countKey(j), by)
	if j.State.Terminal() {
		t.add(append(newKey(sizeTable), j.group()...), by)
	}
}

// idKey is where the seq of a job is by its id, and jobKey where the job is by its seq.
func idKey(id string) key      { return newKey(idTable).name(id) }
func jobKey(seq []byte) []byte { return append(newKey(jobTable), seq...) }

// find returns the job with an id, nil if there is none.
func (t *tx) find(id string) *job {
	if seq := t.get(idKey(id)); seq != nil {
		return t.load(seq)
	}
	return nil
}

// load returns a job, nil if there is none. It shares no memory with the store.
func (t *tx) load(seq []byte) *job {
	v := t.get(jobKey(seq))
	if v == nil {
		return nil
	}
	return readJob(seq, v)
}

// readJob returns the job of a value.
func readJob(seq, v []byte) *job {
	j := new(job)
	record, err := j.decodeHead(v)
	var r storage.Record
	if err == nil {
		r, err = codec.DecodeRecord(record)
	}
	if err != nil {
		refuse(&undecodable{kind: storage.KindJob, key: jobKey(seq), why: err})
	}
	j.Record, j.Seq = r, number(seq)
	return j
}

// fetch reads the jobs of ids at once.
func (t *tx) fetch(ids []string) {
	if len(ids) < 2 {
		return
	}
	keys := make([][]byte, len(ids))
	for i, id := range ids {
		keys[i] = idKey(id)
	}
	t.o.fetch(keys)
	seqs := make([][]byte, 0, len(ids))
	for _, k := range keys {
		if seq := t.o.get(k); seq != nil {
			seqs = append(seqs, seq)
		}
	}
	t.fetchJobs(seqs)
}

func (t *tx) fetchJobs(seqs [][]byte) {
	keys := make([][]byte, len(seqs))
	for i, seq := range seqs {
		keys[i] = jobKey(seq)
	}
	t.o.fetch(keys)
}

// store writes a job that has no entries in the indexes, and adds them.
func (t *tx) store(j *job) {
	t.enterRound(j)
	t.link(j)
}

// link writes a job with its entries.
func (t *tx) link(j *job) {
	t.o.set(jobKey(key{}.number(j.Seq)), j.encode())
	for _, e := range t.entries(j, nil) {
		t.put(e.key, e.value)
	}
	t.tally(j, 1)
	t.enterLimit(j)
	t.notice.Add(j.ID, j.State, j.WakeAt())
}

// change changes a stored job. If it moves, it goes behind all others, wherever it is
// then.
func (t *tx) change(j *job, moves bool, transition func(r *storage.Record)) {
	var buf [16]entry
	was := t.entries(j, buf[:0])
	before := *j
	transition(&j.Record)
	t.noted(j, before.State)
	if moves {
		t.leaveRound(&before)
		j.Place = t.next(placeName)
		t.enterRound(j)
	}
	t.o.set(jobKey(key{}.number(j.Seq)), j.encode())
	var more [16]entry
	enters := t.leaveLimit(&before, j)
	t.replace(was, t.entries(j, more[:0]))
	if enters { // the entries of a lane may be where others were
		t.enterLimit(j)
	}
	if before.State != j.State || before.Queue != j.Queue || before.Type != j.Type || j.State.Terminal() {
		t.tally(&before, -1)
		t.tally(j, 1)
	}
	if !before.State.Terminal() || !j.State.Terminal() {
		t.notice.Add(j.ID, j.State, j.WakeAt())
	}
}

// taken tells that a claim is taken from its holder.
func (t *tx) taken(j *job, cause error) {
	if j.State == ojs.StateActive {
		held := storage.Held{ID: j.ID, Version: j.Version}
		t.notice.Taken = append(t.notice.Taken, storage.Taken{Held: held, Cause: cause})
	}
}

// replace writes the entries of a job in the place of those that it had.
func (t *tx) replace(was, now []entry) {
	for _, e := range now {
		if len(was) > 0 && was[0].key[0] < e.key[0] { // tables are in order
			for len(was) > 0 && was[0].key[0] < e.key[0] {
				t.delete(was[0].key)
				was = was[1:]
			}
		}
		if len(was) > 0 && was[0].key[0] == e.key[0] {
			same := bytes.Equal(was[0].key, e.key)
			if !same {
				t.delete(was[0].key)
			}
			if same = same && bytes.Equal(was[0].value, e.value); !same {
				t.put(e.key, e.value)
			}
			was = was[1:]
			continue
		}
		t.put(e.key, e.value)
	}
	for _, e := range was {
		t.delete(e.key)
	}
}

// remove deletes a job. The floor of the versions rises to its version, so that no claim
// token of it fits a later job.
func (t *tx) remove(j *job) {
	for _, e := range t.entries(j, nil) {
		t.delete(e.key)
	}
	t.tally(j, -1)
	seq := key{}.number(j.Seq)
	t.delete(jobKey(seq))
	t.deleteLogs(seq)
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
			refuse(fmt.Errorf("%w: job %q", ojs.ErrNotFound, id))
		}
		return j.Record
	})
}

// Counts implements storage.Storage.
func (s *Storage) Counts(ctx context.Context) ([]storage.Count, error) {
	return view(ctx, s, func(t *tx) (counts []storage.Count) {
		for k, n := range t.scan(newKey(countTable), nil) {
			queue, _ := cut(k[1:])
			c := storage.Count{Queue: queue, State: rows.State(int(k[0])), N: int(number(n))}
			if n := len(counts); n > 0 && counts[n-1].Queue == c.Queue && counts[n-1].State == c.State {
				counts[n-1].N += c.N // of another type
				continue
			}
			counts = append(counts, c)
		}
		return counts
	})
}
