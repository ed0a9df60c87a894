package cron

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/cronspec"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/locks"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/internal/times"
	"github.com/ojsengine/ojs/storage"
)

// cronBatch is how many due entries one call of the storage returns.
const cronBatch = 256

// The waits after a failure of the storage.
const (
	retryWait  = 100 * time.Millisecond
	outageWait = 3200 * time.Millisecond
)

// Ticker fires the entries that are due, for one Run of an engine.
type Ticker struct {
	*Entries
	failed   func(call string, err error, attrs ...any)
	answered func()
	quitting func() bool
	started  bool // the entries that run on start are due; Tick alone uses it

	mu         locks.Mutex       // guards unreadable
	unreadable map[string]uint64 // entries that cannot run here, and their versions
}

// Ticker makes a Ticker. It calls failed after a call of the storage that has failed, and
// answered after one that has not. quitting reports whether Tick is to end soon.
func (c *Entries) Ticker(
	failed func(call string, err error, attrs ...any), answered func(), quitting func() bool,
) *Ticker {
	return &Ticker{Entries: c, failed: failed, answered: answered, quitting: quitting,
		unreadable: make(map[string]uint64)}
}

// Tick fires the recurring jobs that are due, and says when the next one is; zero: none
// is to come. It is called by one goroutine at a time.
func (t *Ticker) Tick(ctx context.Context) (next time.Time) {
	now := t.eng.Now()
	if !t.started {
		if t.started = t.start(ctx); !t.started {
			next = now.Add(retryWait)
		}
	}
	var after *storage.Cron
	for {
		due, rest, err := document.Of(t.eng.Store).DueCrons(ctx, now, after, cronBatch)
		if err != nil {
			t.failed("due recurring jobs", err)
			return now.Add(outageWait)
		}
		t.answered()
		for i := range due {
			last := due[i]
			after = &last
			next = times.Earliest(next, t.fireDue(ctx, &due[i], now))
		}
		if rest.IsZero() || rest.After(now) {
			return times.Earliest(next, rest)
		}
		if len(due) == 0 || t.quitting() { // the storage has what is due, yet brought nothing: do not spin
			return times.Earliest(next, now.Add(retryWait))
		}
	}
}

// fireDue fires a recurring job that is due, and says when it wants to be looked at next.
func (t *Ticker) fireDue(ctx context.Context, e *storage.Cron, now time.Time) time.Time {
	s, err := scheduleOf(e)
	if err != nil {
		t.cannotRead(e, err)
		return now.Add(unreadableWait)
	}
	ctx, end := t.eng.Trace(ctx, e)
	err = t.fire(ctx, e, s, now)
	end(err)
	if err != nil {
		t.failed("recurring job", err, "cron_name", e.Name)
		return now.Add(retryWait)
	}
	return e.NextRun
}

// unreadableWait is when an entry is looked at again whose schedule this engine cannot
// read. Another version of it may have stored the entry, or this machine may lack the
// time zone, which can be mended while the engine runs.
const unreadableWait = time.Minute

// cannotRead notes that an entry cannot run here, and logs why, once for each version.
func (t *Ticker) cannotRead(e *storage.Cron, err error) {
	t.mu.Lock()
	told := t.unreadable[e.Name] == e.Version
	t.unreadable[e.Name] = e.Version
	t.mu.Unlock()
	if !told {
		t.eng.Log.Error("recurring job cannot run", "cron_name", e.Name, "error", err)
	}
}

// Unreadable returns why recurring entries cannot run here. It reads again the entries
// that could not run when they were due, or when Run began.
func (t *Ticker) Unreadable(ctx context.Context) (why []string, err error) {
	t.mu.Lock()
	names := slices.Sorted(maps.Keys(t.unreadable))
	t.mu.Unlock()
	for names := range slices.Chunk(names, storage.MaxDocuments) {
		entries, err := document.Of(t.eng.Store).Crons(ctx, storage.DocumentQuery{Names: names})
		if err != nil {
			return nil, err
		}
		for i := range entries {
			e := &entries[i]
			if _, err := cronspec.Parse(e.Schedule, e.TimeZone); err != nil && !e.NextRun.IsZero() {
				why = append(why, e.Name+": "+err.Error())
			}
		}
	}
	return why, nil
}

// fire makes the job of an entry that is due, or skips the run, and moves the entry on.
// If another engine has done so, it does nothing; the entry is then looked at again.
func (c *Entries) fire(
	ctx context.Context, e *storage.Cron, s cronspec.Schedule, now time.Time,
) error {
	first, due, next, missed := dueRun(e, s, now)
	var err error
	if due.IsZero() {
		to := e.Copy()
		to.NextRun = next
		remember(&to, storage.CronRun{Due: first, Outcome: missedRun})
		rememberMissed(&to, missed)
		if err = c.put(ctx, &to); err == nil {
			*e = to
		}
	} else {
		_, err = c.run(ctx, e, next, storage.CronRun{Due: due}, missed)
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
		c.eng.Log.Warn("recurring job ends, since its schedule never comes again", "cron_name", e.Name,
			"schedule", e.Schedule)
	}
	c.missed(e, missed)
	if !due.Equal(first) {
		c.skipped(e, first, missedRun)
	}
	switch {
	case due.IsZero():
	case skipped == nil:
		c.emit(event.CronTriggered, e, due, "")
	default:
		if skipped.reason == "enqueue_failed" || skipped.reason == "duplicate" {
			c.eng.Log.Error("job of a recurring entry not enqueued", "cron_name", e.Name,
				"error", skipped.error)
		}
		c.skipped(e, due, skipped.reason)
	}
	return nil
}

// missedRun is the reason of a run that is skipped since no engine made it in time.
const missedRun = "missed"

