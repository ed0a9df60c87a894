package engine

import (
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/storage"
)

// NewOn makes an engine on a machine with a clock of its own.
func NewOn(s storage.Storage, wall clock.Clock, opts ...Option) (*Engine[any], error) {
	return New[any](s, append(opts, func(c *config) error { c.wall = wall; return nil })...)
}

// NextDeadline tells tests when the engine has something to do next.
func NextDeadline[T any](e *Engine[T]) (time.Time, bool) {
	return e.NextWake()
}
