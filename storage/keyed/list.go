package keyed

import (
	"bytes"
	"container/heap"
	"context"
	"encoding/binary"
	"iter"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/cursor"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

// maxLooked is how many jobs a page looks at, so that no listing reads for long.
const maxLooked = 1024

// listing is an order of a listing: the keys of tables, each from behind its prefix on,
// merged, and what stands there.
type listing struct {
	prefixes []key
	claims   bool // it has the active jobs besides
	descends bool
	format   string // of what follows the prefix: n is a number, s the nanoseconds behind it
	seq      bool   // the last number is the seq; or else the value begins with it

	// Only entries with low <= r < high are wanted, where r follows the prefix. nil is no
	// bound. The cursor of a page replaces the bound at which the page begins.
	low, high key
}

func (t *tx) listing(q *storage.Query) listing {
	switch q.Order {
	case storage.OrderFinished:
		l := listing{descends: true, format: "nsn"}
		if !q.FinishedFrom.IsZero() {
			l.low = key{}.time(q.FinishedFrom)
		}
		if !q.FinishedBefore.IsZero() {
			l.high = key{}.time(q.FinishedBefore)
		}
		switch {
		case q.ByError():
			l.prefixes = t.failed(q)
			return l
		case q.TimedRare():
			l.prefixes = t.inStates(timeTable, q, ojs.StateCancelled, ojs.StateDiscarded)
			return l
		}
		for _, state := range ojs.AllStates() {
			if !state.Terminal() || len(q.States) > 0 && !slices.Contains(q.States, state) {
				continue
			}
			for _, kept := range []bool{false, true} {
				l.prefixes = append(l.prefixes, endedKey(state, true, kept))
				if !q.DeadLetters {
					l.prefixes = append(l.prefixes, endedKey(state, false, kept))
				}
			}
		}
		return l
	case storage.OrderDue:
		if q.TimedRare() {
			return listing{format: "nsn", prefixes: t.inStates(timeTable, q,
				ojs.StatePending, ojs.StateScheduled, ojs.StateRetryable)}
		}
		return listing{prefixes: []key{wakeKey(waits), wakeKey(leased)}, format: "nsn"}
	case storage.OrderClaim:
		l := listing{format: "nnn"}
		for _, of := range t.backlogs("") {
			if len(q.Queues) == 0 || slices.Contains(q.Queues, of.queue) {
				l.prefixes = append(l.prefixes, newKey(availableTable).name(of.queue))
			}
		}
		l.prefixes = slices.CompactFunc(l.prefixes, slices.Equal[key])
		return l
	}
	l := listing{format: "n", descends: q.Order == storage.OrderNewest}
	switch {
	case q.DeadLetters && q.Narrowed():
		l.prefixes = t.inState(newKey(deadOfTable), q, ojs.StateDiscarded)
	case q.DeadLetters:
		l.prefixes = []key{newKey(deadTable)}
	case q.Workflow != "":
		l.prefixes = []key{newKey(workflowTable).name(q.Workflow)}
	case q.OfRare():
		l.prefixes = t.inStates(stateTable, q, ojs.StatePending, ojs.StateScheduled, ojs.StateRetryable,
			ojs.StateCancelled, ojs.StateDiscarded)
		l.claims = slices.Contains(q.States, ojs.StateActive)
	case q.Keepers:
		l.prefixes = []key{newKey(keeperTable)}
	default:
		l.prefixes, l.seq = []key{newKey(jobTable)}, true
	}
	return l
}

// failed returns the prefixes of the discarded jobs that a query may select by the types
// of their errors.
func (t *tx) failed(q *storage.Query) (prefixes []key) {
	asked := storage.Query{Types: slices.Clone(q.ErrorTypes)}
	for i, pattern := range asked.Types { // as much of it as a key has
		asked.Types[i] = pattern[:min(len(pattern), maxName)]
	}
	for of := range t.groups(failTable, nil, 1) {
		if name, _ := cut(of); asked.MayMatch("", "", name) {
			prefixes = append(prefixes, append(newKey(failTable), of...))
		}
	}
	return prefixes
}

// inStates returns the prefixes, in a table of states, queues and types, of the jobs in
// some rare states that a query may select.
func (t *tx) inStates(in table, q *storage.Query, states ...ojs.State) (prefixes []key) {
	for _, state := range states {
		of := newKey(in).byte(byte(rows.Code(state)))
		prefixes = append(prefixes, t.inState(of, q, state)...)
	}
	return prefixes
}

// inState returns the prefixes of the jobs in a state that a query may select. In each, a
// queue and a type follow what is given.
func (t *tx) inState(in key, q *storage.Query, state ojs.State) (prefixes []key) {
	if len(q.States) > 0 && !slices.Contains(q.States, state) {
		return nil
	}
	for of := range t.scan(newKey(countTable).byte(byte(rows.Code(state))), nil) {
		if queue, jobType := section(of); q.MayMatch(state, queue, jobType) {
			prefixes = append(prefixes, append(slices.Clone(in), of...))
		}
	}
	return prefixes
}

// position reads what follows a prefix as the position of a cursor.
func (l *listing) position(rest []byte) (p cursor.Position) {
	for i, field := range l.format {
		if field == 's' {
			p[i], rest = int64(binary.BigEndian.Uint32(rest)), rest[timeLen-numberLen:]
		} else {
			p[i], rest = number(rest), rest[numberLen:]
		}
	}
	return p
}

// at is what position reads.
func (l *listing) at(p cursor.Position) (rest key) {
	for i, field := range l.format {
		if field == 's' {
			rest = binary.BigEndian.AppendUint32(rest, uint32(p[i]))
		} else {
			rest = rest.number(p[i])
		}
	}
	return rest
}

// List implements storage.Storage.
func (s *Storage) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	return view(ctx, s, func(t *tx) (page storage.Page) {
		walk := fail.Must(rule.Begin(s.name, &q))
		l := t.listing(&q)
		for rest, value := range t.from(&l, &walk) {
			at := l.position(rest)
			if len(page.Records) == q.Limit || page.Looked == maxLooked {
				walk.Stop(at)
				break
			}
			page.Looked++
			walk.Pass(at)
			seq := rest
			if !l.seq {
				seq = value[:numberLen]
				value = t.get(jobKey(seq))
			}
			var head job
			_, err := head.decodeHead(value)
			if err == nil && !q.MayMatch(head.State, head.Queue, head.Type) {
				continue
			}
			if j := t.load(seq); q.Matches(&j.Record) {
				page.Records = append(page.Records, j.Record)
			}
		}
		if walk.From.Back {
			slices.Reverse(page.Records)
		}
		page.Prev, page.Next = walk.Ends()
		return page
	})
}

