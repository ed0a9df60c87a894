package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/storage"
)

// Explanation says why a job does not run now.
type Explanation struct {
	State ojs.State

	// Obstacles are everything that is in the way, the most lasting first. An available
	// job without obstacles is claimed as soon as a slot asks for a job.
	Obstacles []Obstacle
}

// Obstacle is one thing that is in the way of a job.
type Obstacle struct {
	Code  ObstacleCode
	Text  string    // for a person
	Until time.Time // when it ends with time alone; zero: not by time, or that is not known

	// Of is the queue or the type that is paused, or the limit over all engines that is
	// reached; zero: everything is paused, or the obstacle is another one.
	Of storage.LimitName

	N int // of ObstacleBehind, jobs before it; of ObstacleDependencies, jobs that it waits for
}

// ObstacleCode names an obstacle.
type ObstacleCode string

// The obstacles. One of this engine holds for it alone: another engine on the storage
// may run the job.
const (
	ObstacleRunning      ObstacleCode = "running"      // the job is active; Until is the end of its lease
	ObstacleSilent       ObstacleCode = "silent"       // it is active, and its process does not report
	ObstacleEnded        ObstacleCode = "ended"        // it has ended
	ObstacleExpired      ObstacleCode = "expired"      // its deadline has come, and it ends in a moment
	ObstacleDependencies ObstacleCode = "dependencies" // it waits for other jobs
	ObstacleOrdering     ObstacleCode = "ordering"     // other jobs of its ordering key come before it
	ObstaclePending      ObstacleCode = "pending"      // it waits for Jobs.Activate
	ObstacleNotDue       ObstacleCode = "not_due"      // it is scheduled, or waits for a retry
	ObstaclePaused       ObstacleCode = "paused"       // its queue, its type or everything is paused
	ObstacleLimit        ObstacleCode = "limit"        // this engine: a limit is reached
	ObstacleNotRunning   ObstacleCode = "not_running"  // this engine does not run, or is stopping
	ObstacleNoHandler    ObstacleCode = "no_handler"   // this engine: its type has no handler
	ObstacleOtherQueues  ObstacleCode = "other_queues" // this engine: it takes jobs of other queues only
	ObstacleNoSlot       ObstacleCode = "no_slot"      // this engine: every slot is busy
	ObstacleBehind       ObstacleCode = "behind"       // other available jobs of its queue come before it
)

// explainLook bounds the jobs that Explain looks at to count those before a job.
const explainLook = 1000

// Explain says why a job does not run now: what its state, its queue and this engine have
// against it, and how many jobs of its queue come before it. Of these it counts 1,000 at
// most, if the storage knows OrderClaim. An unknown id gives ojs.ErrNotFound.
func (j *Jobs) Explain(ctx context.Context, id string) (Explanation, error) {
	rec, err := j.Record(ctx, id)
	if err != nil {
		return Explanation{}, err
	}
	now := j.Now()
	e := Explanation{State: rec.State}
	if rec.State == ojs.StateActive {
		silence, err := j.silenceOf(ctx, rec.Worker)
		if err != nil {
			return Explanation{}, err
		}
		if silence > 0 {
			e.Add(ObstacleSilent, "attempt %d: the process that held it has been silent for %s: %s",
				rec.Attempt, stored.Seconds(silence), rec.Worker).Until = rec.LeaseUntil
			return e, nil
		}
	}
	if !e.byState(&rec, now) {
		return e, nil
	}
	switch states, err := j.source.QueueStates(ctx); {
	case err != nil:
		return Explanation{}, err
	case states[rec.Queue] == ojs.QueuePaused:
		e.Add(ObstaclePaused, "queue %s is paused", rec.Queue).Of =
			storage.LimitName{Kind: storage.LimitQueue, Name: rec.Queue}
	}
	if rec.Dependencies == nil || !rec.Dependencies.Join { // which runs nowhere
		if err := j.byPauses(ctx, &e, &rec); err != nil {
			return Explanation{}, err
		}
		if j.eng.Hinders != nil {
			e.Obstacles = append(e.Obstacles, j.eng.Hinders(&rec, now)...)
		}
	}
	j.byLimits(ctx, &e, &rec, now)
	if rec.State == ojs.StateAvailable {
		n, found, err := j.before(ctx, &rec)
		if err != nil {
			return Explanation{}, err
		}
		least := map[bool]string{false: "at least "}[found]
		if n > 0 {
			e.Add(ObstacleBehind, "jobs of queue %s before it: %s%d", rec.Queue, least, n).N = n
		}
	}
	return e, nil
}

// Add adds a reason.
func (e *Explanation) Add(code ObstacleCode, format string, args ...any) *Obstacle {
	e.Obstacles = append(e.Obstacles, Obstacle{Code: code, Text: fmt.Sprintf(format, args...)})
	return &e.Obstacles[len(e.Obstacles)-1]
}

