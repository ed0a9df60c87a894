package limittest

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/crashtest"
	"github.com/ojsengine/ojs/storage"
)

// The orders of a child, in its environment.
const (
	envAt      = "OJS_EXACT_AT"
	envWorkers = "OJS_EXACT_WORKERS"
)

// wall is the clock on the wall: processes share it.
var wall = clock.New()

const (
	atOnce    = 5
	perSecond = 100
	holds     = 20 * time.Millisecond // how long a job of the concurrency limit runs
)

var keepAll = engine.WithRetention(engine.Retention{Completed: -1, Cancelled: -1, Discarded: -1,
	DeadLetters: -1, MaxFinished: -1, MaxDeadLetters: -1})

// span is when a handler ran, in nanoseconds since 1970. Of a job with a rate it is when
// the storage says that the job started.
type span struct{ began, ended int64 }

// Child is for TestMain to call first. In a process that Exact has started it runs an
// engine until its input ends, prints the spans of its jobs, and does not return.
func Child(open crashtest.Open) {
	at := os.Getenv(envAt)
	if at == "" {
		return
	}
	if err := child(open, at); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(open crashtest.Open, at string) error {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	s, release, err := open(context.Background(), at)
	if err != nil {
		return err
	}
	workers, err := strconv.Atoi(os.Getenv(envWorkers))
	if err != nil {
		return err
	}
	eng, err := engine.New[any](s, engine.WithConcurrency(workers), keepAll,
		engine.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var spans []span
	eng.Handle("held", func(context.Context, *ojs.Job[any]) error {
		began := wall.Now().UnixNano()
		wall.Sleep(holds)
		mu.Lock()
		defer mu.Unlock()
		spans = append(spans, span{began, wall.Now().UnixNano()})
		return nil
	})
	eng.Handle("rated", func(ctx context.Context, job *ojs.Job[any]) error {
		r, err := s.Get(ctx, job.ID) // the end stores when the handler began, which is later
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		spans = append(spans, span{r.StartedAt.UnixNano(), r.StartedAt.UnixNano()})
		return nil
	})
	if err := eng.Run(ctx); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	release()
	mu.Lock()
	defer mu.Unlock()
	out := bufio.NewWriter(os.Stdout)
	for _, s := range spans {
		fmt.Fprintln(out, s.began, s.ended)
	}
	return out.Flush()
}

// Exact proves L001 and L021 with engines in several processes: a limit of 5 is never
// exceeded by what handlers do, nor a rate of 100 a second by the times of the storage.
// It logs how long fewer than 5 ran while jobs waited, and how much of the rate was used.
//
// The environment variable OJS_EXACT is for how long, such as 60s, with 4 processes of 64
// workers. Without it, it is a second with 2 processes of 8.
func Exact(t *testing.T, open crashtest.Open, at string) {
	processes, workers, seconds := 2, 8, 1
	if text := os.Getenv("OJS_EXACT"); text != "" {
		d, err := time.ParseDuration(text)
		must(t, err)
		processes, workers, seconds = 4, 64, max(int(d/time.Second), 1)
	}
	ctx := t.Context()
	s, release, err := open(ctx, at)
	must(t, err)
	defer release()
	defer s.Close()
	eng, err := engine.New[any](s, engine.WithLogger(slog.New(slog.DiscardHandler)))
	must(t, err)
	held := enqueueAll(t, eng, "held", seconds*atOnce*int(time.Second/holds),
		ojs.RateLimit{Key: "held", Concurrency: atOnce})
	spans := run(t, s, at, processes, workers, held)
	wantAtMost(t, spans)
	rated := enqueueAll(t, eng, "rated", (seconds+1)*perSecond,
		ojs.RateLimit{Key: "rated", Rate: ojs.Rate{Limit: perSecond, Per: time.Second}})
	wantRate(t, run(t, s, at, processes, workers, rated), seconds)
}

func enqueueAll(
	t *testing.T, eng *engine.Engine[any], jobType string, n int, l ojs.RateLimit,
) (ids []string) {
	t.Helper()
	for len(ids) < n {
		drafts := make([]ojs.Draft, min(500, n-len(ids)))
		for i := range drafts {
			drafts[i] = ojs.NewDraft(jobType, any(nil), ojs.WithRateLimit(l))
		}
		tickets, err := eng.EnqueueMany(t.Context(), drafts...)
		must(t, err)
		for _, ticket := range tickets {
			ids = append(ids, ticket.ID)
		}
	}
	return ids
}

// run has processes run all jobs, and returns when their handlers ran.
func run(t *testing.T, s storage.Storage, at string, processes, workers int, ids []string) (spans []span) {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	type process struct {
		cmd *exec.Cmd
		in  io.Closer
		out io.Reader
	}
	var all []process
	for range processes {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), envAt+"="+at, fmt.Sprint(envWorkers, "=", workers))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		all = append(all, process{cmd, in, out})
	}
	for i := 0; i < len(ids); {
		r, err := s.Get(t.Context(), ids[i])
		must(t, err)
		if !r.State.Terminal() {
			<-wall.After(holds)
			continue
		}
		i++
	}
	for _, p := range all {
		must(t, p.in.Close())
		for lines := bufio.NewScanner(p.out); lines.Scan(); {
			var one span
			if _, err := fmt.Sscan(lines.Text(), &one.began, &one.ended); err != nil {
				t.Fatal(lines.Text(), err)
			}
			spans = append(spans, one)
		}
		must(t, p.cmd.Wait())
	}
	return spans
}

