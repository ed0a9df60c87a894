package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
)

// uniqueRig tells the stories of unique jobs.
type uniqueRig struct{ *rig }

// add enqueues a job and returns the result: "new", "rejected" or "ignored", with the
// equal job's id for the last two.
func (b uniqueRig) add(jobType string, args any, opts ...ojs.Option) (what, id string) {
	b.t.Helper()
	ticket, err := b.Enqueue(b.ctx, jobType, args, opts...)
	var dup *ojs.DuplicateError
	switch {
	case errors.As(err, &dup):
		if !errors.Is(err, ojs.ErrDuplicate) || len(dup.Fingerprint) != 64 || dup.State == "" {
			b.t.Errorf("C042 C043: %+v", dup)
		}
		if strings.Contains(err.Error(), dup.Fingerprint) {
			b.t.Errorf("C112: %v", err)
		}
		return "rejected", dup.ID
	case err != nil:
		return err.Error(), ""
	case ticket.Deduplicated:
		return "ignored", ticket.ID
	}
	return "new", ticket.ID
}

func (b uniqueRig) expect(rule, want, wantID string, jobType string, args any, opts ...ojs.Option) string {
	b.t.Helper()
	what, id := b.add(jobType, args, opts...)
	if what != want || wantID != "" && id != wantID {
		b.t.Errorf("%s: %s (job %s), want %s (job %s)", rule, what, id, want, wantID)
	}
	return id
}

func unique(p ojs.UniquePolicy) ojs.Option { return ojs.WithUnique(p) }

type user struct {
	ID     int    `json:"user_id"`
	Locale string `json:"locale,omitempty"`
}

var byUser = ojs.UniquePolicy{Keys: ojs.ByArgs, ArgsKeys: []string{"user_id"}}

func with(p ojs.UniquePolicy, change func(*ojs.UniquePolicy)) ojs.Option {
	change(&p)
	return ojs.WithUnique(p)
}

// An error or a ticket that names an equal job has its state.
func TestUniqueTellsTheState(t *testing.T) {
	for state, bring := range map[ojs.State][]ojs.Option{
		ojs.StateAvailable: {ojs.WithQueue("paused")},
		ojs.StateScheduled: {ojs.WithDelay(time.Hour)},
		ojs.StatePending:   {ojs.WithPending()},
		ojs.StateActive:    {ojs.WithMeta("do", "wait")},
		ojs.StateRetryable: {ojs.WithMeta("do", "fail")},
		ojs.StateCompleted: nil,
		ojs.StateCancelled: {ojs.WithMeta("do", "wait")},
		ojs.StateDiscarded: {ojs.WithMeta("do", "fail"), ojs.WithMaxAttempts(1)},
	} {
		t.Run("C043 C055 "+string(state), func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.Handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
					switch job.Meta["do"] {
					case "wait":
						<-ctx.Done()
					case "fail":
						return errBoom
					}
					return nil
				})
				must1(b.Queues().Pause(b.ctx, "paused"))
				b.run()
				p := ojs.UniquePolicy{States: ojs.AllStates()}
				first := b.enqueue("x", append(bring, ojs.WithUnique(p))...)
				b.advance(0)
				if state == ojs.StateCancelled {
					must(t, b.Cancel(b.ctx, first.ID))
				}
				if job := b.job(first.ID); job.State != state {
					t.Fatalf("the first is %s", job.State)
				}
				_, err := b.Enqueue(b.ctx, "x", nil, ojs.WithUnique(p))
				var dup *ojs.DuplicateError
				if !errors.As(err, &dup) || dup.ID != first.ID || dup.State != state {
					t.Errorf("C043 rejected: %+v, %v", dup, err)
				}
				p.OnConflict = ojs.ConflictIgnore
				ticket := b.enqueue("x", ojs.WithUnique(p))
				if ticket.ID != first.ID || ticket.State != state || !ticket.Deduplicated {
					t.Errorf("C055 ignored: %+v", ticket)
				}
			})
		})
	}
}

// An engine logs no fingerprint above DEBUG, in any state of a unique job.
func TestFingerprintsAreNotLogged(t *testing.T) {
	var logged lockedBuffer
	inBubble(t, func(b *rig) {
		b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
		b.run()
		prints := make(map[string]bool)
		stored := func() {
			for job, err := range b.Jobs().List(b.ctx, inspect.Filter{}) {
				must(t, err)
				rec, err := b.store.Get(b.ctx, job.ID)
				must(t, err)
				prints[rec.Fingerprint] = true
			}
		}
		for _, how := range []ojs.Conflict{ojs.ConflictReject, ojs.ConflictIgnore, ojs.ConflictReplace,
			ojs.ConflictReplaceExceptSchedule} {
			for _, opts := range [][]ojs.Option{nil, {ojs.WithDelay(time.Hour)}} {
				opts = append(opts, ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs, OnConflict: how}))
				for range 3 {
					_, err := b.Enqueue(b.ctx, "fail", string(how), opts...)
					if err != nil && !errors.Is(err, ojs.ErrDuplicate) {
						t.Fatal(err)
					}
					stored()
				}
			}
		}
		b.advance(2 * time.Hour)
		_, err := results(b.Jobs().Apply(b.ctx, operate.Bulk{Do: operate.RetryJobs()}))
		must(t, err)
		b.advance(time.Hour)
		if len(prints) != 4 {
			t.Fatalf("%d fingerprints", len(prints))
		}
		all, debug := 0, 0
		for line := range strings.Lines(logged.String()) {
			all++
			if strings.Contains(line, "level=DEBUG") {
				debug++
				continue
			}
			for fp := range prints {
				if strings.Contains(line, fp) {
					t.Errorf("C112 above DEBUG: %s", line)
				}
			}
		}
		if debug == 0 || debug == all {
			t.Errorf("%d lines, %d of them at DEBUG", all, debug)
		}
	},
		engine.WithLogger(
			slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))))
}

