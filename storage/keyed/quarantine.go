package keyed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// The quarantine. A call that meets a record that does not decode is rolled back, the
// record is moved in the same transaction, and the call runs again without it. The move
// is no part of the call: it holds even if the call fails.
//
// The entries of such a job cannot be computed. They are looked for in all tables, which
// takes as long as the store is large. The head of its value suffices for the counters.

var _ storage.Quarantiner = (*Storage)(nil)

// undecodable is the failure of a call that meets a record that does not decode.
type undecodable struct {
	kind storage.Kind
	key  key // of the record
	name string
	why  error
}

func (u *undecodable) Error() string { return u.why.Error() }

// aside is an entry of the quarantine.
type aside struct {
	storage.Quarantined
	key   key    // of the record
	value []byte // the record
}

func asideKey(n int64) key { return newKey(asideTable).number(n) }

func asideID(id string) key { return newKey(asideIDTable).name(id) }

func (a *aside) encode() []byte {
	v := key{}.time(a.At).name(string(a.Kind)).name(a.Name).name(a.Reason).name(a.Queue).name(a.Type).
		name(string(a.State)).name(string(a.key))
	return append(v, a.value...)
}

func readAside(n int64, v []byte) (a aside) {
	r := readerOf(v)
	a.Key, a.At = strconv.FormatInt(n, 10), timeOf(r.Take(timeLen))
	a.Kind, a.Name, a.Reason = storage.Kind(r.name()), r.name(), r.name()
	a.Queue, a.Type, a.State = r.name(), r.name(), ojs.State(r.name())
	a.key = key(r.name())
	a.value = r.B
	return a
}

// setAside moves a record to the quarantine, unless it is not as it was.
func (t *tx) setAside(u *undecodable) {
	value := t.get(u.key)
	if value == nil || caught(func() { t.decode(u) }) == nil {
		return
	}
	a := aside{key: u.key, value: bytes.Clone(value), Quarantined: storage.Quarantined{
		Kind: u.kind, Name: u.name, Reason: rows.Reason(u.why), At: wall.Now().UTC(),
	}}
	if u.kind == storage.KindJob {
		var j job
		_, err := j.decodeHead(value)
		if err == nil {
			a.Queue, a.Type, a.State = j.Queue, j.Type, j.State
			t.countJob(&j, -1)
		} else { // no job has had more versions than there were places
			j.Version = t.floor() + uint64(t.number(meta(placeName)))
		}
		// A later job with the id begins beyond the versions that this one reaches after
		// its release, so that no token of one fits the other.
		t.raiseFloor(j.Version + 1<<16)
		if a.Name = t.unlink(u.key[1:], &j); err != nil {
			defer t.recount()
		}
	}
	t.delete(u.key)
	t.enterAside(&a)
	t.aside = append(t.aside, a.Quarantined)
}

// enterAside adds an entry to the quarantine.
func (t *tx) enterAside(a *aside) {
	n := t.next(placeName)
	a.Key, a.Reason = strconv.FormatInt(n, 10), a.Reason[:min(len(a.Reason), maxName)]
	t.put(asideKey(n), a.encode())
	t.put(asideID(a.Name), key{}.number(n))
	t.add(meta(asideName), 1)
}

// decode reads a record again that did not decode.
func (t *tx) decode(u *undecodable) {
	switch u.kind {
	case storage.KindJob:
		t.load(u.key[1:])
	case storage.KindQueue:
		t.queueState(u.name)
	default:
		t.document(u.kind, u.name)
	}
}

// unlink removes the entries of a job whose record does not decode, and returns its id.
func (t *tx) unlink(seq []byte, j *job) (id string) {
	if j.State == ojs.StateActive {
		t.countActive(j.limit, -1)
	}
	for _, in := range []table{idTable, equalTable, readyTable, availableTable, heldTable, wakeTable,
		deadTable, endedTable, keptTable, lineTable, turnTable, fairTable,
		stateTable, failTable, timeTable, workflowTable, keeperTable, deadOfTable} {
		all := newKey(in)
		for rest, value := range t.scan(all, nil) {
			if !bytes.HasPrefix(value, seq) && !bytes.HasSuffix(rest, seq) {
				continue
			}
			switch in {
			case idTable:
				id, _ = cut(rest)
			case endedTable:
				t.add(append(newKey(sizeTable), rest[:3]...), -1)
			case readyTable, heldTable:
				if r, whole := readReady(value); whole && r.key != nil {
					c, l := t.laneOfReady(&r)
					t.leaveLane(c, l, string(rest[len(rest)-rankLen:]))
				}
			case fairTable:
				_, level := cut(rest) // queue; then the priority, and the key, round and seq
				level = rest[:len(rest)-len(level)+numberLen]
				round := rest[len(rest)-2*numberLen : len(rest)-numberLen]
				t.add(append(append(newKey(roundTable), level...), round...), -1)
			}
			t.delete(append(slices.Clone(all), rest...))
		}
	}
	return id
}

