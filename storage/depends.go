package storage

import (
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

// A job may wait for others (Insert.DependsOn). Its record counts them, and its storage
// keeps an edge from each that has not ended.
//
//  1. A waiting job is pending. An edge counts only while its job is pending: nothing
//     is counted for a job that was cancelled, has expired or was activated by hand.
//  2. Settle, SettleAndClaim, Due and Insert count each job that they end, in the same
//     atomic step, for each job that waits for it. An edge is counted once and is gone.
//  3. A job whose counts decide (Record.Resolve) moves in that step. If it ends by that,
//     it is counted in turn, and so on down.
//
// A job with an ordering key (Insert.OrderingKey) waits for its turn, too:
//
//  4. It has the turn of its key if it is stored, has not ended and is not in line
//     (Record.InLine).
//  5. An Insert of a job with a key, and the end of one, give the turn to the first in
//     line, by insertion, unless a job of the key has it. They do so in the same atomic
//     step. A job that leaves the line before its turn changes nothing for the others.

// CheckDependsOn refuses a batch with a job whose dependencies are not as Insert wants
// them: its state or its record does not fit, one is named twice, or jobs of the batch
// wait for each other in a circle [depend-4]. It refuses an AwaitedBy that names a job
// twice or a job of the batch, too [group-7]. It does not look for jobs that are not in
// the batch.
func CheckDependsOn(batch []Insert) error {
	return checkDependsOn(batch, true)
}

// checkDependsOn is CheckDependsOn. inOrder says that jobs of one key wait for each other
// in the order of the batch.
func checkDependsOn(batch []Insert, inOrder bool) error {
	if !DependsOn(batch) {
		return nil
	}
	at := make(map[string]int, len(batch)) // by id: place in the batch
	for i := range batch {
		at[batch[i].Record.ID] = i
	}
	waits := make([]int, len(batch)) // for how many jobs of the batch
	next := make([][]int, len(batch))
	last := make(map[string]int) // by ordering key: place in the batch
	for i := range batch {
		in := &batch[i]
		refuse := func(reason string) error {
			return &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "depends_on",
				Reason: fmt.Sprintf("of job %s %s", in.Record.ID, reason)}
		}
		if key := in.OrderingKey; key != "" {
			if Awaited(batch) {
				return refuse("is with an ordering key, and in a batch that others are to wait for")
			}
			if k, ok := last[key]; ok && inOrder {
				waits[i]++
				next[k] = append(next[k], i)
			}
			last[key] = i
		}
		awaited := make(map[string]bool, len(in.AwaitedBy))
		for _, id := range in.AwaitedBy {
			if _, ok := at[id]; ok || awaited[id] {
				return refuse(fmt.Sprintf("is awaited by job %q, which is named twice or is new itself", id))
			}
			awaited[id] = true
		}
		if !in.Waits() {
			continue
		}
		if in.Record.State != ojs.StatePending || in.Record.Dependencies == nil {
			return refuse(fmt.Sprintf("is with a record that is %s; it has to be pending, with Dependencies",
				in.Record.State))
		}
		seen := make(map[string]bool, len(in.DependsOn))
		for _, id := range in.DependsOn {
			if seen[id] {
				return refuse(fmt.Sprintf("names job %q twice", id))
			}
			seen[id] = true
			if k, ok := at[id]; ok {
				waits[i]++
				next[k] = append(next[k], i)
			}
		}
	}
	var free []int
	for i, n := range waits {
		if n == 0 {
			free = append(free, i)
		}
	}
	for k := 0; k < len(free); k++ {
		for _, i := range next[free[k]] {
			if waits[i]--; waits[i] == 0 {
				free = append(free, i)
			}
		}
	}
	if i := slices.IndexFunc(waits, func(n int) bool { return n > 0 }); i >= 0 {
		return &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "depends_on", Reason: fmt.Sprintf(
			"has a circle: job %s waits, directly or through others, for jobs that wait for each other",
			batch[i].Record.ID)}
	}
	return nil
}

// DependsOn reports whether a job of the batch is to wait for others, or others for it.
func DependsOn(batch []Insert) bool {
	for i := range batch {
		if batch[i].Waits() || len(batch[i].AwaitedBy) > 0 {
			return true
		}
	}
	return false
}

// Waits reports whether the job waits for others or for its turn [depend-1, order-1].
func (in *Insert) Waits() bool { return len(in.DependsOn) > 0 || in.OrderingKey != "" }

