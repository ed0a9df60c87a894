package engine

import (
	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/policy"
)

// plan is what the options of a job add up to. It may be shared by many jobs, so nobody changes it.
type plan struct {
	options  ojs.Options
	retry    ojs.RetryPolicy
	defaults *ojs.Option // the first of the job type's that are in it, nil if it has none: names the list, which does not change
}

// planFor resolves the options of a draft. Those of drafts without options of their own are resolved once for their type, since
// defaults are what they were when they were given.
func (c *core) planFor(d ojs.Draft, t *jobType) (*plan, error) {
	defaults := d.Defaults()
	if defaults == nil {
		defaults = t.handler.Defaults()
	}
	var first *ojs.Option
	if len(defaults) > 0 {
		first = &defaults[0]
	}
	lone := len(d.Options()) == 0
	if lone {
		if p := t.plan.Load(); p != nil && p.defaults == first {
			return p, nil
		}
	}
	o, err := c.resolve(d, t.handler)
	if err != nil {
		return nil, err
	}
	retry, err := policy.Resolve(o.Retry)
	if err != nil {
		return nil, err
	}
	p := &plan{options: o, retry: retry, defaults: first}
	if lone {
		t.plan.Store(p)
	}
	return p, nil
}

// resolve adds up the options of a draft: standard, engine, queue, job type, call; the later goes before the earlier.
func (c *core) resolve(d ojs.Draft, h handler.Handler) (ojs.Options, error) {
	defaults := d.Defaults()
	if defaults == nil {
		defaults = h.Defaults()
	}
	o := ojs.DefaultOptions()
	o.Apply(c.defaults...)
	o.Apply(defaults...)
	o.Apply(d.Options()...)
	// Only now is the queue known, whose defaults come in before the type's.
	if qc := c.queueConfig[o.Queue]; len(qc.Defaults) > 0 {
		queue := o.Queue
		o = ojs.DefaultOptions()
		o.Apply(c.defaults...)
		o.Apply(qc.Defaults...)
		o.Apply(defaults...)
		o.Apply(d.Options()...)
		o.Queue = queue
	}
	return o, o.Validate()
}
