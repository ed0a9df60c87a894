package memory

import (
	"slices"
	"sort"
	"sync"
)

// index lists jobs in the order of a number, such as a time, and those of the same number
// by their turn. Jobs come almost in order. Adding such a job, and removing the first,
// costs the same however many there are; any other job costs a search.
//
// Invariants: no chunk is empty, and the entries of all chunks, one after another, are in
// order.
type index struct {
	chunks []*chunk
	n      int
}

const chunkSize = 64

// spareChunks are empty chunks.
var spareChunks = sync.Pool{New: func() any { return new(chunk) }}

// chunk holds some jobs in a row: entries[first:used].
type chunk struct {
	entries     [chunkSize]entry
	first, used int
}

// entry is a job with its number beside it, so that a search touches jobs only where
// numbers are equal.
type entry struct {
	at  int64
	job *job
}

func (e *entry) before(f *entry) bool {
	return e.at < f.at || e.at == f.at && e.job.turn < f.job.turn
}

func (c *chunk) len() int { return c.used - c.first }

// search returns where in the chunk the first entry is that does not come before e.
func (c *chunk) search(e *entry) int {
	return c.first + sort.Search(c.len(), func(i int) bool { return !c.entries[c.first+i].before(e) })
}

// chunkOf returns which chunk has e, or would have it: the last that begins before it.
func (x *index) chunkOf(e *entry) int {
	begins := func(i int) *entry { return &x.chunks[i].entries[x.chunks[i].first] }
	if last := len(x.chunks) - 1; !e.before(begins(last)) {
		return last
	} else if last == 0 || e.before(begins(1)) {
		return 0
	}
	return sort.Search(len(x.chunks), func(i int) bool { return e.before(begins(i)) }) - 1
}

func (x *index) add(at int64, j *job) {
	e := entry{at, j}
	x.n++
	if len(x.chunks) == 0 {
		x.chunks = append(x.chunks, spareChunks.Get().(*chunk))
	}
	i := len(x.chunks) - 1
	if c := x.chunks[i]; c.len() > 0 && e.before(&c.entries[c.used-1]) {
		i = x.chunkOf(&e)
	}
	c := x.chunks[i]
	if c.used == chunkSize {
		switch {
		case !e.before(&c.entries[chunkSize-1]):
			c = spareChunks.Get().(*chunk)
			x.chunks = slices.Insert(x.chunks, i+1, c)
		case c.first > 0:
			c.used = copy(c.entries[:], c.entries[c.first:])
			clear(c.entries[c.used:])
			c.first = 0
		default:
			rest := spareChunks.Get().(*chunk)
			rest.used = copy(rest.entries[:], c.entries[chunkSize/2:])
			clear(c.entries[chunkSize/2:])
			c.used = chunkSize / 2
			x.chunks = slices.Insert(x.chunks, i+1, rest)
			if !e.before(&rest.entries[0]) {
				c = rest
			}
		}
	}
	i = c.used
	if c.len() > 0 && e.before(&c.entries[i-1]) {
		i = c.search(&e)
		copy(c.entries[i+1:], c.entries[i:c.used])
	}
	c.entries[i] = e
	c.used++
}

// remove takes out a job that is in, by the number and the turn that it was added with.
func (x *index) remove(at int64, j *job) {
	e := entry{at, j}
	i := x.chunkOf(&e)
	c := x.chunks[i]
	k := c.search(&e)
	x.n--
	if k == c.first {
		c.entries[k] = entry{}
		c.first++
	} else {
		copy(c.entries[k:], c.entries[k+1:c.used])
		c.used--
		c.entries[c.used] = entry{}
	}
	if c.len() == 0 {
		x.drop(i)
	} else if i+1 < len(x.chunks) && c.len()+x.chunks[i+1].len() <= chunkSize/2 {
		// Few jobs that stay do not hold a chunk each.
		next := x.chunks[i+1]
		copy(c.entries[:], c.entries[c.first:c.used])
		n := c.len()
		n += copy(c.entries[n:], next.entries[next.first:next.used])
		clear(c.entries[n:])
		c.first, c.used = 0, n
		x.drop(i + 1)
	}
}

// first returns the first entry.
func (x *index) first() (e entry, ok bool) {
	if len(x.chunks) == 0 {
		return e, false
	}
	c := x.chunks[0]
	return c.entries[c.first], true
}

// place returns where the first entry is that comes after a number and a turn.
func (x *index) place(at int64, turn uint64) (chunk, i int) {
	after := func(e *entry) bool { return e.at > at || e.at == at && e.job.turn > turn }
	chunk = sort.Search(len(x.chunks), func(i int) bool {
		c := x.chunks[i]
		return after(&c.entries[c.used-1])
	})
	if chunk < len(x.chunks) {
		c := x.chunks[chunk]
		i = c.first + sort.Search(c.len(), func(i int) bool { return after(&c.entries[c.first+i]) })
	}
	return chunk, i
}

// reader goes through an index, which does not change meanwhile.
type reader struct {
	entry    // that next has come to
	x        *index
	chunk, i int // right behind the place of entry, backwards the place itself
	back     bool
}

// from returns a reader of the entries after a number and a turn, or backwards of those
// up to it, the last first.
func (x *index) from(at int64, turn uint64, back bool) reader {
	chunk, i := x.place(at, turn)
	return reader{x: x, chunk: chunk, i: i, back: back}
}

// next comes to the next entry. It reports whether there is one.
func (r *reader) next() bool {
	chunks := r.x.chunks
	for ; !r.back && r.chunk < len(chunks); r.chunk, r.i = r.chunk+1, 0 {
		c := chunks[r.chunk]
		if i := max(r.i, c.first); i < c.used {
			r.entry, r.i = c.entries[i], i+1
			return true
		}
	}
	for r.back && r.chunk >= 0 {
		if r.chunk < len(chunks) && r.i > chunks[r.chunk].first {
			r.i--
			r.entry = chunks[r.chunk].entries[r.i]
			return true
		}
		if r.chunk--; r.chunk >= 0 {
			r.i = chunks[r.chunk].used
		}
	}
	return false
}

// drop takes out a chunk that is not needed.
func (x *index) drop(i int) {
	c := x.chunks[i]
	if i == 0 {
		x.chunks[0] = nil
		x.chunks = x.chunks[1:]
	} else {
		x.chunks = slices.Delete(x.chunks, i, i+1)
	}
	*c = chunk{}
	spareChunks.Put(c)
}
