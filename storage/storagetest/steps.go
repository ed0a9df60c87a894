package storagetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/storage"
)

// wall is the wall clock, for the watchdog.
var wall = clock.New()

// The steps of which cases are made. A step that goes wrong ends the case.

// idFormat makes ids of numbers.
const idFormat = "01890a5d-ac96-774b-bcce-%012x"

// job makes a record that is available.
func (c *C) job(change ...func(*storage.Record)) storage.Record {
	c.ids++
	var r storage.Record
	r.ID = fmt.Sprintf(idFormat, c.ids)
	r.Type, r.Queue, r.State = "x", "q", ojs.StateAvailable
	r.CreatedAt, r.Lease, r.Timeout = c.now, time.Minute, time.Minute
	for _, f := range change {
		f(&r)
	}
	return r
}

func scheduled(d time.Duration) func(*storage.Record) {
	return func(r *storage.Record) { r.State, r.ScheduledAt = ojs.StateScheduled, r.CreatedAt.Add(d) }
}

func pending(r *storage.Record) { r.State = ojs.StatePending }

func priority(n int) func(*storage.Record) { return func(r *storage.Record) { r.Priority = n } }

func queue(name string) func(*storage.Record) { return func(r *storage.Record) { r.Queue = name } }

func jobType(name string) func(*storage.Record) { return func(r *storage.Record) { r.Type = name } }

func expires(d time.Duration) func(*storage.Record) {
	return func(r *storage.Record) { r.ExpiresAt = r.CreatedAt.Add(d) }
}

func limited(key string) func(*storage.Record) {
	return func(r *storage.Record) { r.RateLimit = &ojs.RateLimit{Key: key, Concurrency: 1000} }
}

func unique(fingerprint string, p ojs.UniquePolicy) func(*storage.Record) {
	return func(r *storage.Record) { r.Fingerprint, r.Unique = fingerprint, &p }
}

// insert stores jobs, each in a call of its own, and returns their ids.
func (c *C) insert(recs ...storage.Record) []string {
	c.tb.Helper()
	var ids []string
	for _, r := range recs {
		out, err := c.S.Insert(c.ctx, c.now, []storage.Insert{{Record: r}}, nil)
		c.noErr("Insert", err)
		if len(out) != 1 {
			c.failf("Insert of one job returned %d results", len(out))
		}
		ids = append(ids, r.ID)
	}
	return ids
}

func (c *C) insertBatch(recs ...storage.Record) ([]storage.Inserted, error) {
	batch := make([]storage.Insert, len(recs))
	for i := range recs {
		batch[i].Record = recs[i]
	}
	return c.S.Insert(c.ctx, c.now, batch, nil)
}

func (c *C) get(id string) storage.Record {
	c.tb.Helper()
	r, err := c.S.Get(c.ctx, id)
	c.noErr("Get", err)
	return r
}

func (c *C) wantState(id string, s ojs.State) storage.Record {
	c.tb.Helper()
	r := c.get(id)
	if r.State != s {
		c.failf("the job is %s, not %s", r.State, s)
	}
	return r
}

// insertOne inserts one job with the options of an Insert, and returns the result.
func (c *C) insertOne(in storage.Insert) storage.Inserted {
	c.tb.Helper()
	out, err := c.S.Insert(c.ctx, c.now, []storage.Insert{in}, nil)
	c.noErr("Insert", err)
	if len(out) != 1 {
		c.failf("Insert of one job returned %d results", len(out))
	}
	return out[0]
}

// claim claims up to n jobs of any queue and type.
func (c *C) claim(n int) []storage.Record {
	c.tb.Helper()
	return c.claimOf(storage.Claim{Max: n, Worker: "w"})
}

func (c *C) claimOf(q storage.Claim) []storage.Record {
	c.tb.Helper()
	recs, err := c.S.Claim(c.ctx, c.now, q, nil)
	c.noErr("Claim", err)
	return recs
}

// one claims exactly one job.
func (c *C) one() storage.Record {
	c.tb.Helper()
	recs := c.claim(1)
	if len(recs) != 1 {
		c.failf("Claim returned %d jobs, not 1", len(recs))
	}
	return recs[0]
}

// order wants claims, one after the other, to return these jobs.
func (c *C) order(q storage.Claim, want ...string) {
	c.tb.Helper()
	q.Max = 1
	var got []string
	for range len(want) + 1 {
		for _, r := range c.claimOf(q) {
			got = append(got, r.ID)
		}
	}
	if !slices.Equal(got, want) {
		c.failf("claimed %v, not %v", short(got), short(want))
	}
}

// short are ids as failures show them: numbers.
func short(ids []string) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = "job " + id[max(0, len(id)-3):]
	}
	return out
}

// settle changes a job, as of r's version.
func (c *C) settle(r storage.Record, change ...func(*storage.Record)) storage.Settled {
	c.tb.Helper()
	for _, f := range change {
		f(&r)
	}
	out, err := c.S.Settle(c.ctx, c.now, []storage.Change{{Record: r}}, nil)
	c.noErr("Settle", err)
	if len(out) != 1 {
		c.failf("Settle of one change returned %d results", len(out))
	}
	return out[0]
}

