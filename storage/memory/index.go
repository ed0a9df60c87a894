package memory

import (
	"slices"
	"sort"
	"sync"
)

// index lists jobs in the order of a number, such as a time, and those of the same number
// by their turn. Adding a job behind all others, and removing the first, costs the same
// however many there are. Any other job costs a search. If the numbers come in no order,
// a chunk is inserted about once in 32 jobs, which moves the chunks behind it.
//
// Invariants: no chunk is empty, the entries of all chunks, one after another, are in
// order, and no turn is 0.
type index struct {
	chunks []*chunk
	n      int
}

const chunkSize = 64

// spareChunks are empty chunks.
var spareChunks = sync.Pool{New: func() any { return new(chunk) }}

// chunk holds some jobs in a row.
type chunk struct {
	list []entry // in room
	room [chunkSize]entry
}

func newChunk() *chunk {
	c := spareChunks.Get().(*chunk)
	c.list = c.room[:0]
	return c
}

// entry is a job with its number beside it, so that a search touches jobs only where
// numbers are equal.
type entry struct {
	at  int64
	job *job
}

func (e *entry) before(f *entry) bool { return f.after(e.at, e.job.turn) }

// after reports whether the entry comes after a number and a turn.
func (e *entry) after(at int64, turn uint64) bool {
	return e.at > at || e.at == at && e.job.turn > turn
}

func (x *index) add(at int64, j *job) {
	x.n++
	i, k := len(x.chunks)-1, 0
	if i < 0 {
		x.chunks, i = append(x.chunks, newChunk()), 0
	} else if last := x.chunks[i].list; !last[len(last)-1].after(at, j.turn) {
		k = len(last)
	} else {
		i, k = x.seek(at, j.turn)
	}
	c := x.chunks[i]
	switch full := len(c.list) == cap(c.list); {
	case full && k == len(c.list): // all others come before the job
		c, k = newChunk(), 0
		x.chunks = append(x.chunks, c)
	case full && len(c.list) < chunkSize:
		c.set(c.list, nil)
	case full:
		rest := newChunk()
		rest.set(c.list[chunkSize/2:], nil)
		c.set(c.list[:chunkSize/2], nil)
		if x.chunks = slices.Insert(x.chunks, i+1, rest); k > chunkSize/2 {
			c, k = rest, k-chunkSize/2
		}
	}
	c.list = slices.Insert(c.list, k, entry{at, j})
}

// set moves entries to the front of the chunk, which has no others then.
func (c *chunk) set(list, more []entry) {
	n := copy(c.room[:], list)
	n += copy(c.room[n:], more)
	clear(c.room[n:])
	c.list = c.room[:n]
}

// remove takes out a job that is in, by the number and the turn that it was added with.
func (x *index) remove(at int64, j *job) {
	x.n--
	i, k := x.seek(at, j.turn-1)
	c := x.chunks[i]
	if k == 0 {
		c.list[0] = entry{}
		c.list = c.list[1:]
	} else {
		c.list = slices.Delete(c.list, k, k+1)
	}
	if len(c.list) == 0 {
		x.drop(i)
	} else if i+1 < len(x.chunks) && len(c.list)+len(x.chunks[i+1].list) <= chunkSize/2 {
		c.set(c.list, x.chunks[i+1].list) // few jobs that stay do not hold a chunk each
		x.drop(i + 1)
	}
}

// first returns the first entry; without a job: there is none.
func (x *index) first() (e entry) {
	if len(x.chunks) > 0 {
		e = x.chunks[0].list[0]
	}
	return e
}

// seek returns where the first entry is that comes after a number and a turn.
func (x *index) seek(at int64, turn uint64) (chunk, i int) {
	ends := func(i int) bool {
		list := x.chunks[i].list
		return list[len(list)-1].after(at, turn)
	}
	if len(x.chunks) == 0 || x.chunks[0].list[0].after(at, turn) { // most jobs leave at the front
		return 0, 0
	}
	if !ends(0) {
		chunk = sort.Search(len(x.chunks), ends)
	}
	if chunk < len(x.chunks) {
		list := x.chunks[chunk].list
		i = sort.Search(len(list), func(i int) bool { return list[i].after(at, turn) })
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
	chunk, i := x.seek(at, turn)
	return reader{x: x, chunk: chunk, i: i, back: back}
}

// next comes to the next entry. It reports whether there is one.
func (r *reader) next() bool {
	chunks := r.x.chunks
	for ; !r.back && r.chunk < len(chunks); r.chunk, r.i = r.chunk+1, 0 {
		if list := chunks[r.chunk].list; r.i < len(list) {
			r.entry, r.i = list[r.i], r.i+1
			return true
		}
	}
	for r.back && r.chunk >= 0 {
		if r.chunk < len(chunks) && r.i > 0 {
			r.i--
			r.entry = chunks[r.chunk].list[r.i]
			return true
		}
		if r.chunk--; r.chunk >= 0 {
			r.i = len(chunks[r.chunk].list)
		}
	}
	return false
}

// drop takes out a chunk that is not needed.
func (x *index) drop(i int) {
	c := x.chunks[i]
	if i == 0 && len(x.chunks) > 1 {
		x.chunks[0] = nil
		x.chunks = x.chunks[1:]
	} else {
		x.chunks = slices.Delete(x.chunks, i, i+1)
	}
	clear(c.list)
	spareChunks.Put(c)
}
