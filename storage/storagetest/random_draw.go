package storagetest

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/storage"
)

// rapid prefers small numbers and first elements. Where operations are weighted, the
// draws of this file are even ones, made of bits; zero bits, to which rapid shortens, are
// the first of a list.

var bit = rapid.Bool()

// dice draws one of 0 to n-1.
func dice(t *rapid.T, n int) int {
	if n < 2 {
		return 0
	}
	v := 0
	for range bits.Len(uint(n-1)) + 3 {
		v *= 2
		if bit.Draw(t, "") {
			v++
		}
	}
	return v % n
}

// chance is true once in n times, and never where rapid shortens.
func chance(t *rapid.T, n int) bool { return dice(t, n) == n-1 }

func pick[E any](t *rapid.T, list ...E) E { return list[dice(t, len(list))] }

// some draws a part of a list, in any order.
func some[E any](t *rapid.T, list []E, least, most int) []E {
	list = slices.Clone(list)
	n := least + dice(t, min(most, len(list))-least+1)
	for i := range n {
		j := i + dice(t, len(list)-i)
		list[i], list[j] = list[j], list[i]
	}
	return list[:n:n]
}

var (
	queueNames = []string{"a", "b", "c"}
	typeNames  = []string{"x", "y"}
	limitKeys  = []string{"k", "l", "m"}
	prints     = []string{"f", "g", "h"} // fingerprints
	finished   = []ojs.State{ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded}
)

// equalStates are the states of jobs that are in the way of others, the rare ones twice.
var equalStates = append(ojs.AllStates(), ojs.StateRetryable, ojs.StateCompleted)

// types are the types of jobs so far and one to come: others appear as a run goes on.
func (w *world) types() []string {
	list := typeNames
	for i := range min(w.ids/8, 6) {
		list = append(list, fmt.Sprint("z", i))
	}
	return list
}

// queues are the queues so far and one to come.
func (w *world) queues() []string {
	list := queueNames
	for i := range min(w.ids/16, 3) {
		list = append(list, fmt.Sprint("late", i))
	}
	return list
}

// in is a time some seconds from now, of which the least may be negative.
func (w *world) in(t *rapid.T, least int) time.Time {
	return w.now.Add(time.Duration(least+dice(t, 11-least)) * time.Second)
}

func seconds(t *rapid.T, least, most int) time.Duration {
	return time.Duration(least+dice(t, most-least+1)) * time.Second
}

// moment is a time at which something comes due or ends for a job, or now if there is
// none.
func (w *world) moment(t *rapid.T) time.Time {
	r, ok := w.job(t)
	if !ok {
		return w.now
	}
	times := []time.Time{
		r.WakeAt(),
		r.WakeAt(),
		r.Deadline(),
		r.KeptUntil(),
		r.FinishedAt,
		r.CreatedAt,
		r.LeaseUntil,
	}
	if r.Unique != nil && (r.Unique.Period > 0 || r.Unique.PeriodMonths > 0) {
		times = append(times, r.Unique.PeriodEnd(r.CreatedAt))
	}
	const year = 365 * 24 * time.Hour // no run goes further
	times = slices.DeleteFunc(
		times,
		func(at time.Time) bool { return at.IsZero() || at.Sub(epoch).Abs() > year },
	)
	if len(times) == 0 {
		return w.now
	}
	return pick(t, times...)
}

// near is a time just before, at or after some moment.
func (w *world) near(t *rapid.T) time.Time { return w.moment(t).Add(pick(t, 0, w.unit, -w.unit)) }

// job draws one of the jobs that the reference has.
func (w *world) job(t *rapid.T) (storage.Record, bool) {
	if len(w.ref.jobs) == 0 {
		return storage.Record{}, false
	}
	return w.ref.jobs[dice(t, len(w.ref.jobs))].rec.Copy(), true
}

// jobIn draws one of the jobs in a state that is drawn first, so that jobs in rare states
// come as often as others.
func (w *world) jobIn(t *rapid.T, states ...ojs.State) (storage.Record, bool) {
	return w.jobWith(t, func(*storage.Record) bool { return true }, states...)
}

// jobWith is jobIn among the jobs that fit.
func (w *world) jobWith(
	t *rapid.T, fits func(*storage.Record) bool, states ...ojs.State,
) (storage.Record, bool) {
	by := make(map[ojs.State][]*refJob)
	var there []ojs.State
	for _, s := range states {
		for _, j := range w.ref.jobs {
			if j.rec.State == s && fits(&j.rec) {
				by[s] = append(by[s], j)
			}
		}
		if len(by[s]) > 0 {
			there = append(there, s)
		}
	}
	if len(there) == 0 {
		return storage.Record{}, false
	}
	list := by[pick(t, there...)]
	return list[dice(t, len(list))].rec.Copy(), true
}

