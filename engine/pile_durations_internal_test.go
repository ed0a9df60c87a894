package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

// The durations of attempts that logs, events and failures show are their handlers': what an attempt waited on a pile counts in none of
// them, nor does what its outcome waited there, whoever stores it.
func TestDurationsWithoutThePile(t *testing.T) {
	const waits, runs, last = 400 * time.Millisecond, 250 * time.Millisecond, 100 * time.Millisecond
	returned := policy.Outcome{Kind: policy.Returned}
	ms := func(ds ...time.Duration) (out []float64) {
		for _, d := range ds {
			out = append(out, float64(d.Milliseconds()))
		}
		return out
	}
	for name, c := range map[string]struct {
		end  func(t *testing.T, eng *Engine[any], d *desk, a *attempt)
		want []float64 // the durations in the log, in order
	}{
		"with the worker's next claim": {func(t *testing.T, eng *Engine[any], d *desk, a *attempt) {
			r := eng.core.run
			r.stopping, r.left = false, 1
			if _, _, done := r.handover(d, a, returned); !done {
				t.Error("not handed over")
			}
		}, ms(waits, runs, last)},
		"by whoever looked": {func(_ *testing.T, eng *Engine[any], d *desk, _ *attempt) {
			eng.core.run.storeDone(d.pile.takeDone(nil))
		}, ms(waits, runs)},
		"of a handler that failed": {func(_ *testing.T, eng *Engine[any], _ *desk, a *attempt) {
			r := eng.core.run
			f, err := r.finish(a, policy.Outcome{Kind: policy.Returned, Err: errors.New("boom")})
			r.tell(f, err)
		}, ms(last)},
		"of a handler that timed out": {func(t *testing.T, eng *Engine[any], _ *desk, a *attempt) {
			r := eng.core.run
			f, err := r.finish(a, policy.Outcome{Kind: policy.TimedOut})
			r.tell(f, err)
			job, err := eng.Get(t.Context(), a.rec.ID)
			if err != nil {
				t.Fatal(err)
			}
			if got := job.Error.Details["elapsed_seconds"]; got != last.Seconds() {
				t.Errorf("the failure says that it took %v s, want %v", got, last.Seconds())
			}
		}, ms(last)},
		"that somebody listens to by now": {func(t *testing.T, eng *Engine[any], _ *desk, a *attempt) {
			sub := eng.Subscribe(EventFilter{Types: []ojs.EventType{ojs.EventCompleted}})
			defer sub.Close()
			r := eng.core.run
			f, err := r.finish(a, returned)
			r.tell(f, err)
			if ev := <-sub.C(); ev.Duration != last {
				t.Errorf("the event says that it took %v, want %v", ev.Duration, last)
			}
		}, ms(last)},
	} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			mock := clock.NewMock()
			eng, d, a := piling(t, 2, WithClock(mock), WithLogger(slog.New(slog.NewJSONHandler(&logged, nil))))
			for _, took := range []time.Duration{waits, runs} {
				mock.Add(took)
				if a = eng.core.run.goOn(d, a, returned); a == nil {
					t.Fatal("does not go on")
				}
				a.begins(&d.pile)
			}
			mock.Add(last)
			c.end(t, eng, d, a)
			var got []float64
			for line := range bytes.Lines(logged.Bytes()) {
				var l struct {
					Attributes map[string]any `json:"attributes"`
				}
				if err := json.Unmarshal(line, &l); err != nil {
					t.Fatal(err)
				}
				if ms, ok := l.Attributes["duration_ms"]; ok {
					got = append(got, ms.(float64))
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("the log says that jobs took %v ms, want %v", got, c.want)
			}
		})
	}
}
