package storagetest_test

import (
	"bytes"
	"slices"

	"github.com/ojsengine/ojs/storage"
)

// remembersLogs makes a storage that answers Logs by itself, with what keep selects of
// the logs that Settle is given.
func remembersLogs(b *broken, keep func(settled storage.Settled, ended bool) bool) {
	kept := make(map[string][]storage.Log)
	b.settle = func(b *broken, ctx Context, now Time, changes settles, dst outcomes) (outcomes, error) {
		n := len(dst)
		dst, err := b.Storage.Settle(ctx, now, changes, dst)
		b.mu.Lock()
		defer b.mu.Unlock()
		for i, s := range dst[n:] {
			if c := &changes[i]; c.Log != nil && keep(s, c.Record.State.Terminal()) {
				id := string([]byte(c.Record.ID))
				kept[id] = append(kept[id], storage.Log{Version: s.Version, Data: bytes.Clone(c.Log)})
			}
		}
		return dst, err
	}
	b.logs = func(b *broken, ctx Context, id string) ([]storage.Log, error) {
		list, err := b.Storage.Logs(ctx, id)
		if err != nil {
			return nil, err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, l := range kept[id] {
			same := func(o storage.Log) bool { return o.Version == l.Version }
			if !slices.ContainsFunc(list, same) {
				list = append(list, storage.Log{Version: l.Version, Data: bytes.Clone(l.Data)})
			}
		}
		slices.SortFunc(list, func(a, b storage.Log) int { return int(a.Version) - int(b.Version) })
		return list, nil
	}
}

// changesLogs makes a storage that changes what Settle is given.
func changesLogs(b *broken, change func(*storage.Change)) {
	b.settle = func(b *broken, ctx Context, now Time, changes settles, dst outcomes) (outcomes, error) {
		changes = slices.Clone(changes)
		for i := range changes {
			change(&changes[i])
		}
		return b.Storage.Settle(ctx, now, changes, dst)
	}
}

// Storages that break the rules of logs.
var _ = register([]fault{
	{"logs, the newest first", "logs-1 logs-3", func(b *broken) {
		b.logs = func(b *broken, ctx Context, id string) ([]storage.Log, error) {
			list, err := b.Storage.Logs(ctx, id)
			slices.Reverse(list)
			return list, err
		}
	}},
	{"logs that end at a NUL", "logs-1", func(b *broken) {
		changesLogs(b, func(c *storage.Change) {
			if n := bytes.IndexByte(c.Log, 0); n >= 0 {
				c.Log = append([]byte{}, c.Log[:n]...)
			}
		})
	}},
	{"logs of attempts only", "logs-1", func(b *broken) {
		changesLogs(b, func(c *storage.Change) {
			if !c.AttemptFieldsOnly {
				c.Log = nil
			}
		})
	}},
	{"logs of changes with a Then lost", "logs-2", func(b *broken) {
		changesLogs(b, func(c *storage.Change) {
			if len(c.Then) > 0 {
				c.Log = nil
			}
		})
	}},
	{"logs of refused changes", "logs-2", func(b *broken) {
		remembersLogs(b, func(s storage.Settled, _ bool) bool { return s.Err != nil })
	}},
	{"all logs kept", "logs-3", func(b *broken) {
		remembersLogs(b, func(s storage.Settled, ended bool) bool { return s.Err == nil && !ended })
	}},
	{"logs that outlive their job", "logs-4", func(b *broken) {
		remembersLogs(b, func(s storage.Settled, ended bool) bool { return s.Err == nil && ended })
	}},
	{"logs lost when reopened", "logs-5", func(b *broken) {
		lost := false
		b.reopen = func(b *broken) storage.Storage {
			lost = true
			return b
		}
		b.logs = func(b *broken, ctx Context, id string) ([]storage.Log, error) {
			if lost {
				return nil, ctx.Err()
			}
			return b.Storage.Logs(ctx, id)
		}
	}},
})
