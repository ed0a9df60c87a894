package server

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs/internal/draft"
)

// A WebSocket connection follows channels of the feed (F131, F132, F180).
//
//  1. One goroutine reads messages; the one of the request acts on them and writes. So
//     a client that does not read its events is not read either.
//  2. All subscriptions of a connection share its reader in the feed, and so the buffer
//     and the rate of a stream.
//  3. A subscription has the events after its since. A resume replays those up to its
//     since: none is sent twice. It keeps a place in the feed, and not the events.
//  4. The caller is proved again at each message and each ping.

// WebSockets upgrades requests to WebSocket connections. Module server/websocket has an
// implementation.
type WebSockets interface {
	// Accept answers a request for a connection, with an error too. protocol is the
	// subprotocol that it agrees to. The origin has been checked.
	Accept(w http.ResponseWriter, r *http.Request, protocol string) (WebSocket, error)
}

// WebSocket is a connection. Its methods may be called at the same time. A Read or a
// Write whose ctx ends may close the connection.
type WebSocket interface {
	Read(ctx context.Context) (message []byte, err error)
	Write(ctx context.Context, text []byte) error
	Ping(ctx context.Context) error // returns when the pong has come
	Close(code int, reason string) error
}

// WithWebSockets offers the events over WebSocket connections, at /ojs/v1/ws. The default
// refuses these with 422.
func WithWebSockets(ws WebSockets) Option {
	return func(conf *config) error {
		if ws == nil {
			return draft.Invalid("web_sockets", "is nil")
		}
		conf.sockets = ws
		return nil
	}
}

const (
	socketProtocol      = "ojs.v1"
	socketPing          = 30 * time.Second
	socketPatience      = 10 * time.Second // for a pong
	socketSubscriptions = 100              // of one connection
	socketDepth         = 8                // of the JSON of a message
	codeUnknownEvent    = "unknown_event_id"
)

// The codes with which the server closes a connection (RFC 6455).
const (
	closeNormal = 1000
	closeAway   = 1001
	closePolicy = 1008
)

// socket is a connection.
type socket struct {
	c    *call
	f    *feed
	r    *reader
	conn WebSocket
	ctx  context.Context
	end  context.CancelFunc

	replay replay
	bucket limiter
	buf    []byte
}

// replay are the events that a resume has asked for and that are not sent yet.
type replay struct {
	next, end uint64          // the numbers of the entries from next on, without end
	after     position        // no event up to this place is sent
	subs      []*subscription // of the resume
}

// socket answers GET /ws.
func (s *Server) socket(c *call) error {
	if s.conf.sockets == nil {
		return unsupported("WebSocket connections are not offered: follow " + base + "/events/stream")
	}
	f, err := c.feed()
	if err != nil {
		return err
	}
	if err := checkUpgrade(c.r); err != nil {
		return err
	}
	asked := *c.r
	asked.Method = http.MethodPost // the pages of other origins may not even read here
	if err := s.crossOrigin(&asked); err != nil {
		return err
	}
	r := newReader()
	leave, err := f.enter(c, r)
	if err != nil {
		return err
	}
	defer leave()
	conn, err := s.conf.sockets.Accept(c.w, c.r, socketProtocol)
	if err != nil {
		return nil // and the request is answered
	}
	c.status = http.StatusSwitchingProtocols
	k := &socket{c: c, f: f, r: r, conn: conn,
		bucket: limiter{conf: RequestRate{PerSecond: streamRate, Burst: streamRate}}}
	k.ctx, k.end = context.WithCancel(c.ctx)
	messages := make(chan []byte)
	var others sync.WaitGroup
	others.Go(func() { k.read(messages) })
	code := k.serve(messages, &others)
	_ = conn.Close(code, "")
	k.end()
	others.Wait()
	return nil
}

// checkUpgrade refuses a request that asks for no WebSocket connection, in the binding's
// form.
func checkUpgrade(r *http.Request) error {
	names := func(header, word string) bool {
		for _, line := range r.Header.Values(header) {
			for part := range strings.SplitSeq(line, ",") {
				if strings.EqualFold(strings.TrimSpace(part), word) {
					return true
				}
			}
		}
		return false
	}
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key"))
	if r.ProtoAtLeast(1, 1) && r.ProtoMajor == 1 && names("Connection", "upgrade") &&
		names("Upgrade", "websocket") && r.Header.Get("Sec-WebSocket-Version") == "13" && err == nil &&
		len(key) == 16 {
		return nil
	}
	refused := refuse(http.StatusUpgradeRequired, codeInvalid,
		"the request asks for no WebSocket connection of version 13, over HTTP/1.1")
	refused.header = [][2]string{{"Upgrade", "websocket"}, {"Connection", "Upgrade"},
		{"Sec-WebSocket-Version", "13"}}
	return refused
}

