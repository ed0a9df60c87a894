// Package drivertest proves drivers of package keyed, in seconds and without jobs:
//
//	func TestDriver(t *testing.T) {
//		drivertest.Run(t, drivertest.Config{
//			Open: func(tb testing.TB) driver.DB { return open(tb) },
//		})
//	}
//
// Memory is a driver that passes. Unsteady makes any driver fail at random.
package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/storage/keyed/driver"
)

// Config says how to open a store.
type Config struct {
	// Open opens an empty store, which Run closes. It may use tb to clean up: closing the
	// store again does no harm. Required.
	Open func(tb testing.TB) driver.DB

	// Reopen opens the store of a DB that is closed, as a new process would. A durable
	// store needs it.
	Reopen func(tb testing.TB, db driver.DB) driver.DB

	// Another opens the store of a DB once more while that is open, as another process
	// would. It is for stores that may be open more than once.
	Another func(tb testing.TB, db driver.DB) driver.DB
}

// Run proves a driver. Each rule is a subtest. A case that does not end within a minute
// is the last.
func Run(t *testing.T, cfg Config) {
	for _, c := range cases {
		var err error
		t.Run(c.name, func(t *testing.T) {
			var skipped notApplied
			if err = c.prove(t, cfg, time.Minute); errors.As(err, &skipped) {
				t.Skip(err)
			} else if err != nil {
				t.Errorf("%s\n%v", c.rule, err)
			}
		})
		if errors.Is(err, errStuck) { // so would the others be, for a minute each
			return
		}
	}
}

// testCase is a rule and how to prove it.
type testCase struct {
	name, rule string
	run        func(s *subject) error
}

var cases = []testCase{
	{"Order", "Scan returns the pairs of its range in the order asked for, up to max.", order},
	{"Get", "Get returns the values of many keys in their order, nil for those that are not there.", get},
	{"Commit", "Commit makes all of its writes, and a nil value deletes.", commit},
	{"Copies", "Commit copies what it is given.", copies},
	{"Snapshot", "A transaction reads the store as it was at one moment.", snapshot},
	{"Fresh", "A transaction reads what was committed before it began.", fresh},
	{"Discard", "Discard leaves no trace, and does nothing after Commit.", discard},
	{"LostUpdate", "No transaction overwrites what it has not read.", lostUpdate},
	{"EmptyCommit", "Commit without writes verifies the keys that Get has read.", emptyCommit},
	{"EmptyRange", "Commit without writes verifies the range that Scan has read.", emptyRange},
	{"WriteSkew", "Of two transactions that read what the other writes, one comes first.", writeSkew},
	{"Write", "A transaction that is a driver.Writer sees what it has written, and Commit makes it.", write},
	{"Watch", "A driver.Watcher hears of the commits of other handles.", watch},
	{"Random", "A store holds what was written, of any bytes and size.", random},
	{"Limits", "A transaction as large as Limits says is committed.", limits},
	{"Context", "Begin fails with the error of a context that has ended.", ended},
	{"Waiting", "Begin that waits for another transaction fails with the error of a context that ends.", waiting},
	{"Close", "After Close every Begin fails with ErrClosed, and Close waits for transactions.", closes},
	{"Durable", "What is committed to a durable store outlives the process.", durable},
}

// subject is a store under test.
type subject struct {
	tb  testing.TB
	cfg Config
	db  driver.DB
	rnd *rand.Rand
}

var background = context.Background()

// wall is the wall clock, for what does not end.
var wall = clock.New()

// stop ends a case with an error.
type stop struct{ error }

