package engine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	quiet    = engine.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	noJitter = ojs.WithRetry(ojs.RetryPolicy{Jitter: ojs.JitterOff})
	errBoom  = errors.New("boom")

	errStorage = errors.New("storage down")

	jobEvents = []event.Type{"job.*", "dead_letter.*"}
)

// rig is an engine in a synctest bubble: its time is virtual and exact, and it moves when
// every goroutine waits.
type rig struct {
	*engine.Engine[any]
	t     *testing.T
	ctx   context.Context // of the bubble, without an end
	store storage.Storage
	start time.Time
	ended chan error // Run's result

	mu   sync.Mutex // guards runs
	runs []time.Duration
	stop context.CancelFunc
}

// storm reports whether searches, and the tests under load, take their long form.
func storm() bool { return os.Getenv("OJS_STORM") != "" && !testing.Short() }

// bare is a storage without its optional abilities, notices among them.
type bare struct{ storage.Storage }

// hooked is a memory storage with a hook.
func hooked(hook func(*storagetest.Call)) *storagetest.Faulty {
	s := &storagetest.Faulty{Storage: memory.New()}
	s.OnCall(hook)
	return s
}

// breaks is a hook that fails the calls of a method for which when, if any, reports true:
// before their work, or after it.
func breaks(method string, after bool, when func() bool) func(*storagetest.Call) {
	return func(c *storagetest.Call) {
		if c.Method != method || when != nil && !when() {
			return
		}
		if after {
			c.Do()
		}
		c.Err = errStorage
	}
}

// inBubble runs f with an engine that has not been started.
func inBubble(t *testing.T, f func(b *rig), opts ...engine.Option) {
	t.Helper()
	inBubbleOn(t, memory.New(), f, opts...)
}

// inBubbleOn is inBubble on a storage.
func inBubbleOn(t *testing.T, store storage.Storage, f func(b *rig), opts ...engine.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &rig{t: t, ctx: context.Background(), store: store, start: time.Now(),
			ended: make(chan error, 1)}
		eng, err := engine.New[any](store, append([]engine.Option{quiet}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		b.Engine = eng
		f(b)
		if b.stop != nil {
			b.halt()
		}
	})
}

// run starts the engine.
func (b *rig) run() {
	ctx, stop := context.WithCancel(context.WithValue(context.Background(), ctxKey{}, "from Run"))
	b.stop = stop
	go func() { b.ended <- b.Run(ctx) }()
	synctest.Wait()
}

type ctxKey struct{}

// halt stops the engine and wants a clean stop.
func (b *rig) halt() {
	b.t.Helper()
	b.stop()
	b.stop = nil
	if err := <-b.ended; err != nil {
		b.t.Errorf("Run: %v", err)
	}
}

func (b *rig) elapsed() time.Duration { return time.Since(b.start) }

// ran notes that a handler runs, and returns how often one has.
func (b *rig) ran() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs = append(b.runs, b.elapsed())
	return len(b.runs)
}

func (b *rig) times() []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]time.Duration{}, b.runs...)
}

// advance lets d pass, and waits until all goroutines are blocked again.
func (b *rig) advance(d time.Duration) {
	pace.Virtual(d)
	synctest.Wait()
}

// handle adds a handler that notes its runs.
func (b *rig) handle(jobType string, f func(ctx context.Context, job *ojs.Job[any]) error) {
	b.Handle(jobType, func(ctx context.Context, job *ojs.Job[any]) error {
		b.ran()
		return f(ctx, job)
	})
}

func (b *rig) enqueue(jobType string, opts ...ojs.Option) ojs.Ticket {
	b.t.Helper()
	ticket, err := b.Enqueue(context.Background(), jobType, nil, opts...)
	if err != nil {
		b.t.Fatal(err)
	}
	return ticket
}

// job looks a job up.
func (b *rig) job(id string) *ojs.JobInfo {
	b.t.Helper()
	job, err := b.Get(context.Background(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return job
}

// want checks a job's state and attempt.
func (b *rig) want(id string, state ojs.State, attempt int) *ojs.JobInfo {
	b.t.Helper()
	job := b.job(id)
	if job.State != state || job.Attempt != attempt {
		b.t.Errorf("at %v job is %s at attempt %d, want %s at %d", b.elapsed(), job.State, job.Attempt,
			state, attempt)
	}
	return job
}

// deadLetters lists the ids of the dead letters.
func (b *rig) deadLetters() []string {
	b.t.Helper()
	var ids []string
	for job, err := range b.DeadLetters().List(context.Background(), inspect.Filter{}) {
		if err != nil {
			b.t.Fatal(err)
		}
		ids = append(ids, job.ID)
	}
	return ids
}

func seconds(s ...float64) []time.Duration {
	ds := make([]time.Duration, len(s))
	for i := range s {
		ds[i] = time.Duration(s[i] * float64(time.Second))
	}
	return ds
}

func isErr(err, target error) bool { return errors.Is(err, target) }

func newMemory(t *testing.T) storage.Storage {
	s := memory.New()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// wantInvalid checks that err refuses a field.
func wantInvalid(t *testing.T, err error, field string) {
	t.Helper()
	var inv *ojs.InvalidError
	if !errors.As(err, &inv) || inv.Field != field || inv.Reason == "" {
		t.Errorf("%v, want %s refused", err, field)
	}
}

// lockedBuffer is a buffer that may be read while it is written to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// results returns the result for each job of an operation on many.
func results(progress iter.Seq2[operate.Progress, error]) (list []operate.Result, err error) {
	for p, err := range progress {
		if p.ID != "" && (err == nil || p.Err != nil) {
			list = append(list, p.Result)
		}
		if err != nil {
			return list, err
		}
	}
	return list, nil
}
