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

// ready holds the available jobs. A bucket has those of one queue, type and rate limit; a
// group has the buckets of one queue and type; and the groups of a type are ordered by
// the job each would give next. So a claim for some types looks at no job of another
// type. A claim from every queue does not look at each queue. A bucket whose limit lets
// no job start is set aside: claims look at none of its jobs.
type ready struct {
	types  map[string]*typeBranch       // the versions of a type apart, by versions.Full
	queues map[string]map[string]*group // queue, type
	vary   map[string][]string          // the names in types of each type that has versions
	asked  []string                     // memory for asks
	order  branch                       // of types
	wanted claimedTypes                 // of the latest claims
	seq    uint64                       // of the latest entry
	n      int                          // jobs, without those in passed
	fair   map[levelID]*fairLevel

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

// typeBranch has the groups of a type.
type typeBranch struct {
	branch
	groups int // of the type, empty and shut ones too
}

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
	branch
	queue, jobType string
	plain          *bucket           // of the jobs without a rate limit
	keyed          map[*lane]*bucket // not empty ones, and the spare one
	spare          *bucket           // an empty one: a lone job that comes and goes allocates none
	lanes          []*lane           // of the limits of its queue and type; nil: none
	kinds          int               // how many kinds its jobs have, available or not
}

// bucket has a list of jobs for each priority, first in first out, and one for each
// priority and fairness key.
type bucket struct {
	branch
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
	return j.turn < k.turn
}

func newReady() ready {
	return ready{
		types:  make(map[string]*typeBranch),
		queues: make(map[string]map[string]*group),
		vary:   make(map[string][]string),
		fair:   make(map[levelID]*fairLevel),
		limits: limits{byName: make(map[storage.LimitName]*counter), sweep: firstSweep, ended: rule.None},
	}
}

// enter enters an available job: in the turn and the round that it had before, or with
// the turn 0 at the end of its priority, or of the jobs of its fairness key there.
func (r *ready) enter(j *job, turn uint64) {
	if turn == 0 {
		r.seq++
		turn = r.seq
		r.takeRound(j, turn)
	} else if j.fairness().Key != "" {
		r.enterRound(j, cmp.Or(j.rest.round, turn))
	}
	r.add(j, turn)
}

// add enters a job where its priority, type, key, round and turn say. Unless it is the
// last one there, it costs a look at each job in front of it.
func (r *ready) add(j *job, turn uint64) {
	l := r.bucket(j).level(j)
	j.turn = turn
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

// passOver takes an expired job out of the order of claims. Its turn stays.
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
		r.add(j, j.turn)
	}
	r.passedUntil = time.Time{}
}

// level finds the list for a job, or makes it.
func (b *bucket) level(j *job) *level {
	id := listID{j.priority, j.fairness().Key}
	if b.head != nil && b.head.level.listID == id {
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

// remove takes a job out, if it is in. The kind of a job, and so its group, does not
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
	g := j.kind.group
	if g.spare != nil {
		delete(g.keyed, g.spare.lane)
	}
	g.spare = b
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
			b = newBucket(g)
		}
		delete(g.keyed, b.lane)
		b.lane = l
		g.keyed[l] = b
	}
	g.spare = nil
	r.attach(l, &b.node)
	return b
}

func newBucket(g *group) *bucket {
	return &bucket{branch: branch{node: node{up: &g.branch}}, levels: make(map[listID]*level)}
}

// join returns the group of a queue and type, for a new kind of jobs.
func (r *ready) join(q *queue, jobType string) *group {
	types := orMake(r.queues, q.name, func() map[string]*group { return make(map[string]*group) })
	g := types[jobType]
	if g == nil {
		t := orMake(r.types, jobType, func() *typeBranch {
			if name, _, versioned := strings.Cut(jobType, "@"); versioned {
				r.vary[name] = append(r.vary[name], jobType)
			}
			return &typeBranch{branch: branch{node: node{up: &r.order}}}
		})
		t.groups++
		g = &group{queue: q.name, jobType: jobType, keyed: make(map[*lane]*bucket)}
		g.up, g.plain = &t.branch, newBucket(g)
		if q.state == ojs.QueuePaused {
			g.shut = 1
		}
		types[jobType] = g
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
	for _, l := range g.lanes {
		r.detach(l, &g.node)
	}
	types := r.queues[g.queue]
	if delete(types, g.jobType); len(types) == 0 {
		delete(r.queues, g.queue)
	}
	t := r.types[g.jobType]
	if t.groups--; t.groups == 0 {
		delete(r.types, g.jobType)
		if name, _, versioned := strings.Cut(g.jobType, "@"); versioned {
			same := func(other string) bool { return other == g.jobType }
			if r.vary[name] = slices.DeleteFunc(r.vary[name], same); len(r.vary[name]) == 0 {
				delete(r.vary, name)
			}
		}
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
	n, in := r.order.below.len()/2, map[string]*group(nil) // the first has a claimed job, as a rule
	if queue != "" {
		in = r.queues[queue]
		n = len(in)
	}
	set := r.fewer(types, n)
	asked := func(jobType string) bool {
		_, ok := set[jobType]
		r.looked++
		return ok || set == nil
	}
	switch {
	case len(types) > 0 && set == nil:
		for _, name := range r.asks(types) {
			r.looked++
			if g := in[name]; g != nil {
				look(&g.node)
			} else if t := r.types[name]; queue == "" && t != nil {
				look(&t.node)
			}
		}
	case queue == "":
		r.order.below.search(0, func(n *node) bool { return asked(n.head.kind.group.jobType) && look(n) })
	default:
		for jobType, g := range in {
			_ = asked(jobType) && look(&g.node)
		}
	}
	return best
}

// lists yields the lists of the available jobs of a queue, in no order.
func (r *ready) lists(queue string) iter.Seq[*level] {
	return func(yield func(*level) bool) {
		for _, g := range r.queues[queue] {
			for _, b := range append(slices.Collect(maps.Values(g.keyed)), g.plain) {
				for _, n := range b.below.items {
					if !yield(n.head.level) {
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
	var all []*job
	for l := range r.lists(queue) {
		for i, j := 0, l.head; i < n && j != nil; j = j.next {
			if j.expired(now) || slices.Contains(without, j.id) {
				continue
			}
			if all = append(all, j); l.key == "" { // those of a key are in the order of rounds
				i++
			}
		}
	}
	slices.SortFunc(all, func(j, k *job) int { return cmp.Compare(j.turn, k.turn) })
	return all[:min(n, len(all))]
}