func check(err error) {
	if err != nil {
		panic(stop{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func fail(format string, args ...any) { check(fmt.Errorf(format, args...)) }

// notApplied ends a case that is about what the driver does not offer.
type notApplied string

func (e notApplied) Error() string { return string(e) }

// caught returns the error with which check has ended f, or the panic of the driver.
func caught(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s, ok := p.(stop)
			if !ok {
				s.error = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
			err = s.error
		}
	}()
	return f()
}

var errStuck = errors.New("it does not end: does each Commit and each Discard of a transaction that " +
	"writes let the next one begin?")

// prove is Run of one case, which fails if it takes longer than it may.
func (c *testCase) prove(tb testing.TB, cfg Config, patience time.Duration) error {
	s := &subject{tb: tb, cfg: cfg, db: cfg.Open(tb), rnd: rand.New(rand.NewPCG(7, 7))}
	proven := make(chan error, 1)
	go func() {
		err := errors.New("a function of Config has ended the test")
		defer func() { proven <- err }()
		err = caught(func() error { return errors.Join(c.run(s), s.db.Close()) })
	}()
	select {
	case err := <-proven:
		return err
	case <-wall.After(patience):
		return errStuck
	}
}

// handles returns two handles of the store: one twice, if it may be open only once.
func (s *subject) handles() (dbs [2]driver.DB, done func()) {
	if s.cfg.Another == nil {
		return [2]driver.DB{s.db, s.db}, func() {}
	}
	other := s.cfg.Another(s.tb, s.db)
	return [2]driver.DB{s.db, other}, func() { _ = other.Close() }
}

func key(k string) []byte { return []byte(k) }

// put writes pairs of a key and a value, in order. The value "-" deletes.
func put(db driver.DB, pairs ...string) error {
	writes := make(map[string][]byte)
	for i := 0; i < len(pairs); i += 2 {
		if writes[pairs[i]] = []byte(pairs[i+1]); pairs[i+1] == "-" {
			writes[pairs[i]] = nil
		}
	}
	return update(db, func(driver.Tx) map[string][]byte { return writes })
}

// update makes what f wants written, again while others come first or an unsure store has
// lost the answer.
func update(db driver.DB, f func(tx driver.Tx) map[string][]byte) error {
	for {
		tx, err := db.Begin(background, true)
		if err != nil {
			return err
		}
		err = func() error {
			defer tx.Discard()
			writes := f(tx)
			var list []driver.Pair
			for _, k := range slices.Sorted(maps.Keys(writes)) {
				list = append(list, driver.Pair{Key: []byte(k), Value: writes[k]})
			}
			return tx.Commit(list)
		}()
		lost := errors.Is(err, driver.ErrUnknown) && db.Limits().Unsure
		if !lost && !errors.Is(err, driver.ErrConflict) {
			return err
		}
	}
}

func read(tx driver.Tx, k string) string {
	values := must(tx.Get([][]byte{key(k)}, nil))
	if len(values) != 1 {
		fail("Get of a key returned %d values", len(values))
	}
	if values[0] == nil {
		return "-"
	}
	return string(values[0])
}

// view begins a transaction that reads.
func view(db driver.DB) driver.Tx { return must(db.Begin(background, false)) }

func all(tx driver.Tx) []driver.Pair {
	return must(tx.Scan([]byte{0}, bytes.Repeat([]byte{0xff}, driver.MaxKey+1), 1<<30, false, nil))
}

// want holds that a transaction sees these pairs and no others.
func want(tx driver.Tx, pairs ...string) {
	var got []string
	for _, p := range all(tx) {
		got = append(got, string(p.Key), string(p.Value))
	}
	if !slices.Equal(got, pairs) {
		fail("the store has %q, want %q", got, pairs)
	}
}

func order(s *subject) error {
	longest := string(bytes.Repeat([]byte{0xff}, driver.MaxKey))
	keys := []string{
		"\x00", "\x00\x00", "\x00\x01", "a", "a\x00", "a\x00b", "aa", "b", "\x80", "\xff", longest,
	}
	writes := make(map[string][]byte)
	for _, k := range keys {
		writes[k] = key("value " + k[:1])
	}
	writes["aa"] = key("")
	check(update(s.db, func(driver.Tx) map[string][]byte { return writes }))
	tx := view(s.db)
	defer tx.Discard()
	for _, way := range []string{"Scan", "Scan in reverse", "Peek"} {
		reverse := way == "Scan in reverse"
		for _, from := range append(keys, "a\x00a", "c") {
			for _, to := range append(keys, "a\x00a", "c") {
				for max := range 5 {
					given := []driver.Pair{{Key: key("given")}}
					var got []driver.Pair
					if way == "Peek" {
						got = must(tx.Peek(key(from), key(to), max, given))
					} else {
						got = must(tx.Scan(key(from), key(to), max, reverse, given))
					}
					if len(got) == 0 || string(got[0].Key) != "given" {
						fail("%s did not append to dst", way)
					}
					got = got[1:]
					expected := slices.DeleteFunc(slices.Clone(keys),
						func(k string) bool { return k < from || k >= to })
					if reverse {
						slices.Reverse(expected)
					}
					expected = expected[:min(max, len(expected))]
					same := slices.EqualFunc(got, expected, func(p driver.Pair, k string) bool {
						return string(p.Key) == k && bytes.Equal(p.Value, writes[k]) && p.Value != nil
					})
					if !same {
						pairs := make([]driver.Pair, len(expected))
						for i, k := range expected {
							pairs[i] = driver.Pair{Key: key(k), Value: writes[k]}
						}
						fail("%s of [%q, %q), at most %d, returned %q, want %q; an empty value is not nil, "+
							"and a pair stays as it is while others are read", way, from, to, max, got, pairs)
					}
				}
			}
		}
	}
	return nil
}

func get(s *subject) error {
	check(put(s.db, "a", "1", "b", "", "c", "3"))
	tx := view(s.db)
	defer tx.Discard()
	got := must(tx.Get([][]byte{key("c"), key("x"), key("b"), key("a"), key("c")}, [][]byte{key("given")}))
	expected := [][]byte{key("given"), key("3"), nil, {}, key("1"), key("3")}
	for i := range expected {
		if i >= len(got) || !bytes.Equal(got[i], expected[i]) || (got[i] == nil) != (expected[i] == nil) {
			fail("Get returned %q, want %q, where x is nil and b is not", got, expected)
		}
	}
	if more := must(tx.Get(nil, nil)); len(more) != 0 {
		fail("Get of no key returned %q", more)
	}
	return nil
}

func commit(s *subject) error {
	check(put(s.db, "a", "1", "b", "2", "c", "3"))
	check(put(s.db, "a", "-", "absent", "-", "b", "", "d", "4"))
	tx := view(s.db)
	defer tx.Discard()
	want(tx, "b", "", "c", "3", "d", "4")
	return nil
}

func copies(s *subject) error {
	k, v := key("key"), key("value")
	tx := must(s.db.Begin(background, true))
	check(tx.Commit([]driver.Pair{{Key: k, Value: v}}))
	copy(k, "xxx")
	copy(v, "xxxxx")
	after := view(s.db)
	defer after.Discard()
	want(after, "key", "value")
	return nil
}

func snapshot(s *subject) error {
	check(put(s.db, "a", "1", "b", "1"))
	before := view(s.db)
	written := make(chan error, 1)
	go func() {
		defer close(written)
		written <- put(s.db, "a", "2", "b", "-", "c", "2")
	}()
	var failed error
	select {
	case failed = <-written:
	case <-wall.After(time.Second): // it waits for before to end
	}
	err := caught(func() error { return unchanged(before) })
	before.Discard()
	check(errors.Join(failed, <-written, err))
	after := view(s.db)
	want(after, "a", "2", "c", "2")
	after.Discard()

	// In transactions that write, too: x and y are equal whenever a transaction has been
	// committed.
	dbs, done := s.handles()
	defer done()
	return several(4, func(worker int) error {
		for i := range 50 {
			write := (worker+i)%2 == 0
			tx := must(dbs[worker%2].Begin(background, write))
			a := read(tx, "x")
			runtime.Gosched()
			b := read(tx, "y")
			if a != b {
				tx.Discard()
				fail("a transaction read x = %s and y = %s, and every commit makes them equal", a, b)
			}
			if !write {
				tx.Discard()
				continue
			}
			n := key(fmt.Sprint(worker, ".", i))
			err := tx.Commit([]driver.Pair{{Key: key("x"), Value: n}, {Key: key("y"), Value: n}})
			if !errors.Is(err, driver.ErrConflict) {
				check(err)
			}
		}
		return nil
	})
}

// unchanged holds that a transaction sees what was there when it began.
func unchanged(before driver.Tx) error {
	want(before, "a", "1", "b", "1")
	if got := read(before, "a") + read(before, "b") + read(before, "c"); got != "11-" {
		fail("Get of a, b and c returned %q, want 1, 1 and nothing", got)
	}
	if peeked := must(before.Peek(key("a"), key("z"), 9, nil)); len(peeked) != 2 {
		fail("Peek returned %q, want the values of the snapshot", peeked)
	}
	return nil
}

// several runs f in n goroutines, and returns one of their errors.
func several(n int, f func(worker int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = caught(func() error { return f(i) }) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func fresh(s *subject) error {
	dbs, done := s.handles()
	defer done()
	for i := range 200 {
		n := fmt.Sprint(i)
		check(put(dbs[i%len(dbs)], "a", n))
		for _, write := range []bool{false, true} {
			tx := must(dbs[(i+1)%len(dbs)].Begin(background, write))
			got := read(tx, "a")
			tx.Discard()
			if got != n {
				fail("a transaction that began after commit %s read commit %s", n, got)
			}
		}
	}
	return nil
}

func discard(s *subject) error {
	for _, write := range []bool{false, true} {
		tx := must(s.db.Begin(background, write))
		read(tx, "a")
		tx.Discard()
		tx.Discard()
	}
	tx := must(s.db.Begin(background, true))
	check(tx.Commit([]driver.Pair{{Key: key("a"), Value: key("1")}}))
	tx.Discard()
	check(put(s.db, "b", "2")) // nothing is locked
	after := view(s.db)
	defer after.Discard()
	want(after, "a", "1", "b", "2")
	return nil
}

func lostUpdate(s *subject) error {
	dbs, done := s.handles()
	defer done()
	const workers, each = 4, 25
	check(several(workers, func(worker int) error {
		for range each {
			check(update(dbs[worker%len(dbs)], func(tx driver.Tx) map[string][]byte {
				n := read(tx, "n")
				if n == "-" {
					n = ""
				}
				runtime.Gosched()
				return map[string][]byte{"n": key(n + "+")}
			}))
		}
		return nil
	}))
	tx := view(s.db)
	defer tx.Discard()
	if n := len(read(tx, "n")); n != workers*each {
		fail("%d of %d updates are there", n, workers*each)
	}
	return nil
}

// verified has a transaction look, and others write meanwhile if the driver lets them. If
// its Commit without writes succeeds, none of these has ended before.
func verified(s *subject, look func(tx driver.Tx), write func(i int) []string) error {
	dbs, done := s.handles()
	defer done()
	var begun, ended atomic.Int64
	rounds, patience := int64(60), 200*time.Millisecond
	return several(2, func(worker int) error {
		if worker == 1 {
			defer ended.Store(rounds)
			for i := range rounds {
				for begun.Load() <= i {
					runtime.Gosched()
				}
				check(put(dbs[1], write(int(i))...))
				ended.Add(1)
			}
			return nil
		}
		defer begun.Store(rounds)
		for i := range rounds {
			tx := must(dbs[0].Begin(background, true))
			before := ended.Load()
			look(tx)
			begun.Store(i + 1)
			for late := wall.After(patience); patience > 0 && ended.Load() <= i; runtime.Gosched() {
				select {
				case <-late: // Begin makes the write wait
					patience = 0
				default:
				}
			}
			written := ended.Load() > before
			err := tx.Commit(nil)
			if err != nil && !errors.Is(err, driver.ErrConflict) {
				return err
			}
			if err == nil && written {
				fail("the write of round %d came between, and Commit returned no conflict", i)
			}
			for ended.Load() <= i {
				runtime.Gosched()
			}
		}
		return nil
	})
}

func emptyCommit(s *subject) error {
	return verified(s, func(tx driver.Tx) { read(tx, "a") }, func(i int) []string {
		if i%2 == 0 {
			return []string{"a", fmt.Sprint(i)}
		}
		return []string{"a", "-"}
	})
}

func emptyRange(s *subject) error {
	look := func(tx driver.Tx) { must(tx.Scan(key("a"), key("b"), 1000, false, nil)) }
	return verified(s, look, func(i int) []string { return []string{fmt.Sprint("a", i), ""} })
}

func writeSkew(s *subject) error {
	dbs, done := s.handles()
	defer done()
	for round := range 50 {
		x, y := fmt.Sprint("x", round), fmt.Sprint("y", round)
		check(several(2, func(worker int) error {
			mine, other := x, y
			if worker == 1 {
				mine, other = y, x
			}
			return update(dbs[worker], func(tx driver.Tx) map[string][]byte {
				if read(tx, other) != "-" {
					return nil
				}
				runtime.Gosched()
				return map[string][]byte{mine: {}}
			})
		}))
		tx := view(s.db)
		both := read(tx, x) != "-" && read(tx, y) != "-"
		tx.Discard()
		if both {
			fail("two transactions each wrote because the other had not")
		}
	}
	return nil
}

func write(s *subject) error {
	check(put(s.db, "a", "1", "b", "2"))
	for _, ends := range []string{"Discard", "Commit"} {
		tx := must(s.db.Begin(background, true))
		defer tx.Discard()
		w, ok := tx.(driver.Writer)
		if !ok {
			return notApplied("its transactions that write are no driver.Writer")
		}
		read(tx, "a")
		k, v := key("c"), key("3")
		check(w.Write([]driver.Pair{{Key: key("a"), Value: nil}, {Key: k, Value: v}}))
		copy(k, "x")
		copy(v, "x")
		want(tx, "b", "2", "c", "3")
		check(w.Write([]driver.Pair{{Key: key("c"), Value: key("4")}}))
		if a, c := read(tx, "a"), read(tx, "c"); a != "-" || c != "4" {
			fail("Get after Write returned %q and %q", a, c)
		}
		before := view(s.db)
		defer before.Discard()
		want(before, "a", "1", "b", "2")
		if ends == "Discard" {
			tx.Discard()
			continue
		}
		check(tx.Commit([]driver.Pair{{Key: key("d"), Value: key("5")}}))
	}
	after := view(s.db)
	defer after.Discard()
	want(after, "b", "2", "c", "4", "d", "5")
	return nil
}

func watch(s *subject) error {
	w, ok := s.db.(driver.Watcher)
	if !ok || s.cfg.Another == nil {
		return notApplied("it is no driver.Watcher, or Config.Another is not set")
	}
	other := s.cfg.Another(s.tb, s.db)
	defer func() { _ = other.Close() }()
	heard := make(chan bool, 100)
	w.Watch(func() { heard <- true })
	for i := range 2 {
		check(put(other, "a", fmt.Sprint(i)))
		select {
		case <-heard:
		case <-wall.After(time.Minute):
			fail("commit %d of another handle was not heard of", i)
		}
	}
	return nil
}

func random(s *subject) error {
	state := make(map[string][]byte)
	draw := func(n int) []byte {
		b := make([]byte, s.rnd.IntN(n))
		for i := range b {
			b[i] = byte(s.rnd.UintN(256)) & byte(s.rnd.UintN(256)|0x0f)
		}
		return b
	}
	for range 150 {
		writes := make(map[string][]byte)
		for range s.rnd.IntN(20) {
			k := string(append([]byte{byte(s.rnd.IntN(3))}, draw(3)...))
			if writes[k] = nil; s.rnd.IntN(3) > 0 {
				writes[k] = draw(3000)
			}
		}
		check(update(s.db, func(driver.Tx) map[string][]byte { return writes }))
		for k, v := range writes {
			if state[k] = v; v == nil {
				delete(state, k)
			}
		}
		tx := view(s.db)
		got := all(tx)
		keys := slices.Sorted(maps.Keys(state))
		same := slices.EqualFunc(got, keys, func(p driver.Pair, k string) bool {
			return string(p.Key) == k && bytes.Equal(p.Value, state[k])
		})
		tx.Discard()
		if !same {
			fail("the store has %d pairs, not the %d that were written", len(got), len(keys))
		}
	}
	return nil
}

func limits(s *subject) error {
	l := s.db.Limits()
	n, size := 20_000, 100
	if l.Writes > 0 {
		n = min(n, l.Writes)
	}
	if l.Bytes > 0 {
		n = min(n, l.Bytes/size)
	}
	writes := make(map[string][]byte, n)
	for i := range n {
		writes[fmt.Sprintf("k%09d", i)] = make([]byte, size-10)
	}
	check(update(s.db, func(driver.Tx) map[string][]byte { return writes }))
	after := view(s.db)
	defer after.Discard()
	if got := len(all(after)); got != n {
		fail("%d writes made %d pairs", n, got)
	}
	return nil
}

func ended(s *subject) error {
	ctx, cancel := context.WithCancel(background)
	cancel()
	for _, write := range []bool{false, true} {
		tx, err := s.db.Begin(ctx, write)
		if err == nil {
			tx.Discard()
		}
		if !errors.Is(err, context.Canceled) {
			fail("Begin with a context that was cancelled returned %v", err)
		}
	}
	return nil
}

func waiting(s *subject) error {
	first := must(s.db.Begin(background, true))
	defer first.Discard()
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	begun := make(chan error, 1)
	go func() {
		tx, err := s.db.Begin(ctx, true)
		if err == nil { // it does not wait
			tx.Discard()
		}
		begun <- err
	}()
	select {
	case err := <-begun:
		return err
	case <-wall.After(100 * time.Millisecond):
	}
	cancel()
	if err := <-begun; !errors.Is(err, context.Canceled) {
		fail("Begin whose context was cancelled while it waited returned %v", err)
	}
	return nil
}

func closes(s *subject) error {
	tx := must(s.db.Begin(background, true))
	var committed atomic.Bool
	check(several(2, func(worker int) error {
		if worker == 1 {
			err := s.db.Close()
			if err == nil && !committed.Load() {
				err = errors.New("Close returned before the transaction under way had ended")
			}
			return err
		}
		for range 1000 {
			runtime.Gosched()
		}
		read(tx, "a")
		committed.Store(true)
		return tx.Commit(nil)
	}))
	check(s.db.Close())
	for _, write := range []bool{false, true} {
		if _, err := s.db.Begin(background, write); !errors.Is(err, driver.ErrClosed) {
			fail("Begin after Close returned %v", err)
		}
	}
	return nil
}

func durable(s *subject) error {
	if !s.db.Limits().Durable {
		if s.cfg.Reopen != nil {
			return errors.New("Config.Reopen is set, and Limits does not say Durable")
		}
		return notApplied("Limits does not say Durable")
	}
	if s.cfg.Reopen == nil {
		return errors.New("Config.Reopen is not set")
	}
	check(put(s.db, "a", "1", "b", "2"))
	check(put(s.db, "b", "-", "c", ""))
	check(s.db.Close())
	s.db = s.cfg.Reopen(s.tb, s.db)
	tx := view(s.db)
	defer tx.Discard()
	want(tx, "a", "1", "c", "")
	return nil
}
