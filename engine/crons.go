package engine

import (
	"context"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
)

// Cron gives access to the recurring jobs. Every running engine on the storage fires
// them, each run once.
func (e *Engine[T]) Cron() *cron.Entries { return e.core.crons }

// newCrons makes what package cron needs of the engine.
func (c *core) newCrons() *cron.Entries {
	return cron.New(cron.Engine{
		Store: c.store, Codec: c.codec, Log: c.log,
		Now: c.now, NewID: func() string { return c.rnd.id(c.now()) },
		CheckTx: c.checkTx, Draft: c.cronDraft, Check: c.checkCron, Enqueue: c.enqueueCron,
		Refused: refused, Cancel: c.cancel, Trace: c.traceCron, Emit: c.emit,
		Changed: func() {
			if r := c.run.Load(); r != nil {
				r.maintenance.cron.Poke()
			}
		},
	})
}

func (c *core) cronDraft(d ojs.Draft) (args ojs.Args, o ojs.Options, err error) {
	t, err := c.jobType(d.Type())
	if err != nil {
		return args, o, err
	}
	p, err := c.planFor(t, d.Defaults(), d.Options(), new(plan))
	if err != nil {
		return args, o, err
	}
	if !t.handled {
		c.warnUnhandled(t, d.Type())
	}
	o = p.options.Clone()
	if o.TypeVersion != "" || !t.handled {
		t = c.registry.lookup(d.Type(), o.TypeVersion)
	}
	args, err = draft.Args(d.Args(), d.Type(), t.argsType(), c.codec)
	return args, o, err
}

func (c *core) checkCron(ctx context.Context, d ojs.Draft) error {
	var probe storage.Insert
	err := c.prepare(ctx, &probe, d.Type(), d.Args(), d.Defaults(), d.Options(), c.now(), new(plan))
	if err == ojs.ErrDropped {
		return nil
	}
	return err
}

func (c *core) enqueueCron(ctx context.Context, d ojs.Draft) (ojs.Ticket, error) {
	var tickets [1]ojs.Ticket
	var err error
	// A hook may have put a value into the job whose MarshalJSON ends this goroutine,
	// which may be maintenance's.
	stop := foreign.Call(func() { err = c.tryEnqueue(ctx, []ojs.Draft{d}, tickets[:]) })
	if stop != nil {
		return ojs.Ticket{}, &hookError{stop}
	}
	if err == nil && tickets[0].Dropped {
		err = ojs.ErrDropped
	}
	return tickets[0], err
}

// cronProblem returns the problem that recurring entries cannot run here; false: there is
// none.
func (c *core) cronProblem(ctx context.Context) (p Problem, ok bool) {
	r := c.run.Load()
	if r == nil {
		return p, false
	}
	why, err := r.maintenance.crons.Unreadable(ctx)
	if err != nil { // Health has noticed
		return p, false
	}
	return Problem{Code: ProblemCron, N: len(why), Text: "recurring entries cannot run here: " +
		strings.Join(why[:min(len(why), maxNamed)], "; ")}, len(why) > 0
}

// refused reports whether an enqueue was refused for what it is. Otherwise the storage
// failed, and may have stored it.
func refused(err error) bool {
	var hook *hookError
	var encoding *codec.Error
	return foreign.Is(err, ojs.ErrInvalid) || foreign.Is(err, ojs.ErrDuplicate) ||
		foreign.Is(err, ojs.ErrDropped) || foreign.Is(err, ojs.ErrDependency) ||
		foreign.Is(err, ojs.ErrUnsupported) ||
		foreign.Is(err, ojs.ErrQueueFull) || foreign.Is(err, ojs.ErrQueueDraining) ||
		foreign.As(err, &hook) || foreign.As(err, &encoding)
}
