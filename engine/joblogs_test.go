package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

var keepLogs = engine.WithJobLogs(slog.LevelInfo)

// messages are the logs of a job: for each attempt its number and its messages.
func (b *rig) messages(id string) (all []string) {
	b.t.Helper()
	logs, err := b.Jobs().Logs(b.ctx, id)
	must(b.t, err)
	for _, l := range logs {
		all = append(all, fmt.Sprintf("%d %s", l.Attempt, strings.Join(said(b.t, l), ", ")))
	}
	return all
}

// said are the messages of the lines of a log.
func said(t *testing.T, l inspect.AttemptLog) (msgs []string) {
	t.Helper()
	for _, raw := range l.Lines {
		var line struct{ Msg string }
		must(t, json.Unmarshal(raw, &line))
		msgs = append(msgs, line.Msg)
	}
	return msgs
}

func wantMessages(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}

// Each attempt that logs leaves a log with the engine's times, however it ends.
func TestJobLogs(t *testing.T) {
	inBubble(t, func(b *rig) {
		runs := 0
		b.handle("a", func(ctx context.Context, job *ojs.Job[any]) error {
			runs++
			log := handler.Logger(ctx).With("run", runs)
			log.Debug("unseen")
			log.Info("begins")
			pace.Virtual(time.Second)
			switch runs {
			case 1:
				return ojs.Snooze(time.Minute)
			case 2:
				log.WithGroup("g").Error("fails", "why", "boom")
				return errBoom
			}
			handler.Logger(ctx).Info("done\n[{\"")
			return nil
		})
		b.handle("silent", func(context.Context, *ojs.Job[any]) error { return nil })
		b.run()
		id, silent := b.enqueue("a", noJitter).ID, b.enqueue("silent").ID
		b.advance(time.Second / 2)
		wantMessages(t, b.messages(id)) // it runs
		b.advance(time.Hour)
		wantMessages(t, b.messages(id), "1 begins", "1 begins, fails", "2 begins, done\n[{\"")
		wantMessages(t, b.messages(silent))

		logs := must1(b.Jobs().Logs(b.ctx, id))
		tl := must1(b.Jobs().Timeline(b.ctx, id))
		for i, l := range logs {
			a := tl.Attempts[i]
			if l.Attempt != a.N || !l.Start.Equal(a.Start) || !l.End.Equal(a.End) || l.Worker != a.Worker {
				t.Errorf("log %d: %+v, attempt %+v", i, l, a)
			}
		}
		var line struct {
			Time  time.Time
			Level string
			Run   int
			G     map[string]string
			OJS   any
		}
		must(t, json.Unmarshal(logs[1].Lines[1], &line))
		if !line.Time.Equal(logs[1].End) || line.Level != "ERROR" || line.Run != 2 ||
			line.G["why"] != "boom" ||
			line.OJS != nil {
			t.Errorf("the line %s is %+v", logs[1].Lines[1], line)
		}

		if _, err := b.Jobs().Logs(b.ctx, "no-such-job"); !errors.Is(err, ojs.ErrNotFound) {
			t.Errorf("logs of an unknown job: %v", err)
		}
		must(t, b.Jobs().Delete(b.ctx, id))
		if logs, err := b.Jobs().Logs(b.ctx, id); !errors.Is(err, ojs.ErrPruned) {
			t.Errorf("logs of a deleted job: %v, %v", logs, err)
		}
	}, keepLogs)
}

// The log of an attempt is bounded: the oldest lines are cut, and counted.
func TestJobLogsAreBounded(t *testing.T) {
	const bound = 64 << 10
	inBubble(t, func(b *rig) {
		b.handle("a", func(ctx context.Context, _ *ojs.Job[any]) error {
			log := handler.Logger(ctx)
			for i := range 3000 {
				log.Info(fmt.Sprint(i), "pad", strings.Repeat("x", 100))
			}
			log.Info(strings.Repeat("x", bound))
			log.Info("last")
			return nil
		})
		b.run()
		id := b.enqueue("a").ID
		b.advance(time.Second)
		l := must1(b.Jobs().Logs(b.ctx, id))[0]
		size := 0
		for _, line := range l.Lines {
			size += len(line) + 1
		}
		msgs := said(t, l)
		if size > bound || size < bound-1000 || len(msgs)+l.Cut != 3002 {
			t.Errorf("%d lines of %d bytes, %d cut", len(msgs), size, l.Cut)
		}
		if n := len(msgs); msgs[n-1] != "last" || msgs[n-2] != "2999" || msgs[0] != fmt.Sprint(3000-n+1) {
			t.Errorf("kept from %s to %s and %s", msgs[0], msgs[n-2], msgs[n-1])
		}
	}, keepLogs)
}

