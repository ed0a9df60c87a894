package telemetry

import (
	"github.com/ojsengine/ojs/event"
)

// Observer sees every event of an engine: metrics and traces are made of them. The events
// of one job come in the order in which they happened; Subscription says when an event
// waits for an earlier one. The engine waits for an observer, so that it misses no event
// but those that a Subscription counts as missed because a storage call hung. So Observe
// must be quick, and must not call the engine; a program that wants to do more subscribes
// instead. Calls do not overlap, and come from different goroutines. ev and what it
// points to are shared with other observers and subscribers: an observer may keep them
// and must not change them. If Observe panics or calls runtime.Goexit, the engine logs
// that and goes on with the next event.
//
// An engine without observers and subscribers makes no events at all. With an observer, a
// transition costs a snapshot of its job and a goroutine for the call. The observers of
// ojs/prometheus and ojs/otel cost neither. An observer that is an EventSelector costs
// nothing for the events that it does not select.
//
// The modules github.com/ojsengine/ojs/otel and github.com/ojsengine/ojs/prometheus have
// observers for those systems.
type Observer interface {
	Observe(ev *event.Event)
}

// EventSelector is an Observer that sees only events of some types. The engine asks it
// once, in New. The engine makes no event that no observer and no subscription selects.
type EventSelector interface {
	Observer
	EventTypes() []event.Type // exact ones: "job.*" is not a pattern here
}

// MeterReader is an Observer that reads what engines count. engine.WithObserver gives it
// the Meter of each engine that it observes. The function stays valid when the engine has
// stopped, and is safe for concurrent use.
type MeterReader interface {
	Observer
	ReadMeter(meter func() []Meter)
}
