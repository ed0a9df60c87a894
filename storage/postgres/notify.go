package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/internal/times"
	"github.com/ojsengine/ojs/storage"
)

// Notify implements storage.Notifier. Notices of calls of this Storage arrive before the
// call returns. Other processes receive them by NOTIFY, some milliseconds later. If
// notifications do not arrive, as behind a pooler of transactions without WithListenDSN,
// those processes find the changes at their next poll (WithPoll). When a caller's
// transaction (WithTx) commits, its notices reach every process in the same way, this one
// too.
func (s *Storage) Notify(self any, f func(storage.Notice)) (stop func()) {
	return s.hub.Notify(self, f)
}

// tell says what a call has done.
func (s *Storage) tell(ctx context.Context, n *storage.Notice) {
	if n.Empty() {
		return
	}
	s.hub.Tell(ctx, *n)
	s.out.add(n)
}

var notifySQL = define("notify", `SELECT pg_notify($1, payload) FROM unnest($2::text[]) payload`)

// sendSQL is notifySQL in a transaction that nothing is lost with: its commit waits
// neither for the disk nor for a standby.
var sendSQL = define("send", `SELECT pg_notify($1, payload)
		FROM unnest($2::text[]) payload, (SELECT set_config('synchronous_commit', 'off', true)) unflushed`)

// tellAtCommit says what a call has done in the transaction of its context.
func (t *tx) tellAtCommit(n *storage.Notice) {
	if !n.Empty() {
		t.exec(notifySQL, t.s.channel(), payloads("tx", n))
	}
}

// outbox collects what other processes are to be told, so that NOTIFY, for which
// transactions queue up, is not part of each.
type outbox struct {
	signal chan struct{} // something is in; capacity 1

	mu     sync.Mutex // guards the fields below
	notice storage.Notice
}

const (
	// notifyEvery is how long notices are collected before they are sent.
	notifyEvery = 10 * time.Millisecond
	// maxTold bounds the ids of one sending. The next poll finds the rest.
	maxTold = 500
)

func (o *outbox) add(n *storage.Notice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := &o.notice
	for i, flag := range flags(n) {
		*flags(t)[i] = *flags(t)[i] || *flag
	}
	t.Due, t.Opens = times.Earliest(t.Due, n.Due), times.Earliest(t.Opens, n.Opens)
	t.Taken = append(t.Taken, n.Taken[:min(len(n.Taken), max(maxTold-len(t.Taken), 0))]...)
	t.Ended = append(t.Ended, n.Ended[:min(len(n.Ended), max(maxTold-len(t.Ended), 0))]...)
	select {
	case o.signal <- struct{}{}:
	default:
	}
}

func (o *outbox) take() (n storage.Notice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, o.notice = o.notice, storage.Notice{}
	return n
}

// send passes on what is in the outbox, until ctx ends and nothing is left in there.
func (s *Storage) send(ctx context.Context) {
	for ended := false; !ended; {
		select {
		case <-s.out.signal:
		case <-ctx.Done():
			ended = true
		}
		n := s.out.take()
		if n.Empty() {
			continue
		}
		list := payloads(s.id, &n)
		err := s.toEnd(ctx, func(ctx context.Context) error {
			return s.query(ctx, s.sent(sendSQL, nil, s.channel(), list))
		})
		if err != nil && ctx.Err() == nil {
			s.config.log.Warn("ojs: postgres: notification not sent: others find it when they look",
				"error", err)
		}
		select {
		case <-wall.After(notifyEvery):
		case <-ctx.Done():
		}
	}
}

func (s *Storage) channel() string { return "ojs:" + s.config.schema }

// A payload is who sends it and words: that jobs are available (a), that the limit of a
// queue or type has been set (w, which is a payload of its own), when jobs are due (d),
// when a limit opens (o), that recurring jobs have changed (c), that values have been put
// (v), that it is a probe of the sender's (p), that records were set aside, or anything
// has changed (q), and of single jobs that they have ended (e) or that a claim has been
// taken (x cancelled, r replaced, l lost).
const maxPayload = 7500 // of the 7999 bytes that PostgreSQL takes

