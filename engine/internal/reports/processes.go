package reports

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// Deaths of processes.
//
// An engine that reports on itself (reports.go) stores the value alive/ID with each
// report. After its report it looks at the values of the other engines:
//
//  1. The silence of a process is how long the engine has seen the same value of it, by
//     the clock of the engine that looks. So the clocks of two machines may differ.
//  2. Time in which the storage does not answer is no silence. After a look that has
//     failed or comes late, the silence of each process begins anew.
//  3. A process whose silence reaches its DeadAfter is dead: its attempts end as if their
//     leases had ended. Settle is fenced, so one of several engines succeeds.
//  4. The value of a dead process is deleted when the process has no active jobs. If the
//     process lives after all, its next report stores the value, and its next renewal
//     says that the jobs are lost.
//
// A lease ends while the storage does not answer, too. So an engine renews the leases of
// all processes, its own among them, before the first call of Due after the storage has
// failed, and after its own start (SpareLeases).

// aliveFor is how long the value of a process outlives its last report.
const aliveFor = 24 * time.Hour

// aliveValue is the engine as a process; gone: without data, which deletes it.
func (c *Engine) aliveValue(beat uint64, gone bool) document.Value {
	v := document.Value{Key: stored.PrefixAlive + c.Worker}
	if !gone {
		now := c.Now()
		v.Data, _ = json.Marshal(&stored.Alive{ // which always encodes
			ID: c.Worker, Beat: beat, Seen: now, Every: c.Peers.Every, DeadAfter: c.Peers.DeadAfter,
			Lease: c.Lease,
		})
		v.Expires = now.Add(aliveFor)
	}
	return v
}

// eachProcess calls f for each process that reports.
func (c *Engine) eachProcess(ctx context.Context, f func(a *stored.Alive)) error {
	q := storage.DocumentQuery{Prefix: stored.PrefixAlive}
	for v, err := range document.Of(c.Store).EachValue(ctx, c.Now(), q) {
		if err != nil {
			return err
		}
		var a stored.Alive
		if json.Unmarshal(v.Data, &a) == nil && a.ID == strings.TrimPrefix(v.Key, stored.PrefixAlive) {
			f(&a)
		}
	}
	return nil
}

// Silent calls f for each process that holds jobs and is silent.
func (c *Engine) Silent(ctx context.Context, f func(id string, silence time.Duration, jobs int)) error {
	if !c.Watches {
		return nil
	}
	now := c.Now()
	var silent []*stored.Alive
	err := c.eachProcess(ctx, func(a *stored.Alive) {
		if a.Silence(now) > 0 {
			silent = append(silent, a)
		}
	})
	for _, a := range silent {
		recs, err := c.Store.ClaimedBy(ctx, a.ID)
		if err != nil {
			return err
		}
		if len(recs) > 0 {
			f(a.ID, a.Silence(now), len(recs))
		}
	}
	return err
}

// process is what an engine has seen of another one.
type process struct {
	beat   uint64
	silent time.Duration
}

// deadProcess is a process that has been silent for too long.
type deadProcess struct {
	stored.Alive
	silent time.Duration
}

// late reports whether a look that the storage answers now comes late.
func (c *Engine) late(now time.Time) bool {
	return now.Sub(time.Unix(0, c.looked.Load())) > 2*c.Peers.Every
}

// lookAtProcesses ends the attempts of processes that are dead.
func (p *Reporter) lookAtProcesses(ctx context.Context) error {
	c := p.c
	now := c.Now()
	late := c.late(now)
	step := now.Sub(time.Unix(0, c.looked.Load()))
	seen := make(map[string]*process)
	var dead []deadProcess
	err := c.eachProcess(ctx, func(a *stored.Alive) {
		if a.ID == c.Worker {
			return
		}
		s := c.seen[a.ID]
		switch {
		case s == nil || s.beat != a.Beat:
			s = &process{beat: a.Beat}
		case p.failed || late:
			s.silent = 0
		default:
			s.silent += step
		}
		if seen[a.ID] = s; s.silent >= a.DeadAfter {
			dead = append(dead, deadProcess{*a, s.silent})
		}
	})
	if err != nil {
		return err
	}
	c.seen = seen
	if late {
		c.Unanswers.Store(true)
	}
	c.looked.Store(now.UnixNano())
	if len(dead) == 0 || !p.burying.TryLock() {
		return nil
	}
	// A transaction of a dead process may have a job's row until the server notices. The
	// reports do not wait for that.
	p.burials.Go(func() {
		defer p.burying.Unlock()
		for i := range dead {
			p.bury(ctx, &dead[i])
		}
	})
	return nil
}

// bury ends the attempts of a dead process. The next look repeats a call that has failed.
func (p *Reporter) bury(ctx context.Context, d *deadProcess) {
	c := p.c
	recs, err := c.Store.ClaimedBy(ctx, d.ID)
	if err == nil && len(recs) == 0 {
		gone := []document.Value{{Key: stored.PrefixAlive + d.ID}}
		err = document.Of(c.Store).PutValues(ctx, c.Now(), gone)
	}
	if err != nil {
		c.Failed("end of the attempts of a silent process", err, "worker_id", d.ID)
		return
	}
	if len(recs) == 0 {
		return
	}
	c.Log.Warn("process is silent: its attempts have failed", "component", "worker", "category", "error",
		"worker_id", d.ID, "silent_seconds", d.silent.Seconds(), "jobs", len(recs))
	for _, rec := range recs {
		c.Settle.SettleLost(ctx, rec, policy.Outcome{Kind: policy.LeaseExpired, Silent: d.silent,
			Limit: d.DeadAfter})
	}
}

// SpareLeases renews the leases of the processes that report, and of this engine, if the
// storage has failed since the last call. Its error is one more failure (env.Failed).
func (c *Engine) SpareLeases(ctx context.Context) (err error) {
	late := c.Peers != nil && c.late(c.Now())
	if !c.Watches || !c.Unanswers.Swap(false) && !late {
		return nil
	}
	list := []*stored.Alive{{ID: c.Worker, Lease: c.Lease}}
	err = c.eachProcess(ctx, func(a *stored.Alive) {
		if a.ID != c.Worker {
			list = append(list, a)
		}
	})
	for _, a := range list {
		if err == nil {
			err = c.spare(ctx, a)
		}
	}
	return err
}

// spare renews those leases of a process that are half over. A process that lives renews
// the others itself.
func (c *Engine) spare(ctx context.Context, a *stored.Alive) error {
	recs, err := c.Store.ClaimedBy(ctx, a.ID)
	now := c.Now()
	var renewed []storage.Extension
	for i := range recs {
		r := &recs[i]
		if r.LeaseUntil.Sub(now) < r.LeaseFor(a.Lease)/2 {
			held := storage.Held{ID: r.ID, Version: r.Version}
			renewed = append(renewed, storage.Extension{Held: held, Lease: a.Lease})
		}
	}
	if err != nil || len(renewed) == 0 {
		return err
	}
	if _, err := c.Store.Extend(ctx, now, renewed); err != nil {
		// A transaction may have the row of one of them: Due skips that, too.
		c.Unanswers.Store(true)
		c.Log.Warn("leases not renewed after a failure of the storage", "error", err, "worker_id", a.ID)
	}
	return nil
}
