package storagetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/storage"
)

// calls are all the calls of a storage.
func (c *C) calls(ctx context.Context) map[string]func() error {
	r := c.job()
	batch, changes := []storage.Insert{{Record: r}}, []storage.Change{{Record: r}}
	fresh := []storage.Insert{{Record: c.job(), IDIsNew: true}}
	calls := map[string]func() error{
		"Insert": func() error { _, err := c.S.Insert(ctx, c.now, batch, nil); return err },
		"Insert of a fresh id": func() error {
			_, err := c.S.Insert(ctx, c.now, fresh, nil)
			return err
		},
		"Claim":  func() error { _, err := c.S.Claim(ctx, c.now, storage.Claim{Max: 1}, nil); return err },
		"Settle": func() error { _, err := c.S.Settle(ctx, c.now, changes, nil); return err },
		"Extend": func() error { _, err := c.S.Extend(ctx, c.now, []storage.Extension{{}}); return err },
		"Due":    func() error { _, err := c.S.Due(ctx, c.now, 1, nil); return err },
		"Get":    func() error { _, err := c.S.Get(ctx, r.ID); return err },
		"List":   func() error { _, err := c.S.List(ctx, storage.Query{}); return err },
		"Counts": func() error { _, err := c.S.Counts(ctx); return err },
		"Delete": func() error { _, err := c.S.Delete(ctx, []string{r.ID}); return err },
		"Prune":  func() error { _, err := c.S.Prune(ctx, storage.Prune{Max: 1}); return err },
	}
	calls["SetQueueState"] = func() error {
		_, err := c.S.SetQueueState(ctx, "q", ojs.QueuePaused)
		return err
	}
	calls["QueueStates"] = func() error { _, err := c.S.QueueStates(ctx); return err }
	entries := []storage.Cron{{Name: "e"}}
	calls["SetCrons"] = func() error { _, err := document.Of(c.S).SetCrons(ctx, entries); return err }
	calls["DeleteCron"] = func() error { _, err := document.Of(c.S).DeleteCron(ctx, "e"); return err }
	calls["Crons"] = func() error {
		_, err := document.Of(c.S).Crons(ctx, storage.DocumentQuery{})
		return err
	}
	calls["DueCrons"] = func() error {
		_, _, err := document.Of(c.S).DueCrons(ctx, epoch, nil, 1)
		return err
	}
	calls["CancelAll"] = func() error { _, _, err := c.S.CancelAll(ctx, c.now, []string{r.ID}); return err }
	calls["Revive"] = func() error {
		_, err := c.S.Revive(ctx, c.now, []storage.Insert{{Record: r}})
		return err
	}
	values := []document.Value{{Key: "k", Data: []byte("x")}}
	calls["PutValues"] = func() error { return document.Of(c.S).PutValues(ctx, c.now, values) }
	calls["Values"] = func() error { _, err := document.Of(c.S).Values(ctx, c.now, "", "", 1); return err }
	k := ofKey("k")
	calls["SetLimit"] = func() error {
		return c.S.SetLimit(ctx, c.now, k, ojs.RateLimit{Concurrency: 1}, time.Time{})
	}
	calls["BlockLimit"] = func() error { return c.S.BlockLimit(ctx, c.now, k, c.now) }
	calls["GetLimit"] = func() error { _, err := c.S.GetLimit(ctx, c.now, k); return err }
	calls["ListLimits"] = func() error { _, err := c.S.ListLimits(ctx, c.now, k.Kind, "", 1); return err }
	calls["Logs"] = func() error { _, err := c.S.Logs(ctx, r.ID); return err }
	if q, ok := quarantiner(c.S); ok {
		calls["Quarantined"] = func() error { _, err := q.Quarantined(ctx, "", 1); return err }
		calls["CountQuarantined"] = func() error { _, err := q.CountQuarantined(ctx); return err }
		calls["ReleaseQuarantined"] = func() error { return q.ReleaseQuarantined(ctx, "1") }
		calls["DeleteQuarantined"] = func() error { return q.DeleteQuarantined(ctx, "1") }
	}
	if s, ok := settleClaimer(c.S); ok {
		calls["SettleAndClaim"] = func() error {
			_, _, err := s.SettleAndClaim(ctx, c.now, []*storage.Record{&r}, nil, storage.Claim{}, used(1))
			return err
		}
		calls["Unclaim"] = func() error { _, err := s.Unclaim(ctx, c.now, []storage.Held{{}}); return err }
	}
	return calls
}

