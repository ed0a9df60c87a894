// Package cron enqueues recurring jobs, by the clock of a time zone (OJS cron). Entries
// are in the storage: every running engine on it fires them, each run once.
//
// The job of a run is enqueued when its time comes, with the entry's name and that time
// in its meta: cron_name, and cron_triggered_at in UTC as RFC 3339 with milliseconds. If
// it cannot be enqueued, because its queue is full, say, or an equal unique job exists,
// the run is skipped, as a log line and event.CronSkipped say.
//
// When clocks go forward, runs at the times they skip do not happen, unless the entry has
// GapRun. When they go back, a time that comes twice fires the first time only, so that
// an entry of every 15 minutes pauses for 75. A log line and event.CronSkipped tell of
// each such run, and Runs of the first of each change; "@every 15m" and the time zone UTC
// have none.
//
// # Invariants
//
//  1. An entry moves on to its next run by a change of its stored version, before the job
//     of the run is enqueued. The engine that moved it makes the job: each run has one.
//  2. A run without a job is in the history of its entry with the reason, and its entry
//     names the job of the run before.
//  3. A change of an entry that meets another one is decided again on what is stored.
//  4. A failing entry holds up no other one.
//  5. Entries has no state. A Ticker has a lock for the names of entries that cannot run,
//     and holds it for no call of another package.
package cron

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/cronspec"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
)

// Engine is what the package needs of an engine. Package engine fills it in.
type Engine struct {
	Store storage.Storage
	Codec *codec.Chain // nil: none
	Log   *slog.Logger

	Now   func() time.Time // as storages keep times
	NewID func() string    // for a new job

	// CheckTx refuses a context with a transaction that the storage cannot join.
	CheckTx func(ctx context.Context) error

	// Draft returns the args of a draft, checked against the handler of its type, and its
	// options with all defaults.
	Draft func(d ojs.Draft) (ojs.Args, ojs.Options, error)

	// Check returns why Enqueue would refuse a draft; nil: it would not.
	Check func(ctx context.Context, d ojs.Draft) error

	// Enqueue stores a job. ErrDropped says that a hook has dropped it. After an error
	// that is not Refused, the storage may have stored it.
	Enqueue func(ctx context.Context, d ojs.Draft) (ojs.Ticket, error)
	Refused func(err error) bool

	Cancel func(ctx context.Context, id string) error

	// Trace begins a run of an entry, which end ends.
	Trace func(ctx context.Context, e *storage.Cron) (traced context.Context, end func(error))

	Emit    func(ev event.Event)
	Changed func() // entries have changed: Ticker.Tick is due
}

// Entries are the recurring jobs of a storage. Engine.Cron gives access to them.
type Entries struct{ eng Engine }

// New makes the Entries of an engine.
func New(e Engine) *Entries { return &Entries{e} }

