package storagetest

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// The cases of this file fill every field of what is stored with values of its own and
// compare all of them after each call. They name no field: a new one is compared from the
// day on which it is there.

// fieldsSeed returns the seed of random fields: that of -rapid.seed, or a new one.
func fieldsSeed() int {
	if f := flag.Lookup("rapid.seed"); f != nil {
		var seed uint64
		if _, err := fmt.Sscan(f.Value.String(), &seed); err == nil && seed != 0 {
			return int(seed)
		}
	}
	return int(rand.Uint32()) + 1
}

// filler makes random records, and remembers what each job has to be.
type filler struct {
	*C
	seed int
	want map[string]storage.Record
}

func (c *C) filler() *filler {
	seed := fieldsSeed()
	c.rule += fmt.Sprintf("\n(repeat with -rapid.seed=%d)", seed)
	return &filler{C: c, seed: seed, want: make(map[string]storage.Record)}
}

// random makes a random value, with every field filled if it is to be full.
func random[T any](f *filler, full bool) T {
	f.seed++
	return rapid.Custom(func(t *rapid.T) (v T) {
		fields.Filler{Precision: f.cfg.TimePrecision, Full: full}.Fill(t, &v)
		return v
	}).Example(f.seed)
}

// fits makes a random record one that an engine stores in the state.
func (f *filler) fits(r *storage.Record, id string, s ojs.State) {
	r.ID, r.State, r.Version = id, s, 0
	r.Queue, r.Type = "q"+r.Queue, "t"+r.Type
	r.Attempt = max(0, r.Attempt/2)
	r.Lease = min(max(r.Lease, 24*time.Hour), 20000*24*time.Hour)
	r.CreatedAt = f.now.Add(-time.Duration(len(r.Type)) * time.Hour)
	for _, d := range []*time.Duration{&r.TotalTimeout, &r.EnqueueTTL} {
		if *d > 0 {
			*d = min(max(*d, 1000*24*time.Hour), 20000*24*time.Hour)
		}
	}
	for _, t := range []*time.Time{&r.ExpiresAt} {
		if !t.IsZero() && t.Before(f.now.AddDate(1, 0, 0)) {
			*t = f.now.AddDate(1, 0, 0)
		}
	}
	if s == ojs.StateScheduled {
		r.ScheduledAt = f.now.Add(time.Hour)
	}
	if r.Fingerprint != "" {
		r.Fingerprint += id
	}
	if r.Unique != nil {
		r.Unique.PeriodMonths = max(r.Unique.PeriodMonths, 0) % 1200
	}
	if r.RateLimit != nil {
		r.RateLimit.Key = "k" + id
		r.RateLimit.Concurrency = max(r.RateLimit.Concurrency, 0)
	}
	if s != ojs.StateRetryable {
		r.NextRetryAt = time.Time{}
	} else {
		r.NextRetryAt = f.now.Add(time.Hour)
	}
	if s != ojs.StateActive {
		r.LeaseUntil = time.Time{}
	} else {
		r.LeaseUntil = f.now.Add(r.Lease)
	}
	if !s.Terminal() {
		r.FinishedAt = time.Time{}
	} else if r.FinishedAt.IsZero() {
		r.FinishedAt = f.now
	}
	if s != ojs.StateDiscarded {
		r.DeadLetteredAt = time.Time{}
	}
}

func (f *filler) record(full bool, s ojs.State) storage.Record {
	f.ids++
	r := random[storage.Record](f, full)
	f.fits(&r, fmt.Sprintf(idFormat, f.ids), s)
	return r
}

// differs ends the case if a value is not as it has to be.
func differs[T any](f *filler, what string, got, want T) {
	f.tb.Helper()
	var d []string
	if r, ok := any(got).(storage.Record); ok {
		d = fields.Diff(f.cfg.normal(r), f.cfg.normal(any(want).(storage.Record)))
	} else {
		d = fields.Diff(got, want)
	}
	if len(d) > 0 {
		f.failf("%s:\n%s", what, strings.Join(d, "\n"))
	}
}

