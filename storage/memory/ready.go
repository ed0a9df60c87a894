package memory

import "time"

// ready holds the available jobs. A bucket has those of one queue and type, so that a claim for some types looks at no job
// of another; the buckets of a type are ordered by the job each would give next, so that a claim from every queue does not
// look at each of them.
type ready struct {
	types  map[string]*typeIndex
	queues map[string]map[string]*bucket // queue, type
	seq    uint64                        // of the latest entry
}

type typeIndex struct{ buckets heap[*bucket] } // those that are not empty

// bucket has the available jobs of one queue and type: a list for each priority, first in first out.
type bucket struct {
	queue, jobType string
	levels         map[int]*level
	top            heap[*level]
	spare          *level // an empty one: a lone job that comes and goes allocates nothing
	at             int
}

type level struct {
	priority    int
	first, last *job
	at          int
}

// spot is a job's place among the available ones.
type spot struct {
	bucket     *bucket // nil: none
	level      *level
	prev, next *job
	seq        uint64
}

func (l *level) before(m *level) bool { return l.priority > m.priority }
func (l *level) moved(to int)         { l.at = to }

func (b *bucket) head() *job { return b.top.items[0].first }

func (b *bucket) before(c *bucket) bool { return comesBefore(b.head(), c.head()) }
func (b *bucket) moved(to int)          { b.at = to }

// comesBefore is the order of claims: higher priority first, then first in first out.
func comesBefore(j, k *job) bool {
	if j.rec.Priority != k.rec.Priority {
		return j.rec.Priority > k.rec.Priority
	}
	return j.spot.seq < k.spot.seq
}

// add enters a job at the end of its priority.
func (r *ready) add(j *job) {
	b := r.bucket(j.rec.Queue, j.rec.Type)
	l := b.levels[j.rec.Priority]
	if l == nil {
		if l = b.spare; l == nil {
			l = new(level)
		}
		b.spare = nil
		l.priority = j.rec.Priority
		b.levels[l.priority] = l
	}
	r.seq++
	j.spot = spot{bucket: b, level: l, prev: l.last, seq: r.seq}
	wasEmpty := b.top.len() == 0
	if l.last != nil {
		l.last.spot.next = j
		l.last = j
		return // the bucket still has the same head
	}
	l.first, l.last = j, j
	b.top.push(l)
	switch {
	case wasEmpty:
		r.types[b.jobType].buckets.push(b)
	case b.head() == j:
		r.types[b.jobType].buckets.fix(b.at)
	}
}

// remove takes a job out, if it is in.
func (r *ready) remove(j *job) {
	b, l := j.spot.bucket, j.spot.level
	if b == nil {
		return
	}
	wasHead := b.head() == j
	if j.spot.prev != nil {
		j.spot.prev.spot.next = j.spot.next
	} else {
		l.first = j.spot.next
	}
	if j.spot.next != nil {
		j.spot.next.spot.prev = j.spot.prev
	} else {
		l.last = j.spot.prev
	}
	j.spot = spot{}
	if l.first == nil {
		b.top.remove(l.at)
		delete(b.levels, l.priority)
		b.spare = l
	}
	buckets := &r.types[b.jobType].buckets
	switch {
	case b.top.len() == 0:
		buckets.remove(b.at)
	case wasHead:
		buckets.fix(b.at)
	}
}

func (r *ready) bucket(queue, jobType string) *bucket {
	types := r.queues[queue]
	if types == nil {
		types = make(map[string]*bucket)
		r.queues[queue] = types
	}
	b := types[jobType]
	if b == nil {
		b = &bucket{queue: queue, jobType: jobType, levels: make(map[int]*level)}
		types[jobType] = b
		if r.types[jobType] == nil {
			r.types[jobType] = new(typeIndex)
		}
	}
	return b
}

// forget drops the empty buckets of a queue that has no jobs any more.
func (r *ready) forget(queue string) { delete(r.queues, queue) }

// next finds the job to claim among all queues, nil if there is none. It costs one look per type.
func (r *ready) next(types []string, now time.Time) *job {
	for {
		var best *job
		look := func(t *typeIndex) {
			if t != nil && t.buckets.len() > 0 {
				if j := t.buckets.items[0].head(); best == nil || comesBefore(j, best) {
					best = j
				}
			}
		}
		if len(types) == 0 {
			for _, t := range r.types {
				look(t)
			}
		}
		for _, name := range types {
			look(r.types[name])
		}
		if best == nil || !best.rec.Expired(now) {
			return best
		}
		r.remove(best) // Due will end it
	}
}

// nextIn finds the job to claim in one queue.
func (r *ready) nextIn(queue string, types []string, now time.Time) *job {
	in := r.queues[queue]
	for {
		var best *job
		look := func(b *bucket) {
			if b != nil && b.top.len() > 0 {
				if j := b.head(); best == nil || comesBefore(j, best) {
					best = j
				}
			}
		}
		if len(types) == 0 {
			for _, b := range in {
				look(b)
			}
		}
		for _, name := range types {
			look(in[name])
		}
		if best == nil || !best.rec.Expired(now) {
			return best
		}
		r.remove(best)
	}
}
