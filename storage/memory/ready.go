package memory

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

// ready holds the available jobs. A bucket has those of one queue, type and rate limit; a
// group has the buckets of one queue and type; and the groups of a type are ordered by
// the job each would give next. So a claim for some types looks at no job of another
// type. A claim from every queue does not look at each queue. A bucket whose limit lets
// no job start is set aside: claims look at none of its jobs.
type ready struct {
	types  map[string]*typeIndex        // the versions of a type apart, by versions.Full
	queues map[string]map[string]*group // queue, type
	paused map[string]bool
	vary   map[string][]string // the names in types of each type that has versions
	asked  []string            // memory for asks
	order  heap[*typeIndex]    // those of types with groups
	wanted claimedTypes        // of the latest claims
	seq    uint64              // of the latest entry
	n      int                 // jobs, without those in passed
	fair   map[levelID]*fairLevel

	limits limits
	looked int // types and queues that claims have looked for, and lanes judged, for tests

	// passed lists jobs that a claim has found expired, in no order, so that claims do
	// not walk past them until Due ends them. They come back when they may be claimed
	// after all: if the clock goes back, or when their deadline changes.
	passed      level
	passedUntil time.Time // no deadline in passed is later
}

type typeIndex struct {
	name    string
	groups  heap[*group] // those that are not empty and whose queue is not paused
	queues  int          // groups of the type, empty and paused ones too
	ordered bool         // in ready.order
	at      int
}

func (t *typeIndex) head() *job               { return t.groups.items[0].head() }
func (t *typeIndex) before(u *typeIndex) bool { return comesBefore(t.head(), u.head()) }
func (t *typeIndex) moved(to int)             { t.at = to }

// claimedTypes are the types of the latest claim that named many, as a set. Claims of an
// engine name the same types, in one slice (storage.Claim.Types).
type claimedTypes struct {
	list   []string
	set    map[string]struct{}
	ranged bool // one names versions
}

// of returns the set of a claim's types, nil if one of them names versions, or if the
// claim before named others: making the set costs more than a claim.
func (c *claimedTypes) of(types []string) map[string]struct{} {
	switch {
	case len(types) != len(c.list) || &types[0] != &c.list[0]:
		c.list, c.set, c.ranged = types, nil, false
		return nil
	case c.set == nil:
		c.set = make(map[string]struct{}, len(types))
		for _, t := range types {
			c.set[t] = struct{}{}
			c.ranged = c.ranged || strings.IndexByte(t, '@') >= 0
		}
	}
	if c.ranged {
		return nil
	}
	return c.set
}

type group struct {
	queue, jobType string
	plain          *bucket           // of the jobs without a rate limit
	keyed          map[*lane]*bucket // not empty ones, and the spare one
	spare          *bucket           // an empty one: a lone job that comes and goes allocates none
	lanes          []*lane           // of the limits of its queue and type; nil: none
	buckets        heap[*bucket]     // not empty ones whose lanes are open
	kinds          int               // how many kinds its jobs have, available or not
	active         int               // how many of its jobs are
	indexed        bool              // in its typeIndex
	at             int
}

// bucket has a list of jobs for each priority, first in first out, and one for each
// priority and fairness key.
type bucket struct {
	group  *group
	lane   *lane             // of its jobs; nil: no limit of a key
	laneAt int               // in lane.buckets
	levels map[listID]*level // not empty ones, and the spare one
	top    heap[*level]      // not empty ones
	spare  *level            // an empty one: a lone job that comes and goes costs no search
	at     int               // in group.buckets, if its lane is open
}

// listID tells the lists of a bucket apart.
type listID struct {
	priority int32
	key      string
}

type level struct {
	listID
	bucket      *bucket
	first, last *job
	n           int // of jobs
	at          int
}

func (l *level) before(m *level) bool {
	if l.priority != m.priority {
		return l.priority > m.priority
	}
	return comesBefore(l.first, m.first)
}
func (l *level) moved(to int) { l.at = to }

// append enters a job at the end of the list.
func (l *level) append(j *job) {
	l.n++
	j.level, j.prev = l, l.last
	if l.last != nil {
		l.last.next = j
	} else {
		l.first = j
	}
	l.last = j
}