// wild is a record in which every field is random.
func (w *world) wild(t *rapid.T) storage.Record {
	seed := dice(t, 1<<16)
	r := rapid.Custom(func(t *rapid.T) (r storage.Record) {
		fields.Filler{Precision: w.cfg.TimePrecision, Full: seed%4 == 3}.Fill(t, &r)
		return r
	}).Example(seed + 1)
	r.Attempt = max(0, r.Attempt/2)
	if r.Unique != nil {
		r.Unique.PeriodMonths = max(r.Unique.PeriodMonths, 0) % 1200
	}
	if r.RateLimit != nil {
		r.RateLimit.Concurrency = max(r.RateLimit.Concurrency, 0)
	}
	r.Fairness = w.fairness(t)
	return r
}

// fairness draws a key that some jobs share, or none.
func (w *world) fairness(t *rapid.T) ojs.Fairness {
	if chance(t, 2) {
		return ojs.Fairness{}
	}
	return ojs.Fairness{Key: pick(t, "f", "g", "h"), Weight: pick(t, 0, 1, 1, 2, 3)}
}

// typeVersion draws a version of a type, or none.
func (w *world) typeVersion(t *rapid.T) string {
	if chance(t, 2) {
		return ""
	}
	return pick(t, "1.0", "2.0", "2.1", "3.0")
}

func (w *world) priority(t *rapid.T) int {
	if chance(t, 8) {
		return pick(t, -100, 100, math.MinInt32, math.MaxInt32)
	}
	return pick(t, 0, 1, -1, 2, -2)
}

func (w *world) rateLimit(t *rapid.T) *ojs.RateLimit {
	if chance(t, 2) {
		return nil
	}
	l := &ojs.RateLimit{Key: pick(t, limitKeys...)}
	if chance(t, 2) {
		w.bounds(t, l)
		l.OnLimit = pick(t, "", ojs.OnLimitWait, ojs.OnLimitReschedule, ojs.OnLimitDrop)
	}
	return l
}

// bounds draws the bounds of a limit.
func (w *world) bounds(t *rapid.T, l *ojs.RateLimit) {
	if chance(t, 2) {
		l.Concurrency = pick(t, 1, 2, 3, ojs.NoneAtOnce)
	}
	if chance(t, 3) {
		l.Rate = ojs.Rate{Limit: 1 + dice(t, 3), Per: seconds(t, 1, 5)}
	}
	if chance(t, 3) {
		l.Throttle = ojs.Rate{Limit: 1 + dice(t, 3), Per: seconds(t, 1, 3)}
	}
}

func (w *world) unique(t *rapid.T) *ojs.UniquePolicy {
	p := &ojs.UniquePolicy{
		OnConflict: pick(t, "", ojs.ConflictIgnore, ojs.ConflictReplace,
			ojs.ConflictReplaceExceptSchedule, ojs.ConflictDebounce),
	}
	if p.OnConflict == ojs.ConflictDebounce && chance(t, 2) {
		p.MaxWait = seconds(t, 1, 6)
	}
	if chance(t, 2) {
		p.Period = seconds(t, 1, 6)
	}
	if chance(t, 2) {
		p.States = some(t, ojs.AllStates(), 1, 8)
	}
	return p
}

