package engine

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/cronspec"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
)

// cronBatch is how many due entries one call of the storage returns.
const cronBatch = 256

// tick fires the recurring jobs that are due, and says when the next one is; zero: none
// is to come.
func (k *maintenance) tick() (next time.Time) {
	c := k.r.c
	now := c.now()
	if !k.cronsStarted {
		if k.cronsStarted = k.startCrons(); !k.cronsStarted {
			next = now.Add(storageBackoff(1))
		}
	}
	var after *storage.Cron
	for {
		due, rest, err := c.store.DueCrons(k.r.base, now, after, cronBatch)
		if err != nil {
			k.failed("due recurring jobs", err, looks{cron: true})
			return now.Add(storageBackoff(6))
		}
		c.answered()
		for i := range due {
			last := due[i]
			after = &last
			next = earliest(next, k.fireDue(&due[i], now))
		}
		if rest.IsZero() || rest.After(now) {
			return earliest(next, rest)
		}
		if len(due) == 0 || k.quitting() { // the storage has what is due, yet brought nothing: do not spin
			return earliest(next, now.Add(storageBackoff(1)))
		}
	}
}

// fireDue fires a recurring job that is due, and says when it wants to be looked at next.
func (k *maintenance) fireDue(e *storage.Cron, now time.Time) time.Time {
	c := k.r.c
	s, err := scheduleOf(e)
	if err != nil {
		k.cannotRead(e, err)
		return now.Add(unreadableWait)
	}
	ctx, end := c.traceCron(k.r.base, e)
	err = c.fire(ctx, e, s, now)
	end(err)
	if err != nil {
		k.failed("recurring job", err, looks{cron: true}, "cron_name", e.Name)
		return now.Add(storageBackoff(1))
	}
	return e.NextRun
}

// unreadableWait is when an entry is looked at again whose schedule this engine cannot
// read. Another version of it may have stored the entry, or this machine may lack the
// time zone, which can be mended while the engine runs.
const unreadableWait = time.Minute

// cannotRead notes that an entry cannot run here, and logs why, once for each version.
func (k *maintenance) cannotRead(e *storage.Cron, err error) {
	c := k.r.c
	c.mu.Lock()
	told := k.unreadable[e.Name] == e.Version
	if k.unreadable == nil {
		k.unreadable = make(map[string]uint64)
	}
	k.unreadable[e.Name] = e.Version
	c.mu.Unlock()
	if !told {
		c.log.Error("recurring job cannot run", "cron_name", e.Name, "error", err)
	}
}

// cronProblem returns the problem that recurring entries cannot run here; false: there is
// none. It looks again at those that could not when they were due, or when Run began.
func (c *core) cronProblem(ctx context.Context) (p Problem, ok bool) {
	var names []string
	c.mu.Lock()
	if c.run != nil {
		names = slices.Sorted(maps.Keys(c.run.maintenance.unreadable))
	}
	c.mu.Unlock()
	if len(names) == 0 {
		return p, false
	}
	var why []string
	for names := range slices.Chunk(names, storage.MaxCrons) {
		entries, err := c.store.Crons(ctx, storage.CronQuery{Names: names})
		if err != nil {
			return p, false // Health has noticed
		}
		for i := range entries {
			e := &entries[i]
			if _, err := cronspec.Parse(e.Schedule, e.TimeZone); err != nil && !e.NextRun.IsZero() {
				why = append(why, e.Name+": "+err.Error())
			}
		}
	}
	return Problem{Code: ProblemCron, N: len(why), Text: "recurring entries cannot run here: " +
		strings.Join(why[:min(len(why), maxNamed)], "; ")}, len(why) > 0
}

// fire makes the job of an entry that is due, or skips the run, and moves the entry on.
// If another engine has done so, it does nothing; the entry is then looked at again.
func (c *core) fire(
	ctx context.Context, e *storage.Cron, s cronspec.Schedule, now time.Time,
) error {
	first, due, next, missed := dueRun(e, s, now)
	var err error
	if due.IsZero() {
		to := e.Copy()
		to.NextRun = next
		remember(&to, storage.CronRun{Due: first, Outcome: missedRun})
		rememberMissed(&to, missed)
		if err = c.setCron(ctx, &to); err == nil {
			*e = to
		}
	} else {
		_, err = c.runCron(ctx, e, next, storage.CronRun{Due: due}, missed)
	}
	var skipped *skippedRun
	switch {
	case foreign.Is(err, storage.ErrFenced):
		e.NextRun = now.Add(time.Millisecond)
		return nil
	case err != nil && !foreign.As(err, &skipped):
		return err
	}
	if next.IsZero() {
		c.log.Warn("recurring job ends, since its schedule never comes again", "cron_name", e.Name,
			"schedule", e.Schedule)
	}
	c.cronMissed(e, missed)
	if !due.Equal(first) {
		c.cronSkipped(e, first, missedRun)
	}
	switch {
	case due.IsZero():
	case skipped == nil:
		c.emit(ojs.Event{Type: ojs.EventCronTriggered, Subject: e.Name, Due: due})
	default:
		if skipped.reason == "enqueue_failed" || skipped.reason == "duplicate" {
			c.log.Error("job of a recurring entry not enqueued", "cron_name", e.Name, "error", skipped.error)
		}
		c.cronSkipped(e, due, skipped.reason)
	}
	return nil
}

// missedRun is the reason of a run that is skipped since no engine made it in time.
const missedRun = "missed"