// recount counts all jobs anew, without one whose state and queue are unknown.
func (t *tx) recount() {
	t.switchFronts(false)
	t.deleteAll(newKey(countTable), 0)
	for _, value := range t.scan(newKey(jobTable), nil) {
		var j job
		if _, err := j.decodeHead(value); err == nil {
			t.add(countKey(&j), 1)
		}
	}
	t.putBacklogState(backlogState{n: int64(len(t.backlogs("")))})
}

// quarantined refuses to find a job that is in the quarantine.
func (t *tx) quarantined(id string) {
	if n := t.get(asideID(id)); n != nil {
		if v := t.get(asideKey(number(n))); v != nil {
			a := readAside(number(n), v)
			fail.With(&ojs.QuarantinedError{Key: a.Key, ID: id, Reason: a.Reason})
		}
	}
}

// Quarantined implements storage.Quarantiner.
func (s *Storage) Quarantined(ctx context.Context, after string, limit int) ([]storage.Quarantined, error) {
	from, limit, err := rows.QuarantinePage(after, limit)
	if err != nil {
		return nil, err
	}
	return view(ctx, s, func(t *tx) (list []storage.Quarantined) {
		for n, v := range t.scan(newKey(asideTable), key{}.number(from+1)) {
			if len(list) == limit {
				break
			}
			a := readAside(number(n), v)
			list = append(list, a.Quarantined)
		}
		return list
	})
}

// CountQuarantined implements storage.Quarantiner.
func (s *Storage) CountQuarantined(ctx context.Context) (int, error) {
	return view(ctx, s, func(t *tx) int { return int(t.number(meta(asideName))) })
}

// takeAside removes an entry of the quarantine and returns it.
func (t *tx) takeAside(name string) aside {
	n, _ := strconv.ParseInt(name, 10, 64) // or it is a number that no record has
	v := t.get(asideKey(n))
	if v == nil {
		fail.With(fmt.Errorf("%w: %q in the quarantine", ojs.ErrNotFound, name))
	}
	a := readAside(n, v)
	t.delete(asideKey(n))
	if id := asideID(a.Name); t.number(id) == n {
		t.delete(id)
	}
	t.add(meta(asideName), -1)
	return a
}

// DeleteQuarantined implements storage.Quarantiner.
func (s *Storage) DeleteQuarantined(ctx context.Context, name string) error {
	return s.do(ctx, func(t *tx) {
		if a := t.takeAside(name); a.Kind == storage.KindJob {
			t.deleteAll(logsKey(a.key[1:]), 0)
		}
	})
}

// ReleaseQuarantined implements storage.Quarantiner.
func (s *Storage) ReleaseQuarantined(ctx context.Context, name string) error {
	return s.do(ctx, func(t *tx) {
		a := t.takeAside(name)
		err := caught(func() {
			if a.Kind == storage.KindJob {
				t.releaseJob(&a)
			} else {
				t.releaseNamed(&a)
			}
		})
		var u *undecodable
		if errors.As(err, &u) {
			err = &ojs.QuarantinedError{Key: a.Key, ID: a.Name, Reason: rows.Reason(u.why)}
		}
		fail.If(err)
	})
}

func (t *tx) releaseJob(a *aside) {
	j := readJob(a.key[1:], a.value, nil)
	if other := t.find(j.ID); other != nil {
		fail.With(&ojs.DuplicateError{ID: j.ID, State: other.State})
	}
	t.link(j)
	t.join(j)
}

// releaseNamed releases a document or the state of a queue.
func (t *tx) releaseNamed(a *aside) {
	if t.get(a.key) != nil {
		fail.With(&ojs.DuplicateError{ID: a.Name})
	}
	t.put(a.key, a.value)
	if a.Kind == storage.KindQueue {
		readState(a.key, a.Name, a.value)
		return
	}
	d := t.document(a.Kind, a.Name)
	t.storeDocument(a.Kind, &d)
	t.notice.AddDocuments(a.Kind)
}