// The eleven scenarios of OJS unique jobs, section 14.
func TestUniqueScenarios(t *testing.T) {
	scenario := func(name string, f func(b uniqueRig)) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				b := uniqueRig{r}
				b.Handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
				b.Handle("fails", func(context.Context, *ojs.Job[any]) error { return errBoom })
				f(b)
			})
		})
	}
	all := ojs.UniquePolicy{Keys: ojs.ByArgs}
	scenario("C121 1 basic deduplication", func(b uniqueRig) {
		first := b.expect("C041 C044", "new", "", "x", 1, unique(all))
		b.expect("C041 C044", "rejected", first, "x", 1, unique(all))
	})
	scenario("C122 2 args keys", func(b uniqueRig) {
		first := b.expect("C023", "new", "", "x", user{42, "de"}, unique(byUser))
		b.expect("C023", "rejected", first, "x", user{42, "en"}, unique(byUser))
		b.expect("C098", "new", "", "x", user{99, "de"}, unique(byUser))
	})
	scenario("C123 3 the period elapses", func(b uniqueRig) {
		short := with(all, func(p *ojs.UniquePolicy) { p.Period = time.Minute })
		first := b.expect("", "new", "", "x", 1, short)
		b.advance(time.Minute - 1)
		b.expect("C068", "rejected", first, "x", 1, short)
		b.advance(1)
		b.expect("C065 C066", "new", "", "x", 1, short)
	})
	scenario("C124 4 a completed job does not block", func(b uniqueRig) {
		b.run()
		first := b.expect("", "new", "", "x", 1, unique(all))
		b.advance(0)
		b.want(first, ojs.StateCompleted, 1)
		b.expect("C059", "new", "", "x", 1, unique(all))
	})
	scenario("C125 5 unless the states say so", func(b uniqueRig) {
		b.run()
		also := with(all, func(p *ojs.UniquePolicy) { p.States = ojs.AllStates() })
		first := b.expect("", "new", "", "x", 1, also)
		b.advance(0)
		b.want(first, ojs.StateCompleted, 1)
		b.expect("C060 C062", "rejected", first, "x", 1, also)
	})
	scenario("C126 6 replace", func(b uniqueRig) {
		sub := b.Subscribe(engine.EventFilter{Types: jobEvents})
		defer sub.Close()
		replace := with(all, func(p *ojs.UniquePolicy) { p.OnConflict = ojs.ConflictReplace })
		first := b.expect("", "new", "", "x", 1, replace)
		second := b.expect("C045", "new", "", "x", 1, replace)
		if job := b.want(first, ojs.StateCancelled, 0); job.FinishedAt.IsZero() {
			t.Error("C046: no time")
		}
		b.want(second, ojs.StateAvailable, 0)
		if got := names(received(sub)); got != "enqueued cancelled enqueued" {
			t.Errorf("C046: events %s", got)
		}
	})
	scenario("C127 7 ignore", func(b uniqueRig) {
		ignore := with(all, func(p *ojs.UniquePolicy) { p.OnConflict = ojs.ConflictIgnore })
		first := b.expect("", "new", "", "x", 1, ignore)
		b.expect("C053 C054 C055", "ignored", first, "x", 1, ignore)
		if got := b.listed(inspect.Filter{}); !slices.Equal(got, []string{first}) {
			t.Errorf("stored %v", got)
		}
	})
	scenario("C128 8 queue scope", func(b uniqueRig) {
		byQueue := unique(ojs.UniquePolicy{Keys: ojs.ByQueue})
		first := b.expect("", "new", "", "x", 1, byQueue, ojs.WithQueue("a"))
		b.expect("C020", "new", "", "x", 1, byQueue, ojs.WithQueue("b"))
		b.expect("C020", "rejected", first, "x", 2, byQueue, ojs.WithQueue("a"))
	})
	scenario("C129 9 an invalid policy", func(b uniqueRig) {
		_, err := b.Enqueue(b.ctx, "x", 1, unique(ojs.UniquePolicy{Keys: ojs.ByMeta}))
		wantInvalid(t, err, "unique.meta_keys")
		if got := b.listed(inspect.Filter{}); got != nil {
			t.Errorf("stored %v", got)
		}
	})
	scenario("C130 10 a job that waits for its retry counts", func(b uniqueRig) {
		b.run()
		first := b.expect("", "new", "", "fails", 1, unique(all), noJitter)
		b.advance(0)
		b.want(first, ojs.StateRetryable, 1)
		b.expect("C093", "rejected", first, "fails", 1, unique(all))
	})
	scenario("C131 11 concurrent enqueues", func(b uniqueRig) {
		const n = 100
		results := make(chan string, n)
		var start, done sync.WaitGroup
		start.Add(1)
		for range n {
			done.Go(func() {
				start.Wait()
				what, _ := b.add("x", 1, unique(all))
				results <- what
			})
		}
		start.Done()
		done.Wait()
		close(results)
		count := make(map[string]int)
		for what := range results {
			count[what]++
		}
		if count["new"] != 1 || count["rejected"] != n-1 {
			t.Errorf("C074 C075 C090: %v", count)
		}
	})
}

