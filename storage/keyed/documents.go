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
	"github.com/ojsengine/ojs/storage"
)

func (t *tx) queueState(queue string) ojs.QueueState {
	k := newKey(queueTable).name(queue)
	if state := t.get(k); state != nil {
		return readState(k, queue, state)
	}
	return ojs.QueueActive
}

func readState(k key, queue string, value []byte) ojs.QueueState {
	if !ojs.QueueState(value).Valid() {
		fail.With(&undecodable{storage.KindQueue, k, queue, rows.NoQueueState(string(value))})
	}
	return ojs.QueueState(value)
}

// SetQueueState implements storage.Storage.
func (s *Storage) SetQueueState(ctx context.Context, queue string,
	to ojs.QueueState) (ojs.QueueState, error) {
	return change(ctx, s, func(t *tx) ojs.QueueState {
		if !to.Valid() {
			fail.With(&ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "queue_state",
				Reason: fmt.Sprintf("%q is not active, paused or draining", to)})
		}
		was := t.queueState(queue)
		if k := newKey(queueTable).name(queue); to == ojs.QueueActive {
			t.delete(k)
		} else {
			t.put(k, []byte(to))
		}
		t.notice.Available = to != ojs.QueuePaused
		return was
	})
}

// QueueStates implements storage.Storage.
func (s *Storage) QueueStates(ctx context.Context) (map[string]ojs.QueueState, error) {
	return view(ctx, s, func(t *tx) map[string]ojs.QueueState {
		states := make(map[string]ojs.QueueState)
		for k, state := range t.scan(newKey(queueTable), nil) {
			queue, _ := cut(k)
			states[queue] = readState(newKey(queueTable).name(queue), queue, state)
		}
		return states
	})
}

func documentKey(kind storage.Kind, name string) key {
	return newKey(documentTable).name(string(kind)).text(name)
}

func dueKey(kind storage.Kind, d *storage.Document) key {
	return newKey(dueTable).name(string(kind)).time(d.Due).text(d.Name)
}

// readDocument returns the document of a value, the zero document of nil.
func readDocument(kind storage.Kind, name string, value []byte) (d storage.Document) {
	if value == nil {
		return d
	}
	r := readerOf(value)
	d.Name, d.Due, d.Version = name, timeOf(r.Take(timeLen)), r.Uint()
	d.Data = bytes.Clone(r.B)
	if err := rows.CheckDocument(kind, &d); err != nil {
		fail.With(&undecodable{kind, documentKey(kind, name), name, err})
	}
	return d
}

// document returns a document, the zero document if there is none.
func (t *tx) document(kind storage.Kind, name string) storage.Document {
	return readDocument(kind, name, t.get(documentKey(kind, name)))
}

// putDocument stores or deletes a document, and returns the version that it has or had.
func (t *tx) putDocument(kind storage.Kind, d storage.Document) uint64 {
	stored := t.document(kind, d.Name)
	if d.Version != stored.Version && d.Version != storage.AnyVersion {
		return 0
	}
	if !stored.Due.IsZero() {
		t.delete(dueKey(kind, &stored))
	}
	switch {
	case len(d.Data) > 0:
		d.Version = uint64(t.next(versionName + string(kind)))
		t.storeDocument(kind, &d)
	case stored.Version > 0:
		d.Version = stored.Version
		t.delete(documentKey(kind, d.Name))
	default:
		return 0
	}
	t.notice.AddDocuments(kind)
	return d.Version
}

func (t *tx) storeDocument(kind storage.Kind, d *storage.Document) {
	t.put(documentKey(kind, d.Name), append(key{}.time(d.Due).uint(d.Version), d.Data...))
	if !d.Due.IsZero() {
		t.put(dueKey(kind, d), nil)
	}
}

// PutDocuments implements storage.Storage. No version is given twice, also for different
// names.
func (s *Storage) PutDocuments(
	ctx context.Context, kind storage.Kind, list []storage.Document,
) ([]uint64, error) {
	return change(ctx, s, func(t *tx) []uint64 {
		versions := make([]uint64, len(list))
		for i := range list {
			versions[i] = t.putDocument(kind, list[i])
		}
		return versions
	})
}

// Documents implements storage.Storage.
func (s *Storage) Documents(
	ctx context.Context, kind storage.Kind, q storage.DocumentQuery,
) ([]storage.Document, error) {
	return view(ctx, s, func(t *tx) (list []storage.Document) {
		if q.Names != nil {
			for _, name := range slices.Compact(slices.Sorted(slices.Values(q.Names))) {
				if len(list) == q.Most() || !q.Selects(name) {
					continue
				}
				if d := t.document(kind, name); d.Version > 0 {
					list = append(list, d)
				}
			}
			return list
		}
		all := documentKey(kind, q.Prefix)
		for rest, value := range t.pages(all, documentKey(kind, q.From()), behind(all), 8, forward) {
			if len(list) == q.Most() {
				break
			}
			list = append(list, readDocument(kind, q.Prefix+string(rest), value))
		}
		return list
	})
}

// DueDocuments implements storage.Storage.
func (s *Storage) DueDocuments(
	ctx context.Context, kind storage.Kind, now time.Time, after *storage.Document, max int,
) (due []storage.Document, next time.Time, err error) {
	due, err = view(ctx, s, func(t *tx) (due []storage.Document) {
		all := newKey(dueTable).name(string(kind))
		var from key
		if after != nil {
			from = append(dueKey(kind, after)[len(all):], 0) // the key right behind
		}
		for k := range t.scan(all, from) {
			if next = timeOf(k); next.After(now) || len(due) >= max {
				return due
			}
			d := t.document(kind, string(k[timeLen:]))
			if d.Version > 0 && d.Due.Equal(next) { // or the key is that of one in the quarantine
				due = append(due, d)
			}
		}
		next = time.Time{}
		return due
	})
	return due, next, err
}

// addLog keeps the log of a change that has given a job a version.
func (t *tx) addLog(id string, version uint64, log []byte) {
	seq := t.get(idKey(id))
	t.put(logsKey(seq).number(int64(version)), log)
	t.deleteAll(logsKey(seq), storage.MaxLogs)
}

// logsKey is the beginning of the keys of the logs of a job.
func logsKey(seq []byte) key { return append(newKey(logTable), seq...) }

// Logs implements storage.Storage.
func (s *Storage) Logs(ctx context.Context, id string) ([]storage.Log, error) {
	return view(ctx, s, func(t *tx) (list []storage.Log) {
		seq := t.get(idKey(id))
		if seq == nil {
			return nil
		}
		for version, log := range t.scan(logsKey(seq), nil) {
			list = append(list, storage.Log{Version: uint64(number(version)), Data: bytes.Clone(log)})
		}
		return list
	})
}
