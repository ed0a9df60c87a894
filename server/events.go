package server

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/policy"
)

// The feed of a server has the events of its engine, for polls and streams.
//
//  1. One goroutine takes events from the engine and numbers them. The JSON of an
//     event is made when it is sent.
//  2. A request that reads the feed first has the goroutine take all events that the
//     engine has published by then (sync). So a caller sees the events of the calls that
//     were answered before.
//  3. The feed keeps the latest events in memory, within EventRetention. A reader that
//     comes back later meets a gap.
//  4. Streams have a job.state_changed before each event that brings a job into another
//     state. Polls have the events of the catalogue only (F125).

var eventRoutes = []route{
	{method: http.MethodGet, path: "/events", need: permInspect, serve: (*Server).listEvents},
	{method: http.MethodGet, path: "/events/stream", need: permInspect, waits: true,
		serve: (*Server).streamChannel},
	{method: http.MethodGet, path: progressStream, need: permInspect, waits: true,
		serve: (*Server).streamProgress},
	{method: http.MethodGet, path: "/jobs/{id}/events", need: permInspect, waits: true,
		serve: (*Server).streamJob},
	{method: http.MethodGet, path: "/queues/{name}/events", need: permInspect, waits: true,
		serve: (*Server).streamQueue},
	{method: http.MethodGet, path: "/events/jobs/{id}", need: permInspect, waits: true,
		serve: (*Server).streamJob},
	{method: http.MethodGet, path: "/events/queues/{name}", need: permInspect, waits: true,
		serve: (*Server).streamQueue},
	{method: http.MethodGet, path: "/ws", need: permInspect, waits: true, serve: (*Server).socket},
}

// EventRetention says how many events the server keeps for polls, and for streams that
// come back.
// A field that is 0 keeps its default.
type EventRetention struct {
	Count int           // at most; 1,000,000
	Bytes int           // at most, about; 16 MiB
	Age   time.Duration // at most; 168 h
}

// WithEventRetention sets how many events are kept. Each server keeps those of its own
// engine, in memory.
func WithEventRetention(e EventRetention) Option {
	return func(conf *config) error {
		if e.Count < 0 || e.Bytes < 0 || e.Age < 0 {
			return draft.Invalid("events", "%+v has a negative field", e)
		}
		set(&conf.events.Count, e.Count)
		set(&conf.events.Bytes, e.Bytes)
		if e.Age != 0 {
			conf.events.Age = e.Age
		}
		return nil
	}
}

// WithoutEvents keeps no events: the paths of events answer 422. It spares the engine a
// snapshot of each job at each of its transitions.
func WithoutEvents() Option {
	return func(conf *config) error {
		conf.noEvents = true
		return nil
	}
}

// keptEvents is the default of WithEventRetention.
var keptEvents = EventRetention{Count: 1_000_000, Bytes: 16 << 20, Age: 168 * time.Hour}

// entry is an event in the feed. It does not change.
type entry struct {
	event.Event
	place position
	path  []ojs.State // as transition has it
	size  int
	gap   []byte // the data of a system.gap, which is no event and in no feed
}

// position is the place of an event in the feed. Its text is the event's id.
type position struct {
	ms  int64  // the time, which never falls from one entry to the next
	seq uint64 // of the entry, from 1 on
	sub uint64 // of the changes of state that come before it; lastSub is the event itself
}

const lastSub = 3

// entryOverhead is about what an entry takes in memory beside what add counts.
const entryOverhead = 1 << 10

// valueSize is about what a value of a map takes in memory beside its text.
const valueSize = 64

// sizeOf is about what a value that was JSON takes in memory.
func sizeOf(v any) int {
	n := valueSize
	switch v := v.(type) {
	case string:
		n += len(v)
	case json.Number:
		n += len(v)
	case []any:
		for _, e := range v {
			n += sizeOf(e)
		}
	case map[string]any:
		for name, e := range v {
			n += len(name) + sizeOf(e)
		}
	}
	return n
}