// Entry is a recurring job.
type Entry struct {
	Name        string // lower-case letters, digits, "-" and ".", the first a letter or digit, at most 255
	Description string

	// Schedule is five fields from minutes to days of the week, six with seconds before
	// them, one of @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly,
	// or "@every" and a Go duration of at least a second, which counts from when the
	// entry was set, and after a pause from LastRun, or CreatedAt if it has never run.
	//
	// A field takes *, numbers, lists as 1,15, ranges as 1-5, and steps as */15, 0-30/10
	// or 5/15, which goes on to the end. A step is at most what the field has of values.
	// ? is *. Months have names from JAN to DEC, days of the week from SUN to SAT, in
	// either case; Sunday is 0 and 7. A day of the month may be L, the last, or 15W, the
	// weekday next to the 15th; a day of the week 5L, the last Friday, or 5#2, the
	// second. If both days are given, either is enough, unless one begins with *.
	Schedule string

	// TimeZone is a name of the IANA database as Area/City, such as "Europe/Berlin", or
	// "UTC", which "" is too. Refused are abbreviations such as EST, offsets such as
	// +02:00 or Etc/GMT-2, and old names without an area such as Japan.
	TimeZone string

	// Job is what is enqueued, with any options but an id. It inherits the defaults of
	// the time when the entry was set.
	Job     ojs.Draft
	Overlap Overlap // "": OverlapSkip
	Paused  bool

	Missed      Missed // "": MissedOnce
	MissedLimit int    // the most runs that MissedAll makes up for, up to 100; 0: 100

	Gap Gap // "": GapSkip

	// RunOnStart adds a run when the entry is new, and one each time that the Run of an
	// engine on the storage begins. Engines that begin within a minute make one such run.
	// While everything is paused it waits for ResumeAll.
	RunOnStart bool

	// Template has each {run} in the strings of the args stand for the time for which the
	// run is due, in TimeZone. {run:2006-01-02} has a layout of package time instead of
	// RFC 3339, {run-1d} and {run+36h} another time: a whole number of days (d), by the
	// calendar of the zone, or a Go duration. Args with anything else after "{run" are
	// refused. An engine.EnqueueHook that reads cron_name and cron_triggered_at in the
	// meta can set args by any other rule.
	Template bool

	// Set by the engine. A run without a job of its own, since it was skipped, counts in
	// none.
	CreatedAt time.Time
	LastRun   time.Time // zero: never
	NextRun   time.Time // zero: none, since it is paused or its schedule never comes again
	Runs      int
	LastJobID string
}

// Overlap is what happens when a run is due and the job of the one before has not ended.
type Overlap string

// The ways to treat an overlap.
const (
	OverlapSkip           Overlap = "skip"            // the run does not take place
	OverlapAllow          Overlap = "allow"           // they run side by side
	OverlapCancelPrevious Overlap = "cancel_previous" // the job before is cancelled

	// OverlapEnqueue has the job wait until those of earlier runs have ended, in any
	// engine; more than two waiting log a warning. The job has an ordering key of the
	// entry (ojs.WithOrderingKey), unless it has one of its own, and depends on the jobs
	// of the last 10 runs that have not ended (ojs.WithDependsOn). It is pending
	// meanwhile.
	//
	// If the storage knows no dependencies, or the job is pending or has dependencies of
	// its own, there is a rate limit of one at once instead, under the key of the job's
	// own ojs.RateLimit if it has one. An engine counts what it starts itself: of several
	// engines on one storage, each may run one.
	OverlapEnqueue Overlap = "enqueue"
)

// Gap is what happens to runs at times that the clock of the time zone skips, as 2:30
// when it goes from 2:00 to 3:00.
type Gap string

// The ways to treat runs that the clock skips.
const (
	// GapSkip makes none. A daily entry then pauses for two days.
	GapSkip Gap = "skip"

	// GapRun makes one run at the time of the change, for all times that it skips.
	GapRun Gap = "run"
)

// Missed is what happens to runs that came due while no engine ran, or while everything
// was paused (operate.Queues.PauseAll).
type Missed string

// The ways to treat missed runs.
const (
	// MissedOnce makes one run, for the first time that was missed.
	MissedOnce Missed = "once"

	// MissedSkip makes none. A run is missed when it is a minute late.
	MissedSkip Missed = "skip"

	// MissedAll makes a run for each time that was missed, the first one first, but only
	// for the last MissedLimit times. It needs OverlapAllow or OverlapEnqueue.
	MissedAll Missed = "all"
)

const maxMissedLimit = 100

const maxName = 255

// Set adds entries, or updates those of the same name. An entry whose schedule stays the
// same keeps its next run. All are checked before the first is stored; a schedule that
// never comes is refused, and so are two entries of one name. The error for a bad entry
// is an *ojs.InvalidError with the field, such as "schedule" or "time_zone".
func (c *Entries) Set(ctx context.Context, entries ...Entry) error {
	return c.set(ctx, entries, func(old, to *storage.Cron) error { return nil })
}

