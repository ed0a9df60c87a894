package drivertest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs/storage/keyed/driver"
)

func config(firstWins bool) Config {
	another := func(_ testing.TB, db driver.DB) driver.DB { return db.(*Memory).Another() }
	return Config{
		Open: func(testing.TB) driver.DB {
			return NewMemory(firstWins, driver.Limits{Durable: true, Writes: 1000, Bytes: 80_000})
		},
		Reopen: another, Another: another,
	}
}

func TestOneAtATime(t *testing.T)   { Run(t, config(false)) }
func TestTheFirstWins(t *testing.T) { Run(t, config(true)) }

type pairs = []driver.Pair

// faulty is a Memory with one fault.
type faulty struct {
	*Memory
	begin  func(ctx context.Context, write bool) (driver.Tx, error)
	commit func(tx driver.Tx, writes []driver.Pair) error
	get    func(tx driver.Tx, keys, dst [][]byte) ([][]byte, error)
	scan   func(tx driver.Tx, from, to []byte, n int, reverse bool, dst pairs) (pairs, error)
	write  func(tx driver.Tx, writes []driver.Pair) error
	close  func() error
}

func (f *faulty) Begin(ctx context.Context, write bool) (tx driver.Tx, err error) {
	if f.begin != nil {
		tx, err = f.begin(ctx, write)
	} else {
		tx, err = f.Memory.Begin(ctx, write)
	}
	return &faultyTx{tx, f}, err
}

func (f *faulty) Close() error {
	if f.close != nil {
		return f.close()
	}
	return f.Memory.Close()
}

type faultyTx struct {
	driver.Tx
	f *faulty
}

func (t *faultyTx) Commit(writes []driver.Pair) error {
	if t.f.commit != nil {
		return t.f.commit(t.Tx, writes)
	}
	return t.Tx.Commit(writes)
}

func (t *faultyTx) Write(writes []driver.Pair) error {
	if t.f.write != nil {
		return t.f.write(t.Tx, writes)
	}
	return t.Tx.(driver.Writer).Write(writes)
}

func (t *faultyTx) Get(keys [][]byte, dst [][]byte) ([][]byte, error) {
	if t.f.get != nil {
		return t.f.get(t.Tx, keys, dst)
	}
	return t.Tx.Get(keys, dst)
}

func (t *faultyTx) Scan(from, to []byte, n int, reverse bool, dst pairs) (pairs, error) {
	if t.f.scan != nil {
		return t.f.scan(t.Tx, from, to, n, reverse, dst)
	}
	return t.Tx.Scan(from, to, n, reverse, dst)
}

// loseAnswer makes commits, and loses the answer of the first.
func loseAnswer() func(tx driver.Tx, writes []driver.Pair) error {
	var lost atomic.Bool
	return func(tx driver.Tx, writes []driver.Pair) error {
		err := tx.Commit(writes)
		if err == nil && lost.CompareAndSwap(false, true) {
			err = driver.ErrUnknown
		}
		return err
	}
}