// cancelPrevious cancels the job of the last run of an entry.
func (c *Entries) cancelPrevious(ctx context.Context, e *storage.Cron) {
	if e.LastJobID == "" {
		return
	}
	err := c.eng.Cancel(ctx, e.LastJobID)
	if err != nil && !stored.Missing(err) && !foreign.Is(err, ojs.ErrTransition) {
		c.eng.Log.Error("previous run not cancelled", "cron_name", e.Name, "error", err)
	}
}

// moved reports whether an entry that could not be stored stands at its run all the
// same. If a call of SetCrons has failed after it moved the entry on, this engine makes
// the job, since no other engine will. to becomes the stored entry, which another caller
// may have changed since.
func (c *Entries) moved(ctx context.Context, to *storage.Cron) bool {
	there, err := document.Of(c.eng.Store).Crons(ctx, storage.DocumentQuery{Names: []string{to.Name}})
	if err != nil || len(there) == 0 || there[0].LastJobID != to.LastJobID {
		return false
	}
	*to = there[0]
	return true
}

// put stores one entry, which gets the version that is stored. It returns
// storage.ErrFenced if the entry is not of the stored version.
func (c *Entries) put(ctx context.Context, e *storage.Cron) error {
	versions, err := document.Of(c.eng.Store).SetCrons(ctx, []storage.Cron{*e})
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
func (c *Entries) takeBack(ctx context.Context, e, was *storage.Cron, reason string) {
	for {
		to := e.Copy()
		to.LastRun, to.LastJobID, to.Runs = was.LastRun, was.LastJobID, was.Runs
		for i := range to.History {
			if r := &to.History[i]; r.JobID == e.LastJobID {
				r.JobID, r.Outcome = "", reason
			}
		}
		err := c.put(ctx, &to)
		if err == nil {
			*e = to
			return
		}
		if !foreign.Is(err, storage.ErrFenced) {
			c.eng.Log.Error("run of a recurring entry not taken back", "cron_name", e.Name, "error", err)
			return
		}
		if !c.moved(ctx, e) {
			return // it is gone, or has run since
		}
	}
}

// enqueueRun enqueues the job of the last run of an entry. open are the jobs of earlier
// runs that have not ended. Any error means that there is no such job now.
func (c *Entries) enqueueRun(ctx context.Context, e *storage.Cron, due time.Time, open []storage.Record) (
	ojs.Ticket, error) {
	args, plain, err := c.args(ctx, e, due)
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
		ticket, err := c.enqueue(ctx, ojs.NewDraft(e.Type, args, append(slices.Clone(opts), after(waits))...))
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

func (c *Entries) enqueue(ctx context.Context, d ojs.Draft) (ojs.Ticket, error) {
	ticket, err := c.eng.Enqueue(ctx, d)
	if err == nil && ticket.Deduplicated {
		return ojs.Ticket{}, &ojs.DuplicateError{ID: ticket.ID, State: ticket.State}
	}
	return ticket, err
}

// args returns the args of a recurring entry, and the option that takes the meta of their
// encoding away. If they do not decode, the jobs of the entry get them as they are, and
// wait for the key; but args of a template, which are to be filled, are refused.
func (c *Entries) args(ctx context.Context, e *storage.Cron, due time.Time) (ojs.Args, ojs.Option, error) {
	args, err := c.eng.Codec.DecodeArgs(ctx, e.Args, e.Options.Meta)
	if err != nil {
		if e.Template {
			return ojs.Args{}, nil, err
		}
		return e.Args, func(*ojs.Options) {}, nil
	}
	if e.Template {
		filled, err := cronspec.Fill([]byte(args.String()), due, e.TimeZone)
		if err != nil {
			return ojs.Args{}, nil, err
		}
		if args, err = ojs.NewArgs(json.RawMessage(filled)); err != nil {
			return ojs.Args{}, nil, err
		}
	}
	return args, func(o *ojs.Options) { o.Meta = codec.PlainMeta(maps.Clone(o.Meta)) }, nil
}

// missed tells of runs that are missed because the clock of the zone is changed.
func (c *Entries) missed(e *storage.Cron, missed []cronspec.Missed) {
	for _, m := range missed {
		c.skipped(e, m.At, missedReason(m))
	}
}

func missedReason(m cronspec.Missed) string {
	if m.Repeated {
		return "dst_repeat"
	}
	return "dst_skip"
}

func (c *Entries) skipped(e *storage.Cron, due time.Time, reason string) {
	c.eng.Log.Info("run of a recurring entry skipped", "component", "worker", "category", "lifecycle",
		slog.Group("attributes", "cron_name", e.Name, "due", due, "reason", reason))
	c.emit(event.CronSkipped, e, due, reason)
}

// emit publishes an event of an entry.
func (c *Entries) emit(typ event.Type, e *storage.Cron, due time.Time, reason string) {
	c.eng.Emit(event.Event{Type: typ, Subject: e.Name, Due: due, Reason: reason, Cron: &event.Cron{
		Schedule: e.Schedule, TimeZone: e.TimeZone, JobType: e.Type, JobID: e.LastJobID, Runs: e.Runs}})
}

// maxBacklog is how many jobs of the runs that an entry remembers may wait before a run
// logs a warning.
const maxBacklog = 2

func (c *Entries) warnOfBacklog(e *storage.Cron, open []storage.Record) {
	waiting := 0
	for i := range open {
		if open[i].State != ojs.StateActive {
			waiting++
		}
	}
	if waiting >= maxBacklog {
		c.eng.Log.Warn("runs of a recurring entry pile up", "component", "worker", "category", "performance",
			slog.Group("attributes", "cron_name", e.Name, "waiting", waiting+1))
	}
}
