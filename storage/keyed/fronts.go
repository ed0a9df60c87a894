package keyed

import (
	"bytes"
	"encoding/binary"
	"iter"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/internal/versions"
)

// A backlog is the available jobs of a queue and a type. A claim merges the entries of
// the backlogs that it asks for in the table ready. If there are few of them, it reads
// the first entry of each. If there are many, the table front says which come first:
//
//  1. It has three entries for each backlog with entries in ready: among all backlogs,
//     among those of its queue, and among those of its type. Their rank, the front, is
//     that of its first entry in ready, or before it. So a front need not move when the
//     first job leaves.
//  2. The counter of the backlog's available jobs has the front behind the number. An
//     entry that comes to ready before it, or to a backlog without one, moves it.
//  3. A claim walks the fronts, and reads a backlog once the walk reaches its front. It
//     then moves the front to the first entry, or removes it if there is none.
//
// The place in the meta table has the number of backlogs and whether fronts are kept,
// since almost every call writes it. Fronts begin with more than manyBacklogs and end
// with less than half of them.

// manyBacklogs is how many backlogs a claim reads each by itself at most.
const manyBacklogs = 16

// backlog is the available jobs of a queue and a type.
type backlog struct {
	queue, jobType string
	n              int
	key            key // the fields of keys that have both
}

func availableKey(of []byte) key { return append(newKey(countTable).byte(rows.Available), of...) }
func readyKey(of []byte) key     { return append(newKey(readyTable), of...) }

// Scopes of fronts.
const (
	everywhere byte = iota
	inQueue
	ofType
)

func scopeKey(scope byte, name string) key { return newKey(frontTable).byte(scope).name(name) }

// backlogState is what the place has behind its number.
type backlogState struct {
	n      int64
	fronts bool // they are kept
}

func (t *tx) backlogState() backlogState {
	_, rest := t.counter(meta(placeName))
	n, _ := binary.Uvarint(rest)
	return backlogState{n: int64(n >> 1), fronts: n&1 != 0}
}

func (t *tx) putBacklogState(b backlogState) {
	n := uint64(b.n) << 1
	if b.fronts {
		n |= 1
	}
	t.putNumber(meta(placeName), t.number(meta(placeName)), key{}.uint(n)...)
}

// countJob changes the counter of the jobs that are in the state, the queue and the type
// of a job.
func (t *tx) countJob(j *job, by int) {
	k := countKey(j)
	_, front := t.counter(k)
	n := t.add(k, by)
	if j.State != ojs.StateAvailable || n > 0 && n != int64(by) {
		return
	}
	b := t.backlogState()
	if n > 0 {
		b.n++
	} else {
		b.n--
		t.setFronts(k[2:], front, nil)
	}
	t.putBacklogState(b)
	switch {
	case !b.fronts && b.n > t.s.manyBacklogs:
		t.switchFronts(true)
	case b.fronts && b.n < t.s.manyBacklogs/2:
		t.switchFronts(false)
	}
}

// switchFronts enters the fronts of all backlogs, or removes them: from the table front,
// and from behind the numbers of the counters.
func (t *tx) switchFronts(on bool) {
	t.putBacklogState(backlogState{n: t.backlogState().n, fronts: on})
	if !on {
		t.deleteAll(newKey(frontTable), 0)
	}
	for _, of := range t.backlogs("") {
		if !on {
			t.putNumber(availableKey(of.key), int64(of.n))
		} else if rank, _ := t.first(readyKey(of.key)); rank != nil {
			t.moveFront(of.key, nil, rank)
		}
	}
}

// entersReady keeps the front of a backlog before an entry of the table ready.
func (t *tx) entersReady(k key) {
	if !t.backlogState().fronts {
		return
	}
	of, rank := k[1:len(k)-rankLen], k[len(k)-rankLen:]
	_, front := t.counter(availableKey(of))
	if front == nil || bytes.Compare(rank, front) < 0 {
		t.moveFront(of, front, rank)
	}
}

// moveFront moves the front of a backlog from one rank to another. A nil rank is none.
func (t *tx) moveFront(of, from, to []byte) {
	k := availableKey(of)
	t.setFronts(of, from, to)
	t.putNumber(k, t.number(k), to...)
}

