package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/telemetry"
)

func TestFailures(t *testing.T) {
	inBubble(t, func(b *rig) {
		n := 0
		b.handle("mail.send", func(_ context.Context, job *ojs.Job[any]) error {
			n++
			switch {
			case n <= 3:
				return ojs.DeadLetter(ojs.Errorf("smtp.refused",
					"mailbox %q of user %d: 550-5.%d from 10.0.0.%d:25", job.ID, n, n, n))
			case n <= 5:
				panic(fmt.Sprint("no such id ", job.ID))
			}
			return ojs.Permanent(ojs.Errorf("smtp.refused", "greylisted"))
		})
		b.run()
		for range 6 {
			b.enqueue("mail.send", ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 1}))
			b.advance(time.Minute)
		}
		all, err := b.Jobs().Failures(b.ctx, inspect.Filter{}, 0)
		must(t, err)
		if len(all.Groups) != 3 || !all.Exact || all.Looked != 6 {
			t.Fatalf("%+v", all)
		}
		g := all.Groups[0]
		if g.N != 3 || g.Message != "mailbox # of user #: # from #" || !g.First.Equal(b.start) ||
			g.Last.Sub(g.First) != 2*time.Minute || !g.Sample.Error.At.Equal(g.Last) || g.Frame != "" {
			t.Errorf("%+v", g)
		}
		if want := [24]int{22: 2, 23: 1}; g.Trend != want { // 6, 5 and 4 minutes ago
			t.Errorf("trend %v, want %v", g.Trend, want)
		}
		if key := inspect.FailureKey(g.Sample); key != g.Key || inspect.FailureKey(&ojs.JobInfo{}) != "" {
			t.Errorf("the sample has the key %q, its group %q", key, g.Key)
		}
		if p := all.Groups[1]; p.N != 2 || p.ErrorType != policy.ErrorTypePanic ||
			!strings.Contains(p.Frame, "engine_test.TestFailures") {
			t.Errorf("%+v", p)
		}
		f, err := inspect.Parse("failure:"+g.Key, time.Now())
		must(t, err)
		if f.String() != "failure:"+g.Key || len(b.listed(f)) != 3 {
			t.Errorf("%s selects %v", f, b.listed(f))
		}
		// The group is retried with a pause, and what succeeds is in no group.
		if p, _ := b.applied(operate.Bulk{Do: operate.RetryJobs(), On: f, Every: time.Second}); p.Done != 3 {
			t.Errorf("retried: %+v", p)
		}
		b.advance(time.Minute)
		all, err = b.Jobs().Failures(b.ctx, inspect.Filter{}, 3)
		must(t, err)
		g = all.Groups[0]
		if len(all.Groups) != 1 || all.Exact || all.Looked != 3 || g.N != 3 || !g.Least ||
			g.Message != "greylisted" {
			t.Errorf("%+v", all)
		}
	})
}

// An engine that reports counts each failed attempt in a group of the history: errors,
// panics and timeouts, of jobs that are retried and deleted later, too.
func TestCountedFailures(t *testing.T) {
	inBubble(t, func(b *rig) {
		n := 0
		b.handle("t", func(ctx context.Context, job *ojs.Job[any]) error {
			switch n++; n {
			case 1, 2:
				return ojs.Errorf("smtp.refused", "greylisted by %s", job.ID)
			case 3:
				panic("no")
			case 4:
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		b.run()
		id := b.enqueue("t", ojs.WithTimeout(time.Second), ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 9})).ID
		b.advance(time.Hour)
		b.want(id, ojs.StateCompleted, 5)
		list, err := b.Jobs().CountedFailures(b.ctx, new(telemetry.KnownFailures))
		must(t, err)
		history, err := b.History(b.ctx, b.start, b.start.Add(2*time.Hour), time.Hour)
		must(t, err)
		failed, counted := uint64(0), uint64(0)
		for _, bucket := range history {
			for _, m := range bucket.Meters {
				failed += m.Failed
			}
		}
		for _, g := range list {
			counted += g.N
			if g.Version != "v1.2.3" || g.Sample != id || g.Type != "t" {
				t.Errorf("%+v", g)
			}
		}
		if len(list) != 3 || counted != 4 || failed != 4 {
			t.Fatalf("%d of %d failures in %d groups, want 4 in 3", counted, failed, len(list))
		}
		if g := list[0]; g.N != 2 || g.Message != "greylisted by #" || g.Text != "greylisted by "+id ||
			!g.First.Equal(b.start) {
			t.Errorf("%+v", g)
		}
	}, reports)
}