// read takes the client's messages until the connection ends.
func (k *socket) read(messages chan<- []byte) {
	defer k.end()
	for {
		m, err := k.conn.Read(k.ctx)
		if err != nil {
			return
		}
		select {
		case messages <- m:
		case <-k.ctx.Done():
			return
		}
	}
}

// serve acts on messages and sends events. It returns why it ends.
func (k *socket) serve(messages <-chan []byte, others *sync.WaitGroup) (code int) {
	pings := k.c.s.clock.Ticker(socketPing)
	defer pings.Stop()
	ready := make(chan struct{})
	close(ready)
	for {
		var waiting chan struct{}
		if k.waits() {
			waiting = ready
		}
		select {
		case m := <-messages:
			if !k.c.still(k.r.subs...) {
				return closePolicy
			}
			k.act(m)
		case <-pings.C:
			if !k.c.still(k.r.subs...) {
				return closePolicy
			}
			others.Go(k.ping)
		case <-waiting:
			k.next()
		case <-k.r.wake:
		case <-k.ctx.Done():
			return closeNormal
		case <-k.c.s.stop:
			<-k.f.ended
			for k.waits() && k.ctx.Err() == nil {
				k.next()
			}
			place := k.f.end()
			k.send(obj{"type", "event", "channel", "all", "event", string(systemShutdown), "data",
				shutdown, "id", k.f.id(place), "timestamp", k.c.s.now()})
			return closeAway
		}
	}
}

// ping ends the connection if no pong comes (F132).
func (k *socket) ping() {
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	defer k.c.s.clock.AfterFunc(socketPatience, cancel).Stop()
	if k.conn.Ping(ctx) != nil {
		k.end()
	}
}

// send writes a message within writeTime.
func (k *socket) send(message obj) { k.write(appendValue(k.buf[:0], message)) }

func (k *socket) write(text []byte) {
	k.buf = text
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	defer wall.AfterFunc(writeTime, cancel).Stop()
	if k.conn.Write(ctx, text) != nil {
		k.end()
	}
}

// waits reports whether there is an event to send.
func (k *socket) waits() bool {
	if k.replay.next < k.replay.end {
		return true
	}
	k.r.mu.Lock()
	defer k.r.mu.Unlock()
	return len(k.r.waits) > 0
}

// next sends the next entry: one that a resume asks for, or one of the feed.
func (k *socket) next() {
	if m := &k.replay; m.next < m.end {
		e, lost := k.f.from(m.next)
		if lost = min(lost, int(m.end-m.next)); lost > 0 {
			k.dropped(lost)
		}
		m.next += uint64(lost) + 1
		if e == nil || e.place.seq >= m.end {
			return
		}
		for _, sub := range m.subs {
			if !e.place.after(sub.since) && slices.Contains(k.r.subs, sub) && sub.wants(e) {
				k.events(sub, e, m.after)
			}
		}
		return
	}
	e, lost, ok := k.r.next()
	if !ok {
		return
	}
	if lost.n > 0 {
		k.dropped(lost.n)
	}
	if e.gap != nil {
		k.event(k.r.about().String(), &notice{e.place, systemGap, e.gap, nil}, k.c.s.now())
		return
	}
	for _, sub := range k.r.subs {
		if e.place.after(sub.since) && sub.wants(e) {
			k.events(sub, e, position{})
		}
	}
}

func (k *socket) dropped(n int) {
	k.send(obj{"type", "warning", "code", "events_dropped", "count", n})
}

// events sends what a subscription has of an entry.
func (k *socket) events(sub *subscription, e *entry, after position) {
	for _, t := range sub.wanted(e, after) {
		if sub.id != "" {
			k.write(k.f.envelope(k.buf[:0], t))
		} else {
			t.data = t.flat()
			k.event(sub.ch.String(), &t, e.Time)
		}
		if !k.c.s.pace(k.ctx, func() {}, &k.bucket) {
			return
		}
	}
}

func (k *socket) event(channel string, t *notice, at time.Time) {
	k.send(obj{"type", "event", "channel", channel, "event", string(t.typ), "data", raw(t.data), "id",
		k.f.id(t.place), "timestamp", at})
}

