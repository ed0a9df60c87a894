package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/policy/preset"
)

// The rules of Ratchet's "Retry Strategies" for the states of a job, with its policies.

func TestRatchet(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    ojs.RetryPolicy
		want []float64
	}{
		{"E001 E002 E003 E004 E036 none: at once", preset.RatchetNone(3), []float64{0, 0, 0, 0}},
		{"E001 E005 E006 E007 E036 fixed", preset.RatchetFixed(5, 10*time.Second),
			[]float64{0, 10, 20, 30, 40, 50}},
		{"E001 E008 E009 E010 E049 reading 43 exponential", preset.RatchetExponential(5, time.Second),
			[]float64{0, 1, 3, 7, 15, 31}},
		{"E012 E038 at the cap", preset.RatchetExponential(2, 48*time.Hour), []float64{0, 86400, 172800}},
		{"E021 E022 the default", preset.RatchetNone(0), []float64{0}},
		{"E022 whatever the backoff", preset.RatchetExponential(0, time.Second), []float64{0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
				b.run()
				ticket := b.enqueue("fail", ojs.WithRetry(tt.p))
				b.advance(7 * 24 * time.Hour)
				if got := b.times(); !slices.Equal(got, seconds(tt.want...)) {
					t.Errorf("ran at %v, want %v", got, seconds(tt.want...))
				}
				b.want(ticket.ID, ojs.StateDiscarded, len(tt.want))
				if got := b.deadLetters(); !slices.Equal(got, []string{ticket.ID}) {
					t.Errorf("dead letters %v", got)
				}
			})
		})
	}
	t.Run("E049 reading 41 three retries: the fourth failure is the last", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("fail", func(_ context.Context, job *ojs.Job[any]) error {
				if job.Attempt < 4 {
					return errBoom
				}
				return nil
			})
			b.run()
			enough, short := b.enqueue("fail", ojs.WithRetry(preset.RatchetNone(3))), b.enqueue("fail",
				ojs.WithRetry(preset.RatchetNone(2)))
			b.advance(0)
			b.want(enough.ID, ojs.StateCompleted, 4)
			b.want(short.ID, ojs.StateDiscarded, 3)
		})
	})
	t.Run("E017 E034 each job as it was submitted", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.Handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
			b.run()
			tickets := map[string]time.Duration{
				b.enqueue("fail",
					ojs.WithRetry(preset.RatchetFixed(3, 10*time.Second))).ID: 20 * time.Second,
				b.enqueue("fail",
					ojs.WithRetry(preset.RatchetExponential(3, 5*time.Second))).ID: 15 * time.Second,
			}
			b.advance(10 * time.Second) // the second failure of each
			for id, want := range tickets {
				if at := b.job(id).NextRetryAt.Sub(b.start); at != want {
					t.Errorf("third attempt at %v, want %v", at, want)
				}
			}
		})
	})
	t.Run("E041 E043 E044 reading 47 what a retry stores", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("fail", func(_ context.Context, job *ojs.Job[any]) error {
				pace.Virtual(2 * time.Second)
				return fmt.Errorf("failure %d", job.Attempt)
			})
			b.run()
			ticket := b.enqueue("fail", ojs.WithRetry(preset.RatchetExponential(3, 5*time.Second)))
			b.advance(2 * time.Second)
			job := b.want(ticket.ID, ojs.StateRetryable, 1)
			if !job.NextRetryAt.Equal(b.start.Add(7*time.Second)) || job.Error == nil ||
				job.Error.Message != "failure 1" {
				t.Errorf("retry at %v, %+v", job.NextRetryAt, job.Error)
			}
			if at, ok := b.NextWake(); !ok || !at.Equal(job.NextRetryAt) {
				t.Errorf("the engine wakes at %v", at)
			}
			b.advance(7 * time.Second)
			if job = b.want(ticket.ID, ojs.StateRetryable, 2); job.Error.Message != "failure 2" ||
				!job.NextRetryAt.Equal(b.start.Add(19*time.Second)) {
				t.Errorf("retry at %v, %+v", job.NextRetryAt, job.Error)
			}
		})
	})
	t.Run("E018 E019 E020 reading 45 recurring jobs take them, too", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("sync", func(context.Context, *ojs.Job[any]) error { return errBoom })
			b.run()
			b.cron(cron.Entry{Name: "hourly", Schedule: "0 0 * * * ?",
				Job: ojs.NewDraft("sync", nil, ojs.WithRetry(preset.RatchetExponential(5, 2*time.Second)))})
			first := b.entry("hourly").NextRun.Sub(b.start)
			b.advance(first + 30*time.Minute)
			want := seconds(0, 2, 6, 14, 30, 62)
			for i := range want {
				want[i] += first
			}
			if !slices.Equal(b.times(), want) {
				t.Errorf("ran at %v, want %v", b.times(), want)
			}
		})
	})
}

// The example of the SPI: never again, at most ten times, or as the job says.
type smart struct{}

var errAuth = errors.New("authentication failed")

func (smart) ShouldRetry(job *ojs.JobInfo, err error) bool {
	switch {
	case errors.Is(err, errAuth):
		return false
	case errors.Is(err, io.ErrUnexpectedEOF):
		return job.Attempt <= 10
	}
	return true
}

func (smart) Delay(*ojs.JobInfo, error) time.Duration { return 0 }

type hourly struct{ smart }

func (hourly) Delay(*ojs.JobInfo, error) time.Duration { return time.Hour }

func TestRatchetHook(t *testing.T) {
	for _, tt := range []struct {
		name    string
		err     error
		retries int
		runs    int
	}{
		{"E030 E034 authentication", errAuth, 30, 1},
		{"E031 E034 I/O, at most ten retries", io.ErrUnexpectedEOF, 30, 11},
		{"E031 reading 44 I/O, no more than the job has", io.ErrUnexpectedEOF, 4, 5},
		{"E032 E034 as the job says", errBoom, 30, 31},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.handle("fail",
					func(context.Context, *ojs.Job[any]) error { return fmt.Errorf("fetch: %w", tt.err) })
				b.run()
				ticket := b.enqueue("fail", ojs.WithRetry(preset.RatchetFixed(tt.retries, time.Second)))
				b.advance(time.Hour)
				b.want(ticket.ID, ojs.StateDiscarded, tt.runs)
				if got := b.deadLetters(); !slices.Equal(got, []string{ticket.ID}) {
					t.Errorf("E048 dead letters %v", got)
				}
			}, engine.WithRetryHook(smart{}))
		})
	}
	t.Run("E027 a delay of the hook holds for a job without one of its own", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
			b.run()
			b.enqueue("fail", ojs.WithRetry(preset.RatchetNone(2)))
			b.enqueue("fail", ojs.WithRetry(preset.RatchetExponential(2, time.Millisecond)))
			b.advance(24 * time.Hour)
			hour := time.Hour
			if want := []time.Duration{0, 0, hour, hour, 2 * hour, 2 * hour}; !slices.Equal(b.times(), want) {
				t.Errorf("ran at %v, want %v", b.times(), want)
			}
		}, engine.WithRetryHook(hourly{}))
	})
}