// The log is stored in the step of the outcome: with an outcome that is stored in several
// tries once, and not without it.
func TestJobLogsAreStoredWithTheOutcome(t *testing.T) {
	var fails atomic.Int32
	store := hooked(func(c *storagetest.Call) {
		if c.Method == "Settle" && fails.Add(1) <= 2 {
			if fails.Load() == 2 {
				c.Do()
			}
			c.Err = errStorage
		}
	})
	inBubbleOn(t, store, func(b *rig) {
		b.handle("a", func(ctx context.Context, _ *ojs.Job[any]) error {
			handler.Logger(ctx).Info("once")
			return nil
		})
		b.run()
		id := b.enqueue("a").ID
		synctest.Wait()
		wantMessages(t, b.messages(id))
		b.advance(time.Minute)
		wantMessages(t, b.messages(id), "1 once")
	}, keepLogs)

	inBubble(t, func(b *rig) {
		b.handle("a", func(ctx context.Context, _ *ojs.Job[any]) error {
			handler.Logger(ctx).Info("late")
			<-ctx.Done()
			return nil
		})
		b.run()
		id := b.enqueue("a").ID
		synctest.Wait()
		must(t, b.Cancel(b.ctx, id))
		b.advance(time.Minute)
		wantMessages(t, b.messages(id))
	}, keepLogs)
}

// Lines of a handler that goes on after its attempt was decided on are not kept.
func TestJobLogsAfterTheEnd(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("a", func(ctx context.Context, _ *ojs.Job[any]) error {
			log := handler.Logger(ctx)
			log.Info("in time")
			pace.Virtual(time.Hour)
			log.Info("too late")
			return nil
		})
		b.run()
		id := b.enqueue("a", ojs.WithTimeout(time.Minute), ojs.WithMaxAttempts(1)).ID
		b.advance(2 * time.Hour)
		wantMessages(t, b.messages(id), "1 in time")
	}, keepLogs)
}

// With codecs, the lines are encoded wherever they are stored.
func TestJobLogsAreEncoded(t *testing.T) {
	store := memory.New()
	inBubbleOn(t, store, func(b *rig) {
		b.handle("a", func(ctx context.Context, _ *ojs.Job[any]) error {
			handler.Logger(ctx).Info("paid with "+secret, "card", secret)
			return nil
		})
		b.run()
		id := b.enqueue("a").ID
		b.advance(time.Second)
		for _, l := range must1(store.Logs(b.ctx, id)) {
			wantNoSecret(t, "the storage", string(l.Data))
		}
		l := must1(b.Jobs().Logs(b.ctx, id))[0]
		wantNoSecret(t, "Jobs.Logs", string(l.Encoded))
		if l.Encoded == nil || l.Lines != nil || l.Attempt != 1 {
			t.Errorf("an encoded log: %+v", l)
		}
		job := must1(b.Get(b.ctx, id))
		plain := must1(b.Jobs().DecodeLog(b.ctx, job, l))
		wantMessages(t, said(t, plain), "paid with "+secret)
		if plain.Encoded != nil {
			t.Error("a decoded log is still encoded")
		}
		again := must1(b.Jobs().DecodeLog(b.ctx, job, plain))
		wantMessages(t, said(t, again), "paid with "+secret)

		other := must1(engine.New[any](store, quiet))
		var bad *codec.Error
		if _, err := other.Jobs().DecodeLog(b.ctx, job, l); !errors.As(err, &bad) {
			t.Errorf("decoded without a key: %v", err)
		}
	}, keepLogs, withKeys(testRing("k1")))
}

// An engine tells at once what its running attempt has logged. Another one asks for it,
// and gets it with the next report, until it asks no more.
func TestRunningLog(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("a", func(ctx context.Context, job *ojs.Job[any]) error {
			for i := range 100 {
				handler.Logger(ctx).Info(fmt.Sprint("line ", i))
				pace.Virtual(7 * time.Second)
			}
			return nil
		})
		other := must1(engine.New[any](b.store, quiet)) // as of another process
		b.run()
		id := b.enqueue("a").ID
		b.advance(15 * time.Second)
		worker := b.nodes()[0].ID
		log := func(eng *engine.Engine[any]) (msgs []string) {
			t.Helper()
			l, ok, err := eng.Workers().Log(b.ctx, worker, id)
			must(t, err)
			if ok && (!l.End.IsZero() || l.Attempt != 1 || l.Worker != worker || !l.Start.Equal(b.start)) {
				t.Errorf("%+v", l)
			}
			return said(t, l)
		}
		wantMessages(t, log(b.Engine), "line 0", "line 1", "line 2")
		wantMessages(t, log(other)) // it is asked for
		b.advance(10 * time.Second)
		wantMessages(t, log(other), "line 0", "line 1", "line 2")
		b.advance(10 * time.Second)
		wantMessages(t, log(other), "line 0", "line 1", "line 2", "line 3", "line 4")
		b.advance(5 * time.Minute)
		if msgs := log(other); len(msgs) > 0 {
			t.Errorf("nothing has asked for %q", msgs)
		}
		for _, of := range []struct{ worker, job string }{{"none", id}, {worker, "none"}} {
			_, ok, err := other.Workers().Log(b.ctx, of.worker, of.job)
			if ok || !errors.Is(err, ojs.ErrNotFound) {
				t.Errorf("of %v: %v, %v", of, ok, err)
			}
		}
		b.advance(time.Hour)
		wantMessages(t, log(b.Engine)) // it has ended
	}, reports, keepLogs)
}

