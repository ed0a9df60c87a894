package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
)

func (b *rig) cron(entries ...cron.Entry) {
	b.t.Helper()
	must(b.t, b.Cron().Set(b.ctx, entries...))
}

func (b *rig) entry(name string) cron.Entry {
	b.t.Helper()
	e, err := b.Cron().Get(b.ctx, name)
	must(b.t, err)
	return e
}

func TestCron(t *testing.T) {
	job := ojs.NewDraft("x", nil)
	t.Run("P1.1 E018 E020 jobs come when the schedule says, with the options of any job, and carry its name and time", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var meta []string
			b.handle("x", func(_ context.Context, job *ojs.Job[any]) error {
				meta = append(meta, fmt.Sprint(job.Meta["cron_name"], " ", job.Meta["cron_triggered_at"], " ",
					job.Queue, " ", job.MaxAttempts))
				return nil
			})
			b.run()
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"cron.*"}})
			defer sub.Close()
			b.cron(cron.Entry{Name: "hourly", Schedule: "0 * * * *",
				Job: ojs.NewDraft("x", nil, ojs.WithQueue("q"), ojs.WithMaxAttempts(5))})
			b.advance(150 * time.Minute)
			if got, want := b.times(), []time.Duration{time.Hour, 2 * time.Hour}; !reflect.DeepEqual(got,
				want) {
				t.Errorf("ran at %v, want %v", got, want)
			}
			if want := []string{
				"hourly 2000-01-01T01:00:00.000Z q 5", "hourly 2000-01-01T02:00:00.000Z q 5",
			}; !slices.Equal(meta, want) {
				t.Errorf("E018: %q", meta)
			}
			events := received(sub)
			if names(events) != "cron.triggered cron.triggered" || events[0].Subject != "hourly" ||
				events[0].Data()["scheduled_at"] != "2000-01-01T01:00:00Z" {
				t.Errorf("%+v", events)
			}
			e := b.entry("hourly")
			if e.Runs != 2 || !e.LastRun.Equal(b.start.Add(2*time.Hour)) ||
				!e.NextRun.Equal(b.start.Add(3*time.Hour)) ||
				b.job(e.LastJobID).State != ojs.StateCompleted || e.Job.Type() != "x" {
				t.Errorf("%+v", e)
			}
		})
	})
	t.Run("P1.1 a set of the same name replaces, and keeps the next run of the same schedule", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			b.handle("y", nothing)
			b.run()
			b.cron(cron.Entry{Name: "e", Schedule: "@every 10m", Job: job})
			b.advance(15 * time.Minute)
			b.cron(cron.Entry{Name: "e", Schedule: "@every 10m", Job: ojs.NewDraft("y", nil),
				Description: "new"})
			b.advance(5 * time.Minute)
			if got, want := b.times(),
				[]time.Duration{10 * time.Minute, 20 * time.Minute}; !reflect.DeepEqual(got, want) {
				t.Errorf("ran at %v, want %v", got, want)
			}
			if e := b.entry("e"); e.Runs != 2 || e.Description != "new" || !e.CreatedAt.Equal(b.start) ||
				b.job(e.LastJobID).Type != "y" {
				t.Errorf("%+v", e)
			}
			b.cron(cron.Entry{Name: "e", Schedule: "@every 1m", Job: job})
			b.advance(time.Minute)
			if e := b.entry("e"); e.Runs != 3 {
				t.Errorf("%+v", e)
			}
		})
	})
	t.Run("P1.1 pause, resume, remove", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			b.run()
			b.cron(cron.Entry{Name: "e", Schedule: "@every 1m", Job: job},
				cron.Entry{Name: "off", Schedule: "@every 1m", Job: job, Paused: true})
			b.advance(time.Minute)
			must(t, b.Cron().Pause(b.ctx, "e"))
			if e := b.entry("e"); !e.Paused || !e.NextRun.IsZero() {
				t.Errorf("%+v", e)
			}
			b.advance(time.Hour)
			must(t, b.Cron().Resume(b.ctx, "e"))
			b.advance(time.Minute)
			must(t, b.Cron().Remove(b.ctx, "e"))
			b.advance(time.Hour)
			if got, want := b.times(), []time.Duration{time.Minute, 62 * time.Minute}; !reflect.DeepEqual(got,
				want) {
				t.Errorf("ran at %v, want %v", got, want)
			}
			_, get := b.Cron().Get(b.ctx, "e")
			for _, err := range []error{get, b.Cron().Remove(b.ctx, "e"), b.Cron().Pause(b.ctx, "e"),
				b.Cron().Resume(b.ctx, "e")} {
				if !errors.Is(err, ojs.ErrNotFound) {
					t.Errorf("%v", err)
				}
			}
		})
	})
	t.Run("P1.1 an interval goes on after a pause as it began", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			b.run()
			e := cron.Entry{Name: "e", Schedule: "@every 10m", Job: job}
			b.cron(e)
			pause := func(resume func()) {
				b.advance(4 * time.Minute)
				must(t, b.Cron().Pause(b.ctx, "e"))
				b.advance(time.Minute)
				resume()
				b.advance(6 * time.Minute)
			}
			pause(func() { must(t, b.Cron().Resume(b.ctx, "e")) }) // before the first run, at 5m
			pause(func() { must(t, b.Cron().Resume(b.ctx, "e")) }) // at 16m
			pause(func() { b.cron(e) })                            // at 27m
			if got, want := b.times(),
				[]time.Duration{
					10 * time.Minute, 20 * time.Minute, 30 * time.Minute,
				}; !reflect.DeepEqual(got, want) {
				t.Errorf("ran at %v, want %v", got, want)
			}
			pause(func() { // at 38m; another interval begins anew
				e.Schedule = "@every 3m"
				b.cron(e)
			})
			if got, want := b.times()[3:],
				[]time.Duration{41 * time.Minute, 44 * time.Minute}; !reflect.DeepEqual(got, want) {
				t.Errorf("ran at %v, want %v", got, want)
			}
		})
	})
	t.Run("P1.1 overlap", func(t *testing.T) {
		for overlap, want := range map[cron.Overlap]string{
			"":                         "1m0s 3m0s 5m0s",
			cron.OverlapSkip:           "1m0s 3m0s 5m0s",
			cron.OverlapAllow:          "1m0s 2m0s 3m0s 4m0s 5m0s",
			cron.OverlapCancelPrevious: "1m0s 2m0s 3m0s 4m0s 5m0s",
			cron.OverlapEnqueue:        "1m0s 2m30s 4m0s",
		} {
			t.Run(string(overlap), func(t *testing.T) {
				inBubble(t, func(b *rig) {
					cancelled := 0
					b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
						select {
						case <-time.After(90 * time.Second):
						case <-ctx.Done():
							cancelled++
						}
						return nil
					})
					b.run()
					sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"cron.*"}})
					defer sub.Close()
					b.cron(cron.Entry{Name: "e", Schedule: "* * * * *", Job: job, Overlap: overlap})
					b.advance(5*time.Minute + 10*time.Second)
					var got []string
					for _, d := range b.times() {
						got = append(got, d.String())
					}
					if strings.Join(got, " ") != want {
						t.Errorf("ran at %v, want %s", got, want)
					}
					skipped := 0
					for _, ev := range received(sub) {
						if ev.Type == event.CronSkipped && ev.Reason == "overlap_skip" {
							skipped++
						}
					}
					if isSkip := overlap == "" || overlap == cron.OverlapSkip; isSkip != (skipped == 2) ||
						!isSkip && skipped > 0 {
						t.Errorf("%d skipped", skipped)
					}
					if (overlap == cron.OverlapCancelPrevious) != (cancelled == 4) {
						t.Errorf("%d cancelled", cancelled)
					}
				})
			})
		}
	})
	t.Run("P1.1 more than two waiting are warned of", func(t *testing.T) {
		var logged lockedBuffer
		inBubble(t, func(b *rig) {
			b.handle("x",
				func(ctx context.Context, _ *ojs.Job[any]) error { return handler.Sleep(ctx, time.Hour) })
			b.run()
			b.cron(cron.Entry{Name: "e", Schedule: "* * * * *", Job: job,
				Overlap: cron.OverlapEnqueue})
			b.advance(3 * time.Minute)
			if logged.String() != "" {
				t.Error(logged.String())
			}
			b.advance(time.Minute)
			if !strings.Contains(logged.String(), "pile up") {
				t.Errorf("no warning: %s", logged.String())
			}
			must(t, b.Cron().Remove(b.ctx, "e"))
			b.advance(5 * time.Hour)
		},
			engine.WithLogger(
				slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	})
	t.Run("P1.1 more than two waiting are warned of, among many jobs of their type", func(t *testing.T) {
		var logged lockedBuffer
		inBubble(t, func(b *rig) {
			for range 1100 { // more than a page of a listing
				must1(b.Enqueue(b.ctx, "x", nil))
			}
			b.run()
			b.cron(cron.Entry{Name: "e", Schedule: "* * * * *", Job: job,
				Overlap: cron.OverlapEnqueue})
			b.advance(4 * time.Minute)
			if !strings.Contains(logged.String(), "pile up") {
				t.Errorf("no warning: %s", logged.String())
			}
		},
			engine.WithLogger(
				slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	})
	t.Run("P1.1 one catch-up after missed runs, and the schedule goes on", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			b.cron(cron.Entry{Name: "e", Schedule: "0 * * * *", Job: job})
			b.advance(5*time.Hour + 30*time.Minute)
			b.run()
			b.advance(time.Hour)
			if got, want := b.times(),
				[]time.Duration{5*time.Hour + 30*time.Minute, 6 * time.Hour}; !reflect.DeepEqual(got, want) {
				t.Errorf("ran at %v, want %v", got, want)
			}
		})
	})
	t.Run("P1.1 a skipped hour does not fire and is told, a repeated one fires once", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			b.run()
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"cron.*"}})
			defer sub.Close()
			b.advance(time.Date(2000, 3, 24, 12, 0, 0, 0, time.UTC).Sub(b.start)) // forward on the 26th
			b.cron(cron.Entry{Name: "night", Schedule: "30 2 * * *",
				TimeZone: "Europe/Berlin", Job: job})
			b.advance(4 * 24 * time.Hour)
			b.advance(time.Until(time.Date(2000, 10, 27, 12, 0, 0, 0, time.UTC)))
			before := len(b.times())
			b.advance(4 * 24 * time.Hour) // back on the 29th
			var skipped []string
			for _, ev := range received(sub) {
				if ev.Type == event.CronSkipped {
					skipped = append(skipped, ev.Reason+" "+ev.Due.UTC().Format(time.DateTime))
				}
			}
			if want := []string{
				"dst_skip 2000-03-26 01:30:00", "dst_repeat 2000-10-29 01:30:00",
			}; !slices.Equal(skipped, want) {
				t.Errorf("skipped %v", skipped)
			}
			var got []string
			for _, d := range b.times()[before:] {
				got = append(got, b.start.Add(d).UTC().Format(time.DateTime))
			}
			if want := []string{
				"2000-10-28 00:30:00", "2000-10-29 00:30:00",
				"2000-10-30 01:30:00", "2000-10-31 01:30:00",
			}; !slices.Equal(got, want) {
				t.Errorf("ran at %v, want %v", got, want)
			}
		})
	})
	t.Run("P1.1 a skipped hour before the first run since a set, an update or a resume is told", func(t *testing.T) {
		e := cron.Entry{Name: "night", Schedule: "30 2 * * *", TimeZone: "Europe/Berlin", Job: job}
		for name, f := range map[string]func(b *rig){
			"set": func(b *rig) { b.cron(e) },
			"update": func(b *rig) {
				other := e
				other.Schedule = "@hourly"
				b.cron(other)
				b.cron(e)
				b.cron(e) // keeps the next run, and has nothing to tell
			},
			"resume": func(b *rig) {
				paused := e
				paused.Paused = true
				b.cron(paused)
				must(t, b.Cron().Resume(b.ctx, e.Name))
			},
		} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(b *rig) {
					b.handle("x", nothing)
					b.run()
					sub := b.Subscribe(engine.EventFilter{Types: []event.Type{event.CronSkipped}})
					defer sub.Close()
					b.advance(time.Date(2000, 3, 25, 12, 0, 0, 0, time.UTC).Sub(b.start)) // the day before
					f(b)
					b.advance(3 * 24 * time.Hour)
					var skipped []string
					for _, ev := range received(sub) {
						skipped = append(skipped, ev.Subject+" "+ev.Reason+" "+
							ev.Due.UTC().Format(time.DateTime))
					}
					if want := []string{"night dst_skip 2000-03-26 01:30:00"}; !slices.Equal(skipped, want) {
						t.Errorf("skipped %v, want %v", skipped, want)
					}
				})
			})
		}
	})
	t.Run("a run that cannot be enqueued is skipped", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"cron.*"}})
			defer sub.Close()
			b.run()
			b.cron(
				cron.Entry{Name: "a", Schedule: "@every 1m", Overlap: cron.OverlapAllow,
					Job: ojs.NewDraft("x", nil, ojs.WithUnique(ojs.UniquePolicy{}))},
				cron.Entry{Name: "b", Schedule: "@every 1m", Overlap: cron.OverlapAllow,
					Job: ojs.NewDraft("y", nil, ojs.WithQueue("small"))},
			)
			b.advance(2 * time.Minute)
			var got []string
			for _, ev := range received(sub) {
				got = append(got, ev.Subject+" "+ev.Reason)
			}
			if want := []string{"a ", "b ", "a duplicate", "b enqueue_failed"}; !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}, engine.WithQueueConfig("small", engine.QueueConfig{MaxDepth: 1, Overflow: engine.OverflowBlock}))
	})
	t.Run("P1.1 an entry names the last job that there was, which a later overlap minds", func(t *testing.T) {
		for name, tt := range map[string]struct {
			option ojs.Option
			deny   error
			reason string
		}{
			"queue full": {ojs.WithQueue("small"), nil, "enqueue_failed"},
			"duplicate":  {ojs.WithUnique(ojs.UniquePolicy{}), nil, "duplicate"},
			"ignored": {ojs.WithUnique(ojs.UniquePolicy{OnConflict: ojs.ConflictIgnore}), nil,
				"duplicate"},
			"refused": {ojs.WithPriority(1), errBoom, "enqueue_failed"},
			"dropped": {ojs.WithPriority(1), ojs.ErrDropped, "dropped"},
		} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(b *rig) {
					b.handle("x",
						func(ctx context.Context,
							_ *ojs.Job[any]) error {
							return handler.Sleep(ctx, 5*time.Hour)
						})
					b.run()
					sub := b.Subscribe(engine.EventFilter{Types: []event.Type{event.CronSkipped}})
					defer sub.Close()
					long := ojs.WithTimeout(24 * time.Hour)
					b.cron(cron.Entry{Name: "e", Schedule: "@hourly", Overlap: cron.OverlapAllow,
						Job: ojs.NewDraft("x", nil, long, tt.option)})
					b.advance(90 * time.Minute)
					first := b.entry("e").LastJobID
					b.advance(time.Hour)
					if e := b.entry("e"); e.Runs != 1 || !e.LastRun.Equal(b.start.Add(time.Hour)) ||
						e.LastJobID != first || !e.NextRun.Equal(b.start.Add(3*time.Hour)) {
						t.Errorf("%+v, want run %s", e, first)
					}
					b.cron(cron.Entry{Name: "e", Schedule: "@hourly", Overlap: cron.OverlapSkip,
						Job: ojs.NewDraft("x", nil, long)})
					b.advance(time.Hour)
					var skipped []string
					for _, ev := range received(sub) {
						skipped = append(skipped, ev.Reason)
					}
					if want := []string{tt.reason, "overlap_skip"}; !slices.Equal(skipped, want) ||
						len(b.times()) != 1 {
						t.Errorf("skipped %v, want %v; ran at %v", skipped, want, b.times())
					}
					must(t, b.Cron().Remove(b.ctx, "e"))
					b.advance(10 * time.Hour)
				}, engine.WithQueueConfig("default", engine.QueueConfig{}), engine.WithQueueConfig("small",
					engine.QueueConfig{MaxDepth: 1}),
					engine.WithEnqueueHook(func(_ context.Context, job *ojs.Job[any]) error {
						if job.Meta["cron_triggered_at"] == "2000-01-01T02:00:00.000Z" {
							return tt.deny
						}
						return nil
					}))
			})
		}
	})
	t.Run("P1.1 a job may be unique by the meta that its entry adds", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.run()
			unique := ojs.NewDraft("x", nil,
				ojs.WithUnique(ojs.UniquePolicy{MetaKeys: []string{"cron_name"}}))
			b.cron(
				cron.Entry{Name: "a", Schedule: "@every 1m", Overlap: cron.OverlapAllow, Job: unique},
				cron.Entry{Name: "b", Schedule: "@every 1m", Overlap: cron.OverlapAllow, Job: unique},
			)
			b.advance(2 * time.Minute)
			var of []string
			for job, err := range b.Jobs().List(b.ctx, inspect.Filter{}) {
				must(t, err)
				of = append(of, fmt.Sprint(job.Meta["cron_name"]))
			}
			if want := []string{"a", "b"}; !slices.Equal(of, want) {
				t.Errorf("jobs of %v, want %v", of, want)
			}
		})
	})
	t.Run("two engines on a storage fire each run once", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			other, err := engine.New[any](b.store, quiet)
			must(t, err)
			other.Handle("x", func(context.Context, *ojs.Job[any]) error { b.ran(); return nil })
			b.cron(cron.Entry{Name: "e", Schedule: "@every 1m", Job: job, Overlap: cron.OverlapAllow})
			ctx, cancel := context.WithCancel(b.ctx)
			done := make(chan error, 1)
			go func() { done <- other.Run(ctx) }()
			b.run()
			b.advance(10*time.Minute + time.Second)
			if n := len(b.times()); n != 10 || b.entry("e").Runs != 10 {
				t.Errorf("%d runs, %+v", n, b.entry("e"))
			}
			cancel()
			must(t, <-done)
		})
	})
	t.Run("bad entries are refused, and with them the others", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			good := cron.Entry{Name: "good", Schedule: "@daily", Job: job}
			for field, change := range map[string]func(*cron.Entry){
				"name":     func(e *cron.Entry) { e.Name = "Bad Name" },
				"schedule": func(e *cron.Entry) { e.Schedule = "* *" },
				"overlap":  func(e *cron.Entry) { e.Overlap = "never" },
				"id": func(e *cron.Entry) {
					e.Job = ojs.NewDraft("x", nil, ojs.WithID("01890a5d-ac96-774b-bcce-b302099a8057"))
				},
				"type":  func(e *cron.Entry) { e.Job = ojs.Draft{} },
				"queue": func(e *cron.Entry) { e.Job = ojs.NewDraft("x", nil, ojs.WithQueue("!")) },
				"args":  func(e *cron.Entry) { e.Job = ojs.NewDraft("x", func() {}) },
			} {
				bad := good
				bad.Name = "bad"
				change(&bad)
				wantInvalid(t, b.Cron().Set(b.ctx, good, bad), field)
			}
			for _, zone := range []string{"+02:00", "EST", "Japan", "Etc/GMT+5", "Mars/Olympus"} {
				wantInvalid(t,
					b.Cron().Set(b.ctx, cron.Entry{Name: "z", Schedule: "@daily", TimeZone: zone,
						Job: job}), "time_zone")
			}
			for _, schedule := range []string{"0,foo 3 * * *", "0 0 1 1 * 2020", "0 3 31 2 *"} {
				wantInvalid(t,
					b.Cron().Set(b.ctx, good,
						cron.Entry{Name: "s", Schedule: schedule, Job: job}), "schedule")
			}
			if list, err := b.Cron().List(b.ctx); err != nil || len(list) != 0 {
				t.Errorf("%+v, %v", list, err)
			}
		})
	})
	t.Run("P1.1 an entry that never comes from now on is refused, paused or not", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.advance(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Sub(b.start))
			// The second Sunday of March has no 2:30 in New York since 2007.
			e := cron.Entry{Name: "e", Schedule: "30 2 * 3 0#2", TimeZone: "America/New_York", Job: job}
			for _, e.Paused = range []bool{false, true} {
				err := b.Cron().Set(b.ctx, cron.Entry{Name: "good", Schedule: "@daily", Job: job}, e)
				wantInvalid(t, err, "schedule")
				want := `ojs: cron entry "e": ojs: invalid schedule: "30 2 * 3 0#2" never comes in America/New_York`
				if fmt.Sprint(err) != want {
					t.Errorf("got  %v\nwant %s", err, want)
				}
			}
			if list, err := b.Cron().List(b.ctx); err != nil || len(list) != 0 {
				t.Errorf("%+v, %v", list, err)
			}
		})
	})
	t.Run("P1.1 a stored entry that cannot run is told of once and keeps no other from running", func(t *testing.T) {
		var logged lockedBuffer
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			crons := b.store
			stored := storage.Cron{Name: "bad", Schedule: "x 3 * * *", Type: "x",
				Options: ojs.DefaultOptions(), NextRun: b.start}
			_, err := document.Of(crons).SetCrons(b.ctx, []storage.Cron{stored})
			must(t, err)
			b.cron(cron.Entry{Name: "good", Schedule: "@every 1s", Job: job})
			b.run()
			b.advance(3 * time.Minute)
			if n := strings.Count(logged.String(), "cannot run"); n != 1 ||
				!strings.Contains(logged.String(), `minute \"x\" is not`) {
				t.Errorf("told %d times: %s", n, logged.String())
			}
			if bad, good := b.entry("bad"), b.entry("good"); bad.Runs != 0 || good.Runs != 180 {
				t.Errorf("%+v, %+v", bad, good)
			}
			must(t, b.Cron().Remove(b.ctx, "good"))
			b.advance(2 * time.Second)
			if wake, _ := b.NextWake(); time.Until(wake) < 30*time.Second {
				t.Errorf("looked for again at %v", wake)
			}
			b.cron(cron.Entry{Name: "bad", Schedule: "0 * * * *", Job: job})
			b.advance(time.Hour)
			if bad := b.entry("bad"); bad.Runs != 1 {
				t.Errorf("%+v", bad)
			}
			must(t, b.Cron().Pause(b.ctx, "bad"))
			list, err := document.Of(crons).Crons(b.ctx, storage.DocumentQuery{})
			must(t, err)
			stored.Version, stored.Paused, stored.NextRun = list[0].Version, true, time.Time{}
			_, err = document.Of(crons).SetCrons(b.ctx, []storage.Cron{stored})
			must(t, err)
			wantInvalid(t, b.Cron().Resume(b.ctx, "bad"), "schedule")
		},
			engine.WithLogger(
				slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	})
	t.Run("P1.1 a stored entry that never comes again runs when it is due, and ends", func(t *testing.T) {
		var logged lockedBuffer
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			b.advance(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Sub(b.start))
			crons := b.store
			_, err := document.Of(crons).SetCrons(b.ctx, []storage.Cron{{Name: "e", Schedule: "30 2 * 3 0#2",
				TimeZone: "America/New_York", Type: "x",
				Options: ojs.DefaultOptions(), NextRun: time.Now().Add(time.Minute)}})
			must(t, err)
			b.run()
			b.advance(time.Hour)
			if e := b.entry("e"); e.Runs != 1 || !e.NextRun.IsZero() ||
				!strings.Contains(logged.String(), "never comes again") {
				t.Errorf("%+v: %s", e, logged.String())
			}
		},
			engine.WithLogger(
				slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	})
}