func (t *tx) setFronts(of, from, to []byte) {
	queue, jobType := section(of)
	for _, scope := range []key{
		scopeKey(everywhere, ""), scopeKey(inQueue, queue), scopeKey(ofType, jobType),
	} {
		if from != nil {
			t.delete(append(append(slices.Clone(scope), from...), of...))
		}
		if to != nil {
			t.put(append(append(slices.Clone(scope), to...), of...), nil)
		}
	}
}

// backlogs returns those of a queue, or all of them.
func (t *tx) backlogs(queue string) (list []backlog) {
	all := availableKey(nil)
	prefix := all
	if queue != "" {
		prefix = availableKey(nil).name(queue)
	}
	for of, n := range t.pages(all, prefix, behind(prefix), 8, forward) {
		name, jobType := section(of)
		list = append(list, backlog{name, jobType, int(number(n)), of})
	}
	return list
}

// asks reports whether the claim asks for the jobs of a backlog.
func (k *claimer) asks(of []byte) bool {
	queue, jobType := section(of)
	asked := len(k.c.Types) == 0 || slices.ContainsFunc(k.c.Types, func(pattern string) bool {
		return versions.Name(pattern) == jobType
	})
	return asked && k.t.queueState(queue) != ojs.QueuePaused
}

// inOrder yields the entries of the table ready that the claim asks for, of a queue or of
// all of them together.
func (k *claimer) inOrder(queue string) iter.Seq2[[]byte, []byte] {
	var list []key
	switch many := k.t.backlogState().fronts; {
	case !many:
		for _, of := range k.t.backlogs(queue) {
			list = append(list, of.key)
		}
	case queue == "" || len(k.c.Types) == 0:
		return k.fromFronts(queue)
	default:
		for _, jobType := range k.types() {
			of := key{}.name(queue).name(jobType)
			k.t.o.ask(availableKey(of))
			list = append(list, of)
		}
		k.t.o.fetch()
		list = slices.DeleteFunc(list, func(of key) bool { return k.t.get(availableKey(of)) == nil })
	}
	var prefixes []key
	for _, of := range list {
		if k.asks(of) && k.mayTake(of) {
			prefixes = append(prefixes, readyKey(of))
		}
	}
	return k.t.merged(prefixes, peeking)
}

// types returns the types that the claim names, each once.
func (k *claimer) types() (names []string) {
	for _, pattern := range k.c.Types {
		names = append(names, versions.Name(pattern))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// fronts yields fronts, in order, each with its backlog behind it: those of the queue, or
// those of the types that the claim names, or all.
func (k *claimer) fronts(queue string) iter.Seq2[[]byte, []byte] {
	scopes := []key{scopeKey(everywhere, "")}
	switch {
	case queue != "":
		scopes = []key{scopeKey(inQueue, queue)}
	case len(k.c.Types) > 0:
		scopes = scopes[:0]
		for _, jobType := range k.types() {
			scopes = append(scopes, scopeKey(ofType, jobType))
		}
	}
	return k.t.merged(scopes, peeking)
}

// fromFronts is inOrder by the fronts.
func (k *claimer) fromFronts(queue string) iter.Seq2[[]byte, []byte] {
	return func(yield func(rest, value []byte) bool) {
		m := merge{w: peeking}
		defer m.stop()
		next, stop := iter.Pull2(k.fronts(queue))
		defer stop()
		met := make(map[string]bool) // a front that moves ahead is met again
		front, _, more := next()
		for {
			for more && (len(m.streams) == 0 || bytes.Compare(front[:rankLen], m.streams[0].rest) <= 0) {
				if of := front[rankLen:]; !met[string(of)] {
					met[string(of)] = true
					if k.asks(of) && k.mayTake(of) {
						k.reach(&m, front)
					}
				}
				front, _, more = next()
			}
			if len(m.streams) == 0 {
				return
			}
			if best := m.streams[0]; !yield(best.rest, best.value) {
				return
			}
			if k.again = !k.t.backlogState().fronts; k.again { // what was taken has ended them
				return
			}
			m.advance()
		}
	}
}

// reach adds a backlog to the merge, and corrects its front.
func (k *claimer) reach(m *merge, front []byte) {
	rank, of := bytes.Clone(front[:rankLen]), bytes.Clone(front[rankLen:])
	ready := readyKey(of)
	first, _ := k.t.first(ready) // with a conflict, or an entry might be overlooked for ever
	if !bytes.Equal(first, rank) {
		k.t.moveFront(of, rank, first)
	}
	if first != nil {
		m.add(k.t.pages(ready, ready, behind(ready), 4, peeking))
	}
}
