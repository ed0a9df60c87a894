package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage/memory"
)

// ledger is an engine without a Run, and what its storage has to hold: a list of jobs
// that every look goes through.
type ledger struct {
	*rapid.T
	eng  *engine.Engine[any]
	jobs []*entry // by enqueue
}

type entry struct {
	id, queue, typ string
	state          ojs.State
	deleted        bool
}

func (l *ledger) act() {
	ctx := l.Context()
	if len(l.jobs) == 0 || rapid.IntRange(0, 2).Draw(l.T, "enqueue") == 0 {
		e := &entry{queue: rapid.SampledFrom([]string{"a", "b"}).Draw(l.T, "queue"),
			typ: rapid.SampledFrom([]string{"m.x", "m.y", "n"}).Draw(l.T, "type")}
		var opts []ojs.Option
		switch e.state = rapid.SampledFrom([]ojs.State{
			ojs.StateAvailable, ojs.StateScheduled, ojs.StatePending,
		}).Draw(l.T, "state"); e.state {
		case ojs.StateScheduled:
			opts = append(opts, ojs.WithDelay(time.Hour))
		case ojs.StatePending:
			opts = append(opts, ojs.WithPending())
		}
		ticket, err := l.eng.Enqueue(ctx, e.typ, nil, append(opts, ojs.WithQueue(e.queue))...)
		if err != nil {
			l.Fatal(err)
		}
		e.id = ticket.ID
		l.jobs = append(l.jobs, e)
		return
	}
	e := rapid.SampledFrom(l.jobs).Draw(l.T, "job")
	var err error
	var legal bool
	switch what := rapid.SampledFrom([]string{
		"cancel", "delete", "activate", "reschedule", "priority", "fail",
	}).Draw(l.T, "what"); what {
	case "cancel":
		if legal = e.state.Waiting() || e.state == ojs.StateCancelled; legal && !e.deleted {
			e.state = ojs.StateCancelled
		}
		err = l.eng.Cancel(ctx, e.id)
	case "delete":
		err = l.eng.Jobs().Delete(ctx, e.id)
		if legal = e.state.Terminal(); legal && !e.deleted {
			e.deleted = true
			if err != nil {
				l.Fatal(err)
			}
			return
		}
	case "activate":
		if legal = e.state == ojs.StatePending; legal && !e.deleted {
			e.state = ojs.StateAvailable
		}
		err = l.eng.Jobs().Activate(ctx, e.id)
	case "reschedule":
		if legal = e.state == ojs.StateAvailable || e.state == ojs.StateScheduled; legal && !e.deleted {
			e.state = ojs.StateScheduled
		}
		err = l.eng.Jobs().Reschedule(ctx, e.id, time.Now().Add(2*time.Hour))
	case "priority":
		legal = e.state == ojs.StateAvailable || e.state == ojs.StateScheduled
		err = l.eng.Jobs().SetPriority(ctx, e.id, rapid.IntRange(-5, 5).Draw(l.T, "priority"))
	case "fail": // by way of a worker
		if e.state != ojs.StateAvailable || e.deleted {
			return
		}
		d, err := l.eng.Worker("w", fetch.Config{}).Fetch(ctx)
		if err != nil {
			l.Fatal(err)
		}
		if err := d.Fail(ctx, ojs.DeadLetter(errBoom)); err != nil {
			l.Fatal(err)
		}
		for _, other := range l.jobs {
			if other.id == d.Job.ID {
				other.state = ojs.StateDiscarded
			}
		}
		return
	}
	if want := legal && !e.deleted; (err == nil) != want {
		l.Fatalf("job %+v: %v, legal %v", e, err, want)
	}
}

func (l *ledger) filter() (inspect.Filter, func(*entry) bool) {
	f := inspect.Filter{
		States: rapid.SliceOfNDistinct(rapid.SampledFrom(ojs.AllStates()), 0, 4,
			rapid.ID[ojs.State]).Draw(l.T, "states"),
		Queues: rapid.SampledFrom([][]string{nil, {"a"}, {"a", "b"}}).Draw(l.T, "queues"),
		Types:  rapid.SampledFrom([][]string{nil, {"m.*"}, {"n"}, {"m.x", "n*"}}).Draw(l.T, "types"),
	}
	return f, func(e *entry) bool {
		return !e.deleted && (len(f.States) == 0 || slices.Contains(f.States, e.state)) && (f.Queues == nil ||
			slices.Contains(f.Queues, e.queue)) &&
			(f.Types == nil || slices.ContainsFunc(f.Types, func(p string) bool {
				prefix, cut := strings.CutSuffix(p, "*")
				return cut && strings.HasPrefix(e.typ, prefix) || p == e.typ
			}))
	}
}

