package engine_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// history is what Runs says of an entry, the latest run first.
func (b *rig) history(name string) string {
	b.t.Helper()
	runs, err := b.Cron().Runs(b.ctx, name)
	must(b.t, err)
	var texts []string
	for _, r := range runs {
		text := fmt.Sprint(r.Due.Sub(b.start), " ", r.State, r.Skipped)
		if r.Manual {
			text += " by hand"
		}
		if (r.JobID == "") != (r.Skipped != "") {
			b.t.Errorf("%s: job %q, skipped %q", text, r.JobID, r.Skipped)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

func (b *rig) wantHistory(name, want string) {
	b.t.Helper()
	if got := b.history(name); got != want {
		b.t.Errorf("the last runs:\ngot  %s\nwant %s", got, want)
	}
}

// sleeps is a handler that takes its time.
func sleeps(d time.Duration) func(context.Context, *ojs.Job[any]) error {
	return func(ctx context.Context, _ *ojs.Job[any]) error { return handler.Sleep(ctx, d) }
}

func TestCronTrigger(t *testing.T) {
	job := ojs.NewDraft("x", nil)
	t.Run("a run by hand changes nothing of the schedule", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			b.run()
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"cron.*"}})
			defer sub.Close()
			b.cron(cron.Entry{Name: "e", Schedule: "@every 1h", Job: job})
			b.advance(20 * time.Minute)
			ticket, err := b.Cron().Trigger(b.ctx, "e")
			must(t, err)
			b.advance(50 * time.Minute)
			if want := []time.Duration{20 * time.Minute, time.Hour}; !slices.Equal(b.times(), want) {
				t.Errorf("ran at %v, want %v", b.times(), want)
			}
			m := b.job(ticket.ID).Meta
			if m["cron_name"] != "e" || m["cron_triggered_at"] != "2000-01-01T00:20:00.000Z" {
				t.Errorf("%v", m)
			}
			if told := strings.Join(cronEvents(sub),
				", "); told != "cron.triggered  00:20:00, cron.triggered  01:00:00" {
				t.Error(told)
			}
			b.wantHistory("e", "1h0m0s completed, 20m0s completed by hand")
			if e := b.entry("e"); e.Runs != 2 || !e.NextRun.Equal(b.start.Add(2*time.Hour)) {
				t.Errorf("%+v", e)
			}
			must(t, b.Cron().Pause(b.ctx, "e"))
			must1(b.Cron().Trigger(b.ctx, "e"))
			b.advance(time.Minute)
			e := b.entry("e")
			if e.Runs != 3 || !e.NextRun.IsZero() || !e.LastRun.Equal(b.start.Add(70*time.Minute)) {
				t.Errorf("%+v", e)
			}
			if _, err := b.Cron().Trigger(b.ctx, "none"); !errors.Is(err, ojs.ErrNotFound) {
				t.Error(err)
			}
		})
	})
	t.Run("an overlap is minded, and a run that is refused leaves the run before", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", sleeps(90*time.Minute))
			b.run()
			long := ojs.NewDraft("x", nil, ojs.WithTimeout(3*time.Hour))
			b.cron(cron.Entry{Name: "e", Schedule: "@every 1h", Job: long})
			b.advance(61 * time.Minute)
			first := b.entry("e").LastJobID
			var dup *ojs.DuplicateError
			_, err := b.Cron().Trigger(b.ctx, "e")
			if !errors.As(err, &dup) || dup.ID != first || dup.State != ojs.StateActive {
				t.Errorf("%v", err)
			}
			b.wantHistory("e", "1h0m0s active")
			e := cron.Entry{Name: "e", Schedule: "@every 1h", Overlap: cron.OverlapAllow}
			e.Job = ojs.NewDraft("x", nil, ojs.WithUnique(ojs.UniquePolicy{}))
			b.cron(e)
			must1(b.Cron().Trigger(b.ctx, "e"))
			b.advance(0)
			second := b.entry("e").LastJobID
			if _, err := b.Cron().Trigger(b.ctx, "e"); !errors.As(err, &dup) || dup.ID != second {
				t.Errorf("%v", err)
			}
			if e := b.entry("e"); e.LastJobID != second || e.Runs != 2 {
				t.Errorf("%+v, want job %s", e, second)
			}
			b.wantHistory("e", "1h1m0s duplicate by hand, 1h1m0s active by hand, 1h0m0s active")
			e.Overlap, e.Job = cron.OverlapCancelPrevious, job
			b.cron(e)
			must1(b.Cron().Trigger(b.ctx, "e"))
			if s := b.job(second).State; s != ojs.StateCancelled {
				t.Errorf("the run before is %s", s)
			}
			b.advance(2 * time.Hour)
		})
	})
	t.Run("an entry that changes meanwhile is run as it is then", func(t *testing.T) {
		s := &storagetest.Faulty{Storage: memory.New()}
		inBubbleOn(t, s, func(b *rig) {
			e := cron.Entry{Name: "e", Schedule: "@every 1h", Job: job}
			b.cron(e)
			once(s, func(c *storagetest.Call) {
				e.Job = ojs.NewDraft("y", nil)
				b.cron(e)
				c.Do()
			})
			ticket, err := b.Cron().Trigger(b.ctx, "e")
			must(t, err)
			if got := b.job(ticket.ID).Type; got != "y" || b.entry("e").Runs != 1 {
				t.Errorf("ran %s, %+v", got, b.entry("e"))
			}
		})
	})
}

