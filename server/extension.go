package server

import (
	"math"
	"strconv"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/fetch"
)

// extension is the name, in the manifest, of what this server takes beyond the binding,
// so that package remote offers what an engine does:
//
//   - "then" in an ack: jobs that are stored in the same step as the completion; it needs
//     the permission to enqueue them;
//   - "delay_ms" beside "requeue" in a nack, and "retry_after_ms" beside "error";
//   - "ojs:batch" in the options of a job: the properties that ojs.WithDependsOn,
//     WithCondition, WithJoin, WithDraftName and WithOrderingKey set;
//   - "types" in a fetch: the only types that the worker takes, with ranges of versions
//     as fetch.Config has them;
//   - "state" quiet or terminate in a heartbeat, which ends the worker's long polls.
const extension = "urn:ojsengine:remote:1"

// keyBatch is the option of the extension.
const keyBatch = "ojs:batch"

// batchOptions reads it.
func (w *jobRequest) batchOptions() error {
	if !w.has(keyBatch) {
		return nil
	}
	one := w.one(keyBatch)
	in := one.within(keyBatch)
	if one.err != nil {
		return one.err
	}
	if list := in.texts("depends_on"); len(list) > 0 {
		w.option(ojs.WithDependsOn(list...))
	}
	if c := ojs.Condition(in.text("condition")); c != "" {
		w.option(ojs.WithCondition(c))
	}
	if in.flag("join") {
		w.option(ojs.WithJoin())
	}
	if name := in.text("name"); name != "" {
		w.option(ojs.WithDraftName(name))
	}
	if key := in.text("ordering_key"); key != "" {
		w.option(ojs.WithOrderingKey(key))
	}
	return in.err
}

// thenOf reads the jobs that follow an ack.
func (s *Server) thenOf(c *call, in *input) ([]ojs.Draft, error) {
	list := in.list("then")
	if in.err != nil || len(list) == 0 {
		return nil, in.err
	}
	if len(list) > s.conf.maxBatch {
		return nil, invalid("then", "has "+strconv.Itoa(len(list))+" jobs").
			expected("at most " + strconv.Itoa(s.conf.maxBatch))
	}
	drafts, err := s.drafts(c, list)
	if err != nil {
		return nil, err
	}
	for _, d := range drafts {
		if err := c.mayDo(permEnqueue, queueOf(d)); err != nil {
			return nil, err
		}
	}
	return drafts, nil
}

// requeued ends a delivery that its worker gives back (F071).
func requeued(c *call, in *input, d *fetch.Delivery) error {
	delay := in.duration("delay_ms")
	switch {
	case in.err != nil:
		return in.err
	case delay > 0:
		return d.Fail(c.ctx, ojs.Snooze(delay))
	}
	return d.Release(c.ctx)
}

// retryAfterOf is the error of a nack with the delay that the handler asks for.
func retryAfterOf(in *input, failure error) error {
	if in.get("retry_after_ms") == nil {
		return failure
	}
	const most = math.MaxInt64 / int(time.Millisecond)
	return ojs.RetryAfter(time.Duration(in.integer("retry_after_ms", 0, 0, most))*time.Millisecond, failure)
}