// wantAtMost wants at most 5 handlers at once, and logs how long there were fewer.
func wantAtMost(t *testing.T, spans []span) {
	t.Helper()
	type edge struct {
		at int64
		by int
	}
	var edges []edge
	lastStart := int64(0)
	for _, s := range spans {
		edges = append(edges, edge{s.began, 1}, edge{s.ended, -1})
		lastStart = max(lastStart, s.began)
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), a.by-b.by) })
	running, most, since := 0, 0, int64(0) // since when fewer than 5 run; 0: 5 do, or never did
	var gaps []time.Duration
	for _, e := range edges {
		running += e.by
		most = max(most, running)
		switch {
		case running >= atOnce && since > 0:
			gaps = append(gaps, time.Duration(e.at-since))
			since = 0
		case running == atOnce-1 && e.by < 0 && since == 0 && e.at < lastStart:
			since = e.at
		}
	}
	if most > atOnce {
		t.Errorf("%d handlers ran at once, and %d may", most, atOnce)
	}
	if len(gaps) == 0 {
		return
	}
	slices.Sort(gaps)
	var sum time.Duration
	long := 0
	for _, g := range gaps {
		sum += g
		if g > 20*time.Millisecond {
			long++
		}
	}
	t.Logf("concurrency: %d jobs, at most %d at once; %d times fewer than %d, median %v, p99 %v, longest %v, "+
		"%d longer than 20 ms, %v in all of %v", len(spans), most, len(gaps), atOnce, gaps[len(gaps)/2],
		gaps[len(gaps)*99/100], gaps[len(gaps)-1], long, sum, time.Duration(lastStart-edges[0].at))
}

// wantRate wants at most 100 starts in any second, and logs how much of that was used.
func wantRate(t *testing.T, spans []span, seconds int) {
	t.Helper()
	starts := make([]int64, len(spans))
	for i, s := range spans {
		starts[i] = s.began
	}
	slices.Sort(starts)
	for i := perSecond; i < len(starts); i++ {
		if d := time.Duration(starts[i] - starts[i-perSecond]); d < time.Second {
			t.Fatalf("%d jobs started within %v", perSecond+1, d)
		}
	}
	took := time.Duration(starts[len(starts)-1] - starts[0])
	t.Logf("rate: %d starts in %v, %.2f %% of what is allowed", len(starts), took,
		100*float64(seconds)*float64(time.Second)/float64(took))
}