// Put is Set for one entry, and reports whether it is new. Of several programs that put
// the same new entry at once, one is told so. If there is one of the name, replace is
// asked first, and its error is that of Put.
func (c *Entries) Put(ctx context.Context, e Entry, replace func(old Entry) error) (isNew bool, err error) {
	err = c.set(ctx, []Entry{e}, func(old, to *storage.Cron) error {
		if isNew = old.Version == 0; isNew {
			return nil
		}
		return replace(entryOf(old))
	})
	return isNew, err
}

// set is Set. f is called with each stored entry, and what takes its place, before that
// is stored.
func (c *Entries) set(ctx context.Context, entries []Entry, f func(old, to *storage.Cron) error) error {
	made := make([]storage.Cron, len(entries))
	names := make(map[string]struct{}, len(entries))
	for i, e := range entries {
		var err error
		if made[i], err = c.check(ctx, e); err != nil {
			return fmt.Errorf("ojs: cron entry %q: %w", foreign.Clip(e.Name, 64), err)
		}
		if _, twice := names[e.Name]; twice {
			return draft.Invalid("name", "%q is given to two entries", e.Name)
		}
		names[e.Name] = struct{}{}
	}
	for made := range slices.Chunk(made, storage.MaxDocuments) {
		err := c.edit(ctx, made, func(old, n *storage.Cron) ([]cronspec.Missed, error) {
			to := *n
			to.Version, to.LastRun, to.Runs, to.LastJobID = old.Version, old.LastRun, old.Runs, old.LastJobID
			to.History = old.History
			if err := f(old, &to); err != nil {
				return nil, err
			}
			if to.CreatedAt = old.CreatedAt; old.Version == 0 {
				if to.CreatedAt = c.eng.Now(); to.RunOnStart && !to.Paused {
					to.NextRun = to.CreatedAt
				}
			}
			var anchor time.Time
			if to.Schedule == old.Schedule && to.TimeZone == old.TimeZone &&
				to.Gap == cmp.Or(old.Gap, string(GapSkip)) {
				to.NextRun, anchor = old.NextRun, began(old)
			}
			*old = to
			return c.plan(old, anchor)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Sync makes the entries whose names begin with prefix exactly those given: it sets them
// as Set does, and then removes the others, whose names it returns. A program that lists
// its recurring jobs in its code calls it at its start, so that an entry which has left
// the code leaves the storage. Programs that share a storage each use a prefix of their
// own, such as "billing."; "" is every entry. An entry whose name does not begin with the
// prefix is refused, and nothing is changed. A call that fails otherwise may have changed
// some of the entries.
//
// An entry that an operator has paused stays paused, even if the list says otherwise. It
// runs again after Resume.
func (c *Entries) Sync(ctx context.Context, prefix string, entries ...Entry) (removed []string, err error) {
	keep := make(map[string]struct{}, len(entries))
	for _, e := range entries {
		if !strings.HasPrefix(e.Name, prefix) {
			return nil, draft.Invalid("name",
				"%q does not begin with the prefix %q of the call",
				foreign.Clip(e.Name, 64), foreign.Clip(prefix, 64))
		}
		keep[e.Name] = struct{}{}
	}
	stayPaused := func(old, to *storage.Cron) error {
		to.Paused = to.Paused || old.Paused
		return nil
	}
	if err := c.set(ctx, entries, stayPaused); err != nil {
		return nil, err
	}
	all, err := c.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		if _, kept := keep[e.Name]; kept || !strings.HasPrefix(e.Name, prefix) {
			continue
		}
		switch err := c.Remove(ctx, e.Name); {
		case foreign.Is(err, ojs.ErrNotFound): // another program's Sync has removed it
		case err != nil:
			return removed, err
		default:
			removed = append(removed, e.Name)
		}
	}
	return removed, nil
}

// Pause keeps an entry from firing. An unknown name gives ojs.ErrNotFound.
func (c *Entries) Pause(ctx context.Context, name string) error { return c.pause(ctx, name, true) }

// Resume ends a pause. Runs missed meanwhile are not made up for.
func (c *Entries) Resume(ctx context.Context, name string) error { return c.pause(ctx, name, false) }

func (c *Entries) pause(ctx context.Context, name string, paused bool) error {
	return c.edit(ctx, []storage.Cron{{Name: name}},
		func(e, _ *storage.Cron) ([]cronspec.Missed, error) {
			if e.Version == 0 {
				return nil, unknown(name)
			}
			e.Paused = paused
			return c.plan(e, began(e))
		})
}

// Remove removes an entry. Jobs that it has made stay. An unknown name gives
// ojs.ErrNotFound.
func (c *Entries) Remove(ctx context.Context, name string) error {
	if err := c.eng.CheckTx(ctx); err != nil {
		return err
	}
	ok, err := document.Of(c.eng.Store).DeleteCron(ctx, name)
	if err == nil && !ok {
		return unknown(name)
	}
	return err
}

// List returns the entries, sorted by name.
func (c *Entries) List(ctx context.Context) ([]Entry, error) {
	var list []Entry
	err := c.each(ctx, func(e *storage.Cron) error {
		list = append(list, entryOf(e))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Due returns the entries whose next run is not after a time, the earliest first. Paused
// ones have no next run. The storage finds them by an index, so that the others cost
// nothing.
func (c *Entries) Due(ctx context.Context, at time.Time) (list []Entry, err error) {
	for after := (*storage.Cron)(nil); ; {
		due, _, err := document.Of(c.eng.Store).DueCrons(ctx, at, after, cronBatch)
		if err != nil {
			return nil, err
		}
		for i := range due {
			list = append(list, entryOf(&due[i]))
		}
		if len(due) < cronBatch {
			return list, nil
		}
		after = &due[len(due)-1]
	}
}

// Get returns an entry. An unknown name gives ojs.ErrNotFound.
func (c *Entries) Get(ctx context.Context, name string) (Entry, error) {
	e, err := c.stored(ctx, name)
	if err != nil {
		return Entry{}, err
	}
	return entryOf(&e), nil
}

func unknown(name string) error {
	return fmt.Errorf("%w: cron entry %q", ojs.ErrNotFound, foreign.Clip(name, 64))
}

func entryOf(s *storage.Cron) Entry {
	return Entry{
		Name: s.Name, Description: s.Description, Schedule: s.Schedule, TimeZone: s.TimeZone,
		Job: draftOf(s), Overlap: Overlap(s.Overlap), Paused: s.Paused,
		Missed: Missed(s.Missed), MissedLimit: s.MissedLimit, Gap: Gap(cmp.Or(s.Gap, string(GapSkip))),
		RunOnStart: s.RunOnStart, Template: s.Template,
		CreatedAt: s.CreatedAt, LastRun: s.LastRun, NextRun: s.NextRun, Runs: s.Runs, LastJobID: s.LastJobID,
	}
}

// edit changes entries by name, and has the engine look at them. f changes what is stored
// under the name of one of the wanted entries, a zero entry if there is none, and returns
// the times before the next run that are missed because of the zone's clock. If an entry
// changes in between, f is asked again for it.
func (c *Entries) edit(ctx context.Context, wanted []storage.Cron,
	f func(stored, wanted *storage.Cron) ([]cronspec.Missed, error)) error {
	if err := c.eng.CheckTx(ctx); err != nil {
		return err
	}
	for len(wanted) > 0 {
		names := make([]string, len(wanted))
		for i := range wanted {
			names[i] = wanted[i].Name
		}
		there, err := document.Of(c.eng.Store).Crons(ctx, storage.DocumentQuery{Names: names})
		if err != nil {
			return err
		}
		byName := make(map[string]storage.Cron, len(there))
		for i := range there {
			byName[there[i].Name] = there[i]
		}
		entries, missed := make([]storage.Cron, len(wanted)), make([][]cronspec.Missed, len(wanted))
		for i := range wanted {
			entries[i] = byName[wanted[i].Name]
			if missed[i], err = f(&entries[i], &wanted[i]); err != nil {
				return err
			}
		}
		versions, err := document.Of(c.eng.Store).SetCrons(ctx, entries)
		if err != nil {
			return err
		}
		var again []storage.Cron
		for i, v := range versions {
			if v == 0 {
				again = append(again, wanted[i])
				continue
			}
			c.missed(&entries[i], missed[i])
		}
		c.eng.Changed()
		wanted = again
	}
	return nil
}

// check checks an entry and makes what is stored of it.
func (c *Entries) check(ctx context.Context, e Entry) (storage.Cron, error) {
	if !ValidName(e.Name) {
		return storage.Cron{}, draft.Invalid("name",
			"use 1 to %d lower-case letters, digits, - and ., beginning with a letter or digit, such as report.nightly",
			maxName)
	}
	e.Overlap = cmp.Or(e.Overlap, OverlapSkip)
	e.Missed, e.Gap = cmp.Or(e.Missed, MissedOnce), cmp.Or(e.Gap, GapSkip)
	overlaps := []Overlap{OverlapSkip, OverlapAllow, OverlapCancelPrevious, OverlapEnqueue}
	switch serial := e.Overlap == OverlapAllow || e.Overlap == OverlapEnqueue; {
	case !slices.Contains(overlaps, e.Overlap):
		return storage.Cron{}, draft.Invalid("overlap",
			"%q is none of skip, allow, cancel_previous, enqueue", e.Overlap)
	case e.Missed != MissedOnce && e.Missed != MissedSkip && e.Missed != MissedAll:
		return storage.Cron{}, draft.Invalid("missed", "%q is none of once, skip, all", e.Missed)
	case e.Missed == MissedAll && !serial:
		return storage.Cron{}, draft.Invalid("missed",
			"all goes with the overlap allow or enqueue, not with %s", e.Overlap)
	case e.MissedLimit < 0 || e.MissedLimit > maxMissedLimit:
		return storage.Cron{}, draft.Invalid("missed_limit",
			"%d is not from 1 to %d, or 0 for %[2]d", e.MissedLimit, maxMissedLimit)
	case e.Gap != GapSkip && e.Gap != GapRun:
		return storage.Cron{}, draft.Invalid("gap", "%q is neither skip nor run", e.Gap)
	}
	probed := storage.Cron{Schedule: e.Schedule, TimeZone: e.TimeZone, Gap: string(e.Gap)}
	if _, _, err := firstRun(&probed, c.eng.Now(), time.Time{}); err != nil {
		return storage.Cron{}, err
	}
	args, o, err := c.eng.Draft(e.Job)
	if err != nil {
		return storage.Cron{}, err
	}
	if o.ID != "" {
		return storage.Cron{}, draft.Invalid("id", "each run has one of its own")
	}
	if e.Template && !codec.IsEncoded(args, o.Meta) {
		if _, err := cronspec.Fill([]byte(args.String()), c.eng.Now(), e.TimeZone); err != nil {
			return storage.Cron{}, err
		}
	}
	made := storage.Cron{
		Name: e.Name, Description: e.Description, Schedule: e.Schedule, TimeZone: e.TimeZone,
		Overlap: string(e.Overlap), Paused: e.Paused,
		Missed: string(e.Missed), MissedLimit: e.MissedLimit, Gap: string(e.Gap), RunOnStart: e.RunOnStart,
		Template: e.Template,
		Type:     e.Job.Type(), Args: args, Options: o,
	}
	run := ojs.NewDraft(made.Type, e.Job.Args(), c.runOptions(&made, c.eng.Now())...)
	if err = c.eng.Check(ctx, run); err != nil {
		return storage.Cron{}, err
	}
	if !draft.FromElsewhere(e.Job.Args()) || !codec.IsEncoded(made.Args, made.Options.Meta) {
		made.Args, made.Options.Meta, err = c.eng.Codec.EncodeArgs(ctx, made.Args, made.Options.Meta)
	}
	return made, err
}

// chains reports whether the job of a run waits for those of earlier runs as a job with
// dependencies does.
func (c *Entries) chains(e *storage.Cron) bool {
	return Overlap(e.Overlap) == OverlapEnqueue && !e.Options.Pending && len(e.Options.DependsOn) == 0
}

// runOptions are the options of the job of a run, but for its id and what it waits for.
func (c *Entries) runOptions(e *storage.Cron, due time.Time) []ojs.Option {
	opts := append(slices.Clone(draftOf(e).Options()), ojs.WithMeta("cron_name", e.Name),
		ojs.WithMeta("cron_triggered_at", due.UTC().Format(draft.MetaTimes)))
	switch {
	case Overlap(e.Overlap) != OverlapEnqueue:
	case c.chains(e):
		if e.Options.OrderingKey == "" {
			opts = append(opts, ojs.WithOrderingKey(ojs.RateLimitKey("cron", e.Name)))
		}
	default:
		opts = append(opts, func(o *ojs.Options) {
			if o.RateLimit == nil {
				o.RateLimit = &ojs.RateLimit{Key: ojs.RateLimitKey("cron", e.Name)}
			}
			o.RateLimit.Concurrency = 1 // one after the other
		})
	}
	return opts
}

// ValidName reports whether an entry may have a name.
func ValidName(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || i > 0 && (c == '-' || c == '.')) {
			return false
		}
	}
	return true
}

// plan sets the next run of an entry that has none, or takes it from one that is paused.
// It returns the times before the run that are missed because of the zone's clock. An
// @every schedule counts from anchor; zero: from now.
func (c *Entries) plan(e *storage.Cron, anchor time.Time) ([]cronspec.Missed, error) {
	if e.Paused {
		e.NextRun = time.Time{}
	} else if !e.NextRun.IsZero() {
		return nil, nil
	}
	// Runs that were going to be missed by an earlier plan.
	e.History = slices.DeleteFunc(e.History, func(r storage.CronRun) bool { return r.Due.After(c.eng.Now()) })
	if e.Paused {
		return nil, nil
	}
	next, missed, err := firstRun(e, c.eng.Now(), anchor)
	if err != nil {
		return nil, err
	}
	e.NextRun = next
	rememberMissed(e, missed)
	return missed, nil
}

// began is what the @every schedule of an entry that has no next run counts from.
func began(e *storage.Cron) time.Time {
	if e.LastRun.IsZero() {
		return e.CreatedAt
	}
	return e.LastRun
}

// firstRun is the first time of a schedule after now, and the times before it that are
// missed because of the zone's clock. An @every schedule counts from anchor; zero: from
// now.
func firstRun(e *storage.Cron, now, anchor time.Time) (
	next time.Time, missed []cronspec.Missed, err error) {
	s, err := scheduleOf(e)
	if err != nil {
		return time.Time{}, nil, err
	}
	next, missed = s.Next(now, anchor)
	if next.IsZero() {
		return next, nil, draft.Invalid("schedule", "%q never comes in %s",
			e.Schedule, cmp.Or(e.TimeZone, "UTC"))
	}
	return next, missed, nil
}

// scheduleOf is the schedule of an entry.
func scheduleOf(e *storage.Cron) (cronspec.Schedule, error) {
	s, err := cronspec.Parse(e.Schedule, e.TimeZone)
	if Gap(e.Gap) == GapRun {
		s = s.RunInGap()
	}
	return s, err
}

// draftOf is the job of an entry.
func draftOf(e *storage.Cron) ojs.Draft {
	o := e.Options.Clone()
	return ojs.NewDraft(e.Type, e.Args, func(to *ojs.Options) { *to = o.Clone() })
}