var generalCases = []Case{
	{"general-1", "General/EndedContext", "package storage, Errors", "A call with a context that has ended fails with its error and does nothing.", needsNothing, func(c *C) {
		c.insert(c.job())
		ctx, cancel := context.WithCancel(c.ctx)
		cancel()
		for name, call := range c.calls(ctx) {
			if err := call(); !errors.Is(err, context.Canceled) {
				c.failf("%s returned %v", name, err)
			}
		}
		if n := len(c.list(storage.Query{})); n != 1 {
			c.failf("%d jobs are stored, not 1", n)
		}
		c.one()
	}},
	{"general-2", "General/Closed", "package storage, Errors", "After Close every call fails with ojs.ErrClosed, and closing again does not.", needsNothing, func(c *C) {
		calls := c.calls(c.ctx)
		c.noErr("Close", c.S.Close())
		for name, call := range calls {
			if err := call(); !errors.Is(err, ojs.ErrClosed) {
				c.failf("%s returned %v", name, err)
			}
		}
		c.noErr("Close of a closed storage", c.S.Close())
	}},
	{"general-7", "General/Capabilities", "Storage.Capabilities", "Capabilities do not change.", needsNothing, func(c *C) {
		before := c.S.Capabilities()
		c.settled(c.reach(ojs.StateActive), c.to(ojs.StateCompleted))
		if now := c.S.Capabilities(); now != before {
			c.failf("Capabilities differ:\n%s", strings.Join(fields.Diff(now, before), "\n"))
		}
	}},
	{"general-3", "General/NotFound", "Storage.Get", "A job that is not there is ojs.ErrNotFound.", needsNothing, func(c *C) {
		_, err := c.S.Get(c.ctx, "nobody")
		c.wantErr("Get", err, ojs.ErrNotFound)
		r := c.job()
		r.Version = 1
		c.to(ojs.StateCancelled)(&r)
		if s := c.settle(r); !errors.Is(s.Err, ojs.ErrNotFound) {
			c.failf("Settle returned %+v", s)
		}
	}},
	{"general-4", "General/Payloads", "OJS payload limits", "Args, meta, results, errors and attributes come back unchanged, however large, deep and odd they are.", needsNothing, func(c *C) {
		var planes strings.Builder
		for plane := range 17 {
			for _, low := range []int{0x0020, 0x00e9, 0x0430, 0x4e2d, 0xfffc} {
				if r := rune(plane<<16 | low); r < 0xd800 || r > 0xdfff {
					planes.WriteRune(r)
				}
			}
		}
		for name, raw := range map[string]string{
			"a megabyte":    `"` + strings.Repeat("x", 1<<20-2) + `"`,
			"32 deep":       strings.Repeat("[", 32) + strings.Repeat("]", 32),
			"big integers":  `[9007199254740993,18446744073709551617,-9223372036854775808]`,
			"numbers":       `[1e400,1.50,-0,0.1e-7]`,
			"every plane":   `"` + planes.String() + `"`,
			"escapes":       `"\u0000\u001f\\\"/<>&\u2028'"`,
			"names":         `{"":1,"a b":2,"$":3,"b":{"a":null}}`,
			"null":          `null`,
			"order of them": `{"z":1,"a":2}`,
		} {
			args, err := ojs.NewArgs(json.RawMessage(raw))
			if err != nil {
				c.failf("%s: %v", name, err)
			}
			raw := args.String() // as it is stored
			r := c.job(func(r *storage.Record) {
				r.Args = args
				r.Meta = map[string]any{"s": planes.String(), "n": json.Number("9007199254740993"),
					"f": 0.1, "l": []any{nil, true, map[string]any{"": "x"}}}
				r.Extra = map[string]json.RawMessage{"workflow_id": json.RawMessage(`"w"`)}
				r.Errors = []ojs.Failure{{
					Attempt: 1, At: c.now, Type: "a.b", Message: planes.String(), Code: ojs.CodeRetry,
					Reason: ojs.ReasonHandlerError, Details: map[string]any{"n": 1.5},
					Backtrace: []string{"f x.go:1"},
				}}
				r.Retry = ojs.RetryPolicy{
					MaxAttempts: 3, InitialInterval: time.Second, BackoffCoefficient: 1.5,
					MaxInterval: time.Hour, Jitter: ojs.JitterOff, BackoffStrategy: ojs.BackoffLinear,
					NonRetryableErrors: []string{"a.*"}, OnExhaustion: ojs.ExhaustionDeadLetter,
				}
				r.TotalTimeout, r.EnqueueTTL, r.ResultTTL = 3*time.Hour, 7*time.Hour, 5*time.Hour
				r.Priority, r.MaxAttempts = -7, 3
				r.RateLimit = &ojs.RateLimit{Key: "k", Concurrency: 2,
					Rate: ojs.Rate{Limit: 500, Per: time.Second}}
				unique("print", ojs.UniquePolicy{
					Keys: ojs.ByArgs | ojs.ByMeta, ArgsKeys: []string{}, MetaKeys: []string{"s"}, Key: "",
					Period: time.Hour, PeriodMonths: 2, States: []ojs.State{ojs.StateDiscarded},
					OnConflict: ojs.ConflictIgnore,
				})(r)
			})
			c.insert(r)
			r.Version = c.get(r.ID).Version
			got := c.get(r.ID)
			c.same(name, got, r)
			if got.Args.String() != raw {
				c.failf("%s: args %.80s, not %.80s", name, got.Args.String(), raw)
			}
			claimed := c.one()
			f := claimed.Errors[0]
			done := c.settled(claimed, c.to(ojs.StateCompleted),
				func(r *storage.Record) { r.Result, r.Error = json.RawMessage(raw), &f })
			if string(done.Result) != raw || done.Error == nil || done.Error.Message != f.Message {
				c.failf("%s: result %.80s", name, done.Result)
			}
		}
	}},
	{"general-5", "General/EmptyCalls", "Storage", "Calls about nothing do nothing.", needsNothing, func(c *C) {
		out, err := c.S.Insert(c.ctx, c.now, nil, nil)
		if err != nil || len(out) != 0 {
			c.failf("Insert returned %v, %v", out, err)
		}
		changed, err := c.S.Settle(c.ctx, c.now, nil, nil)
		if err != nil || len(changed) != 0 {
			c.failf("Settle returned %v, %v", changed, err)
		}
		lost, err := c.S.Extend(c.ctx, c.now, nil)
		if err != nil || len(lost) != 0 {
			c.failf("Extend returned %v, %v", lost, err)
		}
		n, err := c.S.Delete(c.ctx, nil)
		if err != nil || n != 0 {
			c.failf("Delete returned %v, %v", n, err)
		}
		if d := c.due(); len(d.Promoted)+len(d.Expired)+len(d.Stalled) != 0 || !d.Next.IsZero() {
			c.failf("Due returned %+v", d)
		}
	}},
}

