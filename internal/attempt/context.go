package attempt

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
)

// Frame is what one attempt gets in one allocation: its context, which it is, and the job
// that its handler sees.
type Frame interface {
	context.Context
	// Parts returns the context's own part, to begin and end it, and the header of the
	// job.
	Parts() (*Context, *ojs.JobHeader)
}

// Run is what the contexts of the attempts of one run share.
type Run struct {
	base  context.Context // whose values they have
	ended *ending
}

// NewRun makes a Run. Base must have no end: nothing ends the resources that the contexts
// of its attempts hold in it.
func NewRun(base context.Context) *Run {
	r := &Run{base: base, ended: newEnding(base)}
	r.ended.cancel(context.Canceled)
	return r
}

// Context is the context of an attempt. Most handlers never ask a context whether it has
// ended. So a context of package context, which can tell, is made on the first call that
// asks. It then answers for everything but the attempt and its deadline: contexts derived
// from this one find it, and have its cause.
type Context struct {
	run      *Run
	owner    *Owner // nil once it is taken back
	deadline int64  // in ns since 1970; 0: none
	ending   atomic.Pointer[ending]
	lent     atomic.Uint32
}

// Owner is what an attempt and its context share while the attempt goes on. The context
// forgets it when it is taken back, since it is another attempt's then.
type Owner struct {
	Run     *Run
	Attempt Attempt
}

type ending struct {
	context.Context
	cancel context.CancelCauseFunc
}

func newEnding(base context.Context) *ending {
	ctx, cancel := context.WithCancelCause(base)
	return &ending{ctx, cancel}
}

// The states of Context.lent.
const (
	unknown uint32 = iota // no call has asked for the attempt
	lent                  // a caller may have it
	taken                 // no call gets it
)

// Begin makes the context that of an attempt. A deadline that is zero, or in an age that
// counts no nanoseconds, is none.
func (c *Context) Begin(o *Owner, deadline time.Time) {
	c.run, c.owner = o.Run, o
	if ns := deadline.UnixNano(); time.Unix(0, ns).Equal(deadline) {
		c.deadline = ns
	}
}

// PutOff puts the deadline off, if there is one. It is for a context that its handler has
// not got yet.
func (c *Context) PutOff(d time.Duration) {
	if c.deadline != 0 {
		c.deadline += int64(d)
	}
}

// Cancel ends the context with a cause, if it has not ended.
func (c *Context) Cancel(cause error) { c.made().cancel(cause) }

// Return ends the context after its handler has returned.
func (c *Context) Return() {
	if !c.ending.CompareAndSwap(nil, c.run.ended) {
		c.ending.Load().cancel(context.Canceled)
	}
}

// TakeBack reports whether no caller has the attempt from this context. From then on no
// call gets it.
func (c *Context) TakeBack() bool {
	if !c.lent.CompareAndSwap(unknown, taken) {
		return false
	}
	c.owner = nil // who looks at it has been lent it
	return true
}

func (c *Context) made() *ending {
	if e := c.ending.Load(); e != nil {
		return e
	}
	if e := newEnding(c.run.base); c.ending.CompareAndSwap(nil, e) {
		return e
	}
	return c.ending.Load()
}

// Deadline implements context.Context.
func (c *Context) Deadline() (time.Time, bool) {
	if c.deadline == 0 {
		return time.Time{}, false
	}
	return time.Unix(0, c.deadline).UTC(), true
}

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} { return c.made().Done() }

// Err implements context.Context.
func (c *Context) Err() error {
	if e := c.ending.Load(); e != nil {
		return e.Err()
	}
	return nil
}

// Value implements context.Context. context.Cause asks here, too.
func (c *Context) Value(key any) any {
	if key != (Key{}) {
		return c.made().Value(key)
	}
	if c.lent.CompareAndSwap(unknown, lent) || c.lent.Load() == lent {
		return c.owner.Attempt
	}
	return nil
}

// String keeps package fmt from looking inside, which others may be changing.
func (c *Context) String() string { return "ojs.attempt" }
