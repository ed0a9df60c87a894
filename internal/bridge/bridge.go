// Package bridge is how packages of this module reach what another one hides from its
// users. The package that hides it gives a struct of functions when it is initialised.
// The others take the struct once, into a variable of the package.
//
// The types of the functions are parameters, since the packages that give import this
// one.
package bridge

import (
	"context"
	"fmt"
)

// Args is what package ojs hides of its Args.
type Args[A any] struct {
	// Lossy reports whether encoding replaced bytes that were not UTF-8, so that
	// different args may have become the same. Only args made from a Go value record
	// this, until they are stored.
	Lossy func(A) bool
	// SizeBound returns an upper bound of A.Len, without encoding.
	SizeBound func(A) int
	// LargerThan reports whether A.Len is sure to be more than n, without encoding. If
	// JSON escapes much of the args, it may report false for larger ones. SizeBound is
	// the other bound.
	LargerThan func(a A, n int) bool
	// OfJSON makes args of valid JSON, an array without spaces between its tokens. The
	// memory is the args' own from then on.
	OfJSON func(raw []byte) A
}

// Members of an error's details that block the RateLimit.Key of the job: until a time in
// the form of RFC 3339, or for an ISO 8601 duration from the end of the attempt. If an
// error has both, the first holds.
const (
	DetailRateLimitUntil = "rate_limit_until"
	DetailRateLimitFor   = "rate_limit_for"
)

// Waiter waits for a job's end.
type Waiter[Job any] interface {
	// Wait blocks until the job has ended or ctx has, as ojs.Ticket.Wait does.
	Wait(ctx context.Context, id string) (*Job, error)
}

// Tickets is what package ojs hides of its Ticket.
type Tickets[Ticket, Job any] struct {
	// WithWaiter returns the ticket with what its Wait asks.
	WithWaiter func(Ticket, Waiter[Job]) Ticket
}

// Place is where package fleet stores a job. Its zero value says nothing.
type Place struct {
	Key       string // of fleet.WithCell; "": none
	Partition int    // of the job's id, from 1 on; 0: the engine's choice
	New       bool   // the id that the options give was drawn for this enqueue
	Near      int    // above 0: the partition, from 1 on, of jobs without a key; ids place none
	Apart     bool   // Near places the job beside jobs with a key, too
}

// GivenFingerprint among the Keys of an ojs.UniquePolicy says that its Key is the
// fingerprint, which a client has made of the plain args. Its JSON does not have it.
const GivenFingerprint = 1 << 7

// Options is what package ojs hides of its Options.
type Options[O any] struct {
	// Place returns the place of a job.
	Place func(*O) *Place
	// Cell sets the key and the partition of the place, and refuses a key that is none.
	Cell func(o *O, key string, partition int)
}

// Engines is what package engine hides of its engines, which are *engine.Engine[T], and
// of its options.
type Engines[Option, Draft, Options, Clock any] struct {
	// Partitions returns an option that has ids carry partitions. pick chooses the
	// partition of an id that has none, by some random bits; 0: any.
	Partitions func(pick func(random uint64) int) Option
	// NewID draws an id with a partition.
	NewID func(engine any, partition int) string
	// Resolve calls use with the options that an enqueue of the draft adds up to. They
	// are not use's to keep.
	Resolve func(engine any, d *Draft, use func(*Options) error) error
	// Load returns how many attempts run, and whether a job waits for a slot.
	Load func(engine any) (busy int, more bool)
	// Refused reports whether an enqueue was refused for what it is.
	Refused func(err error) bool
	// Clock returns the clock of the engine.
	Clock func(engine any) Clock
}

// Handlers is what package handler hides of its Handler.
type Handlers[Handler, Middleware, Frame any] struct {
	// Frames returns the function that makes the context and the header for one call of
	// Run.
	Frames func(Handler) func() Frame
	// Wrap puts middlewares around the handler, the first outermost, outside of those
	// that it has.
	Wrap func(Handler, []Middleware) Handler
}

// Operators is what package operate hides of its Jobs.
type Operators[Jobs, Store any] struct {
	// Documents returns the documents of the storage. A package keeps values there under
	// keys of its own.
	Documents func(*Jobs) Store
}

var given []any

// Give makes inside available to Take. It is for functions init.
func Give(inside any) { given = append(given, inside) }

// Take returns what was given of a type. It is for variables of packages that import the
// one that gives.
func Take[T any]() T {
	for _, inside := range given {
		if inside, ok := inside.(T); ok {
			return inside
		}
	}
	panic(fmt.Sprintf("ojs: bridge: nothing of type %T was given", *new(T)))
}