// feed keeps events.
type feed struct {
	stop  <-chan struct{}
	limit EventRetention
	sub   *engine.Subscription
	syncs chan chan struct{}
	ended chan struct{} // closed when the goroutine has ended
	nonce uint32        // of the ids: those of another server, or from before a start, are unknown

	mu      sync.Mutex // guards what follows
	entries []*entry   // with numbers without a gap
	bytes   int
	last    position
	ready   map[string]bool // jobs that the events before have told to be available
	readers map[*reader]struct{}
	streams map[string]int // of each client
}

// newFeed begins the feed of an engine. It ends with stop.
func newFeed(eng Engine, limit EventRetention, stop <-chan struct{}) *feed {
	id := uuid.New()
	f := &feed{stop: stop, limit: limit, syncs: make(chan chan struct{}), ended: make(chan struct{}),
		nonce:   binary.BigEndian.Uint32(id[:4]) & nonceMask,
		readers: make(map[*reader]struct{}), streams: make(map[string]int),
		sub: eng.Subscribe(engine.EventFilter{Buffer: feedBuffer})}
	go f.run()
	return f
}

// feedBuffer is how many events may wait for the goroutine.
const feedBuffer = 4096

// run takes events until the server stops.
func (f *feed) run() {
	defer close(f.ended)
	defer f.sub.Close()
	for {
		select {
		case ev := <-f.sub.C():
			f.add(ev)
		case done := <-f.syncs:
			f.drain()
			close(done)
		case <-f.stop:
			f.drain()
			return
		}
	}
}

// drain takes the events that wait.
func (f *feed) drain() {
	for {
		select {
		case ev := <-f.sub.C():
			f.add(ev)
		default:
			return
		}
	}
}

// sync waits until the feed has taken what the engine has published.
func (f *feed) sync() {
	done := make(chan struct{})
	select {
	case f.syncs <- done:
		<-done
	case <-f.ended:
	}
}

