package keyed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/depend"
	"github.com/ojsengine/ojs/storage/keyed/driver"
)

// How calls become transactions.
//
//  1. A call that writes waits in Storage.waiting. One goroutine leads: it takes what
//     waits, at most maxGroup calls, and runs them one after the other in a transaction
//     of the driver. A call that fails is rolled back in the overlay, and the others go
//     on without it. Then it commits, and tells all of them.
//  2. After driver.ErrConflict and driver.ErrRetry it runs them again, after a pause.
//  3. With Limits.Unsure, each transaction writes a token under a key of its handle, and
//     reads that key. After driver.ErrUnknown the next run reads it: if a token of these
//     calls is there, they are made. If not, they run again, and their new token keeps
//     the old transaction from being made later: it conflicts with what that has read.
//     Calls are deterministic, so the results of the last run are those of the one made.
//  4. A call that only reads has a transaction of its own, beside the others.

// maxGroup is how many calls share a transaction at most.
const maxGroup = 64

// call is a call that waits for its transaction.
type call struct {
	ctx  context.Context
	f    func(t *tx)
	done chan struct{}

	taken atomic.Bool // it has begun to run, or its context has ended before that
	outcome
}

// outcome is that of the run of a call that is made.
type outcome struct {
	notice storage.Notice
	aside  []storage.Quarantined // records that the run has moved to the quarantine
	err    error
}

// tx is the transaction of one call. Its functions fail (package fail). The call returns
// the error, after what it has written is rolled back.
type tx struct {
	o      *overlay
	s      *Storage
	notice *storage.Notice // what the call does; nil: it only reads
	ends   []depend.End    // jobs that it has ended, and that others may wait for
	lanes  lanes           // what it knows of limits

	everyEnd bool // ends has all jobs that it ends: others may come to wait for them

	aside []storage.Quarantined // records that it has moved to the quarantine
}

// panicked is a call that has panicked.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("%v\n%s", p.value, p.stack) }

// raise panics if a call has.
func raise(err error) {
	var p *panicked
	if errors.As(err, &p) {
		panic(p)
	}
}

// caught is fail.Caught, and returns other panics, too, for the goroutine of the call.
func caught(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{p, debug.Stack()}
		}
	}()
	return fail.Caught(f)
}

// change makes a call that may write and has a result.
func change[R any](ctx context.Context, s *Storage, f func(t *tx) R) (r R, err error) {
	if err := s.do(ctx, func(t *tx) { r = f(t) }); err != nil {
		return *new(R), err
	}
	return r, nil
}

// do makes a call that may write.
func (s *Storage) do(ctx context.Context, f func(t *tx)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := &call{ctx: ctx, f: f, done: make(chan struct{})}
	if j, err := s.joins(ctx); err != nil {
		return err
	} else if j != nil {
		return j.change(c)
	}
	if err := s.refuseWithin(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return s.errClosed()
	}
	s.waiting = append(s.waiting, c)
	if !s.leading {
		s.leading = true
		go s.lead()
	}
	s.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		if c.taken.CompareAndSwap(false, true) {
			return ctx.Err()
		}
		<-c.done
	}
	raise(c.err)
	s.listeners.TellFrom(nil, storage.Notice{Quarantined: c.aside}) // whether the call fails or not
	if c.err == nil {
		s.listeners.Tell(ctx, c.notice)
	}
	return c.err
}

// view makes a call that only reads.
func view[R any](ctx context.Context, s *Storage, f func(t *tx) R) (r R, err error) {
	for pause := time.Duration(0); ; {
		if err = ctx.Err(); err != nil {
			return *new(R), err
		}
		err = s.look(ctx, func(t *tx) { r = f(t) })
		var u *undecodable
		switch {
		case err == nil:
			return r, nil
		case errors.As(err, &u):
			if err = s.do(ctx, func(t *tx) { t.setAside(u) }); err != nil {
				return *new(R), err
			}
		case errors.Is(err, driver.ErrRetry):
			pause = wait(ctx, pause)
		default:
			raise(err)
			return *new(R), err
		}
	}
}

func (s *Storage) look(ctx context.Context, f func(t *tx)) error {
	j, err := s.joins(ctx)
	if err != nil {
		return err
	}
	var dtx driver.Tx
	if j != nil {
		dtx = j.tx
	} else {
		if dtx, err = s.begin(ctx, false); err != nil {
			return err
		}
		defer dtx.Discard()
	}
	return caught(func() { f(&tx{o: &overlay{tx: dtx}, s: s}) })
}