func TestCronHistory(t *testing.T) {
	t.Run("the last ten runs are remembered, with the ends of jobs that are gone", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			n := 0
			b.handle("x", func(context.Context, *ojs.Job[any]) error {
				if n++; n%2 == 0 {
					return errBoom
				}
				return nil
			})
			b.run()
			once := ojs.NewDraft("x", nil, ojs.WithMaxAttempts(1))
			b.cron(cron.Entry{Name: "e", Schedule: "@every 1m", Job: once})
			b.advance(3*time.Minute + time.Second)
			for job, err := range b.Jobs().List(b.ctx, inspect.Filter{}) {
				must(t, err)
				must(t, b.Jobs().Delete(b.ctx, job.ID))
			}
			b.wantHistory("e", "3m0s , 2m0s discarded, 1m0s completed")
			b.advance(time.Minute)
			b.wantHistory("e", "4m0s discarded, 3m0s , 2m0s discarded, 1m0s completed")
			b.advance(8 * time.Minute)
			if n := len(strings.Split(b.history("e"), ", ")); n != 10 {
				t.Errorf("%d runs remembered, want 10", n)
			}
		})
	})
	t.Run("skipped runs are told", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", sleeps(90*time.Second))
			b.run()
			b.cron(cron.Entry{Name: "e", Schedule: "@every 1m", Job: ojs.NewDraft("x", nil)})
			b.advance(3*time.Minute + time.Second)
			b.wantHistory("e", "3m0s active, 2m0s overlap_skip, 1m0s completed")
			if n := b.entry("e").Runs; n != 2 { // without the one that was skipped
				t.Errorf("%d runs, want 2", n)
			}
			b.advance(time.Hour)
		})
	})
}

