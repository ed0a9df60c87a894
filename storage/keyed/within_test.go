package keyed_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/eachtx"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// eachWithin makes calls, claims too, each in a transaction of its own.
type eachWithin struct{ eachtx.Storage }

func within(s *keyed.Storage) eachWithin {
	return eachWithin{eachtx.Storage{Storage: s,
		Within: func(ctx context.Context, f func(ctx context.Context) error) error {
			return s.Within(ctx, func(ctx context.Context, _ driver.Tx) error { return f(ctx) })
		}}}
}

func (s eachWithin) Claim(
	ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record,
) (out []storage.Record, err error) {
	err = s.Within(ctx, func(ctx context.Context) (err error) {
		out, err = s.Storage.Storage.Claim(ctx, now, c, dst)
		return err
	})
	return out, err
}

// Calls within transactions behave as others do, for all values of all fields.
func TestWithinBehaves(t *testing.T) {
	cfg := config
	cfg.Open = func(tb testing.TB) storage.Storage { return within(config.Open(tb).(*keyed.Storage)) }
	cfg.Reopen, cfg.Another, cfg.Plant, cfg.Mend, cfg.Quarantine = nil, nil, nil, nil, false
	cfg.PlantNamed, cfg.MendNamed = nil, nil
	storagetest.SameBehaviour(t, cfg)
}

// payment is a key that is not of the storage.
var payment = []driver.Pair{{Key: []byte("\xf0payment"), Value: []byte("1")}}

func pay(tx driver.Tx) error { return tx.(driver.Writer).Write(payment) }