// TestUnsure holds that an unsure store may lose the answer of a Commit.
func TestUnsure(t *testing.T) {
	for _, c := range cases {
		if c.name != "Commit" && c.name != "Limits" {
			continue
		}
		cfg := Config{Open: func(testing.TB) driver.DB {
			return &faulty{Memory: NewMemory(true, driver.Limits{Unsure: true}), commit: loseAnswer()}
		}}
		if err := c.prove(t, cfg, 10*time.Second); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestBroken holds that each fault of a driver is found by the case of its rule.
func TestBroken(t *testing.T) {
	memory := func(tx driver.Tx) *memoryTx {
		if w, ok := tx.(writingTx); ok {
			return w.memoryTx
		}
		return tx.(*memoryTx)
	}
	unverified := func(tx driver.Tx) { memory(tx).reads = nil }
	for _, b := range []struct {
		fault, found string
		firstWins    bool
		breaks       func(f *faulty)
	}{
		{"the end of a range is in it", "Order", false, func(f *faulty) {
			f.scan = func(tx driver.Tx, from, to []byte, n int, reverse bool, dst pairs) (pairs, error) {
				return tx.Scan(from, append(bytes.Clone(to), 0), n, reverse, dst)
			}
		}},
		{"scans do not append", "Order", false, func(f *faulty) {
			f.scan = func(tx driver.Tx, from, to []byte, n int, reverse bool, dst pairs) (pairs, error) {
				return tx.Scan(from, to, n, reverse, nil)
			}
		}},
		{"scans return one too many", "Order", false, func(f *faulty) {
			f.scan = func(tx driver.Tx, from, to []byte, n int, reverse bool, dst pairs) (pairs, error) {
				return tx.Scan(from, to, n+1, reverse, dst)
			}
		}},
		{"reverse is not looked at", "Order", false, func(f *faulty) {
			f.scan = func(tx driver.Tx, from, to []byte, n int, _ bool, dst pairs) (pairs, error) {
				return tx.Scan(from, to, n, false, dst)
			}
		}},
		{"an empty value is none", "Get", false, func(f *faulty) {
			f.get = func(tx driver.Tx, keys, dst [][]byte) ([][]byte, error) {
				dst, err := tx.Get(keys, dst)
				for i := range dst {
					if len(dst[i]) == 0 {
						dst[i] = nil
					}
				}
				return dst, err
			}
		}},
		{"keys that are not there are left out", "Get", false, func(f *faulty) {
			f.get = func(tx driver.Tx, keys, dst [][]byte) ([][]byte, error) {
				dst, err := tx.Get(keys, dst)
				return slices.DeleteFunc(dst, func(v []byte) bool { return v == nil }), err
			}
		}},
		{"deletes do nothing", "Commit", false, func(f *faulty) {
			f.commit = func(tx driver.Tx, writes []driver.Pair) error {
				return tx.Commit(slices.DeleteFunc(slices.Clone(writes),
					func(p driver.Pair) bool { return p.Value == nil }))
			}
		}},
		{"Write does nothing", "Write", false, func(f *faulty) {
			f.write = func(driver.Tx, []driver.Pair) error { return nil }
		}},
		{"Discard keeps what Write has written", "Write", false, func(f *faulty) {
			f.write = func(tx driver.Tx, writes []driver.Pair) error {
				err := tx.(driver.Writer).Write(writes)
				f.store.now = memory(tx).seen
				return err
			}
		}},
		{"the last write is lost", "Random", false, func(f *faulty) {
			f.commit = func(tx driver.Tx, writes []driver.Pair) error {
				return tx.Commit(writes[:max(len(writes)-1, 0)])
			}
		}},
		{"no snapshot", "Snapshot", false, func(f *faulty) {
			f.get = func(tx driver.Tx, keys, dst [][]byte) ([][]byte, error) {
				m := memory(tx)
				m.m.store.mu.Lock()
				defer m.m.store.mu.Unlock()
				m.seen = m.m.store.now
				return tx.Get(keys, dst)
			}
		}},
		{"readers see what a handle saw last", "Fresh", false, func(f *faulty) {
			var last driver.Tx
			f.begin = func(ctx context.Context, write bool) (driver.Tx, error) {
				tx, err := f.Memory.Begin(ctx, write)
				if !write && last != nil {
					memory(tx).seen = memory(last).seen
				}
				last = tx
				return tx, err
			}
		}},
		{"discarded transactions keep their lock", "Close", false, func(f *faulty) {
			f.close = func() error { return nil }
		}},
		{"nothing is verified", "LostUpdate", true, func(f *faulty) {
			f.commit = func(tx driver.Tx, writes []driver.Pair) error {
				unverified(tx)
				return tx.Commit(writes)
			}
		}},
		{"only what is written is verified", "WriteSkew", true, func(f *faulty) {
			f.commit = func(tx driver.Tx, writes []driver.Pair) error {
				m := memory(tx)
				m.reads = slices.DeleteFunc(m.reads, func(r [2]string) bool {
					read := func(w driver.Pair) bool { return string(w.Key) == r[0] }
					return !slices.ContainsFunc(writes, read)
				})
				return tx.Commit(writes)
			}
		}},
		{"Commit without writes does nothing", "EmptyCommit", true, func(f *faulty) {
			f.commit = func(tx driver.Tx, writes []driver.Pair) error {
				if len(writes) == 0 {
					tx.Discard()
					return nil
				}
				return tx.Commit(writes)
			}
		}},
		{"ranges are not verified", "EmptyRange", true, func(f *faulty) {
			f.scan = func(tx driver.Tx, from, to []byte, n int, reverse bool, dst pairs) (pairs, error) {
				return tx.Peek(from, to, n, dst)
			}
		}},
		{"contexts are not looked at", "Context", false, func(f *faulty) {
			f.begin = func(ctx context.Context, write bool) (driver.Tx, error) {
				return f.Memory.Begin(context.WithoutCancel(ctx), write)
			}
		}},
		{"large transactions are refused", "Limits", false, func(f *faulty) {
			f.commit = func(tx driver.Tx, writes []driver.Pair) error {
				if len(writes) > 500 {
					tx.Discard()
					return errors.New("too large")
				}
				return tx.Commit(writes)
			}
		}},
		{"scans return an empty value as nil", "Order", false, func(f *faulty) {
			f.scan = func(tx driver.Tx, from, to []byte, n int, reverse bool, dst pairs) (pairs, error) {
				dst, err := tx.Scan(from, to, n, reverse, dst)
				for i := range dst {
					dst[i].Value = append([]byte(nil), dst[i].Value...)
				}
				return dst, err
			}
		}},
		{"what waits knows no contexts", "Waiting", false, func(f *faulty) {
			f.begin = func(ctx context.Context, write bool) (driver.Tx, error) {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				return f.Memory.Begin(context.WithoutCancel(ctx), write)
			}
		}},
		{"Commit keeps the lock on writing", "LostUpdate", false, func(f *faulty) {
			f.commit = func(tx driver.Tx, writes []driver.Pair) error {
				m := tx.(writingTx).memoryTx
				m.locked = false
				return tx.Commit(writes)
			}
		}},
		{"Get panics", "Get", false, func(f *faulty) {
			f.get = func(driver.Tx, [][]byte, [][]byte) ([][]byte, error) { panic("no such key") }
		}},
		{"it does not say that it is unsure", "Limits", false, func(f *faulty) {
			f.commit = loseAnswer()
		}},
		{"it does not say that it is durable", "Durable", false, func(f *faulty) {
			f.limits.Durable = false
		}},
		{"what is committed is kept in memory", "Durable", false, func(f *faulty) {
			close := f.Memory.Close
			f.close = func() error { *f.Memory = *NewMemory(false, f.limits); return close() }
		}},
	} {
		t.Run(b.fault, func(t *testing.T) {
			cfg := config(b.firstWins)
			open := cfg.Open
			cfg.Open = func(tb testing.TB) driver.DB {
				f := &faulty{Memory: open(tb).(*Memory)}
				b.breaks(f)
				return f
			}
			cfg.Another = nil
			cfg.Reopen = func(_ testing.TB, db driver.DB) driver.DB { return db.(*faulty).Another() }
			for _, c := range cases {
				if c.name == b.found {
					err := c.prove(t, cfg, time.Second)
					var skipped notApplied
					if err == nil || errors.As(err, &skipped) {
						t.Errorf("%s passes", b.found)
					}
				}
			}
		})
	}
}
