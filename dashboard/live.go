package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
)

// An open page listens to a stream of ticks, and loads itself again at each. One poller
// serves all streams, however many are open:
//
//  1. The first stream starts the poller, and the last one that closes stops it.
//  2. The poller asks for the engine's stats each second. If they have changed, or after
//     ten seconds, each stream gets a tick.
//  3. A stream holds one tick at most, so that a slow reader costs nothing.
//  4. A process has a bounded number of streams. A page without one stays as it is.
//  5. The stream of a page of an active job gets a tick each second in which its running
//     attempt has logged, too. A process has fewer of these.
//
// The poller asks for stats, and does not subscribe, because a subscription would cost
// the engine a snapshot of each job.

const (
	pollEvery = time.Second
	tickAfter = 10 * time.Second // ages on the page change even if the stats do not
	pingAfter = 15 * time.Second // proxies close a stream that is silent

	maxStreams    = 1000 // of all handlers of the process
	maxLogStreams = 100  // of these, the streams that follow a log
)

// openStreams counts the streams of all handlers, and openLogStreams those that follow a
// log.
var openStreams, openLogStreams atomic.Int64

// live has the open streams.
type live struct {
	mu      sync.Mutex // guards all
	streams map[chan struct{}]bool
	stop    context.CancelFunc // of the poller; nil: no stream is open
}

// join adds a stream, and begins to poll for the first one. The function takes the stream
// out again.
func (h *Handler) join() (ticks <-chan struct{}, leave func()) {
	l := &h.live
	stream := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streams == nil {
		l.streams = make(map[chan struct{}]bool)
	}
	l.streams[stream] = true
	if l.stop == nil {
		var ctx context.Context
		ctx, l.stop = context.WithCancel(h.ctx)
		h.busy.Add(1)
		go func() {
			defer h.busy.Done()
			h.poll(ctx)
		}()
	}
	return stream, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.streams, stream)
		if len(l.streams) == 0 && l.stop != nil {
			l.stop()
			l.stop = nil
		}
	}
}

// poll sends ticks until ctx ends.
func (h *Handler) poll(ctx context.Context) {
	ticker := h.conf.clock.Ticker(pollEvery)
	defer ticker.Stop()
	seed := maphash.MakeSeed()
	var last uint64
	var sent time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		stats, err := h.stats(ctx)
		if err != nil {
			continue // the page that a tick loads would fail too; the next look may not
		}
		b, err := json.Marshal(stats)
		if err != nil {
			continue
		}
		now := h.conf.clock.Now()
		if sum := maphash.Bytes(seed, b); sum != last || now.Sub(sent) >= tickAfter {
			last, sent = sum, now
			h.tick()
		}
	}
}

func (h *Handler) tick() {
	h.live.mu.Lock()
	defer h.live.mu.Unlock()
	for stream := range h.live.streams {
		select {
		case stream <- struct{}{}:
		default:
		}
	}
}

// stream answers with ticks as server-sent events, until the client or the handler
// closes.
func (h *Handler) stream(p *page) error {
	p.answered = true
	defer openStreams.Add(-1)
	if openStreams.Add(1) > maxStreams {
		p.w.Header().Set("Retry-After", "60")
		http.Error(p.w, "too many pages are open: this one stays as it is", http.StatusServiceUnavailable)
		return nil
	}
	head := p.w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("X-Accel-Buffering", "no") // nginx passes each event on
	out := http.NewResponseController(p.w)
	_ = out.SetWriteDeadline(time.Time{}) // a server's WriteTimeout is for pages
	ticks, leave := h.join()
	defer leave()
	if _, err := io.WriteString(p.w, "retry: 3000\n\n"); err != nil || out.Flush() != nil {
		return nil // the client has left, or nothing can be streamed through this server
	}
	ping := h.conf.clock.Ticker(pingAfter)
	defer ping.Stop()
	var logged <-chan time.Time
	log := followedLog{worker: p.r.FormValue("worker"), job: p.r.FormValue("log")}
	if log.job != "" {
		defer openLogStreams.Add(-1)
		if openLogStreams.Add(1) <= maxLogStreams {
			ticker := h.conf.clock.Ticker(pollEvery)
			defer ticker.Stop()
			logged = ticker.C
		}
	}
	for {
		message := ": ping\n\n"
		select {
		case <-p.r.Context().Done():
			return nil
		case <-h.ctx.Done():
			return nil
		case <-ticks:
			message = tickMessage
		case <-logged:
			if grown, err := h.grown(p.r.Context(), &log); foreign.Is(err, ojs.ErrNotFound) {
				logged = nil // the job does not run there, or its log is not kept
				continue
			} else if !grown {
				continue
			}
			message = tickMessage
		case <-ping.C:
		}
		if _, err := fmt.Fprint(p.w, message); err != nil || out.Flush() != nil {
			return nil
		}
	}
}

const tickMessage = "event: tick\ndata:\n\n"

// followedLog is the log of a running attempt that an open page shows.
type followedLog struct {
	worker, job string
	n           uint64 // lines when it was read last
}

// grown reports whether the attempt has logged since the last call.
func (h *Handler) grown(ctx context.Context, f *followedLog) (bool, error) {
	n, err := h.eng.Workers().Logged(ctx, f.worker, f.job)
	grown := err == nil && n > 0 && n != f.n
	if grown {
		f.n = n
	}
	return grown, err
}
