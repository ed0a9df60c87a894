package cron

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/cronspec"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
)

// Run is a run of a recurring job, or one that was skipped.
type Run struct {
	Due     time.Time // when it was due; of a run by Trigger, when that was called
	Manual  bool      // Trigger made it
	JobID   string    // of its job; "": it was skipped
	Skipped string    // the reason, as event.CronSkipped has it; "": it has a job

	// State is the state of the job now, or the one in which it ended. It is "" for a
	// job that was deleted before the next run looked at it.
	State ojs.State
}

// maxHistory is how many runs an entry remembers.
const maxHistory = 10

// deletedRun is the outcome of a run whose job has been deleted.
const deletedRun = "deleted"

// Runs returns the last 10 runs of an entry and how they ended, the latest first. It
// reads the job of each run that has not ended when the next run was made. An unknown
// name gives ojs.ErrNotFound.
func (c *Entries) Runs(ctx context.Context, name string) ([]Run, error) {
	e, err := c.stored(ctx, name)
	if err != nil {
		return nil, err
	}
	jobs, err := c.lookAtRuns(ctx, &e)
	if err != nil {
		return nil, err
	}
	runs := make([]Run, 0, len(e.History))
	now := c.eng.Now()
	for _, r := range slices.Backward(e.History) {
		if r.Due.After(now) { // it is known to be missed before its time
			continue
		}
		run := Run{Due: r.Due, Manual: r.Manual, JobID: r.JobID}
		at := slices.IndexFunc(jobs, func(j storage.Record) bool { return j.ID == r.JobID })
		switch {
		case r.JobID == "":
			run.Skipped = r.Outcome
		case at >= 0:
			run.State = jobs[at].State
		case r.Outcome != deletedRun:
			run.State = ojs.State(r.Outcome)
		}
		runs = append(runs, run)
	}
	slices.SortStableFunc(runs, func(a, b Run) int { return b.Due.Compare(a.Due) })
	return runs, nil
}

// Time is a time of a schedule.
type Time struct {
	At time.Time // in the time zone of the entry

	// Skipped says why nothing runs at the time: "dst_skip", if the clock of the zone is
	// put forward and leaves the time out; or "dst_repeat", if the clock is put back and
	// shows the time again. "": a run takes place. The At of a time that is left out is
	// that of the clock before the change: 2:30, which is left out, is then 3:30.
	Skipped string
}

// Next returns the next n runs of an entry, 1 to 1000, and among them the times at which
// nothing runs because the clock of the time zone is changed. An entry that is paused,
// or whose schedule never comes again, has none. An unknown name gives ojs.ErrNotFound.
func (c *Entries) Next(ctx context.Context, name string, n int) ([]Time, error) {
	const most = 1000
	if n < 1 || n > most {
		return nil, draft.Invalid("n", "is not from 1 to 1000")
	}
	e, err := c.stored(ctx, name)
	if err != nil || e.NextRun.IsZero() {
		return nil, err
	}
	s, err := scheduleOf(&e)
	if err != nil {
		return nil, err
	}
	var times []Time
	add := func(at time.Time, missed []cronspec.Missed) {
		for _, m := range missed {
			times = append(times, Time{At: s.In(m.At), Skipped: missedReason(m)})
		}
		times = append(times, Time{At: s.In(at)})
	}
	at, now := e.NextRun, c.eng.Now()
	var missed []cronspec.Missed
	if first, before := s.Next(now, began(&e)); first.Equal(at) {
		missed = before
	}
	for range n {
		if at.IsZero() {
			break
		}
		add(at, missed)
		at, missed = s.Next(at, at)
	}
	return times, nil
}