// race releases n goroutines at once and waits for them.
func race(n int, f func(i int)) {
	var ready, done sync.WaitGroup
	ready.Add(n)
	start := make(chan struct{})
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-start
			f(i)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}

const rounds = 50 // of each race

var raceCases = []Case{
	{"race-1", "Race/ClaimClaim", "Storage.Claim", "Of concurrent claims each job goes to exactly one.", needsNothing, func(c *C) {
		const jobs, workers = 400, 8
		for range jobs {
			c.insert(c.job())
		}
		var mu sync.Mutex
		got := make(map[string]int)
		race(workers, func(int) {
			for {
				recs, err := c.S.Claim(c.ctx, c.now, storage.Claim{Max: 3}, nil)
				if err != nil || len(recs) == 0 {
					if err != nil {
						c.errorf("Claim failed: %v", err)
					}
					return
				}
				mu.Lock()
				for _, r := range recs {
					got[r.ID]++
				}
				mu.Unlock()
			}
		})
		if len(got) != jobs {
			c.failf("%d of %d jobs were claimed", len(got), jobs)
		}
		for _, n := range got {
			if n != 1 {
				c.failf("a job was claimed %d times", n)
			}
		}
	}},
	{"race-2", "Race/SettleSettle", "package storage, Fencing", "Of concurrent changes decided on one version, one is applied.", needsNothing, func(c *C) {
		targets := []ojs.State{ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded, ojs.StateRetryable}
		for range rounds {
			c.insert(c.job(queue("one")))
			r := c.claimOf(storage.Claim{Queues: []string{"one"}, Max: 1})[0]
			errs := make([]error, len(targets))
			race(len(targets), func(i int) {
				to := r.Copy()
				c.to(targets[i])(&to)
				out, err := c.S.Settle(c.ctx, c.now, []storage.Change{{Record: to}}, nil)
				if errs[i] = err; err == nil {
					errs[i] = out[0].Err
				}
			})
			applied := 0
			for i, err := range errs {
				switch {
				case err == nil:
					applied++
					c.wantState(r.ID, targets[i])
				case !errors.Is(err, storage.ErrFenced):
					c.failf("refused with %v", err)
				}
			}
			if applied != 1 {
				c.failf("%d changes were applied", applied)
			}
		}
	}},
	{"race-3", "Race/SettleLeaseExpiry", "Storage.Due", "Of a result and the expiry of its lease, one wins.", needsNothing, func(c *C) {
		for round := range rounds {
			c.insert(c.job(queue("one")))
			r := c.claimOf(storage.Claim{Queues: []string{"one"}, Max: 1})[0]
			late := c.now.Add(r.Lease)
			var stalled, accepted bool
			race(2, func(i int) {
				if (i+round)%2 == 0 { // the one that is started last tends to be first
					d, err := c.S.Due(c.ctx, late, 1000, nil)
					if err != nil {
						c.errorf("Due failed: %v", err)
					}
					for _, s := range d.Stalled {
						stalled = stalled || s.ID == r.ID
					}
					return
				}
				to := r.Copy()
				c.to(ojs.StateCompleted)(&to)
				out, err := c.S.Settle(c.ctx, c.now, []storage.Change{{Record: to}}, nil)
				accepted = err == nil && out[0].Err == nil
			})
			if stalled == accepted {
				c.failf("handed on: %v, accepted: %v", stalled, accepted)
			}
			if stalled {
				c.settled(c.get(r.ID), c.to(ojs.StateCompleted))
			}
		}
	}},
	{"race-4", "Race/InsertInsert", "OJS unique jobs, section 8.1", "Of concurrent inserts with one fingerprint exactly one is stored.", needsNothing, func(c *C) {
		if c.S.Capabilities().Unique != storage.Strong {
			return
		}
		for round := range rounds {
			const n = 8
			recs := make([]storage.Record, n)
			for i := range recs {
				recs[i] = c.job(unique(fmt.Sprint("f", round), ojs.UniquePolicy{}))
			}
			errs := make([]error, n)
			race(n, func(i int) {
				_, errs[i] = c.S.Insert(c.ctx, c.now, []storage.Insert{{Record: recs[i]}}, nil)
			})
			stored := 0
			for _, err := range errs {
				if err == nil {
					stored++
				} else if !errors.Is(err, ojs.ErrDuplicate) {
					c.failf("refused with %v", err)
				}
			}
			if stored != 1 {
				c.failf("%d were stored", stored)
			}
		}
	}},
	{"race-5", "Race/ReplaceClaim", "OJS unique jobs, section 5.2", "Of a replacement and a claim, the job that is replaced ends cancelled, and one equal job is left.", needsNothing, func(c *C) {
		if c.S.Capabilities().Unique != storage.Strong {
			return
		}
		for round := range rounds {
			f := fmt.Sprint("f", round)
			old := c.job(unique(f, ojs.UniquePolicy{}), queue(f))
			c.insert(old)
			replacing := c.job(unique(f, ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}), queue(f))
			race(2, func(i int) {
				var err error
				if (i+round)%2 == 0 {
					_, err = c.S.Insert(c.ctx, c.now, []storage.Insert{{Record: replacing}}, nil)
				} else {
					_, err = c.S.Claim(c.ctx, c.now, storage.Claim{Queues: []string{f}, Max: 1}, nil)
				}
				if err != nil {
					c.errorf("failed: %v", err)
				}
			})
			c.wantState(old.ID, ojs.StateCancelled)
			if r := c.get(replacing.ID); r.State != ojs.StateAvailable && r.State != ojs.StateActive {
				c.failf("the new job is %s", r.State)
			}
		}
	}},
	{
		"race-6", "Race/DueCronsSetCrons", "DocumentStore.DueDocuments",
		"DueCrons returns entries and the next time of one moment.", needsNothing, dueCronsMeetsSetCrons,
	},
}