// unlink takes a job out of the list.
func (l *level) unlink(j *job) {
	l.n--
	if j.prev != nil {
		j.prev.next = j.next
	} else {
		l.first = j.next
	}
	if j.next != nil {
		j.next.prev = j.prev
	} else {
		l.last = j.prev
	}
	j.level, j.prev, j.next = nil, nil, nil
}

func (b *bucket) head() *job            { return b.top.items[0].first }
func (b *bucket) before(c *bucket) bool { return comesBefore(b.head(), c.head()) }
func (b *bucket) moved(to int)          { b.at = to }

func (g *group) head() *job           { return g.buckets.items[0].head() }
func (g *group) before(h *group) bool { return comesBefore(g.head(), h.head()) }
func (g *group) moved(to int)         { g.at = to }

// comesBefore is the order of claims: higher priority first, then by rounds, where a job
// without a fairness key is alone in one, then first in first out.
func comesBefore(j, k *job) bool {
	if j.priority != k.priority {
		return j.priority > k.priority
	}
	if a, b := j.stands(), k.stands(); a != b {
		return a < b
	}
	return j.turn < k.turn
}

func newReady() ready {
	return ready{
		types:  make(map[string]*typeIndex),
		queues: make(map[string]map[string]*group),
		paused: make(map[string]bool),
		vary:   make(map[string][]string),
		fair:   make(map[levelID]*fairLevel),
		limits: limits{byName: make(map[storage.LimitName]*counter), sweep: firstSweep, ended: rule.None},
	}
}

// add enters a job at the end of its priority, or of the jobs of its fairness key there.
func (r *ready) add(j *job) {
	b := r.bucket(j)
	l := b.level(j)
	r.n++
	r.seq++
	j.turn = r.seq
	if l.append(j); j.prev != nil {
		return // the bucket still has the same head
	}
	wasEmpty := b.top.len() == 0
	b.top.push(l)
	switch {
	case b.closed():
		return
	case wasEmpty:
		b.group.buckets.push(b)
	case b.head() == j:
		b.group.buckets.fix(b.at)
	default:
		return
	}
	if b.group.head() == j {
		r.reindex(b.group)
	}
}

// passOver takes an expired job out of the order of claims. Its turn stays.
func (r *ready) passOver(j *job) {
	r.remove(j)
	r.passed.append(j)
	if d := j.deadline(); d.After(r.passedUntil) {
		r.passedUntil = d
	}
}

// bringBack puts the jobs that passOver took out back in their places, if some of them
// are not expired at now.
func (r *ready) bringBack(now time.Time) {
	if !now.Before(r.passedUntil) {
		return
	}
	var jobs []*job
	for j := r.passed.first; j != nil; j = j.next {
		jobs = append(jobs, j)
	}
	// The last one first: it comes before all that have come back, so that none of these
	// is walked past.
	slices.SortFunc(jobs, func(j, k *job) int {
		return cmp.Or(cmp.Compare(k.stands(), j.stands()), cmp.Compare(k.turn, j.turn))
	})
	for _, j := range jobs {
		r.replace(j)
	}
	r.passedUntil = time.Time{}
}

// replace enters a job where its priority, type and key say, in the turn that it has.
func (r *ready) replace(j *job) {
	turn := j.turn
	r.remove(j)
	r.add(j)
	r.moveUp(j, turn)
}

// moveUp gives the last job of its level the turn that it had before. It costs a look at
// each job in front of it.
func (r *ready) moveUp(j *job, turn uint64) {
	l, before := j.level, (*job)(nil)
	j.turn = turn
	for k := l.first; k != j && comesBefore(k, j); k = k.next {
		before = k
	}
	if j.prev != before {
		j.prev.next, l.last = nil, j.prev
		if j.prev = before; before != nil {
			j.next, before.next = before.next, j
		} else {
			j.next, l.first = l.first, j
		}
		j.next.prev = j
	}
	if b := l.bucket; before == nil {
		b.top.fix(l.at)
		if !b.closed() {
			b.group.buckets.fix(b.at)
			r.reindex(b.group)
		}
	}
}

// level finds the list for a job, or makes it.
func (b *bucket) level(j *job) *level {
	id := listID{j.priority, j.fairness().Key}
	if b.top.len() > 0 && b.top.items[0].listID == id {
		return b.top.items[0]
	}
	l := b.spare
	if l == nil || l.listID != id {
		l = b.levels[id]
	}
	switch {
	case l == nil:
		l = &level{listID: id, bucket: b}
		b.levels[id] = l
	case l == b.spare:
		b.spare = nil
	}
	return l
}