func TestCronMissed(t *testing.T) {
	minutes := func(list ...time.Duration) []time.Duration {
		for i := range list {
			list[i] *= time.Minute
		}
		return list
	}
	type entry = cron.Entry
	skip := entry{Missed: cron.MissedSkip}
	all := entry{Missed: cron.MissedAll, Overlap: cron.OverlapAllow}
	two, five := all, all
	two.MissedLimit, five.MissedLimit, five.Overlap = 2, 5, cron.OverlapEnqueue
	for name, tt := range map[string]struct {
		entry entry
		down  time.Duration
		ran   []time.Duration
		due   string // of the jobs, and of what is skipped
	}{
		"once":           {entry{}, 330 * time.Minute, minutes(330, 360), "1 6"},
		"none":           {skip, 330 * time.Minute, minutes(360), "missed:1 6"},
		"none, but late": {skip, 5*time.Hour + 59*time.Second, minutes(300, 360), "missed:1 5 6"},
		"none, on time":  {skip, time.Hour + 59*time.Second, minutes(60, 120), "1 2"},
		"none, too late": {skip, time.Hour + time.Minute, minutes(120), "missed:1 2"},
		"all":            {all, 330 * time.Minute, minutes(330, 330, 330, 330, 330, 360), "1 2 3 4 5 6"},
		"all up to two":  {two, 330 * time.Minute, minutes(330, 330, 360), "missed:1 4 5 6"},
		"all up to five": {five, 330 * time.Minute, minutes(330, 330, 330, 330, 330, 360), "1 2 3 4 5 6"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				var due []string
				b.handle("x", func(_ context.Context, job *ojs.Job[any]) error {
					at, err := time.Parse(time.RFC3339Nano, job.Meta["cron_triggered_at"].(string))
					must(t, err)
					due = append(due, fmt.Sprint(at.Sub(b.start).Hours()))
					return nil
				})
				sub := b.Subscribe(engine.EventFilter{Types: []event.Type{event.CronSkipped}})
				defer sub.Close()
				e := tt.entry
				e.Name, e.Schedule, e.Job = "e", "@hourly", ojs.NewDraft("x", nil)
				b.cron(e)
				b.advance(tt.down)
				b.run()
				b.advance(tt.down.Truncate(time.Hour) + time.Hour + time.Second - tt.down)
				for _, ev := range received(sub) {
					due = slices.Insert(due, 0, fmt.Sprintf("%s:%v", ev.Reason, ev.Due.Sub(b.start).Hours()))
				}
				ran := b.times()
				for i := range ran {
					ran[i] = ran[i].Truncate(time.Minute)
				}
				if got := strings.Join(due, " "); got != tt.due || !slices.Equal(ran, tt.ran) {
					t.Errorf("runs for %s at %v\nwant     %s at %v", got, ran, tt.due, tt.ran)
				}
			}, engine.WithConcurrency(1)) // so that runs that are due together start in order
		})
	}
	t.Run("an interval, over very many runs", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			e := all
			e.Name, e.Schedule, e.MissedLimit, e.Job = "e", "@every 1s", 3, ojs.NewDraft("x", nil)
			b.cron(e)
			b.advance(365*24*time.Hour + time.Second/2)
			b.run()
			b.advance(time.Second)
			b.wantHistory("e",
				"8760h0m1s completed, 8760h0m0s completed, 8759h59m59s completed, 8759h59m58s completed")
		})
	})
	t.Run("refused", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			for field, e := range map[string]cron.Entry{
				"missed":       {Missed: "never"},
				"missed_limit": {MissedLimit: 101},
			} {
				e.Name, e.Schedule, e.Job = "e", "@hourly", ojs.NewDraft("x", nil)
				wantInvalid(t, b.Cron().Set(b.ctx, e), field)
			}
			e := entry{Name: "e", Schedule: "@hourly", Job: ojs.NewDraft("x", nil), Missed: cron.MissedAll}
			for _, e.Overlap = range []cron.Overlap{"", cron.OverlapCancelPrevious} {
				wantInvalid(t, b.Cron().Set(b.ctx, e), "missed")
			}
		})
	})
}