// dueCronsMeetsSetCrons moves the first of two entries behind the other and back again.
// It counts the looks that a change precedes, since a busy machine may run neither for
// long.
func dueCronsMeetsSetCrons(c *C) {
	times := []time.Time{epoch.Add(time.Second), epoch.Add(3 * time.Second)}
	first := storage.Cron{Name: "first", Schedule: "@daily", Type: "x", NextRun: times[0]}
	other := first
	other.Name, other.NextRun = "other", epoch.Add(2*time.Second)
	first.Version = c.setCrons(first, other)[0]
	store := c.S
	var over atomic.Bool
	var sets atomic.Int64
	race(2, func(i int) {
		defer over.Store(true)
		if i == 0 {
			for n := 0; !over.Load(); n++ {
				first.NextRun = times[(n+1)%2]
				versions, err := document.Of(store).SetCrons(c.ctx, []storage.Cron{first})
				if err != nil || versions[0] == 0 {
					c.errorf("SetCrons returned %v, %v", versions, err)
					return
				}
				first.Version = versions[0]
				sets.Add(1)
			}
			return
		}
		seen, changed := int64(0), 0
		for n := 0; (n < 6*rounds || changed < rounds/2) && !over.Load(); n++ {
			if now := sets.Load(); now != seen {
				seen = now
				changed++
			} else {
				runtime.Gosched()
			}
			due, next, err := document.Of(store).DueCrons(c.ctx, epoch.Add(time.Minute), nil, 1)
			if err != nil || len(due) != 1 {
				c.errorf("DueCrons returned %v, %v", due, err)
				return
			}
			want := times[1]
			if due[0].Name == first.Name {
				want = other.NextRun
			}
			if !next.Equal(want) {
				c.errorf("DueCrons returned %s and %v as the next time, not %v", due[0].Name, next, want)
				return
			}
		}
	})
}