// begin begins a transaction of the driver.
func (s *Storage) begin(ctx context.Context, write bool) (driver.Tx, error) {
	dtx, err := s.db.Begin(ctx, write)
	if errors.Is(err, driver.ErrClosed) {
		return nil, s.errClosed()
	}
	return dtx, err
}

// lead makes transactions until no call waits.
func (s *Storage) lead() {
	for {
		s.mu.Lock()
		n := min(len(s.waiting), maxGroup)
		group := s.waiting[:n:n]
		s.waiting, s.leading = s.waiting[n:], n > 0
		s.mu.Unlock()
		if n == 0 {
			return
		}
		for len(group) > 0 {
			made := s.run(group)
			for _, c := range group[:made] {
				close(c.done)
			}
			group = group[made:]
		}
	}
}

// run makes calls in one transaction, again for as long as others come first. It returns
// how many it has made: what does not fit is left.
func (s *Storage) run(group []*call) (made int) {
	ctx, cancel := together(group)
	defer cancel()
	before, unknown := s.tokens, 0
	for pause := time.Duration(0); ; pause = wait(ctx, pause) {
		made, err := s.try(ctx, group, before, unknown)
		switch {
		case err == nil:
			return made
		case errors.Is(err, driver.ErrUnknown):
			unknown = made
		case errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrRetry):
		default:
			for _, c := range group {
				c.err = err
			}
			return len(group)
		}
	}
}

// try makes calls in one transaction. If unknown is not 0, a transaction that has made as
// many of them may be there, with a token behind before.
func (s *Storage) try(ctx context.Context, group []*call, before int64, unknown int) (made int, err error) {
	dtx, err := s.begin(ctx, true)
	if err != nil {
		return 0, err
	}
	defer dtx.Discard()
	o := &s.overlay
	o.reset(dtx)
	defer o.reset(nil)
	if s.limits.Unsure {
		var token []byte
		if err := caught(func() { token = o.get(s.token) }); err != nil {
			return 0, err
		}
		if unknown > 0 && number(token) > before {
			return unknown, nil
		}
	}
	var outcomes []outcome
	for _, c := range group {
		mark := len(o.undo)
		c.taken.Store(true)
		r := outcome{err: c.ctx.Err()}
		if r.err == nil {
			r = c.run(&tx{o: o, s: s}, &mark)
		}
		if errors.Is(r.err, driver.ErrRetry) {
			return 0, r.err
		}
		if r.err == nil && !o.fits(s.limits) {
			if mark > 0 { // the next transaction has room for it
				o.rollback(mark)
				break
			}
			r.err = fmt.Errorf("ojs: storage %s: the call writes %d keys of %d bytes, and a transaction of the store has room for %d of %d: make it with fewer jobs",
				s.name, o.writes, o.bytes, s.limits.Writes, s.limits.Bytes)
		}
		if r.err != nil {
			o.rollback(mark)
		}
		outcomes = append(outcomes, r)
	}
	if s.limits.Unsure && (unknown > 0 || o.writes > 0) {
		s.tokens++
		o.set(s.token, key{}.number(s.tokens))
	}
	if err = dtx.Commit(o.changes()); err == nil || errors.Is(err, driver.ErrUnknown) {
		for i := range outcomes {
			group[i].outcome = outcomes[i]
		}
	}
	return len(outcomes), err
}

// run makes a call, again without each record that does not decode. Records that it has
// moved to the quarantine stay there: mark is behind these writes.
func (c *call) run(t *tx, mark *int) outcome {
	for {
		var notice storage.Notice
		t.notice, t.ends, t.everyEnd, t.lanes = &notice, nil, false, lanes{}
		err := caught(func() { c.f(t); t.keepLimits() })
		var u *undecodable
		if !errors.As(err, &u) {
			return outcome{notice, t.aside, err}
		}
		t.o.rollback(*mark)
		t.lanes = lanes{}
		if err := caught(func() { t.setAside(u); t.keepLimits() }); err != nil {
			return outcome{err: err}
		}
		*mark = len(t.o.undo)
	}
}