// paid reports whether the payment is stored.
func paid(t *testing.T, db driver.DB) bool {
	t.Helper()
	tx := must(db.Begin(t.Context(), false))(t)
	defer tx.Discard()
	return must(tx.Get([][]byte{payment[0].Key}, nil))(t)[0] != nil
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func insertIn(ctx context.Context, s *keyed.Storage, id string) error {
	_, err := s.Insert(ctx, now, []storage.Insert{job(id)}, nil)
	return err
}

// never is a function that must not be called.
func never(t *testing.T) func(context.Context, driver.Tx) error {
	return func(context.Context, driver.Tx) error {
		t.Error("called")
		return nil
	}
}

func TestWithinIsAllOrNothing(t *testing.T) {
	errBack := errors.New("back")
	ends := map[string]struct {
		end  func() error
		want error
		kept bool
	}{
		"returns": {end: func() error { return nil }, kept: true},
		"fails":   {end: func() error { return errBack }, want: errBack},
		"panics":  {end: func() error { panic("boom") }},
		"exits":   {end: func() error { runtime.Goexit(); return nil }},
	}
	for how, e := range ends {
		t.Run("it "+how, func(t *testing.T) {
			db, s := openCounting(t, driver.Limits{})
			var told []storage.Notice
			defer s.Notify(t, func(n storage.Notice) { told = append(told, n) })()
			var result error
			var call sync.WaitGroup
			call.Go(func() {
				defer func() { _ = recover() }()
				result = s.Within(t.Context(), func(ctx context.Context, tx driver.Tx) error {
					if err := insertIn(ctx, s, "a"); err != nil {
						return err
					}
					if _, err := s.Get(ctx, "a"); err != nil {
						t.Errorf("within: %v", err)
					}
					if _, err := s.Get(t.Context(), "a"); !errors.Is(err, ojs.ErrNotFound) {
						t.Errorf("outside: %v", err)
					}
					if err := pay(tx); err != nil {
						return err
					}
					if len(told) > 0 {
						t.Errorf("before the commit listeners are told of %v", told)
					}
					return e.end()
				})
			})
			call.Wait()
			if result != e.want {
				t.Errorf("%v, want %v", result, e.want)
			}
			_, err := s.Get(t.Context(), "a")
			if there := err == nil; there != e.kept || paid(t, db) != e.kept || len(told) > 0 != e.kept {
				t.Errorf("the job: %v, paid: %v, told: %v", err, paid(t, db), told)
			}
			if err := insertIn(t.Context(), s, "b"); err != nil { // the storage still works
				t.Error(err)
			}
		})
	}
}

func TestWithinAfterARefusedCall(t *testing.T) {
	db, s := openCounting(t, driver.Limits{})
	err := s.Within(t.Context(), func(ctx context.Context, tx driver.Tx) error {
		if err := errors.Join(insertIn(ctx, s, "a"), insertIn(ctx, s, "ended")); err != nil {
			return err
		}
		if _, _, err := s.CancelAll(ctx, now, []string{"ended"}); err != nil {
			return err
		}
		var refused *ojs.TransitionError
		if _, err := s.Delete(ctx, []string{"ended", "a"}); !errors.As(err, &refused) {
			t.Errorf("%v", err)
		}
		return pay(tx)
	})
	if err != nil || !paid(t, db) {
		t.Errorf("%v, paid: %v", err, paid(t, db))
	}
	if _, err := s.Get(t.Context(), "ended"); err != nil {
		t.Errorf("%v: the call that was refused has left something", err)
	}
}

// failing is a store whose Write fails.
type failing struct{ driver.DB }

type failingTx struct{ driver.Tx }

var errFull = errors.New("full")

func (f failing) Begin(ctx context.Context, write bool) (driver.Tx, error) {
	tx, err := f.DB.Begin(ctx, write)
	return failingTx{tx}, err
}

func (failingTx) Write([]driver.Pair) error { return errFull }

// Nothing is committed after a write that the store has failed.
func TestWithinAfterAFailedWrite(t *testing.T) {
	s := open(t, failing{drivertest.NewMemory(false, driver.Limits{})}).(*keyed.Storage)
	err := s.Within(t.Context(), func(ctx context.Context, _ driver.Tx) error {
		if err := insertIn(ctx, s, "a"); !errors.Is(err, errFull) {
			t.Errorf("%v", err)
		}
		return nil
	})
	if !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
}

// A record that does not decode goes to the quarantine with the transaction.
func TestWithinSetsAside(t *testing.T) {
	errBack := errors.New("back")
	s := config.Open(t).(*keyed.Storage)
	if err := insertIn(t.Context(), s, "a"); err != nil {
		t.Fatal(err)
	}
	config.Plant(t, s, "a")
	told := 0
	defer s.Notify(t, func(n storage.Notice) { told += len(n.Quarantined) })()
	for _, end := range []error{errBack, nil} {
		err := s.Within(t.Context(), func(ctx context.Context, _ driver.Tx) error {
			var q *ojs.QuarantinedError
			if _, err := s.Get(ctx, "a"); !errors.As(err, &q) {
				t.Errorf("%v", err)
			}
			return end
		})
		if err != end {
			t.Fatal(err)
		}
		n := must(s.CountQuarantined(t.Context()))(t)
		if want := map[bool]int{true: 1}[end == nil]; n != want || told != want {
			t.Errorf("%d in the quarantine, %d told, want %d", n, told, want)
		}
	}
}

func TestWithinMisused(t *testing.T) {
	_, s := openCounting(t, driver.Limits{})
	_, other := openCounting(t, driver.Limits{})
	if err := s.Within(t.Context(), nil); !errors.Is(err, ojs.ErrInvalid) {
		t.Error(err)
	}
	invalid := func(what, field string, err error) {
		t.Helper()
		if i := (*ojs.InvalidError)(nil); !errors.As(err, &i) || i.Field != field {
			t.Errorf("%s: %v", what, err)
		}
	}
	none := storage.WithTx(t.Context(), nil)
	_, err := s.Get(none, "a")
	invalid("Get", "tx", err)
	invalid("Insert", "tx", insertIn(none, s, "a"))
	invalid("Within", "tx", s.Within(none, never(t)))
	var after context.Context
	err = s.Within(t.Context(), func(ctx context.Context, _ driver.Tx) error {
		after = ctx
		if err := s.Within(ctx, never(t)); !errors.Is(err, ojs.ErrUnsupported) {
			t.Errorf("nested: %v", err)
		}
		if tx := storage.Tx(ctx); !s.Joins(tx) || other.Joins(tx) {
			t.Error("the transaction is not that of its storage alone")
		}
		// Without the context of f, a change would wait for f.
		invalid("Insert", "ctx", insertIn(t.Context(), s, "x"))
		invalid("Within", "ctx", s.Within(t.Context(), never(t)))
		invalid("Close", "ctx", s.Close())
		return insertIn(ctx, s, "a")
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := s.Get(after, "a"); err == nil || errors.Is(err, ojs.ErrNotFound) {
		t.Errorf("after the end: %v", err)
	}
	if err := insertIn(after, s, "b"); err == nil {
		t.Error("a change after the end")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Within(t.Context(), never(t)); !errors.Is(err, ojs.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	conflicts := open(t, drivertest.NewMemory(true, driver.Limits{})).(*keyed.Storage)
	if err := conflicts.Within(t.Context(), never(t)); !errors.Is(err, ojs.ErrUnsupported) {
		t.Errorf("a store whose transactions conflict: %v", err)
	}
}

// Calls that wait for a function of Within obey a context that ends, each its own.
func TestContextsThatEndWhileAFunctionRuns(t *testing.T) {
	db, s := openCounting(t, driver.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	ended, stays := make(chan error), make(chan error)
	until := func(reached func() bool) {
		for !reached() {
			runtime.Gosched()
		}
	}
	err := s.Within(t.Context(), func(context.Context, driver.Tx) error {
		begun := db.writes.Load()
		go func() { stays <- insertIn(t.Context(), s, "stays") }()
		until(func() bool { return db.writes.Load() == begun+1 })
		go func() { ended <- s.Within(ctx, never(t)) }()
		until(func() bool { return db.writes.Load() == begun+2 })
		go func() { ended <- insertIn(ctx, s, "ended") }()
		until(func() bool { return s.Waiting() == 1 })
		cancel()
		for range 2 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		}
		return nil
	})
	if err := errors.Join(err, <-stays); err != nil {
		t.Error(err)
	}
	if _, err := s.Get(t.Context(), "ended"); !errors.Is(err, ojs.ErrNotFound) {
		t.Errorf("the job of a call that its context has ended: %v", err)
	}
}

// A commit is of all calls or of none among calls of others.
func TestWithinAmongOthers(t *testing.T) {
	errBack := errors.New("back")
	_, s := openCounting(t, driver.Limits{})
	name := func(g, i, n int) string { return string([]rune{'a' + rune(g), 'a' + rune(i), 'a' + rune(n)}) }
	var calls sync.WaitGroup
	for g := range 4 {
		calls.Go(func() {
			for i := range 20 {
				err := s.Within(t.Context(), func(ctx context.Context, _ driver.Tx) error {
					err := errors.Join(insertIn(ctx, s, name(g, i, 0)), insertIn(ctx, s, name(g, i, 1)))
					if i%3 == 0 {
						err = errBack
					}
					return err
				})
				if (err != nil) != (i%3 == 0) {
					t.Error(err)
				}
				if err := insertIn(t.Context(), s, name(g, i, 2)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	calls.Wait()
	counts := must(s.Counts(t.Context()))(t)
	if want := 4 * (20 + 2*13); len(counts) != 1 || counts[0].N != want {
		t.Errorf("%v, want %d jobs", counts, want)
	}
}
