package attempt_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/attempt"
)

type key struct{}

type other struct{}

// stub is an Attempt that can be told from others.
type stub struct{ attempt.Attempt }

func begun(deadline time.Time) (*attempt.Context, attempt.Attempt) {
	base := context.WithValue(context.WithoutCancel(context.Background()), key{}, "value")
	a := &stub{}
	c := new(attempt.Context)
	c.Begin(&attempt.Owner{Run: attempt.NewRun(base), Attempt: a}, deadline)
	return c, a
}

var errCause = errors.New("cause")

func TestContext(t *testing.T) {
	ways := map[string]struct {
		end   func(*attempt.Context)
		cause error
	}{
		"cancelled": {func(c *attempt.Context) { c.Cancel(ojs.ErrTimeout) }, ojs.ErrTimeout},
		"returned":  {func(c *attempt.Context) { c.Return() }, context.Canceled},
		"cancelled, again": {func(c *attempt.Context) {
			c.Cancel(errCause)
			c.Cancel(ojs.ErrTimeout)
			c.Return()
		}, errCause},
		"returned, then not": {func(c *attempt.Context) { c.Return(); c.Cancel(errCause) }, context.Canceled},
	}
	asked := map[string]func(context.Context){
		"nobody has asked":  func(context.Context) {},
		"Err":               func(c context.Context) { _ = c.Err() },
		"Done":              func(c context.Context) { _ = c.Done() },
		"Value":             func(c context.Context) { _ = c.Value(key{}) },
		"context.Cause":     func(c context.Context) { _ = context.Cause(c) },
		"WithCancel":        func(c context.Context) { _, stop := context.WithCancel(c); stop() },
		"handler.Something": func(c context.Context) { _ = attempt.From(c) },
	}
	for how, w := range ways {
		for what, ask := range asked {
			t.Run(how+", before: "+what, func(t *testing.T) {
				c, _ := begun(time.Time{})
				ask(c)
				if c.Err() != nil || context.Cause(c) != nil {
					t.Errorf("ended before its end: %v, %v", c.Err(), context.Cause(c))
				}
				w.end(c)
				if c.Err() != context.Canceled || context.Cause(c) != w.cause {
					t.Errorf("%v, %v", c.Err(), context.Cause(c))
				}
				select {
				case <-c.Done():
				default:
					t.Error("not done")
				}
				if c.Value(key{}) != "value" || c.Value(other{}) != nil {
					t.Errorf("values %v, %v", c.Value(key{}), c.Value(other{}))
				}
				// A context that is derived afterwards has ended too.
				late, stop := context.WithTimeout(c, time.Hour)
				defer stop()
				if late.Err() != context.Canceled || context.Cause(late) != w.cause {
					t.Errorf("derived: %v, %v", late.Err(), context.Cause(late))
				}
			})
			t.Run(how+", derived contexts, after: "+what, func(t *testing.T) {
				c, _ := begun(time.Time{})
				ask(c)
				derived, stop := context.WithCancel(context.WithValue(c, other{}, "v"))
				defer stop()
				called := make(chan struct{})
				defer context.AfterFunc(derived, func() { close(called) })()
				w.end(c)
				<-called
				if derived.Err() != context.Canceled || context.Cause(derived) != w.cause ||
					derived.Value(key{}) != "value" {
					t.Errorf("%v, %v, %v", derived.Err(), context.Cause(derived), derived.Value(key{}))
				}
			})
		}
	}
	t.Run("the deadline is shown, if there is one that can be", func(t *testing.T) {
		at := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
		for _, d := range []time.Time{at, {}, time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC)} {
			c, _ := begun(d)
			if got, ok := c.Deadline(); ok != (d == at) || ok && got != d {
				t.Errorf("%v: %v, %t", d, got, ok)
			}
		}
	})
	t.Run("the attempt is taken back unless somebody has it", func(t *testing.T) {
		c, a := begun(time.Time{})
		derived := context.WithValue(c, other{}, "v")
		if attempt.From(derived) != a || attempt.From(c) != a || c.TakeBack() || attempt.From(c) != a {
			t.Error("it is gone, though it was lent")
		}
		c, _ = begun(time.Time{})
		if !c.TakeBack() || attempt.From(c) != nil {
			t.Error("it is lent, though it was taken back")
		}
	})
	t.Run("an unasked context costs no allocation", func(t *testing.T) {
		c := new(attempt.Context)
		owner := &attempt.Owner{Run: attempt.NewRun(context.Background()), Attempt: &stub{}}
		if n := testing.AllocsPerRun(100, func() {
			*c = attempt.Context{}
			c.Begin(owner, time.Time{})
			_ = c.Err()
			c.Return()
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
	t.Run("all at once", func(t *testing.T) {
		for range 200 {
			c, a := begun(time.Time{})
			var group sync.WaitGroup
			var lent attempt.Attempt
			var back bool
			group.Go(func() {
				<-c.Done()
				if cause := context.Cause(c); cause != errCause && cause != context.Canceled {
					t.Errorf("cause %v", cause)
				}
			})
			group.Go(func() {
				inner, stop := context.WithCancel(c)
				defer stop()
				<-inner.Done()
				if context.Cause(inner) != context.Cause(c) {
					t.Errorf("causes %v and %v", context.Cause(inner), context.Cause(c))
				}
			})
			group.Go(func() { c.Cancel(errCause) })
			group.Go(c.Return)
			group.Go(func() { lent = attempt.From(c) })
			group.Go(func() { back = c.TakeBack() })
			group.Wait()
			if back == (lent == a) {
				t.Errorf("taken back %t, lent %v", back, lent)
			}
		}
	})
}
