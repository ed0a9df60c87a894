package storagetest

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs/storage"
)

// stuck is a reference that deadlocks: from a call of List on, every List and Close waits
// until the test lets it go.
type stuck struct {
	*Reference
	stuck atomic.Bool // a List has come
	free  chan struct{}
	close bool // Close hangs by itself
}

func (s *stuck) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	if !s.close {
		s.stuck.Store(true)
		<-s.free
	}
	return s.Reference.List(ctx, q)
}

func (s *stuck) Close() error {
	if s.stuck.Load() || s.close {
		<-s.free
	}
	return s.Reference.Close()
}

// A storage that deadlocks fails the case, Random and the histories. It does not hang
// the suite, though its Close hangs as well.
func TestDeadlockEndsTheSuite(t *testing.T) {
	for name, closing := range map[string]bool{"a call": false, "Close": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				free := make(chan struct{})
				defer close(free)
				cfg := Config{Open: func(testing.TB) storage.Storage {
					return &stuck{Reference: NewReference(), free: free, close: closing}
				}}
				listing := Case{Rule: "A rule.", run: func(c *C) { c.list(storage.Query{}) }}
				want := "A rule.\nthe storage hangs"
				if closing {
					want = "A rule.\nClose hangs"
				}
				began := time.Now()
				if got := Prove(cfg, listing); len(got) != 1 || got[0] != want {
					t.Errorf("Prove: %q, not %q", got, want)
				}
				if took := time.Since(began); took > 3*watchdog {
					t.Errorf("Prove took %v", took)
				}
				began = time.Now()
				var q quiet
				cfg.coverage = newCoverage()
				done := make(chan struct{})
				go func() { defer close(done); randomly(&rapidQuiet{&q}, cfg) }()
				<-done
				if text := strings.Join(q.failures, "\n"); !strings.Contains(text, "the storage hangs: ") {
					t.Errorf("Random: %q", text)
				}
				_, _, err := search(cfg, 1, budget{histories: 2 * storageHistories, time: time.Hour})
				if err == nil || !strings.Contains(err.Error(), "hangs") {
					t.Errorf("Histories: %v", err)
				}
				if took := time.Since(began); took > 5*watchdog {
					t.Errorf("Random and Histories took %v", took)
				}
			})
		})
	}
}

// rapidQuiet is a quiet for rapid.
type rapidQuiet struct{ *quiet }

func (q *rapidQuiet) FailNow()             { q.quiet.Fatalf("failed") }
func (q *rapidQuiet) Fail()                { q.Errorf("failed") }
func (q *rapidQuiet) SkipNow()             {}
func (q *rapidQuiet) Skip(...any)          {}
func (q *rapidQuiet) Skipf(string, ...any) {}

var _ rapid.TB = (*rapidQuiet)(nil)