func TestCronRunOnStart(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("x", nothing)
		e := cron.Entry{Name: "e", Schedule: "@hourly", RunOnStart: true, Job: ojs.NewDraft("x", nil)}
		b.cron(e)
		b.run() // a new entry
		b.cron(e)
		b.advance(90 * time.Minute)
		b.halt()
		b.run() // at 1h30m
		b.advance(time.Minute - time.Second)
		b.halt()
		b.run() // a crash soon after
		b.advance(time.Second)
		b.halt()
		b.run() // at 1h31m
		must(t, b.Cron().Pause(b.ctx, "e"))
		b.halt()
		b.advance(2 * time.Minute)
		b.run() // a paused entry stays paused
		b.advance(time.Hour)
		must(t, b.Cron().Resume(b.ctx, "e"))
		want := []time.Duration{0, time.Hour, 90 * time.Minute, 91 * time.Minute}
		if got := b.times(); !slices.Equal(got, want) {
			t.Errorf("ran at %v, want %v", got, want)
		}
		e.Missed = cron.MissedSkip
		b.cron(e)
		b.halt()
		b.advance(150 * time.Minute)
		b.run() // 5h3m: what was missed is skipped, and the start is not
		b.advance(0)
		if got := b.times()[4:]; !slices.Equal(got, []time.Duration{303 * time.Minute}) {
			t.Errorf("ran at %v", got)
		}
	})
	t.Run("a run that is due since less than a minute is the start's", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			e := cron.Entry{Name: "e", Schedule: "@hourly", RunOnStart: true, Missed: cron.MissedSkip}
			e.Job = ojs.NewDraft("x", nil)
			b.cron(e)
			b.run()
			b.halt()
			b.advance(time.Hour + 30*time.Second)
			b.run()
			b.advance(time.Second)
			runs := must1(b.Cron().Runs(b.ctx, "e"))
			if len(runs) != 2 || !runs[0].Due.Equal(b.start.Add(time.Hour)) {
				t.Errorf("%+v", runs)
			}
		})
	})
	t.Run("engines that start together make one run", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			b.cron(cron.Entry{Name: "e", Schedule: "@hourly", RunOnStart: true,
				Overlap: cron.OverlapAllow, Job: ojs.NewDraft("x", nil)})
			b.run()
			b.advance(5 * time.Minute)
			b.halt()
			other := must1(engine.New[any](b.store, quiet))
			ctx, cancel := context.WithCancel(b.ctx)
			done := make(chan error, 1)
			go func() { done <- other.Run(ctx) }()
			b.run()
			b.advance(time.Second)
			if e := b.entry("e"); e.Runs != 2 {
				t.Errorf("%+v", e)
			}
			cancel()
			must(t, <-done)
		})
	})
	t.Run("a storage that fails is asked again", func(t *testing.T) {
		s := &storagetest.Faulty{Storage: memory.New()}
		inBubbleOn(t, s, func(b *rig) {
			b.handle("x", nothing)
			e := cron.Entry{Name: "e", Schedule: "0 3 * * *", RunOnStart: true}
			e.Job = ojs.NewDraft("x", nil)
			b.cron(e)
			b.run()
			b.halt()
			b.advance(5 * time.Minute)
			failed := false
			s.OnCall(func(c *storagetest.Call) {
				if c.Method == "Documents cron" && !failed {
					failed = true
					c.Err = errStorage
				}
			})
			b.run()
			b.advance(time.Minute)
			if got := b.times(); len(got) != 2 || got[1] > 6*time.Minute {
				t.Errorf("ran at %v", got)
			}
		})
	})
}

func TestCronTemplate(t *testing.T) {
	type report struct{ From, To string }
	inBubble(t, func(b *rig) {
		var mu sync.Mutex
		var args []string
		b.handle("x", func(_ context.Context, job *ojs.Job[any]) error {
			text, err := json.Marshal(job.Args)
			mu.Lock()
			defer mu.Unlock()
			args = append(args, string(text))
			return err
		})
		b.run()
		e := cron.Entry{Name: "e", Schedule: "0 3 * * *", TimeZone: "Europe/Berlin", Template: true,
			Job: ojs.NewDraft("x", report{"{run-1d:2006-01-02}", "{run}"})}
		plain := cron.Entry{Name: "plain", Schedule: e.Schedule, TimeZone: e.TimeZone}
		plain.Job = ojs.NewDraft("x", "{run}")
		b.cron(e, plain)
		b.advance(3 * time.Hour)
		must1(b.Cron().Trigger(b.ctx, "e"))
		b.advance(time.Second)
		want := []string{
			`"{run}"`,
			`{"From":"1999-12-31","To":"2000-01-01T03:00:00+01:00"}`,
			`{"From":"1999-12-31","To":"2000-01-01T04:00:00+01:00"}`,
		}
		if slices.Sort(args); !slices.Equal(args, want) { // the first two ran at the same instant
			t.Errorf("got  %s\nwant %s", args, want)
		}
		if got := b.entry("e"); !got.Template {
			t.Errorf("%+v", got)
		}
		e.Job = ojs.NewDraft("x", report{From: "{run -1d}"})
		wantInvalid(t, b.Cron().Set(b.ctx, e), "args")
	})
}

