package memory

import (
	"hash/maphash"
	"slices"
)

// table finds jobs by their ids. It grows and shrinks one bucket at a time (linear
// hashing), so that no call pays for all jobs. A bucket is a line of the processor's
// cache and knows hashes, so that neither looking for a job nor growing touches jobs that
// are not meant. A map of strings would do; it touches the ids, each somewhere else, and
// that is most of what an enqueue would wait for.
type table struct {
	seed     maphash.Seed
	segments []*[segmentSize]line
	buckets  uint32 // in use
	span     uint32 // a power of two, at least buckets: a hash counts modulo this, or half of it
	n        int
	strays   int // jobs whose hashes are not the near ones of their ids
}

const (
	segmentSize = 512
	lineSize    = 4
	crowd       = 12 // lines of a bucket, which chance hardly ever fills
)

// line is the bucket of the jobs of some hashes. More than fit are in another one.
type line struct {
	hashes [lineSize]uint32
	jobs   [lineSize]*job // nil: the place is free
	more   *line
	_      [8]byte
}

func newTable(seed maphash.Seed) table {
	return table{seed: seed, segments: []*[segmentSize]line{new([segmentSize]line)}, buckets: 1, span: 1}
}

// near is the hash that a job is looked for by. The ids that an engine makes within a
// millisecond count on in their first 18 characters (RFC 9562, section 6.2, method 1),
// and their hashes do so, too: four ids share a bucket of the table, the next four have
// the next one, and so on for sixteen. Under load, producers, workers and pruning go
// through many jobs in the order in which the jobs were made. They wait for the table's
// memory once for several jobs, not once for each.
func near(seed maphash.Seed, id string) uint32 {
	const digits, stamp = 36, 17
	if len(id) != digits || id[14] != '7' {
		return apart(seed, id)
	}
	digit := uint32(id[stamp]) - '0'
	if digit > 9 {
		digit -= 'a' - '0' - 10
	}
	// Tables go by the lower bits. The upper ones tell ids of one bucket from each other.
	const lower = 1<<24 - 1
	of16 := uint32(maphash.String(seed, id[:stamp]))
	return (of16+digit/4)&lower | (of16&^lower)>>2&^lower | digit<<30
}

// apart is a hash that has nothing to do with those of other ids.
func apart(seed maphash.Seed, id string) uint32 { return uint32(maphash.String(seed, id)) }

func (t *table) bucket(i uint32) *line { return &t.segments[i/segmentSize][i%segmentSize] }

// home is the bucket of a hash.
func (t *table) home(hash uint32) *line {
	i := hash & (t.span - 1)
	if i >= t.buckets {
		i -= t.span / 2
	}
	return t.bucket(i)
}

// find returns the job with the id, whose near hash is given, nil if there is none.
func (t *table) find(near uint32, id string) *job {
	j := t.home(near).find(near, id)
	if j == nil && t.strays > 0 {
		apart := apart(t.seed, id)
		j = t.home(apart).find(apart, id)
	}
	return j
}

// add enters a job that is not in the table, under its id and near hash. Where too many
// ids are near each other, which those of an engine hardly ever are, it gets another
// hash.
func (t *table) add(j *job) {
	if t.home(j.hash).lines() > crowd {
		if apart := apart(t.seed, j.id); apart != j.hash {
			j.hash = apart
			t.strays++
		}
	}
	t.home(j.hash).add(j.hash, j)
	if t.n++; 2*t.n <= 5*int(t.buckets) {
		return
	}
	i := t.buckets
	if i == t.span {
		t.span *= 2
	}
	if i%segmentSize == 0 {
		t.segments = append(t.segments, new([segmentSize]line))
	}
	t.buckets++
	t.spread(t.bucket(i - t.span/2))
}

// remove takes out a job that is in.
func (t *table) remove(j *job) {
	t.home(j.hash).remove(j)
	if t.strays > 0 && j.hash != near(t.seed, j.id) {
		t.strays--
	}
	t.n--
	for k := 0; k < 3 && t.n < int(t.buckets/2); k++ { // more than two, or buckets would stay behind
		t.buckets--
		i := t.buckets
		if i == t.span/2 {
			t.span /= 2
		}
		t.spread(t.bucket(i))
		if i%segmentSize == 0 {
			t.segments[i/segmentSize] = nil
			t.segments = t.segments[:i/segmentSize]
		}
	}
}

// spread puts the jobs of a bucket into their buckets.
func (t *table) spread(from *line) {
	old := *from
	*from = line{}
	for b := &old; b != nil; b = b.more {
		for k, j := range b.jobs {
			if j != nil {
				t.home(b.hashes[k]).add(b.hashes[k], j)
			}
		}
	}
}

// lines is how many lines the bucket has.
func (b *line) lines() (n int) {
	for ; b != nil; b = b.more {
		n++
	}
	return n
}

func (b *line) find(hash uint32, id string) *job {
	for ; b != nil; b = b.more {
		for k, h := range b.hashes {
			if j := b.jobs[k]; h == hash && j != nil && j.id == id {
				return j
			}
		}
	}
	return nil
}

func (b *line) add(hash uint32, j *job) {
	for ; ; b = b.more {
		if k := slices.Index(b.jobs[:], nil); k >= 0 {
			b.hashes[k], b.jobs[k] = hash, j
			return
		}
		if b.more == nil {
			b.more = new(line)
		}
	}
}

func (b *line) remove(j *job) {
	at := b
	k := slices.Index(at.jobs[:], j)
	for ; k < 0; k = slices.Index(at.jobs[:], j) {
		at = at.more
	}
	at.jobs[k] = nil
	for b.more != nil {
		if b.more.jobs == [lineSize]*job{} {
			b.more = b.more.more
		} else {
			b = b.more
		}
	}
}
