package enginetest

import (
	"context"
	"fmt"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
)

// RequireEnqueued fails the test unless a job like d has been enqueued, in any state, and
// returns the newest. A job is like d if it is of d's type and has what d's own options
// set, even to zero: id, queue, time, priority, deadlines, limits, retry, uniqueness, and
// entries of the meta; and the members of d's args, at every level, or d's args if they
// are no object. Nil args match any. Numbers are compared exactly, by value: 1 and 1.0
// are the same. An option that no enqueue accepts fails the test.
func (e *Engine[T]) RequireEnqueued(d ojs.Draft) *ojs.JobInfo {
	e.tb.Helper()
	found, w, all := e.find(d)
	if len(found) == 0 {
		e.tb.Fatalf("enginetest: no job is like\n  %s\n%s", w.describe(), there(w, all))
	}
	return found[len(found)-1]
}

// RequireEnqueuedN wants exactly n jobs like d, in the sense of RequireEnqueued, and
// returns them, the oldest first.
func (e *Engine[T]) RequireEnqueuedN(n int, d ojs.Draft) []*ojs.JobInfo {
	e.tb.Helper()
	found, w, all := e.find(d)
	if len(found) != n {
		e.tb.Fatalf("enginetest: %d jobs, not %d, are like\n  %s\n%s", len(found), n, w.describe(),
			there(w, all))
	}
	return found
}

// RefuteEnqueued wants no job like d, in the sense of RequireEnqueued.
func (e *Engine[T]) RefuteEnqueued(d ojs.Draft) {
	e.tb.Helper()
	if found, w, all := e.find(d); len(found) > 0 {
		e.tb.Fatalf("enginetest: %d jobs are like\n  %s\n%s", len(found), w.describe(), there(w, all))
	}
}

// AllEnqueued returns every job, the oldest first. Of an engine with a codec
// (engine.WithCodec) the jobs are decoded, as in every call of this package that returns
// a job.
func (e *Engine[T]) AllEnqueued() []*ojs.JobInfo {
	e.tb.Helper()
	var all []*ojs.JobInfo
	for job, err := range e.Jobs().List(context.Background(), inspect.Filter{}) {
		if err != nil {
			e.tb.Fatalf("enginetest: %v", err)
		}
		all = append(all, e.plain(job))
	}
	return all
}

// plain is a job decoded, or as it is stored if its key is not there.
func (e *Engine[T]) plain(job *ojs.JobInfo) *ojs.JobInfo {
	if decoded, err := e.Jobs().Decode(context.Background(), job); err == nil {
		return decoded
	}
	return job
}

// RequireState wants a job to be in a state, and returns it.
func (e *Engine[T]) RequireState(id string, s ojs.State) *ojs.JobInfo {
	e.tb.Helper()
	job := e.job(id)
	if job.State != s {
		e.tb.Fatalf("enginetest: at %s the job is not %s:\n  %s", clockTime(e.Now()), s, line(job))
	}
	return job
}

// RequireCompleted wants a job to have completed, and returns it.
func (e *Engine[T]) RequireCompleted(id string) *ojs.JobInfo {
	e.tb.Helper()
	return e.RequireState(id, ojs.StateCompleted)
}

// RequireDeadLettered wants a job to be a dead letter, and returns it.
func (e *Engine[T]) RequireDeadLettered(id string) *ojs.JobInfo {
	e.tb.Helper()
	job := e.job(id)
	if !job.DeadLettered() {
		e.tb.Fatalf("enginetest: at %s the job is no dead letter:\n  %s", clockTime(e.Now()), line(job))
	}
	return job
}

func (e *Engine[T]) job(id string) *ojs.JobInfo {
	e.tb.Helper()
	job, err := e.Get(context.Background(), id)
	if err != nil {
		e.tb.Fatalf("enginetest: %v\n%s", err, there(nil, e.AllEnqueued()))
	}
	return e.plain(job)
}

func (e *Engine[T]) find(d ojs.Draft) (found []*ojs.JobInfo, w *want, all []*ojs.JobInfo) {
	e.tb.Helper()
	w, err := wanted(d)
	if err != nil {
		e.tb.Fatalf("enginetest: draft of %s: %v", d.Type(), err)
	}
	all = e.AllEnqueued()
	for _, job := range all {
		if len(w.differs(job)) == 0 {
			found = append(found, job)
		}
	}
	return found, w, all
}

// most is how many jobs a failure lists.
const most = 20

// there lists the jobs that are there, and in what each is not as wanted: those of the
// type if there are any.
func there(w *want, all []*ojs.JobInfo) string {
	if len(all) == 0 {
		return "There are no jobs."
	}
	var alike, others []*ojs.JobInfo
	for _, j := range all {
		if w != nil && j.Type == w.d.Type() {
			alike = append(alike, j)
		} else {
			others = append(others, j)
		}
	}
	var b strings.Builder
	b.WriteString("There are:\n")
	for i, j := range append(alike, others...) {
		if i == most {
			fmt.Fprintf(&b, "  and %d more\n", len(all)-most)
			break
		}
		b.WriteString("  " + line(j))
		if w != nil {
			if d := w.differs(j); len(d) > 0 {
				b.WriteString(" <- " + strings.Join(d, ", "))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
