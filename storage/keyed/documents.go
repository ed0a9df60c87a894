package keyed

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/codec"
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
		refuse(&undecodable{storage.KindQueue, k, queue, rows.NoQueueState(string(value))})
	}
	return ojs.QueueState(value)
}

// SetQueueState implements storage.Storage.
func (s *Storage) SetQueueState(ctx context.Context, queue string,
	to ojs.QueueState) (ojs.QueueState, error) {
	return change(ctx, s, func(t *tx) ojs.QueueState {
		if !to.Valid() {
			refuse(&ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "queue_state",
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

func cronKey(name string) key    { return newKey(cronTable).text(name) }
func runKey(c *storage.Cron) key { return newKey(runTable).time(c.NextRun).text(c.Name) }

// cron returns the entry with a name, the zero entry if there is none.
func (t *tx) cron(name string) (c storage.Cron) {
	if value := t.get(cronKey(name)); value != nil {
		var err error
		if c, err = codec.DecodeCron(value); err != nil {
			refuse(&undecodable{storage.KindCron, cronKey(name), name, err})
		}
	}
	return c
}

// SetCrons implements storage.Storage. No version is given twice, also for different
// names.
func (s *Storage) SetCrons(ctx context.Context, entries []storage.Cron) ([]uint64, error) {
	return change(ctx, s, func(t *tx) []uint64 {
		versions := make([]uint64, len(entries))
		for i, c := range entries {
			stored := t.cron(c.Name)
			if stored.Version != c.Version {
				continue
			}
			c.Version = uint64(t.next(cronName))
			t.put(cronKey(c.Name), must(codec.EncodeCron(&c)))
			t.delete(runKey(&stored))
			if !c.NextRun.IsZero() {
				t.put(runKey(&c), nil)
			}
			versions[i] = c.Version
			t.notice.Crons = true
		}
		return versions
	})
}

// DeleteCron implements storage.Storage.
func (s *Storage) DeleteCron(ctx context.Context, name string) (bool, error) {
	return change(ctx, s, func(t *tx) bool {
		c := t.cron(name)
		t.delete(cronKey(name))
		t.delete(runKey(&c))
		t.notice.Crons = c.Version > 0
		return c.Version > 0
	})
}

// Crons implements storage.Storage.
func (s *Storage) Crons(ctx context.Context, q storage.CronQuery) ([]storage.Cron, error) {
	return view(ctx, s, func(t *tx) (list []storage.Cron) {
		add := func(name string) {
			if c := t.cron(name); c.Version > 0 && name > q.After && len(list) < q.Most() {
				list = append(list, c)
			}
		}
		for _, name := range slices.Compact(slices.Sorted(slices.Values(q.Names))) {
			add(name)
		}
		if q.Names != nil {
			return list
		}
		for name := range t.scan(newKey(cronTable), key(q.After)) {
			if len(list) == q.Most() {
				break
			}
			add(string(name))
		}
		return list
	})
}

// DueCrons implements storage.Storage.
func (s *Storage) DueCrons(ctx context.Context, now time.Time, after *storage.Cron,
	max int) (due []storage.Cron, next time.Time, err error) {
	due, err = view(ctx, s, func(t *tx) (due []storage.Cron) {
		var from key
		if after != nil {
			from = append(runKey(after)[1:], 0) // the key right behind
		}
		for k := range t.scan(newKey(runTable), from) {
			if next = timeOf(k); next.After(now) || len(due) >= max {
				return due
			}
			c := t.cron(string(k[timeLen:]))
			if c.Version > 0 && c.NextRun.Equal(next) { // or the key is that of one in the quarantine
				due = append(due, c)
			}
		}
		next = time.Time{}
		return due
	})
	return due, next, err
}

func valueKey(name string) key { return newKey(valueTable).text(name) }

func expiryKey(at time.Time, name string) key { return newKey(expiryTable).time(at).text(name) }

// PutValues implements storage.Storage.
func (s *Storage) PutValues(ctx context.Context, now time.Time, values []storage.Value) error {
	if err := storage.CheckValues(values); err != nil {
		return err
	}
	_, err := change(ctx, s, func(t *tx) struct{} {
		for i := range values {
			v := &values[i]
			t.deleteValue(v.Key)
			if len(v.Data) == 0 {
				continue
			}
			t.put(valueKey(v.Key), append(key{}.time(v.Expires), v.Data...))
			if !v.Expires.IsZero() {
				t.put(expiryKey(v.Expires, v.Key), nil)
			}
		}
		expired := 2*len(values) + 10
		for k := range t.scan(newKey(expiryTable), nil) {
			if expired--; expired < 0 || timeOf(k).After(now) {
				break
			}
			t.deleteValue(string(k[timeLen:]))
		}
		t.notice.Values = len(values) > 0
		return struct{}{}
	})
	return err
}

func (t *tx) deleteValue(name string) {
	k := valueKey(name)
	if v := t.get(k); v != nil {
		t.delete(expiryKey(timeOf(v), name))
		t.delete(k)
	}
}

// Values implements storage.Storage.
func (s *Storage) Values(
	ctx context.Context, now time.Time, prefix, after string, limit int,
) ([]storage.Value, error) {
	if limit <= 0 || limit > storage.MaxValues {
		limit = storage.MaxValues
	}
	return view(ctx, s, func(t *tx) (list []storage.Value) {
		p := valueKey(prefix)
		from := p
		if behind := append(valueKey(after), 0); after >= prefix {
			from = behind
		}
		for rest, value := range t.pages(p, from, behind(p), 8, forward) {
			v := storage.Value{Key: prefix + string(rest), Expires: timeOf(value)}
			if v.Expired(now) {
				continue
			}
			if len(list) == limit {
				break
			}
			v.Data = bytes.Clone(value[timeLen:])
			list = append(list, v)
		}
		return list
	})
}

// addLog keeps the log of a change that has given a job a version.
func (t *tx) addLog(id string, version uint64, log []byte) {
	prefix := append(newKey(logTable), t.get(idKey(id))...)
	t.put(append(slices.Clone(prefix), key{}.number(int64(version))...), log)
	var versions [][]byte
	for v := range t.scan(prefix, nil) {
		versions = append(versions, v)
	}
	for _, v := range versions[:max(len(versions)-storage.MaxLogs, 0)] {
		t.delete(append(slices.Clone(prefix), v...))
	}
}

func (t *tx) deleteLogs(seq []byte) {
	prefix := append(newKey(logTable), seq...)
	for version := range t.scan(prefix, nil) {
		t.delete(append(slices.Clone(prefix), version...))
	}
}

// Logs implements storage.Storage.
func (s *Storage) Logs(ctx context.Context, id string) ([]storage.Log, error) {
	return view(ctx, s, func(t *tx) (list []storage.Log) {
		seq := t.get(idKey(id))
		if seq == nil {
			return nil
		}
		for version, log := range t.scan(append(newKey(logTable), seq...), nil) {
			list = append(list, storage.Log{Version: uint64(number(version)), Data: bytes.Clone(log)})
		}
		return list
	})
}
