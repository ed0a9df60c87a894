package handler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ojsengine/ojs"
)

// Middleware wraps attempts. It calls next at most once, with ctx or a context made from
// it. It returns next's error or another one, which decides on the job as a handler's
// error does. If it does not call next, the handler does not run. Job is the attempt's
// own copy: the handler sees the changes that a middleware makes.
type Middleware func(ctx context.Context, job *ojs.JobHeader, next Next) error

// Next is the rest of an attempt: the middlewares further in, and the handler.
type Next func(ctx context.Context) error

// ErrNextTwice is the error of a second call of next.
var ErrNextTwice = errors.New("ojs: middleware called next twice")

// wrap: see package bridge.
func (h Handler) wrap(ms []Middleware) Handler {
	for _, m := range slices.Backward(ms) {
		inner := h.run
		h.run = func(ctx context.Context, header *ojs.JobHeader, args ojs.Args) error {
			var called atomic.Bool
			return m(ctx, header, func(ctx context.Context) error {
				if called.Swap(true) {
					return ErrNextTwice
				}
				return inner(ctx, header, args)
			})
		}
	}
	return h
}

// Chain is a list of named middlewares, the first outermost, to put together in several
// places. engine.WithMiddleware and WithMiddleware take its Middlewares. Its methods
// return a changed copy. They panic if a name would occur twice, or if a required name is
// missing.
type Chain []Link

// Link is a middleware with a name.
type Link struct {
	Name string
	Run  Middleware
}

// Add adds a middleware at the end, next to the handler.
func (c Chain) Add(name string, m Middleware) Chain { return c.insert(len(c), name, m) }

// Prepend adds a middleware at the beginning, outermost.
func (c Chain) Prepend(name string, m Middleware) Chain { return c.insert(0, name, m) }

// Before adds a middleware just outside of the one called at.
func (c Chain) Before(at, name string, m Middleware) Chain { return c.insert(c.find(at), name, m) }

// After adds a middleware just inside of the one called at.
func (c Chain) After(at, name string, m Middleware) Chain { return c.insert(c.find(at)+1, name, m) }

// Remove takes a middleware out.
func (c Chain) Remove(name string) Chain {
	i := c.find(name)
	return slices.Delete(slices.Clone(c), i, i+1)
}

// Middlewares returns the middlewares in their order, to give to an engine or a handler.
// It panics with the error of Validate.
func (c Chain) Middlewares() []Middleware {
	if err := c.Validate(); err != nil {
		panic(err)
	}
	ms := make([]Middleware, len(c))
	for i := range c {
		ms[i] = c[i].Run
	}
	return ms
}

// Validate reports a link without a name or a middleware, and a name that occurs twice.
// Its error is an *ojs.InvalidError.
func (c Chain) Validate() error {
	for i, l := range c {
		switch {
		case l.Name == "":
			return chainError(fmt.Sprintf("link %d has no name", i))
		case l.Run == nil:
			return chainError(fmt.Sprintf("%q is nil", l.Name))
		case slices.ContainsFunc(c[:i], func(m Link) bool { return m.Name == l.Name }):
			return chainError(fmt.Sprintf("%q occurs twice", l.Name))
		}
	}
	return nil
}

func chainError(reason string) error {
	return &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "chain", Reason: reason}
}

func (c Chain) insert(i int, name string, m Middleware) Chain {
	c = slices.Insert(slices.Clone(c), i, Link{name, m})
	if err := c.Validate(); err != nil {
		panic(err)
	}
	return c
}

func (c Chain) find(name string) int {
	i := slices.IndexFunc(c, func(l Link) bool { return l.Name == name })
	if i < 0 {
		panic(chainError(fmt.Sprintf("%q is not in it", name)))
	}
	return i
}
