package keyed

import (
	"bytes"
	"hash/maphash"
	"slices"

	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/storage/keyed/driver"
)

// overlay is a transaction that reads its own writes.
type overlay struct {
	tx      driver.Tx
	cells   map[uint64]*cell // what has been read or written, by the hash of its key
	written []*cell          // what was written, and perhaps undone
	sorted  int              // how many of written are in the order of their keys
	writes  int              // how many of written are not undone
	undo    []undone         // what is written, in order
	bytes   int              // of the keys and values that are written
	was     entries          // room for tx.change
	now     entries
	value   key

	room  []byte  // of keys and values
	slab  []cell  // of cells
	asked []*cell // see ask
	keys  [][]byte
	found [][]byte
}

// cell is a key that the transaction knows.
type cell struct {
	key          []byte
	stored       []byte // in the store; nil: it is not there
	value        []byte // to be written; nil: to be deleted
	read, writes bool   // whether stored and value are known
	listed       bool   // in written
	next         *cell  // with the same hash
}

// undone is what a cell was before a write.
type undone struct {
	cell   *cell
	value  []byte
	writes bool
}

// reset makes an overlay that of another transaction.
func (o *overlay) reset(tx driver.Tx) {
	const most = 1 << 14 // or else clearing takes long
	if len(o.cells) > most {
		o.cells = nil
	}
	clear(o.cells)
	clear(o.written)
	clear(o.undo)
	clear(o.slab)
	*o = overlay{
		tx: tx, cells: o.cells, written: o.written[:0], undo: o.undo[:0],
		was: o.was, now: o.now, value: o.value, room: o.room[:0], slab: o.slab[:0],
		asked: o.asked[:0], keys: o.keys[:0], found: o.found[:0],
	}
}

// keep copies bytes to room that lasts as long as the overlay. The copy is not nil.
func (o *overlay) keep(b []byte) []byte {
	if len(b) >= cap(o.room)-len(o.room) {
		o.room = make([]byte, 0, max(len(b)+1, min(max(2*cap(o.room), 1<<10), 1<<15)))
	}
	at := len(o.room)
	o.room = append(o.room, b...)
	return o.room[at:len(o.room):len(o.room)]
}

var seed = maphash.MakeSeed()

// cell returns that of a key.
func (o *overlay) cell(k []byte) *cell {
	hash := maphash.Bytes(seed, k)
	first := o.cells[hash]
	for c := first; c != nil; c = c.next {
		if bytes.Equal(c.key, k) {
			return c
		}
	}
	if o.cells == nil {
		o.cells = make(map[uint64]*cell)
	}
	if len(o.slab) == cap(o.slab) {
		o.slab = make([]cell, 0, min(max(2*cap(o.slab), 8), 256))
	}
	o.slab = append(o.slab, cell{key: o.keep(k), next: first})
	c := &o.slab[len(o.slab)-1]
	o.cells[hash] = c
	return c
}

// get returns the value of a key, nil if there is none.
func (o *overlay) get(k []byte) []byte {
	c := o.cell(k)
	if c.writes {
		return c.value
	}
	if !c.read {
		o.ask(k)
		o.fetch()
	}
	return c.stored
}

// ask notes a key that is about to be read, for fetch.
func (o *overlay) ask(k []byte) {
	if c := o.cell(k); !c.read && !c.writes {
		o.asked, o.keys = append(o.asked, c), append(o.keys, c.key)
	}
}

// fetch reads the keys that are noted, at once.
func (o *overlay) fetch() {
	if len(o.keys) == 0 {
		return
	}
	o.found = fail.Must(o.tx.Get(o.keys, o.found[:0]))
	for i, c := range o.asked {
		c.stored, c.read = o.found[i], true
	}
	o.asked, o.keys = o.asked[:0], o.keys[:0]
}

// set writes a value, of which it keeps a copy; nil deletes.
func (o *overlay) set(k, value []byte) {
	c := o.cell(k)
	o.undo = append(o.undo, undone{c, c.value, c.writes})
	if o.bytes += len(value) - len(c.value); !c.writes {
		o.bytes += len(k)
		o.writes++
	}
	if !c.listed {
		c.listed = true
		o.written = append(o.written, c)
	}
	if c.writes, c.value = true, nil; value != nil {
		c.value = o.keep(value)
	}
}

// add writes a value for a key that is not stored. If it is deleted again before the
// commit, nothing is written.
func (o *overlay) add(k, value []byte) {
	if c := o.cell(k); !c.writes {
		c.read = true
	}
	o.set(k, value)
}

