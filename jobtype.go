package ojs

import (
	"context"
	"fmt"
	"reflect"
	"slices"
)

// JobType is a job type: its name, the Go type of its args, and its default options.
// Declare it once, as a package variable that producers and handlers share. It is
// immutable and safe for concurrent use.
type JobType[T any] struct {
	name     string
	defaults []Option
}

// Define declares a job type. It panics if the name or a default is invalid, as
// regexp.MustCompile does. If T has unexported fields, which JSON leaves out, Define logs
// a warning to slog.Default, once for each T.
func Define[T any](name string, defaults ...Option) JobType[T] {
	if err := ValidateType(name); err != nil {
		panic(err)
	}
	o := DefaultOptions()
	o.Apply(defaults...)
	if err := o.Validate(); err != nil {
		panic(fmt.Errorf("ojs: defaults of job type %s: %w", name, err))
	}
	warnUnexported(name, reflect.TypeFor[T]())
	return JobType[T]{name, slices.Clone(defaults)}
}

// Name returns the type's name.
func (t JobType[T]) Name() string { return t.name }

// Defaults returns the type's default options.
func (t JobType[T]) Defaults() []Option { return slices.Clone(t.defaults) }

// New makes a draft: a job of this type that is not enqueued yet.
func (t JobType[T]) New(args T, opts ...Option) Draft {
	return Draft{jobType: t.name, args: args, defaults: t.defaults, opts: slices.Clone(opts)}
}

// Enqueue makes a draft and enqueues it on q.
func (t JobType[T]) Enqueue(ctx context.Context, q Enqueuer, args T, opts ...Option) (Ticket, error) {
	tickets, err := q.EnqueueMany(ctx, t.New(args, opts...))
	switch {
	case err != nil:
		return Ticket{}, err
	case tickets[0].Dropped:
		return Ticket{}, ErrDropped
	}
	return tickets[0], nil
}

// Decode decodes the args of a looked-up job of this type. A job of another type is
// refused with ErrInvalid.
func (t JobType[T]) Decode(job *JobInfo) (T, error) {
	var args T
	if job.Type != t.name {
		return args, &InvalidError{Code: InvalidCodeType, Field: "type",
			Reason: fmt.Sprintf("%q is not %q", job.Type, t.name)}
	}
	err := job.Args.Decode(&args)
	return args, err
}

// Draft is a job that has not been enqueued: type, args, options. It is a value and may
// be enqueued any number of times. It keeps its args: do not modify them in between.
type Draft struct {
	jobType  string
	args     any
	defaults []Option // of the JobType that made it
	opts     []Option
}

// NewDraft makes a draft of a type that is known only by its name.
func NewDraft(jobType string, args any, opts ...Option) Draft {
	return Draft{jobType: jobType, args: args, opts: slices.Clone(opts)}
}

// Type returns the job type's name.
func (d Draft) Type() string { return d.jobType }

// Args returns the args of the draft.
func (d Draft) Args() any { return d.args }

// Defaults returns the default options of the JobType that made the draft, nil if none
// did.
func (d Draft) Defaults() []Option { return d.defaults }

// Options returns the draft's own options, which override the defaults.
func (d Draft) Options() []Option { return d.opts }

// With returns the draft with more options, which override its own.
func (d Draft) With(opts ...Option) Draft {
	d.opts = slices.Concat(d.opts, opts)
	return d
}

// Under returns the draft with more options, which its own override. An option that
// excludes one of the draft's makes the draft invalid.
func (d Draft) Under(opts ...Option) Draft {
	d.opts = slices.Concat(opts, d.opts)
	return d
}

// Enqueuer accepts drafts of any type, all or nothing. Every engine is an Enqueuer, for
// any T, and so is a test double. It returns one ticket per draft, in order.
type Enqueuer interface {
	EnqueueMany(ctx context.Context, drafts ...Draft) ([]Ticket, error)
}