// act does what a message asks for.
func (k *socket) act(message []byte) {
	object, err := parseBody(message, socketDepth)
	if err == nil {
		err = k.c.s.limit(k.c)
	}
	if err == nil {
		in := &input{object: object, call: k.c}
		switch in.text("action") {
		case "subscribe":
			err = k.subscribe(in)
		case "unsubscribe":
			err = k.unsubscribe(in)
		case "resume":
			err = k.resume(in)
		default:
			in.fail("action", "is none", "subscribe, unsubscribe or resume")
			err = in.err
		}
	}
	if err != nil {
		r := k.c.refusalOf(err)
		k.c.s.logRefusal(k.c, r)
		k.send(obj{"type", "error", "code", r.code, "message", r.message})
	}
}

// subscribe begins a subscription, or gives one new types.
func (k *socket) subscribe(in *input) (err error) {
	name := in.text("channel")
	sub := &subscription{types: in.texts("event_types")}
	if in.err != nil {
		return in.err
	}
	done := obj{"type", "subscribed", "action", "subscribed", "channel", name}
	if name == "events" {
		filter := &input{call: k.c}
		if in.get("filter") != nil {
			filter = in.within("filter")
		}
		sub.types, sub.queues, sub.jobTypes = filter.texts("event_types"), filter.texts("queues"),
			filter.texts("job_types")
		if err := cmp.Or(in.err, filter.err); err != nil {
			return err
		}
		sub.queues, err = k.c.narrow(sub.queues)
		sub.id = "sub_" + uuid.Must(uuid.NewV7()).String()
		done = append(done, "subscription_id", sub.id)
	} else {
		sub.ch, err = k.c.s.channel(k.c, name)
		if len(sub.types) > 0 {
			done = append(done, "event_types", []string(sub.types))
		}
	}
	if err != nil {
		return err
	}
	if !k.add(sub) {
		return refuse(http.StatusTooManyRequests, codeRateLimited, "the connection has %d subscriptions",
			socketSubscriptions)
	}
	k.send(done)
	return nil
}

// add makes a subscription one of the reader's. It reports false if there are too many.
func (k *socket) add(sub *subscription) bool {
	k.f.sync()
	k.f.mu.Lock()
	defer k.f.mu.Unlock()
	k.r.mu.Lock()
	defer k.r.mu.Unlock()
	if old := k.find(sub.id, sub.ch.String()); old != nil {
		old.types = sub.types
		return true
	}
	sub.since = k.f.last
	if len(k.r.subs) == socketSubscriptions {
		return false
	}
	k.r.subs = append(k.r.subs, sub)
	return true
}

// find returns the subscription with an id or, if that is "", to a channel; nil: there is
// none.
func (k *socket) find(id, name string) *subscription {
	for _, sub := range k.r.subs {
		if sub.id == id && (id != "" || strings.EqualFold(sub.ch.String(), name)) {
			return sub
		}
	}
	return nil
}

// named returns the subscription that a message names.
func (k *socket) named(in *input) (*subscription, error) {
	id, name := in.text("subscription_id"), in.text("channel")
	if in.err != nil {
		return nil, in.err
	}
	if sub := k.find(id, name); sub != nil {
		return sub, nil
	}
	return nil, notFound("subscription", cmp.Or(id, name))
}

// unsubscribe ends a subscription.
func (k *socket) unsubscribe(in *input) error {
	sub, err := k.named(in)
	if err != nil {
		return err
	}
	k.r.mu.Lock()
	k.r.subs = slices.DeleteFunc(slices.Clone(k.r.subs), func(s *subscription) bool { return s == sub })
	k.r.mu.Unlock()
	done := obj{"type", "unsubscribed", "action", "unsubscribed"}
	if sub.id != "" {
		done = append(done, "channel", "events", "subscription_id", sub.id)
	} else {
		done = append(done, "channel", sub.ch.String())
	}
	k.send(done)
	return nil
}

// resume replays what the subscriptions have missed since an event, or the one that the
// message names.
func (k *socket) resume(in *input) error {
	subs, id := k.r.subs, in.name("last_event_id")
	if in.err != nil {
		return in.err
	}
	if in.get("channel") != nil || in.get("subscription_id") != nil {
		sub, err := k.named(in)
		if err != nil {
			return err
		}
		subs = []*subscription{sub}
	}
	if k.replay.next < k.replay.end {
		return refuse(http.StatusConflict, codeConflict, "the events of the resume before are being sent")
	}
	k.f.mu.Lock()
	list, after, whole := k.f.after(id)
	if whole {
		end := k.f.last.seq + 1
		k.replay = replay{next: end - uint64(len(list)), end: end, after: after, subs: subs}
	}
	k.f.mu.Unlock()
	if !whole {
		return refuse(http.StatusNotFound, codeUnknownEvent, "last_event_id is no event that is kept")
	}
	return nil
}
