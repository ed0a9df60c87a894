package rows

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

// Limits that a storage counts (storage.Limited), as far as databases have them in
// common. The bounds of a job are its RateLimit as text.

// Bounds returns the text of a limit, "" if there is none.
func Bounds(l *ojs.RateLimit) (string, error) {
	if l == nil {
		return "", nil
	}
	b, err := json.Marshal((*rateLimit)(l))
	return string(b), err
}

// ReadBounds returns the limit of a text.
func ReadBounds(text string) (ojs.RateLimit, error) {
	var l rateLimit
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return ojs.RateLimit{}, fmt.Errorf("bounds: %w", err)
	}
	return ojs.RateLimit(l), nil
}

// Counter is what a database has of a limit: who is active, what has started, and what
// has been set.
type Counter struct {
	storage.LimitName
	rule.Limit
	Stored bool   // it has a row
	Last   string // the bounds of the job of the key that started last
}

// NewCounter returns the counter of a limit of which nothing is known.
func NewCounter(name storage.LimitName) *Counter {
	return &Counter{LimitName: name, Limit: rule.Limit{Until: None, Blocked: None}}
}

// Set gives a limit bounds until a time, or takes them away if they bound nothing.
func (c *Counter) Set(bounds ojs.RateLimit, until time.Time) { c.Limit.Set(bounds, Nanos(until)) }

// Block lets no job of a limit start before a time. A block that lasts longer stays, and
// the zero time ends a block.
func (c *Counter) Block(until time.Time) { c.Limit.Block(Nanos(until)) }

// Closes tells which bound keeps a job with bounds from starting.
func (c *Counter) Closes(own *ojs.RateLimit, now int64) storage.ClosedKey {
	return c.Limit.Closes(c.Name, own, now)
}

// State is what GetLimit tells of the counter (rule.Limit.State).
func (c *Counter) State(own ojs.RateLimit, waiting int, now int64, start rule.Starts) (storage.Limit, error) {
	return c.Limit.State(c.LimitName, own, waiting, now, start)
}
