package keyed

import (
	"bytes"

	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/internal/sorted"
)

// overlay is a transaction that reads its own writes.
type overlay struct {
	tx      driver.Tx
	cells   map[string]*cell  // what has been read or written
	written sorted.Map[*cell] // what is written
	undo    []undone          // what is written, in order
	bytes   int               // of the keys and values that are written
}

// cell is a key that the transaction knows.
type cell struct {
	key          string
	stored       []byte // in the store; nil: it is not there
	value        []byte // to be written; nil: to be deleted
	read, writes bool   // whether stored and value are known
}

// undone is what a cell was before a write.
type undone struct {
	cell   *cell
	value  []byte
	writes bool
}

// cell returns that of a key.
func (o *overlay) cell(k []byte) *cell {
	c := o.cells[string(k)]
	if c == nil {
		if o.cells == nil {
			o.cells = make(map[string]*cell)
		}
		c = &cell{key: string(k)}
		o.cells[c.key] = c
	}
	return c
}

// get returns the value of a key, nil if there is none.
func (o *overlay) get(k []byte) []byte {
	c := o.cell(k)
	if c.writes {
		return c.value
	}
	if !c.read {
		c.stored = must(o.tx.Get([][]byte{k}, nil))[0]
		c.read = true
	}
	return c.stored
}

// fetch reads keys at once that are about to be asked for.
func (o *overlay) fetch(keys [][]byte) {
	var unknown [][]byte
	for _, k := range keys {
		if c := o.cell(k); !c.read && !c.writes {
			unknown = append(unknown, k)
		}
	}
	if len(unknown) == 0 {
		return
	}
	for i, v := range must(o.tx.Get(unknown, nil)) {
		c := o.cell(unknown[i])
		c.stored, c.read = v, true
	}
}

// set writes a value; nil deletes.
func (o *overlay) set(k, value []byte) {
	c := o.cell(k)
	o.undo = append(o.undo, undone{c, c.value, c.writes})
	if o.bytes += len(value) - len(c.value); !c.writes {
		o.bytes += len(k)
		o.written.Set(c.key, c)
	}
	c.value, c.writes = value, true
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
			o.written.Delete(u.cell.key)
		}
		u.cell.value, u.cell.writes = u.value, u.writes
	}
	o.undo = o.undo[:n]
}

// writes returns what the transaction changes.
func (o *overlay) writes() []driver.Pair {
	list := make([]driver.Pair, 0, o.written.Len())
	for k, c := range o.written.From("") {
		if !c.read || (c.stored == nil) != (c.value == nil) || !bytes.Equal(c.stored, c.value) {
			list = append(list, driver.Pair{Key: []byte(k), Value: c.value})
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
		var mine []driver.Pair
		for seen, more := -1, true; ; {
			if seen != len(o.undo) || len(mine) == 0 && more {
				pass()
				seen, mine = len(o.undo), o.ahead(from, to, w)
				more = len(mine) == maxAhead
			}
			var p driver.Pair
			switch {
			case len(page) == 0 && (len(mine) == 0 || last != nil && w.before(last, mine[0].Key)):
			case len(page) == 0 || len(mine) > 0 && !w.before(page[0].Key, mine[0].Key):
				if p = mine[0]; len(page) > 0 && bytes.Equal(page[0].Key, p.Key) {
					page = page[1:]
				}
				mine = mine[1:]
			default:
				p, page = page[0], page[1:]
			}
			if p.Key == nil {
				break
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
		return must(o.tx.Peek(from, to, n, nil))
	}
	return must(o.tx.Scan(from, to, n, w == backward, nil))
}

// before reports whether a scan meets one key before another.
func (w way) before(a, b []byte) bool {
	if w == backward {
		a, b = b, a
	}
	return bytes.Compare(a, b) < 0
}

// maxAhead is how many pairs ahead returns at most.
const maxAhead = 8

// ahead returns the first few pairs of a range that the transaction has written.
func (o *overlay) ahead(from, to []byte, w way) (mine []driver.Pair) {
	cells := o.written.From(string(from))
	if w == backward {
		cells = o.written.Before(string(to))
	}
	for k, c := range cells {
		if len(mine) == maxAhead || k >= string(to) || k < string(from) {
			break
		}
		mine = append(mine, driver.Pair{Key: []byte(k), Value: c.value})
	}
	return mine
}
