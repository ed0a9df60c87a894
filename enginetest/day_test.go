package enginetest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/event"
)

func seeded(n uint64) *rand.Rand { return rand.New(rand.NewPCG(n, n)) }

// A day with 10,000 jobs, retries with jitter and a recurring job a minute is the same
// day again for the same seed, and another one for another.
func TestADay(t *testing.T) {
	day := func(seed uint64) (log string) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			enginetest.Test(t, func(t *testing.T, eng *enginetest.Engine[any]) {
				sub := eng.Subscribe(engine.EventFilter{Types: []event.Type{"job.*", "cron.*",
					"dead_letter.*"}, Buffer: 1_000_000})
				eng.Handle("work", func(_ context.Context, job *ojs.Job[any]) error {
					if n := int(job.Args.(float64)); n%4 >= job.Attempt {
						return errBoom
					}
					return nil
				})
				eng.Handle("tick", func(context.Context, *ojs.Job[any]) error { return nil })
				drafts := make([]ojs.Draft, 10_000)
				for i := range drafts {
					drafts[i] = ojs.NewDraft("work", i, ojs.WithDelay(time.Duration(i)*8640*time.Millisecond),
						ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Minute,
							OnExhaustion: ojs.ExhaustionDeadLetter}))
				}
				if _, err := eng.EnqueueMany(t.Context(), drafts...); err != nil {
					t.Fatal(err)
				}
				minute := cron.Entry{Name: "minute", Schedule: "* * * * *",
					Job: ojs.NewDraft("tick", nil)}
				if err := eng.Cron().Set(t.Context(), minute); err != nil {
					t.Fatal(err)
				}
				eng.Advance(25 * time.Hour)
				sub.Close()
				var lines []string
				for ev := range sub.C() {
					if ev.Missed > 0 {
						t.Fatalf("%d events missed", ev.Missed)
					}
					l := fmt.Sprintf("%s %s %-20s", ev.Time.Format(time.RFC3339Nano), ev.Subject, ev.Type)
					if ev.Job != nil {
						l += fmt.Sprintf(" %s %d", ev.Job.State, ev.Job.Attempt)
					}
					lines = append(lines, l)
				}
				// Events of different jobs in the same instant have no order.
				slices.SortStableFunc(lines, func(a, b string) int {
					return strings.Compare(strings.Join(strings.Fields(a)[:2], " "),
						strings.Join(strings.Fields(b)[:2], " "))
				})
				log = strings.Join(lines, "\n")
				stats, err := eng.Stats(t.Context())
				if err != nil || stats.Total[ojs.StateCompleted] != 7500+1500 ||
					stats.Total[ojs.StateDiscarded] != 2500 {
					t.Errorf("%v, %v", stats.Total, err)
				}
			}, engine.WithRand(seeded(seed)), engine.WithConcurrency(1))
		})
		return log
	}
	a, b, c := day(1), day(1), day(2)
	if len(a) < 1_000_000 || a != b {
		one, other := strings.Split(a, "\n"), strings.Split(b, "\n")
		i := 0
		for i < min(len(one), len(other))-1 && one[i] == other[i] {
			i++
		}
		t.Errorf("the same seed gave another day, from line %d of %d and %d on:\n%s\n\n%s", i,
			len(one), len(other),
			strings.Join(one[max(0, i-2):min(i+3, len(one))], "\n"),
			strings.Join(other[max(0, i-2):min(i+3, len(other))], "\n"))
	}
	if a == c {
		t.Error("another seed gave the same day")
	}
}