func TestCronSync(t *testing.T) {
	entry := func(name string) cron.Entry {
		return cron.Entry{Name: name, Schedule: "@every 1h", Job: ojs.NewDraft("x", nil)}
	}
	inBubble(t, func(b *rig) {
		b.cron(entry("other.daily"), entry("billing.old"), entry("billing.kept"), entry("billing"))
		names := func() string {
			list, err := b.Cron().List(b.ctx)
			must(t, err)
			var names []string
			for _, e := range list {
				names = append(names, e.Name)
			}
			return strings.Join(names, " ")
		}
		sync := func(prefix string, want string, entries ...cron.Entry) {
			t.Helper()
			removed, err := b.Cron().Sync(b.ctx, prefix, entries...)
			must(t, err)
			if got := strings.Join(removed, " "); got != want {
				t.Errorf("P1.1 removed %q, want %q", got, want)
			}
		}
		sync("billing.", "billing.old", entry("billing.kept"), entry("billing.new"))
		sync("billing.", "", entry("billing.new"), entry("billing.kept"))
		if got := names(); got != "billing billing.kept billing.new other.daily" {
			t.Errorf("P1.1 entries %s", got)
		}
		for what, entries := range map[string][]cron.Entry{
			"another prefix": {entry("billing.kept"), entry("other.daily")},
			"a bad schedule": {entry("billing.kept"),
				{Name: "billing.bad", Schedule: "* *", Job: ojs.NewDraft("x", nil)}},
			"a name twice": {entry("billing.a"), entry("billing.a")},
		} {
			if _, err := b.Cron().Sync(b.ctx, "billing.", entries...); !errors.Is(err, ojs.ErrInvalid) {
				t.Errorf("P1.1 %s: %v", what, err)
			}
		}
		if got := names(); got != "billing billing.kept billing.new other.daily" {
			t.Errorf("P1.1 a refused call has left %s", got)
		}
		must(t, b.Cron().Pause(b.ctx, "billing.kept"))
		sync("billing.", "", entry("billing.new"), entry("billing.kept"))
		if e := b.entry("billing.kept"); !e.Paused || !e.NextRun.IsZero() {
			t.Errorf("P1.1 a sync has ended a pause: %+v", e)
		}
		if e := b.entry("billing.new"); e.Paused {
			t.Errorf("P1.1 a sync has paused %+v", e)
		}
		sync("", "billing billing.kept billing.new other.daily")
	})
}