var durableCases = []Case{
	{"durable-1", "Durable/Jobs", "Capabilities.Durable", "What was stored is there after the storage was opened again, in its order and with its versions.", needsReopen, func(c *C) {
		var want []storage.Record
		for _, s := range ojs.AllStates() {
			want = append(want, c.get(c.reach(s).ID))
		}
		waiting := c.insert(c.job(priority(1)), c.job(), c.job(unique("f", ojs.UniquePolicy{})))
		c.insert(c.job(queue("dead")))
		dead := c.settled(c.claimOf(storage.Claim{Queues: []string{"dead"}, Max: 1})[0], c.dead)
		list := c.list(storage.Query{})
		c.reopen()
		for _, r := range want {
			c.same("a job that is "+string(r.State), c.get(r.ID), r)
		}
		if got := c.list(storage.Query{}); fmt.Sprint(got) != fmt.Sprint(list) {
			c.failf("listed %v, not %v", short(got), short(list))
		}
		if got := c.list(storage.Query{DeadLetters: true}); len(got) != 1 || got[0] != dead.ID {
			c.failf("dead letters %v", short(got))
		}
		c.refuse(c.job(unique("f", ojs.UniquePolicy{})), waiting[2])
		c.order(storage.Claim{Queues: []string{"q"}}, waiting...)
		c.pass(time.Hour)
		if d := c.due(); len(d.Promoted) != 2 || len(d.Stalled) == 0 {
			c.failf("Due promoted %d and handed on %d", len(d.Promoted), len(d.Stalled))
		}
	}},
	{"durable-3", "Durable/Tokens", "package storage, Fencing", "A claim token of a deleted job does not fit the job that is made anew under its id, nor a version of a deleted recurring entry a new one, after the storage was opened again either.", needsReopen, func(c *C) {
		for _, early := range []bool{true, false} { // before the storage is opened again, or after
			id, tokens := c.spent(3)
			c.forget(id)
			anew := func() { c.insert(c.job(func(r *storage.Record) { r.ID = id })) }
			if early {
				anew()
			}
			c.reopen()
			if !early {
				anew()
			}
			c.fresh(id, tokens)
		}
		had := make(map[uint64]bool)
		e := storage.Cron{Name: "e"}
		for i := range 4 {
			for range 3 {
				set, err := document.Of(c.S).SetCrons(c.ctx, []storage.Cron{e})
				if c.noErr("SetCrons", err); len(set) != 1 || set[0] == 0 || had[set[0]] {
					c.failf("SetCrons returned the versions %v after %v", set, had)
				}
				had[set[0]], e.Version = true, set[0]
			}
			if i == 1 {
				c.reopen()
			}
			_, err := document.Of(c.S).DeleteCron(c.ctx, "e")
			c.noErr("DeleteCron", err)
			if e.Version = 0; i == 2 {
				c.reopen()
			}
		}
	}},
	{"durable-2", "Durable/Deleted", "Capabilities.Durable", "What was deleted stays so.", needsReopen, func(c *C) {
		r := c.reach(ojs.StateCompleted)
		_, err := c.S.Delete(c.ctx, []string{r.ID})
		c.noErr("Delete", err)
		pruned := c.reach(ojs.StateCompleted)
		_, err = c.S.Prune(c.ctx, storage.Prune{Before: c.now.Add(time.Hour), Max: 10})
		c.noErr("Prune", err)
		c.reopen()
		for _, id := range []string{r.ID, pruned.ID} {
			_, err = c.S.Get(c.ctx, id)
			c.wantErr("Get", err, ojs.ErrNotFound)
		}
	}},
	{"general-6", "General/Policies", "Record.Retry", "Retry policies come back unchanged, also with a strategy that this program does not know, and a retry a hundred years ahead comes when it is due.", needsNothing, func(c *C) {
		const century = 36500 * 24 * time.Hour
		for _, p := range []ojs.RetryPolicy{
			{MaxAttempts: 1<<31 - 1, InitialInterval: 1, BackoffCoefficient: 1, MaxInterval: century,
				Jitter: ojs.JitterFull, BackoffStrategy: ojs.BackoffExponential,
				NonRetryableErrors: []string{}, OnExhaustion: ojs.ExhaustionDiscard},
			{MaxAttempts: ojs.NoRetry, InitialInterval: time.Second, BackoffCoefficient: 2.5,
				MaxInterval: time.Hour, Jitter: ojs.JitterOn, BackoffStrategy: "acme:unknown-2_x.y",
				NonRetryableErrors: []string{"a.*", "é\""}, OnExhaustion: ojs.ExhaustionDeadLetter},
			{MaxAttempts: 26, InitialInterval: 15 * time.Second, BackoffCoefficient: 2,
				MaxInterval: century, Jitter: ojs.JitterOff, BackoffStrategy: "ojs:sidekiq",
				NonRetryableErrors: []string{}, OnExhaustion: ojs.ExhaustionDeadLetter},
			{Jitter: ojs.JitterFull},
		} {
			what := fmt.Sprintf("%+v", p)
			r := c.job(func(r *storage.Record) {
				r.Retry, r.MaxAttempts, r.TotalTimeout = p, p.Runs(), century
			})
			c.insert(r)
			r.Version = c.get(r.ID).Version
			c.same(what, c.get(r.ID), r)
			c.settled(c.get(r.ID), c.to(ojs.StateCancelled))
		}
		r := c.reach(ojs.StateActive)
		at := c.now.Add(century)
		far := c.settled(r, c.to(ojs.StateRetryable), func(r *storage.Record) { r.NextRetryAt = at })
		if !far.NextRetryAt.Equal(at) {
			c.failf("a retry at %v, not %v", far.NextRetryAt, at)
		}
		c.now = at.Add(-c.tick())
		if d := c.due(); len(d.Promoted) != 0 || !d.Next.Equal(at) {
			c.failf("before the time Due returned %+v", d)
		}
		c.now = at
		if d := c.due(); len(d.Promoted) != 1 {
			c.failf("at the time Due returned %+v", d)
		}
		far.Promote(c.now)
		c.same("a promoted job", c.get(far.ID), far)
	}},
	{"general-8", "General/FarTimes", "package storage, Values", "Each time of a job that has nothing else to tell of comes back, however far off it is, and so does its progress.", needsNothing, func(c *C) {
		far := []time.Time{
			time.Unix(0, 0).UTC(), // the Unix epoch
			time.Unix(math.MaxInt64/int64(time.Second), 900_000_000).UTC(),
			time.Unix(math.MinInt64/int64(time.Second), 0).UTC(),
		}
		for _, year := range []int{1, 1600, 1678, 1969, 2262, 2263, 9999} {
			far = append(far, time.Date(year, 11, 30, 1, 2, 3, 4000, time.UTC))
		}
		for _, at := range far {
			if c.cfg.TimePrecision > 0 {
				at = at.Truncate(c.cfg.TimePrecision)
			}
			created, waits := c.job(), c.job(scheduled(0))
			created.CreatedAt, waits.ScheduledAt = at, at
			c.insert(created, waits)
			for _, r := range []storage.Record{created, waits} {
				r.Version = c.get(r.ID).Version
				c.same("a job", c.get(r.ID), r)
			}
			r := c.one()
			for _, change := range []func(*storage.Record){
				func(r *storage.Record) { c.to(ojs.StateRetryable)(r); r.NextRetryAt, r.StartedAt = at, at },
				func(r *storage.Record) {
					c.to(ojs.StateCancelled)(r)
					r.FinishedAt, r.EnqueuedAt, r.Progress = at, at, 1
				},
			} {
				want := r
				change(&want)
				want.Version++
				r = c.settled(r, change)
				c.same("a job that has been settled", r, want)
			}
			c.settled(c.get(waits.ID), c.to(ojs.StateCancelled))
		}
	}},
}
