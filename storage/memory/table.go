package memory

// table finds jobs by their ids. It grows and shrinks one bucket at a time (linear
// hashing), so that no call pays for all jobs. A bucket is a line of the processor's
// cache and knows hashes, so that neither looking for a job nor growing touches jobs that
// are not meant. A map of strings would do; it touches the ids, each somewhere else, and
// that is most of what an enqueue would wait for.
type table struct {
	hashes   hashes
	segments []*[segmentSize]line
	buckets  uint32 // in use
	span     uint32 // a power of two, at least buckets: a hash counts modulo this, or half of it
	n        int
	strays   int    // jobs whose hashes are not the near ones of their ids
	warmed   uint32 // a sink for what warm reads
}

const (
	segmentSize = 512
	lineSize    = 4
	crowd       = 12 // lines of a bucket, which chance hardly ever fills
)

// line is the bucket of the jobs of some hashes. More than fit are in another one.
type line struct {
	hashes [lineSize]uint32
	jobs   [lineSize]*job // the first of them are not nil
	more   *line
	_      [8]byte
}

func newTable(h hashes) table {
	return table{hashes: h, segments: []*[segmentSize]line{new([segmentSize]line)}, buckets: 1, span: 1}
}

func (t *table) bucket(i uint32) *line { return &t.segments[i/segmentSize][i%segmentSize] }

// home is the bucket of a hash.
func (t *table) home(hash uint32) *line {
	i := hash & (t.span - 1)
	if i >= t.buckets {
		i -= t.span / 2
	}
	return t.bucket(i)
}

// warm reads the buckets of hashes that are about to be looked for, or added, one after
// another: so the processor waits for all of them at once and not for each in its turn.
func (t *table) warm(hashes []uint32) {
	for _, h := range hashes {
		t.warmed += t.home(h).hashes[0]
	}
}

// find returns the job with the id, whose near hash is given, nil if there is none.
func (t *table) find(near uint32, id string) *job {
	j := t.home(near).find(near, id)
	if j == nil && t.strays > 0 {
		apart := t.hashes.apart(id)
		j = t.home(apart).find(apart, id)
	}
	return j
}

func (b *line) find(hash uint32, id string) *job {
	for ; b != nil; b = b.more {
		for k, j := range b.jobs {
			if j == nil {
				return nil
			}
			if b.hashes[k] == hash && j.id == id {
				return j
			}
		}
	}
	return nil
}

// add enters a job that is not in the table, under its id and near hash. Where too many
// ids are near each other, which those of an engine hardly ever are, it gets another
// hash.
func (t *table) add(j *job) {
	home := t.home(j.hash)
	if home.crowded() {
		if apart := t.hashes.apart(j.id); apart != j.hash {
			j.hash = apart
			home = t.home(apart)
			t.strays++
		}
	}
	home.add(j.hash, j)
	if t.n++; 2*t.n > 5*int(t.buckets) {
		t.split()
	}
}

// remove takes out a job that is in.
func (t *table) remove(j *job) {
	t.home(j.hash).remove(j)
	if t.strays > 0 && j.hash != t.hashes.near(j.id) {
		t.strays--
	}
	t.n--
	for k := 0; k < 3 && t.n < int(t.buckets/2); k++ { // more than two, or buckets would stay behind
		t.join()
	}
}

// split divides the next bucket in line between itself and a new one.
func (t *table) split() {
	i := t.buckets
	if i == t.span {
		t.span *= 2
	}
	if i%segmentSize == 0 {
		t.segments = append(t.segments, new([segmentSize]line))
	}
	t.buckets++
	from, to := t.bucket(i-t.span/2), t.bucket(i)
	old := *from
	*from = line{}
	for b := &old; b != nil; b = b.more {
		for k, j := range b.jobs {
			switch hash := b.hashes[k]; {
			case j == nil:
			case hash&(t.span-1) == i:
				to.add(hash, j)
			default:
				from.add(hash, j)
			}
		}
	}
}

// join undoes the last split.
func (t *table) join() {
	t.buckets--
	i := t.buckets
	to := t.bucket(i - t.span/2)
	for b := t.bucket(i); b != nil; b = b.more {
		for k, j := range b.jobs {
			if j != nil {
				to.add(b.hashes[k], j)
			}
		}
	}
	*t.bucket(i) = line{}
	if i == t.span/2 {
		t.span /= 2
	}
	if i%segmentSize == 0 {
		t.segments[i/segmentSize] = nil
		t.segments = t.segments[:i/segmentSize]
	}
}

// crowded reports whether the bucket has crowd lines, all of them full.
func (b *line) crowded() bool {
	for range crowd - 1 {
		if b = b.more; b == nil {
			return false
		}
	}
	return b.jobs[lineSize-1] != nil
}

func (b *line) add(hash uint32, j *job) {
	for b.jobs[lineSize-1] != nil {
		if b.more == nil {
			b.more = new(line)
		}
		b = b.more
	}
	k := 0
	for b.jobs[k] != nil {
		k++
	}
	b.hashes[k], b.jobs[k] = hash, j
}

// remove puts the last job of the bucket in the place of the one that goes.
func (b *line) remove(j *job) {
	at, k := b, 0
	for at.jobs[k] != j {
		if k++; k == lineSize {
			at, k = at.more, 0
		}
	}
	last, before := at, (*line)(nil)
	for last.more != nil {
		last, before = last.more, last
	}
	l := lineSize - 1
	for last.jobs[l] == nil {
		l--
	}
	at.hashes[k], at.jobs[k] = last.hashes[l], last.jobs[l]
	last.hashes[l], last.jobs[l] = 0, nil
	if l == 0 && last != b {
		if before == nil {
			before = b
			for before.more != last {
				before = before.more
			}
		}
		before.more = nil
	}
}
