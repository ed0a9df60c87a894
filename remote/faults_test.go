package remote_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/remote"
)

// Tests of calls that meet a slow network, a proxy, or an answer that does not decode.

func mockClock() *clock.Mock {
	mock := clock.NewMock()
	mock.Set(time.Now())
	return mock
}

// hold blocks until the client gives a request up.
func hold(req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body) // the server notices the end of the connection only then
	<-req.Context().Done()
}

// F079: a heartbeat without an answer is repeated before the worker counts as dead.
func TestHeartbeatWithoutAnswer(t *testing.T) {
	r := newRig(t)
	mock := mockClock()
	var beats atomic.Int64
	entered, released := make(chan struct{}), make(chan struct{})
	r.intercepts(func(_ http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, "/heartbeat") || beats.Add(1) > 1 {
			return false
		}
		close(entered)
		hold(req)
		close(released)
		return true
	})
	w := worker[any](r, remote.WithClock(mock))
	w.Register(handler.For(charge, func(context.Context, *ojs.Job[order]) error { return nil }))
	runs(r, w)
	<-entered
	mock.Add(5 * time.Second)
	select {
	case <-released:
	case <-within(t).Done():
		t.Fatal("the heartbeat is not given up after 5 s")
	}
	until(t, "another heartbeat", func() bool { mock.Add(time.Second); return beats.Load() > 1 })
}

// F065: a worker renews a short lease before it ends.
func TestShortLease(t *testing.T) {
	r := newRig(t)
	mock := mockClock()
	w, c := worker[any](r, remote.WithClock(mock)), r.dial()
	started, goOn := make(chan struct{}), make(chan struct{})
	w.Register(handler.For(charge, func(context.Context, *ojs.Job[order]) error {
		close(started)
		<-goOn
		return nil
	}))
	runs(r, w)
	defer close(goOn)
	until(t, "the first heartbeat", func() bool { return r.calls("POST /workers/heartbeat") == 1 })
	if _, err := charge.Enqueue(within(t), c, order{}, ojs.WithLease(2*time.Second)); err != nil {
		t.Fatal(err)
	}
	<-started
	mock.Add(700 * time.Millisecond)
	until(t, "a heartbeat within a third of the lease", func() bool {
		return r.calls("POST /workers/heartbeat") > 1
	})
}
