package operate

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
// Each record that the process of a running engine sets aside is a log line of it at
// WARN. Its Stats and Health have the number. A storage whose records need no decoding,
// such as memory, has no quarantine: it is always empty.
type Quarantine struct{ op *Operator }

// List lists the records, in the order in which they were set aside. After an error,
// which ends the listing, the record is zero.
func (q *Quarantine) List(ctx context.Context) iter.Seq2[storage.Quarantined, error] {
	return func(yield func(storage.Quarantined, error) bool) {
		store, ok := storage.As[storage.Quarantiner](q.op.eng.Store)
		if !ok {
			return
		}
		for after, more := "", true; more; {
			page, err := store.Quarantined(ctx, after, 0)
			if err != nil {
				yield(storage.Quarantined{}, err)
				return
			}
			more = len(page) > 0
			for _, r := range page {
				if after = r.Key; !yield(r, nil) {
					return
				}
			}
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
	return q.change(ctx, key, "record released from quarantine", storage.Quarantiner.ReleaseQuarantined)
}

// Delete deletes a record. An unknown key gives ojs.ErrNotFound.
func (q *Quarantine) Delete(ctx context.Context, key string) error {
	return q.change(ctx, key, "record deleted from quarantine", storage.Quarantiner.DeleteQuarantined)
}

// change makes a change of a record, and writes its line.
func (q *Quarantine) change(ctx context.Context, key, msg string,
	do func(storage.Quarantiner, context.Context, string) error) error {
	store, ok := storage.As[storage.Quarantiner](q.op.eng.Store)
	if !ok {
		return fmt.Errorf("%w: %q in the quarantine: storage %s has none", ojs.ErrNotFound, key,
			q.op.eng.Store.Capabilities().Name)
	}
	err := do(store, ctx, key)
	if err == nil {
		q.op.eng.Log.InfoContext(ctx, msg, "component", "worker", "category", "lifecycle",
			slog.Group("attributes", "key", key))
	}
	return err
}
