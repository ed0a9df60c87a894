package server

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/event"
)

// The limits of streams.
const (
	streamBuffer  = 1000             // events that wait for a slow reader (F128)
	streamRate    = 100              // events that one stream gets in a second (F128)
	streamSilence = 15 * time.Second // before a comment (F126)
	streamsOfOne  = 100              // streams of one client (F130)
	streamRetry   = 3000             // milliseconds, for the client (F123)
	streamGrace   = 5 * time.Second  // within which a stop closes streams (F129)
)

// channel is what a stream is about.
type channel struct {
	job, queue string // both "": everything
}

func (ch channel) String() string {
	switch {
	case ch.job != "":
		return "job:" + ch.job
	case ch.queue != "":
		return "queue:" + ch.queue
	}
	return "all"
}

func (ch channel) has(e *entry) bool {
	switch {
	case ch.job != "":
		return e.Job != nil && e.Job.ID == ch.job || e.Subject == ch.job
	case ch.queue != "":
		return e.Queue == ch.queue
	}
	return true
}

// reader is a stream's place in the feed.
type reader struct {
	ch    channel
	types patterns
	wake  chan struct{}

	after  position // no event up to this place is sent
	replay []*entry // that the client has missed; they are sent first

	mu    sync.Mutex // guards what follows
	waits []*entry
	lost  dropped
}

// dropped are events that a slow reader has missed.
type dropped struct {
	n              int
	oldest, newest position
}

// offer gives a reader an event. If too many wait, the oldest is dropped.
func (r *reader) offer(e *entry) {
	if !r.wants(e) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waits) == streamBuffer {
		if r.lost.n++; r.lost.n == 1 {
			r.lost.oldest = r.waits[0].place
		}
		r.lost.newest = r.waits[0].place
		r.waits = r.waits[1:]
	}
	r.waits = append(r.waits, e)
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// wants reports whether a stream sends anything of an entry.
func (r *reader) wants(e *entry) bool {
	if e.gap != nil {
		return true
	}
	return r.ch.has(e) && (r.types.match(string(e.Type)) ||
		r.types.match(string(stateChanged)) && len(transition(&e.Event)) > 1)
}

// wanted is what a stream sends of an entry.
func (r *reader) wanted(e *entry) (list []notice) {
	if e.gap != nil {
		return []notice{{e.place, systemGap, e.gap, nil}}
	}
	if r.types.match(string(stateChanged)) {
		list = e.changes()
	}
	if r.types.match(string(e.Type)) {
		list = append(list, e.event())
	}
	return slices.DeleteFunc(list, func(t notice) bool {
		return t.place.seq < r.after.seq || t.place.seq == r.after.seq && t.place.sub <= r.after.sub
	})
}

// next takes an event, and what was dropped before it.
func (r *reader) next() (e *entry, lost dropped, ok bool) {
	if len(r.replay) > 0 {
		e, r.replay = r.replay[0], r.replay[1:]
		return e, lost, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waits) == 0 {
		return nil, lost, false
	}
	e, lost = r.waits[0], r.lost
	r.waits, r.lost = r.waits[1:], dropped{}
	if len(r.waits) == 0 {
		r.waits = nil
	}
	return e, lost, true
}

// streamJob answers GET /jobs/{id}/events (F123, F124).
func (s *Server) streamJob(c *call) error {
	rec, err := s.job(c)
	if err != nil {
		return err
	}
	return s.stream(c, channel{job: rec.ID})
}

// streamProgress answers GET /jobs/{id}/progress/stream (F153).
func (s *Server) streamProgress(c *call) error {
	rec, err := s.job(c)
	if err != nil {
		return err
	}
	return s.stream(c, channel{job: rec.ID}, string(event.Progress), string(stateChanged))
}

// streamQueue answers GET /queues/{name}/events.
func (s *Server) streamQueue(c *call) error { return s.stream(c, channel{queue: c.value("name")}) }

// streamChannel answers GET /events/stream (F180).
func (s *Server) streamChannel(c *call) error {
	text := c.param("channel")
	kind, name, _ := strings.Cut(text, ":")
	switch {
	case kind == "job" && name != "":
		rec, err := s.jobOf(c, "job", name)
		if err != nil {
			return err
		}
		return s.stream(c, channel{job: rec.ID})
	case kind == "queue" && name != "":
		return s.stream(c, channel{queue: name})
	case text == "" || text == "all":
		if err := c.mayAll(); err != nil {
			return err
		}
		return s.stream(c, channel{})
	}
	return invalid("channel", "is no channel").expected("job:ID, queue:NAME or all").received(clip(text))
}