func TestUnique(t *testing.T) {
	story := func(name string, f func(b uniqueRig), opts ...engine.Option) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) { f(uniqueRig{r}) }, opts...)
		})
	}
	all := ojs.UniquePolicy{Keys: ojs.ByArgs}
	story("C003 reading 29 without a policy there is no check, and such a job never blocks", func(b uniqueRig) {
		b.expect("", "new", "", "x", 1)
		b.expect("", "new", "", "x", 1)
		first := b.expect("", "new", "", "x", 1, unique(all))
		b.expect("", "new", "", "x", 1)
		b.expect("", "rejected", first, "x", 1, unique(all))
	})
	story("reading 29 the new job's policy is asked", func(b uniqueRig) {
		first := b.expect("", "new", "", "x", 1,
			with(all, func(p *ojs.UniquePolicy) { p.Period = time.Second }))
		b.advance(time.Hour)
		b.expect("C067", "rejected", first, "x", 1, unique(all))
		b.expect("C066", "new", "", "x", 1, with(all, func(p *ojs.UniquePolicy) { p.Period = time.Hour }))
	})
	story("reading 30 of several the newest is named", func(b uniqueRig) {
		narrow := with(all, func(p *ojs.UniquePolicy) { p.States = []ojs.State{ojs.StateScheduled} })
		b.expect("", "new", "", "x", 1, narrow)
		b.advance(time.Second)
		second := b.expect("C064", "new", "", "x", 1, narrow)
		b.expect("", "rejected", second, "x", 1, unique(all))
		b.expect("", "ignored", second, "x", 1,
			with(all, func(p *ojs.UniquePolicy) { p.OnConflict = ojs.ConflictIgnore }))
	})
	story("C064 states decide", func(b uniqueRig) {
		b.Handle("x", func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return nil })
		b.run()
		scheduled := with(all, func(p *ojs.UniquePolicy) { p.States = []ojs.State{ojs.StateScheduled} })
		running := b.expect("", "new", "", "x", 1, scheduled)
		b.advance(0)
		b.want(running, ojs.StateActive, 1)
		later := b.expect("C064 C057", "new", "", "x", 1, scheduled, ojs.WithDelay(time.Hour))
		b.expect("C064", "rejected", later, "x", 1, scheduled)
		must(t, b.Cancel(b.ctx, running))
	})
	story("C058 reading 35 the five states that have not ended block, the others do not", func(b uniqueRig) {
		dead := func(context.Context, *ojs.Job[any]) error { return ojs.DeadLetter(errBoom) }
		b.Handle("discarded", dead)
		b.Handle("completed", nothing)
		b.Handle("active", func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return nil })
		b.Handle("retryable", func(context.Context, *ojs.Job[any]) error { return errBoom })
		b.run()
		for _, state := range ojs.AllStates() {
			var opts []ojs.Option
			switch state {
			case ojs.StateScheduled, ojs.StateCancelled:
				opts = append(opts, ojs.WithDelay(time.Hour))
			case ojs.StatePending:
				opts = append(opts, ojs.WithPending())
			}
			first := b.expect("", "new", "", string(state), 1, append(opts, unique(all), noJitter)...)
			b.advance(0)
			if state == ojs.StateCancelled {
				must(t, b.Cancel(b.ctx, first))
			}
			if job := b.job(first); job.State != state {
				t.Fatalf("%s, want %s", job.State, state)
			}
			if state.Terminal() {
				b.expect("C059 "+string(state), "new", "", string(state), 1, append(opts, unique(all))...)
			} else {
				b.expect("C058 "+string(state), "rejected", first, string(state), 1,
					append(opts, unique(all))...)
			}
		}
	})
	story("C094 C095 C096 a retry does not check again, and the end of the job lets another one in", func(b uniqueRig) {
		b.Handle("x", func(context.Context, *ojs.Job[any]) error { return errBoom })
		b.run()
		a := b.expect("", "new", "", "x", 1, unique(all), noJitter, ojs.WithMaxAttempts(2))
		b.advance(0)
		b.expect("C096", "rejected", a, "x", 1, unique(all))
		// A job that its own check does not refuse is stored beside it. The retry is not
		// affected.
		beside := b.expect("", "new", "", "x", 1,
			with(all, func(p *ojs.UniquePolicy) { p.States = []ojs.State{ojs.StatePending} }),
			ojs.WithDelay(time.Minute))
		b.advance(time.Second)
		b.want(a, ojs.StateDiscarded, 2)
		must(t, b.Cancel(b.ctx, beside))
		b.expect("C095", "new", "", "x", 1, unique(all), ojs.WithDelay(time.Hour))
		also := with(all, func(p *ojs.UniquePolicy) { p.States = []ojs.State{ojs.StateDiscarded} })
		b.expect("C095", "rejected", a, "x", 1, also)
	})
	story("C047 reading 31 replace cancels a running job, and its late result is refused", func(b uniqueRig) {
		causes := make(chan error, 1)
		b.Handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
			if job.Meta["n"] == 1.0 {
				<-ctx.Done()
				causes <- context.Cause(ctx)
			}
			return nil
		})
		b.run()
		replace := with(all, func(p *ojs.UniquePolicy) { p.OnConflict = ojs.ConflictReplace })
		first := b.expect("", "new", "", "x", 7, replace, ojs.WithMeta("n", 1))
		b.advance(0)
		b.want(first, ojs.StateActive, 1)
		second := b.expect("C047 C091", "new", "", "x", 7, replace)
		b.advance(time.Second)
		if cause := <-causes; cause != ojs.ErrReplaced {
			t.Errorf("cause %v", cause)
		}
		b.want(first, ojs.StateCancelled, 1)
		b.want(second, ojs.StateCompleted, 1)
	})
	story("reading 31 replace takes a worker's job away", func(b uniqueRig) {
		replace := with(all, func(p *ojs.UniquePolicy) { p.OnConflict = ojs.ConflictReplace })
		b.expect("", "new", "", "x", 1, replace)
		d := fetched(b.rig, b.Worker("w", fetch.Config{}))
		b.expect("", "new", "", "x", 1, replace)
		if err := d.Ack(b.ctx, nil); !errors.Is(err, ojs.ErrLeaseLost) {
			t.Errorf("%v", err)
		}
	})
	story("reading 32 replace leaves what has ended", func(b uniqueRig) {
		b.Handle("x", nothing)
		b.run()
		p := with(all,
			func(p *ojs.UniquePolicy) { p.OnConflict, p.States = ojs.ConflictReplace, ojs.AllStates() })
		first := b.expect("", "new", "", "x", 1, p)
		b.advance(0)
		before := b.job(first)
		b.expect("", "new", "", "x", 1, p)
		if after := b.want(first, ojs.StateCompleted, 1); !after.FinishedAt.Equal(before.FinishedAt) {
			t.Error("it was touched")
		}
	})
	story("reading 30 replace cancels all that match, and whoever waits is told", func(b uniqueRig) {
		none := with(all, func(p *ojs.UniquePolicy) { p.States = []ojs.State{ojs.StateDiscarded} })
		var olds []string
		for range 3 {
			olds = append(olds, b.expect("", "new", "", "x", 1, none))
		}
		ended := make(chan error, 1)
		go func() { _, err := b.Wait(b.ctx, olds[0]); ended <- err }()
		b.advance(0)
		b.expect("", "new", "", "x", 1,
			with(all, func(p *ojs.UniquePolicy) { p.OnConflict = ojs.ConflictReplace }))
		for _, id := range olds {
			b.want(id, ojs.StateCancelled, 0)
		}
		var end *ojs.EndedError
		if err := <-ended; !errors.As(err, &end) || end.State != ojs.StateCancelled {
			t.Errorf("%v", err)
		}
	})
	story("C050 C052 C102 reading 33 replace_except_schedule changes a scheduled job in place", func(b uniqueRig) {
		sub := b.Subscribe(engine.EventFilter{Types: jobEvents})
		defer sub.Close()
		p := with(ojs.UniquePolicy{},
			func(p *ojs.UniquePolicy) { p.OnConflict = ojs.ConflictReplaceExceptSchedule })
		first := b.expect("", "new", "", "digest.send", "old", p, ojs.WithDelay(time.Hour),
			ojs.WithMeta("v", 1))
		was := b.job(first)
		b.advance(time.Minute)
		b.expect("C052 C102", "ignored", first, "digest.send", "new", p, ojs.WithDelay(2*time.Hour),
			ojs.WithMeta("w", 2))
		is := b.want(first, ojs.StateScheduled, 0)
		if is.Args.String() != `"new"` || is.Meta["w"] != 2.0 || is.Meta["v"] != nil ||
			!is.ScheduledAt.Equal(was.ScheduledAt) || !is.CreatedAt.Equal(was.CreatedAt) {
			t.Errorf("%+v", is)
		}
		if got := names(received(sub)); got != "enqueued scheduled" {
			t.Errorf("events %s", got)
		}
	})
	story("C051 and in any other state replaces", func(b uniqueRig) {
		p := with(ojs.UniquePolicy{},
			func(p *ojs.UniquePolicy) { p.OnConflict = ojs.ConflictReplaceExceptSchedule })
		first := b.expect("", "new", "", "x", 1, p)
		second := b.expect("", "new", "", "x", 2, p, ojs.WithDelay(time.Hour))
		b.want(first, ojs.StateCancelled, 0)
		b.want(second, ojs.StateScheduled, 0)
	})
	story("reading 38 two equal jobs of one batch conflict", func(b uniqueRig) {
		d := func(v any, p ojs.Option) ojs.Draft { return ojs.NewDraft("x", v, p) }
		if _, err := b.EnqueueMany(b.ctx, d(1, unique(all)), d(2, unique(all)),
			d(1, unique(all))); !errors.Is(err, ojs.ErrDuplicate) {
			t.Errorf("%v", err)
		}
		if got := b.listed(inspect.Filter{}); got != nil {
			t.Errorf("a part of the batch was stored: %v", got)
		}
		ignore := with(all, func(p *ojs.UniquePolicy) { p.OnConflict = ojs.ConflictIgnore })
		tickets, err := b.EnqueueMany(b.ctx, d(1, ignore), d(2, ignore), d(1, ignore))
		if err != nil || tickets[2].ID != tickets[0].ID || !tickets[2].Deduplicated ||
			tickets[0].Deduplicated || len(b.listed(inspect.Filter{})) != 2 {
			t.Errorf("%+v, %v", tickets, err)
		}
		replace := with(all, func(p *ojs.UniquePolicy) { p.OnConflict = ojs.ConflictReplace })
		tickets, err = b.EnqueueMany(b.ctx, d(9, replace), d(9, replace))
		must(t, err)
		b.want(tickets[0].ID, ojs.StateCancelled, 0)
		b.want(tickets[1].ID, ojs.StateAvailable, 0)
		ignoring := with(all, func(p *ojs.UniquePolicy) { p.OnConflict = ojs.ConflictIgnore })
		old := tickets[1].ID
		tickets, err = b.EnqueueMany(b.ctx, d(9, ignoring), d(8, replace), d(9, replace), d(8, replace),
			d(9, replace), d(7, replace))
		must(t, err)
		var states []ojs.State
		for _, ticket := range tickets {
			states = append(states, ticket.State)
			if job := b.job(ticket.ID); job.State != ticket.State {
				t.Errorf("C045 a ticket says %s, its job is %s", ticket.State, job.State)
			}
		}
		if want := []ojs.State{
			"cancelled", "cancelled", "cancelled", "available", "available", "available",
		}; !slices.Equal(states, want) || tickets[0].ID != old {
			t.Errorf("C045 the tickets say %v, want %v", states, want)
		}
	})
	story("C065 a month is the calendar's", func(b uniqueRig) {
		monthly := unique(ojs.UniquePolicy{PeriodMonths: 1}) // the bubble begins on 1 January 2000
		b.advance(30 * 24 * time.Hour)
		first := b.expect("", "new", "", "x", 1, monthly) // 31 January
		b.advance(29*24*time.Hour - 1)
		b.expect("", "rejected", first, "x", 1, monthly)
		b.advance(1)
		b.expect("", "new", "", "x", 1, monthly) // 29 February
	})
	story("P0.9 the fingerprint is that of what hooks have made of the job", func(b uniqueRig) {
		first := b.expect("", "new", "", "x", 1, unique(all))
		b.expect("", "rejected", first, "x", 2, unique(all))
	}, engine.WithEnqueueHook(func(_ context.Context,
		job *ojs.Job[any]) error {
		job.Args = "same"
		return nil
	}))
	story("C104 the wire form, at the top and among the options", func(b uniqueRig) {
		var first string
		for i, text := range []string{
			`{"type":"x","args":[{"user_id":1,"n":1}],"unique":{"keys":["type","args"],"args_keys":["user_id"]}}`,
			`{"type":"x","args":[{"n":2,"user_id":1.0}],"options":{"unique":{"keys":["args"],"args_keys":["user_id"]}}}`,
		} {
			d, err := ojs.ParseDraft([]byte(text))
			must(t, err)
			tickets, err := b.EnqueueMany(b.ctx, d)
			var dup *ojs.DuplicateError
			switch {
			case i == 0:
				must(t, err)
				first = tickets[0].ID
			case !errors.As(err, &dup) || dup.ID != first:
				t.Errorf("%v", err)
			}
		}
		raw, err := json.Marshal(b.job(first))
		if err != nil ||
			!strings.Contains(string(raw), `"unique":{"keys":["type","args"],"args_keys":["user_id"]}`) {
			t.Errorf("%s, %v", raw, err)
		}
	})
	story("C020 C074 a job that is retried with another queue or meta is equal to others there", func(b uniqueRig) {
		p := unique(ojs.UniquePolicy{Keys: ojs.ByQueue | ojs.ByArgs | ojs.ByMeta,
			MetaKeys: []string{"tenant"}})
		tenant := func(name string) ojs.Option { return ojs.WithMeta("tenant", name) }
		retries := []func(context.Context, string, ...ojs.Option) error{b.DeadLetters().Retry, b.Jobs().Retry}
		for i, retry := range retries {
			for k, to := range [][]ojs.Option{{ojs.WithQueue("b"), tenant("1")},
				{ojs.WithQueue("a"), tenant("2")}} {
				args := 2*i + k
				from := []ojs.Option{p, ojs.WithQueue("a"), tenant("1")}
				first := b.expect("", "new", "", "x", args, from...)
				must(t, fetched(b.rig, b.Worker("w", fetch.Config{Queues: []string{"a"}})).Fail(b.ctx,
					ojs.DeadLetter(errBoom)))
				must(t, retry(b.ctx, first, to...))
				b.expect("C020 C074", "rejected", first, "x", args, append(to, p)...)
				b.expect("C020", "rejected", b.expect("C020", "new", "", "x", args, from...), "x",
					args, from...)
				must(t, fetched(b.rig, b.Worker("w", fetch.Config{})).Ack(b.ctx, nil))
				must(t, fetched(b.rig, b.Worker("w", fetch.Config{})).Ack(b.ctx, nil))
			}
		}
	})
	story("a retry is not checked, whatever it makes the job equal to", func(b uniqueRig) {
		p := unique(ojs.UniquePolicy{Keys: ojs.ByQueue})
		first := b.expect("", "new", "", "x", 1, p, ojs.WithQueue("a"))
		must(t, fetched(b.rig, b.Worker("w", fetch.Config{})).Fail(b.ctx, ojs.DeadLetter(errBoom)))
		b.expect("", "new", "", "x", 1, p, ojs.WithQueue("b"))
		must(t, b.DeadLetters().Retry(b.ctx, first, ojs.WithQueue("b")))
		b.want(first, ojs.StateAvailable, 0)
	})
	story("a retry with options keeps what counts of its meta as it was given", func(b uniqueRig) {
		p := unique(ojs.UniquePolicy{MetaKeys: []string{"n"}})
		n := ojs.WithMeta("n", int64(1)<<53+1)
		first := b.expect("", "new", "", "x", 1, p, n)
		must(t, fetched(b.rig, b.Worker("w", fetch.Config{})).Fail(b.ctx, ojs.DeadLetter(errBoom)))
		must(t, b.DeadLetters().Retry(b.ctx, first, ojs.WithQueue("b"), ojs.WithMeta("more", 1)))
		b.expect("", "rejected", first, "x", 1, p, n)
	})
	story("a replayed dead letter keeps its policy", func(b uniqueRig) {
		b.Handle("x", func(context.Context, *ojs.Job[any]) error { return ojs.DeadLetter(errBoom) })
		b.run()
		first := b.expect("", "new", "", "x", 1, unique(all))
		b.advance(0)
		wantInvalid(t, b.DeadLetters().Retry(b.ctx, first, unique(all)), "unique")
		must1(b.Queues().Pause(b.ctx, "default"))
		must(t, b.DeadLetters().Retry(b.ctx, first))
		b.expect("", "rejected", first, "x", 1, unique(all))
	})
	t.Run("C002 C073 C079 C080 C081 C082 the strength is declared", func(t *testing.T) {
		eng, err := engine.New[any](newMemory(t), quiet)
		must(t, err)
		raw, err := json.Marshal(eng.Describe().Manifest)
		must(t, err)
		var m struct {
			Version string                                    `json:"ojs_version"`
			I       *struct{ Name, Version, Language string } `json:"implementation"`
			Level   *int                                      `json:"conformance_level"`
			Caps    map[string]any                            `json:"capabilities"`
		}
		must(t, json.Unmarshal(raw, &m))
		u, _ := m.Caps["unique_jobs"].(map[string]any)
		if m.Version != "1.0" || m.I == nil || m.I.Name == "" || m.I.Version == "" || m.I.Language == "" ||
			m.Level == nil || u["strength"] != "strong" || u["mechanism"] != "mutex" {
			t.Errorf("%s", raw)
		}
	})
	t.Run("a storage that does not know uniqueness refuses it", func(t *testing.T) {
		eng, err := engine.New[any](ignorant{newMemory(t)}, quiet)
		must(t, err)
		if _, err := eng.Enqueue(t.Context(), "x", 1, unique(all)); !errors.Is(err, ojs.ErrUnsupported) {
			t.Errorf("%v", err)
		}
		if _, err := eng.Enqueue(t.Context(), "x", 1); err != nil {
			t.Error(err)
		}
	})
}

