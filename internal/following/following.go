// Package following reads the wall clock as the users of a storage have agreed to.
package following

import (
	"context"
	"reflect"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/storage"
)

// Of returns the clock of a storage, if it has one, and else c. c is the wall clock.
func Of(c clock.Clock, s storage.Storage) clock.Clock {
	if shared, ok := storage.As[storage.Clocked](s); ok {
		return following{c, shared}
	}
	return c
}

// IfWall is Of if c is the wall clock. It returns any other clock as it is.
func IfWall(c clock.Clock, s storage.Storage) clock.Clock {
	if reflect.TypeOf(c) == reflect.TypeOf(clock.New()) {
		return Of(c, s)
	}
	return c
}

type following struct {
	clock.Clock
	storage.Clocked
}

func (f following) Now() time.Time                  { return f.Clock.Now().Add(f.ClockOffset()) }
func (f following) Since(t time.Time) time.Duration { return f.Now().Sub(t) }
func (f following) Until(t time.Time) time.Duration { return t.Sub(f.Now()) }

func (f following) WithDeadline(ctx context.Context, d time.Time) (context.Context, context.CancelFunc) {
	return f.Clock.WithDeadline(ctx, d.Add(-f.ClockOffset()))
}
