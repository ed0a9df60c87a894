package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
)

// play runs the program, and then what is left of it to its end.
func (w *world) play() {
	w.stage(func() {
		for _, o := range w.prog.ops {
			w.advance(w.start.Add(o.at))
			if w.failed() {
				break
			}
			w.exec(o)
		}
	})
}

// stage starts the engines of the program and does what acts says. Then it runs what is
// left to its end.
func (w *world) stage(acts func()) {
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = ctx
	for _, cfg := range w.prog.nodes {
		w.newNode(cfg).run()
	}
	acts()
	w.advance(w.start.Add(w.prog.horizon))
	if !w.failed() {
		w.settleDown()
	}
	w.finish()
	cancel()
	close(w.over)
	w.busy.Wait()
	if !w.failed() {
		w.checkEvents()
		w.checkMeters()
	}
	_ = w.ledger.inner.Close()
}

// advance lets time pass until to, and looks right after each moment at which the storage
// has something to do.
func (w *world) advance(to time.Time) {
	for !w.failed() {
		next := to
		offset := time.Duration(w.offset.Load())
		if at := w.ledger.next(w.now()); !at.IsZero() && at.Add(-offset).Before(to) {
			next = at.Add(-offset)
		}
		wall.Sleep(next.Sub(wall.Now()))
		synctest.Wait()
		w.check()
		if !next.Before(to) {
			return
		}
	}
}

// exec does an op. It chooses the op's target. An op that may take time runs on a
// goroutine.
func (w *world) exec(o op) {
	r := stream(w.seed, "op", o.n)
	n := w.anyNode(r)
	if n == nil && o.kind != "join" && o.kind != "start" {
		return
	}
	id := w.ledger.anyJob(r)
	queue := queueNames[r.IntN(len(queueNames))]
	call := func(what string, f func() error) {
		w.note(n.name, id, "%s", what)
		w.busy.Go(func() { w.checkError(n, id, what, f()) })
	}
	switch o.kind {
	case "enqueue":
		w.enqueue(n, r, 100*o.n, 1)
	case "batch":
		w.enqueue(n, r, 100*o.n, 2+r.IntN(9))
	case "burst":
		number := quick + 100*o.n
		w.enqueueAll(n, false, number, burst(r, number))
	case "rival":
		number := rivals + 100*o.n
		w.enqueueAll(w.ledger.rivalHolder(n), false, number, []ojs.Draft{rival(r, number)})
	case "cancel":
		if r.IntN(2) == 0 {
			id = w.ledger.anyActive(r)
		}
		call("cancel", func() error {
			err := n.eng.Cancel(w.ctx, id)
			if err == nil {
				w.ledger.wantCancelled(id)
			}
			return err
		})
	case "priority":
		p := r.IntN(5) - 2
		call("set priority", func() error { return n.eng.Jobs().SetPriority(w.ctx, id, p) })
	case "reschedule":
		at := w.now().Add(between(r, -time.Second, 20*time.Second))
		call("reschedule", func() error { return n.eng.Jobs().Reschedule(w.ctx, id, at) })
	case "activate":
		call("activate", func() error { return n.eng.Jobs().Activate(w.ctx, id) })
	case "retry":
		call("retry", func() error { return n.eng.Jobs().Retry(w.ctx, id) })
	case "replay":
		call("replay all dead letters", func() error {
			return n.apply(operate.Bulk{Do: operate.RetryJobs(), On: inspect.Filter{DeadLettered: true},
				Every: time.Duration(r.IntN(2)) * time.Second})
		})
	case "delete":
		call("delete", func() error { return n.eng.Jobs().Delete(w.ctx, id) })
	case "bulk":
		call("cancel all in queue "+queue, func() error {
			return n.apply(operate.Bulk{Do: operate.CancelJobs(),
				On: inspect.Filter{Queues: []string{queue}}})
		})
	case "pause":
		call("pause "+queue, func() error {
			_, err := n.eng.Queues().Pause(w.ctx, queue)
			return err
		})
	case "drain":
		call("drain "+queue, func() error {
			_, err := n.eng.Queues().Drain(w.ctx, queue)
			return err
		})
	case "resume":
		call("resume "+queue, func() error {
			_, err := n.eng.Queues().Resume(w.ctx, queue)
			return err
		})
	case "stop":
		n.halt()
	case "start":
		for _, n := range w.nodes {
			n.run()
		}
	case "crash":
		n.crash()
	case "join":
		if len(w.living()) < maxNodes {
			cfg := newNodeConfig(r)
			cfg.lossy = cfg.lossy && !w.prog.calm
			w.newNode(cfg).run()
		}
	case "remote":
		w.employ(n, false)
	case "cron":
		w.recur(n, r)
	case "jump":
		if w.prog.jumps {
			d := between(r, -time.Minute, time.Minute)
			w.offset.Add(int64(d))
			w.note("", "", "the clock jumps by %v", d)
		}
	case "look":
		call("look", func() error {
			stats, err := n.eng.Stats(w.ctx)
			if err == nil && stats.Busy > stats.Slots {
				w.broken(15, "", "%s has %d slots, and is busy with %d", n.name, stats.Slots, stats.Busy)
			}
			_ = n.eng.Health(w.ctx)
			return err
		})
	}
}