// ignorant is a storage that does not know uniqueness.
type ignorant struct{ storage.Storage }

func (ignorant) Capabilities() storage.Capabilities { return storage.Capabilities{Name: "ignorant"} }

// The examples of OJS unique jobs, section 10.
func TestUniqueExamples(t *testing.T) {
	story := func(name string, f func(b uniqueRig)) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				for _, typ := range []string{"email.send_welcome", "notification.push", "invoice.generate",
					"welcome"} {
					r.Handle(typ, nothing)
				}
				f(uniqueRig{r})
			})
		})
	}
	story("C097 report.daily", func(b uniqueRig) {
		p := unique(ojs.UniquePolicy{Keys: ojs.ByType, OnConflict: ojs.ConflictIgnore})
		first := b.expect("", "new", "", "report.daily", "2026-02-12", p)
		b.expect("", "ignored", first, "report.daily", "2026-02-13", p)
	})
	story("C098 email.send_welcome", func(b uniqueRig) {
		first := b.expect("", "new", "", "email.send_welcome", user{ID: 42}, unique(byUser))
		b.expect("", "rejected", first, "email.send_welcome", user{ID: 42}, unique(byUser))
		b.expect("", "new", "", "email.send_welcome", user{ID: 99}, unique(byUser))
	})
	story("C099 reading 28 notification.push, at most once an hour", func(b uniqueRig) {
		b.run()
		p := with(ojs.UniquePolicy{Keys: ojs.ByArgs, ArgsKeys: []string{"user_id"}},
			func(p *ojs.UniquePolicy) {
				p.Period, p.OnConflict, p.States = time.Hour, ojs.ConflictIgnore, ojs.AllStates()
			})
		first := b.expect("", "new", "", "notification.push", user{ID: 1}, p)
		b.advance(time.Hour - 1)
		b.expect("", "ignored", first, "notification.push", user{ID: 1, Locale: "x"}, p)
		b.advance(1)
		b.expect("", "new", "", "notification.push", user{ID: 1}, p)
	})
	story("C049 C100 image.resize and resize.avatar", func(b uniqueRig) {
		p := unique(ojs.UniquePolicy{Keys: ojs.ByQueue | ojs.ByArgs, OnConflict: ojs.ConflictReplace})
		first := b.expect("", "new", "", "image.resize", 42, p, ojs.WithQueue("thumbnails"))
		b.expect("", "new", "", "image.resize", 42, p, ojs.WithQueue("full-size"))
		b.want(first, ojs.StateAvailable, 0)
		b.expect("", "new", "", "image.resize", 42, p, ojs.WithQueue("thumbnails"))
		b.want(first, ojs.StateCancelled, 0)
	})
	story("C056 C101 invoice.generate", func(b uniqueRig) {
		b.run()
		p := with(ojs.UniquePolicy{Keys: ojs.ByArgs}, func(p *ojs.UniquePolicy) {
			p.Period, p.OnConflict, p.States = 24*time.Hour, ojs.ConflictIgnore, ojs.AllStates()
		})
		first := b.expect("", "new", "", "invoice.generate", "o1", p)
		b.advance(time.Hour)
		b.want(first, ojs.StateCompleted, 1)
		b.expect("", "ignored", first, "invoice.generate", "o1", p)
	})
	story("C063 the welcome mail, at most once in 7 days", func(b uniqueRig) {
		b.run()
		p := with(byUser, func(p *ojs.UniquePolicy) {
			p.Period, p.OnConflict = 7*24*time.Hour, ojs.ConflictIgnore
			p.States = append(ojs.AllStates()[:5:5], ojs.StateCompleted)
		})
		first := b.expect("", "new", "", "welcome", user{ID: 1}, p)
		b.advance(7*24*time.Hour - 1)
		b.expect("C063", "ignored", first, "welcome", user{ID: 1}, p)
		b.advance(1)
		b.expect("C063 C072", "new", "", "welcome", user{ID: 1}, p)
	})
	story("C103 cache.warm, one per tenant", func(b uniqueRig) {
		p := unique(ojs.UniquePolicy{Keys: ojs.ByArgs | ojs.ByMeta, MetaKeys: []string{"tenant_id"}})
		first := b.expect("", "new", "", "cache.warm", 1, p, ojs.WithMeta("tenant_id", "acme"),
			ojs.WithMeta("trace_id", 1))
		b.expect("", "new", "", "cache.warm", 1, p, ojs.WithMeta("tenant_id", "globex"))
		b.expect("", "rejected", first, "cache.warm", 1, p, ojs.WithMeta("tenant_id", "acme"),
			ojs.WithMeta("trace_id", 2))
	})
}

