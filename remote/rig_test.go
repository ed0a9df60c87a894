package remote_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/remote"
	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server at an address that stays, on a storage that stays.
type rig struct {
	t     *testing.T
	url   string
	http  *http.Client
	store storage.Storage

	engineOpts []engine.Option
	serverOpts []server.Option

	front atomic.Pointer[http.Handler] // what answers; nil: nothing does
	open  atomic.Int32                 // requests under way
	eng   *engine.Engine[any]
	stop  func()

	mu   sync.Mutex                 // guards what follows
	seen []string                   // methods and paths
	cut  func(r *http.Request) bool // whether an answer is lost

	intercept func(w http.ResponseWriter, r *http.Request) bool // whether it has answered
}

func newRig(t *testing.T, opts ...engine.Option) *rig {
	t.Helper()
	r := &rig{t: t, store: bindingtest.Fresh(t), engineOpts: opts}
	ts := httptest.NewServer(r)
	r.url = ts.URL
	r.http = &http.Client{Transport: &http.Transport{}}
	r.start()
	t.Cleanup(func() {
		r.halt()
		r.http.CloseIdleConnections()
		ts.Close()
	})
	return r
}

// ServeHTTP answers by the server that runs. Without one the connection breaks.
func (r *rig) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.open.Add(1)
	defer r.open.Add(-1)
	r.mu.Lock()
	r.seen = append(r.seen, req.Method+" "+strings.TrimPrefix(req.URL.Path, "/ojs/v1"))
	cut, intercept := r.cut, r.intercept
	r.mu.Unlock()
	h := r.front.Load()
	if h == nil {
		panic(http.ErrAbortHandler)
	}
	if intercept != nil && intercept(w, req) {
		return
	}
	if cut != nil && cut(req) {
		(*h).ServeHTTP(httptest.NewRecorder(), req)
		panic(http.ErrAbortHandler)
	}
	(*h).ServeHTTP(w, req)
}

// loses has the answers of requests be lost for which f reports true.
func (r *rig) loses(f func(req *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = f
}

// intercepts makes f answer the requests for which it reports true.
func (r *rig) intercepts(f func(w http.ResponseWriter, req *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.intercept = f
}

// calls counts the requests that were made.
func (r *rig) calls(line string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.seen {
		if s == line {
			n++
		}
	}
	return n
}

// start starts an engine and its server.
func (r *rig) start() {
	r.t.Helper()
	opts := append(server.EngineOptions(), engine.WithLogger(slog.New(slog.DiscardHandler)))
	eng, err := engine.New[any](r.store, append(opts, r.engineOpts...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	srv, err := server.New(eng, r.serverOpts...)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- eng.Run(ctx) }()
	r.eng = eng
	r.stop = func() {
		if err := srv.Close(context.Background()); err != nil {
			r.t.Error(err)
		}
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	}
	var h http.Handler = srv
	r.front.Store(&h)
}

// halt stops the server and its engine.
func (r *rig) halt() {
	r.front.Store(nil)
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

func (r *rig) options(opts []remote.Option) []remote.Option {
	return append([]remote.Option{remote.WithHTTPClient(r.http),
		remote.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
}

func (r *rig) dial(opts ...remote.Option) *remote.Client {
	r.t.Helper()
	c, err := remote.Dial(r.url, r.options(opts)...)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func worker[T any](r *rig, opts ...remote.WorkerOption) *remote.Worker[T] {
	r.t.Helper()
	for _, opt := range r.options(nil) {
		opts = append(opts, opt)
	}
	w, err := remote.New[T](r.url, append(opts, remote.WithName("test"))...)
	if err != nil {
		r.t.Fatal(err)
	}
	return w
}

// runs runs a worker until stop is called, which returns the error of Run.
func runs[T any](r *rig, w *remote.Worker[T]) (stop func() error) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-done
		})
		return err
	}
	r.t.Cleanup(func() { _ = stop() })
	return stop
}

// within is a context that ends a test which hangs.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// until waits for a condition.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for ctx := within(t); !f(); {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within the time", what)
		case <-time.After(time.Millisecond):
		}
	}
}

func ended(err error) *ojs.EndedError {
	var e *ojs.EndedError
	errors.As(err, &e)
	return e
}

// count counts the jobs of a queue in a state.
func (r *rig) count(queue string, state ojs.State) int {
	r.t.Helper()
	list, err := r.eng.Queues().List(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, q := range list {
		if q.Name == queue {
			return q.Counts[state]
		}
	}
	return 0
}
