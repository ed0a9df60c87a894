package memory

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

// ready holds the available jobs. A bucket has those of one queue, type, version and rate
// limit; a section has the buckets of one queue, type and version; and the sections of a
// type and version are ordered by the job each would give next. So a claim for some types
// looks at no job of another type. A claim from every queue does not look at each queue.
// A bucket whose limit lets no job start is set aside: claims look at none of its jobs.
type ready struct {
	types   map[string][]*typeBranch // a type's versions, none without sections
	queues  map[string]*queue
	order   branch              // of types
	claimed []string            // the types of the latest claim that named many
	wanted  map[string][]string // patterns in claimed by their type; nil: not made yet
	n       int                 // jobs, without those in passed
	fair    map[levelID]*fairLevel

	limits limits
	looked int // types and queues that claims have looked for, and lanes judged, for tests

	// passed lists jobs that a claim has found expired, so that claims do not walk past
	// them until Due ends them. They come back when they may be claimed after all: if the
	// clock goes back, or when their deadline changes.
	passed      level
	passedUntil time.Time // no deadline in passed is later
}

// node is a place of some available jobs in the order of claims: that of the job among
// them that comes first.
type node struct {
	head *job    // nil: there is none
	up   *branch // nil: none
	at   int32   // in up.below, plus 1; 0: not there
	shut int32   // how many reasons keep the jobs from claims
}

// branch has the nodes below it that have jobs and are not shut.
type branch struct {
	node
	below heap[*node]
}

func (n *node) before(m *node) bool { return comesBefore(n.head, m.head) }
func (n *node) moved(to int)        { n.at = int32(to) + 1 }

// lead gives a node its first job, and moves it and those above it to their places.
func (n *node) lead(head *job) {
	n.head = head
	for up := n.up; up != nil; n, up = &up.node, up.up {
		switch open := n.head != nil && n.shut == 0; {
		case open && n.at > 0:
			up.below.fix(int(n.at) - 1)
		case open:
			up.below.push(n)
		case n.at > 0:
			up.below.remove(int(n.at) - 1)
			n.at = 0
		}
		var first *job
		if up.below.len() > 0 {
			first = up.below.items[0].head
		}
		if first == up.head {
			return
		}
		up.head = first
	}
}

// close keeps the jobs of a node from claims for one more reason, or for one less.
func (n *node) close(by int32) {
	n.shut += by
	n.lead(n.head)
}

// typeBranch has the sections of a type in one version.
type typeBranch struct {
	branch
	name, version string
	sections      int // of the type, empty and shut ones too
}

// bucket has a list of jobs for each priority, first in first out, and one for each
// priority and fairness key.
type bucket struct {
	branch                   // of the lists, and in a section of the buckets of its limits
	lane   *lane             // of its jobs; nil: no limit of a key
	levels map[listID]*level // not empty ones, and the spare one
	spare  *level            // an empty one: a lone job that comes and goes costs no search
}

// listID tells the lists of a bucket apart.
type listID struct {
	priority int32
	key      string
}

type level struct {
	node // its head is the first job of the list
	listID
	bucket *bucket
	last   *job
}

// insert enters a job behind another one of the list, or at its front.
func (l *level) insert(j, behind *job) {
	j.level, j.prev, j.next = l, behind, l.head
	if behind != nil {
		j.next, behind.next = behind.next, j
	}
	if j.next != nil {
		j.next.prev = j
	} else {
		l.last = j
	}
	if behind == nil {
		l.lead(j)
	}
}

// unlink takes a job out of the list.
func (l *level) unlink(j *job) {
	prev, next := j.prev, j.next
	j.level, j.prev, j.next = nil, nil, nil
	if next != nil {
		next.prev = prev
	} else {
		l.last = prev
	}
	if prev != nil {
		prev.next = next
	} else {
		l.lead(next)
	}
}

// comesBefore is the order of claims: higher priority first, then by rounds, where a job
// without a fairness key is alone in one, then first in first out.
func comesBefore(j, k *job) bool {
	if j.priority != k.priority {
		return j.priority > k.priority
	}
	if a, b := j.stands(), k.stands(); a != b {
		return a < b
	}
	return j.readySeq < k.readySeq
}

func newReady() ready {
	return ready{
		types:  make(map[string][]*typeBranch),
		queues: make(map[string]*queue),
		fair:   make(map[levelID]*fairLevel),
		limits: limits{byName: make(map[storage.LimitName]*counter), sweep: firstSweep, ended: rule.None},
	}
}