// retire takes a list that has become empty out of the order.
func (b *bucket) retire(l *level) {
	b.top.remove(l.at)
	if b.spare != nil {
		delete(b.levels, b.spare.listID)
	}
	b.spare = l
}

// closed reports whether the limit of the bucket's jobs lets none start.
func (b *bucket) closed() bool { return b.lane != nil && b.lane.closed }

// remove takes a job out, if it is in.
func (r *ready) remove(j *job) {
	l := j.level
	if l == nil {
		return
	}
	if l == &r.passed {
		l.unlink(j)
		return
	}
	r.n--
	b := l.bucket
	g := b.group
	if j.prev != nil { // no head of anything
		l.unlink(j)
		return
	}
	leads, wasHead := !b.closed() && g.head() == j, b.head() == j
	if l.unlink(j); l.first == nil {
		b.retire(l)
	} else if b.top.len() > 1 {
		b.top.fix(l.at)
	}
	switch {
	case b.top.len() == 0:
		if !b.closed() {
			g.buckets.remove(b.at)
		}
		if b.lane != nil {
			r.leave(b)
			if g.spare != nil {
				delete(g.keyed, g.spare.lane)
			}
			g.spare = b
		}
	case b.closed():
	case wasHead:
		g.buckets.fix(b.at)
	}
	if leads {
		r.reindex(g)
	}
}

// reindex puts a group whose head has changed into its place among those of its type.
func (r *ready) reindex(g *group) {
	t := r.types[g.jobType]
	groups := &t.groups
	wanted := g.buckets.len() > 0 && !r.paused[g.queue] && !g.held()
	switch {
	case wanted && g.indexed:
		groups.fix(g.at)
	case wanted:
		groups.push(g)
	case g.indexed:
		groups.remove(g.at)
	}
	g.indexed = wanted
	switch wanted := groups.len() > 0; {
	case wanted && t.ordered:
		r.order.fix(t.at)
	case wanted:
		r.order.push(t)
	case t.ordered:
		r.order.remove(t.at)
	}
	t.ordered = groups.len() > 0
}

// bucket finds the bucket of a job, or makes it.
func (r *ready) bucket(j *job) *bucket {
	g := j.kind.group
	if j.limit == nil {
		return g.plain
	}
	l := r.limits.lane(j.limit)
	b := g.keyed[l]
	if b != nil && b != g.spare {
		return b
	}
	if b == nil {
		if b = g.spare; b == nil {
			b = newBucket(g, l)
		}
		delete(g.keyed, b.lane)
		b.lane = l
		g.keyed[l] = b
	}
	g.spare = nil
	r.enter(b)
	return b
}

func newBucket(g *group, l *lane) *bucket {
	return &bucket{group: g, lane: l, levels: make(map[listID]*level)}
}

// join returns the group of a queue and type, for a new kind of jobs.
func (r *ready) join(queue, jobType string) *group {
	types := orMake(r.queues, queue, func() map[string]*group { return make(map[string]*group) })
	g := types[jobType]
	if g == nil {
		g = &group{queue: queue, jobType: jobType, keyed: make(map[*lane]*bucket)}
		g.plain = newBucket(g, nil)
		types[jobType] = g
		t := orMake(r.types, jobType, func() *typeIndex {
			if name, _, versioned := strings.Cut(jobType, "@"); versioned {
				r.vary[name] = append(r.vary[name], jobType)
			}
			return &typeIndex{name: jobType}
		})
		t.queues++
		r.bind(g)
	}
	g.kinds++
	return g
}

// part forgets a group with its last kind of jobs.
func (r *ready) part(g *group) {
	if g.kinds--; g.kinds > 0 {
		return
	}
	r.unbind(g)
	types := r.queues[g.queue]
	if delete(types, g.jobType); len(types) == 0 {
		delete(r.queues, g.queue)
	}
	t := r.types[g.jobType]
	if t.queues--; t.queues == 0 {
		delete(r.types, g.jobType)
		if name, _, versioned := strings.Cut(g.jobType, "@"); versioned {
			same := func(other string) bool { return other == g.jobType }
			if r.vary[name] = slices.DeleteFunc(r.vary[name], same); len(r.vary[name]) == 0 {
				delete(r.vary, name)
			}
		}
	}
}

