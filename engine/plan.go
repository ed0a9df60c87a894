package engine

import (
	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

// plan is what the options of a job add up to. It is not changed once it is made, since
// many jobs may share it.
type plan struct {
	options  ojs.Options
	retry    ojs.RetryPolicy
	queues   *queueSet   // whose defaults are in it
	defaults *ojs.Option // the first default of the job type, which identifies the list; nil if none
}

// planFor resolves the options of a draft. Without options of the draft's own, the plan
// is resolved once for the job type and the engine's queues, since the defaults of these
// do not change.
// Where possible, the draft's own options are applied on top of that plan, in own, which
// only this enqueue uses.
func (c *core) planFor(t *jobType, defaults, opts []ojs.Option, own *plan) (*plan, error) {
	if defaults == nil {
		defaults = t.handler.Defaults()
	}
	var first *ojs.Option
	if len(defaults) > 0 {
		first = &defaults[0]
	}
	base := t.plan.Load()
	queues := c.queues.Load()
	if base == nil || base.defaults != first || base.queues != queues {
		o, err := c.resolve(queues, defaults, nil)
		base = &plan{queues: queues}
		if err = base.finish(o, err); err == nil {
			base.defaults = first
			t.plan.Store(base)
		} else if base = nil; len(opts) == 0 {
			return nil, err
		}
	}
	if len(opts) == 0 {
		return base, nil
	}
	if base != nil {
		o := &own.options
		*o = base.options.Clone()
		o.Apply(opts...)
		// Another queue may have other defaults, which come in before the type's.
		if o.Queue == base.options.Queue || queues.hasNoDefaults(o.Queue, base.options.Queue) {
			err := o.Validate()
			if err != nil {
				return nil, err
			}
			if o.Retry.Equal(base.options.Retry) {
				own.retry = base.retry
				return own, nil
			}
			own.retry, err = policy.Resolve(o.Retry)
			return own, err
		}
	}
	return own, own.finish(c.resolve(queues, defaults, opts))
}

// finish completes the plan of resolved options.
func (p *plan) finish(o ojs.Options, err error) error {
	if err != nil {
		return err
	}
	retry, err := policy.Resolve(o.Retry)
	if err != nil {
		return err
	}
	p.options, p.retry = o, retry
	return nil
}

// resolve adds up the options of a draft: standard, engine, queue, job type, call; the
// later overrides the earlier.
func (c *core) resolve(queues *queueSet, defaults, own []ojs.Option) (ojs.Options, error) {
	o := ojs.DefaultOptions()
	o.Apply(c.defaults...)
	o.Apply(defaults...)
	o.Apply(own...)
	// Only now is the queue known, whose defaults come in before the type's.
	if qc := queues.config[o.Queue]; len(qc.Defaults) > 0 {
		queue := o.Queue
		o = ojs.DefaultOptions()
		o.Apply(c.defaults...)
		o.Apply(qc.Defaults...)
		o.Apply(defaults...)
		o.Apply(own...)
		o.Queue = queue
	}
	return o, o.Validate()
}
