package server

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/stored"
)

// The limits of streams.
const (
	streamBuffer  = 1000             // events that wait for a slow reader (F128)
	streamRate    = 100              // events that one stream gets in a second (F128)
	streamSilence = 15 * time.Second // before a comment (F126)
	streamsOfOne  = 100              // streams of one client (F130)
	streamsOfAll  = 10_000           // streams of the process
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

// subscription is what a reader follows.
type subscription struct {
	ch       channel
	types    patterns
	queues   []string // of an events subscription; empty: all
	jobTypes patterns // of an events subscription

	id    string   // of an events subscription, whose events are whole envelopes
	since position // of the feed when it began
}

// reader is a connection's place in the feed.
type reader struct {
	wake chan struct{}

	after  position // no event up to this place is sent
	replay []*entry // that the client has missed; they are sent first

	mu    sync.Mutex // guards what follows
	subs  []*subscription
	waits []*entry
	lost  dropped
}

func newReader(subs ...*subscription) *reader {
	return &reader{wake: make(chan struct{}, 1), subs: subs}
}

// about is the channel that a gap is about.
func (r *reader) about() channel {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.subs) == 1 {
		return r.subs[0].ch
	}
	return channel{}
}

// dropped are events that a slow reader has missed.
type dropped struct {
	n              int
	oldest, newest position
}

// offer gives a reader an event. If too many wait, the oldest is dropped.
func (r *reader) offer(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.subs, func(s *subscription) bool { return s.wants(e) }) {
		return
	}
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

// wants reports whether a subscription has anything of an entry.
func (s *subscription) wants(e *entry) bool {
	switch {
	case e.gap != nil:
		return true
	case s.id != "":
		return s.types.match(string(e.Type)) && (len(s.queues) == 0 || slices.Contains(s.queues, e.Queue)) &&
			(len(s.jobTypes) == 0 || s.jobTypes.match(e.jobType()))
	}
	return s.ch.has(e) && (s.types.match(string(e.Type)) ||
		s.types.match(string(stateChanged)) && len(transition(&e.Event)) > 1 || s.ends(e))
}

// ends reports whether the job that a subscription follows ends with an entry.
func (s *subscription) ends(e *entry) bool {
	return s.ch.job != "" && e.Job != nil && e.Job.ID == s.ch.job && e.Workflow == nil &&
		e.Job.State.Terminal()
}

// wanted is what a subscription has of an entry that comes after a place.
func (s *subscription) wanted(e *entry, after position) (list []notice) {
	if e.gap != nil {
		return []notice{{e.place, systemGap, e.gap, nil}}
	}
	if s.id == "" && s.types.match(string(stateChanged)) {
		list = e.changes()
	}
	if s.types.match(string(e.Type)) {
		list = append(list, e.event())
	}
	return slices.DeleteFunc(list, func(t notice) bool { return !t.place.after(after) })
}

// after reports whether a place comes after another one.
func (p position) after(q position) bool { return p.seq > q.seq || p.seq == q.seq && p.sub > q.sub }

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
func (s *Server) streamJob(c *call) error { return s.stream(c, "job:"+c.value("id")) }

const progressStream = "/jobs/{id}/progress/stream"

// streamProgress answers GET /jobs/{id}/progress/stream (F153).
func (s *Server) streamProgress(c *call) error {
	return s.stream(c, "job:"+c.value("id"), string(event.Progress), string(stateChanged))
}

// lastEvents are those of a stream of progress.
var lastEvents = map[ojs.State]event.Type{ojs.StateCompleted: "completed", ojs.StateDiscarded: "failed",
	ojs.StateCancelled: "cancelled"}

// progress writes an event of a stream of progress: how far the job is, or how it ended.
func (w *writer) progress(id string, j *ojs.JobInfo, at time.Time) {
	o := obj{"job_id", j.ID, "state", string(j.State), "progress", j.Progress, "updated_at", at}
	if j.State == ojs.StateActive {
		t, there, err := w.c.s.note(w.c, j)
		if err == nil && there && t.Fraction == j.Progress { // or it is of later progress
			o = o.opt("message", t.Message).opt("data", raw(t.Data))
		}
	}
	w.line(id, cmp.Or(lastEvents[j.State], "progress"), appendValue(nil, o))
}