var causes = map[byte]error{'x': ojs.ErrCancelled, 'r': ojs.ErrReplaced, 'l': ojs.ErrLeaseLost}

// flagWords are the words of the flags of a notice, and timeWords those of its times.
const (
	flagWords = "acvq"
	timeWords = "do"
)

func flags(n *storage.Notice) [4]*bool {
	return [...]*bool{&n.Available, &n.Crons, &n.Values, &n.Everything}
}

func moments(n *storage.Notice) [2]*time.Time { return [...]*time.Time{&n.Due, &n.Opens} }

func payloads(from string, n *storage.Notice) []string {
	var words []string
	for i, flag := range flags(n) {
		if *flag {
			words = append(words, flagWords[i:i+1])
		}
	}
	for i, at := range moments(n) {
		if !at.IsZero() {
			words = append(words, fmt.Sprintf("%c%d", timeWords[i], rows.Nanos(*at)))
		}
	}
	if len(n.Quarantined) > 0 {
		words = append(words, "q")
	}
	for _, t := range n.Taken {
		for c, cause := range causes {
			if cause == t.Cause {
				words = append(words, fmt.Sprintf("%c%s.%d", c, t.ID, t.Version))
			}
		}
	}
	for _, id := range n.Ended {
		words = append(words, "e"+id)
	}
	var list []string
	b := []byte(from)
	for _, w := range words {
		if len(b)+1+len(w) > maxPayload {
			list = append(list, string(b))
			b = b[:len(from)]
		}
		b = append(append(b, ' '), w...)
	}
	return append(list, string(b))
}

// parse reads a payload. It skips words that it does not know, because a later version of
// this package may have sent them.
func parse(payload string) (from string, n storage.Notice) {
	from, rest, _ := strings.Cut(payload, " ")
	for w := range strings.FieldsSeq(rest) {
		arg := w[1:]
		if i := strings.IndexByte(flagWords, w[0]); i >= 0 {
			*flags(&n)[i] = true
		}
		if i := strings.IndexByte(timeWords, w[0]); i >= 0 {
			if ns, err := strconv.ParseInt(arg, 10, 64); err == nil {
				*moments(&n)[i] = rows.Time(ns)
			}
		}
		switch w[0] {
		case 'e':
			n.Ended = append(n.Ended, arg)
		case 'x', 'r', 'l':
			id, version, _ := strings.Cut(arg, ".")
			if v, err := strconv.ParseInt(version, 10, 64); err == nil {
				n.AddTaken(id, uint64(v), causes[w[0]])
			}
		}
	}
	return from, n
}

const (
	// listenAgain is the longest pause before the storage tries to listen again.
	listenAgain = time.Second
	// listenAtAll is the same for a storage that has not listened yet. It may be on a
	// standby, which notifies of nothing.
	listenAtAll = 10 * time.Second
)

// watch hears what others send and looks by itself now and then, until ctx ends. It logs
// the first failure, those that follow once a minute, and their end.
func (s *Storage) watch(ctx context.Context) {
	var failures int
	var began, told time.Time // of the failures
	longest := listenAtAll
	hears := func() {
		longest = listenAgain
		if s.unheard.Swap(nil) != nil {
			s.config.log.Info("ojs: postgres: listening again",
				"after", wall.Since(began).Round(time.Millisecond))
		}
	}
	for ctx.Err() == nil {
		tried := wall.Now()
		listens, deafen := context.WithCancel(ctx)
		s.deafen.Store(&deafen)
		err := s.hear(listens, hears)
		s.awaits.Store(false)
		moved := listens.Err() != nil
		deafen()
		if moved { // or ctx has ended
			continue
		}
		now := wall.Now()
		if err = wrap(err); s.unheard.Swap(&err) == nil {
			began, told = now, now
			s.config.log.Warn("ojs: postgres: not listening",
				"error", err)
		} else if now.Sub(told) >= time.Minute {
			told = now
			s.config.log.Warn("ojs: postgres: still not listening", "error", err,
				"for", now.Sub(began).Round(time.Second))
		}
		if now.Sub(tried) > time.Minute {
			failures = 0
		}
		failures++
		select {
		case <-wall.After(min(100*time.Millisecond<<min(failures-1, 10), longest)):
		case <-ctx.Done():
		}
		s.hub.Tell(ctx, storage.Notice{Everything: true}) // of what was not heard meanwhile
	}
}