// store inserts jobs in one call.
func (f *filler) store(recs ...storage.Record) {
	f.tb.Helper()
	out, err := f.insertBatch(recs...)
	f.noErr("Insert", err)
	for i, in := range out {
		r := fields.Clone(recs[i])
		r.Version = in.Version
		f.want[r.ID] = r
	}
	f.look("after Insert")
}

// look compares all jobs, by Get and by List.
func (f *filler) look(when string) {
	f.tb.Helper()
	for id, want := range f.want {
		differs(f, "Get "+when+" of job "+id[len(id)-3:], f.get(id), want)
	}
	n, q := 0, storage.Query{Limit: 40}
	for {
		page, err := f.S.List(f.ctx, q)
		f.noErr("List", err)
		for _, r := range page.Records {
			differs(f, "List "+when, r, f.want[r.ID])
			n++
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	if n != len(f.want) {
		f.failf("List %s has %d jobs, not %d", when, n, len(f.want))
	}
}

// answered compares jobs that a call has returned with what they have to be, as change
// leaves them.
func (f *filler) answered(call string, recs []storage.Record, change func(*storage.Record)) {
	f.tb.Helper()
	for _, r := range recs {
		want, ok := f.want[r.ID]
		if !ok {
			f.failf("%s returned a job %q that was not stored", call, r.ID)
		}
		change(&want)
		differs(f, call, r, want)
		f.want[r.ID] = want
	}
}

// claimAll claims every job that is available.
func (f *filler) claimAll() (n int) {
	f.tb.Helper()
	for {
		recs := f.claimOf(storage.Claim{Max: 7, Worker: "worker \"é"})
		f.answered("Claim", recs, func(r *storage.Record) { r.Claim(f.now, "worker \"é", 0) })
		if n += len(recs); len(recs) == 0 {
			return n
		}
	}
}

// change settles a job with random values in every field that the change may have.
func (f *filler) change(id string, s ojs.State, same bool) {
	f.tb.Helper()
	r, x := fields.Clone(f.want[id]), random[storage.Record](f, false)
	f.fits(&x, id, s)
	if same && s == ojs.StateDiscarded && x.DeadLetteredAt.IsZero() {
		x.DeadLetteredAt = f.now // or no job would have it, now and then
	}
	if same {
		r.State, r.Attempt, r.Progress, r.Error, r.Errors = x.State, x.Attempt, x.Progress, x.Error, x.Errors
		r.Result, r.Checkpoint, r.Worker, r.History = x.Result, x.Checkpoint, x.Worker, x.History
		r.EnqueuedAt, r.StartedAt, r.NextRetryAt = x.EnqueuedAt, x.StartedAt, x.NextRetryAt
		r.FinishedAt, r.DeadLetteredAt = x.FinishedAt, x.DeadLetteredAt
		if r.LeaseUntil = x.LeaseUntil; s == ojs.StateActive {
			r.LeaseUntil = f.now.Add(r.Lease)
		}
	} else {
		x.Version = r.Version
		r = x
	}
	out, err := f.S.Settle(f.ctx, f.now, []storage.Change{{Record: r, AttemptFieldsOnly: same}}, nil)
	f.noErr("Settle", err)
	if len(out) != 1 || out[0].Err != nil {
		f.failf("Settle to %s returned %+v", s, out)
	}
	r.Version++
	f.want[id] = r
}

// in returns the jobs that are in a state, in the order of their ids.
func (f *filler) in(s ojs.State) (list []string) {
	for id, r := range f.want {
		if r.State == s {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

// jobs takes random jobs through every call that stores something. After each of them all
// jobs are compared, and again after then.
func (f *filler) jobs(then func()) {
	f.tb.Helper()
	look := func(when string) {
		f.tb.Helper()
		f.look(when)
		then()
		f.look(when + ", and Reopen")
	}
	var batch []storage.Record
	for i := range 12 {
		batch = append(batch, f.record(i < 3, ojs.StateAvailable))
	}
	for i := range 6 {
		batch = append(batch, f.record(i < 2, ojs.StateScheduled), f.record(i < 2, ojs.StatePending))
	}
	f.store(batch...)
	f.store(f.record(true, ojs.StateAvailable))
	look("after Insert")
	if n := f.claimAll(); n != 13 {
		f.failf("claimed %d jobs, not 13", n)
	}
	look("after Claim")
	f.pass(time.Second)
	active := f.in(ojs.StateActive)
	var xs []storage.Extension
	for i, id := range active[:6] {
		r := f.want[id]
		x := storage.Extension{Held: heldOf(r), Progress: float64(i) / 4}
		if i%2 == 0 {
			x.Checkpoint = random[json.RawMessage](f, true)
		}
		xs = append(xs, x)
		r.Extend(f.now, x)
		f.want[id] = r
	}
	lost, err := f.S.Extend(f.ctx, f.now, xs)
	f.noErr("Extend", err)
	if len(lost) > 0 {
		f.failf("Extend lost %v", short(lost))
	}
	look("after Extend")
	to := []ojs.State{ojs.StateRetryable, ojs.StateCompleted, ojs.StateDiscarded, ojs.StateCancelled}
	for i, id := range active[:10] {
		f.change(id, to[i%4], i < 6)
	}
	for i, id := range f.in(ojs.StateScheduled)[:4] {
		f.change(id, ojs.StateScheduled, i < 2)
	}
	for i, id := range f.in(ojs.StatePending)[:4] {
		f.change(id, []ojs.State{ojs.StatePending, ojs.StateAvailable}[i%2], i < 2)
	}
	look("after Settle")
	f.pass(2 * time.Hour)
	d := f.due()
	f.answered("Due: promoted", d.Promoted, func(r *storage.Record) { r.Promote(f.now) })
	if len(d.Promoted) == 0 || len(f.in(ojs.StateScheduled))+len(f.in(ojs.StateRetryable)) > 0 {
		f.failf("Due promoted %d jobs and left others", len(d.Promoted))
	}
	look("after Due")
	f.replaced()
	look("after Insert of equal jobs")
	f.pass(21000 * 24 * time.Hour)
	d = f.due()
	f.answered("Due: expired", d.Expired, func(r *storage.Record) { r.Expire(f.now) })
	f.answered("Due: stalled", d.Stalled, func(r *storage.Record) { r.TakeOver(f.now) })
	look("after Due of deadlines and leases")
}

// replaced inserts jobs that end or change others: by replacing, by taking over, by
// dropping.
func (f *filler) replaced() {
	f.tb.Helper()
	equal := func(s ojs.State, c ojs.Conflict) storage.Record {
		r := f.record(true, s)
		r.Queue, r.Fingerprint = "equal", "equal "+string(c)
		r.Unique = &ojs.UniquePolicy{OnConflict: c}
		return r
	}
	insert := func(r storage.Record, depth int) storage.Inserted {
		out, err := f.S.Insert(f.ctx, f.now,
			[]storage.Insert{{Record: r, MaxDepth: depth, DropOldest: true}}, nil)
		f.noErr("Insert", err)
		if len(out) != 1 {
			f.failf("Insert of one job returned %d results", len(out))
		}
		if out[0].Version > 0 {
			r.Version = out[0].Version
			f.want[r.ID] = r
		}
		return out[0]
	}
	for _, c := range []ojs.Conflict{ojs.ConflictIgnore, ojs.ConflictReplace,
		ojs.ConflictReplaceExceptSchedule, ojs.ConflictDebounce} {
		s := ojs.StateAvailable
		if c == ojs.ConflictReplaceExceptSchedule || c == ojs.ConflictDebounce {
			s = ojs.StateScheduled
		}
		insert(equal(s, c), 0)
		next := equal(s, c)
		out := insert(next, 0)
		f.answered("Insert: replaced", out.Replaced, func(r *storage.Record) { r.Cancel(f.now) })
		if out.Existing != nil {
			f.answered("Insert: existing", []storage.Record{*out.Existing}, func(r *storage.Record) {
				if out.Updated {
					r.Update(&next)
				}
			})
		} else if c != ojs.ConflictReplace {
			f.failf("Insert names no existing job")
		}
	}
	for range 2 {
		r := f.record(true, ojs.StateAvailable)
		r.Queue, r.Fingerprint = "bounded", ""
		f.answered("Insert: dropped", insert(r, 1).Dropped, func(r *storage.Record) { r.Drop(f.now) })
	}
}

// oneField stores jobs, each of which differs from the first in one field.
func (f *filler) oneField(then func()) {
	f.tb.Helper()
	base := f.record(true, ojs.StateAvailable)
	base.Fingerprint = "" // equal jobs would be in the way of each other
	recs := []storage.Record{base}
	for _, l := range fields.Leaves(reflect.TypeFor[storage.Record]()) {
		r := fields.Clone(base)
		f.ids++
		v, _ := l.In(reflect.ValueOf(&r).Elem())
		for range 100 {
			x := random[storage.Record](f, true) // a half of a rate would be invalid
			if other, ok := l.In(reflect.ValueOf(&x).Elem()); ok {
				v.Set(other)
			}
			f.fits(&r, fmt.Sprintf(idFormat, f.ids), ojs.StateAvailable)
			r.Queue, r.Type = strings.TrimPrefix(r.Queue, "q"), strings.TrimPrefix(r.Type, "t")
			if r.Queue != "" && r.Type != "" && len(fields.Diff(r, base)) > 1 {
				break
			}
		}
		recs = append(recs, r)
	}
	recs = append(recs, f.onlyField()...)
	recs = append(recs, f.policies()...)
	f.store(recs...)
	then()
	f.look("after Reopen")
	if n := f.claimAll(); n != len(recs) {
		f.failf("claimed %d jobs, not %d", n, len(recs))
	}
	f.look("after Claim")
	then()
	f.look("after Claim, and Reopen")
}

// onlyField makes jobs each of which has one field, and beside it nothing but what jobs
// must have, or what an engine gives a job without options.
func (f *filler) onlyField() (recs []storage.Record) {
	plain := func(r *storage.Record) {
		r.Retry, r.Timeout, r.Lease = policy.Default(), ojs.DefaultTimeout, ojs.DefaultLease
		r.MaxAttempts = r.Retry.Runs()
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[storage.Record]()) {
		if field.Anonymous || !field.IsExported() {
			continue
		}
		for _, r := range []storage.Record{f.job(), f.job(plain)} {
			x, id := random[storage.Record](f, true), r.ID
			v := reflect.ValueOf(&r).Elem().FieldByIndex(field.Index)
			v.Set(reflect.ValueOf(&x).Elem().FieldByIndex(field.Index))
			f.fits(&r, id, ojs.StateAvailable)
			r.Fingerprint = "" // or jobs would be in the way of each other
			recs = append(recs, r)
		}
	}
	return recs
}

// policies makes jobs that have nothing but what jobs must have, and unique policies each
// of which differs from the first in one field. Lists are also none and empty.
func (f *filler) policies() (recs []storage.Record) {
	add := func(p ojs.UniquePolicy) {
		recs = append(recs, f.job(func(r *storage.Record) { r.Unique = &p }))
	}
	draw := func() ojs.UniquePolicy {
		p := random[ojs.UniquePolicy](f, true)
		p.Key, p.PeriodMonths = "", max(p.PeriodMonths, 0)%1200 // or each policy is one of its own
		return p
	}
	base := draw()
	add(base)
	for _, l := range fields.Leaves(reflect.TypeFor[ojs.UniquePolicy]()) {
		p := fields.Clone(base)
		v, _ := l.In(reflect.ValueOf(&p).Elem())
		for range 100 {
			x := draw()
			if other, ok := l.In(reflect.ValueOf(&x).Elem()); ok {
				v.Set(other)
			}
			if len(fields.Diff(p, base)) > 0 {
				break
			}
		}
		if add(p); v.Kind() == reflect.Slice {
			q := fields.Clone(p)
			v, _ := l.In(reflect.ValueOf(&q).Elem())
			v.SetZero()
			add(q)
			q = fields.Clone(p)
			v, _ = l.In(reflect.ValueOf(&q).Elem())
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
			add(q)
		}
	}
	return recs
}

// entries stores recurring jobs, each of which differs from the first in one field, and
// random ones.
func (f *filler) entries(then func()) {
	f.tb.Helper()
	want := make(map[string]storage.Cron)
	var batch []storage.Cron
	add := func(e storage.Cron) {
		if e.Options.Unique != nil {
			e.Options.Unique.PeriodMonths = max(e.Options.Unique.PeriodMonths, 0) % 1200
		}
		batch = append(batch, e)
	}
	base := random[storage.Cron](f, true)
	base.Name, base.Version = "base", 0
	add(base)
	for i, l := range fields.Leaves(reflect.TypeFor[storage.Cron]()) {
		e := fields.Clone(base)
		v, _ := l.In(reflect.ValueOf(&e).Elem())
		for range 100 {
			x := random[storage.Cron](f, true)
			if other, ok := l.In(reflect.ValueOf(&x).Elem()); ok {
				v.Set(other)
			}
			if len(fields.Diff(e, base)) > 0 {
				break
			}
		}
		e.Name, e.Version = fmt.Sprintf("one-%03d", i), 0
		add(e)
	}
	for i := range 20 {
		e := random[storage.Cron](f, false)
		e.Name, e.Version = fmt.Sprintf("random-%03d", i), 0
		add(e)
	}
	set := func() {
		for i, v := range f.setCrons(batch...) {
			if v == 0 {
				f.failf("the entry %q was not stored", batch[i].Name)
			}
			batch[i].Version = v
			want[batch[i].Name] = fields.Clone(batch[i])
		}
	}
	look := func(when string) {
		f.tb.Helper()
		list := f.crons(storage.DocumentQuery{})
		if len(list) != len(want) {
			f.failf("Crons %s returned %d entries, not %d", when, len(list), len(want))
		}
		for _, e := range list {
			differs(f, "Crons "+when+": entry "+e.Name, e, want[e.Name])
		}
		for range 2 { // what the first call returned was scribbled over
			due, _, err := document.Of(f.S).DueCrons(f.ctx, time.Unix(1<<33, 0), nil, 1000)
			f.noErr("DueCrons", err)
			for _, e := range due {
				differs(f, "DueCrons "+when+": entry "+e.Name, e, want[e.Name])
			}
		}
	}
	set()
	look("after SetCrons")
	then()
	look("after Reopen")
	for i := range batch { // each takes the values of another
		j := (i + 1) % len(batch)
		name, version := batch[i].Name, batch[i].Version
		batch[i] = fields.Clone(want[batch[j].Name])
		batch[i].Name, batch[i].Version = name, version
	}
	set()
	look("after an update")
	then()
	look("after an update, and Reopen")
}

var fieldCases = []Case{
	{"fields-1", "Fields/Jobs", "Storage", "Every field of a job is what the calls have made it, for any values.", needsNothing, func(c *C) {
		c.filler().jobs(func() {})
	}},
	{"fields-2", "Fields/JobsReopened", "Capabilities.Durable", "Every field of a job outlives the storage, in every state.", needsReopen, func(c *C) {
		c.filler().jobs(c.reopen)
	}},
	{"fields-3", "Fields/OneField", "Storage", "A job that differs from another one in one field stays different in it.", needsNothing, func(c *C) {
		c.filler().oneField(func() {})
	}},
	{"fields-4", "Fields/OneFieldReopened", "Capabilities.Durable", "A job that differs from another one in one field does so after Reopen.", needsReopen, func(c *C) {
		c.filler().oneField(c.reopen)
	}},
	{"fields-5", "Fields/Crons", "storage.DocumentStore", "Every field of a recurring entry is what it was set to.", needsNothing, func(c *C) {
		c.filler().entries(func() {})
	}},
	{"fields-6", "Fields/CronsReopened", "Capabilities.Durable", "Every field of a recurring entry outlives the storage.", needsReopen, func(c *C) {
		c.filler().entries(c.reopen)
	}},
	{"fields-7", "Fields/QueuesReopened", "Capabilities.Durable", "The states of queues outlive the storage.", needsReopen, func(c *C) {
		want := map[string]ojs.QueueState{"paused \"é": ojs.QueuePaused, "draining": ojs.QueueDraining}
		for name, s := range want {
			_, err := c.S.SetQueueState(c.ctx, name, s)
			c.noErr("SetQueueState", err)
		}
		for _, when := range []string{"", " after Reopen", " after another"} {
			got, err := c.S.QueueStates(c.ctx)
			c.noErr("QueueStates", err)
			if d := fields.Diff(got, want); len(d) > 0 {
				c.failf("QueueStates%s:\n%s", when, strings.Join(d, "\n"))
			}
			c.reopen()
		}
	}},
}
