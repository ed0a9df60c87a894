package postgres

import (
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Completions as the engine makes them take the statement of few columns.
func TestPlainCompletions(t *testing.T) {
	now := time.Unix(1000, 0)
	settled := func(progress ...float64) *settling {
		o := &settling{sameJob: true}
		for _, p := range progress {
			var r storage.Record
			r.ID, r.Queue, r.Type, r.Worker = "a", "default", "noop", "worker"
			r.State, r.Attempt, r.Version, r.Progress = ojs.StateCompleted, 1, 3, p
			r.CreatedAt, r.EnqueuedAt, r.StartedAt, r.FinishedAt = now, now, now, now
			e, err := rows.Encode(&r)
			if err != nil {
				t.Fatal(err)
			}
			o.encoded, o.froms = append(o.encoded, e), append(o.froms, 1<<rows.Active)
		}
		return o
	}
	if !settled(1, 1).completes() {
		t.Error("jobs that have completed with all of their progress are not plain completions")
	}
	if settled(1, 0.5).completes() {
		t.Error("jobs with different progress share a statement that has one for all")
	}
}