// add numbers an event and offers it to the readers.
func (f *feed) add(ev event.Event) {
	e := &entry{Event: ev, size: entryOverhead}
	if j := ev.Job; j != nil {
		e.size += j.Args.Len() + len(j.Result) + sizeOf(j.Meta) + len(j.History)*valueSize
		for name, v := range j.Extra {
			e.size += valueSize + len(name) + len(v)
		}
		for i := range j.Errors {
			x := &j.Errors[i]
			e.size += 4*valueSize + len(x.Message) + sizeOf(x.Details)
			for _, line := range x.Backtrace {
				e.size += len(line)
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if ev.Missed > 0 { // the goroutine was too slow: readers meet a gap
		f.entries, f.bytes = nil, 0
		for r := range f.readers {
			r.offer(f.gap(r.about(), f.id(f.last)))
		}
		f.last.seq++
	}
	f.last = position{ms: max(f.last.ms, ev.Time.UnixMilli()), seq: f.last.seq + 1, sub: lastSub}
	e.place, e.path = f.last, f.path(&ev)
	f.entries, f.bytes = append(f.entries, e), f.bytes+e.size
	n := 0
	for n < len(f.entries) && (len(f.entries)-n > f.limit.Count || f.bytes > f.limit.Bytes ||
		ev.Time.Sub(f.entries[n].Time) > f.limit.Age) {
		f.bytes -= f.entries[n].size
		f.entries[n] = nil
		n++
	}
	f.entries = f.entries[n:]
	for r := range f.readers {
		r.offer(e)
	}
}

// path is the transition of an event, as it follows from the events before it. f.mu is
// held.
func (f *feed) path(ev *event.Event) []ojs.State {
	path, j := transition(ev), ev.Job
	if len(path) == 0 {
		return nil
	}
	waits := path[0] == ojs.StateRetryable || path[0] == ojs.StateScheduled
	known, last := f.ready[j.ID], len(path)-1
	delete(f.ready, j.ID)
	switch {
	case ev.Type == event.Available && known:
		path = nil
	case ev.Type == event.Started && known && waits:
		path = path[1:]
	case known && waits:
		path[0] = ojs.StateAvailable
	case path[last] == ojs.StateRetryable && !j.NextRetryAt.After(ev.Time.Add(time.Millisecond)): // at once
		path[last] = ojs.StateAvailable
	}
	atOnce := len(path) > 0 && path[0] == ojs.StateActive && path[last] == ojs.StateAvailable
	if ev.Type == event.Available || atOnce {
		if f.ready == nil || len(f.ready) >= manyReady {
			f.ready = make(map[string]bool)
		}
		f.ready[j.ID] = true
	}
	return path
}

// manyReady is how many jobs the feed knows to be available. Engines of other servers may
// have claimed some.
const manyReady = 10_000

const (
	nonceBits = 24
	nonceMask = 1<<nonceBits - 1
)

// id is the id of an event: a UUIDv7 of the time, whose other bits are the place and the
// nonce. So ids rise strictly.
func (f *feed) id(p position) string {
	low := p.seq<<2 | p.sub&3 // 50 bits: 12 of them beside the version, 38 beside the variant
	return newID("evt_", p.ms, low>>38, low&(1<<38-1)<<nonceBits|uint64(f.nonce))
}

// newID is a UUIDv7 of a time in milliseconds, with 12 and 62 bits that follow.
func newID(prefix string, ms int64, high, low uint64) string {
	var u uuid.UUID
	binary.BigEndian.PutUint64(u[:8], uint64(ms)<<16|7<<12|high&0xfff)
	binary.BigEndian.PutUint64(u[8:], 2<<62|low&(1<<62-1))
	return prefix + u.String()
}

// position reads an id of this feed.
func (f *feed) position(id string) (p position, ok bool) {
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimPrefix(id, "evt_"), "-", ""))
	if err != nil || len(b) != 16 {
		return p, false
	}
	high, low := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	bits := (high&0xfff)<<38 | low>>nonceBits&(1<<38-1)
	p = position{ms: int64(high >> 16), seq: bits >> 2, sub: bits & 3}
	return p, f.id(p) == strings.ToLower(id)
}

// after returns the entries that follow an id, and whether the feed still has all of
// them. If it has not, they are all that it has. f.mu is held.
func (f *feed) after(id string) (list []*entry, p position, whole bool) {
	p, ok := f.position(id)
	switch {
	case !ok || p.seq > f.last.seq+1 || p.seq == f.last.seq+1 && p.sub > 0:
		return f.entries, position{}, false
	case p.seq > f.last.seq || p.seq == f.last.seq && p.sub == lastSub: // the end of a stream, or the latest
		return nil, p, true
	case len(f.entries) == 0:
		return nil, position{}, false
	}
	first := f.entries[0].place.seq
	if p.seq+1 < first {
		return f.entries, position{}, false
	}
	if p.seq < first { // the event itself is dropped, all that follow it are there
		return f.entries, p, true
	}
	if p.sub == lastSub {
		return f.entries[p.seq-first+1:], p, true
	}
	return f.entries[p.seq-first:], p, true // what is left of the entry
}

// from returns the first entry that is kept, from a number on, and how many before it are
// dropped; nil: there is none.
func (f *feed) from(seq uint64) (e *entry, lost int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.last.seq + 1 - uint64(len(f.entries)) // the number of the first
	if seq < n {
		seq, lost = n, int(n-seq)
	}
	if i := seq - n; i < uint64(len(f.entries)) {
		e = f.entries[i]
	}
	return e, lost
}

// notice is an event as it is sent.
type notice struct {
	place position
	typ   event.Type
	data  []byte // a JSON object: that of the catalogue, or that of a change of state
	entry *entry
}

// event is the event itself.
func (e *entry) event() notice {
	data := e.Data()
	for name, v := range data { // F009
		text, ok := v.(string)
		if ok && (strings.HasSuffix(name, "_at") || strings.HasSuffix(name, "_time") ||
			strings.HasSuffix(name, "until")) {
			if at, ok := parseTime(text); ok {
				data[name] = at.Format(timeLayout)
			}
		}
	}
	if j := e.Job; j != nil && e.Workflow == nil {
		data["job_id"], data["state"] = j.ID, j.State // CF
	}
	return notice{e.place, e.Type, marshal(data), e}
}

// stateChanged is the event of every change of state (F125).
const stateChanged event.Type = "job.state_changed"

// changes are the changes of state that come before the event.
func (e *entry) changes() (list []notice) {
	path := e.path
	for i := 1; i < len(path); i++ {
		var from any
		if path[i-1] != "" {
			from = string(path[i-1])
		}
		p := e.place
		p.sub = uint64(i - 1)
		list = append(list, notice{p, stateChanged, appendValue(nil, obj{"job_id", e.Job.ID, "queue",
			e.Job.Queue,
			"type", e.Job.Type, "from", from, "to", string(path[i]), "timestamp", e.Time}), e})
	}
	return list
}

// transition returns the states that a job has gone through by an event: none, or the one
// before and those that follow. The state "" is before the job was stored. No event tells
// that a job's time has come, so the claim after it has that step too.
func transition(ev *event.Event) []ojs.State {
	j := ev.Job
	if j == nil || ev.Workflow != nil {
		return nil
	}
	switch ev.Type {
	case event.Enqueued:
		return []ojs.State{"", j.State}
	case event.Started:
		switch {
		case j.Attempt > 1 || refunded(j):
			return []ojs.State{ojs.StateRetryable, ojs.StateAvailable, ojs.StateActive}
		case j.ScheduledAt.After(j.CreatedAt) && !j.EnqueuedAt.Before(j.ScheduledAt):
			return []ojs.State{ojs.StateScheduled, ojs.StateAvailable, ojs.StateActive}
		}
		return []ojs.State{ojs.StateAvailable, ojs.StateActive}
	case event.Completed:
		if j.Dependencies != nil && j.Dependencies.Join {
			return []ojs.State{ojs.StatePending, ojs.StateCompleted}
		}
		return []ojs.State{ojs.StateActive, ojs.StateCompleted}
	case event.Failed:
		return []ojs.State{ojs.StateActive, j.State}
	case event.Discarded:
		switch ev.Reason {
		case "expired", "dropped", "rate_limited":
			return []ojs.State{waited(j), ojs.StateDiscarded}
		case string(policy.RuleTotalTimeout):
			if ev.Failure != nil &&
				ev.Failure.Attempt != j.Attempt { // it has not been told as a failed attempt
				return []ojs.State{waited(j), ojs.StateDiscarded}
			}
		}
	case event.Cancelled:
		if j.Attempt > len(j.Errors) && !refunded(j) {
			return []ojs.State{ojs.StateActive, ojs.StateCancelled}
		}
		return []ojs.State{waited(j), ojs.StateCancelled}
	case event.Scheduled:
		switch {
		case lastNote(j) == ojs.NoteRescheduled:
		case j.State == ojs.StateRetryable:
			return []ojs.State{ojs.StateActive, j.State}
		case j.Dependencies != nil:
			return []ojs.State{ojs.StatePending, j.State}
		case !j.EnqueuedAt.IsZero(): // a limit has put it off
			return []ojs.State{ojs.StateAvailable, j.State}
		}
	case event.DeadLetterRetried, event.DeadLetterReplayed:
		return []ojs.State{ojs.StateDiscarded, j.State}
	case event.Available:
		switch note := lastNote(j); {
		case note == ojs.NoteRetried && j.Attempt > 0:
			return []ojs.State{ojs.StateRetryable, j.State}
		case note == ojs.NoteRetried:
			return []ojs.State{ojs.StateDiscarded, j.State}
		case note == ojs.NoteRescheduled:
			return []ojs.State{ojs.StateScheduled, j.State}
		}
		return []ojs.State{ojs.StatePending, j.State}
	}
	return nil
}

// waited is the state in which a job that has ended most likely waited.
func waited(j *ojs.JobInfo) ojs.State {
	switch {
	case j.Attempt > 0:
		return ojs.StateRetryable
	case !j.EnqueuedAt.IsZero():
		return ojs.StateAvailable
	case !j.ScheduledAt.IsZero() && j.Dependencies == nil:
		return ojs.StateScheduled
	}
	return ojs.StatePending
}

// refunded reports whether the attempt before did not count.
func refunded(j *ojs.JobInfo) bool {
	note := lastNote(j)
	return note == ojs.NoteSnoozed || note == ojs.NoteReturned
}

func lastNote(j *ojs.JobInfo) ojs.NoteKind {
	if len(j.History) == 0 {
		return ""
	}
	return j.History[len(j.History)-1].What
}

// patterns are names of events, or prefixes of names that end with *; none: all.
type patterns []string

func (p patterns) match(name string) bool {
	return len(p) == 0 || slices.ContainsFunc(p, func(pattern string) bool {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
			return strings.HasPrefix(name, prefix)
		}
		return pattern == name
	})
}