// A run of nearly 25 minutes skips the 24 that come due beside it, though Runs shows ten.
func TestCronOverlapBeyondTheHistory(t *testing.T) {
	inBubble(t, func(b *rig) {
		running, most := 0, 0
		b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
			running++
			most = max(most, running)
			defer func() { running-- }()
			return handler.Sleep(ctx, 24*time.Minute+30*time.Second)
		})
		b.run()
		b.cron(cron.Entry{Name: "e", Schedule: "* * * * *", Job: ojs.NewDraft("x", nil)})
		b.advance(20*time.Minute + time.Second)
		var dup *ojs.DuplicateError
		first := b.entry("e").LastJobID
		if _, err := b.Cron().Trigger(b.ctx, "e"); !errors.As(err, &dup) || dup.ID != first {
			t.Errorf("a run by hand beside job %s: %v", first, err)
		}
		b.advance(100 * time.Minute)
		want := []time.Duration{time.Minute, 26 * time.Minute, 51 * time.Minute, 76 * time.Minute,
			101 * time.Minute}
		if got := b.times(); !slices.Equal(got, want) || most != 1 {
			t.Errorf("ran at %v, %d at once; want %v, one at once", got, most, want)
		}
	})
}

// The runs that wait are cancelled, more than Runs shows. The next one waits for the run
// that is active all the same.
func TestCronOverlapEnqueueBeyondTheHistory(t *testing.T) {
	inBubble(t, func(b *rig) {
		running, most := 0, 0
		b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
			running++
			most = max(most, running)
			defer func() { running-- }()
			return handler.Sleep(ctx, 25*time.Minute)
		})
		b.run()
		b.cron(cron.Entry{Name: "e", Schedule: "* * * * *", Overlap: cron.OverlapEnqueue,
			Job: ojs.NewDraft("x", nil)})
		b.advance(15*time.Minute + time.Second)
		for job, err := range b.Jobs().List(b.ctx, inspect.Filter{States: []ojs.State{ojs.StatePending}}) {
			must(t, err)
			must(t, b.Cancel(b.ctx, job.ID))
		}
		b.advance(15 * time.Minute)
		want := []time.Duration{time.Minute, 26 * time.Minute}
		if got := b.times(); !slices.Equal(got, want) || most != 1 {
			t.Errorf("ran at %v, %d at once; want %v, one at once", got, most, want)
		}
	})
}

// The run of one engine waits for that of another.
func TestCronOverlapEnqueueAcrossEngines(t *testing.T) {
	inBubble(t, func(b *rig) {
		running, most := 0, 0
		work := func(context.Context, *ojs.Job[any]) error {
			b.ran()
			running++
			most = max(most, running)
			pace.Virtual(150 * time.Second)
			running--
			return nil
		}
		b.Handle("x", work)
		other := must1(engine.New[any](b.store, quiet))
		other.Handle("x", work)
		e := cron.Entry{Name: "e", Schedule: "@every 1m", Overlap: cron.OverlapEnqueue}
		e.Job = ojs.NewDraft("x", nil)
		b.cron(e)
		ctx, cancel := context.WithCancel(b.ctx)
		done := make(chan error, 1)
		go func() { done <- other.Run(ctx) }()
		b.run()
		b.advance(4*time.Minute + time.Second)
		// The third run is cancelled while the second runs and the fourth waits for both.
		runs := must1(b.Cron().Runs(b.ctx, "e"))
		if len(runs) != 4 || runs[0].State != ojs.StatePending || runs[2].State != ojs.StateActive {
			t.Errorf("%+v", runs)
		}
		must(t, b.Cancel(b.ctx, runs[1].JobID))
		must(t, b.Cron().Pause(b.ctx, "e"))
		b.advance(20 * time.Minute)
		want := []time.Duration{time.Minute, 210 * time.Second, 6 * time.Minute}
		if got := b.times(); !slices.Equal(got, want) || most != 1 {
			t.Errorf("ran at %v, %d at once; want %v, one at once", got, most, want)
		}
		cancel()
		must(t, <-done)
	})
}