// from yields the entries of a listing from where a page begins, in its direction.
func (t *tx) from(l *listing, walk *cursor.Walk) iter.Seq2[[]byte, []byte] {
	w := forward
	if l.descends != walk.From.Back {
		w = backward
	}
	low, high := l.low, l.high
	if !walk.First {
		cut := l.at(walk.From.After)
		if !l.descends { // the cut is right behind the entry
			cut = append(cut, 0)
		}
		if w == backward {
			high = cut
		} else {
			low = cut
		}
	}
	if l.claims {
		return t.mergedFrom(l.prefixes, low, high, w, t.claimsFrom(low, high, w))
	}
	return t.mergedFrom(l.prefixes, low, high, w)
}

// claimsFrom is mergedFrom of the active jobs, by seq.
func (t *tx) claimsFrom(low, high key, w way) iter.Seq2[[]byte, []byte] {
	return func(yield func(rest, value []byte) bool) {
		list := t.claims()
		if w == backward {
			slices.Reverse(list)
		}
		for _, v := range list {
			seq := v[:numberLen]
			wanted := bytes.Compare(seq, low) >= 0 && (high == nil || bytes.Compare(seq, high) < 0)
			if wanted && !yield(seq, v) {
				return
			}
		}
	}
}

// merged yields the entries of several prefixes in the order of what follows these.
func (t *tx) merged(prefixes []key, w way) iter.Seq2[[]byte, []byte] {
	return t.mergedFrom(prefixes, nil, nil, w)
}

// mergedFrom yields the entries whose rest r, which follows one of the prefixes, has
// low <= r < high, in the order of r. nil is no bound. It merges the entries of more with
// them, which have to be within the bounds.
func (t *tx) mergedFrom(prefixes []key, low, high key, w way, more ...iter.Seq2[[]byte, []byte],
) iter.Seq2[[]byte, []byte] {
	return func(yield func(rest, value []byte) bool) {
		m := merge{w: w}
		defer m.stop()
		for _, pairs := range more {
			m.add(pairs)
		}
		n := 8
		if len(prefixes) > n { // most are not gone far into
			n = 1
		}
		for _, prefix := range prefixes {
			from, to := append(slices.Clone(prefix), low...), behind(prefix)
			if high != nil {
				to = append(slices.Clone(prefix), high...)
			}
			pairs := t.pages(prefix, from, to, n, w)
			if len(prefixes)+len(more) == 1 {
				pairs(yield)
				return
			}
			m.add(pairs)
		}
		for len(m.streams) > 0 {
			if best := m.streams[0]; !yield(best.rest, best.value) {
				return
			}
			m.advance()
		}
	}
}

// merge merges entries in the order of their keys.
type merge struct {
	w       way
	streams []*stream // a heap: the first has the first entry
}

// stream is entries, from the first that was not yielded.
type stream struct {
	next        func() (rest, value []byte, ok bool)
	stop        func()
	rest, value []byte
}

func newStream(pairs iter.Seq2[[]byte, []byte]) *stream {
	next, stop := iter.Pull2(pairs)
	return &stream{next: next, stop: stop}
}

// add adds entries that are in order.
func (m *merge) add(pairs iter.Seq2[[]byte, []byte]) {
	if s := newStream(pairs); s.read() {
		heap.Push(m, s)
	}
}

// read reads the next entry, if there is one.
func (s *stream) read() (ok bool) {
	s.rest, s.value, ok = s.next()
	return ok
}

// advance drops the first entry.
func (m *merge) advance() {
	if m.streams[0].read() {
		heap.Fix(m, 0)
	} else {
		heap.Pop(m)
	}
}

func (m *merge) Len() int           { return len(m.streams) }
func (m *merge) Less(i, j int) bool { return m.w.before(m.streams[i].rest, m.streams[j].rest) }
func (m *merge) Swap(i, j int)      { m.streams[i], m.streams[j] = m.streams[j], m.streams[i] }
func (m *merge) Push(s any)         { m.streams = append(m.streams, s.(*stream)) }

func (m *merge) Pop() any {
	last := len(m.streams) - 1
	s := m.streams[last]
	m.streams = m.streams[:last]
	return s
}

func (m *merge) stop() {
	for _, s := range m.streams {
		s.stop()
	}
}