// names reads a parameter that is a comma list.
func (c *call) names(param string) (list []string) {
	for name := range strings.SplitSeq(c.param(param), ",") {
		if name = strings.TrimSpace(name); name != "" {
			list = append(list, name)
		}
	}
	return list
}

// jobType is the type of the job, "" if the event is about none.
func (e *entry) jobType() string {
	if e.Job == nil {
		return ""
	}
	return e.Job.Type
}

// envelope writes an event for a poll (F122).
func (f *feed) envelope(b []byte, t notice) []byte {
	o := obj{"specversion", "1.0", "id", f.id(t.place), "type", string(t.typ), "source", t.entry.Source,
		"time", t.entry.Time, "timestamp", t.entry.Time}
	return appendValue(b, append(o.opt("subject", t.entry.Subject), "data", raw(t.data)))
}

// listEvents answers GET /events (F120, F121).
func (s *Server) listEvents(c *call) error {
	f, err := c.feed()
	if err != nil {
		return err
	}
	limit, err := c.number("limit", 100, 1, 1000)
	if err != nil {
		return err
	}
	queues, err := c.narrow(c.names("queues"))
	if err != nil {
		return err
	}
	types, jobTypes, after := patterns(c.names("types")), patterns(c.names("job_types")), c.param("after")
	f.sync()
	var page []*entry
	more, gap := false, false
	f.mu.Lock()
	list := f.entries
	if after != "" {
		var whole bool
		list, _, whole = f.after(after)
		gap = !whole
	}
	for _, e := range list {
		if !types.match(string(e.Type)) || len(jobTypes) > 0 && !jobTypes.match(e.jobType()) ||
			len(queues) > 0 && !slices.Contains(queues, e.Queue) {
			continue
		}
		if more = len(page) == limit; more {
			break
		}
		page = append(page, e)
	}
	f.mu.Unlock()
	b, cursor := append(c.buf[:0], `{"events":[`...), after
	for i, e := range page {
		if i > 0 {
			b = append(b, ',')
		}
		b, cursor = f.envelope(b, e.event()), f.id(e.place)
	}
	b = appendString(append(b, `],"cursor":`...), cursor)
	b = append(append(b, `,"has_more":`...), marshal(more)...)
	if gap {
		b = append(b, `,"gap":true`...)
	}
	return c.replyJSON(http.StatusOK, append(b, '}'))
}

// feed returns the feed, or refuses a call of a server that has none.
func (c *call) feed() (*feed, error) {
	if c.s.feed == nil {
		return nil, unsupported("this server knows no events: it has no engine, or is to keep none")
	}
	return c.s.feed, nil
}
