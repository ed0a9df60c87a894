package storagetest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs/storage"
)

// taken is a storage whose calls fail while it is away: before they are done, or after.
type taken struct {
	storage.Storage
	away  *atomic.Bool
	calls atomic.Int64
	first sync.Map // the versions of jobs when they were stored, by id
	loses bool     // an Insert that returns while the storage goes away is not there later
}

var errAway = errors.New("away")

// fails reports whether a call fails, and whether it is done nevertheless.
func (s *taken) fails() (fails, done bool) {
	return s.away.Load(), s.calls.Add(1)%2 == 0
}

// stored notes the versions of jobs that are new.
func (s *taken) stored(batch []storage.Insert, out []storage.Inserted) {
	for i, in := range out {
		if in.Version > 0 {
			s.first.Store(batch[i].Record.ID, in.Version)
		}
	}
}

func (s *taken) Insert(
	ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted,
) ([]storage.Inserted, error) {
	fails, done := s.fails()
	if fails && !done {
		return dst, errAway
	}
	out, err := s.Storage.Insert(ctx, now, batch, dst)
	s.stored(batch, out[min(len(dst), len(out)):])
	if fails && err == nil {
		if s.loses {
			_, _, _ = s.Storage.CancelAll(ctx, now, []string{batch[0].Record.ID})
			_, _ = s.Storage.Delete(ctx, []string{batch[0].Record.ID})
			return out, nil
		}
		return dst, errAway
	}
	return out, err
}

func (s *taken) Claim(
	ctx context.Context, now time.Time, q storage.Claim, dst []storage.Record,
) ([]storage.Record, error) {
	fails, done := s.fails()
	if fails && !done {
		return dst, errAway
	}
	out, err := s.Storage.Claim(ctx, now, q, dst)
	if fails {
		return dst, errAway
	}
	return out, err
}

func (s *taken) Settle(
	ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled,
) ([]storage.Settled, error) {
	fails, done := s.fails()
	if fails && !done {
		return dst, errAway
	}
	out, err := s.Storage.Settle(ctx, now, changes, dst)
	for i := range out[min(len(dst), len(out)):] {
		s.stored(changes[i].Then, out[len(dst)+i].Then)
	}
	if fails {
		return dst, errAway
	}
	return out, err
}

// A storage that goes away is linearizable if its ambiguous calls are done or not, and
// not if an answered call is undone.
func TestFailovers(t *testing.T) {
	for name, loses := range map[string]bool{"ambiguous": false, "loses": true} {
		t.Run(name, func(t *testing.T) {
			var away atomic.Bool
			var double *taken
			cfg := Config{Open: func(testing.TB) storage.Storage {
				double = &taken{Storage: NewReference(), away: &away, loses: loses}
				return double
			}}
			first := func(id string, version uint64) uint64 {
				v, _ := double.first.Load(id)
				return v.(uint64)
			}
			prepare := func() func() {
				return func() {
					away.Store(true)
					for range 300 {
						runtime.Gosched()
					}
					away.Store(false)
				}
			}
			st, ambiguous, found, err := failovers(&cfg, 1, 200, first, prepare)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%v, %d ambiguous calls", st, ambiguous)
			if loses != (found != nil) {
				t.Errorf("found %v", found)
			}
			if found != nil && !strings.Contains(found.String(), "Insert") {
				t.Errorf("found %v", found)
			}
			if ambiguous == 0 || st.undecided > st.histories/2 {
				t.Errorf("%d ambiguous calls, %v", ambiguous, st)
			}
		})
	}
}