// settled wants a change to be applied, and returns the job.
func (c *C) settled(r storage.Record, change ...func(*storage.Record)) storage.Record {
	c.tb.Helper()
	if s := c.settle(r, change...); s.Err != nil {
		c.failf("Settle from %s refused: %v", r.State, s.Err)
	}
	return c.get(r.ID)
}

func (c *C) to(s ojs.State) func(*storage.Record) {
	return func(r *storage.Record) {
		r.State = s
		r.NextRetryAt, r.FinishedAt = time.Time{}, time.Time{}
		if s != ojs.StateActive {
			r.LeaseUntil = time.Time{}
		}
		switch {
		case s == ojs.StateRetryable:
			r.NextRetryAt = c.now.Add(time.Hour)
		case s == ojs.StateScheduled:
			r.ScheduledAt = c.now.Add(time.Hour)
		case s.Terminal():
			r.FinishedAt = c.now
		}
	}
}

func (c *C) dead(r *storage.Record) { c.to(ojs.StateDiscarded)(r); r.DeadLetteredAt = c.now }

// reach brings a new job into a state, by legal transitions.
func (c *C) reach(s ojs.State) storage.Record {
	c.tb.Helper()
	r := c.job()
	r.Queue = fmt.Sprint("reach-", c.ids) // where no other can be claimed
	switch s {
	case ojs.StateScheduled:
		scheduled(time.Hour)(&r)
	case ojs.StatePending:
		pending(&r)
	}
	c.insert(r)
	if s == ojs.StateAvailable || s == ojs.StateScheduled || s == ojs.StatePending {
		return c.get(r.ID)
	}
	claimed := c.claimOf(storage.Claim{Queues: []string{r.Queue}, Max: 1})
	if len(claimed) != 1 {
		c.failf("Claim returned %d jobs, not 1", len(claimed))
	}
	if s == ojs.StateActive {
		return claimed[0]
	}
	return c.settled(claimed[0], c.to(s))
}

// reopen closes the storage and opens it again.
func (c *C) reopen() {
	c.tb.Helper()
	s, diff := c.cfg.reopenedAs(c.ctx, c.S, c.now, func() storage.Storage {
		return scribble(c.cfg.Reopen(c.tb, unscribbled(c.S)))
	})
	if c.S = s; diff != "" {
		c.failf("%s", diff)
	}
}

func (c *C) due() storage.Due {
	c.tb.Helper()
	d, err := c.S.Due(c.ctx, c.now, 1000, usedList(4)[:2])
	c.noErr("Due", err)
	return d
}

func (c *C) pass(d time.Duration) { c.now = c.now.Add(d) }

// tick is the least time that the storage tells from none.
func (c *C) tick() time.Duration { return max(c.cfg.TimePrecision, 1) }

// list lists the ids that a query selects, page by page.
func (c *C) list(q storage.Query) []string {
	c.tb.Helper()
	var got []string
	for pages := 0; ; pages++ {
		page, err := c.S.List(c.ctx, q)
		c.noErr("List", err)
		for i := range page.Records {
			got = append(got, page.Records[i].ID)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return got
		}
		if pages > 10_000 {
			c.failf("List does not come to an end")
		}
	}
}

func ids(recs []storage.Record) []string {
	out := make([]string, len(recs))
	for i := range recs {
		out[i] = recs[i].ID
	}
	return out
}

// same wants two records to be the same, times to the storage's precision.
func (c *C) same(what string, got, want storage.Record) {
	c.tb.Helper()
	if d := fields.Diff(c.cfg.normal(got), c.cfg.normal(want)); len(d) > 0 {
		c.failf("%s differs:\n%s", what, strings.Join(d, "\n"))
	}
}

// normal is a record as it is compared: its times in UTC and to the precision of the
// storage, its args as JSON, what is empty nil.
func (cfg *Config) normal(r storage.Record) storage.Record {
	r = r.Copy()
	if args, err := ojs.NewArgs(r.Args.JSON()); err == nil {
		r.Args = args
	}
	round := func(t *time.Time) {
		if *t = t.UTC().Round(0); cfg.TimePrecision > 0 {
			*t = t.Truncate(cfg.TimePrecision)
		}
		if t.IsZero() {
			*t = time.Time{}
		}
	}
	for _, t := range []*time.Time{&r.CreatedAt, &r.ScheduledAt, &r.ExpiresAt, &r.EnqueuedAt,
		&r.StartedAt, &r.NextRetryAt, &r.FinishedAt, &r.DeadLetteredAt, &r.LeaseUntil} {
		round(t)
	}
	if r.Error != nil {
		round(&r.Error.At)
		round(&r.Error.StartedAt)
	}
	for i := range r.Errors {
		round(&r.Errors[i].At)
		round(&r.Errors[i].StartedAt)
	}
	for i := range r.History {
		for _, t := range []*time.Time{&r.History[i].At, &r.History[i].StartedAt, &r.History[i].Until} {
			round(t)
		}
	}
	if len(r.History) == 0 {
		r.History = nil
	}
	if len(r.Meta) == 0 {
		r.Meta = nil
	}
	if len(r.Errors) == 0 {
		r.Errors = nil
	}
	if len(r.Extra) == 0 {
		r.Extra = nil
	}
	return r
}