// Trigger makes a run now, besides those of the schedule, of an entry that may be paused.
// The entry's Overlap holds: with OverlapSkip, a previous run whose job has not ended
// gives an *ojs.DuplicateError with that job. Other errors are those of Enqueue. The
// entry then names the run before. An unknown name gives ojs.ErrNotFound.
func (c *Entries) Trigger(ctx context.Context, name string) (ojs.Ticket, error) {
	for {
		e, err := c.stored(ctx, name)
		if err != nil {
			return ojs.Ticket{}, err
		}
		now := c.eng.Now()
		ticket, err := c.run(ctx, &e, e.NextRun, storage.CronRun{Due: now, Manual: true}, nil)
		var skipped *skippedRun
		switch {
		case err == nil:
			c.emit(event.CronTriggered, &e, now, "")
			return ticket, nil
		case foreign.As(err, &skipped):
			return ojs.Ticket{}, skipped.error
		case !foreign.Is(err, storage.ErrFenced):
			return ojs.Ticket{}, err
		}
	}
}

// stored returns an entry as it is stored.
func (c *Entries) stored(ctx context.Context, name string) (storage.Cron, error) {
	found, err := document.Of(c.eng.Store).Crons(ctx, storage.DocumentQuery{Names: []string{name}})
	switch {
	case err != nil:
		return storage.Cron{}, err
	case len(found) == 0:
		return storage.Cron{}, unknown(name)
	}
	return found[0], nil
}

// run moves an entry on to its next run, before which runs are missed because of the
// zone's clock, and makes the job of a run. e becomes the
// stored entry. The error is storage.ErrFenced if e is not of the stored version, a
// *skippedRun if there is no job, or the storage's.
func (c *Entries) run(ctx context.Context, e *storage.Cron, next time.Time,
	run storage.CronRun, missed []cronspec.Missed) (ojs.Ticket, error) {
	to := e.Copy()
	to.NextRun = next
	open, err := c.lookAtRuns(ctx, &to)
	if err != nil {
		return ojs.Ticket{}, err
	}
	previous, err := c.previousRun(ctx, e)
	if err != nil {
		return ojs.Ticket{}, err
	}
	var skipped error
	if previous != nil {
		skipped = &skippedRun{"overlap_skip", previous}
		if run.Manual {
			return ojs.Ticket{}, skipped
		}
		run.Outcome = "overlap_skip"
	} else {
		run.JobID = c.eng.NewID()
		to.LastRun, to.LastJobID = run.Due, run.JobID
		to.Runs++
	}
	remember(&to, run)
	rememberMissed(&to, missed)
	// The entry moves on first: the engine that moves it makes the job.
	if err = c.put(ctx, &to); err != nil {
		if foreign.Is(err, storage.ErrFenced) || skipped != nil || !c.moved(ctx, &to) {
			return ojs.Ticket{}, err
		}
	}
	was := *e
	*e = to
	if skipped != nil {
		return ojs.Ticket{}, skipped
	}
	switch Overlap(e.Overlap) {
	case OverlapCancelPrevious:
		c.cancelPrevious(ctx, &was)
	case OverlapEnqueue:
		c.warnOfBacklog(e, open)
	}
	ticket, err := c.enqueueRun(ctx, e, run.Due, open)
	if err == nil {
		return ticket, nil
	}
	skipped = &skippedRun{skipReason(err), err}
	if c.eng.Refused(err) { // otherwise the storage may have stored the job
		c.takeBack(ctx, e, &was, skipReason(err))
	}
	return ojs.Ticket{}, skipped
}

