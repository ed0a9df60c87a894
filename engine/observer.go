package engine

import "github.com/ojsengine/ojs"

// Observer sees every event of an engine, those of one job in the order in which they happened: what metrics and traces are
// made of. It misses none, since the engine waits for it. So Observe must be quick, and must not call the engine; whoever
// wants to do more subscribes instead. Calls do not overlap. ev and what it points to are shared with other observers and
// subscribers: an observer may keep them and must not change them. One that panics is logged and goes on with the next event.
//
// An engine without observers and subscribers makes no events at all. With one, a transition costs a snapshot of its job.
//
// The modules github.com/ojsengine/ojs/otel and github.com/ojsengine/ojs/prometheus have observers for those systems.
type Observer interface {
	Observe(ev *ojs.Event)
}

// WithObserver adds observers after earlier ones. One that is also a Tracer follows the engine's operations too.
func WithObserver(os ...Observer) Option {
	return func(c *config) error {
		for _, o := range os {
			if o == nil {
				return invalid("observer", "is nil")
			}
			if t, ok := o.(Tracer); ok {
				c.tracers = append(c.tracers, t)
			}
		}
		c.observers = append(c.observers, os...)
		return nil
	}
}

// observe shows an observer an event. mu is held.
func (h *hub) observe(o Observer, ev *ojs.Event) {
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("observer panicked", "event", ev.Type, "panic", p)
		}
	}()
	o.Observe(ev)
}