// fits reports whether a transaction has room for what is written, and for a token.
func (o *overlay) fits(l driver.Limits) bool {
	return (l.Writes == 0 || o.writes < l.Writes) && (l.Bytes == 0 || o.bytes+64 < l.Bytes)
}

// together returns a context that ends when those of all calls have.
func together(group []*call) (context.Context, context.CancelFunc) {
	if len(group) == 1 {
		return group[0].ctx, func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(group[0].ctx))
	var left atomic.Int64
	left.Store(int64(len(group)))
	stops := make([]func() bool, len(group))
	for i, c := range group {
		stops[i] = context.AfterFunc(c.ctx, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

// wall measures pauses.
var wall = clock.New()

// wait waits for a pause or the end of ctx, and returns the next pause.
func wait(ctx context.Context, pause time.Duration) time.Duration {
	if pause > 0 {
		timer := wall.Timer(pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return min(max(2*pause, time.Millisecond), 100*time.Millisecond)
}

func (t *tx) get(k key) []byte { return t.o.get(k) }
func (t *tx) delete(k key)     { t.o.set(k, nil) }

func (t *tx) put(k key, value []byte) {
	if value == nil {
		value = []byte{}
	}
	t.o.set(k, value)
}

func (t *tx) number(k key) int64 { return number(t.get(k)) }

// counter returns the number at the beginning of a value, and what is behind it.
func (t *tx) counter(k key) (n int64, rest []byte) {
	v := t.get(k)
	if len(v) > numberLen {
		rest = v[numberLen:]
	}
	return number(v), rest
}

// putNumber writes a number, and what is to be behind it.
func (t *tx) putNumber(k key, n int64, rest ...byte) {
	t.put(k, append(make(key, 0, 2*numberLen).number(n), rest...))
}

// next returns a number above all that it has returned for the name.
func (t *tx) next(name string) int64 { return t.increase(meta(name), 1) }

// add changes a counter and returns what it is then. Counters of zero are not stored.
func (t *tx) add(k key, by int) int64 {
	n := t.increase(k, by)
	if n == 0 {
		t.delete(k)
	}
	return n
}

// increase adds to the number at the beginning of a value. The rest stays as it is.
func (t *tx) increase(k key, by int) int64 {
	n, rest := t.counter(k)
	n += int64(by)
	t.putNumber(k, n, rest...)
	return n
}

// deleteAll deletes the entries whose keys begin with a prefix, but for the last few.
func (t *tx) deleteAll(prefix key, keep int) {
	var all []key
	for rest := range t.scan(prefix, nil) {
		all = append(all, append(slices.Clone(prefix), rest...))
	}
	for _, k := range all[:max(len(all)-keep, 0)] {
		t.delete(k)
	}
}

// scan yields the entries whose keys begin with prefix, in the order of their keys, from
// prefix and from on, each with what follows the prefix in its key.
func (t *tx) scan(prefix, from key) iter.Seq2[[]byte, []byte] {
	return t.pages(prefix, append(append(key{}, prefix...), from...), behind(prefix), 8, forward)
}

// pages is scan of a part of the prefix, in a way, that reads n pairs at first.
func (t *tx) pages(prefix key, from, to []byte, n int, w way) iter.Seq2[[]byte, []byte] {
	return func(yield func(rest, value []byte) bool) {
		t.o.scan(from, to, n, w, func(k, v []byte) bool { return yield(k[len(prefix):], v) })
	}
}

// first returns the first entry whose key begins with prefix, nil if there is none.
func (t *tx) first(prefix key) (rest, value []byte) {
	for rest, value := range t.pages(prefix, prefix, behind(prefix), 1, forward) {
		return rest, value
	}
	return nil, nil
}

// groups yields the first n names of the keys of a table, as they are in a key. Keys with
// the same n names are a group, whose names are yielded once. Only keys that begin with
// the names in begin are read.
func (t *tx) groups(in table, begin key, n int) iter.Seq[[]byte] {
	return func(yield func(names []byte) bool) {
		all, part := newKey(in), append(newKey(in), begin...)
		for from, more := []byte(part), true; more; {
			more = false
			for rest := range t.pages(all, from, behind(part), 1, forward) {
				r := readerOf(rest)
				for range n {
					r.name()
				}
				names := rest[:len(rest)-len(r.B)]
				from, more = behind(append(newKey(in), names...)), yield(names)
				break
			}
		}
	}
}