// rollback undoes what was written since undo had n entries.
func (o *overlay) rollback(n int) {
	for i := len(o.undo) - 1; i >= n; i-- {
		u := o.undo[i]
		if o.bytes -= len(u.cell.value) - len(u.value); !u.writes {
			o.bytes -= len(u.cell.key)
			o.writes--
		}
		u.cell.value, u.cell.writes = u.value, u.writes
	}
	o.undo = o.undo[:n]
}

// sort brings what was written into the order of keys.
func (o *overlay) sort() []*cell {
	byKey := func(a, b *cell) int { return bytes.Compare(a.key, b.key) }
	if len(o.written)-o.sorted > 16 {
		slices.SortFunc(o.written, byKey)
		o.sorted = len(o.written)
	}
	for ; o.sorted < len(o.written); o.sorted++ { // each to its place
		c := o.written[o.sorted]
		at, _ := slices.BinarySearchFunc(o.written[:o.sorted], c, byKey)
		copy(o.written[at+1:o.sorted+1], o.written[at:o.sorted])
		o.written[at] = c
	}
	return o.written
}

// changes returns what the transaction changes.
func (o *overlay) changes() []driver.Pair {
	list := make([]driver.Pair, 0, o.writes)
	for _, c := range o.sort() {
		if c.writes && !(c.read && (c.stored == nil) == (c.value == nil) && bytes.Equal(c.stored, c.value)) {
			list = append(list, driver.Pair{Key: c.key, Value: c.value})
		}
	}
	return list
}

// way is how a scan reads.
type way int

const (
	forward way = iota
	backward
	peeking // forward, without a conflict with those who write there
)

// scan yields the pairs with from <= key < to, a few at first and more after that. The
// transaction may write meanwhile: what it writes ahead of the scan is met.
func (o *overlay) scan(from, to []byte, first int, w way, yield func(k, v []byte) bool) {
	var at []byte // the key that was met last
	pass := func() {
		if at != nil && w == backward {
			to = at
		} else if at != nil {
			from = append(bytes.Clone(at), 0)
		}
	}
	for n := first; ; n = min(n*4, 512) {
		pass()
		page := o.stored(from, to, n, w)
		var last []byte // nothing is known of what comes behind the last pair of a full page
		if len(page) == n {
			last = page[n-1].Key
		}
		var mine *cell   // the next that the transaction has written
		var rest []*cell // what comes behind it
		for seen := -1; ; {
			if seen != len(o.undo) {
				pass()
				seen = len(o.undo)
				mine, rest = w.next(o.own(from, to))
			}
			next := driver.Pair{Key: last}
			if len(page) > 0 {
				next = page[0]
			}
			p := next
			if mine != nil && (next.Key == nil || !w.before(next.Key, mine.key)) {
				p = driver.Pair{Key: mine.key, Value: mine.value}
				mine, rest = w.next(rest)
			} else if len(page) == 0 {
				break
			}
			if len(page) > 0 && bytes.Equal(next.Key, p.Key) {
				page = page[1:]
			}
			at = p.Key
			if p.Value != nil && !yield(p.Key, p.Value) {
				return
			}
		}
		if last == nil {
			return
		}
	}
}

// stored reads a page of the store.
func (o *overlay) stored(from, to []byte, n int, w way) []driver.Pair {
	if w == peeking {
		return fail.Must(o.tx.Peek(from, to, n, nil))
	}
	return fail.Must(o.tx.Scan(from, to, n, w == backward, nil))
}

// before reports whether a scan meets one key before another.
func (w way) before(a, b []byte) bool {
	if w == backward {
		a, b = b, a
	}
	return bytes.Compare(a, b) < 0
}

// own returns the cells of a range that are in written, in the order of their keys.
func (o *overlay) own(from, to []byte) []*cell {
	byKey := func(c *cell, k []byte) int { return bytes.Compare(c.key, k) }
	cells := o.sort()
	last, _ := slices.BinarySearchFunc(cells, to, byKey)
	first, _ := slices.BinarySearchFunc(cells[:last], from, byKey)
	return cells[first:last]
}

// next returns the cell that a scan meets first, nil if there is none, and those behind
// it. Writes that were undone are not met.
func (w way) next(cells []*cell) (first *cell, rest []*cell) {
	for len(cells) > 0 {
		if first, rest = cells[0], cells[1:]; w == backward {
			first, rest = cells[len(cells)-1], cells[:len(cells)-1]
		}
		if cells = rest; first.writes {
			return first, rest
		}
	}
	return nil, nil
}