// The log of an attempt that was put off is not that of the next one, which has its
// number. An engine that keeps no logs is given no order.
func TestRunningLogOfAnotherAttempt(t *testing.T) {
	inBubble(t, func(b *rig) {
		runs := 0
		b.handle("a", func(ctx context.Context, job *ojs.Job[any]) error {
			if runs++; runs == 1 {
				handler.Logger(ctx).Info("first")
				pace.Virtual(25 * time.Second)
				return ojs.Snooze(time.Second)
			}
			<-ctx.Done()
			return nil
		})
		other := must1(engine.New[any](b.store, quiet))
		b.run()
		id := b.enqueue("a").ID
		b.advance(time.Second)
		worker := b.nodes()[0].ID
		waiting := b.enqueue("waits").ID
		if _, _, err := other.Workers().Log(b.ctx, worker, waiting); !errors.Is(err, ojs.ErrNotFound) {
			t.Errorf("of a job that waits: %v", err)
		}
		for range 2 {
			if _, _, err := other.Workers().Log(b.ctx, worker, id); err != nil {
				t.Fatal(err)
			}
			b.advance(11 * time.Second)
		}
		if _, ok, err := other.Workers().Log(b.ctx, worker, id); !ok || err != nil {
			t.Fatalf("the first attempt: %v, %v", ok, err)
		}
		if n, err := other.Workers().Logged(b.ctx, worker, id); n != 1 || err != nil {
			t.Errorf("the first attempt has %d lines, %v", n, err)
		}
		b.advance(12 * time.Second)
		if log, ok, err := other.Workers().Log(b.ctx, worker, id); ok || err != nil {
			t.Errorf("the second attempt: %+v, %v", log, err)
		}
	}, reports, keepLogs)

	inBubble(t, func(b *rig) {
		b.handle("a", func(ctx context.Context, job *ojs.Job[any]) error { <-ctx.Done(); return nil })
		other := must1(engine.New[any](b.store, quiet))
		b.run()
		id := b.enqueue("a").ID
		b.advance(time.Second)
		worker := b.nodes()[0].ID
		for _, eng := range []*engine.Engine[any]{b.Engine, other} {
			if _, _, err := eng.Workers().Log(b.ctx, worker, id); !errors.Is(err, ojs.ErrNotFound) {
				t.Errorf("without logs: %v", err)
			}
		}
		orders, err := document.Of(b.store).Values(b.ctx, b.start, stored.PrefixOrder, "", 0)
		if must(t, err); len(orders) > 0 {
			t.Errorf("orders: %v", orders)
		}
	}, reports)
}

// A report answers with a bounded number of logs, and the next one with those that wait
// for longest.
func TestRunningLogsAreBounded(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("a", func(ctx context.Context, job *ojs.Job[any]) error {
			handler.Logger(ctx).Info("begins")
			<-ctx.Done()
			return nil
		})
		other := must1(engine.New[any](b.store, quiet))
		b.run()
		var ids []string
		for range 15 {
			ids = append(ids, b.enqueue("a").ID)
		}
		b.advance(11 * time.Second)
		answered := func() (n int) {
			for _, id := range ids {
				_, ok, err := other.Workers().Log(b.ctx, b.nodes()[0].ID, id)
				if must(t, err); ok {
					n++
				}
			}
			return n
		}
		if n := answered(); n != 0 {
			t.Errorf("%d logs before a report", n)
		}
		b.advance(12 * time.Second)
		if n := answered(); n != 10 { // which asks for these again
			t.Errorf("the first report answers with %d logs, want 10", n)
		}
		b.advance(10 * time.Second)
		if n := answered(); n != 15 {
			t.Errorf("after two reports %d logs, want 15", n)
		}
	}, reports, keepLogs, engine.WithConcurrency(20))
}