// byState adds what the job's state has against it. It reports whether anything else may.
func (e *Explanation) byState(rec *storage.Record, now time.Time) (waits bool) {
	switch {
	case rec.State == ojs.StateActive:
		e.Add(ObstacleRunning, "attempt %d runs in %s", rec.Attempt, rec.Worker).Until = rec.LeaseUntil
		return false
	case rec.State.Terminal():
		e.Add(ObstacleEnded, "the job is %s", rec.State)
		return false
	case rec.Expired(now):
		e.Add(ObstacleExpired, "the job's deadline has come")
		return false
	}
	others := 0
	if d := rec.Dependencies; d != nil {
		others = d.Unfinished
	}
	if rec.InLine() {
		e.Add(ObstacleOrdering, "jobs of ordering key %q come before it", rec.Dependencies.OrderingKey)
		if others--; others == 0 {
			return true
		}
	}
	switch {
	case others > 0:
		e.Add(ObstacleDependencies, "jobs that it waits for: %d", others).N = others
	case rec.State == ojs.StatePending:
		e.Add(ObstaclePending, "the job waits for Jobs.Activate")
	case rec.State == ojs.StateScheduled:
		e.Add(ObstacleNotDue, "the job is scheduled for %s",
			rec.ScheduledAt.Format(time.RFC3339)).Until = rec.ScheduledAt
	case rec.State == ojs.StateRetryable:
		e.Add(ObstacleNotDue, "attempt %d has failed; the next is at %s",
			rec.Attempt, rec.NextRetryAt.Format(time.RFC3339)).Until = rec.NextRetryAt
	}
	return true
}

// before counts the available jobs of a job's queue that are claimed before it. It
// reports whether it has come to the job.
func (j *Jobs) before(ctx context.Context, rec *storage.Record) (n int, found bool, err error) {
	q := storage.Query{Order: OrderClaim, Queues: []string{rec.Queue}}
	for looked := 0; looked < explainLook; {
		page, err := j.source.List(ctx, q)
		if err != nil {
			return 0, false, err
		}
		i := slices.IndexFunc(page.Records, func(r storage.Record) bool { return r.ID == rec.ID })
		if i >= 0 {
			return n + i, true, nil
		}
		n += len(page.Records)
		looked += page.Looked
		if q.Cursor = page.Next; q.Cursor == "" && looked < explainLook {
			return 0, false, nil // it has been claimed meanwhile
		} else if q.Cursor == "" {
			break
		}
	}
	return n, false, nil
}

// byPauses adds the pauses of everything and of the job's type.
func (j *Jobs) byPauses(ctx context.Context, e *Explanation, rec *storage.Record) error {
	pauses, err := j.Pauses(ctx)
	for _, p := range pauses {
		switch p.Type {
		case "":
			e.Add(ObstaclePaused, "everything is paused")
			return err
		case rec.Type:
			e.Add(ObstaclePaused, "type %s is paused", rec.Type).Of =
				storage.LimitName{Kind: storage.LimitType, Name: rec.Type}
		}
	}
	return err
}

// byLimits adds the limits over all engines that keep a job from being claimed now.
func (j *Jobs) byLimits(ctx context.Context, e *Explanation, rec *storage.Record, now time.Time) {
	for _, name := range []storage.LimitName{{Kind: storage.LimitQueue, Name: rec.Queue},
		{Kind: storage.LimitType, Name: rec.Type}} {
		if l, ok := j.bounded(ctx, name, now); ok {
			e.byLimit(&l, now)
		}
	}
	if bound := rec.RateLimit; bound != nil {
		l, err := j.source.GetLimit(ctx, now, storage.LimitName{Kind: storage.LimitKey, Name: bound.Key})
		if err == nil {
			e.byLimit(&l, now)
		}
	}
}

// bounded returns the limit of a queue or type if it has a setting or a block. GetLimit
// would count the jobs of one that has neither.
func (j *Jobs) bounded(ctx context.Context, name storage.LimitName, now time.Time) (storage.Limit, bool) {
	end := len(name.Name) - 1
	before := name.Name[:end] + string(name.Name[end]-1) + "~" // no name is between the two
	list, err := j.source.ListLimits(ctx, now, name.Kind, before, 1)
	if err != nil || len(list) == 0 || list[0].Name != name.Name {
		return storage.Limit{}, false
	}
	return list[0], true
}

func (e *Explanation) byLimit(l *storage.Limit, now time.Time) {
	full := l.Bounds.Concurrency != 0 && l.Active >= max(l.Bounds.Concurrency, 0)
	if full || l.Opens.After(now) {
		o := e.Add(ObstacleLimit, "the limit of %s %s is reached", l.Kind, l.Name)
		o.Until, o.Of = l.Opens, l.LimitName
	}
}