// enter enters an available job: by the readySeq and in the round that it had before, or
// if readySeq is 0 at the end of its priority, or of the jobs of its fairness key there.
func (r *ready) enter(j *job) {
	if j.readySeq == 0 {
		j.readySeq = j.turn
		r.takeRound(j)
	} else if j.fairness().Key != "" {
		r.enterRound(j, cmp.Or(j.rest.round, j.readySeq))
	}
	r.add(j)
}

// add enters a job where its priority, type, key, round and readySeq say. Unless it is
// the last one there, it costs a look at each job in front of it.
func (r *ready) add(j *job) {
	l := r.bucket(j).level(j)
	r.n++
	if l.bucket.lane != nil {
		l.bucket.lane.n++
	}
	behind := l.last
	if behind != nil && comesBefore(j, behind) {
		behind = nil
		for k := l.head; comesBefore(k, j); k = k.next {
			behind = k
		}
	}
	l.insert(j, behind)
}

// passOver takes an expired job out of the order of claims. It keeps its readySeq.
func (r *ready) passOver(j *job) {
	r.remove(j)
	r.passed.insert(j, r.passed.last)
	if d := j.deadline(); d.After(r.passedUntil) {
		r.passedUntil = d
	}
}

// bringBack puts the jobs that passOver took out back in their places, if some of them
// are not expired at now. It begins with the last one: each job then comes before those
// that are back, and add finds its place at once.
func (r *ready) bringBack(now time.Time) {
	if !now.Before(r.passedUntil) {
		return
	}
	for j := r.passed.last; j != nil; j = r.passed.last {
		r.remove(j)
		r.add(j)
	}
	r.passedUntil = time.Time{}
}

// level finds the list for a job, or makes it.
func (b *bucket) level(j *job) *level {
	id := listID{j.priority, j.fairness().Key}
	if b.head != nil && b.head.level.listID == id && b.head.level.bucket == b {
		return b.head.level
	}
	l := b.spare
	if l == nil || l.listID != id {
		l = b.levels[id]
	}
	switch {
	case l == nil:
		l = &level{node: node{up: &b.branch}, listID: id, bucket: b}
		b.levels[id] = l
	case l == b.spare:
		b.spare = nil
	}
	return l
}

// remove takes a job out, if it is in. The kind of a job, and so its section, does not
// change while it is in.
func (r *ready) remove(j *job) {
	l := j.level
	if l == nil {
		return
	}
	l.unlink(j)
	b := l.bucket
	if b == nil { // it was in passed
		return
	}
	r.n--
	if b.lane != nil {
		b.lane.n--
	}
	if l.head != nil {
		return
	}
	if b.spare != nil {
		delete(b.levels, b.spare.listID)
	}
	b.spare = l
	if b.lane == nil || b.head != nil {
		return
	}
	r.detach(b.lane, &b.node)
	x := j.kind.section
	if x.spareKeyed != nil {
		delete(x.keyed, x.spareKeyed.lane)
	}
	x.spareKeyed = b
}

// bucket finds the bucket of a job, or makes it.
func (r *ready) bucket(j *job) *bucket {
	x := j.kind.section
	if j.limit == nil {
		return &x.bucket
	}
	l := r.limits.lane(j.limit)
	b := x.keyed[l]
	if b != nil && b != x.spareKeyed {
		return b
	}
	if b == nil {
		if b = x.spareKeyed; b == nil {
			b = &bucket{branch: branch{node: node{up: &x.branch}}, levels: make(map[listID]*level)}
		}
		delete(x.keyed, b.lane)
		b.lane = l
		x.keyed[l] = b
	}
	x.spareKeyed = nil
	r.attach(l, &b.node)
	return b
}

// section finds the section of a queue, type and version, or makes it.
func (r *ready) section(q *queue, jobType, version string) *section {
	all := r.types[jobType]
	i := slices.IndexFunc(all, func(t *typeBranch) bool { return t.version == version })
	if i < 0 {
		i = len(all)
		all = append(all, &typeBranch{branch{node: node{up: &r.order}}, jobType, version, 0})
		r.types[jobType] = all
	}
	t := all[i]
	return orMake(q.sections, t, func() *section {
		t.sections++
		x := &section{home: q, of: t, keyed: make(map[*lane]*bucket)}
		x.up, x.levels = &t.branch, make(map[listID]*level)
		if q.state == ojs.QueuePaused {
			x.shut = 1
		}
		for _, name := range [...]storage.LimitName{
			{Kind: storage.LimitQueue, Name: q.name}, {Kind: storage.LimitType, Name: jobType},
		} {
			if c := r.limits.byName[name]; c != nil {
				r.bind(x, c.lanes[0])
			}
		}
		return x
	})
}