// previousRun is the refusal of a run of an entry with OverlapSkip whose previous job has
// not ended. It asks for the job itself, since the history forgets it after ten runs.
func (c *Entries) previousRun(ctx context.Context, e *storage.Cron) (*ojs.DuplicateError, error) {
	if e.LastJobID == "" || Overlap(e.Overlap) != OverlapSkip {
		return nil, nil
	}
	rec, err := c.eng.Store.Get(ctx, e.LastJobID)
	switch {
	case foreign.Is(err, ojs.ErrNotFound) || err == nil && rec.State.Terminal():
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &ojs.DuplicateError{ID: rec.ID, State: rec.State}, nil
}

// skippedRun is the error of a run that has no job.
type skippedRun struct {
	reason string // as event.CronSkipped has it
	error
}

func (s *skippedRun) Unwrap() error { return s.error }

func skipReason(err error) string {
	switch {
	case foreign.Is(err, ojs.ErrDuplicate):
		return "duplicate"
	case foreign.Is(err, ojs.ErrDropped):
		return "dropped"
	}
	return "enqueue_failed"
}

// remember adds a run to the history of an entry.
func remember(e *storage.Cron, run storage.CronRun) {
	e.History = append(e.History, run)
	e.History = e.History[max(0, len(e.History)-maxHistory):]
}

// rememberMissed adds the runs that are missed because of the zone's clock to the history
// of an entry, the first of each change for all of them.
func rememberMissed(e *storage.Cron, missed []cronspec.Missed) {
	const apart = 24 * time.Hour // two changes are months apart
	var last time.Time
	for _, m := range missed {
		if last.IsZero() || m.At.Sub(last) > apart {
			remember(e, storage.CronRun{Due: m.At, Outcome: missedReason(m)})
		}
		last = m.At
	}
}

// lookAtRuns notes in the history of an entry how the jobs of its runs have ended, and
// returns those that have not.
func (c *Entries) lookAtRuns(ctx context.Context, e *storage.Cron) (open []storage.Record, err error) {
	for i := range e.History {
		r := &e.History[i]
		if r.JobID == "" || r.Outcome != "" {
			continue
		}
		rec, err := c.eng.Store.Get(ctx, r.JobID)
		switch {
		case foreign.Is(err, ojs.ErrNotFound):
			r.Outcome = deletedRun
		case err != nil:
			return nil, err
		case rec.State.Terminal():
			r.Outcome = string(rec.State)
		default:
			open = append(open, rec)
		}
	}
	return open, nil
}

// start makes the entries due that are to run when an engine starts, and finds those
// whose time zone is unknown here. It reports false if the storage failed.
func (t *Ticker) start(ctx context.Context) bool {
	now := t.eng.Now()
	wanted := func(e *storage.Cron) bool {
		comes := e.NextRun.After(now) || Missed(e.Missed) == MissedSkip && now.Sub(e.NextRun) >= lateRun
		return e.RunOnStart && !e.NextRun.IsZero() && comes && now.Sub(e.LastRun) >= startApart
	}
	zones := make(map[string]error)
	err := t.each(ctx, func(e *storage.Cron) error {
		unknown, seen := zones[e.TimeZone]
		if !seen {
			_, unknown = cronspec.Parse("@daily", e.TimeZone)
			zones[e.TimeZone] = unknown
		}
		if unknown != nil && !e.NextRun.IsZero() {
			t.cannotRead(e, unknown)
		}
		if !wanted(e) {
			return nil
		}
		start := func(e, _ *storage.Cron) ([]cronspec.Missed, error) {
			if !wanted(e) {
				return nil, errUnchanged
			}
			e.NextRun = now
			return nil, nil
		}
		err := t.edit(ctx, []storage.Cron{{Name: e.Name}}, start)
		if foreign.Is(err, errUnchanged) { // another engine has started too
			return nil
		}
		return err
	})
	if err != nil {
		t.failed("recurring jobs that run on start", err)
	}
	return err == nil
}

// errUnchanged says that an entry is as wanted already.
var errUnchanged = errors.New("unchanged")

// startApart is how far apart engines start that each make a run of Entry.RunOnStart.
const startApart = time.Minute

// each calls f with each entry of a storage, in the order of their names.
func (c *Entries) each(ctx context.Context, f func(*storage.Cron) error) error {
	for q := (storage.DocumentQuery{}); ; {
		page, err := document.Of(c.eng.Store).Crons(ctx, q)
		if err != nil {
			return err
		}
		for i := range page {
			if err := f(&page[i]); err != nil {
				return err
			}
		}
		if len(page) < q.Most() {
			return nil
		}
		q.After = page[len(page)-1].Name
	}
}