// stream sends the events of a channel until the client leaves, its job ends or the
// server stops.
func (s *Server) stream(c *call, ch channel, types ...string) error {
	f, err := c.feed()
	if err != nil {
		return err
	}
	if ch.queue != "" {
		if err := c.may(ch.queue); err != nil {
			return err
		}
		if known, err := s.knowsQueue(c, ch.queue); err != nil || !known {
			return cmp.Or(err, error(notFound("queue", ch.queue)))
		}
	}
	if types == nil {
		types = c.names("event_types")
	}
	r := &reader{ch: ch, types: types, wake: make(chan struct{}, 1)}
	f.sync()
	leave, err := f.enter(c, r)
	if err != nil {
		return err
	}
	defer leave()
	h := c.w.Header()
	h["Content-Type"] = []string{"text/event-stream"}
	h["Cache-Control"] = []string{"no-cache"}
	h["X-Accel-Buffering"] = []string{"no"} // of proxies
	c.status = http.StatusOK
	c.w.WriteHeader(http.StatusOK)
	w := &writer{c: c, f: f, ch: ch}
	w.text("retry: " + strconv.Itoa(streamRetry) + "\n\n")
	w.flushAll()
	s.follow(c, w, r)
	return nil
}

// endOf looks up the job of a stream: it may have ended without an event in this server's
// feed. gone reports that there is no job to follow.
func (s *Server) endOf(c *call, ch channel) (end *ojs.JobInfo, gone bool) {
	if ch.job == "" {
		return nil, false
	}
	rec, err := s.record(c.ctx, ch.job)
	if err != nil || !rec.State.Terminal() {
		return nil, missing(err)
	}
	return &rec.JobInfo, false
}

// lastWords sends the state of a job that has ended, unless the stream has (F124).
func (w *writer) lastWords(j *ojs.JobInfo) {
	if j != nil && !w.ended {
		from := ojs.StateActive
		if j.State != ojs.StateCompleted && j.Attempt <= len(j.Errors) && j.Error == nil {
			from = waited(j)
		}
		w.state(j, from)
	}
	w.flushAll()
}

// follow sends what the client has missed, and then what comes.
func (s *Server) follow(c *call, w *writer, r *reader) {
	end, gone := s.endOf(c, r.ch) // after enter: an event from here on is in the feed
	silence := s.clock.Timer(streamSilence)
	defer func() { silence.Stop() }()
	bucket := limiter{conf: RequestRate{PerSecond: streamRate, Burst: streamRate}}
	ending := false
	for {
		e, lost, ok := r.next()
		if ok {
			if lost.n > 0 {
				w.dropped(lost)
			}
			for _, t := range r.wanted(e) {
				w.event(t)
				if _, wait, _ := bucket.take("", s.clock.Now()); w.err != nil ||
					!s.pace(c, w, &bucket, wait) {
					return
				}
			}
			continue
		}
		w.flushAll()
		switch {
		case w.err != nil, gone:
			return
		case ending:
			w.lastWords(end)
			return
		case end != nil, r.ch.job != "" && w.ended: // more events of the same end may be on their way
			w.f.sync()
			ending = true
			continue
		}
		silence.Stop()
		silence = s.clock.Timer(streamSilence)
		select {
		case <-r.wake:
		case <-silence.C:
			w.text(":heartbeat\n\n")
			w.flushAll()
			end, gone = s.endOf(c, r.ch)
		case <-c.ctx.Done():
			return
		case <-s.stop:
			<-w.f.ended
			for e, _, ok := r.next(); ok; e, _, ok = r.next() {
				for _, t := range r.wanted(e) {
					w.event(t)
				}
			}
			w.line(w.end(), "server.shutdown", appendValue(nil, obj{"reason", "the server stops",
				"grace_period_ms", streamGrace.Milliseconds()}))
			w.flushAll()
			return
		}
	}
}

// pace waits until the stream may have another event. It reports false if the stream ends
// first.
func (s *Server) pace(c *call, w *writer, bucket *limiter, wait time.Duration) bool {
	if bucket.at(bucket.buckets[""], s.clock.Now()) >= 1 {
		return true
	}
	w.flushAll()
	t := s.clock.Timer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ctx.Done():
		return false
	case <-s.stop:
		return true
	}
}