// record draws a job to store, which may be equal to others.
func (w *world) record(t *rapid.T, id string, equal bool) storage.Record {
	var r storage.Record
	// Half of the jobs have nothing but what most jobs have, which storages may keep in a
	// way of its own.
	kind := dice(t, 8)
	usual, wild := kind < 4, kind > 4
	if wild {
		r = w.wild(t)
	}
	r.ID, r.Version = id, 0
	r.Queue, r.Type = pick(t, w.queues()...), pick(t, w.types()...)
	r.TypeVersion = w.typeVersion(t)
	r.Priority = w.priority(t)
	r.CreatedAt = w.now.Add(time.Duration(pick(t, 0, 0, -1, -2, 1)) * time.Second)
	r.Lease = seconds(t, 1, 5)
	if !wild {
		r.Timeout = time.Minute
		r.ResultTTL = pick(t, 0, 0, 0, 0, time.Second, 5*time.Second, ojs.NoResult)
	} else if chance(t, 2) {
		r.ResultTTL = seconds(t, 0, 2)
	}
	if r.Fingerprint = ""; equal {
		r.Fingerprint = pick(t, append([]string{""}, prints...)...)
	}
	debounced := false
	if r.Fingerprint != "" && !chance(t, 5) {
		p := w.unique(t)
		hasOne := func(r *storage.Record) bool { return r.Fingerprint != "" }
		if other, ok := w.jobWith(t, hasOne, equalStates...); ok && chance(t, 2) {
			// It is in the way of this one.
			r.Fingerprint, p.States, p.Period = other.Fingerprint, []ojs.State{other.State}, 0
			if chance(t, 3) {
				p.OnConflict = pick(t, "", ojs.ConflictIgnore)
			}
			if debounced = other.State == ojs.StateScheduled && chance(t, 3); debounced {
				p.OnConflict = ojs.ConflictDebounce
			}
		}
		if wild && r.Unique != nil {
			p.Keys, p.Key = r.Unique.Keys, r.Unique.Key
			p.ArgsKeys, p.MetaKeys = r.Unique.ArgsKeys, r.Unique.MetaKeys
			if chance(t, 4) {
				p.PeriodMonths = r.Unique.PeriodMonths
			}
		}
		r.Unique = p
	}
	r.State = pick(t, ojs.StateAvailable, ojs.StateAvailable, ojs.StateScheduled, ojs.StatePending)
	if debounced {
		r.State = ojs.StateScheduled
	}
	if r.State == ojs.StateScheduled {
		r.ScheduledAt = w.in(t, -1)
	}
	if !usual {
		r.ExpiresAt = time.Time{}
		if chance(t, 2) {
			r.ExpiresAt = w.in(t, 0)
		}
		if limit := w.rateLimit(t); wild && limit != nil && r.RateLimit != nil {
			r.RateLimit.Key = limit.Key
		} else {
			r.RateLimit = limit
		}
	}
	if r.Fairness = (ojs.Fairness{}); !usual {
		r.Fairness = w.fairness(t)
	}
	if !wild && !usual {
		r.Meta = map[string]any{"list": []any{1.0}}
	}
	if !wild || chance(t, 2) {
		r.TotalTimeout = pick(t, 0, 0, 0, 7*time.Second)
		if r.TotalTimeout > 0 {
			r.Retry.OnExhaustion = pick(t, ojs.ExhaustionDeadLetter, ojs.ExhaustionDiscard)
		}
		r.EnqueueTTL = pick(t, 0, 0, 0, 4*time.Second)
	}
	w.fitState(t, &r)
	return r
}

// fitState gives a record the times that its state calls for, and no others.
func (w *world) fitState(t *rapid.T, r *storage.Record) {
	r.NextRetryAt, r.LeaseUntil = time.Time{}, time.Time{}
	r.FinishedAt, r.DeadLetteredAt = time.Time{}, time.Time{}
	if r.State.Terminal() {
		r.FinishedAt = w.now
		if chance(t, 4) { // by another clock
			r.FinishedAt = w.in(t, -10)
		}
	}
	switch r.State {
	case ojs.StateRetryable:
		r.NextRetryAt = w.in(t, 0)
	case ojs.StateActive:
		if chance(t, 2) {
			r.LeaseUntil = w.now.Add(r.Lease)
		}
	case ojs.StateDiscarded:
		if chance(t, 2) {
			r.DeadLetteredAt = w.now
		}
	}
}

// change draws a change of a job.
func (w *world) change(t *rapid.T, r storage.Record, sameJob bool) storage.Change {
	from := r
	to := pick(t, ojs.AllStates()...)
	if !chance(t, 5) { // one that is allowed, if there is one
		var can []ojs.State
		for _, s := range ojs.AllStates() {
			if r.State.CanBecome(s) || r.State == s && s.Waiting() {
				can = append(can, s)
			}
		}
		if len(can) > 0 {
			to = pick(t, can...)
		}
		if r.State.Waiting() && chance(t, 3) { // an edit
			to = r.State
		}
		if r.State == ojs.StateRetryable && chance(t, 3) { // jobs in this state are few
			to = ojs.StateDiscarded
		}
		if r.State == ojs.StateActive && chance(t, 2) { // no other way leads to these states
			to = pick(t, ojs.StateRetryable, ojs.StateRetryable, ojs.StateCompleted)
		}
	}
	wild := chance(t, 2)
	var x storage.Record
	if wild {
		x = w.wild(t)
	}
	if wild && !sameJob {
		r = x
		r.ID, r.Version, r.Lease = from.ID, from.Version, from.Lease
		r.Queue, r.Type, r.Priority = from.Queue, from.Type, from.Priority
		r.TypeVersion = from.TypeVersion
		r.CreatedAt, r.ScheduledAt, r.Fingerprint = from.CreatedAt, from.ScheduledAt, from.Fingerprint
		if r.RateLimit != nil {
			r.RateLimit.Key = pick(t, limitKeys...)
		}
		if chance(t, 2) {
			r.ExpiresAt, r.TotalTimeout = from.ExpiresAt, from.TotalTimeout
			r.EnqueueTTL, r.ResultTTL = from.EnqueueTTL, from.ResultTTL
		}
	}
	if !sameJob {
		w.edit(t, &r, to)
	}
	r.State = to
	r.Progress = pick(t, 0, 0.5, 1)
	if wild {
		r.Attempt, r.Error, r.Errors = x.Attempt, x.Error, x.Errors
		r.Result, r.Checkpoint, r.History = x.Result, x.Checkpoint, x.History
		r.Worker, r.EnqueuedAt, r.StartedAt = x.Worker, x.EnqueuedAt, x.StartedAt
	}
	w.fitState(t, &r)
	if r.State == from.State && from.State == ojs.StateRetryable && chance(t, 2) {
		r.NextRetryAt = from.NextRetryAt
	}
	return storage.Change{Record: r, AttemptFieldsOnly: sameJob}
}

