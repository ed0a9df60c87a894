package memory

import (
	"iter"
	"math"
	"slices"
	"sort"
	"time"
)

// endings lists finished jobs in the order in which they are pruned: by FinishedAt, and
// those of the same time by their turn, which numbers the ends. Jobs come almost in
// order, since an engine stores an outcome right after the time that it has. Adding such
// a job, and removing the first, costs the same however many there are; any other job
// costs a search.
//
// Invariants: no chunk is empty, and the entries of all chunks, one after another, are in
// order.
type endings struct {
	chunks []*endChunk
	n      int
	spare  []*endChunk
}

// endChunk holds some finished jobs in a row: entries[first:used].
type endChunk struct {
	entries     [chunkSize]ending
	first, used int
}

// ending is a finished job with its time beside it, so that a search touches jobs only
// where times are equal.
type ending struct {
	at  instant
	job *job
}

func endingOf(j *job) ending {
	if j.whole() == nil {
		return ending{j.until, j}
	}
	t := j.finishedAt()
	i, ok := at(t)
	if !ok { // beyond what an instant holds
		i = never + 1
		if t.After(time.Unix(0, 0)) {
			i = math.MaxInt64
		}
	}
	return ending{i, j}
}

func (e *ending) before(f *ending) bool {
	return e.at < f.at || e.at == f.at && e.job.turn < f.job.turn
}

func (c *endChunk) len() int { return c.used - c.first }

// search returns where in the chunk the first entry is that does not come before e.
func (c *endChunk) search(e *ending) int {
	return c.first + sort.Search(c.len(), func(i int) bool { return !c.entries[c.first+i].before(e) })
}

// chunkOf returns which chunk has e, or would have it: the last that begins before it.
func (x *endings) chunkOf(e *ending) int {
	begins := func(i int) *ending { return &x.chunks[i].entries[x.chunks[i].first] }
	if last := len(x.chunks) - 1; !e.before(begins(last)) {
		return last
	} else if last == 0 || e.before(begins(1)) {
		return 0
	}
	return sort.Search(len(x.chunks), func(i int) bool { return e.before(begins(i)) }) - 1
}

func (x *endings) add(j *job) {
	e := endingOf(j)
	x.n++
	if len(x.chunks) == 0 {
		x.chunks = append(x.chunks, x.newChunk())
	}
	i := len(x.chunks) - 1
	if c := x.chunks[i]; c.len() > 0 && e.before(&c.entries[c.used-1]) {
		i = x.chunkOf(&e)
	}
	c := x.chunks[i]
	if c.used == chunkSize {
		switch {
		case !e.before(&c.entries[chunkSize-1]):
			c = x.newChunk()
			x.chunks = slices.Insert(x.chunks, i+1, c)
		case c.first > 0:
			c.used = copy(c.entries[:], c.entries[c.first:])
			clear(c.entries[c.used:])
			c.first = 0
		default:
			rest := x.newChunk()
			rest.used = copy(rest.entries[:], c.entries[chunkSize/2:])
			clear(c.entries[chunkSize/2:])
			c.used = chunkSize / 2
			x.chunks = slices.Insert(x.chunks, i+1, rest)
			if !e.before(&rest.entries[0]) {
				c = rest
			}
		}
	}
	at := c.used
	if c.len() > 0 && e.before(&c.entries[at-1]) {
		at = c.search(&e)
		copy(c.entries[at+1:], c.entries[at:c.used])
	}
	c.entries[at] = e
	c.used++
}

// remove takes out a job that is in, and whose FinishedAt and turn are those it was added
// with.
func (x *endings) remove(j *job) {
	e := endingOf(j)
	i := x.chunkOf(&e)
	c := x.chunks[i]
	at := c.search(&e)
	x.n--
	if at == c.first {
		c.entries[at] = ending{}
		c.first++
	} else {
		copy(c.entries[at:], c.entries[at+1:c.used])
		c.used--
		c.entries[c.used] = ending{}
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

// first returns the job that is pruned first.
func (x *endings) first() (e ending, ok bool) {
	if len(x.chunks) == 0 {
		return e, false
	}
	c := x.chunks[0]
	return c.entries[c.first], true
}

// place returns where the first entry is that comes after a time and a turn.
func (x *endings) place(at instant, turn uint64) (chunk, i int) {
	after := func(e *ending) bool { return e.at > at || e.at == at && e.job.turn > turn }
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

// from lists the entries after a time and a turn.
func (x *endings) from(at instant, turn uint64) iter.Seq[ending] {
	return func(yield func(ending) bool) {
		chunk, i := x.place(at, turn)
		for ; chunk < len(x.chunks); chunk++ {
			c := x.chunks[chunk]
			for i = max(i, c.first); i < c.used; i++ {
				if !yield(c.entries[i]) {
					return
				}
			}
			i = 0
		}
	}
}

// until lists the entries up to a time and a turn, the last first.
func (x *endings) until(at instant, turn uint64) iter.Seq[ending] {
	return func(yield func(ending) bool) {
		chunk, i := x.place(at, turn)
		for {
			if chunk < len(x.chunks) {
				for i--; i >= x.chunks[chunk].first; i-- {
					if !yield(x.chunks[chunk].entries[i]) {
						return
					}
				}
			}
			if chunk--; chunk < 0 {
				return
			}
			i = x.chunks[chunk].used
		}
	}
}

func (x *endings) newChunk() *endChunk {
	n := len(x.spare)
	if n == 0 {
		return new(endChunk)
	}
	c := x.spare[n-1]
	x.spare[n-1] = nil
	x.spare = x.spare[:n-1]
	return c
}

// drop takes out a chunk that is not needed.
func (x *endings) drop(i int) {
	c := x.chunks[i]
	if i == 0 {
		x.chunks[0] = nil
		x.chunks = x.chunks[1:]
	} else {
		x.chunks = slices.Delete(x.chunks, i, i+1)
	}
	if len(x.spare) < maxChunks {
		*c = endChunk{}
		x.spare = append(x.spare, c)
	}
}