// streamQueue answers GET /queues/{name}/events.
func (s *Server) streamQueue(c *call) error { return s.stream(c, "queue:"+c.value("name")) }

// streamChannel answers GET /events/stream (F180).
func (s *Server) streamChannel(c *call) error {
	name := c.param("channel")
	if queue := c.param("queue"); queue != "" {
		if name != "" {
			return givenTwice("queue")
		}
		name = "queue:" + queue
	}
	return s.stream(c, cmp.Or(name, "all"))
}

// channel reads the name of a channel that the caller may follow.
func (s *Server) channel(c *call, name string) (ch channel, err error) {
	switch kind, of, _ := strings.Cut(name, ":"); {
	case kind == "job" && of != "":
		rec, err := s.jobOf(c, "job", of)
		return channel{job: rec.ID}, err
	case kind == "queue" && of != "":
		if err := c.may(of); err != nil {
			return ch, err
		}
		if known, err := s.knowsQueue(c, of); err != nil || !known {
			return ch, cmp.Or(err, error(notFound("queue", of)))
		}
		return channel{queue: of}, nil
	case name == "all":
		return ch, c.mayAll()
	}
	return ch, invalid("channel", "is no channel").expected("job:ID, queue:NAME or all").received(clip(name))
}

// stream sends the events of a channel until the client leaves, its job ends or the
// server stops.
func (s *Server) stream(c *call, name string, types ...string) error {
	ch, err := s.channel(c, name)
	if err != nil {
		return err
	}
	f, err := c.feed()
	if err != nil {
		return err
	}
	if types == nil {
		if types = c.names("event_types"); len(types) == 0 {
			types = c.names("types")
		} else if c.param("types") != "" {
			return givenTwice("types")
		}
	}
	sub := &subscription{ch: ch, types: types}
	r := newReader(sub)
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
	if c.r.Method == http.MethodHead {
		return nil
	}
	w := &writer{c: c, f: f, ch: ch}
	w.text("retry: " + strconv.Itoa(streamRetry) + "\n\n")
	w.flushAll()
	s.follow(c, w, r, sub)
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
		return nil, stored.Missing(err)
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
func (s *Server) follow(c *call, w *writer, r *reader, sub *subscription) {
	end, gone := s.endOf(c, sub.ch) // after enter: an event from here on is in the feed
	silence := s.clock.Timer(streamSilence)
	defer func() { silence.Stop() }()
	bucket := limiter{conf: RequestRate{PerSecond: streamRate, Burst: streamRate}}
	ending, proved := false, s.clock.Now()
	var measures <-chan time.Time
	if c.rt.path == statsStream {
		ticker := s.clock.Ticker(metricsEvery)
		defer ticker.Stop()
		measures = ticker.C
		s.measure(c, w)
	}
	for {
		select { // also while one event comes after another
		case <-measures:
			s.measure(c, w)
		default:
		}
		if now := s.clock.Now(); now.Sub(proved) >= streamSilence {
			if proved = now; !c.still(sub) {
				return
			}
		}
		e, lost, ok := r.next()
		if ok {
			if lost.n > 0 {
				w.dropped(lost)
			}
			for _, t := range sub.wanted(e, r.after) {
				w.event(t)
				if w.err != nil || !s.pace(c.ctx, w.flushAll, &bucket) {
					return
				}
			}
			if sub.ends(e) && !w.ended { // the client wants no event of that
				end, gone = s.endOf(c, sub.ch)
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
		case end != nil, sub.ch.job != "" && w.ended: // more events of the same end may be on their way
			w.f.sync()
			ending = true
			continue
		}
		silence.Stop()
		silence = s.clock.Timer(streamSilence)
		select {
		case <-r.wake:
		case <-measures:
			s.measure(c, w)
		case <-silence.C:
			w.text(":heartbeat\n\n")
			w.flushAll()
			end, gone = s.endOf(c, sub.ch)
		case <-c.ctx.Done():
			return
		case <-s.stop:
			<-w.f.ended
			for e, _, ok := r.next(); ok; e, _, ok = r.next() {
				for _, t := range sub.wanted(e, r.after) {
					w.event(t)
				}
			}
			w.line(w.end(), systemShutdown, appendValue(nil, shutdown))
			w.flushAll()
			return
		}
	}
}

// systemShutdown is the last event of a connection that the server ends (F129).
const systemShutdown event.Type = "server.shutdown"

var shutdown = obj{"reason", "the server stops", "grace_period_ms", streamGrace.Milliseconds()}

// pace counts an event, and waits until the connection may have another one. It reports
// false if the connection ends first.
func (s *Server) pace(ctx context.Context, flush func(), bucket *limiter) bool {
	left, wait, _ := bucket.take("", s.clock.Now())
	if left >= 1 {
		return true
	}
	flush()
	t := s.clock.Timer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
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
	if len(f.readers) >= streamsOfAll {
		return nil, unavailable(http.StatusServiceUnavailable, "the server has too many streams open", nil)
	}
	if last := c.r.Header.Get("Last-Event-ID"); last != "" && len(r.subs) > 0 {
		list, p, whole := f.after(last)
		if p.seq <= f.last.seq { // else it is of the end of a stream
			r.after = p
		}
		if !whole {
			r.replay = append(r.replay, f.gap(r.subs[0].ch, last))
		}
		for _, e := range list {
			if r.subs[0].wants(e) {
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
	ended bool  // it has told the end of its job
	err   error // of a write
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
	switch j := t.entry.Job; {
	case w.c.rt.path != progressStream:
		w.line(w.f.id(t.place), t.typ, t.flat())
	case t.typ == event.Progress || j.State.Terminal():
		w.progress(w.f.id(t.place), j, t.entry.Time)
	}
	if j := t.entry.Job; j != nil && j.ID == w.ch.job && t.entry.Workflow == nil {
		w.ended = j.State.Terminal()
	}
}

// flat is the data of an event with its time (F125).
func (t *notice) flat() []byte {
	if t.typ == stateChanged {
		return t.data
	}
	data := append(slices.Clone(t.data[:len(t.data)-1]), `,"timestamp":`...)
	if len(t.data) == 2 {
		data = []byte(`{"timestamp":`)
	}
	return append(appendTime(data, t.entry.Time), '}')
}

func (w *writer) dropped(lost dropped) {
	w.line(w.f.id(lost.newest), "system.events_dropped", appendValue(nil, obj{"channel", w.ch.String(),
		"dropped_count", lost.n,
		"oldest_dropped_id", w.f.id(lost.oldest), "newest_dropped_id", w.f.id(lost.newest),
		"timestamp", w.c.s.now()}))
}

// end is the id of the last event of a stream, which is in no feed.
func (w *writer) end() string { return w.f.id(w.f.end()) }

// end is the place of an event that is in no feed.
func (f *feed) end() position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return position{ms: f.last.ms, seq: f.last.seq + 1}
}

// state writes the state of a job that has ended.
func (w *writer) state(j *ojs.JobInfo, from ojs.State) {
	if w.c.rt.path == progressStream {
		w.progress(w.end(), j, j.FinishedAt)
		return
	}
	w.line(w.end(), stateChanged, appendValue(nil, obj{"job_id", j.ID, "queue", j.Queue, "type", j.Type,
		"from", string(from), "to", string(j.State), "timestamp", j.FinishedAt}))
}

// knowsQueue reports whether there is a queue.
func (s *Server) knowsQueue(c *call, name string) (bool, error) {
	list, err := s.queues(c)
	return slices.ContainsFunc(list, func(q queue) bool { return q.Name == name }), err
}
