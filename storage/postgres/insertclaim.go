package postgres

import (
	"context"
	"slices"

	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// An insert whose jobs its caller would claim next (storage.Insert.Claim) stores them as
// claimed, in the statement that stores them (insertClaim). Calls that share a statement
// are claimed together or not at all.

// claimOf is the claim of a batch whose records it takes, or nil. Records in themselves
// are looked at by fresh, queues and other jobs by the statement.
func claimOf(batch []storage.Insert) *storage.Claim {
	c := batch[0].Claim
	for i := range batch {
		r := &batch[i].Record
		if c == nil || r.RateLimit != nil || r.Fairness.Key != "" || r.EnqueueTTL > 0 ||
			!c.Takes(r.Type, r.TypeVersion) || len(c.Queues) > 0 && !slices.Contains(c.Queues, r.Queue) {
			return nil
		}
	}
	return c
}

// sameClaim reports whether claims are by one worker, with one lease, and of the same
// queues.
func sameClaim(a, b *storage.Claim) bool {
	return a != nil && b != nil && a.Worker == b.Worker && a.Lease == b.Lease &&
		slices.Equal(a.Queues, b.Queues)
}

// giveBack undoes the claims of an insert whose caller has not waited for its end.
func (s *Storage) giveBack(c *insertCall) {
	<-c.ended
	if !c.claimed {
		return
	}
	held := make([]storage.Held, len(c.versions))
	for i, v := range c.versions {
		held[i] = storage.Held{ID: c.encoded[i].ID, Version: uint64(v) + 1}
	}
	if _, err := s.unclaim(context.Background(), rows.Time(c.starts[0]), held); err != nil {
		s.config.log.Error("giving jobs back failed", "error", err, "jobs", len(held))
	}
}