func newLedger(t *rapid.T) *ledger {
	eng, err := engine.New[any](memory.New(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{T: t, eng: eng}
	for range rapid.IntRange(0, 12).Draw(t, "jobs") {
		l.act()
	}
	return l
}

// Pages list each job that is selected throughout exactly once and in order, even if jobs
// change between pages. They list no job that is never selected.
func TestPagesUnderChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger(t)
		f, selected := l.filter()
		throughout, ever := make(map[string]bool), make(map[string]bool)
		look := func(first bool) {
			for _, e := range l.jobs {
				if selected(e) {
					throughout[e.id] = first || throughout[e.id]
					ever[e.id] = true
				} else {
					throughout[e.id] = false
				}
			}
		}
		look(true)
		var got []string
		cursor := ""
		for {
			page, err := l.eng.Jobs().Page(t.Context(), f, cursor, rapid.IntRange(1, 4).Draw(t, "limit"))
			if err != nil {
				t.Fatal(err)
			}
			for _, job := range page.Jobs {
				got = append(got, job.ID)
			}
			if cursor = page.Next; cursor == "" {
				break
			}
			for range rapid.IntRange(0, 4).Draw(t, "changes") {
				l.act()
				look(false)
			}
		}
		at := -1
		for _, id := range got {
			i := slices.IndexFunc(l.jobs, func(e *entry) bool { return e.id == id })
			if i <= at || !ever[id] {
				t.Fatalf("listed %v, out of order, twice, or never selected", got)
			}
			at = i
		}
		for id, is := range throughout {
			if is && !slices.Contains(got, id) {
				t.Fatalf("%s was selected throughout and is not in %v", id, got)
			}
		}
	})
}

// Stats count what is there, and operations on many do to each what the operation on one
// does.
func TestStatsAndBulkAgreeWithAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger(t)
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			l.act()
			f, selected := l.filter()
			states, to := []ojs.State{ojs.StateScheduled, ojs.StateAvailable, ojs.StatePending,
				ojs.StateRetryable}, ojs.StateCancelled
			do := operate.CancelJobs()
			switch rapid.IntRange(0, 2).Draw(t, "operation") {
			case 0:
				states, to = []ojs.State{ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded}, ""
				do = operate.DeleteJobs()
			case 1:
				states, to = []ojs.State{ojs.StateDiscarded}, ojs.StateAvailable
				do = operate.RetryJobs()
			}
			named := len(f.States) > 0
			f.States = slices.DeleteFunc(slices.Clone(f.States),
				func(s ojs.State) bool { return !slices.Contains(states, s) })
			if named && len(f.States) == 0 {
				continue
			}
			var want []operate.Result
			for _, e := range l.jobs {
				if !selected(e) || !slices.Contains(states, e.state) ||
					len(f.States) > 0 && !slices.Contains(f.States, e.state) {
					continue
				}
				want = append(want, operate.Result{ID: e.id})
				if e.state = to; to == "" {
					e.deleted = true
				}
			}
			if !named { // or ids would select jobs in any state
				f.States = states
			}
			got, err := results(l.eng.Jobs().Apply(t.Context(), operate.Bulk{Do: do, On: f}))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%+v: %v, %v, want %v", f, got, err, want)
			}
			counts := make(map[string]map[ojs.State]int)
			total := make(map[ojs.State]int)
			for _, e := range l.jobs {
				if !e.deleted {
					if counts[e.queue] == nil {
						counts[e.queue] = make(map[ojs.State]int)
					}
					counts[e.queue][e.state]++
					total[e.state]++
				}
			}
			stats, err := l.eng.Stats(t.Context())
			if err != nil || !maps.Equal(stats.Total, total) || len(stats.Queues) != len(counts) {
				t.Fatalf("%+v, %v, want %v", stats, err, counts)
			}
			for _, q := range stats.Queues {
				if !maps.Equal(q.Counts, counts[q.Name]) {
					t.Fatalf("%+v, want %v", q, counts[q.Name])
				}
			}
		}
	})
}

// While jobs come and go, an operation on many does each of those that are there
// throughout once.
func TestBulkBesideOthers(t *testing.T) {
	eng, err := engine.New[any](newMemory(t), quiet)
	must(t, err)
	ctx := t.Context()
	var there []string
	for range 3000 {
		ticket, err := eng.Enqueue(ctx, "there", nil)
		must(t, err)
		there = append(there, ticket.ID)
	}
	stop := make(chan struct{})
	var others sync.WaitGroup
	for g := range 3 {
		others.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				ticket, err := eng.Enqueue(ctx, "passing", nil, ojs.WithQueue(fmt.Sprint("q", g)))
				if err == nil {
					err = eng.Cancel(ctx, ticket.ID)
				}
				if err == nil {
					err = eng.Jobs().Delete(ctx, ticket.ID)
				}
				if err != nil && !errors.Is(err, ojs.ErrTransition) && !errors.Is(err, ojs.ErrNotFound) &&
					!errors.Is(err, ojs.ErrPruned) {
					t.Error(err)
				}
			}
		})
	}
	for _, do := range []operate.Action{operate.CancelJobs(), operate.DeleteJobs()} {
		results, err := results(eng.Jobs().Apply(ctx, operate.Bulk{Do: do}))
		must(t, err)
		done := make(map[string]int)
		for _, r := range results {
			if done[r.ID]++; done[r.ID] > 1 {
				t.Errorf("job %s twice", r.ID)
			}
			if r.Err != nil && !errors.Is(r.Err, ojs.ErrTransition) && !errors.Is(r.Err, ojs.ErrNotFound) &&
				!errors.Is(r.Err, ojs.ErrPruned) {
				t.Error(r.Err)
			}
		}
		for _, id := range there {
			if done[id] != 1 {
				t.Fatalf("job %s, there throughout, %d times", id, done[id])
			}
		}
	}
	close(stop)
	others.Wait()
	if stats, err := eng.Stats(ctx); err != nil || len(stats.Total) != 0 {
		t.Errorf("left %+v, %v", stats.Total, err)
	}
}