// CheckNotify implements storage.NotifyChecker.
func (s *Storage) CheckNotify() error {
	if err := s.unheard.Load(); err != nil {
		return *err
	}
	return nil
}

// hear listens on its own connection until that fails. It calls hears after each look.
func (s *Storage) hear(ctx context.Context, hears func()) error {
	if err := s.toEnd(ctx, s.checkPlaces); err != nil { // of a server that is another one, perhaps
		return err
	}
	var conn *pgx.Conn
	err := s.toEnd(ctx, func(ctx context.Context) (err error) {
		conn, err = s.listen(ctx)
		return err
	})
	if err != nil {
		return err
	}
	defer hangUp(conn)
	p := pulse{id: s.id, poll: s.config.poll, next: wall.Now(), proven: s.proven}
	defer func() { s.proven = p.proven }()
	for {
		if !wall.Now().Before(p.next) {
			if p.look(); p.lost == mostLost {
				return errOtherServer
			}
			err := s.toEnd(ctx, func(ctx context.Context) error { return s.look(ctx, conn, &p) })
			if err != nil {
				return err
			}
			hears()
			p.next = wall.Now().Add(p.poll)
		}
		until := p.next
		if patient := wall.Now().Add(s.config.patience); patient.Before(p.next) {
			until = patient
		}
		wait, cancel := wall.WithDeadline(ctx, until)
		got, err := conn.WaitForNotification(wait)
		timedOut := wait.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil && p.hears(got.Payload):
		case err == nil && strings.HasPrefix(got.Payload, s.id):
			p.lost = 0 // it comes from the pool, too
		case err == nil:
			_, n := parse(got.Payload)
			s.hub.Tell(ctx, n)
			if strings.HasSuffix(got.Payload, " w") { // an end may have been told to none since
				err := s.toEnd(ctx, func(ctx context.Context) error {
					return fail.Caught(s.with(ctx, bare{conn}).lookAtStates)
				})
				if err != nil {
					return err
				}
				s.tell(ctx, &storage.Notice{Available: true})
			}
		case !timedOut:
			return err
		case until.Before(p.next): // after a long silence the connection may be dead
			if err := s.toEnd(ctx, conn.Ping); err != nil {
				return err
			}
		}
	}
}

// pulse says when a listener looks by itself: often, but seldom while the probe of its
// latest look comes back, which proves that notifications do.
type pulse struct {
	id    string // of the storage
	poll  time.Duration
	next  time.Time
	looks int
	probe string // of the latest look; "": it has come back

	proven bool // a probe has come back, on this connection or on an earlier one
	lost   int  // probes in a row that have not come back, although some did before
}

// mostLost is how many probes in a row may be lost before the listener connects anew. The
// pool sends them: they are lost if it leads to another server than the listener, such as
// one that has ceased to be the primary and does not know it.
const mostLost = 3

var errOtherServer = errors.New("the notifications of the pool's server do not arrive")

// look makes the probe of another look.
func (p *pulse) look() {
	if p.proven && p.probe != "" {
		p.lost++
	}
	p.looks++
	p.probe = fmt.Sprintf("%s p%d", p.id, p.looks)
}

// hears reports whether a payload is the probe that is waited for. Nothing else proves
// anything.
func (p *pulse) hears(payload string) bool {
	if p.probe == "" || payload != p.probe {
		return false
	}
	p.probe, p.proven, p.lost = "", true, 0
	p.next = p.next.Add(9 * p.poll)
	return true
}

// compactServedSQL deletes rounds that do not count: those with a later one, and those of
// levels without waiting jobs. Rows are never updated, so a ctid names one.
var compactServedSQL = define("compactServed", `DELETE FROM {schema}.served WHERE ctid = ANY (ARRAY(SELECT s.ctid FROM {schema}.served s
		WHERE EXISTS (SELECT FROM {schema}.served t
			WHERE t.queue = s.queue AND t.priority = s.priority AND t.place > s.place)
		OR (SELECT j.seq FROM {schema}.ready j WHERE j.queue = s.queue AND j.priority = s.priority
			AND j.own_place IS NOT NULL ORDER BY -j.place LIMIT 1) IS NULL
		FOR UPDATE SKIP LOCKED))`)