// One of the jobs that a run would wait for is deleted when the run's job is stored. The
// run waits for the others.
func TestCronOverlapEnqueueLosesPrevious(t *testing.T) {
	for open, want := range map[int]ojs.State{1: ojs.StateRetryable, 2: ojs.StatePending} {
		s := &storagetest.Faulty{Storage: memory.New()}
		inBubbleOn(t, s, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error { return errors.New("no") })
			e := cron.Entry{Name: "e", Schedule: "@every 1m", Overlap: cron.OverlapAllow}
			retry := ojs.RetryPolicy{MaxAttempts: 2, InitialInterval: 5 * time.Minute}
			e.Job = ojs.NewDraft("x", nil, ojs.WithRetry(retry))
			b.cron(e)
			b.run()
			b.advance(time.Duration(open)*time.Minute + 30*time.Second)
			e.Overlap = cron.OverlapEnqueue
			b.cron(e)
			first := must1(b.Cron().Runs(b.ctx, "e"))[open-1].JobID
			var once sync.Once
			s.OnCall(func(c *storagetest.Call) {
				if c.Method == "Insert" {
					once.Do(func() {
						must(t, b.Cancel(b.ctx, first))
						must(t, b.Jobs().Delete(b.ctx, first))
					})
				}
			})
			b.advance(time.Minute)
			runs := must1(b.Cron().Runs(b.ctx, "e"))
			if len(runs) != open+1 || runs[0].State != want || runs[open].State != "" {
				t.Errorf("%d open: %+v", open, runs)
			}
		})
	}
}

// An engine that another one was ahead of goes on with the next run.
func TestCronOfAnotherEngineGoesOn(t *testing.T) {
	s := &storagetest.Faulty{Storage: memory.New()}
	inBubbleOn(t, s, func(b *rig) {
		b.handle("x", nothing)
		e := cron.Entry{Name: "e", Schedule: "@every 1m", Overlap: cron.OverlapAllow}
		e.Job = ojs.NewDraft("x", nil)
		b.cron(e)
		other := must1(engine.New[any](s.Storage, quiet))
		b.run()
		var once sync.Once
		s.OnCall(func(c *storagetest.Call) {
			if c.Method == "PutDocuments cron" {
				once.Do(func() { must1(other.Cron().Trigger(b.ctx, "e")) })
			}
		})
		b.advance(2*time.Minute + time.Second)
		b.wantHistory("e", "2m0s completed, 1m0s completed, 1m0s completed by hand")
	})
}

func TestCronSetKeepsNextRun(t *testing.T) {
	inBubble(t, func(b *rig) {
		e := cron.Entry{Name: "e", Schedule: "0 12 * * *", TimeZone: "UTC", Job: ojs.NewDraft("x", nil)}
		for _, tt := range []struct {
			schedule, zone string
			want           time.Duration
		}{
			{"@every 1h", "UTC", time.Hour},
			{"@every 1h", "UTC", time.Hour},
			{"0 12 * * *", "UTC", 12 * time.Hour},
			{"0 12 * * *", "Europe/Berlin", 11 * time.Hour},
		} {
			e.Schedule, e.TimeZone = tt.schedule, tt.zone
			b.cron(e)
			if got := b.entry("e").NextRun.Sub(b.start); got != tt.want {
				t.Errorf("%s %s: next run after %v, want %v", tt.schedule, tt.zone, got, tt.want)
			}
			b.advance(time.Minute)
		}
	})
}

func TestCronNext(t *testing.T) {
	inBubble(t, func(b *rig) {
		// The clock is put forward on the 26th, and back on 29 October.
		b.advance(time.Date(2000, 3, 25, 12, 0, 0, 0, time.UTC).Sub(b.start))
		job := ojs.NewDraft("x", nil)
		b.cron(cron.Entry{Name: "night", Schedule: "30 2 * * *", TimeZone: "Europe/Berlin", Job: job},
			cron.Entry{Name: "every", Schedule: "@every 90m", Job: job},
			cron.Entry{Name: "paused", Schedule: "@every 90m", Job: job, Paused: true})
		next := func(name string, n int) string {
			times, err := b.Cron().Next(b.ctx, name, n)
			must(t, err)
			var texts []string
			for _, at := range times {
				texts = append(texts, strings.TrimSpace(at.At.Format("01-02 15:04 -0700 ")+at.Skipped))
			}
			return strings.Join(texts, ", ")
		}
		for _, tt := range []struct {
			name string
			n    int
			want string
		}{
			{"night", 2, "03-26 03:30 +0200 dst_skip, 03-27 02:30 +0200, 03-28 02:30 +0200"},
			{"every", 3, "03-25 13:30 +0000, 03-25 15:00 +0000, 03-25 16:30 +0000"},
			{"paused", 3, ""},
		} {
			if got := next(tt.name, tt.n); got != tt.want {
				t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
			}
		}
		b.advance(time.Until(time.Date(2000, 10, 28, 12, 0, 0, 0, time.UTC)))
		b.cron(cron.Entry{Name: "half", Schedule: "*/30 2 * * *", TimeZone: "Europe/Berlin", Job: job})
		want := "10-29 02:00 +0200, 10-29 02:30 +0200, 10-29 02:00 +0100 dst_repeat, 10-29 02:30 +0100 dst_repeat, 10-30 02:00 +0100"
		if got := next("half", 3); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if _, err := b.Cron().Next(b.ctx, "none", 1); !errors.Is(err, ojs.ErrNotFound) {
			t.Error(err)
		}
		for _, n := range []int{0, 1001} {
			_, err := b.Cron().Next(b.ctx, "night", n)
			wantInvalid(t, err, "n")
		}
	})
}

