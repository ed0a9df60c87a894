package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/depend"
)

// CancelAll implements storage.Storage.
func (s personal) CancelAll(
	ctx context.Context, now time.Time, ids []string,
) (cancelled, moved []storage.Record, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, nil, err
	}
	defer s.leave()
	for i, id := range ids {
		j := s.find(id)
		switch {
		case i == 0 && j == nil:
			return nil, nil, fmt.Errorf("%w: job %q", ojs.ErrNotFound, id)
		case i == 0 && !j.current().Waiting():
			return nil, nil, &ojs.TransitionError{ID: id, From: j.current(), To: ojs.StateCancelled}
		case j != nil && j.current().Waiting():
			cancelled = s.changed(j, cancelled, func(r *storage.Record) { r.Cancel(now) })
		}
	}
	return cancelled, s.count(now, nil), nil
}

// Revive implements storage.Storage.
func (s personal) Revive(
	ctx context.Context, now time.Time, batch []storage.Insert,
) ([]storage.Record, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := storage.CheckRevive(batch); err != nil {
		return nil, err
	}
	err := storage.CheckRevived(batch, func(id string) (version uint64, state ojs.State) {
		if j := s.find(id); j != nil {
			version, state = j.version, j.current()
		}
		return version, state
	})
	if err != nil {
		return nil, err
	}
	for i := range batch {
		s.applyRevival(s.find(batch[i].Record.ID), &batch[i])
	}
	return depend.Revive(dependTx{s.store}, now, batch), nil
}

// applyRevival makes a job that has ended what a batch says, before it waits for others.
func (s *store) applyRevival(j *job, in *storage.Insert) {
	s.displace(j)
	to := in.Record
	if in.Waits() {
		to.Wait(in)
		if j.rest != nil {
			j.rest.counted = false
		}
	}
	s.set(j, &to)
	j.version = to.Version + 1
	if in.Waits() {
		j.rest.counted = true
	}
	if j.rest != nil {
		j.rest.revived++
	}
	s.place(j)
}