// recur sets, pauses, resumes or removes a recurring entry.
func (w *world) recur(n *node, r *rand.Rand) {
	name := fmt.Sprint("entry", r.IntN(3))
	entry := cron.Entry{
		Name: name, Schedule: fmt.Sprintf("@every %ds", 1+r.IntN(40)),
		Job: ojs.NewDraft(cronType, Args{N: -1 - r.IntN(1000)}, ojs.WithTimeout(5*time.Second),
			ojs.WithLease(30*time.Second),
			ojs.WithRetry(ojs.RetryPolicy{NonRetryableErrors: []string{"fatal.*"}})),
		Overlap: []cron.Overlap{cron.OverlapSkip, cron.OverlapAllow, cron.OverlapCancelPrevious,
			cron.OverlapEnqueue}[r.IntN(4)],
	}
	kind := r.IntN(6)
	w.busy.Go(func() {
		var err error
		switch kind {
		case 0:
			err = n.eng.Cron().Pause(w.ctx, name)
		case 1:
			err = n.eng.Cron().Resume(w.ctx, name)
		case 2:
			err = n.eng.Cron().Remove(w.ctx, name)
		default:
			err = n.eng.Cron().Set(w.ctx, entry)
		}
		w.note(n.name, "none", "recurring entry %s: %d, %s, %s: %v",
			name, kind, entry.Schedule, entry.Overlap, err)
		w.checkError(n, "none", "a recurring entry", err)
	})
}

// wait is a caller that waits for a job.
type wait struct {
	node *node
	id   string
	done bool // guarded by world.mu
}

// enqueue enqueues jobs in one batch, and waits for some of them.
func (w *world) enqueue(n *node, r *rand.Rand, number, count int) {
	var drafts []ojs.Draft
	for i := range count {
		drafts = append(drafts, draft(r, number+i, w.now()))
	}
	w.enqueueAll(n, r.IntN(2) == 0, number, drafts)
}

// enqueueAll enqueues drafts, which have the numbers from number on.
func (w *world) enqueueAll(n *node, waits bool, number int, drafts []ojs.Draft) {
	count := len(drafts)
	w.busy.Go(func() {
		tickets, err := n.eng.EnqueueMany(w.ctx, drafts...)
		w.checkError(n, "none", "enqueue", err)
		if err != nil {
			if !errors.Is(err, errFault) && !errors.Is(err, errDead) && w.ctx.Err() == nil {
				w.ledger.wantNone(number, count)
			}
			return
		}
		for _, t := range tickets {
			w.ledger.wantStored(t)
			if waits {
				w.waitFor(n, t)
			}
		}
	})
}

// waitFor waits for a job on a goroutine of its own.
func (w *world) waitFor(n *node, t ojs.Ticket) {
	wt := &wait{node: n, id: t.ID}
	w.mu.Lock()
	w.waits = append(w.waits, wt)
	w.mu.Unlock()
	w.busy.Go(func() {
		job, err := t.Wait(w.ctx)
		w.ledger.answered(t, job, err)
		w.mu.Lock()
		defer w.mu.Unlock()
		wt.done = true
		w.waits = slices.DeleteFunc(w.waits, func(o *wait) bool { return o == wt })
	})
}

// living are the nodes that have not crashed.
func (w *world) living() []*node {
	var list []*node
	for _, n := range w.nodes {
		if n.alive() {
			list = append(list, n)
		}
	}
	return list
}

// anyNode chooses a node that has not crashed, nil if there is none.
func (w *world) anyNode(r *rand.Rand) *node {
	x := r.Uint64()
	if l := w.living(); len(l) > 0 {
		return l[x%uint64(len(l))]
	}
	return nil
}

// longest is how long, after the faults have ceased, the last job may take.
const longest = 4 * time.Hour

// settleDown ends the faults, undoes what keeps jobs from running, and lets the rest run
// to its end.
func (w *world) settleDown() {
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	w.note("", "", "the faults cease")
	w.advance(wall.Now().Add(recovery + time.Second))
	last := w.newNode(nodeConfig{concurrency: 3, grace: 5 * time.Second, types: workTypes})
	for _, n := range w.nodes {
		n.run()
	}
	entries, err := last.eng.Cron().List(w.ctx)
	w.checkError(last, "none", "list recurring entries", err)
	for _, e := range entries {
		w.checkError(last, "none", "remove a recurring entry", last.eng.Cron().Remove(w.ctx, e.Name))
	}
	for _, q := range queueNames {
		_, err := last.eng.Queues().Resume(w.ctx, q)
		w.checkError(last, "none", "resume", err)
	}
	for range 2 {
		w.employ(last, true)
	}
	for end := wall.Now().Add(longest); !w.failed(); {
		pending, left := w.ledger.left()
		for _, id := range pending {
			w.checkError(last, id, "activate", last.eng.Jobs().Activate(w.ctx, id))
		}
		if len(left) == 0 {
			return
		}
		if wall.Now().After(end) {
			for _, j := range left {
				w.broken(1, j.rec.ID, "%v after the faults have ceased it is %s", longest, j.rec.State)
			}
			return
		}
		w.advance(wall.Now().Add(10 * time.Second))
	}
}

// finish stops every engine.
func (w *world) finish() {
	var ends []<-chan struct{}
	for _, n := range w.nodes {
		if end := n.halt(); end != nil {
			ends = append(ends, end)
		}
	}
	for _, end := range ends {
		<-end
	}
}