// A run that the clock swallows is among the runs with its reason once its time has come,
// and takes place at the change if the entry says so.
func TestCronGap(t *testing.T) {
	at := func(b *rig, day int, clock time.Duration) time.Duration { // of 2000, in UTC
		return time.Duration(day-1)*24*time.Hour + clock
	}
	const hour, minute = time.Hour, time.Minute
	for _, tt := range []struct {
		schedule, zone string
		gap            cron.Gap
		day            int // of the year, of the change
		want           []time.Duration
		history        string
	}{
		{"30 2 * * *", "Europe/Berlin", "", 86,
			[]time.Duration{-hour * 24, hour * 23}, "dst_skip 0s"},
		{"30 2 * * *", "Europe/Berlin", cron.GapRun, 86,
			[]time.Duration{-hour * 24, -30 * minute, hour * 23}, ""},
		{"@daily", "Africa/Cairo", cron.GapSkip, 119,
			[]time.Duration{-hour * 24, hour * 23}, "dst_skip 0s"},
		{"@daily", "Africa/Cairo", cron.GapRun, 119,
			[]time.Duration{-hour * 24, 0, hour * 23}, ""},
	} {
		t.Run(fmt.Sprint(tt.schedule, " ", tt.zone, " ", tt.gap), func(t *testing.T) {
			inBubble(t, func(b *rig) {
				swallowed := at(b, tt.day, 90*minute) // 3:30 of summer time, for 2:30
				if tt.zone == "Africa/Cairo" {
					swallowed = at(b, tt.day, -2*hour)
				}
				b.handle("x", nothing)
				b.advance(swallowed - 30*hour)
				b.run()
				b.cron(cron.Entry{Name: "e", Schedule: tt.schedule, TimeZone: tt.zone, Gap: tt.gap,
					Job: ojs.NewDraft("x", nil)})
				b.advance(24 * hour)
				for _, r := range must1(b.Cron().Runs(b.ctx, "e")) {
					if r.Skipped != "" {
						t.Errorf("before its time: %+v", r)
					}
				}
				b.advance(30 * hour)
				var got []time.Duration
				for _, d := range b.times() {
					got = append(got, d-swallowed)
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("ran %v from the swallowed time, want %v", got, tt.want)
				}
				var skipped []string
				for _, r := range must1(b.Cron().Runs(b.ctx, "e")) {
					if r.Skipped != "" {
						skipped = append(skipped, fmt.Sprint(r.Skipped, " ", r.Due.Sub(b.start)-swallowed))
					}
				}
				if strings.Join(skipped, ", ") != tt.history {
					t.Errorf("the runs have %q, want %q", skipped, tt.history)
				}
				if e := b.entry("e"); e.Gap != cmp.Or(tt.gap, cron.GapSkip) {
					t.Errorf("the entry has %q", e.Gap)
				}
			})
		})
	}
	t.Run("one of many stands for all, and a changed entry has none", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			b.advance(at(b, 86, 59*minute))
			b.run()
			e := cron.Entry{Name: "e", Schedule: "*/10 2-3 * * *", TimeZone: "Europe/Berlin",
				Job: ojs.NewDraft("x", nil)}
			b.cron(e)
			b.advance(2 * minute)
			b.wantHistory("e", fmt.Sprint(at(b, 86, hour), " completed, ", at(b, 86, hour), " dst_skip"))
			e.Schedule, e.Gap = "30 2 * * *", "at once"
			wantInvalid(t, b.Cron().Set(b.ctx, e), "gap")
		})
	})
}