// Wait makes the record of a new job wait as in says [depend-1, order-1]. Nothing is
// counted yet [depend-1].
// A job with an ordering key is in line [order-1].
func (r *Record) Wait(in *Insert) {
	d := &ojs.Dependencies{
		Condition: r.Dependencies.Condition, Join: r.Dependencies.Join, Unfinished: len(in.DependsOn),
		OrderingKey: in.OrderingKey, InLine: in.OrderingKey != "",
		Delay: r.Dependencies.Delay, TTL: r.Dependencies.TTL,
	}
	if d.InLine {
		d.Unfinished++
	}
	if len(in.DependsOn) == 0 {
		d.Condition = ojs.AllSucceeded
	}
	r.Dependencies = d
}

// InLine reports whether the job is pending and waits for its turn [order-1].
func (r *Record) InLine() bool {
	return r.State == ojs.StatePending && r.Dependencies != nil && r.Dependencies.InLine
}

// Turn gives a job that is in line its turn [order-1]. The job moves by Resolve, unless
// it waits for others still [order-3]. Turn does not raise the version, and replaces
// Dependencies by a changed copy [order-3].
func (r *Record) Turn() {
	d := *r.Dependencies
	d.InLine = false
	d.Unfinished--
	r.Dependencies = &d
}

// Count counts a job that has ended, in the state given, for a job that waits for it
// [depend-1, depend-2]. It does not raise the version, and replaces Dependencies by a
// changed copy [depend-9].
func (r *Record) Count(ended ojs.State) {
	d := *r.Dependencies
	d.Unfinished--
	if ended != ojs.StateCompleted {
		d.Failed++
	}
	r.Dependencies = &d
}

// Decided reports whether the counts of a waiting job decide whether it may run
// [depend-2].
func (r *Record) Decided() bool {
	d := r.Dependencies
	if d.Unfinished == 0 {
		return true
	}
	switch d.Condition {
	case ojs.AllEnded:
		return false
	case ojs.AnyFailed: // no turn makes up for it
		return d.InLine && d.Unfinished == 1 && d.Failed == 0
	}
	return d.Failed > 0
}

// Resolve makes the transition that the counts of a waiting job ask for, and reports
// false if it goes on waiting [depend-1, depend-2]. dependency, which was counted last,
// has ended in the state given. A job that may run becomes scheduled if its ScheduledAt
// is later than now, else available [depend-1]. Before that, the Delay and the TTL of its
// Dependencies set its ScheduledAt and ExpiresAt, from now on [depend-15]. A join
// completes instead [depend-8]. A job whose condition cannot hold is cancelled with a
// failure that names the dependency [depend-2, depend-6].
func (r *Record) Resolve(now time.Time, dependency string, ended ojs.State) bool {
	if !r.Decided() {
		return false
	}
	d := r.Dependencies
	holds := d.Failed == 0
	switch d.Condition {
	case ojs.AllEnded:
		holds = true
	case ojs.AnyFailed:
		holds = d.Failed > 0
	}
	switch {
	case !holds:
		r.Cancel(now)
		r.Error = &ojs.Failure{
			Attempt: r.Attempt, At: now, Code: ojs.CodeDiscard,
			Type: policy.ErrorTypeDependency, Reason: ojs.ReasonDependency,
			Message: fmt.Sprintf("job %s, which this job waited for, is %s, and the condition is %s",
				dependency, ended, d.Condition),
			Details: map[string]any{
				"dependency": dependency, "state": string(ended), "condition": string(d.Condition),
			},
		}
		return true
	case d.Join:
		r.State, r.FinishedAt, r.Progress = ojs.StateCompleted, now, 1
		r.Checkpoint = nil
	default:
		r.begin(now)
	}
	r.Version++
	return true
}

// begin makes a job that waits no more scheduled or available.
func (r *Record) begin(now time.Time) {
	d := r.Dependencies
	if d.Delay > 0 {
		r.ScheduledAt = now.Add(d.Delay)
	}
	if d.TTL > 0 {
		r.ExpiresAt = now.Add(d.TTL)
	}
	if r.ScheduledAt.After(now) {
		r.State = ojs.StateScheduled
		return
	}
	r.State = ojs.StateAvailable
	if r.EnqueuedAt.IsZero() {
		r.EnqueuedAt = now
	}
}

// Retimed reports whether Resolve and Turn set the ScheduledAt or the ExpiresAt of the
// job, which no change with AttemptFieldsOnly writes [depend-15].
func (r *Record) Retimed() bool { return r.Dependencies.Delay > 0 || r.Dependencies.TTL > 0 }
