package engine

import (
	"context"
	"fmt"
	"iter"
	"log/slog"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Quarantine holds the stored records that do not decode: jobs, recurring entries and
// states of queues that an edit by hand, a damaged disk or a newer program has left. The
// storage sets aside such a record as soon as a call meets it, and all others go on. A
// record in the quarantine takes part in nothing: a job there runs not, is in no listing
// or count, and keeps no equal job out.
//
// Each record that this engine's process sets aside while the engine runs is a log line
// at WARN. Stats and Health have the number. A storage whose records need no decoding,
// such as memory, has no quarantine: it is always empty.
type Quarantine struct{ core *core }

// Quarantine gives access to the stored records that do not decode.
func (e *Engine[T]) Quarantine() *Quarantine { return &Quarantine{e.core} }

// List lists the records, in the order in which they were set aside. After an error,
// which ends the listing, the record is zero.
func (q *Quarantine) List(ctx context.Context) iter.Seq2[storage.Quarantined, error] {
	return func(yield func(storage.Quarantined, error) bool) {
		store, ok := storage.As[storage.Quarantiner](q.core.store)
		if !ok {
			return
		}
		after := ""
		for {
			page, err := store.Quarantined(ctx, after, 0)
			if err != nil {
				yield(storage.Quarantined{}, err)
				return
			}
			if len(page) == 0 {
				return
			}
			for _, r := range page {
				if !yield(r, nil) {
					return
				}
			}
			after = page[len(page)-1].Key
		}
	}
}

// Release puts a record back where it was, once the record has been mended in the
// quarantine. A job waits, runs or has ended as before, with its attempts and its place.
// A record that does not decode yet stays, and gives an *ojs.QuarantinedError with the
// reason; so does one whose id or name something else has now, which gives an
// *ojs.DuplicateError. Uniqueness is not checked: look whether an equal job has been
// enqueued meanwhile. An unknown key gives an error that is ojs.ErrNotFound and not
// ojs.ErrQuarantined.
func (q *Quarantine) Release(ctx context.Context, key string) error {
	store, err := q.store(key)
	if err != nil {
		return err
	}
	if err := store.ReleaseQuarantined(ctx, key); err != nil {
		return err
	}
	q.core.logQuarantine(ctx, slog.LevelInfo, "record released from quarantine", slog.String("key", key))
	return nil
}

// Delete deletes a record. An unknown key gives ojs.ErrNotFound.
func (q *Quarantine) Delete(ctx context.Context, key string) error {
	store, err := q.store(key)
	if err != nil {
		return err
	}
	if err := store.DeleteQuarantined(ctx, key); err != nil {
		return err
	}
	q.core.logQuarantine(ctx, slog.LevelInfo, "record deleted from quarantine", slog.String("key", key))
	return nil
}

func (q *Quarantine) store(key string) (storage.Quarantiner, error) {
	store, ok := storage.As[storage.Quarantiner](q.core.store)
	if !ok {
		return nil, fmt.Errorf("%w: %q in the quarantine: storage %s has none", ojs.ErrNotFound, key,
			q.core.store.Capabilities().Name)
	}
	return store, nil
}

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