// pause keeps the jobs of a queue from claims, or gives them back.
func (r *ready) pause(queue string, paused bool) {
	if paused {
		r.paused[queue] = true
	} else {
		delete(r.paused, queue)
	}
	for _, g := range r.queues[queue] {
		r.reindex(g)
	}
}

// asks returns the names in types that a claim of some types takes: the types themselves
// as long as no type has versions and no claim asks for any. The list is valid until the
// next call.
func (r *ready) asks(claimed []string) []string {
	ranged := func(pattern string) bool { return strings.IndexByte(pattern, '@') >= 0 }
	if len(r.vary) == 0 && !slices.ContainsFunc(claimed, ranged) {
		return claimed
	}
	r.asked = r.asked[:0]
	for _, pattern := range claimed {
		name := versions.Name(pattern)
		if versions.Takes(pattern, name, "") {
			r.asked = append(r.asked, name)
		}
		for _, full := range r.vary[name] {
			if versions.Takes(pattern, name, full[len(name)+1:]) {
				r.asked = append(r.asked, full)
			}
		}
	}
	return r.asked
}

// fewer returns the types that a claim names, if a look at n types costs less than one at
// each name; else nil.
func (r *ready) fewer(types []string, n int) map[string]struct{} {
	const many = 8
	if len(types) <= many || n > len(types) || len(r.vary) > 0 {
		return nil
	}
	return r.wanted.of(types)
}

// next finds the job to claim among all queues, nil if there is none. It costs one look
// per type that the claim names or that has jobs, whichever are fewer.
func (r *ready) next(types []string, now time.Time) *job {
	r.bringBack(now)
	for {
		var best *job
		set := r.fewer(types, r.order.len()/2) // the first has a claimed job, as a rule
		if len(types) == 0 || set != nil {
			r.order.search(0, func(t *typeIndex) bool {
				r.looked++
				if _, ok := set[t.name]; set != nil && !ok {
					return false
				}
				best = earlier(best, t.head())
				return true
			})
		} else {
			for _, name := range r.asks(types) {
				r.looked++
				if t := r.types[name]; t != nil && t.ordered {
					best = earlier(best, t.head())
				}
			}
		}
		if best == nil || !best.expired(now) {
			return best
		}
		r.passOver(best)
	}
}

// nextIn finds the job to claim in one queue.
func (r *ready) nextIn(queue string, types []string, now time.Time) *job {
	if r.paused[queue] {
		return nil
	}
	r.bringBack(now)
	in := r.queues[queue]
	for {
		var best *job
		look := func(g *group) {
			if r.looked++; g != nil && g.indexed {
				best = earlier(best, g.head())
			}
		}
		if set := r.fewer(types, len(in)); len(types) == 0 || set != nil {
			for _, g := range in {
				if _, ok := set[g.jobType]; set == nil || ok {
					look(g)
				}
			}
		} else {
			for _, name := range r.asks(types) {
				look(in[name])
			}
		}
		if best == nil || !best.expired(now) {
			return best
		}
		r.passOver(best)
	}
}

// earlier returns the one of two jobs that comes first, of which nil is none.
func earlier(a, b *job) *job {
	if a == nil || b != nil && comesBefore(b, a) {
		return b
	}
	return a
}

// longest returns the n jobs of a queue that have been available longest, or fewer if it
// has fewer, in this order. Expired ones and some ids do not count.
func (r *ready) longest(queue string, n int, without []string, now time.Time) []*job {
	r.bringBack(now)
	var all []*job
	for _, g := range r.queues[queue] {
		for _, b := range append(slices.Collect(maps.Values(g.keyed)), g.plain) {
			for _, l := range b.top.items {
				for i, j := 0, l.first; i < n && j != nil; j = j.next {
					if j.expired(now) || slices.Contains(without, j.id) {
						continue
					}
					if all = append(all, j); l.key == "" { // those of a key are in the order of rounds
						i++
					}
				}
			}
		}
	}
	slices.SortFunc(all, func(j, k *job) int { return cmp.Compare(j.turn, k.turn) })
	return all[:min(n, len(all))]
}