// cancelPrevious cancels the job of the last run of an entry.
func (c *core) cancelPrevious(ctx context.Context, e *storage.Cron) {
	if e.LastJobID == "" {
		return
	}
	err := c.cancel(ctx, e.LastJobID)
	gone := foreign.Is(err, ojs.ErrNotFound) || foreign.Is(err, ojs.ErrPruned)
	if err != nil && !gone && !foreign.Is(err, ojs.ErrTransition) {
		c.log.Error("previous run not cancelled", "cron_name", e.Name, "error", err)
	}
}

// cronStored reports whether an entry that could not be stored stands at its run all the
// same. If a call of SetCrons has failed after it moved the entry on, this engine makes
// the job, since no other engine will. to becomes the stored entry, which another caller
// may have changed since.
func (c *core) cronStored(ctx context.Context, to *storage.Cron) bool {
	there, err := c.store.Crons(ctx, storage.CronQuery{Names: []string{to.Name}})
	if err != nil || len(there) == 0 || there[0].LastJobID != to.LastJobID {
		return false
	}
	*to = there[0]
	return true
}

// setCron stores one entry, which gets the version that is stored. It returns
// storage.ErrFenced if the entry is not of the stored version.
func (c *core) setCron(ctx context.Context, e *storage.Cron) error {
	versions, err := c.store.SetCrons(ctx, []storage.Cron{*e})
	switch {
	case err != nil:
		return err
	case versions[0] == 0:
		return storage.ErrFenced
	}
	e.Version = versions[0]
	return nil
}

// takeBack has an entry name the run before, since there is no job of the last one: an
// overlap is to mind the job that there is.
func (c *core) takeBack(ctx context.Context, e, was *storage.Cron, reason string) {
	for {
		to := e.Copy()
		to.LastRun, to.LastJobID, to.Runs = was.LastRun, was.LastJobID, was.Runs
		for i := range to.History {
			if r := &to.History[i]; r.JobID == e.LastJobID {
				r.JobID, r.Outcome = "", reason
			}
		}
		err := c.setCron(ctx, &to)
		if err == nil {
			*e = to
			return
		}
		if !foreign.Is(err, storage.ErrFenced) {
			c.log.Error("run of a recurring entry not taken back", "cron_name", e.Name, "error", err)
			return
		}
		if !c.cronStored(ctx, e) {
			return // it is gone, or has run since
		}
	}
}

// enqueueRun enqueues the job of the last run of an entry. open are the jobs of earlier
// runs that have not ended. Any error means that there is no such job now.
func (c *core) enqueueRun(ctx context.Context, e *storage.Cron, due time.Time, open []storage.Record) (
	ojs.Ticket, error) {
	args, plain, err := c.plainCron(ctx, e, due)
	if err != nil {
		return ojs.Ticket{}, err
	}
	opts := append(c.runOptions(e, due), ojs.WithID(e.LastJobID), plain)
	var waits []string
	if c.chains(e) {
		for i := range open {
			waits = append(waits, open[i].ID)
		}
	}
	for {
		ticket, err := c.enqueueCron(ctx, e.Type, args, append(slices.Clone(opts), after(waits)))
		var gone *ojs.DependencyError
		if !foreign.As(err, &gone) || !slices.Contains(waits, gone.Dependency) {
			return ticket, err
		}
		// It has ended and was pruned.
		waits = slices.DeleteFunc(waits, func(id string) bool { return id == gone.Dependency })
	}
}

// after has a job wait until others have ended.
func after(ids []string) ojs.Option {
	return func(o *ojs.Options) {
		if len(ids) > 0 {
			o.DependsOn, o.Condition = ids, ojs.AllEnded
		}
	}
}

func (c *core) enqueueCron(ctx context.Context, jobType string, args ojs.Args, opts []ojs.Option) (
	ojs.Ticket, error) {
	var tickets [1]ojs.Ticket
	var err error
	// A hook may have put a value into the job whose MarshalJSON ends this goroutine,
	// which may be maintenance's.
	if stop := foreign.Call(func() {
		err = c.tryEnqueue(ctx, []ojs.Draft{ojs.NewDraft(jobType, args, opts...)}, tickets[:])
	}); stop != nil {
		err = &hookError{stop}
	}
	switch {
	case err != nil:
		return ojs.Ticket{}, err
	case tickets[0].Dropped:
		return ojs.Ticket{}, ojs.ErrDropped
	case tickets[0].Deduplicated:
		return ojs.Ticket{}, &ojs.DuplicateError{ID: tickets[0].ID, State: tickets[0].State}
	}
	return tickets[0], nil
}

// cronMissed tells of runs that are missed because the clock of the zone is changed.
func (c *core) cronMissed(e *storage.Cron, missed []cronspec.Missed) {
	for _, m := range missed {
		c.cronSkipped(e, m.At, missedReason(m))
	}
}

func missedReason(m cronspec.Missed) string {
	if m.Repeated {
		return "dst_repeat"
	}
	return "dst_skip"
}

func (c *core) cronSkipped(e *storage.Cron, due time.Time, reason string) {
	c.log.Info("run of a recurring entry skipped", "component", "worker", "category", "lifecycle",
		slog.Group("attributes", "cron_name", e.Name, "due", due, "reason", reason))
	c.emit(ojs.Event{Type: ojs.EventCronSkipped, Subject: e.Name, Due: due, Reason: reason})
}

// maxBacklog is how many jobs of the runs that an entry remembers may wait before a run
// logs a warning.
const maxBacklog = 2

func (c *core) warnOfBacklog(e *storage.Cron, open []storage.Record) {
	waiting := 0
	for i := range open {
		if open[i].State != ojs.StateActive {
			waiting++
		}
	}
	if waiting >= maxBacklog {
		c.log.Warn("runs of a recurring entry pile up", "component", "worker", "category", "performance",
			slog.Group("attributes", "cron_name", e.Name, "waiting", waiting+1))
	}
}
