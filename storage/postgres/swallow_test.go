package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage/postgres"
)

// lines is a log that sends its messages on.
type lines chan string

func (l lines) Enabled(context.Context, slog.Level) bool { return true }
func (l lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l lines) WithGroup(string) slog.Handler            { return l }
func (l lines) Handle(_ context.Context, r slog.Record) error {
	select {
	case l <- r.Message:
	default:
	}
	return nil
}

// If the network swallows everything, on old connections and on new ones, every call
// fails within its time limit and says why. The listener notices before its next poll,
// and without a call. When the network is back, everything works again.
func TestSwallowedCalls(t *testing.T) {
	t.Parallel()
	const patience = 500 * time.Millisecond // 200 ms do not do on a busy machine
	logged := make(lines, 100)
	s, pool, p, direct, name := behindBadNetwork(t, patience, postgres.WithPoll(time.Hour),
		postgres.WithLogger(slog.New(logged)))
	eng := newEngine(t, s)
	ran := make(chan int, 100)
	eng.Handle("x", func(_ context.Context, job *ojs.Job[int]) error { ran <- job.Args; return nil })
	start(t, eng)
	there := newEngine(t, direct)
	soon := ojs.WithLease(time.Second) // for a claim whose answer comes too late
	ticket, err := there.Enqueue(t.Context(), "x", 1, soon)
	must(t, err)
	if n := <-ran; n != 1 { // told by a notification: the next poll is in an hour
		t.Errorf("job %d ran", n)
	}
	_, err = ticket.Wait(t.Context()) // the job would run again if its result were swallowed
	must(t, err)

	p.swallow()
	for line := ""; line != "ojs: postgres: not listening"; {
		line = <-logged
	}
	calls := everyCall(t, t.Context(), s)
	calls["Open"] = func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := postgres.Open(ctx, pool, postgres.WithSchema(name))
		return err
	}
	var all sync.WaitGroup
	for call, f := range calls {
		all.Go(func() {
			began := time.Now()
			err := f()
			// some make several statements, or wait for those of the engine
			if took := time.Since(began); took > 20*patience {
				t.Errorf("%s took %v", call, took)
			}
			if !errors.Is(err, context.DeadlineExceeded) && (err == nil ||
				!strings.HasPrefix(err.Error(), "ojs: ")) {
				t.Errorf("%s: %v", call, err)
			}
		})
	}
	all.Wait()
	_, err = there.Enqueue(t.Context(), "x", 2, soon)
	must(t, err)
	p.spit()
	if n := <-ran; n != 2 { // the listener is back, and looks at what it did not hear
		t.Errorf("job %d ran", n)
	}
	_, err = eng.Enqueue(t.Context(), "x", 3, soon)
	for err != nil {
		_, err = eng.Enqueue(t.Context(), "x", 3, soon, ojs.WithIdempotencyKey("3"))
	}
	if n := <-ran; n != 3 {
		t.Errorf("job %d ran", n)
	}
}
