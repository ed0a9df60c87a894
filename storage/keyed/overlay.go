package keyed

import (
	"bytes"

	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/internal/sorted"
)

// overlay is a transaction that reads its own writes.
type overlay struct {
	tx    driver.Tx
	dirty sorted.Map[[]byte] // what is written; nil: deleted
	clean map[string][]byte  // what has been read
	undo  []undone           // what is written, in order
	bytes int                // of the keys and values of dirty
}

// undone is what dirty had before a write.
type undone struct {
	key   string
	value []byte
	had   bool
}

// known returns the value of a key that has been read or written.
func (o *overlay) known(k []byte) (value []byte, ok bool) {
	if value, ok = o.dirty.Get(string(k)); !ok {
		value, ok = o.clean[string(k)]
	}
	return value, ok
}

// get returns the value of a key, nil if there is none.
func (o *overlay) get(k []byte) []byte {
	if v, ok := o.known(k); ok {
		return v
	}
	o.read([][]byte{k})
	return o.clean[string(k)]
}

// fetch reads keys at once that are about to be asked for.
func (o *overlay) fetch(keys [][]byte) {
	var unknown [][]byte
	for _, k := range keys {
		if _, ok := o.known(k); !ok {
			unknown = append(unknown, k)
		}
	}
	if len(unknown) > 0 {
		o.read(unknown)
	}
}

func (o *overlay) read(keys [][]byte) {
	if o.clean == nil {
		o.clean = make(map[string][]byte)
	}
	for i, v := range must(o.tx.Get(keys, nil)) {
		o.clean[string(keys[i])] = v
	}
}

// set writes a value; nil deletes.
func (o *overlay) set(k, value []byte) {
	was, had := o.dirty.Set(string(k), value)
	if o.bytes += len(value) - len(was); !had {
		o.bytes += len(k)
	}
	o.undo = append(o.undo, undone{string(k), was, had})
}

// rollback undoes what was written since undo had n entries.
func (o *overlay) rollback(n int) {
	for i := len(o.undo) - 1; i >= n; i-- {
		u := o.undo[i]
		now, _ := o.dirty.Get(u.key)
		if o.bytes -= len(now) - len(u.value); u.had {
			o.dirty.Set(u.key, u.value)
		} else {
			o.bytes -= len(u.key)
			o.dirty.Delete(u.key)
		}
	}
	o.undo = o.undo[:n]
}

// writes returns what the transaction changes.
func (o *overlay) writes() []driver.Pair {
	list := make([]driver.Pair, 0, o.dirty.Len())
	for k, v := range o.dirty.From("") {
		if was, read := o.clean[k]; !read || (was == nil) != (v == nil) || !bytes.Equal(was, v) {
			list = append(list, driver.Pair{Key: []byte(k), Value: v})
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
	pass := func(k []byte) {
		if w == backward {
			to = k
		} else {
			from = append(bytes.Clone(k), 0)
		}
	}
	for n := first; ; n = min(n*4, 512) {
		page := o.stored(from, to, n, w)
		var last []byte // nothing is known of what comes behind the last pair of a full page
		if len(page) == n {
			last = page[n-1].Key
		}
		var mine []driver.Pair
		for seen, more := -1, true; ; {
			if seen != len(o.undo) || len(mine) == 0 && more {
				seen, mine = len(o.undo), o.written(from, to, w)
				more = len(mine) == maxWritten
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
			pass(p.Key)
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

// maxWritten is how many pairs written returns at most.
const maxWritten = 8

// written returns the first few pairs of a range that the transaction has written.
func (o *overlay) written(from, to []byte, w way) (mine []driver.Pair) {
	pairs := o.dirty.From(string(from))
	if w == backward {
		pairs = o.dirty.Before(string(to))
	}
	for k, v := range pairs {
		if len(mine) == maxWritten || k >= string(to) || k < string(from) {
			break
		}
		mine = append(mine, driver.Pair{Key: []byte(k), Value: v})
	}
	return mine
}