var unflushedSQL = define("unflushed", `SELECT set_config('synchronous_commit', 'off', true)`)

var compactSQL = define("compact", `WITH gone AS (DELETE FROM {schema}.tally RETURNING *)
		INSERT INTO {schema}.tally SELECT queue, state, dead, sum(n), type FROM gone GROUP BY 1, 2, 3, 5 HAVING sum(n) <> 0`)

// look is what is done now and then: engines look at everything, the clocks are compared,
// and the counts summed up. Its commits wait for no standby. The first look of a storage
// sums up nothing: a program may open it for a moment only. Last of all a look sends a
// probe, which comes back if notifications do: behind a pooler the connection is lent to
// others while it says nothing, and what it hears by chance while it is speaking proves
// nothing.
func (s *Storage) look(ctx context.Context, conn *pgx.Conn, p *pulse) error {
	before := s.ClockOffset()
	t := s.with(ctx, bare{conn})
	err := fail.Caught(func() {
		t.measureClock()
		if by := s.ClockOffset() - before; by.Abs() >= time.Second {
			s.config.log.Warn("ojs: postgres: the clocks of the database and of this machine have moved apart: "+
				"leases and schedules follow the database's", "by", by)
		}
		t.checkVersion()
		t.lookAtStates()
		t.lookForStandby()
	})
	if err != nil {
		return err
	}
	for _, of := range []statement{compactSQL, compactServedSQL} {
		if p.looks == 1 && !p.proven {
			break
		}
		err := s.begun(ctx, t.on, func(t *tx) {
			t.exec(tuneSQL)
			t.exec(unflushedSQL)
			t.exec(of)
		})
		if err != nil && !isCode(err, lockNotAvailable) && !isCode(err, serializationFailure) &&
			!mayNot(err) {
			return err
		}
	}
	s.hub.Tell(ctx, storage.Notice{Everything: true})
	return s.query(ctx, s.sent(sendSQL, nil, s.channel(), []string{p.probe}))
}

// statesSQL returns whether a queue is paused, and the kinds and names of the limits of
// queues and types.
var statesSQL = define("states", `SELECT EXISTS (SELECT FROM {schema}.queue_state WHERE state = 'paused'),
		ARRAY(SELECT kind FROM {schema}.job_limit WHERE kind IN ('queue', 'type') ORDER BY kind, name),
		ARRAY(SELECT name FROM {schema}.job_limit WHERE kind IN ('queue', 'type') ORDER BY kind, name)`)

// lookAtStates is called by Open, and then by the listener alone.
func (t *tx) lookAtStates() {
	var paused bool
	var of lockedLimits
	t.query(statesSQL, one(&paused, &of.kinds, &of.names))
	t.s.paused.Store(paused)
	wide := make(map[storage.LimitName]bool)
	for _, name := range of.list() {
		wide[name] = true
	}
	t.s.wide.Store(&wide)
}

// ClockOffset implements storage.Clocked: the clock is the database's.
func (s *Storage) ClockOffset() time.Duration { return time.Duration(s.offset.Load()) }

var clockSQL = define("clock", `SELECT clock_timestamp()`)

// measureClock finds out how far the database's clock is ahead, from the quickest of some
// answers. Smaller differences than the time of an answer are not known, and change
// nothing.
func (t *tx) measureClock() {
	s := t.s
	var offset, quickest time.Duration
	for i := range 3 {
		var there time.Time
		before := s.clock.Now()
		t.query(clockSQL, one(&there))
		after := s.clock.Now()
		if took := after.Sub(before); i == 0 || took < quickest {
			quickest, offset = took, there.Sub(before.Add(took/2))
		}
	}
	if d := offset - s.ClockOffset(); d > quickest || d < -quickest {
		s.offset.Store(int64(offset))
	}
}
