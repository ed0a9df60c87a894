package drivertest

import (
	"context"
	"sync"

	"github.com/ojsengine/ojs/internal/sorted"
	"github.com/ojsengine/ojs/storage/keyed/driver"
)

// Memory is a driver that keeps everything in memory, for tests.
type Memory struct {
	store     *store
	firstWins bool
	limits    driver.Limits
	gate      *driver.Gate
}

// store is what the handles of a Memory share.
type store struct {
	writing chan struct{} // has room for the transaction that writes, unless the first wins
	mu      sync.Mutex    // guards the fields below
	now     *sorted.Map[string, []byte]
	version uint64                      // number of commits
	changed *sorted.Map[string, uint64] // by key: the version that wrote it last
	watch   map[*Memory]func()          // see Watch
}

// NewMemory returns an empty store. If firstWins is set, transactions run at the same
// time and Commit may return driver.ErrConflict.
func NewMemory(firstWins bool, limits driver.Limits) *Memory {
	return (&Memory{firstWins: firstWins, limits: limits}).with(
		&store{writing: make(chan struct{}, 1), now: new(sorted.Map[string, []byte]),
			changed: new(sorted.Map[string, uint64]), watch: make(map[*Memory]func())})
}

func (m *Memory) with(s *store) *Memory {
	return &Memory{store: s, firstWins: m.firstWins, limits: m.limits, gate: driver.NewGate()}
}

// Another opens the store once more, even if it is closed.
func (m *Memory) Another() *Memory { return m.with(m.store) }

// Limits implements driver.DB.
func (m *Memory) Limits() driver.Limits { return m.limits }

// Begin implements driver.DB.
func (m *Memory) Begin(ctx context.Context, write bool) (driver.Tx, error) {
	if err := m.gate.Enter(ctx, false); err != nil { // the lock on writing is the store's
		return nil, err
	}
	t := &memoryTx{m: m}
	if write && !m.firstWins {
		select {
		case m.store.writing <- struct{}{}:
			t.locked = true
		case <-ctx.Done():
			t.Discard()
			return nil, ctx.Err()
		}
	}
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	t.seen, t.version = m.store.now, m.store.version
	if t.locked {
		return writingTx{t}, nil
	}
	return t, nil
}

// Watch implements driver.Watcher.
func (m *Memory) Watch(changed func()) {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	m.store.watch[m] = changed
}

// Close implements driver.DB.
func (m *Memory) Close() error {
	return m.gate.Close(func() error {
		m.store.mu.Lock()
		defer m.store.mu.Unlock()
		delete(m.store.watch, m)
		return nil
	})
}

type memoryTx struct {
	m       *Memory
	locked  bool
	ended   bool
	seen    *sorted.Map[string, []byte]
	version uint64
	reads   [][2]string // ranges: the first key, and that behind the last
}

func (t *memoryTx) Get(keys [][]byte, dst [][]byte) ([][]byte, error) {
	for _, k := range keys {
		v, _ := t.seen.Get(string(k))
		dst = append(dst, v)
		t.reads = append(t.reads, [2]string{string(k), string(k) + "\x00"})
	}
	return dst, nil
}

func (t *memoryTx) Scan(from, to []byte, max int, reverse bool, dst []driver.Pair) ([]driver.Pair, error) {
	n := len(dst)
	dst = t.scan(from, to, max, reverse, dst)
	seen := [2]string{string(from), string(to)}
	if len(dst)-n == max && max > 0 && reverse {
		seen[0] = string(dst[len(dst)-1].Key)
	} else if len(dst)-n == max && max > 0 {
		seen[1] = string(dst[len(dst)-1].Key) + "\x00"
	}
	t.reads = append(t.reads, seen)
	return dst, nil
}

func (t *memoryTx) Peek(from, to []byte, max int, dst []driver.Pair) ([]driver.Pair, error) {
	return t.scan(from, to, max, false, dst), nil
}

func (t *memoryTx) scan(from, to []byte, max int, reverse bool, dst []driver.Pair) []driver.Pair {
	pairs := t.seen.From(string(from))
	if reverse {
		pairs = t.seen.Before(string(to))
	}
	for k, v := range pairs {
		if max == 0 || k >= string(to) || k < string(from) {
			break
		}
		max--
		dst = append(dst, driver.Pair{Key: []byte(k), Value: v})
	}
	return dst
}

func (t *memoryTx) Commit(writes []driver.Pair) error {
	defer t.Discard()
	s := t.m.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.conflicts() {
		return driver.ErrConflict
	}
	if t.locked && s.now != t.seen {
		s.now = t.seen
	} else if len(writes) == 0 {
		return nil
	}
	for m, changed := range s.watch {
		if m != t.m {
			go changed()
		}
	}
	s.version++
	s.now = with(s.now, writes)
	if t.m.firstWins {
		for _, w := range writes {
			s.changed.Set(string(w.Key), s.version)
		}
	}
	return nil
}

// with returns what the store is after writes.
func with(now *sorted.Map[string, []byte], writes []driver.Pair) *sorted.Map[string, []byte] {
	now = now.Clone()
	for _, w := range writes {
		if w.Value == nil {
			now.Delete(string(w.Key))
		} else {
			now.Set(string(w.Key), append([]byte{}, w.Value...))
		}
	}
	return now
}

// writingTx is the only transaction that writes.
type writingTx struct{ *memoryTx }

// Write implements driver.Writer.
func (t writingTx) Write(writes []driver.Pair) error {
	t.seen = with(t.seen, writes)
	return nil
}

func (t *memoryTx) conflicts() bool {
	if t.version == t.m.store.version {
		return false
	}
	for _, r := range t.reads {
		for k, version := range t.m.store.changed.From(r[0]) {
			if k >= r[1] {
				break
			}
			if version > t.version {
				return true
			}
		}
	}
	return false
}

func (t *memoryTx) Discard() {
	if t.ended {
		return
	}
	t.ended = true
	if t.locked {
		<-t.m.store.writing
	}
	t.m.gate.Leave(false)
}
