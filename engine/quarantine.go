package engine

import (
	"context"
	"log/slog"

	"github.com/ojsengine/ojs/storage"
)

// quarantined returns how many records are in the quarantine.
func (c *core) quarantined(ctx context.Context) (int, error) {
	if store, ok := storage.As[storage.Quarantiner](c.store); ok {
		return store.CountQuarantined(ctx)
	}
	return 0, nil
}

// warnQuarantined logs, when the engine starts, that records are in quarantine. An
// operator has to mend or delete them.
func (c *core) warnQuarantined(ctx context.Context) {
	if n, err := c.quarantined(ctx); err == nil && n > 0 {
		c.logQuarantine(ctx, slog.LevelWarn, "records are in quarantine", slog.Int("records", n))
	}
}

// setAside takes in what the storage has set aside. mu is not held.
func (c *core) setAside(list []storage.Quarantined) {
	for _, q := range list {
		attrs := []any{
			slog.String("kind", string(q.Kind)), slog.String("name", q.Name), slog.String("key", q.Key),
			slog.String("reason", q.Reason),
		}
		if q.Kind == storage.KindJob {
			attrs = append(attrs, slog.String("job_type", q.Type), slog.String("queue", q.Queue),
				slog.String("state", string(q.State)))
			c.waiters.ended(q.Name, nil) // and their calls fail
			c.room.made(q.Queue)
		}
		c.logQuarantine(context.Background(), slog.LevelWarn,
			"record does not decode and is in quarantine", attrs...)
	}
}

func (c *core) logQuarantine(ctx context.Context, level slog.Level, msg string, attrs ...any) {
	c.log.LogAttrs(ctx, level, msg, slog.String("component", "worker"), slog.String("category", "lifecycle"),
		slog.Group("attributes", attrs...))
}