// edit changes what decides where a job waits, for what, and what it is equal to: about
// two of these fields.
func (w *world) edit(t *rapid.T, r *storage.Record, to ojs.State) {
	if chance(t, 3) {
		r.Priority = w.priority(t)
	}
	if chance(t, 6) {
		r.Queue = pick(t, w.queues()...)
	}
	if chance(t, 6) {
		r.Fairness = w.fairness(t)
	}
	if chance(t, 6) {
		r.Type = pick(t, w.types()...)
	}
	if chance(t, 6) {
		r.TypeVersion = w.typeVersion(t)
	}
	if chance(t, 6) {
		r.RateLimit = w.rateLimit(t)
	}
	if chance(t, 6) {
		r.Fingerprint = pick(t, append([]string{""}, prints...)...)
	}
	if chance(t, 6) {
		r.Unique = w.unique(t)
	}
	if chance(t, 5) {
		r.ExpiresAt = time.Time{}
		if chance(t, 2) {
			r.ExpiresAt = w.in(t, -3)
		}
	}
	if chance(t, 6) {
		r.CreatedAt = w.in(t, -3)
	}
	if chance(t, 6) {
		r.TotalTimeout = seconds(t, 0, 9)
	}
	if chance(t, 6) {
		r.EnqueueTTL = seconds(t, 0, 9)
	}
	if chance(t, 6) {
		r.Lease = seconds(t, 1, 5)
	}
	if chance(t, 6) {
		r.ResultTTL = pick(t, 0, time.Second, 5*time.Second, ojs.NoResult, ojs.KeepForever)
	}
	if to == ojs.StateScheduled && !chance(t, 3) || chance(t, 8) {
		r.ScheduledAt = w.in(t, -1)
	}
}

// describe says what a record to store is.
func describe(r *storage.Record) string {
	jobType := r.Type
	if r.TypeVersion != "" {
		jobType += "@" + r.TypeVersion
	}
	s := fmt.Sprintf("%s, %s in queue %s, type %s", nameOf(r.ID), r.State, r.Queue, jobType)
	say := func(some bool, format string, args ...any) {
		if some {
			s += ", " + fmt.Sprintf(format, args...)
		}
	}
	say(r.Priority != 0, "priority %d", r.Priority)
	say(r.State == ojs.StateScheduled, "for %s", clockText(r.ScheduledAt))
	say(true, "created %s", clockText(r.CreatedAt))
	say(!r.ExpiresAt.IsZero(), "expires %s", clockText(r.ExpiresAt))
	say(r.TotalTimeout > 0, "total timeout %v", r.TotalTimeout)
	say(r.EnqueueTTL > 0, "enqueue TTL %v", r.EnqueueTTL)
	say(r.ResultTTL != 0, "result TTL %v", r.ResultTTL)
	say(true, "lease %v", r.Lease)
	if r.RateLimit != nil {
		say(true, "rate key %s", r.RateLimit.Key)
	}
	say(r.Fingerprint != "", "fingerprint %s", r.Fingerprint)
	if p := r.Unique; p != nil {
		say(true, "on conflict %s", p.Strategy())
		say(p.Period > 0, "for %v", p.Period)
		say(p.PeriodMonths > 0, "for %d months", p.PeriodMonths)
		say(p.States != nil, "with %v", p.States)
	}
	say(r.Args.JSON() != nil && string(r.Args.JSON()) != "null", "and random other fields")
	return s
}

// checkpoint is what an extension says.
func (w *world) checkpoint(t *rapid.T) json.RawMessage {
	if chance(t, 2) {
		return nil
	}
	return fmt.Appendf(nil, "%d", dice(t, 100))
}
