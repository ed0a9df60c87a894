package bbolt

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/codec"
)

func (t tx) queueState(queue string) ojs.QueueState {
	if state := t.get(queueBucket, key{}.string(queue)); state != nil {
		return ojs.QueueState(state)
	}
	return ojs.QueueActive
}

// SetQueueState implements storage.QueueStore.
func (s *Storage) SetQueueState(ctx context.Context, queue string,
	to ojs.QueueState) (ojs.QueueState, error) {
	return transact(ctx, s.db.Update, func(t tx) ojs.QueueState {
		if !to.Valid() {
			refuse(&ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "queue_state",
				Reason: fmt.Sprintf("%q is not active, paused or draining", to)})
		}
		was := t.queueState(queue)
		if t.put(queueBucket, key{}.string(queue), []byte(to)); to == ojs.QueueActive {
			t.delete(queueBucket, key{}.string(queue))
		}
		return was
	})
}

// QueueStates implements storage.QueueStore.
func (s *Storage) QueueStates(ctx context.Context) (map[string]ojs.QueueState, error) {
	return transact(ctx, s.db.View, func(t tx) map[string]ojs.QueueState {
		states := make(map[string]ojs.QueueState)
		for k, state := range t.scan(queueBucket, nil, nil) {
			queue, _ := cut(k)
			states[queue] = ojs.QueueState(state)
		}
		return states
	})
}

// cronKey has no length before the name, since entries are listed in the order of their
// names. A byte stands there, since bbolt has no empty keys.
func cronKey(name string) key { return key("n" + name) }

func runKey(c *storage.Cron) key { return append(key{}.time(c.NextRun), c.Name...) }

// cron returns the entry with a name, the zero entry if there is none.
func (t tx) cron(name string) (c storage.Cron) {
	if value := t.get(cronBucket, cronKey(name)); value != nil {
		c = must(codec.DecodeCron(value))
	}
	return c
}

// SetCrons implements storage.CronStore. Versions come from the bucket's sequence, so
// none comes again.
func (s *Storage) SetCrons(ctx context.Context, entries []storage.Cron) ([]uint64, error) {
	return transact(ctx, s.db.Update, func(t tx) []uint64 {
		versions := make([]uint64, len(entries))
		for i, c := range entries {
			stored := t.cron(c.Name)
			if stored.Version != c.Version {
				continue
			}
			c.Version = must(t.in(cronBucket).NextSequence())
			t.put(cronBucket, cronKey(c.Name), must(codec.EncodeCron(&c)))
			t.delete(runBucket, runKey(&stored))
			if !c.NextRun.IsZero() {
				t.put(runBucket, runKey(&c), nil)
			}
			versions[i] = c.Version
		}
		return versions
	})
}

// DeleteCron implements storage.CronStore.
func (s *Storage) DeleteCron(ctx context.Context, name string) (bool, error) {
	return transact(ctx, s.db.Update, func(t tx) bool {
		c := t.cron(name)
		t.delete(cronBucket, cronKey(name))
		t.delete(runBucket, runKey(&c))
		return c.Version > 0
	})
}

// Crons implements storage.CronStore.
func (s *Storage) Crons(ctx context.Context, q storage.CronQuery) ([]storage.Cron, error) {
	return transact(ctx, s.db.View, func(t tx) (list []storage.Cron) {
		add := func(name string) {
			if c := t.cron(name); c.Version > 0 && name > q.After && len(list) < q.Most() {
				list = append(list, c)
			}
		}
		for _, name := range slices.Compact(slices.Sorted(slices.Values(q.Names))) {
			add(name)
		}
		for k := range t.scan(cronBucket, nil, cronKey(q.After)) {
			if q.Names != nil || len(list) == q.Most() {
				break
			}
			add(string(k[1:]))
		}
		return list
	})
}

// DueCrons implements storage.CronStore.
func (s *Storage) DueCrons(ctx context.Context, now time.Time, after *storage.Cron,
	max int) (due []storage.Cron, next time.Time, err error) {
	due, err = transact(ctx, s.db.View, func(t tx) (due []storage.Cron) {
		var from key
		if after != nil {
			from = append(runKey(after), 0) // the key right behind
		}
		for k := range t.scan(runBucket, nil, from) {
			if at := timeOf(k); at.After(now) || len(due) >= max {
				next = at
				break
			}
			due = append(due, t.cron(string(k[timeLen:])))
		}
		return due
	})
	return due, next, err
}
