package engine

import (
	"context"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/pipeline"
	"github.com/ojsengine/ojs/storage"
)

// An engine that enqueues jobs which it could start at once asks its storage to claim
// them in the call that stores them (storage.Insert.Claim):
//
//  1. The pipeline reserves a free slot for each job of the batch.
//  2. The storage claims all jobs of the batch, or none if other jobs are ahead of them.
//  3. After the events of the enqueue are published, the claimed jobs enter the local
//     queue.
//
// A slot is reserved only if a step could claim jobs ahead, and if no job is ahead of new
// ones as far as the pipeline knows.

// reserved are slots that are kept for the jobs of an enqueue.
type reserved struct {
	r     *run
	t     task
	asked asked
}

// reserve keeps slots for the jobs of a batch, and has the storage asked to claim them.
// It returns nil if the jobs cannot start at once. Otherwise start ends it.
func (c *core) reserve(ctx context.Context, now time.Time, batch []storage.Insert) *reserved {
	if !c.insertClaims {
		return nil
	}
	batch[0].Claim = nil // that of an earlier try
	if len(batch) > c.concurrency || !c.joint() || storage.Tx(ctx) != nil {
		return nil
	}
	claim := &storage.Claim{Types: c.registry.handled(), Worker: c.worker, Lease: c.lease}
	for i := range batch {
		r := &batch[i].Record
		if len(claim.Types) == 0 || r.State != ojs.StateAvailable || !claim.Takes(r.Type, r.TypeVersion) {
			return nil
		}
	}
	r := c.run.Load()
	if r == nil {
		return nil
	}
	t, ok := r.pipe.Reserve(len(batch))
	if !ok {
		return nil
	}
	v := &reserved{r: r, t: t}
	c.mu.Lock()
	r.beginClaim(&v.asked, now)
	c.mu.Unlock()
	claim.Queues = c.queues.Load().names // of now: a change has reserved jobs given back
	batch[0].Claim = claim
	return v
}

// start has the jobs started that the storage has claimed. If the call has failed, stored
// is nil.
func (v *reserved) start(batch []storage.Insert, stored []storage.Inserted, now time.Time, err error) {
	if err != nil {
		v.r.c.mu.Lock()
		v.r.c.unanswer(now, err)
		v.r.c.mu.Unlock()
	}
	s := scratches.Get().(*scratch)
	defer func() {
		s.clear()
		scratches.Put(s)
	}()
	for i := range stored {
		if !stored[i].Claimed {
			break
		}
		a := attempts.Get().(*attempt)
		*a.rec = batch[i].Record.Copy()
		a.rec.Version = stored[i].Version
		a.rec.Claim(now, v.r.c.worker, v.r.c.lease)
		a.prepare(v.r)
		s.claimed = append(s.claimed, a)
	}
	v.r.enter(s, false, &v.asked)
	if next := v.r.pipe.Reserved(&v.t, s.claimed); next.Kind != pipeline.Leave {
		go v.r.work(&next)
		return
	}
	v.r.left()
}