// enter makes a reader one of the feed's, and gives it what its client has missed since
// the event that it had last (F127).
func (f *feed) enter(c *call, r *reader) (leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	who := c.client()
	if f.streams[who] >= streamsOfOne {
		refused := refuse(http.StatusTooManyRequests, codeRateLimited, "the client has %d streams open",
			streamsOfOne)
		refused.retryable = true
		return nil, refused.with("limit", streamsOfOne)
	}
	if last := c.r.Header.Get("Last-Event-ID"); last != "" {
		list, p, whole := f.after(last)
		if p.seq <= f.last.seq { // else it is of the end of a stream
			r.after = p
		}
		if !whole {
			r.replay = append(r.replay, f.gap(r.ch, last))
		}
		for _, e := range list {
			if r.wants(e) {
				r.replay = append(r.replay, e)
			}
		}
	}
	f.readers[r] = struct{}{}
	f.streams[who]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.readers, r)
		if f.streams[who]--; f.streams[who] == 0 {
			delete(f.streams, who)
		}
	}, nil
}

// gap says that events were dropped. Its id is that of the latest of them, so that a
// stream that comes back with it goes on behind the gap. f.mu is held.
func (f *feed) gap(ch channel, last string) *entry {
	end, place := "", f.last
	if len(f.entries) > 0 {
		place = f.entries[0].place
		end = f.id(place)
		place.seq, place.sub = place.seq-1, lastSub
	}
	data := obj{"channel", ch.String(), "gap_start", clip(last), "gap_end", end}
	if p, ok := f.position(last); ok && len(f.entries) > 0 && f.entries[0].place.seq > p.seq+1 {
		data = append(data, "estimated_missed_count", int(f.entries[0].place.seq-p.seq-1))
	}
	return &entry{place: place, gap: appendValue(nil, data)}
}

const systemGap event.Type = "system.gap"

// writer writes a stream.
type writer struct {
	c     *call
	f     *feed
	ch    channel
	buf   []byte
	last  position // of the last event
	ended bool     // it has told the end of its job
	err   error    // of a write
}

// text writes part of the stream.
func (w *writer) text(s string) { w.buf = append(w.buf, s...) }

// flushAll sends what was written.
func (w *writer) flushAll() {
	if w.err == nil && len(w.buf) > 0 {
		w.err = w.c.send(w.buf)
	}
	w.buf = w.buf[:0]
}

// line writes an event.
func (w *writer) line(id string, typ event.Type, data []byte) {
	w.text("id: " + id + "\nevent: " + string(typ) + "\ndata: ")
	w.buf = append(append(w.buf, data...), "\n\n"...)
	if len(w.buf) > 16<<10 {
		w.flushAll()
	}
}

// event writes an event of the feed, with its data flat (F125).
func (w *writer) event(t notice) {
	if t.entry == nil {
		w.line(w.f.id(t.place), t.typ, t.data)
		return
	}
	w.last = t.place
	data := t.data
	if t.typ != stateChanged {
		data = append(slices.Clone(data[:len(data)-1]), `,"timestamp":`...)
		if len(t.data) == 2 {
			data = []byte(`{"timestamp":`)
		}
		data = append(appendTime(data, t.entry.Time), '}')
	}
	w.line(w.f.id(t.place), t.typ, data)
	if j := t.entry.Job; j != nil && j.ID == w.ch.job && t.entry.Workflow == nil {
		w.ended = j.State.Terminal()
	}
}

func (w *writer) dropped(lost dropped) {
	w.line(w.f.id(lost.newest), "system.events_dropped", appendValue(nil, obj{"channel", w.ch.String(),
		"dropped_count", lost.n,
		"oldest_dropped_id", w.f.id(lost.oldest), "newest_dropped_id", w.f.id(lost.newest),
		"timestamp", w.c.s.now()}))
}

// end is the id of the last event of a stream, which is in no feed.
func (w *writer) end() string {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	return w.f.id(position{ms: w.f.last.ms, seq: w.f.last.seq + 1})
}

// state writes the state of a job that has ended.
func (w *writer) state(j *ojs.JobInfo, from ojs.State) {
	w.line(w.end(), stateChanged, appendValue(nil, obj{"job_id", j.ID, "queue", j.Queue, "type", j.Type,
		"from", string(from), "to", string(j.State), "timestamp", j.FinishedAt}))
}

// knowsQueue reports whether there is a queue.
func (s *Server) knowsQueue(c *call, name string) (bool, error) {
	list, err := s.queues(c)
	return slices.ContainsFunc(list, func(q queue) bool { return q.Name == name }), err
}
