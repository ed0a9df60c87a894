package memory

import (
	"slices"
	"sort"
)

// index lists jobs in the order in which they were added. Its numbers only grow, so a
// listing can go on after the last number it saw, even if jobs have been added and
// removed since. Removing the oldest costs the same as adding, and neither copies the
// others.
type index struct {
	chunks []*chunk // none of them is empty
	last   uint64
	spare  []*chunk
}

const (
	chunkSize = 64
	maxChunks = 256 // kept in spare
)

// chunk is some entries in a row.
type chunk struct {
	entries [chunkSize]entry
	used    int // entries before it have, or had, a job
	live    int
}

// entry is a place in an index. The place of a removed job has a nil job.
type entry struct {
	ord uint64
	job *job
}

func (x *index) add(j *job) uint64 { return x.addAs(j, x.last+1) }

// addAs is add under a number greater than the last.
func (x *index) addAs(j *job, ord uint64) uint64 {
	x.last = ord
	var c *chunk
	if len(x.chunks) > 0 {
		c = x.chunks[len(x.chunks)-1]
	}
	if c == nil || c.used == chunkSize {
		if n := len(x.spare); n > 0 {
			c, x.spare[n-1] = x.spare[n-1], nil
			x.spare = x.spare[:n-1]
		} else {
			c = new(chunk)
		}
		x.chunks = append(x.chunks, c)
	}
	c.entries[c.used] = entry{ord, j}
	c.used++
	c.live++
	return ord
}

// remove takes out the job that was added under the number.
func (x *index) remove(ord uint64) {
	i, k := x.after(ord - 1)
	c := x.chunks[i]
	c.entries[k].job = nil
	c.live--
	switch {
	case c.live == 0:
		x.drop(i)
	case c.live <= chunkSize/4:
		x.merge(i)
	}
}

// drop takes out an empty chunk.
func (x *index) drop(i int) {
	c := x.chunks[i]
	if i < len(x.chunks)/2 { // the shorter side moves
		copy(x.chunks[1:], x.chunks[:i])
		x.chunks[0] = nil
		x.chunks = x.chunks[1:]
	} else {
		x.chunks = slices.Delete(x.chunks, i, i+1)
	}
	if len(x.spare) < maxChunks {
		*c = chunk{}
		x.spare = append(x.spare, c)
	}
}

// merge joins a chunk that is almost empty with the next if that is, too: jobs that stay
// for long among many that do not would hold a chunk each.
func (x *index) merge(i int) {
	if i+1 >= len(x.chunks) { // it may have room for more
		return
	}
	c, next := x.chunks[i], x.chunks[i+1]
	if c.live+next.live > chunkSize/2 || next.used < chunkSize {
		return
	}
	var joined chunk
	for _, from := range []*chunk{c, next} {
		for _, e := range from.entries[:from.used] {
			if e.job != nil {
				joined.entries[joined.live] = e
				joined.live++
			}
		}
	}
	joined.used = chunkSize // nothing is added in the middle
	for k := joined.live; k < chunkSize; k++ {
		joined.entries[k].ord = joined.entries[joined.live-1].ord
	}
	*c = joined
	x.drop(i + 1)
}

// after returns the place of the first entry whose number is greater than ord: its chunk,
// and where in that it is. There is none if the chunk is one too many.
func (x *index) after(ord uint64) (chunk, at int) {
	ends := func(i int) bool {
		c := x.chunks[i]
		return c.entries[c.used-1].ord > ord
	}
	if len(x.chunks) > 0 && !ends(0) { // most ask for the oldest
		chunk = 1 + sort.Search(len(x.chunks)-1, func(i int) bool { return ends(i + 1) })
	}
	if chunk == len(x.chunks) {
		return chunk, 0
	}
	c := x.chunks[chunk]
	if k := ord - c.entries[0].ord; k < uint64(c.used) && c.entries[k].ord == ord {
		return chunk, int(k) + 1 // numbers without gaps
	}
	return chunk, sort.Search(c.used, func(i int) bool { return c.entries[i].ord > ord })
}

// from calls f with the entries of jobs whose numbers are greater than ord, in order,
// until it returns false.
func (x *index) from(ord uint64, f func(entry) bool) {
	i, k := x.after(ord)
	for ; i < len(x.chunks); i, k = i+1, 0 {
		for _, e := range x.chunks[i].entries[k:x.chunks[i].used] {
			if e.job != nil && !f(e) {
				return
			}
		}
	}
}

// until calls f with the entries of jobs whose numbers are not greater than ord, the last
// first, until it returns false.
func (x *index) until(ord uint64, f func(entry) bool) {
	i, k := x.after(ord)
	for {
		for k--; k >= 0; k-- {
			if e := x.chunks[i].entries[k]; e.job != nil && !f(e) {
				return
			}
		}
		if i--; i < 0 {
			return
		}
		k = x.chunks[i].used
	}
}