// part forgets a section that has no kinds of jobs.
func (r *ready) part(x *section) {
	for _, l := range x.lanes {
		r.detach(l, &x.node)
	}
	t := x.of
	delete(x.home.sections, t)
	if t.sections--; t.sections > 0 {
		return
	}
	others := slices.DeleteFunc(r.types[t.name], func(other *typeBranch) bool { return other == t })
	if r.types[t.name] = others; len(others) == 0 {
		delete(r.types, t.name)
	}
}

// fewer reports whether a look at n types costs less than one at each that a claim names.
// It makes ready.wanted for that. Making wanted costs more than a claim, so that fewer is
// false for types that the claim before did not name. Claims of an engine name the same
// types, in one slice (storage.Claim.Types).
func (r *ready) fewer(types []string, n int) bool {
	const many = 8
	switch {
	case len(types) <= many || n > len(types):
		return false
	case len(types) != len(r.claimed) || &types[0] != &r.claimed[0]:
		r.claimed, r.wanted = types, nil
		return false
	case r.wanted == nil:
		r.wanted = make(map[string][]string, len(types))
		for _, pattern := range types {
			name := versions.Name(pattern)
			r.wanted[name] = append(r.wanted[name], pattern)
		}
	}
	return true
}

// next finds the job to claim in a queue, or among all queues, nil if there is none.
func (r *ready) next(queue string, types []string, now time.Time) *job {
	r.bringBack(now)
	for {
		j := r.first(queue, types)
		if j == nil || !j.expired(now) {
			return j
		}
		r.passOver(j)
	}
}

// first is the first job for a claim, expired or not. It costs one look per type that the
// claim names or that has jobs, whichever are fewer.
func (r *ready) first(queue string, types []string) (best *job) {
	look := func(n *node) bool {
		if n.at > 0 && (best == nil || comesBefore(n.head, best)) {
			best = n.head
		}
		return true
	}
	n, in := r.order.below.len()/2, map[*typeBranch]*section(nil) // the first has a claimed job, as a rule
	if queue != "" {
		if q := r.queues[queue]; q != nil {
			n, in = len(q.sections), q.sections
		}
	}
	asked := func(t *typeBranch) bool {
		r.looked++
		takes := func(pattern string) bool { return versions.Takes(pattern, t.name, t.version) }
		return len(types) == 0 || slices.ContainsFunc(r.wanted[t.name], takes)
	}
	switch {
	case len(types) > 0 && !r.fewer(types, n):
		for _, pattern := range types {
			r.looked++
			name, _, ranged := strings.Cut(pattern, "@")
			for _, t := range r.types[name] {
				switch x := in[t]; {
				case ranged && !versions.Takes(pattern, name, t.version):
				case queue == "":
					look(&t.node)
				case x != nil:
					look(&x.node)
				}
			}
		}
	case queue == "":
		r.order.below.search(0, func(n *node) bool { return asked(n.head.kind.section.of) && look(n) })
	default:
		for t, x := range in {
			_ = asked(t) && look(&x.node)
		}
	}
	return best
}

// lists yields the lists of the available jobs of a queue, in no order.
func (q *queue) lists() iter.Seq[*level] {
	return func(yield func(*level) bool) {
		for _, x := range q.sections {
			for _, b := range append(slices.Collect(maps.Values(x.keyed)), &x.bucket) {
				for _, l := range b.levels {
					if l.head != nil && !yield(l) {
						return
					}
				}
			}
		}
	}
}

// longest returns the n jobs of a queue that have been available longest, or fewer if it
// has fewer, in this order. Expired ones and some ids do not count.
func (r *ready) longest(queue string, n int, without []string, now time.Time) []*job {
	r.bringBack(now)
	q := r.queues[queue]
	if q == nil {
		return nil
	}
	var all []*job
	for l := range q.lists() {
		for i, j := 0, l.head; i < n && j != nil; j = j.next {
			if j.expired(now) || slices.Contains(without, j.id) {
				continue
			}
			if all = append(all, j); l.key == "" { // those of a key are in the order of rounds
				i++
			}
		}
	}
	slices.SortFunc(all, func(j, k *job) int { return cmp.Compare(j.readySeq, k.readySeq) })
	return all[:min(n, len(all))]
}