func TestUniqueHelpers(t *testing.T) {
	story := func(name string, f func(b uniqueRig)) {
		t.Run(name, func(t *testing.T) { inBubble(t, func(r *rig) { f(uniqueRig{r}) }) })
	}
	story("throttle: at most once in a period, whatever became of the first", func(b uniqueRig) {
		b.Handle("x", nothing)
		b.run()
		first := b.expect("", "new", "", "x", user{1, "a"}, ojs.WithThrottle(time.Hour, "user_id"))
		b.advance(time.Hour - 1)
		b.expect("", "ignored", first, "x", user{1, "b"}, ojs.WithThrottle(time.Hour, "user_id"))
		b.expect("", "new", "", "x", user{2, "b"}, ojs.WithThrottle(time.Hour, "user_id"))
		b.expect("all args count", "new", "", "x", user{1, "b"}, ojs.WithThrottle(time.Hour))
		b.advance(1)
		b.expect("", "new", "", "x", user{1, "a"}, ojs.WithThrottle(time.Hour, "user_id"))
	})
	story("debounce: the last one runs when there has been none for a while", func(b uniqueRig) {
		var ran []string
		b.Handle("x", func(_ context.Context, job *ojs.Job[any]) error {
			ran = append(ran, fmt.Sprint(job.Args.(map[string]any)["locale"], b.elapsed()))
			return nil
		})
		b.run()
		for _, l := range []string{"a", "b", "c"} {
			b.expect("", "new", "", "x", user{1, l}, ojs.WithDebounce(2*time.Second, "user_id"))
			b.advance(time.Second)
		}
		b.advance(time.Minute)
		if want := []string{"c4s"}; !slices.Equal(ran, want) {
			t.Errorf("ran %v, want %v", ran, want)
		}
	})
	story("debounce with a maximum wait: the last one runs at most that long after the first", func(b uniqueRig) {
		var mu sync.Mutex
		var ran []string
		b.Handle("x", func(_ context.Context, job *ojs.Job[any]) error {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, fmt.Sprint(job.Args.(map[string]any)["locale"], " ", b.elapsed()))
			return nil
		})
		b.run()
		opt := ojs.WithDebounceMax(2*time.Second, 5*time.Second, "user_id")
		first := b.expect("", "new", "", "x", user{1, "a"}, opt)
		for _, l := range []string{"b", "c", "d", "e"} { // at 1 s to 4 s
			b.advance(time.Second)
			b.expect("", "ignored", first, "x", user{1, l}, opt)
		}
		b.advance(1500 * time.Millisecond) // it has run at 5 s
		b.expect("", "new", "", "x", user{1, "f"}, opt)
		b.expect("", "new", "", "x", user{2, "g"}, opt)
		b.advance(time.Minute)
		slices.Sort(ran) // f and g ran at the same instant
		if want := []string{"e 5s", "f 7.5s", "g 7.5s"}; !slices.Equal(ran, want) {
			t.Errorf("ran %v, want %v", ran, want)
		}
	})
	story("debounce: an explicit time may come nearer, and wakes the engine", func(b uniqueRig) {
		b.Handle("x", nothing)
		b.run()
		p := with(ojs.UniquePolicy{}, func(p *ojs.UniquePolicy) { p.OnConflict = ojs.ConflictDebounce })
		first := b.expect("", "new", "", "x", 1, p, ojs.WithDelay(time.Hour))
		b.expect("", "ignored", first, "x", 2, p, ojs.WithDelay(time.Minute), ojs.WithTTL(2*time.Minute))
		b.advance(time.Minute)
		b.want(first, ojs.StateCompleted, 1)
		waits := b.expect("", "new", "", "x", 1, p, ojs.WithDelay(time.Hour))
		b.expect("a job that is due now replaces", "new", "", "x", 2, p)
		b.want(waits, ojs.StateCancelled, 0)
	})
	story("one running and one waiting", func(b uniqueRig) {
		release := make(chan struct{})
		b.Handle("x", func(context.Context, *ojs.Job[any]) error { <-release; return nil })
		b.run()
		b.expect("", "new", "", "x", 1, ojs.WithOneWaiting())
		b.advance(0)
		waits := b.expect("", "new", "", "x", 1, ojs.WithOneWaiting(), ojs.WithDelay(time.Hour))
		b.expect("", "ignored", waits, "x", 1, ojs.WithOneWaiting())
		close(release)
		b.advance(2 * time.Hour)
		b.want(waits, ojs.StateCompleted, 1)
	})
	story("C132 an idempotency key", func(b uniqueRig) {
		b.Handle("x", nothing)
		b.run()
		first := b.expect("", "new", "", "x", 1, ojs.WithIdempotencyKey("req-1"))
		b.advance(24*time.Hour - 1)
		b.expect("", "ignored", first, "x", 2, ojs.WithIdempotencyKey("req-1"))
		b.expect("", "new", "", "x", 2, ojs.WithIdempotencyKey("req-2"))
		b.expect("", "new", "", "y", 2, ojs.WithIdempotencyKey("req-1"))
		d, err := ojs.ParseDraft([]byte(`{"type":"x","idempotency_key":"req-1"}`))
		must(t, err)
		tickets, err := b.EnqueueMany(b.ctx, d)
		if err != nil || tickets[0].ID != first {
			t.Errorf("on the wire: %+v, %v", tickets, err)
		}
		raw, err := json.Marshal(b.job(first))
		var again ojs.JobInfo
		if err != nil || json.Unmarshal(raw, &again) != nil || again.Unique.Key != "req-1" ||
			again.Unique.Strategy() != ojs.ConflictIgnore {
			t.Errorf("%s, %v", raw, err)
		}
		b.advance(1)
		b.expect("", "new", "", "x", 1, ojs.WithIdempotencyKey("req-1"))
	})
	story("bad settings are refused", func(b uniqueRig) {
		for _, max := range []time.Duration{-1, 0, time.Second - 1} {
			_, err := b.Enqueue(b.ctx, "x", 1, ojs.WithDebounceMax(time.Second, max))
			wantInvalid(t, err, "unique.max_wait")
		}
		_, err := b.Enqueue(b.ctx, "x", 1, ojs.WithDebounceMax(0, time.Second))
		wantInvalid(t, err, "delay")
		for field, opt := range map[string]ojs.Option{
			"unique.period": ojs.WithThrottle(0), "delay": ojs.WithDebounce(-1),
			"unique.key": ojs.WithIdempotencyKey(""),
		} {
			_, err := b.Enqueue(b.ctx, "x", 1, opt)
			wantInvalid(t, err, field)
		}
		_, err = b.Enqueue(b.ctx, "x", 1, ojs.WithIdempotencyKey(strings.Repeat("k", 257)))
		wantInvalid(t, err, "unique.key")
	})
}
