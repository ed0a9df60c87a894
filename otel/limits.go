package ojsotel

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/operate"
)

const (
	mostKeys   = 100  // that have a label of their own: keys come from clients
	mostLimits = 1000 // that a collection asks for
)

// observeLimit counts an event of a limit.
func (t *Telemetry) observeLimit(ev *event.Event) {
	key := attribute.String("key", t.keys.Of(ev.Limit.Key))
	switch ev.Type {
	case event.LimitExceeded:
		strategy := attribute.String("strategy", string(ev.Limit.Strategy))
		t.limitExceeded.Add(context.Background(), 1, metric.WithAttributes(key, strategy))
	case event.LimitReleased:
		if ev.Wait > 0 {
			t.limitWait.Record(context.Background(), ev.Wait.Seconds(), metric.WithAttributes(key))
		}
	}
}

// WatchLimits adds the gauges of the keys of rate limits: call it with the List method of
// the engine's Limits. They describe the storage: of engines that share one, watch one.
// The list is asked whenever metrics are collected, for the first 1,000 keys by name that
// have jobs, a setting or a block. The first 100 keys have a label of their own, the
// others count together as "other".
//
// Stop ends it; its error, and that of WatchLimits, is the meter's.
func (t *Telemetry) WatchLimits(
	list func(context.Context, operate.LimitQuery) ([]operate.Limit, error),
) (stop func() error, err error) {
	if list == nil {
		return nil, errors.New("ojs: otel: list is nil")
	}
	r, err := t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		keys, err := list(ctx, operate.LimitQuery{Limit: mostLimits})
		if err != nil {
			return err
		}
		type counts struct{ active, waiting int }
		byName := make(map[string]counts)
		for _, k := range keys {
			name := t.keys.Of(k.Name)
			n := byName[name]
			byName[name] = counts{n.active + k.Active, n.waiting + k.Waiting}
		}
		for name, n := range byName {
			key := metric.WithAttributes(attribute.String("key", name))
			o.ObserveInt64(t.limitActive, int64(n.active), key)
			o.ObserveInt64(t.limitWaiting, int64(n.waiting), key)
		}
		return nil
	}, t.limitActive, t.limitWaiting)
	if err != nil {
		return nil, fmt.Errorf("ojs: otel: %w", err)
	}
	return r.Unregister, nil
}
